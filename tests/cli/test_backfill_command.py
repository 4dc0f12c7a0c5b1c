"""``segreader backfill``: the jobs by the one command, and nothing of Spark before one of them runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from growing_log import GrowingLog

from segreader.cli.exit_codes import ExitCode
from segreader.cli.main import main
from spark_jobs import backfill, verify

WITHOUT_SPARK = """
import sys
from segreader.cli.main import main
assert main(["--help"]) == 0
assert not {"pyspark", "spark_jobs"} & set(sys.modules)
sys.modules["pyspark"] = None
asked = ["backfill", "--location", sys.argv[1], "--topic", "orders", "--target", sys.argv[2]]
assert main(asked) == 0
assert main(["backfill", "verify", "--target", sys.argv[2], "--source"]) == 0
sys.exit(main([*asked[:-1], sys.argv[3], "--engine", "spark"]))
"""


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_jobs.session.job_session", None)


def test_help_is_that_of_the_jobs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["backfill", "--help"]) == ExitCode.OK
    told = capsys.readouterr().out
    assert "Usage: segreader backfill [OPTIONS]" in told
    assert "--output-layout" in told
    assert main(["backfill", "verify", "--help"]) == ExitCode.OK
    told = capsys.readouterr().out
    assert "Usage: segreader backfill verify [OPTIONS]" in told
    assert "--source" in told


def test_it_does_what_the_programs_with_dashes_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root, target = tmp_path / "tier", str(tmp_path / "out")
    root.mkdir()
    GrowingLog(root).upload("orders", 0, 3)
    asked = ["--location", str(root), "--topic", "orders", "--target", target, "--offsets", '{"orders":{"0":"3:3"}}']
    assert main(["backfill", *asked]) == ExitCode.OK
    assert backfill.main(asked) == ExitCode.OK
    capsys.readouterr()
    documents = []
    for run, arguments in ((main, ["backfill", "verify"]), (verify.main, [])):
        assert run([*arguments, "--target", target, "--local", "-o", "json"]) == ExitCode.OK
        documents.append(json.loads(capsys.readouterr().out))
    assert documents[0] == documents[1]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--topic", "orders"], "say where to read"),
        (["--location", "/gone", "--topic", "orders", "--target", "out"], "segreader backfill: /gone"),
        (["verify", "--target", "/gone", "--local"], "segreader backfill verify: "),
        (["verify", "--nonsense"], "Usage: segreader backfill verify"),
    ],
)
def test_what_goes_wrong_is_told_by_the_name_that_was_called(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["backfill", *arguments]) in (ExitCode.USAGE, ExitCode.NOT_FOUND)
    assert told in capsys.readouterr().err


def test_a_backfill_needs_no_spark_and_the_engine_that_does_names_what_lacks(tmp_path: Path) -> None:
    GrowingLog(tmp_path / "tier").upload("orders", 0, 3)
    places = [str(tmp_path / name) for name in ("tier", "local", "spark")]
    command = [sys.executable, "-c", WITHOUT_SPARK, *places]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == ExitCode.USAGE, done.stderr
    assert "this needs Spark, which is not installed" in done.stderr
    assert "pip install 'pyspark>=4.0,<5' 'pandas>=2.2,<3'" in done.stderr
