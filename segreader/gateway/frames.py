"""Frames as a proxy sees them: request heads, API names, edits that keep every other byte, sections of a given size.

Knows no message. ``rewriting`` knows where addresses stand, ``fetch_requests`` what a Fetch asks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from struct import Struct
from typing import Final

from segreader.broker.primitives import Reader, Writer
from segreader.broker.protocol import Api, is_flexible
from segreader.errors import ProtocolError

_RUNS = (
    (0, "Produce Fetch ListOffsets Metadata"),
    (8, "OffsetCommit OffsetFetch FindCoordinator JoinGroup Heartbeat LeaveGroup SyncGroup DescribeGroups ListGroups"),
    (17, "SaslHandshake ApiVersions CreateTopics DeleteTopics DeleteRecords InitProducerId OffsetForLeaderEpoch"),
    (24, "AddPartitionsToTxn AddOffsetsToTxn EndTxn WriteTxnMarkers TxnOffsetCommit DescribeAcls CreateAcls"),
    (31, "DeleteAcls DescribeConfigs AlterConfigs AlterReplicaLogDirs DescribeLogDirs SaslAuthenticate"),
    (37, "CreatePartitions CreateDelegationToken RenewDelegationToken ExpireDelegationToken DescribeDelegationToken"),
    (42, "DeleteGroups ElectLeaders IncrementalAlterConfigs AlterPartitionReassignments ListPartitionReassignments"),
    (47, "OffsetDelete DescribeClientQuotas AlterClientQuotas DescribeUserScramCredentials AlterUserScramCredentials"),
    (57, "UpdateFeatures"),
    (60, "DescribeCluster DescribeProducers"),
    (64, "UnregisterBroker DescribeTransactions ListTransactions"),
    (68, "ConsumerGroupHeartbeat ConsumerGroupDescribe"),
    (71, "GetTelemetrySubscriptions PushTelemetry"),
    (74, "ListConfigResources DescribeTopicPartitions ShareGroupHeartbeat ShareGroupDescribe ShareFetch"),
    (79, "ShareAcknowledge AddRaftVoter RemoveRaftVoter"),
    (83, "InitializeShareGroupState ReadShareGroupState WriteShareGroupState DeleteShareGroupState"),
    (87, "ReadShareGroupStateSummary StreamsGroupHeartbeat StreamsGroupDescribe DescribeShareGroupOffsets"),
    (91, "AlterShareGroupOffsets DeleteShareGroupOffsets"),
)

API_NAMES: Final[Mapping[int, str]] = {
    first + number: name for first, names in _RUNS for number, name in enumerate(names.split())
}
"""Key -> name as Kafka writes it: the APIs of Kafka 4.3 that clients use. Source: ``ApiKeys`` (4.3).

The others run between brokers and controllers, or carry addresses of controllers (DescribeQuorum), which have none at a
gateway.
"""

SIZE: Final = Struct(">i")
_HEAD: Final = Struct(">hhi")
SMALLEST_REQUEST: Final = _HEAD.size
FILLER_TAG: Final = 12495
"""A tagged field without a meaning, the last number of those reserved for the location extension."""


@dataclass(frozen=True, slots=True)
class RequestHead:
    """How a request begins.

    Args:
        api: its key, which may be one that is not known here.
        client_id: as the client says it.
        position: of the first byte behind the client id; in flexible versions the header's tagged fields stand there.
    """

    api: int
    version: int
    correlation_id: int
    client_id: str | None
    position: int


def api_label(api: int) -> str:
    """An API as Kafka names it, or its number."""
    return API_NAMES.get(api) or f"API {api}"


def what(api: int, version: int, kind: str = "answer") -> str:
    """A message's name for errors: ``Metadata v12 answer``."""
    return f"{api_label(api)} v{version} {kind}"


def parse_request_head(data: memoryview) -> RequestHead:
    """Decode the head of a request, behind its size.

    Raises:
        ProtocolError: it is cut, or the client id is not text.
    """
    if len(data) < _HEAD.size:
        raise ProtocolError("the head of a request is cut", found=f"{len(data)} bytes", expected=f"{_HEAD.size}")
    api, version, correlation_id = _HEAD.unpack_from(data)
    reader = Reader(data, flexible=False, what=what(api, version, "request"), start=_HEAD.size)
    return RequestHead(api, version, correlation_id, reader.client_id(), reader.position)


def body_of(data: memoryview, head: RequestHead) -> Reader:
    """A reader at the first byte of the request's body, of an API that is known here."""
    flexible = is_flexible(Api(head.api), head.version)
    reader = Reader(data, flexible=flexible, what=what(head.api, head.version, "request"), start=head.position)
    reader.tags()
    return reader


def request_frame(api: Api, version: int, correlation_id: int, client_id: str | None, body: bytes | bytearray) -> bytes:
    """A whole request with its size, and without tagged fields in its header."""
    writer = Writer(flexible=is_flexible(api, version))
    writer.pack(_HEAD, api, version, correlation_id)
    writer.client_id(client_id)
    writer.tags()
    writer.raw(body)
    return writer.framed()


def expects_answer(data: memoryview, head: RequestHead) -> bool:
    """Whether a request is answered at all: only Produce with ``acks`` 0 is not.

    Args:
        data: the request from its first byte on, behind the size; at least up to ``acks``.

    Raises:
        ProtocolError: the bytes end before ``acks``.
    """
    if head.api != Api.PRODUCE:
        return True
    reader = body_of(data, head)
    if head.version >= 3:
        reader.nullable_string()
    return reader.int16() != 0


class Edits:
    """Replacements within bytes that otherwise stay as they are."""

    __slots__ = ("_edits", "growth")

    def __init__(self) -> None:
        self._edits: list[tuple[int, int, bytes]] = []
        self.growth = 0

    def __bool__(self) -> bool:
        return bool(self._edits)

    def replace(self, start: int, stop: int, data: bytes | bytearray) -> None:
        """Put ``data`` in the place of the bytes ``start <= position < stop``; called by rising position."""
        self._edits.append((start, stop, bytes(data)))
        self.growth += len(data) - (stop - start)

    def join(self, other: Edits) -> None:
        """Take over edits of later positions."""
        self._edits += other._edits
        self.growth += other.growth

    def applied(self, data: memoryview | bytes | bytearray) -> bytes:
        """The edited bytes."""
        view, result, done = memoryview(data), bytearray(), 0
        for start, stop, new in self._edits:
            result += view[done:start]
            result += new
            done = stop
        result += view[done:]
        return bytes(result)


def tag_section(tags: Iterable[tuple[int, bytes]], size: int | None = None) -> bytes:
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
