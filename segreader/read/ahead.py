"""The one executor: a few threads read parts ahead of their consumer, which gets the items in order.

The order is that of the parts, or, if parts are in several lanes, that of each lane: the consumer gets the next item of
any lane that has one. Parts may be added while others are read. Reading ahead is bounded. While the consumer uses one
item, the next one is read; more are read only while what waits, is fetched and is made is less than ``most_bytes``. An
error of a part is raised after the items before it. Closing ends the threads and what they read from, also while they
wait for a store.

This module knows threads, but not how records are read. Threads wake each other through ``SimpleQueue``, because its
``put`` is safe in a finalizer.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from itertools import islice
from queue import SimpleQueue
from threading import Lock, Thread, current_thread
from typing import Final, Generic, Self, TypeVar
from weakref import finalize

from segreader.errors import StorageError
from segreader.plan.request import ReadOptions
from segreader.storage.base import ObjectStore, fetching, range_size_of
from segreader.storage.cancellation import Cancellation, cancellable
from segreader.values import dataclass

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

    @property
    def most_waiting(self) -> int:
        """Bytes that wait or are decoded, at most: of a store on the network the other half is for ranges."""
        return max(1, self.most_bytes // 2) if self.range_size else self.most_bytes

    @property
    def most_fetched(self) -> int | None:
        """Bytes of the ranges that all reads hold together; ``None`` of local files."""
        return max(1, self.most_bytes // 2) if self.range_size else None

    def held_by(self, size: int) -> int:
        """Bytes that decoding so many bytes of an object holds, besides ranges and what waits."""
        return min(_DECODED_BYTES, 4 * size)


def one_lane(
    make: Callable[[], Iterator[Item]],
    *,
    name: str,
    most_bytes: int = 0,
    size_of: Callable[[Item], int] = lambda _: 0,
    made_of: int = 0,
) -> Generator[Item, None, None]:
    """What an iterator gives, read in a thread while items are used: the next one, and more up to ``most_bytes``.

    Closing it ends the thread.

    Args:
        make: called in the thread; what it gives is used there alone.
        name: of the thread.
        most_bytes: as of ``Ahead.hurry``; ``size_of`` as of ``Ahead``.
        made_of: bytes that an item may take, counted while it is made.
    """
    ahead = Ahead([make], make_each, name=name, size_of=size_of, made_of=lambda _: made_of)
    try:
        if most_bytes:
            ahead.hurry(most_bytes, 1)
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
    most_fetched: int | None = None,
) -> Generator[Item, None, None]:
    """The items of parts, in the order of the parts, read by several threads at once. Closing it ends them.

    Args:
        threads: how many read; with one, or for a single part, the caller's own does when an item is asked for.
        most_bytes: as of ``Ahead.hurry``; the others as of ``Ahead``.
        most_fetched: bytes of the ranges that a store holds for all of them, the same share for each thread.
    """
    threads = min(threads, len(parts))
    share = None if most_fetched is None else most_fetched // max(1, threads)

    def open_limited() -> Callable[[Part], Iterator[Item]]:
        read = open_reader()
        return lambda part: limited(read(part), share)

    if threads < 2:
        read = open_limited()
        for part in parts:
            yield from read(part)
        return
    ahead = Ahead(parts, open_limited, name=name, size_of=size_of, fetched_of=fetched_of)
    try:
        ahead.hurry(most_bytes, threads)
        while found := ahead.next():
            yield found.pop()
    finally:
        ahead.close()


def limited(items: Iterator[Item], most: int | None) -> Generator[Item, None, None]:
    """The items; while one is made, a store fetches no more than this (``fetching``)."""
    try:
        while True:
            with fetching(most):
                found = [*islice(items, 1)]
            if not found:
                return
            yield found.pop()
    finally:
        if isinstance(items, Generator):
            items.close()


class Ahead(Generic[Part, Item]):
    """Items of parts, in the order of the parts of each lane. Use it from one thread; threads end when it is closed or
    garbage.

    Nothing is read before the first item is asked for. A program that ends does not wait for the threads.

    Args:
        open_reader: called once in each thread; what it gives is called with one part after another.
        name: of the threads.
        size_of: bytes of an item, counted while it waits.
        fetched_of: bytes that reading a part holds besides its items, counted from its beginning to its end.
        made_of: bytes that an item of a part may take, counted while it is made.
        lane_of: the number of a part's lane. All parts are in one, unless given.
    """

    def __init__(
        self,
        parts: Sequence[Part],
        open_reader: Callable[[], Callable[[Part], Iterator[Item]]],
        *,
        name: str,
        size_of: Callable[[Item], int] = lambda _: 0,
        fetched_of: Callable[[Part], int] = lambda _: 0,
        made_of: Callable[[Part], int] = lambda _: 0,
        lane_of: Callable[[Part], int] = lambda _: 0,
    ) -> None:
        self._work = _Work(parts, open_reader, size_of, fetched_of, made_of, lane_of)
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
            self.add_threads(1)
        return self._work.take(tell)

    def hurry(self, most_bytes: int, threads: int, *, window: int | None = None) -> None:
        """Read ahead until so many bytes wait, are fetched or made, with some more threads.

        Args:
            window: the bound at first, if it is less. It grows whenever an item is waited for.
        """
        self._work.hurry(most_bytes, most_bytes if window is None else min(window, most_bytes))
        self.add_threads(threads)
        self._start_cancelling()

    def add(self, part: Part, most_bytes: int, threads: int) -> None:
        """Read one more part, behind those of other lanes; from now on threads wait for parts until this is closed.

        A lane whose part gave no item ends by itself: nothing has to be taken.

        Args:
            most_bytes: as of ``hurry``.
            threads: at most so many read; another one is started if none waits.
        """
        if self._work.add(part, most_bytes, threads):
            if not self._threads:
                self._start_cancelling()
            self.add_threads(1)

    @property
    def bytes_under_way(self) -> int:
        """What waits, and what is fetched and made."""
        return self._work.bytes_under_way

    def add_threads(self, count: int) -> None:
        """Read with some more threads."""
        for _ in range(count):
            thread = Thread(target=self._work.run, args=(self._work.begin(),), name=self._name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def drop_behind(self, lane: int) -> None:
        """Give nothing more of the lanes with larger numbers, and read no more of them."""
        self._work.drop_behind(lane)

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

    def _start_cancelling(self) -> None:
        self._threads.append(Thread(target=self._work.cancel_when_stopped, name=f"{self._name}-end", daemon=True))
        self._threads[-1].start()


class _Lane:
    """Parts whose items are taken one part after another.

    Args:
        number: lanes with smaller ones are begun first.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.left: deque[int] = deque()  # parts that are not begun
        self.begun: deque[int] = deque()  # and those that are, the first of which is taken from
        self.threads = 0  # that read it


def _busyness(lane: _Lane) -> tuple[int, int, int]:
    """Less for the lane that is to be begun next: that few threads read, then that is not far ahead."""
    return lane.threads, len(lane.begun), lane.number


class _Work(Generic[Part, Item]):
    """What the threads share with who takes from them. It does not know ``Ahead``, so that this can be garbage.

    The parts of a lane are begun in order, so the one that is taken from is always read, or has been: no thread waits
    for another one that waits itself. Of several lanes, the one that fewest threads read is begun next, so that a slow
    one does not take all of them. All that changes is under ``_lock``, but for ``is_stopped``.
    """

    def __init__(
        self,
        parts: Sequence[Part],
        open_reader: Callable[[], Callable[[Part], Iterator[Item]]],
        size_of: Callable[[Item], int],
        fetched_of: Callable[[Part], int],
        made_of: Callable[[Part], int],
        lane_of: Callable[[Part], int],
    ) -> None:
        self._open_reader, self._lane_of = open_reader, lane_of
        self._size_of, self._fetched_of, self._made_of = size_of, fetched_of, made_of
        self.cancellation = Cancellation()
        self._stopped: SimpleQueue[None] = SimpleQueue()
        self._lock = Lock()
        lanes: dict[int, _Lane] = {}
        self._parts = dict(enumerate(parts))
        self._lanes: dict[int, _Lane] = {}  # by part
        for at, part in self._parts.items():
            number = lane_of(part)
            lane = lanes.get(number) or lanes.setdefault(number, _Lane(number))
            lane.left.append(at)
            self._lanes[at] = lane
        self._added = len(parts)
        self._is_endless = False  # parts may be added
        self._fresh = deque(lanes[number] for number in sorted(lanes))
        self._open: deque[_Lane] = deque()  # some part is begun; the one that was taken from last is at the end
        self._items: dict[int, deque[Item]] = {}  # by part that is begun, and not taken to its end
        self._ended: dict[int, BaseException | None] = {}
        self._failure: BaseException | None = None  # of no part
        self._waiting_bytes = self._fetched_bytes = self._making_bytes = 0
        self._most_bytes = self._window = 0  # the window is the bound up to now
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
                if self.is_stopped or not (self._open or self._fresh):
                    return []
                lane = self._ready_lane()
                if lane is None:
                    if (error := self._failure) is not None:
                        break
                    if self._window < self._most_bytes:
                        self._window = min(self._most_bytes, self._window * 3 // 2 + 1)
                        self._wake_all()
                    self._tell = tell
                    return None
                if waiting := self._items[lane.begun[0]]:
                    item = waiting.popleft()
                    self._waiting_bytes -= self._size_of(item)
                    self._open.remove(lane)
                    self._open.append(lane)
                    self._wake_all()
                    return [item]
                error = self._end(lane)
                self._wake_all()
            self._open.clear()
            self._fresh.clear()
        try:
            raise error
        finally:
            del error  # its traceback knows this frame

    def _ready_lane(self) -> _Lane | None:
        """A lane whose next item is there, or whose part has ended."""
        for lane in self._open:
            if lane.begun and (self._items[lane.begun[0]] or lane.begun[0] in self._ended):
                return lane
        return None

    def _end(self, lane: _Lane) -> BaseException | None:
        """A lane's part was taken to its end; returns its error."""
        at = lane.begun.popleft()
        del self._items[at], self._parts[at], self._lanes[at]
        if not (lane.begun or lane.left):
            self._open.remove(lane)
        return self._ended.pop(at)

    def add(self, part: Part, most_bytes: int, threads: int) -> bool:
        """See ``Ahead.add``; whether another thread is wanted."""
        with self._lock:
            if self.is_stopped:
                return False
            self._is_endless, self._most_bytes, self._window = True, most_bytes, most_bytes
            at, self._added = self._added, self._added + 1
            lane = _Lane(self._lane_of(part))
            lane.left.append(at)
            self._parts[at], self._lanes[at] = part, lane
            self._fresh.append(lane)
            if self._sleeping:  # the thread that slept last: its caches are warm
                self._sleeping.pop().put(None)
                return False
            return self._reading < threads

    @property
    def bytes_under_way(self) -> int:
        """See ``Ahead.bytes_under_way``."""
        return self._waiting_bytes + self._fetched_bytes + self._making_bytes

    def drop_behind(self, lane: int) -> None:
        """See ``Ahead.drop_behind``."""
        with self._lock:
            for one in [*self._open, *self._fresh]:
                if one.number <= lane:
                    continue
                (self._fresh if one in self._fresh else self._open).remove(one)
                for at in one.begun:
                    self._waiting_bytes -= sum(map(self._size_of, self._items.pop(at, ())))
                    self._ended.pop(at, None)
                one.left.clear()
                one.begun.clear()
            self._wake_all()

    def hurry(self, most_bytes: int, window: int) -> None:
        """See ``Ahead.hurry``."""
        with self._lock:
            self._most_bytes, self._window = most_bytes, window
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
        at: int | None = None
        error: BaseException | None = None
        try:
            read = self._open_reader()
            while self._sleep_until(self._may_begin, wake):
                with self._lock:
                    at = self._begin_part()
                if at is None:
                    return
                with self.cancellation.covers():
                    self._read(read, at, wake)
        except BaseException as raised:  # it belongs to who takes, whatever it is
            error = raised
        finally:
            with self._lock:
                if self.is_stopped:
                    self._items.clear()
                elif error is not None and at is None:
                    self._failure = error
                elif at in self._items:
                    self._ended[at] = error
                self._reading -= 1
                self._call()
            del error

    def _read(self, read: Callable[[Part], Iterator[Item]], at: int, wake: SimpleQueue[None]) -> None:
        part, lane = self._parts[at], self._lanes[at]
        items = _stepped(read, part)
        try:
            while self._sleep_until(lambda: self._begin_step(at), wake):
                try:
                    if at not in self._items:
                        break
                    item = next(items)
                except StopIteration:
                    break
                finally:
                    self._end_step(at)
                self._put(at, item)
                del item  # who takes it is the only one who has it: its buffers come back when he lets go
        finally:
            items.close()
            with self._lock:
                lane.threads -= 1
                self._fetched_bytes -= self._fetched_of(part)
        with self._lock:
            if not self.is_stopped and at in self._items:
                self._ended[at] = None
                if self._is_endless and not self._items[at]:
                    self._end(self._lanes[at])
                self._call()
            if self._fresh or not self._is_endless:
                self._wake_all()

    def _next_lane(self) -> _Lane | None:
        """The lane of which a part is begun next."""
        some = [lane for lane in self._open if lane.left]
        if self._fresh:
            some.append(self._fresh[0])
        return min(some, key=_busyness, default=None)

    def _may_begin(self) -> bool:
        lane = self._next_lane()
        if lane is None and self._is_endless:
            return False
        if lane is None or not any(one.begun for one in self._open):
            return True
        if not (lane.begun or self._is_endless) and self._ready_lane() is None:
            return True  # else slow lanes, which may have all the room, would hold this one back
        return self._has_room(lane.left[0], self._fetched_of(self._parts[lane.left[0]]))

    def _begin_part(self) -> int | None:
        lane = self._next_lane()
        if lane is None:
            return None
        if self._fresh and lane is self._fresh[0]:
            self._open.appendleft(self._fresh.popleft())
        at = lane.left.popleft()
        lane.begun.append(at)
        lane.threads += 1
        self._fetched_bytes += self._fetched_of(self._parts[at])
        self._items[at] = deque()
        return at

    def _begin_step(self, at: int) -> bool:
        """Whether an item may be made now, or the part was dropped; an item's bytes are counted then."""
        if at in self._items and not self._has_room(at):
            is_next = self._lanes[at].begun[0] == at and self._ready_lane() is None
            if not is_next:
                return False
        self._making_bytes += self._made_of(self._parts[at])
        return True

    def _end_step(self, at: int) -> None:
        with self._lock:
            self._making_bytes -= self._made_of(self._parts[at])

    def _has_room(self, at: int, more: int = 0) -> bool:
        used = self._waiting_bytes + self._fetched_bytes + self._making_bytes
        return used < self._window and used + more + self._made_of(self._parts[at]) <= self._window

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
            if not self.is_stopped and at in self._items:
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
