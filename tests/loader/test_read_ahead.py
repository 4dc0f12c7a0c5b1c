"""A pool reads ahead as scans do: so many threads, so many bytes, and no wait outlives what is closed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import Future
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from growing_log import GrowingLog
from held_bodies import interrupted
from loading import all_splits

from segreader.errors import ClosedError, OptionError
from segreader.loader import LoaderSplit, LoadQuery, ReaderPool, ResumableReader
from segreader.storage.cancellation import result_of
from segreader.storage.local import LocalStore
from segreader.testing.stores import FaultyStore

RECORDS = 400
GRACE_S = 0.3


@pytest.fixture
def log(tmp_path: Path) -> GrowingLog:
    made = GrowingLog(tmp_path / "tier")
    made.upload("orders", 0, RECORDS)
    return made


def query(log: GrowingLog, **more: Any) -> LoadQuery:
    return LoadQuery(location=str(log.root), topic="orders", batch_rows=50, **more)


def only_split(log: GrowingLog) -> LoaderSplit:
    (split,) = all_splits(query(log))
    return split


def soon(holds: Callable[[], bool]) -> bool:
    end = time.monotonic() + 20
    while not holds() and time.monotonic() < end:
        time.sleep(0.005)
    return holds()


def pool_threads() -> list[str]:
    return [one.name for one in threading.enumerate() if one.name.startswith("segreader-loader")]


class Counted:
    """A fault that holds back reads, and counts how many it does at a time."""

    def __init__(self) -> None:
        self.is_let = threading.Event()
        self.now = self.most = 0
        self._lock = threading.Lock()

    def __call__(self, request: str) -> None:
        if not request.startswith("GET"):
            return
        with self._lock:
            self.now += 1
            self.most = max(self.most, self.now)
        self.is_let.wait(30)
        with self._lock:
            self.now -= 1


def most_at_a_time(log: GrowingLog, pool: ReaderPool, expected: int) -> int:
    """How many of many readers are read at a time; all of them come to their end."""
    counted = Counted()
    pool.store = FaultyStore(LocalStore(log.root.parent), counted)
    split = only_split(log)
    with pool:
        readers = [pool.open(split) for _ in range(8)]
        for reader in readers:
            assert reader.read(timeout=0) is None
        soon(lambda: counted.now == expected)
        time.sleep(0.05)
        counted.is_let.set()
        for reader in readers:
            seen: list[int] = []
            while not reader.is_finished:
                batch = reader.read(timeout=5)
                seen += [] if batch is None else batch["offset"].to_pylist()
            assert seen == list(range(RECORDS))
    assert soon(lambda: not pool_threads())
    return counted.most


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("said_by", ["the pool", "the query", "the environment"])
def test_so_many_threads_decode_as_an_option_names(
    log: GrowingLog, threads: int, said_by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SEGREADER_THREADS", raising=False)
    if said_by == "the environment":
        monkeypatch.setenv("SEGREADER_THREADS", str(threads))
    pool = ReaderPool(
        query(log, threads=threads if said_by == "the query" else None),
        threads=threads if said_by == "the pool" else None,
    )
    assert most_at_a_time(log, pool, threads) == threads


def test_ranges_that_are_fetched_at_a_time_are_bounded_by_bytes(log: GrowingLog) -> None:
    size = 4 * only_split(log).split.positions.size
    pool = ReaderPool(query(log, read_ahead_bytes=2 * size), threads=6)
    assert most_at_a_time(log, pool, 2) == 2
    assert most_at_a_time(log, ReaderPool(query(log), threads=6, read_ahead_bytes=1), 1) == 1


@pytest.mark.parametrize(("most_bytes", "decoded"), [(1, 50), (1 << 20, 100)])
def test_nothing_is_decoded_ahead_of_its_host_beyond_the_bound(log: GrowingLog, most_bytes: int, decoded: int) -> None:
    with ReaderPool(query(log, read_ahead_bytes=most_bytes)) as pool, pool.open(only_split(log)) as reader:
        batch = reader.read(timeout=30)
        assert batch is not None
        assert batch.num_rows == 50
        soon(lambda: reader.metrics.records >= 100 or most_bytes == 1)
        time.sleep(0.05)
        assert reader.metrics.records == decoded
        assert reader.read(timeout=30) is not None


class HungStore(LocalStore):
    """A store that gives no bytes, and whose waits can be ended, as those for a network can."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.waits = 0

    def read_pieces(self, name: str, *_: Any, **__: Any) -> Generator[memoryview, None, None]:
        self.waits += 1
        result_of(Future())
        yield memoryview(b"")


@pytest.mark.parametrize("timeout", [None, 30.0])
@pytest.mark.parametrize("close", ["reader", "pool"])
def test_a_store_that_gives_no_bytes_is_left_when_its_reader_is_closed(
    log: GrowingLog, close: str, timeout: float | None
) -> None:
    split = only_split(log)

    def end_one() -> float:
        pool = ReaderPool(query(log))
        pool.store = hung = HungStore(log.root.parent)
        reader = pool.open(split)
        ended: list[float] = []

        def read(reader: ResumableReader) -> None:
            with pytest.raises(ClosedError):
                reader.read(timeout=timeout)
            ended.append(time.monotonic())

        thread = threading.Thread(target=read, args=(reader,))
        thread.start()
        assert soon(lambda: hung.waits == 1)
        began = time.monotonic()
        (reader if close == "reader" else pool).close()
        closed = time.monotonic()
        thread.join(20)
        pool.close()
        assert soon(lambda: not pool_threads())
        return max(closed, *ended) - began

    assert median(end_one() for _ in range(3)) < GRACE_S  # the machine may be busy with something else once


@pytest.mark.parametrize("timeout", [None, 30.0])
def test_an_interrupt_ends_a_read_at_once(log: GrowingLog, timeout: float | None) -> None:
    split = only_split(log)

    def end_one() -> float:
        with ReaderPool(query(log)) as pool:
            pool.store = hung = HungStore(log.root.parent)
            reader = pool.open(split)
            took = interrupted(lambda: reader.read(timeout=timeout), lambda: hung.waits == 1)
            began = time.monotonic()
            reader.close()
            took += time.monotonic() - began
        assert soon(lambda: not pool_threads())
        return took

    assert median(end_one() for _ in range(3)) < GRACE_S


@pytest.mark.parametrize("name", ["threads", "read_ahead_bytes"])
def test_how_far_is_read_ahead_must_be_positive(log: GrowingLog, name: str) -> None:
    with pytest.raises(OptionError, match=f"{name} must be positive"):
        query(log, **{name: 0})
    with pytest.raises(OptionError, match="must be positive"):
        ReaderPool(query(log), **{name: 0})  # type: ignore[arg-type]


def test_a_query_keeps_how_far_is_read_ahead(log: GrowingLog) -> None:
    asked = query(log, threads=3, read_ahead_bytes=1 << 20)
    assert LoadQuery.from_json(asked.to_json()) == asked
