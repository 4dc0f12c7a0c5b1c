"""What Spark keeps of a read that fails: event log, output and errors hold no credential."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

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
"""


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_a_failing_read_of_a_bucket_leaves_no_secret_behind(tmp_path: Path) -> None:
    secrets = {"KEY": "CANARYACCESSKEY", "SECRET": "canary/secret+key", "TOKEN": "canarytoken"}
    variables = {f"SEGREADER_STORAGE_{name}": value for name, value in secrets.items()}
    variables |= {"SEGREADER_STORAGE_ENDPOINT_URL": "http://127.0.0.1:9", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], env={**os.environ, **variables}, capture_output=True
    )
    told = done.stdout + done.stderr
    assert b"failed as it should" in told
    logs = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    assert b"SparkListenerApplicationStart" in logs
    for secret in secrets.values():
        assert secret.encode() not in told + logs
