"""A Spark session for a program: quiet on one machine, untouched under ``spark-submit``.

Started by plain Python, a program makes its own JVM. Everything that JVM and its workers print then goes to a
log file, because Spark's banner and warnings would bury what the program has to say. Under ``spark-submit``
the JVM is there already and its owner's settings rule.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from segreader.errors import SegreaderError
from spark_jobs.java import find_java_home

LOCAL_MASTER = "local[*,4]"
"""All cores of this machine; four attempts for each task, as on a cluster (``local[*]`` never retries)."""

SETTINGS = {
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
}
"""For any master: tasks start sooner (Spark 4.1 and later); a crash of a worker shows its Python stack."""

LOCAL_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
"""For one machine: no port is open to others."""


@dataclass(frozen=True, slots=True)
class JobSession:
    """A session, and the file that Spark's own output goes to if this process started the JVM."""

    spark: SparkSession
    log: Path | None = None


@contextmanager
def job_session(
    name: str, *, master: str | None = None, settings: Mapping[str, str] | None = None
) -> Iterator[JobSession]:
    """A session for the time of the block; one that was there before stays.

    The log file is deleted when the block ends well or with an error of this library, and kept otherwise.

    Args:
        name: of the application.
        master: where to run; by default what ``spark-submit`` says, else this machine.
        settings: Spark's, on top of ``SETTINGS``.
    """
    if (running := SparkSession.getActiveSession()) is not None:
        yield JobSession(running)
        return
    wanted = {**SETTINGS, **(settings or {})}
    log = None
    if not _has_jvm():
        master = master or LOCAL_MASTER
        if master.startswith("local"):
            wanted = {**LOCAL_SETTINGS, **wanted}
        log = _log_file()
    builder = SparkSession.builder.appName(name).config(map=dict(wanted))
    if master is not None:
        builder = builder.master(master)
    spark = _launch(builder, log) if log is not None else builder.getOrCreate()
    is_explained = False
    try:
        yield JobSession(spark, log)
        is_explained = True
    except SegreaderError:
        is_explained = True
        raise
    finally:
        spark.stop()
        if log is not None and is_explained:
            log.unlink(missing_ok=True)


def describe_job(spark: SparkSession, text: str) -> None:
    """Name what runs next in Spark's UI; Spark Connect has no context, and no name then."""
    with suppress(PySparkException):  # of Spark Connect
        spark.sparkContext.setJobDescription(text)


def _has_jvm() -> bool:
    """Whether ``spark-submit`` or earlier code of this process has started the JVM."""
    return "PYSPARK_GATEWAY_PORT" in os.environ or SparkContext._gateway is not None


def _log_file() -> Path:
    handle, name = tempfile.mkstemp(prefix="segreader-spark-", suffix=".log")
    os.close(handle)
    return Path(name)


def _launch(builder: SparkSession.Builder, log: Path) -> SparkSession:
    """Start the JVM; it inherits this environment, and the log file as its stderr."""
    os.environ["JAVA_HOME"] = str(find_java_home(os.environ))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    with _stderr_to(log):
        return builder.getOrCreate()


@contextmanager
def _stderr_to(log: Path) -> Iterator[None]:
    """Let file descriptor 2 be the log file for a while: what a process started meanwhile inherits."""
    sys.stderr.flush()
    ours = os.dup(2)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(ours, 2)
        os.close(ours)
