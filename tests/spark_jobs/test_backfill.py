from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from corpus import CORPUS, case
from pyspark.sql import SparkSession

from segreader.errors import CorruptBatchError, StorageError
from spark_jobs.backfill import main, told_by_a_task

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

REMOTE = str(CORPUS / "tv2" / "remote")


def run(target: Path, *arguments: str, location: str | Path = REMOTE) -> int:
    return main(["--location", str(location), "--target", str(target), *arguments])


def rows(target: Path) -> list[dict[str, Any]]:
    table = ds.dataset(target, partitioning="hive").to_table()
    return table.sort_by([("topic", "ascending"), ("partition", "ascending"), ("offset", "ascending")]).to_pylist()


@pytest.mark.usefixtures("spark")
def test_a_backfill_writes_what_the_java_consumer_was_given(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "out"
    assert run(target, "--topic", "nulls", "--topic", "txn-interleaved", "--topic", "multi") == 0

    written = [(row["topic"], row["partition"], row["offset"], row["key"]) for row in rows(target)]
    truth = {
        topic: [
            (topic, record.partition, record.offset, record.key) for record in case("tv2", topic).truth("committed")
        ]
        for topic in ("multi", "nulls", "txn-interleaved")
    }
    assert written == [row for topic in truth for row in truth[topic]]
    printed = capsys.readouterr()
    count = f"{len(written):,}"
    assert f"wrote    {count} records of 6 partitions" in printed.out
    assert f"output   {target}" in printed.out
    assert "Reading" not in printed.out
    assert "3 topics, 6 partitions" in printed.err


@pytest.mark.usefixtures("spark")
def test_files_lie_by_topic_and_partition_in_offset_order_with_exact_times(tmp_path: Path) -> None:
    target = tmp_path / "out"
    assert run(target, "--topic", "multi", "--codec", "snappy", "--split-bytes", "64k") == 0

    files = sorted(target.rglob("*.parquet"))
    assert {file.parent.relative_to(target).as_posix() for file in files} == {
        f"topic=multi/partition={number}" for number in range(4)
    }
    assert len(files) > 4
    for file in files:
        table = pq.ParquetFile(file)
        offsets = table.read(columns=["offset"]).column(0).to_pylist()
        assert offsets == sorted(offsets)
        assert str(table.schema_arrow.field("timestamp").type) == "timestamp[us, tz=UTC]"
        assert table.schema_arrow.names == ["key", "value", "offset", "timestamp", "timestampType", "headers"]
        assert table.metadata.row_group(0).column(0).compression == "SNAPPY"


@pytest.mark.usefixtures("spark")
def test_the_command_it_names_shows_the_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path / "it's out", "--topic", "nulls") == 0
    look = capsys.readouterr().out.splitlines()[-1].removeprefix("look")
    shown = subprocess.run(shlex.split(look), capture_output=True, text=True, check=True)

    assert shown.stdout.count("'topic': 'nulls'") == 3


@pytest.mark.usefixtures("spark")
def test_a_target_is_replaced_only_when_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "out"
    assert run(target, "--topic", "codec-lz4") == 0
    assert run(target, "--topic", "nulls") == 2
    assert "the target is not empty" in capsys.readouterr().err
    assert run(target, "--topic", "nulls", "--force") == 0
    assert {row["topic"] for row in rows(target)} == {"nulls"}


@pytest.mark.usefixtures("spark")
def test_what_it_did_not_write_is_never_deleted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")

    assert run(tmp_path, "--topic", "nulls", "--force") == 2
    assert "did not write; found thesis.tex" in capsys.readouterr().err
    assert (tmp_path / "thesis.tex").exists()


@pytest.mark.usefixtures("spark")
def test_a_topic_without_visible_records_is_reported_with_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path / "out", "--topic", "txn-abort") == 0
    printed = capsys.readouterr().out
    assert "wrote    0 records of 1 partition," in printed
    assert "none" in printed.splitlines()[2]


@pytest.mark.usefixtures("spark")
def test_damaged_data_ends_in_five_and_names_the_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (directory,) = case("tv2", "nulls").remote
    shutil.copytree(directory, tmp_path / directory.name)
    log = min((tmp_path / directory.name).glob("*.log"))
    log.write_bytes(log.read_bytes()[:-1] + b"\x7f")

    assert run(tmp_path / "out", "--topic", "nulls", location=tmp_path) == 5
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith(f"segreader-backfill: {log}: ")
    assert "base offset" in error


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "either --topic NAME or --pattern REGEX"),
        (["--topic", "a", "--pattern", "b"], 2, "either --topic NAME or --pattern REGEX"),
        (["--topic", "nulls", "--split-bytes", "0"], 2, "--split-bytes is not a size"),
        (["--topic", "nulls", "--start", "latest"], 2, "--start cannot be latest"),
        (["--topic", "nulls", "--isolation", "none"], 2, "Invalid value for '--isolation'"),
        (["--topic", "recreated"], 2, "one name, 2 topic ids"),
        (["--topic", "nope"], 3, "topic 'nope' is not here"),
        (["--pattern", "nope"], 3, "no topic matches 'nope'"),
    ],
)
def test_what_cannot_be_read_is_told_before_spark_starts(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    code: int,
    message: str,
) -> None:
    monkeypatch.setattr("spark_jobs.backfill.job_session", None)

    assert run(tmp_path / "out", *arguments) == code
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_location_that_is_not_there_ends_in_three(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path / "out", "--topic", "a", location=tmp_path / "gone") == 3
    assert "gone" in capsys.readouterr().err


def test_a_dry_run_says_what_would_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_jobs.backfill.job_session", None)

    assert run(tmp_path / "out", "--topic", "multi", "--dry-run") == 0
    assert "1 topic, 4 partitions" in capsys.readouterr().out
    assert not (tmp_path / "out").exists()


def test_the_last_error_of_ours_in_a_traceback_is_the_cause() -> None:
    text = (
        "PythonException:\n  File ...\nsegreader.errors.StorageError: /a: reset\nduring that:\n"
        "segreader.errors.CorruptBatchError: /b: CRC (byte 5)\n\tat org.apache.spark"
    )
    told = told_by_a_task(Exception(text))

    assert type(told) is CorruptBatchError
    assert str(told) == "/b: CRC (byte 5)"
    assert told_by_a_task(Exception("java.lang.OutOfMemoryError")) is None
    assert told_by_a_task(Exception("segreader.errors.annotations: x")) is None
    assert isinstance(told_by_a_task(Exception("segreader.errors.ShortReadError: x")), StorageError)


def test_as_a_program_of_its_own_it_prints_its_summary_and_nothing_of_spark(tmp_path: Path) -> None:
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK"))}
    environ["PYTHONPATH"] = os.pathsep.join(sys.path)
    ran = subprocess.run(
        [sys.executable, "-m", "spark_jobs.backfill", "--location", REMOTE, "--topic", "nulls", "--target", "out"],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
    )

    assert ran.returncode == 0, ran.stderr
    assert "wrote    56 records of 1 partition" in ran.stdout
    assert [line.split(" ")[0] for line in ran.stderr.splitlines()] == ["Reading", "Starting", "Writing"]


def test_the_session_of_the_tests_is_not_the_jobs_to_stop(spark: SparkSession) -> None:
    assert SparkSession.getActiveSession() is spark
