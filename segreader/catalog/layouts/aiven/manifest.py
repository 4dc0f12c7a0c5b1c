"""What the plugin records of a segment: the names of its objects, custom metadata in the broker, and a manifest.

``<key.prefix><topic>-<topicId>/<partition>/<20 digits>-<segmentId>.<suffix>``: taken apart from the right, for topics
may hold ``-`` and ``.``, and ids ``-``. The manifest is JSON and is written last: a segment with one was uploaded
whole. It maps the log's chunks: the plain file is cut every ``original_chunk_size`` bytes, not at batches, each chunk
is stored by itself, and the stored chunks follow each other with nothing between. Any bytes give a value or a
ManifestError.

Source: ``ObjectKeyFactory``, ``SegmentCustomMetadataSerde``, ``SegmentManifestV1``, ``SegmentIndexesV1``,
``FixedSizeChunkIndex``, ``VariableSizeChunkIndex``, ``ChunkSizesBinaryCodec`` of the plugin (1.1), all in
``docs/reference/layouts/aiven.md``.
"""

from __future__ import annotations

import base64
import json
import re
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from enum import Enum
from itertools import accumulate
from struct import Struct
from typing import Any, Final, NamedTuple

import zstandard

from segreader.errors import ManifestError, shown_count
from segreader.format.checkpoints import LeaderEpoch, LeaderEpochs
from segreader.ranges import ByteRange
from segreader.segment import TopicIdPartition
from segreader.storage.base import ObjectStore, read_whole
from segreader.values import dataclass

SEAL_SIZE = 28
"""Bytes that encryption adds: 12 of the initialisation vector in front, 16 of the tag behind."""

_MAX_MANIFEST_SIZE = 16 << 20
_MAX_INT = (1 << 31) - 1
_MAX_LONG = (1 << 63) - 1
_MAX_EPOCHS = 1 << 20
LOG: Final = "log"
INDEXES: Final = "indexes"
MANIFEST: Final = "rsm-manifest"

_ID = r"[A-Za-z0-9_-]{22}"
_DIRECTORY = re.compile(
    rf"[^/]*?(?P<topic>[A-Za-z0-9._-]+)-(?P<topic_id>{_ID})/(?P<partition>0|[1-9][0-9]{{0,9}})/", re.DOTALL
)
PARTITION_PATH: Final = re.compile(rf".*[A-Za-z0-9._-]-{_ID}/(?:0|[1-9][0-9]{{0,9}})/", re.DOTALL)
"""Every path that ``parse_directory`` knows."""

STEM: Final = rf"[0-9]{{20}}-{_ID}"
_FILE = re.compile(rf"(?P<stem>(?P<base>[0-9]{{20}})-(?P<segment_id>{_ID}))\.(?P<suffix>[a-z_-]+)")
_MAX_LIST_SIZE = 10 << 20
_INT = Struct(">i")
_BASE_AND_WIDTH = Struct(">ib")


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
        manifest = parse_manifest(read_whole(store, name, size))
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


class ObjectName(NamedTuple):
    """An object's name, taken apart: ``stem`` is all of it before the dot."""

    stem: str
    base_offset: int
    segment_id: str
    suffix: str


def parse_directory(path: str, key_prefix: str = "") -> TopicIdPartition | None:
    """The partition that a directory is for, by its path alone; ``None`` if it is for none.

    Args:
        path: from the store's root on, with ``/`` at its end.
        key_prefix: the plugin's ``key.prefix``, where it is known. What follows its last ``/`` comes before the topic
            without anything between them.
    """
    element = "/".join(path.rsplit("/", 3)[-3:])
    glued = key_prefix.rpartition("/")[2]
    match = glued and element.startswith(glued) and _DIRECTORY.fullmatch(element.removeprefix(glued))
    match = match or _DIRECTORY.fullmatch(element)
    if not match or (partition := int(match["partition"])) > _MAX_INT:
        return None
    return TopicIdPartition(match["topic"], partition, match["topic_id"])


def parse_name(name: str) -> ObjectName | None:
    """The parts of an object's name; ``None`` if no segment's objects are named so."""
    directory, slash, file = name.rpartition("/")
    if not directory[-1:].isdigit():  # files of other layouts have similar names: this excludes most of them at once
        return None
    match = _FILE.fullmatch(file)
    if match is None or (base := int(match["base"])) > _MAX_LONG or parse_directory(directory + slash) is None:
        return None
    return ObjectName(f"{directory}/{match['stem']}", base, match["segment_id"], match["suffix"])


def main_path(partition: TopicIdPartition, base_offset: int, segment_id: str) -> str:
    """What the names of a segment's objects have between the prefix and the dot."""
    return f"{partition.topic}-{partition.topic_id}/{partition.partition}/{base_offset:020d}-{segment_id}"


@dataclass(frozen=True, slots=True)
class CustomMetadata:
    """What the broker's metadata keeps for the plugin; ``None`` where the broker is not configured to keep it.

    ``remote_size`` is the sum of the segment's three objects. ``object_prefix`` and ``object_key`` replace
    the configured prefix and of ``main_path`` in the names of the log and the indexes.
    """

    remote_size: int | None = None
    object_prefix: str | None = None
    object_key: str | None = None


def parse_custom_metadata(data: bytes | memoryview) -> CustomMetadata:
    """Decode the custom metadata of a remote segment. No bytes are no fields; unknown fields are ignored.

    Raises:
        ManifestError: the bytes are no section of tagged fields, or a field has not the form of its kind.
    """
    if not len(data):
        return CustomMetadata()
    view = memoryview(data)
    count, position = _unsigned(view, 0, 5)
    fields: dict[int, memoryview] = {}
    previous = -1
    for _ in range(count):
        tag, position = _unsigned(view, position, 5)
        size, position = _unsigned(view, position, 5)
        if tag <= previous or size > len(view) - position:
            raise _malformed(position)
        fields[tag] = view[position : position + size]
        previous, position = tag, position + size
    if position != len(view):
        raise _malformed(position)
    return CustomMetadata(
        _tagged_size(fields[0]) if 0 in fields else None,
        _tagged_text(fields[1]) if 1 in fields else None,
        _tagged_text(fields[2]) if 2 in fields else None,
    )


def _tagged_size(field: memoryview) -> int:
    value, position = _unsigned(field, 0, 10)
    if position != len(field) or value & 1 or value >> 1 > _MAX_LONG:  # zig-zag: an odd one is negative
        raise _malformed(0)
    return value >> 1


def _tagged_text(field: memoryview) -> str:
    length, position = _unsigned(field, 0, 5)
    if position + length - 1 != len(field):
        raise _malformed(position)
    try:
        return str(field[position:], "utf-8")
    except UnicodeDecodeError:
        raise _malformed(position) from None


def _unsigned(data: memoryview, position: int, longest: int) -> tuple[int, int]:
    """A variable-length number, and where it ends."""
    value = 0
    for index, byte in enumerate(data[position : position + longest]):
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value, position + index + 1
    raise _malformed(position)


def _malformed(position: int) -> ManifestError:
    return ManifestError("custom metadata is malformed", position=position, expected="a section of tagged fields")


@dataclass(frozen=True, slots=True)
class ChunkIndex:
    """Of one log: how long its chunks are, and where each begins in the stored object.

    Args:
        original_chunk_size: bytes of each chunk of the plain file but the last.
        original_file_size: bytes of the plain file.
        starts: first byte of each stored chunk, from 0 on.
        stored_size: bytes of the stored object.
    """

    original_chunk_size: int
    original_file_size: int
    starts: Sequence[int] = field(repr=False)
    stored_size: int

    def __len__(self) -> int:
        return len(self.starts)

    def original_range(self, chunk: int) -> ByteRange:
        """The bytes of the plain file that a chunk holds."""
        start = chunk * self.original_chunk_size
        return ByteRange(start, min(start + self.original_chunk_size, self.original_file_size))

    def stored_range(self, chunks: range) -> ByteRange:
        """The bytes of the stored object that consecutive chunks take."""
        return ByteRange(self.starts[chunks.start], self._stop(chunks.stop - 1))

    def chunks_of(self, wanted: ByteRange) -> range:
        """The chunks that hold a range of the plain file."""
        return range(wanted.start // self.original_chunk_size, (wanted.stop - 1) // self.original_chunk_size + 1)

    def stored_sizes(self, chunks: range) -> Iterable[int]:
        """Bytes of each of these chunks as it is stored."""
        return (self._stop(chunk) - self.starts[chunk] for chunk in chunks)

    def _stop(self, chunk: int) -> int:
        return self.starts[chunk + 1] if chunk + 1 < len(self.starts) else self.stored_size


def fixed_chunks(chunk_size: int, file_size: int, stored_chunk_size: int, last_stored_size: int) -> ChunkIndex:
    """The index of chunks that are all stored in the same size but the last.

    Raises:
        ManifestError: a chunk that holds something has no stored bytes, or an empty file has some.
    """
    count = -(-file_size // chunk_size)
    if (last_stored_size > 0) != (count > 0) or (count > 1 and not stored_chunk_size):
        raise ManifestError(
            "the sizes of the stored chunks contradict the size of the file",
            found=f"stored chunks of {stored_chunk_size} bytes, the last of {last_stored_size}",
            expected=shown_count(count, "chunk that is not empty", "chunks that are not empty"),
        )
    starts = range(0, count * max(1, stored_chunk_size), max(1, stored_chunk_size))
    return ChunkIndex(chunk_size, file_size, starts, max(0, count - 1) * stored_chunk_size + last_stored_size)


def variable_chunks(chunk_size: int, file_size: int, sizes: Sequence[int]) -> ChunkIndex:
    """The index of chunks whose stored sizes are listed.

    Raises:
        ManifestError: there are not as many sizes as chunks, or one is 0.
    """
    if len(sizes) != (count := -(-file_size // chunk_size)):
        raise ManifestError(
            "the list of chunks contradicts the size of the file",
            found=shown_count(len(sizes), "chunk"),
            expected=f"{count} of {chunk_size} bytes for {file_size} bytes",
        )
    if 0 in sizes:
        raise ManifestError("a stored chunk has no bytes", found=f"0 bytes for chunk {sizes.index(0)}")
    starts = array("q", accumulate(sizes, initial=0))
    stored_size = starts.pop()
    return ChunkIndex(chunk_size, file_size, starts, stored_size)


def decode_chunk_sizes(text: str) -> array[int]:
    """The stored sizes of a ``transformedChunks``: base64 of one zstd frame around the list.

    Raises:
        ManifestError: it is something else, or longer than the plugin would take (10 MiB).
    """
    try:
        frame = base64.b64decode(text, validate=True)
        declared = zstandard.get_frame_parameters(frame).content_size
        if declared > _MAX_LIST_SIZE:  # also where the frame has no size
            raise ManifestError("the list of chunks is too long", expected=f"at most {_MAX_LIST_SIZE} bytes, declared")
        data = zstandard.ZstdDecompressor().decompress(frame, allow_extra_data=False) if declared else b""
    except (ValueError, zstandard.ZstdError):
        raise ManifestError("the list of chunks is not base64 of a zstd frame") from None
    return parse_chunk_sizes(data)


def parse_chunk_sizes(data: bytes) -> array[int]:
    """The sizes in the list: all but the last are differences to the smallest of them, in one to four bytes.

    Raises:
        ManifestError: the list is cut, too long, or holds a negative size.
    """
    count = _INT.unpack_from(data)[0] if len(data) >= _INT.size else -1
    position = _INT.size
    sizes = array("q")
    if count > 1:
        if len(data) < position + _BASE_AND_WIDTH.size:
            raise _malformed_list(data)
        base, width = _BASE_AND_WIDTH.unpack_from(data, position)
        position += _BASE_AND_WIDTH.size
        stop = position + (count - 1) * width
        if base < 0 or not 1 <= width <= 4 or stop + _INT.size != len(data):
            raise _malformed_list(data)
        sizes.extend(base + int.from_bytes(data[at : at + width]) for at in range(position, stop, width))
        position = stop
    if count > 0 and len(data) == position + _INT.size:
        sizes.append(_INT.unpack_from(data, position)[0])
        position = len(data)
    if count != len(sizes) or position != len(data) or (sizes and not 0 <= min(sizes) <= max(sizes) <= _MAX_INT):
        raise _malformed_list(data)
    return sizes


def _malformed_list(data: bytes) -> ManifestError:
    return ManifestError(
        "the list of chunks is malformed", found=f"{len(data)} bytes", expected="count, base and sizes"
    )
