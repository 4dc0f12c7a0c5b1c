"""Columns and partitions of an Iceberg table: from ours, compared with those that are there, and back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any, Final

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionSpec
from pyiceberg.partitioning import PartitionField as SpecField
from pyiceberg.schema import Schema
from pyiceberg.table.update.schema import UpdateSchema
from pyiceberg.transforms import BucketTransform, DayTransform, HourTransform, IdentityTransform, Transform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
)

from segreader.backfill.output import SCHEMA, PartitionField
from segreader.errors import OptionError
from segreader.values import dataclass

_PLAIN: Final[Mapping[pa.DataType, IcebergType]] = {
    pa.bool_(): BooleanType(),
    pa.int8(): IntegerType(),
    pa.int16(): IntegerType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.float32(): FloatType(),
    pa.float64(): DoubleType(),
    pa.string(): StringType(),
    pa.binary(): BinaryType(),
    pa.date32(): DateType(),
    pa.time64("us"): TimeType(),
    pa.timestamp("us"): TimestampType(),
    pa.timestamp("us", tz="UTC"): TimestamptzType(),
}
_NEVER_NULL: Final = frozenset(
    ("topic", "partition", "offset", "timestamp", "timestampType", "headers.element", "headers.element.key")
)
"""What a record always has, though the schema of Arrow lets it be null."""

_NARROW: Final = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}


@dataclass(frozen=True, slots=True)
class IcebergColumn:
    """A field of a table's schema.

    Args:
        field_id: Iceberg's.
        type: Iceberg's.
        is_repeated: whether a row can have several of them, being in a list or a map.
    """

    field_id: int
    type: IcebergType
    is_repeated: bool


@dataclass(frozen=True, slots=True)
class ColumnChange:
    """What a table's schema lacks: a column, or a wider type of one.

    Args:
        path: names from the column down; those of lists and maps are ``element``, ``key`` and ``value``.
        type: what it becomes.
        was: what it is; ``None`` where there is no such column.
    """

    path: tuple[str, ...]
    type: IcebergType
    was: IcebergType | None = None

    def __str__(self) -> str:
        name = ".".join(self.path)
        if self.was is None:
            return f"adds column {name} ({_said(self.type)})"
        return f"widens column {name} from {_said(self.was)} to {_said(self.type)}"

    def make(self, update: UpdateSchema) -> None:
        """Stage the change."""
        if self.was is None:
            update.add_column(self.path, self.type)
        else:
            update.update_column(self.path, self.type)


def iceberg_schema(schema: pa.Schema) -> Schema:
    """The same columns in Iceberg, all of them optional: a column that may never be null cannot be added later.

    Raises:
        OptionError: Iceberg has no type for some of them, or cannot tell their names apart.
    """
    ids = count(1)
    unknown: list[str] = []
    fields = [_field(one, one.name, ids, unknown) for one in schema]
    if unknown:
        raise OptionError(
            "Iceberg has no type for these columns",
            found="; ".join(unknown),
            hint="Leave them out: name the other fields with columns=",
        )
    paths = [path for path, _ in _walk(StructType(*fields), "", False)]
    if twice := sorted({path for path in paths if paths.count(path) > 1}):
        raise OptionError(
            "two columns would have the same name in Iceberg, where a dot leads into a struct",
            found=", ".join(twice),
            hint="Leave one of them out: name the other fields with columns=",
        )
    return Schema(*fields)


def _field(one: pa.Field, path: str, ids: Iterator[int], unknown: list[str]) -> NestedField:
    return NestedField(
        field_id=next(ids), name=one.name, field_type=_type(one.type, path, ids, unknown), required=False
    )


def _type(kind: pa.DataType, path: str, ids: Iterator[int], unknown: list[str]) -> IcebergType:
    types = pa.types
    if types.is_struct(kind) and kind.num_fields:
        return StructType(*[_field(one, f"{path}.{one.name}", ids, unknown) for one in kind])
    if types.is_list(kind):
        element = _type(kind.value_type, f"{path}.element", ids, unknown)
        return ListType(element_id=next(ids), element=element, element_required=False)
    if types.is_map(kind):
        key = _type(kind.key_type, f"{path}.key", ids, unknown)
        value = _type(kind.item_type, f"{path}.value", ids, unknown)
        return MapType(key_id=next(ids), key_type=key, value_id=next(ids), value_type=value, value_required=False)
    if types.is_dictionary(kind):
        return _type(kind.value_type, path, ids, unknown)
    if types.is_decimal128(kind):
        return DecimalType(kind.precision, kind.scale)
    if types.is_fixed_size_binary(kind):
        return FixedType(kind.byte_width)
    if kind not in _PLAIN:
        unknown.append(f"{path} ({'a struct without fields' if types.is_struct(kind) else kind})")
    return _PLAIN.get(kind, StringType())


def columns_of(schema: Schema) -> Mapping[str, IcebergColumn]:
    """All fields of a schema, structs, lists and maps with what is in them, by Iceberg's full names."""
    return dict(_walk(schema.as_struct(), "", False))


def _walk(kind: IcebergType, path: str, is_repeated: bool) -> Iterator[tuple[str, IcebergColumn]]:
    repeats = is_repeated or isinstance(kind, ListType | MapType)
    for one in _below(kind):
        name = f"{path}.{one.name}" if path else one.name
        yield name, IcebergColumn(one.field_id, one.field_type, repeats)
        yield from _walk(one.field_type, name, repeats)


def _below(kind: IcebergType) -> Sequence[NestedField]:
    match kind:
        case StructType():
            return kind.fields
        case ListType():
            return (kind.element_field,)
        case MapType():
            return (kind.key_field, kind.value_field)
    return ()


def field_ids(schema: Schema, asked: Schema) -> Mapping[str, int]:
    """The ids that a table has for what is asked for, by path; the table has all of it."""
    there = columns_of(schema)
    return {path: there[path].field_id for path in columns_of(asked)}


def changes_for(schema: Schema, asked: Schema, table: str) -> tuple[ColumnChange, ...]:
    """What a table's schema needs for the columns that are asked for.

    Args:
        schema: the table's.
        table: its name, for errors.

    Raises:
        OptionError: a column has another type than asked for, and Iceberg cannot turn it into that; or the table
            demands a column that files would not have.
    """
    changes: list[ColumnChange] = []
    refused: list[tuple[str, str, str]] = []
    _compare(schema.as_struct(), asked.as_struct(), (), changes, refused)
    if refused:
        raise OptionError(
            f"the table does not take these columns: {', '.join(path for path, _, _ in refused)}",
            source=table,
            found="; ".join(f"{path} {there}" for path, there, _ in refused),
            expected="; ".join(f"{path} {wanted}" for path, _, wanted in refused),
            hint="Write to another table, or leave columns out with columns=",
        )
    return tuple(changes)


def _compare(
    there: IcebergType,
    asked: IcebergType,
    path: tuple[str, ...],
    changes: list[ColumnChange],
    refused: list[tuple[str, str, str]],
) -> None:
    if type(there) is not type(asked) or not isinstance(there, StructType | ListType | MapType):
        if there == asked:
            return
        if _can_widen(there, asked):
            changes.append(ColumnChange(path, asked, there))
        else:
            refused.append((".".join(path), _said(there), _said(asked)))
        return
    fields = {one.name: one for one in _below(there)}
    for one in _below(asked):
        below = (*path, one.name)
        if (field := fields.pop(one.name, None)) is None:
            changes.append(ColumnChange(below, one.field_type))
            continue
        if field.required and not one.required and ".".join(below) not in _NEVER_NULL:
            refused.append((".".join(below), "which is never null", "which may be null"))
        elif isinstance(there, MapType) and one.name == "key":  # which nothing may change
            if _shape(field.field_type) != _shape(one.field_type):
                refused.append((".".join(below), _said(field.field_type), _said(one.field_type)))
        else:
            _compare(field.field_type, one.field_type, below, changes, refused)
    refused += [
        (".".join((*path, one.name)), "which is never null", "nothing: files lack it")
        for one in fields.values()
        if one.required
    ]


def _shape(kind: IcebergType) -> object:
    """A type without its ids."""
    below = _below(kind)
    return (type(kind), tuple((one.name, _shape(one.field_type)) for one in below)) if below else kind


def _can_widen(there: IcebergType, asked: IcebergType) -> bool:
    """Source: Iceberg's specification, schema evolution of version 2."""
    if isinstance(there, DecimalType) and isinstance(asked, DecimalType):
        return there.scale == asked.scale and there.precision < asked.precision
    return (type(there), type(asked)) in ((IntegerType, LongType), (FloatType, DoubleType))


def _said(kind: IcebergType) -> str:
    match kind:
        case StructType():
            return "struct"
        case ListType():
            return "list"
        case MapType():
            return "map"
    return str(kind)


# Partitions


def partition_spec(fields: Sequence[PartitionField], schema: Schema) -> PartitionSpec:
    """The partition spec of a table with this schema.

    Raises:
        OptionError: the schema has no such column, or not of a type that can be divided so.
    """
    columns = columns_of(schema)
    made = []
    for number, one in enumerate(fields):
        transform = _transform(one)
        if one.column not in columns or not transform.can_transform(columns[one.column].type):
            kind = columns[one.column].type if one.column in columns else None
            raise OptionError(
                f"the table cannot be partitioned by {one}",
                found=f"column {one.column} of type {_said(kind)}" if kind else "no such column",
                hint="Partition by another column, or leave the key as it is: do not decode it",
            )
        source = columns[one.column].field_id
        made.append(SpecField(source, PARTITION_FIELD_ID_START + number, transform, one.name))
    return PartitionSpec(*made)


def _transform(one: PartitionField) -> Transform[Any, Any]:
    match one.transform:
        case "day":
            return DayTransform()
        case "hour":
            return HourTransform()
        case "bucket":
            return BucketTransform(one.buckets)
    return IdentityTransform()


def partition_fields(spec: PartitionSpec, schema: Schema, table: str) -> tuple[PartitionField, ...]:
    """What a table is partitioned by, as we say it.

    Args:
        table: its name, for errors.

    Raises:
        OptionError: by something else than what files of ours can be divided by.
    """
    fields = []
    for one in spec.fields:
        column = schema.find_column_name(one.source_id) or str(one.source_id)
        buckets = one.transform.num_buckets if isinstance(one.transform, BucketTransform) else 0
        try:
            fields.append(PartitionField(str(one.transform).partition("[")[0], column, buckets))
        except OptionError as error:
            raise OptionError(
                "the table is partitioned by what files cannot be divided by here",
                source=table,
                found=f"{one.transform}({column})",
                expected=str(error.expected),
                hint="Write to another table, or change its partition spec",
            ) from None
    return tuple(fields)


# Arrow


def arrow_schema_of(schema: Schema, *, with_ids: bool = False) -> pa.Schema:
    """A table's columns in Arrow, with the types that our files have: no large strings.

    Args:
        with_ids: whether fields have their ids in their metadata, as Parquet's writer takes them.
    """
    made = schema_to_pyarrow(schema, include_field_ids=with_ids)
    return pa.schema([_as_ours(_narrowed(one)) if not with_ids else _narrowed(one) for one in made])


def _as_ours(one: pa.Field) -> pa.Field:
    ours = SCHEMA.field(one.name) if one.name in SCHEMA.names else one
    return ours if ours.type.equals(one.type) else one.remove_metadata()


def _narrowed(one: pa.Field) -> pa.Field:
    kind = one.type
    if pa.types.is_struct(kind):
        kind = pa.struct([_narrowed(below) for below in kind])
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        kind = pa.list_(_narrowed(kind.value_field))
    elif pa.types.is_map(kind):
        kind = pa.map_(_narrowed(kind.key_field), _narrowed(kind.item_field))
    else:
        kind = _NARROW.get(kind, kind)
    return one.with_type(kind)
