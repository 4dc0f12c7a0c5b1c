"""Directories, names and form of the files of an output. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from datetime import date
from enum import StrEnum
from hashlib import sha256
from typing import Any, Final

import pyarrow as pa

from segreader.errors import OptionError
from segreader.plan.request import ReadOptions
from segreader.spark.batch import ALL_NAMES, arrow_schema, column_names
from segreader.typed.decoding import Decoding
from segreader.values import dataclass

MIB: Final = 1 << 20
CODECS: Final = ("zstd", "snappy", "gzip", "lz4", "none")
STAGING: Final = "_staging/"
DONE: Final = "_job/done/"
PLAN: Final = "_job/plan.json"
MANIFEST: Final = "_manifest.json"
SUCCESS: Final = "_SUCCESS"

SCHEMA: Final = arrow_schema(column_names())
"""The columns of the files where nothing is decoded: those of Spark's kafka source, headers always."""

_FIRST_DAY = date(1970, 1, 1).toordinal()
_FILE = re.compile(r"part-(\d+)-(\d{20})-(\d{20})-([0-9a-f]{12})-\d+\.parquet")
_LONGEST_TOPIC = 150
_UNDATED = "undated"


class OutputLayout(StrEnum):
    """How files are spread over directories. Times are those of the records, in UTC."""

    PARTITION = "topic/partition"
    DATE = "topic/date"
    HOUR = "topic/date/hour"

    @property
    def unit_us(self) -> int | None:
        """Microseconds that one directory holds; ``None`` where time plays no part."""
        return {OutputLayout.PARTITION: None, OutputLayout.DATE: 86_400_000_000, OutputLayout.HOUR: 3_600_000_000}[self]


@dataclass(frozen=True, slots=True)
class PartitionField:
    """How records are spread over the partitions of a table, by one column.

    Args:
        transform: ``identity``, ``day``, ``hour`` or ``bucket``, as Iceberg defines them.
        column: ``topic`` or ``partition``; ``timestamp`` for day and hour; ``key`` for buckets.
        buckets: how many.
    """

    transform: str
    column: str
    buckets: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputOptions:
    """How records become files.

    Args:
        layout: how files are spread over directories.
        is_hive: directories are called ``topic=…``, and the files lack the columns that these tell.
        file_bytes: a file is closed once it has this many bytes.
        row_group_bytes: a row group is written once there are this many bytes of columns.
        codec: of the pages.
        decodings: how keys and values are decoded, of those that are. They are learnt when a job is planned.
        table: ``iceberg`` or ``delta`` where the files become those of a table; nothing where they are all there is.
        partition_by: of the table.
        field_ids: of the table, by the path of each field: ``value.items.element.price``.
    """

    layout: OutputLayout = OutputLayout.PARTITION
    is_hive: bool = False
    file_bytes: int = 256 * MIB
    row_group_bytes: int = 64 * MIB
    codec: str = "zstd"
    decodings: tuple[Decoding, ...] = ()
    table: str = ""
    partition_by: tuple[PartitionField, ...] = ()
    field_ids: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.codec not in CODECS:
            raise OptionError("unknown codec", found=self.codec, expected=", ".join(CODECS))

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
        """The columns of a file."""
        if not self.is_hive:
            return self.records
        told = ("topic", "partition") if self.layout is OutputLayout.PARTITION else ("topic",)
        return pa.schema([field for field in self.records if field.name not in told])

    def directory(self, topic: str, partition: int, unit: int | None) -> str:
        """The directory of some records, with a slash at its end.

        Args:
            unit: of the layout's time, counted from 1970.
        """
        parts = [f"topic={topic}" if self.is_hive else visible(topic)]
        if unit is None:
            parts.append(f"partition={partition}" if self.is_hive else str(partition))
        else:
            is_hour = self.layout is OutputLayout.HOUR
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
    top = name.removeprefix(STAGING).partition("/")[0]
    topic = top.removeprefix("topic=")
    if topic.startswith(("%5F", "%2E")) and topic == top:
        topic = chr(int(topic[1:3], 16)) + topic[3:]
    return f"{topic}-{match[1]}-{match[2]}-{match[3]}"


def done_name(split_id: str) -> str:
    """Name of the entry that says that a split is done; short enough for a file also where the topic is long."""
    if len(split_id) > _LONGEST_TOPIC + 60:
        split_id = f"{split_id[:_LONGEST_TOPIC]}~{sha256(split_id.encode()).hexdigest()[:16]}"
    return f"{DONE}{split_id}.json"


def _day(days: int) -> str:
    try:
        return date.fromordinal(_FIRST_DAY + days).isoformat()
    except (ValueError, OverflowError):
        return _UNDATED
