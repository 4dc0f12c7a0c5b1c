from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from segreader.cli.exit_codes import ExitCode
from segreader.cli.main import main

LINE = '{"orders": {"0": 47737, "1": 47736}}'
METADATA = '{"batchWatermarkMs":0,"batchTimestampMs":1763744014000,"conf":{}}'


def checkpoint(root: Path, planned: dict[int, str], finished: list[int], *, version: str = "v1") -> Path:
    """A checkpoint with these lines of offsets, as Spark leaves one behind on a local disk."""
    for log in ("offsets", "commits"):
        (root / log).mkdir(parents=True)
    for batch, lines in planned.items():
        (root / "offsets" / str(batch)).write_text(f"{version}\n{METADATA}\n{lines}")
        (root / "offsets" / f".{batch}.crc").write_bytes(b"crc")
    for batch in finished:
        (root / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    (root / "offsets" / ".99.0c8a.tmp").write_text("half")
    (root / "metadata").write_text('{"id":"x"}')
    return root


def run(path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = main(["spark", "offsets", str(path)])
    out, err = capsys.readouterr()
    return code, out, err


def test_the_last_finished_batch_gives_the_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    planned = {9: '{"orders":{"0":5}}', 10: LINE, 2: '{"orders":{"0":1}}'}
    code, out, err = run(checkpoint(tmp_path / "c", planned, [2, 9, 10]), capsys)

    assert (code, out, err) == (ExitCode.OK, '{"orders":{"0":47737,"1":47736}}\n', "")


def test_a_batch_that_was_only_begun_does_not_count_and_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = checkpoint(tmp_path / "c", {3: LINE, 4: '{"orders":{"0":50000,"1":50000}}'}, [2, 3])
    code, out, err = run(root, capsys)

    assert (code, out) == (ExitCode.OK, '{"orders":{"0":47737,"1":47736}}\n')
    assert err.startswith("note: batch 4 was begun and not finished; the offsets are those of batch 3.")


def test_a_query_without_a_finished_batch_has_no_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(checkpoint(tmp_path / "c", {0: LINE}, []), capsys)

    assert (code, out) == (ExitCode.NOT_FOUND, "")
    assert "no batch of this query was finished" in err


def test_what_is_no_checkpoint_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(tmp_path, capsys)

    assert (code, out) == (ExitCode.NOT_FOUND, "")
    assert "no checkpoint of a streaming query is here" in err


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (f"{LINE}\n{LINE}", "several sources"),
        (f"-\n{LINE}", "several sources"),
        ('{"logOffset":3}', "not one of Kafka partitions"),
        ("17", "not one of Kafka partitions"),
        ("{", "not one of Kafka partitions"),
    ],
)
def test_a_query_that_cannot_be_handed_over_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], lines: str, message: str
) -> None:
    code, out, err = run(checkpoint(tmp_path / "c", {0: lines}, [0]), capsys)

    assert (code, out) == (ExitCode.USAGE, "")
    assert message in err


def test_another_form_of_the_log_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(checkpoint(tmp_path / "c", {0: LINE}, [0], version="v9"), capsys)

    assert (code, out) == (ExitCode.USAGE, "")
    assert "found v9, expected v1" in err


def test_it_needs_no_spark(tmp_path: Path) -> None:
    root = checkpoint(tmp_path / "c", {0: LINE}, [0])
    program = (
        "import sys; from segreader.cli.main import main; "
        f"code = main(['spark', 'offsets', {str(root)!r}]); sys.exit(code or 'pyspark' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout, done.stderr) == (0, '{"orders":{"0":47737,"1":47736}}\n', "")
