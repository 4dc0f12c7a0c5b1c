"""What a backfill does where offsets are gone: it stops, or goes on, counts them, names them and ends in 1."""

from __future__ import annotations

import json
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from backfill_runs import rows_of
from growing_log import GrowingLog

from segreader.backfill.output import MANIFEST, PLAN, SUCCESS
from spark_jobs import verify
from spark_jobs.backfill import main

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark-jobs")]


@pytest.fixture
def log(tmp_path: Path) -> GrowingLog:
    """Five segments of 100 records each."""
    root = tmp_path / "tier"
    root.mkdir()
    log = GrowingLog(root)
    for _ in range(5):
        log.upload("orders", 0, 100)
    return log


def run(log: GrowingLog, target: Path, *arguments: str) -> int:
    return main(["--location", str(log.root), "--topic", "orders", "--target", str(target), *arguments])


def lose(log: GrowingLog, base_offset: int) -> None:
    """Delete one segment with all its files."""
    for path in log.root.glob(f"*/{base_offset:020d}-*"):
        path.unlink()


def written(target: Path) -> list[int]:
    return [row["offset"] for row in rows_of(target)]


def is_exact(target: Path) -> bool:
    return verify.main(["--target", str(target), "--local"]) == 0


@pytest.mark.usefixtures("spark")
def test_a_damaged_batch_stops_the_job_or_is_named_at_its_end(
    log: GrowingLog, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target, report = tmp_path / "out", tmp_path / "report.json"
    (damaged,) = log.root.glob("*/00000000000000000200-*.log")
    data = bytearray(damaged.read_bytes())
    data[70] ^= 1
    damaged.write_bytes(data)
    assert run(log, target) == 5
    stopped = capsys.readouterr().err
    assert "a batch fails its CRC-32C" in stopped
    assert "--on-corrupt skip" in stopped
    assert not (target / SUCCESS).exists()

    assert run(log, target, "--on-corrupt", "skip", "--report", str(report)) == 1
    told = capsys.readouterr()
    assert "lost     10 offsets" in told.out
    (loss,) = [line for line in told.err.splitlines() if "are lost" in line]
    assert loss.startswith("orders-0: offsets 200 to 209 are lost: ")
    assert f"{damaged.name}, bytes 0 to " in loss
    assert "fails its CRC-32C" in loss
    assert written(target) == [*range(200), *range(210, 500)]
    (part,) = json.loads((target / MANIFEST).read_text())["partitions"]
    assert (part["records"], part["holes"]) == (490, 0)
    assert [(one["start"], one["stop"]) for one in part["lost"]] == [(200, 210)]
    document = json.loads(report.read_text())
    assert document["is_complete"]
    assert document["losses"] == [loss]

    assert verify.main(["--target", str(target), "--local", "--source"]) == 0
    told = capsys.readouterr()
    assert f"lost     {loss}" in told.out
    assert "exact    490 records" in told.out
    assert run(log, target) == 1, "what is done stays done"


@contextmanager
def killed(name: str, **_: Any) -> Any:
    """In place of a session: the driver dies when its plan is written and Spark is about to start."""
    raise KeyboardInterrupt
    yield


@pytest.mark.usefixtures("spark")
def test_a_hole_stops_the_job_before_it_begins_or_is_told_at_its_end(
    log: GrowingLog, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target, report = tmp_path / "out", tmp_path / "report.json"
    lose(log, 200)
    assert run(log, target) == 5
    told = capsys.readouterr().err
    assert "no segment with 200 to 299" in told
    assert "--on-gap skip" in told
    assert not (target / PLAN).exists()

    assert run(log, target, "--on-gap", "skip", "--report", str(report)) == 1
    out, err = capsys.readouterr()
    assert "lost     100 offsets" in out
    assert "orders-0: offsets 200 to 299 are lost: no segment has them" in err.splitlines()
    assert written(target) == [*range(200), *range(300, 500)]
    assert (target / SUCCESS).exists()
    (part,) = json.loads((target / MANIFEST).read_text())["partitions"]
    assert (part["records"], part["holes"]) == (400, 0)
    assert part["lost"] == [{"start": 200, "stop": 300, "why": "no segment has them"}]
    document = json.loads(report.read_text())
    assert document["is_complete"]
    assert document["losses"] == ["orders-0: offsets 200 to 299 are lost: no segment has them"]
    assert document["next_offsets"] == {"orders": {"0": 500}}
    assert is_exact(target)

    assert run(log, target) == 1  # there is nothing left to do, and it is no more complete for that


@pytest.mark.usefixtures("spark")
def test_what_vanishes_after_the_plan_fails_the_job_which_a_second_run_may_finish_without_it(
    log: GrowingLog, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr("spark_jobs.session.job_session", killed)
        assert run(log, target) == 130
    assert (target / PLAN).exists()
    lose(log, 300)
    assert run(log, target) == 3
    assert "0300-" in capsys.readouterr().err
    assert not (target / SUCCESS).exists()

    assert run(log, target, "--on-gap", "skip") == 3
    assert "0300-" in capsys.readouterr().err

    assert run(log, target, "--on-missing", "skip") == 1
    told = capsys.readouterr()
    (line,) = [line for line in told.err.splitlines() if "are lost" in line]
    assert line.startswith("orders-0: offsets 300 to 399 are lost: ")
    assert "0300-" in line
    assert written(target) == [*range(300), *range(400, 500)]
    assert is_exact(target)


@pytest.mark.parametrize(
    ("bounds", "lost"),
    [
        (("--offsets", '{"orders":{"0":"40:"}}'), "offsets 40 to 99"),
        (("--offsets", '{"orders":{"0":":640"}}'), "offsets 500 to 639"),
        (("--offsets", '{"orders":{"0":250}}'), "offsets 250 to 299"),
        (("--offsets", '{"orders":{"0":":250"}}'), "offsets 200 to 249"),
    ],
)
def test_only_what_was_asked_for_is_lost(
    log: GrowingLog, tmp_path: Path, capsys: pytest.CaptureFixture[str], bounds: tuple[str, str], lost: str
) -> None:
    lose(log, 200 if "250" in bounds[1] else 0)
    assert run(log, tmp_path / "out", *bounds, "--on-gap", "skip", "--dry-run") == 1
    told = [line for line in capsys.readouterr().err.splitlines() if "are lost" in line]
    assert told == [f"orders-0: {lost} are lost: no segment has them"]
    assert not (tmp_path / "out").exists()
