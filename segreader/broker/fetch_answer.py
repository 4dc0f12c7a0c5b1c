"""Fetch answers, versions 12 to 18: decoded without copying a record.

Records stay slices of the frame. A damaged location does not spoil its answer: the partition carries the error.
Source: ``FetchResponse.json`` of Apache Kafka 4.3; KIP-392, KIP-516, KIP-951.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from segreader.broker.location import RemoteLogSegmentLocation
from segreader.broker.location_codec import LOCATION_TAG, decode_location, extension_version
from segreader.broker.messages import FetchAnswer, FetchedPartition, LeaderAndEpoch, Node
from segreader.broker.primitives import Reader
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
_LEAST_NODE = 4 + 1 + 4 + 1 + 1


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
                nodes = value.array(lambda value=value: _read_node(value), _LEAST_NODE)  # type: ignore[misc]
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


def _read_node(value: Reader) -> Node:
    """One of the NodeEndpoints, with its tagged fields."""
    node = Node(value.int32(), value.string(), value.int32(), value.nullable_string())
    value.tags()
    return node
