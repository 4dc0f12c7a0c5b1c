"""Which schema each value names, and where its payload begins.

A frame is what comes before the payload: an id or a fingerprint, of Protobuf also which message of the schema it is.
Few frames occur in a topic and each is read once; values that begin with a known one are found natively.

Sources: Confluent's wire format, and ``schema_registry`` of confluent-kafka-python 2.16 (ids and GUIDs, in values and
in headers); ``ProtobufSerializer`` of Apicurio Registry 2; ``GlueSchemaRegistryDeserializerDataParser`` and
``MessageIndexFinder`` of AWS Glue's library; "Single-object encoding" of Avro 1.12.
"""

from __future__ import annotations

import uuid
from array import array
from collections.abc import Callable
from struct import Struct
from types import ModuleType
from typing import Any, Final

import pyarrow as pa
from isal import igzip_lib

from segreader.typed.decoding import ANY_ID, Side
from segreader.typed.ops import MOST_DEPTH, Bad
from segreader.typed.schema import Framing, Schema, SchemaFormat, SchemaSet
from segreader.values import dataclass

HEADER_NAMES: Final = {Side.KEY: "__key_schema_id", Side.VALUE: "__value_schema_id"}
"""Headers that Confluent's clients put the id into, if they are set up so: then the value is the payload alone."""

MOST_INFLATED: Final = 64 << 20
"""Bytes of a compressed value, at most."""

_INFLATED_AT_ONCE: Final = 32 << 20  # rows behind those are left for the next call
_MOST_FRAMES: Final = 4096  # kept; then all are read anew
_MOST_UNKNOWN: Final = 256  # kept, of those that no schema is known for: each value may have another
_COMPRESSED: Final = 1 << 30  # in place of a root: this plus which of the schemas of compressed values
_NULL_ROW: Final = -1

_KEY_SIZES: Final = {
    Framing.CONFLUENT: 5,
    Framing.APICURIO: 9,
    Framing.GLUE: 18,
    Framing.SINGLE_OBJECT: 10,
    Framing.BARE: 0,
}
_OFFSET: Final = Struct("=i")
_NAME_MESSAGES: Final = frozenset((Framing.CONFLUENT, Framing.APICURIO, Framing.GLUE))
_IsalError: type[Exception] = igzip_lib.IsalError  # type: ignore[assignment]  # the stub says: an instance


@dataclass(frozen=True, slots=True)
class Frame:
    """What comes before a payload.

    Args:
        size: bytes of it.
        names: of its schema, as ``SchemaSet.ids`` may have them; the first one is shown.
        is_compressed: whether zlib has compressed the payload.
    """

    size: int
    names: tuple[str, ...] = ()
    is_compressed: bool = False


@dataclass(frozen=True, slots=True)
class MessageName:
    """Which message of a Protobuf schema a frame names: by its place, or by its name.

    Args:
        index: the place of a message of the file, then of one within it, and so on.
        name: without its package and the messages around it.
        sorted_index: its place among all messages of the file, by full name.
    """

    index: tuple[int, ...] = ()
    name: str = ""
    sorted_index: int = -1


@dataclass(frozen=True, slots=True)
class NamedSchema:
    """What a value names as its schema, for messages.

    Args:
        size: bytes before the payload.
    """

    name: str | None = None
    schema: Schema | None = None
    size: int = 0


RootOf = Callable[[Schema, MessageName | None], int | Bad]
"""Gives the number of the tree that reads payloads of a schema, or why there is none."""


def read_frame(value: bytes | memoryview, framing: Framing) -> Frame | Bad:
    """The frame that a value begins with, without the part that only Protobuf has (``read_message``)."""
    size = _KEY_SIZES[framing]
    if framing is Framing.BARE:
        return Frame(0)
    if framing is Framing.CONFLUENT:
        return _confluent_frame(value)
    if len(value) < size:
        return Bad.NO_FRAME
    head = bytes(value[:size])
    if framing is Framing.APICURIO and head[0] == 0:
        return Frame(size, (str(int.from_bytes(head[1:], "big", signed=True)),))
    if framing is Framing.GLUE and head[0] == 3 and head[1] in (0, 5):
        return Frame(size, _guid(head[2:]), is_compressed=head[1] == 5)
    if framing is Framing.SINGLE_OBJECT and head[:2] == b"\xc3\x01":
        number = int.from_bytes(head[2:], "little")
        return Frame(size, (f"{number:016x}", head[2:].hex()))
    return Bad.NO_FRAME


def _confluent_frame(value: bytes | memoryview) -> Frame | Bad:
    """Also of a header."""
    if len(value) >= 5 and value[0] == 0:
        return Frame(5, (str(int.from_bytes(value[1:5], "big", signed=True)),))
    if len(value) >= 17 and value[0] == 1:
        return Frame(17, _guid(bytes(value[1:17])))
    return Bad.NO_FRAME


def _guid(data: bytes) -> tuple[str, ...]:
    guid = uuid.UUID(bytes=data)
    return str(guid), guid.hex


def read_message(value: bytes | memoryview, at: int, framing: Framing) -> tuple[MessageName, int] | Bad:
    """Which message a Protobuf frame names from ``at`` on, and where its payload begins."""
    if framing is Framing.CONFLUENT:
        return _message_index(value, at)
    if framing is Framing.GLUE:
        number, at = _varint(value, at)
        return Bad.NO_FRAME if at < 0 else (MessageName(sorted_index=number), at)
    return _message_name(value, at)


def _varint(value: bytes | memoryview, at: int) -> tuple[int, int]:
    """An unsigned number of at most 5 bytes, and where it ends; -1: nowhere."""
    number = 0
    for shift in range(0, 35, 7):
        if at >= len(value):
            break
        byte = value[at]
        number |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return number, at
    return 0, -1


def _message_index(value: bytes | memoryview, at: int) -> tuple[MessageName, int] | Bad:
    """Confluent's list of zigzag numbers; an empty one means the first message."""
    count, at = _varint(value, at)
    if at < 0:
        return Bad.NO_FRAME
    if count & 1 or count >> 1 > MOST_DEPTH:
        return Bad.MESSAGE
    index = []
    for _ in range(count >> 1):
        number, at = _varint(value, at)
        if at < 0:
            return Bad.NO_FRAME
        if number & 1:
            return Bad.MESSAGE
        index.append(number >> 1)
    return MessageName(index=tuple(index) or (0,)), at


def _message_name(value: bytes | memoryview, at: int) -> tuple[MessageName, int] | Bad:
    """Apicurio's message ``Ref``, behind its length: field 1 is the name."""
    size, at = _varint(value, at)
    stop = at + size
    if at < 0 or stop > len(value) or size < 2 or value[at] != 0x0A:
        return Bad.NO_FRAME
    size, at = _varint(value, at + 1)
    if at < 0 or at + size != stop:
        return Bad.NO_FRAME
    try:
        return MessageName(name=bytes(value[at:stop]).decode()), stop
    except UnicodeDecodeError:
        return Bad.NO_FRAME


@dataclass(slots=True, eq=False)
class FramedRows:
    """The payloads of some values, and which tree reads each.

    Args:
        data: what they are in.
        starts, stops: where, for each row.
        roots: -1: the row is null; ``-2 - bad``: it is undecodable.
        rows: how many of the values these are: fewer where much was compressed.
        inflated: rows whose payload was compressed.
    """

    data: Any
    starts: array[int]
    stops: array[int]
    roots: array[int]
    rows: int
    inflated: frozenset[int] = frozenset()


class FrameFinder:
    """Finds the schema of each value of a column. Use it from one thread.

    Args:
        schemas: those that are known, and how values name them.
        root_of: what reads the payloads of a schema.
        native: the native twin; ``None``: every frame is read in Python.
    """

    def __init__(self, schemas: SchemaSet, side: Side, root_of: RootOf, native: ModuleType | None) -> None:
        self._schemas, self._root_of, self._native = schemas, root_of, native
        self._framing = schemas.framing
        self._header = HEADER_NAMES[side] if self._framing is Framing.CONFLUENT else None
        self._ids = dict(schemas.ids)
        self._roots: dict[tuple[Schema, MessageName | None], int | Bad] = {}
        self._unknown = 0
        self._compressed: list[Schema] = []
        self._starts, self._stops, self._row_roots = array("q"), array("q"), array("i")
        if native is not None:
            self._frames = native.NativeFrames(_KEY_SIZES[self._framing])
            self._header_frames = native.NativeFrames()

    def find(self, values: pa.Array, headers: pa.Array | None) -> FramedRows:
        """The payloads of all values, or of the first ones. What it gives is overwritten by the next call.

        Args:
            values: keys or values, ``binary``.
            headers: of the records, where an id may be in them.
        """
        rows = len(values)
        self._make_room(rows)
        if self._header is None or headers is None or not _has_any(headers):
            headers = None
        if self._native is None:
            for row in range(rows):
                self._read_row(values, headers, row)
        else:
            self._find_natively(values, headers, rows)
        data = values.buffers()[2]
        found = FramedRows(b"" if data is None else data, self._starts, self._stops, self._row_roots, rows)
        return self._inflated(found) if self._compressed else found

    def named_by(self, values: pa.Array, headers: pa.Array | None, row: int) -> NamedSchema:
        """What a row names as its schema."""
        value = values[row].as_py()
        header = self._header_of(headers, row)
        frame = b"" if value is None else self._frame_of(value, header)
        if not isinstance(frame, Frame):
            return NamedSchema()
        schema = self._schema_of(frame)
        size = frame.size
        if header is not None:
            size = 0
        elif schema is not None and schema.format is SchemaFormat.PROTOBUF and not frame.is_compressed:
            named = read_message(value, size, self._framing) if self._framing in _NAME_MESSAGES else Bad.MESSAGE
            size = size if isinstance(named, Bad) else named[1]
        return NamedSchema(frame.names[0] if frame.names else None, schema, size)

    def _make_room(self, rows: int) -> None:
        if (missing := rows - len(self._row_roots)) > 0:
            self._starts.frombytes(bytes(8 * missing))
            self._stops.frombytes(bytes(8 * missing))
            self._row_roots.frombytes(bytes(4 * missing))

    def _find_natively(self, values: pa.Array, headers: pa.Array | None, rows: int) -> None:
        assert self._native is not None
        name = (self._header or "").encode()
        framed = self._native.FramedValues(rows, _cells(values), _header_cells(headers), name)
        found = self._row_roots, self._starts, self._stops
        row = 0
        while (row := framed.find(self._frames, self._header_frames, row, *found)) < rows:
            self._read_row(values, headers, row)
            row += 1

    def _read_row(self, values: pa.Array, headers: pa.Array | None, row: int) -> None:
        value = values[row].as_py()
        if value is None:
            self._row_roots[row], self._starts[row], self._stops[row] = _NULL_ROW, 0, 0
            return
        data, header = memoryview(value), self._header_of(headers, row)
        root, size = self._root(data, header)
        if self._native is not None and (size or root >= 0):
            self._keep(bytes(data[:size]), header, root)
        (start,) = _OFFSET.unpack_from(values.buffers()[1], 4 * (values.offset + row))
        self._row_roots[row], self._stops[row] = root, start + len(data)
        self._starts[row] = start if header is not None else start + size

    def _keep(self, frame: bytes, header: bytes | None, root: int) -> None:
        """Let the native twin know a frame. Of those that name no schema there may be too many."""
        if root < 0:
            if self._unknown >= _MOST_UNKNOWN:
                return
            self._unknown += 1
        if len(self._frames) + len(self._header_frames) >= _MOST_FRAMES:
            self._frames.clear()
            self._header_frames.clear()
            self._unknown = 0
        if header is None:
            self._frames.add(frame, root)
        elif len(header) <= _MOST_FRAMES:
            self._header_frames.add(header, root)

    def _header_of(self, headers: pa.Array | None, row: int) -> bytes | None:
        """The value of the last header that names a schema; one that is null names none."""
        if headers is None or self._header is None:
            return None
        found = [one["value"] for one in headers[row].as_py() or () if one["key"] == self._header]
        return found[-1] if found else None

    def _frame_of(self, value: bytes | memoryview, header: bytes | None) -> Frame | Bad:
        return read_frame(value, self._framing) if header is None else _confluent_frame(header)

    def _root(self, value: memoryview, header: bytes | None) -> tuple[int, int]:
        """The root of a value, and how many bytes its frame has; of a header: how many of the header's.

        A frame of no bytes, unless all are, is one that cannot be read.
        """
        frame = self._frame_of(value, header)
        if isinstance(frame, Bad):
            return -2 - frame, 0
        schema = self._schema_of(frame)
        if schema is None:
            return -2 - Bad.UNKNOWN_SCHEMA, frame.size
        if frame.is_compressed:
            if schema not in self._compressed:
                self._compressed.append(schema)
            return _COMPRESSED + self._compressed.index(schema), frame.size
        return self._root_of_schema(schema, value if header is None else memoryview(header), frame.size)

    def _root_of_schema(self, schema: Schema, data: memoryview, size: int) -> tuple[int, int]:
        """The same where the id has ``size`` bytes of ``data``: what names a message comes behind it."""
        message = None
        if schema.format is SchemaFormat.PROTOBUF and self._framing in _NAME_MESSAGES:
            named = read_message(data, size, self._framing)
            if isinstance(named, Bad):
                return -2 - named, 0
            message, size = named
        root = self._roots.get((schema, message))
        if root is None:
            root = self._root_of(schema, message)
            if len(self._roots) < _MOST_FRAMES:
                self._roots[schema, message] = root
        return (-2 - root if isinstance(root, Bad) else root), size

    def _schema_of(self, frame: Frame) -> Schema | None:
        if self._framing is Framing.BARE:
            return self._schemas.bare
        return next((self._ids[name] for name in (*frame.names, ANY_ID) if name in self._ids), None)

    def _inflated(self, found: FramedRows) -> FramedRows:
        """The same rows with those decompressed that are compressed, or the first ones where that is much."""
        if all(root < _COMPRESSED for root in found.roots[: found.rows]):
            return found
        given = memoryview(found.data)
        data = bytearray()
        starts, stops, roots = array("q"), array("q"), array("i")
        inflated = set()
        for row in range(found.rows):
            root, payload, size = found.roots[row], given[found.starts[row] : found.stops[row]], 0
            if root >= _COMPRESSED:
                if starts and len(data) >= _INFLATED_AT_ONCE:
                    break
                inflated.add(row)
                plain = _inflate(payload)
                if isinstance(plain, Bad):
                    root, payload = -2 - plain, payload[:0]
                else:
                    payload = memoryview(plain)
                    root, size = self._root_of_schema(self._compressed[root - _COMPRESSED], payload, 0)
            starts.append(len(data) + size)
            data += payload
            stops.append(len(data))
            roots.append(root)
        return FramedRows(bytes(data), starts, stops, roots, len(roots), frozenset(inflated))


def _inflate(data: memoryview) -> bytes | Bad:
    """What zlib has compressed."""
    inflater = igzip_lib.IgzipDecompressor(igzip_lib.DECOMP_ZLIB)
    try:
        plain = inflater.decompress(data, MOST_INFLATED + 1)
    except _IsalError:
        return Bad.COMPRESSION
    if len(plain) > MOST_INFLATED:
        return Bad.LIMIT
    if not inflater.eof:
        return Bad.SHORT
    return Bad.LEFT_OVER if inflater.unused_data else plain


def _has_any(headers: pa.ListArray) -> bool:
    """Whether some record has a header."""
    offsets = headers.offsets
    return len(headers) > 0 and bool(offsets[0].as_py() != offsets[-1].as_py())


def _cells(column: pa.Array) -> tuple[Any, ...]:
    """Validity, offsets, data and first row of a column of bytes, for the native twin."""
    validity, offsets, data = column.buffers()
    return validity, offsets, data, column.offset


def _header_cells(headers: pa.ListArray | None) -> tuple[Any, ...] | None:
    if headers is None:
        return None
    pairs = headers.values
    keys, values = pairs.field(0), pairs.field(1)
    return (headers.buffers()[1], headers.offset), len(pairs), _cells(keys), _cells(values)
