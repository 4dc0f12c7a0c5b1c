"""Base offsets that are wrong where a segment is cut into splits: seen whether these are read together or apart."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from planted import Planted, sound_log

import segreader
from segreader.errors import CorruptBatchError, FormatError
from segreader.plan.request import Policy, ReadOptions, Request, parse_bounds
from segreader.plan.split import ReadPlan
from segreader.ranges import OffsetRange
from segreader.read.split_reader import SplitReader, read_split
from segreader.scans import Scan
from segreader.stored.source import LocationSource
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import write_files
from segreader.testing.stores import MemoryStore


def every_batch_indexed(interval_bytes: int = 1) -> SegmentBuilder:
    """Batches of five records, with an index entry for each, or one after every so many bytes."""
    segment = SegmentBuilder(0, index_interval_bytes=interval_bytes)
    for _ in range(8):
        segment.batch([b"x" * 20] * 5)
    return segment


def planted(root: Path, shift: int, batch: int) -> Planted:
    one = Planted(root, [every_batch_indexed()])
    data = one.data(0, "log")
    at = one.segments[0].batch_positions[batch]
    data[at : at + 8] = (int.from_bytes(data[at : at + 8], "big") + shift).to_bytes(8, "big")
    one.put(0, "log", data)
    write_files(one.root, one.files)
    return one


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("shift", [-4, -1, 1, 4])
@pytest.mark.parametrize("batch", range(1, 8))
def test_a_shifted_batch_is_refused_in_splits_of_one_batch(tmp_path: Path, batch: int, shift: int, apart: bool) -> None:
    one = planted(tmp_path, shift, batch)
    scan = segreader.scan(one.root, split_bytes=1)
    seen: list[int] = []
    with pytest.raises(FormatError) as caught:
        if not apart:
            seen += [record.offset for record in scan.records()]
        else:
            for split in scan.plan().splits:
                assert scan.store is not None
                for rows in read_split(split, scan.store, ReadOptions()):
                    seen += rows.column("offset").to_pylist()
    assert caught.value.source is not None
    assert seen == list(range(len(seen)))


@pytest.mark.parametrize("apart", [False, True])
def test_splits_of_sound_segments_are_read_alike_together_and_apart(tmp_path: Path, apart: bool) -> None:
    one = Planted(tmp_path, sound_log(3))
    write_files(one.root, one.files)
    scan = segreader.scan(one.root, split_bytes=1, isolation_level="read_uncommitted")
    whole = [r.offset for r in segreader.scan(one.root, isolation_level="read_uncommitted").records()]
    if not apart:
        assert [r.offset for r in scan.records()] == whole
    else:
        assert scan.store is not None
        rows = [rows for split in scan.plan().splits for rows in read_split(split, scan.store, ReadOptions())]
        assert [offset for some in rows for offset in some.column("offset").to_pylist()] == whole


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_a_batch_farther_above_its_segment_than_an_index_reaches_is_damage(tmp_path: Path, level: str) -> None:
    one = Planted(tmp_path, [SegmentBuilder(7).batch([b"a"]).batch([b"b"])])
    data = one.data(0, "log")
    at = one.segments[0].batch_positions[1]
    data[at : at + 8] = (8 + (1 << 31)).to_bytes(8, "big")
    one.put(0, "log", data)
    for kind in ("index", "timeindex"):
        one.put(0, kind, b"")
    assert one.codes_of_both() >= {"batch-outside-segment"}
    with pytest.raises(FormatError, match=r"no segment from 7 on reaches farther"):
        list(segreader.scan(one.root, isolation_level=level).records())


def with_a_batch_twice(root: Path, batch: int, interval_bytes: int = 1) -> Planted:
    one = Planted(root, [every_batch_indexed(interval_bytes)])
    data = one.data(0, "log")
    starts = [*one.segments[0].batch_positions, len(data)]
    one.put(0, "log", data[: starts[batch + 1]] + data[starts[batch] :])
    return one


def store_and_plan(one: Planted, offsets: str = "0:") -> tuple[MemoryStore, ReadPlan]:
    store = MemoryStore(one.files)
    request = Request(topic="orders", bounds=parse_bounds(offsets))
    plan = Scan(LocationSource("", opened=(store, "")), request, ReadOptions(split_bytes=1)).plan()
    store.requests.clear()
    return store, plan


@pytest.mark.parametrize("interval_bytes", [1, 250, 400])
@pytest.mark.parametrize("batch", range(8))
def test_a_batch_that_is_there_twice_at_a_cut_is_refused_by_the_splits_apart(
    tmp_path: Path, batch: int, interval_bytes: int
) -> None:
    store, plan = store_and_plan(with_a_batch_twice(tmp_path, batch, interval_bytes))
    assert len(plan.splits) > 1
    errors: list[FormatError] = []
    for split in plan.splits:
        try:
            list(read_split(split, store, ReadOptions()))
        except FormatError as error:
            errors.append(error)
    assert errors
    assert all(error.source is not None for error in errors)


def test_the_split_before_a_repeated_batch_delivers_its_records_and_then_raises(tmp_path: Path) -> None:
    store, plan = store_and_plan(with_a_batch_twice(tmp_path, 6))
    split = plan.splits[-2]
    seen: list[int] = []
    with pytest.raises(CorruptBatchError, match=r"found a batch from offset 30 on, expected more than 34") as caught:
        for rows in read_split(split, store, ReadOptions()):
            seen += rows.column("offset").to_pylist()
    assert seen == list(range(30, 35))
    assert caught.value.position == split.positions.stop
    assert caught.value.source == store.url(split.log)


def test_a_batch_that_is_there_twice_at_a_cut_is_noted_where_damage_is_passed_over(tmp_path: Path) -> None:
    store, plan = store_and_plan(with_a_batch_twice(tmp_path, 6))
    reader = SplitReader(store, ReadOptions(on_corrupt=Policy.SKIP))
    assert sum(rows.num_rows for rows in reader.read(plan.splits[-2])) == 5
    assert len(reader.metrics.notes) == 1
    assert "expected more than 34, where the batch before it ends" in reader.metrics.notes[0]


def test_a_split_read_alone_asks_once_and_for_one_header_more_than_it_holds(tmp_path: Path) -> None:
    store, plan = store_and_plan(Planted(tmp_path, [every_batch_indexed()]))
    for split in plan.splits:
        list(read_split(split, store, ReadOptions()))
    stops = [split.positions.stop + 17 for split in plan.splits[:-1]] + [plan.splits[-1].log_size]
    ranges = [f"bytes={split.positions.start}-{stop - 1}" for split, stop in zip(plan.splits, stops, strict=True)]
    assert [request.split()[-1] for request in store.requests] == ranges


def test_no_header_behind_a_split_is_asked_for_where_one_reader_goes_on(tmp_path: Path) -> None:
    store, plan = store_and_plan(Planted(tmp_path, [every_batch_indexed()]))
    reader = SplitReader(store, ReadOptions())
    list(reader.read(plan.splits[0], then=plan.splits[1]))
    assert [request.split()[-1] for request in store.requests] == [f"bytes=0-{plan.splits[0].positions.stop - 1}"]


def test_no_header_is_asked_for_that_nothing_needs_or_that_is_in_another_chunk(tmp_path: Path) -> None:
    store, plan = store_and_plan(Planted(tmp_path, [every_batch_indexed()]), "0:10")
    last = plan.splits[-1]
    assert last.positions.stop < last.log_size
    chunk = replace(last, offsets=OffsetRange(0), chunk_size=last.positions.stop)
    for split in (last, chunk):
        list(read_split(split, store, ReadOptions()))
    span = f"bytes={last.positions.start}-{last.positions.stop - 1}"
    assert [request.split()[-1] for request in store.requests] == [span, span]
