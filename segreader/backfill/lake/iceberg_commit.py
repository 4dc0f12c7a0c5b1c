"""What a commit to an Iceberg table consists of: data files, and where the table ends, in the table itself."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from decimal import Context, Decimal
from typing import Any, Final

import msgspec
from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.typedef import Record
from pyiceberg.types import BinaryType, DecimalType, FixedType, IcebergType, PrimitiveType
from pyiceberg.utils.decimal import decimal_to_bytes

from segreader.backfill.lake.iceberg_schema import IcebergColumn
from segreader.backfill.lake.table import TableEnd, flat_offsets
from segreader.backfill.writer import ColumnFacts, WrittenFile
from segreader.errors import ManifestError

_OFFSETS: Final = "segreader.offsets"
_COMMIT: Final = "segreader.commit"
_PARTS: Final = {
    "offsets": _OFFSETS,
    "topic_ids": "segreader.topic-ids",
    "epochs": "segreader.epochs",
    "log_ends": "segreader.log-ends",
    "begins": "segreader.begins",
}
_FIRST: Final = "segreader.first-sequence-number"
_LAST: Final = "segreader.sequence-number"
"""Of the first snapshot of ours and the last, of which the table's properties are: a table whose snapshot is older was
rolled back."""

_MANY_DIGITS: Final = Context(prec=80)


# Where a table ends


def summary_of(end: TableEnd) -> dict[str, str]:
    """The properties of a snapshot, or of a table, that say where the table ends."""
    document = end.to_json()
    return {
        name: json.dumps(document.get(part, {}), separators=(",", ":"), sort_keys=True) for part, name in _PARTS.items()
    } | {_COMMIT: end.commit}


def told_for_good(end: TableEnd, metadata: TableMetadata) -> dict[str, str]:
    """The properties of the table, which outlive its snapshots.

    Args:
        metadata: what the commit is on top of.
    """
    number = str(metadata.next_sequence_number())
    return summary_of(end) | {_FIRST: metadata.properties.get(_FIRST, number), _LAST: number}


def end_of(metadata: TableMetadata, table: str) -> TableEnd | None:
    """Where a table ends: as the newest snapshot says that main has and that says so, or, of expired ones, the table.

    Args:
        table: its name, for errors.

    Raises:
        ManifestError: what is said cannot be read; or the table was rolled back to a snapshot that has nothing before
            it any more, so that nothing says where that one ended.
    """
    history = _history(metadata)
    for snapshot in history:
        if (end := _parsed(_summary(snapshot), table)) is not None:
            return end
    if not history or _is_first(history[-1]):
        return None
    end = _parsed(metadata.properties, table)
    number = history[0].sequence_number or 0
    if end is None or number < int(metadata.properties.get(_FIRST, "0")):
        return None
    if number < int(metadata.properties.get(_LAST, "0")):
        raise ManifestError(
            "the table was rolled back, and the snapshot that says where it ended then has expired",
            source=table,
            found=f"snapshot {history[0].snapshot_id}",
            expected=f"one with {_OFFSETS} in its summary, or before it",
            hint="Roll forward again, or write to another table",
        )
    return end


def _is_first(snapshot: Snapshot) -> bool:
    """Whether there was none before it; pyiceberg takes the parent from one whose parent it expires."""
    summary = _summary(snapshot)
    is_all = all(
        summary.get(f"total-{what}", "0") == summary.get(f"added-{what}", "0") for what in ("data-files", "records")
    )
    return snapshot.parent_snapshot_id is None and is_all


def has_landed(metadata: TableMetadata, end: TableEnd) -> bool:
    """Whether main has a commit of this name."""
    history = _history(metadata)
    return bool(end.commit) and any(_summary(one).get(_COMMIT) == end.commit for one in history)


def _history(metadata: TableMetadata) -> list[Snapshot]:
    """The snapshots of main that are left, newest first."""
    snapshots = {one.snapshot_id: one for one in metadata.snapshots}
    head = metadata.current_snapshot()
    history = [head] if head else []
    while history and (found := snapshots.get(history[-1].parent_snapshot_id or -1)) is not None:
        history.append(found)
    return history


def _summary(snapshot: Snapshot) -> Mapping[str, str]:
    return snapshot.summary.additional_properties if snapshot.summary else {}


def _parsed(properties: Mapping[str, str], table: str) -> TableEnd | None:
    if _OFFSETS not in properties:
        return None
    try:
        parts: dict[str, Any] = {part: json.loads(properties.get(name, "{}")) for part, name in _PARTS.items()}
        return TableEnd.from_json(json.dumps(parts | {"commit": properties.get(_COMMIT, "")}))
    except (ValueError, TypeError, msgspec.MsgspecError) as error:
        raise ManifestError(
            "what the table says of its end cannot be read", source=table, found=f"{type(error).__name__} in {_OFFSETS}"
        ) from None


def is_same_end(one: TableEnd | None, other: TableEnd | None) -> bool:
    """Whether two ends name the same offset of each partition that either has."""
    return flat_offsets(one) == flat_offsets(other)


# Data files


def data_files(
    files: Sequence[WrittenFile], location: str, spec: PartitionSpec, columns: Mapping[str, IcebergColumn]
) -> list[DataFile]:
    """What a manifest says of files that were written.

    Args:
        location: of the table.
        spec: the table's, which the files are divided by.
        columns: the table's, by path.
    """
    return [_data_file(one, f"{location.rstrip('/')}/{one.name}", spec, columns) for one in files]


def _data_file(file: WrittenFile, path: str, spec: PartitionSpec, columns: Mapping[str, IcebergColumn]) -> DataFile:
    known = [(one, columns[one.path]) for one in file.columns if one.path in columns]
    counted = [(one, column) for one, column in known if not column.is_repeated]
    made = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(*file.partition),
        record_count=file.rows,
        file_size_in_bytes=file.size,
        column_sizes={column.field_id: one.size for one, column in known},
        value_counts={column.field_id: one.values for one, column in counted},
        null_value_counts={column.field_id: one.nulls for one, column in counted if one.nulls is not None},
        nan_value_counts={},
        lower_bounds=_bounds(counted, "lower"),
        upper_bounds=_bounds(counted, "upper"),
        key_metadata=None,
        split_offsets=list(file.row_groups) or None,
        equality_ids=None,
        sort_order_id=None,
    )
    made.spec_id = spec.spec_id
    return made


def _bounds(counted: Sequence[tuple[ColumnFacts, IcebergColumn]], side: str) -> dict[int, bytes]:
    bounds = ((column.field_id, _bound(getattr(one, side), column.type)) for one, column in counted)
    return {field_id: bound for field_id, bound in bounds if bound is not None}


def _bound(value: int | float | str | bool | None, kind: IcebergType) -> bytes | None:
    if value is None or not isinstance(kind, PrimitiveType) or (isinstance(value, float) and math.isnan(value)):
        return None
    match kind:
        case DecimalType():
            return decimal_to_bytes(Decimal(str(value)).quantize(Decimal(1).scaleb(-kind.scale), context=_MANY_DIGITS))
        case BinaryType() | FixedType():
            return bytes.fromhex(str(value))
    return to_bytes(kind, value)
