"""Rows of a record batch as JSON, CSV or Python objects, straight from Arrow's buffers.

The functions here are the specification, in plain Python; ``_rows.pyx`` repeats them for speed. ``load_row_maker``
chooses by the same rule as ``load_kernel``.
"""

from __future__ import annotations

import re
from binascii import b2a_base64, hexlify
from collections.abc import Callable, Iterator
from json.encoder import encode_basestring as quoted
from typing import Any, Final, Protocol, TypeVar, cast

from segreader.format.batch import Headers, TimestampType
from segreader.values import dataclass

NAME = "reference"
"""How this twin is called; the other one is ``native``."""

RECORD_COLUMNS = (
    "topic",
    "partition",
    "offset",
    "timestamp_ms",
    "timestamp_type",
    "leader_epoch",
    "key",
    "value",
    "headers",
)
"""The columns that make a ``ConsumerRecord``, which are its fields."""

RECORDS_AT_ONCE: Final = 64
"""How many objects ``make_records`` makes before the first of them is delivered."""

Encode = Callable[[bytes], tuple[str, str]]
"""Gives the text of some bytes, and the name of the encoding it is in: ``utf8``, ``base64`` or ``hex``."""

_Kind = TypeVar("_Kind")
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_TYPES = {int(kind): kind for kind in TimestampType}


def _utf8(data: bytes) -> tuple[str, str]:
    return data.decode("utf-8", "replace"), "utf8"


def _base64(data: bytes) -> tuple[str, str]:
    return b2a_base64(data, newline=False).decode("ascii"), "base64"


def _hex(data: bytes) -> tuple[str, str]:
    return hexlify(data).decode("ascii"), "hex"


def _auto(data: bytes) -> tuple[str, str]:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return _base64(data)
    return (text, "utf8") if _CONTROL.search(text) is None else _base64(data)


ENCODINGS: dict[str, Encode] = {"auto": _auto, "utf8": _utf8, "base64": _base64, "hex": _hex}
"""``auto`` is text where the bytes are UTF-8 without control characters (but tab and line ends), else base64."""


@dataclass(frozen=True, slots=True)
class Texts:
    """A column of bytes or text.

    Args:
        offsets: int32, one more than there are rows: where each begins in ``data``, and where the last one ends.
        data: the bytes of all rows.
        validity: a bit for each row, 0 for a null; ``None`` where there are no nulls.
        first_bit: of ``validity``, which belongs to the first row.
    """

    offsets: memoryview
    data: memoryview
    validity: memoryview | None = None
    first_bit: int = 0

    def values(self, rows: int) -> list[bytes | None]:
        """Each row as bytes."""
        data, ends = bytes(self.data), self.offsets.cast("i").tolist()
        values: list[bytes | None] = [data[ends[row] : ends[row + 1]] for row in range(rows)]
        return _with_nulls(values, self.validity, self.first_bit)


@dataclass(frozen=True, slots=True)
class Epochs:
    """A column of int32 that may have nulls; ``validity`` and ``first_bit`` as in ``Texts``."""

    values: memoryview
    validity: memoryview | None = None
    first_bit: int = 0


@dataclass(frozen=True, slots=True)
class RowColumns:
    """The buffers of ``RECORD_COLUMNS``, each from its first row on.

    Args:
        rows: how many there are.
        partition, timestamp_type: int32. offset, timestamp_ms: int64.
        header_offsets: int32, one more than there are rows: which of the headers are a row's.
        headers: how many there are in ``header_key`` and ``header_value``.
    """

    rows: int
    topic: Texts
    partition: memoryview
    offset: memoryview
    timestamp_ms: memoryview
    timestamp_type: memoryview
    leader_epoch: Epochs
    key: Texts
    value: Texts
    header_offsets: memoryview
    headers: int
    header_key: Texts
    header_value: Texts


class RowMaker(Protocol):
    """The face of this module and of ``_rows.pyx``."""

    NAME: str

    def json_rows(self, columns: RowColumns, key_encoding: str, value_encoding: str, end: bytes) -> Iterator[bytes]:
        """See ``json_rows``."""

    def csv_rows(self, columns: RowColumns, key_encoding: str, value_encoding: str) -> Iterator[bytes]:
        """See ``csv_rows``."""

    def make_records(self, columns: RowColumns, kind: Callable[..., _Kind]) -> Iterator[list[_Kind]]:
        """See ``make_records``."""


def load_row_maker(name: str | None = None) -> RowMaker:
    """The twin of that name, chosen as ``load_kernel`` chooses a kernel."""
    from segreader.format.kernel import load_twin

    return cast(RowMaker, load_twin("segreader.format._rows", __name__, name))


def json_rows(columns: RowColumns, key_encoding: str, value_encoding: str, end: bytes) -> Iterator[bytes]:
    """Each row as a JSON object with ``end`` behind it, in UTF-8, some rows at a time.

    Args:
        key_encoding, value_encoding: how bytes become text, names of ``ENCODINGS``. With ``auto``, base64 is named in a
            field beside the bytes.
    """
    encode_key, encode_value = ENCODINGS[key_encoding], ENCODINGS[value_encoding]
    key_note = ',"key_encoding":"base64"' if key_encoding == "auto" else ""
    value_note = ',"value_encoding":"base64"' if value_encoding == "auto" else ""
    names = {number: quoted(kind.java_name) for number, kind in _TYPES.items()}
    lines = []
    for topic, partition, offset, time_ms, kind, epoch, key, value, headers in iter_rows(columns):
        notes = ""
        key_text = value_text = "null"
        if key is not None:
            text, used = encode_key(key)
            key_text = quoted(text)
            if used == "base64":
                notes = key_note
        if value is not None:
            text, used = encode_value(value)
            value_text = quoted(text)
            if used == "base64":
                notes += value_note
        header_text = _headers_json(headers, encode_value, value_note) if headers else "[]"
        lines.append(
            f'{{"topic":"{topic}","partition":{partition},"offset":{offset},"timestamp":{time_ms},'
            f'"timestamp_type":{names[kind]},"leader_epoch":{"null" if epoch is None else epoch},'
            f'"key":{key_text},"value":{value_text},"headers":{header_text}{notes}}}'
        )
    if lines:
        yield end.join(line.encode() for line in lines) + end


def csv_rows(columns: RowColumns, key_encoding: str, value_encoding: str) -> Iterator[bytes]:
    """Each row as a line of CSV, in UTF-8, some rows at a time; the arguments are those of ``json_rows``.

    The name of the encoding follows a key and a value. A null is an empty cell, an empty text a quoted one. Headers are
    JSON.
    """
    encode_key, encode_value = ENCODINGS[key_encoding], ENCODINGS[value_encoding]
    value_note = ',"value_encoding":"base64"' if value_encoding == "auto" else ""
    lines = []
    for topic, partition, offset, time_ms, kind, epoch, key, value, headers in iter_rows(columns):
        start = f"{topic},{partition},{offset},{time_ms},{_TYPES[kind].java_name},{'' if epoch is None else epoch}"
        key_text, key_used = csv_bytes(key, encode_key)
        value_text, value_used = csv_bytes(value, encode_value)
        header_text = csv_cell(_headers_json(headers, encode_value, value_note))
        lines.append(f"{start},{key_text},{key_used},{value_text},{value_used},{header_text}\n")
    if lines:
        yield "".join(lines).encode()


def make_records(columns: RowColumns, kind: Callable[..., _Kind]) -> Iterator[list[_Kind]]:
    """Each row as an object, ``RECORDS_AT_ONCE`` at a time.

    Args:
        kind: a class with a slot for each of ``RECORD_COLUMNS``, and a constructor that takes them in this order.
    """
    rows = iter_rows(columns)
    for _ in range(0, columns.rows, RECORDS_AT_ONCE):
        yield [kind(*row[:4], _TYPES[row[4]], *row[5:]) for _, row in zip(range(RECORDS_AT_ONCE), rows, strict=False)]


def iter_rows(columns: RowColumns) -> Iterator[tuple[Any, ...]]:
    """The values of each row, in the order of ``RECORD_COLUMNS``; a timestamp type is its number."""
    rows = columns.rows
    if not rows:
        return iter(())
    return zip(
        _decoded(columns.topic, rows),
        columns.partition.cast("i"),
        columns.offset.cast("q"),
        columns.timestamp_ms.cast("q"),
        columns.timestamp_type.cast("i"),
        _with_nulls(columns.leader_epoch.values.cast("i").tolist(), *_bits(columns.leader_epoch)),
        columns.key.values(rows),
        columns.value.values(rows),
        _headers(columns),
        strict=True,
    )


def _bits(column: Epochs) -> tuple[memoryview | None, int]:
    return column.validity, column.first_bit


def _decoded(column: Texts, rows: int) -> list[str]:
    return [value.decode() for value in column.values(rows) if value is not None]


def _headers(columns: RowColumns) -> Iterator[Headers]:
    ends = columns.header_offsets.cast("i").tolist()
    keys = _decoded(columns.header_key, columns.headers) if columns.headers else []
    pairs = list(zip(keys, columns.header_value.values(columns.headers), strict=True)) if keys else []
    return (tuple(pairs[ends[row] : ends[row + 1]]) for row in range(columns.rows))


def _with_nulls(values: list[Any], validity: memoryview | None, first_bit: int) -> list[Any]:
    if validity is None:
        return values
    places = range(first_bit, first_bit + len(values))
    return [value if validity[at >> 3] >> (at & 7) & 1 else None for at, value in zip(places, values, strict=True)]


def csv_bytes(data: bytes | None, encode: Encode) -> tuple[str, str]:
    """A cell of CSV, and the name of its encoding."""
    if data is None:
        return "", ""
    text, used = encode(data)
    return csv_cell(text), used


def csv_cell(text: str) -> str:
    """A null is an empty cell, so an empty text is a quoted one."""
    if text and not any(mark in text for mark in ',"\r\n'):
        return text
    return '"' + text.replace('"', '""') + '"'


def _headers_json(headers: Headers, encode: Encode, note: str) -> str:
    texts = []
    for key, value in headers:
        value_text, used = "null", ""
        if value is not None:
            text, used = encode(value)
            value_text = quoted(text)
        texts.append(f'{{"key":{quoted(key)},"value":{value_text}{note if used == "base64" else ""}}}')
    return f"[{','.join(texts)}]"
