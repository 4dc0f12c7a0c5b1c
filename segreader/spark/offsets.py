"""The JSON that names partitions and their offsets, as in Spark's kafka source (Spark 4 ``JsonUtils``).

``{"orders": [0, 1]}`` assigns partitions; ``{"orders": {"0": 23, "1": -2}}`` gives each an offset,
where -2 is the earliest and -1 the end.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeAlias

from segreader.errors import OptionError

EARLIEST = -2
LATEST = -1

PartitionOffsets: TypeAlias = Mapping[str, Mapping[int, int]]
"""Offset by topic and partition; ``EARLIEST`` and ``LATEST`` stand for the ends."""

_LAST_PARTITION = 2**31 - 1
_LAST_OFFSET = 2**63 - 1


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
        if not _is_integer(number) or not (number in special or 0 <= number <= _LAST_OFFSET):
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
