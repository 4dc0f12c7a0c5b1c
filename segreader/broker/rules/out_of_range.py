"""What "offset out of range" means: it carries no offsets, so its sender and the leader's offsets decide.

Source: KIP-392's four cases and what brokers of 4.3.1 answer: between the high watermark and the log end error 0 and no
records, beyond the log end and below its start error 1, at leader and follower alike. KIP-392 has 78 for some of these;
that is met by backing off wherever it comes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from segreader.broker.rules.truncation import FetchPosition
from segreader.errors import OffsetOutOfRangeError


class OutOfRange(Enum):
    """Why the leader refused an offset."""

    GONE = auto()
    """Below the log start: retention or DeleteRecords took the records away."""
    VALIDATE = auto()
    """Beyond the end, and the position's epoch is known: ask OffsetForLeaderEpoch whether the log was truncated."""
    BEYOND_END = auto()
    """Beyond the end, for an unknown reason."""
    IN_RANGE = auto()
    """Not any more: the log moved between the two answers. Back off and fetch again."""


class WhenOutOfRange(Enum):
    """What the caller wants then."""

    RAISE = auto()
    """An error; a bounded read has no silent reset."""
    START_AT_WHAT_IS_LEFT = auto()
    """Below the start: continue at the start, and report the gap. Beyond the end: an error."""
    EARLIEST = auto()
    """Continue at the log start in any case."""
    LATEST = auto()
    """Continue at the end in any case."""


@dataclass(frozen=True, slots=True)
class RangeVerdict:
    """Why an offset was refused, with the leader's bounds.

    Args:
        earliest: first retained offset, the remote range included.
        latest: first offset that a reader at this isolation level is not given yet.
    """

    reason: OutOfRange
    position: FetchPosition
    earliest: int
    latest: int

    def go_on_at(self, wish: WhenOutOfRange, *, source: str | None = None) -> FetchPosition:
        """Where to read next: the same position with ``IN_RANGE`` and ``VALIDATE``.

        Raises:
            OffsetOutOfRangeError: the caller allowed no other offset than the one that is out of range.
        """
        if self.reason in (OutOfRange.IN_RANGE, OutOfRange.VALIDATE):
            return self.position
        if wish is WhenOutOfRange.LATEST:
            return FetchPosition(self.latest)
        if wish is WhenOutOfRange.EARLIEST:
            return FetchPosition(self.earliest)
        if wish is WhenOutOfRange.START_AT_WHAT_IS_LEFT and self.reason is OutOfRange.GONE:
            return FetchPosition(self.earliest)
        is_gone = self.reason is OutOfRange.GONE
        raise OffsetOutOfRangeError(
            "the offset is no longer in the log" if is_gone else "the offset is beyond the end of the log",
            source=source,
            offset=self.position.offset,
            found=f"offsets {self.earliest} <= offset < {self.latest}",
            expected=f"offset {self.position.offset}",
            hint="Retention or DeleteRecords removed it; allow the read to start at what is left." if is_gone else None,
        )


def judge(position: FetchPosition, *, earliest: int, latest: int) -> RangeVerdict:
    """Why the leader refused ``position``, by what it lists for earliest and latest.

    ``latest`` is the high watermark or the last stable offset, and an offset above it may still be below the log end;
    such an offset gets no error, so one with this error is beyond the log end, or was a moment ago.
    """
    if position.offset < earliest:
        reason = OutOfRange.GONE
    elif position.offset > latest:
        reason = OutOfRange.VALIDATE if position.leader_epoch >= 0 else OutOfRange.BEYOND_END
    else:
        reason = OutOfRange.IN_RANGE
    return RangeVerdict(reason, position, earliest, latest)
