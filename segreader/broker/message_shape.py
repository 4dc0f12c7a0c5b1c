"""Whether bytes have the shape of a message, by Kafka's own schema of it, before a library decodes them.

kafka-python takes what a peer claims at its word: a varint without an end keeps it busy for hours, bytes left over or
missing at the end pass in silence, tagged fields within tagged fields are an assertion. So each answer is walked once
here, from the schema that the library brings: every length and count is held against the bytes left, every string is
UTF-8, null stands only where it may. Tagged fields are cut out; no answer that goes this way keeps a fact in a known
one. What is left decodes without surprise, in memory bounded by the frame. Source: the message schemas of Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from segreader.broker.primitives import Reader

MAX_ELEMENTS: Final = 1 << 22
"""Elements of all arrays of one message: Metadata of 400,000 partitions with three replicas has fewer."""

_FIXED: Final = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "uint16": 2,
    "int32": 4,
    "bitfield": 4,
    "int64": 8,
    "float64": 8,
    "uuid": 16,
}
_STRING, _BLOB = "string", ("bytes", "records")


@dataclass(frozen=True, slots=True)
class _Field:
    """One field of a version: ``size`` bytes, or a string, bytes, an array, or a struct."""

    name: str
    kind: str
    size: int = 0
    is_nullable: bool = False
    fields: tuple[_Field, ...] = ()

    def least(self, is_flexible: bool) -> int:
        """The fewest bytes it can take."""
        if self.kind == "fixed":
            return self.size
        if self.kind == "struct":
            return max(1, sum(field.least(is_flexible) for field in self.fields) + is_flexible)
        if is_flexible:
            return 1
        return 2 if self.kind == _STRING else 4


class MessageShape:
    """The shape of one message in one version.

    Args:
        schema: Kafka's description of the message: its name, its fields and the versions each belongs to.
    """

    def __init__(self, schema: Mapping[str, Any], version: int) -> None:
        self._is_flexible = _includes(schema["flexibleVersions"], version)
        self._fields = _fields(schema["fields"], version)

    def body(self, reader: Reader) -> tuple[memoryview, tuple[tuple[int, Reader], ...]]:
        """The body without its tagged fields, and those of the top level.

        Args:
            reader: at the first byte of the body. Nothing may follow it.

        Raises:
            ProtocolError: the bytes have another shape; the position is where.
        """
        reader.flexible = self._is_flexible
        walk = _Walk(reader)
        start = reader.position
        walk.fields(self._fields)
        before = reader.position
        tags = reader.tags()
        walk.cut(before)
        reader.finish()
        return walk.result(start), tags


class _Walk:
    """One pass over one message: how many elements it had, and where its tagged fields lie."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._elements = 0
        self._cuts: list[tuple[int, int]] = []

    def fields(self, fields: Sequence[_Field]) -> None:
        for field in fields:
            if field.kind == "fixed":
                self._reader.take(field.size)
            elif field.kind == "array":
                self._array(field)
            elif field.kind == "struct":
                self._struct(field)
            else:
                self._text(field)

    def _text(self, field: _Field) -> None:
        reader, start = self._reader, self._reader.position
        taken = reader.nullable_string() if field.kind == _STRING else reader.nullable_blob()
        if taken is None and not field.is_nullable:
            raise reader.error(f"{field.name} is null", position=start)

    def _struct(self, field: _Field) -> None:
        self.fields(field.fields)
        before = self._reader.position
        self._reader.tags()
        self.cut(before)

    def _array(self, field: _Field) -> None:
        reader, start = self._reader, self._reader.position
        (element,) = field.fields
        if (count := reader.nullable_count(element.least(reader.flexible))) is None:
            if not field.is_nullable:
                raise reader.error(f"{field.name} is null", position=start)
            return
        self._elements += count
        if self._elements > MAX_ELEMENTS:
            raise reader.error(
                f"{field.name} has too many elements", position=start, expected=f"{MAX_ELEMENTS} at most"
            )
        if element.kind == "fixed":
            reader.take(count * element.size)
            return
        for _ in range(count):
            self.fields(field.fields)

    def cut(self, before: int) -> None:
        """Take out the tagged fields that began at ``before``, if there are any."""
        if self._reader.position - before > 1:
            self._cuts.append((before, self._reader.position))

    def result(self, start: int) -> memoryview:
        """The message, each section of tagged fields replaced by an empty one."""
        whole, stop = self._reader.data, self._reader.position
        if not self._cuts:
            return whole[start:stop]
        kept, at = bytearray(), start
        for first, end in self._cuts:
            kept += whole[at:first]
            kept.append(0)
            at = end
        return memoryview(kept + whole[at:stop])


def _includes(versions: str, version: int) -> bool:
    """Whether ``3+``, ``1-7``, ``4`` or ``none`` includes a version."""
    if versions == "none":
        return False
    if versions.endswith("+"):
        return version >= int(versions[:-1])
    first, _, last = versions.partition("-")
    return int(first) <= version <= int(last or first)


def _fields(described: Sequence[Mapping[str, Any]], version: int) -> tuple[_Field, ...]:
    fields: list[_Field] = []
    for one in described:
        if not _includes(one["versions"], version) or _includes(one.get("taggedVersions", "none"), version):
            continue
        field = _field(one, one["type"], version)
        if field.kind == "fixed" and fields and fields[-1].kind == "fixed":
            field = _Field(f"{fields[-1].name}, {field.name}", "fixed", fields.pop().size + field.size)
        fields.append(field)
    return tuple(fields)


def _field(one: Mapping[str, Any], kind: str, version: int) -> _Field:
    name, is_nullable = one["name"], _includes(one.get("nullableVersions", "none"), version)
    if kind.startswith("[]"):
        return _Field(name, "array", 0, is_nullable, (_field({**one, "nullableVersions": "none"}, kind[2:], version),))
    if kind in _FIXED:
        return _Field(name, "fixed", _FIXED[kind])
    if kind == _STRING or kind in _BLOB:
        return _Field(name, kind, 0, is_nullable)
    if is_nullable:
        raise ValueError(f"{name} is a struct that may be null, which no message here has")
    return _Field(name, "struct", fields=_fields(one["fields"], version))
