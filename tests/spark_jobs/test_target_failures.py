"""What a whole backfill says of a target that is missing, full, or not for writing: at its start, and in the middle."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from growing_log import GrowingLog
from sample import exhaustive
from servers.pool import ServerPool

from segreader.backfill.output import PLAN
from segreader.storage.target.bucket import BucketTarget
from spark_jobs import backfill

RUN = "import sys; from spark_jobs.backfill import main; sys.exit(main(sys.argv[1:]))"
LOCAL = ("--engine", "local", "--processes", "1")
SPARK = ("--engine", "spark", "--master", "local[1,1]")


@pytest.fixture
def tier(tmp_path: Path) -> Path:
    """60 segments of 1,000 records."""
    log = GrowingLog(tmp_path / "tier")
    for _ in range(60):
        log.upload("orders", 0, 1000)
    return log.root


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 300 KiB: the plan fits, and a part of the output."""
    place = tmp_path / "disk"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", place], check=False).returncode:
        pytest.skip("this user may not mount a file system")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def told_by(tier: Path, target: str | Path, *flags: str) -> tuple[int, list[str]]:
    """The exit code of a backfill in a process of its own, and the lines that say what went wrong."""
    arguments = ["--location", str(tier), "--topic", "orders", "--target", str(target), "--split-bytes", "16k", *flags]
    done = subprocess.run(
        [sys.executable, "-c", RUN, *arguments], capture_output=True, text=True, check=False, timeout=300
    )
    return done.returncode, _errors(done.stderr)


def _errors(told: str) -> list[str]:
    assert "Traceback" not in told
    return [line for line in told.splitlines() if line.startswith("segreader-backfill: ")]


@pytest.mark.parametrize(
    "engine",
    [
        pytest.param(LOCAL, id="local"),
        pytest.param(SPARK, id="spark", marks=[pytest.mark.spark, pytest.mark.exhaustive]),
    ],
)
@pytest.mark.xdist_group("spark-jobs")
def test_a_disk_that_fills_up_while_tasks_write_is_one_line_and_the_next_run_finishes(
    tier: Path, disk: Path, engine: tuple[str, ...]
) -> None:
    code, told = told_by(tier, disk / "out", *engine)
    assert code == 4
    (line,) = told
    assert re.fullmatch(
        rf"segreader-backfill: {disk}/out/\S+: the disk is full \(No space left on device\); found \d+ KiB free of "
        "300 KiB. Make room there, or give a target on another disk, then run it again: what is finished stays",
        line,
    ), line
    done = sorted((disk / "out/_job/done").iterdir())
    assert done
    subprocess.run(["mount", "-o", "remount,size=9m", disk], check=True)
    times = [path.stat().st_mtime_ns for path in done]
    assert told_by(tier, disk / "out", *LOCAL) == (0, [])
    assert [path.stat().st_mtime_ns for path in done] == times


def test_a_disk_on_which_not_even_the_plan_fits_is_told_so(tier: Path, disk: Path) -> None:
    (disk / "other").write_bytes(bytes(296 << 10))
    code, (line,) = told_by(tier, disk / "out", *LOCAL)
    assert code == 4
    assert f"{disk}/out/{PLAN}: the disk is full" in line


def test_a_target_that_is_mounted_for_reading_alone_is_told_before_the_work(tier: Path, disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    code, (line,) = told_by(tier, disk / "out", *LOCAL)
    assert code == 3
    assert f"the file system is read-only: {disk}. Mount it for writing, or give another target" in line


@pytest.mark.parametrize("name", ["file", "file/below"])
def test_a_target_that_is_a_file_or_below_one_is_told(tier: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    code, (line,) = told_by(tier, tmp_path / name, *LOCAL)
    assert code == 2
    assert f"{tmp_path / name}: a target is a directory; found a file" in line
    assert line.endswith(". Give another directory")


@pytest.mark.xdist_group("servers")
@pytest.mark.parametrize(("kind", "is_in_the_middle"), [("moto", False), ("moto", True), exhaustive("azurite", False)])
def test_a_bucket_that_is_not_there_is_told_with_its_name(
    tier: Path,
    servers: ServerPool,
    kind: str,
    is_in_the_middle: bool,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    server = servers.get(kind)
    for name, value in server.storage_options.items():
        monkeypatch.setenv(f"LAKE_{name.upper()}", str(value))
    bucket = f"vanishing-{os.getpid()}"
    if is_in_the_middle:
        server.client().create_bucket(Bucket=bucket)
        put = BucketTarget.put_if_absent

        def put_and_lose(self: BucketTarget, name: str, data: bytes) -> bool:
            """The bucket is gone once the plan is in it."""
            is_ours = put(self, name, data)
            if name == PLAN:
                client: Any = server.client()
                for found in client.list_objects_v2(Bucket=bucket).get("Contents", []):
                    client.delete_object(Bucket=bucket, Key=found["Key"])
                client.delete_bucket(Bucket=bucket)
            return is_ours

        monkeypatch.setattr(BucketTarget, "put_if_absent", put_and_lose)
    url = f"{'abfs' if kind == 'azurite' else 's3'}://{bucket}/out"
    arguments = ["--location", str(tier), "--topic", "orders", "--target", url, "--target-credentials", "env:LAKE"]
    assert backfill.main([*arguments, *LOCAL]) == 3
    (line,) = _errors(capfd.readouterr().err)
    what = "container" if kind == "azurite" else "bucket"
    assert f": there is no such {what}: {bucket}; found status 404 " in line
    assert line.endswith(
        f". Create the {what} first, as a job does not; or check its name, the account and the endpoint"
    )
