"""What a broker offers, as the gateway passes it on: without what could not be looked into, with its extension."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from segreader.broker.error_codes import ErrorCode
from segreader.broker.messages import ApiVersionRange
from segreader.broker.primitives import Writer
from segreader.broker.versions import Api
from segreader.gateway.frames import what
from segreader.gateway.rewriting import EXTENSION_TAG, EXTENSION_VERSION, PARSED, PASSED, answer_body

NEWEST: Final = PARSED[Api.API_VERSIONS].last


def rewrite_api_versions(
    frame: memoryview, version: int, *, is_strict: bool = True, announces: bool = True
) -> tuple[bytes, Mapping[int, ApiVersionRange]]:
    """A whole answer to ApiVersions with what the gateway can pass, and the ranges that the broker itself offers.

    An answer with an error has the layout of version 0, and stays as it is.

    Args:
        is_strict: leave out APIs that are not known here, too.
        announces: add the extension's tag.

    Raises:
        ProtocolError: it is no such answer.
    """
    reader = answer_body(frame, Api.API_VERSIONS, version)
    if reader.int16() == ErrorCode.UNSUPPORTED_VERSION:
        return bytes(frame), {}
    counted_at = reader.position
    offered: dict[int, ApiVersionRange] = {}
    entries: list[tuple[int, int, int, bytes]] = []
    for _ in range(reader.count(7 if reader.flexible else 6)):
        api, first, last = reader.int16(), reader.int16(), reader.int16()
        tags_at = reader.position
        reader.tags()
        offered[api] = ApiVersionRange(first, last)
        parsed = PARSED.get(api, offered[api])
        first, last = max(first, parsed.first), min(last, parsed.last)
        if first <= last and (api in PASSED or not (is_strict or api in _NEVER)):
            entries.append((api, first, last, bytes(frame[tags_at : reader.position])))
    writer = Writer(flexible=reader.flexible)
    writer.raw(frame[:counted_at])
    writer.count(len(entries))
    for api, first, last, tags in entries:
        for number in (api, first, last):
            writer.int16(number)
        writer.raw(tags)
    if version >= 1:
        writer.raw(reader.take(4))
    if reader.flexible:
        kept = {tag: bytes(value.take(value.left)) for tag, value in reader.tags()}
        if announces:
            kept[EXTENSION_TAG] = EXTENSION_VERSION
        writer.tags(kept.items())
    reader.finish()
    return bytes(writer.data), offered


_NEVER = frozenset((52, 53, 54, Api.DESCRIBE_QUORUM, 58, 59, 82))
"""Answers with addresses of controllers."""


def unsupported_version(correlation_id: int) -> bytes:
    """The frame that answers a version of ApiVersions that is newer than this gateway: the client asks with an older.

    Source: KIP-511.
    """
    writer = Writer(flexible=False)
    writer.int32(correlation_id)
    writer.int16(ErrorCode.UNSUPPORTED_VERSION)
    writer.count(1)
    for number in (Api.API_VERSIONS, PARSED[Api.API_VERSIONS].first, NEWEST):
        writer.int16(number)
    return writer.framed()


def may_pass(api: int, version: int, *, is_strict: bool = True) -> str | None:
    """Why a request is not passed on; ``None`` if it is."""
    if api in _NEVER or (is_strict and api not in PASSED):
        return f"{what(api, version, 'request')} is not passed on by this gateway"
    parsed = PARSED.get(api)
    if parsed is not None and not parsed.first <= version <= parsed.last:
        return f"{what(api, version, 'request')}: only versions {parsed.first} to {parsed.last} are passed on"
    return None
