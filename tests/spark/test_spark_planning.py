from __future__ import annotations

import os
import pickle
import re
import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from corpus import CORPUS, case

from segreader.errors import (
    AmbiguousTopicError,
    ObjectNotFoundError,
    OffsetOutOfRangeError,
    OptionError,
)
from segreader.plan.split import EndReason, ReadPlan
from segreader.ranges import OffsetRange
from segreader.spark import planning
from segreader.spark.option_values import EARLIEST
from segreader.spark.options import parse_options
from segreader.spark.planning import plan_splits
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import write_local_tiered

REMOTE = str(CORPUS / "tv2" / "remote")


def plan(location: str | Path = REMOTE, **options: str) -> ReadPlan:
    return plan_splits(parse_options({"location": str(location)} | options)).plan


def partitions(plan: ReadPlan) -> list[str]:
    return [str(partition) for partition in plan.partitions]


def test_a_topic_is_read_with_all_its_partitions() -> None:
    assert partitions(plan(subscribe="multi")) == ["multi-0", "multi-1", "multi-2", "multi-3"]


def test_a_pattern_may_match_anywhere_in_a_name() -> None:
    assert partitions(plan(subscribePattern="c-(lz4|zs)")) == ["codec-lz4-0", "codec-zstd-0"]
    assert partitions(plan(subscribePattern="^codec-(lz4|zs)$")) == ["codec-lz4-0"]


def test_assigned_partitions_are_read_alone() -> None:
    assert partitions(plan(assign='{"multi":[3,1],"nulls":[0]}')) == ["multi-1", "multi-3", "nulls-0"]


def test_a_pattern_may_pass_over_a_topic_that_cannot_be_read() -> None:
    chosen = plan(subscribePattern="^re.*(?<!recreated)$")
    assert partitions(chosen) == ["retention-0"]


def test_a_name_with_two_ids_is_an_error_that_names_both() -> None:
    with pytest.raises(AmbiguousTopicError, match=r"found \S{22} and \S{22}\. Choose one with topicId"):
        plan(subscribe="recreated")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": "nope"}, "topic 'nope' is not here; found codec-gzip"),
        ({"subscribe": "mutli"}, "and 25 more. Did you mean multi?"),
        ({"subscribePattern": "nope.*"}, "no topic matches 'nope.*'"),
        ({"assign": '{"multi":[0,4]}'}, "partition 4 of multi is not here; found partitions 0-3"),
    ],
)
def test_what_is_not_there_is_named(options: dict[str, str], message: str) -> None:
    with pytest.raises(ObjectNotFoundError, match=message):
        plan(**options)


def test_a_location_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ObjectNotFoundError, match="gone"):
        plan(tmp_path / "gone", subscribe="a")


def test_each_partition_is_read_within_its_own_offsets() -> None:
    chosen = plan(
        assign='{"multi":[0,1]}',
        startingOffsets='{"multi":{"0":100,"1":-2}}',
        endingOffsets='{"multi":{"0":200,"1":-1}}',
    )
    by_partition = {n: [s.offsets for s in chosen.splits if s.partition.partition == n] for n in (0, 1)}

    assert by_partition[0] == [OffsetRange(100, 200)]
    assert by_partition[1][0].start == 0
    assert by_partition[1][-1].stop == chosen.ends[1].offset
    assert chosen.size < plan(assign='{"multi":[0,1]}').size


def test_offsets_must_name_every_partition_that_is_read() -> None:
    with pytest.raises(OptionError, match="it lacks multi-1, multi-2, multi-3"):
        plan(subscribe="multi", startingOffsets='{"multi":{"0":1}}')
    with pytest.raises(OptionError, match="partitions that are not read: nulls-7"):
        plan(subscribe="nulls", startingOffsets='{"nulls":{"0":1,"7":1}}')


def test_partitions_that_starting_offsets_lacks_are_read_from_the_earliest_where_that_is_the_default() -> None:
    starts = {"startingOffsets": '{"multi":{"2":100}}', "startingOffsetsDefault": "earliest"}
    chosen = plan(subscribe="multi", **starts)
    first = {n: min(s.offsets.start for s in chosen.splits if s.partition.partition == n) for n in range(4)}

    assert first == {0: 0, 1: 0, 2: 100, 3: 0}
    with pytest.raises(
        OptionError, match=r"it lacks multi-0, multi-1, multi-3\. startingOffsetsDefault=earliest reads"
    ):
        plan(subscribe="multi", startingOffsets='{"multi":{"2":100}}')
    with pytest.raises(OptionError, match="partitions that are not read: multi-7"):
        plan(subscribe="multi", **starts | {"startingOffsets": '{"multi":{"7":1}}'})


@pytest.mark.parametrize("chosen", [{"subscribe": "multi"}, {"assign": '{"multi":[0,7]}'}])
def test_a_job_that_goes_on_passes_over_partitions_of_which_no_segment_is_left(chosen: dict[str, str]) -> None:
    options = parse_options({"location": REMOTE, **chosen})
    starts = {"multi": {0: 100, 7: 300}}
    going_on = replace(options, starting_offsets=starts, starting_offsets_default=EARLIEST, skips_unknown=True)
    found = plan_splits(going_on).plan

    assert "multi-7: no segment is left; nothing is read" in found.notes
    assert min(split.offsets.start for split in found.splits if split.partition.partition == 0) == 100
    with pytest.raises((OptionError, ObjectNotFoundError), match=r"multi-7|partition 7 of multi"):
        plan_splits(replace(going_on, skips_unknown=False))


def test_a_start_that_retention_removed_is_an_error() -> None:
    with pytest.raises(OffsetOutOfRangeError, match="startingOffsets of retention-0 is before the first segment"):
        plan(subscribe="retention", startingOffsets='{"retention":{"0":1}}')
    assert plan(subscribe="retention", startingOffsets='{"retention":{"0":-2}}').splits


def test_an_end_before_the_first_segment_is_an_error() -> None:
    with pytest.raises(OptionError, match="endingOffsets of retention-0 is before its start"):
        plan(subscribe="retention", endingOffsets='{"retention":{"0":1}}')


def test_a_topic_is_read_up_to_its_last_stable_offset_as_a_consumer_would() -> None:
    ends = {end.partition.topic: end for end in plan(subscribe="txn-marker-active,nulls").ends}
    lso = case("tv2", "txn-marker-active").offline_lso(0)
    assert (ends["txn-marker-active"].offset, ends["txn-marker-active"].reason) == (lso, EndReason.OPEN_TRANSACTION)
    assert not ends["nulls"].reason.is_early
    bounded = plan(subscribe="txn-marker-active", endingOffsets=f'{{"txn-marker-active":{{"0":{lso}}}}}')
    assert not bounded.ends[0].reason.is_early
    assert not plan(subscribe="txn-marker-active", isolationLevel="read_uncommitted").ends[0].reason.is_early


def uploaded(root: Path, days: list[int], *, partitions: int = 1) -> None:
    """A segment of each partition for each day after 2026-01-01, uploaded at noon."""
    for partition in range(partitions):
        builder = None
        for day in days:
            builder = (SegmentBuilder() if builder is None else builder.roll()).batch([b"v"] * 100)
            directory = write_local_tiered(root, "orders", [builder], partition=partition)
            for path in directory.iterdir():
                if path.name.startswith(f"{builder.base_offset:020}"):
                    time_s = datetime(2026, 1, 1, 12, tzinfo=UTC).timestamp() + day * 86_400
                    os.utime(path, (time_s, time_s))


def advice(root: Path, **options: str) -> str | None:
    return plan_splits(parse_options({"location": str(root), "subscribe": "orders"} | options)).advice


def test_a_plan_without_bounds_says_what_a_start_would_spare(tmp_path: Path) -> None:
    uploaded(tmp_path, [0, 30, 60, 90, 92], partitions=2)
    text = advice(tmp_path)

    assert text is not None
    assert re.fullmatch(
        r"reads all 2 partitions, \S+ \S+, uploaded 2026-01-01 to 2026-04-03; startingTimestamp=2026-03-27T00:00:00Z "
        r"would read about \S+ \S+",
        text,
    )
    assert "1 partition," in (advice(tmp_path, subscribe="", assign='{"orders":[1]}') or "")


@pytest.mark.parametrize(
    "options",
    [
        {"startingTimestamp": "-1d", "startingOffsetsByTimestampStrategy": "latest"},
        {"endingTimestamp": "-1d"},
        {"startingOffsets": '{"orders":{"0":5}}'},
        {"endingOffsets": '{"orders":{"0":5}}'},
    ],
)
def test_a_plan_with_a_bound_says_nothing_of_that(tmp_path: Path, options: dict[str, str]) -> None:
    uploaded(tmp_path, [0, 30, 60, 90])

    assert advice(tmp_path, **options) is None


@pytest.mark.parametrize("days", [[0], [90, 90, 90], [0, 92, 92, 92]])
def test_a_plan_says_nothing_where_no_start_spares_half(tmp_path: Path, days: list[int]) -> None:
    uploaded(tmp_path, days)

    assert advice(tmp_path) is None


def test_with_largest_timestamps_of_segments_it_goes_by_records(tmp_path: Path) -> None:
    uploaded(tmp_path, [0, 30, 60, 90, 92])
    found = plan_splits(parse_options({"location": str(tmp_path), "subscribe": "orders"}))
    day_ms = 86_400_000
    (log,) = found.logs.values()
    parts = [
        replace(part, segment=replace(part.segment, max_timestamp_ms=1_704_153_600_000 + at * 100 * day_ms))
        for at, part in enumerate(log.parts)
    ]
    text = planning._advice(found.plan, {log.partition: replace(log, parts=tuple(parts))}, is_whole=True)

    assert text is not None
    assert re.fullmatch(
        r"reads 1 partition, \S+ KiB, 2024-01-02 to 2025-02-05; startingTimestamp=2025-01-29T00:00:00Z would read .*",
        text,
    )


def test_largest_timestamps_that_the_catalogue_knows_count_before_upload_times() -> None:
    recreated = case("tv2", "recreated")
    options = {"subscribe": "recreated", "topicId": "newest", "metadata": str(CORPUS / "tv2" / "metadata")}
    found = plan_splits(parse_options({"location": str(recreated.remote_root), **options}))

    assert all(part.segment.max_timestamp_ms for log in found.logs.values() for part in log.parts)
    assert found.advice is None  # all of it is of one hour


def test_a_split_is_small_and_knows_no_more_than_names_and_numbers() -> None:
    for split in plan(subscribePattern="codec-.*|multi|txn-(span|interleaved)").splits:
        assert len(pickle.dumps(split)) < 2048
        assert REMOTE not in repr(split)


def test_smaller_splits_cut_a_segment_at_batches_and_cover_it() -> None:
    whole = plan(subscribe="small-many")
    pieces = plan(subscribe="small-many", splitBytes="4k")

    assert len(pieces.splits) > len(whole.splits)
    assert pieces.size == whole.size


def test_a_location_may_be_the_directory_of_one_partition(tmp_path: Path) -> None:
    (directory,) = case("tv2", "nulls").remote
    shutil.copytree(directory, tmp_path / directory.name)

    assert partitions(plan(tmp_path / directory.name, subscribe="nulls")) == ["nulls-0"]
