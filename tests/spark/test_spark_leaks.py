"""What Spark keeps of a read that fails: event log, output and errors hold no credential."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from corpus import CORPUS
from spark_jvm import spark_variables

ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys
from spark_jobs.session import job_session
settings = {"spark.eventLog.enabled": "true", "spark.eventLog.compress": "false"}
settings["spark.eventLog.dir"] = "file://" + sys.argv[1]
with job_session("leaks", master="local[1]", settings=settings) as session:
    from segreader.spark import register
    register(session.spark)
    session.spark.range(3).count()
    try:
        frame = session.spark.read.format("segreader").option("location", "s3://bucket/tiered").option("subscribe", "t")
        frame.load().count()
    except Exception as error:
        print("failed as it should:", error)
    try:
        frame.option("storage.secret", sys.argv[2]).load()
    except Exception as error:
        print("refused as it should:", error)
    frame = session.spark.read.format("segreader").option("location", sys.argv[3]).option("subscribe", "nulls")
    frame = frame.option("credentials", "env:LAKE")
    frame.load().createOrReplaceTempView("named")
    session.spark.sql("SELECT count(*) FROM named").collect()
    frame.load().write.parquet(sys.argv[1] + "/written")
    print("read as it should:", session.spark.read.parquet(sys.argv[1] + "/written").count())
"""


@pytest.mark.spark
def test_reads_that_fail_and_reads_that_do_not_leave_no_secret_behind(tmp_path: Path) -> None:
    secrets = {"KEY": "CANARYACCESSKEY", "SECRET": "canary/secret+key", "TOKEN": "canarytoken"}
    variables = {f"SEGREADER_STORAGE_{name}": value for name, value in secrets.items()}
    variables |= {"SEGREADER_STORAGE_ENDPOINT_URL": "http://127.0.0.1:9", "PYTHONPATH": str(ROOT)}
    variables |= {f"LAKE_{name}": value for name, value in secrets.items()}
    variables["AWS_MAX_ATTEMPTS"] = "1"  # nothing answers at that endpoint: further attempts only wait
    arguments = [str(tmp_path), secrets["SECRET"], str(CORPUS / "tv2" / "remote")]
    variables = {**os.environ, **spark_variables(), **variables}
    done = subprocess.run([sys.executable, "-c", PROGRAM, *arguments], env=variables, capture_output=True)
    told = done.stdout + done.stderr
    for line in (b"failed as it should", b"refused as it should", b"read as it should: 56"):
        assert line in told
    logs = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    assert b"SparkListenerApplicationStart" in logs
    for secret in secrets.values():
        assert secret.encode() not in told + logs
