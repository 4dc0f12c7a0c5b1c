"""Records of one partition, and the files that ``SplitWriter`` makes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from corpus import case

import segreader
from segreader.backfill.output import SCHEMA, OutputOptions
from segreader.backfill.writer import SplitWriter, WrittenFile
from segreader.spark.columns import to_spark
from segreader.storage.target.store import open_target

TOKEN = "0123456789ab"


def records_of(topic: str) -> list[pa.RecordBatch]:
    """The records of partition 0 of a topic of the corpus, as tasks write them."""
    columns = list(OutputOptions().reading["columns"])
    scan = segreader.scan(case("tv2", topic).root / "remote", topic=topic, partitions=[0], columns=columns)
    return [to_spark(rows, SCHEMA) for rows in scan.to_batches()]


def rows(count: int, *, schema: pa.Schema = SCHEMA, start: int = 0, **columns: list[Any]) -> pa.RecordBatch:
    """Records of one partition; what is not given is the same in all of them."""
    given = {
        "key": [None] * count,
        "value": [None] * count,
        "topic": ["orders"] * count,
        "partition": [0] * count,
        "offset": list(range(start, start + count)),
        "timestamp": [1_700_000_000_000_000 + at for at in range(count)],
        "timestampType": [0] * count,
        "headers": [None] * count,
    } | columns
    return pa.record_batch([pa.array(given[one.name], one.type) for one in schema], schema=schema)


def write(
    out: Path, output: OutputOptions, *batches: pa.RecordBatch, partition: int = 0, stop: int = 1000
) -> list[WrittenFile]:
    writer = SplitWriter(open_target(out), output, partition=partition, start=0, stop=stop, token=TOKEN)
    for batch in batches:
        writer.write(batch)
    return list(writer.finish())
