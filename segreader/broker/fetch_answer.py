"""Fetch answers, versions 12 to 18, in parts: the top, topics, partitions up to their records, and tagged fields.

``decode_fetch_answer`` reads a whole frame, of which the records stay slices; a gateway reads the same parts as they
come and passes records on. A damaged location does not spoil its answer: the partition carries the error.
Source: ``FetchResponse.json`` of Apache Kafka 4.3; KIP-392, KIP-516, KIP-951.
"""

from __future__ import annotations

from functools import cache
from operator import attrgetter
from typing import Final

from segreader.broker.codec import codec_of
from segreader.broker.location import RemoteLogSegmentLocation
from segreader.broker.location_codec import LOCATION_TAG, decode_location, extension_version
from segreader.broker.messages import FetchAnswer, FetchedPartition, LeaderAndEpoch, Node
from segreader.broker.primitives import Reader
from segreader.broker.schemas import FETCH_PARTITION, FETCH_PARTITION_TAGS, FETCH_TAGS, FETCH_TOP, FETCH_TOPIC
from segreader.errors import ProtocolError

FIRST_WITH_TOPIC_ID: Final = 13

MAX_PARTITIONS: Final = 100_000
"""Partitions in one answer; one broker has fewer."""

_EMPTY_SIZE: Final = 1
"""Bytes of an empty array, of null, and of a section without tagged fields."""


class FetchAnswerParts:
    """Reads the parts of an answer of one version, in the order in which they come.

    That is the header, ``top`` and a count of topics; of each topic ``topic`` and a count of partitions, of each
    partition ``partition``, its records and ``partition_tags``; a section of tagged fields for each topic; and
    ``tags``. They give the named tuples of the tables in ``schemas``; ``least_topic`` and ``least_partition`` are the
    bytes that one takes at least.
    """

    def __init__(self, version: int) -> None:
        self._has_ids = version >= FIRST_WITH_TOPIC_ID
        topic = codec_of(FETCH_TOPIC, version, True, False)
        partition = codec_of(FETCH_PARTITION, version, True, False)
        self.top = codec_of(FETCH_TOP, version, True, False).read
        self.topic = topic.read
        self.partition = partition.read
        self.partition_tags = codec_of(FETCH_PARTITION_TAGS, version, True).read
        self.tags = codec_of(FETCH_TAGS, version, True).read
        self.least_topic = topic.least + 2 * _EMPTY_SIZE
        self.least_partition = partition.least + 2 * _EMPTY_SIZE

    @staticmethod
    def header(reader: Reader) -> None:
        """Read over the header."""
        reader.int32()
        reader.tags()

    def topic_key(self, reader: Reader) -> bytes:
        """The topic as it is on the wire, its id or its name, where no text of it is wanted."""
        return bytes(reader.take(16) if self._has_ids else reader.blob())


@cache
def fetch_answer_parts(version: int) -> FetchAnswerParts:
    """The reader of the parts in this version."""
    return FetchAnswerParts(version)


def decode_fetch_answer(version: int, frame: bytes | memoryview) -> FetchAnswer:
    """The answer in a frame, without its size; the header is read over.

    Args:
        frame: the memory of the records: they are slices of it.

    Raises:
        ProtocolError: it is damaged, cut, or has bytes left over.
    """
    parts = fetch_answer_parts(version)
    reader = Reader(frame, flexible=True, what=f"Fetch {version} answer")
    parts.header(reader)
    top = parts.top(reader)
    partitions: list[FetchedPartition] = []
    for _ in range(reader.count(parts.least_topic)):
        topic = parts.topic(reader)
        at = reader.position
        count = reader.count(parts.least_partition)
        if len(partitions) + count > MAX_PARTITIONS:
            raise reader.error("too many partitions", position=at, expected=f"{MAX_PARTITIONS} at most")
        partitions.extend([_partition(reader, parts, topic.topic, topic.topic_id) for _ in range(count)])
        reader.tags()
    end = parts.tags(reader)
    reader.finish()
    nodes: tuple[Node, ...] = ()
    if end.node_endpoints:
        nodes = tuple(Node(one.node_id, one.host, one.port, one.rack) for one in end.node_endpoints)
    return FetchAnswer(
        tuple(partitions), top.error_code, top.session_id, top.throttle_time_ms, nodes, extension_version(end.tags)
    )


_aborted = attrgetter("producer_id", "first_offset")


def _partition(reader: Reader, parts: FetchAnswerParts, topic: str | None, topic_id: str | None) -> FetchedPartition:
    head = parts.partition(reader)
    aborted, preferred_read_replica = head.aborted_transactions, head.preferred_read_replica
    records = reader.nullable_blob()
    tags = parts.partition_tags(reader)
    diverging, leader = tags.diverging_epoch, tags.current_leader
    location: RemoteLogSegmentLocation | None = None
    location_error: str | None = None
    for tag, value in tags.tags:
        if tag == LOCATION_TAG:
            location, location_error = _location(value)
    # By position: with names it would cost a third more.
    return FetchedPartition(
        topic,
        topic_id,
        head.partition_index,
        head.error_code,
        head.high_watermark,
        head.last_stable_offset,
        head.log_start_offset,
        records,
        tuple(map(_aborted, aborted)) if aborted else aborted,
        None if diverging is None else (diverging.epoch, diverging.end_offset),
        preferred_read_replica,
        None if leader is None else LeaderAndEpoch(leader.leader_id, leader.leader_epoch),
        location,
        location_error,
    )


def _location(value: Reader) -> tuple[RemoteLogSegmentLocation | None, str | None]:
    try:
        return decode_location(value), None
    except ProtocolError as damaged:
        return None, str(damaged)
