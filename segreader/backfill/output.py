"""Directories, names and form of the files of an output. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from datetime import date
from enum import StrEnum
from hashlib import sha256
from typing import Any, Final
from urllib.parse import quote, unquote

import pyarrow as pa

from segreader.errors import OptionError
from segreader.plan.request import ReadOptions
from segreader.spark.columns import ALL_NAMES, arrow_schema, column_names
from segreader.typed.decoding import Decoding
from segreader.values import dataclass

MIB: Final = 1 << 20
CODECS: Final = ("zstd", "snappy", "gzip", "lz4", "none")
STAGING: Final = "_staging/"
DONE: Final = "_job/done/"
PLANS: Final = "_job/plan"
MANIFESTS: Final = "_manifest"
PLAN: Final = f"{PLANS}.json"
REPLACED: Final = f"{PLANS}s-are-being-replaced"
"""Is there while a target of several rounds is cleared, so that none goes on with some of them."""
MANIFEST: Final = f"{MANIFESTS}.json"
SUCCESS: Final = "_SUCCESS"
DATA: Final = "data/"
TABLES: Final = ("iceberg", "delta")

SCHEMA: Final = arrow_schema(column_names())
"""The columns of the files where nothing is decoded: those of Spark's kafka source, headers always."""

_FIRST_DAY = date(1970, 1, 1).toordinal()
_FILE = re.compile(r"part-(\d+)-(\d{20})-(\d{20})-([0-9a-f]{12})-\d+\.parquet")
_OF_ROUND = re.compile(rf"(?:{PLANS}|{MANIFESTS})-(\d{{6,}})\.json")
_LONGEST_TOPIC = 150
_UNDATED = "undated"
_HIVE = "topic="
_PLAIN: Final = "topic-"
_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
"""Hive's name of a partition of nulls."""


PARTITION_BY: Final = "topic, partition, day(timestamp), hour(timestamp), bucket(16, key)"
"""What a table can be partitioned by, for people."""

_COLUMNS: Final = {
    "identity": ("topic", "partition"),
    "day": ("timestamp",),
    "hour": ("timestamp",),
    "bucket": ("key",),
}
_FIELD: Final = re.compile(r"(?:(\w+)\s*\(\s*)?(?:(\d+)\s*,\s*)?(\w+)\s*(\))?", re.ASCII)
_BETWEEN_FIELDS: Final = re.compile(r",(?![^(]*\))")
_NO_FIELD: Final = "a table cannot be partitioned by this"
_MOST_BUCKETS: Final = (1 << 31) - 1


class OutputLayout(StrEnum):
    """How plain files are spread over directories. Times are those of the records, in UTC."""

    PARTITION = "topic/partition"
    DATE = "topic/date"
    HOUR = "topic/date/hour"


@dataclass(frozen=True, slots=True)
class PartitionField:
    """How records are spread over the partitions of a table, by one column.

    Args:
        transform: ``identity``, ``day``, ``hour`` or ``bucket``, as Iceberg defines them.
        column: ``topic`` or ``partition``; ``timestamp`` for day and hour; ``key`` for buckets.
        buckets: how many.

    Raises:
        OptionError: there is no such transform, not of this column, or no number of buckets.
    """

    transform: str
    column: str
    buckets: int = 0

    def __post_init__(self) -> None:
        is_bucket = self.transform == "bucket"
        knows = self.column in _COLUMNS.get(self.transform, ())
        if not knows or (self.buckets != 0) is not is_bucket or not 0 <= self.buckets <= _MOST_BUCKETS:
            raise OptionError(_NO_FIELD, found=str(self), expected=PARTITION_BY)

    def __str__(self) -> str:
        if self.transform == "identity":
            return self.column
        return (
            f"{self.transform}({self.buckets}, {self.column})" if self.buckets else f"{self.transform}({self.column})"
        )

    @property
    def name(self) -> str:
        """The name that Iceberg gives such a field: ``topic``, ``timestamp_day``, ``key_bucket``."""
        return self.column if self.transform == "identity" else f"{self.column}_{self.transform}"

    def text_of(self, value: int | str | None) -> str:
        """A value of it in a directory's name: ``2026-11-01`` for a day, ``2026-11-01-05`` for an hour."""
        if value is None:
            return _NULL
        if self.transform == "day":
            return _day(int(value))
        if self.transform == "hour":
            return f"{_day(int(value) // 24)}-{int(value) % 24:02d}"
        return str(value)


def parse_partition_by(text: str) -> tuple[PartitionField, ...]:
    """The fields of ``day(timestamp), bucket(16, key), topic``; ``identity(topic)`` is ``topic``.

    Raises:
        OptionError: one of them is something else, is there twice, or a day and an hour are asked for.
    """
    fields: list[PartitionField] = []
    for part in _BETWEEN_FIELDS.split(text) if text.strip() else ():
        match = _FIELD.fullmatch(part.strip())
        if match is None or (match[1] is None) is not (match[4] is None) or (match[1] is None and match[2]):
            raise OptionError(_NO_FIELD, found=part.strip(), expected=PARTITION_BY)
        try:
            fields.append(PartitionField((match[1] or "identity").lower(), match[3], int(match[2] or 0)))
        except OptionError as error:
            error.found = part.strip()
            raise
    _require_distinct(fields)
    return tuple(fields)


def _require_distinct(fields: Sequence[PartitionField]) -> None:
    if len({field.column for field in fields}) < len(fields):
        raise OptionError(
            "a table is partitioned by the same column twice",
            found=", ".join(map(str, fields)),
            expected="each of topic, partition, timestamp and key once",
        )


_TIMES: Final = {
    OutputLayout.PARTITION: (),
    OutputLayout.DATE: (PartitionField("day", "timestamp"),),
    OutputLayout.HOUR: (PartitionField("hour", "timestamp"),),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputOptions:
    """How records become files.

    Args:
        layout: how plain files are spread over directories.
        is_hive: directories are called ``topic=…``, and the plain files lack the columns that these tell.
        file_bytes: what a file aims at. The files of a split are as even as they can be: most have from 3/4 of it to
            3/2 of it, and only a split that is smaller makes a smaller one; see ``SplitWriter``.
        row_group_bytes: a row group is written once there are this many bytes of columns.
        codec: of the pages.
        decodings: how keys and values are decoded, of those that are. They are learnt when a job is planned.
        table: ``iceberg`` or ``delta`` where the files become those of a table; nothing where they are all there is.
        partition_by: of the table.
        field_ids: of the table, by the path of each field: ``value.items.element.price``.

    Raises:
        OptionError: the codec or the kind of table is unknown; files of a table are asked for with a layout, or plain
            ones with what only a table has.
    """

    layout: OutputLayout = OutputLayout.PARTITION
    is_hive: bool = False
    file_bytes: int = 128 * MIB
    row_group_bytes: int = 64 * MIB
    codec: str = "zstd"
    decodings: tuple[Decoding, ...] = ()
    table: str = ""
    partition_by: tuple[PartitionField, ...] = ()
    field_ids: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.codec not in CODECS:
            raise OptionError("unknown codec", found=self.codec, expected=", ".join(CODECS))
        if self.table:
            if self.table not in TABLES:
                raise OptionError("unknown kind of table", found=self.table, expected=", ".join(TABLES))
            if self.is_hive or self.layout is not OutputLayout.PARTITION:
                raise OptionError(
                    "a layout of directories is for plain files",
                    found=f"{self.layout}{' with topic=… directories' if self.is_hive else ''} for a table",
                    expected="partitions of the table",
                    hint="Partition the table: --partition-by 'day(timestamp)'",
                )
            _require_distinct(self.partition_by)
        elif self.partition_by:
            raise OptionError(
                "plain files have no partitions",
                found=", ".join(map(str, self.partition_by)),
                expected="nothing, or a table",
                hint="Choose a layout of directories, or write a table: --to iceberg or --to delta",
            )

    @property
    def reading(self) -> dict[str, Any]:
        """The fields of ``ReadOptions`` that say which columns are read, and how they are decoded."""
        columns = tuple(ALL_NAMES[name] for name in column_names(self.decodings))
        return {"columns": columns, **{one.side.value: one for one in self.decodings}}

    @property
    def records(self) -> pa.Schema:
        """The columns of the records, as Spark has them."""
        if not self.decodings:
            return SCHEMA
        return arrow_schema(column_names(self.decodings), ReadOptions(**self.reading))

    @property
    def schema(self) -> pa.Schema:
        """The columns of a file; those of a table with field ids have them in the metadata of each field.

        Raises:
            ValueError: the table has field ids, but not of each field.
        """
        if self.field_ids:
            return pa.schema([_with_ids(one, one.name, self.field_ids) for one in self.records])
        if not self.is_hive:
            return self.records
        in_path = ("topic", "partition") if self.layout is OutputLayout.PARTITION else ("topic",)
        return pa.schema([field for field in self.records if field.name not in in_path])

    @property
    def split_by(self) -> tuple[PartitionField, ...]:
        """What all records of a file have in common: the partition fields of the table, or the time of the layout."""
        return self.partition_by if self.table else _TIMES[self.layout]

    def staging(self, target_has_atomic_move: bool) -> str:
        """What a file's name has in front of it until the commit: nothing where it is written where it belongs.

        Files of a table are, for none of them is seen before the table names it.
        """
        return STAGING if target_has_atomic_move and not self.table else ""

    def directory(self, topic: str, partition: int, values: Sequence[int | str | None]) -> str:
        """The directory of some records, with a slash at its end.

        Args:
            values: of the fields of ``split_by``, in their order: days and hours since 1970, numbers of buckets.
        """
        if self.table:
            names = [one.name for one in self.partition_by]
            # Polars takes each NAME=VALUE for a partition column of Delta, and looks for the values nowhere else
            is_column = self.table != "delta" or not names or "topic" in names
            parts = [DATA.rstrip("/"), (_HIVE if is_column else _PLAIN) + quote(topic, safe="")]
            pairs = zip(self.partition_by, values, strict=True)
            parts += [
                f"{one.name}={_NULL if value is None else one.text_of(value)}"
                for one, value in pairs
                if one.name != "topic"
            ]
            if not self.partition_by:
                parts.append(f"partition={partition}")
            return "/".join(parts) + "/"
        parts = [_HIVE + topic if self.is_hive else visible(topic)]
        if not values:
            parts.append(f"partition={partition}" if self.is_hive else str(partition))
        for one, value in zip(self.split_by, values, strict=True):
            is_hour, unit = one.transform == "hour", int(value or 0)
            day = _day(unit // 24 if is_hour else unit)
            parts.append(f"date={day}" if self.is_hive else day)
            if is_hour:
                parts.append(f"hour={unit % 24:02d}" if self.is_hive else f"{unit % 24:02d}")
        return "/".join(parts) + "/"


def visible(topic: str) -> str:
    """A topic as the name of a directory: Spark and pyarrow pass over those that begin with ``_`` or ``.``."""
    return f"%{ord(topic[0]):02X}{topic[1:]}" if topic[:1] in ("_", ".") else topic


def file_name(partition: int, start: int, stop: int, token: str, number: int) -> str:
    """A name that no other attempt at a split gives its files.

    Args:
        token: 12 hexadecimal digits of the attempt.
        number: counts the files of the attempt.
    """
    return f"part-{partition}-{start:020d}-{stop:020d}-{token}-{number}.parquet"


def split_of_file(name: str) -> str | None:
    """The id of the split that has a file of this name; ``None`` if it is not one of ours."""
    if (match := _FILE.fullmatch(name.rpartition("/")[2])) is None:
        return None
    name = name.removeprefix(STAGING)
    for top in (DATA + _HIVE, DATA + _PLAIN):
        if name.startswith(top):
            topic = unquote(name.removeprefix(top).partition("/")[0])
            return f"{topic}-{match[1]}-{match[2]}-{match[3]}"
    top = name.partition("/")[0]
    topic = top.removeprefix(_HIVE)
    if topic.startswith(("%5F", "%2E")) and topic == top:
        topic = chr(int(topic[1:3], 16)) + topic[3:]
    return f"{topic}-{match[1]}-{match[2]}-{match[3]}"


def done_name(split_id: str) -> str:
    """Name of the entry that says that a split is done; short enough for a file also where the topic is long."""
    if len(split_id) > _LONGEST_TOPIC + 60:
        split_id = f"{split_id[:_LONGEST_TOPIC]}~{sha256(split_id.encode()).hexdigest()[:16]}"
    return f"{DONE}{split_id}.json"


def _with_ids(one: pa.Field, path: str, ids: Mapping[str, int]) -> pa.Field:
    """The same field, and those below it, with their field ids."""
    if path not in ids:
        raise ValueError(f"the table has no field id of {path}")
    kind = one.type
    if pa.types.is_struct(kind):
        kind = pa.struct([_with_ids(below, f"{path}.{below.name}", ids) for below in kind])
    elif pa.types.is_map(kind):
        key, value = (_with_ids(kind.key_field, f"{path}.key", ids), _with_ids(kind.item_field, f"{path}.value", ids))
        kind = pa.map_(key, value)
    elif pa.types.is_list(kind):
        kind = pa.list_(_with_ids(kind.value_field, f"{path}.element", ids))
    return one.with_type(kind).with_metadata({**(one.metadata or {}), b"PARQUET:field_id": str(ids[path]).encode()})


def plan_name(number: int) -> str:
    """Name of the plan of a round of a job."""
    return PLAN if number == 1 else f"{PLANS}-{number:06d}.json"


def manifest_name(number: int) -> str:
    """Name of the manifest of a round of a job."""
    return MANIFEST if number == 1 else f"{MANIFESTS}-{number:06d}.json"


def round_of(name: str) -> int | None:
    """The round that has a plan or a manifest of this name; ``None`` if it is neither."""
    if name in (PLAN, MANIFEST):
        return 1
    return int(match[1]) if (match := _OF_ROUND.fullmatch(name)) else None


def _day(days: int) -> str:
    try:
        return date.fromordinal(_FIRST_DAY + days).isoformat()
    except (ValueError, OverflowError):
        return _UNDATED
