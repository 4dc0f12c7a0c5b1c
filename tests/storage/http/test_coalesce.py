from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segreader.ranges import ByteRange
from segreader.storage.http.store import Fetch, coalesce, cut

ranges = st.builds(lambda start, size: ByteRange(start, start + size), st.integers(0, 500), st.integers(1, 60))


def test_ranges_as_far_apart_as_the_gap_are_one_request() -> None:
    wanted = [ByteRange(0, 10), ByteRange(15, 20)]

    assert coalesce(wanted, max_gap=5, max_size=100) == [Fetch(ByteRange(0, 20), (0, 1))]
    assert [fetch.span for fetch in coalesce(wanted, max_gap=4, max_size=100)] == wanted


def test_joining_stops_at_the_size() -> None:
    wanted = [ByteRange(0, 10), ByteRange(10, 20), ByteRange(20, 30)]

    assert [fetch.span for fetch in coalesce(wanted, max_gap=0, max_size=20)] == [ByteRange(0, 20), ByteRange(20, 30)]


def test_a_range_larger_than_the_size_stays_whole() -> None:
    assert coalesce([ByteRange(0, 50)], max_gap=0, max_size=20) == [Fetch(ByteRange(0, 50), (0,))]


def test_answers_name_the_ranges_as_they_were_given() -> None:
    wanted = [ByteRange(90, 99), ByteRange(0, 5), ByteRange(92, 95), ByteRange(0, 5)]

    assert coalesce(wanted, max_gap=0, max_size=100) == [
        Fetch(ByteRange(0, 5), (1, 3)),
        Fetch(ByteRange(90, 99), (0, 2)),
    ]


def test_nothing_wanted_is_no_request() -> None:
    assert coalesce([], max_gap=0, max_size=1) == []


@pytest.mark.parametrize(("max_gap", "max_size"), [(-1, 10), (0, 0)])
def test_limits_that_mean_nothing_are_refused(max_gap: int, max_size: int) -> None:
    with pytest.raises(ValueError, match="max_"):
        coalesce([], max_gap=max_gap, max_size=max_size)


@given(st.lists(ranges, max_size=12), st.integers(0, 40), st.integers(1, 200))
def test_each_wanted_byte_is_fetched_and_nothing_beyond_gap_and_size(
    wanted: list[ByteRange], max_gap: int, max_size: int
) -> None:
    fetches = coalesce(wanted, max_gap=max_gap, max_size=max_size)

    assert sorted(index for fetch in fetches for index in fetch.answers) == list(range(len(wanted)))
    assert [fetch.span for fetch in fetches] == sorted(fetch.span for fetch in fetches)
    for fetch in fetches:
        parts = [wanted[index] for index in fetch.answers]
        assert fetch.span == ByteRange(min(p.start for p in parts), max(p.stop for p in parts))
        assert fetch.span.size <= max_size or any(part.size == fetch.span.size for part in parts)
        reached = fetch.span.start
        for part in sorted(parts):
            assert part.start - reached <= max_gap
            reached = max(reached, part.stop)


@given(ranges, st.integers(1, 70))
def test_cut_parts_follow_each_other_and_only_the_last_is_short(wanted: ByteRange, size: int) -> None:
    parts = cut(wanted, size)

    assert (parts[0].start, parts[-1].stop) == (wanted.start, wanted.stop)
    assert all(part.stop == following.start for part, following in pairwise(parts))
    assert {part.size for part in parts[:-1]} <= {size}
    assert parts[-1].size <= size
