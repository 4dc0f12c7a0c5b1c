"""``scan(last=N)``: the same records as at the end of a read of everything, for a bounded part of its bytes."""

from __future__ import annotations

import random
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from corpus import CORPUS, Case, cases, normal
from fake_cluster import FakeCluster, of_corpus
from sample import at_edges

import segreader
from segreader.errors import CorruptBatchError, CorruptIndexError, FormatError, OptionError, TruncatedError
from segreader.isolation import IsolationLevel
from segreader.live.scan import LiveScan
from segreader.plan.request import ReadOptions, RecordFilter, Request
from segreader.ranges import OffsetRange
from segreader.read.tail import last_offsets, ranges_around
from segreader.stored.source import open_source
from segreader.tables.dataset import open_dataset
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import write_broker_log, write_local_tiered
from segreader.testing.records import ProducerRecord
from segreader.testing.stores import MemoryStore


def ends_of(records: Iterable[Any], count: int) -> list[Any]:
    """The last records of each partition, in order."""
    found: dict[int, list[Any]] = defaultdict(list)
    for one in records:
        found[one.partition].append(one)
    return [one for partition in sorted(found) for one in found[partition][-count:]]


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
@pytest.mark.parametrize("one", at_edges(cases("tv2", "tv1", "k39", "aiven-zstd", remote=True)), ids=str)
def test_the_last_records_are_those_at_the_end_of_a_whole_read(one: Case, isolation: str) -> None:
    asked: dict[str, Any] = {"topic": one.topic, "topic_id": one.topic_id, "isolation_level": isolation}
    whole = list(segreader.scan(one.root / "remote", **asked).records())
    for count in (1, 2, 9, 100_000):
        assert list(segreader.scan(one.root / "remote", **asked, last=count).records()) == ends_of(whole, count)


@pytest.mark.parametrize("isolation", ["committed", "uncommitted"])
@pytest.mark.parametrize("one", at_edges([one for one in cases("tv2", "k39", "cluster") if one.local]), ids=str)
def test_a_cluster_gives_the_last_records_that_a_java_consumer_got(one: Case, isolation: str) -> None:
    numbers = [int(path.name.rpartition("-")[2]) for path in one.local]
    logs = {one.topic: {number: of_corpus(one, number) for number in numbers}}
    chance = random.Random(str(one))
    cluster = FakeCluster(
        logs, topic_ids={one.topic: one.topic_id}, chance=chance, largest=chance.choice([300, 1 << 20])
    )
    request = Request(topic=one.topic, isolation_level=IsolationLevel(f"read_{isolation}"), last=5)
    source = open_source(one.root / "remote") if one.remote and chance.random() < 0.5 else None
    with LiveScan(lambda: cluster, request, source=source) as scan:
        assert [normal(record) for record in scan.records()] == ends_of(one.truth(isolation), 5)


def test_bounds_are_where_the_last_records_end(tmp_path: Path) -> None:
    built = SegmentBuilder()
    for number in range(50):
        built.batch([ProducerRecord(b"%d" % number, timestamp_ms=1000 * number)])
    write_local_tiered(tmp_path, "orders", [built])

    def offsets(**bounds: Any) -> list[int]:
        return [record.offset for record in segreader.scan(tmp_path, last=3, **bounds).records()]

    assert offsets() == [47, 48, 49]
    assert offsets(offsets=":20") == [17, 18, 19]
    assert offsets(offsets="18:20") == [18, 19]
    assert offsets(offsets="48:") == [48, 49]
    assert offsets(offsets="20:20") == []
    assert offsets(until=10_000) == [7, 8, 9]
    assert offsets(since=48_000) == [48, 49]


def test_a_tail_of_aborted_transactions_is_passed_over(tmp_path: Path) -> None:
    built = SegmentBuilder().batch([b"a", b"b", b"c"])
    for _ in range(40):
        built.batch([b"x"] * 5, producer_id=7, transactional=True).marker(7, abort=True)
    write_local_tiered(tmp_path, "orders", [built])
    scan = segreader.scan(tmp_path, last=2)
    assert [record.value for record in scan.records()] == [b"b", b"c"]


def test_offsets_that_a_cleaner_emptied_are_passed_over(tmp_path: Path) -> None:
    built = SegmentBuilder().batch([b"a", b"b"])
    for offset in range(1000, 100_000, 9_000):
        built.skip(offset - built.next_offset).batch([b"kept"])
    write_broker_log(tmp_path, "orders", [built])
    offsets = [record.offset for record in segreader.scan(tmp_path, last=12).records()]
    assert offsets == [1, *range(1000, 100_000, 9_000)]


def test_an_open_transaction_at_the_end_ends_the_last_records(tmp_path: Path) -> None:
    built = SegmentBuilder().batch([b"a", b"b", b"c"]).batch([b"open"], producer_id=7, transactional=True)
    write_local_tiered(tmp_path, "orders", [built.batch([b"behind"])])
    scan = segreader.scan(tmp_path, last=2)
    assert [record.value for record in scan.records()] == [b"b", b"c"]
    assert [end.reason for end in scan.plan().ends] == ["open-transaction"]
    assert [r.value for r in segreader.scan(tmp_path, last=2, isolation_level="read_uncommitted").records()] == [
        b"open",
        b"behind",
    ]


def test_damage_at_the_end_is_raised_behind_the_records_before_it(tmp_path: Path) -> None:
    built = SegmentBuilder().batch([b"a"]).batch([b"b"]).batch([b"c"])
    data = bytearray(built.to_bytes())
    data[built.batch_positions[2] + 62] ^= 1
    write_local_tiered(tmp_path, "orders", [SegmentBuilder().raw(bytes(data))])
    given = []
    with pytest.raises(CorruptBatchError):
        for record in segreader.scan(tmp_path, last=2).records():
            given.append(record.value)
    assert given == [b"a", b"b"]
    assert [r.value for r in segreader.scan(tmp_path, last=2, on_corrupt="skip").records()] == [b"a", b"b"]


def copy_of(topic: str, directory: Path) -> None:
    """A topic of the corpus, to be damaged."""
    (log,) = (CORPUS / "k39" / "remote" / "kafka-tiered-storage").glob(f"{topic}-0-*")
    shutil.copytree(log, directory / log.name)


def test_damage_that_hides_all_of_the_last_records_is_raised(tmp_path: Path) -> None:
    copy_of("txn-span", tmp_path)
    index = max(tmp_path.rglob("*.txnindex"))
    index.write_bytes(index.read_bytes() + b"x")
    for count in (1, 9, 1000):
        with pytest.raises(CorruptIndexError, match="ends inside a row"):
            segreader.scan(tmp_path, topic="txn-span", last=count).to_arrow()
    assert segreader.scan(tmp_path, topic="txn-span", last=9, on_corrupt="skip").to_arrow().num_rows == 9


def test_an_index_that_leads_to_other_offsets_gives_no_more_records_than_asked_for(tmp_path: Path) -> None:
    copy_of("epochs-txn", tmp_path)
    index = next(tmp_path.rglob("00000000000000000014-*.index"))
    rows = bytearray(index.read_bytes())
    assert int.from_bytes(rows[24:28]) == 37
    rows[24:28] = (36).to_bytes(4)
    index.write_bytes(rows)
    for count in (1, 3):
        with pytest.raises(CorruptIndexError, match="say other offsets"):
            segreader.scan(tmp_path, topic="epochs-txn", last=count).to_arrow()


@pytest.mark.parametrize("cut", [12, 61, 100])
def test_the_last_records_are_those_before_a_log_that_ends_inside_its_first_batch(tmp_path: Path, cut: int) -> None:
    first = SegmentBuilder().batch([b"a"]).batch([b"b"]).batch([b"c"])
    write_local_tiered(tmp_path, "orders", [first, first.roll().batch([b"d" * 100]).batch([b"e"])])
    log = max(tmp_path.rglob("*.log"), key=lambda path: path.name)
    log.write_bytes(log.read_bytes()[:cut])
    for count, expected in ((1, [b"c"]), (2, [b"b", b"c"]), (60, [b"a", b"b", b"c"])):
        given = []
        with pytest.raises(TruncatedError):
            for record in segreader.scan(tmp_path, last=count).records():
                given.append(record.value)
        assert given == expected


def test_of_a_long_topic_only_the_last_segments_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    payload, segments = bytes(range(250)) * 4, []
    segment = SegmentBuilder(index_interval_bytes=4096)
    for _ in range(40):
        for _ in range(50):
            segment.batch([payload] * 4)
        segments.append(segment)
        segment = segment.roll()
    for partition in range(2):
        write_local_tiered(tmp_path, "orders", segments, partition=partition)
    files = {str(path.relative_to(tmp_path)): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    store = MemoryStore(files)
    monkeypatch.setattr("segreader.stored.source.open_store", lambda location, **_: (store, ""))
    with segreader.scan("s3://bucket", topic="orders", last=10) as scan:
        offsets = [(record.partition, record.offset) for record in scan.records()]
    assert offsets == [(partition, offset) for partition in range(2) for offset in range(7990, 8000)]
    logs = {request.split()[1] for request in store.requests if request.startswith("GET") and ".log" in request}
    assert len(logs) == 2, "more than the last segment of each partition was read"
    read = sum(
        int(stop) - int(start) + 1
        for request in store.requests
        if request.startswith("GET") and ".log" in request
        for start, _, stop in [request.rpartition("=")[2].partition("-")]
    )
    asked = len(store.requests)
    with segreader.scan("s3://bucket", topic="orders", offsets="7990:") as known:
        assert known.to_arrow().num_rows == 20
    assert asked == len(store.requests) - asked + 2, "more than one request a partition to find where they begin"
    assert read < 2 * 2 * (10 * 1000 + 6 * 4096 + 4 * 4100), "more than twice the tail and what an index entry spans"


def test_last_of_those_that_match_reads_back_as_far_as_it_must(tmp_path: Path) -> None:
    segment, segments = SegmentBuilder(index_interval_bytes=4096), []
    for at in range(20):
        for _ in range(100):
            segment.batch([ProducerRecord(b"x" * 90, b"k")] * 5)
        if at in (3, 16):
            segment.batch([ProducerRecord(b"needle %d" % at, b"n")])
        segments.append(segment)
        segment = segment.roll()
    write_local_tiered(tmp_path, "orders", segments)

    def found(count: int) -> tuple[list[bytes], int, int]:
        with segreader.scan(tmp_path, grep="needle", last=count) as scan:
            return [r.value for r in scan.records()], scan.looked_at, scan.metrics.bytes_read

    one, looked_for_one, bytes_for_one = found(1)
    both, looked_for_both, bytes_for_both = found(2)
    assert (one, both) == ([b"needle 16"], [b"needle 3", b"needle 16"])
    assert 2000 < looked_for_one < 8000 < looked_for_both <= 10_002
    assert bytes_for_one < bytes_for_both
    with segreader.scan(tmp_path, with_key="n", last=1, columns=("offset",)) as scan:
        assert scan.to_arrow().column("offset").to_pylist() == [16 * 500 + 501]


def test_a_table_has_the_last_records_and_filters_them(tmp_path: Path) -> None:
    write_local_tiered(tmp_path, "orders", [SegmentBuilder().batch([b"a", b"b", b"c"])])
    with_last = open_dataset(tmp_path, topic="orders", last=2)
    assert with_last.to_table(columns=["offset"]).column("offset").to_pylist() == [1, 2]
    assert with_last.to_table(filter=pc.field("offset") < 2).column("value").to_pylist() == [b"b"]
    assert with_last.count_rows() == 2
    with pytest.raises(OptionError, match="found once"):
        open_dataset(tmp_path, topic="orders", last=2, refresh=True)


@pytest.mark.parametrize("last", [0, -1])
def test_no_records_are_not_the_last_ones(tmp_path: Path, last: int) -> None:
    with pytest.raises(OptionError, match="last must be positive"):
        segreader.scan(tmp_path, last=last)


def test_stretches_double_and_are_read_once() -> None:
    asked: list[tuple[int, int]] = []
    there = [3, 900, 990]

    def read(offsets: OffsetRange) -> list[pa.RecordBatch]:
        assert offsets.stop is not None
        asked.append((offsets.start, offsets.stop))
        return [pa.record_batch({"offset": [one for one in there if offsets.start <= one < offsets.stop]})]

    assert last_offsets(read, OffsetRange(0, 1000), 2) == [900, 990]
    assert asked == [(998, 1000), (994, 998), (986, 994), (970, 986), (938, 970), (874, 938)]
    asked.clear()
    assert last_offsets(read, OffsetRange(0, 1000), 5) == there
    assert asked[-1][0] == 0
    assert sum(stop - start for start, stop in asked) == 1000


def test_a_damaged_stretch_is_read_again_with_the_one_before_it() -> None:
    asked: list[tuple[int, int]] = []
    told: list[FormatError] = []

    def read(offsets: OffsetRange) -> Iterator[pa.RecordBatch]:
        assert offsets.stop is not None
        asked.append((offsets.start, offsets.stop))
        yield pa.record_batch({"offset": list(range(offsets.start, min(offsets.stop, 95)))})
        if offsets.stop > 95:
            raise FormatError("damaged")

    assert last_offsets(read, OffsetRange(0, 100), 2, on_damage=told.append) == [93, 94]
    assert asked == [(98, 100), (94, 100), (86, 100)]
    assert len(told) == 1
    assert last_offsets(read, OffsetRange(0, 100), 2) == [93, 94]
    with pytest.raises(FormatError, match="damaged"):
        last_offsets(read, OffsetRange(94, 100), 2)
    assert last_offsets(read, OffsetRange(94, 1000), 1, surely=95, on_damage=told.append) == [94]
    assert asked[-1] == (94, 1000)


def test_ranges_hold_what_lies_together() -> None:
    assert ranges_around([1, 2, 5000, 5001, 100_000]) == [
        OffsetRange(1, 3),
        OffsetRange(5000, 5002),
        OffsetRange(100_000, 100_001),
    ]
    assert ranges_around([]) == []


def test_a_filter_has_a_condition() -> None:
    with pytest.raises(ValueError, match="without a condition"):
        RecordFilter()
    assert ReadOptions(where=RecordFilter(b"k")).where == RecordFilter(key=b"k")
