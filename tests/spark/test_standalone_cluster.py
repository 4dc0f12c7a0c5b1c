"""A standalone cluster of one master and two workers on loopback, with Spark's own scripts of pip's PySpark."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from chaos import REMOTE, prove, truth_of
from spark_jvm import spark_options
from spark_standalone import environment, standalone_cluster

pytestmark = [pytest.mark.exhaustive, pytest.mark.spark]

TOPICS = ("nulls", "txn-interleaved", "codec-lz4")

READ = """
import json, sys
from spark_jobs.session import job_session
location, topics, master = sys.argv[1:]
with job_session("read", master=master, settings={"spark.ui.enabled": "false"}) as session:
    reader = session.spark.read.format("segreader").option("location", location).option("subscribe", topics)
    rows = reader.load().selectExpr("topic", "partition", "offset", "hex(value) as value", "hex(key) as key").collect()
    executors = session.spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1
    print(json.dumps({"executors": executors, "rows": [list(row) for row in rows]}))
"""


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """The URL of a master with two workers, of one core each."""
    with standalone_cluster(tmp_path) as url:
        yield url


def run(master: str, *arguments: str) -> str:
    """A driver on the cluster; what it printed."""
    conf = {
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": spark_options(),
        "spark.cores.max": "2",
        "spark.driver.memory": "512m",
        "spark.driver.host": "127.0.0.1",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
        "spark.executorEnv.SEGREADER_KERNEL": os.environ.get("SEGREADER_KERNEL", "native"),
    }
    submit = shlex.join(part for name, value in conf.items() for part in ("--conf", f"{name}={value}"))
    done = subprocess.run(
        [sys.executable, *arguments, master],
        env=environment() | {"PYSPARK_SUBMIT_ARGS": f"{submit} pyspark-shell"},
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_a_standalone_cluster_reads_the_truth_and_runs_the_backfill(tmp_path: Path, master: str) -> None:
    told = json.loads(run(master, "-c", READ, str(REMOTE), ",".join(TOPICS)))
    assert told["executors"] == 2
    read = {(topic, partition, offset): (value, key) for topic, partition, offset, value, key in told["rows"]}
    assert len(read) == len(told["rows"])
    truth = {
        (topic, *place): (_hex(record.value), _hex(record.key))
        for topic in TOPICS
        for place, record in truth_of(topic, "committed").items()
    }
    assert read.keys() == truth.keys()
    assert {key: row for key, row in read.items() if row != truth[key]} == {}

    out = tmp_path / "out"
    topics = [argument for topic in TOPICS for argument in ("--topic", topic)]
    line = ("-m", "spark_jobs.backfill", "--location", str(REMOTE), "--target", str(out), "--split-bytes", "2000")
    assert "wrote" in run(master, *line, *topics, "--master")
    prove(out, TOPICS, "committed")


def _hex(value: object) -> str | None:
    assert value is None or isinstance(value, bytes), "the truth keeps long values as hashes: take another topic"
    return None if value is None else value.hex().upper()
