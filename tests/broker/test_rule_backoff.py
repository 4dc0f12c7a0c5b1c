"""Waits double, spread, stop at their limit, and a deadline ends them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segreader.broker.rules.backoff import (
    HINTED_LEADER,
    LONGEST_THROTTLE_MS,
    REMOTE_READS,
    USUAL,
    Backoff,
    BackoffPolicy,
    Deadline,
)


def even() -> float:
    return 0.5


@pytest.mark.parametrize(
    ("policy", "waits"),
    [
        (USUAL, [100, 200, 400, 800, 1000, 1000]),
        (HINTED_LEADER, [10, 20, 40, 80, 160, 320, 640, 1000, 1000]),
        (REMOTE_READS, [200, 400, 800]),
    ],
)
def test_waits_double_up_to_their_limit(policy: BackoffPolicy, waits: list[int]) -> None:
    backoff = Backoff(even, policy)

    assert [backoff.failed() for _ in waits] == waits


def test_the_wait_before_the_first_repeat_lies_within_a_fifth_of_100_ms() -> None:
    assert USUAL.wait_ms(1, lambda: 0.0) == 80
    assert USUAL.wait_ms(1, lambda: 1.0) == 120


def test_without_a_failure_there_is_no_wait() -> None:
    assert USUAL.wait_ms(0, even) == 0


def test_success_makes_the_next_wait_the_first_again() -> None:
    backoff = Backoff(even)
    for _ in range(5):
        backoff.failed()
    backoff.succeeded()

    assert backoff.failed() == 100


@given(st.integers(0, 10**9), st.floats(0, 1))
def test_no_number_of_failures_makes_a_wait_longer_than_the_limit(failures: int, spread: float) -> None:
    assert 0 <= USUAL.wait_ms(failures, lambda: spread) <= 1000


@pytest.mark.parametrize(("first", "limit", "spread"), [(0, 1, 0.0), (2, 1, 0.0), (1, 1, 1.0), (1, 1, -0.1)])
def test_a_policy_without_sense_is_refused(first: int, limit: int, spread: float) -> None:
    with pytest.raises(ValueError, match="no policy"):
        BackoffPolicy(first, limit, spread)


def test_a_deadline_is_over_at_its_moment_and_has_nothing_left_after_it() -> None:
    deadline = Deadline.after(1_000, 500)

    assert [deadline.left_ms(now) for now in (1_000, 1_499, 1_500, 9_999)] == [500, 1, 0, 0]
    assert [deadline.is_over(now) for now in (1_499, 1_500)] == [False, True]


def test_a_wait_that_reaches_the_deadline_is_not_worth_it() -> None:
    deadline = Deadline.after(0, 100)

    assert deadline.allows(99, 0)
    assert not deadline.allows(100, 0)
    assert not deadline.allows(60, 40)


def test_throttle_time_puts_a_deadline_off_and_counts_once_where_it_overlaps() -> None:
    deadline = Deadline.after(1_000, 500)

    assert deadline.excuse(1_100, 3_100)
    assert deadline.at_ms == 3_500
    assert deadline.excuse(1_200, 3_000)
    assert deadline.excuse(1_200, 3_200)
    assert deadline.at_ms == 3_600
    assert deadline.excuse(9_000, 8_000)
    assert deadline.at_ms == 3_600


def test_more_throttle_time_than_an_operation_waits_for_is_not_added() -> None:
    deadline = Deadline(100)

    assert deadline.excuse(0, LONGEST_THROTTLE_MS - 1)
    assert not deadline.excuse(LONGEST_THROTTLE_MS, LONGEST_THROTTLE_MS + 2)
    assert deadline.at_ms == 100 + LONGEST_THROTTLE_MS - 1


def test_a_part_of_an_operation_ends_with_it_at_the_latest() -> None:
    assert Deadline(100).within(50, 20).at_ms == 70
    assert Deadline(100).within(50, 80).at_ms == 100
