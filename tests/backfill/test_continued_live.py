"""Backfills over history and live data that go on: exact, or an error that says what to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from fake_cluster import ServedLog, served
from lake_targets import Target
from live_topic import COMMITTED, TOPIC, segments
from served_cluster import ServedCluster, served_cluster, tiered_log

from segreader.backfill.job import Job, Round
from segreader.spark.worker import this_worker
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import write_local_tiered
from spark_jobs.backfill import main
from spark_jobs.verify import main as verify

KINDS = ("parquet", "delta", "iceberg")


class Live:
    """A topic of two partitions at a broker, with the store beside it, and a target.

    Args:
        cluster: serves the topic.
    """

    def __init__(self, cluster: ServedCluster, tier: Path, target: Target) -> None:
        self.cluster, self.tier, self.target = cluster, tier, target

    def log(self, partition: int = 0) -> ServedLog:
        """What the broker has of a partition."""
        return self.cluster.cluster.logs[TOPIC][partition]

    def append(self, segment: SegmentBuilder, partition: int = 0) -> None:
        """More records."""
        self.log(partition).batches += served(segment.to_bytes())

    def run(self, *more: str, with_brokers: bool = True) -> int:
        """Let the target go on; the exit code."""
        brokers = ("--bootstrap-servers", self.cluster.bootstrap) if with_brokers else ()
        where = ["--location", str(self.tier), *brokers, "--topic", TOPIC, *self.target.flags]
        return main([*where, "--engine", "local", "--processes", "1", "--continue", *more])

    def offsets(self, partition: int = 0) -> list[int]:
        """The offsets in the target, twice what is there twice."""
        keys: Counter[tuple[str, int, int]] = self.target.keys()
        return sorted(offset for _, number, offset in keys.elements() if number == partition)

    def files(self) -> Mapping[Path, int]:
        """All that the target is made of, with the times of its files."""
        return {path: path.stat().st_mtime_ns for path in self.target.place.rglob("*") if path.is_file()}


@pytest.fixture(params=KINDS)
def live(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Live]:
    tier = tmp_path / "tier"
    first = tiered_log(tier, TOPIC, segments(), uploaded=2, local_from=2)
    second = ServedLog(served(SegmentBuilder().batch([b"w"] * 5).to_bytes()), [(0, 0)])
    with served_cluster({TOPIC: {0: first, 1: second}}) as cluster:
        yield Live(cluster, tier, Target(request.param, tmp_path / "target"))
        this_worker().clusters._drop(cluster.bootstrap)


def test_each_run_goes_on_up_to_where_the_brokers_logs_end_when_it_begins(
    live: Live, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    late = segments()[-1].roll().batch([b"v"] * 10)
    write = Job.write

    def append_and_write(job: Job, one: Round, *rest: Any) -> Any:
        live.append(late)
        return write(job, one, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(Job, "write", append_and_write)
        assert live.run() == 0
    assert (live.offsets(0), live.offsets(1)) == (COMMITTED, list(range(5)))

    write_local_tiered(live.tier, TOPIC, [segments()[2]], partition=0)
    live.append(SegmentBuilder(base_offset=5).batch([b"w"] * 5), 1)
    assert live.run() == 0
    assert (live.offsets(0), live.offsets(1)) == ([*COMMITTED, *range(80, 90)], list(range(10)))
    assert verify([*live.target.flags, "--source", "--engine", "local"]) == 0

    there = live.files()
    capsys.readouterr()
    assert live.run() == 0
    assert "nothing new" in capsys.readouterr().out
    assert live.files() == there


def test_partitions_with_nothing_as_new_as_the_start_go_on_from_where_their_logs_ended(tmp_path: Path) -> None:
    first = ServedLog(served(SegmentBuilder().batch([b"v"] * 10).to_bytes()), [(0, 0)])
    with served_cluster({TOPIC: {0: first}}) as cluster:
        live = Live(cluster, tmp_path / "tier", Target("parquet", tmp_path / "target"))
        live.tier.mkdir()
        assert live.run("--since", "2100-01-01T00:00Z") == 0
        live.append(SegmentBuilder(base_offset=10).batch([b"v"] * 5))

        assert live.run("--since", "2100-01-01T00:00Z") == 0
        assert live.offsets() == list(range(10, 15))
        this_worker().clusters._drop(cluster.bootstrap)


def test_an_end_by_time_before_that_of_the_target_is_nothing_new(
    live: Live, capsys: pytest.CaptureFixture[str]
) -> None:
    assert live.run() == 0
    there = live.files()
    capsys.readouterr()
    assert live.run("--until", "1970-01-01T00:00Z") == 0
    assert "nothing new" in capsys.readouterr().out
    assert live.files() == there


def test_what_brokers_have_below_the_start_of_a_target_from_the_store_is_told(
    live: Live, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = {path: path.read_bytes() for path in live.tier.rglob("00000000000000000000-*")}
    for path in missing:
        path.unlink()
    assert live.run(with_brokers=False) == 0
    assert live.offsets() == list(range(20, 30))
    there = live.files()
    capsys.readouterr()

    for more in ((), ("--dry-run",)):
        assert live.run(*more) == 2
        told = capsys.readouterr().err
        assert "records of orders-0 have appeared below where the target begins" in told
        assert "found offsets from 0 on, expected none below 20" in told
        assert "--on-gap skip" in told
    assert live.files() == there
    assert live.run("--on-gap", "skip") == 1
    assert "orders-0: offsets 0 to 19 are lost" in capsys.readouterr().err
    assert (live.offsets(0), live.offsets(1)) == (COMMITTED[20:], list(range(5)))
    assert live.run() == 0  # it was told


def test_a_run_with_brokers_does_not_forget_where_a_target_from_the_store_begins(
    live: Live, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = {path: path.read_bytes() for path in live.tier.rglob("00000000000000000000-*")}
    for path in missing:
        path.unlink()
    assert live.run(with_brokers=False) == 0
    live.log().log_start = 20
    assert live.run() == 0
    assert live.offsets() == COMMITTED[20:]

    for path, data in missing.items():
        path.write_bytes(data)
    write_local_tiered(live.tier, TOPIC, segments()[2:], partition=0)
    capsys.readouterr()
    assert live.run(with_brokers=False) == 2
    assert "found offsets from 0 on, expected none below 20" in capsys.readouterr().err


def test_what_was_deleted_before_a_target_began_with_brokers_is_not_told_later(live: Live) -> None:
    """The store may have it for a while yet."""
    live.log().log_start = 10
    assert live.run() == 0
    write_local_tiered(live.tier, TOPIC, segments()[2:], partition=0)
    write_local_tiered(live.tier, TOPIC, [SegmentBuilder().batch([b"w"] * 5)], partition=1)

    assert live.run(with_brokers=False) == 0
    assert live.offsets() == COMMITTED[10:]


def test_a_store_that_is_behind_the_brokers_is_told_from_one_of_another_history(
    live: Live, capsys: pytest.CaptureFixture[str]
) -> None:
    assert live.run() == 0
    there = live.files()
    capsys.readouterr()

    assert live.run(with_brokers=False) == 2
    told = capsys.readouterr().err
    assert "the log of orders-0 ends before the target does" in told
    assert "found an end at 40, expected 80 or more" in told
    assert "--bootstrap-servers" in told
    assert "take back" not in told
    assert live.files() == there
    write_local_tiered(live.tier, TOPIC, segments()[2:], partition=0)
    assert live.run(with_brokers=False) == 0


def elect(live: Live, at: int, count: int, epoch: int = 2) -> None:
    """Another leader, which has the records below an offset, and writes others from there on."""
    log = live.log()
    kept = [batch for batch in log.batches if batch.stop <= at]
    fresh = SegmentBuilder(base_offset=at, leader_epoch=epoch).batch([b"other"] * count)
    log.batches = [*kept, *served(fresh.to_bytes())]
    log.lineage = [*log.lineage, (epoch, at)]


@pytest.mark.parametrize("count", [100, 5], ids=["that is longer", "that is shorter"])
@pytest.mark.parametrize("is_uploaded", [True, False], ids=["in the store", "at brokers"])
def test_a_target_of_another_history_than_the_brokers_is_told_and_nothing_is_written(
    live: Live, count: int, is_uploaded: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert live.run() == 0
    there = live.files()
    elect(live, 60, count)
    if is_uploaded:
        old = [path for path in live.tier.rglob("*") if path.is_file()]
        new = SegmentBuilder(base_offset=60, leader_epoch=2).batch([b"other"] * count)
        write_local_tiered(live.tier, TOPIC, [new], partition=0)
        assert len(old) < len([path for path in live.tier.rglob("*") if path.is_file()])
        live.log().last_tiered = 60 + count - 1
        live.log().local_start = 60 + count
    capsys.readouterr()

    for more in ((), ("--dry-run",)):
        assert live.run(*more) == 2
        told = capsys.readouterr().err
        assert "what the target has of orders-0 is not its history any more" in told
        assert "up to 60 in common" in told
        assert "fill a new one" in told
    assert live.files() == there


def test_a_partition_without_news_keeps_the_history_that_it_is_held_against(
    live: Live, capsys: pytest.CaptureFixture[str]
) -> None:
    assert live.run() == 0
    live.append(SegmentBuilder(base_offset=5).batch([b"w"] * 5), 1)
    assert live.run() == 0
    elect(live, 60, 100)

    assert live.run() == 2
    assert "up to 60 in common" in capsys.readouterr().err


@pytest.mark.parametrize("is_lost", [True, False], ids=["that are lost", "that stay"])
def test_markers_behind_the_end_of_a_target_decide_what_it_has(
    tmp_path: Path, is_lost: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """The commit at offset 8 is of records 0 to 4. A transaction is open from offset 5 on, where the target ends."""
    data = SegmentBuilder().batch([b"a"] * 5, producer_id=7, transactional=True)
    data.batch([b"b"] * 3, producer_id=8, transactional=True)
    data.marker(7).batch([b"b"] * 2, producer_id=8, transactional=True)
    log = ServedLog(served(data.to_bytes()), [(0, 0)])
    with served_cluster({TOPIC: {0: log}}) as cluster:
        live = Live(cluster, tmp_path / "tier", Target("parquet", tmp_path / "target"))
        live.tier.mkdir()
        assert live.run() == 0
        assert live.offsets() == list(range(5))
        there = live.files()
        at = 8 if is_lost else 11
        log.batches = [batch for batch in log.batches if batch.stop <= at]
        fresh = SegmentBuilder(base_offset=at, leader_epoch=2)
        if is_lost:
            fresh.marker(7, abort=True)
        log.batches += served(fresh.marker(8).batch([b"c"] * 4).to_bytes())
        log.lineage.append((2, at))
        capsys.readouterr()

        if is_lost:
            assert live.run() == 2
            assert "up to 8 in common, expected everything below 11" in capsys.readouterr().err
            assert live.files() == there
        else:
            assert live.run() == 0
            assert live.offsets() == [*range(8), 9, 10, *range(12, 16)]
        this_worker().clusters._drop(cluster.bootstrap)
