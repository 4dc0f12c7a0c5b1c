"""A partition's manifest: which segments Redpanda has uploaded, in its own offsets; and its JSON form (before 23.2).

Source: Redpanda 24.3 ``partition_manifest``, ``segment_meta``. The binary form: ``binary_manifest``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from segreader.catalog.layouts.redpanda.keys import segment_name
from segreader.errors import ManifestError

MAX_INT64: Final = (1 << 63) - 1
UNSET: Final = -1 << 63
"""What Redpanda writes for an offset, a delta or a term that is not known."""

_SEGMENT: Final = re.compile(r"(\d{1,19})-(\d{1,19})-v1\.log", re.ASCII)
_NAME_FORMATS: Final = (1, 2, 3)


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
