"""Plans of a stored topic for filters: what was listed and read of its partitions once serves all of them."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Lock

import pyarrow as pa
import pyarrow.compute as pc

from segreader.plan.split import ReadPlan
from segreader.ranges import OffsetRange
from segreader.scans import Scan
from segreader.segment import TopicIdPartition
from segreader.storage.read_all import read_each
from segreader.stored.lineage import ReadableLog
from segreader.stored.max_timestamp import certain_newest_ms
from segreader.stored.partition_planner import PartitionPlanner
from segreader.stored.source import SourceLog
from segreader.stored.time_offsets import offsets_between
from segreader.tables.bounds import matching_offsets
from segreader.tables.regions import Region, Regions

_OLDEST_MS = -(1 << 63) // 1000 + 1


class FilteredPlans:
    """Plans what a filter may match, partition by partition; those that it rules out are not even listed.

    Which partitions and segments there are is asked once, so that all plans see the same records, unless ``refresh``.
    """

    def __init__(self, scan: Scan, schema: pa.Schema, *, refresh: bool = False) -> None:
        self._scan, self._schema, self._refresh = scan, schema, refresh
        self._regions = Regions(schema)
        self._lock = Lock()
        self._whole: ReadPlan | None = None
        self._partitions: list[TopicIdPartition] | None = None
        self._listed: dict[TopicIdPartition, SourceLog] = {}
        self._resolved: dict[TopicIdPartition, tuple[ReadableLog, OffsetRange]] = {}
        self._newest: dict[str, int | None] = {}

    def plan(self, predicate: pc.Expression | None) -> ReadPlan:
        """What has to be read so that no record is missed for which ``predicate`` is true.

        Raises:
            as ``Scan.plan``, for what is not ruled out.
        """
        with self._lock:
            if self._refresh:
                self._forget()
            if predicate is None and self._whole is not None:
                return self._whole
            planner = self._scan.planner()
            for source in self._logs(predicate):
                self._add(planner, source, predicate)
            plan = self._with_newest(planner.plan(self._scan.location))
            if predicate is None:
                self._whole = plan
            return plan

    def _with_newest(self, plan: ReadPlan) -> ReadPlan:
        """The plan; where the scan's own times leave nothing for a filter, as ``Scan.plan``."""
        ranges = [wanted for _, wanted in self._resolved.values()]
        is_empty = all(wanted.stop is not None and wanted.start >= wanted.stop for wanted in ranges)
        if not ranges or not is_empty:
            return plan
        return self._scan.with_newest(plan, [self._listed[partition] for partition in self._resolved])

    def _forget(self) -> None:
        self._whole = self._partitions = None
        self._listed, self._resolved, self._newest = {}, {}, {}

    def _logs(self, predicate: pc.Expression | None) -> Iterator[SourceLog]:
        """The partitions that the filter may match, in order."""

        def may_match(partition: TopicIdPartition) -> bool:
            whole = Region(partition.topic, partition.partition)
            return predicate is None or bool(self._regions.matching(predicate, [whole]))

        if self._partitions is None:
            partitions: list[TopicIdPartition] = []

            def wants(partition: TopicIdPartition) -> bool:
                partitions.append(partition)
                return may_match(partition)

            self._listed = {source.log.partition: source for source in self._scan.logs(wants)}
            self._partitions = list(dict.fromkeys([*partitions, *self._listed]))
        chosen = [partition for partition in self._partitions if may_match(partition)]
        missing = {partition for partition in chosen if partition not in self._listed}
        if missing:
            self._listed |= {source.log.partition: source for source in self._scan.logs(missing.__contains__)}
        return iter([self._listed[partition] for partition in chosen if partition in self._listed])

    def _add(self, planner: PartitionPlanner, source: SourceLog, predicate: pc.Expression | None) -> None:
        offsets, partition = self._scan.offsets, source.log.partition
        if predicate is None:
            readable, wanted = self._resolve(planner, source)
            planner.add(source, wanted, readable=readable)
            return
        whole = Region(partition.topic, partition.partition, offsets.start, offsets.stop)
        if offsets.stop == offsets.start:
            return
        places = [segment.base_offset for segment in source.segments]
        only = matching_offsets(self._regions, predicate, whole, places)
        if not only:
            return
        readable, wanted = self._resolve(planner, source)
        only = [both for one in only if (both := one.intersection(wanted)) is not None]
        only = self._without_old(predicate, readable, only)
        if only:
            planner.add(source, OffsetRange(only[0].start, only[-1].stop), readable=readable, only=only)

    def _resolve(self, planner: PartitionPlanner, source: SourceLog) -> tuple[ReadableLog, OffsetRange]:
        """Which segment has which offset, and the offsets that the scan's own bounds leave."""
        partition, scan = source.log.partition, self._scan
        if partition not in self._resolved:
            readable, wanted = planner.resolve(source), scan.offsets
            if scan.times is not None:
                most = scan.options.max_batch_bytes
                wanted = offsets_between(scan.store, readable.resolved, scan.times, wanted, max_batch_bytes=most)
            self._resolved[partition] = readable, wanted
        return self._resolved[partition]

    def _without_old(
        self, predicate: pc.Expression, readable: ReadableLog, only: list[OffsetRange]
    ) -> list[OffsetRange]:
        """The ranges without segments all of whose records are certainly too old for the filter."""
        log = readable.resolved
        topic, number = log.partition.topic, log.partition.partition
        if self._regions.matching(predicate, [Region(topic, number, newest_ms=_OLDEST_MS)]):
            return only  # however old a record is, it may match
        parts = [part for part in log.parts if any(_overlap(one, part.start, part.stop) for one in only)]
        unknown = [part for part in parts if part.segment.files.log not in self._newest]
        most = self._scan.options.max_batch_bytes
        times = read_each(lambda part: certain_newest_ms(self._scan.store, part, most), unknown)
        for part, newest_ms in zip(unknown, times, strict=True):
            self._newest[part.segment.files.log] = newest_ms
        told = [
            Region(topic, number, part.start, part.stop, newest_ms)
            for part in parts
            if (newest_ms := self._newest[part.segment.files.log]) is not None
        ]
        kept = set(self._regions.matching(predicate, told))
        for old in told:
            if old not in kept:
                only = [rest for one in only for rest in _less(one, old.start, old.stop)]
        return only


def _overlap(one: OffsetRange, start: int, stop: int) -> bool:
    return start < stop and one.intersection(OffsetRange(start, stop)) is not None


def _less(one: OffsetRange, start: int, stop: int | None) -> list[OffsetRange]:
    """What is left of a range without the offsets from ``start`` to ``stop``."""
    rest = []
    if one.start < start:
        rest.append(OffsetRange(one.start, start if one.stop is None else min(start, one.stop)))
    if stop is not None and (one.stop is None or stop < one.stop):
        rest.append(OffsetRange(max(one.start, stop), one.stop))
    return rest
