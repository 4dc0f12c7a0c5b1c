"""Rows of an Iceberg table as its readers see them, merged in offset order from the data files that hold them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.conversions import from_bytes
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, EqualTo, GreaterThanOrEqual, LessThan
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask, Table
from pyiceberg.types import PrimitiveType

from segreader.backfill.lake.iceberg_schema import arrow_schema_of
from segreader.backfill.output import split_of_file
from segreader.values import dataclass

JOINED: Final = "joined-"
"""How the names of files begin that joining others made."""

_MOST_OFFSET: Final = (1 << 63) - 1


def rows_between(table: Table, topic: str, partition: int, start: int, stop: int) -> Iterator[pa.RecordBatch]:
    """The rows of ``start <= offset < stop`` of a Kafka partition, in order; files that overlap are held at once.

    A file of ours is read in pieces; one that somebody else has sorted in another way, or has deleted rows of, whole.
    """
    wanted = ((EqualTo, "topic", topic), (EqualTo, "partition", partition))
    between = ((GreaterThanOrEqual, "offset", start), (LessThan, "offset", stop))
    row_filter = And(*(_compared(*one) for one in (*wanted, *between)))
    yield from rows_of(table, list(table.scan(row_filter=row_filter).plan_files()), row_filter)


def _compared(comparison: Callable[..., BooleanExpression], column: str, value: object) -> BooleanExpression:
    return comparison(column, value)


def rows_of(
    table: Table, tasks: Sequence[FileScanTask], row_filter: BooleanExpression | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of data files in offset order, with the columns of the table."""
    scan = ArrowScan(table.metadata, table.io, table.schema(), row_filter or AlwaysTrue())
    schema = arrow_schema_of(table.schema())
    yield from _merged([(offsets_of(table, task.file)[0], _rows(scan, task, schema)) for task in tasks])


def offsets_of(table: Table, file: DataFile) -> tuple[int, int]:
    """The first and the last offset of a data file; all there can be where the table does not know."""
    bounds = bounds_of(table, file, "offset")
    if bounds is None:
        return 0, _MOST_OFFSET
    first, last = bounds
    return int(str(first)), int(str(last))


def bounds_of(table: Table, file: DataFile, column: str) -> tuple[object, object] | None:
    """What the table knows of the least and the greatest value of a column in a data file."""
    field = table.schema().find_field(column)
    lower, upper = (file.lower_bounds or {}).get(field.field_id), (file.upper_bounds or {}).get(field.field_id)
    if lower is None or upper is None or not isinstance(field.field_type, PrimitiveType):
        return None
    return from_bytes(field.field_type, lower), from_bytes(field.field_type, upper)


def _rows(scan: ArrowScan, task: FileScanTask, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    name = task.file.file_path.rpartition("/")[2]
    if not task.delete_files and (split_of_file(name) or name.startswith(JOINED)):
        # its public twin holds the whole file
        batches = scan._record_batches_from_scan_tasks_and_deletes([task], {})
        yield from (batch.cast(schema) for batch in batches if batch.num_rows)
        return
    table = pa.Table.from_batches([batch.cast(schema) for batch in scan.to_record_batches([task])], schema)
    yield from (batch for batch in table.sort_by("offset").to_batches() if batch.num_rows)


@dataclass(slots=True)
class _Stream:
    """Batches in offset order, of which one is at hand."""

    batches: Iterator[pa.RecordBatch]
    batch: pa.RecordBatch | None = None

    def next(self) -> bool:
        """Take the next batch; whether there is one."""
        self.batch = next(self.batches, None)
        return self.batch is not None

    @property
    def last(self) -> int:
        assert self.batch is not None
        offset: int = self.batch.column("offset")[-1].as_py()
        return offset

    def pop(self, last: int) -> pa.RecordBatch:
        """The rows up to this offset; without any left, there is no batch at hand."""
        assert self.batch is not None
        count = pc.sum(pc.less_equal(self.batch.column("offset"), last)).as_py()
        rows = self.batch.slice(0, count)
        self.batch = self.batch.slice(count) if count < self.batch.num_rows else None
        return rows


def _merged(streams: list[tuple[int, Iterator[pa.RecordBatch]]]) -> Iterator[pa.RecordBatch]:
    """The rows of streams in one order of offsets.

    Args:
        streams: each with an offset that none of its rows is below; it is begun when that is reached.
    """
    waiting = sorted(streams, key=lambda one: one[0], reverse=True)
    opened: list[_Stream] = []
    while waiting or opened:
        last = min((one.last for one in opened), default=None)
        if last is None or (waiting and waiting[-1][0] <= last):
            stream = _Stream(waiting.pop()[1])
            opened += [stream] if stream.next() else []
            continue
        parts = [rows for one in opened if (rows := one.pop(last)).num_rows]
        opened = [one for one in opened if one.batch is not None or one.next()]
        if len(parts) == 1:
            yield parts[0]
        else:
            yield from pa.Table.from_batches(parts).sort_by("offset").combine_chunks().to_batches()
