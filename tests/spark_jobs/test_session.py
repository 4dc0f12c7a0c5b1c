"""Where a program's tasks run, by what it is told, and how it ends where Spark does."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from held_bodies import until
from pyspark.errors import PySparkException, PySparkImportError
from servers.process import free_port

from segreader.cli.exit_codes import describe
from segreader.errors import OptionError, StorageError
from spark_jobs.session import SETTINGS, SparkFailedError, describe_job, explained, job_session, told_by_a_task


class Conf:
    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def set(self, key: str, value: str) -> None:
        if key == "spark.python.unix.domain.socket.enabled":
            raise PySparkException("Cannot modify the value of a static config")
        self.values[key] = value


class Remote:
    """A session of Spark Connect, and what it was asked for."""

    def __init__(self) -> None:
        self.conf = Conf()
        self.asked: list[tuple[str, Any]] = []
        self.is_stopped = False
        self.failure: Exception | None = None

    def getActiveSession(self) -> None:
        return None

    @property
    def builder(self) -> Remote:
        return self

    def remote(self, url: str) -> Remote:
        self.asked.append(("remote", url))
        return self

    def appName(self, name: str) -> Remote:
        self.asked.append(("name", name))
        return self

    def getOrCreate(self) -> Remote:
        if self.failure is not None:
            raise self.failure
        return self

    def stop(self) -> None:
        self.is_stopped = True

    @property
    def sparkContext(self) -> Any:
        raise PySparkException("Attribute `sparkContext` is not supported in Spark Connect")


@pytest.fixture
def remote(monkeypatch: pytest.MonkeyPatch) -> Remote:
    remote = Remote()
    monkeypatch.setattr("spark_jobs.session.SparkSession", remote)
    for name in ("SPARK_REMOTE", "grpc_proxy", "http_proxy", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    return remote


@pytest.fixture
def server() -> Iterator[str]:
    """The URL of something that listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"sc://127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.parametrize("by_variable", [True, False])
def test_a_url_of_spark_connect_makes_a_client(
    remote: Remote, server: str, by_variable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if by_variable:
        monkeypatch.setenv("SPARK_REMOTE", server)
    with job_session("job", master=None if by_variable else server, settings={"a": "b"}) as session:
        assert session.spark is remote  # type: ignore[comparison-overlap]
        assert session.log is None
        describe_job(session.spark, "what runs next")
        assert not remote.is_stopped
    assert remote.is_stopped
    assert remote.asked == [("remote", server), ("name", "job")]
    # What only the start of a JVM could set is left as the server has it.
    assert set(remote.conf.values) == {*SETTINGS, "a"} - {"spark.python.unix.domain.socket.enabled"}


@pytest.mark.parametrize(
    ("master", "variable", "message"),
    [
        ("local[2]", "sc://host:15002/;token=canary-4711", "name two places to run; found --master local"),
        (None, "local[2]", "is no URL of a server; found local"),
        (None, "host;token=canary-4711", "is no URL of a server; found host, expected sc://host:port"),
    ],
)
def test_what_contradicts_itself_is_refused_without_its_token(
    remote: Remote, master: str | None, variable: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_REMOTE", variable)
    with pytest.raises(OptionError, match=message) as caught, job_session("job", master=master):
        pass
    assert "canary" not in str(caught.value)
    assert remote.asked == []


def test_a_server_that_is_not_there_is_told_at_once(
    remote: Remote, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = f"sc://127.0.0.1:{free_port()}/;token=canary-4711"
    message = r"127\.0\.0\.1:\d+: no server of Spark Connect answers"
    with pytest.raises(OptionError, match=message) as caught, job_session("job", master=closed):
        pass
    assert "canary" not in str(caught.value)
    monkeypatch.setenv("grpc_proxy", "http://proxy:3128")  # who knows what answers behind it
    with job_session("job", master=closed) as session:
        assert session.spark is remote  # type: ignore[comparison-overlap]


def test_a_client_that_is_not_installed_is_said_so(remote: Remote, server: str) -> None:
    remote.failure = PySparkImportError("grpcio must be installed")
    message = r"grpcio must be installed.*pip install 'pyspark\[connect\]'"
    with pytest.raises(OptionError, match=message), job_session("job", master=server):
        pass


JOB = """
import os, sys, time, click
from spark_jobs.command_line import run
from spark_jobs.session import explained, job_session, map_indexes

def wait(batches):
    for batch in batches:
        open(os.path.join(os.environ["TMPDIR"], "task-begun"), "w").close()
        time.sleep(120)
        yield batch

@click.command()
@click.argument("master")
@click.argument("code")
def job(master, code):
    with job_session("ends", master=master) as session, explained(session):
        print("begun", flush=True)
        if code:
            exec(code, {"spark": session.spark})
        else:
            map_indexes(session.spark, wait, 1, "id long", "waits").collect()

sys.exit(run(job, "job", None, can_resume=True))
"""
"""A Spark job of which a task waits; or one that runs some code in place of it."""

FULL_HEAP = "x = [spark._jvm.org.apache.spark.util.collection.BitSet(2000000000) for _ in range(9)]"
AGAIN = "Run it again with the same arguments to finish"


def begun(tmp_path: Path, code: str = "", master: str = "local[1]", **environ: str) -> subprocess.Popen[str]:
    """The job, whose session is there; its stderr is a pipe and its log is in ``tmp_path``."""
    job = subprocess.Popen(
        [sys.executable, "-c", JOB, master, code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path), **environ},
        start_new_session=True,
    )
    assert job.stdout is not None
    assert job.stdout.readline() in ("begun\n", "")
    return job


def ended(job: subprocess.Popen[str]) -> tuple[int, list[str]]:
    """Its exit code, and the lines of its stderr."""
    try:
        _, told = job.communicate(timeout=120)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)
    return job.returncode, told.splitlines()


def jvm_of(job: subprocess.Popen[str]) -> int:
    """The process of the job's JVM."""
    listed = Path(f"/proc/{job.pid}/task/{job.pid}/children")
    children = [int(one) for one in listed.read_text().split()]
    return next(one for one in children if "java" in Path(f"/proc/{one}/comm").read_text())


@pytest.mark.spark
@pytest.mark.xdist_group("spark-jobs")
def test_a_jvm_that_is_killed_while_a_task_runs_is_one_line(tmp_path: Path) -> None:
    job = begun(tmp_path)
    assert until((tmp_path / "task-begun").exists, 120)
    os.kill(jvm_of(job), signal.SIGKILL)
    code, told = ended(job)
    (log,) = tmp_path.glob("segreader-spark-*.log")
    assert code == 70
    assert told == [
        "job: Spark's JVM was killed (signal 9: by somebody, or by the system when memory ran out); "
        f"what it printed is in {log}. {AGAIN}"
    ]


@pytest.mark.spark
@pytest.mark.exhaustive
@pytest.mark.xdist_group("spark-jobs")
@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        ("--driver-memory 500m", FULL_HEAP, "Spark's JVM ran out of memory (Java heap space): give it more"),
        ("--driver-memory 100m", "", "Spark's JVM did not start: org.apache.spark.SparkIllegalArgumentException: "),
        ("--no-such-argument 1", "", "Spark's JVM did not start: "),
        ("--conf spark.driver.port={taken} --conf spark.port.maxRetries=0", "", "Spark's JVM did not start: "),
    ],
)
def test_a_jvm_that_does_not_start_or_has_no_memory_is_one_line_that_names_its_log(
    tmp_path: Path, arguments: str, code: str, told: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        arguments = arguments.format(taken=taken.getsockname()[1])
        status, lines = ended(begun(tmp_path, code, PYSPARK_SUBMIT_ARGS=f"{arguments} pyspark-shell"))
    (log,) = tmp_path.glob("segreader-spark-*.log")
    assert status == 70, lines
    assert len(lines) == 1, lines
    assert lines[0].startswith(f"job: {told}")
    assert lines[0].endswith(f"; what it printed is in {log}. {AGAIN}")


def test_a_server_of_spark_connect_that_has_gone_is_told(remote: Remote) -> None:
    with socket.create_server(("127.0.0.1", free_port())) as listener:
        place = f"127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(SparkFailedError) as caught, job_session("job", master=f"sc://{place}/;token=c") as session:
            there = pytest.raises(SparkFailedError, match=f"no more; the log of the server of Spark Connect at {place}")
            with there, explained(session):
                raise PySparkException("no more\nlines of it")
            listener.close()
            with explained(session):
                raise PySparkException("<_InactiveRpcError of RPC that terminated with: UNAVAILABLE>")
    assert str(caught.value).startswith(f"the server of Spark Connect at {place} is gone (")
    assert "token" not in str(caught.value)
    assert remote.is_stopped


def test_an_error_of_a_task_keeps_its_next_step_and_gets_no_second_one() -> None:
    error = StorageError(
        "the disk is full", source="/out/a", found="0 KiB free", hint="Make room there, then run again"
    )
    told = told_by_a_task(PySparkException(f"in a task:\nsegreader.errors.StorageError: {error}\n\tat org.apache"))
    assert told is not None
    assert str(told) == str(error) == describe(told)
    bare = told_by_a_task(PySparkException("segreader.errors.StorageError: /out/a: reset"))
    assert bare is not None
    assert describe(bare).startswith("/out/a: reset. ")
