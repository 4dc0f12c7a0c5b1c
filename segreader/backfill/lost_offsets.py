"""Requested offsets that no longer exist, if a job continues without them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class LostOffsets:
    """Offsets ``start <= offset < stop`` of one partition, and why they are not there."""

    start: int
    stop: int
    why: str

    def __post_init__(self) -> None:
        if not self.start < self.stop:
            raise ValueError(f"no offsets are lost: {self.start} to {self.stop}")

    @property
    def text(self) -> str:
        """For people, without the partition."""
        return f"offsets {self.start} to {self.stop - 1} are lost: {self.why}"


def lost_between(stop: int, start: int, known: Iterable[LostOffsets]) -> LostOffsets | None:
    """What is lost of the offsets ``stop <= offset < start`` that lie between two splits, as one range.

    Args:
        known: what is lost of the partition.
    """
    here = sorted(one for one in known if max(stop, one.start) < min(start, one.stop))
    if not here:
        return None
    whys = dict.fromkeys(one.why for one in here)
    return LostOffsets(max(stop, here[0].start), min(start, max(one.stop for one in here)), "; ".join(whys))


def lost_outside(start: int, stop: int, known: Iterable[LostOffsets]) -> list[LostOffsets]:
    """What is lost before ``start`` and from ``stop`` on."""
    sides = [
        side
        for one in known
        for side in ((one.start, min(one.stop, start), one), (max(one.start, stop), one.stop, one))
    ]
    return [LostOffsets(first, after, one.why) for first, after, one in sides if first < after]


def without_lost(ranges: Iterable[tuple[int, int]], lost: Sequence[LostOffsets]) -> list[tuple[int, int]]:
    """Ranges of offsets ``start <= offset < stop`` without those that are lost."""
    left = []
    for start, stop in ranges:
        for one in sorted(lost):
            if start < one.start < stop:
                left.append((start, one.start))
            if one.start < stop and one.stop > start:
                start = max(start, one.stop)
        if start < stop:
            left.append((start, stop))
    return left
