"""Everything that can be known to be wrong at a location, without a broker: findings, a partition after another.

Without ``deep`` only listings, side files, and some headers of the logs are read. An object that cannot be read is a
finding, never an end.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from typing import Final, cast

from segreader.catalog.layouts import log_directory
from segreader.catalog.layouts.base import IncompleteSegment, Layout, PartitionPlace
from segreader.catalog.listing import NEWEST, PartitionLog, Wanted, find_all, find_places, missing_error, read_place
from segreader.catalog.metadata_log import RemoteLogMetadata
from segreader.errors import (
    CatalogError,
    FormatError,
    ManifestError,
    ObjectNotFoundError,
    SegmentGapError,
    SegreaderError,
)
from segreader.evidence.findings import MOST_OF_A_SEGMENT, Finding, Findings
from segreader.evidence.lineage_checks import Lineages, SegmentFacts, check_lineage, resolve_local
from segreader.evidence.listing_checks import (
    MetadataAudit,
    NoticingStore,
    begins_with_another,
    check_incomplete,
    check_listing,
    check_partitions,
    check_places,
    incomplete_offsets,
    not_given_up,
)
from segreader.evidence.log_checks import check_base_offset, why_not_emptied
from segreader.evidence.rules import Code
from segreader.evidence.transaction_checks import check_last_batch, check_neighbours
from segreader.format.checkpoints import LeaderEpochs
from segreader.plan.lineage import Part, ResolvedLog
from segreader.plan.request import ReadOptions
from segreader.read.ahead import ReadAhead
from segreader.segment import Segment, SegmentFiles
from segreader.storage.base import ObjectInfo, ObjectStore, StoreView, read_each
from segreader.stored.source import LocationSource
from segreader.values import dataclass
from segreader.verify.segment_checks import Copies, SegmentAudit, look_at_segment, read_checkpoint, read_segments

_AT_ONCE: Final = 64
_EXPLAIN_A_HOLE: Final = frozenset(
    {
        Code.TRUNCATED_LOG,
        Code.EMPTY_LOG,
        Code.LOG_TOO_SHORT,
        Code.ZERO_TAIL,
        Code.BROKEN_BATCH,
        Code.UNSUPPORTED_MAGIC,
        Code.UNREADABLE_OBJECT,
        Code.UNDECRYPTABLE,
        Code.VANISHED,
    }
)


@dataclass(frozen=True, slots=True)
class SeenPartition:
    """What verification saw of one partition, for who shows more of it than findings.

    Args:
        place: where it was looked for.
        log: its listing.
        facts: of each segment, by base offset.
        resolved: what leader epochs make of them.
    """

    place: PartitionPlace
    log: PartitionLog
    facts: Sequence[SegmentFacts]
    resolved: ResolvedLog


@dataclass(slots=True)
class Reading:
    """How far verification has come, for who watches it.

    Args:
        tick: called whenever the numbers have changed.
        done: bytes of the logs that were looked at.
        whole: bytes of all logs that are known so far.
        saw: called with each partition once its segments were looked at, and the findings about its lineage were given.
    """

    tick: Callable[[], None] = lambda: None
    done: int = 0
    whole: int = 0
    saw: Callable[[SeenPartition], None] = lambda _: None

    def add(self, size: int) -> None:
        """So many more bytes were looked at."""
        self.done += size
        self.tick()


def verify(
    source: LocationSource,
    *,
    topic: str | None = None,
    topic_id: str | None = None,
    partitions: Collection[int] | None = None,
    deep: bool = False,
    options: ReadOptions | None = None,
    reading: Reading | None = None,
    now_ms: int | None = None,
) -> Generator[Finding, None, None]:
    """Findings about a location, those of one partition before those of the next.

    Args:
        source: the location; with the metadata topic, if it is given there.
        topic, topic_id, partitions: what is looked at; everything by default. The id may be ``newest``.
        deep: read every log whole: checksums, records, and whether indexes agree with the batches.
        options: how logs are read: by how many threads, and how far ahead. Findings are the same.
        reading: called with the progress, and with what was seen.
        now_ms: the time, to tell an upload that is going on from one that was given up; the clock's by default.

    Raises:
        UnknownLayoutError: nothing there looks like a segment.
        ObjectNotFoundError: the topic or partition asked for is not there.
        StorageError: the location cannot be listed at all.
    """
    now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    ahead = ReadAhead.of(source.store, options or ReadOptions()) if deep else None
    seen = NoticingStore(source.store)
    wanted = Wanted(topic, topic_id, partitions)
    is_newest = topic_id == NEWEST
    places = find_places(seen, source.prefix, source.layouts, Wanted(topic) if is_newest else wanted)
    found = Findings(source.store)
    metadata = _read_metadata(found, source, wanted)
    if not places:
        _refuse_missing(source, wanted)
    check_places(found, source.prefix, places, seen, are_all=partitions is None or is_newest)
    if metadata is not None:
        check_partitions(found, metadata, source.prefix, frozenset(place.partition for place in places))
        if not metadata.partitions(with_deleted=True):
            metadata = None  # it is of another cluster, or of none yet
    yield from found.take()
    if is_newest:
        chosen = source.newest(places, metadata).chosen((one.partition for one in places), partitions, source.shown)
        places = [place for place in places if place.partition in chosen]
    for place in places:
        yield from _PartitionVerifier(source, place, metadata, ahead, reading or Reading(), now_ms).findings()


def _read_metadata(found: Findings, source: LocationSource, wanted: Wanted) -> RemoteLogMetadata | None:
    try:
        return source.read_metadata(wanted)
    except (FormatError, SegmentGapError) as error:
        found.add_error(error, source.prefix, code=Code.UNREADABLE_METADATA)
        return None


def _refuse_missing(source: LocationSource, wanted: Wanted) -> None:
    there = [one.partition for one in find_all(source.store, source.prefix, source.layouts)]
    error = missing_error(there, (), source.shown, wanted)
    raise error or ObjectNotFoundError("what is asked for is not here", source=source.shown)


class _PartitionVerifier:
    """Verifies one partition: its listing, each segment, then all of them together.

    Args:
        ahead: how far logs are read ahead; ``None`` where they are not read.
    """

    def __init__(
        self,
        source: LocationSource,
        place: PartitionPlace,
        metadata: RemoteLogMetadata | None,
        ahead: ReadAhead | None,
        reading: Reading,
        now_ms: int,
    ) -> None:
        self._source, self._place, self._store = source, place, source.store
        self._ahead, self._reading, self._now_ms = ahead, reading, now_ms
        self._is_local = place.layout == log_directory.NAME
        self._metadata = None if self._is_local else metadata
        self._lineages = Lineages()

    def findings(self) -> Iterator[Finding]:
        """What is found, as it is found."""
        found, store = self._new(), self._store
        readable = read_around(found, store, self._place, self._source.layouts)
        log = readable.log
        if log is None:
            yield from found.take()
            return
        check_listing(found, log, self._place, store)
        known = {*readable.hidden, *incomplete_offsets(log)}
        of_metadata: MetadataAudit | None = None
        undecided: list[IncompleteSegment] = []
        if self._metadata is not None:
            of_metadata = MetadataAudit(found, self._metadata, log, self._place)
            of_metadata.check(store, self._now_ms)
            known |= of_metadata.missing_offsets
        elif not self._is_local:  # of a log directory, the listing's check names every side file
            for one in log.incomplete:
                if begins_with_another(one, log.segments):
                    undecided.append(one)
                elif not check_incomplete(found, one, log.segments, store, self._now_ms):
                    known.discard(one.base_offset)
        shared = read_checkpoint(found, store, log.segments[-1]) if self._is_local and log.segments else None
        yield from found.take()
        all_facts: list[SegmentFacts] = []
        self._reading.whole += sum(segment.log_size for segment in log.segments)
        for facts, findings in self._look_at(log, of_metadata, shared):
            all_facts.append(facts)
            if facts.codes & _EXPLAIN_A_HOLE:
                known.add(facts.segment.base_offset if facts.end is None else facts.end + 1)
            yield from findings
            if self._ahead is None:
                self._reading.add(facts.segment.log_size)
        all_facts.sort(key=lambda one: one.segment.base_offset)
        found = self._new()
        if self._is_local:
            resolved = resolve_local(log, all_facts)
        else:
            resolved = self._lineages.resolve(log, all_facts, self._given_epochs())
            self._lineages.check(found)
        for one in undecided:
            others = not_given_up(one.base_offset, log.segments, resolved)
            if not check_incomplete(found, one, others, store, self._now_ms):
                known.discard(one.base_offset)
        known |= self._check_empty(found, all_facts, resolved.parts)
        check_lineage(found, store, resolved, all_facts, frozenset(known))
        yield from found.take()
        self._reading.saw(SeenPartition(self._place, log, all_facts, resolved))
        if self._ahead is None:
            yield from self._check_transactions(all_facts, resolved.parts)
        else:  # which holds both against the batches
            yield from self._audit(all_facts, resolved.parts, Copies(resolved), self._ahead)

    def _check_transactions(self, all_facts: Sequence[SegmentFacts], parts: Sequence[Part]) -> Iterator[Finding]:
        """Hold what each segment's files say of transactions against the snapshot of the one before."""
        by_log = {facts.segment.files.log: facts for facts in all_facts}
        before: Mapping[int, int] | None = None
        stop = -1
        for part in parts:
            facts = by_log[part.segment.files.log]
            files = facts.segment.files
            index, snapshot = files.transaction_index or files.log, files.producer_snapshot
            reaches_the_end = facts.end is not None and facts.end < part.stop
            after = facts.opened if reaches_the_end and snapshot is not None else None
            rows = [row for row in facts.rows if part.start <= row.last_offset < part.stop]
            found = self._of_segment()
            if len(rows) == len(facts.rows):
                known = before if part.start == stop else None
                check_neighbours(found, index, snapshot or index, rows, known, after, part.start)
            if after is not None and facts.last is not None:
                check_last_batch(found, snapshot or index, after, facts.last)
            yield from found.take(facts.codes)
            facts.codes |= found.codes
            before, stop = after, part.stop

    def _check_empty(self, found: Findings, all_facts: Sequence[SegmentFacts], parts: Sequence[Part]) -> set[int]:
        """Note the finished logs without a byte that the cleaner did not leave; returns where they begin."""
        lost: set[int] = set()
        others, was_cleaned = [one.segment for one in all_facts], any(one.was_cleaned for one in all_facts)
        for one in all_facts:
            segment, base = one.segment, one.segment.base_offset
            is_told = segment.last_offset is not None or bool(one.codes & _EXPLAIN_A_HOLE)
            if (
                segment.log_size
                or segment.is_active
                or is_told
                or any(part.start <= base < part.stop for part in parts)
            ):
                continue
            if (why := why_not_emptied(self._store, segment, others, was_cleaned=was_cleaned)) is not None:
                found.add(Code.EMPTY_LOG, segment.files.log, why, offset=base)
                one.codes |= {Code.EMPTY_LOG}
                lost.add(base)
        return lost

    def _look_at(
        self, log: PartitionLog, of_metadata: MetadataAudit | None, shared: LeaderEpochs | None
    ) -> Iterator[tuple[SegmentFacts, list[Finding]]]:
        """A first look at every segment, some of them at a time.

        Args:
            shared: the checkpoint of a log directory, which is one for all its segments.
        """
        segments = log.segments
        bases = sorted({segment.base_offset for segment in segments})
        following = dict(pairwise(bases))
        covered_to: int | None = None
        for first in range(0, len(segments), _AT_ONCE):
            some = segments[first : first + _AT_ONCE]

            def look(segment: Segment) -> tuple[Findings, SegmentFacts]:
                found = self._of_segment()
                completed = None if of_metadata is None else of_metadata.completed(segment)
                told = completed or segment
                checkpoint = shared if self._is_local else read_checkpoint(found, self._store, told)
                facts = look_at_segment(found, self._store, told, checkpoint, following.get(told.base_offset))
                facts.is_live = of_metadata is None or completed is not None
                return found, facts

            looked = read_each(look, some)
            for found, facts in looked:
                base = facts.segment.base_offset
                others = (one for _, one in looked if one is not facts and one.segment.base_offset == base)
                reached = max((one.end for one in others if one.end is not None), default=covered_to)
                check_base_offset(found, facts.segment, facts.first, reached)
                told = of_metadata.codes_of(facts.segment) if of_metadata is not None else frozenset()
                facts.codes = found.codes | told
                if facts.end is not None:
                    covered_to = facts.end
                self._correct(facts, following)
                self._lineages.add(facts)
                yield facts, found.take(told)

    def _correct(self, facts: SegmentFacts, following: Mapping[int, int]) -> None:
        """Let a segment be what it is, not what its name says, for all that comes after."""
        segment = facts.segment
        if Code.WRONG_BASE_OFFSET in facts.codes and facts.first is not None:
            facts.segment = replace(segment, base_offset=facts.first.base_offset)
        ends_at = following.get(segment.base_offset)
        if self._is_local and facts.end is not None and facts.end + 1 != ends_at and not segment.is_active:
            files = replace(cast(SegmentFiles, segment.files), producer_snapshot=None)  # it is that of the next one
            facts.segment = replace(facts.segment, files=files)

    def _given_epochs(self) -> LeaderEpochs | None:
        """The lineage of the live log, where one is given beside the location."""
        catalog, one = self._source.catalog, self._place.partition
        if catalog.leader_epochs is None and catalog.log_directory is None:
            return None
        try:
            logs = self._source.logs(Wanted(one.topic, one.topic_id, [one.partition]))
            given = next(iter(logs))
        except ObjectNotFoundError:
            return None
        if given.leader_epochs is not None or given.local is None:
            return given.leader_epochs
        return read_checkpoint(self._new(), self._store, given.local.segments[-1])

    def _audit(
        self, all_facts: Sequence[SegmentFacts], parts: Sequence[Part], copies: Copies, ahead: ReadAhead
    ) -> Iterator[Finding]:
        """Every segment, whole."""
        of_log: dict[str, list[Part]] = {}
        for part in parts:
            of_log.setdefault(part.segment.files.log, []).append(part)
        auditor = SegmentAudit(copies, self._reading.add)
        segments = [facts.segment for facts in all_facts]
        with closing(read_segments(self._store, segments, ahead)) as seen:
            for index, facts in enumerate(all_facts):
                limit = facts.segment.last_offset
                if self._is_local and index + 1 < len(all_facts):
                    limit = all_facts[index + 1].segment.base_offset - 1
                found = self._of_segment()
                auditor.audit(found, facts, seen, of_log.get(facts.segment.files.log, ()), limit)
                yield from found.take(facts.codes)

    def _of_segment(self) -> Findings:
        return Findings(self._store, self._place.partition, most=MOST_OF_A_SEGMENT)

    def _new(self) -> Findings:
        return Findings(self._store, self._place.partition)


_MOST_BROKEN: Final = 32
_OFFSET: Final = re.compile("[0-9]{20}")


@dataclass(frozen=True, slots=True)
class Readable:
    """What can be understood of one partition.

    Args:
        log: its segments, without those that cannot be; ``None`` if it cannot be listed.
        hidden: base offsets of those, as far as their names tell.
    """

    log: PartitionLog | None
    hidden: frozenset[int] = frozenset()


def read_around(found: Findings, store: ObjectStore, place: PartitionPlace, layouts: Sequence[Layout]) -> Readable:
    """The segments of one partition without those that cannot be understood, each of which is noted."""
    hiding = _HidingStore(store)
    for _ in range(_MOST_BROKEN):
        try:
            return Readable(read_place(hiding, place, layouts), hiding.offsets)
        except SegreaderError as error:
            found.add_error(error, place.prefixes[0], code=_listing_code_of(error))
            if error.source is None or not hiding.hide(error.source):
                break
    return Readable(None)


def _listing_code_of(error: SegreaderError) -> Code | None:
    """An object that has not the size that a manifest says is not itself a broken manifest."""
    if isinstance(error, ManifestError) and not (error.source or "").endswith("manifest"):
        return Code.MANIFEST_MISMATCH
    return Code.BAD_MANIFEST if isinstance(error, CatalogError) else None


class _HidingStore(StoreView):
    """A store whose listings pass over some segments."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self._stems: set[str] = set()

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """As the store below, without the hidden segments."""
        return (info for info in self.inner.list(prefix) if not self._is_hidden(info.name))

    def list_level(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """As the store below, without the hidden segments."""
        return (info for info in self.inner.list_level(prefix) if not self._is_hidden(info.name))

    def hide(self, url: str) -> bool:
        """Pass over the segment that the object of this URL belongs to; ``False`` if it is hidden already."""
        stem = _stem(url)
        if stem in self._stems:
            return False
        self._stems.add(stem)
        return True

    @property
    def offsets(self) -> frozenset[int]:
        """Base offsets of the hidden segments."""
        named = (_OFFSET.match(stem.rpartition("/")[2]) for stem in self._stems)
        return frozenset(int(match[0]) for match in named if match)

    def _is_hidden(self, name: str) -> bool:
        return bool(self._stems) and _stem(self.inner.url(name)) in self._stems


def _stem(url: str) -> str:
    directory, slash, file = url.rpartition("/")
    return directory + slash + file.partition(".")[0]
