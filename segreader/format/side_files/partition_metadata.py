"""``partition.metadata``: the topic id of a broker's partition directory."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass

from segreader.errors import CorruptIndexError

_MAX_INT = (1 << 31) - 1
_FILE = re.compile(
    rb"version:[ \t]+\+?([0-9]{1,10})[ \t]*(?:\r\n|\r|\n)"
    rb"topic_id:[ \t]+([A-Za-z0-9_-]{22})(?:==)?[ \t]*(?:[\r\n].*)?",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class PartitionMetadataFile:
    """The topic of a partition directory; ``topic_id`` in Kafka's text form, 22 characters of base64url."""

    version: int
    topic_id: str


def parse_partition_metadata(data: bytes | bytearray | memoryview) -> PartitionMetadataFile:
    """Read a whole ``partition.metadata``. Versions above 0 are read like 0.

    Raises:
        CorruptIndexError: not these two lines, or a topic id of zeros.

    Source: ``PartitionMetadataFile`` (4.0).
    """
    raw = bytes(data)
    match = _FILE.fullmatch(raw)
    if match is None or (version := int(match[1])) > _MAX_INT:
        raise CorruptIndexError(
            "a partition.metadata file is malformed",
            found=repr(raw[:80]),
            expected="the lines version and topic_id",
        )
    topic_id = base64.urlsafe_b64decode(match[2] + b"==")
    if not any(topic_id):
        raise CorruptIndexError("a partition.metadata file has a topic id of zeros", position=match.start(2))
    return PartitionMetadataFile(version, base64.urlsafe_b64encode(topic_id)[:22].decode("ascii"))
