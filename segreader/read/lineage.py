"""From the segments of a listing to the offsets that each of them delivers: reads what ``plan.lineage`` decides by.

Where the catalogue does not tell the leader epochs of a segment, its leader-epoch checkpoint does; where it does not
tell the last offset, the last batch does.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from segreader.catalog.collector import collector_at_rest
from segreader.catalog.layouts import log_directory
from segreader.catalog.listing import PartitionLog
from segreader.errors import AccessDeniedError, FormatError, ObjectNotFoundError
from segreader.format.batch import RecordBatchHeader
from segreader.format.compression import DEFAULT_LIMIT
from segreader.format.leader_epochs import LeaderEpoch, LeaderEpochs, parse_leader_epochs
from segreader.format.message_set import MessageHeader
from segreader.format.offset_index import parse_offset_index
from segreader.format.scanner import BatchReady, NeedData, SegmentScanner, Tail
from segreader.plan.lineage import ResolvedLog, assumed_lineage, clip, newest_first, resolve
from segreader.ranges import ByteRange
from segreader.read.small_objects import read_each, read_whole
from segreader.segment import Segment
from segreader.storage.base import ObjectStore

OPEN_END: Final = (1 << 62) - 1
"""The last offset of a segment that nothing follows: reading finds out. A header is no proof, for its offset is not
under the CRC."""

_CANDIDATES: Final = 8
_LOG_STARTS: Final = "log-start-offset-checkpoint"


@dataclass(frozen=True, slots=True)
class ReadableLog:
    """A partition with each offset claimed by one segment, and what was noticed on the way."""

    resolved: ResolvedLog
    notes: tuple[str, ...] = ()


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
    if local is not None and given is None:
        given = next(iter(_read_checkpoints(store, local.segments[-1:], notes)), None)
    files = _read_checkpoints(store, log.segments, notes)
    ended = _with_ends(store, log, local, max_batch_bytes, is_alone=given is None and local is None)
    if any(files):
        ended = _without_gaps_of_compaction(log, ended)
    segments = [
        replace(segment, epochs=clip(known, segment.base_offset, segment.last_offset or 0))
        if segment.epochs is None and known
        else segment
        for segment, known in zip(ended, files, strict=True)
    ]
    lineage, is_assumed = _choose(store, segments, files, given, notes)
    if local is not None:
        segments += _with_local_ends(local)
    if is_assumed:
        notes.append(f"{log.partition}: no leader-epoch checkpoint can be read; the lineage is put together from parts")
    log_start = log.log_start
    if local is not None and not log.segments:
        log_start = _read_log_start(store, local)
        lineage = _from_the_first_segment(lineage, segments)
    with collector_at_rest():
        resolved = resolve(log.partition, segments, lineage, log_start=log_start, is_assumed=is_assumed)
    return ReadableLog(resolved, tuple(notes))


def _read_log_start(store: ObjectStore, local: PartitionLog) -> int | None:
    """The log start offset by the broker's own checkpoint, which stands above the partition's directory."""
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


def _from_the_first_segment(lineage: LeaderEpochs | None, segments: Sequence[Segment]) -> LeaderEpochs | None:
    """A log directory's lineage down to its first segment: older message formats have no epochs."""
    if not lineage or not segments or lineage.entries[0].start_offset <= segments[0].base_offset:
        return lineage
    first, *rest = lineage.entries
    return LeaderEpochs((LeaderEpoch(first.epoch, segments[0].base_offset), *rest))


def _read_checkpoints(store: ObjectStore, segments: Sequence[Segment], notes: list[str]) -> list[LeaderEpochs | None]:
    """The leader-epoch checkpoint of every segment whose epochs the catalogue does not know."""
    names = dict.fromkeys(
        name for segment in segments if segment.epochs is None and (name := segment.files.leader_epochs) is not None
    )
    sizes = {name: size for segment in segments for name, size in segment.files.sizes.items() if name in names}

    def read(name: str) -> LeaderEpochs | str | None:
        return _read_checkpoint(store, name, sizes.get(name))

    found: dict[str, LeaderEpochs | None] = {}
    for name, answer in zip(names, read_each(read, list(names)), strict=True):
        if isinstance(answer, str):
            notes.append(answer)
        found[name] = answer if isinstance(answer, LeaderEpochs) else None
    return [found.get(segment.files.leader_epochs or "") for segment in segments]


def _read_checkpoint(store: ObjectStore, name: str, size: int | None = None) -> LeaderEpochs | str | None:
    """A checkpoint; ``None`` if it is not there, a note if it is damaged."""
    try:
        return parse_leader_epochs(read_whole(store, name, size))
    except ObjectNotFoundError:
        return None
    except FormatError as error:
        return f"{error.located(source=store.url(name))}; read without it"


def _choose(
    store: ObjectStore,
    segments: Sequence[Segment],
    files: Sequence[LeaderEpochs | None],
    given: LeaderEpochs | None,
    notes: list[str],
) -> tuple[LeaderEpochs | None, bool]:
    """The lineage to follow, and whether it is only put together. Source: ``LeaderEpochFileCache`` (4.3)."""
    if given is not None and len(given):
        return given, False
    listed = {id(segment): known for segment, known in zip(segments, files, strict=True) if known}
    if listed:
        (newest,) = newest_first([segment for segment in segments if id(segment) in listed], 1)
        return listed[id(newest)], False
    told = [segment for segment in segments if segment.epochs is not None and len(segment.epochs)]
    for segment in newest_first(told, _CANDIDATES):
        name = segment.files.leader_epochs
        answer = _read_checkpoint(store, name, segment.files.sizes.get(name)) if name is not None else None
        if isinstance(answer, LeaderEpochs) and len(answer):
            return answer, False
        if isinstance(answer, str):
            notes.append(answer)
    return (assumed_lineage(told), True) if told else (None, False)


def _with_local_ends(local: PartitionLog) -> list[Segment]:
    """The segments of a log directory, each up to the next one; a remote copy that reaches as far is preferred."""
    ended = [replace(one, last_offset=two.base_offset - 1, version=-1) for one, two in pairwise(local.segments)]
    return ended + [replace(segment, last_offset=OPEN_END, version=-1) for segment in local.segments[-1:]]


def _with_ends(
    store: ObjectStore, log: PartitionLog, local: PartitionLog | None, max_batch_bytes: int, *, is_alone: bool
) -> list[Segment]:
    """The segments with their last offsets.

    The next base tells nothing: after a leader change a later upload may begin below an older one.

    Args:
        is_alone: no lineage is given, and no log directory: of a single segment the end need not be known.
    """
    segments = log.segments
    unknown = [segment for segment in segments if segment.last_offset is None]
    if not unknown:
        return list(segments)
    if is_alone and len(segments) == 1:
        return [replace(segments[0], last_offset=OPEN_END)]
    bases = [segment.base_offset for segment in segments]
    following = dict(pairwise(sorted(set(bases))))
    copies = Counter(bases)

    def end(segment: Segment) -> Segment:
        last = read_last_offset(store, segment, max_batch_bytes)
        next_base = following.get(segment.base_offset)
        if last is None:  # damage hides it: reading will say so, unless there is a sound copy
            last = OPEN_END if next_base is None else next_base - 1
            if copies[segment.base_offset] > 1:
                last = segment.base_offset
        if next_base is None and local is not None:
            # a broker deletes nothing that is not uploaded: what its directory lacks, the remote tier has
            last = max(last, local.segments[0].base_offset - 1)
        return replace(segment, last_offset=last)

    ended = iter(read_each(end, unknown))
    return [next(ended) if segment.last_offset is None else segment for segment in segments]


def _without_gaps_of_compaction(log: PartitionLog, segments: list[Segment]) -> list[Segment]:
    """Let a segment reach to where the next one begins, complete or not, if nothing else does.

    Uploads of one lineage follow each other without a gap, but the cleaner may have removed the last batches of one.
    """
    lasts = {id(segment): segment.last_offset or 0 for segment in segments}
    ordered = deque(sorted(segments, key=lambda segment: segment.base_offset))
    newest = max((segment.base_offset for segment in segments), default=0)
    bases = {segment.base_offset for segment in segments}
    farthest: Segment | None = None
    for base in sorted(bases | {one.base_offset for one in log.incomplete if one.base_offset < newest}):
        if farthest is not None and lasts[id(farthest)] + 1 < base:
            lasts[id(farthest)] = base - 1
        while ordered and ordered[0].base_offset == base:
            segment = ordered.popleft()
            if farthest is None or lasts[id(segment)] > lasts[id(farthest)]:
                farthest = segment
    return [replace(segment, last_offset=lasts[id(segment)]) for segment in segments]


def read_last_offset(store: ObjectStore, segment: Segment, max_batch_bytes: int = DEFAULT_LIMIT) -> int | None:
    """The last offset of the segment's last whole batch, from its last index entry on.

    Returns:
        ``base_offset - 1`` if it has no batch; ``None`` if damage keeps it from being read, or a finished log is cut.
    """
    if not segment.log_size:
        return segment.base_offset - 1
    start = 0
    if (name := segment.files.offset_index) is not None:
        try:
            data = read_whole(store, name, segment.files.sizes.get(name))
            index = parse_offset_index(data, segment.base_offset, log_size=segment.log_size)
            start = max((position for position in index.positions() if position < segment.log_size), default=0)
        except (FormatError, ObjectNotFoundError):
            start = 0
    last = _walk(store, segment, start, max_batch_bytes)
    return _walk(store, segment, 0, max_batch_bytes) if last is None and start else last


def _walk(store: ObjectStore, segment: Segment, start: int, max_batch_bytes: int) -> int | None:
    last = segment.base_offset - 1
    scanner = SegmentScanner(start=start, stop=segment.log_size, max_batch_size=max_batch_bytes)
    wanted = ByteRange(start, segment.log_size)
    with closing(store.read_pieces(segment.files.log, wanted)) as pieces:
        while True:
            try:
                answer = scanner.next()
            except FormatError:
                return None
            if isinstance(answer, NeedData):
                scanner.feed(next(pieces, b""))
            elif isinstance(answer, BatchReady):
                last = max(last, _last_offset(answer.header))
            else:
                return None if answer.tail is Tail.CUT and not segment.is_active else last


def _last_offset(header: RecordBatchHeader | MessageHeader) -> int:
    return header.last_offset if isinstance(header, RecordBatchHeader) else header.offset
