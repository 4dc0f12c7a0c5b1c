"""From times to offsets: the first record that is not older, as a broker answers ``ListOffsets``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from segreader.errors import OptionError

Time = int | str | datetime | None

_AGO = re.compile(r"-(\d{1,9})([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


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
