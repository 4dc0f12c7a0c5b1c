"""Kafka's error codes: their names, which may be tried again, and which say that metadata is out of date.

A code that is not listed is carried as its number and not tried again: later releases add some. Source: ``Errors`` of
Apache Kafka 4.3 and the classes of the Java client behind them (``RetriableException``, ``InvalidMetadataException``).
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class ErrorCode(IntEnum):
    """The codes that a reader meets."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    REPLICA_NOT_AVAILABLE = 9
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    INVALID_GROUP_ID = 24
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    KAFKA_STORAGE_ERROR = 56
    SASL_AUTHENTICATION_FAILED = 58
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    OFFSET_NOT_AVAILABLE = 78
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    RESOURCE_NOT_FOUND = 91
    UNKNOWN_TOPIC_ID = 100
    INCONSISTENT_TOPIC_ID = 103
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    FENCED_MEMBER_EPOCH = 110
    STALE_MEMBER_EPOCH = 113
    REBOOTSTRAP_REQUIRED = 129


_STALE_METADATA: Final = frozenset({3, 5, 6, 9, 13, 56, 72, 74, 100, 103})
_RETRIABLE: Final = _STALE_METADATA | {2, 7, 14, 15, 16, 70, 71, 75, 78, 88, 89, 106}


def name_of(code: int) -> str:
    """Kafka's name of a code; ``error 137`` for one that is not known here."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"


def describe(code: int) -> str:
    """The name and the number, as errors show them."""
    name = name_of(code)
    return name if name.startswith("error ") else f"{name} ({code})"


def is_retriable(code: int) -> bool:
    """Whether the same request may succeed later, perhaps elsewhere."""
    return code in _RETRIABLE


def makes_metadata_stale(code: int) -> bool:
    """Whether leaders and addresses must be asked for anew before the next try."""
    return code in _STALE_METADATA
