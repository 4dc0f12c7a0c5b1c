"""From bytes in pieces of any size to whole batches: the sans-I/O heart of every reader.

``SegmentScanner`` names the bytes it needs, takes them in pieces of any size, and answers with batches in place:
a piece is never copied, only a batch that straddles two pieces is. It knows where batches begin and end, and
nothing of what a reader may see.
"""

from __future__ import annotations

from array import array
from enum import StrEnum
from typing import Final, NamedTuple

from segreader.errors import CorruptBatchError, FormatError
from segreader.format.batch import (
    COMMON_SIZE,
    CONTROL_FLAG,
    CRC_START,
    DELETE_HORIZON_FLAG,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD,
    MAX_BASE_OFFSET,
    MINIMUM_SIZE,
    TRANSACTIONAL_FLAG,
    RecordBatchHeader,
    check_common,
    crc32c,
    parse_batch_header,
)
from segreader.format.columns import TABLE_ROWS, TABLE_WIDTH, Table, batch_table
from segreader.format.compression import DEFAULT_LIMIT
from segreader.format.kernel import Kernel, load_kernel
from segreader.format.message_set import MessageHeader, parse_message_header
from segreader.ranges import ByteRange, PieceBuffer
from segreader.values import dataclass

READ_SIZE = 1 << 20
"""Bytes to ask for at once: enough to amortise a request, small enough to stay in the processor's cache."""

_SMALLEST_BATCH = LOG_OVERHEAD + min(MINIMUM_SIZE.values())


class Tail(StrEnum):
    """How a segment ends."""

    END = "end"  # with its last batch
    CUT = "cut"  # inside a batch: the writer was stopped, or the copy is incomplete
    ZERO = "zero"  # in zeros: a preallocated file that was not trimmed


@dataclass(frozen=True, slots=True)
class NeedData:
    """The next bytes to feed. Fewer will do, from ``range.start`` on; none at all means the segment ends here."""

    range: ByteRange


@dataclass(frozen=True, slots=True)
class BatchReady:
    """One whole batch.

    ``data`` are all its bytes and is valid until the next ``feed``; ``position`` is where it begins in the segment.
    """

    header: RecordBatchHeader | MessageHeader
    data: memoryview
    position: int


@dataclass(frozen=True, slots=True)
class BatchRun:
    """Some whole consecutive batches: what the kernels decode in one call.

    ``table`` (see ``columns.Table``) and ``data`` are valid until the next call; ``data`` begins at
    ``data_position`` in the segment.
    """

    data: memoryview
    data_position: int
    table: array[int]
    rows: int


@dataclass(frozen=True, slots=True)
class Done:
    """The end of the segment, or of the wanted part.

    Args:
        tail: how it ends.
        position: where the last whole batch ends, in bytes.
        trailing_bytes: bytes after it.
        base_offset: of the cut batch, where its first 8 bytes are there.
        missing_bytes: how many more the cut batch should have, where its size is there.
    """

    tail: Tail
    position: int
    trailing_bytes: int = 0
    base_offset: int | None = None
    missing_bytes: int | None = None


class SegmentScanner:
    """Cuts a segment into its batches.

    Args:
        start: where to begin, in bytes: 0, or a position from the offset index.
        stop: where the segment (or the part wanted) ends; ``None`` if that is not known, then feed ``b""`` at the end.
        max_batch_size: largest batch to accept, in bytes; a damaged size must not make the reader hold gigabytes.
        kernel: ``load_kernel()`` by default.

    Drive it: call ``next()``; on ``NeedData`` get those bytes and ``feed`` them; on ``BatchReady`` use the batch; on
    ``Done`` stop. A damaged header raises: nothing after it can be located. Source: ``FileLogInputStream`` (4.0),
    with the differences of docs/reference/formats.md.
    """

    def __init__(
        self,
        *,
        start: int = 0,
        stop: int | None = None,
        max_batch_size: int = DEFAULT_LIMIT,
        kernel: Kernel | None = None,
    ) -> None:
        self._kernel = kernel or load_kernel()
        self._stop = stop
        self._max_size = max_batch_size
        self._piece = memoryview(b"")
        self._at = 0  # in the piece: the next batch begins here
        self._piece_position = start
        self._fed = start  # bytes up to here have been fed
        self._bridge = bytearray()  # a batch begun in an earlier piece
        self._in_zeros = False  # a tail of zeros has begun
        self._zero_start = 0
        self._zeros = 0  # bytes of it seen so far
        self._ended = False
        most = TABLE_ROWS if stop is None else (stop - start) // _SMALLEST_BATCH
        self._table = batch_table(max(1, min(TABLE_ROWS, most)))
        self._run: BatchRun | None = None
        self._run_row = 0

    @property
    def position(self) -> int:
        """Position of the next batch, in bytes from the start of the segment."""
        if self._in_zeros:
            return self._zero_start
        return self._fed - len(self._bridge) - (len(self._piece) - self._at)

    @property
    def next_base_offset(self) -> int | None:
        """The offset field of the batch after the last result, if its header is present and possible."""
        rest = self._piece[self._at :]
        if self._bridge or len(rest) < COMMON_SIZE:
            return None
        try:
            return check_common(rest, 0, max_size=self._max_size)[0]
        except FormatError:
            return None

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Give the next bytes, as many as there are. They are not copied: leave them alone until more are asked for.

        Empty bytes mean that the segment ends here.
        """
        if not len(data):
            self._ended = True
            return
        self._run = None
        self._piece = memoryview(data)
        self._at = 0
        self._piece_position = self._fed
        self._fed += len(data)
        front, buffer = len(self._bridge), self._piece.obj
        if (
            0 < front <= PieceBuffer.ROOM
            and isinstance(buffer, PieceBuffer)
            and len(data) == buffer.used  # not a part of the piece, which may begin further behind
        ):
            self._piece = memoryview(buffer)[PieceBuffer.ROOM - front : PieceBuffer.ROOM + len(data)]
            self._piece[:front] = self._bridge
            self._piece_position -= front
            self._bridge = bytearray()
        if self._stop is not None and self._fed > self._stop:
            self._piece = self._piece[: self._stop - self._piece_position]
            self._fed = self._stop

    def next(self) -> BatchReady | NeedData | Done:
        """The next batch, or what is needed for it.

        Raises:
            CorruptBatchError, UnsupportedMagicError: the next header is impossible.
        """
        if self._run is None or self._run_row >= self._run.rows:
            answer = self.next_run()
            if not isinstance(answer, BatchRun):
                return answer
            self._run, self._run_row = answer, 0
        run, row = self._run, self._run_row * TABLE_WIDTH
        self._run_row += 1
        start = run.table[row + Table.POSITION] - run.data_position
        data = run.data[start : start + run.table[row + Table.SIZE]]
        header: RecordBatchHeader | MessageHeader = (
            parse_batch_header(data) if run.table[row + Table.MAGIC] == 2 else parse_message_header(data)
        )
        return BatchReady(header, data, run.table[row + Table.POSITION])

    def next_run(self) -> BatchRun | NeedData | Done:
        """As many whole batches as are ready, or what is needed for the next one. Use this or ``next``, not both.

        Raises:
            CorruptBatchError, UnsupportedMagicError: the next header is impossible.
        """
        self._run = None
        if self._in_zeros:
            return self._skip_zeros()
        if self._bridge:
            return self._complete_bridge()
        rows, at = self._kernel.scan_batches(self._piece, self._at, self._piece_position, self._table, self._max_size)
        if rows:
            self._at = at
            return BatchRun(self._piece, self._piece_position, self._table, rows)
        return self._begin_bridge()

    def _begin_bridge(self) -> NeedData | Done | BatchRun:
        """What is at the end of the piece: a cut batch, damage, or nothing."""
        rest, position = self._piece[self._at :], self.position
        if len(rest) >= COMMON_SIZE:
            if self._is_zero(rest[:COMMON_SIZE]):
                return self._begin_zeros(position, 0)
            offset, size, _ = check_common(rest, 0, shift=position, max_size=self._max_size)
            if self._is_cut(position, size):
                return self._cut(position, offset, size)
        self._bridge += rest
        self._drop_piece()
        return self._need(COMMON_SIZE - len(self._bridge))

    def _complete_bridge(self) -> BatchRun | NeedData | Done:
        """Add bytes of the new piece to the batch begun before, just as many as it lacks."""
        position = self.position
        self._move(COMMON_SIZE - len(self._bridge))
        if len(self._bridge) < COMMON_SIZE:
            return self._need(COMMON_SIZE - len(self._bridge))
        if self._is_zero(self._bridge[:COMMON_SIZE]):
            seen, self._bridge = len(self._bridge), bytearray()
            return self._begin_zeros(position, seen)
        offset, size, _ = check_common(self._bridge, 0, shift=position, max_size=self._max_size)
        if self._is_cut(position, size):
            return self._cut(position, offset, size)
        self._move(size - len(self._bridge))
        if len(self._bridge) < size:
            return self._need(size - len(self._bridge))
        whole = memoryview(self._bridge)
        self._bridge = bytearray()
        rows, _ = self._kernel.scan_batches(whole, 0, position, self._table, self._max_size)
        return BatchRun(whole, position, self._table, rows)

    def _is_cut(self, position: int, size: int) -> bool:
        return self._stop is not None and position + size > self._stop

    def _cut(self, position: int, offset: int, size: int) -> Done:
        """The batch would end after the segment does; what there is of it need not be read."""
        stop = self._stop if self._stop is not None else self._fed
        return Done(Tail.CUT, position, stop - position, offset, position + size - stop)

    def _move(self, size: int) -> None:
        if size > 0:
            self._bridge += self._piece[self._at : self._at + size]
            self._at = min(self._at + size, len(self._piece))

    def _drop_piece(self) -> None:
        self._piece, self._at, self._piece_position = memoryview(b""), 0, self._fed

    def _need(self, least: int) -> NeedData | Done:
        """Ask for at least ``least`` bytes, or report how the segment ends."""
        if self._ended or (self._stop is not None and self._fed >= self._stop):
            return self._end()
        stop = self._fed + max(least, READ_SIZE)
        return NeedData(ByteRange(self._fed, stop if self._stop is None else min(stop, self._stop)))

    def _end(self) -> Done:
        position, rest = self.position, self._bridge
        if not rest:
            return Done(Tail.END, position)
        if self._is_zero(rest):
            return Done(Tail.ZERO, position, len(rest))
        base_offset = int.from_bytes(rest[:8], "big", signed=True) if len(rest) >= 8 else None
        missing = None
        if len(rest) >= LOG_OVERHEAD:
            missing = int.from_bytes(rest[8:12], "big", signed=True) + LOG_OVERHEAD - len(rest)
        return Done(Tail.CUT, position, len(rest), base_offset, missing)

    def _begin_zeros(self, start: int, seen: int) -> NeedData | Done:
        """A batch cannot begin with 17 zeros: either the file was preallocated, or a hole was torn into it."""
        self._zero_start, self._zeros, self._in_zeros = start, seen, True
        return self._skip_zeros()

    def _skip_zeros(self) -> NeedData | Done:
        rest = self._piece[self._at :]
        if not self._is_zero(rest):
            raise CorruptBatchError(
                "there are zeros between batches",
                found=f"zeros from byte {self._zero_start} on, then other bytes",
                expected="a batch, or zeros to the end",
                position=self._zero_start,
                hint="The file has a hole: read another copy of this segment",
            )
        self._zeros += len(rest)
        self._drop_piece()
        need = self._need(1)
        return need if isinstance(need, NeedData) else Done(Tail.ZERO, self._zero_start, self._zeros)

    @staticmethod
    def _is_zero(data: bytearray | memoryview) -> bool:
        return bytes(data).count(0) == len(data)


LARGEST_RELATIVE_OFFSET: Final = (1 << 31) - 1
"""How far above its base offset a segment can reach. Source: ``LogSegment.canConvertToRelativeOffset`` (4.3)."""


class Batch(NamedTuple):
    """Header fields by the names of ``RecordBatchHeader``; of a message set both offsets are the last one."""

    position: int
    size: int
    base_offset: int
    last_offset: int
    leader_epoch: int
    magic: int
    attributes: int
    max_timestamp: int
    producer_id: int
    record_count: int
    crc: int

    @property
    def is_control(self) -> bool:
        """Whether it holds a control record."""
        return self.magic == 2 and bool(self.attributes & CONTROL_FLAG)

    @property
    def is_transactional(self) -> bool:
        """Whether it belongs to a transaction of a producer."""
        return self.magic == 2 and bool(self.attributes & TRANSACTIONAL_FLAG) and self.producer_id >= 0

    @property
    def has_append_time(self) -> bool:
        """Whether all its records take ``max_timestamp``."""
        return bool(self.attributes & LOG_APPEND_TIME_FLAG)

    @property
    def was_cleaned(self) -> bool:
        """Whether the log cleaner has been here: records are missing, or are to go at a certain time."""
        return self.magic == 2 and (
            self.record_count <= self.last_offset - self.base_offset or bool(self.attributes & DELETE_HORIZON_FLAG)
        )


def batch_of_header(header: RecordBatchHeader | MessageHeader, position: int) -> Batch:
    """The facts of the header at ``position``."""
    if isinstance(header, RecordBatchHeader):
        return Batch(
            position,
            header.size,
            header.base_offset,
            header.last_offset,
            header.partition_leader_epoch,
            header.magic,
            header.attributes,
            header.max_timestamp,
            header.producer_id,
            header.record_count,
            header.crc,
        )
    last, time = header.offset, header.timestamp_ms
    return Batch(position, header.size, last, last, -1, header.magic, header.attributes, time, -1, -1, header.crc)


def usual_batch(data: memoryview, at: int, start: int, most: int) -> Batch | None:
    """The facts of the batch at ``at``; ``None`` if it is not whole, is no sound batch of magic 2, or is larger.

    Args:
        start: where ``data`` begins in its log.
        most: largest batch, in bytes.
    """
    if len(data) - at < HEADER_SIZE:
        return None
    base, length, epoch, magic, crc, attributes, delta, _, time, producer_id, _, _, count = HEADER.unpack_from(data, at)
    size = length + LOG_OVERHEAD
    if magic != 2 or size < HEADER_SIZE or size > min(most, len(data) - at) or not 0 <= base <= MAX_BASE_OFFSET:
        return None
    if crc32c(data[at + CRC_START : at + size]) != crc:
        return None
    return Batch(start + at, size, base, base + delta, epoch, magic, attributes, time, producer_id, count, crc)


def batch_of_row(table: array[int], row: int) -> Batch:
    """The facts of a row of a scanner's table."""
    at = row * TABLE_WIDTH
    facts = table[at : at + TABLE_WIDTH]
    return Batch(
        facts[Table.POSITION],
        facts[Table.SIZE],
        facts[Table.BASE_OFFSET],
        facts[Table.LAST_OFFSET],
        facts[Table.LEADER_EPOCH],
        facts[Table.MAGIC],
        facts[Table.ATTRIBUTES],
        facts[Table.MAX_TIMESTAMP],
        facts[Table.PRODUCER_ID],
        facts[Table.RECORD_COUNT],
        facts[Table.CRC],
    )
