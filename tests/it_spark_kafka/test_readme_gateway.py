"""The README's lines of gateway and Spark, as they stand there but for the addresses, on a tiered broker."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from kafka_kit.clients import Sent, consume, producer, send
from kafka_kit.cluster import Cluster
from servers.pool import skip_or_fail
from servers.process import NotAvailableError, Process, free_port, script
from servers.rclone import rclone
from servers.s3 import S3Server

pytestmark = [pytest.mark.exhaustive, pytest.mark.spark, pytest.mark.xdist_group("broker")]

ROOT = Path(__file__).parents[2]
SECTION = (ROOT / "README.md").read_text().partition("## With a cluster")[2].partition("\n## ")[0]
(SHELL,) = re.findall(r"^```bash\n(.*?)^```", SECTION, re.MULTILINE | re.DOTALL)
(PYTHON,) = re.findall(r"^```py\n(.*?)^```", SECTION, re.MULTILINE | re.DOTALL)
SESSION = """
from pyspark.sql import SparkSession
from spark_jobs.session import job_session
with job_session("readme", master="local[2]") as session:
    spark = session.spark
    from segreader.spark import read
"""
PARTITIONS = 2


@pytest.fixture(scope="module")
def orders(kafka: Cluster) -> str:
    """A topic most of which is in the store alone."""
    kafka.create_topic("orders", PARTITIONS, segment_bytes=4_000)
    with producer(kafka.bootstrap, batch_size=500) as out:
        send(out, "orders", [Sent(value=b"value-%d" % number, partition=number % 3 % 2) for number in range(900)])
    kafka.upload_closed("orders")
    assert kafka.offsets("orders")[0].earliest_local > 0
    return "orders"


@pytest.fixture(scope="module")
def store(kafka: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """The remote tier as a bucket."""
    with ExitStack() as stack:
        try:
            yield stack.enter_context(rclone(tmp_path_factory.mktemp("rclone"), kafka.remote))
        except NotAvailableError as error:
            skip_or_fail("rclone", error.message)


def listens(port: int) -> bool:
    with suppress(OSError):
        socket.create_connection(("127.0.0.1", port), 1.0).close()
        return True
    return False


def test_the_lines_of_the_readme_read_history_and_live_data(
    kafka: Cluster, orders: str, store: S3Server, tmp_path: Path
) -> None:
    port, audit = free_port(), tmp_path / "audit.jsonl"
    replaced = {
        "broker:9092": kafka.bootstrap,
        "0.0.0.0:19092": f"127.0.0.1:{port}",
        "--advertised-host gateway": "--advertised-host 127.0.0.1",
        "gateway:19092": f"127.0.0.1:{port}",
        "s3://logs/tiered": "s3://kafka-tiered-storage",
    }
    shell, code = SHELL, PYTHON
    for theirs, ours in replaced.items():
        assert theirs in shell + code
        shell, code = shell.replace(theirs, ours), code.replace(theirs, ours)
    assert len([line for line in (shell + code).splitlines() if line.strip()]) <= 6
    program, *arguments = shell.split()
    secrets = {f"SEGREADER_STORAGE_{name.upper()}": str(value) for name, value in store.storage_options.items()}
    with Process([script(program), *arguments, "--audit", str(audit)], tmp_path / "gateway.log", secrets) as gateway:
        gateway.wait_until(lambda: listens(port), 60.0)
        body = SESSION + "".join(f"    {line}\n" for line in code.splitlines())
        variables = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)]),
            "SEGREADER_STORAGE_ALLOW_HOSTS": store.endpoint,  # a bucket in no cloud
        }
        done = subprocess.run([sys.executable, "-c", body], env=variables, capture_output=True, text=True, timeout=600)

    assert done.returncode == 0, done.stderr[-3000:]
    shown = {int(row[0]): int(row[1]) for row in re.findall(r"^\|\s*(\d+)\|\s*(\d+)\|$", done.stdout, re.MULTILINE)}
    expected = [one.partition for one in consume(kafka.bootstrap, orders, PARTITIONS)]
    assert shown == {number: expected.count(number) for number in range(PARTITIONS)}
    assert sum(shown.values()) == 900
    assert len(audit.read_text().splitlines()) > PARTITIONS  # the store was read by locations
