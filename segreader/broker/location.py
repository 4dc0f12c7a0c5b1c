"""The location extension, version 1: segment locations in tagged fields of the Fetch versions that exist.

KIP-1248 asks for locations in Fetch answers; its number is taken and no broker has it. Tags far above Kafka's own are
skipped by a peer that does not know them, which then serves records. This module knows the encoding and the rules of
what a good location says; the value itself knows neither, so that the final KIP's version is one more codec.
Reserved are the tags 12480 to 12495. Source: ``docs/reference/protocol.md``, "The location extension".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Final

from segreader.broker.messages import APACHE_KAFKA_V1, FetchedPartition, IndexLocation, RemoteLogSegmentLocation
from segreader.broker.primitives import Reader, Writer
from segreader.broker.protocol import describe

EXTENSION_VERSION: Final = 1
LOCATION_TAG: Final = 12480
"""Of the request: the flag. Of an answer: the extension's version. Of a partition: the location."""

FORMATS_TAG: Final = 12481
"""Of the request: the storage formats that the asking side reads."""

RESERVED_TAGS: Final = range(12480, 12496)

_NONE: Final = -1
_BOUNDS = Struct(">qqi")
_POSITIONS = Struct(">qq")
_EPOCH = Struct(">iq")
_LEAST_EPOCH = _EPOCH.size + 1
_LEAST_INDEX = 1 + 1 + 1 + _POSITIONS.size + 1


def request_tags(formats: Sequence[str] = (APACHE_KAFKA_V1,)) -> tuple[tuple[int, bytes], ...]:
    """The tags of a Fetch request that asks for locations in one of ``formats``."""
    writer = Writer(flexible=True)
    writer.count(len(formats))
    for name in formats:
        writer.string(name)
    return ((LOCATION_TAG, b"\x01"), (FORMATS_TAG, bytes(writer.data)))


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
    writer.uuid(location.segment_id)
    writer.pack(_BOUNDS, location.first_offset, location.last_offset, location.size)
    writer.string(location.storage_format)
    writer.blob(location.custom_metadata)
    writer.pack(_POSITIONS, _or_none(location.start), _or_none(location.stop))
    writer.string(location.object_location)
    writer.string(location.signed_url)
    writer.int64(_or_none(location.expiry_ms))
    writer.boolean(location.is_transaction_index_empty)
    writer.count(len(location.leader_epochs))
    for epoch, start_offset in location.leader_epochs:
        writer.pack(_EPOCH, epoch, start_offset)
        writer.tags()
    writer.count(len(location.indexes))
    for index in location.indexes:
        writer.int8(index.index_type)
        writer.string(index.object_location)
        writer.string(index.signed_url)
        writer.pack(_POSITIONS, index.start, _or_none(index.stop))
        writer.tags()
    writer.tags()
    return bytes(writer.data)


def decode_location(value: Reader) -> RemoteLogSegmentLocation:
    """The location in the partition's tag. Whether it is a good one is said by ``check_location``.

    Raises:
        ProtocolError: it is damaged; no text of it is in the message, for it may hold a signed URL.
    """
    at = value.position
    if (segment_id := value.uuid()) is None:
        raise value.error("a location names no segment", position=at)
    first_offset, last_offset, size = value.unpack(_BOUNDS)
    storage_format = value.string()
    custom_metadata = value.nullable_blob()
    start, stop = _position(value), _position(value)
    object_location, signed_url = value.nullable_string(), value.nullable_string()
    expiry_ms = _position(value)
    is_transaction_index_empty = value.boolean()
    epochs = value.array(lambda: _epoch(value), _LEAST_EPOCH)
    indexes = value.array(lambda: _index(value), _LEAST_INDEX)
    value.tags()
    value.finish()
    return RemoteLogSegmentLocation(
        segment_id=segment_id,
        first_offset=first_offset,
        last_offset=last_offset,
        size=size,
        storage_format=storage_format,
        custom_metadata=None if custom_metadata is None else bytes(custom_metadata),
        start=start,
        stop=stop,
        object_location=object_location,
        signed_url=signed_url,
        expiry_ms=expiry_ms,
        is_transaction_index_empty=is_transaction_index_empty,
        leader_epochs=epochs,
        indexes=indexes,
    )


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
        (answer.preferred_read_replica == _NONE, "it came with a preferred replica"),
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


def _or_none(value: int | None) -> int:
    return _NONE if value is None else value


def _position(value: Reader) -> int | None:
    at = value.position
    if (number := value.int64()) < _NONE:
        raise value.error("a position or time of a location is negative", position=at, found=number)
    return None if number == _NONE else number


def _epoch(value: Reader) -> tuple[int, int]:
    epoch, start_offset = value.unpack(_EPOCH)
    value.tags()
    return epoch, start_offset


def _index(value: Reader) -> IndexLocation:
    index_type = value.int8()
    object_location, signed_url = value.nullable_string(), value.nullable_string()
    start, stop = value.int64(), _position(value)
    value.tags()
    return IndexLocation(index_type, object_location, signed_url, start, stop)


def _are_ascending(epochs: tuple[tuple[int, int], ...], last_offset: int) -> bool:
    before = (-1, -1)
    for epoch, start_offset in epochs:
        if epoch <= before[0] or start_offset <= before[1] or start_offset > last_offset:
            return False
        before = (epoch, start_offset)
    return True


def _is_good(index: IndexLocation) -> bool:
    return index.start >= 0 and (index.stop is None or index.start <= index.stop)
