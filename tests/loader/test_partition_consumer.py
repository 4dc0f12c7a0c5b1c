"""Pinot's contract of a partition's consumer, held to by a loop that is stopped at every record.

Source: ``PartitionGroupConsumer.fetchMessages``: from ``startOffset`` (inclusive) on; within the timeout; an empty
batch if nothing came before it ran out. ``MessageBatch.getOffsetOfNextBatch``: what to ask for next.
``isEndOfPartitionGroup``: no more records can be read from this partition for good.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest
from corpus import NormalRecord, case
from growing_log import GrowingLog
from loading import from_log_start, query_of, records_of, rot, truth_of

from segreader.errors import (
    ClosedError,
    CorruptBatchError,
    DeletedPositionError,
    ForeignPositionError,
    ObjectNotFoundError,
    OptionError,
)
from segreader.loader import LoadQuery, PartitionConsumer, ResumableReader
from segreader.storage.local import LocalStore
from segreader.stored.source import LocationSource
from segreader.testing.directory import kafka_uuid


@pytest.mark.parametrize("isolation", ["uncommitted", "committed"])
@pytest.mark.parametrize("name", ["txn-interleaved", "compacted-then-tiered", "txn-empty"])
def test_a_loop_that_is_stopped_at_every_record_gets_each_once(name: str, isolation: str) -> None:
    """Every other consumer is thrown away after one record; the next is asked for the offset that was told."""
    some = case("tv2", name)
    query = query_of(some, isolation)
    seen: list[NormalRecord] = []
    offset, is_at_end = 0, False
    while not is_at_end:
        with PartitionConsumer(query, 0) as consumer:
            for _ in range(2):
                batch = consumer.fetch(offset, max_rows=1)
                assert batch.next_offset >= offset
                assert batch.records.num_rows == 1 or batch.end_of_partition
                records = records_of(batch.records)
                assert all(offset <= record.offset < batch.next_offset for record in records)
                seen += records
                offset, is_at_end = batch.next_offset, batch.end_of_partition
    assert from_log_start(some, isolation, seen) == truth_of(some, isolation)


@pytest.fixture
def log(tmp_path: Path) -> GrowingLog:
    made = GrowingLog(tmp_path / "tier")
    made.upload("orders", 0, 50)
    made.upload("orders", 0, 50)
    return made


def consumer_of(log: GrowingLog, *, follows: bool = False, **more: object) -> PartitionConsumer:
    query = LoadQuery(location=str(log.root), topic="orders", batch_rows=20, **more)  # type: ignore[arg-type]
    return PartitionConsumer(query, 0, follows=follows)


def test_any_offset_may_be_asked_for_in_any_order(log: GrowingLog) -> None:
    with consumer_of(log) as consumer:
        for offset in (60, 0, 49, 50, 99, 3, 4, 3):
            batch = consumer.fetch(offset, 5.0)
            assert batch.records["offset"][0].as_py() == offset
            assert batch.next_offset == batch.records["offset"][-1].as_py() + 1
        assert consumer.fetch(100).end_of_partition
        assert consumer.fetch(100).next_offset == 100


def test_a_batch_is_empty_with_the_same_offset_if_nothing_came_in_time(log: GrowingLog) -> None:
    with consumer_of(log, follows=True) as consumer:
        batch = consumer.fetch(100, 0.01)
        assert (batch.records.num_rows, batch.next_offset, batch.end_of_partition) == (0, 100, False)
        assert batch.records.schema.names[0] == "key"
        log.upload("orders", 0, 10)
        batch = consumer.fetch(100, 30.0)
        assert batch.records["offset"].to_pylist() == list(range(100, 110))


def test_one_that_follows_ends_where_the_query_does(log: GrowingLog) -> None:
    with consumer_of(log, follows=True, offsets=(10, 105)) as consumer:
        assert not consumer.fetch(100, 0.01).end_of_partition
        log.upload("orders", 0, 10)
        batch = consumer.fetch(100, 30.0)
        assert batch.records["offset"].to_pylist() == list(range(100, 105))
        assert consumer.fetch(105, 30.0).end_of_partition
        with pytest.raises(ForeignPositionError, match="before the start of the query"):
            consumer.fetch(9)


def test_aborted_records_and_markers_at_the_end_are_passed_over() -> None:
    some = case("tv2", "txn-abort")
    with PartitionConsumer(query_of(some, "committed"), 0) as consumer:
        batch = consumer.fetch(0)
    assert batch.records.num_rows == 0
    assert batch.end_of_partition
    assert batch.next_offset == min(some.remote_stop(0), some.offline_lso(0)) > 0


def test_an_offset_that_was_deleted_is_told_or_passed_over(log: GrowingLog) -> None:
    log.delete_oldest("orders", 0)
    with consumer_of(log) as consumer, pytest.raises(DeletedPositionError) as caught:
        consumer.fetch(3)
    assert caught.value.offset == 50
    with consumer_of(log, on_gap="skip") as consumer:
        assert consumer.fetch(3).records["offset"][0].as_py() == 50
    with consumer_of(log) as consumer, pytest.raises(ForeignPositionError, match="beyond the end"):
        consumer.fetch(1000)


def test_offsets_that_were_deleted_after_it_looked_are_told_or_passed_over(log: GrowingLog) -> None:
    with consumer_of(log) as consumer, consumer_of(log, on_gap="skip") as lenient:
        for one in (consumer, lenient):
            assert one.fetch(60).next_offset == 80
        log.delete_oldest("orders", 0)
        for _ in range(2):
            with pytest.raises(DeletedPositionError) as caught:
                consumer.fetch(20)
            assert (caught.value.offset, "offset 50" in (caught.value.hint or "")) == (50, True)
            assert consumer.fetch(50).next_offset == lenient.fetch(20).next_offset == 70
        log.delete_oldest("orders", 0)
        for one in (consumer, lenient):
            with pytest.raises(DeletedPositionError, match="nothing is left"):
                one.fetch(55)


def test_segments_that_were_uploaded_anew_after_it_looked_are_gone_on_with(
    log: GrowingLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    with consumer_of(log) as consumer:
        assert consumer.fetch(60).next_offset == 80
        for path in list(log.root.glob("*/*")):
            path.rename(path.with_name(f"{path.name[:20]}-{kafka_uuid(path.name[:20])}{path.suffix}"))
        for offset in (20, 3, 90):
            assert consumer.fetch(offset).records["offset"][0].as_py() == offset

        def lost(*_: object) -> None:
            raise ObjectNotFoundError("no such file")

        monkeypatch.setattr(ResumableReader, "read", lost)
        with pytest.raises(ObjectNotFoundError):
            consumer.fetch(5)


def test_close_ends_a_fetch_and_what_comes_after_it(log: GrowingLog) -> None:
    consumer = consumer_of(log)
    assert consumer.fetch(0, 5.0).records.num_rows
    closing = threading.Thread(target=consumer.close)
    closing.start()
    closing.join()
    consumer.close()
    with pytest.raises(ClosedError):
        consumer.fetch(20)
    with pytest.raises(OptionError, match="needs its topic"):
        PartitionConsumer(LoadQuery(location=str(log.root)), 0)


class Remote(LocalStore):
    """Local files with the ways of a store on the network; ``gate`` holds back reads of logs while it is set."""

    range_size = 16 << 20

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.gate = threading.Event()
        self.gate.set()
        self.now = self.waiting = 0
        self._lock = threading.Lock()

    def read_pieces(self, name: str, *places: Any, **more: Any) -> Generator[memoryview, None, None]:
        with self._lock:
            self.now += 1
            self.waiting += not self.gate.is_set()
        try:
            self.gate.wait(30)
            yield from super().read_pieces(name, *places, **more)
        finally:
            with self._lock:
                self.now -= 1


@pytest.fixture
def remote(log: GrowingLog, monkeypatch: pytest.MonkeyPatch) -> Remote:
    for _ in range(6):
        log.upload("orders", 0, 50)
    store = Remote(log.root)

    def opened(query: LoadQuery, storage_options: object = None) -> LocationSource:
        return LocationSource("", catalog=query.catalog(), opened=(store, ""))

    monkeypatch.setattr(LoadQuery, "open", opened)
    return store


def soon(holds: Callable[[], bool]) -> bool:
    end = time.monotonic() + 20
    while not holds() and time.monotonic() < end:
        time.sleep(0.005)
    return holds()


@pytest.mark.parametrize("timeout", [None, 30.0])
@pytest.mark.parametrize("threads", [1, 3, 8])
def test_splits_in_a_row_are_read_at_a_time_and_given_in_order(
    log: GrowingLog, remote: Remote, threads: int, timeout: float | None
) -> None:
    with consumer_of(log, threads=threads) as consumer:
        seen = consumer.fetch(0, timeout, max_rows=7).records["offset"].to_pylist()
        remote.gate.clear()
        remote.waiting = 0
        consumer._begin_ahead()
        assert soon(lambda: remote.waiting == threads - 1)
        time.sleep(0.05)
        assert remote.waiting == threads - 1
        remote.gate.set()
        while not (batch := consumer.fetch(len(seen), timeout, max_rows=7)).end_of_partition:
            assert batch.next_offset == batch.records["offset"][-1].as_py() + 1
            seen += batch.records["offset"].to_pylist()
        assert seen == list(range(400))


def test_splits_ahead_are_bounded_by_bytes_and_left_where_another_offset_is_asked_for(
    log: GrowingLog, remote: Remote
) -> None:
    with consumer_of(log, read_ahead_bytes=1) as consumer:
        for offset in (0, 20):
            consumer.fetch(offset, 30.0)
        assert not any(one.waiting_bytes for one in consumer._ahead.values())
    with consumer_of(log) as consumer:
        for offset in (0, 20):
            consumer.fetch(offset, 30.0)
        ahead = list(consumer._ahead.values())
        assert soon(lambda: all(one.waiting_bytes for one in ahead))
        for offset in (333, 50, 49, 399):
            assert consumer.fetch(offset, 30.0).records["offset"][0].as_py() == offset
            assert all(one.is_closed for one in ahead)
        assert soon(lambda: remote.now <= 1)


@pytest.mark.parametrize("timeout", [None, 30.0])
def test_damage_in_a_split_ahead_is_told_after_the_records_before_it(
    log: GrowingLog, remote: Remote, timeout: float | None
) -> None:
    path = sorted(log.logs())[3]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    rot(path, data)
    with consumer_of(log) as consumer:
        seen: list[int] = []
        for _ in range(2):
            with pytest.raises(CorruptBatchError) as caught:
                while True:
                    seen += consumer.fetch(len(seen), timeout).records["offset"].to_pylist()
            assert seen == list(range(caught.value.base_offset or 0))
            assert 150 <= len(seen) < 200


@pytest.mark.parametrize("isolation", ["uncommitted", "committed"])
@pytest.mark.parametrize("name", ["txn-interleaved", "compacted-then-tiered", "txn-span", "small-many"])
def test_splits_read_ahead_give_what_a_consumer_reads(
    name: str, isolation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    some = case("tv2", name)
    monkeypatch.setattr(LocalStore, "range_size", 16 << 20, raising=False)
    query = query_of(some, isolation, split_bytes=1 << 12, threads=4)
    seen: list[NormalRecord] = []
    with PartitionConsumer(query, 0) as consumer:
        offset, is_at_end = 0, False
        while not is_at_end:
            batch = consumer.fetch(offset, 30.0, max_rows=33)
            seen += records_of(batch.records)
            offset, is_at_end = batch.next_offset, batch.end_of_partition
    assert from_log_start(some, isolation, seen) == truth_of(some, isolation)
