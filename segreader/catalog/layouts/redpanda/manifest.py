"""A partition's manifest: which segments Redpanda has uploaded, in its own offsets. As JSON (before 23.2) and packed.

``manifest.bin`` is made of envelopes, and in them a table of segments that is packed column by column. An envelope is a
version, the oldest version that can read it, and a size (6 bytes); what a newer writer adds is at its end and is
skipped. All numbers are little-endian. A column is cut into frames; a frame holds rows of 16 values, each value as its
difference to the one before, packed to as many bits as the largest of the row needs.

Source: Redpanda 24.3 ``partition_manifest``, ``segment_meta``, ``serde/envelope``, ``segment_meta_cstore``,
``delta_for``.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

from segreader.errors import ManifestError, shown_count
from segreader.values import dataclass

MAX_INT64: Final = (1 << 63) - 1
UNSET: Final = -1 << 63
"""What Redpanda writes for an offset, a delta or a term that is not known."""

_SEGMENT: Final = re.compile(r"(\d{1,19})-(\d{1,19})-v1\.log", re.ASCII)
_NAME_FORMATS: Final = (1, 2, 3)
_ROW: Final = 16
_WORDS: Final = ((64, struct.Struct("<16Q")), (32, struct.Struct("<16I")), (16, struct.Struct("<16H")), (8, None))
_UNSIGNED: Final = (1 << 64) - 1
_SIGN: Final = 1 << 63
_MAX_SEGMENTS: Final = 1 << 22
"""More segments than any partition has; a packed row takes a byte where all its values are the same."""

_COLUMNS: Final = (
    "is_compacted",
    "size_bytes",
    "base_offset",
    "committed_offset",
    "base_timestamp",
    "max_timestamp",
    "delta_offset",
    "ntp_revision",
    "archiver_term",
    "segment_term",
    "delta_offset_end",
    "sname_format",
    "metadata_size_hint",
)


@dataclass(frozen=True, slots=True)
class SegmentMeta:
    """One segment of a manifest, or in ``spillover`` one manifest of older segments; offsets are Redpanda's.

    Args:
        committed_offset: its last offset.
        delta_offset: how far Kafka's offsets are behind at its start; ``None``: not recorded, which counts as 0.
        delta_offset_end: the same behind its end; ``None``: not recorded.
        archiver_term: term of the uploader, a suffix of the key; ``None`` where there is no suffix.
        max_timestamp: ms; -1 where it is not recorded.
        metadata_size_hint: bytes of the list of aborted transactions; 0 in name format 3 means that there is none.
    """

    base_offset: int
    committed_offset: int
    size_bytes: int
    is_compacted: bool = False
    base_timestamp: int = -1
    max_timestamp: int = -1
    delta_offset: int | None = None
    delta_offset_end: int | None = None
    archiver_term: int | None = None
    segment_term: int = 0
    name_format: int = 1
    metadata_size_hint: int = 0

    @property
    def base_kafka_offset(self) -> int:
        """Kafka's offset at its start."""
        return self.base_offset - (self.delta_offset or 0)

    @property
    def next_kafka_offset(self) -> int:
        """Kafka's offset behind its end; too large by one in some manifests where the segment ends without data."""
        return self.committed_offset + 1 - (self.delta_offset_end or 0)

    @property
    def name(self) -> str:
        """Of its object, without directory and archiver term."""
        return segment_name(
            self.base_offset,
            self.segment_term,
            committed_offset=self.committed_offset,
            size=self.size_bytes,
            name_format=self.name_format,
        )

    def check(self) -> None:
        """Raise ``ValueError`` if no segment can be so."""
        deltas = [delta for delta in (self.delta_offset, self.delta_offset_end) if delta is not None]
        if not (
            0 <= self.base_offset <= self.committed_offset < MAX_INT64
            and 0 <= self.size_bytes <= MAX_INT64
            and self.name_format in _NAME_FORMATS
            and 0 <= self.segment_term <= MAX_INT64
            and all(delta >= 0 for delta in deltas)
            and 0 <= self.base_kafka_offset <= self.next_kafka_offset
        ):
            raise ValueError(f"no segment can be so: {self}")


@dataclass(frozen=True, slots=True)
class PartitionManifest:
    """The contents of a manifest.

    Args:
        version: 1 in JSON, 2 and up in the binary form.
        segments: by rising base offset.
        spillover: the manifests that hold older segments, in the same form and order.
        replaced: names of objects that were rewritten and may still exist.
        start_offset: first offset of ``segments`` that is alive; ``None``: not recorded.
        archive_start_offset: the same of the segments in spill-over manifests.
        start_kafka_offset: what ``DeleteRecords`` set, in Kafka's offsets.
    """

    version: int
    namespace: str
    topic: str
    partition: int
    revision: int
    segments: tuple[SegmentMeta, ...] = ()
    spillover: tuple[SegmentMeta, ...] = ()
    replaced: tuple[str, ...] = ()
    start_offset: int | None = None
    archive_start_offset: int | None = None
    start_kafka_offset: int | None = None


def parse_json_object(data: bytes, *, source: str | None = None) -> dict[str, Any]:
    """The object that a small JSON file holds.

    Raises:
        ManifestError: it is not JSON, or another value.
    """
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError and too long numbers are ValueErrors
        raise ManifestError("it is not JSON", source=source, found=str(error)[:200]) from error
    if not isinstance(value, dict):
        raise ManifestError("it holds no JSON object", source=source, found=type(value).__name__)
    return value


def parse_json_manifest(data: bytes, *, source: str | None = None) -> PartitionManifest:
    """Read a ``manifest.json``.

    Raises:
        ManifestError: a field is missing, of another type or impossible.
    """
    fields = parse_json_object(data, source=source)
    try:
        version = _integer(fields, "version")
        if version != 1:
            raise ManifestError(
                "a manifest has an unknown version", source=source, found=f"version {version}", expected="version 1"
            )
        segments = [_segment(meta, key) for key, meta in _mapping(fields, "segments").items()]
        spillover = fields.get("spillover") or []
        if not isinstance(spillover, list):
            raise ValueError("spillover is not a list")
        return PartitionManifest(
            version=version,
            namespace=_text(fields, "namespace"),
            topic=_text(fields, "topic"),
            partition=_integer(fields, "partition"),
            revision=_integer(fields, "revision"),
            segments=_ordered(segments),
            spillover=_ordered([_segment(meta, None) for meta in spillover]),
            replaced=tuple(map(str, _mapping(fields, "replaced"))),
            start_offset=_optional(fields, "start_offset"),
            archive_start_offset=_optional(fields, "archive_start_offset"),
            start_kafka_offset=_optional(fields, "start_kafka_offset"),
        )
    except ValueError as error:
        raise ManifestError("a manifest contradicts itself", source=source, found=str(error)[:400]) from error


def _segment(meta: object, key: str | None) -> SegmentMeta:
    """One entry; ``key`` is the segment's short name, which holds the term in old manifests."""
    if not isinstance(meta, Mapping):
        raise ValueError(f"a segment is not an object: {meta!r}")
    term = _optional(meta, "segment_term")
    name_format = 3 if key is None else _optional(meta, "sname_format") or 1
    if key is not None:
        match = _SEGMENT.fullmatch(key)
        if match is None or int(match[1]) != _integer(meta, "base_offset"):
            raise ValueError(f"{key!r} is not the name of the segment at {meta.get('base_offset')!r}")
        term = int(match[2]) if term is None else term
    one = SegmentMeta(
        base_offset=_integer(meta, "base_offset"),
        committed_offset=_integer(meta, "committed_offset"),
        size_bytes=_integer(meta, "size_bytes"),
        is_compacted=meta.get("is_compacted") is True,
        base_timestamp=_or(meta, "base_timestamp", -1),
        max_timestamp=_or(meta, "max_timestamp", -1),
        delta_offset=_optional(meta, "delta_offset"),
        delta_offset_end=_optional(meta, "delta_offset_end"),
        archiver_term=_optional(meta, "archiver_term"),
        segment_term=term or 0,
        name_format=name_format,
        metadata_size_hint=_or(meta, "metadata_size_hint", 0),
    )
    one.check()
    return one


def _ordered(segments: list[SegmentMeta]) -> tuple[SegmentMeta, ...]:
    return tuple(sorted(segments, key=lambda segment: (segment.base_offset, segment.committed_offset)))


def _mapping(fields: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = fields.get(name)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} is not an object: {value!r}")
    return value


def _text(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str):
        raise ValueError(f"{name} is not text: {value!r}")
    return value


def _integer(fields: Mapping[str, Any], name: str) -> int:
    value = fields.get(name)
    if type(value) is not int or not UNSET <= value <= MAX_INT64:
        raise ValueError(f"{name} is not an integer of 64 bits: {value!r}")
    return value


def _optional(fields: Mapping[str, Any], name: str) -> int | None:
    """A number; ``None`` where it is left out or marked as unknown."""
    if fields.get(name) is None or (value := _integer(fields, name)) == UNSET:
        return None
    return value


def _or(fields: Mapping[str, Any], name: str, default: int) -> int:
    value = _optional(fields, name)
    return default if value is None else value


def segment_name(base_offset: int, term: int, *, committed_offset: int, size: int, name_format: int) -> str:
    """Name of a segment's object without its directory; formats 2 and 3 add its last offset and its bytes."""
    if name_format == 1:
        return f"{base_offset}-{term}-v1.log"
    return f"{base_offset}-{committed_offset}-{size}-{term}-v1.log"


class _Damage(Exception):
    """What is wrong, and at which byte of the manifest."""

    def __init__(self, message: str, position: int) -> None:
        super().__init__(message)
        self.position = position


class _EnvelopeReader:
    """Bytes from a position on, up to the end of the innermost envelope."""

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.at = 0
        self.stop = len(data)

    def take(self, size: int) -> memoryview:
        if not 0 <= size <= self.stop - self.at:
            raise _Damage(f"{size} bytes wanted, {self.stop - self.at} left", self.at)
        self.at += size
        return self.data[self.at - size : self.at]

    def integer(self, size: int, *, signed: bool = False) -> int:
        return int.from_bytes(self.take(size), "little", signed=signed)

    def int64(self) -> int:
        return self.integer(8, signed=True)

    def text(self) -> str:
        raw = self.take(self.integer(4))
        try:
            return bytes(raw).decode()
        except UnicodeDecodeError:
            raise _Damage("a text is not UTF-8", self.at - len(raw)) from None

    def enter(self) -> tuple[int, int]:
        """Step into an envelope; gives its version, and what ``leave`` wants."""
        begin = self.at
        version, compatible = self.integer(1), self.integer(1)
        size = self.integer(4)
        if compatible > version or size > self.stop - self.at:
            raise _Damage(
                f"an envelope says version {version}, readable from {compatible} on, {size} bytes; "
                f"{self.stop - self.at} are left",
                begin,
            )
        outer, self.stop = self.stop, self.at + size
        return version, outer

    def leave(self, outer: int) -> None:
        """Pass over the rest of the envelope."""
        self.at, self.stop = self.stop, outer

    @property
    def has_more(self) -> bool:
        return self.at < self.stop


def parse_binary_manifest(data: bytes, *, source: str | None = None) -> PartitionManifest:
    """Read a ``manifest.bin``, or a spill-over manifest, of any version from 2 on.

    Raises:
        ManifestError: the bytes contradict themselves.
    """
    reader = _EnvelopeReader(memoryview(data))
    try:
        return _manifest(reader)
    except _Damage as damage:
        raise ManifestError(
            "a manifest cannot be decoded", source=source, position=damage.position, found=str(damage)
        ) from None
    except ValueError as error:
        raise ManifestError("a manifest contradicts itself", source=source, found=str(error)[:400]) from error


def _manifest(reader: _EnvelopeReader) -> PartitionManifest:
    version, outer = reader.enter()
    namespace, topic, partition = reader.text(), reader.text(), reader.integer(4, signed=True)
    revision = reader.int64()
    segments = _segment_table(reader)
    replaced = tuple(_replaced(reader) for _ in range(_count(reader, 6)))
    reader.int64()  # last_offset
    start_offset = _known(reader.int64())
    reader.take(24)  # last_uploaded_compacted_offset, insync_offset, cloud_log_size_bytes
    archive_start_offset = _known(reader.int64())
    reader.take(16)  # archive_start_offset_delta, archive_clean_offset
    start_kafka_offset = _known(reader.int64())
    spillover: tuple[SegmentMeta, ...] = ()
    if reader.has_more:
        reader.int64()  # archive_size_bytes
    if reader.has_more:
        spillover = _segment_table(reader)
    reader.leave(outer)
    if reader.has_more:
        raise _Damage(f"{shown_count(reader.stop - reader.at, 'byte follows', 'bytes follow')} the manifest", reader.at)
    return PartitionManifest(
        version=version,
        namespace=namespace,
        topic=topic,
        partition=partition,
        revision=revision,
        segments=segments,
        spillover=spillover,
        replaced=replaced,
        start_offset=start_offset,
        archive_start_offset=archive_start_offset,
        start_kafka_offset=start_kafka_offset,
    )


def _replaced(reader: _EnvelopeReader) -> str:
    _, outer = reader.enter()
    reader.int64()  # ntp_revision
    base_offset = reader.int64()
    reader.take(16)  # committed_offset, archiver_term
    term = reader.int64()
    reader.leave(outer)
    return f"{base_offset}-{term}-v1.log"


def _segment_table(reader: _EnvelopeReader) -> tuple[SegmentMeta, ...]:
    size = reader.integer(4)
    if not size:
        return ()
    outer, reader.stop = reader.stop, reader.at + min(size, reader.stop - reader.at)
    if reader.stop - reader.at < size:
        raise _Damage(f"a table of {size} bytes, {reader.stop - reader.at} left", reader.at)
    begin = reader.at
    _, within_table = reader.enter()
    columns: list[list[int]] = []
    if reader.has_more:
        _, within_store = reader.enter()
        columns = [_column(reader, name == "base_offset") for name in _COLUMNS]
        reader.leave(within_store)
    reader.leave(within_table)
    reader.leave(outer)
    if len({len(column) for column in columns}) > 1:
        raise _Damage(f"columns of different lengths: {[len(column) for column in columns]}", begin)
    rows = zip(*columns, strict=True)
    segments = tuple(
        SegmentMeta(
            base_offset=base,
            committed_offset=committed,
            size_bytes=size,
            is_compacted=compacted != 0,
            base_timestamp=first_ms,
            max_timestamp=last_ms,
            delta_offset=_known(delta),
            delta_offset_end=_known(delta_end),
            archiver_term=_known(archiver),
            segment_term=term,
            name_format=form,
            metadata_size_hint=hint,
        )
        for compacted, size, base, committed, first_ms, last_ms, delta, _, archiver, term, delta_end, form, hint in rows
    )
    for segment in segments:
        segment.check()
    return segments


def _column(reader: _EnvelopeReader, is_rising: bool) -> list[int]:
    """All values of one column: of rising ones the differences are stored, of others the bits that changed."""
    values: list[int] = []
    _, outer = reader.enter()
    for _ in range(_count(reader, 6)):
        begin = reader.at
        _, within_frame = reader.enter()
        if reader.integer(4) != _ROW:
            raise _Damage(f"a row of another length than {_ROW}", begin)
        newest = struct.unpack("<16q", reader.take(_ROW * 8))
        packed = _packed(reader, is_rising, len(values)) if reader.integer(1) else []
        size = reader.integer(8)
        if size // _ROW * _ROW != len(packed):
            raise _Damage(f"a frame of {size} values holds {len(packed)} in whole rows", begin)
        values += packed
        values += newest[: size % _ROW]
        reader.leave(within_frame)
    reader.leave(outer)
    return values


def _packed(reader: _EnvelopeReader, is_rising: bool, before: int) -> list[int]:
    _, outer = reader.enter()
    last = reader.int64() & _UNSIGNED
    reader.int64()  # the last value, which decoding gives as well
    data = reader.take(reader.integer(4))
    rows, at = reader.integer(4), reader.at
    reader.leave(outer)
    if rows > len(data) or before + rows * _ROW > _MAX_SEGMENTS:
        raise _Damage(f"{rows} rows in {len(data)} bytes", at)
    combine: Callable[[int, int], int] = int.__add__ if is_rising else int.__xor__
    values: list[int] = []
    position = 0
    for _ in range(rows):
        row, position = _row(data, position, at)
        for difference in row:
            last = combine(last, difference) & _UNSIGNED
            values.append(last - (1 << 64) if last & _SIGN else last)
    return values


def _row(data: memoryview, position: int, at: int) -> tuple[list[int], int]:
    """The 16 differences packed at ``position``, and where the next row begins.

    A byte holds the bits of each. Of these the lowest 64, 32, 16 and 8 are stored as whole words where they fit, each
    size for all 16 values, then what is left of each, one after another.
    """
    bits = data[position] if position < len(data) else 0
    position += 1
    if bits > 64 or position + 2 * bits > len(data):
        raise _Damage(f"a row of {bits} bits a value in {len(data)} bytes", at)
    values, done = [0] * _ROW, 0
    for width, words in _WORDS:
        if bits - done >= width:
            size = 2 * width
            part = data[position : position + size] if words is None else words.unpack_from(data, position)
            values = [value | word << done for value, word in zip(values, part, strict=True)]
            position, done = position + size, done + width
    if rest := bits - done:
        left = int.from_bytes(data[position : position + 2 * rest], "little")
        mask = (1 << rest) - 1
        values = [value | (left >> rest * index & mask) << done for index, value in enumerate(values)]
        position += 2 * rest
    return values, position


def _count(reader: _EnvelopeReader, least: int) -> int:
    """How many things follow, each of at least ``least`` bytes."""
    at, count = reader.at, reader.integer(4)
    if count * least > reader.stop - reader.at:
        raise _Damage(f"{count} entries in {reader.stop - reader.at} bytes", at)
    return count


def _known(value: int) -> int | None:
    return None if value == UNSET else value
