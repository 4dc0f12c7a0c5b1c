"""The segments of a partition together: which history each belongs to, what overlaps, and what is in none of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from segreader.catalog.listing import PartitionLog
from segreader.errors import SegreaderError
from segreader.format.leader_epochs import LeaderEpochs
from segreader.plan.lineage import DropReason, ResolvedLog, assumed_lineage, clip, newest_first, resolve
from segreader.read.verify.batch import Batch
from segreader.read.verify.codes import Code
from segreader.read.verify.findings import Findings
from segreader.read.verify.log_checks import look_for_cleaning
from segreader.segment import Segment
from segreader.storage.base import ObjectStore

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
        was_cleaned: some batch shows that it was compacted.
        checkpoint: the whole lineage of its uploader.
        codes: what was found.
    """

    segment: Segment
    is_live: bool = True
    first: Batch | None = None
    end: int | None = None
    was_cleaned: bool = False
    checkpoint: LeaderEpochs | None = None
    codes: frozenset[Code] = field(default_factory=frozenset)


def check_epochs(found: Findings, segment: Segment, checkpoint: LeaderEpochs, batches: Sequence[Batch]) -> bool:
    """Hold batches against the checkpoint beside them; returns whether they agree. One that does not is enough.

    Where the log start lies inside a batch the lineage begins there, so it is asked there. Source:
    ``LeaderEpochFileCache`` (4.3).
    """
    for batch in batches:
        if batch.leader_epoch < 0:
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


def resolve_partition(
    log: PartitionLog, facts: Sequence[SegmentFacts], given: LeaderEpochs | None, *, is_local: bool
) -> ResolvedLog:
    """Which segment delivers which offsets, by what was seen of each.

    Args:
        given: the lineage of the live log, where somebody has it.
        is_local: a broker's log directory is itself the live history.
    """
    live = [_ended(one) for one in facts if one.is_live]
    lineage, is_assumed = given, False
    if is_local:
        return resolve(log.partition, live, None)
    if lineage is None:
        checkpoints = {id(segment): one.checkpoint for segment, one in zip(live, _live(facts), strict=True)}
        told = (checkpoints[id(segment)] for segment in newest_first(live))
        lineage = next((one for one in told if one), None)
    if not lineage and any(segment.epochs for segment in live):
        lineage, is_assumed = assumed_lineage(live), True
    return resolve(log.partition, live, lineage, is_assumed=is_assumed)


def _live(facts: Sequence[SegmentFacts]) -> list[SegmentFacts]:
    return [one for one in facts if one.is_live]


def _ended(facts: SegmentFacts) -> Segment:
    """The segment with a last offset and its epochs."""
    segment = facts.segment
    last = segment.last_offset
    if last is None:
        last = segment.base_offset if facts.end is None else max(facts.end, segment.base_offset - 1)
    epochs = segment.epochs
    if epochs is None and facts.checkpoint is not None:
        epochs = clip(facts.checkpoint, segment.base_offset, last)
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
