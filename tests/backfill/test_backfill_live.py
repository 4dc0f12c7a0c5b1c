"""A backfill over history and live data, against a broker on loopback: exact, and it goes on where it was stopped."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from backfill_runs import finish, plan_into, request, table_of
from fake_cluster import ServedLog, served
from live_topic import COMMITTED, TOPIC, segments
from served_cluster import ServedCluster, served_cluster, tiered_log

from segreader.backfill import job_plan
from segreader.backfill.commit import collect, read_manifest
from segreader.backfill.job_plan import JobPlan, parse_plan, read_plan
from segreader.backfill.job_splits import JobSplit, split_from_json, split_to_json
from segreader.backfill.source import LiveSource
from segreader.backfill.task import Destination, do_split
from segreader.backfill.verify import Verification, VerifyTask, read_output
from segreader.plan.live import LivePart, ReadFrom
from segreader.spark.options import parse_options
from segreader.spark.worker import this_worker
from segreader.storage.target.store import TargetStore, open_target
from segreader.testing.builder import SegmentBuilder
from segreader.testing.records import FIRST_TIMESTAMP_MS as T0


@dataclass(frozen=True, slots=True)
class Job:
    """A topic, and the output of a job over it."""

    cluster: ServedCluster
    tier: Path
    out: Path

    @property
    def log(self) -> ServedLog:
        return self.cluster.cluster.logs[TOPIC][0]

    @property
    def target(self) -> TargetStore:
        return open_target(str(self.out))

    def plan(self, *, split_bytes: int = 200, **options: Any) -> JobPlan:
        named: dict[str, Any] = {"kafka.bootstrap.servers": self.cluster.bootstrap, "subscribe": TOPIC}
        return plan_into(self.target, request(self.tier, split_bytes=split_bytes, **named, **options))

    def do(self, plan: JobPlan, *splits: JobSplit) -> None:
        """What tasks do, with splits as they travel."""
        options = parse_options(plan.options)
        for split in splits or plan.splits:
            travelled = split_from_json(json.loads(json.dumps(split_to_json(split))))
            assert travelled == split
            how = options.read_options
            do_split(travelled, LiveSource(options), self.target, plan.output, options=how, plan=plan.name)

    def verified(self) -> Verification:
        """The output, held against store and brokers again."""
        output = read_output(self.target)
        (one,) = output.rounds
        task = VerifyTask(one.pairs, Destination(str(self.out), "default", {}), one.plan.output, one.plan.options)
        return Verification(output, tuple(task.verdicts(range(len(task)))), has_read_source=True)

    def offsets(self, partition: int = 0) -> list[int]:
        table = table_of(self.out)
        return [
            o
            for o, p in zip(table["offset"].to_pylist(), table["partition"].to_pylist(), strict=True)
            if p == partition
        ]


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    tier, out = tmp_path / "tier", tmp_path / "out"
    first = tiered_log(tier, TOPIC, segments(), uploaded=2, local_from=1)
    second = ServedLog(served(SegmentBuilder().batch([b"w"] * 5).to_bytes()), [(0, 0)])
    with served_cluster({TOPIC: {0: first, 1: second}}) as cluster:
        yield Job(cluster, tier, out)
        this_worker().clusters._drop(cluster.bootstrap)


def test_an_output_has_history_and_live_data_once_and_says_where_each_came_from(job: Job) -> None:
    plan = job.plan()
    job.do(plan)
    found = finish(plan, job.target)

    assert found.is_complete
    assert (job.offsets(0), job.offsets(1)) == (COMMITTED, list(range(5)))
    assert [dict(one.sources) for one in found.partitions] == [{"store": 30, "broker": 29}, {"broker": 5}]
    assert found.sources == {"store": 30, "broker": 34}
    assert (found.total("control_records"), found.total("aborted_records"), found.total("holes")) == (1, 20, 0)
    manifest = read_manifest(job.target)
    assert manifest is not None
    assert manifest.document["sources"] == {"store": 30, "broker": 34}
    assert job.verified().findings == ()


def test_splits_follow_each_other_from_the_store_to_the_broker(job: Job) -> None:
    mine = [split for split in job.plan().splits if split.partition.partition == 0]

    assert [split.start for split in mine] == [0, *(split.stop for split in mine[:-1])]
    assert mine[-1].stop == 80
    assert len(mine) > 4
    reads = [split.read.read_from for split in mine if isinstance(split.read, LivePart)]
    assert reads == [ReadFrom.STORE] * (len(mine) - 1) + [ReadFrom.BROKER]


def test_a_plan_pins_the_ends_and_a_run_that_goes_on_keeps_to_them(job: Job) -> None:
    plan = job.plan()
    job.do(plan, *plan.splits[:2])
    job.log.batches += served(segments()[-1].roll().batch([b"v"] * 10).to_bytes())
    again = read_plan(job.target)
    assert again is not None
    assert again == parse_plan(plan.data, "")
    done = collect(job.target, again)
    job.do(again, *[split for split in again.splits if split.id not in done])

    assert len(done) == 2
    assert finish(again, job.target).is_complete
    assert job.offsets(0) == COMMITTED
    assert again.next_offsets == {TOPIC: {"0": 80, "1": 5}}


def test_what_brokers_have_is_cut_so_that_a_job_need_not_begin_anew(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_plan, "MOST_OFFSETS", 7)
    plan = job.plan()
    job.do(plan)

    assert max(split.stop - split.start for split in plan.splits if split.size == 0) == 7
    assert finish(plan, job.target).is_complete
    assert job.offsets(0) == COMMITTED
    assert job.verified().is_exact


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"endingOffsets": '{"orders":{"0":55,"1":-1}}'}, [*range(30), *range(51, 55)]),
        ({"startingTimestamp": str(T0 + 4)}, COMMITTED[4:]),
        ({"isolationLevel": "read_uncommitted"}, [n for n in range(80) if n != 50]),
    ],
)
def test_bounds_and_isolation_are_those_of_the_data_source(
    job: Job, options: dict[str, Any], wanted: list[int]
) -> None:
    plan = job.plan(**options)
    job.do(plan)

    assert finish(plan, job.target).is_complete
    assert job.offsets(0) == wanted


@pytest.mark.parametrize("kept", [0, 100])
def test_a_segment_that_fails_in_the_midst_is_counted_once_all_the_same(job: Job, kept: int) -> None:
    plan = job.plan(split_bytes=1 << 20)
    for file in job.tier.rglob("*.log"):
        data = bytearray(file.read_bytes())
        data[kept + 30] ^= 1
        file.write_bytes(bytes(data))
    job.do(plan)
    found = finish(plan, job.target)

    assert found.is_complete
    assert job.offsets(0) == COMMITTED
    assert (found.total("control_records"), found.total("aborted_records")) == (1, 20)
    assert found.sources == {"broker": 64}
    assert any("by the broker" in note for entry in collect(job.target, plan).values() for note in entry.notes)
    assert job.verified().is_exact


def test_what_retention_takes_meanwhile_is_lost_and_named_where_the_job_may_go_on(job: Job) -> None:
    plan = job.plan(failOnDataLoss="false")
    for file in job.tier.rglob("*.log"):
        file.unlink()
    job.log.log_start = job.log.local_start = 55
    job.do(plan)
    found = finish(plan, job.target)

    assert found.is_complete
    assert job.offsets(0) == [*range(55, 80)]
    assert sum(one.stop - one.start for one in found.partitions[0].lost) == 55
    assert found.losses


def test_verification_tells_what_can_not_be_read_again(job: Job) -> None:
    plan = job.plan()
    job.do(plan)
    finish(plan, job.target)
    for file in job.tier.rglob("*.log"):
        file.unlink()
    job.log.log_start = job.log.local_start = 55

    findings = job.verified().findings
    assert {one.kind for one in findings} == {"source"}
    assert any("cannot be read again" in one.text for one in findings)


def test_verification_finds_what_differs_from_the_brokers(job: Job) -> None:
    plan = job.plan()
    job.do(plan)
    finish(plan, job.target)
    other = segments()[2].roll().batch([b"v"] * 10).batch([b"V"] * 10)
    job.log.batches[-2:] = served(other.to_bytes())

    findings = job.verified().findings
    assert any("the record at offset 70 has another value" in one.text for one in findings)
