"""A bucket in memory whose logs take their time, and how many of them are read at once."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

import pytest

from segreader.errors import StorageError
from segreader.storage.cancellation import cancellable, result_of
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import local_tiered_files
from segreader.testing.stores import FaultyStore, MemoryStore


def threads(name: str) -> list[str]:
    """Threads whose names begin so."""
    return [one.name for one in threading.enumerate() if one.name.startswith(name)]


def until(is_so: Callable[[], bool], seconds: float = 10) -> bool:
    """Whether it is so in time."""
    end = time.monotonic() + seconds
    while not is_so() and time.monotonic() < end:
        time.sleep(0.002)
    return is_so()


def interrupted(work: Callable[[], object], is_waiting: Callable[[], bool]) -> float:
    """Seconds from an interrupt, sent to this thread once the work waits, until the work has ended with it."""
    main_thread = threading.main_thread().ident
    assert main_thread is not None
    sent = 0.0

    def interrupt() -> None:
        nonlocal sent
        until(is_waiting)
        time.sleep(0.05)
        sent = time.monotonic()
        signal.pthread_kill(main_thread, signal.SIGINT)

    killer = threading.Thread(target=interrupt)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        killer.start()
        with pytest.raises(KeyboardInterrupt):
            work()
        return time.monotonic() - sent
    finally:
        killer.join()
        signal.signal(signal.SIGINT, before)


def bucket(segments: int = 12, batches: int = 8) -> MemoryStore:
    """One partition in memory."""
    segment, some = SegmentBuilder(0), []
    for _ in range(segments):
        for _ in range(batches):
            segment.batch([b"x" * 1000])
        some.append(segment)
        segment = segment.roll()
    return MemoryStore(dict(local_tiered_files("orders", some)))


def damaged_bucket(segments: int = 12) -> MemoryStore:
    """The same, the first batch of which fails its CRC."""
    objects = bucket(segments)
    name = next(name for name in sorted(objects.objects) if name.endswith(".log"))
    data = bytearray(objects.objects[name])
    data[100] ^= 1
    objects.objects[name] = bytes(data)
    return objects


class Bodies:
    """Counts whole logs that are asked for, and holds each up, as a store on the network does.

    ``most`` is how many were asked for at once; the first ones wait until that is ``least``. Logs are numbered from 0,
    in order of their offsets: those from ``stuck_from`` on never come, and ``broken`` fails.
    """

    def __init__(self, objects: MemoryStore) -> None:
        self.sizes = {name: len(data) for name, data in objects.objects.items()}
        self.open = self.most = self.begun = 0
        self.stuck_from: int | None = None
        self.broken = -1
        self.least = 1
        self._lock = threading.Lock()

    def __call__(self, request: str) -> None:
        kind, _, rest = request.partition(" ")
        name, _, span = rest.partition(" bytes=")
        if kind != "GET" or not name.endswith(".log") or span != f"0-{self.sizes[name] - 1}":
            return
        with self._lock:
            self.begun, self.open = self.begun + 1, self.open + 1
            self.most = max(self.most, self.open)
        number = int(name.rpartition("/")[2][:20]) // 8  # not of requests: threads make them in any order
        try:
            if self.stuck_from is not None and number >= self.stuck_from:
                ended = threading.Event()
                with cancellable(ended.set):
                    ended.wait(30)
                raise StorageError("the read was ended")
            if not until(lambda: self.most >= self.least):
                self.least = 1  # the others need not wait in vain, too
            time.sleep(0.01)
            if number == self.broken:
                raise StorageError("out of order")
        finally:
            with self._lock:
                self.open -= 1


class Hung:
    """Gives no bytes of logs behind the first requests; its waits can be ended, as those for a network can."""

    def __init__(self, first: int) -> None:
        self.left, self.waits = first, 0

    def __call__(self, request: str) -> None:
        if not request.startswith("GET") or ".log" not in request:
            return
        self.left -= 1
        if self.left < 0:
            self.waits += 1
            result_of(Future())


class RemoteStore(FaultyStore):
    """As a store on the network, which says how much one request asks for."""

    range_size = 1 << 20
