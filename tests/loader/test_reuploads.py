"""Segments that were compacted and uploaded again while a load was stopped: what comes is the new log from there on."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from loading import positions_in, read_rest

from segreader.errors import ObjectChangedError, ObjectNotFoundError, PositionError
from segreader.isolation import IsolationLevel
from segreader.loader import LoaderSplit, LoadQuery, PartitionConsumer, Position, ReaderPool, SplitEnumerator
from segreader.loader.splits import known_byte
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import kafka_uuid, local_tiered_files, write_files
from segreader.testing.records import ProducerRecord


class Batch(NamedTuple):
    """Offsets ``first`` to ``last``, and those of them that still have a record."""

    first: int
    last: int
    kept: tuple[int, ...]
    producer: int | None = None
    is_aborted: bool = False
    is_marker: bool = False


def written(chance: random.Random) -> list[Batch]:
    """A log of transactions that end and others between; the last batch belongs to none."""
    batches: list[Batch] = []

    def append(count: int, producer: int | None = None, is_aborted: bool = False, is_marker: bool = False) -> None:
        first = batches[-1].last + 1 if batches else 0
        kept = () if is_marker else tuple(range(first, first + count))
        batches.append(Batch(first, first + count - 1, kept, producer, is_aborted, is_marker))

    for number in range(12):
        is_aborted = chance.random() < 0.5
        for _ in range(chance.randint(1, 2)):
            append(chance.randint(1, 5), 7 + number, is_aborted)
            append(chance.randint(1, 5))
        append(1, 7 + number, is_aborted, is_marker=True)
    append(2)
    return batches


def compacted(batches: Sequence[Batch], chance: random.Random) -> list[Batch]:
    """What the cleaner leaves: records, whole batches and aborted transactions go, offsets stay as they are."""
    cleaned, left = [], set()
    for batch in batches[:-1]:
        share = chance.choice([0, 0.3, 0.6, 1])
        kept = tuple(offset for offset in batch.kept if chance.random() >= share)
        if batch.is_aborted and chance.random() < 0.7:
            kept = ()
        if kept or batch.first == 0 or (batch.is_marker and batch.producer in left) or chance.random() < 0.3:
            cleaned.append(batch._replace(kept=kept))
            left.add(batch.producer)
    return [*cleaned, batches[-1]]


def upload(root: Path, batches: Sequence[Batch], name: int, chance: random.Random) -> None:
    """The whole of what is stored, in segments that begin anywhere where no offset is missing."""
    shutil.rmtree(root, ignore_errors=True)
    segments = [SegmentBuilder(index_interval_bytes=200)]
    for before, batch in pairwise([None, *batches]):
        assert batch is not None
        if before is not None and before.last + 1 == batch.first and chance.random() < 0.2:
            segments.append(segments[-1].roll())
        append(segments[-1].skip(batch.first - segments[-1].next_offset), batch)
    for segment in segments:
        files = local_tiered_files("orders", [segment])
        write_files(root, {f"{path[: -len(file)]}{_renamed(file, name)}": data for path, file, data in _named(files)})


def append(segment: SegmentBuilder, batch: Batch) -> None:
    producer: dict[str, Any] = {} if batch.producer is None else {"producer_id": batch.producer, "producer_epoch": 0}
    if batch.is_marker:
        segment.marker(batch.producer or 0, abort=batch.is_aborted)
    elif not batch.kept:
        segment.empty_batch(batch.last - batch.first + 1, transactional=bool(producer), **producer)
    else:
        records = [ProducerRecord(b"%d" % offset, offset=offset) for offset in batch.kept]
        segment.batch(records, last_offset=batch.last, transactional=bool(producer), **producer)


def _named(files: dict[str, bytes]) -> Iterable[tuple[str, str, bytes]]:
    return ((path, path.rpartition("/")[2], data) for path, data in files.items())


def _renamed(file: str, name: int) -> str:
    """The name of the same file of another upload."""
    return f"{file[:20]}-{kafka_uuid(name, file[:20])}.{file.rpartition('.')[2]}"


def offsets_of(pool: ReaderPool, splits: Sequence[LoaderSplit]) -> list[int]:
    return [offset for split in splits for offset in read_rest(pool.open(split))["offset"].to_pylist()]


@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("seed", range(10))
def test_a_stopped_load_goes_on_in_what_compaction_left_or_is_told_to_plan_anew(
    seed: int, level: str, tmp_path: Path
) -> None:
    chance = random.Random(seed)
    log = written(chance)
    query = LoadQuery(
        location=str(tmp_path / "tier"), topic="orders", isolation_level=IsolationLevel(level),
        split_bytes=chance.choice([300, 1 << 20]),
    )  # fmt: skip
    upload(tmp_path / "tier", log[: chance.randint(20, len(log))], 1, chance)
    with SplitEnumerator(query) as enumerator, ReaderPool(query) as pool:
        before, state = enumerator.discover(), enumerator.state()
        stops = [(split, stop) for split in before for stop in positions_in(pool.open(split))]
    cleaned = compacted(log, chance)
    upload(tmp_path / "tier", cleaned, chance.choice([1, 2]), chance)
    aborts = level == "read_committed"
    new = [offset for batch in cleaned for offset in batch.kept if not (aborts and batch.is_aborted)]

    with ReaderPool(query) as pool, SplitEnumerator(query, state=state) as enumerator:
        assert offsets_of(pool, enumerator.discover()) == [offset for offset in new if offset >= before[-1].stop]
        with SplitEnumerator(query) as fresh, PartitionConsumer(query, 0) as consumer:
            splits = fresh.discover()
            for split, stop in stops[::7]:
                rest = [offset for offset in new if offset >= stop.next_offset]
                mine = [offset for offset in rest if offset < split.stop]
                assert offsets_of(pool, enumerator.splits_from([stop])) == mine
                try:
                    assert read_rest(pool.open(split, stop))["offset"].to_pylist() == mine
                except (ObjectNotFoundError, ObjectChangedError) as error:
                    assert "splits_from" in (error.hint or "")
                for one in splits:
                    if one.start <= stop.next_offset < one.stop:
                        try:
                            found = read_rest(pool.open(one, Position.from_json(stop.to_json())))["offset"].to_pylist()
                        except PositionError as error:
                            assert "other transactions" in error.message
                            assert "splits_from" in (error.hint or "")
                        else:
                            assert found == [offset for offset in rest if offset < one.stop]
                batch = consumer.fetch(stop.next_offset)
                assert batch.records["offset"].to_pylist()[:1] == rest[:1]


def test_a_byte_of_a_log_that_was_replaced_says_nothing_about_the_one_that_is_there(tmp_path: Path) -> None:
    """A position in the first batch of a segment that was joined with the one before: both begin at byte 0."""
    root = tmp_path / "tier"
    log = [Batch(first, first + 4, tuple(range(first, first + 5))) for first in range(0, 40, 5)]
    query = LoadQuery(location=str(root), topic="orders")
    first = SegmentBuilder()
    for batch in log[:4]:
        append(first, batch)
    second = first.roll()
    for batch in log[4:]:
        append(second, batch)
    write_files(root, local_tiered_files("orders", [first, second]))
    with SplitEnumerator(query) as enumerator, ReaderPool(query) as pool:
        reader = pool.open(enumerator.discover()[1])
        reader.read(max_rows=2)
        stop = reader.position
    assert (stop.next_offset, stop.batch_position, stop.batch_offset) == (22, 0, 20)
    shutil.rmtree(root)
    whole = SegmentBuilder()
    for batch in log:
        append(whole, batch)
    write_files(root, local_tiered_files("orders", [whole]))
    with SplitEnumerator(query) as enumerator, ReaderPool(query) as pool:
        (split,) = enumerator.discover()
        assert read_rest(pool.open(split, stop))["offset"].to_pylist() == list(range(22, 40))


def test_a_saved_split_of_a_replaced_log_is_refused_and_planned_anew(tmp_path: Path) -> None:
    """The same name, size and offsets: only what the store says of the version tells."""
    root = tmp_path / "tier"
    query = LoadQuery(location=str(root), topic="orders")
    old, new = (SegmentBuilder().batch([word] * 5).batch([word] * 5) for word in (b"old", b"new"))
    write_files(root, local_tiered_files("orders", [old]))
    with SplitEnumerator(query) as enumerator, ReaderPool(query) as pool:
        (split,) = enumerator.discover()
        state = enumerator.state()
        reader = pool.open(split)
        reader.read(max_rows=7)
        stop = reader.position
    assert stop.log_tag == split.split.log_tag
    saved, place = split.to_json(), stop.to_json()
    upload_anew(root, [new])

    with ReaderPool(query) as pool, SplitEnumerator(query, state=state) as enumerator:
        for position in (None, Position.from_json(place)):
            with pytest.raises(ObjectChangedError, match="found mtime:") as caught:
                pool.open(LoaderSplit.from_json(saved), position).read()
            assert "splits_from" in (caught.value.hint or "")
        assert enumerator.discover() == []
        (rest,) = enumerator.splits_from([Position.from_json(place)])
        assert rest.split.log_tag not in (None, stop.log_tag)
        assert read_rest(pool.open(rest))["value"].to_pylist() == [b"new"] * 3


def test_a_position_in_a_log_of_another_version_is_found_by_its_offset(tmp_path: Path) -> None:
    """One batch more begins before the position: the byte that it names lies inside of a batch, or before another."""
    root = tmp_path / "tier"
    query = LoadQuery(location=str(root), topic="orders")
    write_files(root, local_tiered_files("orders", [SegmentBuilder().batch([b"v" * 10] * 4).batch([b"v" * 10] * 4)]))
    with SplitEnumerator(query) as enumerator, ReaderPool(query) as pool:
        reader = pool.open(enumerator.discover()[0])
        reader.read(max_rows=6)
        stop = reader.position
    pair = SegmentBuilder().batch([b"w" * 10] * 4).batch([b"w" * 10] * 4)
    upload_anew(root, [pair])
    with SplitEnumerator(query) as enumerator, ReaderPool(query) as pool:
        (split,) = enumerator.discover()
        assert (stop.log, stop.log_size) == (split.split.log, split.split.log_size)
        assert stop.batch_position != 0
        assert known_byte(split.split, stop) is None
        assert known_byte(split.split, replace(stop, log_tag=None)) == stop.batch_position  # of an earlier version
        assert read_rest(pool.open(split, stop))["offset"].to_pylist() == [6, 7]


def test_a_consumer_plans_again_where_a_log_was_replaced_under_its_name(tmp_path: Path) -> None:
    root = tmp_path / "tier"
    old, new = (SegmentBuilder().batch([word] * 5).batch([word] * 5) for word in (b"old", b"new"))
    write_files(root, local_tiered_files("orders", [old]))
    with PartitionConsumer(LoadQuery(location=str(root), topic="orders"), 0) as consumer:
        assert consumer.fetch(0, max_rows=2).records["value"].to_pylist() == [b"old"] * 2
        upload_anew(root, [new])
        assert consumer.fetch(3).records["value"].to_pylist() == [b"new"] * 7


def upload_anew(root: Path, segments: Sequence[SegmentBuilder]) -> None:
    """The same names a second later, whatever the clock of the file system resolves."""
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*.log")}
    write_files(root, local_tiered_files("orders", segments))
    for path, modified_ns in before.items():
        os.utime(path, ns=(modified_ns, modified_ns + 10**9))
