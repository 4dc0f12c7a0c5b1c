"""Statistics and partition values of data files, as the log of a Delta table has them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

import pyarrow as pa

from segreader.backfill.output import PartitionField
from segreader.backfill.writer import WrittenFile
from segreader.errors import OptionError
from segreader.values import dataclass

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class LeafKind:
    """The place of a column in the statistics, and its type there; columns in lists and maps have none."""

    path: tuple[str, ...]
    kind: str
    unit: str


def leaf_kinds(fields: Sequence[Json], schema: pa.Schema) -> dict[str, LeafKind]:
    """The columns that have statistics, by their path as ``ColumnFacts`` has it.

    Args:
        fields: of the table.
        schema: of the files: the unit of their times.
    """
    found: dict[str, LeafKind] = {}
    twice: set[str] = set()

    def walk(fields: Sequence[Json], path: tuple[str, ...], below: Sequence[pa.Field]) -> None:
        arrow = {one.name: one.type for one in below}
        for field in fields:
            here, kind = (*path, field["name"]), arrow.get(field["name"])
            if isinstance(field["type"], dict):
                if field["type"]["type"] == "struct" and kind is not None and pa.types.is_struct(kind):
                    walk(field["type"]["fields"], here, list(kind))
            elif kind is not None:
                unit = kind.unit if pa.types.is_timestamp(kind) else ""
                name = ".".join(here)
                if name in found:
                    twice.add(name)
                found[name] = LeafKind(here, field["type"], unit)

    walk(fields, (), list(schema))
    return {name: one for name, one in found.items() if name not in twice}


def file_stats(file: WrittenFile, kinds: Mapping[str, LeafKind], partitioned: set[str]) -> str:
    """The statistics of a file, as the log has them.

    There are no bounds of binary columns, as in Delta; of floating-point ones, which do not tell of NaN; and of
    decimals, which JSON has no exact numbers for.
    """
    lower: Json = {}
    upper: Json = {}
    nulls: Json = {}
    for fact in file.columns:
        leaf = kinds.get(fact.path)
        if leaf is None or leaf.path[0] in partitioned:
            continue
        if fact.nulls is not None:
            _put(nulls, leaf.path, fact.nulls)
        low, high = (
            _bound(leaf, fact.lower, is_upper=False),
            _bound(leaf, fact.upper, is_upper=True),
        )
        if low is not None and high is not None:
            _put(lower, leaf.path, low)
            _put(upper, leaf.path, high)
    if file.rows:
        _put(lower, ("offset",), file.first_offset)
        _put(upper, ("offset",), file.last_offset)
    return compact_json({"numRecords": file.rows, "minValues": lower, "maxValues": upper, "nullCount": nulls})


def _put(tree: Json, path: Sequence[str], value: object) -> None:
    for name in path[:-1]:
        tree = tree.setdefault(name, {})
    tree[path[-1]] = value


def _bound(leaf: LeafKind, value: float | str | bool | None, *, is_upper: bool) -> int | str | None:
    if value is None or isinstance(value, bool | float):
        return None
    if leaf.kind == "string":
        return value if isinstance(value, str) else None
    if not isinstance(value, int):
        return None
    if leaf.kind in ("byte", "short", "integer", "long"):
        return value
    with suppress(OverflowError, ValueError):
        if leaf.kind == "date":
            return (_EPOCH.date() + timedelta(days=value)).isoformat()
        if leaf.kind in ("timestamp", "timestamp_ntz"):
            scale = {"s": 1_000_000, "ms": 1_000, "us": 1}[leaf.unit]
            when = _EPOCH + timedelta(microseconds=value * scale)
            return _stat_time(when if leaf.kind == "timestamp" else when.replace(tzinfo=None), is_upper=is_upper)
    return None


def _stat_time(when: datetime, *, is_upper: bool) -> str:
    """A time to the millisecond, as in statistics: no reader takes a bound for nearer than it is."""
    rest = when.microsecond % 1000
    when += timedelta(microseconds=1000 - rest if is_upper and rest else -rest)
    text = when.isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def stat_values(values: Mapping[str, Any], *, is_upper: bool) -> Json:
    """Statistics that deltalake read, as the log has them."""
    found: Json = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            if below := stat_values(value, is_upper=is_upper):
                found[name] = below
        elif isinstance(value, datetime):
            with suppress(OverflowError):
                found[name] = _stat_time(value, is_upper=is_upper)
        elif isinstance(value, date):
            found[name] = value.isoformat()
        elif isinstance(value, int | str) and not isinstance(value, bool):
            found[name] = value
    return found


def partition_values(fields: Sequence[PartitionField], file: WrittenFile, source: str) -> dict[str, str | None]:
    """The values of the partition columns that all records of a file have, as the log has them."""
    if len(fields) != len(file.partition):
        raise OptionError(
            "a file is not written for the partitions of the table",
            source=f"{source}/{file.name}",
            found=f"{len(file.partition)} values",
            expected=", ".join(map(str, fields)) or "none",
        )
    pairs = zip(fields, file.partition, strict=True)
    return {field.name: None if value is None else field.text_of(value) for field, value in pairs}


def compact_json(document: Any) -> str:
    return json.dumps(document, separators=(",", ":"))
