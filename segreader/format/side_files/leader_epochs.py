"""The leader-epoch checkpoint: which leader epoch wrote which offsets.

A text file: version, count, and a line ``<epoch> <start offset>`` for each entry. Remote segments carry one
that reaches up to the segment's end.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from segreader.errors import CorruptIndexError
from segreader.ranges import OffsetRange
from segreader.values import quick_init

_VERSION = 0
_MAX_INT = (1 << 31) - 1
_MAX_LONG = (1 << 63) - 1
_LINE_END = re.compile(rb"\r\n|\r|\n")
_NUMBER = re.compile(rb"\+?0*([0-9]{1,19})")
_SPACES = re.compile(rb"[ \t\x0b\x0c]+")


@quick_init
@dataclass(frozen=True, slots=True, order=True)
class LeaderEpoch:
    """``epoch`` begins at ``start_offset``."""

    epoch: int
    start_offset: int


_BEFORE = LeaderEpoch(-1, 0)


@quick_init
@dataclass(frozen=True, slots=True)
class LeaderEpochs:
    """A lineage: epochs rise strictly, their start offsets do not fall.

    An epoch covers the offsets from its start to the start of the next one; it covers none where both are
    equal.

    Source: ``LeaderEpochFileCache`` (4.0).
    """

    entries: tuple[LeaderEpoch, ...] = ()

    def __post_init__(self) -> None:
        previous = _BEFORE
        for entry in self.entries:
            if entry.epoch <= previous.epoch or entry.start_offset < previous.start_offset:
                raise ValueError(f"not a lineage: {entry} after {previous}")
            previous = entry

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[LeaderEpoch]:
        return iter(self.entries)

    def epoch_for(self, offset: int) -> int | None:
        """The epoch that wrote ``offset``; ``None`` below the first epoch."""
        index = bisect_right(self.entries, offset, key=lambda entry: entry.start_offset) - 1
        return self.entries[index].epoch if index >= 0 else None

    def offsets_of(self, epoch: int) -> OffsetRange | None:
        """The offsets that ``epoch`` covers, open for the last one; ``None`` for an epoch not listed."""
        index = bisect_right(self.entries, epoch, key=lambda entry: entry.epoch) - 1
        if index < 0 or self.entries[index].epoch != epoch:
            return None
        return OffsetRange(self.entries[index].start_offset, self._start_after(index))

    def end_offset(self, epoch: int) -> int | None:
        """Where the next higher epoch begins, so no offset from there on is ``epoch``'s; ``None``: no end."""
        return self._start_after(bisect_right(self.entries, epoch, key=lambda entry: entry.epoch) - 1)

    def _start_after(self, index: int) -> int | None:
        return self.entries[index + 1].start_offset if index + 1 < len(self.entries) else None


def parse_leader_epochs(data: bytes | bytearray | memoryview) -> LeaderEpochs:
    """Read a whole leader-epoch checkpoint. An empty file, or one that ends before the count, has no entries.

    Raises:
        CorruptIndexError: another version, a line that is no entry, a wrong count, or entries that do not
        rise.

    Source: ``CheckpointFile``, ``LeaderEpochCheckpointFile`` (4.0).
    """
    return _parsed(bytes(data))


@lru_cache(maxsize=64)
def _parsed(data: bytes) -> LeaderEpochs:
    """Those of one partition's segments are mostly the same bytes."""
    lines = _LINE_END.split(data)
    if not lines[-1]:
        lines.pop()
    if lines and (version := _parse_number(lines[0], 1, _MAX_INT)) != _VERSION:
        raise CorruptIndexError(
            "a leader-epoch checkpoint has an unknown version",
            found=f"version {version}",
            expected="version 0",
        )
    if len(lines) < 2:
        return LeaderEpochs()
    entries = tuple(_parse_entry(line, number) for number, line in enumerate(lines[2:], start=3))
    if len(entries) != (count := _parse_number(lines[1], 2, _MAX_INT)):
        raise CorruptIndexError(
            "a leader-epoch checkpoint has not the entries it counts",
            found=f"{len(entries)} entries",
            expected=f"{count}",
        )
    try:
        return LeaderEpochs(entries)
    except ValueError as error:
        raise CorruptIndexError(f"a leader-epoch checkpoint is {error}") from error


def _parse_entry(line: bytes, number: int) -> LeaderEpoch:
    match _SPACES.split(line.rstrip(b" \t\x0b\x0c")):
        case [epoch, start_offset]:
            return LeaderEpoch(_parse_number(epoch, number, _MAX_INT), _parse_number(start_offset, number, _MAX_LONG))
        case _:
            raise _malformed(line, number, "an epoch and a start offset")


def _parse_number(text: bytes, number: int, largest: int) -> int:
    match = _NUMBER.fullmatch(text)
    if match is None or (value := int(match[1])) > largest:
        raise _malformed(text, number, f"a whole number up to {largest}")
    return value


def _malformed(text: bytes, number: int, expected: str) -> CorruptIndexError:
    return CorruptIndexError(
        f"line {number} of a leader-epoch checkpoint is malformed", found=repr(text[:80]), expected=expected
    )
