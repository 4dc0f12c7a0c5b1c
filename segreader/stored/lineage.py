"""From the segments of a listing to the offsets that each of them delivers: reads what ``plan.lineage`` decides by.

Where the catalogue does not tell the leader epochs of a segment, its leader-epoch checkpoint does; where it does not
tell the last offset, the last batch does.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field, replace
from itertools import pairwise
from typing import Final

from segreader.catalog.layouts import log_directory
from segreader.catalog.listing import PartitionLog
from segreader.errors import AccessDeniedError, FormatError, ObjectNotFoundError, shown_count
from segreader.evidence.findings import MOST_NAMED, Findings
from segreader.evidence.lineage_checks import check_epoch_starts, check_epochs
from segreader.evidence.listing_checks import incomplete_notes, incomplete_offsets
from segreader.format.checkpoints import MOST_OF_LEADER_EPOCHS, LeaderEpoch, LeaderEpochs, parse_leader_epochs
from segreader.format.compression import DEFAULT_LIMIT
from segreader.format.scanner import Batch
from segreader.plan.lineage import (
    Dropped,
    DropReason,
    EpochStarts,
    OffsetHole,
    ResolvedLog,
    assumed_lineage,
    clip,
    epochs_of_batches,
    epochs_within,
    newest_first,
    resolve,
)
from segreader.plan.request import Policy
from segreader.ranges import ByteRange
from segreader.segment import Segment
from segreader.storage.base import ObjectStore, read_each, read_whole
from segreader.stored.segment_ends import (
    OPEN_END,
    EndedSegments,
    bears,
    bears_epochs,
    read_batches_at,
    read_epochs,
    read_last_offset,
    with_ends,
)
from segreader.values import dataclass

_CANDIDATES: Final = 8
_LOG_STARTS: Final = "log-start-offset-checkpoint"
_MAGIC_POSITION: Final = 16
"""Position of the magic byte, in every format."""

_DIGEST: Final = re.compile(r"etag:([0-9a-f]{32})")
"""S3's ETag of an object that was put at once: the MD5 of its bytes, unless it is encrypted with a key of its own."""


@dataclass(frozen=True, slots=True)
class ReadableLog:
    """A partition with each offset claimed by one segment, and what was noticed on the way.

    Args:
        lacking: why offsets are missing though an object for them is there, by the first of these offsets.
        last_batches: by the name of its log: the last batch of each segment whose end was read.
    """

    resolved: ResolvedLog
    notes: tuple[str, ...] = ()
    lacking: Mapping[int, str] = field(default_factory=dict)
    last_batches: Mapping[str, Batch] = field(default_factory=dict)


def read_lineage(
    store: ObjectStore,
    log: PartitionLog,
    *,
    local: PartitionLog | None = None,
    given: LeaderEpochs | None = None,
    max_batch_bytes: int = DEFAULT_LIMIT,
) -> ReadableLog:
    """Decide which segment delivers which offsets.

    Args:
        store: the view in which the segments' files have their names.
        log: of one partition.
        local: the same partition in a broker's log directory; it goes on where the remote tier ends, and its
            checkpoint is the lineage of the live log.
        given: the lineage of the live log, where somebody has it otherwise.
        max_batch_bytes: largest batch to hold where the last one of a segment is looked for.
    """
    if local is None and log.layout == log_directory.NAME:
        log, local = replace(log, segments=()), log
    notes: list[str] = []
    log = _with_first_segments(store, log, notes, max_batch_bytes)
    listed = (*log.segments, *(_local_segments(local, has_remote=bool(log.segments)) if local is not None else ()))
    files = _read_checkpoints(store, listed, notes)
    remote = len(log.segments)
    notes += _differing_starts(store, log.segments, files)
    files = files[:remote] + [_from_the_first_segment(known, listed[remote:]) for known in files[remote:]]
    if _is_of_old_format(store, log.segments, files):
        files = [_from_the_first_segment(known, listed) for known in files]
    listed = _with_true_ends(store, listed, notes, max_batch_bytes)
    ends = EndedSegments(listed, {})
    is_enough = len(listed) == 1 and listed[0].log_size and not incomplete_offsets(log)
    if listed and (given is not None or local is not None or not is_enough):
        incomplete = [one.base_offset for one in log.incomplete]
        ends = with_ends(store, listed, incomplete, max_batch_bytes, too_short=log.too_short)
        notes += ends.notes
    segments = [_completed(segment, known) for segment, known in zip(ends.segments, files, strict=True)]
    lineage, is_assumed, refused = _choose(
        store, log, segments, files, given, notes, max_batch_bytes, ends.last_batches
    )
    chosen = next(
        (one.files.log for one, known in zip(segments, files, strict=True) if known and known is lineage), None
    )
    later = None if given is not None else _later_lineage(store, log, lineage, files)
    if later is not None:
        lineage, chosen = later[1], None
    segments, chosen_lineage = _without_epochs(segments, refused), lineage
    if lineage or _overlap(segments):
        segments, lineage, is_assumed = _with_epochs_of_batches(
            store, log, segments, lineage or None, is_assumed or not lineage, notes, max_batch_bytes
        )
    if is_assumed and lineage is not None:
        notes.append(f"{log.partition}: no leader-epoch checkpoint can be read; the lineage is put together from parts")
    log_start = log.log_start
    if local is not None and local.segments:
        log_start = max(log_start or 0, _read_log_start(store, local) or 0)
    missing = [*log.missing, *_cut_off(segments, log.too_short)]
    resolved = resolve(log.partition, [*segments, *missing], lineage, log_start=log_start, is_assumed=is_assumed)
    believed: set[str] = set()
    is_disputed = resolved.dropped or ends.last_batches  # names of 100,000 logs cost a plan a tenth of its memory
    stated = {one.files.log for one in listed if one.epochs is not None} if is_disputed else set()
    by_batches = {
        one.files.log for one, known in zip(listed, files, strict=True) if one.epochs is None and not known
    } | {*refused}
    while lineage and (
        untrue := _contradicted(store, resolved, missing, ends.last_batches, stated, believed, max_batch_bytes)
        or _false_winners(store, resolved, ends.last_batches, stated, believed, max_batch_bytes)
    ):
        notes += [
            f"{store.url(name)}: its batches bear other leader epochs than its checkpoint says" for name in untrue
        ]
        believed.update(untrue)
        by_batches.update(untrue)
        known_lineage = lineage
        bare = _without_epochs(segments, by_batches)
        if chosen in untrue:  # what extended it counts for nothing, either
            files = [None if one.files.log in by_batches else known for one, known in zip(segments, files, strict=True)]
            chosen_lineage, _, refused = _choose(store, log, bare, files, given, [], max_batch_bytes, ends.last_batches)
            chosen = next(
                (one.files.log for one, known in zip(bare, files, strict=True) if known and known is chosen_lineage),
                None,
            )
            by_batches.update(refused)
            bare = _without_epochs(bare, refused)
        corrected, lineage, _ = _with_epochs_of_batches(
            store, log, bare, chosen_lineage or None, is_assumed, notes, max_batch_bytes
        )
        lineage = lineage or known_lineage
        segments = [one if one.epochs else before for one, before in zip(corrected, segments, strict=True)]
        resolved = resolve(log.partition, [*segments, *missing], lineage, log_start=log_start, is_assumed=is_assumed)
    empty = [segment for segment in segments if segment.files.log in ends.lost] if ends.lost else []
    resolved = _without_missing(resolved, [*missing, *empty])
    lacking = {one.base_offset: f"{store.url(one.files.log)} is empty, and {ends.lost[one.files.log]}" for one in empty}
    lacking |= {one.base_offset: f"{store.url(one.files.log)} ends before that" for one in missing[len(log.missing) :]}
    lacking = {at: why for at, why in lacking.items() if any(hole.start <= at < hole.stop for hole in resolved.holes)}
    notes += [f"{log.partition}: offsets from {at} on are missing: {why}" for at, why in sorted(lacking.items())]
    if log.incomplete:
        notes += incomplete_notes(store, log, resolved)
    if later is not None and any(one.reason is DropReason.DIVERGED for one in resolved.dropped):
        name, epoch = store.url(later[0]), later[1].entries[-1].epoch
        notes.append(f"{name}: its leader epoch {epoch} is the newest, and no log beside it can be read")
    notes += _below_the_lineage(store, resolved, log_start or 0)
    if given is None and resolved.parts:
        of_chosen = (one for one in segments if one.files.log == chosen) if chosen is not None else iter(())
        notes += _outside_the_lineage(store, resolved, next(of_chosen, None))
    if resolved.dropped and not resolved.parts and lineage:
        notes.append(
            f"{log.partition}: nothing is read: none of its segments belongs to the live log, whose leader epochs are "
            + ", ".join(f"{one.epoch} from offset {one.start_offset}" for one in lineage)
        )
    return ReadableLog(resolved, tuple(notes), lacking, ends.last_batches)


def _later_lineage(
    store: ObjectStore, log: PartitionLog, lineage: LeaderEpochs | None, files: Sequence[LeaderEpochs | None]
) -> tuple[str, LeaderEpochs] | None:
    """A checkpoint with a newer epoch than the lineage's, of a set that lacks its log or whose log is empty.

    Its leader knew of a truncation of which the segments that are whole may know nothing.
    """
    if not lineage:
        return None
    beside = [
        (one.files.leader_epochs, known)
        for one, known in zip(log.segments, files, strict=False)
        if not one.log_size and one.files.leader_epochs is not None and known
    ]
    read = {one.segment_id for one in log.segments}
    names = [one.leader_epochs for one in log.incomplete if one.leader_epochs and one.segment_id not in read]
    for name in names[-_CANDIDATES:]:
        answer = read_checkpoint(store, name).epochs
        if answer:
            beside.append((name, answer))
    newest = max(beside, key=lambda one: one[1].entries[-1].epoch, default=None)
    return newest if newest is not None and newest[1].entries[-1].epoch > lineage.entries[-1].epoch else None


def _differing_starts(
    store: ObjectStore, segments: Sequence[Segment], files: Sequence[LeaderEpochs | None]
) -> list[str]:
    """Notes of the checkpoints that say another start of an epoch than most."""
    starts = EpochStarts()
    for segment, known in zip(segments, files, strict=False):
        if known:
            starts.add(known, segment.files.leader_epochs or segment.files.log)
    if not starts.differing():
        return []
    found = Findings(store, most=MOST_NAMED)
    check_epoch_starts(found, starts)
    return found.settle(Policy.SKIP)


def _below_the_lineage(store: ObjectStore, log: ResolvedLog, log_start: int) -> list[str]:
    """A note if offsets are left out only because the leader epochs begin behind them."""
    below = [one for one in log.dropped if one.reason is DropReason.BELOW_LOG_START and one.stop > log_start]
    if not below:
        return []
    stop, segment = below[-1].stop, below[-1].segment
    if not segment.epochs or segment.epochs.entries[0].start_offset < stop:  # another one's checkpoint counts
        segment = newest_first([part.segment for part in log.parts] or [segment], 1)[0]
    name = store.url(segment.files.leader_epochs or segment.files.log)
    return [
        f"{log.partition}: offsets {max(below[0].start, log_start)} to {stop - 1} are here and are not read: the "
        f"leader epochs begin with offset {stop}, as DeleteRecords leaves them, by {name}"
    ]


def _outside_the_lineage(store: ObjectStore, log: ResolvedLog, chosen: Segment | None) -> list[str]:
    """A note if offsets before the first that is read, or behind the last, are left out by their leader epochs.

    Nothing is missing between two parts then, so no gap says it.

    Args:
        chosen: the segment whose checkpoint is the lineage; ``None`` if it is no segment's.
    """
    outside = [
        (max(one.start, start), min(one.stop, stop), one)
        for one in log.dropped
        if one.reason is DropReason.DIVERGED and one.segment.log_size
        for start, stop in ((one.start, log.start), (log.stop, one.stop))
        if max(one.start, start) < min(one.stop, stop)
    ]
    if not outside:
        return []
    start, stop, first = outside[0]
    more = f" and {shown_count(len(outside) - 1, 'more range')}" if len(outside) > 1 else ""
    by = f"by {store.url(chosen.files.leader_epochs or chosen.files.log)}" if chosen else "by the lineage"
    epochs = epochs_within(first.segment.epochs or LeaderEpochs(), start, stop)
    own = f" {epochs[0][0]}" if epochs else ""
    return [
        f"{log.partition}: offsets {start} to {stop - 1}{more} are in {store.url(first.segment.files.log)} and are not "
        f"read: {by}, their leader epoch{own} did not write them"
    ]


def _with_first_segments(store: ObjectStore, log: PartitionLog, notes: list[str], max_batch_bytes: int) -> PartitionLog:
    """The partition with the first sets that lack only the file that is written last, where their logs are whole.

    A log is whole that leads up to the next segment. Such a set was once complete, or its upload was tried again. One
    that lacks more is an upload that was given up: what was uploaded in its place may be long gone by retention.
    """
    segments, incomplete = list(log.segments), list(log.incomplete)
    for one in sorted(log.incomplete, key=lambda one: -one.base_offset):
        first = min((segment.base_offset for segment in segments), default=0)
        if (segment := one.segment) is None or segment.base_offset >= first or len(one.missing) > 1:
            continue
        if read_last_offset(store, segment, max_batch_bytes) != first - 1:
            break
        segments.insert(0, segment)
        incomplete.remove(one)
        notes.append(
            f"{store.url(segment.files.log)}: the segment has no {one.missing[0]}; read without, for its log is whole"
        )
    return replace(log, segments=tuple(segments), incomplete=tuple(incomplete))


def _cut_off(segments: Sequence[Segment], too_short: Mapping[str, int]) -> list[Segment]:
    """A segment for each end that a log lacks by the metadata topic."""
    cut = []
    for segment in segments if too_short else ():
        last, stop = too_short.get(segment.files.log), (segment.last_offset or 0) + 1
        if last is not None and segment.log_size and stop <= last:
            epochs = clip(segment.epochs, stop, last) if segment.epochs else segment.epochs
            cut.append(replace(segment, base_offset=stop, last_offset=last, epochs=epochs, version=-1))
    return cut


def _without_epochs(segments: Sequence[Segment], names: Collection[str]) -> list[Segment]:
    if not names:
        return list(segments)
    return [replace(one, epochs=None) if one.files.log in names else one for one in segments]


def _contradicted(
    store: ObjectStore,
    log: ResolvedLog,
    missing: Sequence[Segment],
    last_batches: Mapping[str, Batch],
    stated: Collection[str],
    believed: Collection[str],
    max_batch_bytes: int,
) -> list[str]:
    """The logs whose batches do not bear the epochs for which offsets of theirs were dropped.

    Of those that diverged only these are read: whose offsets no other segment delivers, the one that was uploaded
    last, and those whose last batch bears another epoch. What a lost branch leaves is older, and mostly below the end
    of the live one.

    Args:
        missing: segments that have no log.
        last_batches: by the name of its log: the last batch of each segment whose end was read.
        stated: the logs whose epochs the catalogue gives: no checkpoint gives their offsets to a copy.
        believed: the logs that were read before.
    """
    gone = {id(segment) for segment in missing}
    there = [one for one in log.dropped if one.segment.log_size and id(one.segment) not in gone]
    newest = max([*(part.segment.version for part in log.parts), *(one.segment.version for one in there)], default=0)

    def is_suspect(one: Dropped) -> bool:
        if one.reason is DropReason.DUPLICATE:
            return one.segment.files.log not in stated
        return one.reason is DropReason.DIVERGED and (
            one.start < log.start
            or one.stop > log.stop
            or (newest > 0 and one.segment.version == newest)
            or any(one.start < hole.stop and hole.start < one.stop for hole in log.holes)
            or (
                _contradicts_last(store, one.segment, last_batches)
                and not bears_epochs(store, one.segment, one.segment.epochs or LeaderEpochs(), max_batch_bytes)
            )
        )

    suspects: dict[str, tuple[Segment, set[int]]] = {}
    for one in there:
        if one.segment.epochs and one.segment.files.log not in believed and is_suspect(one):
            suspects.setdefault(one.segment.files.log, (one.segment, set()))[1].update(one.deciding_offsets)

    def is_contradicted(name: str) -> bool:
        segment, offsets = suspects[name]
        try:
            batches = read_batches_at(store, segment, sorted(offsets), max_batch_bytes)
        except ObjectNotFoundError:
            return False  # the copy that is read may be there
        return not check_epochs(Findings(store), segment, segment.epochs or LeaderEpochs(), batches)

    answers = read_each(is_contradicted, list(suspects))
    return [name for name, answer in zip(suspects, answers, strict=True) if answer]


def _false_winners(
    store: ObjectStore,
    log: ResolvedLog,
    last_batches: Mapping[str, Batch],
    stated: Collection[str],
    believed: Collection[str],
    max_batch_bytes: int,
) -> list[str]:
    """The logs that deliver offsets of other copies, and whose batches there do not bear the epochs that they claim.

    The last batch of each is known, and only where it contradicts the checkpoint are others read. Where both copies
    have the same batch its epoch is damaged: it is not under the CRC.
    """

    def is_another_history(segment: Segment, other: Segment, offset: int) -> bool:
        try:
            one, two = (_batch_at(store, each, offset, max_batch_bytes) for each in (segment, other))
        except ObjectNotFoundError:
            return False  # reading says so
        if one is None or two is None or one.crc == two.crc:
            return False
        return not check_epochs(Findings(store), segment, segment.epochs or LeaderEpochs(), [one])

    false: list[str] = []
    for part in log.parts if last_batches else ():
        segment, name = part.segment, part.segment.files.log
        if name in stated or name in believed or not _contradicts_last(store, segment, last_batches):
            continue
        beside = [
            (one.segment, min(one.stop, part.stop) - 1)
            for one in log.dropped
            if one.segment is not segment
            and one.segment.log_size
            and one.reason is not DropReason.BELOW_LOG_START
            and max(one.start, part.start) < min(one.stop, part.stop)
        ]
        if any(is_another_history(segment, other, offset) for other, offset in beside):
            false.append(name)
    return false


def _contradicts_last(store: ObjectStore, segment: Segment, last_batches: Mapping[str, Batch]) -> bool:
    """Whether a segment's last batch, if it is known, bears another epoch than its checkpoint says."""
    last, epochs = last_batches.get(segment.files.log), segment.epochs
    if last is None or not epochs:
        return False
    newest = epochs.entries[-1]
    if newest.epoch == last.leader_epoch and newest.start_offset <= last.base_offset:
        return False  # as nearly always
    return not check_epochs(Findings(store), segment, epochs, [last])


def _batch_at(store: ObjectStore, segment: Segment, offset: int, max_batch_bytes: int) -> Batch | None:
    batches = read_batches_at(store, segment, [offset], max_batch_bytes)
    return next((one for one in batches if one.base_offset <= offset <= one.last_offset), None)


def _with_epochs_of_batches(
    store: ObjectStore,
    log: PartitionLog,
    segments: list[Segment],
    lineage: LeaderEpochs | None,
    is_assumed: bool,
    notes: list[str],
    max_batch_bytes: int,
) -> tuple[list[Segment], LeaderEpochs | None, bool]:
    """The segments, with epochs from their batches where nothing else gives them, and the lineage with those.

    A failed upload may leave the newest segments without a checkpoint: epochs above the lineage's continue it.
    """
    unknown = [at for at, segment in enumerate(segments) if not segment.epochs and segment.log_size]
    answers = read_each(lambda at: read_epochs(store, segments[at], max_batch_bytes), unknown)
    spans = {at: found for at, found in zip(unknown, answers, strict=True) if found}
    if not spans:
        return segments, lineage, is_assumed
    borne = [
        replace(segments[at], epochs=LeaderEpochs(tuple(LeaderEpoch(one.epoch, one.first_offset) for one in found)))
        for at, found in spans.items()
    ]
    if lineage is None:
        lineage = _from_the_first_segment(assumed_lineage(borne), segments)
    else:
        known, lineage = lineage, assumed_lineage(borne, lineage)
        lacking = shown_count(len(spans), "segment has", "segments have")
        note = f"{log.partition}: {lacking} no sound leader-epoch checkpoint"
        note += ": the epochs come from their batches"
        if lineage is not known:
            epochs = ", ".join(str(one.epoch) for one in lineage if one.epoch > known.entries[-1].epoch)
            note += f", and {epochs} from no checkpoint"
        notes.append(note)
    segments = list(segments)
    for at, found in spans.items():
        one = segments[at]
        last = found[-1].last_offset if one.last_offset is None else one.last_offset
        segments[at] = replace(one, epochs=epochs_of_batches(found, one.base_offset, last, lineage))
    return segments, lineage, is_assumed


def _with_true_ends(
    store: ObjectStore, segments: Sequence[Segment], notes: list[str], max_batch_bytes: int
) -> tuple[Segment, ...]:
    """The segments; a stated end that reaches into another segment is replaced by that of the last batch.

    A manifest has no checksum. Overlaps are rare: a log that no retry and no election touched costs no read.
    """
    if all(max(one.base_offset, (one.last_offset or 0) + 1) <= two.base_offset for one, two in pairwise(segments)):
        return tuple(segments)
    bases = sorted({segment.base_offset for segment in segments})
    checked = list(segments)
    for at, segment in enumerate(segments):
        stated = segment.last_offset
        if stated is None or segment.is_active or stated < segment.base_offset or not segment.log_size:
            continue
        behind = bisect_right(bases, segment.base_offset)
        if behind == len(bases) or stated < bases[behind]:
            continue
        try:
            last = read_last_offset(store, segment, max_batch_bytes)
        except ObjectNotFoundError:
            continue  # reading says so
        if last is not None and last < stated:
            notes.append(
                f"{store.url(segment.files.log)}: its last batch ends with offset {last}, and the catalogue has "
                f"{stated}; the batch is believed"
            )
            checked[at] = replace(segment, last_offset=last)
    return tuple(checked)


def _completed(segment: Segment, known: LeaderEpochs | None) -> Segment:
    """The segment with an end, and with its epochs if its own checkpoint has them."""
    if segment.last_offset is not None and (segment.epochs is not None or not known):
        return segment
    last = OPEN_END if segment.last_offset is None else segment.last_offset
    epochs = clip(known, segment.base_offset, last) if segment.epochs is None and known else segment.epochs
    return segment.ended(last, epochs)


def _local_segments(local: PartitionLog, *, has_remote: bool) -> list[Segment]:
    """The segments of a log directory; a remote copy that reaches as far is preferred.

    The end of the active one is asked for only where the remote tier may reach beyond it: the directory may be old.
    """
    return [
        replace(one, version=-1, last_offset=OPEN_END if one.is_active and not has_remote else one.last_offset)
        for one in local.segments
    ]


def _without_missing(log: ResolvedLog, missing: Sequence[Segment]) -> ResolvedLog:
    """The log with holes where only segments would deliver that are not there."""
    if not missing:
        return log
    gone = {id(segment) for segment in missing}
    spans = sorted(
        [*((hole.start, hole.stop) for hole in log.holes)]
        + [(part.start, part.stop) for part in log.parts if id(part.segment) in gone]
    )
    holes: list[OffsetHole] = []
    for start, stop in spans:
        if holes and holes[-1].stop == start:
            holes[-1] = OffsetHole(holes[-1].start, stop)
        else:
            holes.append(OffsetHole(start, stop))
    return replace(
        log,
        parts=tuple(part for part in log.parts if id(part.segment) not in gone),
        holes=tuple(holes),
        dropped=tuple(one for one in log.dropped if id(one.segment) not in gone),
    )


def _overlap(segments: Sequence[Segment]) -> bool:
    """Whether two segments hold the same offsets."""
    reach = -1
    for segment in sorted(segments, key=lambda one: one.base_offset):
        if segment.base_offset <= reach and (segment.last_offset or 0) >= segment.base_offset:
            return True
        reach = max(reach, segment.last_offset or 0)
    return False


def _read_log_start(store: ObjectStore, local: PartitionLog) -> int | None:
    """The log start offset by the broker's own checkpoint, which is above the partition's directory."""
    directory = local.segments[0].files.log.rpartition("/")[0]
    name = f"{directory.rpartition('/')[0]}/{_LOG_STARTS}".lstrip("/")
    try:
        text = read_whole(store, name).decode("ascii", "replace")
    except (ObjectNotFoundError, AccessDeniedError):
        return None
    for line in text.splitlines()[2:]:
        match line.split():
            case [topic, number, offset] if f"{topic}-{number}" == str(local.partition) and offset.isdecimal():
                return int(offset)
    return None


def _is_of_old_format(store: ObjectStore, segments: Sequence[Segment], files: Sequence[LeaderEpochs | None]) -> bool:
    """Whether the first epoch begins behind a first batch that is too old to have one (magic 0 and 1)."""
    first = min(segments, key=lambda segment: segment.base_offset, default=None)
    starts = [known.entries[0].start_offset for known in files if known]
    if first is None or not starts or min(starts) <= first.base_offset or first.log_size <= _MAGIC_POSITION:
        return False
    try:
        (magic,) = store.read_ranges(first.files.log, [ByteRange(_MAGIC_POSITION, _MAGIC_POSITION + 1)])
    except ObjectNotFoundError:
        return False  # reading will say so
    return magic[0] < 2


def _from_the_first_segment(lineage: LeaderEpochs | None, segments: Sequence[Segment]) -> LeaderEpochs | None:
    """A log directory's lineage down to its first segment: older message formats have no epochs."""
    if not lineage or not segments or lineage.entries[0].start_offset <= segments[0].base_offset:
        return lineage
    first, *rest = lineage.entries
    return LeaderEpochs((LeaderEpoch(first.epoch, segments[0].base_offset), *rest))


def _read_checkpoints(store: ObjectStore, segments: Sequence[Segment], notes: list[str]) -> list[LeaderEpochs | None]:
    """The leader-epoch checkpoint of every segment whose epochs the catalogue does not know."""
    found = read_checkpoints(store, (segment for segment in segments if segment.epochs is None))
    if not found:
        return [None] * len(segments)
    notes += [one.note for one in found.values() if one.note is not None]
    return [
        None if (one := found.get(segment.files.leader_epochs or "")) is None else one.epochs for segment in segments
    ]


def _choose(
    store: ObjectStore,
    log: PartitionLog,
    segments: Sequence[Segment],
    files: Sequence[LeaderEpochs | None],
    given: LeaderEpochs | None,
    notes: list[str],
    max_batch_bytes: int,
    last_batches: Mapping[str, Batch],
) -> tuple[LeaderEpochs | None, bool, list[str]]:
    """The lineage to follow, whether it is only put together, and the logs beside which a checkpoint is false.

    Of a log directory's own and those of the remote tier the one with the highest epoch counts: the directory may be an
    old copy. Source: ``LeaderEpochFileCache`` (4.3).
    """
    if given is not None and len(given):
        return given, False, []
    remote = len(log.segments)
    newest_epoch = max((one.epochs.entries[-1].epoch for one in segments[:remote] if one.epochs), default=-1)
    own = next((known for known in files[remote:] if known), None)
    if own is not None and own.entries[-1].epoch >= newest_epoch:
        return own, False, []
    if own is not None:
        notes.append(
            f"{log.partition}: the log directory knows leader epochs up to {own.entries[-1].epoch}, and the remote "
            f"tier up to {newest_epoch}: it is an old copy"
        )
    segments, files = segments[:remote], files[:remote]
    listed = {id(segment): known for segment, known in zip(segments, files, strict=True) if known}
    if listed:
        candidates = newest_first([segment for segment in segments if id(segment) in listed], _CANDIDATES)
        refused: list[str] = []

        def is_sound(segment: Segment) -> bool:
            epochs, last = listed[id(segment)], last_batches.get(segment.files.log)
            if last is not None and bears(last, epochs):
                return True  # nothing is read twice
            if bears_epochs(store, segment, epochs, max_batch_bytes):
                return True
            notes.append(
                f"{store.url(segment.files.leader_epochs or segment.files.log)}: no batch of the segment bears the "
                "leader epochs that this checkpoint says; read without it"
            )
            refused.append(segment.files.log)
            return False

        for segment in candidates:
            if is_sound(segment):
                latest = max((one for one in segments if id(one) in listed), key=lambda one: one.version)
                if latest.version > segment.version and latest.files.log not in refused:
                    is_sound(latest)  # its checkpoint may be older than an election
                return listed[id(segment)], False, refused
        return listed[id(candidates[0])], False, []
    stated = [segment for segment in segments if segment.epochs is not None and len(segment.epochs)]
    for segment in newest_first(stated, _CANDIDATES):
        name = segment.files.leader_epochs
        answer = read_checkpoint(store, name, segment.files.sizes.get(name)) if name is not None else Checkpoint()
        if answer.epochs:
            lineage = assumed_lineage([*stated, *log.missing], answer.epochs)
            if lineage is not answer.epochs:
                above = ", ".join(str(one.epoch) for one in lineage if one.epoch > answer.epochs.entries[-1].epoch)
                notes.append(
                    f"{log.partition}: no leader-epoch checkpoint that can be read has the leader epochs {above}: the "
                    "catalogue says where they begin"
                )
            return lineage, False, []
        if answer.note is not None:
            notes.append(answer.note)
    return (assumed_lineage([*stated, *log.missing]), True, []) if stated else (None, False, [])


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What was read.

    Args:
        epochs: ``None`` if it is not there or damaged.
        note: what is wrong with it.
        is_proven: its bytes have the digest that the listing gives.
    """

    epochs: LeaderEpochs | None = None
    note: str | None = None
    is_proven: bool = False


def digest_of(segment: Segment) -> str | None:
    """The digest of a segment's checkpoint if its tag has the form of one: equal ones mean equal bytes, once proven."""
    tag = segment.files.epochs_tag
    found = None if tag is None else _DIGEST.fullmatch(tag)
    return None if found is None else found[1]


def read_checkpoints(store: ObjectStore, segments: Iterable[Segment]) -> dict[str, Checkpoint]:
    """The checkpoints of these segments, by name; those that have none are left out."""
    sizes: dict[str, int | None] = {}
    digests: dict[str, str | None] = {}
    firsts: dict[str, str] = {}
    for segment in segments:
        if (name := segment.files.leader_epochs) is not None and name not in sizes:
            sizes[name] = segment.files.sizes.get(name)
            digests[name] = digest = digest_of(segment)
            firsts.setdefault(digest or name, name)

    def read(name: str) -> Checkpoint:
        return read_checkpoint(store, name, sizes[name], digests[name])

    answers = dict(zip(firsts.values(), read_each(read, list(firsts.values())), strict=True))
    proven = {key: answers[name] for key, name in firsts.items() if answers[name].is_proven and answers[name].epochs}
    others = [name for name, digest in digests.items() if name not in answers and digest not in proven]
    answers |= zip(others, read_each(read, others), strict=True)
    return {name: answers.get(name) or proven[digest or name] for name, digest in digests.items()}


def read_checkpoint(store: ObjectStore, name: str, size: int | None = None, digest: str | None = None) -> Checkpoint:
    """One checkpoint; ``digest`` is what proves it, as ``digest_of`` has it."""
    try:
        data = read_whole(store, name, size, most=MOST_OF_LEADER_EPOCHS)
        is_proven = digest is not None and _md5(data) == digest
        return Checkpoint(parse_leader_epochs(data), None, is_proven)
    except ObjectNotFoundError:
        return Checkpoint()
    except FormatError as error:
        return Checkpoint(None, f"{error.located(source=store.url(name))}; read without it")


def _md5(data: bytes) -> str:
    import hashlib

    return hashlib.md5(data, usedforsecurity=False).hexdigest()
