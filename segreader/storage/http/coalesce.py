"""Which requests answer a list of ranges. Decides on sizes alone; fetches nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from segreader.ranges import ByteRange


@dataclass(frozen=True, slots=True)
class Fetch:
    """One request, and which of the wanted ranges it answers (indexes into the input)."""

    span: ByteRange
    answers: tuple[int, ...]


def coalesce(wanted: Sequence[ByteRange], *, max_gap: int, max_size: int) -> list[Fetch]:
    """Join ranges that are close together. Pure: it decides, it does not fetch.

    Args:
        wanted: ranges of one object, in any order; they may overlap or repeat.
        max_gap: unwanted bytes to fetch rather than send a second request; 0 joins only ranges that touch.
        max_size: bytes of a request that joining does not pass. A wanted range is never cut: one that is larger
            is a request of its own.

    Returns:
        requests in order of position; every index of the input is in exactly one of them.
    """
    if max_gap < 0 or max_size < 1:
        raise ValueError(f"max_gap={max_gap} max_size={max_size}")
    fetches: list[Fetch] = []
    start = stop = 0
    answers: list[int] = []
    for index in sorted(range(len(wanted)), key=wanted.__getitem__):
        following = wanted[index]
        joined = max(stop, following.stop)
        if answers and following.start - stop <= max_gap and (joined == stop or joined - start <= max_size):
            stop = joined
            answers.append(index)
            continue
        if answers:
            fetches.append(Fetch(ByteRange(start, stop), tuple(answers)))
        start, stop, answers = following.start, following.stop, [index]
    if answers:
        fetches.append(Fetch(ByteRange(start, stop), tuple(answers)))
    return fetches


def cut(wanted: ByteRange, size: int) -> list[ByteRange]:
    """The range as consecutive parts of ``size`` bytes; the last one may be shorter."""
    return [ByteRange(start, min(start + size, wanted.stop)) for start in range(wanted.start, wanted.stop, size)]
