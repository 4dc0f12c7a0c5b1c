"""Decoded keys and values in Spark: where their schemas come from, the types they have there, and their columns.

Schemas are learnt on the driver, once for each ``load()``; the options that travel to tasks hold what was learnt, and
no task asks for any. Arrow's types are those of ``read``, but for what Spark's reader of Arrow does not know: see
``spark_form``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from segreader.errors import OptionError
from segreader.plan.request import ReadOptions
from segreader.spark.credentials import provided_to_registry
from segreader.spark.options import SchemaChoice, SparkOptions, TopicChoice
from segreader.typed.decoding import Decoding, SchemaSource, Side
from segreader.typed.reader_schema import learn_sides, plan_decoding
from segreader.typed.schema import SchemaSet
from segreader.typed.types import Type, TypeField, ValueKind

INTERVAL: Final = pa.struct(
    [pa.field("months", pa.int32()), pa.field("days", pa.int32()), pa.field("nanoseconds", pa.int64())]
)
"""What an Avro duration is in Spark, whose intervals have months, or days and less."""

_EACH: Final = "Read each topic by itself"
_UINT64: Final = pa.decimal128(20, 0)


# Types


def spark_form(kind: pa.DataType) -> pa.DataType:
    """The Arrow type that Spark is given for one of a decoded key or value; every field in it may be null.

    docs/reference/spark.md has the table.
    """
    types = pa.types
    if types.is_struct(kind):
        return pa.struct([pa.field(one.name, spark_form(one.type)) for one in kind])
    if types.is_map(kind):
        return pa.map_(spark_form(kind.key_type), spark_form(kind.item_type))
    if types.is_list(kind):
        return pa.list_(pa.field("element", spark_form(kind.value_type)))
    if types.is_timestamp(kind):
        return pa.timestamp("us", tz=kind.tz)
    if types.is_duration(kind):
        return pa.duration("us")
    if types.is_time(kind) or kind == pa.uint32():
        return pa.int64()
    if kind == pa.uint64():
        return _UINT64
    if types.is_dictionary(kind) or types.is_null(kind) or types.is_decimal256(kind):
        return pa.string()
    if types.is_fixed_size_binary(kind) and not types.is_decimal(kind):
        return pa.binary()
    return INTERVAL if kind == pa.month_day_nano_interval() else kind


# Columns


def for_spark(array: pa.Array, form: pa.DataType) -> pa.Array:
    """A decoded column as Spark is given it; what has the same form in both keeps its memory.

    Args:
        form: what ``spark_form`` gives for its type; structs in it may lack fields, or have them in another order.
    """
    kind = array.type
    if kind.equals(form):
        return array
    types = pa.types
    if types.is_struct(form) and types.is_struct(kind):
        children = [for_spark(array.field(kind.get_field_index(one.name)), one.type) for one in form]
        if array.offset:
            return pa.StructArray.from_arrays(children, fields=list(form), mask=array.is_null())
        return pa.Array.from_buffers(form, len(array), array.buffers()[:1], array.null_count, 0, children)
    if types.is_list(form):
        children = [for_spark(array.values, form.value_type)]
        return pa.Array.from_buffers(form, len(array), array.buffers()[:2], array.null_count, array.offset, children)
    if types.is_map(form):
        keys, items = for_spark(array.keys, form.key_type), for_spark(array.items, form.item_type)
        entries = pa.struct([form.key_field, form.item_field])
        pairs = pa.Array.from_buffers(entries, len(keys), [None], 0, 0, [keys, items])
        return pa.Array.from_buffers(form, len(array), array.buffers()[:2], array.null_count, array.offset, [pairs])
    return _leaf(array, form)


def _leaf(array: pa.Array, form: pa.DataType) -> pa.Array:
    kind, types = array.type, pa.types
    if types.is_null(kind):
        return pa.nulls(len(array), form)
    if types.is_time(kind):
        return array.cast(pa.time64("us")).view(form)
    if types.is_timestamp(kind) or types.is_duration(kind):
        if kind.unit != "ns":
            return array.cast(form)
        return _floor_divided(array.view(pa.int64()), 1000).view(form)
    if kind == pa.month_day_nano_interval():
        return _interval(array)
    return array.cast(form)


def _floor_divided(values: pa.Array, by: int) -> pa.Array:
    """Whole units at or below; Arrow's own division goes towards zero."""
    towards_zero = pc.divide(values, by)
    is_above = pc.less(values, pc.multiply(towards_zero, by))
    return pc.subtract(towards_zero, pc.cast(is_above, pa.int64()))


def _interval(array: pa.Array) -> pa.Array:
    """Source: Arrow's columnar format: months and days of 32 bits, nanoseconds of 64."""
    rows, data = len(array), array.buffers()[1]
    first = array.offset
    words = pa.Array.from_buffers(pa.int32(), 4 * rows, [None, data], offset=4 * first)
    longs = pa.Array.from_buffers(pa.int64(), 2 * rows, [None, data], offset=2 * first)
    steps = pa.array(range(rows), pa.int64())
    months = words.take(pc.multiply(steps, 4))
    days = words.take(pc.add(pc.multiply(steps, 4), 1))
    nanoseconds = longs.take(pc.add(pc.multiply(steps, 2), 1))
    return pa.StructArray.from_arrays([months, days, nanoseconds], fields=list(INTERVAL), mask=array.is_null())


# Schemas


def with_schemas(options: SparkOptions) -> SparkOptions:
    """The options with the schemas that they name. This is the only time that anything is asked for them.

    Raises:
        OptionError: there are no such schemas, they do not agree, or have no such field.
        SchemaRegistryError: a registry cannot be asked.
    """
    chosen = options.schemas
    if not chosen.is_any:
        return options
    asked = _AskedOnce(options.choice, chosen.credentials)
    made: dict[str, Any] = {}
    try:
        for side in Side:
            place = chosen.place_of(side)
            if place is None and chosen.both is not None:
                place = chosen.both if side is Side.VALUE or asked.has_keys(chosen.both) else None
            if place is not None:
                made[side.value] = _decoding(chosen, side, asked.schemas(place, side))
    except OptionError as error:
        raise _in_words_of_options(error) from None
    return replace(options, read_options=replace(options.read_options, **made))


class _AskedOnce:
    """Asks each place for the schemas of the chosen topics once, whichever side they are for."""

    def __init__(self, choice: TopicChoice, credentials: str) -> None:
        self._choice, self._credentials = choice, credentials
        self._sources: dict[str, SchemaSource] = {}
        self._known: dict[tuple[str, str | None], SchemaSet] = {}

    def schemas(self, place: str, side: Side) -> dict[str | None, SchemaSet]:
        """The schemas of each topic. A pattern chooses those that have a subject of the side; if there are none, the
        schemas are of no topic in particular."""
        if self._choice.pattern is None:
            return {topic: self._of(place, topic) for topic in self._choice.names}
        whole = self._of(place, None)
        topics = [name.removesuffix(f"-{side}") for name, _ in whole.subjects if name.endswith(f"-{side}")]
        from segreader.typed.sources import narrowed  # tasks do without

        return {one: narrowed(whole, one) for one in topics if self._choice.matches(one)} or {None: whole}

    def has_keys(self, place: str) -> bool:
        """Whether each of the topics has schemas of its keys there."""
        keys, values = (self.schemas(place, side) for side in Side)
        return (
            all(Side.KEY in learn_sides(known, topic) for topic, known in keys.items()) and keys.keys() >= values.keys()
        )

    def _of(self, place: str, topic: str | None) -> SchemaSet:
        if place not in self._sources:
            self._sources[place] = _source(place, self._credentials)
        if (place, topic) not in self._known:
            self._known[place, topic] = self._sources[place].learn(topic)
        return self._known[place, topic]


def _in_words_of_options(error: OptionError) -> OptionError:
    if error.hint is not None:
        error.hint = error.hint.replace("schema_version", "schemaVersion")
    return error


def require_columns(options: ReadOptions) -> None:
    """Refuse decoded keys and values of which a field contains its own type.

    Raises:
        OptionError: it names the field, and how to leave it out.
    """
    for decoding in options.decodings:
        if (path := _recursive_in(decoding.selected)) is not None:
            name = f"{decoding.side}.{path}".rstrip(".")
            raise OptionError(
                f"{name} contains its own type, so it cannot be a column",
                hint=f"Leave it out: name the other fields with {decoding.side}Fields, or with a schema of yours",
            )


def with_columns(options: ReadOptions) -> ReadOptions:
    """The options without the fields that cannot be columns: what a schema of the user's may choose from."""
    made: dict[str, Any] = {}
    for decoding in options.decodings:
        if _recursive_in(decoding.selected) is not None:
            made[decoding.side.value] = replace(decoding, paths=tuple(_paths_of_columns(decoding.selected)))
    return replace(options, **made) if made else options


def _recursive_in(type_: Type) -> str | None:
    """Where a type within itself is, with dots between; items and values of maps have no name of their own."""
    if type_.kind is ValueKind.RECURSIVE:
        return ""
    for field in type_.fields:
        if (below := _recursive_in(field.type)) is not None:
            return f"{field.name}.{below}".rstrip(".") if type_.kind is ValueKind.STRUCT else below
    return None


def _paths_of_columns(type_: Type) -> list[str]:
    if type_.kind is ValueKind.LIST:
        return _paths_of_columns(type_.fields[0].type)
    if type_.kind is not ValueKind.STRUCT or not type_.fields:
        return [] if _recursive_in(type_) is not None else [""]
    below = ((field.name, path) for field in type_.fields for path in _paths_of_columns(field.type))
    return [f"{name}.{path}" if path else name for name, path in below]


def _decoding(chosen: SchemaChoice, side: Side, known: Mapping[str | None, SchemaSet]) -> Decoding:
    """How one side is decoded: of several topics by the union of what each of them has.

    Args:
        known: the schemas of each topic.
    """
    planned = [
        plan_decoding(some, side, topic, version=chosen.version, on_undecodable=chosen.on_undecodable)
        for topic, some in known.items()
    ]
    whole = planned[0] if len(planned) == 1 else _united(planned)
    return replace(whole, type=in_microseconds(whole.type), paths=chosen.fields_of(side))


def _source(place: str, credentials: str) -> SchemaSource:
    from segreader.typed.registry import SchemaRegistry  # tasks do without
    from segreader.typed.sources import open_schemas

    if not place.lower().startswith(("http://", "https://")) or credentials == "default":
        return open_schemas(place)
    return SchemaRegistry(place, **provided_to_registry(credentials, place, os.environ))


def _united(decodings: list[Decoding]) -> Decoding:
    from segreader.typed.merge import merge_types

    sets = [one.schemas for one in decodings]
    if len({(one.framing, one.bare, one.message) for one in sets}) > 1:
        raise OptionError("the topics' schemas are of several kinds", hint=_EACH)
    united = replace(
        sets[0],
        ids=tuple({id: schema for one in sets for id, schema in one.ids}.items()),
        subjects=tuple({name: versions for one in sets for name, versions in one.subjects}.items()),
    )
    try:
        return replace(decodings[0], schemas=united, type=merge_types([one.type for one in decodings]))
    except OptionError as error:
        error.hint = _EACH
        raise


def in_microseconds(whole: Type) -> Type:
    """The type with microseconds in place of milliseconds in its timestamps: Spark has no others, and the decoder
    judges whether a number fits."""
    if whole.kind is ValueKind.TIMESTAMP:
        return replace(whole, unit="us") if whole.unit == "ms" else whole
    if not whole.fields:
        return whole
    return replace(whole, fields=tuple(map(_field_in_microseconds, whole.fields)))


def _field_in_microseconds(field: TypeField) -> TypeField:
    default = field.default
    if default is not None:
        default = json.dumps(_default_in_microseconds(json.loads(default), field.type))
    return replace(field, type=in_microseconds(field.type), default=default)


def _default_in_microseconds(value: Any, type_: Type) -> Any:
    """A default of the type before it was changed; of a union it is the branch's, by the name of its field."""
    match type_.kind:
        case ValueKind.TIMESTAMP if type_.unit == "ms" and isinstance(value, int):
            return value * 1000
        case ValueKind.STRUCT if isinstance(value, Mapping):
            kinds = {one.name: one.type for one in type_.fields}
            return {n: _default_in_microseconds(one, kinds[n]) if n in kinds else one for n, one in value.items()}
        case ValueKind.LIST if isinstance(value, list):
            return [_default_in_microseconds(one, type_.fields[0].type) for one in value]
        case ValueKind.MAP if isinstance(value, Mapping):
            return {name: _default_in_microseconds(one, type_.fields[1].type) for name, one in value.items()}
    return value
