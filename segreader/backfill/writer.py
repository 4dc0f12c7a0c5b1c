"""The records of one split as Parquet files of a target: row groups by size, files by size and by what they share."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import field, replace
from decimal import Decimal
from typing import Any, BinaryIO, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from segreader.backfill.output import OutputOptions, PartitionField, file_name
from segreader.errors import OptionError, install_hint
from segreader.storage.target.store import TargetStore
from segreader.values import dataclass

OPEN_FILES: Final = 32
"""Files of one split that are open at a time; the one that was written to least recently is closed."""

WAITING: Final = 1024
"""Values of a split's partition fields whose records wait at a time."""

Values = tuple[int | str | None, ...]
"""What all records of a file have in common: one value for each field of ``OutputOptions.split_by``."""

Bound = int | float | str | bool
"""A bound of a column, as ``ColumnFacts`` has it."""

_UNIT_US: Final = {"day": 86_400_000_000, "hour": 3_600_000_000}
_PIECE_BYTES: Final = 2048
"""What a record batch takes beside its columns' bytes, counted where one is cut into pieces."""

_FEW: Final = 8
_SMALLEST: Final = 0.6
"""Of what a file aims at: no file is closed early if less than this would be left for the next."""

_FULL: Final = 0.9
_BOUND_LENGTH: Final = 32
_LAST_CHARACTER: Final = 0x10FFFF
_SURROGATES: Final = range(0xD800, 0xE000)

_DICTIONARY: Final = ("topic", "partition", "timestampType")
_ENCODINGS: Final = {"offset": "DELTA_BINARY_PACKED", "timestamp": "DELTA_BINARY_PACKED"}
"""They rise by little: packed, zstd has a tenth less to do where records are small. Spark reads it since 3.3."""
_STATISTICS: Final = ("topic", "partition", "offset", "timestamp")
_DECODED: Final = ("key", "value")
_LEVELS: Final = {"zstd": 1}
_JOINED_GROUP_BYTES: Final = 64 << 20


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

    After each row group the whole is estimated, by the offsets that are done and the bytes that they took, and divided
    into even files: a split of 1.2 times what a file aims at is one file, and one of 1.6 times is two. Where fields
    part the records, that is done for each of their values; a day or an hour is taken to end when its time is over,
    at the rate at which the times of its records go on.

    Args:
        token: 12 hexadecimal digits that only this attempt has.
        partition, start, stop: those of the split.
    """

    def __init__(
        self, target: TargetStore, options: OutputOptions, *, partition: int, start: int, stop: int, token: str
    ) -> None:
        self._target, self._options = target, options
        self._split = (partition, start, stop, token)
        self._prefix = options.staging(target.has_atomic_move)
        self._fields = options.split_by
        self._time = next((at for at, one in enumerate(self._fields) if one.transform in _UNIT_US), None)
        self._form = _Form(options)
        self._groups: dict[Values, _Group] = {}  # in the order of last use
        self._files: list[WrittenFile] = []
        self._pending_bytes = 0
        self._made = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Take records of one topic and partition.

        Raises:
            OptionError: keys are of a type that has no buckets.
        """
        if not batch.num_rows:
            return
        for values, rows in parted(batch, self._fields):
            group = self._groups.pop(values, None) or self._new_group(values, rows)
            self._groups[values] = group
            group.take(rows)
            self._pending_bytes += _bytes_of(rows)
            while group.pending_bytes >= (wanted := self._wanted(group)):
                self._flush(group, wanted)
            while self._pending_bytes >= self._options.row_group_bytes:
                self._flush(max(self._groups.values(), key=lambda one: one.pending_bytes))

    def finish(self) -> tuple[WrittenFile, ...]:
        """Close open files, and return all files by name."""
        for group in self._groups.values():
            self._close(group)
        self._groups.clear()
        return tuple(sorted(self._files, key=lambda file: file.name))

    def discard(self) -> None:
        """Remove all files, open and closed."""
        for group in self._groups.values():
            if group.file is not None:
                group.file.abandon()
        self._groups.clear()
        self._pending_bytes = 0
        self._target.delete([self._prefix + file.name for file in self._files])
        self._files.clear()

    def _new_group(self, values: Values, rows: pa.RecordBatch) -> _Group:
        if len(self._groups) >= WAITING:
            oldest = next(iter(self._groups))
            self._close(self._groups.pop(oldest))
        return _Group(values, rows.column("topic")[0].as_py())

    def _share(self, group: _Group) -> tuple[float, float]:
        """Bytes that the open file should have, and those that the group has from its beginning on, as estimated."""
        aim = self._options.file_bytes
        if not group.stored:
            return aim, math.inf
        left = group.stored - group.closed + self._ahead(group)
        files = max(1, round(left / aim))
        return (left / files, left) if files > 1 else (math.inf, left)

    def _ahead(self, group: _Group) -> float:
        """Bytes that what is to come of a group will take, at the rate of what was."""
        _, _, stop, _ = self._split
        ahead = (stop - group.stop) * group.stored / (group.stop - group.start)
        if self._time is not None and (passed := group.last_us - group.first_us) > 0:
            unit_us = _UNIT_US[self._fields[self._time].transform]
            end_us = (int(group.values[self._time] or 0) + 1) * unit_us
            ahead = min(ahead, (end_us - group.last_us) * group.stored / passed)
        return max(0.0, ahead)

    def _wanted(self, group: _Group) -> float:
        """Bytes of columns that the next row group should have: the row groups of a file are even, too."""
        most = self._options.row_group_bytes
        share, left = self._share(group)
        stop = min(left, share) if group.size < share else left
        if not group.stored:
            return max(min(most, stop), most / 8)
        rest = (stop - group.size) * group.taken / group.stored
        count = max(1, math.ceil(rest / most))
        if stop == left and count == 1:
            return most  # the last one ends by itself
        return max(min(most, rest / count), most / 8)

    def _flush(self, group: _Group, most: float = math.inf) -> None:
        """Write what waits as a row group, or these bytes of it; close the file if it has its share."""
        self._add_row_group(group, most)
        share, left = self._share(group)
        if group.size >= _FULL * share and left - group.size >= _SMALLEST * self._options.file_bytes:
            self._close_file(group)

    def _add_row_group(self, group: _Group, most: float) -> None:
        before = group.pending_bytes
        rows = group.pop(most)
        self._pending_bytes -= before - group.pending_bytes
        if group.file is None:
            group.file = self._create(group)
        group.file.write(rows)
        group.stored = group.closed + group.size

    def _create(self, group: _Group) -> _OpenFile:
        opened = [one for one in self._groups.values() if one.file is not None]
        if len(opened) >= OPEN_FILES:
            self._close(opened[0])
        partition, start, stop, token = self._split
        directory = self._options.directory(group.topic, partition, group.values)
        name = directory + file_name(partition, start, stop, token, self._made)
        self._made += 1
        return _OpenFile(name, group.values, self._target.create(self._prefix + name), self._form)

    def _close(self, group: _Group) -> None:
        """Write all that waits, and close the file."""
        if group.pending_bytes:
            self._add_row_group(group, math.inf)
        if group.file is not None:
            self._close_file(group)

    def _close_file(self, group: _Group) -> None:
        assert group.file is not None
        file, group.file = group.file, None
        self._files.append(file.finish())
        group.closed += self._files[-1].size
        group.stored = group.closed


@dataclass(slots=True)
class _Group:
    """The records of a split that have the same values: those that wait for their row group, and their open file.

    Args:
        taken: bytes of columns in row groups.
        stored: bytes that these take in files.
        closed: those of files that are closed.
        start, stop: the offsets in row groups.
        first_us, last_us: the times of these.
    """

    values: Values
    topic: str
    file: _OpenFile | None = None
    pending_bytes: int = 0
    taken: int = 0
    stored: int = 0
    closed: int = 0
    start: int = -1
    stop: int = -1
    first_us: float = math.inf
    last_us: float = -math.inf
    _pending: list[pa.RecordBatch] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Bytes of the open file so far."""
        return self.file.size if self.file is not None else 0

    def take(self, rows: pa.RecordBatch) -> None:
        self._pending.append(rows)
        self.pending_bytes += _bytes_of(rows)

    def pop(self, most: float) -> list[pa.RecordBatch]:
        """The records that waited longest, about these bytes of them; one at least."""
        rows, self._pending = self._pending, []
        size, self.pending_bytes = self.pending_bytes, 0
        over = size - most
        if over > most / 8 and (last := rows[-1]).num_rows > 1:
            kept = min(last.num_rows - 1, math.ceil(last.num_rows * over / _bytes_of(last)))
            self.take(last.slice(last.num_rows - kept))
            rows[-1] = last.slice(0, last.num_rows - kept)
            size -= self.pending_bytes
        self.taken += size
        if self.start < 0:
            self.start = rows[0].column("offset")[0].as_py()
        self.stop = rows[-1].column("offset")[-1].as_py() + 1
        for one in rows:
            ends = pc.min_max(one.column("timestamp").view(pa.int64()))
            self.first_us = min(self.first_us, ends["min"].as_py())
            self.last_us = max(self.last_us, ends["max"].as_py())
        return rows


class _Form:
    """How the files of an output are written, and which columns of Parquet they have; the same for all of them."""

    def __init__(self, options: OutputOptions) -> None:
        self.schema = options.schema
        self.is_table = bool(options.table)
        self.leaves = [leaf for one in self.schema for leaf in _leaves(one.type, one.name, one.name)]
        decoded = [
            leaf
            for leaf in self.leaves
            if leaf.path.partition(".")[0] in _DECODED
            and (leaf.path not in _DECODED or not pa.types.is_binary(leaf.kind))
        ]
        keys = ["key"] if self.is_table else []
        self.arguments = {
            "compression": options.codec,
            "compression_level": _LEVELS.get(options.codec),
            "use_dictionary": [
                *_DICTIONARY,
                *(leaf.parquet_path for leaf in decoded if pa.types.is_string(leaf.kind)),
            ],
            "column_encoding": _ENCODINGS,
            "write_statistics": list(dict.fromkeys([*_STATISTICS, *keys, *(leaf.parquet_path for leaf in decoded)])),
        }


def write_joined(file: Any, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> pq.FileMetaData:
    """Write the records of several files of a table as one file, in the form that ``SplitWriter`` gives them.

    Args:
        file: what takes the bytes.
        schema: of the file; the records are cast to it.

    Returns:
        The footer.
    """
    leaves = [leaf for one in schema for leaf in _leaves(one.type, one.name, one.name) if one.name != "headers"]
    texts = [leaf.parquet_path for leaf in leaves if pa.types.is_string(leaf.kind)]
    plain = [leaf for leaf in leaves if not pa.types.is_binary(leaf.kind) or leaf.path == "key" or "." in leaf.path]
    footers: list[pq.FileMetaData] = []
    writer = pq.ParquetWriter(
        file,
        schema,
        compression="zstd",
        compression_level=_LEVELS["zstd"],
        use_dictionary=list(dict.fromkeys([*_DICTIONARY, *texts])),
        column_encoding={name: encoding for name, encoding in _ENCODINGS.items() if name in schema.names},
        write_statistics=[leaf.parquet_path for leaf in plain],
        metadata_collector=footers,
    )
    with writer:
        pending: list[pa.RecordBatch] = []
        size = 0
        for batch in batches:
            pending.append(batch)
            size += batch.nbytes
            if size >= _JOINED_GROUP_BYTES:
                _write_group(writer, pending, schema)
                pending, size = [], 0
        _write_group(writer, pending, schema)
    return footers[0]


def _write_group(writer: pq.ParquetWriter, batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> None:
    if batches:
        rows = pa.Table.from_batches(batches).cast(schema)
        writer.write_table(rows, row_group_size=rows.num_rows)


@dataclass(slots=True)
class _OpenFile:
    """A file that is being written."""

    name: str
    values: Values
    block: AbstractContextManager[BinaryIO]
    form: _Form
    rows: int = 0
    first_offset: int | None = None
    last_offset: int = -1
    _sink: _Sink = field(init=False)
    _writer: Any = field(init=False)
    _footers: list[pq.FileMetaData] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._sink = _Sink(self.block.__enter__())
        self._writer = pq.ParquetWriter(
            self._sink, self.form.schema, metadata_collector=self._footers, **self.form.arguments
        )

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return self._sink.size

    def write(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Add a row group."""
        if self.first_offset is None:
            self.first_offset = batches[0].column("offset")[0].as_py()
        self.last_offset = batches[-1].column("offset")[-1].as_py()
        table = pa.Table.from_batches(batches).select(self.form.schema.names)
        self.rows += table.num_rows
        self._writer.write_table(table, row_group_size=table.num_rows)

    def finish(self) -> WrittenFile:
        try:
            self._writer.close()
        except BaseException:
            self.abandon()
            raise
        self.block.__exit__(None, None, None)
        file = WrittenFile(self.name, self._sink.size, self.rows, self.first_offset or 0, self.last_offset)
        if not self.form.is_table:
            return file
        (footer,) = self._footers
        return replace(
            file, partition=self.values, columns=_facts(footer, self.form.leaves), row_groups=_starts(footer)
        )

    def abandon(self) -> None:
        """End the block as one that failed: then no object is made."""
        self._sink.discard()
        with suppress(Exception):
            self._writer.close()
        reason = _AbandonedError()
        with suppress(_AbandonedError):
            self.block.__exit__(_AbandonedError, reason, None)


# Columns of Parquet


@dataclass(frozen=True, slots=True)
class _Leaf:
    """One column of Parquet.

    Args:
        path: in the schema of Arrow, as ``ColumnFacts`` has it.
        parquet_path: in that of Parquet.
        is_repeated: below a list or a map.
    """

    path: str
    parquet_path: str
    kind: pa.DataType
    is_repeated: bool


def _leaves(kind: pa.DataType, path: str, parquet_path: str, is_repeated: bool = False) -> Iterator[_Leaf]:
    """The columns of Parquet of a field, in their order."""
    if pa.types.is_struct(kind):
        for one in kind:
            yield from _leaves(one.type, f"{path}.{one.name}", f"{parquet_path}.{one.name}", is_repeated)
    elif pa.types.is_map(kind):
        yield from _leaves(kind.key_type, f"{path}.key", f"{parquet_path}.key_value.key", True)
        yield from _leaves(kind.item_type, f"{path}.value", f"{parquet_path}.key_value.value", True)
    elif pa.types.is_list(kind):
        yield from _leaves(kind.value_type, f"{path}.element", f"{parquet_path}.list.element", True)
    else:
        yield _Leaf(path, parquet_path, kind, is_repeated)


def _facts(footer: pq.FileMetaData, leaves: Sequence[_Leaf]) -> tuple[ColumnFacts, ...]:
    """What a footer says of the columns of its file."""
    groups = [footer.row_group(at) for at in range(footer.num_row_groups)]
    return tuple(_fact(leaf, [group.column(at) for group in groups]) for at, leaf in enumerate(leaves))


def _fact(leaf: _Leaf, chunks: Sequence[Any]) -> ColumnFacts:
    size, values = sum(one.total_compressed_size for one in chunks), sum(one.num_values for one in chunks)
    found: list[Any] = [one.statistics for one in chunks if one.is_stats_set]
    if len(found) < len(chunks) or not all(one.has_null_count for one in found):
        return ColumnFacts(leaf.path, size, values)
    nulls = sum(one.null_count for one in found)
    some = [one for one, chunk in zip(found, chunks, strict=True) if one.null_count < chunk.num_values]
    # bounds of a list are of its elements, and those of floating-point numbers do not tell of NaN
    if leaf.is_repeated or pa.types.is_floating(leaf.kind) or not some or not all(one.has_min_max for one in some):
        return ColumnFacts(leaf.path, size, values, nulls)
    lower, upper = (
        _bound(leaf.kind, min(_comparable(leaf.kind, one.min_raw) for one in some), is_upper=False),
        _bound(leaf.kind, max(_comparable(leaf.kind, one.max_raw) for one in some), is_upper=True),
    )
    return ColumnFacts(leaf.path, size, values, nulls, lower, upper)


def _starts(footer: pq.FileMetaData) -> tuple[int, ...]:
    """Positions of the row groups in their file."""
    columns = [footer.row_group(at).column(0) for at in range(footer.num_row_groups)]
    return tuple(one.dictionary_page_offset or one.data_page_offset for one in columns)


def _comparable(kind: pa.DataType, raw: Any) -> Any:
    """A bound as the footer has it, such that smaller ones are smaller: decimals are numbers."""
    if pa.types.is_decimal(kind) and isinstance(raw, bytes):
        return int.from_bytes(raw, "big", signed=True)
    return raw


def _bound(kind: pa.DataType, value: Any, *, is_upper: bool) -> Bound | None:
    """A bound as ``ColumnFacts`` has it; ``None`` where there is none that is short enough."""
    if pa.types.is_decimal(kind):
        digits = tuple(int(digit) for digit in str(abs(value)))
        return f"{Decimal((int(value < 0), digits, -kind.scale)):f}"
    if not isinstance(value, bytes):
        found: int | float | bool = value
        return found
    if not pa.types.is_string(kind):
        data: bytes | None = value[:_BOUND_LENGTH]
        if is_upper and len(value) > _BOUND_LENGTH:
            data = _bytes_above(value[:_BOUND_LENGTH])
        return None if data is None else data.hex()
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    return _text_above(text[:_BOUND_LENGTH]) if is_upper and len(text) > _BOUND_LENGTH else text[:_BOUND_LENGTH]


def _bytes_above(data: bytes) -> bytes | None:
    """The shortest bytes above all that begin with these."""
    data = data.rstrip(b"\xff")
    return data[:-1] + bytes([data[-1] + 1]) if data else None


def _text_above(text: str) -> str | None:
    """The shortest text above all that begin with this one, in the order of UTF-8."""
    text = text.rstrip(chr(_LAST_CHARACTER))
    if not text:
        return None
    following = ord(text[-1]) + 1
    return text[:-1] + chr(_SURROGATES.stop if following in _SURROGATES else following)


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


# Values of partition fields


def parted(batch: pa.RecordBatch, fields: Sequence[PartitionField]) -> Iterator[tuple[Values, pa.RecordBatch]]:
    """The records by the values of these fields, each part in its order and with memory of its own.

    Args:
        batch: of one topic and partition, and not empty.

    Raises:
        OptionError: keys are of a type that has no buckets.
    """
    columns = [_values_of(batch, one) for one in fields]
    coded = [pc.dictionary_encode(one, null_encoding="encode") for one in columns if isinstance(one, pa.Array)]
    if not coded:
        yield tuple(columns), batch
        return
    codes, count = pa.repeat(pa.scalar(0, pa.int64()), batch.num_rows), 1
    for one in coded:
        codes = pc.add(codes, pc.multiply(pc.cast(one.indices, pa.int64()), count))
        count *= len(one.dictionary)
    dictionaries = [one.dictionary.to_pylist() for one in coded]
    for code, rows in _by_code(batch, codes):
        left, found = code, []
        for dictionary in dictionaries:
            left, index = divmod(left, len(dictionary))
            found.append(dictionary[index])
        varying = iter(found)
        yield tuple(next(varying) if isinstance(one, pa.Array) else one for one in columns), rows


def _by_code(batch: pa.RecordBatch, codes: pa.Array) -> Iterator[tuple[int, pa.RecordBatch]]:
    counts = {one["values"]: one["counts"] for one in pc.value_counts(codes).to_pylist()}
    if len(counts) == 1:
        yield next(iter(counts)), batch
    elif len(counts) <= _FEW:
        for code in counts:
            yield code, batch.filter(pc.equal(codes, code))
    else:
        order, at = pc.array_sort_indices(codes), 0  # it is stable
        for code, count in sorted(counts.items()):
            yield code, batch.take(order.slice(at, count))
            at += count


def _values_of(batch: pa.RecordBatch, one: PartitionField) -> pa.Array | int | str:
    """The values of a field, or the one that all records have."""
    column = batch.column(one.column)
    if one.transform == "identity":
        value: int | str = column[0].as_py()
        return value
    if one.transform == "bucket":
        return _buckets(column, one.buckets)
    units = _floor_divided(column.view(pa.int64()), _UNIT_US[one.transform])
    ends = pc.min_max(units)
    first: int = ends["min"].as_py()
    return first if first == ends["max"].as_py() else units


def _buckets(keys: pa.Array, count: int) -> pa.Array:
    """Iceberg's bucket of each key; null where there is none."""
    try:
        from pyiceberg_core.transform import bucket
    except ImportError as error:
        raise OptionError(
            "buckets of keys need pyiceberg_core", hint=f"On each worker: {install_hint('iceberg')}"
        ) from error
    try:
        return bucket(keys, count)
    except ValueError as error:
        raise OptionError(
            "keys of this type have no buckets",
            found=str(keys.type),
            expected="bytes, text, whole numbers, decimals, times or dates",
            hint="Leave bucket(…) out, or leave the keys as bytes",
        ) from error


def _floor_divided(values: pa.Array, by: int) -> pa.Array:
    """Whole units at or below; Arrow's own division goes towards zero."""
    towards_zero = pc.divide(values, by)
    is_above = pc.less(values, pc.multiply(towards_zero, by))
    return pc.subtract(towards_zero, pc.cast(is_above, pa.int64()))


def _bytes_of(rows: pa.RecordBatch) -> int:
    size: int = rows.nbytes
    return size + _PIECE_BYTES
