"""The manifest of a segment: JSON that describes how log and indexes are stored. Any bytes give one or a ManifestError.

It is written last, so that a segment with a manifest is a segment whose upload has finished. Source:
``SegmentManifestV1``, ``SegmentIndexesV1`` and their serialisers of the plugin (1.1).
``docs/reference/layouts/aiven.md`` describes both.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from segreader.catalog.layouts.aiven.chunks import ChunkIndex, decode_chunk_sizes, fixed_chunks, variable_chunks
from segreader.catalog.layouts.aiven.keys import MANIFEST, main_path
from segreader.errors import ManifestError
from segreader.format.checkpoints import LeaderEpoch, LeaderEpochs
from segreader.ranges import ByteRange
from segreader.segment import TopicIdPartition
from segreader.storage.base import ObjectStore

SEAL_SIZE = 28
"""Bytes that encryption adds: 12 of the initialisation vector in front, 16 of the tag behind."""

_MAX_MANIFEST_SIZE = 16 << 20
_MAX_INT = (1 << 31) - 1
_MAX_LONG = (1 << 63) - 1
_MAX_EPOCHS = 1 << 20


class IndexKind(Enum):
    """The parts of the ``.indexes`` object, by their names in the manifest, in the order of their bytes."""

    OFFSET = "offset"
    TIMESTAMP = "timestamp"
    PRODUCER_SNAPSHOT = "producerSnapshot"
    LEADER_EPOCH = "leaderEpoch"
    TRANSACTION = "transaction"


@dataclass(frozen=True, slots=True)
class IndexPart:
    """Bytes of the stored ``.indexes`` object; a size of 0 is an index that is empty."""

    position: int
    size: int


@dataclass(frozen=True, slots=True)
class EncryptionMetadata:
    """Which key pair wrapped the data key, and what the tags cover besides the data. Nothing of it is shown."""

    key_id: str
    wrapped_key: bytes = field(repr=False)
    aad: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class SegmentMetadata:
    """The broker's words about the segment when the manifest was written. ``last_offset`` is inclusive."""

    partition: TopicIdPartition
    segment_id: str
    base_offset: int
    last_offset: int
    max_timestamp_ms: int
    event_timestamp_ms: int
    epochs: LeaderEpochs


@dataclass(frozen=True, slots=True)
class SegmentManifest:
    """How a segment is stored.

    ``parts`` is ``None`` in the layout before October 2023: its indexes are objects of their own. A kind that it lacks
    was never written. ``segment`` is ``None`` in manifests before September 2023.
    """

    chunks: ChunkIndex
    parts: Mapping[IndexKind, IndexPart] | None
    is_compressed: bool
    encryption: EncryptionMetadata | None
    segment: SegmentMetadata | None


def read_manifest(store: ObjectStore, stem: str, size: int = -1) -> SegmentManifest:
    """Read and check the manifest of the segment whose objects begin with ``stem``.

    Args:
        size: of the manifest as it was listed; -1 asks the store.

    Raises:
        ManifestError: it contradicts itself or its own name.
        StorageError: as the store raises.
    """
    name = f"{stem}.{MANIFEST}"
    size = store.size(name) if size < 0 else size
    try:
        if not 0 < size <= _MAX_MANIFEST_SIZE:
            raise ManifestError("not the size of a manifest", found=f"{size} bytes")
        manifest = parse_manifest(store.read_ranges(name, [ByteRange(0, size)])[0])
        if (known := manifest.segment) is not None:
            known_path = main_path(known.partition, known.base_offset, known.segment_id)
            if not stem.endswith(known_path):
                raise ManifestError(
                    "the manifest is about another segment than its name",
                    found=_shown(known_path),
                    hint="The object was renamed or overwritten; read a location that has it under its own name",
                )
    except ManifestError as error:
        error.located(source=store.url(name))
        raise
    return manifest


def parse_manifest(data: bytes | memoryview) -> SegmentManifest:
    """Decode a manifest. Unknown fields are ignored.

    Raises:
        ManifestError: it is no JSON object, has another version, or its numbers do not add up.
    """
    try:
        root = json.loads(str(data, "utf-8"))
    except UnicodeDecodeError as error:
        raise ManifestError("the manifest is not UTF-8 text", position=error.start) from None
    except json.JSONDecodeError as error:
        raise ManifestError("the manifest is not JSON, or is truncated", position=error.pos, found=error.msg) from None
    except (ValueError, RecursionError):
        raise ManifestError("the manifest is nested too deeply, or has a number of too many digits") from None
    if not isinstance(root, dict):
        raise ManifestError("the manifest is not a JSON object", found=_kind(root))
    if root.get("version") != "1":
        raise ManifestError(
            "the manifest has an unknown version", found=_shown(root.get("version")), expected="version '1'"
        )
    is_compressed = root.get("compression")
    if not isinstance(is_compressed, bool):
        raise _wrong("compression", is_compressed, "true or false")
    encryption = None if root.get("encryption") is None else _parse_encryption(_object(root, "encryption"))
    chunks = _parse_chunks(_object(root, "chunkIndex"))
    if not is_compressed:
        _check_sizes(chunks, SEAL_SIZE if encryption else 0)
    indexes, metadata = root.get("segmentIndexes"), root.get("remoteLogSegmentMetadata")
    return SegmentManifest(
        chunks,
        None if indexes is None else _parse_parts(_object(root, "segmentIndexes"), encryption is not None),
        is_compressed,
        encryption,
        None if metadata is None else _parse_segment(_object(root, "remoteLogSegmentMetadata")),
    )


def _parse_chunks(index: dict[str, Any]) -> ChunkIndex:
    chunk_size, file_size = _int(index, "originalChunkSize", 1), _int(index, "originalFileSize")
    match index.get("type"):
        case "fixed":
            sizes = (_int(index, "transformedChunkSize"), _int(index, "finalTransformedChunkSize"))
            return fixed_chunks(chunk_size, file_size, *sizes)
        case "variable":
            return variable_chunks(chunk_size, file_size, decode_chunk_sizes(_text(index, "transformedChunks")))
        case other:
            raise ManifestError(
                "the chunk index is of an unknown type", found=_shown(other), expected="'fixed' or 'variable'"
            )


def _check_sizes(chunks: ChunkIndex, added: int) -> None:
    """What is not compressed has a size that is known beforehand. A fixed index is not looked at chunk by chunk."""
    expected = chunks.original_file_size + added * len(chunks)
    step = chunks.original_chunk_size + added
    is_regular = (
        chunks.starts.step == step or len(chunks) < 2
        if isinstance(chunks.starts, range)
        else all(start == at * step for at, start in enumerate(chunks.starts))
    )
    if chunks.stored_size != expected or not is_regular:
        raise ManifestError(
            "the chunks are not compressed, and their sizes are not those of the file",
            found=f"{chunks.stored_size} stored bytes",
            expected=f"{expected}, {step} for each whole chunk",
        )


def _parse_parts(indexes: dict[str, Any], is_encrypted: bool) -> dict[IndexKind, IndexPart]:
    parts = {}
    for kind in IndexKind:
        if kind is IndexKind.TRANSACTION and indexes.get(kind.value) is None:
            continue
        value = _object(indexes, kind.value)
        part = parts[kind] = IndexPart(_int(value, "position"), _int(value, "size"))
        if is_encrypted and 0 < part.size < SEAL_SIZE:
            raise _wrong(f"the size of the {kind.value} index", part.size, f"0, or at least {SEAL_SIZE} bytes")
    return parts


def _parse_encryption(metadata: dict[str, Any]) -> EncryptionMetadata:
    key_id, colon, wrapped = _text(metadata, "dataKey").partition(":")
    if not colon or not key_id or ":" in wrapped:
        raise ManifestError("dataKey has not the form keyId:base64")
    return EncryptionMetadata(key_id, _base64("dataKey", wrapped), _base64("aad", _text(metadata, "aad")))


def _parse_segment(metadata: dict[str, Any]) -> SegmentMetadata:
    segment_id = _object(metadata, "remoteLogSegmentId")
    id_partition = _object(segment_id, "topicIdPartition")
    partition = _object(id_partition, "topicPartition")
    first, last = _int(metadata, "startOffset", most=_MAX_LONG), _int(metadata, "endOffset", most=_MAX_LONG)
    if last < first:
        raise ManifestError("the segment ends before it begins", found=f"offsets {first} to {last}")
    return SegmentMetadata(
        TopicIdPartition(_text(partition, "topic"), _int(partition, "partition"), _text(id_partition, "topicId")),
        _text(segment_id, "id"),
        first,
        last,
        _int(metadata, "maxTimestampMs", -_MAX_LONG, _MAX_LONG),
        _int(metadata, "eventTimestampMs", -_MAX_LONG, _MAX_LONG),
        _parse_epochs(_object(metadata, "segmentLeaderEpochs"), first, last),
    )


def _parse_epochs(listed: dict[str, Any], first: int, last: int) -> LeaderEpochs:
    entries = []
    for epoch in listed:
        if len(listed) > _MAX_EPOCHS or not (epoch.isascii() and epoch.isdecimal() and len(epoch) <= 10):
            raise ManifestError("segmentLeaderEpochs is malformed", found=_shown(epoch), expected="numbers of epochs")
        entries.append(LeaderEpoch(int(epoch), _int(listed, epoch, most=_MAX_LONG)))
    entries.sort()
    if entries and entries[0].start_offset < first:
        entries[0] = LeaderEpoch(entries[0].epoch, first)
    try:
        epochs = LeaderEpochs(tuple(entries))
    except ValueError as error:
        raise ManifestError(f"segmentLeaderEpochs is {error}") from None
    if not entries or entries[-1].start_offset > last:
        raise ManifestError(
            "segmentLeaderEpochs does not cover the segment",
            found=", ".join(f"epoch {entry.epoch} from {entry.start_offset}" for entry in entries[:4]) or "no epochs",
            expected=f"offsets {first} to {last}",
        )
    return epochs


def _object(parent: dict[str, Any], name: str) -> dict[str, Any]:
    if not isinstance(value := parent.get(name), dict):
        raise _wrong(name, value, "an object")
    return value


def _text(parent: dict[str, Any], name: str) -> str:
    if not isinstance(value := parent.get(name), str):
        raise _wrong(name, value, "a text")
    return value


def _int(parent: dict[str, Any], name: str, least: int = 0, most: int = _MAX_INT) -> int:
    value = parent.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise _wrong(name, value, f"a whole number from {least} to {most}")
    return value


def _base64(name: str, text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise ManifestError(f"{name} is not base64") from None


def _wrong(name: str, value: object, expected: str) -> ManifestError:
    return ManifestError(
        f"{name} is malformed", found=_kind(value) if isinstance(value, str) else _shown(value), expected=expected
    )


def _kind(value: object) -> str:
    if value is None:
        return "nothing"
    return {dict: "an object", list: "an array", str: "a text", bool: "a truth value"}.get(value.__class__, "a number")


def _shown(value: object) -> str:
    """A value in a message: short, and without what a terminal would obey."""
    if isinstance(value, str):
        return repr(value[:120])
    is_short = isinstance(value, int) and value.bit_length() <= 64
    return repr(value) if is_short else _kind(value)
