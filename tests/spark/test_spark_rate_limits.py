"""The arithmetic of section "Admission control", held against the formulas of Spark's kafka source."""

from __future__ import annotations

import math
import random

import pytest

from segreader.plan.log import Piece
from segreader.spark.rate_limits import TriggerDelay, count_backlog, take_bytes, take_rows

A, B, C = ("orders", 0), ("orders", 1), ("orders", 2)


def kafka_share(limit: int, backlog: int, total: int) -> int:
    """``KafkaMicroBatchStream.rateLimit``, with its floating point."""
    share = limit * (backlog / total)
    return math.ceil(share) if share < 1 else math.floor(share)


def test_rows_are_shared_in_proportion_to_the_backlog() -> None:
    starts = {A: 0, B: 100, C: 5}

    assert take_rows(starts, {A: 600, B: 400, C: 105}, 100) == {A: 60, B: 130, C: 15}


def test_rows_are_shared_as_the_kafka_source_does_it() -> None:
    random.seed(6)
    for _ in range(300):
        starts = {name: random.randrange(1000) for name in (A, B, C)}
        ends = {name: start + random.choice([0, 1, 7, 1000, 12345]) for name, start in starts.items()}
        limit = random.choice([1, 2, 10, 999, 10**6])
        backlogs = {name: ends[name] - starts[name] for name in starts}
        expected = {
            name: min(ends[name], starts[name] + kafka_share(limit, backlogs[name], sum(backlogs.values())))
            if backlogs[name]
            else ends[name]
            for name in starts
        }

        assert take_rows(starts, ends, limit) == expected


def test_a_small_backlog_does_not_starve_beside_a_large_one() -> None:
    assert take_rows({A: 0, B: 0}, {A: 10**12, B: 1}, 10) == {A: 9, B: 1}


def test_a_share_is_exact_where_floating_point_is_not() -> None:
    assert take_rows({A: 0}, {A: 2**62}, 2**62 - 1) == {A: 2**62 - 1}


def test_nothing_to_read_is_the_end_itself() -> None:
    assert take_rows({A: 7}, {A: 7}, 10) == {A: 7}
    assert take_bytes({A: 7}, {A: 7}, {}, 10) == {A: 7}


def test_bytes_are_taken_a_segment_of_each_partition_in_turn() -> None:
    starts, ends = {A: 0, B: 0}, {A: 30, B: 20}
    backlogs = {A: [Piece(10, 100), Piece(20, 100), Piece(30, 100)], B: [Piece(10, 100), Piece(20, 100)]}

    assert take_bytes(starts, ends, backlogs, 250) == {A: 20, B: 10}
    assert take_bytes(starts, ends, backlogs, 200) == {A: 10, B: 10}
    assert take_bytes(starts, ends, backlogs, 10**6) == ends


def test_one_segment_is_always_taken_of_the_partition_that_is_furthest_behind() -> None:
    starts, ends = {A: 0, B: 0}, {A: 10, B: 20}
    backlogs = {A: [Piece(10, 1000)], B: [Piece(10, 1000), Piece(20, 1000)]}

    assert take_bytes(starts, ends, backlogs, 1) == {A: 0, B: 10}


def test_a_limit_below_a_segment_reads_every_partition_to_its_end() -> None:
    starts, ends = {A: 0, B: 0}, {A: 40, B: 20}
    triggers = 0
    while starts != ends:
        backlogs = {
            name: [Piece(stop, 1000) for stop in range(start + 10, ends[name] + 1, 10)]
            for name, start in starts.items()
            if start < ends[name]
        }
        starts = take_bytes(starts, ends, backlogs, 1)
        triggers += 1

    assert triggers == 6


def test_a_segment_that_reaches_beyond_the_stable_end_is_taken_up_to_it() -> None:
    assert take_bytes({A: 0}, {A: 15}, {A: [Piece(10, 100), Piece(20, 100)]}, 10**6) == {A: 15}


def test_the_backlog_counts_no_partition_twice_and_none_below_zero() -> None:
    assert count_backlog({A: 5, B: 9}, {A: 10, B: 3, C: 4}) == 5


@pytest.mark.parametrize(("backlog", "now_ms", "waits"), [(9, 100, True), (10, 100, False), (9, 1000, False)])
def test_a_trigger_waits_for_enough_offsets_but_not_for_ever(backlog: int, now_ms: int, waits: bool) -> None:
    delay = TriggerDelay(min_offsets=10, max_delay_ms=1000)
    assert not delay.holds_back(1, 0)  # the first one

    assert delay.holds_back(backlog, now_ms) is waits


def test_the_delay_counts_from_the_last_trigger_that_read_something() -> None:
    delay = TriggerDelay(min_offsets=10, max_delay_ms=1000)
    assert not delay.holds_back(10, 0)
    assert not delay.holds_back(0, 5000)
    assert not delay.holds_back(1, 5001)
    assert delay.holds_back(1, 5002)
