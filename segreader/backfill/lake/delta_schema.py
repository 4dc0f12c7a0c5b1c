"""Columns of a Delta table: types of Arrow as those of Delta, and back."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa

from segreader.backfill.output import SCHEMA, PartitionField
from segreader.backfill.writer import parted
from segreader.errors import OptionError

Json = dict[str, Any]


_PLAIN: Final[tuple[tuple[Callable[[pa.DataType], bool], str], ...]] = (
    (pa.types.is_boolean, "boolean"),
    (pa.types.is_int8, "byte"),
    (pa.types.is_int16, "short"),
    (pa.types.is_int32, "integer"),
    (pa.types.is_int64, "long"),
    (pa.types.is_uint32, "long"),
    (pa.types.is_float32, "float"),
    (pa.types.is_float64, "double"),
    (pa.types.is_string, "string"),
    (pa.types.is_binary, "binary"),
    (pa.types.is_fixed_size_binary, "binary"),
    (pa.types.is_date32, "date"),
)
_NO_NAME: Final = re.compile(r"[ ,;{}()\n\t=]")
_HINT: Final = "Leave it out: name the other fields with columns=, or keep the bytes as they are"


def delta_fields(schema: pa.Schema, partition_by: Sequence[PartitionField]) -> list[Json]:
    """The columns of a table in the JSON of Delta. All may be null: an older file lacks what a newer one has.

    Raises:
        OptionError: Delta has no such columns, or keys are of a type that has no buckets.
    """
    fields = _struct_fields(list(schema), "")
    buckets = [field for field in partition_by if field.transform == "bucket"]
    list(parted(pa.RecordBatch.from_pylist([], schema), buckets))  # tasks would refuse it when the table is there
    known = {field["name"] for field in fields}
    kinds = {"day": "date", "hour": "string", "bucket": "integer"}
    extra = [(field.name, kinds[field.transform]) for field in partition_by if field.name not in known]
    return fields + [_field(name, kind) for name, kind in extra]


def _field(name: str, kind: Any) -> Json:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


def _struct_fields(fields: Sequence[pa.Field], path: str) -> list[Json]:
    found: list[Json] = []
    seen: dict[str, str] = {}
    for field in fields:
        below = f"{path}.{field.name}" if path else field.name
        if not field.name or _NO_NAME.search(field.name):
            raise _not_of_delta(below, f"the name {field.name!r}", "a name without any of ' ,;{}()=' and line ends")
        if (other := seen.setdefault(field.name.lower(), field.name)) != field.name:
            raise _not_of_delta(below, f"{other} and {field.name}", "names that differ by more than upper case")
        found.append(_field(field.name, delta_type(field.type, below)))
    return found


def delta_type(kind: pa.DataType, path: str) -> Any:
    """A type in the JSON of Delta."""
    if pa.types.is_dictionary(kind):
        return delta_type(kind.value_type, path)
    for is_such, name in _PLAIN:
        if is_such(kind):
            return name
    if pa.types.is_timestamp(kind) and kind.unit in ("s", "ms", "us"):
        return "timestamp" if kind.tz else "timestamp_ntz"
    if pa.types.is_decimal128(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_struct(kind) and kind.num_fields:
        return {"type": "struct", "fields": _struct_fields(list(kind), path)}
    if pa.types.is_list(kind):
        element = delta_type(kind.value_type, f"{path}.element")
        return {"type": "array", "elementType": element, "containsNull": True}
    if pa.types.is_map(kind):
        key, value = delta_type(kind.key_type, f"{path}.key"), delta_type(kind.item_type, f"{path}.value")
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
    raise _not_of_delta(path, str(kind), "a type of Delta: docs/reference/typed-values.md lists them")


def _not_of_delta(path: str, found: str, expected: str) -> OptionError:
    return OptionError(f"Delta has no such column: {path}", found=found, expected=expected, hint=_HINT)


def shown_type(kind: Any) -> str:
    """A type of Delta for people."""
    if not isinstance(kind, dict):
        return str(kind)
    if kind["type"] == "struct":
        return f"struct<{', '.join(field['name'] for field in kind['fields'])}>"
    if kind["type"] == "array":
        return f"array<{shown_type(kind['elementType'])}>"
    return f"map<{shown_type(kind['keyType'])}, {shown_type(kind['valueType'])}>"


def arrow_field(field: pa.Field) -> pa.Field:
    """A column of the table as our files have it: what Spark's kafka source has is exactly that."""
    if field.name in SCHEMA.names and delta_type(SCHEMA.field(field.name).type, "") == delta_type(field.type, ""):
        return SCHEMA.field(field.name)
    return pa.field(field.name, _as_ours(field.type))


def _as_ours(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(one.name, _as_ours(one.type)) for one in kind])
    if pa.types.is_list(kind):
        return pa.list_(pa.field("item", _as_ours(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(_as_ours(kind.key_type), _as_ours(kind.item_type))
    return kind
