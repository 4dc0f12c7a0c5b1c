"""Fetch requests with the flag of the location extension: taken apart, and put together again for some partitions.

Source: FetchRequest 12-18 of Apache Kafka 4.3; docs/reference/protocol.md for the extension.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from struct import Struct
from typing import Final

from segreader.broker.location import LOCATION_TAG, RESERVED_TAGS, requested_formats
from segreader.broker.primitives import Reader, Writer, uuid_text
from segreader.broker.protocol import Api
from segreader.gateway.frames import RequestHead, body_of, request_frame

FIRST_VERSION: Final = 12
"""The first one with tagged fields."""

FIRST_WITH_IDS: Final = 13

_FLAG = bytes((LOCATION_TAG & 0x7F | 0x80, LOCATION_TAG >> 7))
_LIMITS = Struct(">iiibii")
_PARTITION = Struct(">iiqiqi")
_NO_SESSION = (0, -1)


@dataclass(frozen=True, slots=True)
class PartitionAsked:
    """One partition of the request; ``key`` is its topic as on the wire, ``tags`` its tagged fields."""

    key: bytes
    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    max_bytes: int
    tags: bytes


@dataclass(frozen=True, slots=True)
class FlaggedFetch:
    """A Fetch request that asks for locations.

    Args:
        isolation: 0 or 1, as on the wire.
        formats: the storage formats that the client reads.
        partitions: in the client's order, which is that of serving.
        replica: the replica id of versions below 15.
        tags: top-level tagged fields without those of the extension.
        forgotten: the array as on the wire.
    """

    head: RequestHead
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation: int
    session_id: int
    session_epoch: int
    partitions: tuple[PartitionAsked, ...]
    formats: tuple[str, ...]
    replica: bytes
    forgotten: bytes
    rack: str
    tags: Mapping[int, bytes]

    @property
    def has_ids(self) -> bool:
        """Whether topics are identified by their ids."""
        return self.head.version >= FIRST_WITH_IDS

    def topic_of(self, partition: PartitionAsked) -> str | None:
        """The topic's id in Kafka's text form, or its name below version 13."""
        return uuid_text(partition.key) if self.has_ids else partition.key.decode("utf-8", "replace")

    def encode(
        self,
        partitions: Iterable[PartitionAsked],
        correlation_id: int,
        *,
        has_session: bool = False,
        waits: bool = True,
    ) -> bytes:
        """The whole request for these partitions, without the extension's tags.

        Args:
            has_session: keep the session and what it forgets; else there is none.
            waits: whether the broker may hold the answer for as long as the client said.
        """
        writer = Writer(flexible=True)
        writer.raw(self.replica)
        session = (self.session_id, self.session_epoch) if has_session else _NO_SESSION
        wait = self.max_wait_ms if waits else 0
        writer.pack(_LIMITS, wait, self.min_bytes, self.max_bytes, self.isolation, *session)
        topics = [(key, list(group)) for key, group in groupby(partitions, lambda one: one.key)]
        writer.count(len(topics))
        for key, group in topics:
            if self.has_ids:
                writer.raw(key)
            else:
                writer.blob(key)
            writer.count(len(group))
            for one in group:
                writer.pack(
                    _PARTITION,
                    one.partition,
                    one.current_leader_epoch,
                    one.fetch_offset,
                    one.last_fetched_epoch,
                    one.log_start_offset,
                    one.max_bytes,
                )
                writer.raw(one.tags)
            writer.tags()
        writer.raw(self.forgotten if has_session else b"\x01")
        writer.string(self.rack)
        writer.tags(self.tags.items())
        return request_frame(Api.FETCH, self.head.version, correlation_id, self.head.client_id, writer.data)


def may_be_flagged(frame: bytes | memoryview, head: RequestHead) -> bool:
    """Whether a look at the tagged fields is worth while: the flag's number is somewhere in the request."""
    return head.api == Api.FETCH and head.version >= FIRST_VERSION and _FLAG in bytes(frame)


def parse_flagged_fetch(frame: memoryview, head: RequestHead) -> FlaggedFetch | None:
    """The request behind its size, if it has the flag; ``None`` if not.

    Raises:
        ProtocolError: it is no Fetch request, or bytes are left over.
    """
    reader = body_of(frame, head)
    replica = bytes(reader.take(4)) if head.version < 15 else b""
    wait, least, most, isolation, session_id, session_epoch = reader.unpack(_LIMITS)
    partitions: list[PartitionAsked] = []
    for _ in range(reader.count(18 if head.version >= FIRST_WITH_IDS else 3)):
        key = bytes(reader.take(16)) if head.version >= FIRST_WITH_IDS else reader.string().encode()
        for _ in range(reader.count(_PARTITION.size + 1)):
            partition, current, offset, last_fetched, log_start, size = reader.unpack(_PARTITION)
            tags_at = reader.position
            reader.tags()
            own = bytes(frame[tags_at : reader.position])
            partitions.append(PartitionAsked(key, partition, current, offset, last_fetched, log_start, size, own))
        reader.tags()
    forgotten_at = reader.position
    for _ in range(reader.count(3)):
        reader.take(16) if head.version >= FIRST_WITH_IDS else reader.string()
        reader.take(4 * reader.count(4))
        reader.tags()
    forgotten = bytes(frame[forgotten_at : reader.position])
    rack = reader.string()
    tags = reader.tags()
    reader.finish()
    kept = {tag: _value(value) for tag, value in tags if tag not in RESERVED_TAGS}
    formats = requested_formats((tag, value) for tag, value in tags if tag in RESERVED_TAGS)
    if formats is None:
        return None
    return FlaggedFetch(
        head=head,
        max_wait_ms=wait,
        min_bytes=least,
        max_bytes=most,
        isolation=isolation,
        session_id=session_id,
        session_epoch=session_epoch,
        partitions=tuple(partitions),
        formats=formats,
        replica=replica,
        forgotten=forgotten,
        rack=rack,
        tags=kept,
    )


def zero_probe(partition: PartitionAsked) -> PartitionAsked:
    """What a broker from 4.2 on answers without a remote read: may this client read here, who leads, where it ends."""
    return replace(partition, max_bytes=0)


def tail_probe(partition: PartitionAsked, end_offset: int) -> PartitionAsked:
    """What every broker answers without a remote read: the end of the log, as far as it may be read."""
    return replace(partition, fetch_offset=end_offset, max_bytes=1)


def _value(reader: Reader) -> bytes:
    return bytes(reader.take(reader.left))
