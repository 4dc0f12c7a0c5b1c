"""Which partition of ``__remote_log_metadata`` a user partition's records go to: its topic id and number decide."""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode

from segreader.errors import OptionError

_TOPIC_ID = re.compile(r"[A-Za-z0-9_-]{22}")


def metadata_partition(topic_id: str, partition: int, count: int) -> int:
    """The partition of the metadata topic that holds the records of this partition.

    Args:
        topic_id: 22 characters.
        count: partitions that the metadata topic really has, which a broker's configuration need not say.

    Source: ``RemoteLogMetadataTopicPartitioner`` (4.3).
    """
    if not _TOPIC_ID.fullmatch(topic_id) or count < 1 or not 0 <= partition < 1 << 31:
        raise OptionError(
            "not a partition of a topic id, or no metadata partitions",
            found=f"topic id {topic_id!r}, partition {partition}, {count} metadata partitions",
        )
    raw = urlsafe_b64decode(topic_id + "==")
    hashed = 1
    for number in (_fold(raw[8:]), _fold(raw[:8]), partition):
        hashed = (31 * hashed + number) & 0xFFFFFFFF
    return (_murmur2(hashed.to_bytes(4, "big")) & 0x7FFFFFFF) % count


def _fold(half: bytes) -> int:
    """``Long.hashCode``."""
    return int.from_bytes(half[:4], "big") ^ int.from_bytes(half[4:], "big")


def _murmur2(four: bytes) -> int:
    """``Utils.murmur2`` of exactly four bytes."""
    word = int.from_bytes(four, "little") * 0x5BD1E995 & 0xFFFFFFFF
    word = (word ^ word >> 24) * 0x5BD1E995 & 0xFFFFFFFF
    hashed = (0x9747B28C ^ 4) * 0x5BD1E995 & 0xFFFFFFFF ^ word
    hashed = (hashed ^ hashed >> 13) * 0x5BD1E995 & 0xFFFFFFFF
    return hashed ^ hashed >> 15
