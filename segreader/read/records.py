"""Records as Python objects, for people and small jobs; large ones stay in Arrow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from segreader.format.batch import Headers, TimestampType

RECORD_COLUMNS = (
    "topic",
    "partition",
    "offset",
    "timestamp_ms",
    "timestamp_type",
    "leader_epoch",
    "key",
    "value",
    "headers",
)
"""The columns that make a ``ConsumerRecord``."""


@dataclass(frozen=True, slots=True)
class ConsumerRecord:
    """One record as a consumer is given it. Source: ``ConsumerRecord`` of the Java client (4.0).

    ``leader_epoch`` is ``None`` where the format has none (magic 0 and 1); ``timestamp_ms`` is -1 where it has none
    (magic 0). A null key or value is ``None``, an empty one ``b""``.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: TimestampType
    leader_epoch: int | None
    key: bytes | None
    value: bytes | None
    headers: Headers


def iter_consumer_records(batch: pa.RecordBatch) -> Iterator[ConsumerRecord]:
    """The rows of a batch that has ``RECORD_COLUMNS``."""
    columns = [batch.column(name).to_pylist() for name in RECORD_COLUMNS]
    for topic, partition, offset, time, time_type, epoch, key, value, headers in zip(*columns, strict=True):
        yield ConsumerRecord(
            topic,
            partition,
            offset,
            time,
            TimestampType(time_type),
            epoch,
            key,
            value,
            tuple((header["key"], header["value"]) for header in headers),
        )
