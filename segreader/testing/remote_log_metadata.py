"""Values of ``__remote_log_metadata``, which the library itself only reads.

Written apart from ``segreader.format`` on purpose, so that a mistake there is not repeated here.
Source: ``storage/src/main/resources/message/*.json``, ``BytesApiMessageSerde`` (4.3).
"""

from __future__ import annotations

import struct
from base64 import urlsafe_b64decode
from collections.abc import Mapping, Sequence

Tags = Mapping[int, bytes]

NO_TAGS: Tags = {}


def encode_segment_metadata(
    topic: str,
    topic_id: str,
    partition: int,
    segment_id: str,
    *,
    start_offset: int,
    end_offset: int,
    epochs: Sequence[tuple[int, int]],
    broker_id: int = 1,
    max_timestamp_ms: int = 0,
    event_timestamp_ms: int = 0,
    log_size: int = 0,
    custom_metadata: bytes | None = None,
    state: int = 0,
    tags: Tags = NO_TAGS,
    version: int = 0,
) -> bytes:
    """A ``RemoteLogSegmentMetadataRecord``. ``epochs`` are (epoch, start offset); ids are 22 characters."""
    return (
        _frame(0, version)
        + _segment_id(topic, topic_id, partition, segment_id)
        + struct.pack(">qqiqq", start_offset, end_offset, broker_id, max_timestamp_ms, event_timestamp_ms)
        + _uvarint(len(epochs) + 1)
        + b"".join(struct.pack(">iqx", *epoch) for epoch in epochs)
        + struct.pack(">i", log_size)
        + _compact(custom_metadata)
        + struct.pack(">b", state)
        + _tagged(tags)
    )


def encode_segment_update(
    topic: str,
    topic_id: str,
    partition: int,
    segment_id: str,
    state: int,
    *,
    broker_id: int = 1,
    event_timestamp_ms: int = 0,
    custom_metadata: bytes | None = None,
    tags: Tags = NO_TAGS,
    version: int = 0,
) -> bytes:
    """A ``RemoteLogSegmentMetadataUpdateRecord``."""
    return (
        _frame(1, version)
        + _segment_id(topic, topic_id, partition, segment_id)
        + struct.pack(">iq", broker_id, event_timestamp_ms)
        + _compact(custom_metadata)
        + struct.pack(">b", state)
        + _tagged(tags)
    )


def encode_partition_delete(
    topic: str, topic_id: str, partition: int, state: int, *, broker_id: int = 1, event_timestamp_ms: int = 0
) -> bytes:
    """A ``RemotePartitionDeleteMetadataRecord``."""
    entry = _partition(topic, topic_id, partition)
    return _frame(2, 0) + entry + struct.pack(">iqb", broker_id, event_timestamp_ms, state) + b"\0"


def _frame(api_key: int, version: int) -> bytes:
    return _uvarint(1) + _uvarint(api_key) + _uvarint(version)


def _segment_id(topic: str, topic_id: str, partition: int, segment_id: str) -> bytes:
    return _partition(topic, topic_id, partition) + _uuid(segment_id) + b"\0"


def _partition(topic: str, topic_id: str, partition: int) -> bytes:
    return _compact(topic.encode()) + _uuid(topic_id) + struct.pack(">i", partition) + b"\0"


def _uuid(text: str) -> bytes:
    return urlsafe_b64decode(text + "==")


def _compact(data: bytes | None) -> bytes:
    return _uvarint(0) if data is None else _uvarint(len(data) + 1) + data


def _tagged(tags: Tags) -> bytes:
    fields = (_uvarint(tag) + _uvarint(len(data)) + data for tag, data in sorted(tags.items()))
    return _uvarint(len(tags)) + b"".join(fields)


def _uvarint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
