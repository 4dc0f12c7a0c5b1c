"""The requests of a reader as calls: which version, how it is encoded, how its answer is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from segreader.broker import wire
from segreader.broker.apis import Api, choose_version
from segreader.broker.connection import Call
from segreader.broker.messages import (
    ApiVersions,
    ClusterMetadata,
    CommittedOffsets,
    Coordinator,
    EpochEndsAnswer,
    EpochWanted,
    FetchAnswer,
    FetchRequest,
    ListOffsetsAnswer,
    OffsetWanted,
    SaslAuthenticateAnswer,
    SaslHandshakeAnswer,
    TopicConfigs,
)
from segreader.broker.settings import ClientSettings
from segreader.isolation import IsolationLevel


def api_versions(settings: ClientSettings, version: int) -> Call[ApiVersions]:
    """What the broker speaks; error 35 where it does not know this version of the question."""
    return Call(
        Api.API_VERSIONS.label,
        version,
        lambda correlation_id: wire.encode_api_versions(
            version,
            settings.software_name,
            settings.software_version,
            correlation_id=correlation_id,
            client_id=settings.client_id,
        ),
        partial(wire.decode_api_versions, version),
    )


def sasl_handshake(settings: ClientSettings) -> Call[SaslHandshakeAnswer]:
    """Which mechanism follows."""
    assert settings.sasl_mechanism is not None
    mechanism = str(settings.sasl_mechanism)
    return Call(
        Api.SASL_HANDSHAKE.label,
        1,
        lambda correlation_id: wire.encode_sasl_handshake(
            1, mechanism, correlation_id=correlation_id, client_id=settings.client_id
        ),
        partial(wire.decode_sasl_handshake, 1),
    )


def sasl_authenticate(settings: ClientSettings, version: int, data: bytes) -> Call[SaslAuthenticateAnswer]:
    """One step of the mechanism."""
    return Call(
        Api.SASL_AUTHENTICATE.label,
        version,
        lambda correlation_id: wire.encode_sasl_authenticate(
            version, data, correlation_id=correlation_id, client_id=settings.client_id
        ),
        partial(wire.decode_sasl_authenticate, version),
    )


def metadata(settings: ClientSettings, offered: ApiVersions, topics: Sequence[str] | None) -> Call[ClusterMetadata]:
    """Brokers and the leaders of these topics; ``None``: of all that may be described."""
    version = choose_version(Api.METADATA, offered)
    return Call(
        Api.METADATA.label,
        version,
        lambda correlation_id: wire.encode_metadata(
            version, topics, correlation_id=correlation_id, client_id=settings.client_id
        ),
        partial(wire.decode_metadata, version),
    )


def fetch(settings: ClientSettings, offered: ApiVersions, request: FetchRequest) -> Call[FetchAnswer]:
    """Records, or where they lie."""
    needs_names = any(each.topic_id is None for each in request.partitions)
    version = choose_version(Api.FETCH, offered, at_most=12 if needs_names else None)
    return Call(
        Api.FETCH.label,
        version,
        lambda correlation_id: wire.encode_fetch(
            version, request, correlation_id=correlation_id, client_id=settings.client_id
        ),
        partial(wire.decode_fetch, version),
        held_ms=request.max_wait_ms,
        answer_bytes=request.max_bytes,
    )


def list_offsets(
    settings: ClientSettings, offered: ApiVersions, wanted: Sequence[OffsetWanted], isolation_level: IsolationLevel
) -> Call[ListOffsetsAnswer]:
    """Offsets by time or special timestamp; each partition once."""
    version = choose_version(Api.LIST_OFFSETS, offered)
    return Call(
        Api.LIST_OFFSETS.label,
        version,
        lambda correlation_id: wire.encode_list_offsets(
            version, wanted, isolation_level, correlation_id=correlation_id, client_id=settings.client_id
        ),
        partial(wire.decode_list_offsets, version),
    )


def epoch_ends(settings: ClientSettings, offered: ApiVersions, wanted: Sequence[EpochWanted]) -> Call[EpochEndsAnswer]:
    """Where epochs end; each partition once."""
    version = choose_version(Api.OFFSET_FOR_LEADER_EPOCH, offered)
    return Call(
        Api.OFFSET_FOR_LEADER_EPOCH.label,
        version,
        lambda correlation_id: wire.encode_epoch_ends(
            version, wanted, correlation_id=correlation_id, client_id=settings.client_id
        ),
        partial(wire.decode_epoch_ends, version),
    )


def find_coordinator(settings: ClientSettings, offered: ApiVersions, group: str) -> Call[Coordinator]:
    """The broker that keeps a group's offsets."""
    version = choose_version(Api.FIND_COORDINATOR, offered)
    return Call(
        Api.FIND_COORDINATOR.label,
        version,
        lambda correlation_id: wire.encode_find_coordinator(
            version, group, correlation_id=correlation_id, client_id=settings.client_id
        ),
        partial(wire.decode_find_coordinator, version),
    )


def offset_fetch(
    settings: ClientSettings, offered: ApiVersions, group: str, partitions: Mapping[str, Sequence[int]] | None
) -> Call[CommittedOffsets]:
    """What a group has committed; ``None``: for all its partitions."""
    version = choose_version(Api.OFFSET_FETCH, offered)
    return Call(
        Api.OFFSET_FETCH.label,
        version,
        lambda correlation_id: wire.encode_offset_fetch(
            version, group, partitions, correlation_id=correlation_id, client_id=settings.client_id
        ),
        partial(wire.decode_offset_fetch, version),
    )


def describe_configs(
    settings: ClientSettings, offered: ApiVersions, topics: Sequence[str], keys: Sequence[str] | None
) -> Call[tuple[TopicConfigs, ...]]:
    """Configuration values of topics; ``None``: all keys."""
    version = choose_version(Api.DESCRIBE_CONFIGS, offered)
    return Call(
        Api.DESCRIBE_CONFIGS.label,
        version,
        lambda correlation_id: wire.encode_describe_configs(
            version, topics, keys, correlation_id=correlation_id, client_id=settings.client_id
        ),
        partial(wire.decode_describe_configs, version),
    )
