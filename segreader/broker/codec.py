"""Encode and decode messages of the Kafka protocol by the tables of ``protocol``.

A table is compiled once for each version, into the steps that its fields take. Any bytes give a value or a
``ProtocolError`` that names the API, its version and the position, in time and memory bounded by the frame. Bytes are
slices of it. Source: the protocol guide of Apache Kafka 4.3; KIP-482.
"""

from __future__ import annotations

import re
import struct
from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any, Final

from segreader.broker.primitives import Reader, Writer
from segreader.broker.protocol import ANSWERS, ANSWERS_IN_PARTS, API_NAMES, FLEXIBLE_FROM, REQUESTS, Api, largest_answer
from segreader.errors import OptionError, ProtocolError
from segreader.values import dataclass

MAX_ELEMENTS: Final = 1 << 22
"""Elements of all arrays of one message: Metadata of 400,000 partitions with three replicas has fewer."""

_REQUEST_HEAD: Final = struct.Struct(">hhi")
SMALLEST_REQUEST: Final = _REQUEST_HEAD.size

_FIXED: Final = {"bool": "?", "int8": "b", "int16": "h", "int32": "i", "int64": "q"}
_ALWAYS: Final = (0, 1 << 15)
_NEVER: Final = (1, 0)

_Read = Callable[[Reader], Any]
_Write = Callable[[Writer, Any], None]


def message_name(api: int, version: int, kind: str = "answer") -> str:
    """A message's name in errors: ``Metadata 12 answer``."""
    return f"{api_label(api)} {version} {kind}"


def api_label(api: int) -> str:
    """An API as Kafka names it, or its number."""
    return API_NAMES.get(api) or f"API {api}"


def is_flexible(api: Api, version: int) -> bool:
    """Whether the body has compact lengths and tagged fields."""
    return api in FLEXIBLE_FROM and version >= FLEXIBLE_FROM[api]


def response_header_version(api: Api, version: int) -> int:
    """0, or 1 with tagged fields. The answer to ApiVersions always has 0: its version is what is being found out."""
    return 1 if is_flexible(api, version) and api is not Api.API_VERSIONS else 0


def encode_request(
    api: Api, version: int, message: Mapping[str, Any], *, correlation_id: int, client_id: str | None
) -> bytes:
    """A whole frame, its size and header included.

    Args:
        message: the fields by name in snake case. One that this version lacks is left out; ``tags`` adds tagged fields.

    Raises:
        OptionError: a value does not fit its field.
    """
    writer = Writer(flexible=is_flexible(api, version))
    try:
        writer.pack(_REQUEST_HEAD, api, version, correlation_id)
        writer.client_id(client_id)
        writer.tags()
        codec_of(REQUESTS[api], version, writer.flexible).write(writer, message)
    except (struct.error, UnicodeEncodeError) as wrong:
        raise OptionError(f"this cannot be asked by {api.label} {version}: {wrong}") from None
    return writer.framed()


@dataclass(frozen=True, slots=True)
class RequestHead:
    """How a request begins.

    Args:
        api: its key, which may be one that is not known here.
        client_id: as the client says it.
        position: of the first byte behind the client id; in flexible versions the header's tagged fields are there.
    """

    api: int
    version: int
    correlation_id: int
    client_id: str | None
    position: int


def read_request_head(data: memoryview) -> RequestHead:
    """The head of a request, behind its size.

    Raises:
        ProtocolError: it is cut, or the client id is not text.
    """
    if len(data) < SMALLEST_REQUEST:
        raise ProtocolError("the head of a request is cut", found=f"{len(data)} bytes", expected=f"{SMALLEST_REQUEST}")
    api, version, correlation_id = _REQUEST_HEAD.unpack_from(data)
    what = message_name(api, version, "request")
    reader = Reader(data, flexible=False, what=what, start=SMALLEST_REQUEST)
    return RequestHead(api, version, correlation_id, reader.client_id(), reader.position)


def request_body(data: memoryview, head: RequestHead) -> Reader:
    """A reader at the first byte of the request's body, of an API that is known here."""
    flexible = is_flexible(Api(head.api), head.version)
    what = message_name(head.api, head.version, "request")
    reader = Reader(data, flexible=flexible, what=what, start=head.position)
    reader.tags()
    return reader


def answer_body(api: Api, version: int, frame: bytes | memoryview) -> Reader:
    """A reader at the first byte of an answer's body.

    Raises:
        ProtocolError: the header is damaged, or the answer larger than ``largest_answer``.
    """
    reader = Reader(frame, flexible=bool(response_header_version(api, version)), what=message_name(api, version))
    if (limit := largest_answer(api)) is not None and reader.left > limit:
        raise reader.error("it is too large", found=f"{reader.left} bytes", expected=f"{limit} at most")
    reader.int32()
    reader.tags()
    reader.flexible = is_flexible(api, version)
    return reader


def decode_body(api: Api, version: int, reader: Reader) -> Any:
    """An answer's body: a named tuple of its fields in snake case, of all versions, and of its unknown ``tags``.

    Raises:
        ProtocolError: it is damaged, cut, or has bytes left over.
    """
    message = codec_of(ANSWERS[api], version, reader.flexible).read(reader)
    reader.finish()
    return message


def decode_answer(api: Api, version: int, frame: bytes | memoryview) -> Any:
    """The body of an answer; raises as ``answer_body`` and ``decode_body``."""
    return decode_body(api, version, answer_body(api, version, frame))


@dataclass(frozen=True, slots=True)
class Field:
    """One line of a table."""

    name: str
    kind: str
    is_array: bool
    versions: tuple[int, int]
    nullable: tuple[int, int]
    tag: int | None
    default: int | None
    fields: tuple[Field, ...]

    @property
    def attribute(self) -> str:
        """``ThrottleTimeMs`` as ``throttle_time_ms``."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", self.name).lower()

    @property
    def is_fixed(self) -> bool:
        """Whether it is a number or a truth value."""
        return not self.is_array and self.kind in _FIXED and self.nullable == _NEVER

    @property
    def absent(self) -> Any:
        """The value in a version without this field."""
        if self.is_array:
            return ()
        return (self.default or 0) if self.is_fixed else None

    def is_in(self, version: int) -> bool:
        """Whether a version has it."""
        return self.versions[0] <= version <= self.versions[1]


_LINE = re.compile(r"( *)(\w+) (\[\])?(\w+)(\?)?(\d+\+)?(?: (\d+\+|\d+-\d+))?(?: tag (\d+))?(?: = (-?\d+))?")


@cache
def fields_of(table: str) -> tuple[Field, ...]:
    """The fields of a table.

    Raises:
        ValueError: a line is none.
    """
    lines = [line for line in table.splitlines() if line.strip()]
    return _fields(lines, 0, len(lines))


def _fields(lines: Sequence[str], start: int, stop: int) -> tuple[Field, ...]:
    fields = []
    while start < stop:
        if (found := _LINE.fullmatch(lines[start])) is None:
            raise ValueError(f"{lines[start]!r} is no field")
        indent, name, array, kind, null, null_from, versions, tag, default = found.groups()
        after = start + 1
        while after < stop and len(lines[after]) - len(lines[after].lstrip()) > len(indent):
            after += 1
        fields.append(
            Field(
                name=name,
                kind=kind,
                is_array=array is not None,
                versions=_versions(versions),
                nullable=_versions(null_from) if null else _NEVER,
                tag=None if tag is None else int(tag),
                default=None if default is None else int(default),
                fields=_fields(lines, start + 1, after),
            )
        )
        start = after
    return tuple(fields)


def _versions(text: str | None) -> tuple[int, int]:
    if text is None:
        return _ALWAYS
    first, _, last = text.rstrip("+").partition("-")
    return int(first), int(last) if last else _ALWAYS[1]


class StructCodec:
    """The fields of one struct in one version, as steps to read and to write.

    Args:
        is_flexible: whether strings and arrays have the compact form, and tagged fields follow.
        is_closed: false for a part of a struct, which no tagged fields follow.
    """

    def __init__(self, fields: Sequence[Field], version: int, is_flexible: bool, *, is_closed: bool = True) -> None:
        present = [field for field in fields if field.is_in(version)]
        plain = [field for field in present if field.tag is None]
        tagged = [field for field in present if field.tag is not None]
        absent = [field for field in fields if not field.is_in(version)]
        self._is_flexible, self._is_closed = is_flexible, is_closed
        steps = [_run(run) if run[0].is_fixed else _step(run[0], version, is_flexible) for run in _runs_of_fixed(plain)]
        self.least = max(1, sum(step.least for step in steps) + (is_closed and is_flexible))
        """Bytes that it takes at least."""
        self._reads = [(step.layout, step.read) for step in steps]
        self._writes = [step.write for step in steps]
        self._tagged = {field.tag: (field, _step(field, version, is_flexible)) for field in tagged}
        names = [field.attribute for field in (*plain, *absent, *tagged)]
        self._row: struct.Struct | None = None
        """The whole struct, if it has numbers alone; its count of tagged fields is the last byte."""
        if len(steps) == 1 and (layout := steps[0].layout) is not None and not tagged:
            self._row = struct.Struct(layout.format + ("x" if is_closed and is_flexible else ""))
        self._absent = [field.absent for field in absent]
        self._untagged = {field.tag: field.absent for field in tagged}
        self._rest = [*self._absent, *self._untagged.values(), ()]
        self._make = partial(tuple.__new__, namedtuple("Message", [*names, "tags"]))
        self._type: Any = self._make.args[0]
        self._width = len(plain)
        self._bare = None if plain else self._make(self._rest)

    def read(self, reader: Reader) -> Any:
        """The struct that begins here, as a named tuple.

        Raises:
            ProtocolError: it is damaged or cut.
        """
        if self._row is not None and not self._is_closed:
            return self._make((*reader.unpack(self._row), *self._rest))
        values: list[Any] = []
        for layout, read in self._reads:
            if layout is not None:
                values += reader.unpack(layout)
            else:
                values.append(read(reader))
        if not self._is_closed or not (tags := reader.tags()):
            return self._make(values + self._rest) if values else self._bare
        return self._make(values + self._with(tags))

    def read_many(self, reader: Reader, count: int) -> tuple[Any, ...]:
        """So many of these structs, one behind the other; raises as ``read``."""
        if self._row is not None and count * (size := self._row.size) <= reader.left:
            start = reader.position
            rows = reader.take(count * size)
            if not (self._is_flexible and self._is_closed and any(rows[size - 1 :: size])):
                rest = tuple(self._rest)
                return tuple([self._make(values + rest) for values in self._row.iter_unpack(rows)])
            reader.position = start
        return tuple([self.read(reader) for _ in range(count)])

    def _with(self, tags: tuple[tuple[int, Reader], ...]) -> list[Any]:
        """As ``_rest``, what follows the values of a struct that has tagged fields."""
        known = dict(self._untagged)
        unknown = []
        for tag, value in tags:
            if (tagged := self._tagged.get(tag)) is not None:
                known[tag] = tagged[1].read(value)
                value.finish()
            else:
                unknown.append((tag, value))
        return [*self._absent, *known.values(), tuple(unknown)]

    def write(self, writer: Writer, message: Any) -> None:
        """Put the struct's fields of this version behind what was written.

        Args:
            message: the fields by name, or what ``read`` returned.

        Raises:
            struct.error, ValueError: a value does not fit its field.
        """
        if self._row is not None and type(message) is self._type and not message[-1]:
            writer.pack(self._row, *message[: self._width])
            return
        if hasattr(message, "_asdict"):
            message = message._asdict()
        self.write_fields(writer, message)
        if self._is_closed:
            writer.tags(self.tagged(message))

    def write_fields(self, writer: Writer, message: Mapping[str, Any]) -> None:
        """As ``write``, without the tagged fields that end it."""
        for write in self._writes:
            write(writer, message)

    def tagged(self, message: Mapping[str, Any]) -> list[tuple[int, bytes | bytearray | memoryview]]:
        """The tagged fields of a message that are not as they are by default, and those that are unknown here."""
        tags = [(tag, value.unread if isinstance(value, Reader) else value) for tag, value in message.get("tags", ())]
        for tag, (field, step) in self._tagged.items():
            if message.get(field.attribute, field.absent) != field.absent:
                value = Writer(flexible=True)
                step.write(value, message)
                tags.append((tag, value.data))
        return tags


@dataclass(frozen=True, slots=True)
class _Step:
    """One field, or several of fixed size in a row, which have a ``layout``; ``write`` looks them up in a message."""

    least: int
    read: Callable[[Reader], Any]
    write: Callable[[Writer, Mapping[str, Any]], None]
    layout: struct.Struct | None = None


def _runs_of_fixed(fields: Sequence[Field]) -> list[list[Field]]:
    """Fields of fixed size that follow each other together, every other one alone."""
    runs: list[list[Field]] = []
    for field in fields:
        if field.is_fixed and runs and runs[-1][0].is_fixed:
            runs[-1].append(field)
        else:
            runs.append([field])
    return runs


def _run(fields: Sequence[Field]) -> _Step:
    layout = struct.Struct(">" + "".join(_FIXED[field.kind] for field in fields))
    names = [field.attribute for field in fields]
    return _Step(
        layout.size,
        lambda reader: reader.unpack(layout)[0],
        lambda writer, message: writer.pack(layout, *[message[name] for name in names]),
        layout,
    )


def _step(field: Field, version: int, is_flexible: bool) -> _Step:
    """The step of one field; a tagged one of fixed size is read alone, too."""
    if field.is_fixed:
        return _run([field])
    name = field.attribute
    can_be_none = field.kind == "uuid" or field.nullable[0] <= version <= field.nullable[1]
    read, write, least = _array(field, version, is_flexible) if field.is_array else _single(field, version, is_flexible)

    def write_it(writer: Writer, message: Mapping[str, Any]) -> None:
        if (value := message[name]) is None and not can_be_none:
            raise ValueError(f"{field.name} must not be null")
        write(writer, value)

    return _Step(least, read if can_be_none else _present(read, field.name), write_it)


def _present(read: _Read, name: str) -> _Read:
    """The same, of a value that must not be null."""

    def read_present(reader: Reader) -> Any:
        start = reader.position
        if (value := read(reader)) is None:
            raise reader.error(f"{name} is null", position=start)
        return value

    return read_present


def _single(field: Field, version: int, is_flexible: bool) -> tuple[_Read, _Write, int]:
    """How one value of a field's type is read and written, and the fewest bytes that it takes."""
    if field.kind == "struct":
        of_struct = StructCodec(field.fields, version, is_flexible)
        return of_struct.read, of_struct.write, of_struct.least
    if field.kind == "uuid":
        return Reader.uuid, Writer.uuid, 16
    if field.kind == "int64":
        return Reader.nullable_int64, Writer.nullable_int64, 8
    if field.kind == "string":
        return Reader.nullable_string, Writer.string, 1 if is_flexible else 2
    return Reader.nullable_blob, Writer.blob, 1 if is_flexible else 4


def _array(field: Field, version: int, is_flexible: bool) -> tuple[_Read, _Write, int]:
    """As ``_single``, of an array of such values."""
    read_many, write_many, least = _elements(field, version, is_flexible)

    def read(reader: Reader) -> tuple[Any, ...] | None:
        start = reader.position
        if not (count := reader.nullable_count(least)):
            return None if count is None else ()
        reader.elements += count
        if reader.elements > MAX_ELEMENTS:
            raise reader.error(
                f"{field.name} has too many elements", position=start, expected=f"{MAX_ELEMENTS} at most"
            )
        return read_many(reader, count)

    def write(writer: Writer, values: Sequence[Any] | None) -> None:
        writer.count(None if values is None else len(values))
        write_many(writer, values or ())

    return read, write, 1 if is_flexible else 4


def _elements(
    field: Field, version: int, is_flexible: bool
) -> tuple[Callable[[Reader, int], tuple[Any, ...]], Callable[[Writer, Sequence[Any]], None], int]:
    """How elements of an array are read and written, and the fewest bytes that one takes."""
    if field.kind in _FIXED:
        code = _FIXED[field.kind]
        size = struct.calcsize(f">{code}")
        return (
            lambda reader, count: struct.unpack(f">{count}{code}", reader.take(count * size)),
            lambda writer, values: writer.raw(struct.pack(f">{len(values)}{code}", *values)),
            size,
        )
    if field.kind == "struct":
        of_struct = StructCodec(field.fields, version, is_flexible)
        return of_struct.read_many, _each(of_struct.write), of_struct.least
    read_one, write_one, least = _single(field, version, is_flexible)
    read_one = read_one if field.kind == "uuid" else _present(read_one, field.name)
    return lambda reader, count: tuple([read_one(reader) for _ in range(count)]), _each(write_one), least


def _each(write: _Write) -> Callable[[Writer, Sequence[Any]], None]:
    def write_each(writer: Writer, values: Sequence[Any]) -> None:
        for value in values:
            write(writer, value)

    return write_each


@cache
def codec_of(table: str, version: int, is_flexible: bool, is_closed: bool = True) -> StructCodec:
    """The codec of a table in one version."""
    return StructCodec(fields_of(table), version, is_flexible, is_closed=is_closed)


@cache
def codec_until(table: str, last: str, version: int, is_flexible: bool) -> StructCodec:
    """The codec of a table's fields up to one, by its name."""
    fields = fields_of(table)
    after = next(index for index, field in enumerate(fields, 1) if field.name == last)
    return StructCodec(fields[:after], version, is_flexible, is_closed=False)


FIRST_WITH_TOPIC_ID: Final = 13
"""Version of Fetch."""

_EMPTY_SIZE: Final = 1
"""Bytes of an empty array, of null, and of a section without tagged fields."""


class AnswerParts:
    """Reads the parts of an answer of ``ANSWERS_IN_PARTS``, in the order in which they come.

    That is the header and ``top`` with a count of topics; of each topic ``topic`` with a count of partitions, of each
    partition ``partition``, its records and ``after_records``; a section of tagged fields for each topic; and ``end``.
    """

    def __init__(self, api: Api, version: int) -> None:
        tables = ANSWERS_IN_PARTS[api]
        self._top = codec_of(tables.top, version, True, False)
        self._topic = codec_of(tables.topic, version, True, False)
        partition = codec_of(tables.partition, version, True, False)
        self.partition = partition.read
        self.after_records = codec_of(tables.after_records, version, True).read
        self.end = codec_of(tables.end, version, True)
        self._least_topic = self._topic.least + 2 * _EMPTY_SIZE
        self._least_partition = partition.least + 2 * _EMPTY_SIZE

    def top(self, reader: Reader) -> tuple[Any, int]:
        """Header and top; how many topics follow."""
        reader.int32()
        reader.tags()
        return self._top.read(reader), reader.count(self._least_topic)

    def topic(self, reader: Reader) -> tuple[Any, int]:
        """A topic, and how many partitions follow."""
        return self._topic.read(reader), reader.count(self._least_partition)


@cache
def answer_parts(api: Api, version: int) -> AnswerParts:
    """The reader of an answer's parts in this version."""
    return AnswerParts(api, version)
