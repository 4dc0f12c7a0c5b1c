"""What the readers of one process share: the open location, a few threads, and buffers for as many as read at once."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, Self

from segreader.errors import ClosedError, OptionError
from segreader.format.columns import BufferPool
from segreader.format.kernel import load_kernel
from segreader.loader.position import Position
from segreader.loader.query import LoadQuery
from segreader.loader.splits import LoaderSplit
from segreader.loader.workers import Workers
from segreader.storage.base import ObjectStore

if TYPE_CHECKING:
    from segreader.loader.reader import SplitReader

_LOOK_AGAIN_S: Final = 0.02
"""Whether a reader may be parked changes with time, and when its host lets go of it, which nobody tells."""


class ReaderPool:
    """Opens readers of splits. At most ``max_open`` of them hold buffers and connections at a time: where another one
    wants to read, the one whose last read is longest ago is parked. It keeps its position and goes on there.

    It may be used from any number of threads of the process that made it; a process forked from that one must make its
    own. If it is never closed, everything goes with it, and a program that ends does not wait for it.

    Args:
        query: how to read.
        storage_options: credentials and the like of the location, as ``segreader.scan`` takes them.
        threads: how many decode for reads that have a time limit; others decode in the thread that calls.
        max_open: how many readers hold buffers, each up to about 30 MiB.

    Raises:
        OptionError, ObjectNotFoundError: the location cannot be opened.
    """

    def __init__(
        self,
        query: LoadQuery,
        *,
        storage_options: Mapping[str, object] | None = None,
        threads: int = 2,
        max_open: int = 8,
    ) -> None:
        if min(threads, max_open) < 1:
            raise OptionError("threads and max_open must be positive", found=f"{threads} and {max_open}")
        self.query = query
        self.store: ObjectStore = query.open(storage_options).store
        self._max_open = max_open
        self._changed = threading.Condition()  # guards what follows; a reader's own lock is taken before this one
        self._open: list[weakref.ref[SplitReader]] = []  # by last use
        self._readers: weakref.WeakSet[SplitReader] = weakref.WeakSet()
        self._idle: list[BufferPool] = []
        self._workers = Workers(threads)
        self._process = os.getpid()
        self._is_closed = False
        self._allocate = load_kernel(query.kernel).allocate
        self._finalizer = weakref.finalize(self, self.store.close)
        self._finalizer.atexit = False

    def open(self, split: LoaderSplit, position: Position | None = None) -> SplitReader:
        """A reader of a split. Nothing is read before it is asked for.

        Args:
            position: where to go on; at the beginning, unless given.

        Raises:
            PositionError: the position is none of this split.
            ClosedError: the pool is closed.
        """
        from segreader.loader.reader import SplitReader

        return SplitReader(split, self.query, pool=self, position=position)

    def close(self) -> None:
        """Close all its readers, and give back connections, threads and buffers."""
        with self._changed:
            self._is_closed = True
            readers, self._idle = list(self._readers), []
            self._changed.notify_all()
        for reader in readers:
            reader.close()
        self._workers.stop()
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # for its readers

    def require_own_process(self) -> None:
        """Raise in a process that was forked from the pool's: neither its threads nor its connections are there.

        Raises:
            ClosedError: it is another process.
        """
        if os.getpid() != self._process:
            raise ClosedError(
                "the pool was made in another process, of which this one is a fork",
                hint="Open one in each process: queries, splits and positions travel, readers do not",
            )

    def add(self, reader: SplitReader) -> None:
        """Remember a reader, so that it is closed with the pool."""
        self.require_own_process()
        with self._changed:
            self._require_open()
            self._readers.add(reader)

    def take(self, reader: SplitReader) -> BufferPool:
        """Buffers to decode into; waits while none of those who hold some can be parked.

        Raises:
            ClosedError: the pool was closed meanwhile.
        """
        with self._changed:
            while True:
                self._require_open()
                if reader.is_closed:
                    raise ClosedError("the reader is closed", hint="Open another one at its position")
                self._open = [one for one in self._open if one() is not None]
                if len(self._open) < self._max_open or self._park_one():
                    break
                self._changed.wait(_LOOK_AGAIN_S)
            self._open.append(weakref.ref(reader))
            return self._idle.pop() if self._idle else BufferPool(allocate=self._allocate)

    def use(self, reader: SplitReader) -> None:
        """Note that a reader is read: others are parked before it."""
        with self._changed:
            if self._open and self._open[-1]() is reader:
                return
            at = next((at for at, one in enumerate(self._open) if one() is reader), None)
            if at is not None:
                self._open.append(self._open.pop(at))

    def give_back(self, reader: SplitReader, buffers: BufferPool) -> None:
        """Take the buffers of a reader that holds none from now on."""
        with self._changed:
            self._open = [one for one in self._open if one() is not None and one() is not reader]
            if not self._is_closed and len(self._idle) < self._max_open:
                self._idle.append(buffers)
            self._changed.notify_all()

    def rest(self) -> None:
        """Tell those who wait for buffers that a reader may be parked now."""
        with self._changed:
            self._changed.notify_all()

    def submit(self, work: Callable[[], None]) -> None:
        """Have a thread do it.

        Raises:
            ClosedError: the pool is closed.
        """
        with self._changed:
            self._require_open()
            self._workers.submit(work)

    def _park_one(self) -> bool:
        for one in list(self._open):
            reader = one()
            if reader is not None and reader.try_park():
                return True
        return False

    def _require_open(self) -> None:
        if self._is_closed:
            raise ClosedError("the pool is closed", hint="Open another one; positions stay valid")
