"""A split, read as its host wants it: in portions, with a time limit, stopped and begun again at any record.

A ``ReaderPool`` is what the readers of one process share: the open location, the executor of ``read/ahead.py``, and
buffers for as many as read at once. A reader's own lock is taken before the pool's.
"""

from __future__ import annotations

import math
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import count
from typing import Final, NamedTuple, Self

import pyarrow as pa

from segreader.errors import ClosedError, OptionError
from segreader.format.columns import BufferPool
from segreader.format.kernel import load_kernel
from segreader.loader.decoding import Decoded, SplitDecoding
from segreader.loader.query import LoadQuery
from segreader.loader.splits import (
    LoaderSplit,
    Position,
    epoch_before,
    open_transactions,
    refuse_foreign,
    refuse_other_topic,
    rest_of,
)
from segreader.read.ahead import Ahead, ReadAhead
from segreader.read.batch_positions import KnownBatches
from segreader.read.decoders import COLUMNS_OF_HEADERS
from segreader.read.metrics import ScanMetrics
from segreader.storage.base import FetchBudget, ObjectStore
from segreader.storage.cancellation import Cancellation

_KEPT_S: Final = 1.0
"""Keep a record batch that came too late for its read this long, even if other readers want buffers: otherwise
round-robin ``read(timeout=0)`` over more readers than buffers never makes progress."""


_LOOK_AGAIN_S: Final = 0.02
"""Look again whether a reader may be parked: that changes with time, and when its host drops it, without an event."""


class ResumableReader:
    """Reads one split. It may be called from several threads: each record goes to one caller, in offset order.

    ``close`` from any thread ends reads that wait, and requests to a store whose waits can be ended (HTTP, buckets).
    Afterwards all but ``position`` and ``close`` raise ``ClosedError``. If it is never closed, everything goes with it.

    Args:
        split: what to read.
        query: how to read it.
        storage_options: credentials and the like of the location, for a reader with a pool of its own.
        position: where to go on; at the beginning, unless given.
        pool: what it shares with other readers; by default a pool of its own, with one thread.

    Raises:
        PositionError: the position is none of this split, or the split is of another topic than the query.
        OptionError, ObjectNotFoundError: the location cannot be opened.
    """

    def __init__(
        self,
        split: LoaderSplit,
        query: LoadQuery,
        *,
        storage_options: Mapping[str, object] | None = None,
        position: Position | None = None,
        pool: ReaderPool | None = None,
    ) -> None:
        refuse_other_topic(split, query.topic)
        self.split = split
        self.metrics = ScanMetrics()
        self._has_own_pool = pool is None
        self.columns = query.columns
        self._options = query.read_options()
        if COLUMNS_OF_HEADERS.issuperset(self.columns):
            self._count_offsets()
        self._cancellation = Cancellation()
        self._changed = threading.Condition()  # guards all that follows; a thread may take it twice
        self._is_busy = False  # a thread decodes, or will
        self._is_decoding = False  # it has begun: it alone touches the decoding and the buffers
        self._decoding: SplitDecoding | None = None
        self._buffers: BufferPool | None = None
        self._ready: deque[tuple[Decoded, int]] = deque()  # with their bytes
        self._row = 0  # of the first that is ready: those before were handed out
        self._waiting_bytes = 0  # of those that are ready
        self._is_exhausted = False  # nothing is behind them
        self._stopping = 0  # threads that wait until none decodes
        self._is_owed = False  # a read asked for what is being decoded, and has not had it yet
        self._ready_at = 0.0
        self._failure: BaseException | None = None
        self._is_finished = self._is_paused = self._is_closed = False
        self._start = split.position
        self._batches: KnownBatches | None = None  # of what was handed out last; then self._next counts
        self._next = self._start.next_offset
        if position is not None:
            self._restart(position)
        self._pool = pool or ReaderPool(query, storage_options=storage_options, threads=1, max_open=1)
        self._pool.add(self)

    @property
    def is_finished(self) -> bool:
        """Whether everything was handed out. It shows when a read finds nothing more."""
        return self._is_finished

    @property
    def is_closed(self) -> bool:
        """Whether it was closed."""
        return self._is_closed

    @property
    def next_offset(self) -> int:
        """The offset of the next record."""
        return self._next

    @property
    def position(self) -> Position:
        """The position after the last returned record."""
        with self._changed:
            if self._batches is None:
                return self._start
            place = self._batches.place_of(self._next)
            split = self.split.split
            return replace(
                self._start,
                next_offset=self._next,
                leader_epoch=epoch_before(self.split, self._next, place.leader_epoch),
                aborted=open_transactions(split, self._next),
                log=split.log,
                log_size=split.log_size,
                log_tag=split.log_tag,
                batch_position=place.position,
                batch_offset=place.base_offset,
            )

    def read(
        self, max_rows: int | None = None, max_bytes: int | None = None, timeout: float | None = None
    ) -> pa.RecordBatch | None:
        """The next records, at least one unless there is none.

        Args:
            max_rows, max_bytes: at most so many; what is left of a decoded batch is kept for the next read, and
                nothing is copied. One record is given however large it is.
            timeout: seconds to wait. Without it the calling thread decodes; with it another thread does, and decodes
                what follows while the host works on this record batch, until ``read_ahead_bytes`` wait.

        Returns:
            A record batch with the query's columns; ``None`` if the time has passed, the reader is paused, or
            everything was read (``is_finished``).

        Raises:
            ClosedError: the reader is closed.
            DivergedPositionError: the position points to another batch.
            FormatError: the data is damaged, after the records before it. A later read tries again.
            UndecodableValueError: a key or value is not what its schema says, likewise.
            StorageError: bytes cannot be had. A later read tries again, at the same record.
        """
        if (max_rows is not None and max_rows < 1) or (max_bytes is not None and max_bytes < 1):
            raise OptionError("max_rows and max_bytes must be positive", found=f"{max_rows} and {max_bytes}")
        self._pool.require_own_process()
        deadline = deadline_of(timeout)
        batch: pa.RecordBatch | None = None
        while True:
            with self._changed:
                while batch is None:
                    self._require_open()
                    if self._is_paused:
                        return None
                    if self._ready:
                        batch = self._hand_out(max_rows, max_bytes)
                        if batch is None:
                            if self._is_decoding and not self._wait_for_decoding(deadline):
                                return None
                            continue
                        if deadline is not None:
                            self.begin()  # not if it was closed just now: what is in hand is handed out all the same
                        break
                    if self._has_ended():
                        return None
                    self._is_owed = True
                    if not self._is_busy:
                        if deadline is None:
                            self._is_busy = self._is_decoding = True
                            break
                        self._read_ahead()
                    left = None if deadline is None else deadline - time.monotonic()
                    if left is not None and left <= 0:
                        return None
                    self._changed.wait(left)
            if batch is not None:
                self._pool.rest()
                return batch
            self._decode(is_caller=True)

    def restore(self, position: Position) -> None:
        """Continue at a position of this split, whether the reader is paused, finished or in the middle.

        Raises:
            PositionError: it belongs to another split. The reader keeps its position.
            ClosedError: the reader is closed.
        """
        refuse_foreign(self.split, position)
        with self._changed:
            self._require_open()
            self._stopping += 1
            try:
                while self._is_busy:
                    self._changed.wait()
                    self._require_open()
            finally:
                self._stopping -= 1
            self._let_go()
            self._restart(position)
            self._is_paused = False
            self._changed.notify_all()

    def pause(self) -> None:
        """Release buffers and connections, and return nothing until ``resume`` or ``restore``.

        Raises:
            ClosedError: the reader is closed.
        """
        with self._changed:
            self._require_open()
            self._is_paused = True
            self._settle()

    def resume(self) -> None:
        """Continue where the reader was paused.

        Raises:
            ClosedError: the reader is closed.
        """
        with self._changed:
            self._require_open()
            self._is_paused = False
            self._changed.notify_all()

    def close(self) -> None:
        """Release everything; ``position`` stays valid. Closing twice is not an error."""
        with self._changed:
            self._is_closed = True
            self._settle()
        self._cancellation.cancel()
        if self._has_own_pool:
            self._has_own_pool = False
            self._pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def waiting_bytes(self) -> int:
        """Of the record batches that wait to be taken; for the pool."""
        return self._waiting_bytes

    def begin(self) -> None:
        """Decode ahead of the first read, if there is room; for hosts that read splits in a row."""
        with self._changed:
            is_let = not (self._is_paused or self._is_closed)
            if is_let and self._pool.wants_more(self._waiting_bytes):
                with suppress(RuntimeError):  # the pool is closed, and the next read says so
                    self._read_ahead()

    def try_park(self) -> bool:
        """Release buffers if they are not in use; for the pool, which does not wait for readers."""
        if not self._changed.acquire(blocking=False):
            return False
        try:
            is_kept = self._is_owed and self._ready and time.monotonic() < self._ready_at + _KEPT_S
            if self._is_decoding or is_kept or self._buffers is None:
                return False
            self._let_go()
            return True
        finally:
            self._changed.release()

    # everything below is called with the lock, but for _decode and _advance

    def _hand_out(self, max_rows: int | None, max_bytes: int | None) -> pa.RecordBatch | None:
        """What was decoded, up to the limits; ``None`` if it must be decoded again for that."""
        (whole, next_offset, batches), size = self._ready[0]
        rows = whole.num_rows - self._row
        if max_rows is not None:
            rows = min(rows, max_rows)
        if max_bytes is not None:
            rows = _rows_within(lambda count: int(whole.slice(self._row, count).nbytes), rows, max_bytes)
        if self._row + rows < whole.num_rows:
            if "offset" not in self._options.columns:
                if not self._is_decoding:
                    self._count_offsets()
                    self._let_go()
                return None
            next_offset = whole.column(self._options.columns.index("offset"))[self._row + rows - 1].as_py() + 1
        batch = whole if rows == whole.num_rows else whole.slice(self._row, rows)
        self._row += rows
        self._is_owed = False
        self._next, self._batches = next_offset, batches
        if self._row == whole.num_rows:
            self._ready.popleft()
            self._row = 0
            self._waiting_bytes -= size
        return batch if len(self.columns) == batch.num_columns else batch.select(range(len(self.columns)))

    def _has_ended(self) -> bool:
        """Whether everything was handed out; raises what came behind it."""
        if self._failure is not None:
            failure, self._failure = self._failure, None
            self._let_go()
            raise failure
        if self._is_exhausted:
            self._finish()
            self._changed.notify_all()
        return self._is_finished

    def _wait_for_decoding(self, deadline: float | None) -> bool:
        """Have the thread that decodes come to an end; whether there was time for that."""
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            return False
        self._stopping += 1
        self._changed.wait(left)
        self._stopping -= 1
        return True

    def _count_offsets(self) -> None:
        """Have every record's offset from now on: who cuts a record batch must know where."""
        if "offset" not in self._options.columns:
            self._options = replace(self._options, columns=(*self._options.columns, "offset"))

    def _read_ahead(self) -> None:
        if not (self._is_busy or self._is_finished or self._is_exhausted or self._failure is not None):
            self._is_busy = self._pool.submit(self, self._decode, is_asked=self._is_owed)

    def _decode(self, *, is_caller: bool = False) -> None:
        """Decode the next record batch, without the lock; called by the thread that made the reader busy. One of the
        pool goes on as long as there is room and nothing else to do."""
        if not is_caller:
            self._pool.has_begun()
        while self._decode_one(is_caller=is_caller):
            pass

    def _decode_one(self, *, is_caller: bool) -> bool:
        with self._changed:
            if not is_caller and (self._is_paused or self._is_closed):
                self._is_busy = False
                self._settle()
                return False
            self._is_decoding = True
        failure: BaseException | None = None
        found: Decoded | None = None
        try:
            with self._cancellation.covers():
                found = self._advance()
        except BaseException as error:
            failure = error
        with self._changed:
            goes_on = False
            if failure is not None:
                if not self._ready:
                    self._let_go()
                if not is_caller and not self._is_closed:
                    self._failure = failure
            elif found is not None:
                if not self._ready:
                    self._ready_at = time.monotonic()
                size = 0 if is_caller else int(found.batch.get_total_buffer_size())  # the caller takes it at once
                self._ready.append((found, size))
                self._waiting_bytes += size
                is_let = not (is_caller or self._is_paused or self._is_closed or self._stopping)
                is_awaited = self._is_owed and len(self._ready) == 1  # who takes it asks for the next at once
                goes_on = is_let and self._pool.goes_on(0 if is_awaited else self._waiting_bytes)
            elif self._ready:
                self._is_exhausted = True
            else:
                self._finish()
            self._is_busy = self._is_decoding = goes_on
            self._settle()
        self._pool.rest()
        if failure is not None and is_caller:
            try:
                if self._is_closed and isinstance(failure, Exception):
                    self._require_open()
                raise failure
            finally:
                del failure  # else its traceback would keep this frame, and with it the reader
        return goes_on

    def _advance(self) -> Decoded | None:
        self._require_open()
        if self._decoding is None:
            here = self.position
            rest = rest_of(self.split, here, self._pool.store)
            if rest is None:
                return None
            self._buffers = self._pool.take(self)
            pool = self._pool
            self._decoding = SplitDecoding(
                pool.store, self._options, self.split, here, rest, self.metrics, self._buffers, pool.fetched
            )
        else:
            self._pool.use(self)
        return self._decoding.next()

    def _finish(self) -> None:
        self._is_finished = True
        place = None if self._decoding is None else self._decoding.end.place_of(self.split.stop)
        epoch = None if place is None else place.leader_epoch
        self._start = replace(
            self.position,
            next_offset=self.split.stop,
            leader_epoch=epoch_before(self.split, self.split.stop, epoch),
            aborted=open_transactions(self.split.split, self.split.stop),
            log=None,
            log_size=None,
            log_tag=None,
            batch_position=None,
            batch_offset=None,
        )
        self._next, self._batches = self.split.stop, None
        self._let_go()

    def _settle(self) -> None:
        """Release everything if it is paused or closed and no thread decodes, and wake those that wait."""
        if (self._is_closed and not self._is_decoding) or (self._is_paused and not self._is_busy):
            self._let_go()
        self._changed.notify_all()

    def _let_go(self) -> None:
        """Keep only the position. What was decoded but not returned will be decoded again."""
        if self._ready:
            self._failure = None  # it comes again, behind them
        self._ready.clear()
        self._row = self._waiting_bytes = 0
        self._is_exhausted = False
        decoding, self._decoding = self._decoding, None
        buffers, self._buffers = self._buffers, None
        if decoding is not None:
            decoding.close()
        if buffers is not None:
            self._pool.give_back(self, buffers)

    def _restart(self, position: Position) -> None:
        refuse_foreign(self.split, position)
        self._start = replace(position, stop=self.split.stop, log_end=self.split.log_end or position.log_end)
        self._next, self._batches = position.next_offset, None
        self._is_finished = self._is_owed = False
        self._failure = None

    def _require_open(self) -> None:
        if self._is_closed:
            raise ClosedError("the reader is closed", hint="Open another one at its position")


class _Job(NamedTuple):
    """Decodes the next record batch of a reader.

    Args:
        number: jobs with smaller ones are begun first.
        held_bytes: what the read holds while it decodes.
    """

    number: int
    held_bytes: int
    work: Callable[[], None]


def _do_jobs() -> Callable[[_Job], Iterator[None]]:
    def do(job: _Job) -> Iterator[None]:
        job.work()
        return iter(())

    return do


class ReaderPool:
    """Opens readers of splits. At most ``max_open`` of them have buffers and connections at a time: if another one
    wants to read, the least recently read one is parked. It keeps its position and continues there.

    It may be used from any number of threads of the process that made it; a process forked from that one must make its
    own. If it is never closed, everything goes with it, and a program that ends does not wait for it.

    Args:
        query: how to read.
        storage_options: credentials and the like of the location, as ``segreader.scan`` takes them.
        threads: how many decode for reads that have a time limit; others decode in the thread that calls. By default
            those of the query, or as for ``segreader.scan``.
        max_open: how many readers hold buffers, each up to about 30 MiB.
        read_ahead_bytes: half for ranges that its readers have under way together, half for record batches that wait:
            nothing is decoded ahead of its reader's host beyond them. By default as for ``threads``.

    Raises:
        OptionError, ObjectNotFoundError: the location cannot be opened.
    """

    def __init__(
        self,
        query: LoadQuery,
        *,
        storage_options: Mapping[str, object] | None = None,
        threads: int | None = None,
        max_open: int = 8,
        read_ahead_bytes: int | None = None,
    ) -> None:
        if min(1 if threads is None else threads, max_open) < 1:
            raise OptionError("threads and max_open must be positive", found=f"{threads} and {max_open}")
        if read_ahead_bytes is not None and read_ahead_bytes < 1:
            raise OptionError("read_ahead_bytes must be positive", found=read_ahead_bytes)
        options = replace(
            query.read_options(),
            threads=threads or query.threads,
            read_ahead_bytes=read_ahead_bytes or query.read_ahead_bytes,
        )
        self.query = query
        self.store: ObjectStore = query.open(storage_options).store
        self._how_far = ReadAhead.of(self.store, options)
        how_far = self._how_far
        self.fetched = None if how_far.most_fetched is None else FetchBudget(how_far.most_fetched, max_open)
        # Of local files one record batch ahead is enough, and its buffers are still in a cache.
        self._share = how_far.most_waiting // how_far.threads if how_far.range_size else 0
        self._max_open = max_open
        self._changed = threading.Condition()  # guards what follows
        self._open: list[weakref.ref[ResumableReader]] = []  # by last use
        self._readers: weakref.WeakSet[ResumableReader] = weakref.WeakSet()
        self._idle: list[BufferPool] = []
        self._jobs = count()
        self._not_begun: deque[None] = deque()  # one for each job that no thread has begun
        self._ahead: Ahead[_Job, None] = Ahead(
            (),
            _do_jobs,
            name="segreader-loader",
            fetched_of=lambda job: job.held_bytes,
            lane_of=lambda job: job.number,
        )
        self._process = os.getpid()
        self._is_closed = False
        self._allocate = load_kernel(query.kernel).allocate
        self._finalizer = weakref.finalize(self, self.store.close)
        self._finalizer.atexit = False

    def open(self, split: LoaderSplit, position: Position | None = None) -> ResumableReader:
        """A reader of a split. Nothing is read before it is asked for.

        Args:
            position: where to go on; at the beginning, unless given.

        Raises:
            PositionError: the position is none of this split, or the split is of another topic than the query.
            ClosedError: the pool is closed.
        """
        return ResumableReader(split, self.query, pool=self, position=position)

    def close(self) -> None:
        """Close all its readers, connections and threads, and release buffers."""
        with self._changed:
            self._is_closed = True
            readers, self._idle = list(self._readers), []
            self._changed.notify_all()
        for reader in readers:
            reader.close()
        self._ahead.stop()
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # for its readers

    def require_own_process(self) -> None:
        """Raise in a process that was forked from the pool's: it has neither the threads nor the connections.

        Raises:
            ClosedError: it is another process.
        """
        if os.getpid() != self._process:
            raise ClosedError(
                "the pool was made in another process, of which this one is a fork",
                hint="Open one in each process: queries, splits and positions travel, readers do not",
            )

    def add(self, reader: ResumableReader) -> None:
        """Remember a reader, so that it is closed with the pool."""
        self.require_own_process()
        with self._changed:
            self._require_open()
            self._readers.add(reader)

    def take(self, reader: ResumableReader) -> BufferPool:
        """Buffers to decode into; waits while no reader that has some can be parked.

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

    def use(self, reader: ResumableReader) -> None:
        """Note that a reader is read: others are parked before it."""
        with self._changed:
            if self._open and self._open[-1]() is reader:
                return
            at = next((at for at, one in enumerate(self._open) if one() is reader), None)
            if at is not None:
                self._open.append(self._open.pop(at))

    def give_back(self, reader: ResumableReader, buffers: BufferPool) -> None:
        """Take the buffers of a reader that holds none from now on."""
        with self._changed:
            self._open = [one for one in self._open if one() is not None and one() is not reader]
            if not self._is_closed and len(self._idle) < self._max_open:
                self._idle.append(buffers)
            self._changed.notify_all()

    def rest(self) -> None:
        """Wake readers that wait for buffers: another one can be parked now."""
        with self._changed:
            self._changed.notify_all()

    def submit(self, reader: ResumableReader, work: Callable[[], None], *, is_asked: bool) -> bool:
        """Have a thread do it; not, if nothing asks for it yet and too much waits. Returns whether one will.

        Raises:
            ClosedError: the pool is closed.
        """
        with self._changed:
            self._require_open()
            how_far = self._how_far
            waiting = sum(one.waiting_bytes for ref in self._open if (one := ref()) is not None)
            held = how_far.held_by(reader.split.split.positions.size)
            if not is_asked and waiting + self._ahead.bytes_under_way + held > how_far.most_waiting:
                return False
            self._not_begun.append(None)
            self._ahead.add(_Job(next(self._jobs), held, work), how_far.most_waiting, how_far.threads)
            return True

    def has_begun(self) -> None:
        """Note that a thread does what was submitted."""
        self._not_begun.pop()

    @property
    def splits_at_once(self) -> int:
        """Of how many splits in a row a host should have readers: of one, where they are local."""
        return min(self._how_far.threads, self._max_open) if self._how_far.range_size else 1

    def wants_more(self, waiting_bytes: int) -> bool:
        """Whether a reader with so much that waits should decode more ahead."""
        return 2 * waiting_bytes <= self._share

    def goes_on(self, waiting_bytes: int) -> bool:
        """Whether a thread that has decoded for a reader, of which so much waits, may go on with it."""
        if waiting_bytes and waiting_bytes >= self._share:
            return False
        with self._changed:
            waiting = sum(one.waiting_bytes for ref in self._open if (one := ref()) is not None)
            has_room = waiting + self._ahead.bytes_under_way <= self._how_far.most_waiting
            return not (self._not_begun or self._is_closed) and has_room

    def _park_one(self) -> bool:
        for one in list(self._open):
            reader = one()
            if reader is not None and reader.try_park():
                return True
        return False

    def _require_open(self) -> None:
        if self._is_closed:
            raise ClosedError("the pool is closed", hint="Open another one; positions stay valid")


def deadline_of(timeout: float | None) -> float | None:
    """When so many seconds have passed, by ``time.monotonic``; no further ahead than a thread can wait.

    Raises:
        OptionError: it is not a number.
    """
    if timeout is None:
        return None
    seconds = min(timeout, threading.TIMEOUT_MAX)
    if math.isnan(seconds):
        raise OptionError("timeout is not a number of seconds", found=seconds)
    return time.monotonic() + seconds


def _rows_within(size_of: Callable[[int], int], rows: int, max_bytes: int) -> int:
    """The most rows whose size is not above ``max_bytes``, but one at least."""
    if size_of(rows) <= max_bytes:
        return rows
    low, high = 1, rows
    while low + 1 < high:
        middle = (low + high) // 2
        if size_of(middle) <= max_bytes:
            low = middle
        else:
            high = middle
    return low
