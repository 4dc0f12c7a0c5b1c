"""What a split's batches are decoded into: rows of their records, rows that headers tell, or a number of rows.

``RowDecoder`` decodes records. The other two ask it for what headers do not tell.

A broker looks into compressed batches when they are produced, and gives their records consecutive offsets (Kafka 4.0
``LogValidator``). As many records as offsets in the header therefore say each one's offset. Records are decoded where
the cleaner removed some, and where the batch is not compressed: a broker believes the offsets in those, and they can
be wrong. Bytes are read and their CRC is checked all the same.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import lru_cache
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import pyarrow as pa

from segreader.errors import FormatError, SegreaderError
from segreader.format.batch import CODEC_MASK, CRC_START, LOG_APPEND_TIME_FLAG, crc32c
from segreader.format.columns import (
    NO_STOP,
    TABLE_WIDTH,
    BufferPool,
    ColumnBuffers,
    Decision,
    Outcome,
    State,
    Table,
)
from segreader.format.compression import Decompressor
from segreader.format.kernel import damage_error, load_kernel
from segreader.format.message_set import append_records, parse_message_set_entry
from segreader.format.scanner import BatchRun
from segreader.plan.request import Policy, ReadOptions, RecordFilter
from segreader.plan.split import Split
from segreader.ranges import OffsetRange
from segreader.read.arrow import FIELDS, chosen_rows, constant, schema, schema_of, to_record_batch
from segreader.read.metrics import ScanMetrics, StationClock
from segreader.values import dataclass

if TYPE_CHECKING:
    from segreader.read.typed_columns import TypedColumns

COLUMNS_OF_HEADERS: Final = frozenset(
    {
        "topic",
        "partition",
        "offset",
        "timestamp_type",
        "leader_epoch",
        "producer_id",
        "producer_epoch",
        "batch_base_offset",
        "position",
    }
)
"""The columns that headers tell."""

_COUNTED_COLUMNS: Final = frozenset(("topic", "partition"))
"""The same in every record of a split: no batch is decoded for them."""

_FACTS = {
    "leader_epoch": Table.LEADER_EPOCH,
    "producer_id": Table.PRODUCER_ID,
    "producer_epoch": Table.PRODUCER_EPOCH,
    "batch_base_offset": Table.BASE_OFFSET,
    "position": Table.POSITION,
}
_MINUS_ONE_IS_NULL = frozenset({"leader_epoch", "producer_id", "producer_epoch"})
_DECODE, _SKIP = int(Decision.DECODE), int(Decision.SKIP)
_MAGIC: Final = 2

OnDamage: TypeAlias = Callable[[FormatError, Split, int, int], object]
"""Raises the error, or notes that the bytes from a position up to another one are passed over."""


class Decoder(Protocol):
    """Decodes runs of batches, and hands out what it has when a record batch is full, or on ``flush``."""

    def decode(
        self, split: Split, run: BatchRun, rows: int, on_damage: OnDamage
    ) -> Generator[pa.RecordBatch, None, bool]:
        """The first ``rows`` batches of a run, in full record batches; returns whether the wanted offsets end there."""

    def flush(self, split: Split) -> Iterator[pa.RecordBatch]:
        """What was decoded and not handed out yet."""

    def reset(self) -> None:
        """Drop what was decoded and not handed out yet."""


def decoder_of(options: ReadOptions) -> Callable[[RowDecoder], Decoder] | None:
    """What gives the rows of these columns at the least cost; ``None``: records must be decoded."""
    return (
        HeaderDecoder
        if COLUMNS_OF_HEADERS.issuperset(options.columns)
        and options.on_corrupt is Policy.FAIL
        and options.where is None
        else None
    )


def counter_of(options: ReadOptions) -> Callable[[RowDecoder], Decoder] | None:
    """What gives the rows of these columns if only their number matters; ``None``: records must be decoded."""
    return (
        CountDecoder
        if _COUNTED_COLUMNS.issuperset(options.columns) and options.on_corrupt is Policy.FAIL and options.where is None
        else None
    )


class RowDecoder:
    """Decodes records into the options' columns; keeps its buffers and codec contexts from one split to the next.

    Args:
        pool: where columns are written, by default one of its own.
    """

    def __init__(self, options: ReadOptions, metrics: ScanMetrics | None, pool: BufferPool | None) -> None:
        self.options = options
        self.kernel = load_kernel(options.kernel)
        self.metrics = metrics or ScanMetrics(kernel=self.kernel.NAME)
        self.decompressor = Decompressor(options.max_batch_bytes)
        self._typed = self._open_typed_columns()
        self._given = options.columns if self._typed is None else self._typed.raw_names
        looked_at = () if options.where is None else options.where.columns
        self._names = (*self._given, *(name for name in looked_at if name not in self._given))
        self._columns = ColumnBuffers(
            frozenset(self._names),
            BufferPool(allocate=self.kernel.allocate) if pool is None else pool,
            max_rows=options.batch_rows,
            max_bytes=options.batch_bytes,
            clock=perf_counter_ns,
        )
        self.state = self._columns.state
        self.clock = StationClock(self.metrics, self._columns.spent)
        self.next_offset = 0
        self.wrong_from: int | None = None  # what was decoded from this offset on is not handed out
        self._has_let_go = False
        self.allocated_bytes = 0  # in the buffers of the record batch that was handed out last

    def _open_typed_columns(self) -> TypedColumns | None:
        options = self.options
        if all(set(one.columns).isdisjoint(options.columns) for one in options.decodings):
            return None
        from segreader.read.typed_columns import TypedColumns

        return TypedColumns(
            options.columns,
            options.decodings,
            schema_of(options),
            kernel=options.kernel,
            count=lambda text: self.metrics.leave_out(text),
        )

    def begin(self, offsets: OffsetRange, next_offset: int | None) -> None:
        """Decode these offsets from now on; those below ``next_offset`` were delivered."""
        if self._has_let_go:
            self.reset()
        self.state[State.NEXT_OFFSET] = max(offsets.start, next_offset or 0)
        self.state[State.STOP_OFFSET] = NO_STOP if offsets.stop is None else offsets.stop
        self.wrong_from = None

    @property
    def undelivered(self) -> int:
        """The consumer's position; a record beyond the end does not move it past the end."""
        return min(self.state[State.NEXT_OFFSET], self.state[State.STOP_OFFSET])

    def reset(self) -> None:
        """Drop what was decoded and not handed out yet."""
        self._columns.reset()
        self._has_let_go = False

    def let_go(self) -> None:
        """Leave the empty buffers to others of the pool until ``begin``."""
        if not self._columns.rows:
            self._columns.let_go()
            self._has_let_go = True

    def decode(
        self, split: Split, run: BatchRun, rows: int, on_damage: OnDamage
    ) -> Generator[pa.RecordBatch, None, bool]:
        """The run's records, in full record batches; returns whether the wanted offsets end inside it."""
        columns, state, kernel = self._columns, self.state, self.kernel
        state[State.BATCH_ROW], state[State.RECORDS_LEFT] = 0, -1
        while True:
            error: SegreaderError | None = None
            try:
                outcome = (
                    Outcome.LEGACY
                    if self._is_inside_legacy(run, rows)
                    else kernel.decode_batches(
                        columns,
                        run.data,
                        run.data_position,
                        run.table,
                        rows,
                        self.options.check_crcs,
                        self.decompressor,
                    )
                )
                if outcome == Outcome.LEGACY:
                    outcome = self._append_legacy(run)
            except FormatError as raised:
                error, outcome = raised, Outcome.DAMAGED
            self.clock.end_decode()
            if outcome in (Outcome.DONE, Outcome.STOPPED):
                columns.body = b""
                return outcome == Outcome.STOPPED
            if outcome == Outcome.GROW and columns.make_room():
                continue
            if outcome in (Outcome.FULL, Outcome.GROW):
                yield from self.flush(split)
            elif outcome == Outcome.DAMAGED:
                yield from self.flush(split)
                damage = error or damage_error(state, run.table)
                row = state[State.BATCH_ROW] * TABLE_WIDTH
                start, size = run.table[row + Table.POSITION], run.table[row + Table.SIZE]
                if isinstance(damage, FormatError):
                    if error is not None:  # counted from the start of the batch, if at all
                        damage.located(position_shift=start, base_offset=run.table[row + Table.BASE_OFFSET])
                        damage.located(position=start)
                    on_damage(damage, split, start, start + size)
                state[State.BATCH_ROW] += 1
                state[State.RECORDS_LEFT] = -1

    def _is_inside_legacy(self, run: BatchRun, rows: int) -> bool:
        """Whether decoding stopped in the middle of a message set entry, which no kernel knows."""
        state = self.state
        row = state[State.BATCH_ROW]
        return row < rows and state[State.RECORDS_LEFT] >= 0 and run.table[row * TABLE_WIDTH + Table.MAGIC] < 2

    def _append_legacy(self, run: BatchRun) -> int:
        """Decode one message set entry (magic 0 or 1) into the columns."""
        columns, state = self._columns, self.state
        row = state[State.BATCH_ROW] * TABLE_WIDTH
        if state[State.RECORDS_LEFT] >= 0 or run.table[row + Table.LAST_OFFSET] >= state[State.NEXT_OFFSET]:
            if state[State.RECORDS_LEFT] < 0:
                start = run.table[row + Table.POSITION] - run.data_position
                entry = run.data[start : start + run.table[row + Table.SIZE]]
                self._legacy = parse_message_set_entry(entry, self.decompressor, check_crcs=self.options.check_crcs)
                state[State.DECODED_BATCHES] += 1
                state[State.RECORDS_LEFT] = len(self._legacy)
            outcome = append_records(columns, self._legacy, run.table[row : row + TABLE_WIDTH])
            if outcome != Outcome.DONE:
                return outcome
        state[State.BATCH_ROW] += 1
        state[State.RECORDS_LEFT] = -1
        return -1

    def flush(self, split: Split) -> Iterator[pa.RecordBatch]:
        """What was decoded and not handed out yet, as one record batch."""
        if self._columns.rows:
            batch = to_record_batch(self._columns, self._names, split.partition)
            self.allocated_bytes = self._columns.allocated_bytes
            if self.wrong_from is not None:
                batch = batch.slice(0, rows_below(batch, self.wrong_from))
            where, read = self.options.where, batch.num_rows
            if where is not None:
                batch = _matching(batch, where, self._given)
            if self._typed is not None and (where is None or batch.num_rows):
                self.metrics.records += read - batch.num_rows
                yield from self._decode_values(self._typed, batch, split)
                return
            self.metrics.records += read
            self.next_offset = self.undelivered
            self.clock.end_arrow()
            if batch.num_rows:
                yield batch
            self.clock.restart()
            self._columns.reset()  # only now: who takes a batch has let go of the one before, and its buffers are free

    def _decode_values(self, typed: TypedColumns, batch: pa.RecordBatch, split: Split) -> Iterator[pa.RecordBatch]:
        """The rows of a batch with keys and values decoded by their schemas.

        Raises:
            UndecodableValueError: one is not what its schema says, after the rows before it.
        """
        after = self.undelivered
        offsets = batch.column(self._names.index("offset"))
        rows = 0
        try:
            for decoded in typed.decode(batch, split.partition):
                rows += decoded.num_rows
                self.metrics.records += decoded.num_rows
                self.next_offset = after if rows == batch.num_rows else offsets[rows].as_py()
                self.clock.end_values()
                self.clock.end_arrow()
                yield decoded
                del decoded  # its buffers are free while the next one is decoded
                self.clock.restart()
        finally:
            del batch, offsets
            self._columns.reset()


class HeaderDecoder:
    """The same rows in the same order, for ``COLUMNS_OF_HEADERS`` only and ``on_corrupt='fail'``: whole batches
    without decompressing them."""

    def __init__(self, rows: RowDecoder) -> None:
        self._rows, self._options = rows, rows.options

    def decode(
        self, split: Split, run: BatchRun, rows: int, on_damage: OnDamage
    ) -> Generator[pa.RecordBatch, None, bool]:
        """As ``RowDecoder.decode``."""
        state = self._rows.state
        first, stop = state[State.NEXT_OFFSET], state[State.STOP_OFFSET]
        stretches = _stretches(run.table, rows, first, stop)
        if stretches is None:
            return (yield from self._rows.decode(split, run, rows, on_damage))
        yield from self.flush(split)
        for stretch in stretches:
            run.table[stretch.row * TABLE_WIDTH + Table.DECISION] = Decision.SKIP  # its CRC is checked, nothing more
        try:
            is_stopped = yield from self._rows.decode(split, run, rows, on_damage)
        except FormatError:
            yield from self._emit(split, run.table, [one for one in stretches if one.row < state[State.BATCH_ROW]])
            raise
        yield from self._emit(split, run.table, stretches)
        return is_stopped

    def flush(self, split: Split) -> Iterator[pa.RecordBatch]:
        """What was decoded of records; what headers tell never waits."""
        return self._rows.flush(split)

    def reset(self) -> None:
        """Drop what was decoded of records."""
        self._rows.reset()

    def _emit(
        self, split: Split, table: Sequence[int], stretches: Sequence[_Stretch]
    ) -> Generator[pa.RecordBatch, None, None]:
        """The rows of the stretches, in record batches of the usual length."""
        ends = array("q")
        shifts = array("q")
        count = 0
        for one in stretches:
            shifts.append(one.start - count)
            count += one.stop - one.start
            ends.append(count)
        self._rows.metrics.records += count
        for start in range(0, count, self._options.batch_rows):
            some = slice(start, min(start + self._options.batch_rows, count))
            arrays = [self._array(name, split, table, stretches, ends, shifts, some) for name in self._options.columns]
            batch = pa.RecordBatch.from_arrays(arrays, schema=schema(self._options.columns))
            self._rows.clock.end_arrow()
            yield batch
            self._rows.clock.restart()

    def _array(
        self,
        name: str,
        split: Split,
        table: Sequence[int],
        stretches: Sequence[_Stretch],
        ends: array[int],
        shifts: array[int],
        some: slice,
    ) -> pa.Array:
        kind, length = FIELDS[name].type, some.stop - some.start
        if name in ("topic", "partition"):
            return constant(getattr(split.partition, name), length)
        if name == "offset":
            import pyarrow.compute as pc

            return pc.add(
                _numbers(some.stop).slice(some.start), _spread(shifts, ends, pa.int64()).slice(some.start, length)
            )
        if name == "timestamp_type":
            flags = (table[one.row * TABLE_WIDTH + Table.ATTRIBUTES] & LOG_APPEND_TIME_FLAG for one in stretches)
            facts = array("q", map(bool, flags))
        else:
            facts = array("q", (table[one.row * TABLE_WIDTH + _FACTS[name]] for one in stretches))
        values = _spread(facts, ends, kind).slice(some.start, length)
        if name in _MINUS_ONE_IS_NULL and -1 in facts:
            import pyarrow.compute as pc

            return pc.if_else(pc.equal(values, -1), pa.scalar(None, kind), values)
        return values


class CountDecoder:
    """The same rows for ``topic`` and ``partition``, or no columns: their number is taken from headers.

    The batch's CRC covers that number, which is checked. Only compressed batches are counted so, which saves
    most: of these a broker has looked at each record. In others a producer may give two records one offset, and
    consumers get one of them. Whatever cannot be told so, such as batches that are wanted in part, old formats and
    damage, is read as ever. Not seen is a compressed batch whose CRC is good and whose records are not: only who
    decodes it finds out.

    Source: Kafka 3.9 ``LogValidator.validateMessagesAndAssignOffsetsCompressed``.
    """

    def __init__(self, rows: RowDecoder) -> None:
        self._rows = rows
        self._counted = 0

    def decode(
        self, split: Split, run: BatchRun, rows: int, on_damage: OnDamage
    ) -> Generator[pa.RecordBatch, None, bool]:
        """As ``RowDecoder.decode``."""
        count = self._count(run, rows)
        if count is None:
            return (yield from self._rows.decode(split, run, rows, on_damage))
        self._counted += count
        return False

    def _count(self, run: BatchRun, rows: int) -> int | None:
        """The records of a run; ``None`` where its headers do not tell."""
        if not self._rows.options.check_crcs or not rows:
            return None
        state, table, stop = self._rows.state, run.table, rows * TABLE_WIDTH
        decisions = table[Table.DECISION : stop : TABLE_WIDTH]
        counts = table[Table.RECORD_COUNT : stop : TABLE_WIDTH]
        bases = table[Table.BASE_OFFSET : stop : TABLE_WIDTH]
        lasts = table[Table.LAST_OFFSET : stop : TABLE_WIDTH]
        if (
            min(table[Table.MAGIC : stop : TABLE_WIDTH]) < _MAGIC
            or not all(flags & CODEC_MASK for flags in table[Table.ATTRIBUTES : stop : TABLE_WIDTH])
            or min(bases) < state[State.NEXT_OFFSET]
            or max(lasts) >= state[State.STOP_OFFSET]
            or not {_DECODE, _SKIP}.issuperset(decisions)
            or not all(0 <= n <= last - base + 1 for n, base, last in zip(counts, bases, lasts, strict=True))
        ):
            return None
        data, at = memoryview(run.data), run.data_position
        sizes = table[Table.SIZE : stop : TABLE_WIDTH]
        crcs = table[Table.CRC : stop : TABLE_WIDTH]
        for position, size, crc in zip(table[Table.POSITION : stop : TABLE_WIDTH], sizes, crcs, strict=True):
            if crc32c(data[position - at + CRC_START : position - at + size]) != crc:
                return None
        state[State.NEXT_OFFSET] = max(lasts) + 1
        self._rows.clock.end_crc()
        return sum(count for count, decision in zip(counts, decisions, strict=True) if decision == _DECODE)

    def flush(self, split: Split) -> Iterator[pa.RecordBatch]:
        """As many rows as were counted, then those that were decoded."""
        if self._rows.wrong_from is not None:
            self._counted = 0
        while self._counted:
            rows = min(self._counted, self._rows.options.batch_rows)
            values: dict[str, str | int] = {"topic": split.partition.topic, "partition": split.partition.partition}
            columns = self._rows.options.columns
            arrays = [constant(values[name], rows) for name in columns]
            self._counted -= rows
            self._rows.metrics.records += rows
            batch = pa.RecordBatch.from_arrays(arrays, schema=schema(columns))
            self._rows.clock.end_arrow()
            yield batch
            self._rows.clock.restart()
        yield from self._rows.flush(split)

    def reset(self) -> None:
        """Drop what was counted or decoded and not handed out."""
        self._counted = 0
        self._rows.reset()


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Consecutive offsets ``start <= offset < stop`` of one batch, whose facts stand in one row of the table."""

    row: int
    start: int
    stop: int


def _stretches(table: Sequence[int], rows: int, first: int, stop: int) -> list[_Stretch] | None:
    """What the headers say of the batches that are to be decoded, clipped to ``first <= offset < stop``.

    ``None`` if one of them does not say it: it is older or not compressed, or has fewer records than offsets.
    """
    found = []
    for row in range(rows):
        at = row * TABLE_WIDTH
        if table[at + Table.DECISION] != Decision.DECODE:
            continue
        base, last = table[at + Table.BASE_OFFSET], table[at + Table.LAST_OFFSET]
        is_compressed = table[at + Table.MAGIC] >= 2 and table[at + Table.ATTRIBUTES] & CODEC_MASK
        if not is_compressed or table[at + Table.RECORD_COUNT] != last - base + 1:
            return None
        start, end = max(base, first), min(last + 1, stop)
        if start < end:
            found.append(_Stretch(row, start, end))
    return found


def _spread(values: array[int], ends: array[int], kind: pa.DataType) -> pa.Array:
    """Each value as often as its run is long."""
    import pyarrow.compute as pc

    runs = pa.RunEndEncodedArray.from_arrays(_int64s(ends), _int64s(values).cast(kind))
    return pc.run_end_decode(runs)


def _int64s(values: array[int]) -> pa.Array:
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(values)])


def _numbers(count: int) -> pa.Array:
    """0, 1, 2 … below ``count``, cut from an array that is kept."""
    size = 1 << 16
    while size < count:
        size *= 2
    return _kept_numbers(size).slice(0, count)


@lru_cache(maxsize=4)
def _kept_numbers(size: int) -> Any:
    return _int64s(array("q", range(size)))


def _matching(batch: pa.RecordBatch, where: RecordFilter, names: Sequence[str]) -> pa.RecordBatch:
    """Some columns of the rows that a filter lets through."""
    import pyarrow.compute as pc

    masks = []
    if where.key is not None:
        masks.append(pc.equal(batch.column("key"), pa.scalar(where.key, pa.binary())))
    if where.contains is not None:
        found = [pc.match_substring(batch.column(name), where.contains).fill_null(False) for name in ("key", "value")]
        masks.append(pc.or_(*found))
    mask = masks[0] if len(masks) == 1 else pc.and_(*masks)
    return chosen_rows(batch.select(list(names)), mask.fill_null(False))


def rows_below(batch: pa.RecordBatch, offset: int) -> int:
    """How many of the rows certainly have lower offsets, which rise; none where the batch does not show them."""
    if "offset" not in batch.schema.names:
        return 0
    import pyarrow.compute as pc

    return int(pc.sum(pc.less(batch.column("offset"), offset)).as_py() or 0)
