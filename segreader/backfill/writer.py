"""The records of one split as Parquet files of a target: row groups by size, files by size and by time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import field
from typing import Any, BinaryIO, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from segreader.backfill.output import STAGING, OutputOptions, file_name
from segreader.storage.target.store import TargetStore
from segreader.values import dataclass

OPEN_FILES: Final = 32
"""Files of one split that are open at a time; the one that was written to least recently is closed."""

_DICTIONARY: Final = ("topic", "partition", "timestampType")
_ENCODINGS: Final = {"offset": "DELTA_BINARY_PACKED", "timestamp": "DELTA_BINARY_PACKED"}
"""They rise by little: packed, zstd has a tenth less to do where records are small. Spark reads it since 3.3."""
_STATISTICS: Final = ("topic", "partition", "offset", "timestamp")
_DECODED: Final = ("key", "value")
_LEVELS: Final = {"zstd": 1}


@dataclass(frozen=True, slots=True)
class ColumnFacts:
    """What a file's footer says of one column of Parquet.

    Args:
        path: of the column in the schema of Arrow: ``value.items.element.price``; a map has ``.key`` and ``.value``.
        size: bytes that it takes in the file.
        values: with nulls.
        nulls: of them; ``None`` where the footer does not say.
        lower, upper: bounds, where the footer has them. Integers, times and dates are numbers (of the column's unit),
            decimals text, bytes hexadecimal text. Long texts and bytes are cut, the upper one then made larger.
    """

    path: str
    size: int
    values: int
    nulls: int | None = None
    lower: int | float | str | bool | None = None
    upper: int | float | str | bool | None = None


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """One file of the output.

    Args:
        name: relative to the target.
        size: bytes.
        rows: records in it.
        first_offset, last_offset: of them, inclusive.
        partition: of a table's partition fields, the value that all records of the file have, in their order: days and
            hours since 1970, numbers of buckets.
        columns: of a table's file, for the statistics of the table.
        row_groups: of a table's file, where each begins.
    """

    name: str
    size: int
    rows: int
    first_offset: int
    last_offset: int
    partition: tuple[int | str | None, ...] = ()
    columns: tuple[ColumnFacts, ...] = ()
    row_groups: tuple[int, ...] = ()


class SplitWriter:
    """Writes record batches of one split, in offset order.

    Files are visible once they are closed, under unique names; ``discard`` removes them again.

    Args:
        token: 12 hexadecimal digits that only this attempt has.
        partition, start, stop: those of the split.
    """

    def __init__(
        self, target: TargetStore, options: OutputOptions, *, partition: int, start: int, stop: int, token: str
    ) -> None:
        self._target, self._options = target, options
        self._split = (partition, start, stop, token)
        self._prefix = STAGING if target.has_atomic_move else ""
        self._open: dict[int | None, _OpenFile] = {}  # in the order of last use
        self._files: list[WrittenFile] = []
        self._made = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Take records of one topic and partition."""
        if not batch.num_rows:
            return
        for unit, rows in _by_time(batch, self._options.layout.unit_us):
            file = self._open.pop(unit, None) or self._create(rows, unit)
            self._open[unit] = file
            file.take(rows)
            while sum(one.pending_bytes for one in self._open.values()) >= self._options.row_group_bytes:
                largest, file = max(self._open.items(), key=lambda item: item[1].pending_bytes)
                file.flush()
                if file.size >= self._options.file_bytes:
                    self._files.append(self._open.pop(largest).finish())

    def finish(self) -> tuple[WrittenFile, ...]:
        """Close open files, and return all files by name."""
        while self._open:
            self._close_oldest()
        return tuple(sorted(self._files, key=lambda file: file.name))

    def discard(self) -> None:
        """Remove all files, open and closed."""
        for file in self._open.values():
            file.abandon()
        self._open.clear()
        self._target.delete([self._prefix + file.name for file in self._files])
        self._files.clear()

    def _create(self, rows: pa.RecordBatch, unit: int | None) -> _OpenFile:
        while len(self._open) >= OPEN_FILES:
            self._close_oldest()
        partition, start, stop, token = self._split
        topic = rows.column("topic")[0].as_py()
        name = self._options.directory(topic, partition, unit) + file_name(partition, start, stop, token, self._made)
        self._made += 1
        return _OpenFile(name, self._target.create(self._prefix + name), self._options)

    def _close_oldest(self) -> None:
        oldest = next(iter(self._open))
        self._files.append(self._open.pop(oldest).finish())


@dataclass(slots=True)
class _OpenFile:
    """A file that is being written, and the records that wait for their row group."""

    name: str
    block: AbstractContextManager[BinaryIO]
    options: OutputOptions
    pending_bytes: int = 0
    rows: int = 0
    first_offset: int | None = None
    last_offset: int = -1
    _pending: list[pa.RecordBatch] = field(default_factory=list)
    _sink: _Sink = field(init=False)
    _writer: Any = field(init=False)

    def __post_init__(self) -> None:
        self._sink = _Sink(self.block.__enter__())
        codec, schema = self.options.codec, self.options.schema
        decoded = [leaf for field in schema if field.name in _DECODED for leaf in _leaves(field.type, field.name)]
        self._writer = pq.ParquetWriter(
            self._sink,
            schema,
            compression=codec,
            compression_level=_LEVELS.get(codec),
            use_dictionary=[*_DICTIONARY, *(path for path, kind in decoded if pa.types.is_string(kind))],
            column_encoding=_ENCODINGS,
            write_statistics=[*_STATISTICS, *(path for path, _ in decoded)],
        )

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return self._sink.size

    def take(self, rows: pa.RecordBatch) -> None:
        offsets = rows.column("offset")
        if self.first_offset is None:
            self.first_offset = offsets[0].as_py()
        self.last_offset = offsets[len(offsets) - 1].as_py()
        self.rows += rows.num_rows
        self._pending.append(rows)
        self.pending_bytes += rows.nbytes

    def flush(self) -> None:
        """Write what waits as one row group."""
        if self._pending:
            table = pa.Table.from_batches(self._pending).select(self.options.schema.names)
            self._pending.clear()
            self.pending_bytes = 0
            self._writer.write_table(table, row_group_size=table.num_rows)

    def finish(self) -> WrittenFile:
        try:
            self.flush()
            self._writer.close()
        except BaseException:
            self.abandon()
            raise
        self.block.__exit__(None, None, None)
        return WrittenFile(self.name, self._sink.size, self.rows, self.first_offset or 0, self.last_offset)

    def abandon(self) -> None:
        """End the block as one that failed: then no object is made."""
        self._pending.clear()
        self._sink.discard()
        with suppress(Exception):
            self._writer.close()
        reason = _AbandonedError()
        with suppress(_AbandonedError):
            self.block.__exit__(_AbandonedError, reason, None)


def _leaves(kind: pa.DataType, path: str) -> Iterator[tuple[str, pa.DataType]]:
    """The columns of Parquet below a decoded key or value; none of one that is as it was written."""
    if pa.types.is_struct(kind):
        for field in kind:
            yield from _leaves(field.type, f"{path}.{field.name}")
    elif pa.types.is_map(kind):
        yield from _leaves(kind.key_type, f"{path}.key_value.key")
        yield from _leaves(kind.item_type, f"{path}.key_value.value")
    elif pa.types.is_list(kind):
        yield from _leaves(kind.value_type, f"{path}.list.element")
    elif not pa.types.is_binary(kind) or "." in path:
        yield path, kind


class _AbandonedError(Exception):
    """Ends the block of a file that is not wanted."""


class _Sink:
    """A file that counts its bytes and is closed only by its block."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.size = 0
        self.closed = False
        self._is_discarded = False

    def discard(self) -> None:
        """Take no more bytes: Arrow ends its file even if it is not wanted."""
        self._is_discarded = True

    def write(self, data: Any) -> int:
        view = memoryview(data)
        if not self._is_discarded:
            self._file.write(view)
        self.size += view.nbytes
        return view.nbytes

    def tell(self) -> int:
        return self.size

    def flush(self) -> None:
        """The block does that."""

    def close(self) -> None:
        self.closed = True

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False


def _by_time(batch: pa.RecordBatch, unit_us: int | None) -> Iterator[tuple[int | None, pa.RecordBatch]]:
    """The records by the unit of time they belong to, counted from 1970."""
    if unit_us is None:
        yield None, batch
        return
    units = _floor_divided(batch.column("timestamp").view(pa.int64()), unit_us)
    ends = pc.min_max(units)
    if ends["min"].as_py() == ends["max"].as_py():
        yield ends["min"].as_py(), batch
        return
    for unit in pc.unique(units).to_pylist():
        yield unit, batch.filter(pc.equal(units, unit))


def _floor_divided(values: pa.Array, by: int) -> pa.Array:
    """Whole units at or below; Arrow's own division goes towards zero."""
    towards_zero = pc.divide(values, by)
    is_above = pc.less(values, pc.multiply(towards_zero, by))
    return pc.subtract(towards_zero, pc.cast(is_above, pa.int64()))
