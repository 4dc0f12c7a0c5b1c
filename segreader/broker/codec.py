"""Encode and decode messages of the Kafka protocol by the tables of ``schemas``.

A table is compiled once for each version, into the steps that its fields take. Any bytes give a value or a
``ProtocolError`` that names the API, its version and the position, in time and memory bounded by the frame. Bytes are
slices of it. Source: the protocol guide of Apache Kafka 4.3; KIP-482.
"""

from __future__ import annotations

import re
import struct
from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

from segreader.broker.primitives import Reader, Writer
from segreader.broker.schemas import ANSWERS, REQUESTS
from segreader.broker.versions import Api, is_flexible, largest_answer, response_header_version
from segreader.errors import OptionError

MAX_ELEMENTS: Final = 1 << 22
"""Elements of all arrays of one message: Metadata of 400,000 partitions with three replicas has fewer."""

_FIXED: Final = {"bool": "?", "int8": "b", "int16": "h", "int32": "i", "int64": "q"}
_ALWAYS: Final = (0, 1 << 15)
_NEVER: Final = (1, 0)

_Read = Callable[[Reader], Any]
_Write = Callable[[Writer, Any], None]


def encode_request(api: Api, version: int, message: Mapping[str, Any], *, correlation_id: int, client_id: str) -> bytes:
    """A whole frame, its size and header included.

    Args:
        message: the fields by name in snake case. One that this version lacks is left out; ``tags`` adds tagged fields.

    Raises:
        OptionError: a value does not fit its field.
    """
    writer = Writer(flexible=is_flexible(api, version))
    try:
        writer.int16(api)
        writer.int16(version)
        writer.int32(correlation_id)
        writer.client_id(client_id)
        writer.tags()
        _codec(REQUESTS[api], version, writer.flexible).write(writer, message)
    except (struct.error, UnicodeEncodeError) as wrong:
        raise OptionError(f"this cannot be asked by {api.label} {version}: {wrong}") from None
    return writer.framed()


def answer_body(api: Api, version: int, frame: bytes | memoryview) -> Reader:
    """A reader at the first byte of an answer's body.

    Raises:
        ProtocolError: the header is damaged, or the answer larger than ``largest_answer``.
    """
    reader = Reader(frame, flexible=bool(response_header_version(api, version)), what=f"{api.label} {version} answer")
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
    message = _codec(ANSWERS[api], version, reader.flexible).read(reader)
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
        return not self.is_array and self.kind in _FIXED

    @property
    def absent(self) -> Any:
        """The value in a version without this field."""
        if self.is_array:
            return ()
        return (self.default or 0) if self.kind in _FIXED else None

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
        self._is_closed = is_closed
        self._steps = [
            _run(run) if run[0].is_fixed else _step(run[0], version, is_flexible) for run in _runs_of_fixed(plain)
        ]
        self.least = max(1, sum(step.least for step in self._steps) + (is_closed and is_flexible))
        """Bytes that it takes at least."""
        self._tagged = {field.tag: (field, _step(field, version, is_flexible)) for field in tagged}
        self._absent = [field.absent for field in absent]
        names = [field.attribute for field in (*plain, *absent, *tagged)]
        self._make = namedtuple("Message", [*names, "tags"])._make  # type: ignore[attr-defined]

    def read(self, reader: Reader) -> Any:
        """The struct that begins here, as a named tuple.

        Raises:
            ProtocolError: it is damaged or cut.
        """
        values: list[Any] = []
        for step in self._steps:
            if step.layout is not None:
                values += reader.unpack(step.layout)
            else:
                values.append(step.read(reader))
        values += self._absent
        tags = reader.tags() if self._is_closed else ()
        if self._tagged:
            known, tags = self._known(tags)
            values += known
        values.append(tags)
        return self._make(values)

    def _known(self, tags: tuple[tuple[int, Reader], ...]) -> tuple[list[Any], tuple[tuple[int, Reader], ...]]:
        """The values of the tagged fields that are known, and those that are not."""
        values = {tag: field.absent for tag, (field, _) in self._tagged.items()}
        unknown = []
        for tag, value in tags:
            if tag in self._tagged:
                values[tag] = self._tagged[tag][1].read(value)
                value.finish()
            else:
                unknown.append((tag, value))
        return list(values.values()), tuple(unknown)

    def write(self, writer: Writer, message: Mapping[str, Any]) -> None:
        """Put the struct's fields of this version behind what was written.

        Raises:
            struct.error, ValueError: a value does not fit its field.
        """
        for step in self._steps:
            step.write(writer, message)
        if not self._is_closed:
            return
        tags = list(message.get("tags", ()))
        for tag, (field, step) in self._tagged.items():
            if message.get(field.attribute, field.absent) != field.absent:
                value = Writer(flexible=True)
                step.write(value, message)
                tags.append((tag, value.data))
        writer.tags(tags)


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

    def read_present(reader: Reader) -> Any:
        start = reader.position
        if (value := read(reader)) is None:
            raise reader.error(f"{field.name} is null", position=start)
        return value

    def write_it(writer: Writer, message: Mapping[str, Any]) -> None:
        if (value := message[name]) is None and not can_be_none:
            raise ValueError(f"{field.name} must not be null")
        write(writer, value)

    return _Step(least, read if can_be_none else read_present, write_it)


def _single(field: Field, version: int, is_flexible: bool) -> tuple[_Read, _Write, int]:
    """How one value of a field's type is read and written, and the fewest bytes that it takes."""
    if field.kind == "struct":
        struct_codec = StructCodec(field.fields, version, is_flexible)
        return struct_codec.read, struct_codec.write, struct_codec.least
    if field.kind == "uuid":
        return Reader.uuid, Writer.uuid, 16
    if field.kind == "string":
        return Reader.nullable_string, Writer.string, 1 if is_flexible else 2
    return Reader.nullable_blob, Writer.blob, 1 if is_flexible else 4


def _array(field: Field, version: int, is_flexible: bool) -> tuple[_Read, _Write, int]:
    """As ``_single``, of an array of such values."""
    element = replace(field, is_array=False, nullable=_NEVER)
    size = struct.calcsize(">" + _FIXED[element.kind]) if element.is_fixed else 0
    read, write, least = (Reader.int8, Writer.int8, size) if size else _single(element, version, is_flexible)

    def read_array(reader: Reader) -> tuple[Any, ...] | None:
        start = reader.position
        if (count := reader.nullable_count(least)) is None:
            return None
        reader.elements += count
        if reader.elements > MAX_ELEMENTS:
            raise reader.error(
                f"{field.name} has too many elements", position=start, expected=f"{MAX_ELEMENTS} at most"
            )
        if size:
            return struct.unpack(f">{count}{_FIXED[element.kind]}", reader.take(count * size))
        elements = []
        for _ in range(count):
            at = reader.position
            if (value := read(reader)) is None and element.kind != "uuid":
                raise reader.error(f"{field.name} is null", position=at)
            elements.append(value)
        return tuple(elements)

    def write_array(writer: Writer, values: Sequence[Any] | None) -> None:
        writer.count(None if values is None else len(values))
        if size:
            writer.raw(struct.pack(f">{len(values or ())}{_FIXED[element.kind]}", *(values or ())))
            return
        for value in values or ():
            write(writer, value)

    return read_array, write_array, 1 if is_flexible else 4


@cache
def _codec(table: str, version: int, is_flexible: bool) -> StructCodec:
    return StructCodec(fields_of(table), version, is_flexible)
