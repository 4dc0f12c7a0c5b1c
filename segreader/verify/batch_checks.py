"""Every batch of a log, read and decoded: its checksum, its records, its place among the others."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Final

from segreader.errors import FormatError, SegreaderError, UnsupportedCodecError
from segreader.evidence.findings import Finding, Findings, NotedApart
from segreader.evidence.rules import Code
from segreader.format.columns import TABLE_WIDTH, Buffer, BufferPool, ColumnBuffers, Damage, Outcome, State, Table
from segreader.format.compression import Decompressor
from segreader.format.kernel import damage_error, load_kernel
from segreader.format.message_set import parse_message_set_entry
from segreader.format.records import iter_records, parse_control_key
from segreader.format.scanner import (
    LARGEST_RELATIVE_OFFSET,
    Batch,
    BatchRun,
    Done,
    NeedData,
    SegmentScanner,
    Tail,
    batch_of_row,
)
from segreader.ranges import ByteRange
from segreader.segment import Segment
from segreader.storage.base import ObjectStore
from segreader.values import dataclass

_NOTHING_BEFORE: Final = -(1 << 63)

_BATCH_BYTES: Final = 500
_FINDING_BYTES: Final = 1000
"""Of memory, with what they hold."""


@dataclass(slots=True)
class Audits:
    """Who looks at the batches of a segment besides.

    Args:
        batch: called with every batch whose offsets rise.
        marker: called with every batch that ends a transaction, and whether it aborts it.
        end: called when the log has ended with its last batch.
        damaged: called, after ``batch``, with every batch that cannot be decoded.
    """

    batch: list[Callable[[Batch], None]]
    marker: list[Callable[[Batch, bool], None]]
    end: list[Callable[[], None]]
    damaged: list[Callable[[Batch], None]]


@dataclass(frozen=True, slots=True)
class AuditEnd:
    """How reading a log ended: behind the batch that ends with offset ``end``; ``is_sound`` if nothing was found."""

    end: int
    tail: Done | FormatError
    is_sound: bool


@dataclass(frozen=True, slots=True)
class SeenRun:
    """What reading and decoding a run of batches showed; it holds none of their bytes.

    Args:
        damaged: indexes of the batches that cannot be decoded.
        aborts: whether the batch with this index, which ends a transaction, aborts it.
        noted: what is wrong with the batches by themselves.
        read_bytes: read for it, and since the run before.
    """

    batches: list[Batch]
    damaged: frozenset[int]
    aborts: dict[int, bool]
    noted: list[Finding]
    read_bytes: int

    @property
    def memory_bytes(self) -> int:
        """About what it takes of memory."""
        return _BATCH_BYTES * len(self.batches) + _FINDING_BYTES * len(self.noted)


@dataclass(frozen=True, slots=True)
class SeenEnd:
    """The end of a log; ``tail`` is ``None`` where bytes cannot be had, and ``noted`` tells why."""

    tail: Done | FormatError | None
    noted: list[Finding]
    read_bytes: int


def read_runs(store: ObjectStore, segment: Segment) -> Iterator[SeenRun | SeenEnd]:
    """What a whole log shows by itself, run after run, and its end. Logs may be read at once; then they are audited."""
    noted = NotedApart(store, segment.partition)
    if not segment.log_size:
        yield SeenEnd(Done(Tail.END, 0), [], 0)
        return
    decoder = _Decoder(noted, segment)
    scanner = SegmentScanner(stop=segment.log_size)
    tail: Done | FormatError | None = None
    read_bytes = 0
    try:
        with closing(store.read_pieces(segment.files.log, ByteRange(0, segment.log_size))) as pieces:
            while tail is None:
                try:
                    answer = scanner.next_run()
                except FormatError as error:
                    tail = error.with_traceback(None)  # its frames hold bytes
                    break
                if isinstance(answer, NeedData):
                    piece = next(pieces, b"")
                    scanner.feed(piece)
                    read_bytes += len(piece)
                    del piece
                elif isinstance(answer, BatchRun):
                    batches = [batch_of_row(answer.table, row) for row in range(answer.rows)]
                    damaged, aborts = decoder.decode(answer, batches)
                    yield SeenRun(batches, damaged, aborts, noted.release(), read_bytes)
                    read_bytes = 0
                    del batches
                else:
                    tail = answer
    except SegreaderError as error:
        noted.add_error(error, segment.files.log)
        tail = None
    yield SeenEnd(tail, noted.release(), read_bytes)


def audit_runs(
    found: Findings,
    segment: Segment,
    seen: Iterator[SeenRun | SeenEnd],
    audits: Audits,
    *,
    limit: int | None,
    tell: Callable[[int], None],
) -> AuditEnd | None:
    """Show the batches of a log to the audits.

    Args:
        seen: what ``read_runs`` gives; it is taken up to the end of the log.
        limit: the last offset that the segment may have, where that is known.
        tell: called with the number of bytes that were read.

    Returns:
        ``None`` where bytes could not be had.
    """
    order = _Order(found, segment, limit)
    has_damage = False
    for one in seen:
        tell(one.read_bytes)
        for finding in one.noted:
            found.put(finding)
        if isinstance(one, SeenEnd):
            break
        has_damage |= bool(one.damaged)
        for index, batch in enumerate(one.batches):
            if not order.fits(batch):
                continue
            for look in audits.batch:
                look(batch)
            for look in audits.damaged if index in one.damaged else ():
                look(batch)
            if (is_abort := one.aborts.get(index)) is not None:
                for audit in audits.marker:
                    audit(batch, is_abort)
    else:
        raise AssertionError("a log has no end")
    if one.tail is None:
        return None
    if isinstance(one.tail, FormatError):
        return AuditEnd(order.last, one.tail, False)
    if one.tail.tail is Tail.END or segment.is_active or not segment.log_size:
        for end in audits.end:
            end()
    return AuditEnd(order.last, one.tail, not (has_damage or order.is_broken))


class _Order:
    """Remembers the offsets of the batch before."""

    def __init__(self, found: Findings, segment: Segment, limit: int | None) -> None:
        self._found, self._segment, self._limit = found, segment, limit
        self.last = segment.base_offset - 1
        self.is_broken = False
        self._is_first = True

    def fits(self, batch: Batch) -> bool:
        """Whether the batch's offsets are above those before; notes it if not, or if they are outside the segment."""
        base = batch.base_offset
        where = f"the batch has offsets {base} to {batch.last_offset}"
        is_first, self._is_first = self._is_first, False
        if batch.last_offset < base:
            self._note(Code.BROKEN_BATCH, where, batch)
            return False
        if not is_first and base <= self.last:
            self._note(Code.OFFSETS_NOT_RISING, f"{where}, and the one before ends with {self.last}", batch)
            return False
        if base < self._segment.base_offset and not is_first:  # of the first one the name is held to account
            self._note(Code.BATCH_OUTSIDE_SEGMENT, f"{where}, below {self._segment.base_offset}", batch)
        farthest = self._segment.base_offset + LARGEST_RELATIVE_OFFSET
        if batch.last_offset > farthest:
            self._note(Code.BATCH_OUTSIDE_SEGMENT, f"{where}, and no segment reaches beyond {farthest}", batch)
        elif self._limit is not None and batch.last_offset > self._limit:
            self._note(Code.BATCH_OUTSIDE_SEGMENT, f"{where}, and the segment ends with {self._limit}", batch)
        self.last = batch.last_offset
        return True

    def _note(self, code: Code, text: str, batch: Batch) -> None:
        self.is_broken = True
        self._found.add(code, self._segment.files.log, text, position=batch.position, offset=batch.base_offset)


class _Decoder:
    """Decodes every record, keeps none, and holds the header's largest timestamp against the records'."""

    def __init__(self, found: Findings, segment: Segment) -> None:
        self._found, self._name = found, segment.files.log
        self._kernel = load_kernel()
        self._decompressor = Decompressor()
        self._columns = ColumnBuffers(frozenset({"timestamp_ms", "position"}), BufferPool(1 << 20))
        self._columns.state[State.NEXT_OFFSET] = _NOTHING_BEFORE
        self._columns.state[State.CURSOR_MOVES] = 0

    def decode(self, run: BatchRun, batches: Sequence[Batch]) -> tuple[frozenset[int], dict[int, bool]]:
        """Decode a run of batches; returns the rows of those that cannot be, and which of the others abort or commit.

        Args:
            batches: of the rows of its table.
        """
        columns, state = self._columns, self._columns.state
        largest: dict[int, int] = {}
        damaged: set[int] = set()
        state[State.BATCH_ROW], state[State.RECORDS_LEFT] = 0, -1
        while True:
            error: FormatError | None = None
            row = state[State.BATCH_ROW]
            try:
                outcome = Outcome(
                    self._kernel.decode_batches(
                        columns,
                        run.data,
                        run.data_position,
                        run.table,
                        run.rows,
                        True,
                        self._decompressor,
                    )
                )
                if outcome is Outcome.LEGACY:
                    row = state[State.BATCH_ROW]
                    parse_message_set_entry(_bytes_of(run, row), self._decompressor)
                    state[State.BATCH_ROW] += 1
            except FormatError as raised:
                error, outcome = raised, Outcome.DAMAGED
            if outcome is Outcome.GROW and columns.make_room():
                continue
            self._keep_largest(largest)
            if outcome is Outcome.DAMAGED:
                row = state[State.BATCH_ROW]
                self._note(error or damage_error(state, run.table), run, row, is_crc=error is None and _is_crc(state))
                damaged.add(row)
                state[State.BATCH_ROW] += 1
                state[State.RECORDS_LEFT] = -1
            if outcome in (Outcome.DONE, Outcome.STOPPED):
                columns.body = b""
                break
        self._compare(batches, largest, damaged)
        aborts: dict[int, bool] = {}
        for row, batch in enumerate(batches):
            if batch.is_control and batch.is_transactional and row not in damaged:
                is_abort = self._end_of_transaction(run, row)
                if is_abort is not None:
                    aborts[row] = is_abort
        return frozenset(damaged), aborts

    def _end_of_transaction(self, run: BatchRun, row: int) -> bool | None:
        """Whether a control batch aborts; ``None`` if it ends no transaction, as one that the cleaner emptied."""
        try:
            record = next(iter_records(_bytes_of(run, row), self._decompressor, check_crcs=False), None)
            key = parse_control_key(record.key) if record is not None else None
        except FormatError:
            return None
        return key.is_abort if key is not None and key.is_end_of_transaction else None

    def _keep_largest(self, largest: dict[int, int]) -> None:
        """Note the largest timestamp of each batch in the buffers, and empty them."""
        columns = self._columns
        rows, positions, times = columns.rows, columns.buffers[Buffer.POSITION], columns.buffers[Buffer.TIMESTAMP]
        if rows and positions is not None and times is not None:
            of_row, time_of = memoryview(positions)[: 8 * rows].cast("q"), memoryview(times)[: 8 * rows].cast("q")
            first = 0
            while first < rows:
                position = of_row[first]
                after = bisect_right(of_row, position, first, rows)
                largest[position] = max(largest.get(position, _NOTHING_BEFORE), max(time_of[first:after]))
                first = after
            of_row.release()
            time_of.release()
        columns.reset()

    def _compare(self, batches: Sequence[Batch], largest: dict[int, int], damaged: set[int]) -> None:
        for row, batch in enumerate(batches):
            if batch.magic < 2 or batch.has_append_time or row in damaged or batch.position not in largest:
                continue
            expected = largest[batch.position]
            if batch.max_timestamp not in (expected, max(-1, expected)):  # brokers write -1 for what is less
                text = f"the header has {batch.max_timestamp}, and the records have {expected}"
                offset, position = batch.base_offset, batch.position
                self._found.add(Code.WRONG_MAX_TIMESTAMP, self._name, text, position=position, offset=offset)

    def _note(self, error: FormatError, run: BatchRun, row: int, *, is_crc: bool) -> None:
        start, base = run.table[row * TABLE_WIDTH + Table.POSITION], run.table[row * TABLE_WIDTH + Table.BASE_OFFSET]
        code = Code.UNDECODABLE_RECORDS
        if is_crc or "CRC" in error.message:
            code = Code.CRC_MISMATCH
        elif isinstance(error, UnsupportedCodecError):
            code = Code.UNSUPPORTED_CODEC
        error.base_offset, error.position = base, start
        self._found.add_error(error, self._name, code=code)


def _is_crc(state: Sequence[int]) -> bool:
    return state[State.DAMAGE] == Damage.CRC


def _bytes_of(run: BatchRun, row: int) -> memoryview:
    start = run.table[row * TABLE_WIDTH + Table.POSITION] - run.data_position
    return run.data[start : start + run.table[row * TABLE_WIDTH + Table.SIZE]]
