from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from backfill_runs import offsets_of, request
from corpus import CORPUS, Case, cases
from growing_log import GrowingLog
from sample import at_edges

from segreader.backfill.job_plan import JobPlan, make_plan, parse_plan
from segreader.errors import AmbiguousTopicError, CorruptBatchError, SegreaderError
from segreader.plan.request import Bounds
from segreader.scans import scan

READABLE = [case for case in cases("tv1", "tv2", "k39", "cluster", remote=True) if case.topic != "recreated"]


def assert_exact(plan: JobPlan, location: str | Path, isolation: str) -> None:
    """Splits follow each other, each delivers offsets of its own, and together they deliver what a scan does."""
    of_partition = defaultdict(list)
    for split in plan.splits:
        of_partition[split.partition].append(split)
    assert len({split.id for split in plan.splits}) == len(plan.splits)
    for planned in plan.partitions:
        mine = [
            split
            for one in of_partition
            if str(one) == f"{planned.topic}-{planned.partition}"
            for split in of_partition[one]
        ]
        assert all(before.stop == after.start for before, after in pairwise(mine))
        if mine:
            assert (mine[0].start, mine[-1].stop) == (planned.start, planned.stop)
        else:
            assert planned.start == planned.stop
        delivered = []
        for split in mine:
            offsets = offsets_of(plan, split)
            assert all(split.start <= offset < split.stop for offset in offsets)
            delivered += offsets
        known = scan(
            location, topic=planned.topic, partitions=planned.partition, columns=("offset",), isolation_level=isolation
        )
        assert delivered == known.to_arrow()["offset"].to_pylist()


@pytest.mark.parametrize("case", at_edges(READABLE), ids=str)
def test_splits_of_any_size_deliver_each_record_once(case: Case) -> None:
    isolation = "read_committed" if "txn" in case.topic else "read_uncommitted"
    for split_bytes in (1, 5000):
        try:
            plan = make_plan(
                request(case.root / "remote", split_bytes=split_bytes, subscribe=case.topic, isolationLevel=isolation)
            )
        except SegreaderError:
            with pytest.raises(SegreaderError):
                scan(case.root / "remote", topic=case.topic, isolation_level=isolation).to_arrow()
            return
        assert_exact(plan, case.root / "remote", isolation)
        assert parse_plan(plan.data, "plan") == plan


def test_a_plan_that_another_version_wrote_keeps_its_name() -> None:
    plan = make_plan(request(CORPUS / "tv2" / "remote", subscribe="nulls"))
    theirs = json.dumps(json.loads(plan.data) | {"more": 1}).encode()
    assert parse_plan(theirs, "plan") == plan
    assert parse_plan(theirs, "plan").sha256 == sha256(theirs).hexdigest() != plan.sha256


def test_a_large_segment_is_cut_at_its_index_and_both_sides_read_a_little_twice(tmp_path: Path) -> None:
    log = GrowingLog(tmp_path)
    log.upload("orders", 0, 40_000)
    whole = make_plan(request(tmp_path, subscribe="orders"))
    plan = make_plan(request(tmp_path, split_bytes=64 << 10, subscribe="orders"))

    assert len(whole.splits) == 1
    assert len(plan.splits) > 5
    assert plan.size - whole.size < len(plan.splits) * 16 << 10
    assert_exact(plan, tmp_path, "read_committed")


def test_an_end_beyond_what_is_there_is_planned_where_the_log_ends(tmp_path: Path) -> None:
    GrowingLog(tmp_path).upload("orders", 0, 95)
    plan = make_plan(
        request(tmp_path, subscribe="orders", endingOffsets='{"orders":{"0":1000}}', failOnDataLoss="false")
    )

    assert [(one.start, one.stop) for one in plan.partitions] == [(0, 95)]
    assert plan.next_offsets == {"orders": {"0": 95}}


def test_the_planned_end_is_the_stable_one(tmp_path: Path) -> None:
    GrowingLog(tmp_path).upload("orders", 0, 95, open_transaction=True)
    (planned,) = make_plan(request(tmp_path, subscribe="orders")).partitions

    assert (planned.start, planned.stop, planned.is_early) == (0, 90, True)
    assert "open transaction" in planned.end


@pytest.mark.parametrize(
    ("start", "stop", "ends"),
    [(93, None, 93), (93, 200, 93), (95, 200, 95), (120, 200, 120), (120, None, 120), (20, 40, 40)],
    ids=["undecided", "undecided, with an end", "at the end", "behind it", "behind it, without an end", "deleted"],
)
def test_a_partition_with_nothing_to_read_ends_where_it_was_to_begin_or_before_what_is_there(
    tmp_path: Path, start: int, stop: int | None, ends: int
) -> None:
    """A log of offsets 50 to 94, of which a transaction that begins at 90 is open."""
    log = GrowingLog(tmp_path)
    log.upload("orders", 0, 50)
    log.upload("orders", 0, 45, open_transaction=True)
    for path in tmp_path.rglob(f"{0:020d}*"):
        path.unlink()
    plan = make_plan(replace(request(tmp_path, subscribe="orders"), bounds=Bounds(start, stop)))

    assert [(one.start, one.stop, one.splits) for one in plan.partitions] == [(ends, ends, 0)]
    assert plan.next_offsets == {"orders": {"0": ends}}


def test_offsets_that_are_asked_for_are_the_bounds_of_the_first_and_the_last_split(tmp_path: Path) -> None:
    log = GrowingLog(tmp_path)
    for _ in range(3):
        log.upload("orders", 0, 100)
    bounds: dict[str, Any] = {"startingOffsets": '{"orders":{"0":57}}', "endingOffsets": '{"orders":{"0":203}}'}
    plan = make_plan(request(tmp_path, subscribe="orders", **bounds))

    assert [(split.start, split.stop) for split in plan.splits] == [(57, 100), (100, 200), (200, 203)]
    assert [offset for split in plan.splits for offset in offsets_of(plan, split)] == list(range(57, 203))


def test_damage_that_hides_the_end_is_told_while_planning(tmp_path: Path) -> None:
    log = GrowingLog(tmp_path)
    log.upload("orders", 0, 95)
    (path,) = log.logs()
    path.write_bytes(path.read_bytes()[:-1] + b"\x7f")

    with pytest.raises(CorruptBatchError, match="CRC"):
        make_plan(request(tmp_path, subscribe="orders"))


def test_a_start_by_time_behind_damage_that_hides_the_end_goes_on_before_the_damage(tmp_path: Path) -> None:
    """Later there may be something as new, and the next run is told of the damage."""
    log = GrowingLog(tmp_path)
    log.upload("orders", 0, 50)
    log.upload("orders", 0, 45)
    (path,) = tmp_path.rglob(f"{50:020d}*.log")
    path.write_bytes(path.read_bytes()[:-1] + b"\x7f")
    plan = make_plan(request(tmp_path, subscribe="orders", startingTimestamp="2100-01-01T00:00:00Z"))

    assert plan.next_offsets == {"orders": {"0": 50}}
    with pytest.raises(CorruptBatchError, match="CRC"):
        make_plan(request(tmp_path, subscribe="orders"), number=2, start=plan.end)


def test_two_topics_of_one_name_are_refused() -> None:
    (case,) = [case for case in cases("tv2") if case.topic == "recreated"]
    with pytest.raises(AmbiguousTopicError):
        make_plan(request(case.root / "remote", subscribe=case.topic))
