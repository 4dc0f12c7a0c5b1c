"""A backfill without Spark: plan, splits one after another in this process, commit; and the output read back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from segreader.backfill.commit import collect, commit
from segreader.backfill.job_plan import JobPlan, JobRequest, make_plan
from segreader.backfill.job_splits import JobSplit
from segreader.backfill.output import PLAN, OutputOptions
from segreader.backfill.report import Completeness
from segreader.backfill.source import metrics_for, read_records
from segreader.backfill.task import do_split
from segreader.plan.request import Policy, ReadOptions
from segreader.spark.locations import Locations
from segreader.spark.options import parse_options
from segreader.storage.target.store import TargetStore


def request(
    location: str | Path,
    *,
    split_bytes: int = 1 << 27,
    join_bytes: int = 0,
    output: OutputOptions | None = None,
    **options: str,
) -> JobRequest:
    """What a command line with these options of the data source asks for; each small segment is a split of its own."""
    options = {"location": str(location), "includeHeaders": "true", **options}
    return JobRequest(
        wanted=options | {"split-bytes": str(split_bytes)},
        options=options,
        output=output or OutputOptions(),
        split_bytes=split_bytes,
        join_bytes=join_bytes,
    )


def plan_into(target: TargetStore, asked: JobRequest) -> JobPlan:
    """The plan, put where a driver puts it."""
    plan = make_plan(asked)
    assert target.put_if_absent(PLAN, plan.data)
    return plan


def do(plan: JobPlan, target: TargetStore, *splits: JobSplit, on_corrupt: Policy = Policy.FAIL) -> None:
    """What tasks do: these splits, all of them by default."""
    options = parse_options(plan.options)
    store = Locations(options).store
    for split in splits or plan.splits:
        reading = replace(options.read_options, on_corrupt=on_corrupt)
        do_split(split, store, target, plan.output, options=reading, plan=plan.name)


def finish(plan: JobPlan, target: TargetStore, *, cleans: bool = True) -> Completeness:
    """What a driver does in the end."""
    return commit(target, plan, collect(target, plan), cleans=cleans)


def offsets_of(plan: JobPlan, split: JobSplit) -> list[int]:
    """The offsets of the records that a split delivers."""
    store = Locations(parse_options(plan.options)).store
    batches = read_records(split.read, store, ReadOptions(columns=("offset",)), metrics_for(split.read))
    return [offset for batch in batches for offset in batch.column(0).to_pylist()]


def files_of(root: Path) -> list[Path]:
    """The Parquet files that a reader of the directory sees."""
    found = [path for path in root.rglob("*.parquet") if not path.relative_to(root).as_posix().startswith(("_", "."))]
    return sorted(found)


def table_of(root: Path, *, hive: bool = False) -> pa.Table:
    """All records of an output, in order."""
    table = ds.dataset(root, partitioning="hive" if hive else None).to_table()
    return table.sort_by([("topic", "ascending"), ("partition", "ascending"), ("offset", "ascending")])


def rows_of(root: Path) -> list[Mapping[str, Any]]:
    """The same as dictionaries."""
    rows: list[Mapping[str, Any]] = table_of(root).to_pylist()
    return rows


def offsets_in(file: Path) -> list[int]:
    """The offsets of one file, in its order."""
    offsets: list[int] = pq.ParquetFile(file).read(columns=["offset"]).column(0).to_pylist()
    return offsets
