"""The location extension, version 1: segment locations in tagged fields of the Fetch versions that exist.

KIP-1248 asks for locations in Fetch answers; its number is taken and no broker has it. Tags far above Kafka's own are
skipped by a peer that does not know them, which then serves records. This module knows the encoding and the rules of
what a good location says; the value itself knows neither, so that the final KIP's version is one more codec.
Reserved are the tags 12480 to 12495. Source: ``docs/reference/protocol.md``, "The location extension".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields
from struct import Struct, pack, unpack
from typing import Any, Final

from segreader.broker.codec import codec_of, codec_until
from segreader.broker.messages import APACHE_KAFKA_V1, FetchedPartition, IndexLocation, RemoteLogSegmentLocation
from segreader.broker.primitives import Reader, Writer
from segreader.broker.protocol import LOCATION, describe

EXTENSION_VERSION: Final = 1
LOCATION_TAG: Final = 12480
"""Of the request: the flag. Of an answer: the extension's version. Of a partition: the location."""

FORMATS_TAG: Final = 12481
"""Of the request: the storage formats that the asking side reads."""

FOLLOWING_TAG: Final = 12481
"""Of a partition: the locations of the segments behind the one that has the offset."""

MOST_SEGMENTS_TAG: Final = 12483
"""Of the request: how many segments of each partition may be located in the answer."""

STOPS_TAG: Final = 12482
"""Of the request: of each partition in turn the first offset behind those that are wanted."""

RESERVED_TAGS: Final = range(12480, 12496)


_ALL: Final = (1 << 63) - 1


def request_tags(
    formats: Sequence[str] = (APACHE_KAFKA_V1,), stops: Sequence[int | None] = (), most_segments: int = 1
) -> tuple[tuple[int, bytes], ...]:
    """The tags of a Fetch request that asks for locations in one of ``formats``.

    Args:
        stops: of each partition in turn the first offset that is not wanted any more; ``None``: all are wanted.
        most_segments: of each partition, one behind the other.
    """
    writer = Writer(flexible=True)
    writer.count(len(formats))
    for name in formats:
        writer.string(name)
    tags: tuple[tuple[int, bytes], ...] = ((LOCATION_TAG, b"\x01"), (FORMATS_TAG, bytes(writer.data)))
    if any(stop is not None for stop in stops):
        (writer := Writer(flexible=True)).count(len(stops))
        writer.raw(pack(f">{len(stops)}q", *[_ALL if stop is None else stop for stop in stops]))
        tags += ((STOPS_TAG, bytes(writer.data)),)
    return tags if most_segments == 1 else (*tags, (MOST_SEGMENTS_TAG, pack(">i", most_segments)))


def requested_formats(tags: Iterable[tuple[int, Reader]]) -> tuple[str, ...] | None:
    """The storage formats that a Fetch request asks locations for; ``None`` if it does not ask.

    Raises:
        ProtocolError: the tags are damaged.
    """
    is_wanted = False
    formats: tuple[str, ...] = (APACHE_KAFKA_V1,)
    for tag, value in tags:
        if tag == LOCATION_TAG:
            is_wanted = value.boolean()
            value.finish()
        elif tag == FORMATS_TAG:
            formats = value.array(value.string, 1)
            value.finish()
    return formats if is_wanted else None


def wanted_stops(tags: Iterable[tuple[int, Reader]]) -> tuple[int, ...]:
    """Of each partition of a request in turn the first offset that is not wanted any more; empty if it does not say.

    Raises:
        ProtocolError: the tag is damaged.
    """
    found: tuple[int, ...] = ()
    for tag, value in tags:
        if tag == STOPS_TAG:
            count = value.count(8)
            found = unpack(f">{count}q", value.take(8 * count))
            value.finish()
    return found


def wanted_segments(tags: Iterable[tuple[int, Reader]]) -> int:
    """How many segments of each partition a request wants to have located: 1 if it does not say.

    Raises:
        ProtocolError: the tag is damaged.
    """
    found = 1
    for tag, value in tags:
        if tag == MOST_SEGMENTS_TAG:
            found = value.int32()
            value.finish()
    return found


def encode_following(encoded: Sequence[bytes]) -> bytes:
    """The value of the partition's tag for the segments behind the first one, by what ``encode_location`` returned."""
    (writer := Writer(flexible=True)).count(len(encoded))
    for data in encoded:
        writer.raw(data)
    return bytes(writer.data)


def decode_following(value: Reader) -> tuple[RemoteLogSegmentLocation, ...]:
    """The locations in that tag, to be checked like the first one.

    Raises:
        ProtocolError: they are damaged.
    """
    found = tuple([_read_location(value) for _ in range(value.count(_LEAST_LOCATION))])
    value.finish()
    return found


def extension_tag() -> tuple[int, bytes]:
    """The top-level tag of an answer by a peer that understood the flag, and of ApiVersions to announce it."""
    return LOCATION_TAG, EXTENSION_VERSION.to_bytes(2, "big")


def extension_version(tags: Iterable[tuple[int, Reader]]) -> int | None:
    """What an answer's top-level tags say of the extension; ``None`` from a plain broker.

    Raises:
        ProtocolError: the tag is damaged.
    """
    found = None
    for tag, value in tags:
        if tag == LOCATION_TAG:
            found = value.int16()
            value.finish()
    return found


def encode_location(location: RemoteLogSegmentLocation) -> bytes:
    """The value of the partition's tag."""
    writer = Writer(flexible=True)
    message: dict[str, Any] = {each.name: getattr(location, each.name) for each in fields(location)}
    message["leader_epochs"] = [{"epoch": epoch, "start_offset": start} for epoch, start in location.leader_epochs]
    message["indexes"] = [asdict(index) for index in location.indexes]
    codec_of(LOCATION, EXTENSION_VERSION, True).write(writer, message)
    return bytes(writer.data)


RANGE: Final = Struct(">qq")
"""``start`` and ``stop`` of a location that has both."""


def encode_around_range(location: RemoteLogSegmentLocation) -> tuple[bytes, bytes]:
    """What is before and behind ``RANGE`` in a location: the same for all requests of one segment."""
    data = encode_location(location)
    writer = Writer(flexible=True)
    before = codec_until(LOCATION, "CustomMetadata", EXTENSION_VERSION, True)
    before.write_fields(writer, {each.name: getattr(location, each.name) for each in fields(location)})
    at = len(writer.data)
    return data[:at], data[at + RANGE.size :]


def decode_location(value: Reader) -> RemoteLogSegmentLocation:
    """The location in the partition's tag. Whether it is a good one is said by ``check_location``.

    Raises:
        ProtocolError: it is damaged; no text of it is in the message, for it may hold a signed URL.
    """
    found = _read_location(value)
    value.finish()
    return found


_LEAST_LOCATION: Final = 16 + 8 + 8 + 4


def _read_location(value: Reader) -> RemoteLogSegmentLocation:
    start = value.position
    message = codec_of(LOCATION, EXTENSION_VERSION, True).read(value)
    if message.segment_id is None:
        raise value.error("a location names no segment", position=start)
    found = message._asdict()
    del found["tags"]
    if message.custom_metadata is not None:
        found["custom_metadata"] = bytes(message.custom_metadata)
    if message.transaction_index is not None:
        found["transaction_index"] = bytes(message.transaction_index)
    found["leader_epochs"] = tuple([(one.epoch, one.start_offset) for one in message.leader_epochs])
    found["indexes"] = tuple([IndexLocation(*one[:-1]) for one in message.indexes])
    return RemoteLogSegmentLocation(**found)


def check_location(
    location: RemoteLogSegmentLocation,
    answer: FetchedPartition,
    fetch_offset: int,
    formats: Sequence[str],
    now_ms: int,
) -> str | None:
    """Why a location must be dropped and the offset be asked for again without the flag; ``None`` if it is good.

    Whether its URL or object may be asked at all is judged by the store that reads it.

    Args:
        answer: the partition of the answer that the location came with.
        fetch_offset: the offset that was asked for.
        formats: the storage formats that were listed in the request.
        now_ms: the time now.
    """
    size, start, stop = location.size, location.start, location.stop
    rules = (
        (answer.error == 0, f"it came with {describe(answer.error)}"),
        (not answer.records, "it came with records"),
        (answer.preferred_read_replica == -1, "it came with a preferred replica"),
        (answer.log_start_offset <= fetch_offset, f"offset {fetch_offset} is below the log start"),
        (0 <= location.first_offset <= fetch_offset <= location.last_offset, "the offset is not in the segment"),
        (size > 0, f"the segment's size is {size}"),
        (location.storage_format in formats, "its storage format was not requested"),
        (start is None or 0 <= start < size, f"it starts at {start} of {size} bytes"),
        (
            stop is None or (start or 0) < stop <= size,
            f"it is bytes {start or 0} to {stop} of {size}",
        ),
        (bool(location.object_location or location.signed_url), "it names neither an object nor a URL"),
        (location.expiry_ms is None or location.expiry_ms > now_ms, "its URL has expired"),
        (_are_ascending(location.leader_epochs, location.last_offset), "its leader epochs do not ascend"),
        (all(_is_good(index) for index in location.indexes), "an index has impossible bounds"),
    )
    return next((reason for is_kept, reason in rules if not is_kept), None)


def _are_ascending(epochs: tuple[tuple[int, int], ...], last_offset: int) -> bool:
    before = (-1, -1)
    for epoch, start_offset in epochs:
        if epoch <= before[0] or start_offset <= before[1] or start_offset > last_offset:
            return False
        before = (epoch, start_offset)
    return True


def _is_good(index: IndexLocation) -> bool:
    return index.start >= 0 and (index.stop is None or index.start <= index.stop)
