"""Record batches as JSON, CSV, tables, Parquet or Arrow: what ``segreader cat`` and ``segreader sql`` print.

What a row looks like as text is given by ``RecordTexts``, for records, or ``ValueTexts``, for rows of any columns.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import IO, Any, Protocol

import pyarrow as pa

from segreader.cli.output import JSON_ENDS, json_line, json_rows, printable, shown_time, stdout
from segreader.cli.sql_values import exact_encoder, is_json, iso_duration, iso_interval, json_text
from segreader.cli.table import Cell, Fit, Screen, StreamedTable, TableColumn, bytes_cell, fixed, number, text_cell
from segreader.format.batch import TimestampType
from segreader.format.rows import ENCODINGS, csv_bytes, csv_cell, iter_rows, load_row_maker
from segreader.read.records import python_values, row_columns, split_typed

CSV_FIELDS = (
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestamp_type",
    "leader_epoch",
    "key",
    "key_encoding",
    "value",
    "value_encoding",
    "headers",
)
_ROW_GROUP_BYTES = 64 << 20
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

WriteBatch = Callable[[pa.RecordBatch], None]


class RowTexts(Protocol):
    """How the rows of a batch become text."""

    def json(self, batch: pa.RecordBatch, end: bytes) -> Iterator[bytes]:
        """Each row as a JSON object with ``end`` behind it, some rows at a time."""

    @property
    def csv_head(self) -> str:
        """The first line of a CSV file, without its end."""

    def csv(self, batch: pa.RecordBatch) -> Iterator[bytes]:
        """Each row as a line of CSV, some rows at a time."""

    @property
    def columns(self) -> Sequence[TableColumn]:
        """The head of a table."""

    def cells(self, batch: pa.RecordBatch, longest: int | None) -> Iterator[list[Cell]]:
        """Each row of a table; of a cell only so many characters can be of use."""


def row_writer(form: str, file: IO[bytes], schema: pa.Schema, texts: RowTexts) -> AbstractContextManager[WriteBatch]:
    """What writes batches of a schema in a format; ``parquet`` and ``arrow`` keep bytes as bytes."""
    match form:
        case "parquet":
            return _parquet_file(file, schema)
        case "arrow":
            return _arrow_stream(file, schema)
        case "table":
            return nullcontext(_table(file, texts))
        case "csv":
            return nullcontext(_csv(file, texts))
    return _json(form, file, texts)


@contextmanager
def opened(path: str | None) -> Iterator[IO[bytes]]:
    """The file to write to; stdout, if none is named."""
    if path is None:
        yield stdout()
        return
    with open(path, "wb") as file:
        yield file


@contextmanager
def _json(form: str, file: IO[bytes], texts: RowTexts) -> Iterator[WriteBatch]:
    with json_rows(file, form) as write_rows:

        def write(batch: pa.RecordBatch) -> None:
            for rows in texts.json(batch, JSON_ENDS[form]):
                write_rows(rows)

        yield write


def _csv(file: IO[bytes], texts: RowTexts) -> WriteBatch:
    file.write(f"{texts.csv_head}\n".encode())

    def write(batch: pa.RecordBatch) -> None:
        for rows in texts.csv(batch):
            file.write(rows)

    return write


def _table(file: IO[bytes], texts: RowTexts) -> WriteBatch:
    text = io.TextIOWrapper(file, "utf-8", write_through=True) if file is not stdout() else None
    table = StreamedTable(texts.columns, Screen.of(text))

    def write(batch: pa.RecordBatch) -> None:
        table.add(texts.cells(batch, table.longest))

    return write


@contextmanager
def _arrow_stream(file: IO[bytes], schema: pa.Schema) -> Iterator[WriteBatch]:
    """An Arrow IPC stream. It is ended properly even when an error ends the records."""
    with pa.ipc.new_stream(pa.PythonFile(_Counted(file), "w"), schema) as writer:
        yield writer.write_batch


@contextmanager
def _parquet_file(file: IO[bytes], schema: pa.Schema) -> Iterator[WriteBatch]:
    """A Parquet file, zstd, in row groups of about 64 MiB. It is ended properly even when an error ends the records."""
    import pyarrow.parquet as pq

    held: list[pa.RecordBatch] = []
    size = 0
    with pq.ParquetWriter(pa.PythonFile(_Counted(file), "w"), schema, compression="zstd") as writer:

        def flush() -> None:
            nonlocal size
            if held:
                writer.write_table(pa.Table.from_batches(held, schema))
            held.clear()
            size = 0

        def write(batch: pa.RecordBatch) -> None:
            nonlocal size
            held.append(batch)
            size += batch.nbytes
            if size >= _ROW_GROUP_BYTES:
                flush()

        try:
            yield write
        finally:
            flush()


class _Counted(io.RawIOBase):
    """A file that knows its position although it may be a pipe."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._position = file, 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._file.write(data)
        self._position += len(data)
        return len(data)

    def tell(self) -> int:
        return self._position

    def flush(self) -> None:
        self._file.flush()


class RecordTexts:
    """Rows of ``RECORD_COLUMNS`` as text. With ``auto``, base64 is named in a field beside the bytes.

    Args:
        key_encoding, value_encoding: how bytes become text, names of ``ENCODINGS``; with ``auto`` a table has those
            that are no text in hexadecimal.
    """

    columns = (
        fixed("partition"),
        number("offset"),
        fixed("timestamp"),
        TableColumn("key"),
        TableColumn("value"),
        TableColumn("headers"),
    )
    csv_head = ",".join(CSV_FIELDS)

    def __init__(self, key_encoding: str, value_encoding: str) -> None:
        self._encodings = key_encoding, value_encoding
        self._rows = load_row_maker()

    def json(self, batch: pa.RecordBatch, end: bytes) -> Iterator[bytes]:
        return self._rows.json_rows(row_columns(batch), *self._encodings, end)

    def csv(self, batch: pa.RecordBatch) -> Iterator[bytes]:
        return self._rows.csv_rows(row_columns(batch), *self._encodings)

    def cells(self, batch: pa.RecordBatch, longest: int | None) -> Iterator[list[Cell]]:
        of_key, of_value = self._encodings
        for topic, partition, offset, time_ms, _, _, key, value, headers in iter_rows(row_columns(batch)):
            shown = bytes_cell(key, of_key, longest), bytes_cell(value, of_value, longest)
            named = _header_cell(((name, bytes_cell(data, of_value, longest)) for name, data in headers), longest)
            yield [f"{topic}-{partition}", str(offset), shown_time(time_ms), *shown, named]


def _header_cell(headers: Iterable[tuple[str, Cell]], longest: int | None) -> Cell:
    """Headers as one cell: ``name=value, name=value``."""
    texts = (f"{printable(name, longest)}={cell if isinstance(cell, str) else cell.text}" for name, cell in headers)
    return ", ".join(texts)


class TypedRecordTexts:
    """Rows of ``RECORD_COLUMNS`` whose keys, values or both are typed: as ``RecordTexts``, with these as JSON.

    Args:
        schema: of the rows. ``value_raw``, ``value_error`` and those of keys may be in it.
        key_encoding, value_encoding: of bytes, as there.
    """

    columns = RecordTexts.columns

    def __init__(self, schema: pa.Schema, key_encoding: str, value_encoding: str) -> None:
        self._kept = [name for name in schema.names if name.endswith(("_raw", "_error"))]
        self._shapes = {field.name: _shape(field) for field in schema}
        self._encodings = {"key": key_encoding, "value": value_encoding}
        self._encode = {"key": ENCODINGS[key_encoding], "value": ENCODINGS[value_encoding]}
        self._is_auto = {"key": key_encoding == "auto", "value": value_encoding == "auto"}

    def json(self, batch: pa.RecordBatch, end: bytes) -> Iterator[bytes]:
        lines = []
        for row in self._rows(batch):
            shown: dict[str, Any] = {}
            notes = {}
            for name, value in row.items():
                if value is None and name in self._kept:
                    continue
                if isinstance(value, bytes):
                    side = name.partition("_")[0]
                    shown[name], used = self._encode[side](value)
                    if self._is_auto[side] and used == "base64":
                        notes[f"{name}_encoding"] = used
                else:
                    shown[name] = value
            lines.append(json_line(shown | notes).encode())
        if lines:
            yield end.join(lines) + end

    @property
    def csv_head(self) -> str:
        return ",".join((*CSV_FIELDS, *self._kept))

    def csv(self, batch: pa.RecordBatch) -> Iterator[bytes]:
        lines = []
        for row in self._rows(batch):
            cells = []
            for name in (*CSV_FIELDS, *self._kept):
                side = name.partition("_")[0]
                if name.endswith("_encoding"):
                    value = row[side]
                    cells.append(self._encode[side](value)[1] if isinstance(value, bytes) else "")
                elif isinstance(row[name], bytes):
                    cells.append(csv_bytes(row[name], self._encode[side])[0])
                elif row[name] is None:
                    cells.append("")
                else:
                    cells.append(csv_cell(row[name] if isinstance(row[name], str) else json_line(row[name])))
            lines.append(",".join(cells) + "\n")
        yield "".join(lines).encode()

    def cells(self, batch: pa.RecordBatch, longest: int | None) -> Iterator[list[Cell]]:
        for row in self._rows(batch):
            named = _header_cell(((one["key"], text_cell(one["value"], longest)) for one in row["headers"]), longest)
            shown = [self._cell(side, row[side], longest) for side in ("key", "value")]
            yield [
                f"{row['topic']}-{row['partition']}",
                str(row["offset"]),
                shown_time(row["timestamp"]),
                *shown,
                named,
            ]

    def _cell(self, side: str, value: Any, longest: int | None) -> Cell:
        if value is None or isinstance(value, bytes):
            return bytes_cell(value, self._encodings[side], longest)
        return text_cell(value, longest) if isinstance(value, str) else printable(json_line(value), longest)

    def _rows(self, batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
        """Each row as it is shown in JSON, but for bytes of keys and values."""
        plain, typed = split_typed(batch)
        values = {side: python_values(column) for side, column in typed.items()}
        kept = {name: batch.column(name).to_pylist() for name in self._kept}
        for at, row in enumerate(iter_rows(row_columns(plain))):
            topic, partition, offset, time_ms, kind, epoch, key, value, headers = row
            shown = {"topic": topic, "partition": partition, "offset": offset, "timestamp": time_ms}
            shown |= {"timestamp_type": _TYPE_NAMES[kind], "leader_epoch": epoch, "key": key, "value": value}
            for side, some in values.items():
                found = self._shapes[side](some[at])
                shown[side] = found if isinstance(found, bytes) else _plain(found, self._encodings[side])
            shown["headers"] = [self._header(name, data) for name, data in headers]
            yield shown | {name: some[at] for name, some in kept.items()}

    def _header(self, name: str, data: bytes | None) -> dict[str, Any]:
        if data is None:
            return {"key": name, "value": None}
        text, used = self._encode["value"](data)
        note = {"value_encoding": used} if self._is_auto["value"] and used == "base64" else {}
        return {"key": name, "value": text, **note}


def _same(value: Any) -> Any:
    return value


class _Map(dict[str, Any]):
    """What is a map in Arrow: its names are data, where those of a struct are the schema's."""


def _shape(field: pa.Field) -> Callable[[Any], Any]:
    """What makes objects of the maps in a value, where their keys are text, and JSON of texts that are marked so."""
    kind = field.type
    if is_json(field):
        return json_text
    if pa.types.is_struct(kind):
        inner = {kind.field(at).name: _shape(kind.field(at)) for at in range(kind.num_fields)}
        if all(one is _same for one in inner.values()):
            return _same
        return lambda value: value and {name: shape(value[name]) for name, shape in inner.items()}
    if pa.types.is_list(kind):
        item = _shape(kind.value_field)
        return _same if item is _same else lambda value: value and [item(one) for one in value]
    if pa.types.is_map(kind):
        item = _shape(kind.item_field)
        if pa.types.is_string(kind.key_type):
            return lambda value: value if value is None else _Map({name: item(one) for name, one in value})
        return lambda value: value and [[key, item(one)] for key, one in value]
    return _same


class ValueTexts:
    """Rows of any columns as text. With ``auto``, base64 is named in a field beside the bytes, as for records, and as
    there ``timestamp_type`` has names.

    Args:
        schema: of the rows; texts that are JSON have Arrow's mark of it.
        encoding: how bytes become text, a name of ``ENCODINGS``.
    """

    def __init__(self, schema: pa.Schema, encoding: str) -> None:
        self._schema, self._encode, self._is_auto = schema, ENCODINGS[encoding], encoding == "auto"
        self._encoding = encoding
        self._shapes, self._line = [_shape(field) for field in schema], exact_encoder()
        self.columns = [
            TableColumn(field.name, Fit.FIXED if _has_names(field) else _fit(field.type)) for field in schema
        ]

    def json(self, batch: pa.RecordBatch, end: bytes) -> Iterator[bytes]:
        lines = []
        for values in self._rows(batch):
            row: dict[str, Any] = {}
            for name, shape, found in zip(batch.schema.names, self._shapes, values, strict=True):
                _put(row, name, shape(found), self._encoding, is_exact=True)
            lines.append(self._line(row))
        if lines:
            yield end.join(lines) + end

    @property
    def csv_head(self) -> str:
        """With ``auto``, each column of bytes has one beside it that names the encoding."""
        names = []
        for field in self._schema:
            names += [field.name] + [f"{field.name}_encoding"] * (self._is_auto and _is_bytes(field.type))
        return ",".join(csv_cell(name) for name in names)

    def csv(self, batch: pa.RecordBatch) -> Iterator[bytes]:
        lines = []
        for values in self._rows(batch):
            pairs = zip(self._shaped(values), batch.schema.types, strict=True)
            lines.append(",".join(text for value, kind in pairs for text in self._csv_cells(value, kind)))
        yield "".join(f"{line}\n" for line in lines).encode()

    def _csv_cells(self, value: Any, kind: pa.DataType) -> Iterator[str]:
        if _is_bytes(kind):
            text, used = csv_bytes(value, self._encode)
            yield text
            if self._is_auto:
                yield used
            return
        plain = _plain(value, self._encoding, is_exact=True)
        yield "" if plain is None else csv_cell(plain if isinstance(plain, str) else self._line(plain).decode())

    def cells(self, batch: pa.RecordBatch, longest: int | None) -> Iterator[list[Cell]]:
        for values in self._rows(batch):
            yield [self._cell(value, longest) for value in self._shaped(values)]

    def _cell(self, value: Any, longest: int | None) -> Cell:
        if value is None or isinstance(value, bytes):
            return bytes_cell(value, self._encoding, longest)
        if isinstance(value, str):
            return text_cell(value, longest)
        plain = _plain(value, self._encoding, is_exact=True)
        return printable(plain if isinstance(plain, str) else self._line(plain).decode(), longest)

    def _shaped(self, values: Iterable[Any]) -> Iterator[Any]:
        """The values of a row of cells, where a text is what it is."""
        for shape, value in zip(self._shapes, values, strict=True):
            yield value if isinstance(value, str) else shape(value)

    @staticmethod
    def _rows(batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
        return zip(*map(_values, batch.columns, batch.schema), strict=True)


def distinct(schema: pa.Schema) -> pa.Schema:
    """The schema with a number behind names that came before, as in ``key_2``: a row has one value of a name."""
    names: list[str] = []
    for name in schema.names:
        number, shown = 1, name
        while shown in names or (number > 1 and shown in schema.names):
            number += 1
            shown = f"{name}_{number}"
        names.append(shown)
    return pa.schema([field.with_name(name) for field, name in zip(schema, names, strict=True)], schema.metadata)


def _put(row: dict[str, Any], name: str, value: Any, encoding: str, *, is_exact: bool = False) -> None:
    if not isinstance(value, bytes):
        row[name] = _plain(value, encoding, is_exact=is_exact)
        return
    row[name], used = ENCODINGS[encoding](value)
    if encoding == "auto" and used == "base64":
        row.setdefault(f"{name}_encoding", used)  # a field of that name is what it is


def _plain(value: Any, encoding: str, *, is_exact: bool = False) -> Any:
    """A value as JSON has it: numbers, texts, lists and objects.

    Args:
        encoding: of bytes. With ``auto``, base64 is named beside a field of a struct; items of lists and maps, where
            there is no such place, are base64 all.
        is_exact: whether decimals stay numbers, which ``exact_encoder`` writes, and what it takes as it is stays so.
    """
    match value:
        case float() if not math.isfinite(value):
            return str(value)
        case None | bool() | int() | float() | str():
            return value
        case bytes():
            return ENCODINGS["base64" if encoding == "auto" else encoding](value)[0]
        case datetime() if value.tzinfo is not None:
            spec = "microseconds" if value.microsecond % 1000 else "milliseconds"
            return value.astimezone(UTC).isoformat(timespec=spec).replace("+00:00", "Z")
        case date() | time():
            return value.isoformat()
        case timedelta():
            return iso_duration(value) if is_exact else value.total_seconds()
        case pa.MonthDayNano():
            return iso_interval(value.months, value.days, value.nanoseconds)
        case Decimal() if is_exact:
            return value
        case Decimal():
            return int(value) if value == value.to_integral_value() and value.as_tuple().exponent == 0 else str(value)
        case _Map():
            return {name: _plain(one, encoding, is_exact=is_exact) for name, one in value.items()}
        case dict():
            row: dict[str, Any] = {}
            for name, one in value.items():
                _put(row, name, one, encoding, is_exact=is_exact)
            return row
        case list() | tuple():
            return [_plain(one, encoding, is_exact=is_exact) for one in value]
    return value if is_exact and type(value).__name__ == "Raw" else str(value)


_TYPE_NAMES = {int(kind): kind.java_name for kind in TimestampType}


def _has_names(field: pa.Field) -> bool:
    """Whether a column is that of records which says by a number where their timestamps are from."""
    return field.name == "timestamp_type" and bool(pa.types.is_integer(field.type))


def _values(column: pa.Array, field: pa.Field) -> list[Any]:
    """The values of a column as Python has them; a time that no calendar reaches stays a number."""
    kind = column.type
    if _has_names(field):
        return [_TYPE_NAMES.get(one, one) for one in column.to_pylist()]
    if not pa.types.is_timestamp(kind):
        return python_values(column)
    return [_time(one, _PER_SECOND[kind.unit], kind.tz is not None) for one in column.cast(pa.int64()).to_pylist()]


def _time(count: int | None, per_second: int, is_zoned: bool) -> datetime | int | None:
    if count is None:
        return None
    try:
        found = _EPOCH + timedelta(microseconds=count * 1_000_000 // per_second)
    except OverflowError:
        return count
    return found if is_zoned else found.replace(tzinfo=None)


def _fit(kind: pa.DataType) -> Fit:
    """How a column of a type is fitted into a table."""
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return Fit.NUMBER
    return Fit.FIXED if pa.types.is_temporal(kind) or pa.types.is_boolean(kind) else Fit.TEXT


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind))
