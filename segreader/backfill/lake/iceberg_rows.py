"""Rows of an Iceberg table as its readers see them, merged in offset order from the data files that hold them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.conversions import from_bytes
from pyiceberg.expressions import And, BooleanExpression, EqualTo, GreaterThanOrEqual, LessThan
from pyiceberg.io.pyarrow import _read_all_delete_files
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.table import FileScanTask, Table
from pyiceberg.types import PrimitiveType

from segreader.backfill.lake.iceberg_schema import arrow_schema_of
from segreader.backfill.output import MIB, split_of_file
from segreader.errors import OptionError
from segreader.values import dataclass

JOINED: Final = "joined-"
"""How the names of files begin that joining others made."""

_BATCH_ROWS: Final = 65_536
_BATCH_BYTES: Final = 8 * MIB
_BUFFER_BYTES: Final = 4 * MIB
_MOST_OFFSET: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class RowsWanted:
    """Rows of one partition of Kafka, with ``start <= offset < stop``."""

    topic: str
    partition: int
    start: int
    stop: int

    def expression(self) -> BooleanExpression:
        """By which pyiceberg finds the data files."""
        wanted = ((EqualTo, "topic", self.topic), (EqualTo, "partition", self.partition))
        between = ((GreaterThanOrEqual, "offset", self.start), (LessThan, "offset", self.stop))
        return And(*(_compared(*one) for one in (*wanted, *between)))

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Those among some rows."""
        offsets = batch.column("offset")
        is_between = pc.and_(pc.greater_equal(offsets, self.start), pc.less(offsets, self.stop))
        is_there = pc.and_(
            pc.equal(batch.column("topic"), self.topic), pc.equal(batch.column("partition"), self.partition)
        )
        is_wanted = pc.and_(is_between, is_there)
        return batch if is_wanted.true_count == batch.num_rows else batch.filter(is_wanted)


def _compared(comparison: Callable[..., BooleanExpression], column: str, value: object) -> BooleanExpression:
    return comparison(column, value)


def rows_between(table: Table, wanted: RowsWanted) -> Iterator[pa.RecordBatch]:
    """The rows that are wanted, in offset order; held is one batch of each data file that overlaps another.

    A file that somebody else has written, in whatever order, is held as a whole.
    """
    yield from rows_of(table, list(table.scan(row_filter=wanted.expression()).plan_files()), wanted)


def rows_of(table: Table, tasks: Sequence[FileScanTask], wanted: RowsWanted | None = None) -> Iterator[pa.RecordBatch]:
    """The rows of data files in offset order, with the columns of the table; without those that were deleted."""
    schema = arrow_schema_of(table.schema(), with_ids=True)
    yield from _merged([(offsets_of(table, task.file)[0], _rows(table, task, schema, wanted)) for task in tasks])


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


def _rows(table: Table, task: FileScanTask, schema: pa.Schema, wanted: RowsWanted | None) -> Iterator[pa.RecordBatch]:
    """The rows of a data file in offset order."""
    name = task.file.file_path.rpartition("/")[2]
    rows = (batch for batch in _stored(table, task, schema, wanted) if batch.num_rows)
    if split_of_file(name) is None and not name.startswith(JOINED):
        rows = iter(pa.Table.from_batches(rows, arrow_schema_of(table.schema())).sort_by("offset").to_batches())
    return rows


def _stored(table: Table, task: FileScanTask, schema: pa.Schema, wanted: RowsWanted | None) -> Iterator[pa.RecordBatch]:
    """The rows of a data file as it has them, in the types of the table.

    pyiceberg's own reader makes an empty list of a null one where its elements are structs, as headers are.
    """
    if task.file.file_format is not FileFormat.PARQUET:
        raise OptionError(
            "a data file of the table is no Parquet", source=task.file.file_path, found=task.file.file_format.value
        )
    deleted = _deleted(table, task)
    plain = arrow_schema_of(table.schema())
    with table.io.new_input(task.file.file_path).open() as opened, _parquet(opened) as file:
        columns = [_found(one, list(file.schema_arrow)) for one in schema]
        names = [one.name for one in columns if one is not None]
        for number, position in _row_groups(file.metadata, columns[schema.names.index("offset")], wanted):
            for batch in file.iter_batches(_batch_rows(file.metadata, number), [number], names):
                arrays = [
                    pa.nulls(batch.num_rows, one.type) if found is None else _as(batch.column(found.name), found, one)
                    for found, one in zip(columns, schema, strict=True)
                ]
                rows = pa.RecordBatch.from_arrays(
                    [_plain(*one) for one in zip(arrays, plain, strict=True)], schema=plain
                )
                if deleted is not None:
                    positions = pa.array(range(position, position + batch.num_rows), pa.int64())
                    rows = rows.filter(pc.invert(pc.is_in(positions, deleted)))
                position += batch.num_rows
                yield rows if wanted is None else wanted.of(rows)


def _parquet(opened: Any) -> pq.ParquetFile:
    """A file that is read in pieces; by default, each row group is held as a whole, twice."""
    return pq.ParquetFile(opened, buffer_size=_BUFFER_BYTES, pre_buffer=False)


def _deleted(table: Table, task: FileScanTask) -> pa.Array | None:
    """Positions of the rows that were deleted from a data file."""
    if not task.delete_files:
        return None
    found = _read_all_delete_files(table.io, [task]).get(task.file.file_path, [])
    chunks = [chunk.cast(pa.int64()) for one in found for chunk in (one.chunks if hasattr(one, "chunks") else [one])]
    return pa.concat_arrays(chunks) if chunks else None


def _row_groups(
    footer: pq.FileMetaData, offset: pa.Field | None, wanted: RowsWanted | None
) -> Iterator[tuple[int, int]]:
    """The row groups that may hold what is wanted, and the position of the first row of each."""
    position = 0
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        chunks = [group.column(at) for at in range(group.num_columns)]
        known = [one.statistics for one in chunks if offset is not None and one.path_in_schema == offset.name]
        ends = [(one.min, one.max) for one in known if one is not None and one.has_min_max]
        if wanted is None or all(first < wanted.stop and last >= wanted.start for first, last in ends):
            yield number, position
        position += group.num_rows


def _batch_rows(footer: pq.FileMetaData, number: int) -> int:
    group = footer.row_group(number)
    return int(max(1, min(_BATCH_ROWS, _BATCH_BYTES * group.num_rows // max(1, group.total_byte_size))))


def _found(wanted: pa.Field, fields: Sequence[pa.Field]) -> pa.Field | None:
    """The field of a file that has the id of one of the table; the name, where the file has no ids."""
    if any(_id(one) is not None for one in fields):
        return next((one for one in fields if _id(one) == _id(wanted)), None)
    return next((one for one in fields if one.name == wanted.name), None)


def _id(one: pa.Field) -> bytes | None:
    found: bytes | None = (one.metadata or {}).get(b"PARQUET:field_id")
    return found


def _as(array: pa.Array, have: pa.Field, wanted: pa.Field) -> pa.Array:
    """A column of a file in the type that the table has by now; nulls stay nulls."""
    kind, types = wanted.type, pa.types
    if types.is_struct(kind):
        below = [_found(one, list(have.type)) for one in kind]
        children = [
            pa.nulls(len(array), one.type) if found is None else _as(array.field(found.name), found, one)
            for found, one in zip(below, kind, strict=True)
        ]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=array.is_null())
    if types.is_map(kind):
        pairs = [
            _as(array.keys, have.type.key_field, kind.key_field),
            _as(array.items, have.type.item_field, kind.item_field),
        ]
        entries = pa.struct([kind.key_field, kind.item_field])
        children = [pa.Array.from_buffers(entries, len(pairs[0]), [None], 0, 0, pairs)]
    elif types.is_list(kind):
        array = array.cast(pa.list_(have.type.value_field)) if types.is_large_list(have.type) else array
        children = [_as(array.values, have.type.value_field, kind.value_field)]
    else:
        return array.cast(kind)
    return pa.Array.from_buffers(kind, len(array), array.buffers()[:2], array.null_count, array.offset, children)


def _plain(array: pa.Array, field: pa.Field) -> pa.Array:
    """The same column in a type without ids."""
    return array if array.type.equals(field.type, check_metadata=True) else array.cast(field.type)


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
