"""The requests of a reader as calls: which version, how it is encoded, how its answer is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

from segreader.broker import wire
from segreader.broker.apis import Api, choose_version
from segreader.broker.connection import Answer, Call
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
    encode = partial(wire.encode_api_versions, version, settings.software_name, settings.software_version)
    return _call(settings, Api.API_VERSIONS, version, encode, wire.decode_api_versions)


def sasl_handshake(settings: ClientSettings) -> Call[SaslHandshakeAnswer]:
    """Which mechanism follows."""
    assert settings.sasl_mechanism is not None
    mechanism = str(settings.sasl_mechanism)
    encode = partial(wire.encode_sasl_handshake, 1, mechanism)
    return _call(settings, Api.SASL_HANDSHAKE, 1, encode, wire.decode_sasl_handshake)


def sasl_authenticate(settings: ClientSettings, version: int, data: bytes) -> Call[SaslAuthenticateAnswer]:
    """One step of the mechanism."""
    encode = partial(wire.encode_sasl_authenticate, version, data)
    return _call(settings, Api.SASL_AUTHENTICATE, version, encode, wire.decode_sasl_authenticate)


def metadata(settings: ClientSettings, offered: ApiVersions, topics: Sequence[str] | None) -> Call[ClusterMetadata]:
    """Brokers and the leaders of these topics; ``None``: of all that may be described."""
    version = choose_version(Api.METADATA, offered)
    return _call(settings, Api.METADATA, version, partial(wire.encode_metadata, version, topics), wire.decode_metadata)


def fetch(settings: ClientSettings, offered: ApiVersions, request: FetchRequest) -> Call[FetchAnswer]:
    """Records, or where they lie."""
    needs_names = any(each.topic_id is None for each in request.partitions)
    version = choose_version(Api.FETCH, offered, at_most=12 if needs_names else None)
    encode = partial(wire.encode_fetch, version, request)
    return _call(
        settings,
        Api.FETCH,
        version,
        encode,
        wire.decode_fetch,
        held_ms=request.max_wait_ms,
        answer_bytes=request.max_bytes,
    )


def list_offsets(
    settings: ClientSettings, offered: ApiVersions, wanted: Sequence[OffsetWanted], isolation_level: IsolationLevel
) -> Call[ListOffsetsAnswer]:
    """Offsets by time or special timestamp; each partition once."""
    version = choose_version(Api.LIST_OFFSETS, offered)
    encode = partial(wire.encode_list_offsets, version, wanted, isolation_level)
    return _call(settings, Api.LIST_OFFSETS, version, encode, wire.decode_list_offsets)


def epoch_ends(settings: ClientSettings, offered: ApiVersions, wanted: Sequence[EpochWanted]) -> Call[EpochEndsAnswer]:
    """Where epochs end; each partition once."""
    version = choose_version(Api.OFFSET_FOR_LEADER_EPOCH, offered)
    encode = partial(wire.encode_epoch_ends, version, wanted)
    return _call(settings, Api.OFFSET_FOR_LEADER_EPOCH, version, encode, wire.decode_epoch_ends)


def find_coordinator(settings: ClientSettings, offered: ApiVersions, group: str) -> Call[Coordinator]:
    """The broker that keeps a group's offsets."""
    version = choose_version(Api.FIND_COORDINATOR, offered)
    encode = partial(wire.encode_find_coordinator, version, group)
    return _call(settings, Api.FIND_COORDINATOR, version, encode, wire.decode_find_coordinator)


def offset_fetch(
    settings: ClientSettings, offered: ApiVersions, group: str, partitions: Mapping[str, Sequence[int]] | None
) -> Call[CommittedOffsets]:
    """What a group has committed; ``None``: for all its partitions."""
    version = choose_version(Api.OFFSET_FETCH, offered)
    encode = partial(wire.encode_offset_fetch, version, group, partitions)
    return _call(settings, Api.OFFSET_FETCH, version, encode, wire.decode_offset_fetch)


def describe_configs(
    settings: ClientSettings, offered: ApiVersions, topics: Sequence[str], keys: Sequence[str] | None
) -> Call[tuple[TopicConfigs, ...]]:
    """Configuration values of topics; ``None``: all keys."""
    version = choose_version(Api.DESCRIBE_CONFIGS, offered)
    encode = partial(wire.encode_describe_configs, version, topics, keys)
    return _call(settings, Api.DESCRIBE_CONFIGS, version, encode, wire.decode_describe_configs)


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
