"""Two backfills of the same records into one target at once: each record once, and who loses says what to do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from backfill_runs import request
from growing_bucket import GrowingBucket
from lake_chaos import KINDS, drive, require_exact
from lake_targets import Target
from sample import exhaustive

from segreader.backfill.engine import LocalEngine
from segreader.backfill.job import Job
from segreader.backfill.lake.delta import open_delta
from segreader.backfill.task import Destination
from segreader.errors import ConcurrentWriteError

TOPICS = ("txn-span", "nulls", "codec-zstd")
FLAGS = ("--engine", "local", "--processes", "1", "--split-bytes", "4k")


@pytest.mark.parametrize("first", ["--continue", exhaustive("")])
@pytest.mark.parametrize("kind", KINDS)
def test_two_writers_at_once_leave_each_record_once_and_the_loser_says_what_to_do(
    tmp_path: Path, kind: str, first: str
) -> None:
    bucket, target = GrowingBucket(tmp_path / "bucket", *TOPICS), Target(kind, tmp_path / "target")
    (tmp_path / "deaths").mkdir()
    arguments = ["--location", str(bucket.root), "--pattern", f"^({'|'.join(TOPICS)})$", *target.flags, *FLAGS]
    for phase, more in enumerate((first, "--continue")):
        bucket.upload(2)
        names = [f"{phase}-{number}" for number in range(2)]
        # each commits in groups of its own size
        sizes = [["--commit-bytes", size] if kind != "parquet" else [] for size in ("1", "8k")]
        given = [[*arguments, *size, *filter(None, [more])] for size in sizes]
        drivers = [drive(one, tmp_path, name) for one, name in zip(given, names, strict=True)]
        for driver in drivers:
            driver.join(90)
        told = [(tmp_path / f"{name}.log").read_text() for name in names]

        codes = [driver.exitcode for driver in drivers]
        assert 0 in codes, told
        for code, text in zip(codes, told, strict=True):
            print(code, text[-400:] if code else "")
            if code != 0:
                assert code in (2, 4), text
                assert "Traceback" not in text
                assert "continue" in text.splitlines()[-1] or "again" in text.splitlines()[-1], text
        again = drive([*arguments, "--continue"], tmp_path, f"{phase}-again")
        again.join(90)
        assert again.exitcode == 0, (tmp_path / f"{phase}-again.log").read_text()
        require_exact(target, bucket, TOPICS)


def test_a_writer_that_commits_in_other_groups_does_not_take_the_other_ones_commit_for_its_own(
    tmp_path: Path,
) -> None:
    bucket = GrowingBucket(tmp_path / "bucket", "codec-zstd")
    bucket.upload(9)
    place = str(tmp_path / "table")
    asked = request(bucket.root, split_bytes=1000, subscribe="codec-zstd")
    jobs = [
        Job(request=replace(asked, commit_bytes=size), destination=Destination(place), table=open_delta(place))
        for size in (1, 1 << 30)
    ]
    slow = jobs[0].begin()
    assert slow is not None
    quick = jobs[1].begin()
    assert quick is not None
    table: Any = jobs[0].table
    commit = table.commit

    def commit_and_die(*arguments: Any) -> None:
        commit(*arguments)
        raise KeyboardInterrupt

    table.commit = commit_and_die
    with pytest.raises(KeyboardInterrupt):
        jobs[0].write(slow, LocalEngine(1))

    with pytest.raises(ConcurrentWriteError):
        jobs[1].write(quick, LocalEngine(1))
