"""The values of options, from the text that Spark hands on: sizes, numbers, times, words and patterns."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping

from segreader.errors import OptionError

MIB = 1 << 20

_SIZE = re.compile(r"(\d+)\s*(?:([kmgt])(?:i?b)?|b)?", re.IGNORECASE)
_DELAY = re.compile(r"(\d+)\s*(ms|s|m|min|h|d)?", re.IGNORECASE)
_DELAY_MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_LAST = 2**63 - 1


def boolean(given: Mapping[str, str], name: str, *, default: bool) -> bool:
    """``true`` or ``false``, in any case."""
    return word(given, name, ("true", "false"), default=str(default).lower()) == "true"


def word(given: Mapping[str, str], name: str, words: tuple[str, ...], *, default: str) -> str:
    """One of a few words, in any case.

    Raises:
        OptionError: another one.
    """
    text = given.get(name.lower(), default).strip().lower()
    if text not in words:
        raise OptionError(f"{name} is neither {' nor '.join(words)}", found=repr(text))
    return text


def size(given: Mapping[str, str], name: str, *, default: int, most: int | None = None) -> int:
    """A number of bytes, as ``parse_size`` reads it, up to ``most``."""
    if (text := given.get(name.lower())) is None:
        return default
    found = parse_size(text, name)
    if most is not None and found > most:
        raise OptionError(f"{name} is too large", found=found, expected=f"at most {most}")
    return found


def optional_size(given: Mapping[str, str], name: str) -> int | None:
    """A number of bytes, or ``None`` if the option is not given."""
    return size(given, name, default=0) or None


def optional_count(given: Mapping[str, str], name: str) -> int | None:
    """A number from 1 on, or ``None`` if the option is not given.

    Raises:
        OptionError: not a number of digits, or zero.
    """
    if (text := given.get(name.lower())) is None:
        return None
    text = text.strip()
    if not (text.isascii() and text.isdigit() and 0 < int(text[:20]) <= _LAST):
        raise OptionError(f"{name} is not a number above zero", found=repr(text[:40]))
    return int(text)


def optional_time(given: Mapping[str, str], name: str) -> int | None:
    """Milliseconds since 1970 UTC, in digits, or ``None`` if the option is not given.

    Raises:
        OptionError: anything else.
    """
    if (text := given.get(name.lower())) is None:
        return None
    text = text.strip()
    if not (text.isascii() and text.isdigit() and int(text[:20]) <= _LAST):
        raise OptionError(
            f"{name} is not a time", found=repr(text[:40]), expected="milliseconds since 1970 UTC: 1700000000000"
        )
    return int(text)


def delay_ms(given: Mapping[str, str], name: str, *, default: str) -> int:
    """Milliseconds from ``15m``, ``30s``, ``500``: Spark's time strings, whose unit is ms by default."""
    text = given.get(name.lower(), default).strip()
    match = _DELAY.fullmatch(text)
    if match is None or len(match[1]) > 15:
        raise OptionError(f"{name} is not a time span", found=repr(text[:40]), expected="such as 15m, 30s or 500ms")
    return int(match[1]) * _DELAY_MS[(match[2] or "ms").lower()]


def parse_size(text: str, name: str) -> int:
    """A number of bytes from ``1048576``, ``1m``, ``1MiB``; k, m, g, t are powers of 1024 as in Spark.

    Raises:
        OptionError: not a size, or zero.
    """
    match = _SIZE.fullmatch(text.strip()) if len(text) < 40 else None
    size = int(match[1]) << (10 * " kmgt".index((match[2] or " ").lower())) if match else 0
    if size <= 0:
        raise OptionError(f"{name} is not a size", found=repr(text[:40]), expected="such as 134217728 or 128m")
    return size


def compile_pattern(text: str) -> re.Pattern[str]:
    """A topic pattern in the syntax that Java and Python share.

    Raises:
        OptionError: it does not compile, or means something else in Java.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # '[a&&b]' and '[[a]b]' are sets of sets in Java only
        try:
            return re.compile(text)
        except (re.error, Warning) as error:
            raise OptionError(
                f"subscribePattern {text!r} does not mean the same in Java and Python: {error}",
                hint=r"Leave out \p{…}, \Q…\E, named groups and sets within sets",
            ) from None
