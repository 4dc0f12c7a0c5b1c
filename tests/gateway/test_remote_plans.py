"""How much of a segment the leader has, too: every way in which two histories can part."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import tries

from segreader.broker.messages import EpochEnd
from segreader.gateway.remote.plans import common_stop, epochs_used

LEADERS = {
    "one epoch": [(5, 0)],
    "two": [(5, 0), (7, 150)],
    "later": [(5, 0), (6, 120), (7, 150)],
}


def ends(lineage: list[tuple[int, int]], end: int, asked: list[int]) -> dict[int, EpochEnd]:
    """What a leader with this lineage answers."""
    told = {}
    for epoch in asked:
        known = [index for index, (own, _) in enumerate(lineage) if own <= epoch]
        if epoch > lineage[-1][0] or not known:
            told[epoch] = EpochEnd("t", 0, 0, -1, -1)
            continue
        after = known[-1] + 1
        stop = lineage[after][1] if after < len(lineage) else end
        told[epoch] = EpochEnd("t", 0, 0, lineage[known[-1]][0], stop)
    return told


def epoch_at(lineage: list[tuple[int, int]], offset: int) -> int | None:
    found = [epoch for epoch, start in lineage if start <= offset]
    return found[-1] if found else None


@pytest.mark.parametrize(
    ("epochs", "leader", "first", "stop"),
    [
        ([(5, 100)], "one epoch", 100, 200),
        ([(5, 100)], "one epoch", 199, 200),
        ([(5, 100)], "two", 100, 150),
        ([(5, 100)], "two", 150, 150),
        ([(5, 100), (7, 150)], "two", 100, 200),
        ([(5, 100), (7, 150)], "two", 160, 200),
        ([(5, 100), (7, 160)], "two", 100, 150),
        ([(5, 100), (7, 140)], "two", 100, 140),
        ([(5, 100), (6, 150)], "two", 100, 150),
        ([(5, 100), (6, 150)], "two", 150, 150),
        ([(5, 100), (8, 150)], "two", 100, 150),
        ([(4, 100)], "one epoch", 100, 100),
        ([(5, 100), (6, 120), (7, 150)], "later", 100, 200),
        ([(5, 100), (7, 150)], "later", 100, 120),
        ([(5, 120)], "one epoch", 100, 100),
        ([], "one epoch", 100, 100),
    ],
)
def test_the_common_part_ends_where_the_histories_part(
    epochs: list[tuple[int, int]], leader: str, first: int, stop: int
) -> None:
    told = ends(LEADERS[leader], 300, [epoch for epoch, _ in epochs])
    assert common_stop(epochs, first, 199, told) == stop


def test_an_epoch_that_was_not_told_or_is_an_error_is_not_common() -> None:
    assert common_stop([(5, 100)], 100, 199, {}) == 100
    assert common_stop([(5, 100)], 100, 199, {5: EpochEnd("t", 0, 6)}) == 100


def test_only_epochs_from_the_first_offset_on_are_asked_for() -> None:
    epochs = [(3, 100), (4, 120), (5, 120), (6, 150)]
    assert epochs_used(epochs, 100, 199) == [(3, 100), (5, 120), (6, 150)]
    assert epochs_used(epochs, 130, 199) == [(5, 120), (6, 150)]
    assert epochs_used(epochs, 130, 140) == [(5, 120)]


@st.composite
def lineages(draw: st.DrawFn) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Two histories that agree up to some offset, and have other epochs from there on."""
    starts = sorted(draw(st.sets(st.integers(1, 60), max_size=5)))
    common = [(2 * number, start) for number, start in enumerate([0, *starts])]
    parting = draw(st.integers(0, len(common)))
    leader, other = common[:], common[: max(parting, 1)]
    start = other[-1][1]
    for number in range(draw(st.integers(0, 3))):
        start = draw(st.integers(start + 1, start + 20))
        other.append((2 * (len(other) + number) + 1 + 2 * len(common), start))
    return leader, other


@settings(deadline=None, max_examples=tries(500))
@given(lineages(), st.integers(0, 80), st.integers(0, 80))
def test_no_offset_of_another_epoch_is_ever_called_common(
    both: tuple[list[tuple[int, int]], list[tuple[int, int]]], first: int, more: int
) -> None:
    leader, other = both
    base, last, log_end = 0, first + more, 75
    told = ends(leader, log_end, [epoch for epoch, _ in other])
    stop = common_stop(other, first, last, told)
    assert first <= stop <= last + 1
    for offset in range(max(first, base), stop):
        assert offset < log_end
        assert epoch_at(other, offset) == epoch_at(leader, offset)
    if stop <= last and stop < log_end:
        assert epoch_at(other, stop) != epoch_at(leader, stop)
    if stop > last:  # what is common to the end is so from any later offset on
        assert all(common_stop(other, later, last, told) == last + 1 for later in range(first, last + 1))
