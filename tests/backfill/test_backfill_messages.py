from __future__ import annotations

import json
import pickle
from dataclasses import replace
from pathlib import Path

from backfill_runs import request

from segreader.backfill.job_plan import JobPlan, make_plan, parse_plan
from segreader.backfill.job_splits import JobSplit, SplitTexts, split_from_json, split_to_json
from segreader.plan.split import END_OF_LOG, LogsAhead, Split
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import write_local_tiered

SEGMENTS = 40


def many_small(place: Path, *, without: int | None = None) -> JobPlan:
    """Two partitions of small segments; one segment may be missing."""
    for partition in (0, 1):
        segments = [SegmentBuilder().batch([b"v"] * 10)]
        while len(segments) < SEGMENTS:
            segments.append(segments[-1].roll().batch([b"v"] * 10))
        if without is not None:
            del segments[without]
        write_local_tiered(place, "t", segments, partition=partition)
    return make_plan(request(place, subscribe="t", failOnDataLoss="false"))


def logs_behind(split: JobSplit) -> list[str]:
    assert isinstance(split.read, Split)
    return [log for log, _, _ in split.read.following]


def without_logs_behind(split: JobSplit) -> JobSplit:
    assert isinstance(split.read, Split)
    return replace(split, read=replace(split.read, following=()))


def test_a_plan_names_each_log_of_small_segments_once(tmp_path: Path) -> None:
    plan = many_small(tmp_path)

    for split in plan.splits:
        assert isinstance(split.read, Split)
        assert plan.data.count(split.read.log.encode()) == 1


def test_a_plan_that_is_read_again_says_which_logs_follow_each_split(tmp_path: Path) -> None:
    plan = many_small(tmp_path)

    again = parse_plan(plan.data, "plan").splits

    assert again == plan.splits
    assert len(logs_behind(again[0])) == 16
    assert logs_behind(again[0]) == [split.read.log for split in plan.splits[1:17] if isinstance(split.read, Split)]
    assert again[SEGMENTS - 1].read.following == (END_OF_LOG,)  # type: ignore[union-attr]


def test_no_log_behind_a_hole_follows_a_split(tmp_path: Path) -> None:
    plan = many_small(tmp_path, without=5)

    again = parse_plan(plan.data, "plan").splits

    assert again == plan.splits
    assert [len(logs_behind(split)) for split in again[:6]] == [4, 3, 2, 1, 0, 16]


def test_a_plan_of_a_version_that_named_no_logs_has_none_behind_a_split(tmp_path: Path) -> None:
    document = json.loads(many_small(tmp_path).data)
    del document["next_splits_follow"]
    for split in document["splits"]:
        split.pop("following", None)

    old = parse_plan(json.dumps(document).encode(), "plan")

    assert not any(logs_behind(split) for split in old.splits)


def test_a_task_has_the_logs_behind_its_split_and_its_message_stays_small(tmp_path: Path) -> None:
    splits = many_small(tmp_path).splits[::-1]
    texts = SplitTexts(splits)
    bare = [without_logs_behind(one) for one in splits]

    assert list(pickle.loads(pickle.dumps(texts))) == list(splits)
    assert len(pickle.dumps(texts)) < 1.02 * len(pickle.dumps([json.dumps(split_to_json(one)) for one in bare]))


def test_a_task_whose_neighbours_are_done_still_has_the_logs_behind_its_split(tmp_path: Path) -> None:
    splits = many_small(tmp_path).splits[::3]

    assert list(SplitTexts(splits)) == list(splits)


def test_a_split_alone_names_its_logs(tmp_path: Path) -> None:
    split = many_small(tmp_path).splits[3]

    assert split_from_json(json.loads(json.dumps(split_to_json(split)))) == split


def test_logs_ahead_end_at_sixteen_or_behind_a_mebibyte() -> None:
    ahead: LogsAhead | tuple[tuple[str, int, int], ...] = (END_OF_LOG,)
    for at in reversed(range(20)):
        ahead = LogsAhead(f"{at}.log", 100 if at < 18 else 1 << 20, at + 1, ahead)
    assert isinstance(ahead, LogsAhead)

    assert [log for log, _, _ in ahead] == [f"{at}.log" for at in range(16)]
    assert [log for log, _, _ in LogsAhead("a.log", 1 << 20, 1, ahead)] == ["a.log"]
    assert tuple(LogsAhead("a.log", 1 << 20, 1, (END_OF_LOG,))) == (("a.log", 1 << 20, 1), END_OF_LOG)
    assert pickle.loads(pickle.dumps(ahead)) == ahead == tuple(ahead)
