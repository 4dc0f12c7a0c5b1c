"""Fetch on the wire: requests with the flag for locations, taken apart and put together again, and answers to them.

Answers pass from broker to client in slices as they come. They have their size first and their addresses last. What
follows the topics is held; if addresses need another number of bytes, the tagged fields around them absorb the
difference (``rewriting.tag_section``). A parser of the parts between records raises where bytes are missing, and is
called again with more.
Source: Fetch 12-18 and ShareFetch 1-2 of Apache Kafka 4.3; docs/reference/protocol.md for the extension.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import field
from enum import Enum, auto
from functools import cache, lru_cache, partial
from itertools import groupby
from struct import Struct
from typing import Any, Final, NamedTuple

from segreader.broker.codec import (
    FIRST_WITH_TOPIC_ID,
    AnswerParts,
    RequestHead,
    StructCodec,
    answer_parts,
    codec_of,
    fields_of,
    message_name,
)
from segreader.broker.location import (
    FOLLOWING_TAG,
    LOCATION_TAG,
    RESERVED_TAGS,
    encode_following,
    extension_tag,
    requested_formats,
    wanted_segments,
    wanted_stops,
)
from segreader.broker.primitives import Reader, Writer
from segreader.broker.protocol import ANSWERS_IN_PARTS, REQUESTS, Api
from segreader.gateway.rewriting import AddressTable, rewrite_end
from segreader.gateway.wire import SIZE, FrameSource, Held, Outlet, Sink
from segreader.values import dataclass

FIRST_VERSION: Final = 12
"""The first one with tagged fields."""

EXTENSION: Final[Mapping[int, bytes]] = dict([extension_tag()])
"""What an answer to a request with the flag has at its end."""

_FLAG = bytes((LOCATION_TAG & 0x7F | 0x80, LOCATION_TAG >> 7))
_NO_TAGS = b"\x00"
_TABLES = ANSWERS_IN_PARTS[Api.FETCH]
_HELD_WHOLE: Final = 64 << 10
"""Fetch answers up to this size get addresses of any length; of larger ones the size is sent before they are known."""

_EXTENSION_SIZE = 5
"""Bytes that the extension's tag takes: two for its number, one for its size, two for the version."""


class PartitionAsked(NamedTuple):
    """One partition of the request, of the topic with this id, or this name below version 13.

    ``stop_offset``: the first one that is not wanted any more, of the extension; ``None``: all are wanted.
    """

    topic: str | None
    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    partition_max_bytes: int
    stop_offset: int | None = None

    def zero_probe(self) -> PartitionAsked:
        """What a broker from 4.2 on answers without a remote read: may this client read, who leads, where it ends."""
        return self._replace(partition_max_bytes=0)

    def tail_probe(self, end_offset: int) -> PartitionAsked:
        """What every broker answers without a remote read: the end of the log, as far as it may be read."""
        return self._replace(fetch_offset=end_offset, partition_max_bytes=1)


@dataclass(slots=True)
class _Around:
    """What is before and behind the only partition of a request.

    Args:
        before: from the client id on.
        probe: the same of the probe for it: up to its correlation id, from there to the partition, and behind.
    """

    before: bytes
    behind: bytes
    probe: tuple[bytes, bytes, bytes] | None = None


class FlaggedFetch(NamedTuple):
    """A Fetch request that asks for locations.

    ``fields``, ``end``: those before and behind the topics; and ``raw_end``, these as they came.
    ``tags``: of the whole request, without the extension's.
    ``partitions``: in the client's order, which is that of serving.
    ``formats``: the storage formats that the client reads.
    ``most_segments``: of each partition that may be located.
    ``around``: of a short request for one partition, which most likely comes again with another offset.
    """

    head: RequestHead
    fields: Any
    end: Any
    raw_end: bytes
    tags: tuple[tuple[int, Reader], ...]
    partitions: tuple[PartitionAsked, ...]
    formats: tuple[str, ...]
    most_segments: int = 1
    around: _Around | None = None

    @property
    def has_ids(self) -> bool:
        """Whether topics are identified by their ids."""
        return self.head.version >= FIRST_WITH_TOPIC_ID

    def again(self, frame: bytes, head: RequestHead) -> FlaggedFetch | None:
        """Read a request that has the same bytes around its one partition as this one; ``None`` if it has not."""
        if (around := self.around) is None or head.version != self.head.version:
            return None
        behind = (at := _CLIENT_ID_AT + len(around.before)) + _ASKED.size
        if frame[_CLIENT_ID_AT:at] != around.before or frame[behind:] != around.behind or frame[behind - 1]:
            return None
        (last,) = self.partitions
        asked = PartitionAsked._make((last.topic, *_ASKED.unpack_from(frame, at), last.stop_offset))
        return self._replace(head=head, partitions=(asked,))

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
        topics = [(topic, list(group)) for topic, group in groupby(partitions, lambda one: one.topic)]
        writer = self._beginning(len(topics), correlation_id, has_session=has_session, waits=waits)
        for topic, asked in topics:
            self._begin_topic(writer, topic, len(asked))
            writer.raw(b"".join([_ASKED.pack(*one[1:-1]) for one in asked]))
            writer.tags()
        self._end(writer, has_session=has_session)
        return writer.framed()

    def probe(self, partitions: Sequence[PartitionAsked], correlation_id: int) -> bytes:
        """The request for some of its partitions, with another offset or size, that the broker answers at once."""
        if (around := self.around) is None:
            return self.encode(partitions, correlation_id, waits=False)
        (asked,) = partitions
        if around.probe is None:
            writer = self._beginning(1, 0, has_session=False, waits=False)
            self._begin_topic(writer, asked.topic, 1)
            before = bytes(writer.data)
            (writer := Writer(flexible=True)).tags()
            self._end(writer, has_session=False)
            behind = bytes(writer.data)
            size = SIZE.pack(len(before) + _ASKED.size + len(behind))
            around.probe = size + before[: _CLIENT_ID_AT - SIZE.size], before[_CLIENT_ID_AT:], behind
        start, before, behind = around.probe
        return b"".join((start, SIZE.pack(correlation_id), before, _ASKED.pack(*asked[1:-1]), behind))

    def _beginning(self, topics: int, correlation_id: int, *, has_session: bool, waits: bool) -> Writer:
        """The request up to its first topic."""
        fields = self.fields
        if not has_session:
            fields = fields._replace(session_id=0, session_epoch=-1)
        if not waits:
            fields = fields._replace(max_wait_ms=0)
        version = self.head.version
        writer = Writer(flexible=True)
        writer.pack(_REQUEST_HEAD, Api.FETCH, version, correlation_id)
        writer.client_id(self.head.client_id)
        writer.tags()
        _request_parts(version).top.write(writer, fields)
        writer.count(topics)
        return writer

    def _begin_topic(self, writer: Writer, topic: str | None, partitions: int) -> None:
        _request_parts(self.head.version).topic.write_fields(writer, {"topic": topic, "topic_id": topic})
        writer.count(partitions)

    def _end(self, writer: Writer, *, has_session: bool) -> None:
        """What is behind the last topic."""
        if has_session or not self.end.forgotten_topics_data:
            writer.raw(self.raw_end)
        else:
            _request_parts(self.head.version).end.write(writer, self.end._replace(forgotten_topics_data=()))
        writer.tags([(tag, value.unread) for tag, value in self.tags])


class _RequestParts(NamedTuple):
    top: StructCodec
    topic: StructCodec
    end: StructCodec


@cache
def _request_parts(version: int) -> _RequestParts:
    """A Fetch request around its partitions."""
    every = fields_of(REQUESTS[Api.FETCH])
    at = next(index for index, one in enumerate(every) if one.name == "Topics")
    identity = [one for one in every[at].fields if not one.is_array]
    return _RequestParts(
        StructCodec(every[:at], version, True, is_closed=False),
        StructCodec(identity, version, True, is_closed=False),
        StructCodec(every[at + 1 :], version, True, is_closed=False),
    )


_REQUEST_HEAD = Struct(">hhi")
_CLIENT_ID_AT = _REQUEST_HEAD.size
_ASKED = Struct(">iiqiqix")
"""A partition of a request: its fields, and the count of its tagged fields, 0."""

_MOST_TAGS = 16
"""Of a request as a whole, and of its header. Kafka has two there, and the extension two."""

_LONGEST_END = 1 << 10
"""What follows the topics: few forgotten ones, for locations are given without a session only."""

_STOP_SIZE: Final = 8
"""What follows the topics besides, of each partition."""

STEP: Final = 64
"""Partitions or topics of a request that are looked at in one turn: tens of microseconds."""

_EXTENSION_ALONE: Final = bytes((1, *_FLAG, len(EXTENSION[LOCATION_TAG]), *EXTENSION[LOCATION_TAG]))
"""``EXTENSION`` as the tagged fields that end an answer."""

_TOP = Struct(">Bihi")
"""No tagged fields, and the fields before the topics of an answer."""

_WITHOUT_RECORDS = Struct(">ihqqqBiB")
"""A partition of an answer up to its tagged fields, with no list of aborted transactions and with empty records."""

_EMPTY = Struct(_WITHOUT_RECORDS.format + "B")
"""The same with the count of its tagged fields."""

_READ_WHOLE: Final = 1 << 10
"""Bytes of an answer that is read at once: tens of partitions; and of a request that is remembered."""

STEP_OF_ANSWERS: Final = 16
"""As ``STEP``, of an answer, in which each has its own size."""


class TooLong(Enum):
    """A request that is not read to its end."""

    TOO_LONG = auto()


TOO_LONG: Final = TooLong.TOO_LONG


def flagged_fetch_steps(
    frame: bytes, head: RequestHead, most_partitions: int = 1000
) -> Generator[None, None, FlaggedFetch | TooLong | None]:
    """Read a request behind its size if it is a Fetch with the flag, in short steps: others have their turn between.

    Returns ``None`` for any other request, and ``TOO_LONG`` for one that no reader of segments sends: of more
    partitions or topics, or with tagged fields in these. It may be passed on as it is, for a broker skips the flag.

    Raises:
        ProtocolError: it is no Fetch request, or bytes are left over.
    """
    if (
        head.api != Api.FETCH
        or head.version < FIRST_VERSION
        or frame.find(_FLAG, max(0, len(frame) - _LONGEST_END - _STOP_SIZE * most_partitions)) < 0
    ):
        return None
    what = message_name(head.api, head.version, "request")
    reader = Reader(memoryview(frame), flexible=True, what=what, start=head.position)
    if has_many_tags(reader):
        return TOO_LONG
    reader.tags()
    parts = _request_parts(head.version)
    fields = parts.top.read(reader)
    if (topics := reader.count(parts.topic.least + 2)) > most_partitions:
        return TOO_LONG
    asked: list[PartitionAsked] = []
    since = last_at = 0
    for _ in range(topics):
        identity = parts.topic.read(reader)
        topic = identity.topic if identity.topic_id is None else identity.topic_id
        count = reader.count(_ASKED.size)
        if len(asked) + count > most_partitions:
            return TOO_LONG
        for begin in range(0, count, STEP):
            size = min(STEP, count - begin)
            if since + size > STEP:
                since = 0
                yield
            rows = reader.take(size * _ASKED.size)
            if any(rows[_ASKED.size - 1 :: _ASKED.size]):
                return TOO_LONG
            asked += [PartitionAsked(topic, *row) for row in _ASKED.iter_unpack(rows)]
            last_at = reader.position
            since += size
        if reader.take(1)[0]:
            return TOO_LONG
        since += 1
        if since >= STEP:
            since = 0
            yield
    if reader.left > _LONGEST_END + _STOP_SIZE * len(asked):
        return TOO_LONG
    rest, start = reader.unread, reader.position
    end = parts.end.read(reader)
    raw_end = bytes(rest[: reader.position - start])
    if has_many_tags(reader):
        return TOO_LONG
    tags = reader.tags()
    reader.finish()
    if (formats := requested_formats(tags)) is None:
        return None
    if len(stops := wanted_stops(tags)) == len(asked):
        asked = [one._replace(stop_offset=stop) for one, stop in zip(asked, stops, strict=True)]
    kept = tuple([one for one in tags if one[0] not in RESERVED_TAGS])
    is_remembered = len(asked) == 1 and len(frame) <= _READ_WHOLE
    around = _Around(frame[_CLIENT_ID_AT : last_at - _ASKED.size], frame[last_at:]) if is_remembered else None
    return FlaggedFetch(head, fields, end, raw_end, kept, tuple(asked), formats, wanted_segments(tags), around)


def has_many_tags(reader: Reader) -> bool:
    """Whether more tagged fields follow than any client sends at the top of a request."""
    return reader.left > 0 and reader.unread[0] > _MOST_TAGS


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
        more: topics to add to a Fetch answer, and the extension's version: the answer to a request with the flag.

    Raises:
        ProtocolError: it is no such answer.
    """
    parts = answer_parts(api, version)
    is_small = source.size <= _HELD_WHOLE
    held = Held()
    sink: Sink = held if is_small else client
    growth = 0
    (top, topics), begin = await source.parsed(parts.top)
    if more is not None:
        raw = begin
        throttle_ms = max(top.throttle_time_ms, more.throttle_ms)
        begin = raw[:4] + _top(throttle_ms, top.error_code, topics + len(more.topics)) + b"".join(more.topics)
        growth = len(begin) - len(raw) + _EXTENSION_SIZE
    if not is_small:
        await client.send(SIZE.pack(source.size + growth))
    await sink.send(begin)
    await walk_topics(source, api, version, topics, sink)
    end = memoryview(await source.rest())
    size = None if is_small else len(end) + (_EXTENSION_SIZE if more is not None else 0)
    extension = EXTENSION if more is not None else None
    new = rewrite_end(end, api, version, addresses, more=extension, size=size)
    if await addresses.settle():
        new = rewrite_end(end, api, version, addresses, more=extension, size=size)
    if is_small:
        answer = b"".join((*held.pieces, new))
        await client.send(SIZE.pack(len(answer)) + answer)
    else:
        await client.send(new)


class _LongPartition(NamedTuple):
    """What is before the records of a partition of Fetch, in parts: it may list hundreds of thousands of aborts."""

    before: StructCodec
    aborted: StructCodec
    after: StructCodec


@cache
def _long_partition() -> _LongPartition:
    every = fields_of(_TABLES.partition)
    at = next(index for index, one in enumerate(every) if one.is_array)
    return _LongPartition(
        StructCodec(every[:at], FIRST_VERSION, True, is_closed=False),
        StructCodec(every[at].fields, FIRST_VERSION, True),
        StructCodec(every[at + 1 :], FIRST_VERSION, True, is_closed=False),
    )


_NO_ABORTS = b"\x01"
_MANY_ABORTS = 0x80
"""What the count of aborted transactions begins with where it takes two bytes or more."""

STEP_OF_ABORTS: Final = 256


async def _walk_long_partition(source: FrameSource, parts: AnswerParts, sink: Sink | None) -> tuple[Any, int | None]:
    """Pass on what is before the records of a partition with many aborted transactions: its fields without these."""
    before, aborted, after = _long_partition()

    def read_after(reader: Reader) -> int | None:
        after.read(reader)
        return reader.blob_size()

    _, first = await source.parsed(before.read)
    count, raw = await source.parsed(lambda reader: reader.count(aborted.least))
    if sink is not None:
        await sink.send(first + raw)
    for begin in range(0, count, STEP_OF_ABORTS):
        size = min(STEP_OF_ABORTS, count - begin)
        _, raw = await source.parsed(partial(aborted.read_many, count=size))
        if sink is not None:
            await sink.send(raw)
        await asyncio.sleep(0)
    size_of_records, last = await source.parsed(read_after)
    if sink is not None:
        await sink.send(last)
    whole = Reader(first + _NO_ABORTS + last, flexible=True, what=message_name(Api.FETCH, FIRST_VERSION))
    return parts.partition(whole), size_of_records


def _empty_partitions(reader: Reader, most: int) -> int:
    """Step over partitions without aborted transactions, records and tagged fields, as far as they are here."""
    rows = reader.unread[: min(most, reader.left // _EMPTY.size) * _EMPTY.size]
    count = 0
    for row in _EMPTY.iter_unpack(rows):
        if row[5] > 1 or row[7] > 1 or row[8]:  # counts are one too high, 0 is null
            break
        count += 1
    reader.take(count * _EMPTY.size)
    return count


Found = Callable[[Any, Any, int | None, bytes], None]


async def walk_topics(
    source: FrameSource, api: Api, version: int, topics: int, sink: Sink | None, found: Found | None = None
) -> None:
    """Pass the topics of an answer on, or drop them, up to what ends it.

    Args:
        found: gets each partition: its topic, its fields before the records, the length of these, and the bytes behind.
    """
    parts = answer_parts(api, version)
    seen = 0
    for _ in range(topics):
        (topic, partitions), raw = await source.parsed(parts.topic)
        if sink is not None:
            await sink.send(raw)
        left, may_be_empty = partitions, False
        while left:
            if may_be_empty and found is None and api is Api.FETCH:
                empty, raw = await source.parsed(partial(_empty_partitions, most=min(left, STEP)))
                if empty:
                    left -= empty
                    if sink is not None:
                        await sink.send(raw)
                    await asyncio.sleep(0)
                    continue
            left -= 1
            seen += 1
            if not seen % STEP_OF_ANSWERS:  # partitions without records come many at once
                await asyncio.sleep(0)
            head, size, behind = await _walk_partition(source, api, parts, sink)
            may_be_empty = not size
            if found is not None:
                found(topic, head, size, behind)
        seen += 1
        if not seen % STEP_OF_ANSWERS:
            await asyncio.sleep(0)
        _, raw = await source.parsed(Reader.tags)
        if sink is not None:
            await sink.send(raw)


async def _walk_partition(
    source: FrameSource, api: Api, parts: AnswerParts, sink: Sink | None
) -> tuple[Any, int | None, bytes]:
    """Pass a partition on: its fields before the records, the length of these, and the bytes behind."""
    count_at = _long_partition().before.least if api is Api.FETCH else None

    def read_partition(reader: Reader) -> tuple[Any, int | None] | None:
        if count_at is not None and reader.left > count_at and reader.unread[count_at] >= _MANY_ABORTS:
            return None
        return parts.partition(reader), reader.blob_size()

    read, raw = await source.parsed(read_partition)
    if read is None:
        read = await _walk_long_partition(source, parts, sink)
    elif sink is not None:
        await sink.send(raw)
    head, size = read
    await source.pass_on(size or 0, sink)
    _, behind = await source.parsed(parts.after_records)
    if sink is not None:
        await sink.send(behind)
    return head, size, behind


@dataclass(frozen=True, slots=True)
class ProbedPartition:
    """The answer to a probe for one partition: its fields, whether its records were null, and the tagged fields."""

    fields: Any
    is_null: bool
    tags: bytes

    @property
    def has_tags(self) -> bool:
        """Whether the broker said more, for example that the client's position is of another history."""
        return self.tags != _NO_TAGS

    def located(self, location: bytes, following: Sequence[bytes] = ()) -> bytes:
        """The partition of an answer with a location in the place of records, and those of the segments behind.

        Args:
            location: as it is encoded, and ``following``, too.
        """
        fields = self.fields
        ends = fields.high_watermark, fields.last_stable_offset, fields.log_start_offset
        (writer := Writer(flexible=True)).pack(_WITHOUT_RECORDS, fields.partition_index, 0, *ends, 0, -1, 1)
        tags = [(LOCATION_TAG, location)]
        if following:
            tags.append((FOLLOWING_TAG, encode_following(following)))
        writer.tags(tags)
        return bytes(writer.data)

    def refused(self) -> bytes:
        """The partition as the broker answered it, with its error and without records."""
        writer = Writer(flexible=True)
        codec_of(_TABLES.partition, FIRST_VERSION, True, False).write(writer, self.fields)
        writer.blob(None if self.is_null else b"")
        writer.raw(self.tags)
        return bytes(writer.data)


_ANSWERS_KEPT: Final = 1024
"""Answers to probes whose meaning is kept, each of a kilobyte at most."""


@dataclass(slots=True)
class ProbeAnswer:
    """The answer to a probe without its records; ``end`` is what follows the topics."""

    throttle_ms: int = 0
    error: int = 0
    partitions: dict[tuple[str | None, int], ProbedPartition] = field(default_factory=dict)
    end: bytes = _NO_TAGS

    async def take(self, source: FrameSource, version: int) -> None:
        """Read the answer; its records are dropped as they come.

        Raises:
            ProtocolError: it is no Fetch answer.
        """

        if source.size <= _READ_WHOLE:
            data = bytes(4) + (await source.rest())[4:]
            self.throttle_ms, self.error, self.partitions, self.end = _read_probe(data, version)
            return

        def found(topic: Any, fields: Any, size: int | None, tags: bytes) -> None:
            key = topic.topic if topic.topic_id is None else topic.topic_id, fields.partition_index
            self.partitions[key] = ProbedPartition(fields, size is None, tags)

        parts = answer_parts(Api.FETCH, version)
        (top, topics), _ = await source.parsed(parts.top)
        self.throttle_ms, self.error = top.throttle_time_ms, top.error_code
        await walk_topics(source, Api.FETCH, version, topics, None, found)
        self.end = await source.rest()


@lru_cache(_ANSWERS_KEPT)
def _read_probe(data: bytes, version: int) -> tuple[int, int, dict[tuple[str | None, int], ProbedPartition], bytes]:
    """The fields of ``ProbeAnswer`` of an answer that is here; brokers say the same again while a log stays as it is.

    Args:
        data: with 0 for its correlation id.
    """
    parts, reader = answer_parts(Api.FETCH, version), Reader(data, flexible=True, what=message_name(Api.FETCH, version))
    partitions: dict[tuple[str | None, int], ProbedPartition] = {}
    top, topics = parts.top(reader)
    for _ in range(topics):
        topic, count = parts.topic(reader)
        name = topic.topic if topic.topic_id is None else topic.topic_id
        for _ in range(count):
            fields, size = parts.partition(reader), reader.blob_size()
            reader.take(size or 0)
            behind, start = reader.unread, reader.position
            parts.after_records(reader)
            tags = bytes(behind[: reader.position - start])
            partitions[name, fields.partition_index] = ProbedPartition(fields, size is None, tags)
        reader.tags()
    return top.throttle_time_ms, top.error_code, partitions, bytes(reader.unread)


def encode_topics(version: int, partitions: Iterable[tuple[str | None, bytes]]) -> list[bytes]:
    """Partitions, each with its topic's id or name, as topics of an answer."""
    of_topic: dict[str | None, list[bytes]] = {}
    for topic, data in partitions:
        of_topic.setdefault(topic, []).append(data)
    return [
        b"".join((_topic_head(version, topic, len(data_of)), *data_of, _NO_TAGS)) for topic, data_of in of_topic.items()
    ]


@lru_cache(_ANSWERS_KEPT)
def _topic_head(version: int, topic: str | None, partitions: int) -> bytes:
    writer = Writer(flexible=True)
    codec_of(_TABLES.topic, version, True, False).write_fields(writer, {"topic": topic, "topic_id": topic})
    writer.count(partitions)
    return bytes(writer.data)


def whole_answer(correlation_id: int, throttle_ms: int, topics: list[bytes], end: bytes | None = None) -> bytes:
    """A frame that holds these topics alone.

    Args:
        end: the tagged fields that end it; by default the extension's version.
    """
    top = _top(throttle_ms, 0, len(topics))
    answer = b"".join((SIZE.pack(correlation_id), top, *topics, _EXTENSION_ALONE if end is None else end))
    return SIZE.pack(len(answer)) + answer


def _top(throttle_ms: int, error: int, topics: int) -> bytes:
    """The beginning of an answer without a session, after its correlation id, up to its topics."""
    writer = Writer(flexible=True)
    writer.pack(_TOP, 0, throttle_ms, error, 0)
    writer.count(topics)
    return bytes(writer.data)
