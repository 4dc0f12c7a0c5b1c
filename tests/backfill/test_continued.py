"""Backfills that go on: a later run adds what was uploaded since, and nothing twice."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from backfill_runs import rows_of
from growing_bucket import GrowingBucket

from segreader import scan
from spark_jobs.backfill import main

TOPICS = ("multi", "txn-span", "codec-zstd")


def _run(bucket: GrowingBucket, target: Path, *more: str) -> int:
    return main(
        ["--location", str(bucket.root), "--pattern", "multi|txn-span|codec-zstd", "--target", str(target), *more]
    )


def _scanned(bucket: GrowingBucket, topic: str) -> list[dict[str, Any]]:
    columns = ["topic", "partition", "offset"]
    rows: list[dict[str, Any]] = scan(str(bucket.root), topic=topic, columns=columns).to_arrow().to_pylist()
    return rows


def _wanted(bucket: GrowingBucket) -> Counter[tuple[str, int, int]]:
    found: Counter[tuple[str, int, int]] = Counter()
    for topic in TOPICS:
        for row in _scanned(bucket, topic):
            found[row["topic"], row["partition"], row["offset"]] += 1
    return found


def _there(target: Path) -> Counter[tuple[str, int, int]]:
    return Counter((row["topic"], row["partition"], row["offset"]) for row in rows_of(target))


def test_each_continued_run_adds_what_was_uploaded_since(tmp_path: Path) -> None:
    bucket, target = GrowingBucket(tmp_path / "bucket", *TOPICS), tmp_path / "target"
    rounds = 0
    while bucket:
        bucket.upload()
        assert _run(bucket, target, "--continue") == 0
        rounds += 1

        assert _there(target) == _wanted(bucket)
    assert rounds > 2


def test_a_run_with_nothing_new_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bucket, target = GrowingBucket(tmp_path / "bucket", *TOPICS), tmp_path / "target"
    bucket.upload(2)
    _run(bucket, target, "--continue")
    before = {path: path.stat().st_mtime_ns for path in target.rglob("*") if path.is_file()}
    capsys.readouterr()

    assert _run(bucket, target, "--continue") == 0
    assert "nothing new" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in target.rglob("*") if path.is_file()} == before
