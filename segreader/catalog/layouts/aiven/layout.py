"""The layout of Aiven's plugin: found by its names, known from its manifests, read through ``AivenFiles``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from segreader.catalog.layouts.aiven.encryption import KeyRing
from segreader.catalog.layouts.aiven.files import INDEX_KINDS, PLAIN_FILE, AivenFiles
from segreader.catalog.layouts.aiven.keys import (
    INDEXES,
    LOG,
    MANIFEST,
    PARTITION_PATH,
    STEM,
    parse_directory,
    parse_name,
)
from segreader.catalog.layouts.aiven.manifest import IndexKind, IndexPart, SegmentManifest, read_manifest
from segreader.catalog.layouts.aiven.settings import RsmConfig
from segreader.catalog.layouts.base import Directory, IncompleteSegment, Layout, Names, PartitionFiles, PartitionPlace
from segreader.errors import ManifestError, ObjectNotFoundError
from segreader.segment import Segment, SegmentFiles, StemFiles, TopicIdPartition
from segreader.storage.base import ObjectStore

_READERS = 16
_ROUND = 64 * _READERS
_TELLING = frozenset((LOG, INDEXES, MANIFEST))
_WRITTEN = frozenset((LOG, INDEXES, MANIFEST, *INDEX_KINDS)) - {"leader_epoch_checkpoint"}


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
        segments, incomplete = [], []
        for objects, manifest in _read_manifests(store, list(sets.values())):
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

    def view(self, store: ObjectStore) -> AivenFiles:
        """The store with the plugin's segments as plain files."""
        return AivenFiles(store, KeyRing(self.config.key_files if self.config else None))


@dataclass(slots=True)
class _ObjectSet:
    """The objects of one segment as they were listed: bytes of each, -1 where the listing has no size."""

    stem: str
    base_offset: int
    segment_id: str
    sizes: dict[str, int] = field(default_factory=dict)
    log_tag: str | None = None

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

    with ThreadPoolExecutor(_READERS, "aiven-manifests") as pool:
        for start in range(0, len(sets), _ROUND):
            some = sets[start : start + _ROUND]
            yield from zip(some, pool.map(read, some), strict=True)


def _check_sizes(store: ObjectStore, objects: _ObjectSet, manifest: SegmentManifest) -> None:
    """Compare the manifest's sizes of the log and the indexes with those of the objects."""
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
