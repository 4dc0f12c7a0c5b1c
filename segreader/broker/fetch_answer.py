"""Fetch answers, versions 12 to 18: decoded without copying a record, and encoded for what answers as a broker.

Records stay slices of the frame. A damaged location does not spoil the answer it came in: it is told in the partition.
Source: ``FetchResponse.json`` of Apache Kafka 4.3; KIP-392, KIP-516, KIP-951.
"""

from __future__ import annotations

from itertools import groupby
from struct import Struct
from typing import Final

from segreader.broker.apis import Api, response_header_version
from segreader.broker.location import RemoteLogSegmentLocation
from segreader.broker.location_codec import LOCATION_TAG, decode_location, encode_location, extension_version
from segreader.broker.messages import FetchAnswer, FetchedPartition, LeaderAndEpoch, Node
from segreader.broker.primitives import Reader, Writer
from segreader.errors import ProtocolError

FIRST_WITH_TOPIC_ID: Final = 13
FIRST_WITH_ENDPOINTS: Final = 16

MAX_PARTITIONS: Final = 100_000
"""Partitions in one answer; one broker has fewer."""

MAX_ABORTED: Final = 1 << 22
"""Aborted transactions in one answer: as many as a full segment of the smallest ones could hold."""

_DIVERGING_TAG, _LEADER_TAG, _ENDPOINTS_TAG = 0, 1, 0
_HEAD = Struct(">ihi")
_PARTITION = Struct(">ihqqq")
_ABORTED = Struct(">qq")
_EPOCH_END = Struct(">iq")
_LEADER = Struct(">ii")
_LEAST_PARTITION = _PARTITION.size + 1 + 4 + 1 + 1
_LEAST_TOPIC = {False: 1 + 1 + 1, True: 16 + 1 + 1}
LEAST_NODE = 4 + 1 + 4 + 1 + 1


def decode_fetch_answer(version: int, frame: bytes | memoryview) -> FetchAnswer:
    """The answer in a frame, without its size; the header is read over.

    Args:
        frame: the memory of the records: they are slices of it.

    Raises:
        ProtocolError: it is damaged, cut, or has bytes left over.
    """
    reader = Reader(frame, flexible=True, what=f"Fetch {version} answer")
    reader.int32()
    reader.tags()
    throttle_ms, error, session_id = reader.unpack(_HEAD)
    has_ids = version >= FIRST_WITH_TOPIC_ID
    budget = _Budget()
    partitions: list[FetchedPartition] = []
    for _ in range(reader.count(_LEAST_TOPIC[has_ids])):
        topic, topic_id = (None, reader.uuid()) if has_ids else (reader.string(), None)
        at = reader.position
        count = reader.count(_LEAST_PARTITION)
        if len(partitions) + count > MAX_PARTITIONS:
            raise reader.error("too many partitions", position=at, expected=f"{MAX_PARTITIONS} at most")
        partitions.extend(_partition(reader, topic, topic_id, budget) for _ in range(count))
        reader.tags()
    tags = reader.tags()
    reader.finish()
    nodes: tuple[Node, ...] = ()
    if version >= FIRST_WITH_ENDPOINTS:
        for tag, value in tags:
            if tag == _ENDPOINTS_TAG:
                nodes = value.array(lambda value=value: read_node(value), LEAST_NODE)  # type: ignore[misc]
                value.finish()
    return FetchAnswer(tuple(partitions), error, session_id, throttle_ms, nodes, extension_version(tags))


class _Budget:
    """How many aborted transactions the answer may still hold."""

    __slots__ = ("aborted",)

    def __init__(self) -> None:
        self.aborted = MAX_ABORTED


def _partition(reader: Reader, topic: str | None, topic_id: str | None, budget: _Budget) -> FetchedPartition:
    partition, error, high_watermark, last_stable_offset, log_start_offset = reader.unpack(_PARTITION)
    at = reader.position
    aborted: list[tuple[int, int]] | None = None
    if (count := reader.nullable_count(_ABORTED.size + 1)) is not None:
        budget.aborted -= count
        if budget.aborted < 0:
            raise reader.error("too many aborted transactions", position=at, expected=f"{MAX_ABORTED} at most")
        aborted = []
        for _ in range(count):
            producer_id, first_offset = reader.unpack(_ABORTED)
            aborted.append((producer_id, first_offset))
            reader.tags()
    preferred_read_replica = reader.int32()
    records = reader.nullable_blob()
    diverging: tuple[int, int] | None = None
    leader: LeaderAndEpoch | None = None
    location: RemoteLogSegmentLocation | None = None
    location_error: str | None = None
    for tag, value in reader.tags():
        if tag == _DIVERGING_TAG:
            epoch, end_offset = value.unpack(_EPOCH_END)
            diverging = (epoch, end_offset)
        elif tag == _LEADER_TAG:
            leader = LeaderAndEpoch(*value.unpack(_LEADER))
        elif tag == LOCATION_TAG:
            location, location_error = _location(value)
            continue
        else:
            continue
        value.tags()
        value.finish()
    return FetchedPartition(
        topic=topic,
        topic_id=topic_id,
        partition=partition,
        error=error,
        high_watermark=high_watermark,
        last_stable_offset=last_stable_offset,
        log_start_offset=log_start_offset,
        records=records,
        aborted=None if aborted is None else tuple(aborted),
        diverging=diverging,
        preferred_read_replica=preferred_read_replica,
        current_leader=leader,
        location=location,
        location_error=location_error,
    )


def _location(value: Reader) -> tuple[RemoteLogSegmentLocation | None, str | None]:
    try:
        return decode_location(value), None
    except ProtocolError as damaged:
        return None, str(damaged)


def read_node(value: Reader) -> Node:
    """One of the NodeEndpoints, with its tagged fields; Produce answers have them in the same form."""
    node = Node(value.int32(), value.string(), value.int32(), value.nullable_string())
    value.tags()
    return node


def encode_fetch_answer(version: int, answer: FetchAnswer, *, correlation_id: int) -> bytes:
    """A whole frame with its size, as a broker or gateway sends it.

    Partitions of one topic that follow each other are sent as one topic.
    """
    writer = Writer(flexible=True)
    writer.int32(correlation_id)
    if response_header_version(Api.FETCH, version):
        writer.tags()
    writer.pack(_HEAD, answer.throttle_ms, answer.error, answer.session_id)
    has_ids = version >= FIRST_WITH_TOPIC_ID
    topics = [
        (name, list(of_topic))
        for name, of_topic in groupby(answer.partitions, lambda one: one.topic_id if has_ids else one.topic)
    ]
    writer.count(len(topics))
    for name, partitions in topics:
        if has_ids:
            writer.uuid(name)
        else:
            writer.string(name)
        writer.count(len(partitions))
        for partition in partitions:
            _write_partition(writer, partition)
        writer.tags()
    tags: list[tuple[int, bytes | bytearray]] = []
    if answer.nodes and version >= FIRST_WITH_ENDPOINTS:
        tags.append((_ENDPOINTS_TAG, _encoded_nodes(answer.nodes)))
    if answer.extension_version is not None:
        tags.append((LOCATION_TAG, answer.extension_version.to_bytes(2, "big", signed=True)))
    writer.tags(tags)
    return writer.framed()


def _write_partition(writer: Writer, partition: FetchedPartition) -> None:
    writer.pack(
        _PARTITION,
        partition.partition,
        partition.error,
        partition.high_watermark,
        partition.last_stable_offset,
        partition.log_start_offset,
    )
    writer.count(None if partition.aborted is None else len(partition.aborted))
    for producer_id, first_offset in partition.aborted or ():
        writer.pack(_ABORTED, producer_id, first_offset)
        writer.tags()
    writer.int32(partition.preferred_read_replica)
    writer.blob(partition.records)
    tags: list[tuple[int, bytes]] = []
    if partition.diverging is not None:
        tags.append((_DIVERGING_TAG, _EPOCH_END.pack(*partition.diverging) + b"\0"))
    if (leader := partition.current_leader) is not None:
        tags.append((_LEADER_TAG, _LEADER.pack(leader.leader_id, leader.leader_epoch) + b"\0"))
    if partition.location is not None:
        tags.append((LOCATION_TAG, encode_location(partition.location)))
    writer.tags(tags)


def _encoded_nodes(nodes: tuple[Node, ...]) -> bytearray:
    writer = Writer(flexible=True)
    writer.count(len(nodes))
    for node in nodes:
        writer.int32(node.node_id)
        writer.string(node.host)
        writer.int32(node.port)
        writer.string(node.rack)
        writer.tags()
    return writer.data
