"""A reader as hosts treat it: in portions, in time, from several threads, closed, paused, or left lying."""

from __future__ import annotations

import gc
import math
import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest
from growing_log import GrowingLog
from loading import all_splits, read_rest, rot

import segreader.loader
from segreader.errors import (
    ClosedError,
    CorruptBatchError,
    ForeignPositionError,
    FormatError,
    OptionError,
    StorageError,
)
from segreader.loader import LoaderSplit, LoadQuery, PartitionConsumer, ReaderPool, ResumableReader, SplitEnumerator
from segreader.storage.local import LocalStore
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import write_local_tiered
from segreader.testing.stores import FaultyStore

RECORDS = 400


@pytest.fixture
def log(tmp_path: Path) -> GrowingLog:
    made = GrowingLog(tmp_path / "tier")
    made.upload("orders", 0, RECORDS)
    return made


def query(log: GrowingLog, **more: object) -> LoadQuery:
    return LoadQuery(location=str(log.root), **({"topic": "orders", "batch_rows": 50} | more))  # type: ignore[arg-type]


def only_split(log: GrowingLog) -> LoaderSplit:
    (split,) = all_splits(query(log))
    return split


class Held:
    """What is held since this was made: threads of the library, open files of a log, buffers."""

    def __init__(self, log: GrowingLog) -> None:
        gc.collect()
        self._root = str(log.root)
        self._threads = set(threading.enumerate())
        self._buffers = {id(one) for one in _buffers()}

    def files(self) -> int:
        found = 0
        for name in os.listdir("/proc/self/fd"):
            try:
                found += os.readlink(f"/proc/self/fd/{name}").startswith(self._root)
            except FileNotFoundError:
                continue
        return found

    def anything(self) -> bool:
        threads = [one for one in threading.enumerate() if one not in self._threads]
        return bool(self.files() or threads or any(id(one) not in self._buffers for one in _buffers()))


def _buffers() -> list[object]:
    return [one for one in gc.get_objects() if type(one).__name__ in ("BufferPool", "ColumnBuffers", "SegmentScanner")]


@pytest.fixture
def held(log: GrowingLog) -> Held:
    return Held(log)


def soon(holds: Callable[[], bool]) -> bool:
    end = time.monotonic() + 20
    while not holds() and time.monotonic() < end:
        gc.collect()
        time.sleep(0.01)
    return holds()


@pytest.mark.parametrize("timeout", [None, 30.0])
@pytest.mark.parametrize("limits", [{}, {"max_rows": 7}, {"max_bytes": 500}, {"max_rows": 3, "max_bytes": 10_000}])
def test_portions_are_as_small_as_asked_and_miss_nothing(
    log: GrowingLog, limits: dict[str, int], timeout: float | None
) -> None:
    seen: list[int] = []
    with ResumableReader(only_split(log), query(log)) as reader:
        while (batch := reader.read(timeout=timeout, **limits)) is not None:
            assert 1 <= batch.num_rows <= limits.get("max_rows", 50)
            assert batch.num_rows == 1 or batch.nbytes <= limits.get("max_bytes", 1 << 30)
            seen += batch["offset"].to_pylist()
            assert reader.position.next_offset == seen[-1] + 1
        assert reader.is_finished
        assert reader.read() is None
    assert seen == list(range(RECORDS))


def test_portions_of_a_batch_share_its_memory(log: GrowingLog) -> None:
    with ResumableReader(only_split(log), query(log)) as reader:
        one, two = reader.read(max_rows=7), reader.read(max_rows=7)
        assert one is not None
        assert two is not None
        assert [one["value"].buffers()[2].address] == [two["value"].buffers()[2].address]


@pytest.mark.parametrize(
    "timeout",
    [math.inf, 1e300, 10**400, threading.TIMEOUT_MAX, -math.inf],
    ids=["inf", "1e300", "10**400", "most", "-inf"],
)
def test_any_number_of_seconds_may_be_waited(log: GrowingLog, timeout: float) -> None:
    with ResumableReader(only_split(log), query(log)) as reader:
        while reader.read(timeout=timeout) is None:
            assert timeout < 0
        read_rest(reader)
        assert reader.read(timeout=timeout) is None
        assert reader.is_finished
    with PartitionConsumer(query(log), 0) as consumer:
        while consumer.fetch(0, timeout).records.num_rows == 0:
            assert timeout < 0


def test_a_wait_of_no_number_of_seconds_is_refused(log: GrowingLog) -> None:
    with ResumableReader(only_split(log), query(log)) as reader, pytest.raises(OptionError, match="not a number"):
        reader.read(timeout=math.nan)
    with PartitionConsumer(query(log), 0) as consumer, pytest.raises(OptionError, match="not a number"):
        consumer.fetch(0, math.nan)


@pytest.mark.parametrize("columns", [("value",), ("key", "topic"), ("partition",)])
def test_columns_are_the_querys_though_offsets_are_counted(log: GrowingLog, columns: tuple[str, ...]) -> None:
    asked = query(log, columns=columns)
    with ResumableReader(only_split(log), asked) as reader:
        batch = reader.read(max_rows=13)
        assert batch is not None
        assert tuple(batch.schema.names) == columns
        assert reader.position.next_offset == 13
        with ResumableReader(only_split(log), asked, position=reader.position) as other:
            assert read_rest(other).equals(read_rest(reader).slice(0))
            assert other.position.next_offset == RECORDS


@pytest.mark.parametrize("wrong", [{"max_rows": 0}, {"max_bytes": 0}])
def test_a_limit_that_is_none_is_refused(log: GrowingLog, wrong: dict[str, int]) -> None:
    with ResumableReader(only_split(log), query(log)) as reader, pytest.raises(OptionError):
        reader.read(**wrong)
    with pytest.raises(OptionError):
        ReaderPool(query(log), max_open=0)


@pytest.mark.parametrize("timeout", [None, 5.0])
def test_several_threads_share_a_reader_and_each_record_goes_to_one(log: GrowingLog, timeout: float | None) -> None:
    parts: list[list[int]] = [[] for _ in range(6)]
    with ResumableReader(only_split(log), query(log)) as reader:

        def work(mine: list[int]) -> None:
            while (batch := reader.read(max_rows=9, timeout=timeout)) is not None or not reader.is_finished:
                if batch is not None:
                    got = batch["offset"].to_pylist()
                    assert got == list(range(got[0], got[-1] + 1))
                    mine += got

        threads = [threading.Thread(target=work, args=(mine,)) for mine in parts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert reader.position.next_offset == RECORDS
    assert sorted(offset for part in parts for offset in part) == list(range(RECORDS))


class Gate:
    """A fault that lets no read pass before it is let."""

    def __init__(self) -> None:
        self.is_let = threading.Event()
        self.is_asked = threading.Event()

    def __call__(self, request: str) -> None:
        if request.startswith("GET"):
            self.is_asked.set()
            assert self.is_let.wait(30)


@pytest.fixture
def slow(log: GrowingLog) -> tuple[ReaderPool, Gate]:
    pool = ReaderPool(query(log), threads=1)
    gate = Gate()
    pool.store = FaultyStore(LocalStore(log.root.parent), gate)
    return pool, gate


def test_a_read_comes_back_in_time_and_loses_nothing(log: GrowingLog, slow: tuple[ReaderPool, Gate]) -> None:
    pool, gate = slow
    with pool, pool.open(only_split(log)) as reader:
        assert reader.read(timeout=0) is None
        began = time.monotonic()
        assert reader.read(timeout=0.05) is None
        assert time.monotonic() - began < 10
        assert not reader.is_finished
        gate.is_let.set()
        assert read_rest_in_time(reader) == list(range(RECORDS))


def read_rest_in_time(reader: ResumableReader) -> list[int]:
    seen: list[int] = []
    while not reader.is_finished:
        batch = reader.read(timeout=5)
        seen += [] if batch is None else batch["offset"].to_pylist()
    return seen


@pytest.mark.parametrize("act", ["close", "pause", "close the pool"])
def test_a_read_that_waits_is_woken(log: GrowingLog, slow: tuple[ReaderPool, Gate], held: Held, act: str) -> None:
    pool, gate = slow
    reader = pool.open(only_split(log))
    outcome: list[object] = []

    def wait() -> None:
        try:
            outcome.append(reader.read(timeout=60))
        except ClosedError as error:
            outcome.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    assert gate.is_asked.wait(30)
    {"close": reader.close, "pause": reader.pause, "close the pool": pool.close}[act]()
    thread.join(30)
    assert not thread.is_alive()
    if act == "pause":
        assert outcome == [None]
        gate.is_let.set()
        reader.resume()
        assert read_rest_in_time(reader) == list(range(RECORDS))
    else:
        assert isinstance(outcome[0], ClosedError)
        gate.is_let.set()
    pool.close()
    reader = outcome = None  # type: ignore[assignment]
    assert soon(lambda: not held.anything())


def test_a_paused_reader_holds_nothing_and_goes_on_where_it_stood(log: GrowingLog, held: Held) -> None:
    with ResumableReader(only_split(log), query(log)) as reader:
        first = reader.read(max_rows=31)
        assert first is not None
        assert held.files() == 1
        reader.pause()
        assert held.files() == 0
        assert reader.read() is None
        assert not reader.is_finished
        reader.resume()
        assert read_rest(reader)["offset"].to_pylist() == list(range(31, RECORDS))
        assert held.files() == 0


def test_a_reader_may_be_restored_at_any_time(log: GrowingLog) -> None:
    with ResumableReader(only_split(log), query(log)) as reader:
        stops = [reader.position]
        while reader.read(max_rows=40, timeout=5) is not None:
            stops.append(reader.position)
        for stop in (stops[3], stops[-1], stops[0], stops[7]):
            reader.restore(stop)
            assert reader.position == stop
            batch = reader.read(max_rows=2)
            assert stop.next_offset == (RECORDS if batch is None else batch["offset"][0].as_py())
        reader.pause()
        reader.restore(stops[1])
        assert read_rest(reader).num_rows == RECORDS - 40


def test_the_position_of_the_next_split_is_no_end_of_this_one(log: GrowingLog) -> None:
    log.upload("orders", 0, 30)
    first, second = all_splits(query(log))
    with ResumableReader(first, query(log)) as reader:
        read_rest(reader)
        finished = reader.position
    for position in (finished, replace(finished, stop=None)):
        with ResumableReader(first, query(log), position=position) as reader:
            assert reader.read() is None
            assert reader.is_finished
    for position in (second.position, replace(second.position, topic_id=None, log_end=None)):
        with pytest.raises(ForeignPositionError, match=rf"{RECORDS} of a split up to {second.stop}, expected 0 to"):
            ResumableReader(first, query(log), position=position)
        with ResumableReader(first, query(log)) as reader:
            with pytest.raises(ForeignPositionError):
                reader.restore(position)
            assert read_rest(reader).num_rows == RECORDS


def test_a_split_of_another_topic_than_the_querys_is_refused(log: GrowingLog) -> None:
    log.upload("payments", 0, 10)
    (split,) = all_splits(query(log, topic="payments"))
    with pytest.raises(ForeignPositionError, match="split is of another topic than the query"):
        ResumableReader(split, query(log))
    with ReaderPool(query(log)) as pool, pytest.raises(ForeignPositionError, match="found payments, expected orders"):
        pool.open(split)
    with ResumableReader(split, query(log, topic=None)) as reader:
        assert read_rest(reader).num_rows == 10


@pytest.mark.parametrize("ending", ["closed", "never closed"])
@pytest.mark.parametrize("timeout", [None, 5.0])
def test_nothing_is_left_of_a_reader(log: GrowingLog, held: Held, timeout: float | None, ending: str) -> None:
    def use() -> None:
        with SplitEnumerator(query(log)) as enumerator:
            split = enumerator.discover()[0]
        pool = ReaderPool(query(log), max_open=3)
        readers = [ResumableReader(split, query(log)), *(pool.open(split) for _ in range(5))]
        for reader in readers:
            assert reader.read(max_rows=10, timeout=timeout) is not None
        if ending == "closed":
            readers[0].close()
            pool.close()

    use()
    assert soon(lambda: not held.anything())


def test_damage_is_told_after_the_records_before_it_each_time(log: GrowingLog) -> None:
    split = only_split(log)
    (path,) = log.logs()
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    rot(path, data)
    for timeout in (None, 5.0):
        seen: list[int] = []
        with ResumableReader(split, query(log)) as reader:
            with pytest.raises(CorruptBatchError) as caught:
                while (batch := reader.read(timeout=timeout)) is not None:
                    seen += batch["offset"].to_pylist()
            assert seen == list(range(caught.value.base_offset or 0))
            with pytest.raises(CorruptBatchError):
                reader.read(timeout=timeout)
            assert not reader.is_finished
            assert reader.position.next_offset == len(seen)


def every_other_read() -> Callable[[str], None]:
    """A fault of the first read, the third, the fifth …"""
    reads = count(1)

    def fault(request: str) -> None:
        if request.startswith("GET") and next(reads) % 2:
            raise StorageError("the network is down", source=request)

    return fault


@pytest.mark.parametrize("timeout", [None, 5.0])
def test_a_read_that_failed_may_be_tried_again_and_goes_on_at_the_same_record(
    log: GrowingLog, timeout: float | None
) -> None:
    seen: list[int] = []
    failures = 0
    with ReaderPool(query(log)) as pool:
        pool.store = FaultyStore(LocalStore(log.root.parent), every_other_read())
        with pool.open(only_split(log)) as reader:
            while not reader.is_finished:
                try:
                    batch = reader.read(max_rows=90, timeout=timeout)
                except StorageError:
                    failures += 1
                    continue
                seen += [] if batch is None else batch["offset"].to_pylist()
                if failures < 4 and batch is not None:
                    reader.restore(reader.position)
    assert seen == list(range(RECORDS))
    assert failures >= 4


def test_readers_of_one_pool_take_turns_and_are_parked_where_they_stand(log: GrowingLog, held: Held) -> None:
    split = only_split(log)
    with ReaderPool(query(log), max_open=3) as pool:
        readers = [pool.open(split) for _ in range(40)]
        seen: list[list[int]] = [[] for _ in readers]
        for _ in range(6):
            for number, reader in enumerate(readers):
                batch = reader.read(max_rows=17 + number)
                assert batch is not None
                seen[number] += batch["offset"].to_pylist()
                assert held.files() <= 3
        for number, got in enumerate(seen):
            assert got == list(range(6 * min(17 + number, 50)))
            assert readers[number].position.next_offset == len(got)


def test_more_threads_than_may_read_at_once_wait_for_each_other(log: GrowingLog) -> None:
    split = only_split(log)
    counts: list[int] = []
    with ReaderPool(query(log), max_open=2) as pool:

        def work() -> None:
            with pool.open(split) as reader:
                total = 0
                while (batch := reader.read(max_rows=23)) is not None:
                    total += batch.num_rows
                counts.append(total)

        threads = [threading.Thread(target=work) for _ in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert counts == [RECORDS] * 10


def test_200_half_read_readers_hold_little(log: GrowingLog) -> None:
    """The store's pieces and the columns of those that are open, and a few KiB for each of the others."""
    import tracemalloc

    split = only_split(log)
    with ReaderPool(query(log), max_open=4) as pool:
        warm = pool.open(split)
        warm.read(max_rows=3)
        tracemalloc.start()
        arrow = pa.total_allocated_bytes()
        before = tracemalloc.get_traced_memory()[0]
        readers = [pool.open(split) for _ in range(200)]
        for reader in readers:
            reader.read(max_rows=3)
        held = tracemalloc.get_traced_memory()[0] - before + pa.total_allocated_bytes() - arrow
        tracemalloc.stop()
        assert all(reader.position.next_offset == 3 for reader in readers)
        assert held < 4 * (4 << 20) + 200 * (20 << 10)


@pytest.mark.parametrize(("position", "value"), [(16, 9), (8, 0x7F), (11, 0), (0, 0x40), (15, 9), (61, 1)])
@pytest.mark.parametrize("batch", [0, 1])
def test_damage_in_the_first_batch_of_a_split_is_told_as_anywhere_else(
    batch: int, position: int, value: int, tmp_path: Path
) -> None:
    """Magic, length, base offset, leader epoch, body: also where nothing but this damage is met before the end."""
    segment = SegmentBuilder(index_interval_bytes=1)
    for _ in range(3):
        segment.batch([b"v" * 20] * 5)
    write_local_tiered(tmp_path, "t", [segment])
    query = LoadQuery(location=str(tmp_path), topic="t", split_bytes=1)
    with SplitEnumerator(query) as enumerator:
        split = enumerator.discover()[batch]
    (log,) = tmp_path.glob("*/*.log")
    data = bytearray(log.read_bytes())
    data[split.split.positions.start + position] = value
    rot(log, data)
    with ResumableReader(split, query) as reader:
        for _ in range(2):
            with pytest.raises(FormatError):
                reader.read()
        assert (reader.next_offset, reader.is_finished) == (split.start, False)


def test_a_resumable_reader_keeps_its_former_name_with_a_warning() -> None:
    with pytest.warns(DeprecationWarning, match="SplitReader is now ResumableReader"):
        assert segreader.loader.SplitReader is ResumableReader
