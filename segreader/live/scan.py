"""A scan of partitions that a cluster still serves: the same face as ``Scan``, over remote and live data together.

``locate_offset`` shows where such a scan would read one offset.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import partial

import pyarrow as pa

from segreader.broker.rules.fallback import RemoteReads
from segreader.catalog.listing import NEWEST
from segreader.errors import OffsetOutOfRangeError, OptionError
from segreader.live.cluster import Cluster, KafkaCluster
from segreader.live.fetching import BrokerRange
from segreader.live.follow import LiveEnds
from segreader.live.locations import UrlCache, now_ms, open_located
from segreader.live.marks import choose_partitions, find_topic
from segreader.live.planner import plan_live, plan_topics
from segreader.live.reader import LiveReader
from segreader.plan.live import LivePart, LivePartition, LivePlan, ReadFrom
from segreader.plan.partitioner import KeyPartition
from segreader.plan.request import Bounds, Policy, ReadOptions, Request
from segreader.ranges import OffsetRange
from segreader.read.base_scan import BaseScan
from segreader.read.metrics import LiveMetrics, Stopwatch, timed
from segreader.read.tail import last_offsets
from segreader.storage.base import ObjectStore
from segreader.storage.metrics import metrics_of
from segreader.storage.signed_url import SignedUrl
from segreader.stored.source import Catalog, Source, open_source
from segreader.values import dataclass

KAFKA = "kafka://"
"""How a location begins that is a cluster: ``kafka://host:port[,host:port]``."""


class LiveScan(BaseScan):
    """Records of a topic from a snapshot of its live log. Made by ``segreader.scan``; it connects when first used.

    It can be read more than once: each plan is made once, so every read gives the same snapshot.

    Args:
        open_cluster: connects to the cluster on first use.
        source: the remote tier, if it can be read directly.
        open_located: makes a store for URLs from the cluster; ``None``: do not ask for locations.
        brokers: the bootstrap servers, as messages name them.
    """

    def __init__(
        self,
        open_cluster: Callable[[], Cluster],
        request: Request,
        *,
        source: Source | None = None,
        open_located: Callable[[Callable[[], None]], tuple[UrlCache, ObjectStore]] | None = None,
        options: ReadOptions | None = None,
        brokers: str = "a cluster",
    ) -> None:
        super().__init__(options or ReadOptions(), LiveMetrics())
        self._brokers = brokers
        self.request, self.isolation_level = request, request.isolation_level
        self._open_cluster, self._source, self._open_located = open_cluster, source, open_located
        self._cluster: Cluster | None = None
        self._located: tuple[UrlCache, ObjectStore] | None = None
        self._plan: LivePlan | None = None
        self._planning = LiveMetrics()
        self._snapshot_records: int | None = None  # of what is followed
        self.metrics: LiveMetrics = LiveMetrics()

    @property
    def store(self) -> ObjectStore | None:
        """The store of the remote tier, if one was given."""
        return None if self._source is None else self._source.store

    @property
    def _asked(self) -> Request:
        return self.request

    @property
    def _shown(self) -> str:
        return self._brokers if self._source is None else f"{self._source.shown} and {self._brokers}"

    @property
    def cluster(self) -> Cluster:
        """The cluster; connects on first use."""
        if self._cluster is None:
            self._cluster = self._open_cluster()
        return self._cluster

    def plan(self) -> LivePlan:
        """The plan of the read, from the leaders and the store; made once, so the end does not move.

        Raises:
            as ``plan_live``.
        """
        if self._plan is None:
            watch = Stopwatch()
            request, notes = self._chosen()
            plan = self._planned([request]) if request.last is None else self._plan_last(request, request.last)
            self._plan = replace(plan, notes=(*notes, *plan.notes)) if notes else plan
            self._plan_took = watch.so_far()
        return self._plan

    def _planned(self, requests: Sequence[Request]) -> LivePlan:
        return plan_topics(
            self.cluster,
            requests,
            self.options,
            source=self._source,
            located=self._locations(),
            metrics=self._planning,
        )

    def _plan_last(self, request: Request, count: int) -> LivePlan:
        """The plan of the last records of each partition: its end is read to find them, and more as needed."""
        ends = plan_live(self.cluster, request, self.options, metrics=self._planning)
        options = replace(self.options, columns=("offset",))

        def begin_of(asked: LivePartition) -> Request:
            alone = replace(request, partitions=(asked.partition.partition,))

            def read(offsets: OffsetRange) -> Generator[pa.RecordBatch, None, None]:
                bounds = Bounds(offsets.start, offsets.stop)
                return self._read(self._planned([replace(alone, bounds=bounds)]), options, self._planning)

            seam, is_filtered = asked.seam, options.where is not None
            found = last_offsets(read, OffsetRange(seam.start, seam.stop), count, is_filtered=is_filtered)
            return replace(alone, bounds=Bounds(found[0] if found else seam.stop, seam.stop))

        return replace(self._planned([begin_of(one) for one in ends.partitions_asked]), ends=ends.ends)

    def _chosen(self) -> tuple[Request, tuple[str, ...]]:
        """What is asked for with the one partition of a key, and what people should know of it."""
        key, topic = self.request.placed_by_key, self.request.topic or ""
        if key is None:
            return self.request, ()
        found = find_topic(self.cluster, topic, self.request.topic_id)
        numbers = choose_partitions(found, None, self.cluster.shown)
        place = KeyPartition.of(topic, found.topic_id, key, numbers, is_counted=True)
        return replace(self.request, partitions=(place.partition,)), (place.text,)

    @property
    def looked_at(self) -> int:
        """Records that the last read looked at, including those that ``last`` made the plan read."""
        read = self.metrics.records
        snapshot = read if self._snapshot_records is None else self._snapshot_records
        return max(snapshot, self._planning.records) + read - snapshot

    def _locations(self) -> tuple[UrlCache, ObjectStore] | None:
        if self._located is None and self._open_located is not None:
            self._located = self._open_located(self._refreshed)
        return self._located

    def _refreshed(self) -> None:
        self.metrics.url_refreshes += 1

    def _batches(self, options: ReadOptions) -> Iterator[pa.RecordBatch]:
        plan = self.plan()
        self.metrics = metrics = LiveMetrics(locations_rejected=self._planning.locations_rejected)
        metrics.notes += plan.notes
        if self.request.last is not None:  # what was read to find them
            metrics.requests += self._planning.requests
            metrics.bytes_read += self._planning.bytes_read
            metrics.body_bytes += self._planning.body_bytes
        yield from timed(
            self._read(plan, options, metrics), metrics, metrics_of(self.store), Stopwatch(self._plan_took)
        )

    def _read(
        self, plan: LivePlan, options: ReadOptions, metrics: LiveMetrics
    ) -> Generator[pa.RecordBatch, None, None]:
        reader = LiveReader(self.cluster, options, store=self.store, located=self._locations(), metrics=metrics)
        try:
            for part in plan.parts:
                for batch in reader.read(part):
                    self._count(metrics)
                    yield batch
        finally:
            self._count(metrics)

    def follow(self, *, every_s: float = 0.5) -> Iterator[pa.RecordBatch]:
        """The record batches of ``to_batches``, then those of new records as they arrive and the isolation level lets a
        reader see them. It never ends: leave the loop, or close the iterator.

        Args:
            every_s: seconds between two requests for the ends, while nothing is new.

        Raises:
            OptionError: the request has an end.
            TruncatedLogError, OffsetOutOfRangeError, BrokerError: it cannot continue; all records before come first.
        """
        bounds = self.request.bounds
        if bounds.stop is not None or (bounds.times is not None and bounds.times.until_ms is not None):
            raise OptionError(
                "what has an end cannot be followed", hint="Leave out the last offset and until (--until)"
            )
        return self._followed(every_s)

    def _followed(self, every_s: float) -> Generator[pa.RecordBatch, None, None]:
        request, _ = self._chosen()
        done = self.plan()
        yield from self.to_batches()
        metrics = self.metrics
        self._snapshot_records = metrics.records
        ends = LiveEnds(self.cluster, request, self.options, done, every_s=every_s, metrics=metrics)
        for plan in ends.plans():
            metrics.notes += [*plan.notes, *(gap.text for gap in plan.gaps)]
            yield from self._read(plan, self.options, metrics)

    def _count(self, metrics: LiveMetrics) -> None:
        asked = self.cluster.metrics
        metrics.locations_asked, metrics.locations_given = asked.locations_asked, asked.locations_given
        metrics.broker_requests = copy(asked.requests)

    def close(self) -> None:
        """Give back connections and threads of the store and the cluster."""
        if self._source is not None:
            self._source.store.close()
        if self._located is not None:
            self._located[1].close()
        if self._cluster is not None:
            self._cluster.close()


def read_live_part(
    cluster: Cluster,
    part: LivePart,
    options: ReadOptions,
    *,
    store: ObjectStore | None = None,
    storage_options: Mapping[str, object] | None = None,
    metrics: LiveMetrics | None = None,
    on_gap: str | None = None,
) -> Iterator[pa.RecordBatch]:
    """The records of one part of a plan, for a worker that has a client of its own.

    Args:
        store: of the location that the plan was made with; parts from the store need it.
        storage_options: which hosts a location's URL may name besides those of the clouds.
        on_gap: in place of that of ``options``.

    Raises:
        as ``LiveReader.read``.
    """
    if on_gap is not None:
        options = replace(options, on_gap=Policy.parse("on_gap", on_gap))
    located = open_located(storage_options) if part.read_from is ReadFrom.LOCATION else None
    try:
        yield from LiveReader(cluster, options, store=store, located=located, metrics=metrics).read(part)
    finally:
        if located is not None:
            located[1].close()


def bootstrap_of(
    location: str | os.PathLike[str] | None, bootstrap_servers: str | None
) -> tuple[str | None, str | None]:
    """The bootstrap servers that a location or an argument names, and the location that is left.

    Raises:
        OptionError: both name them, ``kafka://`` names none, or a user is named.
    """
    text = None if location is None else os.fspath(location)
    if "@" in str(bootstrap_servers):
        raise _not_brokers_alone("broker:9092")
    if text is None or not text.lower().startswith(KAFKA):
        return bootstrap_servers, text
    named = text[len(KAFKA) :].rstrip("/")
    if "/" in named or "@" in named or not named:
        raise _not_brokers_alone(f"{KAFKA}broker:9092")
    if bootstrap_servers is not None:
        raise OptionError("the brokers are named twice", hint="Give either kafka://… or bootstrap_servers")
    return named, None


def _not_brokers_alone(expected: str) -> OptionError:
    return OptionError(
        "a cluster is named by its brokers alone",
        expected=f"{expected}, with commas between several brokers",
        hint="Name the topic with topic (--topic), and a user with broker options",
    )


def open_live_scan(
    location: str | os.PathLike[str] | None,
    bootstrap_servers: str | None,
    request: Request,
    options: ReadOptions,
    *,
    broker_options: Mapping[str, object] | None,
    urls: Sequence[str] | None,
    storage_options: Mapping[str, object] | None,
    catalog: Catalog,
    asks_for_locations: bool,
) -> LiveScan:
    """The live scan that the arguments of ``segreader.scan`` say.

    Raises:
        OptionError: they contradict each other, or no topic is named.
    """
    brokers, place = bootstrap_of(location, bootstrap_servers)
    if not request.topic:
        raise OptionError("a live scan reads one topic", hint="Name it: topic (--topic)")
    if urls is not None:
        raise OptionError(
            "a list of URLs and brokers do not go together",
            hint="Give the location of the remote tier, or brokers alone",
        )
    if catalog.log_directory is not None or catalog.leader_epochs is not None:
        raise OptionError(
            "log_directory and leader_epochs cannot be used with brokers",
            hint="Leave them out: the leader provides both",
        )
    if request.topic_id == NEWEST:  # a cluster has no other
        request = replace(request, topic_id=None)
    source = None
    if place is not None or catalog != Catalog():
        source = open_source(place, storage_options=storage_options, catalog=catalog)
    return LiveScan(
        partial(KafkaCluster, brokers or "", broker_options),
        request,
        source=source,
        open_located=partial(open_located, storage_options) if source is None and asks_for_locations else None,
        options=options,
        brokers=f"{KAFKA}{brokers}",
    )


@dataclass(frozen=True, slots=True)
class LocatedOffset:
    """The place of an offset.

    Args:
        read_from: where a read with the same options would take it from.
        log_start, local_start, last_tiered, end: the leader's marks.
        leader_epoch: that wrote it.
        segment: name of its log in the store, or its URL without the query.
        segment_id: of the remote segment.
        first_offset, last_offset: of the segment, if they are known; the last one inclusive.
        start, stop: bytes of it that a read of the one offset would fetch.
        size: bytes of the segment.
        note: what is remarkable.
    """

    topic: str
    partition: int
    offset: int
    read_from: ReadFrom
    log_start: int
    local_start: int | None
    last_tiered: int | None
    end: int
    leader_epoch: int | None = None
    segment: str | None = None
    segment_id: str | None = None
    first_offset: int | None = None
    last_offset: int | None = None
    start: int | None = None
    stop: int | None = None
    size: int | None = None
    note: str | None = None


def locate_offset(
    cluster: Cluster, request: Request, partition: int, offset: int, *, source: Source | None = None
) -> LocatedOffset:
    """Where a read of this offset would take it from. No object is read but indexes of a store that is given.

    Args:
        request: topic, isolation level and preference.
        source: the remote tier; without it the cluster is asked for a location.

    Raises:
        OffsetOutOfRangeError: the offset is deleted, or not there yet.
        as ``plan_live``.
    """
    bounds = Bounds(offset, offset + 1)
    wanted = replace(request, partitions=(partition,), bounds=bounds)
    plan = plan_live(cluster, wanted, ReadOptions(split_bytes=1), source=source)
    if not plan.parts:
        (told,) = plan.partitions_asked
        raise OffsetOutOfRangeError(
            "this offset does not exist yet", source=cluster.shown, offset=offset, found=f"an end at {told.marks.end}"
        )
    found = _of_plan(plan, plan.parts[0], offset)
    (told,) = plan.partitions_asked
    is_remote = told.seam.seam > offset
    if found.read_from is ReadFrom.BROKER and is_remote:
        return _by_location(cluster, plan.parts[0], found)
    return found


def _of_plan(plan: LivePlan, part: LivePart, offset: int) -> LocatedOffset:
    (told,) = plan.partitions_asked
    marks = told.marks
    found = LocatedOffset(
        part.partition.topic,
        part.partition.partition,
        offset,
        part.read_from,
        marks.log_start,
        marks.local_start,
        marks.last_tiered,
        marks.end,
        part.epochs[0][0] if part.epochs else None,
        note="; ".join(plan.notes) or None,
    )
    if not part.splits:
        return found
    split = part.splits[0]
    return replace(
        found,
        segment=split.log,
        first_offset=split.base_offset,
        start=split.positions.start,
        stop=part.splits[-1].positions.stop,
        size=split.log_size,
    )


def _by_location(cluster: Cluster, part: LivePart, found: LocatedOffset) -> LocatedOffset:
    with BrokerRange(cluster, part, locations=RemoteReads(), max_bytes=1) as asked:
        answer = asked.next()
    if answer is None or answer.location is None:
        return replace(found, note="the cluster gives no location: its broker would read the store itself")
    location = answer.location
    if (reason := answer.refusal(now_ms())) is not None:
        return replace(found, note=f"the cluster's location would be dropped: {reason}")
    shown = location.object_location
    if location.signed_url is not None:
        shown = str(SignedUrl(location.signed_url))
    return replace(
        found,
        read_from=ReadFrom.LOCATION,
        segment=shown,
        segment_id=location.segment_id,
        first_offset=location.first_offset,
        last_offset=location.last_offset,
        start=location.start or 0,
        stop=location.size if location.stop is None else location.stop,
        size=location.size,
    )
