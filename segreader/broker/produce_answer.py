"""Produce answers, versions 10 to 13, as far as they tell who leads a partition now (KIP-951).

Nothing here produces: a gateway sees such answers pass, and what they say of leaders is as true as in a Fetch answer.
Source: ``ProduceResponse.json`` of Apache Kafka 4.3; KIP-951, KIP-516.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Final

from segreader.broker.fetch_answer import LEAST_NODE, MAX_PARTITIONS, read_node
from segreader.broker.messages import LeaderAndEpoch, Node
from segreader.broker.primitives import Reader

FIRST_WITH_LEADERS: Final = 10
FIRST_WITH_TOPIC_ID: Final = 13

_LEADER_TAG, _ENDPOINTS_TAG = 0, 0
_PARTITION = Struct(">ihqqq")
_LEADER = Struct(">ii")
_LEAST_PARTITION = _PARTITION.size + 1 + 1 + 1
_LEAST_TOPIC = {False: 1 + 1 + 1, True: 16 + 1 + 1}
_LEAST_RECORD_ERROR = 4 + 1 + 1


@dataclass(frozen=True, slots=True)
class ProducedPartition:
    """One partition of a Produce answer.

    Args:
        topic, topic_id: one of both, as the version has it.
        base_offset: of the records that were appended; -1 on errors.
        current_leader: who leads now, with error 6.
    """

    topic: str | None
    topic_id: str | None
    partition: int
    error: int = 0
    base_offset: int = -1
    current_leader: LeaderAndEpoch | None = None


@dataclass(frozen=True, slots=True)
class ProduceAnswer:
    """What one broker answered to a Produce.

    Args:
        nodes: addresses of the brokers that ``current_leader`` names.
    """

    partitions: tuple[ProducedPartition, ...]
    throttle_ms: int = 0
    nodes: tuple[Node, ...] = ()


def decode_produce_answer(version: int, frame: bytes | memoryview) -> ProduceAnswer:
    """The answer in a frame, without its size; the header is read over.

    Raises:
        ProtocolError: it is damaged, cut, or has bytes left over.
        ValueError: the version is not one of those that name leaders.
    """
    if not FIRST_WITH_LEADERS <= version <= FIRST_WITH_TOPIC_ID:
        raise ValueError(f"Produce {version} is not read, only {FIRST_WITH_LEADERS} to {FIRST_WITH_TOPIC_ID}")
    reader = Reader(frame, flexible=True, what=f"Produce {version} answer")
    reader.int32()
    reader.tags()
    has_ids = version >= FIRST_WITH_TOPIC_ID
    partitions: list[ProducedPartition] = []
    for _ in range(reader.count(_LEAST_TOPIC[has_ids])):
        topic, topic_id = (None, reader.uuid()) if has_ids else (reader.string(), None)
        at = reader.position
        count = reader.count(_LEAST_PARTITION)
        if len(partitions) + count > MAX_PARTITIONS:
            raise reader.error("too many partitions", position=at, expected=f"{MAX_PARTITIONS} at most")
        partitions.extend(_partition(reader, topic, topic_id) for _ in range(count))
        reader.tags()
    throttle_ms = reader.int32()
    nodes: tuple[Node, ...] = ()
    for tag, value in reader.tags():
        if tag == _ENDPOINTS_TAG:
            nodes = value.array(lambda value=value: read_node(value), LEAST_NODE)  # type: ignore[misc]
            value.finish()
    reader.finish()
    return ProduceAnswer(tuple(partitions), throttle_ms, nodes)


def _partition(reader: Reader, topic: str | None, topic_id: str | None) -> ProducedPartition:
    partition, error, base_offset, _log_append_time_ms, _log_start_offset = reader.unpack(_PARTITION)
    for _ in range(reader.count(_LEAST_RECORD_ERROR)):
        reader.int32()
        reader.nullable_string()
        reader.tags()
    reader.nullable_string()
    leader: LeaderAndEpoch | None = None
    for tag, value in reader.tags():
        if tag == _LEADER_TAG:
            leader = LeaderAndEpoch(*value.unpack(_LEADER))
            value.tags()
            value.finish()
    return ProducedPartition(topic, topic_id, partition, error, base_offset, leader)
