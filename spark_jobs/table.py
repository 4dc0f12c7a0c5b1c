"""Records into a table that Spark writes: Delta, Iceberg, any catalog. Exactly once is then the format's to give.

Delta and Iceberg keep a text with each commit, and there the job says which offsets it wrote. So a run that finds its
own table has nothing left to do, and any other table is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from segreader.backfill.job_plan import JobPlan
from segreader.errors import OptionError
from segreader.spark import read
from segreader.spark.credentials import SERVERS

Counts = Mapping[tuple[str, int], tuple[int, int]]
"""Records and different offsets, by topic and partition."""

_MARK: Final = "segreader"
_DELTA_TEXT: Final = "spark.databricks.delta.commitInfo.userMetadata"
_THERE: Final = ("PATH_ALREADY_EXISTS", "TABLE_OR_VIEW_ALREADY_EXISTS")


def write_table(
    spark: SparkSession,
    plan: JobPlan,
    options: Mapping[str, str],
    *,
    name: str | None,
    path: str | None,
    form: str | None,
    replaces: bool = False,
) -> Counts:
    """Write exactly the offsets of the plan in one write of Spark's, and count what is in the table then.

    A table of Delta or Iceberg that holds just these offsets already, from a run of the same job, is left as it is.

    Args:
        options: those of the data source.
        name: of the table in a catalog.
        path: where its files lie; one of the two is enough.
        form: ``parquet``, ``delta``, ``iceberg`` … ; the catalog's default where it is not given.
        replaces: whether a table that is there is written anew.

    Raises:
        OptionError: neither is given; or the table is there.
    """
    if name is None and path is None:
        raise OptionError("a table needs a name or a path", hint="Give --table or --target")
    mark = _mark_of(plan)
    is_done = False
    if not replaces and (marks := _marks(spark, name, path, form)) is not None:
        if marks[:1] != [mark]:
            raise _is_there(name or path, marks[0] if marks else None, mark)
        is_done = True
    if not is_done:
        _write(records_of(spark, plan, options), mark, name=name, path=path, form=form, replaces=replaces)
    reader = spark.read if form is None else spark.read.format(form)
    return _counts(spark.table(name) if name is not None else reader.load(path))


def _write(
    frame: DataFrame, mark: str, *, name: str | None, path: str | None, form: str | None, replaces: bool
) -> None:
    is_delta = form == "delta"
    writer = frame.write.mode("overwrite" if replaces else "append" if is_delta else "error")
    if form is not None:
        writer = writer.format(form)
    writer = writer.option(f"snapshot-property.{_MARK}", mark)
    if is_delta and not replaces:  # of two runs at once the second writes nothing
        writer = writer.option("txnAppId", f"{_MARK}-{sha256(mark.encode()).hexdigest()[:16]}")
        writer = writer.option("txnVersion", "1")
    writer = writer.option("parquet.enable.dictionary#key", "false").option("parquet.enable.dictionary#value", "false")
    kept = frame.sparkSession.conf.get(_DELTA_TEXT, None)
    frame.sparkSession.conf.set(_DELTA_TEXT, mark)  # as an option it is lost where a catalog makes the table
    try:
        if name is None:
            writer.save(path)
        else:
            (writer if path is None else writer.option("path", path)).saveAsTable(name)
    except PySparkException as error:
        if error.getCondition() in _THERE:
            raise _is_there(name or path, None, mark) from error
        raise
    finally:
        if kept is None:
            frame.sparkSession.conf.unset(_DELTA_TEXT)
        else:
            frame.sparkSession.conf.set(_DELTA_TEXT, kept)


def _mark_of(plan: JobPlan) -> str:
    """What the job says of a table: a hash of what was asked for, and the offsets of each partition."""
    wanted = json.dumps(dict(plan.wanted), sort_keys=True)
    offsets: dict[str, dict[str, list[int]]] = {}
    for one in plan.partitions:
        offsets.setdefault(one.topic, {})[str(one.partition)] = [one.start, one.stop]
    job = {"job": sha256(wanted.encode()).hexdigest()[:16], "offsets": offsets}
    return json.dumps({_MARK: job}, sort_keys=True, separators=(",", ":"))


def _marks(spark: SparkSession, name: str | None, path: str | None, form: str | None) -> list[str] | None:
    """What jobs said of the table, the newest first; ``None`` where there is no table."""
    if name is None:
        quoted = str(path).replace("`", "``")
        return _read_marks(spark, f"DESCRIBE HISTORY delta.`{quoted}`", "version") if form == "delta" else None
    if not spark.catalog.tableExists(name):
        return None
    marks = _read_marks(spark, f"DESCRIBE HISTORY {name}", "version")
    if marks is None:
        query = f"SELECT committed_at, summary['{_MARK}'] AS userMetadata FROM {name}.snapshots"
        marks = _read_marks(spark, query, "committed_at")
    return marks or []


def _read_marks(spark: SparkSession, query: str, order: str) -> list[str] | None:
    try:
        rows = spark.sql(query).orderBy(F.desc(order)).select("userMetadata").collect()
    except PySparkException:  # not a table of this format
        return None
    return [row[0] for row in rows if row[0] and row[0].startswith(f'{{"{_MARK}"')]


def _is_there(table: str | None, found: str | None, mark: str) -> OptionError:
    """Another job's table, or this job's with other offsets; says the difference."""
    return OptionError(
        "the table is there already",
        source=table,
        found="what this job did not write" if found is None else "; ".join(_differences(found, mark)),
        hint="Name another one, or replace it with --force",
    )


def _differences(there: str, here: str) -> Iterator[str]:
    (old, new) = (json.loads(text)[_MARK] for text in (there, here))
    if old["job"] != new["job"]:
        yield "what another job wrote"
        return
    for topic, partitions in new["offsets"].items():
        for partition, (start, stop) in partitions.items():
            have = old["offsets"].get(topic, {}).get(partition)
            if have != [start, stop]:
                yield f"{topic}-{partition} with {_range(have)} there, {_range([start, stop])} here"


def _range(offsets: list[int] | None) -> str:
    return "nothing" if offsets is None else f"offsets {offsets[0]} to {offsets[1] - 1}"


def records_of(spark: SparkSession, plan: JobPlan, options: Mapping[str, str]) -> DataFrame:
    """A DataFrame of exactly the offsets of a plan."""
    chosen = [one for one in plan.partitions if one.splits]
    if not chosen:
        raise OptionError("there is nothing to write", source=plan.location)
    starts: dict[str, dict[str, int]] = {}
    stops: dict[str, dict[str, int]] = {}
    for one in chosen:
        starts.setdefault(one.topic, {})[str(one.partition)] = one.start
        stops.setdefault(one.topic, {})[str(one.partition)] = one.stop
    left_out = ("subscribe", "subscribepattern", "assign", "topicid", "startingtimestamp", "endingtimestamp")
    exact = {key: value for key, value in options.items() if key.lower() not in left_out} | {
        "assign": json.dumps({topic: [int(number) for number in offsets] for topic, offsets in starts.items()}),
        "startingOffsets": json.dumps(starts),
        "endingOffsets": json.dumps(stops),
    }
    ids = dict.fromkeys(split.partition.topic_id for split in plan.splits if split.partition.topic_id is not None)
    if ids and SERVERS not in {key.lower() for key in options}:
        exact["topicId"] = ",".join(ids)  # those that the plan was made for, whichever is the newest by now
    return read(spark, options=exact)


def _counts(frame: DataFrame) -> Counts:
    rows = (
        frame.groupBy("topic", "partition")
        .agg(F.count("*").alias("records"), F.count_distinct("offset").alias("different"))
        .collect()
    )
    return {(row["topic"], row["partition"]): (row["records"], row["different"]) for row in rows}
