"""One function per API: a ``Call`` that knows its version, encodes the request and decodes the answer.

Below the calls are the encoders, which give a whole frame with its size, and the decoders, which take the bytes after
the size, header included. Any bytes give a value or a ``ProtocolError``.
Source: the message schemas of Apache Kafka 4.3.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, Protocol, TypeVar

from segreader.broker.codec import (
    FIRST_WITH_TOPIC_ID,
    AnswerParts,
    answer_body,
    answer_parts,
    decode_answer,
    decode_body,
    encode_request,
    message_name,
)
from segreader.broker.connection import Answer, Call
from segreader.broker.location import (
    FOLLOWING_TAG,
    LOCATION_TAG,
    decode_following,
    decode_location,
    extension_version,
    request_tags,
)
from segreader.broker.messages import (
    NO_EPOCH,
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
    FetchedPartition,
    FetchRequest,
    LeaderAndEpoch,
    ListedOffset,
    ListOffsetsAnswer,
    Node,
    OffsetWanted,
    PartitionMetadata,
    RemoteLogSegmentLocation,
    SaslAuthenticateAnswer,
    SaslHandshakeAnswer,
    TopicConfigs,
    TopicMetadata,
)
from segreader.broker.primitives import Reader
from segreader.broker.protocol import Api, choose_version
from segreader.broker.settings import ClientSettings
from segreader.errors import ProtocolError
from segreader.isolation import IsolationLevel

FIRST_METADATA_BY_ID: Final = 12

MAX_PARTITIONS: Final = 100_000
"""Partitions in one Fetch answer; one broker has fewer."""

_ISOLATION: Final = {IsolationLevel.READ_UNCOMMITTED: 0, IsolationLevel.READ_COMMITTED: 1}
_CONSUMER, _NO_SESSION, _TOPIC_RESOURCE, _GROUP_KEY = -1, -1, 2, 0
_T = TypeVar("_T")
_Asked = TypeVar("_Asked", OffsetWanted, EpochWanted)


def api_versions(settings: ClientSettings, version: int) -> Call[ApiVersions]:
    """What the broker speaks; error 35 where it does not know this version of the question."""
    encode = partial(encode_api_versions, version, settings.software_name, settings.software_version)
    return _call(settings, Api.API_VERSIONS, version, encode, decode_api_versions)


def sasl_handshake(settings: ClientSettings) -> Call[SaslHandshakeAnswer]:
    """Which mechanism follows."""
    assert settings.sasl_mechanism is not None
    mechanism = str(settings.sasl_mechanism)
    encode = partial(encode_sasl_handshake, 1, mechanism)
    return _call(settings, Api.SASL_HANDSHAKE, 1, encode, decode_sasl_handshake)


def sasl_authenticate(settings: ClientSettings, version: int, data: bytes) -> Call[SaslAuthenticateAnswer]:
    """One step of the mechanism."""
    encode = partial(encode_sasl_authenticate, version, data)
    return _call(settings, Api.SASL_AUTHENTICATE, version, encode, decode_sasl_authenticate)


def metadata(settings: ClientSettings, offered: ApiVersions, topics: Sequence[str] | None) -> Call[ClusterMetadata]:
    """Brokers and the leaders of these topics; ``None``: of all that may be described."""
    version = choose_version(Api.METADATA, offered)
    return _call(settings, Api.METADATA, version, partial(encode_metadata, version, topics), decode_metadata)


def fetch(settings: ClientSettings, offered: ApiVersions, request: FetchRequest) -> Call[FetchAnswer]:
    """Records, or their location."""
    needs_names = any(each.topic_id is None for each in request.partitions)
    version = choose_version(Api.FETCH, offered, at_most=12 if needs_names else None)
    encode = partial(encode_fetch, version, request)
    return _call(
        settings,
        Api.FETCH,
        version,
        encode,
        decode_fetch,
        held_ms=request.max_wait_ms,
        answer_bytes=request.max_bytes,
    )


def list_offsets(
    settings: ClientSettings, offered: ApiVersions, wanted: Sequence[OffsetWanted], isolation_level: IsolationLevel
) -> Call[ListOffsetsAnswer]:
    """Offsets by time or special timestamp; each partition once."""
    version = choose_version(Api.LIST_OFFSETS, offered)
    encode = partial(encode_list_offsets, version, wanted, isolation_level)
    return _call(settings, Api.LIST_OFFSETS, version, encode, decode_list_offsets)


def epoch_ends(settings: ClientSettings, offered: ApiVersions, wanted: Sequence[EpochWanted]) -> Call[EpochEndsAnswer]:
    """Where epochs end; each partition once."""
    version = choose_version(Api.OFFSET_FOR_LEADER_EPOCH, offered)
    encode = partial(encode_epoch_ends, version, wanted)
    return _call(settings, Api.OFFSET_FOR_LEADER_EPOCH, version, encode, decode_epoch_ends)


def find_coordinator(settings: ClientSettings, offered: ApiVersions, group: str) -> Call[Coordinator]:
    """The broker that keeps a group's offsets."""
    version = choose_version(Api.FIND_COORDINATOR, offered)
    encode = partial(encode_find_coordinator, version, group)
    return _call(settings, Api.FIND_COORDINATOR, version, encode, decode_find_coordinator)


def offset_fetch(
    settings: ClientSettings, offered: ApiVersions, group: str, partitions: Mapping[str, Sequence[int]] | None
) -> Call[CommittedOffsets]:
    """What a group has committed; ``None``: for all its partitions."""
    version = choose_version(Api.OFFSET_FETCH, offered)
    encode = partial(encode_offset_fetch, version, group, partitions)
    return _call(settings, Api.OFFSET_FETCH, version, encode, decode_offset_fetch)


def describe_configs(
    settings: ClientSettings, offered: ApiVersions, topics: Sequence[str], keys: Sequence[str] | None
) -> Call[tuple[TopicConfigs, ...]]:
    """Configuration values of topics; ``None``: all keys."""
    version = choose_version(Api.DESCRIBE_CONFIGS, offered)
    encode = partial(encode_describe_configs, version, topics, keys)
    return _call(settings, Api.DESCRIBE_CONFIGS, version, encode, decode_describe_configs)


class _Encode(Protocol):
    """Makes the whole frame, once it is known whose it is."""

    def __call__(self, *, correlation_id: int, client_id: str) -> bytes: ...


def _call(
    settings: ClientSettings,
    api: Api,
    version: int,
    encode: _Encode,
    decode: Callable[[int, memoryview], Answer],
    *,
    held_ms: int = 0,
    answer_bytes: int = 0,
) -> Call[Answer]:
    """A request in the client's name, and its answer read in the same version."""
    # Not a partial: its repr would show what an authentication sends.
    return Call(
        api.label,
        version,
        lambda correlation_id: encode(correlation_id=correlation_id, client_id=settings.client_id),
        partial(decode, version),
        held_ms,
        answer_bytes,
    )


def encode_api_versions(
    version: int, software_name: str, software_version: str, *, correlation_id: int, client_id: str
) -> bytes:
    """Asks which versions the broker supports, and names the client in characters that the broker accepts."""
    message = {
        "client_software_name": _software(software_name),
        "client_software_version": _software(software_version),
    }
    return encode_request(Api.API_VERSIONS, version, message, correlation_id=correlation_id, client_id=client_id)


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
    wanted = None
    if topics is not None or topic_ids:
        wanted = [{"topic_id": None, "name": name} for name in topics or ()]
        wanted += [{"topic_id": topic_id, "name": None} for topic_id in topic_ids]
    message = {
        "topics": wanted,
        "allow_auto_topic_creation": False,
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
    }
    return encode_request(Api.METADATA, version, message, correlation_id=correlation_id, client_id=client_id)


def encode_fetch(version: int, request: FetchRequest, *, correlation_id: int, client_id: str) -> bytes:
    """Asks for records; with the flag of the location extension where ``request`` wants locations.

    Partitions keep their order: the broker serves them in it until ``max_bytes`` are used up.

    Raises:
        ValueError: a topic's id is needed from version 13 on and not given.
    """
    topics = []
    for (topic, topic_id), partitions in groupby(request.partitions, lambda one: (one.topic, one.topic_id)):
        if version >= FIRST_WITH_TOPIC_ID and topic_id is None:
            raise ValueError(f"Fetch {version} asks by topic id, and that of {topic} is not given")
        wanted = [
            {
                "partition": one.partition,
                "current_leader_epoch": one.current_leader_epoch,
                "fetch_offset": one.fetch_offset,
                "last_fetched_epoch": NO_EPOCH,
                "log_start_offset": -1,
                "partition_max_bytes": one.max_bytes,
            }
            for one in partitions
        ]
        topics.append({"topic": topic, "topic_id": topic_id, "partitions": wanted})
    stops = [one.stop_offset for one in request.partitions]
    message = {
        "replica_id": _CONSUMER,
        "max_wait_ms": request.max_wait_ms,
        "min_bytes": request.min_bytes,
        "max_bytes": request.max_bytes,
        "isolation_level": _ISOLATION[request.isolation_level],
        "session_id": 0,
        "session_epoch": _NO_SESSION,
        "topics": topics,
        "forgotten_topics_data": (),
        "rack_id": request.rack,
        "tags": request_tags(request.storage_formats, stops, request.most_segments) if request.wants_locations else (),
    }
    return encode_request(Api.FETCH, version, message, correlation_id=correlation_id, client_id=client_id)


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
    topics = _by_topic(
        "name",
        wanted,
        lambda one: {
            "partition_index": one.partition,
            "current_leader_epoch": one.current_leader_epoch,
            "timestamp": one.timestamp,
        },
    )
    message = {
        "replica_id": _CONSUMER,
        "isolation_level": _ISOLATION[isolation_level],
        "topics": topics,
        "timeout_ms": timeout_ms,
    }
    return encode_request(Api.LIST_OFFSETS, version, message, correlation_id=correlation_id, client_id=client_id)


def encode_epoch_ends(version: int, wanted: Sequence[EpochWanted], *, correlation_id: int, client_id: str) -> bytes:
    """Asks the leader where epochs end (OffsetForLeaderEpoch)."""
    topics = _by_topic(
        "topic",
        wanted,
        lambda one: {
            "partition": one.partition,
            "current_leader_epoch": one.current_leader_epoch,
            "leader_epoch": one.leader_epoch,
        },
    )
    message = {"replica_id": _CONSUMER, "topics": topics}
    return encode_request(
        Api.OFFSET_FOR_LEADER_EPOCH, version, message, correlation_id=correlation_id, client_id=client_id
    )


def encode_find_coordinator(version: int, group: str, *, correlation_id: int, client_id: str) -> bytes:
    """Asks which broker keeps a group's offsets."""
    message = {"key_type": _GROUP_KEY, "coordinator_keys": [group]}
    return encode_request(Api.FIND_COORDINATOR, version, message, correlation_id=correlation_id, client_id=client_id)


def encode_offset_fetch(
    version: int,
    group: str,
    topics: Mapping[str, Sequence[int]] | None = None,
    *,
    correlation_id: int,
    client_id: str,
) -> bytes:
    """Asks the coordinator for a group's committed offsets, of all its topics by default; pending commits answer 88."""
    wanted = None
    if topics is not None:
        wanted = [{"name": topic, "partition_indexes": partitions} for topic, partitions in topics.items()]
    of_group = {"group_id": group, "member_id": None, "member_epoch": -1, "topics": wanted}
    message = {"groups": [of_group], "require_stable": True}
    return encode_request(Api.OFFSET_FETCH, version, message, correlation_id=correlation_id, client_id=client_id)


def encode_describe_configs(
    version: int, topics: Sequence[str], keys: Sequence[str] | None = None, *, correlation_id: int, client_id: str
) -> bytes:
    """Asks for the configuration of topics: the values of ``keys``, or all."""
    resources = [
        {"resource_type": _TOPIC_RESOURCE, "resource_name": topic, "configuration_keys": keys} for topic in topics
    ]
    message = {"resources": resources, "include_synonyms": False, "include_documentation": False}
    return encode_request(Api.DESCRIBE_CONFIGS, version, message, correlation_id=correlation_id, client_id=client_id)


def encode_sasl_handshake(version: int, mechanism: str, *, correlation_id: int, client_id: str) -> bytes:
    """Names the mechanism that authentication will use."""
    message = {"mechanism": mechanism}
    return encode_request(Api.SASL_HANDSHAKE, version, message, correlation_id=correlation_id, client_id=client_id)


def encode_sasl_authenticate(version: int, data: bytes, *, correlation_id: int, client_id: str) -> bytes:
    """One step of the mechanism; ``data`` is a secret and goes nowhere else."""
    message = {"auth_bytes": data}
    return encode_request(Api.SASL_AUTHENTICATE, version, message, correlation_id=correlation_id, client_id=client_id)


def _by_topic(
    name: str, wanted: Sequence[_Asked], partition: Callable[[_Asked], Mapping[str, int]]
) -> list[Mapping[str, Any]]:
    """Partitions of one topic that follow each other as one topic, in a field called ``name``."""
    return [
        {name: topic, "partitions": [partition(one) for one in of_topic]}
        for topic, of_topic in groupby(wanted, lambda one: one.topic)
    ]


def decode_api_versions(version: int, frame: bytes | memoryview) -> ApiVersions:
    """What the broker speaks. With an error, 35 above all, the rest is not read: some send a malformed one."""
    reader = answer_body(Api.API_VERSIONS, version, frame)
    start = reader.position
    if error := reader.int16():
        return ApiVersions(error, {})
    reader.position = start
    message = decode_body(Api.API_VERSIONS, version, reader)
    ranges = {one.api_key: ApiVersionRange(one.min_version, one.max_version) for one in message.api_keys}
    return ApiVersions(0, ranges, message.throttle_time_ms, extension_version(message.tags))


def decode_metadata(version: int, frame: bytes | memoryview) -> ClusterMetadata:
    """Brokers, topics, partitions and their leaders."""
    message = decode_answer(Api.METADATA, version, frame)
    return ClusterMetadata(
        nodes=tuple(Node(one.node_id, one.host, one.port, one.rack) for one in message.brokers),
        topics=tuple(_topic_metadata(one) for one in message.topics),
        cluster_id=message.cluster_id,
        controller_id=message.controller_id,
        error=message.error_code,
        throttle_ms=message.throttle_time_ms,
    )


def decode_fetch(version: int, frame: bytes | memoryview) -> FetchAnswer:
    """The answer in a frame, without its size; the header is read over.

    Args:
        frame: the memory of the records: they are slices of it.

    Raises:
        ProtocolError: it is damaged, cut, or has bytes left over.
    """
    parts = answer_parts(Api.FETCH, version)
    reader = Reader(frame, flexible=True, what=message_name(Api.FETCH, version))
    top, topics = parts.top(reader)
    partitions: list[FetchedPartition] = []
    for _ in range(topics):
        topic, count = parts.topic(reader)
        if len(partitions) + count > MAX_PARTITIONS:
            raise reader.error("too many partitions", expected=f"{MAX_PARTITIONS} at most")
        partitions.extend([_fetched_partition(reader, parts, topic.topic, topic.topic_id) for _ in range(count)])
        reader.tags()
    end = parts.end.read(reader)
    reader.finish()
    nodes: tuple[Node, ...] = ()
    if end.node_endpoints:
        nodes = tuple(Node(one.node_id, one.host, one.port, one.rack) for one in end.node_endpoints)
    return FetchAnswer(
        tuple(partitions), top.error_code, top.session_id, top.throttle_time_ms, nodes, extension_version(end.tags)
    )


_aborted = attrgetter("producer_id", "first_offset")


def _fetched_partition(reader: Reader, parts: AnswerParts, topic: str | None, topic_id: str | None) -> FetchedPartition:
    head = parts.partition(reader)
    aborted, preferred_read_replica = head.aborted_transactions, head.preferred_read_replica
    records = reader.nullable_blob()
    tags = parts.after_records(reader)
    diverging, leader = tags.diverging_epoch, tags.current_leader
    location: RemoteLogSegmentLocation | None = None
    location_error: str | None = None
    following: tuple[RemoteLogSegmentLocation, ...] = ()
    for tag, value in tags.tags:
        if tag == LOCATION_TAG:
            location, location_error = _location(value)
        elif tag == FOLLOWING_TAG:
            with suppress(ProtocolError):  # they can be asked for one by one
                following = decode_following(value)
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
        following,
    )


def _location(value: Reader) -> tuple[RemoteLogSegmentLocation | None, str | None]:
    try:
        return decode_location(value), None
    except ProtocolError as damaged:
        return None, str(damaged)


def decode_list_offsets(version: int, frame: bytes | memoryview) -> ListOffsetsAnswer:
    """The offsets that were asked for, or the errors of their partitions."""
    message = decode_answer(Api.LIST_OFFSETS, version, frame)
    offsets = tuple(
        ListedOffset(topic.name, one.partition_index, one.error_code, one.offset, one.timestamp, one.leader_epoch)
        for topic in message.topics
        for one in topic.partitions
    )
    return ListOffsetsAnswer(offsets, message.throttle_time_ms)


def decode_epoch_ends(version: int, frame: bytes | memoryview) -> EpochEndsAnswer:
    """Where the epochs end that were asked for."""
    message = decode_answer(Api.OFFSET_FOR_LEADER_EPOCH, version, frame)
    ends = tuple(
        EpochEnd(topic.topic, one.partition, one.error_code, one.leader_epoch, one.end_offset)
        for topic in message.topics
        for one in topic.partitions
    )
    return EpochEndsAnswer(ends, message.throttle_time_ms)


def decode_find_coordinator(version: int, frame: bytes | memoryview) -> Coordinator:
    """The coordinator of the one group that was asked for."""
    message = decode_answer(Api.FIND_COORDINATOR, version, frame)
    one = _only(Api.FIND_COORDINATOR, version, message.coordinators)
    node = None if one.error_code else Node(one.node_id, one.host, one.port)
    return Coordinator(one.key, one.error_code, node, one.error_message or None, message.throttle_time_ms)


def decode_offset_fetch(version: int, frame: bytes | memoryview) -> CommittedOffsets:
    """The committed offsets of the one group that was asked for."""
    message = decode_answer(Api.OFFSET_FETCH, version, frame)
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
    message = decode_answer(Api.DESCRIBE_CONFIGS, version, frame)
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
    message = decode_answer(Api.SASL_HANDSHAKE, version, frame)
    return SaslHandshakeAnswer(message.error_code, message.mechanisms)


def decode_sasl_authenticate(version: int, frame: bytes | memoryview) -> SaslAuthenticateAnswer:
    """The broker's step of the mechanism."""
    message = decode_answer(Api.SASL_AUTHENTICATE, version, frame)
    return SaslAuthenticateAnswer(
        message.error_code, bytes(message.auth_bytes), message.session_lifetime_ms, message.error_message or None
    )


def _software(text: str) -> str:
    """Letters, digits, dots and dashes, the first and last a letter or digit. Source: KIP-511."""
    return re.sub(r"[^A-Za-z0-9.-]", "-", text).strip(".-") or "unknown"


def _only(api: Api, version: int, answers: Sequence[_T]) -> _T:
    if len(answers) != 1:
        raise ProtocolError(f"{message_name(api, version)}: one group was asked for", found=len(answers), expected=1)
    return answers[0]


def _topic_metadata(topic: Any) -> TopicMetadata:
    return TopicMetadata(
        error=topic.error_code,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=tuple(
            PartitionMetadata(
                partition=one.partition_index,
                error=one.error_code,
                leader=LeaderAndEpoch(one.leader_id, one.leader_epoch),
                replicas=one.replica_nodes,
                in_sync=one.isr_nodes,
                offline=one.offline_replicas,
            )
            for one in topic.partitions
        ),
    )
