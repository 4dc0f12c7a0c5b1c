"""Which offsets of live partitions are wanted, as people say it: numbers, names of ends, times, a group's offsets."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from segreader.errors import OptionError
from segreader.ranges import OffsetRange
from segreader.read.times import TimeRange


class LiveEnd(StrEnum):
    """Where a read without a last offset ends."""

    LATEST = "latest"
    LATEST_STABLE = "latest-stable"


@dataclass(frozen=True, slots=True)
class LiveBounds:
    """The bounds asked for, the same for every partition.

    Args:
        start: the first offset; ``None`` for the first there is.
        stop: the first one not wanted; ``None`` for ``end``.
        end: ``latest``: what the isolation level lets a reader see; ``latest-stable``: the last stable offset in both.
        times: within these times besides.
        group: the consumer group whose committed offsets are the start.
    """

    start: int | None = None
    stop: int | None = None
    end: LiveEnd = LiveEnd.LATEST
    times: TimeRange | None = None
    group: str | None = None

    def __post_init__(self) -> None:
        if self.group is not None and self.start is not None:
            raise OptionError(
                "a first offset and a group both say where to begin", hint="Leave one out: offsets=':B' with a group"
            )
        if self.group == "":
            raise OptionError("the name of the group is empty")


_TEXT = re.compile(r"(\d*|earliest):(\d*|latest|latest-stable)")


def parse_live_bounds(
    offsets: OffsetRange | tuple[int | None, int | None] | str | None,
    times: TimeRange | None = None,
    group: str | None = None,
) -> LiveBounds:
    """Bounds from ``A:B``, where A may be ``earliest`` and B ``latest`` or ``latest-stable``, a pair, or a range.

    Raises:
        OptionError: it is none of these.
    """
    if offsets is None:
        return LiveBounds(times=times, group=group)
    start: int | None
    stop: int | None
    end = LiveEnd.LATEST
    try:
        if isinstance(offsets, str):
            if (match := _TEXT.fullmatch(offsets.strip())) is None:
                raise ValueError(offsets)
            first, last = match[1], match[2]
            start = int(first) if first.isdecimal() else None
            stop = int(last) if last.isdecimal() else None
            end = LiveEnd(last) if last in (*LiveEnd,) else end
        elif isinstance(offsets, OffsetRange):
            start, stop = offsets.start, offsets.stop
        else:
            start, stop = offsets
        OffsetRange(start or 0, stop)
    except (ValueError, TypeError, IndexError) as error:
        raise OptionError(
            "not a range of offsets",
            found=repr(offsets),
            expected="A:B with 0 <= A <= B; B is exclusive, and may be latest or latest-stable",
        ) from error
    return LiveBounds(start, stop, end, times, group)
