"""Which rule a partition's error in a Fetch answer belongs to. Source: Kafka 4.3 ``FetchCollector`` and ``Errors``."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from segreader.broker.protocol import ErrorCode
from segreader.errors import BrokerError


class FetchErrorKind(Enum):
    """Who decides what an error asks for."""

    NONE = auto()
    """No error."""
    LEADER = auto()
    """6, 74, 75: ``leader.LeaderFinder``."""
    OUT_OF_RANGE = auto()
    """1: ``out_of_range``."""
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
    return error.code in _FAILED_READS
