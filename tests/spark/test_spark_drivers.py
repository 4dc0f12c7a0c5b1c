"""Programs that start Spark as jobs do not: from a virtual environment, or as a client of Spark Connect."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from corpus import CORPUS
from quick_jvm import QUICK
from spark_jvm import without_spark

from segreader.errors import OptionError
from segreader.spark.worker import choose_python
from spark_jobs.java import find_java_home

REMOTE = str(CORPUS / "tv2" / "remote")
BASE = Path(sys.base_prefix) / "bin" / "python3"

LOCAL = """
from pyspark.sql import SparkSession
from segreader.spark import read, register
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
register(spark)
frame = spark.read.format("segreader").option("location", LOCATION).option("subscribe", "nulls").load()
print("ROWS", frame.count(), read(spark, LOCATION, subscribe="nulls").count())
"""
CONNECT = """
from pyspark.sql import SparkSession
from segreader.spark import read, register
spark = SparkSession.builder.remote("local[2]").getOrCreate()
register(spark)
frame = read(spark, LOCATION, subscribe="multi", columns=["partition", "offset"])
theirs = spark.read.format("segreader").options(location=LOCATION, subscribe="multi").load()
whole = read(spark, LOCATION, subscribe="multi")
print("ROWS", frame.count(), frame.toArrow().num_rows, theirs.count(), whole.schema == theirs.schema)
spark.stop()
"""


def run(tmp_path: Path, program: str, **environ: str) -> str:
    script = tmp_path / "program.py"
    script.write_text(f"LOCATION = {REMOTE!r}\n{program}")
    variables = {name: text for name, text in without_spark().items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    variables |= {"JAVA_HOME": str(find_java_home(os.environ)), "SPARK_LOCAL_IP": "127.0.0.1"}
    variables |= {"SPARK_SUBMIT_OPTS": " ".join(QUICK), **environ}
    line = [sys.executable, str(script)]
    done = subprocess.run(line, env=variables, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert "ROWS" in done.stdout, done.stderr[-3000:]
    return done.stdout.split("ROWS ", 1)[1].strip()


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
@pytest.mark.skipif(sys.prefix == sys.base_prefix or not BASE.exists(), reason="not in a virtual environment")
def test_workers_run_the_python_of_a_virtual_environment_that_is_not_first_in_the_path(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").symlink_to(BASE)
    path = os.pathsep.join([str(tmp_path / "bin"), os.environ["PATH"]])

    ours, theirs = run(tmp_path, LOCAL, PATH=path).split()
    assert ours == theirs != "0"


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
@pytest.mark.skipif(not all(map(find_spec, ("grpc", "grpc_status", "zstandard"))), reason="Spark Connect needs them")
def test_a_client_of_spark_connect_reads_and_counts(tmp_path: Path) -> None:
    counted, read, theirs, same = run(tmp_path, CONNECT, PYSPARK_PYTHON=sys.executable).split()

    assert counted == read == theirs == "12000"
    assert same == "True"


def session(python: str, master: str = "local[2]", **conf: str) -> Any:
    context = SimpleNamespace(master=master, pythonExec=python, getConf=lambda: conf)
    return SimpleNamespace(_sc=context)


def test_a_python_that_somebody_chose_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    other = tmp_path / "python3"
    other.symlink_to(sys.executable)
    monkeypatch.setenv("PYSPARK_PYTHON", str(other))
    spark = session(str(other))
    other.unlink()
    other.write_text("#!/bin/sh\nexit 0\n")  # it has what it needs
    other.chmod(0o755)
    choose_python(spark)

    assert spark._sc.pythonExec == os.environ["PYSPARK_PYTHON"] == str(other)


def test_a_python_without_the_package_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    other = tmp_path / "python3"
    other.write_text("#!/bin/sh\nexit 1\n")
    other.chmod(0o755)
    monkeypatch.setenv("PYSPARK_PYTHON", str(other))

    with pytest.raises(
        OptionError, match=f"PYSPARK_PYTHON={other} has no segreader.*set PYSPARK_PYTHON={sys.executable}"
    ):
        choose_python(session(str(other)))


def test_a_session_on_this_machine_takes_its_setting_or_else_this_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    for conf, chosen in (({}, sys.executable), ({"spark.pyspark.python": "/opt/python"}, "/opt/python")):
        monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
        spark = session("python3", **conf)
        choose_python(spark)

        assert spark._sc.pythonExec == os.environ["PYSPARK_PYTHON"] == chosen


def test_a_cluster_is_left_alone_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    spark = session("python3", master="spark://host:7077")
    choose_python(spark)

    assert spark._sc.pythonExec == "python3"
    assert "set PYSPARK_PYTHON before the session starts" in caplog.text
