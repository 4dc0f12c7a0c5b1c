"""The segments of a partition together: which history each belongs to, what overlaps, and what is in none of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from segreader.catalog.listing import PartitionLog
from segreader.errors import SegreaderError
from segreader.evidence.findings import Findings
from segreader.evidence.log_checks import look_for_cleaning
from segreader.evidence.rules import Code
from segreader.format.checkpoints import LeaderEpoch, LeaderEpochs
from segreader.format.index_files import AbortedTransaction
from segreader.format.scanner import Batch
from segreader.plan.lineage import (
    DropReason,
    EpochSpan,
    EpochStarts,
    ResolvedLog,
    assumed_lineage,
    clip,
    epochs_of_batches,
    newest_first,
    resolve,
)
from segreader.segment import Segment
from segreader.storage.base import ObjectStore
from segreader.values import dataclass

_DROPPED = {
    DropReason.DUPLICATE: Code.DUPLICATE_OFFSETS,
    DropReason.DIVERGED: Code.DIVERGED_OFFSETS,
    DropReason.BELOW_LOG_START: Code.BELOW_LOG_START,
}


@dataclass(slots=True)
class SegmentFacts:
    """What the first look at a segment showed.

    Args:
        segment: with what the catalogue and its own files tell of its epochs.
        is_live: whether it counts: the metadata topic may say that it is unfinished or deleted.
        first: its first batch, where there is one.
        end: last offset of its last batch, where it is known.
        was_cleaned, was_rewritten: as ``LogFacts`` has them.
        spans: the leader epochs of the batches that were looked at.
        checkpoint: the whole lineage of its uploader, until ``Lineages`` has taken it.
        codes: what was found.
        rows: of the transaction index.
        opened: first offset of each transaction that is open at its end by the snapshot, by producer id.
        last: its last batch, where it was seen.
        newest_ms: the largest time in it by the catalogue, its time index or its last batch; ``None`` without any.
    """

    segment: Segment
    is_live: bool = True
    first: Batch | None = None
    end: int | None = None
    was_cleaned: bool = False
    was_rewritten: bool = False
    spans: tuple[EpochSpan, ...] = ()
    checkpoint: LeaderEpochs | None = None
    codes: frozenset[Code] = field(default_factory=frozenset)
    rows: Sequence[AbortedTransaction] = ()
    opened: Mapping[int, int] | None = None
    last: Batch | None = None
    newest_ms: int | None = None


def check_epochs(found: Findings, segment: Segment, checkpoint: LeaderEpochs, batches: Sequence[Batch]) -> bool:
    """Hold batches against the checkpoint beside them; returns whether they agree. One that does not is enough.

    If the log start is inside a batch the lineage begins there, so it is asked there. Source:
    ``LeaderEpochFileCache`` (4.3).
    """
    for batch in batches:
        if batch.leader_epoch == -1 or batch.magic < 2:
            continue
        name = segment.files.leader_epochs or segment.files.log
        if not len(checkpoint):
            text = f"it has no entry, and offset {batch.base_offset} was written by epoch {batch.leader_epoch}"
            found.add(Code.BAD_LEADER_EPOCHS, name, text, offset=batch.base_offset)
            return False
        start = checkpoint.entries[0].start_offset
        if batch.last_offset < start:
            continue
        told = checkpoint.epoch_for(max(batch.base_offset, start))
        if told != batch.leader_epoch:
            text = f"the batch at offset {batch.base_offset} has epoch {batch.leader_epoch}, by the checkpoint {told}"
            found.add(Code.EPOCH_MISMATCH, segment.files.log, text, position=batch.position, offset=batch.base_offset)
            return False
    return True


def epoch_spans(batches: Sequence[Batch]) -> tuple[EpochSpan, ...]:
    """The leader epochs of some batches of one log, in their order; none if they fall, or their offsets do."""
    spans: list[EpochSpan] = []
    for batch in sorted(batches, key=lambda batch: batch.position):
        if batch.magic < 2 or batch.leader_epoch < 0:
            continue
        if spans and (batch.leader_epoch < spans[-1].epoch or batch.base_offset < spans[-1].first_offset):
            return ()
        first = batch.base_offset
        if spans and batch.leader_epoch == spans[-1].epoch:
            first = spans.pop().first_offset
        spans.append(EpochSpan(batch.leader_epoch, first, batch.last_offset))
    return tuple(spans)


def check_epoch_starts(found: Findings, starts: EpochStarts) -> None:
    """Note checkpoints that say another start of an epoch than most: an epoch has one leader, and begins once."""
    for epoch, start, name, most, others in starts.differing():
        text = f"epoch {epoch} begins at offset {start} by it, and at {most} by {others} others"
        found.add(Code.BAD_LEADER_EPOCHS, name, text, offset=start)


class Lineages:
    """Remembers of all checkpoints of a partition the newest one, and where each epoch begins by the others."""

    def __init__(self) -> None:
        self._newest: tuple[Segment, LeaderEpochs] | None = None
        self._starts = EpochStarts()

    def add(self, facts: SegmentFacts) -> None:
        """Take a segment's checkpoint, and leave with the segment only what it says of that."""
        checkpoint, facts.checkpoint = facts.checkpoint, None
        if checkpoint is None:
            return
        ended = _ended(facts.segment, facts.end, checkpoint)
        facts.segment = replace(facts.segment, epochs=ended.epochs)
        if not facts.is_live or not len(checkpoint):
            return
        if self._newest is None or newest_first([self._newest[0], ended])[0] is ended:
            self._newest = (ended, checkpoint)
        self._starts.add(checkpoint, ended.files.leader_epochs or ended.files.log)

    def check(self, found: Findings) -> None:
        """Note checkpoints that say another start of an epoch than most."""
        check_epoch_starts(found, self._starts)

    def resolve(self, log: PartitionLog, facts: Sequence[SegmentFacts], given: LeaderEpochs | None) -> ResolvedLog:
        """Which segment delivers which offsets, by what was seen of each.

        Args:
            given: the lineage of the live log, where somebody has it.
        """
        live = [_ended(one.segment, one.end, None) for one in facts if one.is_live]
        spans = [() if one.segment.epochs else one.spans for one in facts if one.is_live]
        lineage, is_assumed = given, False
        if lineage is None and self._newest is not None:
            lineage = self._newest[1]
        if not lineage and any(segment.epochs for segment in live):
            lineage, is_assumed = assumed_lineage(live), True
        if lineage:
            borne = [
                replace(one, epochs=LeaderEpochs(tuple(LeaderEpoch(span.epoch, span.first_offset) for span in some)))
                for one, some in zip(live, spans, strict=True)
                if some
            ]
            lineage = assumed_lineage(borne if given is not None else [*live, *borne], lineage)
            live = [
                replace(one, epochs=epochs_of_batches(some, one.base_offset, one.last_offset or 0, lineage))
                if some
                else one
                for one, some in zip(live, spans, strict=True)
            ]
        return resolve(log.partition, live, lineage, is_assumed=is_assumed)


def resolve_local(log: PartitionLog, facts: Sequence[SegmentFacts]) -> ResolvedLog:
    """As ``Lineages.resolve``, of a broker's log directory: it is itself the live history."""
    return resolve(log.partition, [_ended(one.segment, one.end, None) for one in facts], None)


def _ended(segment: Segment, end: int | None, checkpoint: LeaderEpochs | None) -> Segment:
    """The segment with a last offset, and its epochs where a checkpoint is given."""
    last = segment.last_offset
    if last is None:
        last = segment.base_offset if end is None else max(end, segment.base_offset - 1)
    epochs = segment.epochs
    if epochs is None and checkpoint is not None:
        epochs = clip(checkpoint, segment.base_offset, last)
    return replace(segment, last_offset=last, epochs=epochs)


def check_lineage(
    found: Findings, store: ObjectStore, resolved: ResolvedLog, facts: Sequence[SegmentFacts], known: frozenset[int]
) -> None:
    """Note holes and overlaps.

    Args:
        known: offsets at which something else was found that explains a hole.
    """
    for dropped in resolved.dropped:
        found.add(_DROPPED[dropped.reason], dropped.segment.files.log, dropped.text, offset=dropped.start)
    by_log = {one.segment.files.log: one for one in facts}
    for hole in resolved.holes:
        if any(hole.start <= offset <= hole.stop for offset in known):
            continue
        before = next(part.segment for part in resolved.parts if part.stop == hole.start)
        after = next(part.segment for part in resolved.parts if part.start == hole.stop)
        is_told = before.last_offset is not None and by_log[before.files.log].segment.last_offset is not None
        code = Code.COMPACTION_GAP if not is_told and _was_cleaned(store, before, after, by_log) else Code.HOLE
        following = after.files.log.rpartition("/")[2]
        text = f"offsets {hole.start}-{hole.stop - 1} are in no segment: the next one is {following}"
        found.add(code, before.files.log, text, offset=hole.start)


def _was_cleaned(store: ObjectStore, before: Segment, after: Segment, by_log: dict[str, SegmentFacts]) -> bool:
    if by_log[before.files.log].was_cleaned or by_log[after.files.log].was_cleaned:
        return True
    try:
        return look_for_cleaning(store, before) or look_for_cleaning(store, after)
    except SegreaderError:
        return False
