"""What the headers of neighbouring batches show that no CRC does: a base offset or a leader epoch that cannot be, and a
log that ends too early."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from operator import gt
from typing import NamedTuple

from segreader.errors import CorruptBatchError, CorruptIndexError, FormatError, TruncatedError, shown_count
from segreader.format.batch import COMMON_SIZE, DELETE_HORIZON_FLAG, check_common
from segreader.format.columns import TABLE_WIDTH, Decision, RunSummary, Table
from segreader.format.index_files import is_beside
from segreader.format.scanner import LARGEST_RELATIVE_OFFSET, BatchRun, Done, Tail
from segreader.plan.split import Split
from segreader.segment import Segment


class Deliverable(NamedTuple):
    """How many rows of a run may be delivered, and the error after them."""

    rows: int
    error: Exception | None = None


def begins_late(
    split: Split, run: BatchRun, lasts: Sequence[int], before: int, url: Callable[[str], str], *, is_whole: bool
) -> CorruptIndexError | None:
    """The error if the first batches are not those to which the index led: it, or their base offsets, are wrong.

    Args:
        run: the first one of the split.
        lasts: last offsets of its rows.
        before: the last offset ahead of it, if it is in the segment; a batch that goes on there is right.
        url: how an object is named to people.
        is_whole: the split ends with this run.
    """
    named, base_offset = split.first_bound, run.table[Table.BASE_OFFSET]
    if named is None or run.table[Table.POSITION] > split.positions.start:
        return None
    expected = f"one that begins at {named} or below"
    if base_offset <= named:
        goes_on = base_offset == before + 1 and (before >= split.base_offset or not split.positions.start)
        if split.offset_index is None or goes_on:
            return None
        row = next((row for row, last in enumerate(lasts) if last >= named), len(lasts) - 1)
        is_old = run.table[row * TABLE_WIDTH + Table.MAGIC] < 2
        if is_old or lasts[row] == named or (lasts[row] < named and not is_whole):
            return None
        base_offset, expected = run.table[row * TABLE_WIDTH + Table.BASE_OFFSET], f"one that ends with offset {named}"
    return CorruptIndexError(
        "the offset index and the batches to which it leads say other offsets",
        source=url(split.offset_index or split.log),
        base_offset=split.base_offset,
        offset=split.offsets.start,
        found=f"a batch from offset {base_offset} on, from byte {split.positions.start} of the log on",
        expected=expected,
        hint="The base offset in the names or in a batch is wrong, or the index is another segment's",
    )


def is_sound(split: Split, run: BatchRun, summary: RunSummary, before: int, after: int | None) -> bool:
    """Whether nothing about a run contradicts what is around it, by what is true of all its batches.

    Then none of ``begins_late``, ``out_of_order``, ``beyond``, ``beside_timed`` and ``of_other_epochs`` finds anything.

    Args:
        before: the last offset ahead of it.
        after: the base offset of the next batch, or an offset in it, if one is known.
    """
    first, last = summary.first_offset, summary.last_offset
    if not summary.rises or first <= before or (after is not None and after <= last):
        return False
    if split.first_bound is not None and run.table[Table.POSITION] <= split.positions.start:
        return False
    if last > split.base_offset + LARGEST_RELATIVE_OFFSET:
        return False
    if split.stop_of_part is not None and last >= split.stop_of_part:
        return False
    if split.timed is not None and before < split.timed <= last:
        return False
    epochs, epoch = split.epochs, summary.leader_epoch
    if not epochs or (len(epochs) == 1 and epoch == -1):
        return True
    index = _epoch_at(split, first)
    return epochs[index][0] == epoch and (index == len(epochs) - 1 or epochs[index + 1][1] > last)


def _epoch_at(split: Split, base_offset: int) -> int:
    """Which of the split's epochs is that of a batch: asked at its first offset wanted."""
    return max(0, bisect_right(split.epochs, max(base_offset, split.offsets.start), key=_start_of) - 1)


def _start_of(epoch: tuple[int, int]) -> int:
    return epoch[1]


class Jumps:
    """Offsets of one log that no batch has, and whether a batch shows that the cleaner was at work there."""

    def __init__(self) -> None:
        self._first: tuple[int, int] | None = None
        self._count = 0
        self._is_explained = False
        self.shows_cleaning = False

    def follow_sound(self, split: Split, summary: RunSummary, before: int) -> bool:
        """Take the next batches, if nothing is jumped over; false if ``follow`` must.

        Args:
            before: as there; the batches rise from above it.
        """
        if split.positions.start and before < split.base_offset:
            before = summary.first_offset - 1
        offsets = summary.offset_count
        return self._is_explained or (offsets == summary.record_count and offsets == summary.last_offset - before)

    def follow(self, split: Split, run: BatchRun, bases: Sequence[int], lasts: Sequence[int], before: int) -> None:
        """Take the next batches.

        Args:
            before: the last offset ahead of them; of no meaning below the segment's base, but where the log begins.
        """
        if self._is_explained:
            return
        if split.positions.start and before < split.base_offset:
            before = bases[0] - 1
        stop = run.rows * TABLE_WIDTH
        offsets = sum(lasts) - sum(bases) + run.rows
        if offsets != sum(run.table[Table.RECORD_COUNT : stop : TABLE_WIDTH]):  # or the format is an old one
            self._is_explained = self.shows_cleaning = True
        elif offsets != lasts[-1] - before:
            attributes = run.table[Table.ATTRIBUTES : stop : TABLE_WIDTH]
            self._is_explained = self.shows_cleaning = any(one & DELETE_HORIZON_FLAG for one in attributes)
            wanted = split.offsets
            for base, last in zip(bases, (before, *lasts), strict=False):
                if base > last + 1 and base > wanted.start and (wanted.stop is None or last + 1 < wanted.stop):
                    self._first = self._first or (last + 1, base - 1)
                    self._count += 1

    @property
    def is_explained(self) -> bool:
        """Whether a batch shows it, or something else says why batches are missing."""
        return self._is_explained

    def join(self, later: Jumps) -> None:
        """Take what another one followed of the batches behind."""
        if self._is_explained:
            return
        self._first = self._first or later._first
        self._count += later._count
        self._is_explained, self.shows_cleaning = later._is_explained, later.shows_cleaning

    def explain(self) -> None:
        """Something else says why batches are missing."""
        self._is_explained = True

    def note(self, log: str) -> str | None:
        """What a reader of the log says, if nothing explains the jumps."""
        if self._first is None or self._is_explained:
            return None
        first, last = self._first
        more = f" and {shown_count(self._count - 1, 'more range')}" if self._count > 1 else ""
        return (
            f"{log}: offsets {first} to {last}{more} are in no batch of the log, and no batch that was read shows that "
            "the log cleaner was at work: unless the topic was compacted, batches are lost"
        )


def most_offset(split: Split) -> int:
    """The last offset that a batch of the split may end with, if it does not go on where the one before ends."""
    largest = split.base_offset + LARGEST_RELATIVE_OFFSET
    return largest if split.stop_of_part is None else min(largest, split.stop_of_part - 1)


def beyond(split: Split, bases: Sequence[int], lasts: Sequence[int], before: int) -> list[tuple[int, str, str]]:
    """The row that jumps to where another segment takes over, or to where its own cannot reach, if there is one.

    A segment may well reach beyond the first: then its batches go on there without a gap. ``before`` is the last offset
    ahead of the first row.
    """
    largest = split.base_offset + LARGEST_RELATIVE_OFFSET
    if max(lasts) > largest:
        row = next(row for row, last in enumerate(lasts) if last > largest)
        return [(row, "offsets", f"at most {largest}: no segment from {split.base_offset} on reaches farther")]
    if split.stop_of_part is None or max(lasts) < split.stop_of_part:
        return []
    row = next(row for row, last in enumerate(lasts) if last >= (split.stop_of_part or 0))
    floor = lasts[row - 1] if row else before
    is_first = row == 0 and before < split.base_offset and split.positions.start > 0
    if bases[row] <= floor + 1 or is_first or floor >= split.stop_of_part - 1:
        return []  # it goes on, or all that is wanted of this segment is ahead
    return [(row, "offsets", f"{floor + 1} to {split.stop_of_part - 1}: from there on another segment is read")]


def beside_timed(split: Split, run: BatchRun, lasts: Sequence[int], before: int) -> list[tuple[int, str, str]]:
    """The row that jumps over the offset that the time index names, or into it, if there is one.

    Args:
        lasts: last offsets of the rows.
        before: the last offset ahead of the first row.
    """
    timed = split.timed
    if timed is None or before >= timed or lasts[-1] < timed:
        return []  # the offset is ahead or behind
    row = next(row for row, last in enumerate(lasts) if last >= timed)
    if row == 0 and before < split.base_offset and split.positions.start > 0:
        return []  # it may be in the batch ahead
    at = row * TABLE_WIDTH
    if run.table[at + Table.MAGIC] < 2 or run.table[at + Table.DECISION] == Decision.DROP:
        return []
    if not is_beside(timed, run.table[at + Table.BASE_OFFSET], lasts[row], lasts[row - 1] if row else before):
        return []
    return [(row, "offsets", f"a batch with offset {timed}, which the time index names")]


def of_other_epochs(split: Split, run: BatchRun) -> list[tuple[int, str, str]]:
    """The rows that another leader epoch wrote than the plan says, each with the one it says.

    Asked at the first offset wanted of a batch: after DeleteRecords a lineage may begin inside one.
    """
    epochs, table = split.epochs, run.table
    said = table[Table.LEADER_EPOCH : run.rows * TABLE_WIDTH : TABLE_WIDTH]
    if not epochs or (len(epochs) == 1 and set(said) <= {epochs[0][0], -1}):
        return []
    wrong: list[tuple[int, str, str]] = []
    for index, epoch in enumerate(said):
        row = index * TABLE_WIDTH
        if epoch < 0 or table[row + Table.MAGIC] < 2 or table[row + Table.DECISION] == Decision.DROP:
            continue
        base, last = table[row + Table.BASE_OFFSET], table[row + Table.LAST_OFFSET]
        if last < split.offsets.start or (split.offsets.stop is not None and base >= split.offsets.stop):
            continue  # nothing of it is wanted: it may be of another history
        expected = epochs[_epoch_at(split, base)][0]
        if expected != epoch:
            wrong.append((index, "leader epoch", f"epoch {expected}, by the leader-epoch checkpoints here"))
    return wrong


def out_of_order(
    bases: Sequence[int],
    lasts: Sequence[int],
    before: int,
    *,
    most: int | None = None,
    following: int | None = None,
    is_doubted: bool = False,
    is_bound: bool = False,
) -> list[tuple[int, int]]:
    """The rows whose offsets do not rise, each with the offset that it should be above.

    Of two neighbours that contradict each other one jumped ahead or the other fell back. A batch that begins where the
    one before it ends has not jumped; one that ends where the next begins has not fallen. Both are wrong where nothing
    tells.

    Args:
        before: the last offset ahead of the first row.
        most: no batch that jumped here may end above this offset.
        following: where the batch behind the last row begins, if that is known.
        is_doubted: the first row contradicts one that was wrong, and may be, too.
        is_bound: the last row is no batch, but where the log has to end.
    """
    if not is_doubted and all(map(gt, bases, (before, *lasts))):
        return []
    wrong: list[tuple[int, int]] = []
    right: list[int] = []
    for row, (base, behind) in enumerate(zip(bases, (*bases[1:], following), strict=True)):
        floor, goes_on = lasts[right[-1]] if right else before, behind == lasts[row] + 1
        if base > floor and (row or goes_on or not is_doubted):
            right.append(row)
        elif base > floor or not right or right[-1] != row - 1:
            wrong.append((row, floor))
        else:
            below = lasts[right[-2]] if len(right) > 1 else before
            has_not_jumped = bases[row - 1] == below + 1 and not (is_bound and row == len(bases) - 1)
            if base <= below or has_not_jumped:
                wrong.append((row, floor))
                continue
            wrong.append((right.pop(), below))
            if goes_on or (most is not None and lasts[row - 1] > most):
                right.append(row)
            else:
                wrong.append((row, below))
    return sorted(wrong)


def bytes_behind(split: Split) -> int:
    """How many bytes behind a split that is read alone show whether the next batch goes on there.

    They come with the same request; none are asked for where no other split has offsets wanted, or where they would
    take one more chunk.
    """
    stop, bound, chunk_size = split.positions.stop, split.offset_bound, split.chunk_size
    if bound is None or (split.offsets.stop is not None and bound >= split.offsets.stop):
        return 0
    room = split.log_size - stop
    if chunk_size is not None:
        room = min(room, -stop % chunk_size)
    return COMMON_SIZE if room >= COMMON_SIZE else 0


def range_ends_early(split: Split, last_offset: int) -> CorruptIndexError | None:
    """The error if the batches of a split do not reach the offset that the index names at its end."""
    if split.reaches is None or last_offset >= split.reaches:
        return None
    return CorruptIndexError(
        "the offset index ends a range too early",
        position=split.positions.stop,
        found=f"offsets up to {last_offset} before that byte of the log",
        expected=f"a batch with offset {split.reaches}",
        hint="Read without the index: give the whole segment as one split",
    )


def goes_back(behind: bytes, before: int) -> CorruptBatchError | None:
    """The error if the batch behind a split begins at or below the last offset in it.

    Args:
        behind: the first bytes of that batch; fewer than its common header say nothing.
        before: the last offset of the split.
    """
    try:
        base_offset = check_common(behind, 0)[0] if len(behind) >= COMMON_SIZE else None
    except FormatError:  # the reader of that batch says so
        return None
    if base_offset is None or base_offset > before:
        return None
    return CorruptBatchError(
        "a batch's offsets do not fit between its neighbours'",
        position=0,
        base_offset=base_offset,
        found=f"a batch from offset {base_offset} on",
        expected=f"more than {before}, where the batch before it ends",
        hint="A batch is there twice, or one of the two base offsets is wrong: read another copy of this segment",
    )


def require_whole(done: Done, segment: Segment) -> None:
    """Refuse a finished segment that ends too early: batches may be missing.

    Raises:
        TruncatedError: it ends inside a batch, or in zeros that its layout does not put there.
    """
    if done.tail is Tail.END or segment.is_active or (segment.is_padded and done.tail is Tail.ZERO):
        return
    raise truncated(done)


def truncated(done: Done) -> TruncatedError:
    """The error of a segment that ends where ``done`` says."""
    missing = (
        f", {shown_count(done.missing_bytes, 'byte is', 'bytes are')} missing" if done.missing_bytes is not None else ""
    )
    return TruncatedError(
        "the segment ends inside a batch" if done.tail is Tail.CUT else "the segment ends in zeros",
        position=done.position,
        base_offset=done.base_offset,
        found=f"{shown_count(done.trailing_bytes, 'byte')} after the last whole batch{missing}",
        expected="a whole batch",
        hint="The copy is incomplete: fetch the segment again",
    )


def ends_early(source: str, size: int, last: int, named: int) -> TruncatedError:
    """The error of a log that ends with a whole batch, but before an offset that a file beside it names.

    Args:
        source: the log.
        size: its bytes.
        last: its last offset.
        named: the offset that the file names.
    """
    return TruncatedError(
        "the log ends before an offset that a file beside it names",
        source=source,
        position=size,
        offset=last + 1,
        found=f"{size} bytes, with offsets up to {last}",
        expected=f"offset {named}",
        hint="The copy is incomplete, or its index or snapshot is damaged: fetch the segment again, or look with "
        "segreader verify",
    )
