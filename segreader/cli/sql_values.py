"""Values of SQL as JSON has them without loss: JSON as it is, decimals as numbers, intervals as ISO 8601."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

import pyarrow as pa

JSON_MARK: Final = {b"ARROW:extension:name": b"arrow.json"}
"""The metadata of a field whose texts are JSON. Source: Arrow's canonical extension types."""

_US_PER_S: Final = 1_000_000
_S_PER_DAY: Final = 86_400


def is_json(field: pa.Field) -> bool:
    """Whether the texts of a field are JSON."""
    return field.metadata is not None and field.metadata.get(b"ARROW:extension:name") == b"arrow.json"


def json_text(text: str | None) -> Any:
    """A text as JSON, for ``exact_encoder``; as text where it is none after all."""
    import msgspec

    if text is None:
        return None
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return text
    return msgspec.Raw(text.replace("\r", " ").replace("\n", " ").encode())  # within its strings there are none


def exact_encoder() -> Callable[[Any], bytes]:
    """Makes compact JSON in one line, with all digits of decimals, and with what ``json_text`` gave as it is."""
    import msgspec

    return msgspec.json.Encoder(decimal_format="number").encode


def iso_interval(months: int, days: int, nanoseconds: int) -> str:
    """A span of time as ISO 8601 has it: ``P1Y2M3DT4H5M6.5S``; each part has its own sign, for they do not add up."""
    years, months = _divided(months, 12)
    seconds, rest = _divided(abs(nanoseconds), 1_000_000_000)
    hours, seconds = divmod(seconds, 3600)
    minutes, seconds = divmod(seconds, 60)
    sign = "-" if nanoseconds < 0 else ""
    date = "".join(f"{number}{unit}" for number, unit in ((years, "Y"), (months, "M"), (days, "D")) if number)
    time = "".join(f"{sign}{number}{unit}" for number, unit in ((hours, "H"), (minutes, "M")) if number)
    if seconds or rest:
        time += f"{sign}{seconds}" + (f".{rest:09d}".rstrip("0") if rest else "") + "S"
    if not date and not time:
        return "PT0S"
    return f"P{date}" + (f"T{time}" if time else "")


def iso_duration(span: timedelta) -> str:
    """The same for a number of days and seconds."""
    whole = (span.days * _S_PER_DAY + span.seconds) * _US_PER_S + span.microseconds
    days, rest = _divided(whole, _S_PER_DAY * _US_PER_S)
    return iso_interval(0, days, rest * 1000)


def _divided(number: int, by: int) -> tuple[int, int]:
    """Quotient and rest, both with the sign of the number."""
    quotient, rest = divmod(abs(number), by)
    return (-quotient, -rest) if number < 0 else (quotient, rest)
