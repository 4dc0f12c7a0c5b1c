"""From options to a plan: which topics and partitions they name at these locations, and the splits of each.

Planning runs on the driver, in Spark's planner process or in a job that wants to know beforehand what a read will do.
Every partition is listed once.

A split travels to its task as names and numbers, below 2 KiB however many transactions were aborted in it. A few
aborted transactions travel along, packed. Many stay where the broker wrote them: the split names the transaction
indexes, and for which offsets each of them counts, and the task reads them. Only where no index holds them, as in
batches that had to be replayed, does the task work them out again from the listing.
"""

from __future__ import annotations

import os
import pickle
import zlib
from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping
from dataclasses import field, replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

from segreader.errors import (
    FormatError,
    ObjectNotFoundError,
    OffsetOutOfRangeError,
    OptionError,
    SegmentGapError,
    shown_count,
)
from segreader.evidence.findings import Findings
from segreader.evidence.transaction_checks import check_transaction_index, settle_transaction_index
from segreader.format.index_files import AbortedTransaction
from segreader.isolation import AbortedTransactions
from segreader.plan.codec import pack_split, unpack_split
from segreader.plan.cut import Cutting, SplitOffsets
from segreader.plan.lineage import ResolvedLog
from segreader.plan.request import TimeRange
from segreader.plan.split import Gap, ReadPlan, Split
from segreader.ranges import OffsetRange
from segreader.segment import TopicIdPartition
from segreader.spark.locations import Locations
from segreader.spark.option_values import EARLIEST, LATEST, PartitionOffsets
from segreader.spark.options import OTHERS_FROM_EARLIEST, SparkOptions, Times
from segreader.storage.base import ObjectStore, read_each, read_whole
from segreader.stored.log import StoredLog
from segreader.stored.planner import PartitionPlanner
from segreader.stored.transactions import read_transaction_state
from segreader.values import dataclass

SMALL_SPLIT: Final = 32 << 20
"""Stored bytes of a split where the usual size would leave cores idle."""

SPLITS_A_CORE: Final = 3
"""So many at least: then the longest task is a third of the stage at most."""

_ROOM: Final = 700
"""Bytes that packed transactions, or the names of their indexes, may take."""

_ROOM_FOR_LOGS: Final = 300
"""Bytes that the names of logs behind a split may take."""

_MOST_LOGS: Final = 2
"""Logs behind a split that travel with it."""

_DAY_MS: Final = 86_400_000
_PLAUSIBLE_MS: Final = range(10**12, 10**14)
_WORTH_TELLING: Final = 0.5
"""Of what a read without bounds reads: an option that leaves more is not worth a line."""

_NONE: Final = AbortedTransactions()
_FEW: Final = 2000
_KEPT: Final = 4

ResolveLog = Callable[[TopicIdPartition], ResolvedLog]
"""Which segment delivers which offset of a partition, from its listing."""


@dataclass(frozen=True, slots=True)
class SparkPlan:
    """What a read does, and the log of each partition that it was decided by.

    Args:
        lost: what was asked for and is in no segment, if the options let a read go on without it.
        advice: which option would spare most of it, where no bound was given.
        starts: where each partition was to begin, by its log.
    """

    plan: ReadPlan
    logs: Mapping[TopicIdPartition, ResolvedLog]
    store: ObjectStore
    lost: tuple[Gap, ...] = ()
    advice: str | None = None
    starts: Mapping[TopicIdPartition, int] = field(default_factory=dict)

    def light_splits(self) -> list[LightSplit]:
        """The splits as they travel, largest first so that no long task ends the stage."""
        packer = SplitPacker(self.store)
        splits = sorted(self.plan.splits, key=lambda split: -split.positions.size)
        return [packer.pack(split, self.logs[split.partition]) for split in splits]


def plan_splits(
    options: SparkOptions,
    *,
    cores: int | None = None,
    split_offsets: SplitOffsets = SplitOffsets.SHARED,
    check: Callable[[StoredLog], None] | None = None,
) -> SparkPlan:
    """What a Spark read with these options reads, with what it takes to send its splits to tasks.

    Args:
        cores: how many tasks run at once; those of this machine by default, for Spark tells a planner nothing.
        split_offsets: which offsets the splits of one segment have.
        check: called with the log of each partition before its offsets are chosen; what it raises ends the planning.

    Raises:
        ObjectNotFoundError: the location, a topic or a partition is not there, or no topic matches.
        OptionError: offsets do not name exactly the partitions that are read, or a start is beyond its end.
        OffsetOutOfRangeError: offsets or times lie outside of what is there.
        SegmentGapError: offsets between two segments, or between the target of a job and the first one, are in none
            (``failOnDataLoss``).
        CatalogError: the contents do not allow the request.
    """
    locations = Locations(options)
    metadata = locations.read_metadata(locations.wanted)
    places = locations.find(metadata)
    known = locations.known(places, metadata)
    there = [one[0].partition for one in places]
    gone = require_same_partitions(options, there)
    planner = PartitionPlanner(
        locations.store,
        options.read_options,
        isolation_level=options.isolation_level,
        cutting=cutting_of(options, split_offsets, cores),
    )
    logs: dict[TopicIdPartition, ResolvedLog] = {}
    losses = Losses(options, locations.shown)
    asked: dict[TopicIdPartition, OffsetRange] = {}
    has_local = False
    for partition, its_places in zip(there, places, strict=True):
        limits, times = _limits(options, partition)
        source = locations.read(its_places, known, by_name=times is None and limits != OffsetRange())
        has_local |= source.local is not None
        choice = _Choice(options, locations, check)
        try:
            log = planner.add(source, limits, times, choose=choice.offsets_of)
        except SegmentGapError as error:
            error.hint = "Ask for other offsets, or read the data that exists with failOnDataLoss=false"
            if options.skips_unknown:
                error.hint = "Bring their segments back, or go on without them by failOnDataLoss=false"
            raise
        logs[partition], asked[partition] = log.resolved, choice.chosen
        losses.notes.extend(choice.losses.notes)
        losses.gaps.extend(choice.losses.gaps)
    locations.require_local(there, has_local=has_local)
    plan = planner.plan(locations.shown)
    notes = [*gone, *dict.fromkeys(plan.notes), *losses.notes, *(f"{gap.text}: passed over" for gap in plan.gaps)]
    lost = [*losses.gaps, *filter(None, (_within(gap, asked[gap.partition]) for gap in plan.gaps))]
    advice = None if _is_bounded(options) else _advice(plan, logs, is_whole=options.choice.assigned is None)
    starts = {partition: offsets.start for partition, offsets in asked.items()}
    return SparkPlan(replace(plan, notes=tuple(notes)), logs, locations.store, tuple(lost), advice, starts)


def _is_bounded(options: SparkOptions) -> bool:
    given = (options.starting_offsets, options.ending_offsets, options.starting_times, options.ending_times)
    return options.bounds is not None or any(one is not None for one in given)


def _advice(plan: ReadPlan, logs: Mapping[TopicIdPartition, ResolvedLog], *, is_whole: bool) -> str | None:
    """Which start by time would leave most unread, by what the listing says of segments: their largest timestamps, or
    else when they were uploaded. ``None`` where none would."""
    segments = [part.segment for log in logs.values() for part in log.parts]
    timed = {id(one): one.max_timestamp_ms for one in segments}
    is_by_upload = None in timed.values()
    if is_by_upload:
        timed = {id(one): one.version if one.version in _PLAUSIBLE_MS else None for one in segments}
    times = [time for time in timed.values() if time is not None]
    if len(times) < len(segments) or not times:
        return None
    first, last = min(times), max(times)
    for days in (7, 1):
        since = (last - days * _DAY_MS) // _DAY_MS * _DAY_MS
        size = sum(one.log_size for one in segments if (timed[id(one)] or 0) >= since)
        if first < since and size <= plan.size * _WORTH_TELLING:
            break
    else:
        return None
    partitions = "1 partition" if len(logs) == 1 else f"{'all ' if is_whole else ''}{len(logs)} partitions"
    return (
        f"reads {partitions}, {_size_text(plan.size)}, {'uploaded ' if is_by_upload else ''}"
        f"{_day_text(first)} to {_day_text(last)}; startingTimestamp={_day_text(since)}T00:00:00Z would read "
        f"{'about ' if is_by_upload else ''}{_size_text(size)}"
    )


def _day_text(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d")


def _size_text(size: int) -> str:
    for unit, shift in (("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size >= 1 << shift:
            return f"{size / (1 << shift):.1f} {unit}"
    return f"{size} bytes"


def cutting_of(options: SparkOptions, split_offsets: SplitOffsets, cores: int | None) -> Cutting:
    """How segments are cut: as the options say, or smaller where cores would be idle."""
    cutting = Cutting(
        split_bytes=options.split_bytes,
        most_offsets=options.max_records_per_partition,
        keeps_batches=options.min_partitions is None and split_offsets is SplitOffsets.SHARED,
        offsets=split_offsets,
        least_splits=options.min_partitions,
    )
    if cutting.cuts_by_offsets or not options.may_shrink_splits:
        return cutting
    return replace(cutting, least_splits=SPLITS_A_CORE * (cores or os.cpu_count() or 1), small_bytes=SMALL_SPLIT)


@dataclass(frozen=True, slots=True)
class Losses:
    """Offsets that were asked for and are not there, where ``failOnDataLoss`` lets a read go on without them."""

    options: SparkOptions
    shown: str
    notes: list[str] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)

    def add(self, what: str, found: int, expected: str, lost: Gap) -> None:
        """Note that offsets are not there.

        Raises:
            OffsetOutOfRangeError: a read must not go on without them.
        """
        if self.options.fail_on_data_loss:
            raise OffsetOutOfRangeError(
                what,
                source=self.shown,
                found=found,
                expected=expected,
                hint="-2 and -1 mean earliest and latest; failOnDataLoss=false reads the data that exists",
            )
        self.notes.append(f"{what}: {found}; continuing with the data that exists, {expected}")
        self.gaps.append(lost)

    def behind_target(self, partition: TopicIdPartition, end: int, first: int) -> None:
        """Note that the first segment of now begins behind where the target of a job ends.

        Raises:
            SegmentGapError: a job must not go on without what is between.
        """
        what = f"offsets of {partition} are missing between the end of the target and the first segment"
        found = f"a target that ends at {end} and segments from {first} on: {shown_count(first - end, 'offset')} "
        found += "is lost" if first - end == 1 else "are lost"
        if self.options.fail_on_data_loss:
            raise SegmentGapError(
                what, source=self.shown, offset=end, found=found, expected="segments that follow the target"
            )
        self.notes.append(f"{what}: {found}; continuing with the data that exists")
        self.gaps.append(Gap(partition, end, first))

    def end_beyond(self, partition: TopicIdPartition, stop: int, end: int) -> None:
        """As ``add``, of an end behind that of the data."""
        what = f"endingOffsets of {partition} is beyond the end of the data"
        self.add(what, stop, f"at most {end}", Gap(partition, end, stop))


def _limits(options: SparkOptions, partition: TopicIdPartition) -> tuple[OffsetRange, TimeRange | None]:
    """The bounds of what is asked for, before anything is held against what is there."""
    start = options.bounds.start if options.bounds is not None else None
    stop = options.bounds.stop if options.bounds is not None else None
    since_ms = None if options.starting_times is None else _time_of(options.starting_times, partition)
    until_ms = None if options.ending_times is None else _time_of(options.ending_times, partition)
    if since_ms is None and (options.bounds is None or options.starting_offsets is not None):
        start = options.start_of(partition.topic, partition.partition)
    if options.bounds is None and until_ms is None:
        stop = _offset_of(options.ending_offsets, partition, LATEST)
    start, stop = max(start or 0, 0), None if stop is None or stop < 0 else stop
    times = None if since_ms is None and until_ms is None else TimeRange(since_ms, until_ms)
    return OffsetRange(start, None if stop is None else max(start, stop)), times


class _Choice:
    """Decides by a log which offsets of it are read, and keeps what it decided last."""

    def __init__(
        self, options: SparkOptions, locations: Locations, check: Callable[[StoredLog], None] | None = None
    ) -> None:
        self._options, self._locations, self._check = options, locations, check
        self.losses = Losses(options, locations.shown)
        self.chosen = OffsetRange()

    def offsets_of(self, log: StoredLog) -> OffsetRange:
        """The offsets; raises as ``plan_splits``."""
        if self._check is not None:
            self._check(log)
        self.losses = Losses(self._options, self._locations.shown)
        self.chosen = _Wanted(self._options, self._locations, log, self.losses).offsets()
        return self.chosen


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Which offsets of one partition are asked for."""

    options: SparkOptions
    locations: Locations
    stored: StoredLog
    losses: Losses

    @property
    def log(self) -> ResolvedLog:
        return self.stored.resolved

    def offsets(self) -> OffsetRange:
        """The start and the end that the options say, held against what is there."""
        options, log = self.options, self.log
        start = self._start()
        stop = self._stop()
        if stop is not None and start > stop:
            if options.bounds is not None or options.skips_unknown:  # a job that goes on may have read farther before
                return OffsetRange(start, start)
            if options.ending_offsets is not None and stop < log.start:
                raise OptionError(f"endingOffsets of {log.partition} is before its start", found=stop, expected=start)
            raise start_beyond_end(log.partition, start, stop)
        return OffsetRange(start, stop)

    def _start(self) -> int:
        options, log = self.options, self.log
        if options.starting_times is not None:
            return self._start_by_time(_time_of(options.starting_times, log.partition))
        if options.bounds is not None and options.starting_offsets is None:
            return options.bounds.start or 0
        start = options.start_of(log.partition.topic, log.partition.partition)
        if start == EARLIEST:
            return log.first
        if start < log.start and options.skips_unknown:
            self.losses.behind_target(log.partition, start, log.start)
            return log.start
        if start < log.start:
            what = f"startingOffsets of {log.partition} is before the first segment"
            self.losses.add(what, start, f"{log.start} or later", Gap(log.partition, start, log.start))
            return log.start
        if options.skips_unknown:  # a job has held it against the log: it may have been told to begin farther on
            return start
        end = self.stored.open_end if log.parts and start > log.parts[-1].start else None
        if end is not None and start > end:
            raise OptionError(
                f"startingOffsets of {log.partition} is beyond the end of the data",
                source=self.locations.shown,
                found=start,
                expected=f"at most {end}",
            )
        return start

    def _start_by_time(self, time_ms: int) -> int:
        found = self.stored.offset_for(time_ms)
        if found is not None:
            return found
        if self.options.starts_at_latest:
            return self.stored.open_end
        raise nothing_as_new(self.log.partition, time_ms, self.locations.shown)

    def _stop(self) -> int | None:
        options, log = self.options, self.log
        if options.ending_times is not None:
            return self.stored.offset_for(_time_of(options.ending_times, log.partition))
        if options.bounds is not None:
            return options.bounds.stop
        stop = _offset_of(options.ending_offsets, log.partition, LATEST)
        if stop == LATEST:
            return None
        end = self.stored.open_end if not log.parts or stop > log.parts[-1].start else None
        if end is not None and stop > end:
            self.losses.end_beyond(log.partition, stop, end)
            return end
        return stop


def start_beyond_end(partition: TopicIdPartition, start: int, stop: int) -> OptionError:
    """The error of a start behind its end."""
    return OptionError(
        f"the start of {partition} is beyond its end", found=f"start {start}, end {stop}", expected="an order"
    )


def nothing_as_new(partition: TopicIdPartition, time_ms: int, shown: str) -> OffsetOutOfRangeError:
    """The error of a start by time behind everything that is there."""
    return OffsetOutOfRangeError(
        f"nothing in {partition} is as new as {time_ms}",
        source=shown,
        expected="a record with that timestamp or a later one",
        hint="startingOffsetsByTimestampStrategy=latest reads nothing there instead",
    )


def _within(gap: Gap, asked: OffsetRange) -> Gap | None:
    """The part of a gap, and of what it holds back, that was asked for."""
    start = max(asked.start, gap.start if gap.held_back is None else min(gap.start, gap.held_back))
    stop = gap.stop if asked.stop is None else min(gap.stop, asked.stop)
    return replace(gap, start=start, stop=stop, held_back=None) if start < stop else None


def require_same_partitions(options: SparkOptions, chosen: Collection[TopicIdPartition]) -> list[str]:
    """Refuse offsets and times that do not name exactly the partitions that are read.

    Returns:
        What to note of those that ``starting_offsets`` names and that are gone, where the options allow it.

    Raises:
        OptionError: with those that are missing or unknown.
    """
    there = {str(partition) for partition in chosen}
    notes: list[str] = []
    for name, offsets in (
        ("startingOffsets", options.starting_offsets),
        ("endingOffsets", options.ending_offsets),
        ("startingOffsetsByTimestamp", options.starting_times),
        ("endingOffsetsByTimestamp", options.ending_times),
    ):
        if offsets is None or isinstance(offsets, int):
            continue
        named = {f"{topic}-{partition}" for topic, partitions in offsets.items() for partition in partitions}
        is_start = name == "startingOffsets"
        missing, unknown = sorted(there - named), sorted(named - there)
        if missing and not (is_start and options.starting_offsets_default is not None):
            raise OptionError(
                f"{name} must name every partition that is read; it lacks {', '.join(missing)}",
                hint=OTHERS_FROM_EARLIEST if is_start else None,
            )
        if unknown and not (is_start and options.skips_unknown):
            raise OptionError(f"{name} names partitions that are not read: {', '.join(unknown)}")
        notes += [f"{one}: no segment is left; nothing is read" for one in unknown]
    return notes


def _offset_of(offsets: PartitionOffsets | None, partition: TopicIdPartition, default: int) -> int:
    return default if offsets is None else offsets[partition.topic][partition.partition]


def _time_of(times: Times, partition: TopicIdPartition) -> int:
    return times if isinstance(times, int) else times[partition.topic][partition.partition]


@dataclass(frozen=True, slots=True)
class IndexOfPart:
    """A transaction index whose rows count if their marker is at ``start <= offset < stop``."""

    name: str
    base_offset: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class LightSplit:
    """A split with few aborted transactions, or none and where they are.

    Args:
        split: everything else.
        indexes: what holds them, if they are many.
        is_replayed: they must be found again from the listing.
    """

    split: Split
    indexes: tuple[IndexOfPart, ...] = ()
    is_replayed: bool = False

    def __reduce__(self) -> tuple[Any, ...]:
        """Values without the classes around them: a plan has a hundred thousand splits, and each is a pickle."""
        packed = pack_split(self.split, most_logs=_MOST_LOGS, room_for_logs=_ROOM_FOR_LOGS)
        return _unpacked, (*packed, self.indexes, self.is_replayed)

    def open(self, store: ObjectStore, resolve: ResolveLog) -> Split:
        """The whole split.

        Args:
            store: where it is read.
            resolve: asked only if the aborted transactions must be found again.

        Raises:
            FormatError, StorageError: a transaction index cannot be read (any more).
        """
        if self.indexes:
            rows = read_each(lambda one: _rows_of(store, one), self.indexes)
            return replace(
                self.split, aborted=_in_reach(self.split, AbortedTransactions([row for some in rows for row in some]))
            )
        if self.is_replayed:
            state = read_transaction_state(store, resolve(self.split.partition), self.split.offsets)
            return replace(self.split, aborted=_in_reach(self.split, state.aborted))
        return self.split


def _unpacked(*values: Any) -> LightSplit:
    *packed, indexes, is_replayed = values
    return LightSplit(unpack_split(packed), indexes, is_replayed)


class SplitPacker:
    """Makes splits light. It reads the transaction indexes that it names, to be sure that they say the same."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._rows = lru_cache(maxsize=_KEPT)(lambda index: frozenset(_rows_of(store, index)))
        self._named: dict[int, tuple[AbortedTransactions, tuple[IndexOfPart, ...]]] = {}

    def pack(self, split: Split, log: ResolvedLog) -> LightSplit:
        """The split as it travels.

        Args:
            split: of a plan.
            log: the same partition: whose segments hold the markers.
        """
        if not len(split.aborted):
            return LightSplit(split)
        mine = _in_reach(split, split.aborted)
        if len(mine) <= _FEW and len(mine.to_bytes()) <= _ROOM:
            return LightSplit(split if mine is split.aborted else replace(split, aborted=mine))
        indexes = self._indexes_of(split.aborted, log)
        return LightSplit(replace(split, aborted=_NONE), indexes, not indexes)

    def _indexes_of(self, aborted: AbortedTransactions, log: ResolvedLog) -> tuple[IndexOfPart, ...]:
        """The indexes that hold all of them; none if there are none. The splits of one segment share the answer."""
        known = self._named.get(id(aborted))
        if known is None:
            known = self._named[id(aborted)] = aborted, self._find_indexes(aborted, log)
        return known[1]

    def _find_indexes(self, aborted: AbortedTransactions, log: ResolvedLog) -> tuple[IndexOfPart, ...]:
        indexes = _indexes_of(aborted, log)
        if len(zlib.compress(pickle.dumps(indexes), 1)) > _ROOM:
            return ()
        try:
            rows = frozenset().union(*map(self._rows, indexes))
        except (FormatError, ObjectNotFoundError):
            return ()
        return indexes if rows.issuperset(aborted) else ()


def _in_reach(split: Split, aborted: AbortedTransactions) -> AbortedTransactions:
    """The aborted transactions that can touch what the split holds: fewer than those of its whole segment."""
    start = max(split.offsets.start, split.base_offset)
    stop = (1 << 63) if split.offsets.stop is None else split.offsets.stop
    if split.offset_bound is not None:
        stop = min(stop, split.offset_bound + 1)
    return aborted.within(start, max(start, stop))


def _indexes_of(aborted: AbortedTransactions, log: ResolvedLog) -> tuple[IndexOfPart, ...]:
    """The transaction indexes of the parts that have the markers; none if a part has no index."""
    starts = [part.start for part in log.parts]
    found: dict[int, IndexOfPart] = {}
    for row in aborted:
        at = bisect_right(starts, row.last_offset) - 1
        if at < 0 or at in found:
            if at < 0:
                return ()
            continue
        part = log.parts[at]
        name = part.segment.files.transaction_index
        if name is None or row.last_offset >= part.stop:
            return ()
        found[at] = IndexOfPart(name, part.segment.base_offset, part.start, part.stop)
    return tuple(found[at] for at in sorted(found))


def _rows_of(store: ObjectStore, index: IndexOfPart) -> list[AbortedTransaction]:
    found = Findings(store)
    rows = check_transaction_index(found, read_whole(store, index.name), index.name, index.base_offset, None)
    settle_transaction_index(found)
    return [row for row in rows if index.start <= row.last_offset < index.stop]
