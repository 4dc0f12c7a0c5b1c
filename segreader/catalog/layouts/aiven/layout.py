"""The layout of Aiven's plugin: found by its names, known from its manifests, read as plain Kafka files.

Of a log only the chunks that a range needs are fetched and decoded. The names in the view are the stored ones for the
log, and made up for the parts of the ``.indexes`` object: ``<stem>.index``, ``.timeindex``, ``.txnindex``,
``.snapshot``, ``.leader_epoch_checkpoint``. A name alone shows that it is one of these.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import field
from threading import Lock
from typing import TYPE_CHECKING, NoReturn

import zstandard

from segreader.catalog.layouts.aiven.manifest import (
    INDEXES,
    LOG,
    MANIFEST,
    PARTITION_PATH,
    SEAL_SIZE,
    STEM,
    IndexKind,
    IndexPart,
    SegmentManifest,
    parse_directory,
    parse_name,
    read_manifest,
)
from segreader.catalog.layouts.aiven.settings import RsmConfig
from segreader.catalog.layouts.base import (
    Directory,
    IncompleteSegment,
    Layout,
    Names,
    PartitionFiles,
    PartitionPlace,
    ReadFiles,
)
from segreader.errors import ManifestError, ObjectChangedError, ObjectNotFoundError, SegreaderError, ShortReadError
from segreader.ranges import ByteRange
from segreader.segment import Segment, SegmentFiles, StemFiles, TopicIdPartition
from segreader.storage.base import ObjectStore, StoreView, VirtualFile, read_each, read_listed
from segreader.values import dataclass

if TYPE_CHECKING:
    from segreader.catalog.layouts.aiven.encryption import KeyRing, SegmentCipher

INDEX_KINDS = {
    "index": IndexKind.OFFSET,
    "timeindex": IndexKind.TIMESTAMP,
    "snapshot": IndexKind.PRODUCER_SNAPSHOT,
    "leader_epoch_checkpoint": IndexKind.LEADER_EPOCH,
    "leader-epoch-checkpoint": IndexKind.LEADER_EPOCH,  # as an object of its own, before October 2023
    "txnindex": IndexKind.TRANSACTION,
}

_ROUND = 1024
_TELLING = frozenset((LOG, INDEXES, MANIFEST))
_WRITTEN = frozenset((LOG, INDEXES, MANIFEST, *INDEX_KINDS)) - {"leader_epoch_checkpoint"}
# What is looked ahead for refuses the names of other layouts in a tenth of the time.
PLAIN_FILE = re.compile(
    rf"(?=.*/[0-9]{{1,10}}/[^/]*\Z){PARTITION_PATH.pattern}{STEM}\.(?:{'|'.join((LOG, *INDEX_KINDS))})", re.DOTALL
)
_KEPT_CHUNKS = 1 << 20
_KEPT_BYTES = 16 << 20
_ChunkKey = tuple[str, str | None, int]  # a log's name, its tag as it was listed, and the number of the chunk
_MOST_BYTES_OF_FOUR = 128 << 10  # zstd's densest block: RFC 8878, section 3.1.1.2


@dataclass(frozen=True, slots=True)
class AivenLayout(Layout):
    """What Aiven's plugin writes, in all its forms but the Iceberg mode.

    Args:
        config: the plugin's settings: the keys to encrypted segments, and the prefix of its names. Without it
            encrypted segments are found and cannot be read.
    """

    config: RsmConfig | None = None

    name = "aiven"
    names = Names(PARTITION_PATH, re.compile(rf"{STEM}\.(?:{LOG}|{INDEXES}|{MANIFEST})"))
    plain_files = PLAIN_FILE

    def partition(self, match: re.Match[str]) -> TopicIdPartition | None:
        """The partition, without the key prefix where that is known and glued to the topic."""
        return parse_directory(match.string, self.config.key_prefix if self.config else "")

    def claim(self, directory: Directory, store: ObjectStore | None) -> Sequence[PartitionPlace]:
        """The partition of this directory, if one of the plugin's objects in it has an offset that can be."""
        names = (parse_name(info.name) for info in directory.files)
        is_ours = any(name is not None and name.suffix in _TELLING for name in names)
        return Layout.claim(self, directory, store) if is_ours else ()

    def find(self, store: ObjectStore, place: PartitionPlace) -> PartitionFiles:
        """List a partition and read the manifests of its segments, several at once.

        Where the key prefix has no ``/`` at its end and is not configured, the path gives a topic with the prefix
        before it; the segments get the name in the manifests.

        Raises:
            ManifestError: a manifest contradicts itself, its name, or the sizes of the segment's objects.
            StorageError: as the store raises.
        """
        sets, foreign = _list_sets(store, place)
        return _read_sets(store, place, sets.values(), foreign)

    def find_by_name(self, store: ObjectStore, place: PartitionPlace) -> tuple[PartitionFiles, ReadFiles | None]:
        """The segments without what their manifests say, if each has its three objects and the time of its upload."""
        sets, foreign = _list_sets(store, place)
        if any(one.sizes.keys() != _TELLING or one.sizes[LOG] <= 0 or one.written_ms is None for one in sets.values()):
            return _read_sets(store, place, sets.values(), foreign), None

        def read(names: Iterable[str]) -> PartitionFiles:
            return _read_sets(store, place, [sets[name.removesuffix(f".{LOG}")] for name in names], foreign)

        named = [
            Segment(
                partition=place.partition,
                base_offset=one.base_offset,
                log_size=one.sizes[LOG],
                files=StemFiles(one.stem),
                segment_id=one.segment_id,
                version=one.written_ms or 0,
                log_tag=one.log_tag,
            )
            for one in sets.values()
        ]
        return PartitionFiles(named, (), foreign), read

    def view(self, store: ObjectStore) -> AivenFiles:
        """The store with the plugin's segments as plain files."""
        from segreader.catalog.layouts.aiven.encryption import KeyRing

        return AivenFiles(store, KeyRing(self.config.key_files if self.config else None))


def _list_sets(store: ObjectStore, place: PartitionPlace) -> tuple[dict[str, _ObjectSet], list[str]]:
    """The objects of a partition by the stem of their names, and the names that are not the plugin's."""
    sets: dict[str, _ObjectSet] = {}
    foreign = []
    for info in (info for prefix in place.prefixes for info in store.list(prefix)):
        parsed = parse_name(info.name)
        if parsed is None or parsed.suffix not in _WRITTEN:
            foreign.append(info.name)
            continue
        if parsed.stem not in sets:
            sets[parsed.stem] = _ObjectSet(parsed.stem, parsed.base_offset, parsed.segment_id)
        sets[parsed.stem].sizes[parsed.suffix] = info.size
        if parsed.suffix == LOG:
            sets[parsed.stem].log_tag = info.tag
        elif parsed.suffix == MANIFEST:  # it is written last
            sets[parsed.stem].written_ms = info.modified_ms
    return sets, foreign


def _read_sets(
    store: ObjectStore, place: PartitionPlace, sets: Iterable[_ObjectSet], foreign: Sequence[str]
) -> PartitionFiles:
    """What the manifests of these sets say."""
    segments, incomplete = [], []
    for objects, manifest in _read_manifests(store, list(sets)):
        if manifest is None or objects.missing(manifest):
            incomplete.append(objects.incomplete(manifest))
        else:
            _check_sizes(store, objects, manifest)
            segments.append(_segment(place.partition, objects, manifest))
    named = {segment.partition.topic for segment in segments} - {place.partition.topic}
    notes = [
        f"the path has topic {place.partition.topic}, the manifests have {topic}: a key prefix precedes it"
        for topic in sorted(named)
    ]
    return PartitionFiles(segments, incomplete, foreign, notes)


@dataclass(slots=True)
class _ObjectSet:
    """The objects of one segment as they were listed: bytes of each, -1 where the listing has no size."""

    stem: str
    base_offset: int
    segment_id: str
    sizes: dict[str, int] = field(default_factory=dict)
    log_tag: str | None = None
    written_ms: int | None = None

    def missing(self, manifest: SegmentManifest | None) -> tuple[str, ...]:
        """The kinds of objects that a whole segment would have besides these."""
        has_indexes = manifest.parts is not None if manifest else not self.sizes.keys() & INDEX_KINDS.keys()
        needed = (LOG, INDEXES, MANIFEST) if has_indexes else (LOG, MANIFEST)
        return tuple(kind for kind in needed if kind not in self.sizes or (kind == MANIFEST and manifest is None))

    def incomplete(self, manifest: SegmentManifest | None) -> IncompleteSegment:
        name = f"{self.stem}.{next(iter(self.sizes))}"
        return IncompleteSegment(self.base_offset, name, self.missing(manifest), self.segment_id)


def _read_manifests(
    store: ObjectStore, sets: Sequence[_ObjectSet]
) -> Iterator[tuple[_ObjectSet, SegmentManifest | None]]:
    """Each set with its manifest, a round of them at a time: so not all manifests are held at once."""

    def read(objects: _ObjectSet) -> SegmentManifest | None:
        try:
            return read_manifest(store, objects.stem, objects.sizes[MANIFEST]) if MANIFEST in objects.sizes else None
        except ObjectNotFoundError:
            return None  # deleted since it was listed

    for start in range(0, len(sets), _ROUND):
        some = sets[start : start + _ROUND]
        yield from zip(some, read_each(read, some), strict=True)


def _check_sizes(store: ObjectStore, objects: _ObjectSet, manifest: SegmentManifest) -> None:
    log, expected = objects.sizes[LOG], manifest.chunks.stored_size
    if 0 <= log != expected:
        raise ManifestError(
            "the log has not the bytes that the manifest's chunks add up to",
            source=store.url(f"{objects.stem}.{LOG}"),
            found=f"{log} bytes",
            expected=f"{expected} bytes",
        )
    size = objects.sizes.get(INDEXES, -1)
    for kind, part in (manifest.parts or {}).items():
        if 0 <= size < part.position + part.size:
            raise ManifestError(
                f"the {kind.value} index is outside of its object",
                source=store.url(f"{objects.stem}.{INDEXES}"),
                position=part.position,
                found=f"an object of {size} bytes",
                expected=f"at least {part.position + part.size} bytes",
            )


def _segment(partition: TopicIdPartition, objects: _ObjectSet, manifest: SegmentManifest) -> Segment:
    known = manifest.segment
    return Segment(
        partition=known.partition if known else partition,
        base_offset=objects.base_offset,
        log_size=manifest.chunks.original_file_size,
        files=_files(objects, manifest.parts),
        segment_id=objects.segment_id,
        last_offset=known.last_offset if known else None,
        epochs=known.epochs if known else None,
        max_timestamp_ms=known.max_timestamp_ms if known else None,
        version=known.event_timestamp_ms if known else 0,
        chunk_size=manifest.chunks.original_chunk_size if manifest.is_compressed or manifest.encryption else None,
        log_tag=objects.log_tag,
    )


def _files(objects: _ObjectSet, parts: Mapping[IndexKind, IndexPart] | None) -> StemFiles | SegmentFiles:
    if parts is not None:
        return StemFiles(objects.stem, has_transaction_index=IndexKind.TRANSACTION in parts)

    def name(suffix: str) -> str | None:
        return f"{objects.stem}.{suffix}" if suffix in objects.sizes else None

    return SegmentFiles(
        log=f"{objects.stem}.{LOG}",
        offset_index=name("index"),
        time_index=name("timeindex"),
        transaction_index=name("txnindex"),
        producer_snapshot=name("snapshot"),
        leader_epochs=name("leader-epoch-checkpoint"),
    )


@dataclass(frozen=True, slots=True)
class _StoredSegment:
    """What is remembered of one segment: its manifest, and its cipher with the key once that is unwrapped."""

    stem: str
    manifest: SegmentManifest
    cipher: SegmentCipher | None


class _Remembered:
    """The most recently used segments, a bounded number of chunks; two threads that ask for one share one reading."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._segments: OrderedDict[str, Future[_StoredSegment]] = OrderedDict()
        self._chunks = 0

    def get(self, stem: str, read: Callable[[str], _StoredSegment]) -> _StoredSegment:
        with self._lock:
            known = self._segments.get(stem)
            if known is not None:
                self._segments.move_to_end(stem)
            else:
                future = self._segments[stem] = Future()
        if known is not None:
            return known.result()
        try:
            segment = read(stem)
        except BaseException as error:
            with self._lock:
                del self._segments[stem]
            future.set_exception(error)
            raise
        future.set_result(segment)
        with self._lock:
            self._chunks += _weight(segment)
            for other in list(self._segments):
                if self._chunks <= _KEPT_CHUNKS:
                    break
                if other != stem and self._segments[other].done():
                    self._chunks -= _weight(self._segments.pop(other).result())
        return segment


def _weight(segment: _StoredSegment) -> int:
    return 256 + len(segment.manifest.chunks)  # the manifest's other fields take about as much as so many chunks


class _PartlyRead:
    """The chunks of which only a part was used last: a search for an offset by time reads them again."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._chunks: OrderedDict[_ChunkKey, bytes | memoryview] = OrderedDict()
        self._size = 0

    def get(self, key: _ChunkKey) -> bytes | memoryview | None:
        with self._lock:
            return self._chunks.get(key)

    def put(self, key: _ChunkKey, data: bytes | memoryview) -> None:
        with self._lock:
            self._size += len(data) - len(self._chunks.pop(key, b""))
            self._chunks[key] = data
            while self._size > _KEPT_BYTES:
                self._size -= len(self._chunks.popitem(last=False)[1])


class AivenFiles(StoreView):
    """A store in which the plugin's segments are plain files.

    Args:
        store: holds the plugin's objects.
        ring: the keys to what is encrypted.
    """

    def __init__(self, store: ObjectStore, ring: KeyRing | None = None) -> None:
        from segreader.catalog.layouts.aiven.encryption import KeyRing

        super().__init__(store)
        self._ring = ring or KeyRing()
        self._remembered = _Remembered()
        self._partly_read = _PartlyRead()

    def open(self, name: str) -> VirtualFile | None:
        """The file of this name; ``None`` for other names, and for logs and indexes that are stored as they are.

        Raises:
            ManifestError: the segment's manifest is damaged.
            ObjectNotFoundError: the segment is not there, or never had an index of this kind.
            ObjectChangedError: its transaction index is asked for, and the segment has gone since it was listed.
        """
        parsed = parse_name(name)
        if parsed is None or (parsed.suffix != LOG and parsed.suffix not in INDEX_KINDS):
            return None
        if parsed.suffix == LOG:
            segment = self._remembered.get(parsed.stem, self._read)
            is_plain = not segment.manifest.is_compressed and segment.cipher is None
            return None if is_plain else _ChunkedLog(self.inner, name, segment, self._partly_read)
        kind = INDEX_KINDS[parsed.suffix]
        try:
            segment = self._remembered.get(parsed.stem, self._read)
        except ObjectNotFoundError as error:
            _raise_gone(error, kind)
        parts, cipher = segment.manifest.parts, segment.cipher
        if parts is None:
            return None if cipher is None else _SealedObject(self.inner, name, cipher)
        part = parts.get(kind)
        if part is None:
            raise ObjectNotFoundError("the segment has no such index", source=self.url(name))
        return _Index(self.inner, f"{parsed.stem}.{INDEXES}", kind, part, cipher)

    def _read(self, stem: str) -> _StoredSegment:
        from segreader.catalog.layouts.aiven.encryption import SegmentCipher

        manifest = read_manifest(self.inner, stem)
        encryption = manifest.encryption
        return _StoredSegment(stem, manifest, SegmentCipher(encryption, self._ring) if encryption else None)


class _ChunkedLog:
    """A log of which chunks are compressed, encrypted, or both."""

    def __init__(self, store: ObjectStore, name: str, segment: _StoredSegment, partly_read: _PartlyRead) -> None:
        self._store, self._name, self._partly_read = store, name, partly_read
        self._cipher, self._is_compressed = segment.cipher, segment.manifest.is_compressed
        self._chunks = segment.manifest.chunks

    @property
    def size(self) -> int:
        return self._chunks.original_file_size

    def pieces(self, wanted: ByteRange, *, expected_tag: str | None = None) -> Generator[memoryview, None, None]:
        chunks = self._chunks.chunks_of(wanted)
        keys = {chunk: (self._name, expected_tag, chunk) for chunk in (chunks[0], chunks[-1])}
        kept = {chunk: data for chunk, key in keys.items() if (data := self._partly_read.get(key))}
        start, stop = chunks.start + (chunks[0] in kept), chunks.stop - (len(chunks) > 1 and chunks[-1] in kept)
        for chunk in chunks[: start - chunks.start]:
            yield self._wanted_of(chunk, kept[chunk], wanted)
        if start < stop:
            yield from self._read(range(start, stop), wanted, expected_tag)
        for chunk in chunks[stop - chunks.start :] if len(chunks) > 1 else ():
            yield self._wanted_of(chunk, kept[chunk], wanted)

    def _read(self, chunks: range, wanted: ByteRange, tag: str | None) -> Generator[memoryview, None, None]:
        index, zstd = self._chunks, zstandard.ZstdDecompressor()
        stored = read_listed(self._store, self._name, index.stored_range(chunks), size=index.stored_size, tag=tag)
        with closing(stored):
            sealed_chunks = cut_chunks(stored, index.stored_sizes(chunks))
            for chunk, sealed in zip(chunks, sealed_chunks, strict=True):
                original = index.original_range(chunk)
                try:
                    data = self._decode(sealed, chunk, original.size, zstd)
                except SegreaderError as error:
                    error.located(source=self._store.url(self._name), position=index.starts[chunk])
                    raise
                if wanted.start > original.start or wanted.stop < original.stop:
                    self._partly_read.put((self._name, tag, chunk), data)
                yield self._wanted_of(chunk, data, wanted)

    def _wanted_of(self, chunk: int, data: bytes | memoryview, wanted: ByteRange) -> memoryview:
        start = self._chunks.original_range(chunk).start
        return memoryview(data)[max(0, wanted.start - start) : wanted.stop - start]

    def _decode(
        self, sealed: memoryview, chunk: int, size: int, zstd: zstandard.ZstdDecompressor
    ) -> bytes | memoryview:
        data = sealed if self._cipher is None else self._cipher.open(sealed, f"chunk {chunk}")
        return _decompress(data, chunk, size, zstd) if self._is_compressed else data


class _Index:
    """One part of an ``.indexes`` object."""

    def __init__(
        self, store: ObjectStore, name: str, kind: IndexKind, part: IndexPart, cipher: SegmentCipher | None
    ) -> None:
        self._store, self._name, self._kind = store, name, kind
        self._part, self._cipher = part, cipher

    @property
    def size(self) -> int:
        return max(0, self._part.size - SEAL_SIZE) if self._cipher else self._part.size

    def pieces(self, wanted: ByteRange, *, expected_tag: str | None = None) -> Generator[memoryview, None, None]:
        start, stop = self._part.position, self._part.position + self._part.size
        try:
            if self._cipher is None:
                stored = ByteRange(start + wanted.start, start + wanted.stop)
                yield memoryview(self._store.read_ranges(self._name, [stored])[0])
            else:
                sealed = self._store.read_ranges(self._name, [ByteRange(start, stop)])[0]
                yield _opened(self._cipher, sealed, f"the {self._kind.value} index")[wanted.start : wanted.stop]
        except ObjectNotFoundError as error:
            _raise_gone(error, self._kind)
        except SegreaderError as error:
            error.located(source=self._store.url(self._name), position=start)
            raise


class _SealedObject:
    """An index that is an encrypted object of its own, as before October 2023."""

    def __init__(self, store: ObjectStore, name: str, cipher: SegmentCipher) -> None:
        self._store, self._name, self._cipher = store, name, cipher

    @property
    def size(self) -> int:
        return max(0, self._store.size(self._name) - SEAL_SIZE)

    def pieces(self, wanted: ByteRange, *, expected_tag: str | None = None) -> Generator[memoryview, None, None]:
        sealed = self._store.read_ranges(self._name, [ByteRange(0, self._store.size(self._name))])[0]
        try:
            yield _opened(self._cipher, sealed, "the index")[wanted.start : wanted.stop]
        except SegreaderError as error:
            error.located(source=self._store.url(self._name))
            raise


def _raise_gone(error: ObjectNotFoundError, kind: IndexKind) -> NoReturn:
    """Raise for an index whose segment is deleted.

    A transaction index that is not found counts as an empty one, and aborted records would be shown: another error.
    """
    if kind is IndexKind.TRANSACTION:
        raise ObjectChangedError(
            "the segment has gone since it was listed", source=error.source, hint="List the location again"
        ) from error
    raise error


def _opened(cipher: SegmentCipher, sealed: bytes, what: str) -> memoryview:
    return memoryview(cipher.open(memoryview(sealed), what))


def _decompress(frame: bytes | memoryview, chunk: int, size: int, zstd: zstandard.ZstdDecompressor) -> bytes:
    """The bytes of a chunk that is one zstd frame. What the frame declares is checked before memory is taken for it."""
    try:
        declared = zstandard.get_frame_parameters(frame).content_size
        can_hold = declared in (size, zstandard.CONTENTSIZE_UNKNOWN) and size <= len(frame) * _MOST_BYTES_OF_FOUR // 4
        data = zstd.decompress(frame, max_output_size=size, allow_extra_data=False) if can_hold else b""
    except zstandard.ZstdError as error:
        raise ManifestError(f"chunk {chunk} is not a zstd frame", found=str(error)) from None
    if len(data) != size:
        raise ManifestError(
            f"chunk {chunk} does not hold the bytes that the manifest says",
            found=f"{declared if not can_hold else len(data)} bytes in {len(frame)}",
            expected=f"{size} bytes",
        )
    return data


def cut_chunks(pieces: Generator[memoryview, None, None], sizes: Iterable[int]) -> Generator[memoryview, None, None]:
    """The chunks in a stream of pieces, each until the next is asked for; only one that straddles pieces is copied.

    Raises:
        ShortReadError: the pieces end before the chunks do.
    """
    piece = memoryview(b"")
    for size in sizes:
        if size <= len(piece):
            chunk, piece = piece[:size], piece[size:]
        else:
            joined = bytearray(piece)
            while len(joined) < size:
                arrived = next(pieces, None)
                if arrived is None:
                    raise ShortReadError("the object ends inside a chunk", found=len(joined), expected=f"{size} bytes")
                missing = size - len(joined)
                joined += arrived[:missing]
                piece = arrived[missing:]
            chunk = memoryview(joined)
        yield chunk
