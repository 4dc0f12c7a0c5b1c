"""Leaders that Produce answers name (KIP-951), in bytes made by kafka-python; any other bytes give a ProtocolError."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.producer import ProduceResponse

from segreader.broker.messages import ClusterMetadata, LeaderAndEpoch, Node, PartitionMetadata, TopicMetadata
from segreader.broker.primitives import uuid_bytes
from segreader.broker.produce_answer import ProduceAnswer, ProducedPartition, decode_produce_answer
from segreader.broker.rules.leader import Hint, KnownCluster, LeaderFinder, LeaderStep
from segreader.errors import ProtocolError

TOPIC_ID = "P2wqEH1LTg6belocji9NYA"
VERSIONS = [10, 11, 12, 13]
CORRELATION_ID = b"\0\0\0\7"


def produced(version: int, *, leader: LeaderAndEpoch | None = None, nodes: tuple[Node, ...] = (), **fields: Any) -> Any:
    """An answer for t-3 as kafka-python makes it, without its size: header version 1 and body."""
    topic, partition = (
        ProduceResponse.TopicProduceResponse,
        ProduceResponse.TopicProduceResponse.PartitionProduceResponse,
    )
    told = partition(
        index=3,
        error_code=fields.get("error", 6),
        base_offset=fields.get("base_offset", -1),
        log_append_time_ms=-1,
        log_start_offset=-1,
        record_errors=fields.get("record_errors", []),
        error_message=fields.get("error_message"),
        **({"current_leader": partition.LeaderIdAndEpoch(*vars_of(leader))} if leader else {}),
    )
    named = {"name": "t"} if version < 13 else {"topic_id": uuid.UUID(bytes=uuid_bytes(TOPIC_ID))}
    message = ProduceResponse(
        responses=[topic(partition_responses=[told], **named)],
        throttle_time_ms=fields.get("throttle_ms", 0),
        **({"node_endpoints": [ProduceResponse.NodeEndpoint(*vars_of(node)) for node in nodes]} if nodes else {}),
    )
    return CORRELATION_ID + b"\0" + bytes(message.encode(version=version))


def vars_of(value: Any) -> list[Any]:
    return [getattr(value, name) for name in type(value).__dataclass_fields__]


def named(version: int) -> tuple[str | None, str | None]:
    return ("t", None) if version < 13 else (None, TOPIC_ID)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_refused_produce_names_the_new_leader_and_its_address(version: int) -> None:
    nodes = (Node(2, "b2", 9092, "r2"), Node(4, "b4", 9094, None))
    frame = produced(version, leader=LeaderAndEpoch(2, 6), nodes=nodes, throttle_ms=11)

    assert decode_produce_answer(version, frame) == ProduceAnswer(
        (ProducedPartition(*named(version), 3, 6, -1, LeaderAndEpoch(2, 6)),), 11, nodes
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_a_produce_that_went_well_names_no_leader(version: int) -> None:
    assert decode_produce_answer(version, produced(version, error=0, base_offset=42)) == ProduceAnswer(
        (ProducedPartition(*named(version), 3, 0, 42),)
    )


def test_messages_about_refused_records_are_read_over() -> None:
    partition = ProduceResponse.TopicProduceResponse.PartitionProduceResponse
    errors = [
        partition.BatchIndexAndErrorMessage(batch_index=number, batch_index_error_message=text)
        for number, text in ((0, "no key"), (1, None))
    ]
    frame = produced(12, error=87, record_errors=errors, error_message="2 bad records", leader=LeaderAndEpoch(2, 6))

    assert decode_produce_answer(12, frame).partitions == (
        ProducedPartition("t", None, 3, 87, -1, LeaderAndEpoch(2, 6)),
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_a_leader_named_to_a_producer_is_taken_over_by_the_same_rule_as_one_named_to_a_reader(version: int) -> None:
    cluster = KnownCluster()
    partition = PartitionMetadata(3, leader=LeaderAndEpoch(1, 5))
    topic = TopicMetadata(0, "t", TOPIC_ID, partitions=(partition,))
    cluster.merge(ClusterMetadata((Node(1, "b1", 9092),), (topic,)))
    answer = decode_produce_answer(
        version, produced(version, leader=LeaderAndEpoch(2, 6), nodes=(Node(2, "b2", 9092),))
    )
    (one,) = answer.partitions
    decision = LeaderFinder(cluster, "t", 3, jitter=lambda: 0.5, topic_id=TOPIC_ID).refused(
        one.error, by=1, sent_epoch=5, hint=one.current_leader, nodes=answer.nodes
    )

    assert (decision.step, decision.wait_ms, decision.hint) == (LeaderStep.ASK_NEW_LEADER, 0, Hint.TAKEN)
    assert cluster.leader("t", 3) == LeaderAndEpoch(2, 6)


@pytest.mark.parametrize("version", [0, 9, 14])
def test_versions_that_name_no_leaders_or_are_not_known_are_not_read(version: int) -> None:
    with pytest.raises(ValueError, match=f"Produce {version}"):
        decode_produce_answer(version, b"")


@pytest.mark.parametrize("version", VERSIONS)
def test_an_answer_cut_anywhere_is_an_error_that_names_the_version(version: int) -> None:
    whole = produced(version, leader=LeaderAndEpoch(2, 6), nodes=(Node(2, "b2", 9092, "r2"),))
    for size in range(len(whole)):
        with pytest.raises(ProtocolError, match=f"Produce {version} answer"):
            decode_produce_answer(version, whole[:size])


def test_bytes_left_over_are_an_error() -> None:
    with pytest.raises(ProtocolError, match="left over"):
        decode_produce_answer(12, produced(12) + b"\0")


@given(st.sampled_from(VERSIONS), st.binary(max_size=200))
def test_any_bytes_give_a_value_or_a_protocol_error(version: int, noise: bytes) -> None:
    for frame in (noise, produced(version)[:6] + noise):
        try:
            decode_produce_answer(version, frame)
        except ProtocolError:
            continue


def test_every_flipped_bit_gives_a_value_or_a_protocol_error() -> None:
    whole = produced(13, leader=LeaderAndEpoch(2, 6), nodes=(Node(2, "b2", 9092, "r2"),))
    for bit in range(len(whole) * 8):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            decode_produce_answer(13, flipped)
        except ProtocolError:
            continue
