"""The four cases of an offset out of range, and what a caller may want then (KIP-392)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segreader.broker.rules.fetch_errors import (
    OutOfRange,
    RangeVerdict,
    WhenOutOfRange,
    judge,
)
from segreader.broker.rules.truncation import FetchPosition
from segreader.errors import OffsetOutOfRangeError


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
    assert verdict.go_on_at(WhenOutOfRange.RAISE) == FetchPosition(10)


def gone() -> RangeVerdict:
    return judge(FetchPosition(9, 5), earliest=10, latest=100)


def beyond() -> RangeVerdict:
    return judge(FetchPosition(101), earliest=10, latest=100)


def test_a_bounded_read_raises_below_the_start_and_names_what_is_left() -> None:
    with pytest.raises(OffsetOutOfRangeError, match="10 <= offset < 100") as caught:
        gone().go_on_at(WhenOutOfRange.RAISE, source="b1:9092 t-0")

    assert (caught.value.offset, caught.value.source) == (9, "b1:9092 t-0")


@pytest.mark.parametrize("wish", [WhenOutOfRange.RAISE, WhenOutOfRange.START_AT_WHAT_IS_LEFT])
def test_a_bounded_read_raises_beyond_the_end_also_if_it_may_start_at_what_is_left(wish: WhenOutOfRange) -> None:
    with pytest.raises(OffsetOutOfRangeError, match="beyond the end"):
        beyond().go_on_at(wish)


def test_a_read_that_may_start_at_what_is_left_goes_on_at_the_log_start() -> None:
    assert gone().go_on_at(WhenOutOfRange.START_AT_WHAT_IS_LEFT) == FetchPosition(10)


@pytest.mark.parametrize("verdict", [gone(), beyond()])
def test_a_tailing_reader_goes_where_it_was_told_to(verdict: RangeVerdict) -> None:
    assert verdict.go_on_at(WhenOutOfRange.EARLIEST) == FetchPosition(10)
    assert verdict.go_on_at(WhenOutOfRange.LATEST) == FetchPosition(100)


@pytest.mark.parametrize("wish", list(WhenOutOfRange))
def test_no_wish_skips_the_validation_of_a_position_beyond_the_end(wish: WhenOutOfRange) -> None:
    position = FetchPosition(101, 5)

    assert judge(position, earliest=10, latest=100).go_on_at(wish) == position


@given(
    st.integers(0, 100), st.integers(-1, 5), st.integers(0, 100), st.integers(0, 100), st.sampled_from(WhenOutOfRange)
)
def test_a_read_goes_on_within_the_bounds_or_raises(
    offset: int, epoch: int, one: int, two: int, wish: WhenOutOfRange
) -> None:
    verdict = judge(FetchPosition(offset, epoch), earliest=min(one, two), latest=max(one, two))
    try:
        position = verdict.go_on_at(wish)
    except OffsetOutOfRangeError:
        assert verdict.reason in (OutOfRange.GONE, OutOfRange.BEYOND_END)
        return
    assert min(one, two) <= position.offset <= max(one, two) or verdict.reason is OutOfRange.VALIDATE
