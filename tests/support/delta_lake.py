"""Delta tables of tests, and files of records that are made up."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from segreader.backfill.lake.delta import DeltaLakeTable
from segreader.backfill.lake.table import TableEnd
from segreader.backfill.output import SCHEMA, OutputOptions, parse_partition_by
from segreader.backfill.writer import SplitWriter, WrittenFile
from segreader.storage.target.store import open_target

FIRST_US = 1_700_000_000_123_456
"""Of the record at offset 0; each has an hour more than the one before."""
HOUR_US = 3_600_000_000
PARTITIONINGS = (
    "",
    "topic",
    "topic, partition",
    "day(timestamp)",
    "hour(timestamp), topic",
    "day(timestamp), bucket(3, key)",
    "bucket(3, key)",
)


def made(start: int, stop: int, *, topic: str = "orders", partition: int = 0) -> pa.RecordBatch:
    """Records with these offsets: every fifth without a key, every seventh a tombstone, some with headers."""
    offsets = range(start, stop)
    columns: dict[str, list[Any]] = {
        "key": [None if one % 5 == 0 else f"key {one}".encode() for one in offsets],
        "value": [None if one % 7 == 0 else f"value {one} of {partition}".encode() for one in offsets],
        "topic": [topic] * len(offsets),
        "partition": [partition] * len(offsets),
        "offset": list(offsets),
        "timestamp": [FIRST_US + one * HOUR_US for one in offsets],
        "timestampType": [one % 2 for one in offsets],
        "headers": [
            [{"key": "h", "value": b"1"}, {"key": "h", "value": None}] if one % 3 == 0 else None for one in offsets
        ],
    }
    return pa.RecordBatch.from_pydict(columns, schema=SCHEMA)


def split_files(
    table: DeltaLakeTable,
    batch: pa.RecordBatch,
    partition_by: str = "",
    storage_options: Mapping[str, object] | None = None,
) -> tuple[WrittenFile, ...]:
    """Files of these records below the table's location, as a task writes them."""
    options = _Options(batch.schema, table="delta", partition_by=parse_partition_by(partition_by))
    offsets = batch.column("offset")
    span = {
        "start": offsets[0].as_py(),
        "stop": offsets[-1].as_py() + 1,
        "partition": batch.column("partition")[0].as_py(),
    }
    writer = SplitWriter(open_target(table.location, storage_options), options, token=uuid.uuid4().hex[:12], **span)
    writer.write(batch)
    return writer.finish()


class _Options(OutputOptions):
    """Those of files with columns that no schema of a topic has."""

    __slots__ = ("_columns",)
    _columns: pa.Schema

    def __init__(self, columns: pa.Schema, **others: Any) -> None:
        object.__setattr__(self, "_columns", columns)
        super().__init__(**others)

    @property
    def records(self) -> pa.Schema:
        return self._columns


def end_at(stop: int, *, topic: str = "orders", partition: int = 0, commit: str = "", **others: int) -> TableEnd:
    """An end of a partition of a topic."""
    return TableEnd(
        offsets={topic: {str(partition): stop, **{name.removeprefix("p"): one for name, one in others.items()}}},
        topic_ids={topic: "AAAAAAAAQACAAAAAAAAAAQ"},
        epochs={topic: {str(partition): 3}},
        log_ends={topic: {str(partition): [stop, 3]}},
        commit=commit or uuid.uuid4().hex,
    )


def filled(
    table: DeltaLakeTable,
    *stops: int,
    partition_by: str = "",
    start: TableEnd | None = None,
    storage_options: Mapping[str, object] | None = None,
) -> TableEnd:
    """Commits one after the other, of the offsets up to each of these; returns the last end."""
    table.prepare(SCHEMA, parse_partition_by(partition_by))
    first = 0 if start is None else start.offsets["orders"]["0"]
    for stop in stops:
        end = end_at(stop)
        table.commit(split_files(table, made(first, stop), partition_by, storage_options), start, end)
        start, first = end, stop
    assert start is not None
    return start


def read(
    table: DeltaLakeTable, *, topic: str = "orders", partition: int = 0, start: int = 0, stop: int = 1 << 40
) -> pa.Table:
    """The records of a partition, as the table gives them."""
    return pa.Table.from_batches(list(table.records(topic, partition, start, stop)), SCHEMA)


def log_of(root: Path) -> Iterator[dict[str, Any]]:
    """Actions of a table's log, in their order."""
    for path in sorted((root / "_delta_log").glob("*.json")):
        for line in path.read_text().splitlines():
            yield json.loads(line)


def rewrite_commit(root: Path, version: int, actions: Sequence[dict[str, Any]]) -> None:
    """Put another commit in the place of one."""
    (root / "_delta_log" / f"{version:020d}.json").write_text("\n".join(map(json.dumps, actions)) + "\n")


def day_of(offset: int) -> Any:
    """The day of a record."""
    return datetime.fromtimestamp((FIRST_US + offset * HOUR_US) // 1_000_000, UTC).date()
