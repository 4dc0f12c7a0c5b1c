"""What a backfill did, as values and as text for a person who sees it for the first time."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from segreader.format.kernel import load_kernel
from segreader.plan.split import ReadPlan
from segreader.spark.options import SparkOptions

_SHOWN = 50


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """One partition of the output. Without records ``first_offset`` and ``last_offset`` are ``None``."""

    topic: str
    partition: int
    stored_bytes: int
    records: int = 0
    first_offset: int | None = None
    last_offset: int | None = None


@dataclass(frozen=True, slots=True)
class BackfillReport:
    """What was read and what is in the target now, as counted there after writing."""

    location: str
    target: str
    isolation_level: str
    kernel: str
    splits: int
    partitions: tuple[PartitionReport, ...]
    written_bytes: int
    files: int
    seconds: float

    @property
    def records(self) -> int:
        """Of all partitions."""
        return sum(partition.records for partition in self.partitions)

    @property
    def stored_bytes(self) -> int:
        """Of all partitions, in their segments."""
        return sum(partition.stored_bytes for partition in self.partitions)


def summarise(
    written: DataFrame,
    options: SparkOptions,
    plan: ReadPlan,
    target: str,
    *,
    size: int,
    seconds: float,
) -> BackfillReport:
    """Count what was written, by reading it back.

    Args:
        written: the target as a DataFrame.
        size: bytes of the target.
        seconds: that the job took so far.
    """
    counted = {
        (row["topic"], row["partition"]): (row["records"], row["first"], row["last"])
        for row in written.groupBy("topic", "partition")
        .agg(F.count("*").alias("records"), F.min("offset").alias("first"), F.max("offset").alias("last"))
        .collect()
    }
    return BackfillReport(
        location=options.location,
        target=target,
        isolation_level=options.isolation_level.value,
        kernel=load_kernel().NAME,
        splits=len(plan.splits),
        partitions=tuple(
            PartitionReport(topic, partition, stored, *counted.get((topic, partition), ()))
            for (topic, partition), stored in stored_bytes(plan).items()
        ),
        written_bytes=size,
        files=len(written.inputFiles()),
        seconds=seconds,
    )


def stored_bytes(plan: ReadPlan) -> dict[tuple[str, int], int]:
    """Bytes to read of each partition, in the order of the plan."""
    sizes: Counter[tuple[str, int]] = Counter()
    for split in plan.splits:
        sizes[split.partition.topic, split.partition.partition] += split.positions.size
    return dict(sizes)


def describe_plan(plan: ReadPlan, *, in_detail: bool = False) -> str:
    """What will be read: one line, or also one for each partition."""
    topics = len({partition.topic for partition in plan.partitions})
    summary = (
        f"Reading {_bytes(plan.size)} of segments in {plan.location}: {_count(topics, 'topic')}, "
        f"{_count(len(plan.partitions), 'partition')}, {_count(len(plan.splits), 'task')}"
    )
    if not in_detail:
        return summary
    rows = [(topic, str(partition), _bytes(size)) for (topic, partition), size in stored_bytes(plan).items()]
    return "\n".join([*_table(("topic", "partition", "stored"), rows), "", summary])


def describe_report(report: BackfillReport) -> str:
    """The summary that ends a job."""
    rows = [
        (
            part.topic,
            str(part.partition),
            "none" if part.first_offset is None else f"{part.first_offset} - {part.last_offset}",
            f"{part.records:,}",
            _bytes(part.stored_bytes),
        )
        for part in report.partitions
    ]
    hidden = len(rows) - _SHOWN
    lines = [
        *_table(("topic", "partition", "offsets", "records", "stored"), rows[:_SHOWN]),
        *([f"… and {_count(hidden, 'partition')} more"] if hidden > 0 else []),
        "",
        f"read     {_bytes(report.stored_bytes)} of segments in {report.location}",
        f"         in {_count(report.splits, 'task')}, {report.kernel} kernel",
        f"         {_meaning(report.isolation_level)}",
        f"wrote    {_count(report.records, 'record')} of {_count(len(report.partitions), 'partition')},"
        f" {_bytes(report.written_bytes)} of Parquet in {_count(report.files, 'file')}",
        f"took     {report.seconds:.1f} s",
        f"output   {report.target}/topic=…/partition=…/",
        f"look     {look_command(report.target)}",
    ]
    return "\n".join(lines)


def look_command(target: str) -> str:
    """A command that shows the first records of the output, with what is installed here."""
    if urlsplit(target).scheme not in ("", "file"):
        return f"spark.read.parquet({target!r}).show()    (in pyspark)"
    path = json.dumps(urlsplit(target).path, ensure_ascii=False)
    code = f'import pyarrow.dataset as d; print(*d.dataset({path}, partitioning="hive").head(3).to_pylist(), sep="\\n")'
    return f"{_python()} -c {shlex.quote(code)}"


def _python() -> str:
    """This interpreter, as short as it can be said from here."""
    executable = Path(sys.executable)
    here = Path(os.getcwd())
    return str(executable.relative_to(here) if executable.is_relative_to(here) else executable)


def _meaning(isolation_level: str) -> str:
    if isolation_level == "read_committed":
        return "read_committed: records of aborted transactions are left out"
    return "read_uncommitted: records of aborted transactions are included"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def _bytes(number: int) -> str:
    size = float(number)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines with the first column to the left and the others to the right."""
    cells = [tuple(head), *map(tuple, rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    lines = [
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]
    return [lines[0], "-" * len(lines[0]), *lines[1:]]
