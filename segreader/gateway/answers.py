"""Pass answers from broker to client, unchanged or with the gateway's addresses, in slices as they come.

A Fetch answer has its size first and its addresses last. What follows the addresses is held; if they need another
number of bytes, the tagged fields around them absorb the difference (see ``frames.tag_section``). A parser of the parts
between records raises where bytes are missing, and is called again with more.
Source: FetchResponse 12-18, ShareFetchResponse 1-2 of Apache Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from segreader.broker.codec import FetchAnswerParts, codec_of, fetch_answer_parts
from segreader.broker.primitives import Reader, Writer
from segreader.broker.protocol import FETCH_TOP, Api
from segreader.gateway.addresses import AddressTable
from segreader.gateway.fetch_requests import FIRST_VERSION
from segreader.gateway.frames import SIZE, what
from segreader.gateway.rewriting import (
    EXTENSION_TAG,
    EXTENSION_VERSION,
    HEAD_APIS,
    rewrite_array_and_tags,
    rewrite_head,
    rewrite_produce,
    rewrite_share_acknowledge,
    rewrite_tags,
    rewrites,
)
from segreader.gateway.streams import FrameSource, Held, Outlet, Sink

Deliver = Callable[[FrameSource], Awaitable[None]]

_HELD_WHOLE: Final = 64 << 10
"""Fetch answers up to this size get addresses of any length; of larger ones the size is sent before they are known."""


async def pass_answer(source: FrameSource, client: Outlet, api: int, version: int, addresses: AddressTable) -> None:
    """Pass one answer on, with the gateway's addresses in the place of the brokers'.

    Raises:
        ProtocolError: it is no such answer.
    """
    if not rewrites(api, version):
        await client.send(SIZE.pack(source.size))
        await source.pass_on(source.left, client)
    elif api in HEAD_APIS:
        await _pass_head(source, client, Api(api), version, addresses)
    elif api in (Api.FETCH, Api.SHARE_FETCH):
        await pass_fetch(source, client, Api(api), version, addresses)
    else:
        rewrite = rewrite_produce if api == Api.PRODUCE else rewrite_share_acknowledge
        frame = memoryview(await source.rest())
        answer = rewrite(frame, version, addresses)
        if await addresses.settle():
            answer = rewrite(frame, version, addresses)
        await client.send(SIZE.pack(len(answer)) + answer)


async def _pass_head(source: FrameSource, client: Outlet, api: Api, version: int, addresses: AddressTable) -> None:
    def parse(reader: Reader) -> None:
        start = reader.position
        ahead = reader.take(reader.left)
        reader.position = start
        _, end = rewrite_head(ahead, api, version, addresses)
        reader.take(end)

    _, head = await source.parsed(parse)
    await addresses.settle()
    edits, _ = rewrite_head(memoryview(head), api, version, addresses)
    await client.send(SIZE.pack(source.size + edits.growth) + edits.applied(head))
    await source.pass_on(source.left, client)


@dataclass(frozen=True, slots=True)
class MoreTopics:
    """What a gateway adds to a Fetch answer of a broker.

    Args:
        topics: each as on the wire.
        throttle_ms: that the broker asked for in another answer.
    """

    topics: Sequence[bytes] = ()
    throttle_ms: int = 0


async def pass_fetch(
    source: FrameSource,
    client: Outlet,
    api: Api,
    version: int,
    addresses: AddressTable,
    more: MoreTopics | None = None,
) -> None:
    """Pass a Fetch or ShareFetch answer on, records in slices as they come.

    Args:
        more: topics to add, and the extension's version with them: the answer to a request with the flag.

    Raises:
        ProtocolError: it is no such answer.
    """
    is_small = source.size <= _HELD_WHOLE
    held = Held()
    sink: Sink = held if is_small else client
    growth = 0
    _, header = await source.parsed(FetchAnswerParts.header)
    if api is Api.FETCH:
        top, raw = await source.parsed(partial(read_top, fetch_answer_parts(version)))
        begin = raw
        if more is not None:
            begin = top_bytes(max(top.throttle_ms, more.throttle_ms), top.error, top.topics + len(more.topics))
            begin += b"".join(more.topics)
            growth = len(begin) - len(raw) + _EXTENSION_SIZE
    else:
        begin = b""
    if not is_small:
        await client.send(SIZE.pack(source.size + growth))
    await sink.send(header + begin)
    await (walk_topics(source, version, top, sink) if api is Api.FETCH else _walk_share(source, sink))
    tail = await source.rest()
    tail_size = None if is_small else len(tail) + (_EXTENSION_SIZE if more is not None else 0)
    new = _tail(memoryview(tail), api, version, addresses, tail_size, is_extended=more is not None)
    if await addresses.settle():
        new = _tail(memoryview(tail), api, version, addresses, tail_size, is_extended=more is not None)
    if is_small:
        answer = b"".join((*held.pieces, new))
        await client.send(SIZE.pack(len(answer)) + answer)
    else:
        await client.send(new)


def _tail(
    tail: memoryview, api: Api, version: int, addresses: AddressTable, size: int | None, *, is_extended: bool
) -> bytes:
    if api is Api.SHARE_FETCH:
        return rewrite_array_and_tags(tail, what(api, version), addresses, size)
    more = {EXTENSION_TAG: EXTENSION_VERSION} if is_extended else None
    return rewrite_tags(tail, what(api, version), addresses, more, size, has_endpoints=version >= 16)


def top_bytes(throttle_ms: int, error: int, topics: int) -> bytes:
    """How a Fetch answer without a session begins, up to its topics."""
    writer = Writer(flexible=True)
    fields = {"throttle_time_ms": throttle_ms, "error_code": error, "session_id": 0}
    codec_of(FETCH_TOP, FIRST_VERSION, True, False).write(writer, fields)
    writer.count(topics)
    return bytes(writer.data)


_EXTENSION_SIZE = 5
"""Bytes that the extension's tag takes: two for its number, one for its size, two for the version."""


async def walk_topics(
    source: FrameSource,
    version: int,
    top: FetchTop,
    sink: Sink | None,
    found: Callable[[bytes, PartitionHead, bytes, bytes], None] | None = None,
) -> None:
    """Pass the topics of a Fetch answer on, or drop them, up to the tagged fields that end it.

    Args:
        found: gets each partition: its topic's key, its head, the head's bytes up to the length of the records, and
            the tagged fields behind them.
    """
    parts = fetch_answer_parts(version)
    read_topic, read_partition = partial(_read_topic, parts), partial(_read_partition, parts)
    for _ in range(top.topics):
        (key, partitions), raw = await source.parsed(read_topic)
        if sink is not None:
            await sink.send(raw)
        for _ in range(partitions):
            head, raw = await source.parsed(read_partition)
            if sink is not None:
                await sink.send(raw)
            await source.pass_on(head.records_size or 0, sink)
            _, tags = await source.parsed(_tags)
            if sink is not None:
                await sink.send(tags)
            if found is not None:
                found(key, head, raw[: head.size], tags)
        _, raw = await source.parsed(_tags)
        if sink is not None:
            await sink.send(raw)


def _tags(reader: Reader) -> None:
    reader.tags()


async def _walk_share(source: FrameSource, sink: Sink) -> None:
    topics, raw = await source.parsed(share_top)
    await sink.send(raw)
    for _ in range(topics):
        partitions, raw = await source.parsed(_share_topic)
        await sink.send(raw)
        for _ in range(partitions):
            size, raw = await source.parsed(share_partition_head)
            await sink.send(raw)
            await source.pass_on(size, sink)
            _, raw = await source.parsed(share_partition_tail)
            await sink.send(raw)
        _, raw = await source.parsed(_tags)
        await sink.send(raw)


@dataclass(frozen=True, slots=True)
class FetchTop:
    """How a Fetch answer begins."""

    throttle_ms: int
    error: int
    topics: int


@dataclass(frozen=True, slots=True)
class PartitionHead:
    """A partition of a Fetch answer up to its records.

    Args:
        fields: those of ``FETCH_PARTITION``.
        size: bytes that they take, up to the length of the records.
        records_size: bytes of the records, which follow; ``None`` for null.
    """

    fields: Any
    size: int
    records_size: int | None


def read_top(parts: FetchAnswerParts, reader: Reader) -> FetchTop:
    """The top of a Fetch answer, behind its header."""
    top = parts.top(reader)
    return FetchTop(top.throttle_time_ms, top.error_code, reader.count(parts.least_topic))


def _read_partition(parts: FetchAnswerParts, reader: Reader) -> PartitionHead:
    start = reader.position
    fields = parts.partition(reader)
    return PartitionHead(fields, reader.position - start, reader.blob_size())


def _read_topic(parts: FetchAnswerParts, reader: Reader) -> tuple[bytes, int]:
    return parts.topic_key(reader), reader.count(parts.least_partition)


def share_top(reader: Reader) -> int:
    """The head of a ShareFetch answer: how many topics follow."""
    reader.take(6)
    reader.nullable_string()
    reader.take(4)
    return reader.count(18)


def _share_topic(reader: Reader) -> int:
    reader.take(16)
    return reader.count(22)


def share_partition_head(reader: Reader) -> int:
    """A partition of a ShareFetch answer up to its records: their size."""
    reader.take(6)
    reader.nullable_string()
    reader.take(2)
    reader.nullable_string()
    reader.take(8)
    reader.tags()
    return max(reader.uvarint() - 1, 0)


def share_partition_tail(reader: Reader) -> None:
    """What follows the records of a partition in a ShareFetch answer."""
    for _ in range(reader.count(19)):
        reader.take(18)
        reader.tags()
    reader.tags()
