from __future__ import annotations

import errno
import io
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from growing_log import GrowingLog
from py4j.protocol import Py4JNetworkError

from spark_jobs import backfill, session, verify

pytestmark = pytest.mark.usefixtures("no_spark")
JOB_SESSION = session.job_session


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_jobs.session.job_session", None)


@pytest.fixture
def empty(tmp_path: Path) -> tuple[str, ...]:
    """A backfill that has nothing to write: it ends where it begins, and needs no Spark."""
    root = tmp_path / "tier"
    root.mkdir()
    GrowingLog(root).upload("orders", 0, 3)
    arguments = ("--location", str(root), "--topic", "orders", "--target", str(tmp_path / "out"))
    return (*arguments, "--offsets", '{"orders":{"0":"3:3"}}')


class Closed(io.StringIO):
    """A pipe that nobody reads any more."""

    def write(self, text: str, /) -> int:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")


@pytest.mark.parametrize("report", ["gone/report.json", "."])
def test_a_report_that_cannot_be_written_is_refused_before_work_begins(
    empty: tuple[str, ...],
    tmp_path: Path,
    report: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert backfill.main([*empty, "--report", report]) == 2
    assert f"--report {report}" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    assert verify.main(["--target", str(tmp_path / "out"), "--local", "--report", report]) == 2


def test_a_disk_that_is_full_when_the_report_is_written_is_an_error_and_not_a_finding(
    empty: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(self: Path, text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device", str(self))

    monkeypatch.setattr(Path, "write_text", full)
    assert backfill.main([*empty, "--report", str(tmp_path / "report.json")]) == 4
    assert "No space left on device" in capsys.readouterr().err


@pytest.mark.parametrize("job", [backfill.main, verify.main])
def test_nobody_who_reads_is_no_finding(
    empty: tuple[str, ...],
    tmp_path: Path,
    job: Callable[[list[str]], int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert backfill.main([*empty]) == 0
    monkeypatch.setattr("sys.stdout", Closed())
    is_verify = job is verify.main
    assert job(["--target", str(tmp_path / "out"), "--local"] if is_verify else [*empty]) == 141


@pytest.mark.parametrize("name", ["a copy", "part-0.parquet.bak", "_day=1/part-0", "_day=1/sub/part-0.parquet"])
def test_a_file_that_readers_of_the_directory_would_see_is_told_whatever_it_is_called(
    empty: tuple[str, ...], tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert backfill.main([*empty]) == 0
    foreign = tmp_path / "out" / "orders" / name
    foreign.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(__file__, foreign)
    for hidden in (".crc", "_notes", "_temporary/part-0.parquet"):
        path = tmp_path / "out" / "orders" / hidden
        path.parent.mkdir(exist_ok=True)
        path.touch()
    capsys.readouterr()

    assert verify.main(["--target", str(tmp_path / "out"), "--local", "-o", "json"]) == 1
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert (finding["kind"], finding["where"]) == ("unlisted", f"orders/{name}")


class Dead:
    """A session whose JVM was killed."""

    def stop(self) -> None:
        raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")

    def range(self, *_: int) -> None:
        raise Py4JNetworkError("Answer from Java side is empty")


@pytest.mark.parametrize("stage", ["run", "stop"])
def test_a_jvm_that_was_killed_is_a_failure_of_spark_and_its_log_is_named(
    empty: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    stage: str,
) -> None:
    monkeypatch.setattr("spark_jobs.session.job_session", JOB_SESSION)
    monkeypatch.setattr("spark_jobs.session._has_jvm", lambda: False)
    monkeypatch.setattr("spark_jobs.session._launch", lambda *_: Dead())
    monkeypatch.setattr("spark_jobs.session._log_file", lambda: tmp_path / "spark.log")
    monkeypatch.setattr("spark_jobs.session.SparkSession.getActiveSession", lambda: None)
    if stage == "stop":
        monkeypatch.setattr(Dead, "range", lambda dead, *_: dead.stop())
    assert backfill.main([*empty[:6], "--engine", "spark"]) == 70
    told = [line for line in capsys.readouterr().err.splitlines() if line.startswith("segreader-backfill: ")]
    assert told == [
        f"segreader-backfill: Spark's JVM has died, or was killed; what it printed is in {tmp_path / 'spark.log'}. "
        "Run it again with the same arguments to finish"
    ]


def test_a_command_that_needs_no_spark_imports_none_of_it() -> None:
    code = "import sys, spark_jobs.command_line, spark_jobs.report; print('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


@pytest.mark.parametrize(
    "flags",
    [
        "--report report.json",
        "--codec zstd",
        "--hive --output-layout topic/date",
        "--file-bytes 1m",
        "--no-cleanup",
        "--target-credentials env:OUT",
        "--target-option region=eu-central-1",
    ],
)
def test_a_flag_of_files_is_refused_where_spark_writes_a_table(
    empty: tuple[str, ...], tmp_path: Path, flags: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert backfill.main([*empty, "--sink", "table", "--table", "orders", *flags.split()]) == 2
    assert " to --sink files: Spark writes a table in its own way" in capsys.readouterr().err
    assert backfill.main([*empty, "--sink", "table", "--table", "orders", "--dry-run"]) == 0
