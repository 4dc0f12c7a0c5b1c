"""Which rule a partition's error in a Fetch answer belongs to, and what "offset out of range" means.

Source: Kafka 4.3 ``FetchCollector`` and ``Errors``. Error 1 carries no offsets, so its sender and the leader's offsets
decide: KIP-392's four cases and what brokers of 4.3.1 answer. Between the high watermark and the log end that is error
0 and no records, beyond the log end and below its start error 1, at leader and follower alike. KIP-392 has 78 for some
of these; that is met by backing off wherever it comes.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from segreader.broker.protocol import ErrorCode
from segreader.broker.rules.truncation import FetchPosition
from segreader.errors import BrokerError, ConnectionFailedError, OffsetOutOfRangeError
from segreader.values import dataclass


class FetchErrorKind(Enum):
    """Who decides what an error asks for."""

    NONE = auto()
    """No error."""
    LEADER = auto()
    """6, 74, 75: ``leader.LeaderFinder``."""
    OUT_OF_RANGE = auto()
    """1: ``judge``."""
    REFRESH = auto()
    """Refresh Metadata, back off, repeat until the deadline."""
    BACK_OFF = auto()
    """Back off, repeat until the deadline."""
    REPEAT_BOUNDED = auto()
    """A read inside the broker failed, such as one of a lost remote object: back off, repeat a few times, raise."""
    FORBIDDEN = auto()
    """READ on the topic is missing: raise, naming the topic."""
    RAISE = auto()
    """Retrying does not help: raise with the number."""


REPEATS_OF_SERVER_ERRORS: Final = 5
"""How often error -1 is repeated before it is raised."""

_FAILED_READS: Final = frozenset(
    {
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)

_KINDS: Final[dict[int, FetchErrorKind]] = {
    ErrorCode.NONE: FetchErrorKind.NONE,
    ErrorCode.UNKNOWN_SERVER_ERROR: FetchErrorKind.REPEAT_BOUNDED,
    ErrorCode.OFFSET_OUT_OF_RANGE: FetchErrorKind.OUT_OF_RANGE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: FetchErrorKind.REFRESH,
    ErrorCode.LEADER_NOT_AVAILABLE: FetchErrorKind.REFRESH,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: FetchErrorKind.LEADER,
    ErrorCode.REQUEST_TIMED_OUT: FetchErrorKind.BACK_OFF,
    ErrorCode.REPLICA_NOT_AVAILABLE: FetchErrorKind.REFRESH,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: FetchErrorKind.FORBIDDEN,
    ErrorCode.KAFKA_STORAGE_ERROR: FetchErrorKind.REFRESH,
    ErrorCode.FENCED_LEADER_EPOCH: FetchErrorKind.LEADER,
    ErrorCode.UNKNOWN_LEADER_EPOCH: FetchErrorKind.LEADER,
    ErrorCode.OFFSET_NOT_AVAILABLE: FetchErrorKind.REFRESH,
    ErrorCode.UNKNOWN_TOPIC_ID: FetchErrorKind.REFRESH,
    ErrorCode.INCONSISTENT_TOPIC_ID: FetchErrorKind.REFRESH,
}


def kind_of(error: int) -> FetchErrorKind:
    """Which rule an error belongs to. Unknown codes are raised: retrying may never help."""
    return _KINDS.get(error, FetchErrorKind.RAISE)


def is_failed_read(error: BrokerError) -> bool:
    """Whether a broker could not read the data at an offset, such as a lost remote object; others may be readable."""
    return error.code in _FAILED_READS and not isinstance(error, ConnectionFailedError)


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

    def error(self, source: str | None = None) -> OffsetOutOfRangeError:
        """The error for an offset that the log does not have: a bounded read has no silent reset."""
        is_gone = self.reason is OutOfRange.GONE
        return OffsetOutOfRangeError(
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
