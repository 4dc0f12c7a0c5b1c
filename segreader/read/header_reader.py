"""Rows that batch headers tell: for columns that need no record, whole batches without decompressing them.

A broker looks into compressed batches when they are produced, and gives their records consecutive offsets (Kafka 4.0
``LogValidator``). As many records as offsets in the header therefore say each one's offset. Records are decoded where
the cleaner removed some, and where the batch is not compressed: a broker believes the offsets in those, and they can
be wrong. Bytes are read and their CRC is checked all the same.
"""

from __future__ import annotations

from array import array
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from segreader.errors import FormatError
from segreader.format.batch import CODEC_MASK, LOG_APPEND_TIME_FLAG
from segreader.format.columns import TABLE_WIDTH, BufferPool, Decision, State, Table
from segreader.format.scanner import BatchRun
from segreader.plan.request import Policy
from segreader.plan.split import Split
from segreader.read.arrow import FIELDS, constant, schema
from segreader.read.metrics import ScanMetrics
from segreader.read.options import ReadOptions
from segreader.read.split_reader import SplitReader
from segreader.storage.base import ObjectStore

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

_FACTS = {
    "leader_epoch": Table.LEADER_EPOCH,
    "producer_id": Table.PRODUCER_ID,
    "producer_epoch": Table.PRODUCER_EPOCH,
    "batch_base_offset": Table.BASE_OFFSET,
    "position": Table.POSITION,
}
_MINUS_ONE_IS_NULL = frozenset({"leader_epoch", "producer_id", "producer_epoch"})


def split_reader(
    store: ObjectStore, options: ReadOptions, *, metrics: ScanMetrics | None = None, pool: BufferPool | None = None
) -> SplitReader:
    """What reads splits with these options at the least cost; for ``pool`` see ``read_split``."""
    is_told = COLUMNS_OF_HEADERS.issuperset(options.columns) and options.on_corrupt is Policy.FAIL
    return (HeaderReader if is_told else SplitReader)(store, options, metrics=metrics, pool=pool)


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Consecutive offsets ``start <= offset < stop`` of one batch, whose facts stand in one row of the table."""

    row: int
    start: int
    stop: int


class HeaderReader(SplitReader):
    """The same rows in the same order, for ``COLUMNS_OF_HEADERS`` only and ``on_corrupt='fail'``."""

    def _decode(self, split: Split, run: BatchRun, rows: int) -> Generator[pa.RecordBatch, None, bool]:
        state = self._columns.state
        first, stop = state[State.NEXT_OFFSET], state[State.STOP_OFFSET]
        stretches = _stretches(run.table, rows, first, stop)
        if stretches is None:
            return (yield from super()._decode(split, run, rows))
        yield from self._flush(split)
        for stretch in stretches:
            run.table[stretch.row * TABLE_WIDTH + Table.DECISION] = Decision.SKIP  # its CRC is checked, nothing more
        try:
            is_stopped = yield from super()._decode(split, run, rows)
        except FormatError:
            yield from self._emit(split, run.table, [one for one in stretches if one.row < state[State.BATCH_ROW]])
            raise
        yield from self._emit(split, run.table, stretches)
        return is_stopped

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
        self.metrics.records += count
        for start in range(0, count, self._options.batch_rows):
            some = slice(start, min(start + self._options.batch_rows, count))
            arrays = [self._array(name, split, table, stretches, ends, shifts, some) for name in self._options.columns]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema(self._options.columns))

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
            return pc.if_else(pc.equal(values, -1), pa.scalar(None, kind), values)
        return values


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
