"""Rows of any columns as text or files: what ``segreader sql`` prints."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import IO, Any

import pyarrow as pa

from segreader.cli.output import ENCODINGS, Encode, console, json_array, json_line, ndjson, printable, stdout
from segreader.cli.records import arrow_stream, csv_cell, parquet_file

_PAGE_ROWS = 200
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

WriteBatch = Callable[[pa.RecordBatch], None]


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


def row_writer(form: str, file: IO[bytes], schema: pa.Schema, encoding: str) -> AbstractContextManager[WriteBatch]:
    """What writes batches of a schema in a format.

    Args:
        encoding: how bytes become text, a name of ``ENCODINGS``; ``parquet`` and ``arrow`` keep them.
    """
    if form == "parquet":
        return parquet_file(file, schema)
    if form == "arrow":
        return arrow_stream(file, schema)
    if form == "table":
        return nullcontext(_table(file, encoding))
    if form == "csv":
        return nullcontext(_csv(file, schema, encoding))
    return _json(form, file, encoding)


@contextmanager
def _json(form: str, file: IO[bytes], encoding: str) -> Iterator[WriteBatch]:
    with json_array(file) if form == "json" else ndjson(file) as write:
        yield lambda batch: write([json_line(row) for row in json_rows(batch, encoding)])


def json_rows(batch: pa.RecordBatch, encoding: str) -> Iterator[dict[str, Any]]:
    """Each row as JSON has it. With ``auto``, base64 is named in a field beside the bytes, as ``cat`` does."""
    encode = ENCODINGS[encoding]
    columns = [_values(column) for column in batch.columns]
    names = batch.schema.names
    for values in zip(*columns, strict=True):
        row: dict[str, Any] = {}
        for name, value in zip(names, values, strict=True):
            _put(row, name, value, encode, is_named=encoding == "auto")
        yield row


def _put(row: dict[str, Any], name: str, value: Any, encode: Encode, *, is_named: bool) -> None:
    if isinstance(value, bytes):
        row[name], used = encode(value)
        if is_named and used == "base64":
            row[f"{name}_encoding"] = used
    else:
        row[name] = _plain(value, encode, is_named=is_named)


def _plain(value: Any, encode: Encode, *, is_named: bool = False) -> Any:
    """A value as JSON has it: numbers, texts, lists and objects."""
    match value:
        case float() if not math.isfinite(value):
            return str(value)
        case None | bool() | int() | float() | str():
            return value
        case bytes():
            return encode(value)[0]
        case datetime() if value.tzinfo is not None:
            return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
        case date() | time():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case Decimal():
            return int(value) if value == value.to_integral_value() and value.as_tuple().exponent == 0 else str(value)
        case dict():
            row: dict[str, Any] = {}
            for name, one in value.items():
                _put(row, name, one, encode, is_named=is_named)
            return row
        case list() | tuple():
            return [_plain(one, encode, is_named=is_named) for one in value]
    return str(value)


def _values(column: pa.Array) -> list[Any]:
    """The values of a column as Python has them; a time that no calendar reaches stays a number."""
    kind = column.type
    if not pa.types.is_timestamp(kind):
        return list(column.to_pylist())
    return [_time(one, _PER_SECOND[kind.unit], kind.tz is not None) for one in column.cast(pa.int64()).to_pylist()]


def _time(count: int | None, per_second: int, is_zoned: bool) -> datetime | int | None:
    if count is None:
        return None
    try:
        found = _EPOCH + timedelta(microseconds=count * 1_000_000 // per_second)
    except OverflowError:
        return count
    return found if is_zoned else found.replace(tzinfo=None)


def _csv(file: IO[bytes], schema: pa.Schema, encoding: str) -> WriteBatch:
    """With ``auto``, each column of bytes has one beside it that names the encoding."""
    names = []
    for field in schema:
        names += [field.name] + [f"{field.name}_encoding"] * (encoding == "auto" and _is_bytes(field.type))
    file.write((",".join(csv_cell(name) for name in names) + "\n").encode())

    def cells(value: Any, kind: pa.DataType) -> Iterator[str]:
        if _is_bytes(kind):
            text, used = ("", "") if value is None else ENCODINGS[encoding](value)
            yield "" if value is None else csv_cell(text)
            if encoding == "auto":
                yield used
            return
        plain = _plain(value, ENCODINGS[encoding])
        if plain is None:
            yield ""
        else:
            yield csv_cell(plain if isinstance(plain, str) else json_line(plain))

    def write(batch: pa.RecordBatch) -> None:
        kinds = batch.schema.types
        for values in zip(*map(_values, batch.columns), strict=True):
            texts = [text for value, kind in zip(values, kinds, strict=True) for text in cells(value, kind)]
            file.write((",".join(texts) + "\n").encode())

    return write


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind))


def _table(file: IO[bytes], encoding: str) -> WriteBatch:
    from rich.table import Table
    from rich.text import Text

    out = console(io.TextIOWrapper(file, "utf-8", write_through=True) if file is not stdout() else None)

    def cell(value: Any) -> Text:
        plain = _plain(value, ENCODINGS[encoding])
        if plain is None:
            return Text("null", "dim")
        return Text(printable(plain if isinstance(plain, str) else json_line(plain)))

    def write(batch: pa.RecordBatch) -> None:
        for start in range(0, batch.num_rows, _PAGE_ROWS):
            page = Table(*batch.schema.names, box=None, pad_edge=False)
            rows = zip(*map(_values, batch.slice(start, _PAGE_ROWS).columns), strict=True)
            for values in rows:
                page.add_row(*map(cell, values))
            out.print(page)

    return write
