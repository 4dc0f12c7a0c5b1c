"""Which remote segment holds an offset, which objects hold its very bytes, and at which byte to begin. No rights here.

Segments come from the metadata topic, by topic id; objects and offset indexes from the store, by the layouts of the
plugins that are known here, kept in memory within a limit. What touches the store runs in threads, a few at a time.

"ApacheKafkaV1" says that the object's bytes are the segment's bytes. A segment that was compressed or encrypted by
the plugin is none, whatever its metadata says. Source: KIP-1248; ``catalog.layouts`` for the names.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field, replace
from typing import Final, Protocol

from segreader.broker.messages import OFFSET_INDEX, TRANSACTION_INDEX
from segreader.catalog.layouts.aiven.manifest import (
    INDEXES,
    LOG,
    IndexKind,
    main_path,
    parse_custom_metadata,
    read_manifest,
)
from segreader.catalog.metadata_log import RemoteLogSegmentMetadata
from segreader.errors import ManifestError, ObjectNotFoundError, OptionError, StorageError
from segreader.format.index_files import OffsetIndex, parse_offset_index
from segreader.gateway.admission import LimitReports
from segreader.gateway.metrics import GatewayMetrics
from segreader.ranges import ByteRange
from segreader.storage.base import ObjectStore
from segreader.values import dataclass


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
    """The objects of Aiven's plugin; ``None`` if its manifest has compression, encryption or another size.

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
        if not segment.transaction_index_is_empty:  # a broker before 4.0 does not tell; the manifest does
            indexes.setdefault(TRANSACTION_INDEX, PlacedIndex(f"{stem}.{INDEXES}", 0, 0))
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


LARGEST_INDEX: Final = 16 << 20
"""Bytes of an offset index that is read: Kafka's default maximum is 10 MiB."""

MOST_TRANSACTIONS: Final = 4 << 10
"""Bytes of a transaction index that comes with a location: 120 transactions. A larger one is left to readers."""

_PARTITIONS = 10_000
_UNKNOWN_FOR_S = 1.0
_ENTRY_OVERHEAD = 1024


class Segments(Protocol):
    """What knows the finished segments: ``MetadataConsumer``."""

    def segments(self, topic: str, topic_id: str, partition: int) -> Sequence[RemoteLogSegmentMetadata]: ...
    def topic_name(self, topic_id: str) -> str | None: ...
    def changes(self, topic_id: str, partition: int) -> object: ...
    def lag_s(self, topic_id: str, partition: int) -> float | None: ...


class PartitionSegments:
    """The segments of one partition, to be looked up by offset; they may overlap."""

    __slots__ = ("_bases", "_ends", "_segments")

    def __init__(self, segments: Sequence[RemoteLogSegmentMetadata]) -> None:
        self._segments = sorted(segments, key=lambda one: (one.base_offset, one.version))
        self._bases = [one.base_offset for one in self._segments]
        self._ends: list[int] = []
        furthest = -1
        for one in self._segments:
            furthest = max(furthest, one.last_offset)
            self._ends.append(furthest)

    def holding(self, offset: int) -> list[RemoteLogSegmentMetadata]:
        """The segments that stand for an offset, the one that was finished last first."""
        found = []
        index = bisect_right(self._bases, offset) - 1
        while index >= 0 and self._ends[index] >= offset:
            if self._segments[index].last_offset >= offset and self._segments[index].log_size > 0:
                found.append(self._segments[index])
            index -= 1
        return sorted(found, key=lambda one: one.version, reverse=True)


@dataclass(frozen=True, slots=True)
class StoredSegment:
    """A segment whose object holds its very bytes, and its offset index.

    Args:
        transactions: the bytes of its transaction index; ``None`` where that is too large, or cannot be had.
        has_transactions: whether these were looked up.
    """

    objects: SegmentObjects
    index: OffsetIndex
    transactions: bytes | None = None
    has_transactions: bool = False

    @property
    def weight(self) -> int:
        """Bytes of memory."""
        columns = (self.index.relative_offsets, self.index.entry_positions)
        indexes = sum(column.itemsize * len(column) for column in columns)
        return _ENTRY_OVERHEAD + indexes + len(self.transactions or b"")


class Catalogue:
    """Segments by offset, and their stored form. For one event loop.

    Args:
        segments: which there are.
        finder: where they lie.
        readers: indexes read at a time.
        cache_bytes: of indexes kept.
        max_lag_s: how long ago the segments may have been complete, to be believed.
    """

    def __init__(
        self,
        segments: Segments,
        finder: ObjectFinder,
        *,
        readers: int,
        cache_bytes: int,
        max_lag_s: float,
        metrics: GatewayMetrics,
    ) -> None:
        self._segments = segments
        self.finder = finder
        self._max_lag_s = max_lag_s
        self._readers = readers
        self._cache_bytes = cache_bytes
        self._metrics = metrics
        self._reports = LimitReports(metrics)
        self._names: dict[str, str] = {}
        self._unknown: dict[str, float] = {}
        self._pool = ThreadPoolExecutor(readers, "gateway-index")
        self._partitions: OrderedDict[tuple[str, int], tuple[object, PartitionSegments]] = OrderedDict()
        self._stored: OrderedDict[str, StoredSegment | None] = OrderedDict()
        self._stored_bytes = 0
        self._reading: dict[tuple[str, bool], asyncio.Future[StoredSegment | None]] = {}

    def close(self) -> None:
        """Give back the threads."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def topic_name(self, topic_id: str) -> str | None:
        """The name of a topic that has remote segments; a topic may be unknown for a second longer than it is."""
        if (name := self._names.get(topic_id)) is not None:
            return name
        now = time.monotonic()
        if now - self._unknown.get(topic_id, -_UNKNOWN_FOR_S) < _UNKNOWN_FOR_S:
            return None
        if (name := self._segments.topic_name(topic_id)) is not None:
            self._names[topic_id] = name
            return name
        if len(self._unknown) >= _PARTITIONS:
            self._unknown.clear()
        self._unknown[topic_id] = now
        return None

    def is_caught_up(self, topic_id: str, partition: int) -> bool:
        """Whether what is known of a partition was complete a short while ago."""
        lag_s = self._segments.lag_s(topic_id, partition)
        return lag_s is not None and lag_s <= self._max_lag_s

    async def holding(self, topic: str, topic_id: str, partition: int, offset: int) -> list[RemoteLogSegmentMetadata]:
        """The finished segments that stand for an offset, the one that was finished last first."""
        key, changes = (topic_id, partition), self._segments.changes(topic_id, partition)
        known = self._partitions.get(key)
        if known is None or known[0] != changes:
            # A partition may have a hundred thousand segments.
            sort = asyncio.get_running_loop().run_in_executor
            found = await sort(
                self._pool, lambda: PartitionSegments(self._segments.segments(topic, topic_id, partition))
            )
            known = self._partitions[key] = (changes, found)
            if len(self._partitions) > _PARTITIONS:
                self._partitions.popitem(last=False)
        self._partitions.move_to_end(key)
        return known[1].holding(offset)

    def at_hand(
        self, segment: RemoteLogSegmentMetadata, *, with_transactions: bool = False
    ) -> tuple[bool, StoredSegment | None]:
        """Whether ``stored`` need not read, and what it would return then."""
        segment_id = segment.segment_id
        wanted = with_transactions and not segment.transaction_index_is_empty
        known = self._stored.get(segment_id)
        if segment_id in self._stored and (known is None or known.has_transactions or not wanted):
            self._stored.move_to_end(segment_id)
            return True, known
        return False, known

    async def stored(
        self, segment: RemoteLogSegmentMetadata, *, with_transactions: bool = False
    ) -> StoredSegment | None:
        """A segment's object and offset index; ``None`` if the object does not hold the segment's bytes as they are.

        Args:
            with_transactions: look up its transaction index, too.

        Raises:
            StorageError, CatalogError, FormatError: the store fails, or what is there contradicts itself.
        """
        is_known, known = self.at_hand(segment, with_transactions=with_transactions)
        if is_known:
            return known
        segment_id = segment.segment_id
        wanted = with_transactions and not segment.transaction_index_is_empty
        reading = self._reading.get((segment_id, wanted))
        if reading is None:
            if len(self._reading) >= self._readers:
                self._reports.reached("index_downloads", self._readers, str(segment.partition))
            loop = asyncio.get_running_loop()
            read = loop.run_in_executor(self._pool, self._read, segment, known, wanted)
            reading = self._reading[segment_id, wanted] = asyncio.ensure_future(read)
            reading.add_done_callback(lambda done: self._keep(segment, done, wanted))
        return await asyncio.shield(reading)

    def _keep(
        self, segment: RemoteLogSegmentMetadata, done: asyncio.Future[StoredSegment | None], wanted: bool
    ) -> None:
        segment_id = segment.segment_id
        self._reading.pop((segment_id, wanted), None)
        if done.cancelled() or done.exception() is not None:
            return
        if segment_id in self._stored:
            self._stored_bytes -= _weight(self._stored.pop(segment_id))
        found = self._stored[segment_id] = done.result()
        self._stored_bytes += _weight(found)
        while self._stored_bytes > self._cache_bytes and len(self._stored) > 1:
            self._stored_bytes -= _weight(self._stored.popitem(last=False)[1])
            self._reports.reached("index_cache_bytes", self._cache_bytes, str(segment.partition))

    def _read(
        self, segment: RemoteLogSegmentMetadata, known: StoredSegment | None, wanted: bool
    ) -> StoredSegment | None:
        if known is None:
            objects = self.finder.find(segment)
            if objects is None:
                return None
            data = b""
            if (place := objects.indexes.get(OFFSET_INDEX)) is not None:
                data = self._read_index(place, LARGEST_INDEX)
                whole = PlacedIndex(place.name, place.start, place.start + len(data))
                objects = SegmentObjects(objects.log, {**objects.indexes, OFFSET_INDEX: whole})
            known = StoredSegment(objects, parse_offset_index(data, segment.base_offset, log_size=segment.log_size))
        return self._with_transactions(known) if wanted else known

    def _with_transactions(self, known: StoredSegment) -> StoredSegment:
        """Whatever is wrong with that index the readers find out, and what to do: it is no reason to give nothing."""
        found: bytes | None = None
        if (place := known.objects.indexes.get(TRANSACTION_INDEX)) is not None:
            try:
                found = self._read_index(place, MOST_TRANSACTIONS)
            except (ObjectNotFoundError, ManifestError):
                pass
            except StorageError:
                return known  # the next request tries again
        return replace(known, transactions=found, has_transactions=True)

    def _read_index(self, place: PlacedIndex, most: int) -> bytes:
        data = self.finder.read_index(place, most)
        self._metrics.index_reads += 1
        self._metrics.index_read_bytes += len(data)
        return data


def _weight(stored: StoredSegment | None) -> int:
    return _ENTRY_OVERHEAD if stored is None else stored.weight
