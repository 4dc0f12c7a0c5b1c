from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segreader.backfill.job_splits import LostOffsets, lost_between, lost_outside, without_lost

RANGES = st.tuples(st.integers(0, 30), st.integers(1, 9)).map(lambda one: (one[0], one[0] + one[1]))
LOSSES = st.lists(RANGES.map(lambda one: LostOffsets(*one, "gone")), max_size=4)


def offsets_of(ranges: list[tuple[int, int]]) -> set[int]:
    return {offset for start, stop in ranges for offset in range(start, stop)}


def spans(lost: list[LostOffsets]) -> list[tuple[int, int]]:
    return [(one.start, one.stop) for one in lost]


@given(st.lists(RANGES, max_size=4), LOSSES)
def test_ranges_without_what_is_lost_hold_the_rest(ranges: list[tuple[int, int]], lost: list[LostOffsets]) -> None:
    left = without_lost(ranges, lost)
    assert offsets_of(left) == offsets_of(ranges) - offsets_of(spans(lost))
    assert all(start < stop for start, stop in left)


@given(st.integers(0, 20), st.integers(0, 20), LOSSES)
def test_what_is_lost_is_told_beside_a_range_or_within_it(start: int, size: int, lost: list[LostOffsets]) -> None:
    stop = start + size
    beside = offsets_of(spans(lost_outside(start, stop, lost)))
    assert beside == offsets_of(spans(lost)) - set(range(start, stop))

    between = lost_between(start, stop, lost)
    within = offsets_of(spans(lost)) & set(range(start, stop))
    assert (between is None) == (not within)
    if between is not None:
        assert within <= set(range(between.start, between.stop)) <= set(range(start, stop))
        assert {between.start, between.stop - 1} <= within


def test_no_offset_is_no_loss() -> None:
    with pytest.raises(ValueError, match="no offsets are lost"):
        LostOffsets(3, 3, "gone")
