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
        [
            "--location",
            str(bucket.root),
            "--pattern",
            "multi|txn-span|codec-zstd",
            "--target",
            str(target),
            "--engine",
            "local",
            *more,
        ]
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


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (["--offsets", "100:1000"], ["--offsets", ":2000"]),
        (["--offsets", '{"multi":{"0":"5:900","1":":900","2":":900","3":":900"}}'], []),
        (["--since", "2025-11-27T01:38:03Z", "--until", "2025-11-27T01:38:05Z"], ["--since", "2025-11-27T01:38:03Z"]),
    ],
)
def test_where_the_first_run_began_is_no_matter_to_the_next(tmp_path: Path, first: list[str], then: list[str]) -> None:
    bucket, target = GrowingBucket(tmp_path / "bucket", "multi"), tmp_path / "target"
    bucket.upload(9)
    arguments = ["--location", str(bucket.root), "--topic", "multi", "--target", str(target), "--engine", "local"]

    assert main([*arguments, *first]) == 0
    before = _there(target)
    assert main([*arguments, *then, "--continue"]) == 0
    after = _there(target)
    assert set(after.values()) == {1}
    for number in range(4):
        old = sorted(offset for _, partition, offset in before if partition == number)
        new = sorted(offset for _, partition, offset in after if partition == number)
        last = (
            2000 if then == ["--offsets", ":2000"] else 1 + max(offset for _, p, offset in _all(bucket) if p == number)
        )
        assert new == list(range(old[0], last))


def _all(bucket: GrowingBucket) -> list[tuple[str, int, int]]:
    return [(row["topic"], row["partition"], row["offset"]) for row in _scanned(bucket, "multi")]
