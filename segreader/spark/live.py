"""Reads of live topics: the plan that the driver makes with the brokers, and the records of each part in its task.

Planning runs where ``planning`` does. Brokers list the partitions, and where each of them ends. What is in the store is
read there, for that spares the brokers; what is not comes from them, or by locations that they return. The ends are
taken once, so a plan is a snapshot.

A part holds names and numbers: no client, no URL, no secret. A task asks for what it needs with a client that its
worker keeps, and reports which source each record came from.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import field, replace
from typing import Any

import pyarrow as pa

from segreader.broker.messages import EARLIEST as EARLIEST_OF_BROKER
from segreader.broker.messages import LATEST as LATEST_OF_BROKER
from segreader.broker.messages import ListedOffset, OffsetWanted, TopicMetadata
from segreader.catalog.layouts.base import PartitionPlace
from segreader.catalog.listing import EVERYTHING, Wanted
from segreader.errors import ObjectNotFoundError, OffsetOutOfRangeError, UnknownLayoutError, shown_count
from segreader.isolation import IsolationLevel
from segreader.live.cluster import Cluster
from segreader.live.locations import UrlCache, open_located
from segreader.live.marks import find_topic, require_listed
from segreader.live.planner import plan_topics
from segreader.live.reader import LiveReader
from segreader.plan.cut import SplitOffsets
from segreader.plan.live import LivePart, LivePlan, ReadFrom, narrowed
from segreader.plan.request import Bounds, LiveEnd, Policy, ReadOptions, Request
from segreader.plan.split import Gap
from segreader.ranges import OffsetRange
from segreader.read.metrics import LiveMetrics, MissingOffsets
from segreader.segment import TopicIdPartition
from segreader.spark.checkpoint import TopicPartition, flat
from segreader.spark.credentials import resolve_storage
from segreader.spark.locations import Locations, kept_locations
from segreader.spark.option_values import EARLIEST, LATEST
from segreader.spark.options import SparkOptions
from segreader.spark.planning import Losses, cutting_of, nothing_as_new, require_same_partitions, start_beyond_end
from segreader.spark.worker import this_worker
from segreader.storage.base import ObjectStore
from segreader.stored.source import Known, SourceLog, Wants
from segreader.values import dataclass

logger = logging.getLogger(__name__)

Range = tuple[int | None, int | None]
"""First offset and stop; ``None`` for the first there is, and for the end."""


@dataclass(frozen=True, slots=True)
class LiveRead:
    """What a read does.

    Args:
        lost: what was asked for and is deleted or not there, if the options let a read go on without it.
        log_ends: where the logs ended after the plan was made, beyond the last stable offset, if that was asked for.
    """

    plan: LivePlan
    lost: tuple[Gap, ...] = ()
    log_ends: Mapping[TopicPartition, ListedOffset] = field(default_factory=dict)

    def light_splits(self) -> list[LivePart]:
        """The parts as they travel, largest first, as far as that is known; then those with most offsets."""
        return sorted(self.plan.parts, key=lambda part: (-(part.size or 0), part.offsets.start - part.stop))


class LivePlanner:
    """Cluster client and remote store of one planning session; close it afterwards.

    Args:
        cluster: the brokers.
        options: of the read.
    """

    def __init__(self, cluster: Cluster, options: SparkOptions) -> None:
        self.cluster, self._options = cluster, options
        self._locations = Locations(options) if options.locations else None
        self._located: tuple[UrlCache, ObjectStore] | None = None
        if self._locations is None:
            self._located = open_located(_storage_of_locations(options))

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
                f"no topic matches {choice.pattern!r}", source=cluster.shown, found=shown_count(len(seen), "topic")
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
            missing = [one for one in wanted if one not in there and not self._options.may_lack(name, one)]
            if missing:
                raise ObjectNotFoundError(
                    f"partition {', '.join(map(str, missing))} of {name} is not there",
                    source=self.cluster.shown,
                    found=shown_count(len(there), "partition"),
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
            require_listed(one, self.cluster)
        return {(one.topic, one.partition): one for one in answers}

    def plan(
        self,
        ranges: Mapping[TopicPartition, Range],
        end: LiveEnd = LiveEnd.LATEST,
        *,
        most_unsized: int | None = None,
    ) -> LivePlan:
        """The plan of these offsets, by partition; each part is the work of one task.

        Args:
            end: of those without a stop.
            most_unsized: how many offsets a part may have of which the stored bytes are not known.

        Raises:
            as ``plan_live``.
        """
        options = self._options
        source = None if self._locations is None else _LocationsSource(self._locations)
        alike: dict[tuple[str, Range], list[int]] = defaultdict(list)
        for (topic, number), wanted in sorted(ranges.items()):
            alike[topic, wanted].append(number)
        requests = [
            Request(
                topic=topic,
                partitions=tuple(numbers),
                bounds=Bounds(*wanted, end),
                isolation_level=options.isolation_level,
                prefers_store=source is not None,
            )
            for (topic, wanted), numbers in alike.items()
        ]
        cutting = replace(cutting_of(options, SplitOffsets.INDEXED, None), most_unsized=most_unsized)
        try:
            plan = plan_topics(
                self.cluster,
                requests,
                options.read_options,
                source=source,
                located=self._located,
                cutting=cutting,
            )
        except OffsetOutOfRangeError as error:
            error.hint = "-2 and -1 mean the earliest and the latest offset; failOnDataLoss=false reads what is left"
            raise
        return replace(plan, location=options.location, notes=tuple(dict.fromkeys(plan.notes)))

    def close(self) -> None:
        """Give back what was opened here; the cluster stays open."""
        if self._locations is not None:
            self._locations.close()
        if self._located is not None:
            self._located[1].close()


class _LocationsSource:
    """The locations of a read as a source of segments for a planner that asks brokers.

    Where those of a topic are is looked up once. The locations stay open.
    """

    def __init__(self, locations: Locations) -> None:
        self._locations = locations
        self.store = locations.store
        self.shown = locations.shown
        self._places: dict[str, Sequence[Sequence[PartitionPlace]]] = {}
        self._known: Known | None = None
        self._lock = threading.Lock()

    def logs(self, wanted: Wanted = EVERYTHING, wants: Wants | None = None) -> Iterator[SourceLog]:
        """The partitions of one topic.

        Raises:
            ObjectNotFoundError: nothing is uploaded of those asked for; the brokers have them.
            CatalogError, StorageError: while listing.
        """
        if wanted.partitions is not None and not wanted.partitions:
            return  # a stream that follows brokers lists nothing
        is_there = False
        found, known = self._found(wanted.topic or "")
        for places in found:
            one = places[0].partition
            if wanted.topic_id in (None, one.topic_id) and (
                wanted.partitions is None or one.partition in wanted.partitions
            ):
                is_there = True
                if wants is None or wants(one):
                    yield self._locations.read(places, known)
        if not is_there:
            raise ObjectNotFoundError("nothing of it is uploaded here", source=self.shown)

    def _found(self, topic: str) -> tuple[Sequence[Sequence[PartitionPlace]], Known]:
        with self._lock:
            if self._known is None:
                metadata = self._locations.read_metadata(self._locations.wanted)
                self._known = Known(metadata)  # the brokers tell the lineage
            if topic not in self._places:
                try:
                    self._places[topic] = self._locations.places_of(topic)
                except UnknownLayoutError:  # a cluster that has uploaded nothing yet
                    self._places[topic] = ()
            return self._places[topic], self._known


def plan_live_read(
    options: SparkOptions,
    *,
    most_unsized: int | None = None,
    check: Callable[[Cluster, Collection[TopicIdPartition]], None] | None = None,
) -> LiveRead:
    """What a Spark read with these options reads, of live topics.

    Args:
        most_unsized: as ``LivePlanner.plan``.
        check: called with the chosen partitions before anything is planned; then the plan tells ``log_ends``, too.

    Raises:
        ObjectNotFoundError: a topic or a partition is not there, or no topic matches.
        OptionError: offsets do not name exactly the partitions that are read, or a start is beyond its end.
        OffsetOutOfRangeError: offsets or times lie outside of what is there (``failOnDataLoss``).
        BrokerError, CatalogError, StorageError: it cannot be planned.
    """
    assert options.brokers is not None
    with closing(options.brokers.connect()) as cluster, closing(LivePlanner(cluster, options)) as planner:
        topics = planner.topics()
        chosen = planner.partitions(topics)
        ids = {name: TopicIdPartition(*name, topics[name[0]].topic_id) for name in chosen}
        gone = require_same_partitions(options, list(ids.values()))
        if check is not None:
            check(cluster, ids.values())
        starts, stops = _starts(planner, options, ids), _stops(planner, options, chosen)
        bounds = options.bounds
        for name in chosen:
            start, stop = starts[name], stops[name]
            if start is not None and stop is not None and start > stop and bounds is None:
                if not options.skips_unknown:
                    raise start_beyond_end(ids[name], start, stop)
                stops[name] = start  # a job that goes on may have read farther before
        ranges = {name: (starts[name], stops[name]) for name in chosen}
        end = LiveEnd.LATEST if bounds is None else bounds.end
        plan = planner.plan(ranges, end, most_unsized=most_unsized)
        log_ends: Mapping[TopicPartition, ListedOffset] = {}
        if check is not None:
            wanted = [OffsetWanted(*name, LATEST_OF_BROKER) for name in chosen]
            log_ends = planner.listed(wanted, IsolationLevel.READ_UNCOMMITTED)
    losses = Losses(options, cluster.shown)
    for one in plan.partitions_asked:
        stop, last = stops[one.partition.topic, one.partition.partition], one.seam.stop
        if stop is not None and stop > max(last, one.marks.log_start) and bounds is None:
            losses.end_beyond(one.partition, stop, last)
    notes = (*gone, *plan.notes, *(f"{gap.text}: passed over" for gap in plan.gaps), *losses.notes)
    return LiveRead(replace(plan, notes=notes), (*plan.gaps, *losses.gaps), log_ends)


def _starts(
    planner: LivePlanner, options: SparkOptions, chosen: Mapping[TopicPartition, TopicIdPartition]
) -> dict[TopicPartition, int | None]:
    if options.starting_times is None:
        if options.bounds is not None and options.starting_offsets is None:
            return dict.fromkeys(chosen, options.bounds.start)
        given = {name: options.start_of(*name) for name in chosen}
        return {name: None if start == EARLIEST else start for name, start in given.items()}
    found = _at_times(planner, options.starting_times, chosen)
    starts: dict[TopicPartition, int | None] = {name: one for name, one in found.items() if one is not None}
    late = [name for name in chosen if name not in starts]
    if late and not options.starts_at_latest:
        times = options.starting_times
        time_ms = times if isinstance(times, int) else flat(times)[late[0]]
        raise nothing_as_new(chosen[late[0]], time_ms, planner.cluster.shown)
    ends = planner.listed([OffsetWanted(*name, LATEST_OF_BROKER) for name in late])
    return starts | {name: one.offset for name, one in ends.items()}


def _stops(
    planner: LivePlanner, options: SparkOptions, chosen: Iterable[TopicPartition]
) -> dict[TopicPartition, int | None]:
    if options.ending_times is not None:
        return dict(_at_times(planner, options.ending_times, chosen))
    if options.bounds is not None:
        return dict.fromkeys(chosen, options.bounds.stop)
    given = flat(options.ending_offsets or {})
    return {name: None if (stop := given.get(name, LATEST)) == LATEST else stop for name in chosen}


def _at_times(
    planner: LivePlanner, times: int | Mapping[str, Mapping[int, int]], chosen: Iterable[TopicPartition]
) -> dict[TopicPartition, int | None]:
    """The first offset that is not older, of each partition; ``None`` where all are. Markers count, as for a broker."""
    by_name = dict.fromkeys(chosen, times) if isinstance(times, int) else flat(times)
    found = planner.listed([OffsetWanted(*name, by_name[name]) for name in chosen])
    return {name: None if found[name].offset < 0 else found[name].offset for name in chosen}


def read_part(
    options: SparkOptions, part: LivePart, read_options: ReadOptions, metrics: LiveMetrics
) -> Iterator[pa.RecordBatch]:
    """The records of one part, in offset order, with clients that this worker keeps.

    Args:
        metrics: counts them by source; what retention took since the plan was made is in ``missing`` there, where the
            options let a read go on without it.

    Raises:
        OffsetOutOfRangeError: retention took it (``failOnDataLoss``).
        SegreaderError: as ``LiveReader.read``.
    """
    assert options.brokers is not None
    with ExitStack() as stack:
        cluster = stack.enter_context(this_worker().cluster(options.brokers))
        store = None
        located = None
        if part.read_from is ReadFrom.STORE:
            store = stack.enter_context(kept_locations(options)).store
        elif part.read_from is ReadFrom.LOCATION:
            located = open_located(_storage_of_locations(options))
            stack.callback(located[1].close)
        read_options = replace(read_options, on_gap=options.read_options.on_gap)
        reader = LiveReader(cluster, read_options, store=store, located=located, metrics=metrics)
        fails = options.read_options.on_missing is Policy.FAIL
        for batch in _retained(cluster, reader, part, metrics, fails=fails):
            yield _without_positions(batch)
    counts = ", ".join(f"{one.records} from the {name}" for name, one in metrics.sources.items() if one.parts)
    logger.info("%s: offsets %d to %d: %s", part.partition, part.offsets.start, part.stop - 1, counts)


def _without_positions(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same with no place in a file: what a broker sends has none, and a part may come from both."""
    at = batch.schema.get_field_index("position")
    if at < 0:
        return batch
    field = batch.schema.field(at)
    return batch.set_column(at, field, pa.nulls(len(batch), field.type))


def _storage_of_locations(options: SparkOptions) -> dict[str, Any]:
    """The storage options by which URLs that brokers tell are read: which hosts, which certificates.

    A provider of credentials is not asked: the URLs are signed.
    """
    return dict(resolve_storage("default", "https://", options.storage))


def _retained(
    cluster: Cluster, reader: LiveReader, part: LivePart, metrics: LiveMetrics, *, fails: bool
) -> Iterator[pa.RecordBatch]:
    """What is left of a part where retention takes offsets away while it is read."""
    while True:
        try:
            yield from reader.read(part)
            return
        except OffsetOutOfRangeError as error:
            if fails:
                error.hint = "Deleted after the plan was made: load() plans anew, failOnDataLoss=false goes on"
                raise
            place = part.partition
            wanted = [OffsetWanted(place.topic, place.partition, EARLIEST_OF_BROKER)]
            (first,) = cluster.list_offsets(wanted, part.isolation_level)
            start, stop = reader.delivered, min(first.offset, part.stop)
            if first.error or start >= stop:  # it was not retention
                raise
            metrics.missing.append(MissingOffsets(place, start, stop, str(error)))
        if stop >= part.stop:
            return
        part = replace(narrowed(part, OffsetRange(stop, part.stop)), read_from=ReadFrom.BROKER, splits=(), aborted=None)
