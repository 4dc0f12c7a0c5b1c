"""What a reader asks, as whole frames with their size first. Source: the message schemas of Apache Kafka 4.3."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from segreader.broker.apis import Api
from segreader.broker.fetch_answer import FIRST_WITH_TOPIC_ID
from segreader.broker.kafka_codec import encoded, request_class, with_tags
from segreader.broker.location_codec import request_tags
from segreader.broker.messages import EpochWanted, FetchRequest, OffsetWanted
from segreader.broker.primitives import uuid_bytes
from segreader.isolation import IsolationLevel

FIRST_METADATA_BY_ID: Final = 12

_ISOLATION: Final = {IsolationLevel.READ_UNCOMMITTED: 0, IsolationLevel.READ_COMMITTED: 1}
_CONSUMER, _NO_SESSION, _TOPIC_RESOURCE, _GROUP_KEY = -1, -1, 2, 0


def encode_api_versions(
    version: int, software_name: str, software_version: str, *, correlation_id: int, client_id: str
) -> bytes:
    """Asks which versions the broker speaks, and tells it who asks, in characters that it does not refuse."""
    request = request_class(Api.API_VERSIONS)(
        version=version,
        client_software_name=_software(software_name),
        client_software_version=_software(software_version),
    )
    return encoded(Api.API_VERSIONS, version, request, correlation_id, client_id)


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
        of_topic = request_class(Api.METADATA).MetadataRequestTopic
        wanted = [of_topic(version=version, topic_id=None, name=name) for name in topics or ()]
        wanted += [of_topic(version=version, topic_id=_uuid(one), name=None) for one in topic_ids]
    request = request_class(Api.METADATA)(version=version, topics=wanted, allow_auto_topic_creation=False)
    return encoded(Api.METADATA, version, request, correlation_id, client_id)


def encode_fetch(version: int, request: FetchRequest, *, correlation_id: int, client_id: str) -> bytes:
    """Asks for records; with the flag of the location extension where ``request`` wants locations.

    Partitions keep their order: the broker serves them in it until ``max_bytes`` are used up.

    Raises:
        ValueError: a topic's id is needed from version 13 on and not given.
    """
    message, has_ids = request_class(Api.FETCH), version >= FIRST_WITH_TOPIC_ID
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
    frame = encoded(
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
    return with_tags(frame, request_tags(request.storage_formats)) if request.wants_locations else frame


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
    message = request_class(Api.LIST_OFFSETS)
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
    return encoded(Api.LIST_OFFSETS, version, request, correlation_id, client_id)


def encode_epoch_ends(version: int, wanted: Sequence[EpochWanted], *, correlation_id: int, client_id: str) -> bytes:
    """Asks the leader where epochs end (OffsetForLeaderEpoch)."""
    message = request_class(Api.OFFSET_FOR_LEADER_EPOCH)
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
    return encoded(Api.OFFSET_FOR_LEADER_EPOCH, version, request, correlation_id, client_id)


def encode_find_coordinator(version: int, group: str, *, correlation_id: int, client_id: str) -> bytes:
    """Asks which broker keeps a group's offsets."""
    request = request_class(Api.FIND_COORDINATOR)(version=version, key_type=_GROUP_KEY, coordinator_keys=[group])
    return encoded(Api.FIND_COORDINATOR, version, request, correlation_id, client_id)


def encode_offset_fetch(
    version: int,
    group: str,
    topics: Mapping[str, Sequence[int]] | None = None,
    *,
    correlation_id: int,
    client_id: str,
) -> bytes:
    """Asks the coordinator for a group's committed offsets, of all its topics by default; pending commits answer 88."""
    message = request_class(Api.OFFSET_FETCH)
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
    return encoded(Api.OFFSET_FETCH, version, request, correlation_id, client_id)


def encode_describe_configs(
    version: int, topics: Sequence[str], keys: Sequence[str] | None = None, *, correlation_id: int, client_id: str
) -> bytes:
    """Asks for the configuration of topics: the values of ``keys``, or all."""
    message = request_class(Api.DESCRIBE_CONFIGS)
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
    return encoded(Api.DESCRIBE_CONFIGS, version, request, correlation_id, client_id)


def encode_sasl_handshake(version: int, mechanism: str, *, correlation_id: int, client_id: str) -> bytes:
    """Names the mechanism that authentication will use."""
    request = request_class(Api.SASL_HANDSHAKE)(version=version, mechanism=mechanism)
    return encoded(Api.SASL_HANDSHAKE, version, request, correlation_id, client_id)


def encode_sasl_authenticate(version: int, data: bytes, *, correlation_id: int, client_id: str) -> bytes:
    """One step of the mechanism; ``data`` is a secret and goes nowhere else."""
    request = request_class(Api.SASL_AUTHENTICATE)(version=version, auth_bytes=data)
    return encoded(Api.SASL_AUTHENTICATE, version, request, correlation_id, client_id)


def _uuid(text: str | None) -> uuid.UUID:
    return uuid.UUID(bytes=uuid_bytes(text))


def _software(text: str) -> str:
    """Letters, digits, dots and dashes, the first and last a letter or digit. Source: KIP-511."""
    return re.sub(r"[^A-Za-z0-9.-]", "-", text).strip(".-") or "unknown"
