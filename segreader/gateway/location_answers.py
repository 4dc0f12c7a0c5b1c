"""Partitions of a Fetch answer that the gateway writes itself, from what a probe told: locations, or the error.

Source: FetchResponse 12-18 of Apache Kafka 4.3; docs/reference/protocol.md for the extension.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from struct import Struct

from segreader.broker.location import RemoteLogSegmentLocation
from segreader.broker.location_codec import LOCATION_TAG, encode_location
from segreader.broker.primitives import Writer
from segreader.gateway.answers import top_bytes, walk_topics
from segreader.gateway.fetch_parts import FetchTop, PartitionHead, fetch_top
from segreader.gateway.frames import SIZE, tag_section
from segreader.gateway.rewriting import EXTENSION_TAG, EXTENSION_VERSION
from segreader.gateway.streams import FrameSource

_PARTITION = Struct(">ihqqq")
_NO_REPLICA = Struct(">i").pack(-1)
_NULL, _EMPTY, _NO_TAGS = b"\x00", b"\x01", b"\x00"


@dataclass(frozen=True, slots=True)
class ProbedPartition:
    """What a probe told of one partition: ``raw`` are its bytes up to the length of the records, ``tags`` those behind
    them."""

    head: PartitionHead
    raw: bytes
    tags: bytes

    @property
    def has_tags(self) -> bool:
        """Whether the broker said more, for example that the client's position is of another history."""
        return self.tags != _NO_TAGS


@dataclass(slots=True)
class ProbeAnswer:
    """The answer to a probe without its records; ``tail`` are the tagged fields that end it."""

    top: FetchTop | None = None
    partitions: dict[tuple[bytes, int], ProbedPartition] = field(default_factory=dict)
    tail: bytes = _NO_TAGS

    async def take(self, source: FrameSource, version: int) -> None:
        """Read the answer; its records are dropped as they come.

        Raises:
            ProtocolError: it is no Fetch answer.
        """

        def found(key: bytes, head: PartitionHead, raw: bytes, tags: bytes) -> None:
            self.partitions[key, head.partition] = ProbedPartition(head, raw, tags)

        await source.parsed(lambda reader: (reader.take(4), reader.tags()))
        top, _ = await source.parsed(fetch_top)
        self.top = top
        await walk_topics(source, version, top, None, found)
        self.tail = await source.rest()


def located(head: PartitionHead, location: RemoteLogSegmentLocation) -> bytes:
    """A partition with a location in the place of records."""
    return b"".join(
        (
            _PARTITION.pack(head.partition, 0, head.high_watermark, head.last_stable_offset, head.log_start_offset),
            _NULL,  # aborted transactions: not looked up
            _NO_REPLICA,
            _EMPTY,
            tag_section([(LOCATION_TAG, encode_location(location))]),
        )
    )


def refused(probed: ProbedPartition) -> bytes:
    """A partition as the broker answered it, with its error and without records."""
    return probed.raw + (_NULL if probed.head.records_size is None else _EMPTY) + probed.tags


def topics_of(partitions: Iterable[tuple[bytes, bytes]], *, has_ids: bool) -> list[bytes]:
    """Partitions as topics of an answer.

    Args:
        partitions: the topic's key and the partition's bytes.
        has_ids: whether the key is an id, or a name.
    """
    of_topic: dict[bytes, list[bytes]] = {}
    for key, data in partitions:
        of_topic.setdefault(key, []).append(data)
    topics = []
    for key, data_of in of_topic.items():
        writer = Writer(flexible=True)
        if has_ids:
            writer.raw(key)
        else:
            writer.blob(key)
        writer.count(len(data_of))
        for data in data_of:
            writer.raw(data)
        writer.tags()
        topics.append(bytes(writer.data))
    return topics


def whole_answer(correlation_id: int, throttle_ms: int, topics: list[bytes], tail: bytes | None = None) -> bytes:
    """A frame that holds these topics alone.

    Args:
        tail: the tagged fields that end it; by default the extension's version.
    """
    header = correlation_id.to_bytes(4, "big", signed=True) + _NO_TAGS
    end = tag_section([(EXTENSION_TAG, EXTENSION_VERSION)]) if tail is None else tail
    data = b"".join((header, top_bytes(throttle_ms, 0, len(topics)), *topics, end))
    return SIZE.pack(len(data)) + data


EXTENSION: Mapping[int, bytes] = {EXTENSION_TAG: EXTENSION_VERSION}
