"""How many records a split holds, by the headers of its batches: what ``count(*)`` needs, and no more."""

from __future__ import annotations

from collections.abc import Generator, Iterator

import pyarrow as pa

from segreader.format.batch import CODEC_MASK, CRC_START
from segreader.format.columns import TABLE_WIDTH, Decision, State, Table
from segreader.format.scanner import BatchRun
from segreader.plan.split import Split
from segreader.read.arrow import constant, schema
from segreader.read.split_reader import SplitReader

COUNTED_COLUMNS = frozenset(("topic", "partition"))
"""The same in every record of a split: nobody needs to look into a batch for them."""

_DECODE, _SKIP = int(Decision.DECODE), int(Decision.SKIP)
_MAGIC = 2


class SplitCounter(SplitReader):
    """A reader whose columns are ``topic`` and ``partition``, or none: it takes the number of records from headers.

    That number stands under the batch's CRC, which is checked. Only compressed batches are counted so, which saves
    most: of these a broker has looked at each record. In others a producer may give two records one offset, and
    consumers get one of them. Whatever cannot be told so, such as batches that are wanted in part, old formats and
    damage, is read as ever. Not seen is a compressed batch whose CRC is good and whose records are not: only who
    decodes it finds out.

    Source: Kafka 3.9 ``LogValidator.validateMessagesAndAssignOffsetsCompressed``.
    """

    _counted = 0

    def _decode(self, split: Split, run: BatchRun, rows: int) -> Generator[pa.RecordBatch, None, bool]:
        count = self._count(run, rows)
        if count is None:
            return (yield from super()._decode(split, run, rows))
        self._counted += count
        return False

    def _count(self, run: BatchRun, rows: int) -> int | None:
        """The records of a run; ``None`` where its headers do not tell."""
        if self._checksum is None or not rows:
            return None
        state, table, stop = self._columns.state, run.table, rows * TABLE_WIDTH
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
            if self._checksum(data[position - at + CRC_START : position - at + size]) != crc:
                return None
        state[State.NEXT_OFFSET] = max(lasts) + 1
        return sum(count for count, decision in zip(counts, decisions, strict=True) if decision == _DECODE)

    def _flush(self, split: Split) -> Iterator[pa.RecordBatch]:
        if self._wrong_from is not None:
            self._counted = 0
        while self._counted:
            rows = min(self._counted, self._options.batch_rows)
            values: dict[str, str | int] = {"topic": split.partition.topic, "partition": split.partition.partition}
            columns = self._options.columns
            arrays = [constant(values[name], rows) for name in columns]
            self._counted -= rows
            self.metrics.records += rows
            yield pa.RecordBatch.from_arrays(arrays, schema=schema(columns))
        yield from super()._flush(split)
