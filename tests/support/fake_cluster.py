"""A cluster that serves simulated or recorded logs to the readers of live data: the same calls, and no network.

It answers as brokers do, with their freedom: whole batches and a cut one, aborted transactions in any order and some
too many, now and then nothing, and of a remote segment the lost branch, too. What was aborted markers tell it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from corpus import Case
from simulator import SimulatedPartition

from segreader.broker.connection import ClientMetrics
from segreader.broker.messages import (
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    LATEST_TIERED,
    ClusterMetadata,
    CommittedOffset,
    EpochEnd,
    EpochWanted,
    FetchedPartition,
    FetchPartition,
    LeaderAndEpoch,
    ListedOffset,
    Node,
    OffsetWanted,
    PartitionMetadata,
    RemoteLogSegmentLocation,
    TopicConfigs,
    TopicMetadata,
)
from segreader.broker.rules.fallback import RemoteReads
from segreader.errors import BrokerError, OffsetOutOfRangeError
from segreader.format.batch import parse_batch_header
from segreader.format.compression import Decompressor
from segreader.format.index_files import parse_offset_index
from segreader.format.records import iter_records
from segreader.format.scanner import BatchReady, NeedData, SegmentScanner
from segreader.isolation import IsolationLevel
from segreader.read.markers import is_abort_marker


@dataclass(frozen=True, slots=True)
class ServedBatch:
    """One batch as it lies in a log. ``is_abort`` is of a marker; ``None`` of data."""

    base_offset: int
    stop: int
    leader_epoch: int
    producer_id: int
    is_transactional: bool
    is_abort: bool | None
    max_timestamp_ms: int
    data: bytes = field(repr=False)


@dataclass(slots=True)
class ServedSegment:
    """A remote segment, of whichever branch."""

    segment_id: str
    batches: tuple[ServedBatch, ...]
    base_offset: int
    transaction_index: bytes = b""
    offset_index: bytes = b""

    @property
    def data(self) -> bytes:
        return b"".join(batch.data for batch in self.batches)


@dataclass(slots=True)
class ServedLog:
    """One partition: the leader's log, whole, and what of it is remote."""

    batches: list[ServedBatch]
    lineage: list[tuple[int, int]]
    log_start: int = 0
    local_start: int = 0
    last_tiered: int = -1
    segments: list[ServedSegment] = field(default_factory=list)
    high_watermark: int | None = None

    @property
    def end(self) -> int:
        return self.batches[-1].stop if self.batches else self.log_start

    @property
    def readable(self) -> int:
        return self.end if self.high_watermark is None else self.high_watermark

    @property
    def stable(self) -> int:
        opened: dict[int, int] = {}
        for batch in self.batches:
            if batch.stop > self.readable:
                break
            if batch.is_abort is not None:
                opened.pop(batch.producer_id, None)
            elif batch.is_transactional:
                opened.setdefault(batch.producer_id, batch.base_offset)
        return min([self.readable, *opened.values()])

    def aborted(self) -> list[tuple[int, int, int]]:
        """Producer, first offset and marker of each aborted transaction, by brute force."""
        opened: dict[int, int] = {}
        found = []
        for batch in self.batches:
            if batch.is_abort is None:
                if batch.is_transactional:
                    opened.setdefault(batch.producer_id, batch.base_offset)
            elif (first := opened.pop(batch.producer_id, None)) is not None and batch.is_abort:
                found.append((batch.producer_id, first, batch.base_offset))
        return found


def served(data: bytes) -> list[ServedBatch]:
    """The whole batches of a log file."""
    scanner, found = SegmentScanner(), []
    scanner.feed(data)
    decompressor = Decompressor(1 << 28)
    while isinstance(ready := scanner.next(), BatchReady | NeedData):
        if isinstance(ready, NeedData):
            scanner.feed(b"")
            continue
        bytes_of = bytes(ready.data)
        header = parse_batch_header(memoryview(bytes_of))
        is_end = header.is_control and header.is_transactional
        is_abort = is_abort_marker(header, memoryview(bytes_of), decompressor, True) if is_end else None
        if header.is_control and header.is_transactional and is_abort is None and header.record_count:
            list(iter_records(memoryview(bytes_of), decompressor))
        found.append(
            ServedBatch(
                header.base_offset,
                header.last_offset + 1,
                header.partition_leader_epoch,
                header.producer_id,
                header.is_transactional and not header.is_control,
                is_abort,
                header.max_timestamp,
                bytes_of,
            )
        )
    return found


def of_simulation(partition: SimulatedPartition, local_start: int | None = None) -> ServedLog:
    """The log of a simulated partition; local from the batch that holds ``local_start`` on."""

    def convert(batch: object) -> ServedBatch:
        (one,) = served(batch.data)  # type: ignore[attr-defined]
        return one

    log = ServedLog([convert(batch) for batch in partition.batches], list(partition.lineage), partition.log_start)
    whole = [one for one in partition.remote if one.is_whole]
    log.segments = [
        ServedSegment(one.segment_id, tuple(map(convert, one.batches)), one.base_offset, one.files.get("txnindex", b""))
        for one in whole
    ]
    ends = [one.stop - 1 for one in whole if one.batches[-1] in partition.batches]
    log.last_tiered = max(ends, default=-1)
    log.local_start = log.log_start if local_start is None else max(log.log_start, local_start)
    return log


def of_corpus(case: Case, partition: int = 0) -> ServedLog:
    """The log of a recorded partition: its local segments, and the remote ones below them that the lineage confirms."""
    from segreader.format.checkpoints import parse_leader_epochs

    (local,) = [path for path in case.local if path.name == f"{case.topic}-{partition}"]
    files = sorted(local.glob("*.log"))
    batches = [batch for file in files for batch in served(file.read_bytes())]
    lineage = [(e.epoch, e.start_offset) for e in parse_leader_epochs((local / "leader-epoch-checkpoint").read_bytes())]
    starts = [start for _, start in lineage]
    segments = []
    for folder in case.remote:
        if not folder.name.startswith(f"{case.topic}-{partition}-"):
            continue
        for file in sorted(folder.glob("*.log")):
            base, _, segment_id = file.stem.partition("-")
            index = file.with_suffix(".txnindex")
            rows = index.read_bytes() if index.exists() else b""
            places = file.with_suffix(".index").read_bytes()
            segments.append(ServedSegment(segment_id, tuple(served(file.read_bytes())), int(base), rows, places))
    local_start = int(files[0].stem)

    def epoch_at(offset: int) -> int:
        return max((e for e, start in lineage if start <= offset), default=-1)

    remote = {b.base_offset: b for s in segments for b in s.batches if b.leader_epoch == epoch_at(b.base_offset)}
    below = [remote[base] for base in sorted(remote) if remote[base].stop <= local_start]
    log = ServedLog([*below, *batches], lineage)
    log.segments = segments
    log.local_start = local_start
    log.log_start = int(case.facts["uncommitted"]["start"][str(partition)])
    log.last_tiered = max((b.stop - 1 for b in remote.values()), default=-1)
    log.high_watermark = int(case.facts["uncommitted"]["stop"][str(partition)])
    assert starts == sorted(starts)
    return log


Locate = Callable[[ServedSegment, int, int], RemoteLogSegmentLocation | None]
"""A location for an offset of a segment, of which offsets up to the last one live; ``None``: records instead."""


class FakeCluster:
    """Serves logs. ``requests`` are lines such as ``Fetch t-0 at 5`` in the order in which they came.

    Args:
        logs: topic -> partition -> log.
        chance: what is random in the answers; ``None`` for the plainest answers.
        locate: what a peer that knows the location extension answers with.
        largest: bytes of records in an answer.
    """

    def __init__(
        self,
        logs: Mapping[str, Mapping[int, ServedLog]],
        *,
        topic_ids: Mapping[str, str] | None = None,
        chance: random.Random | None = None,
        locate: Locate | None = None,
        largest: int = 1 << 20,
        version: int = 11,
    ) -> None:
        self.shown = "fake:9092"
        self.metrics = ClientMetrics()
        self.logs = {topic: dict(partitions) for topic, partitions in logs.items()}
        self.topic_ids = dict(topic_ids or {})
        self.chance, self.locate_one, self.largest, self.version = chance, locate, largest, version
        self.lists_aborted = True
        self.gives_many = True
        """Whether an answer locates several segments of a partition, as of 500 in all."""
        self.gives_ends = False
        """Whether locations end where the request does, by the segment's index."""
        self.late: Counter[tuple[str, int]] = Counter()
        """Empty answers in a row, though there is something: brokers may be late, but not for ever."""
        self.committed: dict[tuple[str, str, int], tuple[int, int]] = {}
        self.lost: set[str] = set()
        """Ids of remote segments whose log is lost: as a broker, it fails to read them."""
        self.requests: list[str] = []
        self.is_closed = False

    def metadata(self, topics: Collection[str] | None) -> ClusterMetadata:
        self.requests.append("Metadata")
        names = sorted(self.logs) if topics is None else list(topics)
        return ClusterMetadata(
            (Node(1, "fake", 9092),),
            tuple(
                TopicMetadata(
                    0 if name in self.logs else 3,
                    name,
                    self.topic_ids.get(name),
                    partitions=tuple(
                        PartitionMetadata(number, 0, LeaderAndEpoch(1, log.lineage[-1][0]), (1,), (1,))
                        for number, log in sorted(self.logs.get(name, {}).items())
                    ),
                )
                for name in names
            ),
        )

    def list_offsets(self, wanted: Sequence[OffsetWanted], isolation_level: IsolationLevel) -> Sequence[ListedOffset]:
        self.requests.append(f"ListOffsets {sorted({one.timestamp for one in wanted if one.timestamp < 0})}")
        return [self._listed(one, isolation_level) for one in wanted]

    def _listed(self, one: OffsetWanted, isolation_level: IsolationLevel) -> ListedOffset:
        log = self.logs[one.topic][one.partition]
        end = log.stable if isolation_level is IsolationLevel.READ_COMMITTED else log.readable
        if {EARLIEST_LOCAL: 8, LATEST_TIERED: 9}.get(one.timestamp, 0) > self.version:
            return ListedOffset(one.topic, one.partition, 35)
        if one.timestamp >= 0:
            for batch in log.batches:
                if batch.max_timestamp_ms >= one.timestamp and batch.stop > log.log_start:
                    for record in iter_records(memoryview(batch.data), Decompressor(1 << 28)):
                        if record.timestamp_ms >= one.timestamp and log.log_start <= record.offset < end:
                            return ListedOffset(one.topic, one.partition, 0, record.offset, record.timestamp_ms)
            return ListedOffset(one.topic, one.partition, 0)
        offset = {
            EARLIEST: log.log_start,
            EARLIEST_LOCAL: log.local_start,
            LATEST: end,
            LATEST_TIERED: log.last_tiered,
        }[one.timestamp]
        return ListedOffset(one.topic, one.partition, 0, offset, -1, log.lineage[-1][0])

    def epoch_ends(self, wanted: Sequence[EpochWanted]) -> Sequence[EpochEnd]:
        self.requests.append("OffsetForLeaderEpoch")
        return [self._ended(one) for one in wanted]

    def _ended(self, one: EpochWanted) -> EpochEnd:
        log = self.logs[one.topic][one.partition]
        below = [epoch for epoch, _ in log.lineage if epoch <= one.leader_epoch]
        above = [start for epoch, start in log.lineage if epoch > one.leader_epoch]
        if one.leader_epoch < 0 or one.leader_epoch > log.lineage[-1][0]:
            return EpochEnd(one.topic, one.partition, 0)
        epoch = below[-1] if below else one.leader_epoch
        return EpochEnd(one.topic, one.partition, 0, epoch, above[0] if above else log.end)

    def locate(
        self, wanted: Sequence[FetchPartition], isolation_level: IsolationLevel, *, most_segments: int
    ) -> Sequence[FetchedPartition]:
        found = []
        most_segments = min(most_segments, 500 // len(wanted)) if self.gives_many else 1
        self.requests.append(f"Fetch of {len(wanted)} with locations")
        for one in wanted if self.locate_one is not None else ():
            at, some = one.fetch_offset, list[FetchedPartition]()
            while len(some) < most_segments and at < (one.stop_offset or 0):
                fetcher = FakeFetcher(
                    self, one.topic, one.partition, at, isolation_level, True, one.max_bytes, one.stop_offset
                )
                requests = len(self.requests)
                try:
                    answer = fetcher.poll()
                except BrokerError:
                    break
                finally:
                    del self.requests[requests:]
                if answer.location is None:
                    break
                some.append(answer)
                at = answer.location.last_offset + 1
            if some:
                following = tuple(each.location for each in some[1:] if each.location is not None)
                found.append(replace(some[0], following=following))
        return found

    def committed_offsets(self, group: str, topics: Mapping[str, Collection[int]] | None) -> Sequence[CommittedOffset]:
        self.requests.append(f"OffsetFetch {group}")
        assert topics is not None
        return [
            CommittedOffset(topic, number, 0, *self.committed.get((group, topic, number), (-1, -1)))
            for topic, numbers in topics.items()
            for number in numbers
        ]

    def topic_configs(self, topics: Collection[str], names: Collection[str]) -> Sequence[TopicConfigs]:
        self.requests.append("DescribeConfigs")
        return [
            TopicConfigs(topic, 0, {"remote.storage.enable": "true" if self._is_tiered(topic) else "false"})
            for topic in topics
        ]

    def _is_tiered(self, topic: str) -> bool:
        return any(log.segments for log in self.logs[topic].values())

    def fetcher(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        isolation_level: IsolationLevel,
        topic_id: str | None = None,
        locations: RemoteReads | None = None,
        leader_epoch_of_position: int = -1,
        stop: int | None = None,
        max_bytes: int = 1 << 20,
    ) -> FakeFetcher:
        return FakeFetcher(self, topic, partition, offset, isolation_level, locations is not None, max_bytes, stop)

    def close(self) -> None:
        self.is_closed = True


class FakeFetcher:
    """One partition in order, from its leader."""

    def __init__(
        self,
        cluster: FakeCluster,
        topic: str,
        partition: int,
        offset: int,
        isolation_level: IsolationLevel,
        wants_locations: bool,
        max_bytes: int,
        stop: int | None = None,
    ) -> None:
        self._stop = stop
        self._cluster, self._place = cluster, (topic, partition)
        self._is_committed = isolation_level is IsolationLevel.READ_COMMITTED
        self._wants_locations, self._max_bytes = wants_locations, max_bytes
        self.position = offset

    def advance(self, next_offset: int, leader_epoch: int) -> None:
        assert next_offset >= self.position, "positions never go back"
        self.position = next_offset

    def close(self) -> None:
        self._cluster.requests.append("close")

    def poll(self) -> FetchedPartition:
        cluster, (topic, number) = self._cluster, self._place
        log, at, chance = cluster.logs[topic][number], self.position, cluster.chance
        cluster.requests.append(f"Fetch {topic}-{number} at {at}" + " with locations" * self._wants_locations)
        cluster.metrics.requests["Fetch"] += 1
        if not log.log_start <= at <= log.end:
            raise OffsetOutOfRangeError("out of range", offset=at)
        end = log.stable if self._is_committed else log.readable
        head: dict[str, Any] = {
            "topic": topic,
            "topic_id": None,
            "partition": number,
            "high_watermark": log.readable,
            "last_stable_offset": log.stable,
            "log_start_offset": log.log_start,
        }
        is_late = chance is not None and cluster.late[self._place] < 3 and chance.random() < 0.2
        cluster.late[self._place] = cluster.late[self._place] + 1 if is_late else 0
        if at >= end or is_late:
            return FetchedPartition(**head, records=memoryview(b""), aborted=() if self._is_committed else None)
        chosen, segment = self._batches(log, at, end)
        if segment is not None and self._wants_locations and cluster.locate_one is not None:
            cluster.metrics.locations_asked += 1
            location = cluster.locate_one(segment, at, self._last_live(log, segment, at))
            if location is not None:
                cluster.metrics.locations_given += 1
                if cluster.gives_ends and self._stop is not None:
                    index = parse_offset_index(segment.offset_index, segment.base_offset)
                    place = index.end_below(self._stop) if self._stop <= location.last_offset else None
                    location = replace(location, stop=place or location.size)
                listed = self._aborted(log, at, location.last_offset + 1) if cluster.lists_aborted else None
                return FetchedPartition(**head, records=memoryview(b""), aborted=listed, location=location)
        if segment is not None and segment.segment_id in cluster.lost:
            raise BrokerError(f"Fetch of {topic}-{number} fails: UNKNOWN_SERVER_ERROR (-1)", code=-1, offset=at)
        data, upper = self._cut(chosen)
        return FetchedPartition(**head, records=memoryview(data), aborted=self._aborted(log, at, upper))

    def _last_live(self, log: ServedLog, segment: ServedSegment, at: int) -> int:
        """The last offset of a segment, from ``at`` on, that the leader's epochs confirm."""
        following = [one.base_offset for one in log.segments if one.base_offset > segment.base_offset]
        if at >= segment.batches[-1].stop:
            return min(following, default=at + 1) - 1
        last = at
        for batch in segment.batches:
            if batch.stop > at:
                if batch.leader_epoch != max(e for e, start in log.lineage if start <= max(at, batch.base_offset)):
                    break
                last = batch.stop - 1
        return last

    def _batches(self, log: ServedLog, at: int, end: int) -> tuple[list[ServedBatch], ServedSegment | None]:
        """What lies there from the batch on that holds the offset, or the next one after compaction."""
        if at >= log.local_start:
            return [batch for batch in log.batches if batch.stop > at and batch.base_offset < end], None
        epoch = max(epoch for epoch, start in log.lineage if start <= at)
        for segment in log.segments:
            live = [i for i, b in enumerate(segment.batches) if b.leader_epoch == epoch and b.stop > at]
            if live and segment.base_offset <= at < segment.batches[-1].stop:
                return list(segment.batches[live[0] :]), segment
        held = [one for one in log.segments if one.batches]
        cleaned = [one for one in held if one.base_offset <= at and one.batches[-1].leader_epoch == epoch]
        last = max(cleaned, key=lambda one: one.base_offset, default=None)  # the cleaner took its last batches
        return [batch for batch in log.batches if batch.stop > at], last

    def _cut(self, batches: Sequence[ServedBatch]) -> tuple[bytes, int]:
        """The first batch whole, further ones up to the limit, the last one cut."""
        chance = self._cluster.chance
        limit = min(self._max_bytes, self._cluster.largest)
        limit = limit if chance is None else min(limit, chance.choice([1, 200, 1000, 1 << 20]))
        data, upper = batches[0].data, batches[0].stop
        for batch in batches[1:]:
            if len(data) >= limit:
                break
            if len(data) + len(batch.data) > limit:
                return data + batch.data[: limit - len(data)], upper
            data, upper = data + batch.data, batch.stop
        return data, upper

    def _aborted(self, log: ServedLog, at: int, upper: int) -> tuple[tuple[int, int], ...] | None:
        if not self._is_committed:
            return None
        chance = self._cluster.chance
        reach = upper if chance is None else upper + chance.choice([0, 0, 5])
        found = [(one, first) for one, first, last in log.aborted() if last >= at and first < reach]
        if chance is not None:
            chance.shuffle(found)
        return tuple(found)
