from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from backfill_runs import do, files_of, rows_of, table_of
from corpus import CORPUS, case
from growing_log import GrowingLog
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from spark_jvm import spark_variables, without_spark

from segreader.backfill.commit import collect
from segreader.backfill.job_plan import read_plan
from segreader.errors import CorruptBatchError, StorageError
from segreader.storage.target.store import open_target
from spark_jobs import verify
from spark_jobs.backfill import main
from spark_jobs.session import told_by_a_task

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark-jobs")]

REMOTE = str(CORPUS / "tv2" / "remote")


def run(target: Path, *arguments: str, location: str | Path = REMOTE) -> int:
    return main(["--location", str(location), "--target", str(target), *arguments])


def command(target: Path, *arguments: str, location: str | Path) -> list[str]:
    """The job as a program of its own."""
    return [
        *(sys.executable, "-m", "spark_jobs.backfill", "--location", str(location), "--target", str(target)),
        *arguments,
    ]


def environment() -> dict[str, str]:
    return without_spark() | spark_variables() | {"PYTHONPATH": os.pathsep.join(sys.path)}


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_jobs.session.job_session", None)


@pytest.fixture
def segments(tmp_path: Path) -> Path:
    """40 segments of 100 records each."""
    root = tmp_path / "tier"
    root.mkdir()
    log = GrowingLog(root)
    for _ in range(40):
        log.upload("orders", 0, 100)
    return root


@pytest.mark.usefixtures("spark")
def test_a_backfill_writes_what_the_java_consumer_was_given(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target, report = tmp_path / "out", tmp_path / "report.json"
    topics = ("multi", "nulls", "txn-interleaved")
    arguments = [argument for topic in topics for argument in ("--topic", topic)]
    assert run(target, *arguments, "--report", str(report)) == 0

    written = [(row["topic"], row["partition"], row["offset"], row["key"]) for row in rows_of(target)]
    truth = {
        topic: [
            (topic, record.partition, record.offset, record.key) for record in case("tv2", topic).truth("committed")
        ]
        for topic in topics
    }
    assert written == [row for topic in topics for row in truth[topic]]
    printed = capsys.readouterr()
    assert f"wrote    {len(written):,} records of 6 partitions" in printed.out
    assert f"output   {target}" in printed.out
    assert "Reading" not in printed.out
    assert "3 topics, 6 partitions" in printed.err
    told = json.loads(report.read_text())
    assert told["is_complete"]
    assert told["totals"]["records"] == len(written)
    assert told["next_offsets"]["nulls"] == {"0": 56}
    assert {one["topic"]: one["aborted_records"] for one in told["partitions"]}["txn-interleaved"] == 55

    assert run(target, *arguments) == 0  # there is nothing left to do
    again = capsys.readouterr()
    assert "Starting" not in again.err
    assert "splits are done already" in again.err
    assert len(rows_of(target)) == len(written)


@pytest.mark.usefixtures("spark")
def test_a_backfill_with_the_lineage_leaves_the_lost_branch_out(tmp_path: Path) -> None:
    some, target = case("cluster", "diverged-hanging"), tmp_path / "out"
    beside = ("--leader-epochs", str(some.root / "local"), "--log-directory", str(some.root / "local"))
    assert run(target, "--topic", some.topic, *beside, location=some.remote_root) == 0
    assert [row["offset"] for row in rows_of(target)] == [record.offset for record in some.truth("committed")]
    assert verify.main(["--target", str(target), "--source", "--local"]) == 0


def test_spark_reads_the_output_with_the_types_of_its_kafka_source(spark: SparkSession, tmp_path: Path) -> None:
    target = tmp_path / "out"
    assert run(target, "--topic", "nulls", "--codec", "snappy", "--output-layout", "topic/date") == 0
    (target / "_staging").mkdir(exist_ok=True)
    shutil.copy(files_of(target)[0], target / "_staging" / "part-of-a-killed-task.parquet")
    frame = spark.read.option("recursiveFileLookup", "true").parquet(str(target))

    assert [field.simpleString() for field in frame.schema] == [
        *("key:binary", "value:binary", "topic:string", "partition:int", "offset:bigint", "timestamp:timestamp"),
        *("timestampType:int", "headers:array<struct<key:string,value:binary>>"),
    ]
    assert frame.count() == 56
    assert pq.ParquetFile(files_of(target)[0]).metadata.row_group(0).column(0).compression == "SNAPPY"


@pytest.mark.usefixtures("spark")
def test_a_second_run_does_only_the_splits_that_are_not_done(
    tmp_path: Path, segments: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "out"
    arguments = ("--topic", "orders", "--split-bytes", "1")  # no two segments share a split
    monkeypatch.setattr("spark_jobs.session.job_session", None)
    with pytest.raises(TypeError):  # where Spark would start: only the plan is there then
        run(target, *arguments, location=segments)
    monkeypatch.undo()
    store = open_target(target)
    plan = read_plan(store)
    assert plan is not None
    do(plan, store, *plan.splits[:30])
    before = collect(store, plan)
    GrowingLog(segments).upload("later", 0, 10)
    capsys.readouterr()

    assert run(target, *arguments, location=segments) == 0
    printed = capsys.readouterr()
    assert "30 of 40 splits are done already" in printed.err
    assert "30 of them before this run" in printed.out
    after = collect(store, plan)
    assert {name: after[name] for name in before} == before
    assert table_of(target)["offset"].to_pylist() == list(range(4000))


@pytest.mark.exhaustive
def test_a_driver_killed_with_all_its_workers_is_finished_by_the_next_run(tmp_path: Path, segments: Path) -> None:
    target = tmp_path / "out"
    alone = ("--topic", "orders", "--split-bytes", "1")  # no two segments share a split
    line = command(target, *alone, "--master", "local[2,4]", location=segments)
    done = target / "_job" / "done"
    for _ in range(5):  # on a busy machine it may have done all of it before it is seen at work
        shutil.rmtree(target, ignore_errors=True)
        if 3 <= _killed_at_work(line, done) < 40:
            break
    assert not (target / "_SUCCESS").exists()
    assert not files_of(target)

    second = subprocess.run(line, env=environment(), capture_output=True, text=True)
    assert second.returncode == 0, second.stderr
    assert "splits are done already" in second.stderr
    assert table_of(target)["offset"].to_pylist() == list(range(4000))
    assert len(files_of(target)) == 40
    told = [line for line in second.stderr.splitlines() if "splits, " not in line]  # how far it is: on a busy machine
    assert [line.split(" ")[0] for line in told][-3:] == ["Starting", "Spark", "Writing"]


def _killed_at_work(line: list[str], done: Path) -> int:
    """Run a driver until some splits are done, and kill it with all its workers; how many are done then."""
    driver = subprocess.Popen(
        line, env=environment(), start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        until = time.monotonic() + 300
        while time.monotonic() < until and driver.poll() is None and _entries(done) < 3:
            time.sleep(0.005)
    finally:
        with suppress(ProcessLookupError):  # it has ended
            os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
    return _entries(done)


def _entries(done: Path) -> int:
    names = os.listdir(done) if done.is_dir() else []
    return sum(name.endswith(".json") and not name.startswith(".") for name in names)


@pytest.mark.exhaustive
@pytest.mark.usefixtures("spark")
def test_two_drivers_at_once_end_in_one_output(tmp_path: Path, segments: Path) -> None:
    target = tmp_path / "out"
    alone = ("--topic", "orders", "--split-bytes", "1")  # no two segments share a split
    line = command(target, *alone, "--master", "local[1,4]", location=segments)
    other = subprocess.Popen(line, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    plan = target / "_job" / "plan.json"
    while not plan.exists() and other.poll() is None:
        time.sleep(0.01)
    time.sleep(3)  # its JVM starts
    code = run(target, *alone, location=segments)
    _, told = other.communicate()

    assert (code, other.returncode) == (0, 0), told
    assert table_of(target)["offset"].to_pylist() == list(range(4000))
    assert len(files_of(target)) == 40


@pytest.mark.usefixtures("spark")
def test_the_command_it_names_shows_the_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path / "it's out", "--topic", "nulls") == 0
    look = capsys.readouterr().out.splitlines()[-1].removeprefix("look")
    shown = subprocess.run(shlex.split(look), capture_output=True, text=True, check=True)

    assert shown.stdout.count("'topic': 'nulls'") == 3


@pytest.mark.usefixtures("spark")
def test_a_target_of_another_job_is_replaced_only_when_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "out"
    assert run(target, "--topic", "codec-lz4") == 0
    assert run(target, "--topic", "nulls") == 2
    assert "belongs to another job; found --topic codec-lz4 there, nulls here" in capsys.readouterr().err
    assert run(target, "--topic", "nulls", "--force") == 0
    assert {row["topic"] for row in rows_of(target)} == {"nulls"}


@pytest.mark.usefixtures("spark")
def test_a_table_is_written_by_spark_and_not_written_over(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "table"
    arguments = ("--topic", "multi", "--topic", "txn-abort", "--sink", "table", "--table", "copied")
    try:
        assert run(target, *arguments, "--format", "parquet") == 0
        told = capsys.readouterr().out
        assert "12,000 records" in told
        assert '"txn-abort": {"0": 71}' in told
        assert spark.table("copied").select("partition", "offset").distinct().count() == 12_000
        assert run(target, *arguments, "--format", "parquet") == 2
        assert "the table is there already" in capsys.readouterr().err
    finally:
        spark.sql("DROP TABLE IF EXISTS copied")


@pytest.mark.usefixtures("no_spark")
def test_what_it_did_not_write_is_never_deleted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")

    assert run(tmp_path, "--topic", "nulls", "--force") == 2
    assert "did not write; found thesis.tex" in capsys.readouterr().err.replace("in the target ", "")
    assert (tmp_path / "thesis.tex").exists()


@pytest.mark.usefixtures("no_spark")
def test_a_file_that_is_missing_from_a_finished_output_ends_in_one(
    tmp_path: Path, segments: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "out"
    assert run(target, "--topic", "orders", "--engine", "local", location=segments) == 0
    files_of(target)[0].unlink()
    capsys.readouterr()

    assert run(target, "--topic", "orders", "--engine", "local", location=segments) == 1
    printed = capsys.readouterr()
    assert "is not there" in printed.err
    assert "missing  1 finding" in printed.out


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
        ([], 2, "either TOPIC, --topic NAME or --pattern REGEX"),
        (["--topic", "a", "--pattern", "b"], 2, "either TOPIC, --topic NAME or --pattern REGEX"),
        (["--topic", "nulls", "--split-bytes", "0"], 2, "--split-bytes is not a size"),
        (["--topic", "nulls", "--file-bytes", "x"], 2, "--file-bytes is not a size"),
        (["--topic", "nulls", "--offsets", '{"nulls":{"0":-1}}'], 2, "--offsets cannot be latest"),
        (["--topic", "nulls", "--offsets", "9:7"], 2, "--offsets is neither A:B nor JSON of ranges"),
        (["--topic", "nulls", "--since", "2026-11-01"], 2, "--since: a time without a time zone"),
        (["--topic", "nulls", "--until", "soon"], 2, "--until: not a time"),
        (["--topic", "nulls", "--layout", "aivn"], 2, "Did you mean 'aiven'"),
        (["--topic", "nulls", "--isolation", "none"], 2, "Invalid value for '--isolation'"),
        (["--topic", "nulls", "--format", "delta"], 2, "--format belongs to --sink table"),
        (["--topic", "nulls", "--target-option", "secret=x"], 2, "looks like a secret"),
        (["--topic", "recreated"], 2, "one name, 2 topic ids"),
        (["--topic", "nope"], 3, "topic 'nope' is not here"),
        (["--pattern", "nope"], 3, "no topic matches 'nope'"),
    ],
)
@pytest.mark.usefixtures("no_spark")
def test_what_cannot_be_read_is_told_before_spark_starts(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    code: int,
    message: str,
) -> None:
    assert run(tmp_path / "out", *arguments) == code
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_location_that_is_not_there_ends_in_three(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path / "out", "--topic", "a", location=tmp_path / "gone") == 3
    assert "gone" in capsys.readouterr().err


@pytest.mark.usefixtures("no_spark")
def test_a_dry_run_prints_plan_and_bill_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prices = tmp_path / "prices.toml"
    prices.write_text('get_per_1000 = 1000\ncurrency = "EUR"\n')

    assert run(tmp_path / "out", "--topic", "multi", "--dry-run", "--prices", str(prices)) == 0
    printed = capsys.readouterr().out
    assert "1 topic, 4 partitions" in printed
    requests = int(printed.rpartition(" GET requests")[0].rsplit("\n", 1)[1])
    assert f"{requests} EUR (requests {requests}, bytes 0)" in printed
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("no_spark")
def test_times_choose_offsets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = GrowingLog(tmp_path)
    for _ in range(3):
        log.upload("orders", 0, 100)
    times = ("--since", "1700000000057", "--until", "2023-11-14T22:13:20.203Z")

    assert run(tmp_path / "out", "--topic", "orders", *times, "--dry-run", location=tmp_path) == 0
    assert "orders          0  57 - 202       1" in capsys.readouterr().out


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


def test_a_failure_of_spark_is_no_finding_and_says_how_to_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise PySparkException("executors are gone\n\tat org.apache.spark")

    monkeypatch.setattr("spark_jobs.session.job_session", broken)
    assert run(tmp_path / "out", "--topic", "nulls", "--engine", "spark") == 70
    error = capsys.readouterr().err.splitlines()[-1]
    assert error == "segreader-backfill: executors are gone. Run it again with the same arguments to finish"


def test_the_session_of_the_tests_is_not_the_jobs_to_stop(spark: SparkSession) -> None:
    assert SparkSession.getActiveSession() is spark
