"""Backfills that go on while segments appear in awkward orders: exact, or an error that says what to do."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest
from growing_bucket import CORPUS
from lake_targets import Key, Target

from segreader import lake, scan
from segreader.errors import DivergedPositionError
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import write_local_tiered
from spark_jobs.backfill import main
from spark_jobs.verify import main as verify

KINDS = ("parquet", "delta", "iceberg")
CLUSTER = CORPUS.parents[2] / "cluster" / "remote" / "kafka-tiered-storage"
A_YEAR_LATER_MS = 1_795_000_000_000
"""In November 2026; the records of the corpus are of 2025."""


class Bucket:
    """A copy of one topic's segments that are uploaded by their number, in any order."""

    def __init__(self, root: Path, topic: str, corpus: Path = CORPUS) -> None:
        self.root, self.topic = root, topic
        self.logs = sorted(log for one in corpus.glob(f"{topic}-?-*") for log in one.glob("*.log"))

    def upload(self, *numbers: int) -> None:
        for log in (self.logs[number] for number in numbers):
            place = self.root / "kafka-tiered-storage" / log.parent.name
            place.mkdir(parents=True, exist_ok=True)
            for file in log.parent.glob(f"{log.stem}.*"):
                shutil.copy2(file, place / file.name)

    def remove(self, *numbers: int) -> None:
        for log in (self.logs[number] for number in numbers):
            for file in (self.root / "kafka-tiered-storage" / log.parent.name).glob(f"{log.stem}.*"):
                file.unlink()

    def run(self, target: Target, *more: str) -> int:
        return main(
            [
                "--location",
                str(self.root),
                "--topic",
                self.topic,
                "--engine",
                "local",
                "--processes",
                "1",
                *target.flags,
                "--continue",
                *more,
            ]
        )

    def keys(self) -> Counter[Key]:
        rows = scan(str(self.root), topic=self.topic, columns=["topic", "partition", "offset"]).to_arrow().to_pylist()
        return Counter((row["topic"], row["partition"], row["offset"]) for row in rows)


@pytest.fixture(params=KINDS)
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    return Target(request.param, tmp_path / "target")


def test_a_partition_with_nothing_new_stays_where_it_ends_while_another_one_goes_on(
    tmp_path: Path, target: Target
) -> None:
    """Partition 1 has one segment, which has been read: no index says where it ends."""
    bucket = Bucket(tmp_path / "bucket", "multi")
    bucket.upload(0, 3)
    assert bucket.run(target) == 0
    for number in (1, 2, 4):
        bucket.upload(number)
        assert bucket.run(target) == 0
        assert target.keys() == bucket.keys()
    assert verify([*target.flags, "--source"]) == 0


def test_a_job_that_begins_behind_all_there_is_goes_on_from_where_it_began(tmp_path: Path, target: Target) -> None:
    bucket = Bucket(tmp_path / "bucket", "multi")
    bucket.upload(3)

    assert bucket.run(target, "--offsets", "1863:") == 0
    bucket.upload(4)
    assert bucket.run(target, "--offsets", "1863:") == 0
    assert min(target.keys()) == ("multi", 1, 1863)


@pytest.mark.parametrize(
    ("segments", "asked"),
    [(1, "40:150"), (1, "31:150"), (2, "100:150"), (1, "100:")],
    ids=["between", "right behind", "far behind", "without an end"],
)
def test_offsets_asked_for_before_they_are_uploaded_are_written_once_they_are(
    tmp_path: Path, target: Target, capsys: pytest.CaptureFixture[str], segments: int, asked: str
) -> None:
    """At first the log ends before the offset that was asked for: at 31 or at 65."""
    bucket = Bucket(tmp_path / "bucket", "codec-none")
    bucket.upload(*range(segments))
    first, _, stop = asked.partition(":")
    for _ in range(2):
        assert bucket.run(target, "--offsets", asked) == 0
        assert f'"codec-none": {{"0": {first}}}' in capsys.readouterr().out
    bucket.upload(*range(len(bucket.logs)))

    assert bucket.run(target, "--offsets", asked) == 0
    assert target.keys() == Counter(("codec-none", 0, offset) for offset in range(int(first), int(stop or 179)))
    assert verify([*target.flags, "--source"]) == 0


@pytest.mark.parametrize("again", [True, False], ids=["told again", "told once"])
def test_a_partition_of_which_nothing_was_there_begins_later_where_it_was_to_begin(
    tmp_path: Path, target: Target, again: bool
) -> None:
    """Another topic has records, so that a table is made, which keeps where both of them go on."""
    bucket, other = Bucket(tmp_path / "bucket", "codec-none"), Bucket(tmp_path / "bucket", "codec-lz4")
    bucket.upload(0)
    other.upload(*range(len(other.logs)))
    asked = ("--topic", other.topic, "--offsets", "100:150")
    assert bucket.run(target, *asked) == 0
    assert set(target.keys()) == {(other.topic, 0, offset) for offset in range(100, 150)}
    bucket.upload(1)
    assert bucket.run(target, *asked) == 0
    bucket.upload(*range(len(bucket.logs)))

    assert bucket.run(target, *(asked if again else asked[:2])) == 0
    last = 150 if again else 179
    there = target.keys()
    assert {offset for topic, _, offset in there if topic == bucket.topic} == set(range(100, last))
    assert set(there.values()) == {1}
    assert verify([*target.flags, "--source"]) == 0


def test_another_leader_below_a_start_that_was_not_there_is_no_other_history(tmp_path: Path, target: Target) -> None:
    """The target has nothing of the log of the leader that was lost, which ended before the start."""
    bucket, other = Bucket(tmp_path / "bucket", "diverged", CLUSTER), Bucket(tmp_path / "bucket", "codec-none")
    bucket.upload(0, 1)
    other.upload(*range(len(other.logs)))
    asked = ("--topic", other.topic, "--offsets", "110:")
    assert bucket.run(target, *asked) == 0
    bucket.upload(*range(len(bucket.logs)))

    assert bucket.run(target, *asked) == 0
    mine = Counter({key: count for key, count in target.keys().items() if key[0] == bucket.topic})
    assert mine == Counter({key: count for key, count in bucket.keys().items() if key[2] >= 110})


@pytest.mark.parametrize(
    "end",
    [
        ("--until", "2025-11-27T01:37:20Z"),
        ("--offsets", '{"codec-none":{"0":":100"}}'),
        ("--offsets", ":100"),
    ],
    ids=["a time", "its offset", "an offset"],
)
def test_an_end_before_that_of_the_target_is_nothing_new(
    tmp_path: Path, target: Target, capsys: pytest.CaptureFixture[str], end: tuple[str, ...]
) -> None:
    bucket = Bucket(tmp_path / "bucket", "codec-none")
    bucket.upload(*range(len(bucket.logs)))
    assert bucket.run(target) == 0
    capsys.readouterr()

    assert bucket.run(target, *end) == 0
    assert 'nothing new: the target ends at {"codec-none": {"0": 179}}' in capsys.readouterr().out
    assert target.keys() == bucket.keys()


def test_a_partition_with_nothing_as_new_as_the_start_goes_on_from_where_it_ended(
    tmp_path: Path, target: Target
) -> None:
    """The records of the other topic are a year younger, as they were made here."""
    bucket, other = Bucket(tmp_path / "bucket", "codec-none"), "orders"
    bucket.upload(*range(len(bucket.logs) - 1))
    young = SegmentBuilder().batch([b"v"] * 5, log_append_time_ms=A_YEAR_LATER_MS)
    write_local_tiered(bucket.root, other, [young])
    assert bucket.run(target, "--topic", other, "--since", "2026-11-01T00:00Z") == 0
    assert target.keys() == Counter((other, 0, offset) for offset in range(5))
    bucket.upload(len(bucket.logs) - 1)

    assert bucket.run(target, "--topic", other, "--since", "2026-11-01T00:00Z") == 0
    there = target.keys()
    assert {offset for topic, _, offset in there if topic == bucket.topic} == set(range(159, 179))
    assert set(there.values()) == {1}


def test_segments_that_appear_below_where_a_target_begins_are_told(
    tmp_path: Path, target: Target, capsys: pytest.CaptureFixture[str]
) -> None:
    bucket = Bucket(tmp_path / "bucket", "multi")
    bucket.upload(1)
    assert bucket.run(target) == 0
    there = target.keys()
    bucket.upload(0)

    assert bucket.run(target) == 2
    told = capsys.readouterr().err
    assert "found offsets from 0 on, expected none below 1905" in told
    assert "--on-gap skip" in told
    assert bucket.run(target, "--dry-run") == 2
    bucket.upload(2)
    assert bucket.run(target, "--on-gap", "skip") == 1
    assert "multi-0: offsets 0 to 1904 are lost" in capsys.readouterr().err
    assert target.keys() == bucket.keys() - Counter(("multi", 0, offset) for offset in range(1905))
    assert there < target.keys()
    assert bucket.run(target) == 0  # it was told
    assert verify([*target.flags, "--source"]) == 0


def test_offsets_that_retention_took_behind_the_end_of_a_target_are_told_as_a_gap(
    tmp_path: Path, target: Target, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody has asked for offsets by ``--offsets``."""
    bucket = Bucket(tmp_path / "bucket", "codec-none")
    bucket.upload(0, 1)
    assert bucket.run(target) == 0
    there = target.keys()
    bucket.remove(0, 1, 2)
    bucket.upload(*range(3, len(bucket.logs)))
    first = int(bucket.logs[3].name[:20])

    for more in ((), ("--dry-run",)):
        capsys.readouterr()
        assert bucket.run(target, *more) == 5
        told = capsys.readouterr().err
        assert "offsets of codec-none-0 are missing between the end of the target and the first segment" in told
        assert f"a target that ends at 65 and segments from {first} on: {first - 65} offsets are lost" in told
        assert "go on without them by --on-gap skip" in told
        assert "--offsets" not in told
        assert "earliest" not in told
    assert target.keys() == there

    assert bucket.run(target, "--on-gap", "skip") == 1
    out, err = capsys.readouterr()
    assert f"codec-none-0: offsets 65 to {first - 1} are lost" in err
    assert "--offsets" not in out + err
    assert target.keys() == there + bucket.keys()
    assert bucket.run(target) == 0, "it was told"


def test_a_gap_between_segments_behind_the_end_of_a_target_does_not_ask_for_other_offsets(
    tmp_path: Path, target: Target, capsys: pytest.CaptureFixture[str]
) -> None:
    bucket = Bucket(tmp_path / "bucket", "codec-none")
    bucket.upload(0, 1)
    assert bucket.run(target) == 0
    bucket.upload(3, 4)
    capsys.readouterr()

    assert bucket.run(target) == 5
    told = capsys.readouterr().err
    assert "offsets of codec-none-0 are missing between two segments" in told
    assert "go on without them by --on-gap skip" in told
    assert "other offsets" not in told


def test_a_target_that_was_to_begin_later_is_not_told_of_what_is_below(tmp_path: Path, target: Target) -> None:
    bucket = Bucket(tmp_path / "bucket", "multi")
    bucket.upload(0, 1)
    assert bucket.run(target, "--offsets", "1905:") == 0
    bucket.upload(2)

    assert bucket.run(target) == 0
    assert min(target.keys()) == ("multi", 0, 1905)


@pytest.mark.parametrize(
    ("topic", "older", "newer", "found", "again"),
    [
        ("diverged", (0, 1), (2, 3), "up to 30 in common", 30),
        ("diverged", (0, 2, 3, 5, 7), (4, 6, 8), "up to 114 in common", 114),
        ("diverged-txn", (0, 2, 3), (1, 4), "up to 34 in common", 27),
    ],
    ids=["before a second leader", "before a third leader", "within a transaction"],
)
def test_a_target_of_another_history_is_told_and_nothing_is_written(
    tmp_path: Path,
    target: Target,
    capsys: pytest.CaptureFixture[str],
    topic: str,
    older: tuple[int, ...],
    newer: tuple[int, ...],
    found: str,
    again: int,
) -> None:
    """The segments of real unclean elections: first those of the leader that was lost, then those of the next one."""
    bucket = Bucket(tmp_path / "bucket", topic, CLUSTER)
    bucket.upload(*older)
    assert bucket.run(target) == 0
    there = {path: path.stat().st_mtime_ns for path in target.place.rglob("*") if path.is_file()}
    assert max(offset for _, _, offset in set(target.keys())) > again
    bucket.upload(*newer)
    capsys.readouterr()

    for more in ((), ("--dry-run",)):
        assert bucket.run(target, *more) == 2
        told = capsys.readouterr().err
        assert f"what the target has of {topic}-0 is not its history any more" in told
        assert found in told
        assert f"take back what the target has from offset {again} on, or fill a new one" in told
    assert {path: path.stat().st_mtime_ns for path in target.place.rglob("*") if path.is_file()} == there

    fresh = Target(target.kind, tmp_path / "fresh")
    assert bucket.run(fresh) == 0
    assert fresh.keys() == bucket.keys()


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_append_raises_with_the_offset_from_which_another_history_begins(tmp_path: Path, isolation: str) -> None:
    """Committed: where a transaction begins that is open where the histories part, as it may have ended otherwise."""
    bucket, place = Bucket(tmp_path / "bucket", "diverged-txn", CLUSTER), tmp_path / "table"
    bucket.upload(0, 2, 3)
    assert lake.append(place, bucket.root, topic="diverged-txn", options={"isolationLevel": isolation}).records > 0
    bucket.upload(1, 4)

    with pytest.raises(DivergedPositionError) as seen:
        lake.append(place, bucket.root, topic="diverged-txn", options={"isolationLevel": isolation})
    assert seen.value.offset == {"read_committed": 27, "read_uncommitted": 34}[isolation]
