"""The four cases of an offset out of range (KIP-392)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segreader.broker.rules.fetch_errors import (
    OutOfRange,
    judge,
)
from segreader.broker.rules.truncation import FetchPosition


def test_case_1_an_offset_at_the_end_is_in_range_and_just_has_no_records_yet() -> None:
    assert judge(FetchPosition(100, 5), earliest=0, latest=100).reason is OutOfRange.IN_RANGE


@pytest.mark.parametrize("offset", [101, 10_000])
def test_cases_2_and_4_beyond_the_end_a_position_with_an_epoch_is_validated(offset: int) -> None:
    assert judge(FetchPosition(offset, 5), earliest=0, latest=100).reason is OutOfRange.VALIDATE


def test_cases_2_and_4_beyond_the_end_a_position_without_an_epoch_is_beyond_the_end() -> None:
    assert judge(FetchPosition(101), earliest=0, latest=100).reason is OutOfRange.BEYOND_END


@pytest.mark.parametrize("epoch", [-1, 5])
def test_case_3_below_the_log_start_the_records_are_gone(epoch: int) -> None:
    assert judge(FetchPosition(9, epoch), earliest=10, latest=100).reason is OutOfRange.GONE


def test_a_log_that_moved_between_the_two_answers_is_asked_again() -> None:
    verdict = judge(FetchPosition(10), earliest=10, latest=100)

    assert verdict.reason is OutOfRange.IN_RANGE
    assert verdict.position == FetchPosition(10)


def test_a_bounded_read_raises_below_the_start_and_names_what_is_left() -> None:
    error = judge(FetchPosition(9, 5), earliest=10, latest=100).error("b1:9092 t-0")

    assert (error.offset, error.source, error.found) == (9, "b1:9092 t-0", "offsets 10 <= offset < 100")
    assert "no longer in the log" in str(error)


def test_a_bounded_read_raises_beyond_the_end() -> None:
    assert "beyond the end" in str(judge(FetchPosition(101), earliest=10, latest=100).error())


@given(st.integers(0, 100), st.integers(-1, 5), st.integers(0, 100), st.integers(0, 100))
def test_an_offset_is_refused_only_outside_of_the_bounds(offset: int, epoch: int, one: int, two: int) -> None:
    verdict = judge(FetchPosition(offset, epoch), earliest=min(one, two), latest=max(one, two))

    assert (verdict.reason is OutOfRange.IN_RANGE) == (min(one, two) <= offset <= max(one, two))
    assert (verdict.reason is OutOfRange.GONE) == (offset < min(one, two))
    assert (verdict.reason is OutOfRange.VALIDATE) == (offset > max(one, two) and epoch >= 0)
