"""Which schemas the records of a topic name, from when to when, and what changed from one to the next.

Of each value the first bytes are looked at, in Arrow's own functions: no record becomes an object of Python.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from segreader.errors import OptionError, SchemaNotFoundError
from segreader.places import at_places
from segreader.ranges import OffsetRange
from segreader.typed.decoding import SchemaSource, Side
from segreader.typed.framing import HEADER_NAMES, read_frame
from segreader.typed.ops import Bad
from segreader.typed.reader_schema import Schemas, learn, type_of
from segreader.typed.registry import SchemaRegistry, parse_framing
from segreader.typed.schema import Framing, Schema, SchemaSet
from segreader.typed.types import Type, TypeField, ValueKind
from segreader.values import dataclass

MOST_IDS: Final = 10_000
"""Different ids, at most: with more of them, most are bytes that only look like ids. Values with others count as
unframed."""

_BATCH_ROWS: Final = 1 << 16
_NO_TIME: Final = -1
_NULL: Final = b"\xff"  # in place of a head, of values that are null, and of those without a frame
_UNFRAMED: Final = b""
_HEADS: Final[Mapping[Framing, tuple[tuple[bytes, int], ...]]] = {
    Framing.CONFLUENT: ((b"\x00", 5), (b"\x01", 17)),
    Framing.APICURIO: ((b"\x00", 9),),
    Framing.GLUE: ((b"\x03\x00", 18), (b"\x03\x05", 18)),
    Framing.SINGLE_OBJECT: ((b"\xc3\x01", 10),),
}
"""What values begin with, and how many bytes name a schema."""


class UseKind(StrEnum):
    """What values have in common."""

    SCHEMA = "schema"  # they name the same schema
    NULL = "null"
    UNFRAMED = "unframed"  # they do not begin as their framing says


class ChangeKind(StrEnum):
    """What happened to a field."""

    ADDED = "added"
    REMOVED = "removed"
    RENAMED = "renamed"  # by an alias (Avro), or its number (Protobuf)
    RETYPED = "retyped"


@dataclass(frozen=True, slots=True)
class FieldChange:
    """One field that two schemas have differently.

    Args:
        field: its name with those around it, with dots between.
        before, after: its type, or, of one that was renamed, its name; ``None`` where it is not there.
    """

    kind: ChangeKind
    field: str
    before: str | None = None
    after: str | None = None

    def __str__(self) -> str:
        match self.kind:
            case ChangeKind.ADDED:
                return f"+ {self.field}: {self.after}"
            case ChangeKind.REMOVED:
                return f"- {self.field}: {self.before}"
            case ChangeKind.RENAMED:
                return f"~ {self.before} is now {self.field}"
        return f"~ {self.field}: {self.before} is now {self.after}"


@dataclass(frozen=True, slots=True)
class PartitionUse:
    """Where records of one partition name a schema.

    Args:
        offsets: from the first such record to the last one; others may be between them.
        first_timestamp_ms, last_timestamp_ms: the oldest and the newest, whatever the offsets; ``None``: there is none.
    """

    topic: str
    partition: int
    records: int
    offsets: OffsetRange
    first_timestamp_ms: int | None
    last_timestamp_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaUse:
    """The records that name one schema, those that are null, or those that name none.

    Args:
        id: as their frames have it: a number, a GUID, a fingerprint; ``None`` where they name none.
        names: the id in each form that a ``SchemaSet`` may have it in.
        subject, version, schema: what is known of it.
        changes: against the one before it in the survey; ``None`` where one of the two is not known.
    """

    kind: UseKind
    id: str | None = None
    names: tuple[str, ...] = ()
    partitions: tuple[PartitionUse, ...] = ()
    subject: str | None = None
    version: int | None = None
    schema: Schema | None = None
    changes: tuple[FieldChange, ...] | None = None

    @property
    def records(self) -> int:
        """How many there are."""
        return sum(one.records for one in self.partitions)

    @property
    def first_timestamp_ms(self) -> int | None:
        """The oldest timestamp among them."""
        return min(
            (one.first_timestamp_ms for one in self.partitions if one.first_timestamp_ms is not None), default=None
        )

    @property
    def last_timestamp_ms(self) -> int | None:
        """The newest timestamp among them."""
        return max(
            (one.last_timestamp_ms for one in self.partitions if one.last_timestamp_ms is not None), default=None
        )


@dataclass(frozen=True, slots=True)
class SchemaSurvey:
    """What a topic's records name.

    Args:
        uses: schemas by version, or else by the time of their first record; then null and unframed ones.
        notes: what else there is to say.
    """

    uses: tuple[SchemaUse, ...]
    notes: tuple[str, ...] = ()


@at_places
def survey(
    location: Any = None,
    *,
    topic: str | None = None,
    schemas: Schemas | None = None,
    side: Side | str = Side.VALUE,
    framing: Framing | str | None = None,
    message: str | None = None,
    **arguments: Any,
) -> SchemaSurvey:
    """Which schemas the records of a topic name, from which offset and time to which, and how many there are.

    With schemas, what changed from one to the next. Only the first bytes of values are looked at.

    Args:
        location, topic, arguments: as of ``segreader.scan``.
        schemas: as its ``value``. A registry is also asked for ids that the topic's subjects do not have.
        side: ``value`` or ``key``.
        framing: by default that of ``schemas``, or ``confluent``.
        message: of Protobuf schemas: the full name of the message whose fields are compared.

    Raises:
        OptionError: an argument is unknown; values without a frame name no schema.
        others: as ``segreader.scan`` and its ``to_batches``.
    """
    from segreader.scans import scan

    counter = SchemaCounter(topic, schemas=schemas, side=side, framing=framing, message=message)
    with scan(location, topic=topic, **(dict(arguments) | counter.arguments)) as scanned:
        for batch in scanned.to_batches():
            counter.add(batch)
        found = counter.survey()
        return replace(found, notes=(*scanned.metrics.notes, *found.notes))


_Partition = tuple[str, int]
_Found = dict[_Partition, PartitionUse]


class SchemaCounter:
    """Makes a survey of record batches; its arguments are those of ``survey``."""

    def __init__(
        self,
        topic: str | None,
        *,
        schemas: Schemas | None = None,
        side: Side | str = Side.VALUE,
        framing: Framing | str | None = None,
        message: str | None = None,
    ) -> None:
        self._topic = topic
        self._side = _side(side)
        self._source = _opened(schemas)
        self._known = _learnt(self._source, topic)
        self._framing = self._known.framing if framing is None else parse_framing(framing)
        self._message = message or self._known.message
        self._found: dict[bytes, _Found] = {}
        if self._framing is Framing.BARE:
            raise OptionError(
                "values without a frame name no schema", hint="Say how they are framed: framing=… (--framing)"
            )

    @property
    def arguments(self) -> dict[str, Any]:
        """What a scan is given whose batches are counted here."""
        columns = ("topic", "partition", "offset", "timestamp_ms", self._side.value)
        has_headers = self._framing is Framing.CONFLUENT
        return {"columns": (*columns, *(("headers",) if has_headers else ())), "batch_rows": _BATCH_ROWS}

    def add(self, batch: pa.RecordBatch) -> None:
        """Count the records of a batch, which is of one partition."""
        if batch.num_rows == 0:
            return
        where = (batch.column("topic")[0].as_py(), batch.column("partition")[0].as_py())
        heads = heads_of(batch.column(self._side.value), self._framing)
        if "headers" in batch.schema.names:
            heads = _with_headers(heads, batch.column("headers"), HEADER_NAMES[self._side])
        times = batch.column("timestamp_ms")
        times = pc.if_else(pc.equal(times, _NO_TIME), pa.scalar(None, times.type), times)
        table = pa.table({"head": heads, "offset": batch.column("offset"), "time": times})
        counted = table.group_by("head", use_threads=False).aggregate(
            [("offset", "min"), ("offset", "max"), ("time", "min"), ("time", "max"), ([], "count_all")]
        )
        for row in counted.to_pylist():
            head = row["head"]
            if head not in self._found and len(self._found) >= MOST_IDS:
                head = _UNFRAMED
            offsets = OffsetRange(row["offset_min"], row["offset_max"] + 1)
            one = PartitionUse(*where, row["count_all"], offsets, row["time_min"], row["time_max"])
            _add(self._found.setdefault(head, {}), one)

    def survey(self) -> SchemaSurvey:
        """What was counted; a registry is asked for schemas that the topic's subjects do not have.

        Raises:
            SchemaRegistryError: it cannot be asked. OptionError: a schema is invalid.
        """
        uses = _by_id(_use(head, found, self._framing) for head, found in self._found.items())
        known = self._known
        missing = [one.names[0] for one in uses if one.names and _schema(known, one) is None]
        if missing and isinstance(self._source, SchemaRegistry):
            known = replace(known, ids=(*known.ids, *self._source.find(missing, self._topic).items()))
        notes: list[str] = []
        compared = tuple(_compared(_described(uses, known), self._message, notes))
        return SchemaSurvey(compared, tuple(notes))


def _side(side: Side | str) -> Side:
    try:
        return Side(side)
    except ValueError:
        raise OptionError("unknown side of records", found=repr(side), expected="value or key") from None


def _opened(schemas: Schemas | None) -> SchemaSource | SchemaSet | None:
    if isinstance(schemas, str | os.PathLike):
        from segreader.typed.sources import open_schemas

        return open_schemas(schemas)
    return schemas


def _learnt(source: SchemaSource | SchemaSet | None, topic: str | None) -> SchemaSet:
    """The topic's schemas; none where a registry has no subject of its name: ids are asked for one by one then."""
    try:
        return SchemaSet() if source is None else learn(source, topic)
    except SchemaNotFoundError:
        if isinstance(source, SchemaRegistry):
            return SchemaSet(framing=source.framing)
        raise


def _schema(known: SchemaSet, use: SchemaUse) -> Schema | None:
    return next((found for one in use.names if (found := known.schema(one)) is not None), None)


def _add(found: _Found, one: PartitionUse) -> None:
    where = one.topic, one.partition
    found[where] = _joined(found[where], one) if where in found else one


def _joined(one: PartitionUse, other: PartitionUse) -> PartitionUse:
    """Two parts of a partition as one."""
    firsts = [part.first_timestamp_ms for part in (one, other) if part.first_timestamp_ms is not None]
    lasts = [part.last_timestamp_ms for part in (one, other) if part.last_timestamp_ms is not None]
    stops = [part.offsets.stop for part in (one, other) if part.offsets.stop is not None]
    return replace(
        one,
        records=one.records + other.records,
        offsets=OffsetRange(min(one.offsets.start, other.offsets.start), max(stops)),
        first_timestamp_ms=min(firsts, default=None),
        last_timestamp_ms=max(lasts, default=None),
    )


def heads_of(values: pa.Array, framing: Framing) -> pa.Array:
    """The first bytes of each value that name its schema: empty where they do not, ``ff`` of a null.

    Args:
        values: ``binary``.
    """
    sizes = pc.binary_length(values)
    heads: Any = pa.scalar(_UNFRAMED, values.type)
    for begin, size in _HEADS[framing]:
        starts = pc.equal(pc.binary_slice(values, 0, len(begin)), pa.scalar(begin, values.type))
        if not pc.any(starts).as_py():
            continue
        heads = pc.if_else(pc.and_(starts, pc.greater_equal(sizes, size)), pc.binary_slice(values, 0, size), heads)
    return pc.if_else(pc.is_null(values), pa.scalar(_NULL, values.type), heads)


def _with_headers(heads: pa.Array, headers: pa.Array, name: str) -> pa.Array:
    """Heads, but those in headers where a record has the header; the first one counts."""
    fields = pc.list_flatten(headers)
    if len(fields) == 0:
        return heads
    names, values = pc.struct_field(fields, "key"), pc.struct_field(fields, "value")
    is_one = pc.and_(pc.equal(names, name), pc.is_valid(values))
    rows = pc.filter(pc.list_parent_indices(headers), is_one)
    if len(rows) == 0:
        return heads
    ids = pc.filter(values, is_one)
    at = pc.index_in(pa.array(range(len(heads)), rows.type), value_set=rows)
    named = pc.take(heads_of(ids, Framing.CONFLUENT), at)
    is_null = pc.equal(heads, pa.scalar(_NULL, heads.type))
    return pc.if_else(pc.or_(is_null, pc.is_null(named)), heads, named)


def _use(head: bytes, found: _Found, framing: Framing) -> SchemaUse:
    partitions = tuple(found[where] for where in sorted(found))
    if head == _NULL:
        return SchemaUse(kind=UseKind.NULL, partitions=partitions)
    frame = Bad.NO_FRAME if head == _UNFRAMED else read_frame(head, framing)
    if isinstance(frame, Bad):
        return SchemaUse(kind=UseKind.UNFRAMED, partitions=partitions)
    return SchemaUse(kind=UseKind.SCHEMA, id=frame.names[0], names=frame.names, partitions=partitions)


def _by_id(uses: Iterable[SchemaUse]) -> list[SchemaUse]:
    """The same with each id once: frames may differ in more than their id."""
    merged: dict[tuple[UseKind, str | None], SchemaUse] = {}
    for one in uses:
        before = merged.setdefault((one.kind, one.id), one)
        if before is not one:
            found = {(part.topic, part.partition): part for part in before.partitions}
            for part in one.partitions:
                _add(found, part)
            merged[one.kind, one.id] = replace(before, partitions=tuple(found[where] for where in sorted(found)))
    return list(merged.values())


def _described(uses: Iterable[SchemaUse], known: SchemaSet) -> list[SchemaUse]:
    """The uses in the order of a survey, with what is known of their schemas."""
    versions = [(subject, one) for subject, versions in known.subjects for one in versions]
    by_id = {str(one.id): (subject, one.version) for subject, one in versions}
    by_schema = {schema: place for id, place in by_id.items() if (schema := known.schema(id)) is not None}
    described = []
    for use in uses:
        schema = _schema(known, use)
        # A GUID is of no subject: its schema has the id of one.
        place = by_id.get(use.id or "") or (None if schema is None else by_schema.get(schema))
        subject, version = place or (None, None)
        described.append(replace(use, schema=schema, subject=subject, version=version))

    def order(use: SchemaUse) -> tuple[Any, ...]:
        first = use.first_timestamp_ms
        time = (first is None, first or 0, use.id or "")
        return (list(UseKind).index(use.kind), use.subject is None, use.subject or "", use.version or 0, time)

    return sorted(described, key=order)


def _compared(uses: Iterable[SchemaUse], message: str | None, notes: list[str]) -> Iterator[SchemaUse]:
    before: SchemaUse | None = None
    for use in uses:
        if before is not None and before.schema and use.schema and before.subject == use.subject:
            try:
                found = tuple(changes(type_of(before.schema, message), type_of(use.schema, message)))
                yield replace(use, changes=found)
            except OptionError as error:
                notes.append(f"schemas {before.id} and {use.id} cannot be compared: {error}")
                yield use
        else:
            yield use
        before = use


def changes(before: Type, after: Type, path: str = "") -> Iterator[FieldChange]:
    """What changed from one type to another, field by field, in the order of the later one; then what was removed.

    Args:
        path: of the type itself, with dots; empty for the root.
    """
    if before == after:
        return
    if _said(before) != _said(after):
        yield FieldChange(ChangeKind.RETYPED, path or "the value", _said(before), _said(after))
    if before.kind is not after.kind:
        return
    if after.kind is ValueKind.STRUCT:
        yield from _changes_of_fields(before, after, path)
    elif after.kind is ValueKind.LIST:
        yield from changes(before.fields[0].type, after.fields[0].type, path)
    elif after.kind is ValueKind.MAP:
        for one, other, name in zip(before.fields, after.fields, ("key", "value"), strict=True):
            yield from changes(one.type, other.type, f"{path}.{name}")


def _changes_of_fields(before: Type, after: Type, path: str) -> Iterator[FieldChange]:
    prefix = f"{path}." if path else ""
    left = {one.name: one for one in before.fields}
    for field in after.fields:
        earlier = _earlier(field, before.fields, after.fields)
        name = prefix + field.name
        if earlier is None:
            yield FieldChange(ChangeKind.ADDED, name, after=_said(field.type))
            continue
        del left[earlier.name]
        if earlier.name != field.name:
            yield FieldChange(ChangeKind.RENAMED, name, prefix + earlier.name, name)
        yield from changes(earlier.type, field.type, name)
    for field in left.values():
        yield FieldChange(ChangeKind.REMOVED, prefix + field.name, before=_said(field.type))


def _earlier(field: TypeField, before: tuple[TypeField, ...], after: tuple[TypeField, ...]) -> TypeField | None:
    """The field that this one was before: of Protobuf by its number, else by its name, or an alias that is none now."""
    if field.number:
        return next((one for one in before if one.number == field.number), None)
    by_name = {one.name: one for one in before}
    now = {one.name for one in after}
    names = (field.name, *(one for one in field.aliases if one not in now))
    return next((by_name[one] for one in names if one in by_name), None)


def _said(one: Type) -> str:
    """A type in words, as far as it is not that of its fields."""
    text = str(one)
    if one.kind is ValueKind.ENUM:
        text = f"enum({', '.join(one.symbols)})"
    elif one.kind is ValueKind.STRING and one.unit:
        text = one.unit
    elif one.kind is ValueKind.LIST:
        text = f"list of {_said(one.fields[0].type)}"
    elif one.kind is ValueKind.MAP:
        text = f"map to {_said(one.fields[1].type)}"
    return f"{text} or null" if one.is_nullable else text
