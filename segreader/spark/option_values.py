"""The values of options, from the text that Spark hands on: words, sizes, numbers, times, and JSON of partitions.

JSON is that of Spark's kafka source (Spark 4 ``JsonUtils``): ``{"orders": [0, 1]}`` assigns partitions;
``{"orders": {"0": 23, "1": -2}}`` gives each an offset, where -2 is the earliest and -1 the end.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TypeAlias

from segreader.errors import OptionError
from segreader.plan.request import parse_time

MIB = 1 << 20
EARLIEST = -2
LATEST = -1

PartitionOffsets: TypeAlias = Mapping[str, Mapping[int, int]]
"""Offset by topic and partition; ``EARLIEST`` and ``LATEST`` mean the ends."""

_SIZE = re.compile(r"(\d+)\s*(?:([kmgt])(?:i?b)?|b)?", re.IGNORECASE)
_DELAY = re.compile(r"(\d+)\s*(ms|s|m|min|h|d)?", re.IGNORECASE)
_DELAY_MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_LAST = 2**63 - 1
_LAST_PARTITION = 2**31 - 1


class Given(dict[str, str]):
    """Options by their names in lower case, as Spark gives them; each is asked for by its documented name."""

    def text(self, name: str) -> str:
        """The text of an option; empty if it is not given."""
        return self.get(name.lower(), "").strip()

    def boolean(self, name: str, *, default: bool) -> bool:
        """``true`` or ``false``, in any case."""
        return self.word(name, ("true", "false"), default=str(default).lower()) == "true"

    def word(self, name: str, words: tuple[str, ...], *, default: str) -> str:
        """One of a few words, in any case.

        Raises:
            OptionError: another one.
        """
        text = self.get(name.lower(), default).strip().lower()
        if text not in words:
            raise OptionError(f"{name} is neither {' nor '.join(words)}", found=repr(text))
        return text

    def size(self, name: str, *, most: int | None = None) -> int | None:
        """A number of bytes, as ``parse_size`` reads it, up to ``most``; ``None`` if the option is not given."""
        if (text := self.get(name.lower())) is None:
            return None
        found = parse_size(text, name)
        if most is not None and found > most:
            raise OptionError(f"{name} is too large", found=found, expected=f"at most {most}")
        return found

    def count(self, name: str) -> int | None:
        """A number from 1 on, or ``None`` if the option is not given.

        Raises:
            OptionError: not a number of digits, or zero.
        """
        if (text := self.get(name.lower())) is None:
            return None
        if not (number := _digits(text.strip())):
            raise OptionError(f"{name} is not a number above zero", found=repr(text.strip()[:40]))
        return number

    def time(self, name: str) -> int | None:
        """Milliseconds since 1970 UTC, or ``None`` if the option is not given.

        It is digits, as Spark's; or a time with its zone, ``2026-11-01T00:00Z``; or one before now: ``-1d``.

        Raises:
            OptionError: anything else, or a time before 1970.
        """
        if (text := self.get(name.lower())) is None:
            return None
        if (time_ms := _digits(text.strip())) is not None:
            return time_ms
        try:
            time_ms = parse_time(text.strip(), datetime.now(UTC))
        except OptionError as error:
            found, expected = repr(text.strip()[:40]), error.expected
            raise OptionError(f"{name} is {error.message}", found=found, expected=expected, hint=error.hint) from None
        if time_ms is None or not 0 <= time_ms <= _LAST:
            raise OptionError(f"{name} is before 1970", found=repr(text.strip()[:40]))
        return time_ms

    def delay_ms(self, name: str) -> int | None:
        """Milliseconds from ``15m``, ``30s``, ``500``: Spark's time strings, whose unit is ms by default."""
        if (text := self.get(name.lower())) is None:
            return None
        match = _DELAY.fullmatch(text.strip())
        if match is None or len(match[1]) > 15:
            expected = "such as 15m, 30s or 500ms"
            raise OptionError(f"{name} is not a time span", found=repr(text.strip()[:40]), expected=expected)
        return int(match[1]) * _DELAY_MS[(match[2] or "ms").lower()]


def _digits(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and int(text[:20]) <= _LAST else None


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


def parse_assignment(text: str) -> dict[str, tuple[int, ...]]:
    """The partitions of each topic, from the option ``assign``.

    Raises:
        OptionError: not JSON of this form, or it names no partition.
    """
    expected = '{"orders":[0,1]}'
    document = _json_object(text, "assign", expected)
    for topic, partitions in document.items():
        good = isinstance(partitions, list) and partitions and all(map(_is_partition, partitions))
        if not good or len(set(partitions)) < len(partitions):
            raise OptionError(f"assign does not list partitions of {topic}", found=partitions, expected=expected)
    return {topic: tuple(sorted(partitions)) for topic, partitions in document.items()}


def parse_offsets(text: str, name: str, *, keyword: str) -> PartitionOffsets | None:
    """Offsets from ``startingOffsets`` or ``endingOffsets``; ``None`` for the word that means all there is.

    Args:
        name: the option, for messages.
        keyword: ``earliest`` for a start, ``latest`` for an end. A start may be -1, too: a stream's.

    Raises:
        OptionError: neither the word nor JSON of this form.
    """
    word = text.strip().lower()
    if word == keyword:
        return None
    if word in ("earliest", "latest"):
        raise OptionError(f"{name} cannot be {word}", hint=f"Give {keyword} or an offset for each partition")
    expected = f'{keyword} or {{"orders":{{"0":23,"1":{EARLIEST if keyword == "earliest" else LATEST}}}}}'
    special = (EARLIEST, LATEST) if keyword == "earliest" else (LATEST,)
    document = _json_object(text, name, expected)
    return {topic: _numbers_of(topic, offsets, name, special, expected) for topic, offsets in document.items()}


def parse_timestamps(text: str, name: str) -> PartitionOffsets:
    """Times of partitions, in ms since 1970 UTC, from ``startingOffsetsByTimestamp`` or ``endingOffsetsByTimestamp``.

    Raises:
        OptionError: not JSON of this form.
    """
    expected = '{"orders":{"0":1700000000000,"1":1700000000000}}'
    document = _json_object(text, name, expected)
    return {topic: _numbers_of(topic, times, name, (), expected) for topic, times in document.items()}


def _numbers_of(topic: str, numbers: Any, name: str, special: tuple[int, ...], expected: str) -> dict[int, int]:
    """The number of each partition of a topic: from zero on, or one of the special ones."""
    if not isinstance(numbers, dict) or not numbers:
        raise OptionError(f"{name} names no partition of {topic}", found=numbers, expected=expected)
    given: dict[int, int] = {}
    for key, number in numbers.items():
        partition = int(key) if key.isascii() and key.isdigit() else -1
        if not _is_partition(partition) or partition in given:
            raise OptionError(f"{name} names no partition of {topic}", found=repr(key), expected=expected)
        if not _is_integer(number) or not (number in special or 0 <= number <= _LAST):
            raise OptionError(f"{name} gives {topic}-{partition} no usable number", found=number, expected=expected)
        given[partition] = number
    return given


def _json_object(text: str, name: str, expected: str) -> dict[str, Any]:
    try:
        document = json.loads(text, object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError) as error:
        raise OptionError(f"{name} is not JSON of the right form: {error}", found=text, expected=expected) from None
    if not isinstance(document, dict) or not document:
        raise OptionError(f"{name} names no topic", found=text, expected=expected)
    return document


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) < len(pairs):
        raise ValueError("a name appears twice")
    return document


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_partition(value: object) -> bool:
    return _is_integer(value) and 0 <= value <= _LAST_PARTITION  # type: ignore[operator]
