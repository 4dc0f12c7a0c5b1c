"""Where the segments of a partition are drawn: bars along time, or along offsets where times are not known. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Final

from segreader.report.model import ReportedPartition, ReportedSegment, ReportedTopic, SegmentFate
from segreader.values import dataclass

WIDTH: Final = 1000
"""Units across a lane."""

_NARROWEST: Final = 2.0
_APART: Final = 200
"""Places of a lane that a reader can tell apart."""

_UPPER: Final = (SegmentFate.LIVE, SegmentFate.PARTLY_LIVE)


@dataclass(frozen=True, slots=True)
class Bar:
    """Some neighbouring segments of one fate, drawn as one; ``x`` and ``width`` in units of ``WIDTH``."""

    x: float
    width: float
    fate: SegmentFate
    segments: tuple[ReportedSegment, ...]

    @property
    def is_upper(self) -> bool:
        """Whether its records are read: those that are not are drawn below."""
        return self.fate in _UPPER


@dataclass(frozen=True, slots=True)
class Mark:
    """Something at one place of a lane; ``x`` in units of ``WIDTH``, ``width`` 0 for a point."""

    x: float
    width: float
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Lane:
    """One partition as it is drawn.

    Args:
        marks: all of them, to be told in words.
        drawn: the same, neighbours of one kind as one.
    """

    partition: ReportedPartition
    bars: tuple[Bar, ...]
    marks: tuple[Mark, ...]
    drawn: tuple[Mark, ...]


@dataclass(frozen=True, slots=True)
class Axis:
    """What all lanes of a topic are drawn along: ms where ``is_time``, else offsets."""

    start: int
    stop: int
    is_time: bool

    def x(self, value: float) -> float:
        """Where a value is drawn, within the lane."""
        span = max(1, self.stop - self.start)
        return min(WIDTH, max(0.0, (value - self.start) * WIDTH / span))


def axis_of(topic: ReportedTopic) -> Axis:
    """Time, if every segment that holds something has it and that keeps them apart; offsets otherwise."""
    segments = [one for one in topic.segments() if one.size != 0]
    times = [time for one in segments for time in (one.from_ms, one.until_ms) if time is not None]
    if len(times) == 2 * len(segments) and times and min(times) < max(times):
        axis = Axis(min(times), max(times), is_time=True)
        places = {int(axis.x(one.from_ms or 0) * _APART / WIDTH) for one in segments}
        largest = max(sum(each.size != 0 for each in one.segments) for one in topic.partitions)
        if 2 * len(places) > min(largest, _APART):
            return axis
    starts = [one.first_offset for one in segments]
    stops = [one.first_offset if one.last_offset is None else one.last_offset + 1 for one in segments]
    return Axis(min(starts, default=0), max(stops, default=1), is_time=False)


def lane_of(partition: ReportedPartition, axis: Axis, most: int) -> Lane:
    """The bars and marks of a partition.

    Args:
        most: bars of one fate, and marks of one kind; neighbours are drawn as one to stay below it.
    """
    bars: list[Bar] = []
    for fate in SegmentFate:
        some = [one for one in partition.segments if one.fate is fate and not (axis.is_time and one.from_ms is None)]
        bars += _joined(some, fate, axis, most)
    marks = tuple(_marks(partition, axis))
    return Lane(partition, tuple(bars), marks, tuple(_joined_marks(marks, most)))


def _joined(segments: Sequence[ReportedSegment], fate: SegmentFate, axis: Axis, most: int) -> Iterable[Bar]:
    """One bar for all segments that begin in the same ``most``-th of the lane."""
    placed = sorted(((*_extent(one, axis), one) for one in segments), key=lambda each: (each[0], each[2].first_offset))
    slots: dict[int, list[tuple[float, float, ReportedSegment]]] = {}
    for one in placed:
        slots.setdefault(min(most - 1, int(one[0] * most / WIDTH)), []).append(one)
    for some in slots.values():
        x = some[0][0]
        width = max(_NARROWEST, max(stop for _, stop, _ in some) - x)
        yield Bar(min(x, WIDTH - _NARROWEST), width, fate, tuple(one for _, _, one in some))


def _joined_marks(marks: Sequence[Mark], most: int) -> Iterable[Mark]:
    """One mark for all of a kind that begin in the same ``most``-th of the lane."""
    slots: dict[tuple[str, int], list[Mark]] = {}
    for one in marks:
        slots.setdefault((one.kind, min(most - 1, int(one.x * most / WIDTH))), []).append(one)
    for some in slots.values():
        first, stop = some[0], max(one.x + one.width for one in some)
        text = first.text if len(some) == 1 else f"{len(some):,} of these, the first: {first.text}"
        yield Mark(first.x, stop - first.x, first.kind, text)


def _extent(one: ReportedSegment, axis: Axis) -> tuple[float, float]:
    if axis.is_time:
        start, stop = sorted((one.from_ms or 0, one.until_ms or 0))
    else:
        start = one.first_offset
        stop = start + 1 if one.last_offset is None else one.last_offset + 1
    return axis.x(start), axis.x(stop)


def _marks(partition: ReportedPartition, axis: Axis) -> Iterable[Mark]:
    places = _OffsetPlaces(partition, axis)
    for gap in partition.gaps:
        start, stop = places.x(gap.start), places.x(gap.stop)
        kind = "compacted" if gap.is_compaction else "gap"
        last = gap.stop - 1
        what = f"offset {last:,} is" if gap.start == last else f"offsets {gap.start:,} to {last:,} are"
        yield Mark(start, max(0.0, stop - start), kind, f"{what} in no segment")
    for one in partition.incomplete:
        missing = ", ".join(one.missing)
        base = one.base_offset
        where = "" if base is None else f" at offset {base:,}"
        text = f"an incomplete set of objects{where}: no {missing}"
        yield Mark(0.0 if base is None else places.x(base), 0.0, "incomplete", text)


class _OffsetPlaces:
    """Where offsets of a partition are: along time, where the segments around them end and begin."""

    def __init__(self, partition: ReportedPartition, axis: Axis) -> None:
        self._axis = axis
        self._segments = sorted(
            (one for one in partition.segments if one.fate in _UPPER and one.from_ms is not None),
            key=lambda one: one.first_offset,
        )
        self._starts = [one.first_offset for one in self._segments]

    def x(self, offset: int) -> float:
        """Where one offset is."""
        axis = self._axis
        if not axis.is_time:
            return axis.x(offset)
        number = bisect_right(self._starts, offset)
        if not number:
            return 0.0
        last = self._segments[number - 1]
        begin, end = last.from_ms or axis.start, last.until_ms or axis.stop
        if last.first_offset == offset:
            return axis.x(begin)
        if last.last_offset is None or last.last_offset < offset:
            return axis.x(end)
        share = (offset - last.first_offset) / max(1, last.last_offset - last.first_offset)
        return axis.x(begin + share * (end - begin))


def most_bars(lanes: int, budget: int) -> int:
    """How many bars a lane may have so that all together stay within a budget."""
    return max(8, min(400, budget // max(1, lanes)))


def overlaps_in_words(partition: ReportedPartition) -> list[tuple[str, str]]:
    """Kind and text of what is not read of segments, neighbours of one reason together."""
    told: list[tuple[str, int, int | None, int]] = []
    for one in sorted(partition.overlaps, key=lambda each: (each.reason.value, each.start)):
        if told and told[-1][0] == one.reason.value and told[-1][2] is not None and one.start <= told[-1][2]:
            reason, start, stop, count = told[-1]
            reached = None if one.stop is None else max(stop or 0, one.stop)
            told[-1] = (reason, start, reached, count + 1)
        else:
            told.append((one.reason.value, one.start, one.stop, 1))
    return [(reason, _overlap_text(reason, start, stop, count)) for reason, start, stop, count in told]


_REASONS: Final = {
    "duplicate": "another copy holds these offsets",
    "diverged": "on a branch that an election discarded",
    "below-log-start": "below the log start offset",
}


def _overlap_text(reason: str, start: int, stop: int | None, count: int) -> str:
    up_to = "on" if stop is None else f"to {stop - 1:,}"
    of = "one segment" if count == 1 else f"{count:,} segments"
    return f"offsets {start:,} {up_to} of {of} are not read: {_REASONS[reason]}"


def busiest_first(partitions: Sequence[ReportedPartition]) -> list[ReportedPartition]:
    """Partitions that lack something, then those that have something to say, then the others; each by number."""

    def rank(one: ReportedPartition) -> tuple[bool, bool]:
        is_odd = bool(one.gaps or one.overlaps or one.incomplete or one.orphans)
        return (not one.has_lost, not is_odd)

    return sorted(partitions, key=lambda one: (rank(one), one.partition.partition))
