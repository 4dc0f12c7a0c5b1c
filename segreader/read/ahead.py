"""The one executor: a few threads read parts ahead of their consumer, which gets the items in order.

Reading ahead is bounded. While the consumer uses one item, the next one of the same part is read; more of it, and other
parts, are read only while what waits and what is fetched is less than ``most_bytes``. An error of a part is raised
after the items before it. Closing ends the threads and what they read from, also while they wait for a store.

This module knows threads, but not how records are read. Threads wake each other through ``SimpleQueue``, because its
``put`` is safe in a finalizer.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from threading import Lock, Thread, current_thread
from typing import Final, Generic, Self, TypeVar
from weakref import finalize

from segreader.errors import StorageError
from segreader.plan.request import ReadOptions
from segreader.storage.base import ObjectStore, range_size_of
from segreader.storage.cancellation import Cancellation, cancellable

Part = TypeVar("Part")
Item = TypeVar("Item")

_DECODED_BYTES: Final = 5 << 20
"""Of what is being decoded, by one thread."""

_GRACE_S: Final = 0.2
"""Threads that still wait for a store then, as for a connection, end by themselves later."""


@dataclass(frozen=True, slots=True)
class ReadAhead:
    """How far a store is read ahead.

    Args:
        threads: that read.
        most_bytes: that wait to be used, or are fetched for what will.
        range_size: of the store; 0 of local files.
    """

    threads: int
    most_bytes: int
    range_size: int

    @classmethod
    def of(cls, store: ObjectStore, options: ReadOptions) -> Self:
        """How far this store is read ahead; raises as ``ReadOptions.threads_for``."""
        range_size = range_size_of(store)
        is_remote = bool(range_size)
        return cls(options.threads_for(is_remote=is_remote), options.most_bytes_ahead(is_remote=is_remote), range_size)

    def held_by(self, size: int) -> int:
        """Bytes that reading so many bytes of an object holds, besides what waits."""
        return min(self.range_size, size) + min(_DECODED_BYTES, 4 * size)


def one_ahead(make: Callable[[], Iterator[Item]], *, name: str) -> Generator[Item, None, None]:
    """What an iterator gives, the next item of which is read in a thread while one is used.

    Args:
        make: called in the thread; what it gives is used there alone.
        name: of the thread.
    """
    ahead = Ahead([make], make_each, name=name)
    try:
        while found := ahead.next():
            yield found.pop()
    finally:
        ahead.close()


def in_order(
    parts: Sequence[Part],
    open_reader: Callable[[], Callable[[Part], Iterator[Item]]],
    *,
    name: str,
    threads: int,
    most_bytes: int,
    size_of: Callable[[Item], int] = lambda _: 0,
    fetched_of: Callable[[Part], int] = lambda _: 0,
) -> Generator[Item, None, None]:
    """The items of parts, in the order of the parts, read by several threads at once. Closing it ends them.

    Args:
        threads: how many read; with one, or for a single part, the caller's own does when an item is asked for.
        most_bytes: as of ``Ahead.hurry``; the others as of ``Ahead``.
    """
    if (threads := min(threads, len(parts))) < 2:
        read = open_reader()
        for part in parts:
            yield from read(part)
        return
    ahead = Ahead(parts, open_reader, name=name, size_of=size_of, fetched_of=fetched_of)
    try:
        ahead.hurry(most_bytes, threads)
        while found := ahead.next():
            yield found.pop()
    finally:
        ahead.close()


class Ahead(Generic[Part, Item]):
    """Items of parts, in the order of the parts. Use it from one thread; threads end when it is closed or garbage.

    Nothing is read before the first item is asked for. A program that ends does not wait for the threads.

    Args:
        open_reader: called once in each thread; what it gives is called with one part after another.
        name: of the threads.
        size_of: bytes of an item, counted while it waits.
        fetched_of: bytes that reading a part holds besides its items, counted from its beginning to its end.
    """

    def __init__(
        self,
        parts: Sequence[Part],
        open_reader: Callable[[], Callable[[Part], Iterator[Item]]],
        *,
        name: str,
        size_of: Callable[[Item], int] = lambda _: 0,
        fetched_of: Callable[[Part], int] = lambda _: 0,
    ) -> None:
        self._work = _Work(parts, open_reader, size_of, fetched_of)
        self._name = name
        self._process = os.getpid()
        self._threads: list[Thread] = []
        self._told: SimpleQueue[None] = SimpleQueue()
        self._dropped = finalize(self, self._work.stop)
        self._dropped.atexit = False

    @property
    def is_stopped(self) -> bool:
        """Whether the threads were told to end."""
        return self._work.is_stopped

    def next(self) -> list[Item]:
        """The next item, alone in a list so that no reference to it stays here; an empty list at the end.

        Raises:
            whatever reading the part raised.
        """
        while (found := self.poll(partial(self._told.put, None))) is None:
            with cancellable(self._end_wait):
                self._told.get()
        return found

    def _end_wait(self) -> None:
        self.stop()
        self._told.put(None)

    def poll(self, tell: Callable[[], object]) -> list[Item] | None:
        """As ``next``, without waiting: ``None`` if nothing is there yet.

        Args:
            tell: called then in another thread, when it is worth asking again.
        """
        if self._process != os.getpid():
            raise StorageError(
                "this read was begun in another process", hint="Begin it again: threads do not survive a fork"
            )
        if not self._threads:
            self._start(1)
        return self._work.take(tell)

    def hurry(self, most_bytes: int, threads: int) -> None:
        """Read ahead until so many bytes wait or are fetched, with some more threads."""
        self._work.hurry(most_bytes)
        self._start(threads)
        self._threads.append(Thread(target=self._work.cancel_when_stopped, name=f"{self._name}-end", daemon=True))
        self._threads[-1].start()

    def stop(self) -> None:
        """Have the threads end, what they wait for in a store included, without waiting for them."""
        self._dropped()
        self._work.cancellation.cancel()

    def has_ended(self, tell: Callable[[], object]) -> bool:
        """Whether no thread reads any more; ``tell`` as in ``poll``."""
        return self._work.has_ended(tell)

    def close(self) -> None:
        """End the threads, and wait until they have; not for long for one that a store does not let go."""
        self.stop()
        if self._process != os.getpid():
            return
        deadline = time.monotonic() + _GRACE_S
        for thread in self._threads:
            while thread.is_alive() and thread is not current_thread():
                thread.join(0.02)
                if time.monotonic() > deadline and self._work.cancellation.is_awaited:
                    break

    def _start(self, count: int) -> None:
        for _ in range(count):
            thread = Thread(target=self._work.run, args=(self._work.begin(),), name=self._name, daemon=True)
            self._threads.append(thread)
            thread.start()


class _Work(Generic[Part, Item]):
    """What the threads share with who takes from them. It does not know ``Ahead``, so that this can be garbage.

    Parts are begun in order, so the one that is taken from is always read, or has been: no thread waits for another one
    that waits itself. All that changes is under ``_lock``, but for ``is_stopped``.
    """

    def __init__(
        self,
        parts: Sequence[Part],
        open_reader: Callable[[], Callable[[Part], Iterator[Item]]],
        size_of: Callable[[Item], int],
        fetched_of: Callable[[Part], int],
    ) -> None:
        self._parts, self._open_reader, self._size_of, self._fetched_of = parts, open_reader, size_of, fetched_of
        self.cancellation = Cancellation()
        self._stopped: SimpleQueue[None] = SimpleQueue()
        self._lock = Lock()
        self._items: dict[int, deque[Item]] = {}
        self._ended: dict[int, BaseException | None] = {}
        self._begun = self._taking = self._waiting_bytes = self._fetched_bytes = self._most_bytes = 0
        self._reading = 0  # threads
        self._wakes: list[SimpleQueue[None]] = []  # one a thread
        self._sleeping: list[SimpleQueue[None]] = []
        self._tell: Callable[[], object] | None = None
        self.is_stopped = False

    # for who takes

    def take(self, tell: Callable[[], object]) -> list[Item] | None:
        """See ``Ahead.poll``."""
        with self._lock:
            error: BaseException | None = None
            while error is None:
                if self.is_stopped or self._taking == len(self._parts):
                    return []
                if waiting := self._items.get(self._taking):
                    item = waiting.popleft()
                    self._waiting_bytes -= self._size_of(item)
                    self._wake_all()
                    return [item]
                if self._taking not in self._ended:
                    self._tell = tell
                    return None
                error = self._ended.pop(self._taking)
                self._taking += 1
                self._wake_all()
            self._taking = len(self._parts)
        try:
            raise error
        finally:
            del error  # its traceback knows this frame

    def hurry(self, most_bytes: int) -> None:
        """See ``Ahead.hurry``."""
        with self._lock:
            self._most_bytes = most_bytes
            self._wake_all()

    def begin(self) -> SimpleQueue[None]:
        """Count one more thread that reads; what ``run`` is given in it."""
        with self._lock:
            self._reading += 1
            self._wakes.append(SimpleQueue())
            return self._wakes[-1]

    def has_ended(self, tell: Callable[[], object]) -> bool:
        """See ``Ahead.has_ended``."""
        with self._lock:
            if self._reading:
                self._tell = tell
            return not self._reading

    def stop(self) -> None:
        """Have the threads end. A finalizer may call it."""
        self.is_stopped = True
        self._stopped.put(None)
        for wake in self._wakes:
            wake.put(None)

    def cancel_when_stopped(self) -> None:
        """Wait for ``stop``, and end what the threads wait for: a finalizer must take no lock."""
        self._stopped.get()
        self.cancellation.cancel()

    def _wake_all(self) -> None:
        for wake in self._sleeping:
            wake.put(None)
        self._sleeping.clear()

    # for the threads

    def run(self, wake: SimpleQueue[None]) -> None:
        """Read parts until none is left, or the consumer has gone."""
        at = 0
        error: BaseException | None = None
        try:
            read = self._open_reader()
            while self._sleep_until(self._may_begin, wake):
                with self._lock:
                    if self._begun == len(self._parts):
                        return
                    at, self._begun = self._begun, self._begun + 1
                    self._fetched_bytes += self._fetched_of(self._parts[at])
                    self._items[at] = deque()
                with self.cancellation.covers():
                    self._read(read, at, wake)
        except BaseException as raised:  # it belongs to who takes, whatever it is
            error = raised
        finally:
            with self._lock:
                if self.is_stopped:
                    self._items.clear()
                elif error is not None:
                    self._ended[at] = error
                self._reading -= 1
                self._call()
            del error

    def _read(self, read: Callable[[Part], Iterator[Item]], at: int, wake: SimpleQueue[None]) -> None:
        items = _stepped(read, self._parts[at])
        try:
            while self._sleep_until(lambda: self._may_step(at), wake):
                try:
                    item = next(items)
                except StopIteration:
                    break
                self._put(at, item)
                del item  # who takes it is the only one who has it: its buffers come back when he lets go
        finally:
            items.close()
            with self._lock:
                self._fetched_bytes -= self._fetched_of(self._parts[at])
        with self._lock:
            if not self.is_stopped:
                self._ended[at] = None
                self._call()
            self._wake_all()

    def _may_begin(self) -> bool:
        if self._begun <= self._taking or self._begun == len(self._parts):
            return True
        used = self._waiting_bytes + self._fetched_bytes
        return used < self._most_bytes and used + self._fetched_of(self._parts[self._begun]) <= self._most_bytes

    def _may_step(self, at: int) -> bool:
        is_next = at == self._taking and not self._items[at]
        return is_next or self._waiting_bytes + self._fetched_bytes < self._most_bytes

    def _sleep_until(self, may: Callable[[], bool], wake: SimpleQueue[None]) -> bool:
        """Whether to go on, as soon as that is known."""
        while True:
            with self._lock:
                if self.is_stopped:
                    return False
                if may():
                    return True
                self._sleeping.append(wake)
            wake.get()

    def _put(self, at: int, item: Item) -> None:
        with self._lock:
            if not self.is_stopped:
                self._items[at].append(item)
                self._waiting_bytes += self._size_of(item)
                self._call()

    def _call(self) -> None:
        tell, self._tell = self._tell, None
        if tell is not None:
            tell()


def _stepped(read: Callable[[Part], Iterator[Item]], part: Part) -> Generator[Item, None, None]:
    yield from read(part)


def make_each() -> Callable[[Callable[[], Iterator[Item]]], Iterator[Item]]:
    """For parts that are iterators yet to be made."""
    return lambda make: make()
