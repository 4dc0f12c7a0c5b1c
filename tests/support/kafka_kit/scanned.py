"""What a scan gives, in the form that consumers' records have here."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kafka_kit.clients import Received

import segreader
from segreader.format.batch import TimestampType
from segreader.read.records import ConsumerRecord


def scanned(location: str, topic: str, **options: Any) -> list[Received]:
    """All records that ``segreader.scan`` gives for these options, in its order."""
    with segreader.scan(location, topic=topic, **options) as scan:
        return received(scan.records())


def received(records: Iterable[ConsumerRecord]) -> list[Received]:
    """The same records as a consumer's."""
    return [
        Received(
            partition=one.partition,
            offset=one.offset,
            key=one.key,
            value=one.value,
            timestamp_ms=one.timestamp_ms,
            is_log_append_time=one.timestamp_type is TimestampType.LOG_APPEND_TIME,
            headers=tuple(one.headers),
        )
        for one in records
    ]
