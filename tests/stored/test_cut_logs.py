"""The newest log, cut at a batch or with a batch at another offset: the files beside it contradict it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from planted import Planted, sound_log
from sample import exhaustive

import segreader
from segreader.errors import SegreaderError, TruncatedError
from segreader.format.batch import check_common
from segreader.plan.request import Request, parse_bounds
from segreader.scans import Scan
from segreader.stored.source import LocationSource
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import write_broker_log, write_files
from segreader.testing.records import ProducerRecord
from segreader.testing.stores import MemoryStore

Read = list[tuple[int, bytes | None]]


def read(root: Path, **options: object) -> tuple[Read, SegreaderError | None, Sequence[str]]:
    """The records before any error, that error, and all that was noted."""
    records: Read = []
    scan = segreader.scan(root, **options)  # type: ignore[arg-type]
    assert isinstance(scan, segreader.Scan)
    try:
        for record in scan.records():
            records.append((record.offset, record.value))
    except SegreaderError as error:
        return records, error, ()
    holes = [hole.error for hole in scan.metrics.holes]
    return records, None, [*scan.metrics.notes, *holes]


def starts(log: bytes) -> list[int]:
    positions = [0]
    while positions[-1] < len(log):
        positions.append(positions[-1] + check_common(log, positions[-1])[1])
    return positions[:-1]


def log_of(kind: str, segments: int) -> list[SegmentBuilder]:
    segment = SegmentBuilder(5 if kind == "higher base" else 0, index_interval_bytes=150)
    log = []
    for number in range(segments):
        segment = segment.roll() if number else segment
        log.append(segment)
        if kind in ("one batch", "higher base"):
            segment.batch([b"a", b"b", b"c"])
            continue
        for value in range(6):
            segment.batch([b"%d" % value, b"y" * 30], producer_id=3 if kind == "producer" else -1)
        if kind == "transactions":
            segment.batch([b"t"], producer_id=7, transactional=True).marker(7, abort=True)
    return log


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
@pytest.mark.parametrize("count", [1, 3])
def test_a_newest_log_that_is_cut_between_batches_is_an_error_behind_what_is_good(
    tmp_path: Path, count: int, isolation: str
) -> None:
    planted = Planted(tmp_path, log_of("transactions", count))
    write_files(tmp_path, planted.files)
    whole, error, _ = read(tmp_path, isolation_level=isolation)
    assert error is None
    log = bytes(planted.data(count - 1, "log"))
    for cut in starts(log)[1:]:
        planted.put(count - 1, "log", log[:cut])
        assert planted.codes()
        records, error, _ = read(tmp_path, isolation_level=isolation)
        assert isinstance(error, TruncatedError), cut
        assert records == whole[: len(records)]
        assert error.offset is not None
        if "names" in error.message:
            assert records == [one for one in whole if one[0] < error.offset]
        skipped, error, noted = read(tmp_path, isolation_level=isolation, on_corrupt="skip")
        assert error is None
        assert skipped == records
        assert any("ends before an offset that a file beside it names" in str(note) for note in noted)


def test_a_range_behind_the_cut_is_an_error_and_one_before_it_is_none(tmp_path: Path) -> None:
    planted = Planted(tmp_path)
    log = bytes(planted.data(2, "log"))
    planted.put(2, "log", log[: starts(log)[-1]])
    write_files(tmp_path, planted.files)
    assert isinstance(read(tmp_path, offsets="90:")[1], TruncatedError)
    records, error, noted = read(tmp_path, offsets="90:", on_corrupt="skip")
    assert (records, error) == ([], None)
    assert any("ends before an offset" in note for note in noted)
    for bounded in (":90", "30:60", "61:90"):
        assert read(tmp_path, offsets=bounded)[1:] == (None, [])


def test_an_offset_index_beyond_the_log_is_an_error_behind_what_is_good(tmp_path: Path) -> None:
    planted = Planted(tmp_path, sound_log(1))
    log = bytes(planted.data(0, "log"))
    planted.put(0, "log", log[: starts(log)[5]])
    for kind in ("timeindex", "snapshot", "txnindex"):
        planted.remove(0, kind)
    write_files(tmp_path, planted.files)
    records, error, _ = read(tmp_path, split_bytes=100)
    assert [offset for offset, _ in records] == list(range(10))
    assert isinstance(error, TruncatedError)
    assert error.offset == 10


@pytest.mark.parametrize("count", [1, 2])
def test_a_producer_snapshot_proves_a_cut_where_times_are_out_of_order(tmp_path: Path, count: int) -> None:
    log = [SegmentBuilder(0).batch([b"0"])]
    log = [*log, log[0].roll()] if count == 2 else [SegmentBuilder(0)]
    for time in (300, 200, 100):
        log[-1].batch([ProducerRecord(b"v", timestamp_ms=1_700_000_000_000 + time)], producer_id=3)
    planted = Planted(tmp_path, log)
    data = bytes(planted.data(count - 1, "log"))
    planted.put(count - 1, "log", data[: starts(data)[2]])
    write_files(planted.root, planted.files)
    records, error, _ = read(planted.root)
    assert len(records) == count + 1
    assert isinstance(error, TruncatedError)


def test_the_cleaner_may_remove_what_a_producer_snapshot_names(tmp_path: Path) -> None:
    segment = SegmentBuilder(0).batch([b"0"], last_offset=1).batch([b"2"]).batch([b"3"], producer_id=3)
    planted = Planted(tmp_path, [segment])
    data = bytes(planted.data(0, "log"))
    planted.put(0, "log", data[: starts(data)[2]])
    planted.remove(0, "timeindex")
    write_files(tmp_path, planted.files)
    assert read(tmp_path)[1:] == (None, [f"{note}" for note in segreader.scan(tmp_path).plan().notes])
    assert [offset for offset, _ in read(tmp_path)[0]] == [0, 2]


def test_the_files_beside_an_active_segment_prove_nothing(tmp_path: Path) -> None:
    (segment,) = log_of("transactions", 1)
    place = write_broker_log(tmp_path, "orders", [segment], preallocated=1 << 10)
    log = place / f"{0:020d}.log"
    cut = starts(log.read_bytes())[-2]
    log.write_bytes(log.read_bytes()[:cut])
    records, error, _ = read(tmp_path, isolation_level="read_uncommitted")
    assert error is None
    assert len(records) == 12


@pytest.mark.parametrize("kind", ["one batch", "higher base", "many", "producer", "transactions"])
@pytest.mark.parametrize(("which", "count"), [(0, 2), (-1, 1), exhaustive(0, 1), exhaustive(-1, 2)])
def test_no_bit_of_a_base_offset_in_the_newest_log_moves_records(
    tmp_path: Path, kind: str, count: int, which: int
) -> None:
    planted = Planted(tmp_path, log_of(kind, count))
    write_files(tmp_path, planted.files)
    whole, _, _ = read(tmp_path)
    log = bytes(planted.data(count - 1, "log"))
    position = starts(log)[which]
    for bit in range(64):
        damaged = bytearray(log)
        damaged[position + 7 - bit // 8] ^= 1 << bit % 8
        (tmp_path / planted.name(count - 1, "log")).write_bytes(damaged)
        records, error, _ = read(tmp_path)
        assert error is not None, bit
        assert records == whole[: len(records)], bit
        skipped, error, noted = read(tmp_path, on_corrupt="skip")
        assert error is None
        assert noted, bit
        assert len(skipped) <= len(whole), bit
        if bit % 8 == 1:
            planted.put(count - 1, "log", damaged)
            assert planted.codes(deep=True), bit


def test_a_read_to_the_end_asks_for_the_last_entry_of_one_time_index(tmp_path: Path) -> None:
    planted = Planted(tmp_path)
    entry = len(planted.data(2, "timeindex"))
    with_index: list[str] = []
    for bounded in (None, ":61"):
        store = MemoryStore(planted.files)
        source = LocationSource("memory", opened=(store, ""))
        plan = Scan(source, Request(bounds=parse_bounds(bounded))).plan()
        assert plan.notes == ()
        with_index.append("".join(request for request in store.requests if "timeindex" in request))
    assert with_index == [f"GET {planted.name(2, 'timeindex')} bytes={entry - 12}-{entry - 1}", ""]


def test_a_cut_behind_an_open_transaction_is_noted(tmp_path: Path) -> None:
    first = SegmentBuilder(0).batch([b"0"])
    second = first.roll().batch([b"open"], producer_id=7, transactional=True).batch([b"2"]).batch([b"3"])
    planted = Planted(tmp_path, [first, second])
    log = bytes(planted.data(1, "log"))
    planted.put(1, "log", log[: starts(log)[-1]])
    write_files(tmp_path, planted.files)
    scan = segreader.scan(tmp_path)
    assert [record.offset for record in scan.records()] == [0]
    assert any("ends before an offset that a file beside it names" in note for note in scan.plan().notes)
