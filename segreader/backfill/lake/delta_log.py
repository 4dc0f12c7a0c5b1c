"""What the log of a Delta table says: commits of themselves, and the data files of a version."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import unquote

import pyarrow.fs as pa_fs

from segreader.backfill.lake.delta_stats import compact_json, stat_values
from segreader.backfill.lake.table import TableEnd
from segreader.values import dataclass

_REPLACING: Final = frozenset(
    {
        "CREATE OR REPLACE TABLE",
        "CREATE OR REPLACE TABLE AS SELECT",
        "REPLACE TABLE",
        "REPLACE TABLE AS SELECT",
        "TRUNCATE",
    }
)
Json = dict[str, Any]


def commit_info(store: pa_fs.FileSystem, version: int) -> Json | None:
    """What a commit says of itself, empty if it says nothing; ``None`` where it was cleaned up."""
    try:
        file = store.open_input_file(f"_delta_log/{version:020d}.json")
    except FileNotFoundError:
        return None
    with file:
        rest = b""
        while data := file.read(1 << 16):  # it is the first line with all writers but old ones
            *lines, rest = (rest + data).split(b"\n")
            if (found := _info_in(lines)) is not None:
                return found
    return _info_in([rest]) or {}


def _info_in(lines: Iterable[bytes]) -> Json | None:
    for line in lines:
        if b'"commitInfo"' in line and "commitInfo" in (action := json.loads(line)):
            return dict(action["commitInfo"])
    return None


def is_replacement(commit: Json) -> bool:
    """Whether a commit put other rows in the place of all that were there."""
    operation, how = commit.get("operation"), commit.get("operationParameters") or {}
    is_overwrite = operation == "WRITE" and str(how.get("mode", "")).strip('"').lower() == "overwrite"
    return operation in _REPLACING or (is_overwrite and how.get("predicate") in (None, "", "[]"))


@dataclass(frozen=True, slots=True)
class ActiveFile:
    """A data file of a version.

    Args:
        name: relative to the table.
        rows: records in it, where the log says so.
        partition: values of the partition columns, as the log has them.
        lower, upper, nulls: statistics by column.
    """

    name: str
    size: int
    rows: int | None
    partition: Mapping[str, str | None]
    lower: Mapping[str, Any]
    upper: Mapping[str, Any]
    nulls: Mapping[str, Any]

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> ActiveFile:
        """One that deltalake lists."""
        values = {name: None if one is None else str(one) for name, one in (row.get("partition") or {}).items()}
        lower, upper, nulls = (row.get(name) or {} for name in ("min", "max", "null_count"))
        return cls(unquote(row["path"]), row["size_bytes"], row["num_records"], values, lower, upper, nulls)

    def bounds(self, column: str) -> tuple[Any, Any] | None:
        """The least and the greatest value that may be in it; ``None`` where that is not known."""
        if column in self.partition:
            value: Any = self.partition[column]
            value = int(value) if column == "partition" and value is not None else value
            return (value, value)
        lower, upper = self.lower.get(column), self.upper.get(column)
        return None if lower is None or upper is None else (lower, upper)

    @property
    def first_offset(self) -> int:
        found = self.bounds("offset")
        return 0 if found is None else int(found[0])

    @property
    def last_offset(self) -> int:
        found = self.bounds("offset")
        return (1 << 63) - 1 if found is None else int(found[1])

    @property
    def stats(self) -> str:
        """As the log has them."""
        return compact_json(
            {
                "numRecords": self.rows,
                "minValues": stat_values(self.lower, is_upper=False),
                "maxValues": stat_values(self.upper, is_upper=True),
                "nullCount": stat_values(self.nulls, is_upper=False),
            }
        )


@dataclass(frozen=True, slots=True)
class WantedOffsets:
    """Offsets of a partition of a topic."""

    topic: str
    partition: int
    start: int
    stop: int

    def may_be_in(self, file: ActiveFile) -> bool:
        """Whether a file may have some of them, as the log says."""
        ranges = (("topic", self.topic, self.topic), ("partition", self.partition, self.partition))
        for column, first, last in (*ranges, ("offset", self.start, self.stop - 1)):
            bounds = file.bounds(column)
            if bounds is not None and (bounds[0] is None or not (bounds[0] <= last and first <= bounds[1])):
                return False
        return True


def partitions_of(end: TableEnd | None) -> set[tuple[str, int]]:
    return {(topic, int(partition)) for topic, some in (end.offsets if end else {}).items() for partition in some}
