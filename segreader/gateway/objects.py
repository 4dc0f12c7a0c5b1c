"""Which objects hold a remote segment, if they hold its very bytes: by the layouts of the plugins that are known here.

"ApacheKafkaV1" says that the object's bytes are the segment's bytes. A segment that was compressed or encrypted by
the plugin is none, whatever its metadata says. Source: KIP-1248; ``catalog.layouts`` for the names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from segreader.catalog.layouts.aiven.manifest import (
    INDEXES,
    LOG,
    IndexKind,
    main_path,
    parse_custom_metadata,
    read_manifest,
)
from segreader.catalog.metadata_log import RemoteLogSegmentMetadata
from segreader.errors import ManifestError, ObjectNotFoundError, OptionError
from segreader.ranges import ByteRange
from segreader.storage.base import ObjectStore

OFFSET_INDEX: Final = 0
TRANSACTION_INDEX: Final = 3
"""Index types of the location extension."""


@dataclass(frozen=True, slots=True)
class PlacedIndex:
    """The place of one index: bytes ``start`` to ``stop`` of an object; ``stop`` ``None`` for its end."""

    name: str
    start: int = 0
    stop: int | None = None


@dataclass(frozen=True, slots=True)
class SegmentObjects:
    """The object with a segment's bytes, and its indexes by type."""

    log: str
    indexes: Mapping[int, PlacedIndex] = field(default_factory=dict)


Place = Callable[[ObjectStore, str, RemoteLogSegmentMetadata], SegmentObjects | None]


def place_local_tiered(store: ObjectStore, prefix: str, segment: RemoteLogSegmentMetadata) -> SegmentObjects | None:
    """The objects as Kafka's ``LocalTieredStorage`` names them; its files are plain.

    Raises:
        ObjectNotFoundError: there is no such object.
        StorageError: as the store raises.
    """
    partition = segment.partition
    stem = (
        f"{prefix}{partition.topic}-{partition.partition}-{segment.topic_id}/"
        f"{segment.base_offset:020d}-{segment.segment_id}"
    )
    if store.size(f"{stem}.log") != segment.log_size:
        return None
    indexes = {OFFSET_INDEX: PlacedIndex(f"{stem}.index")}
    if not segment.transaction_index_is_empty:
        indexes[TRANSACTION_INDEX] = PlacedIndex(f"{stem}.txnindex")
    return SegmentObjects(f"{stem}.log", indexes)


def place_aiven(store: ObjectStore, prefix: str, segment: RemoteLogSegmentMetadata) -> SegmentObjects | None:
    """The objects of Aiven's plugin; ``None`` where its manifest tells of compression, encryption or another size.

    Raises:
        ObjectNotFoundError: there is no such object.
        ManifestError: the manifest, or what the metadata keeps for the plugin, contradicts itself.
        StorageError: as the store raises.
    """
    own = parse_custom_metadata(segment.custom_metadata or b"")
    path = main_path(segment.partition, segment.base_offset, segment.segment_id)
    stem = (prefix if own.object_prefix is None else own.object_prefix) + (own.object_key or path)
    # The plugin writes the manifest under the configured prefix, whatever the metadata keeps.
    manifest = read_manifest(store, prefix + path)
    told = manifest.segment
    if (
        manifest.is_compressed
        or manifest.encryption is not None
        or manifest.chunks.original_file_size != segment.log_size
        or manifest.chunks.stored_size != segment.log_size
        or store.size(f"{stem}.{LOG}") != segment.log_size
    ):
        return None
    if told is not None and told.segment_id != segment.segment_id:
        raise ManifestError("the manifest is about another segment", source=store.url(stem), found=told.segment_id)
    indexes: dict[int, PlacedIndex] = {}
    if manifest.parts is None:
        indexes[OFFSET_INDEX] = PlacedIndex(f"{stem}.index")
    else:
        for kind, number in ((IndexKind.OFFSET, OFFSET_INDEX), (IndexKind.TRANSACTION, TRANSACTION_INDEX)):
            if (part := manifest.parts.get(kind)) is not None:
                indexes[number] = PlacedIndex(f"{stem}.{INDEXES}", part.position, part.position + part.size)
    return SegmentObjects(f"{stem}.{LOG}", indexes)


class ObjectFinder:
    """Finds the objects of segments at one location.

    Args:
        store: where they lie.
        prefix: of all names there.
        layout: ``local-tiered``, ``aiven``, or ``auto``: whichever the first segment is found by.
    """

    def __init__(self, store: ObjectStore, prefix: str, layout: str) -> None:
        self.store = store
        self._prefix = prefix
        if layout != "auto" and layout not in _LAYOUTS:
            raise OptionError("unknown layout", found=layout, expected=", ".join(("auto", *_LAYOUTS)))
        self._layout = layout

    def find(self, segment: RemoteLogSegmentMetadata) -> SegmentObjects | None:
        """The segment's objects; ``None`` if they do not hold its bytes as they are.

        Raises:
            ObjectNotFoundError: they are not there.
            StorageError, ManifestError: as named.
        """
        if self._layout != "auto":
            return _LAYOUTS[self._layout](self.store, self._prefix, segment)
        missing: ObjectNotFoundError | None = None
        for name, place in _LAYOUTS.items():
            try:
                found = place(self.store, self._prefix, segment)
            except ObjectNotFoundError as error:
                missing = error
                continue
            self._layout = name
            return found
        assert missing is not None
        raise missing

    def read_index(self, place: PlacedIndex, most: int) -> bytes:
        """The bytes of an index.

        Raises:
            ManifestError: it is larger than ``most``.
            StorageError: as the store raises.
        """
        stop = self.store.size(place.name) if place.stop is None else place.stop
        size = stop - place.start
        if not 0 <= size <= most:
            raise ManifestError(
                "an index is too large", source=self.store.url(place.name), found=f"{size} bytes", expected=f"<= {most}"
            )
        if not size:
            return b""
        return bytes(self.store.read_ranges(place.name, [ByteRange(place.start, stop)])[0])


_LAYOUTS: dict[str, Place] = {"local-tiered": place_local_tiered, "aiven": place_aiven}
