"""Encode requests and decode answers with kafka-python; the only module that imports it.

``message_shape`` walks each answer before the library sees it, so that any bytes
give a value or a ``ProtocolError`` that names the API, its version and the position, in time and memory bounded by the
frame. Headers are written and read here, for ApiVersions has its own rule. Source: Apache Kafka 4.3; kafka-python 3.0.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterable
from functools import cache
from typing import Any, Final

from segreader.broker.message_shape import MessageShape
from segreader.broker.primitives import Reader, Writer
from segreader.broker.versions import Api, is_flexible, largest_answer, response_header_version
from segreader.errors import OptionError, ProtocolError, install_hint

try:
    from kafka.protocol import metadata as _metadata
    from kafka.protocol import sasl as _sasl
    from kafka.protocol.admin import configs as _configs
    from kafka.protocol.consumer import fetch as _fetch
    from kafka.protocol.consumer import group as _group
    from kafka.protocol.consumer import offsets as _offsets
except ImportError as _missing:
    raise OptionError(
        "reading from brokers needs kafka-python, which is not installed",
        hint=install_hint("broker"),
    ) from _missing

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


@cache
def _keep_secrets_out_of_logs() -> None:
    """At DEBUG kafka-python logs whole requests, SASL passwords included."""
    for logger in map(logging.getLogger, ("kafka.protocol", "kafka.net")):
        logger.setLevel(max(logger.level, logging.INFO))


def request_class(api: Api) -> Any:
    """kafka-python's class of a request; those of its structs are attributes of it."""
    return _MESSAGES[api][0]


def encoded(api: Api, version: int, message: Any, correlation_id: int, client_id: str) -> bytes:
    """A whole frame: our own header, and the body that kafka-python writes.

    Raises:
        OptionError: a value does not fit its field.
    """
    _keep_secrets_out_of_logs()
    writer = Writer(flexible=is_flexible(api, version))
    try:
        writer.int16(api)
        writer.int16(version)
        writer.int32(correlation_id)
        writer.client_id(client_id)
        writer.tags()
        writer.raw(message.encode(version=version))
    except (struct.error, UnicodeEncodeError) as wrong:
        raise OptionError(f"this cannot be asked by {api.label} {version}: {wrong}") from None
    return writer.framed()


def with_tags(frame: bytes, tags: Iterable[tuple[int, bytes]]) -> bytes:
    """A flexible request with tags in place of its empty last section: kafka-python cannot write unknown tags."""
    if frame[-1:] != b"\0":
        raise ValueError("the request has tagged fields already")
    writer = Writer(flexible=True)
    writer.raw(memoryview(frame)[4:-1])
    writer.tags(tags)
    return writer.framed()


def body_reader(api: Api, version: int, frame: bytes | memoryview) -> Reader:
    """A reader at the first byte of an answer's body.

    Raises:
        ProtocolError: the header is damaged, or the answer larger than ``largest_answer``.
    """
    reader = Reader(frame, flexible=bool(response_header_version(api, version)), what=f"{api.label} {version} answer")
    if (limit := largest_answer(api)) is not None and reader.left > limit:
        raise reader.error("it is too large", found=f"{reader.left} bytes", expected=f"{limit} at most")
    reader.int32()
    reader.tags()
    return reader


def decoded(api: Api, version: int, reader: Reader) -> tuple[Any, tuple[tuple[int, Reader], ...]]:
    """kafka-python's message of an answer's body, and its top-level tagged fields.

    Raises:
        ProtocolError: the body is damaged, cut, or has bytes left over.
    """
    _keep_secrets_out_of_logs()
    body, tags = _shape(api, version).body(reader)
    try:
        return _MESSAGES[api][1].decode(body, version=version), tags
    except Exception as unforeseen:  # whatever the library raises for what the walk did not see
        kind = type(unforeseen).__name__
        raise ProtocolError(f"{api.label} {version} answer: it cannot be decoded: {kind}") from None


def message_of(api: Api, version: int, frame: bytes | memoryview) -> Any:
    """kafka-python's message of an answer; raises as ``body_reader`` and ``decoded``."""
    return decoded(api, version, body_reader(api, version, frame))[0]


@cache
def _shape(api: Api, version: int) -> MessageShape:
    return MessageShape(_MESSAGES[api][1].json, version)
