"""Requests into frames and frames into answers: the one place that knows kafka-python, as a codec and no more.

A request comes back as a whole frame, its size first. An answer is taken as the bytes behind the size, header
included. Any bytes give a value or a ``ProtocolError`` that names the API, its version and the position, in time and
memory bounded by the frame: ``message_shape`` has walked them before kafka-python sees them. Fetch answers do not go
this way but to ``fetch_answer``, which copies no records. Source: the message schemas of Apache Kafka 4.3.
"""

from __future__ import annotations

import logging
import re
import struct
import uuid
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import groupby
from typing import Any, Final, TypeVar

from segreader import __version__
from segreader.broker.apis import Api, is_flexible, response_header_version
from segreader.broker.fetch_answer import FIRST_WITH_TOPIC_ID, decode_fetch_answer
from segreader.broker.location_codec import extension_version, request_tags
from segreader.broker.message_shape import MessageShape
from segreader.broker.messages import (
    ApiVersionRange,
    ApiVersions,
    ClusterMetadata,
    CommittedOffset,
    CommittedOffsets,
    Coordinator,
    EpochEnd,
    EpochEndsAnswer,
    EpochWanted,
    FetchAnswer,
    FetchRequest,
    LeaderAndEpoch,
    ListedOffset,
    ListOffsetsAnswer,
    Node,
    OffsetWanted,
    PartitionMetadata,
    SaslAuthenticateAnswer,
    SaslHandshakeAnswer,
    TopicConfigs,
    TopicMetadata,
)
from segreader.broker.primitives import Reader, Writer, uuid_bytes, uuid_text
from segreader.errors import OptionError, ProtocolError
from segreader.isolation import IsolationLevel

try:
    from kafka.protocol import metadata as _metadata
    from kafka.protocol import sasl as _sasl
    from kafka.protocol.admin import configs as _configs
    from kafka.protocol.consumer import fetch as _fetch
    from kafka.protocol.consumer import group as _group
    from kafka.protocol.consumer import offsets as _offsets
except ImportError as _missing:
    raise OptionError(
        "brokers are spoken to with kafka-python, which is not installed",
        hint="Install it with: pip install 'segreader[broker]'",
    ) from _missing

# At DEBUG they write whole requests, the SASL password among them.
for _name in ("kafka.protocol", "kafka.net"):
    logging.getLogger(_name).setLevel(logging.INFO)

MAX_ANSWER_SIZE: Final = 32 << 20
"""Bytes of an answer that is none to Fetch. Metadata of half a million partitions is smaller."""

FIRST_METADATA_BY_ID: Final = 12
UNSUPPORTED_VERSION: Final = 35

_MESSAGES: Final[dict[Api, tuple[Any, Any]]] = {
    Api.FETCH: (_fetch.FetchRequest, _fetch.FetchResponse),
    Api.LIST_OFFSETS: (_offsets.ListOffsetsRequest, _offsets.ListOffsetsResponse),
    Api.METADATA: (_metadata.MetadataRequest, _metadata.MetadataResponse),
    Api.OFFSET_FETCH: (_group.OffsetFetchRequest, _group.OffsetFetchResponse),
    Api.FIND_COORDINATOR: (_metadata.FindCoordinatorRequest, _metadata.FindCoordinatorResponse),
    Api.SASL_HANDSHAKE: (_sasl.SaslHandshakeRequest, _sasl.SaslHandshakeResponse),
    Api.API_VERSIONS: (_metadata.ApiVersionsRequest, _metadata.ApiVersionsResponse),
    Api.OFFSET_FOR_LEADER_EPOCH: (_offsets.OffsetForLeaderEpochRequest, _offsets.OffsetForLeaderEpochResponse),
    Api.DESCRIBE_CONFIGS: (_configs.DescribeConfigsRequest, _configs.DescribeConfigsResponse),
    Api.SASL_AUTHENTICATE: (_sasl.SaslAuthenticateRequest, _sasl.SaslAuthenticateResponse),
}
_ISOLATION: Final = {IsolationLevel.READ_UNCOMMITTED: 0, IsolationLevel.READ_COMMITTED: 1}
_CONSUMER, _NO_SESSION, _TOPIC_RESOURCE, _GROUP_KEY = -1, -1, 2, 0
_T = TypeVar("_T")


def parse_correlation_id(frame: bytes | memoryview) -> int:
    """Which request a frame answers.

    Raises:
        ProtocolError: it has no four bytes.
    """
    return Reader(frame, flexible=False, what="an answer's header").int32()


# Requests


def encode_api_versions(
    version: int, software_version: str = __version__, *, correlation_id: int, client_id: str
) -> bytes:
    """Asks which versions the broker speaks. ``software_version`` is told to it, without what it would refuse."""
    name = re.sub(r"[^A-Za-z0-9.-]", "-", software_version).strip(".-") or "0"
    request = _request(Api.API_VERSIONS)(
        version=version, client_software_name="segreader", client_software_version=name
    )
    return _encoded(Api.API_VERSIONS, version, request, correlation_id, client_id)


def encode_metadata(
    version: int,
    topics: Sequence[str] | None = None,
    *,
    topic_ids: Sequence[str] = (),
    correlation_id: int,
    client_id: str,
) -> bytes:
    """Asks for brokers and topics: all that may be seen if ``topics`` is ``None`` and no ids are given; ids from 12 on.

    Topics are never created by it.
    """
    if topic_ids and version < FIRST_METADATA_BY_ID:
        raise ValueError(f"Metadata {version} does not ask by topic id")
    wanted: list[Any] | None = None
    if topics is not None or topic_ids:
        of_topic = _request(Api.METADATA).MetadataRequestTopic
        wanted = [of_topic(version=version, topic_id=None, name=name) for name in topics or ()]
        wanted += [of_topic(version=version, topic_id=_uuid(one), name=None) for one in topic_ids]
    request = _request(Api.METADATA)(version=version, topics=wanted, allow_auto_topic_creation=False)
    return _encoded(Api.METADATA, version, request, correlation_id, client_id)


def encode_fetch(version: int, request: FetchRequest, *, correlation_id: int, client_id: str) -> bytes:
    """Asks for records; with the flag of the location extension where ``request`` wants locations.

    Partitions keep their order: the broker serves them in it until ``max_bytes`` are used up.

    Raises:
        ValueError: a topic's id is needed from version 13 on and not given.
    """
    message, has_ids = _request(Api.FETCH), version >= FIRST_WITH_TOPIC_ID
    topics = []
    for (topic, topic_id), partitions in groupby(request.partitions, lambda one: (one.topic, one.topic_id)):
        if has_ids and topic_id is None:
            raise ValueError(f"Fetch {version} asks by topic id, and that of {topic} is not given")
        topics.append(
            message.FetchTopic(
                version=version,
                partitions=[
                    message.FetchTopic.FetchPartition(
                        version=version,
                        partition=one.partition,
                        current_leader_epoch=one.current_leader_epoch,
                        fetch_offset=one.fetch_offset,
                        last_fetched_epoch=-1,
                        log_start_offset=-1,
                        partition_max_bytes=one.max_bytes,
                    )
                    for one in partitions
                ],
                **({"topic_id": _uuid(topic_id)} if has_ids else {"topic": topic}),
            )
        )
    encoded = _encoded(
        Api.FETCH,
        version,
        message(
            version=version,
            replica_id=_CONSUMER,
            max_wait_ms=request.max_wait_ms,
            min_bytes=request.min_bytes,
            max_bytes=request.max_bytes,
            isolation_level=_ISOLATION[request.isolation_level],
            session_id=0,
            session_epoch=_NO_SESSION,
            topics=topics,
            forgotten_topics_data=[],
            rack_id=request.rack,
        ),
        correlation_id,
        client_id,
    )
    return _with_tags(encoded, request_tags(request.storage_formats)) if request.wants_locations else encoded


def encode_list_offsets(
    version: int,
    wanted: Sequence[OffsetWanted],
    isolation_level: IsolationLevel,
    timeout_ms: int = 30_000,
    *,
    correlation_id: int,
    client_id: str,
) -> bytes:
    """Asks the leader for offsets. A partition may be in ``wanted`` once: twice is refused with 42.

    Args:
        timeout_ms: how long a look-up by time may wait for the object store, from version 10 on.
    """
    message = _request(Api.LIST_OFFSETS)
    topics = [
        message.ListOffsetsTopic(
            version=version,
            name=topic,
            partitions=[
                message.ListOffsetsTopic.ListOffsetsPartition(
                    version=version,
                    partition_index=one.partition,
                    current_leader_epoch=one.current_leader_epoch,
                    timestamp=one.timestamp,
                )
                for one in partitions
            ],
        )
        for topic, partitions in groupby(wanted, lambda one: one.topic)
    ]
    request = message(
        version=version,
        replica_id=_CONSUMER,
        isolation_level=_ISOLATION[isolation_level],
        topics=topics,
        timeout_ms=timeout_ms,
    )
    return _encoded(Api.LIST_OFFSETS, version, request, correlation_id, client_id)


def encode_epoch_ends(version: int, wanted: Sequence[EpochWanted], *, correlation_id: int, client_id: str) -> bytes:
    """Asks the leader where epochs end (OffsetForLeaderEpoch)."""
    message = _request(Api.OFFSET_FOR_LEADER_EPOCH)
    topics = [
        message.OffsetForLeaderTopic(
            version=version,
            topic=topic,
            partitions=[
                message.OffsetForLeaderTopic.OffsetForLeaderPartition(
                    version=version,
                    partition=one.partition,
                    current_leader_epoch=one.current_leader_epoch,
                    leader_epoch=one.leader_epoch,
                )
                for one in partitions
            ],
        )
        for topic, partitions in groupby(wanted, lambda one: one.topic)
    ]
    request = message(version=version, replica_id=_CONSUMER, topics=topics)
    return _encoded(Api.OFFSET_FOR_LEADER_EPOCH, version, request, correlation_id, client_id)


def encode_find_coordinator(version: int, group: str, *, correlation_id: int, client_id: str) -> bytes:
    """Asks which broker keeps a group's offsets."""
    request = _request(Api.FIND_COORDINATOR)(version=version, key_type=_GROUP_KEY, coordinator_keys=[group])
    return _encoded(Api.FIND_COORDINATOR, version, request, correlation_id, client_id)


def encode_offset_fetch(
    version: int,
    group: str,
    topics: Mapping[str, Sequence[int]] | None = None,
    *,
    correlation_id: int,
    client_id: str,
) -> bytes:
    """Asks the coordinator for a group's committed offsets, of all its topics by default; pending commits answer 88."""
    message = _request(Api.OFFSET_FETCH)
    of_group = message.OffsetFetchRequestGroup
    wanted = None
    if topics is not None:
        of_topic = of_group.OffsetFetchRequestTopics
        wanted = [
            of_topic(version=version, name=topic, partition_indexes=list(partitions))
            for topic, partitions in topics.items()
        ]
    request = message(
        version=version,
        groups=[of_group(version=version, group_id=group, member_id=None, member_epoch=-1, topics=wanted)],
        require_stable=True,
    )
    return _encoded(Api.OFFSET_FETCH, version, request, correlation_id, client_id)


def encode_describe_configs(
    version: int, topics: Sequence[str], keys: Sequence[str] | None = None, *, correlation_id: int, client_id: str
) -> bytes:
    """Asks for the configuration of topics: the values of ``keys``, or all."""
    message = _request(Api.DESCRIBE_CONFIGS)
    resources = [
        message.DescribeConfigsResource(
            version=version,
            resource_type=_TOPIC_RESOURCE,
            resource_name=topic,
            configuration_keys=None if keys is None else list(keys),
        )
        for topic in topics
    ]
    request = message(version=version, resources=resources, include_synonyms=False, include_documentation=False)
    return _encoded(Api.DESCRIBE_CONFIGS, version, request, correlation_id, client_id)


def encode_sasl_handshake(version: int, mechanism: str, *, correlation_id: int, client_id: str) -> bytes:
    """Names the mechanism that authentication will use."""
    request = _request(Api.SASL_HANDSHAKE)(version=version, mechanism=mechanism)
    return _encoded(Api.SASL_HANDSHAKE, version, request, correlation_id, client_id)


def encode_sasl_authenticate(version: int, data: bytes, *, correlation_id: int, client_id: str) -> bytes:
    """One step of the mechanism; ``data`` is a secret and goes nowhere else."""
    request = _request(Api.SASL_AUTHENTICATE)(version=version, auth_bytes=data)
    return _encoded(Api.SASL_AUTHENTICATE, version, request, correlation_id, client_id)


# Answers


def decode_api_versions(version: int, frame: bytes | memoryview) -> ApiVersions:
    """What the broker speaks. With an error, 35 above all, the rest is not read: some send a malformed one."""
    reader = _reader(Api.API_VERSIONS, version, frame)
    start = reader.position
    if error := reader.int16():
        return ApiVersions(error, {})
    reader.position = start
    message, tags = _decoded(Api.API_VERSIONS, version, reader)
    ranges = {one.api_key: ApiVersionRange(one.min_version, one.max_version) for one in message.api_keys}
    return ApiVersions(0, ranges, message.throttle_time_ms, extension_version(tags))


def decode_metadata(version: int, frame: bytes | memoryview) -> ClusterMetadata:
    """Brokers, topics, partitions and their leaders."""
    message = _message(Api.METADATA, version, frame)
    return ClusterMetadata(
        nodes=tuple(Node(one.node_id, one.host, one.port, one.rack) for one in message.brokers),
        topics=tuple(_topic_metadata(one) for one in message.topics),
        cluster_id=message.cluster_id,
        controller_id=message.controller_id,
        error=message.error_code or 0,
        throttle_ms=message.throttle_time_ms,
    )


def decode_fetch(version: int, frame: bytes | memoryview) -> FetchAnswer:
    """Records as slices of ``frame``, and what came with them."""
    return decode_fetch_answer(version, frame)


def decode_list_offsets(version: int, frame: bytes | memoryview) -> ListOffsetsAnswer:
    """The offsets that were asked for, or the errors of their partitions."""
    message = _message(Api.LIST_OFFSETS, version, frame)
    offsets = tuple(
        ListedOffset(topic.name, one.partition_index, one.error_code, one.offset, one.timestamp, one.leader_epoch)
        for topic in message.topics
        for one in topic.partitions
    )
    return ListOffsetsAnswer(offsets, message.throttle_time_ms)


def decode_epoch_ends(version: int, frame: bytes | memoryview) -> EpochEndsAnswer:
    """Where the epochs end that were asked for."""
    message = _message(Api.OFFSET_FOR_LEADER_EPOCH, version, frame)
    ends = tuple(
        EpochEnd(topic.topic, one.partition, one.error_code, one.leader_epoch, one.end_offset)
        for topic in message.topics
        for one in topic.partitions
    )
    return EpochEndsAnswer(ends, message.throttle_time_ms)


def decode_find_coordinator(version: int, frame: bytes | memoryview) -> Coordinator:
    """The coordinator of the one group that was asked for."""
    message = _message(Api.FIND_COORDINATOR, version, frame)
    one = _only(Api.FIND_COORDINATOR, version, message.coordinators)
    node = None if one.error_code else Node(one.node_id, one.host, one.port)
    return Coordinator(one.key, one.error_code, node, one.error_message or None, message.throttle_time_ms)


def decode_offset_fetch(version: int, frame: bytes | memoryview) -> CommittedOffsets:
    """The committed offsets of the one group that was asked for."""
    message = _message(Api.OFFSET_FETCH, version, frame)
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
    message = _message(Api.DESCRIBE_CONFIGS, version, frame)
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
    message = _message(Api.SASL_HANDSHAKE, version, frame)
    return SaslHandshakeAnswer(message.error_code, tuple(message.mechanisms))


def decode_sasl_authenticate(version: int, frame: bytes | memoryview) -> SaslAuthenticateAnswer:
    """The broker's step of the mechanism."""
    message = _message(Api.SASL_AUTHENTICATE, version, frame)
    return SaslAuthenticateAnswer(
        message.error_code, bytes(message.auth_bytes), message.session_lifetime_ms or 0, message.error_message or None
    )


def _request(api: Api) -> Any:
    return _MESSAGES[api][0]


def _encoded(api: Api, version: int, message: Any, correlation_id: int, client_id: str) -> bytes:
    """A frame: our own header, and the body that kafka-python writes."""
    header = Writer(flexible=is_flexible(api, version))
    try:
        header.int16(api)
        header.int16(version)
        header.int32(correlation_id)
        header.client_id(client_id)
        header.tags()
        header.raw(message.encode(version=version))
    except (struct.error, UnicodeEncodeError) as wrong:
        raise OptionError(f"this cannot be asked by {api.label} {version}: {wrong}") from None
    return header.framed()


def _with_tags(frame: bytes, tags: Iterable[tuple[int, bytes]]) -> bytes:
    """A flexible request with tags in place of its empty last section: kafka-python writes none that it knows not."""
    if frame[-1:] != b"\0":
        raise ValueError("the request has tagged fields already")
    writer = Writer(flexible=True)
    writer.raw(memoryview(frame)[4:-1])
    writer.tags(tags)
    return writer.framed()


def _reader(api: Api, version: int, frame: bytes | memoryview) -> Reader:
    """At the first byte of the body."""
    reader = Reader(frame, flexible=bool(response_header_version(api, version)), what=f"{api.label} {version} answer")
    if reader.left > MAX_ANSWER_SIZE:
        raise reader.error(
            "the answer is too large", found=f"{reader.left} bytes", expected=f"{MAX_ANSWER_SIZE} at most"
        )
    reader.int32()
    reader.tags()
    return reader


@cache
def _shape(api: Api, version: int) -> MessageShape:
    return MessageShape(_MESSAGES[api][1].json, version)


def _message(api: Api, version: int, frame: bytes | memoryview) -> Any:
    return _decoded(api, version, _reader(api, version, frame))[0]


def _decoded(api: Api, version: int, reader: Reader) -> tuple[Any, tuple[tuple[int, Reader], ...]]:
    body, tags = _shape(api, version).body(reader)
    try:
        return _MESSAGES[api][1].decode(body, version=version), tags
    except Exception as unforeseen:  # whatever the library raises for what the walk did not see
        raise ProtocolError(
            f"{api.label} {version} answer: it cannot be decoded: {type(unforeseen).__name__}"
        ) from None


def _only(api: Api, version: int, answers: Sequence[_T]) -> _T:
    if len(answers) != 1:
        raise ProtocolError(f"{api.label} {version} answer: one group was asked for", found=len(answers), expected=1)
    return answers[0]


def _uuid(text: str | None) -> uuid.UUID:
    return uuid.UUID(bytes=uuid_bytes(text))


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
