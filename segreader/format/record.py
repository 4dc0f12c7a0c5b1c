"""One record as plain Python values: one row of the decoder's columns."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

Headers = tuple[tuple[str, bytes | None], ...]


class TimestampType(IntEnum):
    """Who set a record's time. Source: ``org.apache.kafka.common.record.TimestampType`` (4.0)."""

    NO_TIMESTAMP_TYPE = -1
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1

    @property
    def java_name(self) -> str:
        """The name that Kafka's tools and consumers print."""
        return _JAVA_NAMES[self]


_JAVA_NAMES = {
    TimestampType.NO_TIMESTAMP_TYPE: "NoTimestampType",
    TimestampType.CREATE_TIME: "CreateTime",
    TimestampType.LOG_APPEND_TIME: "LogAppendTime",
}


@dataclass(frozen=True, slots=True)
class Record:
    """A record of any message format.

    A null key or value is ``None``, an empty one ``b""``. ``headers`` keep order and repeats; keys are decoded as
    UTF-8 with replacement, as the Java client does. ``timestamp_ms`` is -1 where the format has no time (magic 0).
    """

    offset: int
    timestamp_ms: int
    timestamp_type: TimestampType
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
