"""What the data source gives, without a JVM: its reader called as Spark calls it, partitions through a pickle."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa

from segreader.spark.batch import SegmentReader, SplitPartition
from segreader.spark.columns import arrow_schema
from segreader.spark.options import parse_options


def split_partitions(location: str | Path, **options: str) -> list[SplitPartition]:
    """The partitions that Spark is given, after a pickle."""
    reader = SegmentReader(parse_options({"location": str(location)} | options), ("offset",))
    return [one for one in pickle.loads(pickle.dumps(reader.partitions())) if isinstance(one, SplitPartition)]


def read_table(location: str | Path, columns: tuple[str, ...] = ("partition", "offset"), **options: str) -> pa.Table:
    """All rows, task after task."""
    reader = SegmentReader(parse_options({"location": str(location)} | options), columns)
    planned = pickle.loads(pickle.dumps(reader.partitions()))
    batches = [batch for partition in planned for batch in reader.read(partition)]
    return pa.Table.from_batches(batches, schema=arrow_schema(columns))


def read_offsets(location: str | Path, **options: str) -> list[int]:
    """The offsets of all rows, in order."""
    found: list[Any] = read_table(location, ("offset",), **options)["offset"].to_pylist()
    return sorted(found)
