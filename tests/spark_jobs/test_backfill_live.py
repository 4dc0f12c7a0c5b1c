"""The job by its command line over history and live data, with Spark, and the proof of its output."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from backfill_runs import table_of
from pyspark.sql import SparkSession
from served_cluster import ServedCluster, served_cluster, tiered_log

from segreader.testing.builder import SegmentBuilder
from spark_jobs.backfill import main
from spark_jobs.verify import main as verify

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark-jobs")]

TOPIC = "orders"
PASSWORD = "c4naryP4ssword"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ServedCluster]:
    """40 offsets in the store and 20 on the broker."""
    segments = [SegmentBuilder().batch([b"v"] * 20)]
    for _ in range(2):
        segments.append(segments[-1].roll().batch([b"v"] * 20))
    log = tiered_log(tmp_path / "tier", TOPIC, segments, uploaded=2, local_from=2)
    with served_cluster({TOPIC: {0: log}}) as made:
        yield made


def arguments(cluster: ServedCluster, tmp_path: Path, **changes: str) -> list[str]:
    """What finds records, brokers and the password; ``changes`` are settings by their last word."""
    settings = {
        "protocol": "security.protocol=SASL_PLAINTEXT",
        "mechanism": "sasl.mechanism=PLAIN",
        "username": "sasl.username=reader",
        "password": "sasl.password=env:LIVE_JOB_SECRET",
    } | changes
    named = [part for text in settings.values() if text for part in ("--broker-option", text)]
    place = ["--location", str(tmp_path / "tier"), "--bootstrap-servers", cluster.bootstrap, "--topic", TOPIC]
    return [*place, *named, "--target", str(tmp_path / "out")]


def test_the_plan_is_told_without_spark_and_without_the_password(
    cluster: ServedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.require("reader", PASSWORD)
    monkeypatch.setenv("LIVE_JOB_SECRET", PASSWORD)
    monkeypatch.setattr("spark_jobs.session.job_session", None)
    assert main([*arguments(cluster, tmp_path), "--dry-run"]) == 0
    told = capsys.readouterr()
    assert "0 - 59" in told.out
    assert PASSWORD not in told.out + told.err


@pytest.mark.parametrize(
    ("offsets", "told"),
    [
        ("10:50", "10 - 49"),
        ("30:900", "30 - 59"),
        (":7", "0 - 6"),
        ("50:latest", "50 - 59"),
        ("earliest:latest-stable", "0 - 59"),
        ("60:", "none"),
    ],
)
def test_offsets_of_every_partition_go_from_the_store_to_the_broker(
    cluster: ServedCluster, tmp_path: Path, offsets: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    place = ["--location", str(tmp_path / "tier"), "--bootstrap-servers", cluster.bootstrap, "--topic", TOPIC]
    assert main([*place, "--target", str(tmp_path / "out"), "--offsets", offsets, "--dry-run"]) == 0
    assert told in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"password": "sasl.password=hunter2"}, "is a secret"),
        ({"protocol": "securty.protocol=SSL"}, "Did you mean kafka.security.protocol"),
        ({"password": "sasl.password=env:NOBODY_HAS_IT"}, "finds no variable in this process"),
        ({"password": ""}, "needs sasl.username and sasl.password"),
    ],
)
def test_wrong_settings_are_told_at_once(
    cluster: ServedCluster, tmp_path: Path, changes: dict[str, str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments(cluster, tmp_path, **changes)) == 2
    told = capsys.readouterr()
    assert text in told.err
    assert "hunter2" not in told.out + told.err


def test_brokers_or_a_location_must_be_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--topic", TOPIC, "--target", str(tmp_path / "out")]) == 2
    assert "--location DIRECTORY, or --bootstrap-servers" in capsys.readouterr().err
    assert main(["--location", "x", "--broker-option", "client.id=x", "--topic", "t", "--target", "y"]) == 2


def test_an_output_has_all_of_it_and_is_proved(
    cluster: ServedCluster, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "report.json"
    open_to_all = dict.fromkeys(("protocol", "mechanism", "username", "password"), "")
    assert main([*arguments(cluster, tmp_path, **open_to_all), "--report", str(report)]) == 0
    assert "from     the store: 40 records; brokers: 20 records" in capsys.readouterr().out
    assert json.loads(report.read_text())["sources"] == {"store": 40, "broker": 20}
    assert table_of(tmp_path / "out")["offset"].to_pylist() == list(range(60))

    assert verify(["--target", str(tmp_path / "out"), "--source", "--local"]) == 0
    assert "exact" in capsys.readouterr().out
