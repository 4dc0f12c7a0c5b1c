"""Put the gateway's addresses in the place of the brokers' in answers, and open a listener before an answer names it.

Brokers are learned from the answers that pass through. A new one gets its own listener before the answer that named it
goes on, so no client is sent to a closed port. All else in an answer stays as it is.

Source: the message schemas of Apache Kafka 4.3; KIP-951 for ``NodeEndpoints``, KIP-932 for the share APIs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import cache
from typing import Any, Final, NamedTuple, Protocol

from segreader.broker.codec import StructCodec, answer_body, answer_parts, codec_until, fields_of, message_name
from segreader.broker.primitives import Reader, Writer
from segreader.broker.protocol import ANSWERS, Api, ErrorCode
from segreader.errors import OptionError
from segreader.values import dataclass

FIRST_WITH_COORDINATORS: Final = 4
"""Version of FindCoordinator that asks for several keys: thousands, if a client wants to."""

HEAD_APIS: Final = frozenset((Api.METADATA, Api.FIND_COORDINATOR, Api.DESCRIBE_CLUSTER))
"""Answers that have their addresses before all that may be long."""

FILLER_TAG: Final = 12495
"""A tagged field without a meaning, the last number of those reserved for the location extension."""

MAX_NODES: Final = 1000
"""Brokers of one cluster that get a listener."""

_STEP, _STEP_OF_COORDINATORS = 32, 4
"""Partitions or topics that are looked at in one turn, and coordinators, which are written anew."""

_LARGEST_PORT = 65535
_LONGEST_HOST = 255


@dataclass(frozen=True, slots=True)
class PortPlan:
    """Which port a broker gets.

    Args:
        base: plus the node id; the base itself is where clients begin.
        ports: node id -> port, in place of that rule where it is not empty: other brokers have no port then.
        is_shared: every broker has the base, and a name of its own.
    """

    base: int
    ports: Mapping[int, int]
    is_shared: bool = False

    def __post_init__(self) -> None:
        for port in (self.base, *self.ports.values()):
            if not 0 < port <= _LARGEST_PORT:
                raise OptionError("not a port to listen at", found=port, expected=f"1 to {_LARGEST_PORT}")
        if len({self.base, *self.ports.values()}) != len(self.ports) + 1:
            raise OptionError("two brokers have one port", hint="Every broker needs a port of its own at the gateway")

    def port_of(self, node_id: int) -> int | None:
        """The port of a broker, or ``None`` if it has none here."""
        if self.ports:
            return self.ports.get(node_id)
        if self.is_shared:
            return self.base if node_id >= 0 else None
        port = self.base + node_id
        return port if node_id >= 0 and port <= _LARGEST_PORT else None


class AddressTable:
    """Brokers by node id: ``Addresses``.

    Args:
        advertised_host: under which clients reach the gateway; ``{node_id}`` in it stands for the broker's id.
        open_listener: called once for each broker; false if its port cannot be had.
        changed: called with a broker that is new or somewhere else: its id, host and port.
    """

    def __init__(
        self,
        advertised_host: str,
        plan: PortPlan,
        open_listener: Callable[[int, int], Awaitable[bool]],
        changed: Callable[[int, str, int], None] = lambda node_id, host, port: None,
    ) -> None:
        self._host = advertised_host
        self._plan = plan
        self._open_listener = open_listener
        self._changed = changed
        self._brokers: dict[int, tuple[str, int]] = {}
        self._opening: dict[int, asyncio.Task[bool]] = {}
        self._refused: set[int] = set()

    @property
    def nodes(self) -> Mapping[int, tuple[str, int]]:
        """Where each known broker is."""
        return self._brokers

    def broker(self, node_id: int) -> tuple[str, int] | None:
        """Where a broker is now."""
        return self._brokers.get(node_id)

    def translate(self, node_id: int, host: str, port: int) -> tuple[str, int] | None:
        """The gateway's address for a broker that says to be at ``host`` and ``port``; ``None``: it has none.

        A broker that is new gets its listener soon: ``settle`` waits for that.
        """
        at = self._plan.port_of(node_id)
        if at is None or node_id in self._refused or not 0 < port <= _LARGEST_PORT or not 0 < len(host) < _LONGEST_HOST:
            return None
        if node_id not in self._brokers and len(self._brokers) >= MAX_NODES:
            return None
        if node_id not in self._brokers:
            self._opening[node_id] = asyncio.ensure_future(self._open_listener(node_id, at))
        if self._brokers.get(node_id) != (host, port):
            self._brokers[node_id] = (host, port)
            self._changed(node_id, host, port)
        return self._host.replace("{node_id}", str(node_id)), at

    async def settle(self) -> bool:
        """Wait until all listeners are open; true if one could not be, so that answers must be looked at anew."""
        has_failed = False
        while self._opening:
            node_id, opening = next(iter(self._opening.items()))
            is_open = await asyncio.shield(opening)
            if self._opening.pop(node_id, None) is not None and not is_open:
                self._refused.add(node_id)
                self._brokers.pop(node_id, None)
                has_failed = True
        return has_failed


class Addresses(Protocol):
    """From a broker to where clients of the gateway must connect to for it: ``AddressTable``."""

    def translate(self, node_id: int, host: str, port: int) -> tuple[str, int] | None:
        """Host and port at the gateway of the broker ``node_id``, which says to be there; ``None``: it has none."""


def rewrites(api: int, version: int) -> bool:
    """Whether an answer may carry addresses."""
    if api in HEAD_APIS or api in (Api.SHARE_FETCH, Api.SHARE_ACKNOWLEDGE):
        return True
    return (api == Api.FETCH and version >= 16) or (api == Api.PRODUCE and version >= 10)


def rewrite_start(frame: memoryview, api: Api, version: int, addresses: Addresses) -> tuple[bytes, int]:
    """How an answer of ``HEAD_APIS`` begins with the gateway's addresses, and how many bytes that stands for.

    Args:
        frame: from the correlation id on; as much of it as there is.

    Raises:
        ProtocolError: it ends too early, or is no such answer.
    """
    reader = answer_body(api, version, frame)
    body_at = reader.position
    last = "Coordinators" if api is Api.FIND_COORDINATOR else "Brokers"
    codec = codec_until(ANSWERS[api], last, version, reader.flexible)
    message = codec.read(reader)
    writer = Writer(flexible=reader.flexible)
    writer.raw(frame[:body_at])
    codec.write(writer, _START_AT_GATEWAY[api](message, addresses))
    return bytes(writer.data), reader.position


def _metadata(message: Any, addresses: Addresses) -> Any:
    return message._replace(brokers=_nodes(message.brokers, addresses))


def _describe_cluster(message: Any, addresses: Addresses) -> Any:
    return _metadata(message, addresses) if message.endpoint_type == 1 else message  # else of controllers


def _find_coordinator(message: Any, addresses: Addresses) -> Any:
    if message.coordinators:
        return message._replace(coordinators=[_coordinator(one, addresses) for one in message.coordinators])
    return message if message.host is None else _coordinator(message, addresses)


def _coordinator(one: Any, addresses: Addresses) -> Any:
    if one.node_id < 0:
        return one
    if (address := addresses.translate(one.node_id, one.host, one.port)) is None:
        return one._replace(node_id=-1, host="", port=-1, error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return one._replace(host=address[0], port=address[1])


_START_AT_GATEWAY: dict[Api, Callable[[Any, Addresses], Any]] = {
    Api.METADATA: _metadata,
    Api.FIND_COORDINATOR: _find_coordinator,
    Api.DESCRIBE_CLUSTER: _describe_cluster,
}


def _nodes(nodes: Iterable[Any], addresses: Addresses) -> tuple[Any, ...]:
    """Nodes at the gateway; those that have no address there are left out."""
    found = [(node, addresses.translate(node[0], node.host, node.port)) for node in nodes]
    return tuple([node._replace(host=at[0], port=at[1]) for node, at in found if at is not None])


class _WholeParts(NamedTuple):
    """A message around an array of topics, each with an array of partitions."""

    before: StructCodec
    topic: StructCodec
    partition: StructCodec
    end: StructCodec


@cache
def _whole_parts(api: Api, version: int, is_flexible: bool) -> _WholeParts:
    every = fields_of(ANSWERS[api])
    at = next(index for index, one in enumerate(every) if one.name == "Responses")
    *identity, partitions = every[at].fields
    return _WholeParts(
        StructCodec(every[:at], version, is_flexible, is_closed=False),
        StructCodec(identity, version, is_flexible, is_closed=False),
        StructCodec(partitions.fields, version, is_flexible),
        StructCodec(every[at + 1 :], version, is_flexible),
    )


@cache
def _coordinators(version: int) -> tuple[StructCodec, StructCodec]:
    """An answer to FindCoordinator before its coordinators, and one of these."""
    every = fields_of(ANSWERS[Api.FIND_COORDINATOR])
    at = next(index for index, one in enumerate(every) if one.name == "Coordinators")
    return StructCodec(every[:at], version, True, is_closed=False), StructCodec(every[at].fields, version, True)


async def _rewrite_coordinators(frame: memoryview, version: int, addresses: Addresses) -> bytes:
    reader = answer_body(Api.FIND_COORDINATOR, version, frame)
    before, coordinator = _coordinators(version)
    before.read(reader)
    count = reader.count(coordinator.least)
    writer = Writer(flexible=True)
    writer.raw(frame[: reader.position])
    for begin in range(0, count, _STEP_OF_COORDINATORS):
        for one in coordinator.read_many(reader, min(_STEP_OF_COORDINATORS, count - begin)):
            coordinator.write(writer, _coordinator(one, addresses))
        await asyncio.sleep(0)
    writer.raw(reader.unread)
    reader.tags()
    reader.finish()
    return bytes(writer.data)


async def rewrite_whole(frame: memoryview, api: Api, version: int, addresses: Addresses) -> bytes:
    """A whole answer to Produce, ShareAcknowledge or FindCoordinator of many keys with the gateway's addresses.

    It is read in short steps, between which others have their turn: it may have thousands of partitions.

    Raises:
        ProtocolError: it is no such answer, or bytes are left over.
    """
    if api is Api.FIND_COORDINATOR:
        return await _rewrite_coordinators(frame, version, addresses)
    reader = answer_body(api, version, frame)
    parts = _whole_parts(api, version, reader.flexible)
    parts.before.read(reader)
    for number in range(1, reader.count(parts.topic.least + 1) + 1):
        parts.topic.read(reader)
        count = reader.count(parts.partition.least)
        for begin in range(0, count, _STEP):
            parts.partition.read_many(reader, min(_STEP, count - begin))
            if begin:
                await asyncio.sleep(0)
        reader.tags()
        if not number % _STEP:
            await asyncio.sleep(0)
    end_at = reader.position
    message = parts.end.read(reader)
    reader.finish()
    if not message.node_endpoints:
        return bytes(frame)
    writer = Writer(flexible=reader.flexible)
    writer.raw(frame[:end_at])
    parts.end.write(writer, message._replace(node_endpoints=_nodes(message.node_endpoints, addresses)))
    return bytes(writer.data)


def rewrite_end(
    end: memoryview,
    api: Api,
    version: int,
    addresses: Addresses,
    *,
    more: Mapping[int, bytes] | None = None,
    size: int | None = None,
) -> bytes:
    """What follows the topics of an answer to Fetch or ShareFetch, with the gateway's addresses.

    Args:
        end: to the end of the frame.
        more: tagged fields to add; one of the same number is taken out.
        size: what it must take, if the frame's size was already sent. Addresses that do not fit are left out: they are
            a hint, and a client without it asks for Metadata.

    Raises:
        ProtocolError: it is no such end, or bytes are left over.
    """
    codec = answer_parts(api, version).end
    reader = Reader(end, flexible=True, what=message_name(api, version))
    message = codec.read(reader)
    reader.finish()
    if not message.node_endpoints and not more:
        return bytes(end)
    tags = [*(one for one in message.tags if not more or one[0] not in more), *(more or {}).items()]
    fields = message._asdict() | {"tags": tags, "node_endpoints": _nodes(message.node_endpoints, addresses)}
    try:
        return _end(codec, fields, size)
    except ValueError:
        return _end(codec, fields | {"node_endpoints": ()}, size)


def _end(codec: StructCodec, fields: Mapping[str, Any], size: int | None) -> bytes:
    writer = Writer(flexible=True)
    codec.write_fields(writer, fields)
    left = None if size is None else size - len(writer.data)
    return bytes(writer.data) + tag_section(codec.tagged(fields), left)


def tag_section(tags: Iterable[tuple[int, bytes | bytearray | memoryview]], size: int | None = None) -> bytes:
    """The tagged fields that end a struct, by rising tag, in exactly ``size`` bytes if one is given.

    A size is met without a trace where a longer form of the count will do, and else with ``FILLER_TAG``.

    Raises:
        ValueError: they do not fit into that size.
    """
    writer, tags = Writer(flexible=True), list(tags)
    writer.tags(tags)
    plain = bytes(writer.data)
    if size is None or len(plain) == size:
        return plain
    if (missing := size - len(plain)) < 0:
        raise ValueError(f"{len(plain)} bytes do not fit into {size}")
    if missing >= _LONGEST_COUNT:
        writer = Writer(flexible=True)
        writer.tags([*tags, (FILLER_TAG, bytes(_filler_size(missing)))])
        plain = bytes(writer.data)
        missing = size - len(plain)
    return _longer_count(plain, missing)


_LONGEST_COUNT = 5


def _filler_size(room: int) -> int:
    """How long a filler may be that takes ``room`` bytes with its tag and its size, or a byte less."""
    for size_bytes, smallest in ((1, 0), (2, 1 << 7), (3, 1 << 14), (4, 1 << 21)):
        filler = room - 2 - size_bytes
        if smallest <= filler < 1 << 7 * size_bytes:
            return filler
    return _filler_size(room - 1)


def _longer_count(section: bytes, more: int) -> bytes:
    """The same section, its count in ``more`` bytes more: a varint may have groups that say nothing."""
    if not more:
        return section
    end = next(index for index, byte in enumerate(section) if byte < 0x80)
    groups = [*section[: end + 1], *([0] * more)]
    return bytes([*(group | 0x80 for group in groups[:-1]), groups[-1]]) + section[end + 1 :]
