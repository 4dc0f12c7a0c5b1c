"""What brokers answer, out of frames without their size: values of ``messages``.

Source: the message schemas of Apache Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeVar

from segreader.broker.apis import Api
from segreader.broker.kafka_codec import body_reader, decoded, message_of
from segreader.broker.location_codec import extension_version
from segreader.broker.messages import (
    ApiVersionRange,
    ApiVersions,
    ClusterMetadata,
    CommittedOffset,
    CommittedOffsets,
    Coordinator,
    EpochEnd,
    EpochEndsAnswer,
    LeaderAndEpoch,
    ListedOffset,
    ListOffsetsAnswer,
    Node,
    PartitionMetadata,
    SaslAuthenticateAnswer,
    SaslHandshakeAnswer,
    TopicConfigs,
    TopicMetadata,
)
from segreader.broker.primitives import Reader, uuid_text
from segreader.errors import ProtocolError

_TOPIC_RESOURCE: Final = 2
_T = TypeVar("_T")


def parse_correlation_id(frame: bytes | memoryview) -> int:
    """Which request a frame answers.

    Raises:
        ProtocolError: it has no four bytes.
    """
    return Reader(frame, flexible=False, what="an answer's header").int32()


def decode_api_versions(version: int, frame: bytes | memoryview) -> ApiVersions:
    """What the broker speaks. With an error, 35 above all, the rest is not read: some send a malformed one."""
    reader = body_reader(Api.API_VERSIONS, version, frame)
    start = reader.position
    if error := reader.int16():
        return ApiVersions(error, {})
    reader.position = start
    message, tags = decoded(Api.API_VERSIONS, version, reader)
    ranges = {one.api_key: ApiVersionRange(one.min_version, one.max_version) for one in message.api_keys}
    return ApiVersions(0, ranges, message.throttle_time_ms, extension_version(tags))


def decode_metadata(version: int, frame: bytes | memoryview) -> ClusterMetadata:
    """Brokers, topics, partitions and their leaders."""
    message = message_of(Api.METADATA, version, frame)
    return ClusterMetadata(
        nodes=tuple(Node(one.node_id, one.host, one.port, one.rack) for one in message.brokers),
        topics=tuple(_topic_metadata(one) for one in message.topics),
        cluster_id=message.cluster_id,
        controller_id=message.controller_id,
        error=message.error_code or 0,
        throttle_ms=message.throttle_time_ms,
    )


def decode_list_offsets(version: int, frame: bytes | memoryview) -> ListOffsetsAnswer:
    """The offsets that were asked for, or the errors of their partitions."""
    message = message_of(Api.LIST_OFFSETS, version, frame)
    offsets = tuple(
        ListedOffset(topic.name, one.partition_index, one.error_code, one.offset, one.timestamp, one.leader_epoch)
        for topic in message.topics
        for one in topic.partitions
    )
    return ListOffsetsAnswer(offsets, message.throttle_time_ms)


def decode_epoch_ends(version: int, frame: bytes | memoryview) -> EpochEndsAnswer:
    """Where the epochs end that were asked for."""
    message = message_of(Api.OFFSET_FOR_LEADER_EPOCH, version, frame)
    ends = tuple(
        EpochEnd(topic.topic, one.partition, one.error_code, one.leader_epoch, one.end_offset)
        for topic in message.topics
        for one in topic.partitions
    )
    return EpochEndsAnswer(ends, message.throttle_time_ms)


def decode_find_coordinator(version: int, frame: bytes | memoryview) -> Coordinator:
    """The coordinator of the one group that was asked for."""
    message = message_of(Api.FIND_COORDINATOR, version, frame)
    one = _only(Api.FIND_COORDINATOR, version, message.coordinators)
    node = None if one.error_code else Node(one.node_id, one.host, one.port)
    return Coordinator(one.key, one.error_code, node, one.error_message or None, message.throttle_time_ms)


def decode_offset_fetch(version: int, frame: bytes | memoryview) -> CommittedOffsets:
    """The committed offsets of the one group that was asked for."""
    message = message_of(Api.OFFSET_FETCH, version, frame)
    group = _only(Api.OFFSET_FETCH, version, message.groups)
    offsets = tuple(
        CommittedOffset(
            topic.name, one.partition_index, one.error_code, one.committed_offset, one.committed_leader_epoch
        )
        for topic in group.topics
        for one in topic.partitions
    )
    return CommittedOffsets(group.group_id, group.error_code, offsets, message.throttle_time_ms)


def decode_describe_configs(version: int, frame: bytes | memoryview) -> tuple[TopicConfigs, ...]:
    """The configuration of the topics that were asked for; other resources are left out."""
    message = message_of(Api.DESCRIBE_CONFIGS, version, frame)
    return tuple(
        TopicConfigs(
            one.resource_name,
            one.error_code,
            {config.name: config.value for config in one.configs},
            one.error_message or None,
        )
        for one in message.results
        if one.resource_type == _TOPIC_RESOURCE
    )


def decode_sasl_handshake(version: int, frame: bytes | memoryview) -> SaslHandshakeAnswer:
    """Whether the mechanism is taken."""
    message = message_of(Api.SASL_HANDSHAKE, version, frame)
    return SaslHandshakeAnswer(message.error_code, tuple(message.mechanisms))


def decode_sasl_authenticate(version: int, frame: bytes | memoryview) -> SaslAuthenticateAnswer:
    """The broker's step of the mechanism."""
    message = message_of(Api.SASL_AUTHENTICATE, version, frame)
    return SaslAuthenticateAnswer(
        message.error_code, bytes(message.auth_bytes), message.session_lifetime_ms or 0, message.error_message or None
    )


def _only(api: Api, version: int, answers: Sequence[_T]) -> _T:
    if len(answers) != 1:
        raise ProtocolError(f"{api.label} {version} answer: one group was asked for", found=len(answers), expected=1)
    return answers[0]


def _topic_metadata(topic: Any) -> TopicMetadata:
    return TopicMetadata(
        error=topic.error_code,
        name=topic.name,
        topic_id=None if topic.topic_id is None else uuid_text(topic.topic_id.bytes),
        is_internal=topic.is_internal,
        partitions=tuple(
            PartitionMetadata(
                partition=one.partition_index,
                error=one.error_code,
                leader=LeaderAndEpoch(one.leader_id, one.leader_epoch),
                replicas=tuple(one.replica_nodes),
                in_sync=tuple(one.isr_nodes),
                offline=tuple(one.offline_replicas),
            )
            for one in topic.partitions
        ),
    )
