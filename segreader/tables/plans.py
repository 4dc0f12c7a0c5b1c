"""Plans of a stored topic for filters: what was listed and read of its partitions once serves all of them.

Filters come as Arrow expressions, which cannot be taken apart. But Arrow skips the files of a dataset whose partition
expression contradicts a filter, so each region becomes a file that is never opened (``Regions``). Offsets are found by
trying: ranges are halved until their ends and their middle may match, too (``matching_offsets``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from threading import Lock
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs

from segreader.plan.lineage import ResolvedLog
from segreader.plan.split import ReadPlan
from segreader.ranges import OffsetRange
from segreader.scans import Scan
from segreader.segment import TopicIdPartition
from segreader.storage.base import read_each
from segreader.stored.log import StoredLog
from segreader.stored.planner import PartitionPlanner
from segreader.stored.source import SourceLog
from segreader.stored.times import certain_newest_ms
from segreader.values import dataclass

_LARGEST = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Region:
    """Records of a partition: offsets ``start <= offset < stop``, none newer than ``newest_ms``, if that is known.

    ``stop`` is ``None`` where the region is open.
    """

    topic: str
    partition: int
    start: int = 0
    stop: int | None = None
    newest_ms: int | None = None


class Regions:
    """Tells the regions of a table that a filter may match.

    Args:
        schema: of the table. Columns that it does not have cannot be in a filter.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._partitions: dict[tuple[str, int], pc.Expression] = {}
        self._format, self._files = ds.IpcFileFormat(), pyarrow.fs.LocalFileSystem()

    def matching(self, predicate: pc.Expression, regions: Sequence[Region]) -> list[Region]:
        """Those that may hold a record for which ``predicate`` is true, in their order. Others hold none."""
        files = [
            self._format.make_fragment(str(at), self._files, partition_expression=self._guarantee(region))
            for at, region in enumerate(regions)
        ]
        dataset = ds.FileSystemDataset(files, self._schema, self._format, self._files)
        try:
            chosen = {int(fragment.path) for fragment in dataset.get_fragments(filter=predicate)}
        except pa.ArrowInvalid:  # a filter may have no value at an offset that no record has: 3 * offset is too large
            return list(regions)
        return [region for at, region in enumerate(regions) if at in chosen]

    def _guarantee(self, region: Region) -> pc.Expression:
        """What is true of every record of a region."""
        told = self._of_partition(region.topic, region.partition)
        for name, low, high in (
            ("offset", region.start, None if region.stop is None or region.stop > _LARGEST else region.stop - 1),
            *_times(region.newest_ms),
        ):
            if name not in self._schema.names:
                continue
            kind, field = self._schema.field(name).type, pc.field(name)
            if low is not None and low == high:
                told = told & (field == pa.scalar(low, kind))
                continue
            if low is not None:
                told = told & (field >= pa.scalar(low, kind))
            if high is not None:
                told = told & (field <= pa.scalar(high, kind))
        return told

    def _of_partition(self, topic: str, partition: int) -> pc.Expression:
        if (topic, partition) not in self._partitions:
            told = pc.scalar(True)
            for name, value in (("topic", topic), ("partition", partition)):
                if name in self._schema.names:
                    told = told & (pc.field(name) == pa.scalar(value, self._schema.field(name).type))
            self._partitions[topic, partition] = told
        return self._partitions[topic, partition]


def _times(newest_ms: int | None) -> list[tuple[str, None, int]]:
    """The largest value of each column of times."""
    if newest_ms is None:
        return []
    columns: list[tuple[str, None, int]] = [("timestamp_ms", None, newest_ms)]
    if newest_ms * 1000 <= _LARGEST:
        columns.append(("timestamp", None, newest_ms * 1000))
    return columns


_END: Final = 1 << 63
"""Beyond every offset: what an open range is cut at to be halved."""

_STEPS: Final = tuple(1 << shift for shift in range(12, 62, 4))
"""How far beyond the last known place to cut: most logs end at one of the first."""

_MOST: Final = 64
"""Ranges to follow at once. Where a filter matches here and there, more of them would cost more than they save."""


def matching_offsets(
    regions: Regions, predicate: pc.Expression, whole: Region, places: Sequence[int]
) -> list[OffsetRange]:
    """Ranges of the offsets of ``whole`` that hold every record that ``predicate`` matches; rising, and apart.

    Args:
        places: offsets to cut at first, such as those where segments begin.
    """
    stop = _END if whole.stop is None else whole.stop
    known = [at for at in places if whole.start < at < stop]
    beyond = [max([whole.start, *known]) + step for step in _STEPS]
    cuts = sorted({whole.start, *known, *(at for at in beyond if at < stop), stop})
    found: list[Region] = []
    if not regions.matching(predicate, [whole]):
        return []
    pending = regions.matching(predicate, _points(whole, whole.start, stop))
    pending = [whole] if len(pending) == 3 else [replace(whole, start=a, stop=b) for a, b in pairwise(cuts)]
    while pending:
        pending = regions.matching(predicate, pending)
        if len(pending) + len(found) > _MOST:
            found += pending
            break
        halves = []
        points = [_points(one, one.start, _END if one.stop is None else one.stop) for one in pending]
        may_match = set(regions.matching(predicate, [point for some in points for point in some]))
        for one, some in zip(pending, points, strict=True):
            last = _END if one.stop is None else one.stop
            if last - one.start == 1 or may_match.issuperset(some):
                found.append(one)
                continue
            middle = one.start + (last - one.start) // 2
            halves += [replace(one, stop=middle), replace(one, start=middle)]
        pending = halves
    return _joined(found, whole)


def _points(region: Region, start: int, stop: int) -> list[Region]:
    """The first, the middle and the last offset of a range, each as a region."""
    return [replace(region, start=at, stop=at + 1) for at in (start, start + (stop - start) // 2, stop - 1)]


def _joined(found: Sequence[Region], whole: Region) -> list[OffsetRange]:
    """The regions as ranges, those that touch as one."""
    ranges: list[OffsetRange] = []
    for one in sorted(found, key=lambda region: region.start):
        stop = None if one.stop is None or (whole.stop is None and one.stop >= _END) else one.stop
        if ranges and ranges[-1].stop == one.start:
            ranges[-1] = OffsetRange(ranges[-1].start, stop)
        else:
            ranges.append(OffsetRange(one.start, stop))
    return ranges


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
        self._resolved: dict[TopicIdPartition, tuple[StoredLog, OffsetRange]] = {}
        self._newest: dict[str, int | None] = {}

    def plan(self, predicate: pc.Expression | None) -> ReadPlan:
        """What has to be read so that no record is missed for which ``predicate`` is true.

        Raises:
            as ``Scan.plan``, for what is not ruled out.
        """
        with self._lock:
            if self._refresh:
                self._forget()
            if self._scan.last is not None:  # what a filter leaves of them is fewer
                return self._scan.plan()
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
            return self._scan.with_notes(plan)
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
            planner.add(*self._resolve(planner, source))
            return
        whole = Region(partition.topic, partition.partition, offsets.start, offsets.stop)
        if offsets.stop == offsets.start:
            return
        places = [segment.base_offset for segment in source.segments]
        only = matching_offsets(self._regions, predicate, whole, places)
        if not only:
            return
        span = OffsetRange(only[0].start, only[-1].stop)
        is_open = (
            partition not in self._resolved and self._scan.times is None and self._may_be_old(predicate, partition)
        )
        if is_open and planner.add_near(source, span, only=only) is not None:
            return
        log, wanted = self._resolve(planner, source)
        only = [both for one in only if (both := one.intersection(wanted)) is not None]
        only = self._without_old(predicate, log.resolved, only)
        if only:
            planner.add(log, OffsetRange(only[0].start, only[-1].stop), only=only)

    def _resolve(self, planner: PartitionPlanner, source: SourceLog) -> tuple[StoredLog, OffsetRange]:
        """Which segment has which offset, and the offsets that the scan's own bounds leave."""
        partition, scan = source.log.partition, self._scan
        if partition not in self._resolved:
            log, wanted = planner.log(source), scan.offsets
            self._resolved[partition] = log, wanted if scan.times is None else log.offsets_between(scan.times, wanted)
        return self._resolved[partition]

    def _may_be_old(self, predicate: pc.Expression, partition: TopicIdPartition) -> bool:
        """Whether a record may match however old it is."""
        old = Region(partition.topic, partition.partition, newest_ms=_OLDEST_MS)
        return bool(self._regions.matching(predicate, [old]))

    def _without_old(self, predicate: pc.Expression, log: ResolvedLog, only: list[OffsetRange]) -> list[OffsetRange]:
        """The ranges without segments all of whose records are certainly too old for the filter."""
        topic, number = log.partition.topic, log.partition.partition
        if self._may_be_old(predicate, log.partition):
            return only
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
