"""What a bucket is: its topics, partitions and segments, what is wrong with them, and what they cost to keep and read.

One pass of ``verify`` gives everything: the listing, indexes, snapshots and some headers of each log. Beyond that each
partition is listed once more for the sizes as they are stored, and the first batch of at most three segments of it is
read, to know how well they compress.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import field
from decimal import Decimal
from enum import StrEnum
from functools import cached_property
from typing import Final

from segreader.catalog.layouts.base import IncompleteSegment
from segreader.catalog.listing import EVERYTHING, Wanted
from segreader.errors import SegreaderError
from segreader.evidence.findings import Finding
from segreader.evidence.lineage_checks import SegmentFacts
from segreader.evidence.rules import Code, Severity
from segreader.format.batch import HEADER_SIZE
from segreader.format.compression import DEFAULT_LIMIT, Codec, Decompressor
from segreader.format.scanner import Batch
from segreader.plan.cost import RANGE_SIZE, PriceTable
from segreader.plan.lineage import Dropped, DropReason, ResolvedLog
from segreader.plan.request import ReadOptions
from segreader.ranges import ByteRange
from segreader.segment import Segment, TopicIdPartition
from segreader.storage.base import ObjectStore
from segreader.stored.segment_ends import OPEN_END
from segreader.stored.source import LocationSource
from segreader.values import dataclass
from segreader.verify.verify import Reading, SeenPartition, verify

SMALL_SEGMENT: Final = RANGE_SIZE
"""Bytes below which a log costs a request of its own, however little it holds."""

DAY_MS: Final = 86_400_000
_GROWTH_DAYS: Final = 7
_SHORTEST_MS: Final = 3_600_000
"""Shorter histories say nothing about a day."""

_SAMPLED: Final = 3
_LARGEST_SAMPLE: Final = 1 << 20
_LIST_PAGE: Final = 1000
_GIB: Final = 1 << 30
_FEWEST_SMALL: Final = 4
_ID_LENGTH: Final = 22
"""Characters of a segment's id, with which a name ends in most layouts."""


class SegmentFate(StrEnum):
    """What becomes of a segment's records when the partition is read."""

    LIVE = "live"
    PARTLY_LIVE = "partly-live"
    LOST_BRANCH = "lost-branch"
    DUPLICATE = "duplicate"
    BELOW_LOG_START = "below-log-start"
    UNFINISHED = "unfinished"

    @property
    def text(self) -> str:
        """The fate in a few words, for people."""
        return _FATES[self]


_FATES: Final = {
    SegmentFate.LIVE: "read whole",
    SegmentFate.PARTLY_LIVE: "read in part: another segment has the rest",
    SegmentFate.LOST_BRANCH: "not read: written on a branch that an election discarded",
    SegmentFate.DUPLICATE: "not read: another copy has its offsets",
    SegmentFate.BELOW_LOG_START: "not read: below the log start offset",
    SegmentFate.UNFINISHED: "not read: not finished, or deleted, by the metadata topic",
}


@dataclass(frozen=True, slots=True)
class ReportedSegment:
    """One segment.

    Args:
        object: URL of its log, without a query.
        first_offset, last_offset: inclusive; the last one is ``None`` where it is not known.
        from_ms: the newest time of its first batch, or that of the segment where no batch was seen.
        until_ms: the largest time in it; ``None``, as ``from_ms``, where nothing tells.
        size: bytes of its log, plain; ``None`` where listings do not tell.
        codec: of its first batch; ``None`` where no batch was seen.
        is_active: a broker may still append to it.
    """

    object: str
    first_offset: int
    last_offset: int | None
    from_ms: int | None
    until_ms: int | None
    size: int | None
    fate: SegmentFate
    codec: str | None = None
    is_active: bool = False

    @property
    def is_small(self) -> bool:
        """Whether it is finished and costs a request of its own for few bytes."""
        return not self.is_active and self.size is not None and self.size < SMALL_SEGMENT


@dataclass(frozen=True, slots=True)
class ReportedGap:
    """Offsets ``start <= offset < stop`` that no segment has; ``is_compaction``: the cleaner removed them."""

    start: int
    stop: int
    is_compaction: bool


@dataclass(frozen=True, slots=True)
class ReportedOverlap:
    """Offsets ``start <= offset < stop`` of a segment that are not read from it; ``stop`` is ``None`` up to its end."""

    object: str
    start: int
    stop: int | None
    reason: DropReason


@dataclass(frozen=True, slots=True)
class IncompleteSet:
    """Objects that are no whole segment: what is missing, and how many bytes the others have."""

    object: str
    base_offset: int | None
    missing: tuple[str, ...]
    size: int


@dataclass(frozen=True, slots=True)
class OrphanObject:
    """An object that belongs to no segment, with its size as it is stored."""

    object: str
    size: int


@dataclass(frozen=True, slots=True)
class CompressionSample:
    """Records sections of one codec that were read: bytes before and after compression."""

    codec: str
    batches: int
    plain: int
    packed: int

    @property
    def ratio(self) -> float:
        """How many plain bytes a stored one holds."""
        return self.plain / self.packed if self.packed else 1.0


@dataclass(frozen=True, slots=True)
class ReportedPartition:
    """One partition.

    Args:
        stored: bytes of all its objects as they are stored, indexes included.
        objects: how many these are.
        start_offset, stop_offset: what is read of it, ``start <= offset < stop``; ``None`` where nothing is.
        last_ms: the largest time in the segments that are read.
    """

    partition: TopicIdPartition
    layout: str
    segments: tuple[ReportedSegment, ...]
    gaps: tuple[ReportedGap, ...] = ()
    overlaps: tuple[ReportedOverlap, ...] = ()
    incomplete: tuple[IncompleteSet, ...] = ()
    orphans: tuple[OrphanObject, ...] = ()
    samples: tuple[CompressionSample, ...] = ()
    stored: int = 0
    objects: int = 0
    start_offset: int | None = None
    stop_offset: int | None = None
    last_ms: int | None = None

    @property
    def size(self) -> int:
        """Bytes of all logs, plain, as far as they are known."""
        return sum(segment.size or 0 for segment in self.segments)

    @property
    def first_ms(self) -> int | None:
        """The earliest time that a segment begins with."""
        return min((one.from_ms for one in self.segments if one.from_ms is not None), default=None)

    @property
    def orphan_bytes(self) -> int:
        """Bytes that no reader asks for: of orphans, and of incomplete sets."""
        unfinished = sum(one.size or 0 for one in self.segments if one.fate is SegmentFate.UNFINISHED)
        return sum(one.size for one in self.orphans) + sum(one.size for one in self.incomplete) + unfinished

    @property
    def has_lost(self) -> bool:
        """Whether offsets are missing that the cleaner did not remove."""
        return any(not gap.is_compaction for gap in self.gaps)


@dataclass(frozen=True, slots=True)
class ReportedTopic:
    """One topic id, or one name where a layout has no ids, with its partitions by number."""

    topic: str
    topic_id: str | None
    partitions: tuple[ReportedPartition, ...]

    @property
    def size(self) -> int:
        """Bytes of all logs, plain."""
        return sum(one.size for one in self.partitions)

    @property
    def stored(self) -> int:
        """Bytes of all objects, as they are stored."""
        return sum(one.stored for one in self.partitions)

    @property
    def objects(self) -> int:
        """How many objects there are."""
        return sum(one.objects for one in self.partitions)

    def segments(self) -> Iterator[ReportedSegment]:
        """Every segment, by partition and base offset."""
        return (segment for one in self.partitions for segment in one.segments)

    @property
    def first_ms(self) -> int | None:
        """The earliest time that a segment begins with."""
        return min((one.first_ms for one in self.partitions if one.first_ms is not None), default=None)

    @property
    def last_ms(self) -> int | None:
        """The largest time that is read."""
        return max((one.last_ms for one in self.partitions if one.last_ms is not None), default=None)

    @property
    def growth_per_day(self) -> int | None:
        """Bytes a day over the last week that it has records of; ``None`` below an hour of them.

        A segment's bytes are spread evenly over its time. Segments that are not read do not count.
        """
        timed = [
            (one.from_ms, one.until_ms, one.size or 0)
            for one in self.segments()
            if one.from_ms is not None
            and one.until_ms is not None
            and one.fate in (SegmentFate.LIVE, SegmentFate.PARTLY_LIVE)
        ]
        if not timed:
            return None
        newest = max(until for _, until, _ in timed)
        begin = max(newest - _GROWTH_DAYS * DAY_MS, min(start for start, _, _ in timed))
        if newest - begin < _SHORTEST_MS:
            return None
        total = 0.0
        for start, until, size in timed:
            if until >= begin:
                span = until - start
                total += size * (until - max(start, begin)) / span if span > 0 else size
        return round(total * DAY_MS / (newest - begin))

    @property
    def codecs(self) -> Mapping[str, int]:
        """How many segments begin with a batch of each codec."""
        return Counter(one.codec for one in self.segments() if one.codec is not None)

    @property
    def ratios(self) -> Mapping[str, CompressionSample]:
        """What the sampled batches show, by codec."""
        found: dict[str, CompressionSample] = {}
        for one in (sample for partition in self.partitions for sample in partition.samples):
            was = found.get(one.codec, CompressionSample(one.codec, 0, 0, 0))
            found[one.codec] = CompressionSample(
                one.codec, was.batches + one.batches, was.plain + one.plain, was.packed + one.packed
            )
        return found

    @property
    def small_segments(self) -> int:
        """How many finished segments are so small that requests, not bytes, decide what reading them costs.

        0 unless there are at least four of them, and they are most of the topic's.
        """
        finished = [one for one in self.segments() if not one.is_active]
        small = sum(one.is_small for one in finished)
        return small if small >= _FEWEST_SMALL and 2 * small > len(finished) else 0


@dataclass(frozen=True, slots=True)
class Bill:
    """What keeping the bucket costs a month, and reading all of it once.

    Args:
        stored: bytes as they are stored, of every object of every partition.
        objects: how many objects these are.
        listings: LIST requests that walk over all of them, a thousand names each.
        requests: GET requests for all logs, at most 16 MiB each.
        size: bytes of all logs.
    """

    stored: int
    objects: int
    listings: int
    requests: int
    size: int
    prices: PriceTable | None = None

    @property
    def month(self) -> Decimal | None:
        """For keeping it; ``None`` without prices."""
        return None if self.prices is None else self.prices.gib_month * self.stored / _GIB

    @property
    def read_once(self) -> Decimal | None:
        """For reading all logs once: requests and bytes that leave the store; ``None`` without prices."""
        if self.prices is None:
            return None
        return self.prices.get_per_1000 * self.requests / 1000 + self.prices.gib_out * self.size / _GIB


@dataclass(frozen=True, slots=True)
class BucketReport:
    """What a location was at one moment.

    Args:
        location: where, without secrets.
        made_ms: when it was looked at.
        topics: the largest first.
        findings: of ``verify``, those that lose records first.
        is_deep: whether every log was read whole.
        notes: of the listings.
    """

    location: str
    made_ms: int
    topics: tuple[ReportedTopic, ...]
    findings: tuple[Finding, ...]
    is_deep: bool = False
    prices: PriceTable | None = None
    notes: tuple[str, ...] = field(default=(), repr=False)

    @property
    def partitions(self) -> tuple[ReportedPartition, ...]:
        """Every partition, as its topic comes."""
        return tuple(one for topic in self.topics for one in topic.partitions)

    @property
    def bill(self) -> Bill:
        """What it costs to keep and to read."""
        logs = [one for topic in self.topics for one in topic.segments()]
        return Bill(
            stored=sum(topic.stored for topic in self.topics),
            objects=sum(topic.objects for topic in self.topics),
            listings=sum(max(1, -(-one.objects // _LIST_PAGE)) for one in self.partitions),
            requests=sum(-(-(one.size or 0) // RANGE_SIZE) for one in logs),
            size=sum(topic.size for topic in self.topics),
            prices=self.prices,
        )

    @property
    def severities(self) -> Mapping[str, int]:
        """How many findings there are of each severity."""
        return Counter(one.severity.value for one in self.findings)

    @property
    def has_findings(self) -> bool:
        """Whether something is wrong: an error or a warning."""
        return any(one.severity is not Severity.INFO for one in self.findings)


def read_report(
    source: LocationSource,
    wanted: Wanted = EVERYTHING,
    *,
    deep: bool = False,
    options: ReadOptions | None = None,
    prices: PriceTable | None = None,
    tick: Callable[[Reading], None] = lambda _: None,
    now_ms: int | None = None,
) -> BucketReport:
    """Look at a location and say what it is.

    Args:
        source: where.
        wanted: which partitions; everything by default.
        deep: read every log whole, as ``segreader verify --deep`` does.
        options: how logs are then read.
        prices: to tell in money what it costs.
        tick: called with the progress.
        now_ms: when it is made; the clock's by default.

    Raises:
        UnknownLayoutError: nothing there looks like a segment.
        ObjectNotFoundError: what is asked for is not there.
        StorageError: the location cannot be listed.
    """
    now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    findings: list[Finding] = []
    partitions: list[ReportedPartition] = []
    cleaned: set[tuple[TopicIdPartition | None, int | None]] = set()
    notes: dict[str, None] = {}

    def saw(seen: SeenPartition) -> None:
        partitions.append(_PartitionReport(source.store, seen, cleaned).made())
        notes.update(dict.fromkeys(seen.log.notes))

    reading = Reading(saw=saw)
    reading.tick = lambda: tick(reading)
    found = verify(
        source,
        topic=wanted.topic,
        topic_id=wanted.topic_id,
        partitions=wanted.partitions,
        deep=deep,
        options=options,
        reading=reading,
        now_ms=now_ms,
    )
    with closing(found):
        for finding in found:
            findings.append(finding)
            if finding.code is Code.COMPACTION_GAP:  # they come before their partition is seen
                cleaned.add((finding.partition, finding.offset))
    findings.sort(key=_gravity)
    return BucketReport(source.shown, now_ms, _by_topic(partitions), tuple(findings), deep, prices, tuple(notes))


_SEVERITIES: Final = tuple(Severity)


def _gravity(finding: Finding) -> tuple[int, str, str, int]:
    return (_SEVERITIES.index(finding.severity), finding.code.value, finding.object, finding.offset or 0)


def _by_topic(partitions: Sequence[ReportedPartition]) -> tuple[ReportedTopic, ...]:
    grouped: dict[tuple[str, str | None], list[ReportedPartition]] = defaultdict(list)
    for one in partitions:
        grouped[one.partition.topic, one.partition.topic_id].append(one)
    topics = [
        ReportedTopic(topic, topic_id, tuple(sorted(some, key=lambda one: one.partition.partition)))
        for (topic, topic_id), some in grouped.items()
    ]
    return tuple(sorted(topics, key=lambda one: (-one.size, one.topic, one.topic_id or "")))


class _PartitionReport:
    """Turns what verification saw of one partition into what the report says of it."""

    def __init__(
        self, store: ObjectStore, seen: SeenPartition, cleaned: set[tuple[TopicIdPartition | None, int | None]]
    ) -> None:
        self._store, self._seen, self._cleaned = store, seen, cleaned
        self._sizes: dict[str, int] = {}

    def made(self) -> ReportedPartition:
        """All that is known of it."""
        seen, log = self._seen, self._seen.log
        for prefix in seen.place.prefixes:
            self._sizes |= {info.name: info.size for info in self._store.list(prefix) if not info.name.endswith("/")}
        resolved = seen.resolved
        dropped: dict[str, list[Dropped]] = defaultdict(list)
        for one in resolved.dropped:
            dropped[one.segment.files.log].append(one)
        read = {part.segment.files.log for part in resolved.parts}
        segments = tuple(self._segment(facts, dropped, read) for facts in seen.facts)
        last = max(
            (one.until_ms for one in segments if one.until_ms is not None and one.fate in _ARE_READ), default=None
        )
        return ReportedPartition(
            log.partition,
            log.layout,
            segments,
            tuple(self._gaps(resolved)),
            tuple(self._overlap(one) for one in resolved.dropped),
            tuple(self._incomplete(one) for one in log.incomplete),
            tuple(OrphanObject(self._store.url(name), self._sizes.get(name, 0)) for name in log.foreign),
            tuple(self._samples()),
            sum(size for size in self._sizes.values() if size > 0),
            len(self._sizes),
            resolved.start if resolved.parts else None,
            self._stop(resolved),
            last,
        )

    def _segment(
        self, facts: SegmentFacts, dropped: Mapping[str, Sequence[Dropped]], read: set[str]
    ) -> ReportedSegment:
        segment, first = facts.segment, facts.first
        last = facts.end if facts.end is not None else segment.last_offset
        first_ms = first.max_timestamp if first is not None and first.max_timestamp >= 0 else facts.newest_ms
        return ReportedSegment(
            self._store.url(segment.files.log),
            segment.base_offset,
            None if last is None or last >= OPEN_END else last,
            first_ms,
            first_ms if facts.newest_ms is None else facts.newest_ms,
            segment.log_size if segment.log_size >= 0 else None,
            _fate(facts, dropped.get(segment.files.log, ()), segment.files.log in read),
            _codec_of(first),
            segment.is_active,
        )

    def _gaps(self, resolved: ResolvedLog) -> Iterator[ReportedGap]:
        for hole in resolved.holes:
            yield ReportedGap(hole.start, hole.stop, (self._seen.log.partition, hole.start) in self._cleaned)

    def _overlap(self, one: Dropped) -> ReportedOverlap:
        stop = None if one.stop >= OPEN_END else one.stop
        return ReportedOverlap(self._store.url(one.segment.files.log), one.start, stop, one.reason)

    def _incomplete(self, one: IncompleteSegment) -> IncompleteSet:
        """Its bytes are those of the objects that share its id, or its name up to the last dot."""
        size = self._set_sizes[one.segment_id or _stem(one.name)]
        base = one.base_offset if one.base_offset >= 0 else None
        return IncompleteSet(self._store.url(one.name), base, one.missing, size)

    @cached_property
    def _set_sizes(self) -> Counter[str]:
        """Bytes of the objects that share something which may name a segment: an id, or a name up to the last dot."""
        sizes: Counter[str] = Counter()
        for name, size in self._sizes.items():
            stem = _stem(name)
            shared = {stem, stem[-_ID_LENGTH:], name.rpartition(".")[2], *name.split("/")[:-1]}
            for one in shared:
                sizes[one] += max(0, size)
        return sizes

    def _stop(self, resolved: ResolvedLog) -> int | None:
        """One more than the last offset that is read."""
        if not resolved.parts:
            return None
        if resolved.stop < OPEN_END:
            return resolved.stop
        last = resolved.parts[-1]
        ends = {facts.segment.files.log: facts.end for facts in self._seen.facts}
        if (end := ends.get(last.segment.files.log)) is not None:
            return end + 1
        return last.start if last.segment.log_size == 0 else None

    def _samples(self) -> Iterator[CompressionSample]:
        """How well the first batch of the first, the middle and the last segment compresses."""
        packed = [facts for facts in self._seen.facts if _is_packed(facts.first)]
        chosen = {round(number * (len(packed) - 1) / (_SAMPLED - 1)) for number in range(_SAMPLED)} if packed else ()
        for index in sorted(chosen):
            facts = packed[index]
            if facts.first is not None and (plain := self._plain_size(facts.segment, facts.first)) is not None:
                yield CompressionSample(_codec_of(facts.first) or "", 1, plain, facts.first.size - HEADER_SIZE)

    def _plain_size(self, segment: Segment, batch: Batch) -> int | None:
        """Bytes of the records of a batch once decompressed; ``None`` where they cannot be had: a finding says why."""
        wanted = ByteRange(batch.position + HEADER_SIZE, batch.position + batch.size)
        try:
            body = self._store.read_ranges(segment.files.log, [wanted])[0]
            return len(Decompressor(DEFAULT_LIMIT).decompress(batch.attributes & 7, body))
        except SegreaderError:
            return None


def _stem(name: str) -> str:
    return name.rpartition(".")[0] or name


_ARE_READ: Final = (SegmentFate.LIVE, SegmentFate.PARTLY_LIVE)


def _fate(facts: SegmentFacts, dropped: Sequence[Dropped], is_read: bool) -> SegmentFate:
    if not facts.is_live:
        return SegmentFate.UNFINISHED
    if not dropped:
        return SegmentFate.LIVE
    if is_read:
        return SegmentFate.PARTLY_LIVE
    reasons = {one.reason for one in dropped}
    if DropReason.DIVERGED in reasons:
        return SegmentFate.LOST_BRANCH
    return SegmentFate.BELOW_LOG_START if reasons == {DropReason.BELOW_LOG_START} else SegmentFate.DUPLICATE


def _codec_of(batch: Batch | None) -> str | None:
    if batch is None:
        return None
    codec = batch.attributes & 7
    return Codec(codec).label if codec in set(Codec) else f"codec {codec}"


def _is_packed(batch: Batch | None) -> bool:
    """Whether it is a compressed batch of a bounded size; of message sets the wrapper would be needed."""
    return (
        batch is not None
        and batch.magic == 2
        and batch.attributes & 7 != 0
        and HEADER_SIZE < batch.size <= _LARGEST_SAMPLE
    )
