"""Records into a table that Spark writes: Delta, Iceberg, any catalog. Exactly once is then the format's to give."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from segreader.errors import OptionError
from segreader.spark import register
from segreader.spark.backfill.job_plan import JobPlan

Counts = Mapping[tuple[str, int], tuple[int, int]]
"""Records and different offsets, by topic and partition."""


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
    is_delta = form == "delta"
    if name is not None and not replaces and not is_delta and spark.catalog.tableExists(name):
        raise OptionError("the table is there already", found=name, hint="Name another one, or replace it with --force")
    register(spark)
    writer = records_of(spark, plan, options).write.mode(
        "overwrite" if replaces else "append" if is_delta else "errorifexists"
    )
    if form is not None:
        writer = writer.format(form)
    if is_delta:  # a second run of the same job writes nothing
        wanted = json.dumps(dict(plan.wanted), sort_keys=True)
        writer = writer.option("txnAppId", f"segreader-{sha256(wanted.encode()).hexdigest()[:16]}")
        writer = writer.option("txnVersion", "1")
    writer = writer.option("parquet.enable.dictionary#key", "false").option("parquet.enable.dictionary#value", "false")
    if name is None:
        writer.save(path)
    else:
        (writer if path is None else writer.option("path", path)).saveAsTable(name)
    reader = spark.read if form is None else spark.read.format(form)
    return _counts(spark.table(name) if name is not None else reader.load(path))


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
    left_out = ("subscribe", "subscribepattern", "assign", "startingtimestamp", "endingtimestamp")
    exact = {key: value for key, value in options.items() if key.lower() not in left_out} | {
        "assign": json.dumps({topic: [int(number) for number in offsets] for topic, offsets in starts.items()}),
        "startingOffsets": json.dumps(starts),
        "endingOffsets": json.dumps(stops),
    }
    return spark.read.format("segreader").options(**exact).load()


def _counts(frame: DataFrame) -> Counts:
    rows = (
        frame.groupBy("topic", "partition")
        .agg(F.count("*").alias("records"), F.count_distinct("offset").alias("different"))
        .collect()
    )
    return {(row["topic"], row["partition"]): (row["records"], row["different"]) for row in rows}
