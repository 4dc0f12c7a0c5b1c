"""What decoded records are written into: the memory layout that both kernels share, and its pool.

``ColumnBuffers`` is one record batch under construction: a fixed list of byte buffers in Arrow's own layout plus
a few int64 counters. ``_columns.py`` and ``_kernel.pyx`` fill it; ``read/arrow.py`` wraps it without a copy. This
module knows sizes and indexes, and nothing of how a record looks.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Sequence
from enum import IntEnum
from sys import getrefcount
from threading import Lock
from typing import Final, NamedTuple

from segreader.errors import LimitExceededError
from segreader.ranges import OffsetRange


class Buffer(IntEnum):
    """Index of each buffer in ``ColumnBuffers.buffers``, with its bytes per row."""

    OFFSET = 0  # int64
    TIMESTAMP = 1  # int64, microseconds or milliseconds
    TIMESTAMP_TYPE = 2  # int32
    KEY_OFFSETS = 3  # int32, rows + 1
    KEY_DATA = 4
    KEY_VALIDITY = 5  # bits
    VALUE_OFFSETS = 6
    VALUE_DATA = 7
    VALUE_VALIDITY = 8
    HEADER_OFFSETS = 9  # int32, rows + 1: the list
    HEADER_KEY_OFFSETS = 10  # int32, headers + 1
    HEADER_KEY_DATA = 11
    HEADER_VALUE_OFFSETS = 12
    HEADER_VALUE_DATA = 13
    HEADER_VALUE_VALIDITY = 14
    LEADER_EPOCH = 15  # int32
    PRODUCER_ID = 16  # int64
    PRODUCER_EPOCH = 17  # int32
    SEQUENCE = 18  # int32
    ATTRIBUTES = 19  # uint8: codec, transactional, control
    BATCH_BASE_OFFSET = 20  # int64
    POSITION = 21  # int64


class State(IntEnum):
    """Index of each counter in ``ColumnBuffers.state``."""

    ROWS = 0
    KEY_BYTES = 1
    VALUE_BYTES = 2
    HEADERS = 3
    HEADER_KEY_BYTES = 4
    HEADER_VALUE_BYTES = 5
    KEY_NULLS = 6
    VALUE_NULLS = 7
    HEADER_VALUE_NULLS = 8
    MAX_ROWS = 9
    MAX_BYTES = 10
    NEXT_OFFSET = 11  # records below it are dropped; moves past every other one, also past those from STOP_OFFSET on
    STOP_OFFSET = 12  # records at or above it are dropped
    TIMESTAMP_SCALE = 13  # 1000: microseconds, 1: milliseconds
    BATCH_ROW = 14  # row of the batch table to decode next
    BODY_POSITION = 15  # where the next record of that batch begins in its body; 0 with RECORDS_LEFT < 0: not begun
    RECORDS_LEFT = 16  # records of that batch still to decode; -1: not begun
    NEED_BUFFER = 17  # with Outcome.GROW: which buffer is too small
    NEED_SIZE = 18  # with Outcome.GROW: bytes (or headers) it must hold
    DAMAGE = 19  # with Outcome.DAMAGED: a Damage
    DAMAGE_POSITION = 20  # byte in the body
    DAMAGE_FOUND = 21
    DAMAGE_EXPECTED = 22
    DECODED_BATCHES = 23
    BODY_BYTES = 24  # after decompression
    DROPPED_RECORDS = 25  # below NEXT_OFFSET or from STOP_OFFSET on
    CURSOR_MOVES = 26  # 1: as above, 0: NEXT_OFFSET stays where it is, for tools that show every record


class Table(IntEnum):
    """Index of each fact in a row of the batch table (int64 each, ``TABLE_WIDTH`` a row)."""

    POSITION = 0  # in the segment
    SIZE = 1  # whole batch, bytes
    BASE_OFFSET = 2  # legacy: the offset field, which is the last offset
    LAST_OFFSET = 3
    LEADER_EPOCH = 4
    MAGIC = 5
    CRC = 6
    ATTRIBUTES = 7
    BASE_TIMESTAMP = 8
    MAX_TIMESTAMP = 9
    PRODUCER_ID = 10
    PRODUCER_EPOCH = 11
    BASE_SEQUENCE = 12
    RECORD_COUNT = 13
    DECISION = 14


class RunSummary(NamedTuple):
    """What is true of all rows of a batch table, so that a sound run needs no look at each of them.

    Args:
        rises: whether each batch begins above the end of the one before, and none ends below its begin.
        flags: attributes that some batch of magic 2 has.
        leader_epoch: the one of all batches; ``MANY_EPOCHS`` where they differ.
        record_count: of all batches together, and ``offset_count`` how many offsets they take.
    """

    rises: bool
    flags: int
    leader_epoch: int
    first_offset: int
    last_offset: int
    record_count: int
    offset_count: int


class Spent(IntEnum):
    """Index of each time in ``ColumnBuffers.spent``: wall time in ns, estimated from some batches."""

    CRC = 0
    BODY = 1  # decompressing
    ALL = 2  # the whole of ``decode_batches`` without waits for the interpreter lock


class Decision(IntEnum):
    """What to do with a batch of the table."""

    DECODE = 0
    SKIP = 1  # check its CRC, deliver nothing
    DROP = 2  # do not look at it: its header is known to be wrong


class Outcome(IntEnum):
    """Why ``decode_batches`` came back."""

    DONE = 0  # every row of the table is decoded
    FULL = 1  # rows or bytes have reached their limit: flush, then call again
    GROW = 2  # a buffer is too small: flush or grow, then call again
    LEGACY = 3  # the row is a message set (magic 0 or 1)
    STOPPED = 4  # the row begins at or after STOP_OFFSET
    DAMAGED = 5  # see State.DAMAGE; the records before it are in the buffers


class Damage(IntEnum):
    """What is wrong with a batch or a record. ``damage_error`` in ``kernel.py`` turns it into an error."""

    CRC = 1
    RECORD_COUNT = 2
    BODY_ENDS = 3
    RECORD_LENGTH = 4
    VARINT = 5
    RECORD_OVERRUN = 6
    RECORD_UNDERRUN = 7
    HEADER_COUNT = 8
    HEADER_KEY_LENGTH = 9
    RECORDS_REMAIN = 10
    TIMESTAMP = 11


TABLE_WIDTH: Final = 16
TABLE_ROWS: Final = 512
STATE_SIZE: Final = 32
DEFAULT_MAX_ROWS: Final = 10_000
DEFAULT_MAX_BYTES: Final = 4 << 20
MANY_EPOCHS: Final = -(1 << 63)
NO_STOP: Final = (1 << 63) - 1

_ROW_WIDTH = {
    Buffer.OFFSET: 8,
    Buffer.TIMESTAMP: 8,
    Buffer.TIMESTAMP_TYPE: 4,
    Buffer.KEY_OFFSETS: 4,
    Buffer.VALUE_OFFSETS: 4,
    Buffer.HEADER_OFFSETS: 4,
    Buffer.LEADER_EPOCH: 4,
    Buffer.PRODUCER_ID: 8,
    Buffer.PRODUCER_EPOCH: 4,
    Buffer.SEQUENCE: 4,
    Buffer.ATTRIBUTES: 1,
    Buffer.BATCH_BASE_OFFSET: 8,
    Buffer.POSITION: 8,
}
_ROW_BITS = (Buffer.KEY_VALIDITY, Buffer.VALUE_VALIDITY)
_DATA = (Buffer.KEY_DATA, Buffer.VALUE_DATA, Buffer.HEADER_KEY_DATA, Buffer.HEADER_VALUE_DATA)
_PER_HEADER = (Buffer.HEADER_KEY_OFFSETS, Buffer.HEADER_VALUE_OFFSETS)
_OF_ALL_HEADERS = (Buffer.HEADER_KEY_DATA, Buffer.HEADER_VALUE_DATA)
_LARGEST = 0x7FFFFFFF  # bytes that int32 offsets reach

_ENDS = frozenset(
    {
        Buffer.KEY_OFFSETS,
        Buffer.VALUE_OFFSETS,
        Buffer.HEADER_OFFSETS,
        Buffer.HEADER_KEY_OFFSETS,
        Buffer.HEADER_VALUE_OFFSETS,
    }
)
_NO_COUNTS = array("q", bytes(8 * State.MAX_ROWS))

BUFFERS_OF: Final[dict[str, tuple[Buffer, ...]]] = {
    "key": (Buffer.KEY_OFFSETS, Buffer.KEY_DATA, Buffer.KEY_VALIDITY),
    "value": (Buffer.VALUE_OFFSETS, Buffer.VALUE_DATA, Buffer.VALUE_VALIDITY),
    "offset": (Buffer.OFFSET,),
    "timestamp": (Buffer.TIMESTAMP,),
    "timestamp_ms": (Buffer.TIMESTAMP,),
    "timestamp_type": (Buffer.TIMESTAMP_TYPE,),
    "headers": (Buffer.HEADER_OFFSETS, *_PER_HEADER, *_DATA[2:], Buffer.HEADER_VALUE_VALIDITY),
    "leader_epoch": (Buffer.LEADER_EPOCH,),
    "producer_id": (Buffer.PRODUCER_ID,),
    "producer_epoch": (Buffer.PRODUCER_EPOCH,),
    "sequence": (Buffer.SEQUENCE,),
    "is_transactional": (Buffer.ATTRIBUTES,),
    "compression": (Buffer.ATTRIBUTES,),
    "batch_base_offset": (Buffer.BATCH_BASE_OFFSET,),
    "position": (Buffer.POSITION,),
}
"""Which buffers a column is made of. Unwanted columns have none, and cost nothing."""


def records_within(offsets: OffsetRange, table: Sequence[int], rows: Sequence[int]) -> int:
    """How many of the offsets are taken by records of these batches of a table."""
    count = 0
    if rows and table[rows[0] * TABLE_WIDTH + Table.BASE_OFFSET] >= offsets.start:
        last = table[rows[-1] * TABLE_WIDTH + Table.LAST_OFFSET]
        if offsets.stop is None or last < offsets.stop:  # all of them
            counts = table[Table.RECORD_COUNT :: TABLE_WIDTH]
            return sum(counts[row] for row in rows)
    for row in rows:
        at = row * TABLE_WIDTH
        stop = table[at + Table.LAST_OFFSET] + 1
        if offsets.stop is not None:
            stop = min(stop, offsets.stop)
        span = stop - max(table[at + Table.BASE_OFFSET], offsets.start)
        count += max(0, min(span, table[at + Table.RECORD_COUNT]))
    return count


def batch_table(rows: int = TABLE_ROWS) -> array[int]:
    """A table for ``scan_batches``: so many rows of ``TABLE_WIDTH`` int64."""
    return array("q", bytes(8 * rows * TABLE_WIDTH))


_LOOKS: Final = 8
_BYTES_A_LOOK: Final = 64 << 10
"""Buffers of a ring that are looked at when one is leased: the oldest are idle first, and there may be thousands. The
larger they are, the more that is worth: a new one costs time and memory for each of its bytes."""


class BufferPool:
    """Byte buffers that return by themselves once no view of them is left.

    A page touched for the first time costs more than the decoding of what goes into it, so buffers are kept: the
    pool holds one reference to each and hands out those that only it holds. A user of a buffer (an Arrow array, a
    memoryview, an engine behind the C interface) holds a reference, so nothing has to be given back by hand.
    Threads may share one. Batches may be dropped in any of them: a count that has fallen to the pool's own rises again
    only when the pool lends the buffer, and who drops one is done with its bytes (counts change under the GIL).

    Args:
        max_bytes: buffers beyond this are not kept.
        allocate: makes a buffer; the native kernel has one that leaves its bytes as they are.
    """

    def __init__(self, max_bytes: int = 24 << 20, allocate: Callable[[int], bytearray] = bytearray) -> None:
        self.max_bytes = max_bytes
        self._allocate = allocate
        self._rings: dict[int, deque[bytearray]] = {}  # by size; what was leased last is at the end
        self._held = 0
        self._lock = Lock()
        probe = deque((bytearray(),))
        self._idle = getrefcount(probe[0])

    @property
    def held_bytes(self) -> int:
        """What it keeps, idle or not."""
        return self._held

    def lease(self, size: int) -> bytearray:
        """A buffer of at least ``size`` bytes, with any content."""
        with self._lock:
            return self._lease(size)

    def _lease(self, size: int) -> bytearray:
        ring = self._rings.get(size)
        if ring is not None:
            for _ in range(min(len(ring), _looks(size))):
                is_idle = getrefcount(ring[0]) == self._idle
                ring.rotate(-1)
                if is_idle:
                    return ring[-1]
        for other in sorted(other for other in self._rings if size < other <= 2 * size + 65536):
            ring = self._rings[other]
            for index in range(min(len(ring), _looks(other))):
                if getrefcount(ring[index]) == self._idle:
                    return ring[index]
        fresh = self._allocate(size)
        self._keep(fresh)
        return fresh

    def _keep(self, fresh: bytearray) -> None:
        size = len(fresh)
        for other, ring in self._rings.items():
            for _ in range(min(len(ring), _looks(other))):
                if self._held + size <= self.max_bytes:
                    break
                if getrefcount(ring[0]) == self._idle:
                    ring.popleft()
                    self._held -= other
                else:
                    ring.rotate(-1)
        self._rings = {other: ring for other, ring in self._rings.items() if ring}
        if self._held + size <= self.max_bytes:
            self._rings.setdefault(size, deque()).append(fresh)
            self._held += size


def _looks(size: int) -> int:
    return _LOOKS + size // _BYTES_A_LOOK


class ColumnBuffers:
    """One record batch under construction.

    Args:
        columns: names from ``BUFFERS_OF``; others are ignored here.
        pool: where memory comes from.
        max_rows: a batch is closed at this many rows.
        max_bytes: or once its keys, values and headers take this many bytes.
        clock: gives nanoseconds, for ``spent``; the native kernel has its own.

    ``state`` and ``buffers`` are indexed by ``State`` and ``Buffer``; a buffer of a column that is not wanted is
    ``None``. ``body`` holds the decompressed batch that ``State.BODY_POSITION`` points into. ``spent`` is indexed by
    ``Spent``.
    """

    __slots__ = ("_begun_with_zero", "_hints", "_pool", "_wanted", "body", "buffers", "clock", "spent", "state")

    def __init__(
        self,
        columns: frozenset[str],
        pool: BufferPool | None = None,
        *,
        max_rows: int = DEFAULT_MAX_ROWS,
        max_bytes: int = DEFAULT_MAX_BYTES,
        clock: Callable[[], int] = lambda: 0,
    ) -> None:
        self.clock = clock
        self._pool = pool or BufferPool()
        wanted = sorted({buffer for name in columns for buffer in BUFFERS_OF.get(name, ())})
        self._wanted = list(map(int, wanted))  # plain numbers: an enum's take several times as long to look up
        self._begun_with_zero = [int(buffer) for buffer in wanted if buffer in _ENDS]
        self._hints = {int(buffer): self._first_size(buffer, max_rows) for buffer in wanted}
        self.state = array("q", bytes(8 * STATE_SIZE))
        self.state[State.MAX_ROWS] = max_rows
        self.state[State.MAX_BYTES] = max_bytes
        self.state[State.STOP_OFFSET] = NO_STOP
        self.state[State.TIMESTAMP_SCALE] = 1 if "timestamp_ms" in columns else 1000
        self.state[State.RECORDS_LEFT] = -1
        self.state[State.CURSOR_MOVES] = 1
        self.spent = array("q", bytes(8 * len(Spent)))
        self.buffers: list[bytearray | None] = [None] * len(Buffer)
        self.body: memoryview | bytes = b""
        self.reset()

    @staticmethod
    def _first_size(buffer: Buffer, max_rows: int) -> int:
        if buffer in _DATA:
            return 64 << 10
        if buffer in _PER_HEADER:
            return 16 << 10
        if buffer is Buffer.HEADER_VALUE_VALIDITY:
            return 512
        if buffer in _ROW_BITS:
            return (max_rows + 7) // 8
        return (max_rows + 1) * _ROW_WIDTH[buffer]

    @property
    def rows(self) -> int:
        """Rows decoded since the last reset."""
        return self.state[State.ROWS]

    @property
    def is_full(self) -> bool:
        """Whether the record batch should be closed before the next record."""
        state = self.state
        size = (
            state[State.KEY_BYTES]
            + state[State.VALUE_BYTES]
            + state[State.HEADER_KEY_BYTES]
            + state[State.HEADER_VALUE_BYTES]
        )
        return state[State.ROWS] >= state[State.MAX_ROWS] or size >= state[State.MAX_BYTES]

    @property
    def allocated_bytes(self) -> int:
        """What its buffers hold, filled or not: more than the record batch made of them shows."""
        return sum(len(buffer) for buffer in self.buffers if buffer is not None)

    def reset(self) -> None:
        """Begin the next record batch in fresh buffers; the old ones belong to their taker."""
        self.state[: State.MAX_ROWS] = _NO_COUNTS
        buffers, hints, lease = self.buffers, self._hints, self._pool.lease
        for index in self._wanted:
            buffers[index] = lease(hints[index])
        for index in self._begun_with_zero:
            buffers[index][0:4] = b"\0\0\0\0"  # type: ignore[index]

    def let_go(self) -> None:
        """Give the buffers back; nothing may be decoded before the next ``reset``."""
        for index in self._wanted:
            self.buffers[index] = None

    def make_room(self) -> bool:
        """After ``Outcome.GROW``: enlarge the buffer named there, unless the batch should be flushed first.

        Returns:
            False when there are rows and the buffer would pass its usual size: flush, then decode on.
        """
        index, need = self.state[State.NEED_BUFFER], self.state[State.NEED_SIZE]
        old = self.buffers[index]
        if old is None:  # not reachable from the kernels: they only grow what they write
            return True
        usual = self.state[State.MAX_BYTES] * 5 // 4
        if need > usual and self.rows:
            return False
        if need > _LARGEST:
            raise LimitExceededError(
                "a column of one record passes 2 GiB", found=f"{need} bytes", expected="int32 offsets"
            )
        size = max(len(old), 4096)
        while size < need:
            size = (usual if size * 16 > usual else size * 8) if size < usual else need
        if index in _OF_ALL_HEADERS and size > usual:  # or a record of many headers begins anew for each of them
            size = min(max(size, 3 * len(old) // 2), _LARGEST)
        fresh = self._pool.lease(size)
        fresh[: len(old)] = old
        if index == Buffer.HEADER_VALUE_VALIDITY:
            fresh[len(old) :] = b"\xff" * (len(fresh) - len(old))
        self.buffers[index] = fresh
        self._hints[index] = min(size, usual)
        return True
