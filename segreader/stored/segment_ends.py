"""Where segments end, by their last batches, and whether offsets between two of them are missing or compacted away.

A base offset is not under a batch's CRC, so an end is believed only if the batches before it lead there.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import field, replace
from itertools import accumulate, islice, pairwise
from struct import Struct
from typing import Final

from segreader.catalog.listing import read_file
from segreader.errors import FormatError, LimitExceededError, ObjectNotFoundError, shown_count
from segreader.evidence.findings import Findings, notes_of_many
from segreader.evidence.log_checks import check_offset_index, largest_named, look_at_log, why_not_emptied
from segreader.evidence.rules import Code
from segreader.format.batch import CRC_START, RecordBatchHeader, crc32c, parse_batch_header
from segreader.format.checkpoints import LeaderEpochs
from segreader.format.compression import DEFAULT_LIMIT
from segreader.format.index_files import OffsetIndex, parse_offset_index
from segreader.format.scanner import (
    LARGEST_RELATIVE_OFFSET,
    Batch,
    BatchReady,
    NeedData,
    SegmentScanner,
    Tail,
    batch_of_header,
    usual_batch,
)
from segreader.plan.lineage import EpochSpan, ResolvedLog
from segreader.ranges import ByteRange
from segreader.segment import Segment, SegmentFiles, StemFiles
from segreader.storage.base import ObjectStore, read_each
from segreader.values import dataclass

OPEN_END: Final = 1 << 63
"""The last offset of a segment whose end is not known, and that nothing follows: no offset is as large."""
_MOST_RANGES: Final = 8
"""That a note names; of the others it says how many."""

_INDEX_ENTRIES: Final = 24
"""Bytes that hold whole entries of an offset index, whether these have 8 bytes or 12."""

_INDEX_END: Final = 256 * _INDEX_ENTRIES
"""Bytes of an offset index that are read for its last entry; a large one has half a million."""

_MOST_AT_ONCE: Final = 64 << 10
"""Bytes whose headers are all parsed before the first is used: nearly every log ends within them."""

_TAILS: Final = (64 << 10, 1 << 20, 4 << 20)
"""Bytes at the end of a log in which its last batch is looked for."""

_MAGIC_AT: Final = 16
_TIME_ENTRY: Final = Struct(">qi")
_NO_BYTES: Final = memoryview(b"")


@dataclass(frozen=True, slots=True)
class _Indexed:
    """What the end of an offset index says: an offset that is in what was appended at a position of the log."""

    position: int = 0
    offset: int | None = None
    is_sound: bool = True


_NOT_INDEXED: Final = _Indexed()


@dataclass(frozen=True, slots=True)
class _Walked:
    """What the headers of some batches say.

    Args:
        last_offset: of the last one.
        has_jumps: offsets are missing between two batches.
        is_compacted: offsets are missing between or in batches, as only the cleaner leaves them.
        last: the last one, where there is one.
    """

    last_offset: int
    has_jumps: bool = False
    is_compacted: bool = False
    last: Batch | None = None


def read_last_offset(store: ObjectStore, segment: Segment, max_batch_bytes: int = DEFAULT_LIMIT) -> int | None:
    """The last offset of the segment's last whole batch, from its last index entry on.

    Returns:
        ``base_offset - 1`` if it has no batch; ``None`` if damage keeps it from being read, or a finished log is cut.
    """
    walked, _ = _read_tail(store, segment, max_batch_bytes)
    return None if walked is None else walked.last_offset


def read_assumed_end(store: ObjectStore, segment: Segment, max_batch_bytes: int = DEFAULT_LIMIT) -> Batch | None:
    """The last batch of a log that is not read to find it; ``None`` where nothing, or not all, shows it.

    Without an index it is the only bytes at the end of the log that are a batch by their length and CRC. A record that
    holds a batch may end a log, too, so readers of the log must prove it.
    """
    if segment.files.offset_index is not None:
        walked, found = _read_tail(store, segment, max_batch_bytes)
        return None if walked is None or found is not None else walked.last
    for most in _TAILS:
        start = max(0, segment.log_size - most)
        data = store.read_ranges(segment.files.log, [ByteRange(start, segment.log_size)])[0]
        ends = [one for one in _batches_that_end(data, start) if one.size <= max_batch_bytes]
        if ends or not start:
            return ends[0] if len(ends) == 1 else None
    return None


def _batches_that_end(data: bytes, start: int) -> Iterator[Batch]:
    """The batches of magic 2 that end where the data does, which begins at byte ``start`` of a log."""
    at = data.find(2, _MAGIC_AT)
    while at >= 0:
        begin = at - _MAGIC_AT
        if int.from_bytes(data[begin + 8 : begin + 12]) == len(data) - begin - 12:
            with suppress(FormatError):
                header = parse_batch_header(data, begin)
                if crc32c(data[begin + CRC_START :]) == header.crc:
                    yield batch_of_header(header, start + begin)
        at = data.find(2, at + 1)


def read_log_end(store: ObjectStore, log: ResolvedLog, max_batch_bytes: int = DEFAULT_LIMIT) -> int | None:
    """One more than the last offset of a partition that has segments; ``None`` if damage hides it."""
    if log.stop <= OPEN_END:
        return log.stop
    part = log.parts[-1]
    last = read_last_offset(store, part.segment, max_batch_bytes)
    return None if last is None else max(last + 1, part.start)


def last_timed_offset(store: ObjectStore, segment: Segment) -> int | None:
    """The offset in the last entry of a time index, by its 12 bytes: the batch with the largest timestamp holds it.

    ``None`` where there is none, or the entry says nothing.
    """
    name = segment.files.time_index
    if name is None or isinstance(segment.files, StemFiles):  # the catalogue knows those segments' sizes and ends
        return None
    try:
        size = segment.files.sizes.get(name)
        size = store.size(name) if size is None else size
        if size < _TIME_ENTRY.size or size % _TIME_ENTRY.size:
            return None
        data = store.read_ranges(name, [ByteRange(size - _TIME_ENTRY.size, size)])[0]
    except ObjectNotFoundError:
        return None
    timestamp_ms, relative_offset = _TIME_ENTRY.unpack(data)
    if timestamp_ms <= 0 or relative_offset < 0:
        return None
    return segment.base_offset + int(relative_offset)


def ranges_beside(segments: Sequence[Segment], *, is_committed: bool) -> list[tuple[str, ByteRange]]:
    """What a plan of all offsets reads beside the logs of a partition, by the sizes that were listed.

    Args:
        segments: by base offset.
        is_committed: the plan reads transactions.
    """
    wanted: list[tuple[str, ByteRange]] = []

    def add(name: str | None, files: SegmentFiles, range_of: Callable[[int], ByteRange]) -> None:
        if name is not None and (size := files.sizes.get(name, 0)) > 0:
            wanted.append((name, range_of(size)))

    for segment in segments:
        files = segment.files
        if isinstance(files, StemFiles) or segment.is_active or not segment.log_size:
            continue
        if segment.epochs is None and segment is segments[0]:
            add(files.leader_epochs, files, lambda size: ByteRange(0, size))
        if segment.last_offset is None:
            add(files.offset_index, files, _end_of_index)
        if segment is segments[-1]:
            if is_committed:
                add(files.producer_snapshot, files, lambda size: ByteRange(0, size))
            if segment.max_timestamp_ms is None and not files.sizes.get(files.time_index or "", 1) % _TIME_ENTRY.size:
                add(files.time_index, files, lambda size: ByteRange(size - _TIME_ENTRY.size, size))
    return wanted


@dataclass(frozen=True, slots=True)
class EndedSegments:
    """Segments with their last offsets.

    Args:
        lost: by the name of its log: why a segment's log should not be empty. Its last offset says what it lacks.
        notes: on offset indexes that contradict themselves or their logs.
        last_batches: by the name of its log: the last batch of each segment whose end was read.
    """

    segments: Sequence[Segment]
    lost: Mapping[str, str]
    notes: Sequence[str] = ()
    last_batches: Mapping[str, Batch] = field(default_factory=dict)


def with_ends(
    store: ObjectStore,
    segments: Sequence[Segment],
    incomplete: Collection[int],
    max_batch_bytes: int,
    *,
    too_short: Mapping[str, int],
) -> EndedSegments:
    """The segments with their last offsets, read if the catalogue does not have them.

    The next base offset tells nothing: after a leader change a later upload may begin below an older one. Uploads of
    one log leave no gap, but the cleaner may have removed the last batches of a segment: then it reaches to where the
    next one begins, if the headers show that the cleaner was at work.

    Args:
        segments: of one partition, in any order.
        incomplete: base offsets of sets that are no segments.
        too_short: by the name of a log that has fewer bytes than the metadata topic says: the last offset by that.
    """
    unknown = [segment for segment in segments if segment.last_offset is None]
    if not unknown:
        return EndedSegments(list(segments), {})
    bases = [segment.base_offset for segment in segments]
    following = dict(pairwise(sorted(set(bases))))
    tails = read_each(lambda segment: _read_tail(store, segment, max_batch_bytes), unknown)
    walked = {id(segment): tail for segment, (tail, _) in zip(unknown, tails, strict=True)}
    for segment in unknown:  # a jump to another segment's offsets is no end
        tail, next_base = walked[id(segment)], following.get(segment.base_offset)
        if tail is not None and tail.has_jumps and next_base is not None and tail.last_offset >= next_base:
            walked[id(segment)] = None
    sound = Counter(segment.base_offset for segment in segments if walked.get(id(segment), True) is not None)
    ended = []
    for segment in segments:
        if segment.last_offset is None:
            tail, next_base = walked[id(segment)], following.get(segment.base_offset)
            if tail is not None:
                last = tail.last_offset
            elif sound[segment.base_offset]:  # another copy is whole
                last = segment.base_offset - 1
            else:  # damaged: reading will say so
                last = OPEN_END if next_base is None else next_base - 1
                segment = _without_false_index(store, segment, max_batch_bytes)
            segment = segment.ended(last, segment.epochs)
        ended.append(segment)
    seen = any(tail is not None and tail.is_compacted for tail in walked.values())
    lost: dict[str, str] = {}
    is_covered = _covering(ended)
    starts = sorted({*bases, *incomplete})
    for at, segment in enumerate(ended):
        if segment.log_size or segment.is_active or id(segments[at]) not in walked or is_covered(segment.base_offset):
            continue
        largest = too_short.get(segment.files.log)
        why = "by the metadata topic it has bytes" if largest is not None else None
        if why is None and (why := why_not_emptied(store, segment, ended, was_cleaned=seen)) is None:
            continue
        if largest is None:
            behind = bisect_right(starts, segment.base_offset)
            largest = starts[behind] - 1 if behind < len(starts) else largest_named(store, segment) or 0
        lost[segment.files.log] = why
        ended[at] = segment.ended(max(largest, segment.base_offset), segment.epochs)
    notes = notes_of_many([found for _, found in tails if found is not None])
    removed: list[tuple[int, int]] = []
    ended = _reaching(store, ended, incomplete, max_batch_bytes, removed, is_compacted=seen)
    if removed:
        spans = ", ".join(f"{start} to {stop}" for start, stop in removed[:_MOST_RANGES])
        more = f" and {shown_count(len(removed) - _MOST_RANGES, 'more range')}" if len(removed) > _MOST_RANGES else ""
        notes.append(
            f"{segments[0].partition}: between segments, offsets {spans}{more} are in no batch; the log was compacted, "
            "so they count as removed: only the metadata topic (--metadata) tells them from a segment that is missing"
        )
    lasts = {one.files.log: tail.last for one in unknown if (tail := walked[id(one)]) and tail.last is not None}
    return EndedSegments(ended, lost, notes, lasts)


def _covering(segments: Sequence[Segment]) -> Callable[[int], bool]:
    """Says of an offset whether a segment that is not empty holds it."""
    spans = sorted((one.base_offset, one.last_offset or 0) for one in segments if one.log_size)
    bases = [base for base, _ in spans]
    reaches = list(accumulate((last for _, last in spans), max))

    def is_covered(offset: int) -> bool:
        below = bisect_right(bases, offset)
        return below > 0 and offset <= reaches[below - 1]

    return is_covered


def _without_false_index(store: ObjectStore, segment: Segment, max_batch_bytes: int) -> Segment:
    """The segment without its offset index if its first batch is below its base, to which entries are relative."""
    if not isinstance(segment.files, SegmentFiles):
        return segment
    try:
        first = next(iter_batches(store, segment, 0, max_batch_bytes), None)
    except FormatError:
        return segment
    if first is None or first.base_offset >= segment.base_offset:
        return segment
    return replace(segment, files=replace(segment.files, offset_index=None))


def _reaching(
    store: ObjectStore,
    segments: list[Segment],
    incomplete: Collection[int],
    max_batch_bytes: int,
    removed: list[tuple[int, int]],
    *,
    is_compacted: bool,
) -> list[Segment]:
    """Close the gaps that the cleaner left; the first and the last offset of each are added to ``removed``."""
    by_base: dict[int, list[Segment]] = defaultdict(list)
    for segment in segments:
        by_base[segment.base_offset].append(segment)
    newest = max(by_base, default=0)
    longer: dict[int, int] = {}
    farthest: Segment | None = None
    reach = -1
    for base in sorted({*by_base, *(base for base in incomplete if base < newest)}):
        if farthest is not None and reach + 1 < base:
            beside = [farthest, *by_base[base]]
            is_compacted = is_compacted or any(shows_cleaning(store, one, max_batch_bytes) for one in beside)
            if is_compacted:
                removed.append((reach + 1, base - 1))
                longer[id(farthest)] = reach = base - 1
        if not by_base[base] and reach < base:
            farthest = None  # what the incomplete set had is missing
        for segment in by_base[base]:
            last = segment.last_offset or 0
            if farthest is None or last > reach:
                farthest, reach = segment, last
    return [one.ended(longer[id(one)], one.epochs) if id(one) in longer else one for one in segments]


def read_epochs(
    store: ObjectStore, segment: Segment, max_batch_bytes: int = DEFAULT_LIMIT
) -> tuple[EpochSpan, ...] | None:
    """The leader epochs of a segment's batches; ``None`` if they or their offsets fall, or damage hides them.

    Epochs do not fall in a log: where the first and the last batch bear the same one, nothing between them is read.
    Nor is it where neither bears one: their formats are too old.
    """
    if not segment.log_size:
        return ()
    spans: list[EpochSpan] = []
    try:
        with closing(iter_batches(store, segment, 0, max_batch_bytes)) as batches:
            first = [_span(batch, segment) for batch in islice(batches, 1)]
        with closing(iter_batches(store, segment, _last_indexed(store, segment).position, max_batch_bytes)) as batches:
            last = [_span(batch, segment) for batch in deque(batches, maxlen=1)]
        if first and last and first[0].epoch == last[0].epoch:
            epoch = first[0].epoch
            return (EpochSpan(epoch, first[0].first_offset, last[0].last_offset),) if epoch >= 0 else ()
        for span in (_span(batch, segment) for batch in iter_batches(store, segment, 0, max_batch_bytes)):
            if spans and span.epoch >= 0 and span.first_offset < spans[-1].first_offset:
                return None
            if spans and span.epoch == spans[-1].epoch:
                spans[-1] = EpochSpan(span.epoch, spans[-1].first_offset, span.last_offset)
            elif spans and 0 <= span.epoch < spans[-1].epoch:
                return None
            elif span.epoch >= 0:
                spans.append(span)
    except FormatError:
        return None
    return tuple(spans)


def read_batches_at(
    store: ObjectStore, segment: Segment, offsets: Sequence[int], max_batch_bytes: int = DEFAULT_LIMIT
) -> list[Batch]:
    """The batches that hold some offsets, with those around them that share an index entry.

    Where the cleaner removed such a batch, those before and after its place; where damage hides them, fewer.

    Raises:
        ObjectNotFoundError: the log is not there.
    """
    index = None
    if (name := segment.files.offset_index) is not None:
        with suppress(FormatError, ObjectNotFoundError):
            data = read_file(store, segment, name)
            index = parse_offset_index(data, segment.base_offset, log_size=segment.log_size)
    batches: dict[int, Batch] = {}
    for offset in offsets:
        position, stop = (0, segment.log_size) if index is None else index.around(offset, segment.log_size)
        if position in batches and any(batch.last_offset >= offset for batch in batches.values()):
            continue
        with suppress(FormatError):
            part = replace(segment, log_size=stop)
            with closing(iter_batches(store, part, position, max_batch_bytes)) as read:
                for batch in read:
                    batches[batch.position] = batch
                    if batch.last_offset >= offset:
                        break
    return [batches[position] for position in sorted(batches)]


def _span(batch: Batch, segment: Segment) -> EpochSpan:
    """One batch; its epoch is -1 if its format has none."""
    first = batch.base_offset if batch.magic < 2 else max(batch.base_offset, segment.base_offset)
    return EpochSpan(batch.leader_epoch, first, batch.last_offset)


def bears(batch: Batch, epochs: LeaderEpochs) -> bool:
    """Whether a batch has the leader epoch that a checkpoint gives to its last offset, or one that it does not know."""
    return batch.leader_epoch >= 0 and epochs.epoch_for(batch.last_offset) in (None, batch.leader_epoch)


def bears_epochs(
    store: ObjectStore, segment: Segment, epochs: LeaderEpochs, max_batch_bytes: int = DEFAULT_LIMIT
) -> bool:
    """Whether any of a segment's batches has the leader epoch of its checkpoint.

    If none does the checkpoint is damaged, which has no checksum; if only one does not, that batch is.
    """
    has_epochs = False
    for start in dict.fromkeys((_last_indexed(store, segment).position, 0)) if segment.log_size else ():
        try:
            for batch in iter_batches(store, segment, start, max_batch_bytes):
                has_epochs |= batch.leader_epoch >= 0
                if bears(batch, epochs):
                    return True
        except FormatError:
            return True  # reading says so
    return not has_epochs


def _last_indexed(store: ObjectStore, segment: Segment) -> _Indexed:
    """The last index entry within the log."""
    if (name := segment.files.offset_index) is None or segment.files.sizes.get(name) == 0:
        return _NOT_INDEXED
    try:
        index = read_end_of_index(store, name, segment)
    except FormatError:
        return _Indexed(is_sound=False)
    except ObjectNotFoundError:
        return _NOT_INDEXED
    at = bisect_left(index.entry_positions, segment.log_size) - 1
    is_sound = segment.is_active or (at == len(index) - 1 and not index.trailing_bytes)
    if at < 0:
        return _Indexed(is_sound=is_sound)
    return _Indexed(index.entry_positions[at], index.base_offset + index.relative_offsets[at], is_sound)


def _end_of_index(size: int) -> ByteRange:
    """What is read of an index of so many bytes, for its last entries."""
    return ByteRange((size - _INDEX_END) // _INDEX_ENTRIES * _INDEX_ENTRIES if size > _INDEX_END else 0, size)


def read_end_of_index(store: ObjectStore, name: str, segment: Segment) -> OffsetIndex:
    """The last entries of an offset index; all of them where these are not sound by themselves.

    Raises:
        FormatError: as ``parse_offset_index``.
    """
    size = segment.files.sizes.get(name)
    if size is not None and size > _INDEX_END and not segment.is_active:
        try:
            data = store.read_ranges(name, [_end_of_index(size)])[0]
            index = parse_offset_index(data, segment.base_offset, log_size=segment.log_size)
        except FormatError:
            pass
        else:
            if len(index) and not index.trailing_bytes:
                return index
    return parse_offset_index(read_file(store, segment, name), segment.base_offset, log_size=segment.log_size)


def _read_tail(store: ObjectStore, segment: Segment, max_batch_bytes: int) -> tuple[_Walked | None, Findings | None]:
    """How a log ends, and what is wrong with its offset index.

    An index that contradicts the log counts for nothing if the batches lead from the segment's base to an end: without
    a gap, where the index says nothing of the last batch but its offset.
    """
    if not segment.log_size:
        return _Walked(segment.base_offset - 1), None
    indexed = _last_indexed(store, segment)
    found = None if indexed.is_sound else _look_at_index(store, segment, is_log_sound=False)
    walked = _walk(store, segment, indexed.position, indexed.offset, max_batch_bytes)
    if walked is not None or indexed.offset is None:
        return walked, found
    walked = _walk(store, segment, 0, None, max_batch_bytes)
    if walked is None or (walked.has_jumps and not indexed.position):
        return None, found
    if found is None and not (found := _look_at_index(store, segment, is_log_sound=True)).codes:
        text = f"it names offset {indexed.offset} last, and its log ends with offset {walked.last_offset}"
        found.add(Code.INDEX_WRONG_OFFSET, segment.files.offset_index or "", text, offset=indexed.offset)
    return walked, found


def _look_at_index(store: ObjectStore, segment: Segment, *, is_log_sound: bool) -> Findings:
    """What is wrong with an offset index that cannot be right: by itself, and against a log that is sound."""
    found, name = Findings(store, most=1), segment.files.offset_index or ""
    with suppress(ObjectNotFoundError):
        try:
            data = read_file(store, segment, name)
        except LimitExceededError as error:
            found.add_error(error, name, code=Code.OVERSIZED_FILE)
            return found
        index = check_offset_index(found, data, name, segment)
        if is_log_sound and not found.codes:
            look_at_log(found, store, segment, index)
    return found


def shows_cleaning(store: ObjectStore, segment: Segment, max_batch_bytes: int) -> bool:
    """Whether any of a segment's batches shows that the cleaner was at work."""
    walked = _walk(store, segment, 0, None, max_batch_bytes) if segment.log_size else None
    return walked is not None and walked.is_compacted


def _walk(
    store: ObjectStore, segment: Segment, start: int, indexed: int | None, max_batch_bytes: int
) -> _Walked | None:
    """What the batches from ``start`` on say; ``None`` if they contradict each other or what the index says.

    Args:
        indexed: an offset that the index entry at ``start`` says is in what was appended there.
    """
    last = None if start else segment.base_offset - 1
    has_jumps = is_compacted = False
    newest: Batch | None = None
    try:
        with closing(store.read_pieces(segment.files.log, ByteRange(start, segment.log_size))) as pieces:
            for newest in _batches_of(pieces, segment, start, max_batch_bytes):
                base = newest.base_offset
                if newest.magic < 2:
                    last = base if last is None else max(base, last)
                    continue
                if last is None and indexed is not None and base > indexed:
                    return None
                if last is not None and base != last + 1:
                    if base <= last:
                        return None
                    has_jumps = is_compacted = True
                last = newest.last_offset
                is_compacted |= newest.record_count <= last - base
    except FormatError:
        return None
    if last is None or (indexed is not None and last < indexed):
        return None
    if last - segment.base_offset > LARGEST_RELATIVE_OFFSET:
        return None
    return _Walked(last, has_jumps, is_compacted, newest)


def iter_batches(
    store: ObjectStore, segment: Segment, start: int, max_batch_bytes: int
) -> Generator[Batch, None, None]:
    """The batches of a log from the start of one on, by their headers.

    Raises:
        FormatError: a header cannot be, a batch fails its CRC, or a finished log ends inside a batch.
    """
    with closing(store.read_pieces(segment.files.log, ByteRange(start, segment.log_size))) as pieces:
        yield from _batches_of(pieces, segment, start, max_batch_bytes)


def _batches_of(pieces: Iterator[memoryview], segment: Segment, start: int, max_batch_bytes: int) -> Iterable[Batch]:
    """See ``iter_batches``."""
    piece = next(pieces, _NO_BYTES)
    if len(piece) == segment.log_size - start <= _MOST_AT_ONCE:
        batches, at = [], 0
        while at < len(piece) and (batch := usual_batch(piece, at, start, max_batch_bytes)) is not None:
            batches.append(batch)
            at += batch.size
        if at == len(piece):
            return batches
    return _scanned(pieces, piece, segment, start, max_batch_bytes)


def _scanned(
    pieces: Iterator[memoryview], piece: memoryview, segment: Segment, start: int, max_batch_bytes: int
) -> Iterator[Batch]:
    """The batches of a log of any form, of which the first piece was read."""
    scanner = SegmentScanner(start=start, stop=segment.log_size, max_batch_size=max_batch_bytes)
    scanner.feed(piece)
    position = start
    while True:
        answer = scanner.next()
        if isinstance(answer, NeedData):
            scanner.feed(next(pieces, _NO_BYTES))
        elif isinstance(answer, BatchReady):
            header = answer.header
            if isinstance(header, RecordBatchHeader) and crc32c(answer.data[CRC_START:]) != header.crc:
                raise FormatError("a batch does not pass its CRC")
            yield batch_of_header(header, position)
            position += header.size
        elif answer.tail is Tail.END or segment.is_active or (segment.is_padded and answer.tail is not Tail.CUT):
            return
        else:
            raise FormatError("the log does not end with a batch")
