"""Requests as values: which records of which partitions, and the policy for damage and gaps.

How they are read, apart from which, is in ``ReadOptions``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Self

from segreader.errors import OptionError
from segreader.isolation import IsolationLevel
from segreader.ranges import OffsetRange

Time = int | str | datetime | None

_AGO = re.compile(r"-(\d{1,9})([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_BOUNDS = re.compile(r"(\d*|earliest):(\d*|latest|latest-stable)")


class Policy(StrEnum):
    """What to do at damage, at a gap, or where a segment vanished: raise, or continue without it."""

    FAIL = "fail"
    SKIP = "skip"

    @classmethod
    def parse(cls, name: str, word: str) -> Self:
        """The policy of this word.

        Args:
            name: the option, for the message.

        Raises:
            OptionError: it is another word.
        """
        try:
            return cls(word)
        except ValueError:
            raise OptionError(f"unknown {name}", found=word, expected="fail or skip") from None


@dataclass(frozen=True, slots=True)
class TimeRange:
    """Times ``since_ms <= time < until_ms``; either may be open."""

    since_ms: int | None = None
    until_ms: int | None = None


def parse_time_range(since: Time, until: Time, now: datetime | None = None) -> TimeRange | None:
    """The times asked for, ``None`` if neither is.

    Raises:
        OptionError: one is no time, or they are the wrong way round.
    """
    if since is None and until is None:
        return None
    now = now or datetime.now(UTC)
    times = TimeRange(parse_time(since, now), parse_time(until, now))
    if times.since_ms is not None and times.until_ms is not None and times.since_ms > times.until_ms:
        raise OptionError("since is after until", found=f"{since} and {until}")
    return times


def parse_time(value: Time, now: datetime) -> int | None:
    """A time in ms: a ``datetime``, ms since 1970, ``2026-11-01T00:00Z``, or ``-90m`` before ``now`` (s m h d w).

    Raises:
        OptionError: it is none of these, or a clock time without a time zone.
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | str | datetime):
        raise _no_time(value)
    if isinstance(value, int):
        return value
    if isinstance(value, str):
        if re.fullmatch(r"\d{1,18}", value):
            return int(value)
        if value == "now":
            return _milliseconds(now)
        if match := _AGO.fullmatch(value):
            try:
                return _milliseconds(now - timedelta(**{_UNITS[match[2]]: int(match[1])}))
            except OverflowError:
                raise _no_time(value) from None
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise _no_time(value) from None
    if value.tzinfo is None:
        raise OptionError(
            "a time without a time zone", found=value.isoformat(), hint=f"Write {value.isoformat()}Z for UTC"
        )
    return _milliseconds(value)


def _milliseconds(value: datetime) -> int:
    return (value - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def _no_time(value: object) -> OptionError:
    return OptionError(
        "not a time", found=repr(value), expected="2026-11-01T00:00Z, -1h (s m h d w), now, or ms since 1970 UTC"
    )


class LiveEnd(StrEnum):
    """Where a read without a last offset ends."""

    LATEST = "latest"
    LATEST_STABLE = "latest-stable"


@dataclass(frozen=True, slots=True)
class Bounds:
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


def parse_bounds(
    offsets: OffsetRange | tuple[int | None, int | None] | str | None,
    times: TimeRange | None = None,
    group: str | None = None,
) -> Bounds:
    """Bounds from ``A:B``, where A may be ``earliest`` and B ``latest`` or ``latest-stable``, a pair, or a range.

    Raises:
        OptionError: it is none of these.
    """
    if offsets is None:
        return Bounds(times=times, group=group)
    start: int | None
    stop: int | None
    end = LiveEnd.LATEST
    try:
        if isinstance(offsets, str):
            if (match := _BOUNDS.fullmatch(offsets.strip())) is None:
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
    return Bounds(start, stop, end, times, group)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Which records are asked for.

    Args:
        topic: its name; every topic by default, but of a cluster, which is asked for one.
        topic_id: which topic of that name, or ``newest``. A cluster refuses another than its own.
        partitions: which; all by default.
        prefers_store: take what both tiers have from the object store.
    """

    topic: str | None = None
    topic_id: str | None = None
    partitions: tuple[int, ...] | None = None
    bounds: Bounds = field(default_factory=Bounds)
    isolation_level: IsolationLevel = IsolationLevel.READ_COMMITTED
    prefers_store: bool = False
