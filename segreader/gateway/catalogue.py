"""Which remote segment holds an offset, where its bytes lie, and at which byte to begin. Nothing here decides rights.

Segments come from the metadata topic, by topic id; objects and offset indexes from the store, kept in memory within a
limit. What touches the store runs in threads, a few at a time.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, Protocol

from segreader.catalog.metadata_log import RemoteLogSegmentMetadata
from segreader.format.index_files import OffsetIndex, parse_offset_index
from segreader.gateway.metrics import GatewayMetrics
from segreader.gateway.objects import OFFSET_INDEX, ObjectFinder, SegmentObjects

LARGEST_INDEX: Final = 16 << 20
"""Bytes of an offset index that is read: Kafka's default maximum is 10 MiB."""

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
    """A segment whose object holds its very bytes, and its offset index."""

    objects: SegmentObjects
    index: OffsetIndex

    @property
    def weight(self) -> int:
        """Bytes of memory."""
        return _ENTRY_OVERHEAD + sum(
            column.itemsize * len(column) for column in (self.index.relative_offsets, self.index.entry_positions)
        )


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
        self._cache_bytes = cache_bytes
        self._metrics = metrics
        self._names: dict[str, str] = {}
        self._unknown: dict[str, float] = {}
        self._pool = ThreadPoolExecutor(readers, "gateway-index")
        self._partitions: OrderedDict[tuple[str, int], tuple[object, PartitionSegments]] = OrderedDict()
        self._stored: OrderedDict[str, StoredSegment | None] = OrderedDict()
        self._stored_bytes = 0
        self._reading: dict[str, asyncio.Future[StoredSegment | None]] = {}

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

    async def stored(self, segment: RemoteLogSegmentMetadata) -> StoredSegment | None:
        """A segment's object and offset index; ``None`` if the object does not hold the segment's bytes as they are.

        Raises:
            StorageError, CatalogError, FormatError: the store fails, or what is there contradicts itself.
        """
        segment_id = segment.segment_id
        if segment_id in self._stored:
            self._stored.move_to_end(segment_id)
            return self._stored[segment_id]
        reading = self._reading.get(segment_id)
        if reading is None:
            loop = asyncio.get_running_loop()
            reading = asyncio.ensure_future(loop.run_in_executor(self._pool, self._read, segment))
            self._reading[segment_id] = reading
            reading.add_done_callback(lambda done: self._keep(segment_id, done))
        return await asyncio.shield(reading)

    def _keep(self, segment_id: str, done: asyncio.Future[StoredSegment | None]) -> None:
        self._reading.pop(segment_id, None)
        if done.cancelled() or done.exception() is not None:
            return
        found = self._stored[segment_id] = done.result()
        self._stored_bytes += _weight(found)
        while self._stored_bytes > self._cache_bytes and len(self._stored) > 1:
            self._stored_bytes -= _weight(self._stored.popitem(last=False)[1])

    def _read(self, segment: RemoteLogSegmentMetadata) -> StoredSegment | None:
        objects = self.finder.find(segment)
        if objects is None:
            return None
        data = b""
        if (place := objects.indexes.get(OFFSET_INDEX)) is not None:
            data = self.finder.read_index(place, LARGEST_INDEX)
            self._metrics.index_reads += 1
            self._metrics.index_read_bytes += len(data)
        return StoredSegment(objects, parse_offset_index(data, segment.base_offset, log_size=segment.log_size))


def _weight(stored: StoredSegment | None) -> int:
    return _ENTRY_OVERHEAD if stored is None else stored.weight
