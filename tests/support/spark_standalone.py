"""A standalone cluster on loopback, started with the classes of pip's PySpark: one master, and some workers.

Workers have addresses of their own, since Spark starts a speculative copy of a task on another host only.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark
from servers.pool import skip_or_fail
from servers.process import dies_with_us
from spark_jvm import spark_variables, without_spark

from spark_jobs.java import find_java_home

ROOT = Path(__file__).parents[2]
SPARK_HOME = Path(pyspark.__file__).parent

_DEPLOY = "org.apache.spark.deploy"
_STARTS_IN = 180.0


def environment() -> dict[str, str]:
    """What every process of the cluster is given: executors find the package as their workers' Python does."""
    ours = {
        "JAVA_HOME": str(find_java_home(os.environ)),
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)]),
    }
    return without_spark() | spark_variables() | ours


@contextmanager
def standalone_cluster(
    directory: Path,
    *,
    hosts: Sequence[str] = ("127.0.0.1", "127.0.0.1"),
    cores: int = 1,
    more: Mapping[str, str] | None = None,
) -> Iterator[str]:
    """The URL of a master, for the time of the block. ``skip_or_fail`` where a cluster cannot be started.

    Args:
        directory: for logs and what the workers write.
        hosts: addresses of this machine, a worker for each.
        cores: of a worker.
        more: variables that its processes get, besides ``environment``.
    """
    if not (SPARK_HOME / "bin" / "spark-class").exists():
        skip_or_fail("spark", "this PySpark brings no spark-class: it is the client alone")
    environ = {**environment(), **(more or {})}
    ports = ("--port", "0", "--webui-port", "0")
    with ExitStack() as stack:
        told = directory / "master.log"
        line = [f"{_DEPLOY}.master.Master", "--host", "127.0.0.1", *ports]
        master = stack.enter_context(_daemon(told, line, environ))
        url = _waited(master, told, r"Starting Spark master at (spark://\S+)")
        workers = []
        for number, host in enumerate(hosts):
            work = ("--cores", str(cores), "--memory", f"{cores}g", "--work-dir", str(directory / f"work-{number}"))
            line = [f"{_DEPLOY}.worker.Worker", "--host", host, *ports, *work, url]
            told = directory / f"worker-{number}.log"
            workers.append((stack.enter_context(_daemon(told, line, environ | {"SPARK_LOCAL_IP": host})), told))
        for worker, told in workers:
            _waited(worker, told, r"Successfully registered with master (\S+)")
        yield url


@contextmanager
def _daemon(told: Path, arguments: list[str], environ: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """One process of the cluster, which writes to the file ``told``."""
    line = [str(SPARK_HOME / "bin" / "spark-class"), *arguments]
    with told.open("wb") as log:
        process = subprocess.Popen(
            line, env=dict(environ), stdout=log, stderr=log, start_new_session=True, preexec_fn=dies_with_us
        )
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _waited(process: subprocess.Popen[bytes], told: Path, until: str) -> str:
    """What its log says where ``until`` matches."""
    begin = time.monotonic()
    while True:
        if process.poll() is not None or time.monotonic() - begin >= _STARTS_IN:
            skip_or_fail("spark", f"no standalone cluster here: {told.read_text(errors='replace')[-500:]}")
        if (match := re.search(until, told.read_text(errors="replace"))) is not None:
            return match[1]
        time.sleep(0.1)
