"""What may be said of transactions where segments, indexes or batches are missing: never more than the files tell."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import segreader
from segreader.errors import (
    CorruptBatchError,
    CorruptIndexError,
    FormatError,
    ObjectNotFoundError,
    SegmentGapError,
    SegreaderError,
)
from segreader.format.batch import Record, TimestampType
from segreader.format.compression import Codec
from segreader.plan.request import Policy, ReadOptions
from segreader.plan.split import EndReason
from segreader.ranges import OffsetRange
from segreader.stored import transactions
from segreader.stored.lineage import read_lineage
from segreader.stored.log import read_log_offsets
from segreader.stored.planner import PartitionPlanner
from segreader.stored.source import LocationSource
from segreader.stored.transactions import snapshot_at_start
from segreader.testing.batches import ABORT, control_key, encode_batch
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import (
    kafka_uuid,
    local_tiered_files,
    write_broker_log,
    write_files,
    write_local_tiered,
)
from segreader.testing.layouts import pinterest_files
from segreader.testing.remote_log_metadata import encode_segment_metadata, encode_segment_update
from segreader.testing.stores import MemoryStore


def aborted_in_the_next() -> list[SegmentBuilder]:
    """Data of an aborted transaction at 5 to 9; its marker is the first batch of the second segment, at 10."""
    first = SegmentBuilder().batch([b"x"] * 5).batch([b"no"] * 5, producer_id=1, transactional=True)
    second = first.roll().marker(1, abort=True).batch([b"x"] * 9)
    return [first, second, second.roll().batch([b"x"] * 10)]


def two_transactions(*, first_aborts: bool, second_aborts: bool, rolls: bool = False) -> list[SegmentBuilder]:
    """Of one producer, at 5 to 7 with a marker at 8, and at 10 to 12 with a marker at 13."""
    first = SegmentBuilder().batch([b"x"] * 5).batch([b"1"] * 3, producer_id=1, transactional=True)
    marker = first.roll() if rolls else first
    marker.marker(1, abort=first_aborts).batch([b"x"])
    second = marker.roll().batch([b"2"] * 3, producer_id=1, transactional=True).marker(1, abort=second_aborts)
    return [*([first] if rolls else []), marker, second.batch([b"x"] * 3)]


def bare(root: Path, segments: list[SegmentBuilder]) -> Path:
    """Logs and offset indexes only: what was aborted must be replayed."""
    write_files(root, {name: data for name, data in pinterest_files("orders", segments).items() if "_meta" not in name})
    return root


def log(root: Path, base: int) -> Path:
    return next(root.rglob(f"{base:020d}*.log"))


def damage(file: Path, position: int, bit: int = 1) -> None:
    data = bytearray(file.read_bytes())
    data[position] ^= bit
    file.write_bytes(data)


def read(root: Path, **arguments: Any) -> tuple[list[int], SegreaderError | None]:
    seen: list[int] = []
    try:
        for record in segreader.scan(root, **arguments).records():
            seen.append(record.offset)
    except SegreaderError as error:
        return seen, error
    return seen, None


def remove(root: Path, base: int) -> None:
    for file in root.rglob(f"{base:020d}*"):
        file.unlink()


@pytest.mark.parametrize("layout", ["remote", "bare"])
def test_a_hole_behind_the_range_counts_where_it_hides_the_end_of_a_transaction(tmp_path: Path, layout: str) -> None:
    bare(tmp_path, aborted_in_the_next()) if layout == "bare" else write_local_tiered(
        tmp_path, "orders", aborted_in_the_next()
    )
    remove(tmp_path, 10)
    seen, error = read(tmp_path, offsets="0:10")
    assert (seen, type(error)) == ([], SegmentGapError)
    assert "offsets below 5" in str(error)
    scan = segreader.scan(tmp_path, offsets="0:10", on_gap="skip")
    assert [record.offset for record in scan.records()] == [0, 1, 2, 3, 4]
    (gap,) = scan.plan().gaps
    assert (gap.start, gap.stop, gap.held_back) == (10, 20, 5)
    assert read(tmp_path, offsets="0:5") == ([0, 1, 2, 3, 4], None)


def test_of_the_holes_behind_the_range_only_the_first_can_matter(tmp_path: Path) -> None:
    segments = [SegmentBuilder().batch([b"x"] * 10)]
    for _ in range(4):
        segments.append(segments[-1].roll().batch([b"x"] * 5).batch([b"t"] * 5, producer_id=1, transactional=True))
        segments.append(segments[-1].roll().marker(1).batch([b"x"] * 9))
    write_local_tiered(tmp_path, "orders", segments)
    remove(tmp_path, 40)
    remove(tmp_path, 60)
    assert read(tmp_path, offsets="0:30") == ([*range(20), *range(21, 30)], None)
    assert read(tmp_path, offsets="20:35")[0] == list(range(21, 35))
    assert isinstance(read(tmp_path, offsets="20:36")[1], SegmentGapError)


def test_a_marker_behind_a_hole_may_end_another_transaction(tmp_path: Path) -> None:
    segments = two_transactions(first_aborts=False, second_aborts=True, rolls=True)
    bare(tmp_path, segments)
    log(tmp_path, 8).unlink()
    scan = segreader.scan(tmp_path, on_gap="skip")
    assert [record.offset for record in scan.records()] == [0, 1, 2, 3, 4, 14, 15, 16]
    assert [gap.held_back for gap in scan.plan().gaps] == [5]


def test_a_row_behind_a_hole_that_names_the_transaction_tells_its_end(tmp_path: Path) -> None:
    first = SegmentBuilder().batch([b"x"] * 5).batch([b"no"] * 3, producer_id=1, transactional=True)
    second = first.roll().batch([b"x"] * 2)
    third = second.roll().marker(1, abort=True).batch([b"x"])
    write_local_tiered(tmp_path, "orders", [first, second, third])
    remove(tmp_path, 8)
    scan = segreader.scan(tmp_path, on_gap="skip")
    assert [record.offset for record in scan.records()] == [0, 1, 2, 3, 4, 11]
    assert [gap.held_back for gap in scan.plan().gaps] == [None]


@pytest.fixture
def snapshots_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    read, original = list[int](), transactions._Files.snapshot

    def counted(files: Any, part: Any) -> Any:
        read.append(part.start)
        return original(files, part)

    monkeypatch.setattr(transactions._Files, "snapshot", counted)
    return read


def test_each_segment_between_holes_is_looked_at_once(tmp_path: Path, snapshots_read: list[int]) -> None:
    write_files(tmp_path, pinterest_files("orders", [SegmentBuilder(at * 10).batch([b"x"]) for at in range(60)]))
    scan = segreader.scan(tmp_path, on_gap="skip")
    assert len(list(scan.records())) == 60
    assert len(scan.plan().gaps) == 59
    assert len(snapshots_read) == 60
    snapshots_read.clear()
    assert len(read(tmp_path, on_gap="skip", offsets="300:320")[0]) == 2
    assert len(snapshots_read) == 2
    snapshots_read.clear()
    assert isinstance(read(tmp_path)[1], SegmentGapError)
    assert snapshots_read == []


def test_a_replay_ends_where_all_that_is_wanted_is_decided(tmp_path: Path) -> None:
    segments = [SegmentBuilder().batch([b"0"]).batch([b"1"], producer_id=1, transactional=True).batch([b"2"])]
    segments.append(segments[-1].roll().marker(1).batch([b"4"]))
    segments.append(segments[-1].roll().batch([b"5"], producer_id=2, transactional=True))
    segments.append(segments[-1].roll().batch([b"6"], producer_id=3, transactional=True).marker(3))
    bare(tmp_path, segments)
    damage(log(tmp_path, 6), segments[3].batch_positions[0] + 62)
    assert read(tmp_path, offsets=":5") == ([0, 1, 2, 4], None)
    assert read(tmp_path, offsets=":6")[0] == [0, 1, 2, 4]


def metadata_of(root: Path, segments: list[SegmentBuilder]) -> Path:
    """The metadata topic that calls these segments of ``write_local_tiered`` finished."""
    events, topic_id = SegmentBuilder(), kafka_uuid("orders")
    for at, segment in enumerate(segments):
        segment_id = kafka_uuid("orders", 0, topic_id, segment.base_offset)
        events.batch(
            [
                encode_segment_metadata(
                    "orders",
                    topic_id,
                    0,
                    segment_id,
                    start_offset=segment.base_offset,
                    end_offset=segment.next_offset - 1,
                    epochs=[(epoch, max(first, segment.base_offset)) for epoch, first in segment.leader_epochs],
                    log_size=len(segment.to_bytes()),
                    max_timestamp_ms=1,
                ),
                encode_segment_update("orders", topic_id, 0, segment_id, 1, event_timestamp_ms=at),
            ]
        )
    write_broker_log(root, "__remote_log_metadata", [events])
    return root


def test_a_segment_that_vanished_before_the_plan_hides_no_abort(tmp_path: Path) -> None:
    segments = aborted_in_the_next()
    write_local_tiered(tmp_path / "remote", "orders", segments)
    known: dict[str, Any] = {"metadata": metadata_of(tmp_path / "metadata", segments), "segments_from": "metadata"}
    assert read(tmp_path / "remote", **known)[0] == [*range(5), *range(11, 30)]
    remove(tmp_path, 10)
    for offsets in ("0:10", None):
        seen, error = read(tmp_path / "remote", offsets=offsets, **known)
        assert (seen, type(error)) == ([], ObjectNotFoundError)
        assert error is not None
        assert error.offset == 10
        assert "Retention" in str(error)
        scan = segreader.scan(tmp_path / "remote", offsets=offsets, on_missing="skip", **known)
        assert [record.offset for record in scan.records()] == [*range(5), *([] if offsets else range(20, 30))]
        assert [(gap.start, gap.stop, gap.held_back) for gap in scan.plan().gaps] == [(10, 20, 5)]
        assert any("read without" in note for note in scan.plan().notes)


def test_a_listed_index_that_vanished_is_a_segment_that_did(tmp_path: Path) -> None:
    place = write_local_tiered(tmp_path, "orders", aborted_in_the_next())
    source = LocationSource(str(tmp_path))
    (listed,) = source.logs()
    assert read(tmp_path)[0] == [*range(5), *range(11, 30)]
    for file in place.glob(f"{10:020d}-*.txnindex"):
        file.unlink()
    planner = PartitionPlanner(source.store)
    with pytest.raises(ObjectNotFoundError, match="Retention"):
        planner.add(listed, OffsetRange())
    planner = PartitionPlanner(source.store, ReadOptions(on_missing=Policy.SKIP))
    planner.add(listed, OffsetRange())
    assert [(gap.start, gap.stop, gap.held_back) for gap in planner.plan("").gaps] == [(10, 20, 5)]


@pytest.mark.parametrize("first_aborts", [True, False])
@pytest.mark.parametrize("byte", [8, 20, 22, 45, 50, 69])
def test_behind_a_damaged_marker_no_later_one_decides_for_it(tmp_path: Path, first_aborts: bool, byte: int) -> None:
    """Its size, checksum, flags, producer id, epoch and key."""
    segments = two_transactions(first_aborts=first_aborts, second_aborts=not first_aborts)
    bare(tmp_path, segments)
    damage(log(tmp_path, 0), segments[0].batch_positions[2] + byte, 0x40 if byte in (8, 22) else 0x10)
    for offsets in ("0:8", "0:9", None):
        seen, error = read(tmp_path, offsets=offsets)
        assert (seen, isinstance(error, FormatError)) == ([0, 1, 2, 3, 4], True)
        assert "from offset 5 on" in str(error)
        scan = segreader.scan(tmp_path, offsets=offsets, on_corrupt="skip")
        assert [record.offset for record in scan.records()] == [0, 1, 2, 3, 4]
        (end,) = scan.plan().ends
        assert (end.offset, end.reason) == (5, EndReason.DAMAGE)
    assert read(tmp_path, offsets="0:5") == ([0, 1, 2, 3, 4], None)


def test_a_finished_segment_that_is_cut_may_lack_a_marker(tmp_path: Path) -> None:
    segments = two_transactions(first_aborts=True, second_aborts=False)
    bare(tmp_path, segments)
    cut = log(tmp_path, 0)
    cut.write_bytes(cut.read_bytes()[: segments[0].batch_positions[2] + 30])
    assert read(tmp_path, on_corrupt="skip") == ([0, 1, 2, 3, 4], None)
    seen, error = read(tmp_path)
    assert (seen, isinstance(error, FormatError)) == ([0, 1, 2, 3, 4], True)


@pytest.mark.parametrize("batch", [1, 2])
def test_a_wrong_offset_of_a_transaction_decides_nothing(tmp_path: Path, batch: int) -> None:
    """Its first batch would begin behind its marker; or its marker would end all that its producer wrote."""
    built = SegmentBuilder().batch([b"x"] * 5).batch([b"a"] * 2, producer_id=1, transactional=True)
    built.batch([b"a"], producer_id=1, transactional=True).marker(1, abort=True).batch([b"y"])
    built.batch([b"b"] * 2, producer_id=1, transactional=True).marker(1).batch([b"z"])
    bare(tmp_path, [built, built.roll().batch([b"x"])])
    damage(log(tmp_path, 0), built.batch_positions[batch if batch == 1 else 3] + 3)
    seen, error = read(tmp_path, on_corrupt="skip")
    assert (seen, error) == ([0, 1, 2, 3, 4], None)
    assert isinstance(read(tmp_path)[1], CorruptBatchError)


def test_a_damaged_plain_batch_hides_nothing_of_transactions(tmp_path: Path) -> None:
    built = SegmentBuilder().batch([b"0"], producer_id=1, transactional=True).batch([b"1"], producer_id=5).marker(1)
    bare(tmp_path, [built, built.roll().batch([b"3"])])
    damage(log(tmp_path, 0), built.batch_positions[1] + 66)
    assert read(tmp_path, on_corrupt="skip") == ([0, 3], None)
    assert read(tmp_path)[0] == [0]


def test_checksums_that_are_not_to_be_checked_hide_nothing(tmp_path: Path) -> None:
    built = SegmentBuilder().batch([b"0"]).batch([b"1"], producer_id=1, transactional=True).marker(1)
    write_broker_log(tmp_path, "orders", [built])
    damage(log(tmp_path, 0), built.batch_positions[2] + 17)
    assert read(tmp_path, check_crcs=False) == ([0, 1], None)
    assert read(tmp_path, on_corrupt="skip") == ([0], None)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("value", [b"", b"v" * 6, b"v" * 300])
@pytest.mark.parametrize("more", [b"", b"more"])
def test_a_marker_of_any_form_ends_its_transaction(tmp_path: Path, codec: Codec, value: bytes, more: bytes) -> None:
    built = SegmentBuilder().batch([b"no"], producer_id=1, transactional=True).batch([b"yes"])
    record = Record(2, 1, TimestampType.CREATE_TIME, control_key(ABORT) + more, value)
    data = encode_batch(
        [record], base_offset=2, last_offset=2, producer_id=1, transactional=True, control=True, codec=codec
    )
    built.raw(data).skip(1)
    bare(tmp_path, [built, built.roll().batch([b"yes"])])
    assert read(tmp_path) == ([1, 3], None)


def test_a_damaged_partition_does_not_keep_the_one_before_it(tmp_path: Path) -> None:
    built = SegmentBuilder().batch([b"0"]).batch([b"1"], producer_id=1, transactional=True).marker(1)
    for partition in (0, 1, 2):
        write_broker_log(tmp_path, "orders", [built], partition=partition)
    damage(next((tmp_path / "orders-1").glob("*.log")), built.batch_positions[2] + 69)
    seen, error = read(tmp_path)
    assert (seen, type(error)) == ([0, 1, 0], CorruptBatchError)
    assert error is not None
    assert error.source == str(next((tmp_path / "orders-1").glob("*.log")))


def test_a_log_directory_begins_with_what_was_open_there(tmp_path: Path) -> None:
    first = SegmentBuilder().batch([b"0"], producer_id=1, transactional=True).batch([b"1"])
    second = first.roll().batch([b"2"])
    place = write_broker_log(tmp_path, "orders", [first, second])
    for file in place.glob(f"{0:020d}.*"):
        file.unlink()
    scan = segreader.scan(tmp_path)
    assert list(scan.records()) == []
    assert scan.plan().ends[0].reason is EndReason.OPEN_TRANSACTION
    source = LocationSource(str(tmp_path))
    (listed,) = source.logs()
    resolved = read_lineage(source.store, listed.log).resolved
    ends = read_log_offsets(source.store, resolved, start_snapshot=snapshot_at_start(listed.log, resolved))
    assert (ends.earliest, ends.stable_end, ends.reason) == (2, 2, EndReason.OPEN_TRANSACTION)
    shutil.rmtree(place)
    write_broker_log(tmp_path, "orders", [first, second.marker(1, abort=True).batch([b"4"], producer_id=1)])
    for file in place.glob(f"{0:020d}.*"):
        file.unlink()
    assert read(tmp_path) == ([2, 4], None)


def emptied_without_a_marker() -> SegmentBuilder:
    """The cleaner took the records of a transaction at 1 to 2, and later its marker at 3."""
    built = SegmentBuilder().batch([b"0"]).empty_batch(2, producer_id=1, transactional=True)
    return built.skip(1).batch([b"4"]).batch([b"5"], producer_id=2, transactional=True).marker(2)


@pytest.mark.parametrize("layout", ["bare", "broker"])
def test_a_transactional_batch_without_records_opens_no_transaction(tmp_path: Path, layout: str) -> None:
    segments = [emptied_without_a_marker()]
    bare(tmp_path, segments) if layout == "bare" else write_broker_log(tmp_path, "orders", segments)
    assert read(tmp_path) == ([0, 4, 5], None)
    assert segreader.scan(tmp_path).plan().ends[0].reason is EndReason.END_OF_DATA


def index_file(root: Path, base: int = 0) -> Path:
    return next(root.rglob(f"{base:020d}*.txnindex"))


def one_aborted() -> list[SegmentBuilder]:
    built = SegmentBuilder().batch([b"0"]).batch([b"no"], producer_id=1, transactional=True).marker(1, abort=True)
    return [built, built.roll().batch([b"3"])]


@pytest.mark.parametrize("bytes_left", [1, 2, 17, 33])
def test_a_transaction_index_cut_inside_a_row_is_an_error(tmp_path: Path, bytes_left: int) -> None:
    write_local_tiered(tmp_path, "orders", one_aborted())
    index_file(tmp_path).write_bytes(index_file(tmp_path).read_bytes()[:bytes_left])
    seen, error = read(tmp_path)
    assert (seen, type(error)) == ([], CorruptIndexError)
    assert error is not None
    assert (error.source, error.position) == (str(index_file(tmp_path)), 0)
    assert error.found == f"{bytes_left} bytes, expected a multiple of 34"
    assert any("ends inside a row" in note for note in segreader.scan(tmp_path, on_corrupt="skip").plan().notes)


@pytest.mark.parametrize("field", [0, 1, 2, 10, 18, 26])
def test_a_row_that_cannot_be_is_an_error_of_a_plan(tmp_path: Path, field: int) -> None:
    """Its version, its producer, and its offsets: each with its first byte changed, or the version's second."""
    write_local_tiered(tmp_path, "orders", one_aborted())
    damage(index_file(tmp_path), field, 0x80)
    seen, error = read(tmp_path)
    assert (seen, type(error)) == ([], CorruptIndexError)


def test_a_row_whose_marker_lies_behind_its_segment_is_an_error_of_a_plan(tmp_path: Path) -> None:
    write_local_tiered(tmp_path, "orders", one_aborted())
    damage(index_file(tmp_path), 24)
    seen, error = read(tmp_path)
    assert (seen, type(error)) == ([], CorruptIndexError)
    assert "names a marker that cannot be in its segment" in str(error)


def test_a_transaction_index_that_a_broker_is_writing_may_end_inside_a_row(tmp_path: Path) -> None:
    write_broker_log(tmp_path, "orders", [one_aborted()[0].batch([b"3"])])
    with index_file(tmp_path).open("ab") as file:
        file.write(bytes(20))
    assert read(tmp_path) == ([0, 3], None)
    (note,) = segreader.scan(tmp_path).plan().notes
    assert "ends inside a row" in note
    assert str(index_file(tmp_path)) in note


def test_a_damaged_snapshot_is_noted_and_batches_say_what_is_open(tmp_path: Path) -> None:
    place = write_local_tiered(tmp_path, "orders", one_aborted())
    damage(next(place.glob(f"{3:020d}*.snapshot")), 12)
    assert read(tmp_path) == ([0, 3], None)
    (note,) = segreader.scan(tmp_path).plan().notes
    assert "fails its checksum" in note


def newest_with_an_open_transaction(root: Path, *, is_stale: bool) -> Path:
    """Data at 2 to 3 of a transaction without a marker. The last snapshot knows it, or it is an older one."""
    first = SegmentBuilder().batch([b"0"])
    second = first.roll().batch([b"1"]).batch([b"2", b"3"], producer_id=1, transactional=True).batch([b"4"])
    place = write_local_tiered(root, "orders", [first, second])
    if is_stale:
        older, newest = (next(place.glob(f"{base:020d}-*.snapshot")) for base in (0, 1))
        newest.write_bytes(older.read_bytes())
    return root


@pytest.mark.parametrize("split_bytes", [1, 1 << 20])
def test_a_stale_snapshot_does_not_show_the_data_of_an_open_transaction(tmp_path: Path, split_bytes: int) -> None:
    sound = newest_with_an_open_transaction(tmp_path / "sound", is_stale=False)
    assert read(sound, split_bytes=split_bytes) == ([0, 1], None)
    stale = newest_with_an_open_transaction(tmp_path / "stale", is_stale=True)
    seen, error = read(stale, split_bytes=split_bytes)
    assert (seen, type(error)) == ([0, 1], CorruptIndexError)
    assert error is not None
    assert error.offset == 2
    assert "producer 1" in str(error)
    assert ".snapshot of the last segment is stale" in str(error)
    assert read(stale, offsets="0:3", split_bytes=split_bytes)[0] == [0, 1]
    assert read(stale, offsets="0:2", split_bytes=split_bytes) == ([0, 1], None)


def test_a_plan_notes_a_stale_snapshot_where_the_last_batch_contradicts_it(monkeypatch: pytest.MonkeyPatch) -> None:
    first = SegmentBuilder().batch([b"0"])
    second = first.roll().batch([b"1"]).batch([b"2"], producer_id=1, transactional=True)
    files = local_tiered_files("orders", [first, second])
    older, newest = (name for name in sorted(files) if name.endswith(".snapshot"))

    def planned(objects: dict[str, bytes]) -> tuple[tuple[str, ...], list[object]]:
        store = MemoryStore(objects)
        monkeypatch.setattr("segreader.stored.source.open_store", lambda location, **_: (store, ""))
        return segreader.scan("s3://bucket").plan().notes, list(store.requests)

    notes, requests = planned(files)
    assert notes == ()
    (note,), of_stale = planned({**files, newest: files[older]})
    assert newest in note
    assert "producer 1 has no open transaction, and the log ends inside a transaction of it, with a batch at 2" in note
    assert len(of_stale) == len(requests)


def test_a_snapshot_that_calls_an_aborted_transaction_open_contradicts_its_row(tmp_path: Path) -> None:
    place = write_local_tiered(tmp_path / "t", "orders", one_aborted())
    before_the_abort = SegmentBuilder().batch([b"0"]).batch([b"no"], producer_id=1, transactional=True)
    older = write_local_tiered(tmp_path / "older", "orders", [before_the_abort])
    next(place.glob(f"{0:020d}-*.snapshot")).write_bytes(next(older.glob("*.snapshot")).read_bytes())
    seen, error = read(tmp_path / "t", offsets="0:2")
    assert (seen, type(error)) == ([], CorruptIndexError)
    assert "row 0 of the transaction index aborts it at 2" in str(error)
