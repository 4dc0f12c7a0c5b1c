"""What Spark's JVMs in tests are started with: most live for seconds, and spend them on loading and compiling classes.

Compiling less halves what a start costs, and classes that lie in an archive (JEP 350) halve the rest.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pyspark
from quick_jvm import QUICK

from spark_jobs.java import find_java_home

ROOT = Path(__file__).parents[2]

_USE = """
import sys
from segreader.spark import register
from spark_jobs.session import job_session
location, out = sys.argv[1:]
with job_session("classes", master="local[1]", settings={"spark.ui.enabled": "false"}) as session:
    register(session.spark)
    frame = session.spark.read.format("segreader").option("location", location).option("subscribe", "multi").load()
    frame.repartition(2).write.parquet(out)
    session.spark.read.parquet(out).groupBy("partition").count().collect()
    session.spark._jvm.java.lang.System.exit(0)  # only then does it write the archive
"""


def without_spark() -> dict[str, str]:
    """The variables of this process, but for those that a Spark in it has set: for programs that start their own."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK"))}


def spark_options() -> str:
    """For the ``extraJavaOptions`` of drivers and executors."""
    archive = _spark_archive()
    return " ".join([*QUICK, *([f"-XX:SharedArchiveFile={archive}", "-Xlog:disable"] if archive else [])])


def spark_variables() -> dict[str, str]:
    """For programs that start Spark: options of drivers, of the launcher that finds their command, and of daemons."""
    return {
        "SPARK_SUBMIT_OPTS": spark_options(),
        "SPARK_LAUNCHER_OPTS": " ".join(QUICK),
        "SPARK_DAEMON_JAVA_OPTS": spark_options(),
    }


@cache
def _spark_archive() -> Path | None:
    """The classes of this PySpark for this Java, made once and kept in ``build``; ``None`` where that fails."""
    java = find_java_home(os.environ)
    of = f"{java}\0{(java / 'release').read_text()}\0{pyspark.__file__}\0{pyspark.__version__}"
    archive = ROOT / "build" / "tests" / f"spark-{hashlib.sha256(of.encode()).hexdigest()[:16]}.jsa"
    archive.parent.mkdir(parents=True, exist_ok=True)
    with archive.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            _make(archive)
    return archive if archive.stat().st_size else None


def _make(archive: Path) -> None:
    made = archive.with_suffix(".new")
    environ = without_spark() | {
        "SPARK_SUBMIT_OPTS": " ".join([*QUICK, f"-XX:ArchiveClassesAtExit={made}"]),
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)]),
    }
    with TemporaryDirectory() as out:
        line = [sys.executable, "-c", _USE, str(ROOT / "fixtures" / "corpus" / "tv2" / "remote"), f"{out}/parquet"]
        try:
            subprocess.run(line, env=environ, capture_output=True, timeout=300)  # ends badly, for its JVM went first
        except subprocess.TimeoutExpired:
            made.unlink(missing_ok=True)
    made.touch()
    made.rename(archive)
