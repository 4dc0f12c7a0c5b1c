"""From options to a plan where brokers are asked: they say which partitions there are, and where each of them ends.

Runs where ``planning`` does. What is in the store is read there, for that spares the brokers; what is not comes from
them, or by locations that they tell. The ends are taken once, so a plan is a snapshot.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from segreader.broker.messages import LATEST as LATEST_OF_BROKER
from segreader.broker.messages import ListedOffset, OffsetWanted, TopicMetadata
from segreader.broker.protocol import describe
from segreader.errors import BrokerError, ObjectNotFoundError, OffsetOutOfRangeError, OptionError
from segreader.isolation import IsolationLevel
from segreader.live.cluster import Cluster
from segreader.live.locations import UrlCache, open_located
from segreader.live.marks import find_topic
from segreader.live.planner import plan_live
from segreader.plan.cut import UNCUT, Cutting
from segreader.plan.live import LivePart, LivePlan
from segreader.plan.request import Bounds, LiveEnd, Request
from segreader.plan.split import Gap
from segreader.segment import TopicIdPartition
from segreader.spark.live_cutting import cut_parts, joined
from segreader.spark.live_parts import storage_of_locations
from segreader.spark.live_source import LocationsSource
from segreader.spark.locations import Locations
from segreader.spark.option_values import EARLIEST, LATEST
from segreader.spark.options import SparkOptions
from segreader.spark.planning import SMALL_SPLIT, SPLITS_A_CORE, require_same_partitions
from segreader.spark.stream_offsets import TopicPartition, flat
from segreader.storage.base import ObjectStore, read_each

Range = tuple[int | None, int | None]
"""First offset and stop; ``None`` for the first there is, and for the end."""


@dataclass(frozen=True, slots=True)
class LiveRead:
    """What a read does.

    Args:
        plan: as brokers and the store say, one part a segment.
        parts: cut for tasks; their offsets follow each other.
        lost: what was asked for and is deleted or not there, if the options let a read go on without it.
    """

    plan: LivePlan
    parts: tuple[LivePart, ...]
    lost: tuple[Gap, ...] = ()

    def light_splits(self) -> list[LivePart]:
        """The parts as they travel, largest first, as far as that is known; then those with most offsets."""
        return sorted(self.parts, key=lambda part: (-(part.size or 0), part.offsets.start - part.stop))


class Tier:
    """Brokers, and what holds the remote tier beside them, as long as a driver plans.

    Args:
        cluster: the brokers.
        options: of the read.
    """

    def __init__(self, cluster: Cluster, options: SparkOptions) -> None:
        self.cluster, self._options = cluster, options
        self.locations = Locations(options) if options.locations else None
        self._located: tuple[UrlCache, ObjectStore] | None = None
        if self.locations is None:
            self._located = open_located(storage_of_locations(options))

    @property
    def store(self) -> ObjectStore | None:
        """The store of the remote tier, where one is named."""
        return None if self.locations is None else self.locations.store

    def topics(self, *, passes_over_missing: bool = False) -> dict[str, TopicMetadata]:
        """The chosen topics as the cluster has them.

        Args:
            passes_over_missing: whether those that are not there are left out.

        Raises:
            ObjectNotFoundError: one that is named is not there, or none matches the pattern.
            BrokerError: it cannot be read, or not by this user.
        """
        choice, cluster = self._options.choice, self.cluster
        if choice.pattern is None:
            named = {}
            for name in choice.names:
                try:
                    named[name] = find_topic(cluster, name)
                except ObjectNotFoundError:
                    if not passes_over_missing:
                        raise
            return named
        seen = cluster.metadata(None).topics
        found = {
            one.name: one
            for one in sorted(seen, key=lambda one: one.name or "")
            if one.name is not None and not one.is_internal and not one.error and choice.matches(one.name)
        }
        if not found and not passes_over_missing:
            raise ObjectNotFoundError(
                f"no topic matches {choice.pattern!r}", source=cluster.shown, found=f"{len(seen)} topics"
            )
        return found

    def partitions(self, topics: Mapping[str, TopicMetadata]) -> list[TopicPartition]:
        """The chosen partitions.

        Raises:
            ObjectNotFoundError: one that is assigned is not there (``failOnDataLoss``).
        """
        chosen: list[TopicPartition] = []
        for name, topic in topics.items():
            there = {one.partition for one in topic.partitions}
            wanted = (self._options.choice.assigned or {}).get(name, tuple(sorted(there)))
            missing = [number for number in wanted if number not in there]
            if missing and self._options.fail_on_data_loss:
                raise ObjectNotFoundError(
                    f"partition {', '.join(map(str, missing))} of {name} is not there",
                    source=self.cluster.shown,
                    found=f"{len(there)} partitions",
                )
            chosen += [(name, number) for number in wanted if number in there]
        return chosen

    def listed(
        self, wanted: Sequence[OffsetWanted], isolation_level: IsolationLevel | None = None
    ) -> dict[TopicPartition, ListedOffset]:
        """One offset of each partition, as leaders tell it.

        Args:
            isolation_level: for whom; that of the read by default.

        Raises:
            BrokerError: a leader does not tell it.
        """
        level = isolation_level or self._options.isolation_level
        answers = self.cluster.list_offsets(wanted, level) if wanted else ()
        for one in answers:
            if one.error:
                raise BrokerError(
                    f"an offset of {one.topic}-{one.partition} cannot be looked up",
                    source=self.cluster.shown,
                    code=one.error,
                    found=describe(one.error),
                )
        return {(one.topic, one.partition): one for one in answers}

    def plan(self, ranges: Mapping[TopicPartition, Range], end: LiveEnd = LiveEnd.LATEST) -> LivePlan:
        """The plan of these offsets, by partition.

        Args:
            end: of those without a stop.

        Raises:
            as ``plan_live``.
        """
        source = None if self.locations is None else LocationsSource(self.locations)
        alike: dict[tuple[str, Range], list[int]] = defaultdict(list)
        for (topic, number), wanted in sorted(ranges.items()):
            alike[topic, wanted].append(number)
        requests = [
            Request(
                topic=topic,
                partitions=tuple(numbers),
                bounds=Bounds(*wanted, end),
                isolation_level=self._options.isolation_level,
                prefers_store=source is not None,
            )
            for (topic, wanted), numbers in alike.items()
        ]
        plans = read_each(lambda one: self._planned(one, source), requests)
        return LivePlan(
            self._options.location,
            tuple(split for plan in plans for split in plan.splits),
            tuple(sorted((end for plan in plans for end in plan.ends), key=lambda end: end.partition.order)),
            tuple(gap for plan in plans for gap in plan.gaps),
            tuple(one for plan in plans for one in plan.dropped),
            tuple(dict.fromkeys(note for plan in plans for note in plan.notes)),
            tuple(joined(part for plan in plans for part in plan.parts)),
            tuple(one for plan in plans for one in plan.partitions_asked),
        )

    def _planned(self, request: Request, source: LocationsSource | None) -> LivePlan:
        options = replace(self._options.read_options, split_bytes=UNCUT)
        try:
            return plan_live(self.cluster, request, options, source=source, located=self._located)
        except OffsetOutOfRangeError as error:
            error.hint = "-2 and -1 mean the earliest and the latest offset; failOnDataLoss=false reads what is left"
            raise

    def cut(self, plan: LivePlan, cores: int | None = None) -> tuple[LivePart, ...]:
        """The parts of a plan for tasks: ``splitBytes``, ``minPartitions``, ``maxRecordsPerPartition``.

        Args:
            cores: how many tasks run at once; those of this machine by default.
        """
        options = self._options
        most = options.max_records_per_partition
        if options.min_partitions is not None:
            total = sum(part.stop - part.offsets.start for part in plan.parts)
            share = max(1, total // options.min_partitions)
            most = share if most is None else min(most, share)
        cutting = Cutting(split_bytes=options.split_bytes, most_offsets=most)
        if most is None and options.may_shrink_splits:
            least = SPLITS_A_CORE * (cores or os.cpu_count() or 1)
            cutting = replace(cutting, least_splits=least, small_bytes=SMALL_SPLIT)
        return tuple(cut_parts(self.store, plan.parts, cutting.of_all([part.size or 0 for part in plan.parts])))

    def close(self) -> None:
        """Give back what was opened here; the cluster stays open."""
        if self.locations is not None:
            self.locations.close()
        if self._located is not None:
            self._located[1].close()


@contextmanager
def opened_tier(options: SparkOptions) -> Iterator[Tier]:
    """The brokers and the store of a read, for the time of the block."""
    assert options.brokers is not None
    with ExitStack() as stack:
        cluster = options.brokers.connect()
        stack.callback(cluster.close)
        tier = Tier(cluster, options)
        stack.callback(tier.close)
        yield tier


def plan_live_read(options: SparkOptions, *, cores: int | None = None) -> LiveRead:
    """What a Spark read with these options reads, of live topics.

    Args:
        cores: as ``Tier.cut``.

    Raises:
        ObjectNotFoundError: a topic or a partition is not there, or no topic matches.
        OptionError: offsets do not name exactly the partitions that are read, or a start is beyond its end.
        OffsetOutOfRangeError: offsets or times lie outside of what is there (``failOnDataLoss``).
        BrokerError, CatalogError, StorageError: it cannot be planned.
    """
    with opened_tier(options) as tier:
        return plan_tier(tier, options, cores=cores)


def plan_tier(tier: Tier, options: SparkOptions, *, cores: int | None = None) -> LiveRead:
    """As ``plan_live_read``, with what is opened already."""
    topics = tier.topics()
    chosen = tier.partitions(topics)
    ids = [TopicIdPartition(topic, number, topics[topic].topic_id) for topic, number in chosen]
    for name, offsets in (
        ("startingOffsets", options.starting_offsets),
        ("endingOffsets", options.ending_offsets),
        ("startingOffsetsByTimestamp", options.starting_times),
        ("endingOffsetsByTimestamp", options.ending_times),
    ):
        if offsets is not None and not isinstance(offsets, int):
            require_same_partitions(name, offsets, ids)
    starts, stops = _starts(tier, options, chosen), _stops(tier, options, chosen)
    bounds = options.bounds
    for one in chosen:
        start, stop = starts[one], stops[one]
        if start is not None and stop is not None and start > stop and bounds is None:
            raise OptionError(
                f"the start of {one[0]}-{one[1]} is beyond its end",
                found=f"start {start}, end {stop}",
                expected="an order",
            )
    end = LiveEnd.LATEST if bounds is None else bounds.end
    plan = tier.plan({one: (starts[one], stops[one]) for one in chosen}, end)
    lost = [*plan.gaps]
    notes = [*plan.notes, *(f"{gap.text}: passed over" for gap in plan.gaps)]
    for told in plan.partitions_asked:
        stop, last = stops[told.partition.topic, told.partition.partition], told.seam.stop
        if stop is not None and stop > max(last, told.marks.log_start) and bounds is None:
            text = f"endingOffsets of {told.partition} is beyond the end of the data"
            if options.fail_on_data_loss:
                raise OffsetOutOfRangeError(
                    text,
                    source=tier.cluster.shown,
                    found=stop,
                    expected=f"at most {last}",
                    hint="-1 means the end; failOnDataLoss=false reads the data that exists",
                )
            notes.append(f"{text}: {stop}; continuing with the data that exists, at most {last}")
            lost.append(Gap(told.partition, last, stop))
    plan = replace(plan, notes=tuple(notes))
    return LiveRead(plan, tier.cut(plan, cores), tuple(lost))


def _starts(tier: Tier, options: SparkOptions, chosen: Sequence[TopicPartition]) -> dict[TopicPartition, int | None]:
    if options.starting_times is None:
        if options.bounds is not None:
            return dict.fromkeys(chosen, options.bounds.start)
        given = flat(options.starting_offsets or {})
        return {name: None if (start := given.get(name, EARLIEST)) == EARLIEST else start for name in chosen}
    found = at_times(tier, options.starting_times, chosen)
    starts: dict[TopicPartition, int | None] = {name: one for name, one in found.items() if one is not None}
    late = [name for name in chosen if name not in starts]
    if late and not options.starts_at_latest:
        raise nothing_as_new(tier, late[0])
    ends = tier.listed([OffsetWanted(*name, LATEST_OF_BROKER) for name in late])
    return starts | {name: one.offset for name, one in ends.items()}


def _stops(tier: Tier, options: SparkOptions, chosen: Sequence[TopicPartition]) -> dict[TopicPartition, int | None]:
    if options.ending_times is not None:
        return dict(at_times(tier, options.ending_times, chosen))
    if options.bounds is not None:
        return dict.fromkeys(chosen, options.bounds.stop)
    given = flat(options.ending_offsets or {})
    return {name: None if (stop := given.get(name, LATEST)) == LATEST else stop for name in chosen}


def at_times(
    tier: Tier, times: int | Mapping[str, Mapping[int, int]], chosen: Sequence[TopicPartition]
) -> dict[TopicPartition, int | None]:
    """The first offset that is not older, of each partition; ``None`` where all are. Markers count, as for a broker."""
    by_name = dict.fromkeys(chosen, times) if isinstance(times, int) else flat(times)
    found = tier.listed([OffsetWanted(*name, by_name[name]) for name in chosen])
    return {name: None if found[name].offset < 0 else found[name].offset for name in chosen}


def nothing_as_new(tier: Tier, name: TopicPartition) -> OffsetOutOfRangeError:
    """The error of a start by time behind everything that is there."""
    return OffsetOutOfRangeError(
        f"nothing in {name[0]}-{name[1]} is as new as the time to start from",
        source=tier.cluster.shown,
        expected="a record with that timestamp or a later one",
        hint="startingOffsetsByTimestampStrategy=latest starts at the end there instead",
    )
