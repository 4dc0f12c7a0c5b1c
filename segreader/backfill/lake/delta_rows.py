"""The records of a Delta table as its readers see them, in offset order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq

from segreader.backfill.lake.delta_log import ActiveFile, WantedOffsets

_BATCH_ROWS: Final = 8192
_BATCH_BYTES: Final = 16 << 20


class DeltaFileReader:
    """What is wanted of one data file, in offset order; opened at the first batch."""

    def __init__(self, store: pa_fs.FileSystem, file: ActiveFile, wanted: WantedOffsets, schema: pa.Schema) -> None:
        self.first_offset = file.first_offset
        self._store, self._file, self._wanted, self._schema = store, file, wanted, schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        """None of them is empty."""
        with self._store.open_input_file(self._file.name) as source, pq.ParquetFile(source) as file:
            names = file.schema_arrow.names
            groups = [at for at in range(file.num_row_groups) if self._may_be_in(file.metadata.row_group(at))]
            columns = [name for name in self._schema.names if name in names and name not in self._file.partition]
            rows = file.iter_batches(batch_rows(file.metadata), row_groups=groups, columns=columns, use_threads=False)
            found = (batch for one in rows if (batch := self._shaped(one)).num_rows)
            if self._is_sorted(file, groups):
                yield from found
            elif some := list(found):
                table = pa.Table.from_batches(some).sort_by("offset").combine_chunks()
                yield from table.to_batches(batch_rows(file.metadata))

    def _may_be_in(self, group: Any) -> bool:
        found = column_statistics(group, "offset")
        return found is None or bool(found.min < self._wanted.stop and self._wanted.start <= found.max)

    def _is_sorted(self, file: pq.ParquetFile, groups: Sequence[int]) -> bool:
        before = -1
        for batch in file.iter_batches(1 << 20, row_groups=groups, columns=["offset"], use_threads=False):
            offsets = batch.column(0)
            if len(offsets) and offsets[0].as_py() < before:
                return False
            if (
                len(offsets) > 1
                and not pc.all(pc.less_equal(offsets.slice(0, len(offsets) - 1), offsets.slice(1))).as_py()
            ):
                return False
            before = offsets[-1].as_py() if len(offsets) else before
        return True

    def _shaped(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """What is wanted of a batch, with the columns and types of the table."""
        columns = []
        for field in self._schema:
            if field.name in self._file.partition:
                value = getattr(self._wanted, field.name)
                columns.append(pa.repeat(pa.scalar(value, field.type), batch.num_rows))
            elif field.name in batch.schema.names:
                columns.append(_conformed(batch.column(field.name), field.type))
            else:
                columns.append(pa.nulls(batch.num_rows, field.type))
        found = pa.RecordBatch.from_arrays(
            columns, schema=self._schema
        )  # before: others' files have types of their own
        offsets = found.column("offset")
        mask = pc.and_(pc.greater_equal(offsets, self._wanted.start), pc.less(offsets, self._wanted.stop))
        for name, value in (("topic", self._wanted.topic), ("partition", self._wanted.partition)):
            if name not in self._file.partition:
                mask = pc.and_(mask, pc.equal(found.column(name), value))
        return found.filter(mask)


def _conformed(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """An array of a file as the type that the table has: with nulls for fields that the file lacks."""
    if array.type == kind:
        return array
    if pa.types.is_large_list(array.type) or pa.types.is_list_view(array.type):
        array = array.cast(pa.list_(array.type.value_field))
    if pa.types.is_struct(kind):
        parts, names = array.flatten(), [one.name for one in array.type]  # what is in a null struct is null
        children = [
            _conformed(parts[names.index(one.name)], one.type) if one.name in names else pa.nulls(len(array), one.type)
            for one in kind
        ]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=array.is_null())
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        is_map = pa.types.is_map(kind)
        # Offsets may not begin with 0 where this is a part of another array; children are what all of it has.
        parts = [array.keys, array.items] if is_map else [array.values]
        kinds = [kind.key_type, kind.item_type] if is_map else [kind.value_type]
        children = [_conformed(part, below) for part, below in zip(parts, kinds, strict=True)]
        if is_map:
            entries = pa.struct([kind.key_field, kind.item_field])
            children = [pa.StructArray.from_arrays(children, fields=list(entries))]
        return pa.Array.from_buffers(kind, len(array), array.buffers()[:2], array.null_count, array.offset, children)
    return array.cast(kind)


def in_offset_order(readers: Sequence[DeltaFileReader]) -> Iterator[pa.RecordBatch]:
    """The batches of files as one run of offsets: as far as those reach that are open, from all of them."""
    waiting = list(reversed(readers))  # by first offset
    open_: list[tuple[pa.RecordBatch, Iterator[pa.RecordBatch]]] = []
    while waiting or open_:
        while waiting and (not open_ or waiting[-1].first_offset <= min(_last(head) for head, _ in open_)):
            batches = waiting.pop().batches()
            if (head := next(batches, None)) is not None:
                open_.append((head, batches))
        if not open_:
            return
        bound = min(_last(head) for head, _ in open_)
        parts: list[pa.RecordBatch] = []
        following = []
        for head, batches in open_:
            count = pc.sum(pc.less_equal(head.column("offset"), bound)).as_py()
            if count:
                parts.append(head.slice(0, count))
            rest: pa.RecordBatch | None = head.slice(count)
            if rest is not None and not rest.num_rows:
                rest = next(batches, None)
            if rest is not None:
                following.append((rest, batches))
        open_ = following
        if len(parts) == 1:
            yield parts[0]
        else:
            yield from pa.Table.from_batches(parts).sort_by("offset").combine_chunks().to_batches()


def _last(batch: pa.RecordBatch) -> int:
    offset: int = batch.column("offset")[batch.num_rows - 1].as_py()
    return offset


def batch_rows(footer: pq.FileMetaData) -> int:
    """How many records of a file are read at a time: fewer where they are large."""
    stored: int = sum(footer.row_group(at).total_byte_size for at in range(footer.num_row_groups))
    rows: int = footer.num_rows
    return max(1, min(_BATCH_ROWS, _BATCH_BYTES * rows // max(1, stored)))


def column_statistics(group: Any, name: str) -> Any:
    """What a footer says of a column of a row group; ``None`` where it has no bounds."""
    for at in range(group.num_columns):
        column = group.column(at)
        if column.path_in_schema == name and column.is_stats_set and column.statistics.has_min_max:
            return column.statistics
    return None
