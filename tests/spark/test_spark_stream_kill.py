"""A streaming query whose driver, with its JVM and all workers, is killed ten times: each offset is delivered once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random

import pytest
from growing_log import GrowingLog
from pyspark.sql import SparkSession

from segreader.spark.rate_limits import HAS_LIMITS

pytestmark = [pytest.mark.exhaustive, pytest.mark.spark, pytest.mark.xdist_group("spark")]

ROOT = Path(__file__).parents[2]
KILLS = 10
SEED = 20261121
WAIT_S = 900
DRIVER = """
import json, sys
from segreader.spark import register
from spark_jobs.session import job_session

place, options, until_the_end = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3] == "end"
settings = {"spark.driver.memory": "512m", "spark.sql.shuffle.partitions": "2"}
with job_session("killed", master="local[2,4]", settings=settings) as session:
    register(session.spark)
    reader = session.spark.readStream.format("segreader").options(**options).load()
    writer = reader.writeStream.format("parquet").option("path", place + "/output")
    writer = writer.option("checkpointLocation", place + "/checkpoint")
    query = (writer.trigger(availableNow=True) if until_the_end else writer).start()
    query.awaitTermination()
"""


def begin(place: Path, options: dict[str, str], until: str) -> subprocess.Popen[bytes]:
    """A driver in a process group of its own."""
    path = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
    line = [sys.executable, "-c", DRIVER, str(place), json.dumps(options), until]
    with (place / "driver.log").open("ab") as log:
        variables = os.environ | {"PYTHONPATH": path}
        return subprocess.Popen(line, env=variables, stdout=log, stderr=log, start_new_session=True)


def batches(place: Path, kind: str) -> int:
    """How many batches the checkpoint has begun (``offsets``) or ended (``commits``)."""
    return len([path for path in place.glob(f"checkpoint/{kind}/*") if path.name.isdigit()])


def test_a_stream_whose_driver_is_killed_ten_times_delivers_each_offset_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    random, log, ends = Random(SEED), GrowingLog(tmp_path / "tier"), [0, 0]
    options = {"location": str(log.root), "subscribe": "orders"}
    if HAS_LIMITS:
        options["maxOffsetsPerTrigger"] = "7"
    unfinished = 0
    for number in range(KILLS):
        ends[number % 2] = log.upload("orders", number % 2, 30)
        begun = batches(tmp_path, "offsets")
        driver = begin(tmp_path, options, "killed")
        until = time.monotonic() + WAIT_S
        while batches(tmp_path, "offsets") <= begun:
            assert driver.poll() is None, (tmp_path / "driver.log").read_text()[-3000:]
            assert time.monotonic() < until
            time.sleep(0.01)
        time.sleep(random.random() * random.choice([0.05, 1.0]))
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
        unfinished += batches(tmp_path, "offsets") > batches(tmp_path, "commits")
    assert begin(tmp_path, options, "end").wait(WAIT_S) == 0, (tmp_path / "driver.log").read_text()[-3000:]

    rows = spark.read.parquet(str(tmp_path / "output")).select("partition", "offset", "value").collect()
    assert Counter((row["partition"], row["offset"]) for row in rows) == Counter(
        (partition, offset) for partition, end in enumerate(ends) for offset in range(end)
    )
    assert all(bytes(row["value"]) == b"%d" % row["offset"] for row in rows)
    assert unfinished, "no kill found a batch that had begun and not ended"
