"""Redpanda's tiered storage: a manifest lists a partition's segments and where each of them is.

Segments with hashed keys cannot be listed by partition; and a listing would show objects that were rewritten and are
stale. So only manifests are read: the newest one, and the spill-over manifests that it names.

Keys have two styles: *hashed* ones begin with an xxHash-32 of the rest, *labelled* ones (24.2 on) with the cluster's
uuid. A directory belongs to one style, and everything else is named after it: a topic may be mounted under another name
than its manifest says. Offsets in keys are Redpanda's own, not Kafka's.

Source: Redpanda 24.3 ``partition_manifest``, ``async_manifest_view``, ``partition_path_utils``, ``segment_path_utils``,
``spillover_manifest``.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final, Self

from segreader.catalog.layouts.base import (
    Directory,
    Layout,
    Names,
    PartitionFiles,
    PartitionPlace,
    last_directory,
    parse_partition,
)
from segreader.catalog.layouts.redpanda.files import FILE, MAX_TERM, RedpandaFiles, RedpandaSegment, SegmentName
from segreader.catalog.layouts.redpanda.manifest import (
    PartitionManifest,
    SegmentMeta,
    parse_binary_manifest,
    parse_json_manifest,
)
from segreader.errors import ManifestError, shown_count
from segreader.segment import Segment, SegmentFiles, TopicIdPartition
from segreader.storage.base import ObjectStore, read_each, read_whole
from segreader.values import dataclass

_OF_BUCKET: Final = re.compile(
    r"(?:.*/)?(?:[0-9a-f]{8}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
    r"|meta|cluster_metadata|migration|redpanda_scrubber_inventory)/",
    re.DOTALL,
)
"""What is at the root of a bucket: hashes, uuids of clusters, and what belongs to the cluster as a whole."""

_MANIFESTS: Final = ("manifest.bin", "manifest.json")
_MAX_MANIFEST: Final = 256 << 20
_LABEL: Final = re.compile(r"[0-9a-f]0000000|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)
PARTITION_PATH: Final = re.compile(
    rf"(?P<root>(?:[^/]+/)*?)(?P<label>{_LABEL.pattern})/meta/"
    r"kafka/(?P<topic>[A-Za-z0-9._-]{1,249})/(?P<partition>\d{1,10})_(?P<revision>\d{1,19})/",
    re.ASCII,
)
_HASHED_SIZE: Final = 8

_PRIMES: Final = (2654435761, 2246822519, 3266489917, 668265263, 374761393)
_MASK: Final = 0xFFFFFFFF


class RedpandaLayout(Layout):
    """``<hash or cluster uuid>/meta/kafka/<topic>/<partition>_<revision>/manifest.bin``, and what it names.

    A topic's id here is its revision, after the cluster's uuid where keys begin with one.
    """

    name = "redpanda"
    is_experimental = True
    names = Names(PARTITION_PATH, re.compile("|".join(map(re.escape, _MANIFESTS))), _OF_BUCKET)
    plain_files = FILE

    def partition(self, match: re.Match[str]) -> TopicIdPartition | None:
        """The partition whose manifests are in this directory."""
        if parse_partition(match["partition"], is_padded=True) is None:
            return None
        place = PartitionDirectory.of(match)
        return TopicIdPartition(place.topic, place.partition, place.topic_id)

    def claim_below(self, directory: Directory, store: ObjectStore) -> Sequence[PartitionPlace]:
        """Of a whole bucket all partitions, without a look into the directories of segments.

        With hashed keys each segment has a directory of its own beside those of the manifests.
        """
        if self.names.show_partition(directory):
            return self.claim(directory, store)
        if not all(map(_OF_BUCKET.fullmatch, directory.directories)):
            return ()
        folders = [f"{path}meta/kafka/" for path in directory.directories if is_label(last_directory(path))]
        for _ in ("topics", "partitions"):
            folders = [name for level in read_each(lambda path: _folders(store, path), folders) for name in level]
        found = [(path, partition) for path in folders if (partition := self.partition_of(path)) is not None]
        return [PartitionPlace(partition, (path,), self.name) for path, partition in found]

    def find(self, store: ObjectStore, place: PartitionPlace) -> PartitionFiles:
        """Read the manifests of a partition."""
        path = place.prefixes[0]
        directory = PartitionDirectory.parse(path)
        if directory is None:
            raise ManifestError("this is not a partition's directory", source=store.url(path))
        files = {info.name.rpartition("/")[2]: info.size for info in store.list_level(path)}
        name = next((name for name in _MANIFESTS if name in files), None)
        if name is None:
            return PartitionFiles((), notes=(f"{place.partition}: no manifest is there, so no segment is known",))
        manifest = _read(store, path + name, files[name])
        notes = _check(manifest, directory, store.url(path + name))
        metas = list(manifest.segments)
        start = manifest.start_offset
        if manifest.spillover:
            start = manifest.archive_start_offset if manifest.archive_start_offset is not None else start
            older = [one for one in manifest.spillover if start is None or one.committed_offset >= start]
            metas = [meta for one in older for meta in _read_older(store, path, one, files)] + metas
        alive = [meta for meta in metas if start is None or meta.committed_offset >= start]
        if manifest.replaced:
            stale = shown_count(len(manifest.replaced), "rewritten object is", "rewritten objects are")
            notes.append(f"{place.partition}: {stale} stale and not read")
        segments = _segments(alive, directory, place.partition, store.url(path + name))
        return PartitionFiles(segments, notes=tuple(notes), log_start=manifest.start_kafka_offset)

    def view(self, store: ObjectStore) -> RedpandaFiles:
        """The store in which segments are Kafka's."""
        return RedpandaFiles(store)


def _folders(store: ObjectStore, path: str) -> list[str]:
    return [info.name for info in store.list_level(path) if info.name.endswith("/")]


def _read(store: ObjectStore, name: str, size: int) -> PartitionManifest:
    if size < 0:
        size = store.size(name)
    if size > _MAX_MANIFEST:
        raise ManifestError(
            "a manifest is too large",
            source=store.url(name),
            found=f"{size} bytes",
            expected=f"at most {_MAX_MANIFEST}",
        )
    parse = parse_json_manifest if name.endswith(".json") else parse_binary_manifest
    return parse(read_whole(store, name, size), source=store.url(name))


def _read_older(store: ObjectStore, path: str, one: SegmentMeta, files: dict[str, int]) -> tuple[SegmentMeta, ...]:
    """The segments of a spill-over manifest, whose name states its offsets."""
    bounds = (
        one.base_offset,
        one.committed_offset,
        one.base_kafka_offset,
        one.next_kafka_offset,
        one.base_timestamp,
        one.max_timestamp,
    )
    name = ".".join(map(str, (_MANIFESTS[0], *bounds)))
    if name not in files:
        raise ManifestError(
            "a manifest of older segments is missing",
            source=store.url(path + name),
            found=f"it is named in {_MANIFESTS[0]}",
            hint="Without it the segments of these offsets cannot be found",
        )
    segments = _read(store, path + name, files[name]).segments
    if not segments or (segments[0].base_offset, segments[-1].committed_offset) != bounds[:2]:
        raise ManifestError(
            "a manifest of older segments holds others than its name says",
            source=store.url(path + name),
            found=shown_count(len(segments), "segment")
            + (f", offsets {segments[0].base_offset} to {segments[-1].committed_offset}" if segments else ""),
        )
    return segments


def _check(manifest: PartitionManifest, directory: PartitionDirectory, source: str) -> list[str]:
    """Notes; an error if the manifest is of another partition. A topic may be mounted under another name."""
    if (manifest.partition, manifest.revision) != (directory.partition, directory.revision):
        raise ManifestError(
            "a manifest is of another partition than its directory",
            source=source,
            found=f"partition {manifest.partition}, revision {manifest.revision}",
            expected=f"partition {directory.partition}, revision {directory.revision}",
        )
    if manifest.topic == directory.topic:
        return []
    return [f"{source}: the manifest calls the topic {manifest.topic!r}"]


def _segments(
    metas: Sequence[SegmentMeta], directory: PartitionDirectory, partition: TopicIdPartition, source: str
) -> list[Segment]:
    """The segments that hold offsets of Kafka's; one of Redpanda's own batches alone holds none."""
    # Redpanda before 22.3 did not keep every list of aborted transactions. Without a snapshot the batches are replayed.
    are_lists_complete = all(meta.name_format >= 2 for meta in metas)
    found = []
    for meta, last in zip(metas, _last_offsets(metas), strict=True):
        if meta.segment_term > MAX_TERM:
            raise ManifestError(
                "a segment's term is no leader epoch", source=source, found=meta.segment_term, expected="31 bits"
            )
        if last is not None and last < meta.base_kafka_offset:
            continue
        key = directory.segment_key(meta.name, meta.archiver_term)
        stored = RedpandaSegment(meta.size_bytes, meta.base_offset, meta.delta_offset or 0)
        name = SegmentName(key, meta.segment_term, stored)
        has_list = not meta.is_compacted and (meta.name_format < 3 or meta.metadata_size_hint > 0)
        found.append(
            Segment(
                partition=partition,
                base_offset=meta.base_kafka_offset,
                log_size=meta.size_bytes,
                files=SegmentFiles(
                    log=name.file("log"),
                    transaction_index=name.file("txnindex") if has_list else None,
                    producer_snapshot=name.file("snapshot") if are_lists_complete else None,
                ),
                last_offset=last,
                max_timestamp_ms=meta.max_timestamp if meta.max_timestamp >= 0 else None,
                version=max(meta.archiver_term or 0, 0),
                is_padded=True,
            )
        )
    return found


def _last_offsets(metas: Sequence[SegmentMeta]) -> Iterable[int | None]:
    """The last offset of each segment as Kafka counts; below its base if it has none, ``None`` if it is not known.

    The next segment's start is more reliable than a segment's own end, which was too large by one in
    older versions that have no data there.
    """
    for one, following in pairwise(metas):
        if following.base_offset == one.committed_offset + 1 and following.delta_offset is not None:
            yield following.base_kafka_offset - 1
        else:
            yield None if one.delta_offset_end is None else one.next_kafka_offset - 1
    for one in metas[-1:]:
        is_certain = one.delta_offset_end is not None and one.next_kafka_offset != one.base_kafka_offset + 1
        yield one.next_kafka_offset - 1 if is_certain else None


@dataclass(frozen=True, slots=True)
class PartitionDirectory:
    """A directory that holds a partition's manifests, taken apart.

    Args:
        root: what comes before the first part of Redpanda's key; empty or ending in ``/``.
        label: that first part: eight hex digits, or the cluster's uuid.
        revision: of the topic when it was created: a topic of the same name that is made later has another one.
    """

    root: str
    label: str
    topic: str
    partition: int
    revision: int

    @classmethod
    def parse(cls, path: str) -> Self | None:
        """The parts of a directory's path, which ends in ``/``; ``None`` if it has no partition of a user topic."""
        match = PARTITION_PATH.fullmatch(path)
        return cls.of(match) if match else None

    @classmethod
    def of(cls, match: re.Match[str]) -> Self:
        """The parts of a path that ``PARTITION_PATH`` matches."""
        return cls(match["root"], match["label"], match["topic"], int(match["partition"]), int(match["revision"]))

    @property
    def is_hashed(self) -> bool:
        """Whether keys begin with a hash of the rest; otherwise with the cluster's uuid."""
        return len(self.label) == _HASHED_SIZE

    @property
    def topic_id(self) -> str:
        """What distinguishes this topic from others of its name: its revision, with the cluster's uuid if known."""
        return str(self.revision) if self.is_hashed else f"{self.label}_{self.revision}"

    def segment_key(self, name: str, archiver_term: int | None) -> str:
        """Key of the segment of this name (see ``segment_name``); ``archiver_term`` is that of the uploader."""
        path = f"kafka/{self.topic}/{self.partition}_{self.revision}/{name}"
        label = f"{xxh32(path.encode()):08x}" if self.is_hashed else self.label
        suffix = "" if archiver_term is None else f".{archiver_term}"
        return f"{self.root}{label}/{path}{suffix}"


def is_label(name: str) -> bool:
    """Whether a directory of this name can hold manifests: a hash of four bits and zeros, or a cluster's uuid."""
    return _LABEL.fullmatch(name) is not None


def xxh32(data: bytes) -> int:
    """xxHash-32 with seed 0. Source: the xxHash specification, version 0.1.2."""
    one, two, three, four, five = _PRIMES
    stripes, words = len(data) // 16 * 16, len(data) // 4 * 4
    hashed = five
    if stripes:
        lanes = [(one + two) & _MASK, two, 0, -one & _MASK]
        for stripe in struct.iter_unpack("<4I", data[:stripes]):
            lanes = [_rotate(lane + word * two, 13) * one & _MASK for lane, word in zip(lanes, stripe, strict=True)]
        hashed = sum(map(_rotate, lanes, (1, 7, 12, 18)))
    hashed += len(data)
    for (word,) in struct.iter_unpack("<I", data[stripes:words]):
        hashed = _rotate(hashed + word * three, 17) * four
    for byte in data[words:]:
        hashed = _rotate(hashed + byte * five, 11) * one
    hashed &= _MASK
    hashed = (hashed ^ hashed >> 15) * two & _MASK
    hashed = (hashed ^ hashed >> 13) * three & _MASK
    return hashed ^ hashed >> 16


def _rotate(value: int, bits: int) -> int:
    value &= _MASK
    return (value << bits | value >> (32 - bits)) & _MASK
