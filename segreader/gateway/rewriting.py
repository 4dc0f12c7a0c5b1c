"""Replace brokers' addresses in answers by the gateway's, and limit ApiVersions to what the gateway can pass on.

Every other byte stays as it is.

Source: the message schemas of Apache Kafka 4.3; KIP-951 for ``NodeEndpoints``, KIP-932 for the share APIs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from segreader.broker.location import extension_tag
from segreader.broker.messages import ApiVersionRange
from segreader.broker.primitives import Reader, Writer
from segreader.broker.protocol import Api, ErrorCode, is_flexible, response_header_version
from segreader.gateway.frames import API_NAMES, Edits, tag_section, what

EXTENSION_TAG, EXTENSION_VERSION = extension_tag()

PARSED: Final[Mapping[int, ApiVersionRange]] = {
    Api.PRODUCE: ApiVersionRange(0, 13),
    Api.FETCH: ApiVersionRange(0, 18),
    Api.LIST_OFFSETS: ApiVersionRange(0, 11),
    Api.METADATA: ApiVersionRange(0, 13),
    Api.FIND_COORDINATOR: ApiVersionRange(0, 6),
    Api.SASL_HANDSHAKE: ApiVersionRange(1, 1),
    Api.API_VERSIONS: ApiVersionRange(0, 5),
    Api.SASL_AUTHENTICATE: ApiVersionRange(0, 2),
    Api.DESCRIBE_CLUSTER: ApiVersionRange(0, 2),
    Api.SHARE_FETCH: ApiVersionRange(1, 2),
    Api.SHARE_ACKNOWLEDGE: ApiVersionRange(1, 2),
}
"""Versions that can be looked into; other APIs pass in any version. SASL tokens of handshake 0 are no frames."""

PASSED: Final = frozenset(API_NAMES)
"""Keys that are offered. A newer one may carry addresses in fields unknown here."""

HEAD_APIS: Final = frozenset((Api.METADATA, Api.FIND_COORDINATOR, Api.DESCRIBE_CLUSTER))
"""Answers that have their addresses before all that may be long."""


class Addresses(Protocol):
    """From a broker to where clients of the gateway must connect to for it."""

    def translate(self, node_id: int, host: str, port: int) -> tuple[str, int] | None:
        """Host and port at the gateway of the broker ``node_id``, which says to be there; ``None``: it has none."""


def rewrites(api: int, version: int) -> bool:
    """Whether an answer may carry addresses."""
    if api in HEAD_APIS or api in (Api.SHARE_FETCH, Api.SHARE_ACKNOWLEDGE):
        return True
    return (api == Api.FETCH and version >= 16) or (api == Api.PRODUCE and version >= 10)


def answer_body(frame: memoryview, api: Api, version: int) -> Reader:
    """A reader at the first byte of an answer's body; the frame begins with its correlation id."""
    has_tags = response_header_version(api, version) == 1
    reader = Reader(frame, flexible=has_tags, what=what(api, version))
    reader.take(4)
    reader.tags()
    reader.flexible = is_flexible(api, version)
    return reader


def rewrite_head(frame: memoryview, api: Api, version: int, addresses: Addresses) -> tuple[Edits, int]:
    """The edits of an answer of ``HEAD_APIS``, and where its addresses end: nothing behind needs a look.

    Args:
        frame: from the correlation id on; as much of it as there is.

    Raises:
        ProtocolError: it ends too early, or is no such answer.
    """
    reader, edits = answer_body(frame, api, version), Edits()
    _HEADS[api](reader, version, addresses, edits)
    return edits, reader.position


def _metadata(reader: Reader, version: int, addresses: Addresses, edits: Edits) -> None:
    if version >= 3:
        reader.take(4)
    _endpoints(reader, addresses, edits, has_rack=version >= 1)


def _describe_cluster(reader: Reader, version: int, addresses: Addresses, edits: Edits) -> None:
    reader.take(6)
    reader.nullable_string()
    is_of_brokers = version < 1 or reader.int8() == 1
    reader.nullable_string()
    reader.take(4)
    if is_of_brokers:
        _endpoints(reader, addresses, edits, more=1 if version >= 2 else 0)


def _find_coordinator(reader: Reader, version: int, addresses: Addresses, edits: Edits) -> None:
    if version >= 1:
        reader.take(4)
    if version < 4:
        error_at = reader.position
        reader.take(2)
        if version >= 1:
            reader.nullable_string()
        if not _coordinator(reader, addresses, found := Edits()):
            edits.replace(error_at, error_at + 2, _NOT_AVAILABLE)
        edits.join(found)
        return
    for _ in range(reader.count(13)):
        reader.string()
        is_here = _coordinator(reader, addresses, edits)
        error_at = reader.position
        reader.take(2)
        if not is_here:
            edits.replace(error_at, error_at + 2, _NOT_AVAILABLE)
        reader.nullable_string()
        reader.tags()


def _coordinator(reader: Reader, addresses: Addresses, edits: Edits) -> bool:
    """Edit one node, host and port; false: the node has no address here, and is taken out."""
    start = reader.position
    node_id, host, port = reader.int32(), reader.string(), reader.int32()
    if node_id < 0:
        return True
    address = addresses.translate(node_id, host, port)
    writer = Writer(flexible=reader.flexible)
    writer.int32(node_id if address else -1)
    _put(writer, address or ("", -1))
    edits.replace(start, reader.position, writer.data)
    return address is not None


_NOT_AVAILABLE = int(ErrorCode.COORDINATOR_NOT_AVAILABLE).to_bytes(2, "big")
_HEADS: dict[Api, Callable[[Reader, int, Addresses, Edits], None]] = {
    Api.METADATA: _metadata,
    Api.FIND_COORDINATOR: _find_coordinator,
    Api.DESCRIBE_CLUSTER: _describe_cluster,
}


def _put(writer: Writer, address: tuple[str, int]) -> None:
    writer.string(address[0])
    writer.int32(address[1])


def _endpoints(reader: Reader, addresses: Addresses, edits: Edits, *, has_rack: bool = True, more: int = 0) -> None:
    """An array of nodes: those that have no address here are left out.

    Args:
        more: bytes of further fields of a node, before its tagged fields.
    """
    least = 11 if reader.flexible else 12 if has_rack else 10
    counted_at, count, nodes_at = reader.position, reader.count(least + more), reader.position
    nodes = []
    for _ in range(count):
        start = reader.position
        node_id, host_at = reader.int32(), reader.position
        address = addresses.translate(node_id, reader.string(), reader.int32())
        host_until = reader.position
        if has_rack:
            reader.nullable_string()
        reader.take(more)
        reader.tags()
        nodes.append((start, host_at, host_until, reader.position, address))
    if (kept := sum(node[4] is not None for node in nodes)) != count:
        writer = Writer(flexible=reader.flexible)
        writer.count(kept)
        edits.replace(counted_at, nodes_at, writer.data)
    for start, host_at, host_until, stop, address in nodes:
        if address is None:
            edits.replace(start, stop, b"")
        else:
            writer = Writer(flexible=reader.flexible)
            _put(writer, address)
            edits.replace(host_at, host_until, writer.data)


def rewrite_produce(frame: memoryview, version: int, addresses: Addresses) -> bytes:
    """A whole Produce answer, version 10 or later, with the gateway's addresses.

    Raises:
        ProtocolError: it is no such answer, or bytes are left over.
    """
    reader = answer_body(frame, Api.PRODUCE, version)
    for _ in range(reader.count(3)):
        reader.take(16) if version >= 13 else reader.string()
        for _ in range(reader.count(33)):
            reader.take(30)
            for _ in range(reader.count(6)):
                reader.take(4)
                reader.nullable_string()
                reader.tags()
            reader.nullable_string()
            reader.tags()
        reader.tags()
    reader.take(4)
    at = reader.position
    return bytes(frame[:at]) + rewrite_tags(frame[at:], what(Api.PRODUCE, version), addresses)


def rewrite_share_acknowledge(frame: memoryview, version: int, addresses: Addresses) -> bytes:
    """A whole ShareAcknowledge answer with the gateway's addresses; raises as ``rewrite_produce``."""
    reader = answer_body(frame, Api.SHARE_ACKNOWLEDGE, version)
    reader.take(6)
    reader.nullable_string()
    reader.take(4 if version >= 2 else 0)
    for _ in range(reader.count(18)):
        reader.take(16)
        for _ in range(reader.count(17)):
            reader.take(6)
            reader.nullable_string()
            reader.take(8)
            reader.tags()
            reader.tags()
        reader.tags()
    at = reader.position
    return bytes(frame[:at]) + rewrite_array_and_tags(frame[at:], what(Api.SHARE_ACKNOWLEDGE, version), addresses)


def rewrite_tags(
    tail: memoryview,
    name: str,
    addresses: Addresses,
    more: Mapping[int, bytes] | None = None,
    size: int | None = None,
    *,
    has_endpoints: bool = True,
) -> bytes:
    """The tagged fields that end a Fetch or Produce answer, with the gateway's addresses in ``NodeEndpoints``.

    Args:
        tail: the section, to the end of the frame.
        name: of the message, for errors.
        more: fields to add; one of the same number is taken out.
        size: what the section must take, if the frame's size was already sent. ``NodeEndpoints`` that do not fit
            are left out: they are a hint, and a client without it asks for Metadata.
        has_endpoints: whether this version has ``NodeEndpoints`` at all.

    Raises:
        ProtocolError: it is no such section, or bytes are left over.
    """
    reader, added = Reader(tail, flexible=True, what=name), more or {}
    found = {tag: value.take(value.left) for tag, value in reader.tags() if tag not in added}
    reader.finish()
    if not has_endpoints or _NODE_ENDPOINTS not in found:
        return tag_section([*((tag, bytes(value)) for tag, value in found.items()), *added.items()], size)
    kept = {tag: bytes(value) for tag, value in found.items() if tag != _NODE_ENDPOINTS} | dict(added)
    value, edits = Reader(found[_NODE_ENDPOINTS], flexible=True, what=name), Edits()
    _endpoints(value, addresses, edits)
    value.finish()
    endpoints = edits.applied(found[_NODE_ENDPOINTS])
    try:
        return tag_section([(_NODE_ENDPOINTS, endpoints), *kept.items()], size)
    except ValueError:
        return tag_section(kept.items(), size)


def rewrite_array_and_tags(tail: memoryview, name: str, addresses: Addresses, size: int | None = None) -> bytes:
    """As ``rewrite_tags``, of the share APIs, whose ``NodeEndpoints`` are an array before the tagged fields."""
    reader, edits = Reader(tail, flexible=True, what=name), Edits()
    _endpoints(reader, addresses, edits)
    array = edits.applied(tail[: reader.position])
    tags = [(tag, bytes(value.take(value.left))) for tag, value in reader.tags()]
    reader.finish()
    if size is not None and len(array) + len(tag_section(tags)) > size:
        array = _EMPTY_ARRAY
    return array + tag_section(tags, None if size is None else size - len(array))


_NODE_ENDPOINTS = 0
_EMPTY_ARRAY = b"\x01"


NEWEST: Final = PARSED[Api.API_VERSIONS].last
_NEVER = frozenset((52, 53, 54, Api.DESCRIBE_QUORUM, 58, 59, 82))
"""Answers with addresses of controllers."""


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
