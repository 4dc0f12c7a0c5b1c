"""What the headers of neighbouring batches show that no CRC does: a base offset or a leader epoch that cannot be."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from operator import gt
from typing import NamedTuple

from segreader.errors import CorruptIndexError, SegreaderError
from segreader.evidence.batch import is_beside
from segreader.format.columns import TABLE_WIDTH, Decision, Table
from segreader.format.scanner import BatchRun
from segreader.plan.split import Split


class Deliverable(NamedTuple):
    """How many rows of a run may be delivered, and the error that stands behind them."""

    rows: int
    error: SegreaderError | None = None


def begins_late(split: Split, position: int, base_offset: int, url: Callable[[str], str]) -> CorruptIndexError | None:
    """The error if the index led past offsets: its entries do not count from the base in the segment's name.

    Args:
        position: of the first batch that was read.
        base_offset: of that batch.
        url: how an object is named to people.
    """
    if split.first_bound is None or position > split.positions.start or base_offset <= split.first_bound:
        return None
    return CorruptIndexError(
        "the offset index leads past offsets of its log",
        source=url(split.offset_index or split.log),
        base_offset=split.base_offset,
        offset=split.offsets.start,
        found=f"a batch from offset {base_offset} on, at byte {position} of the log",
        expected=f"one that begins at {split.first_bound} or below",
        hint="The base offset in the names is wrong, or the index is another segment's",
    )


def beyond(split: Split, bases: Sequence[int], lasts: Sequence[int], before: int) -> list[tuple[int, str, str]]:
    """The row that jumps to where another segment takes over, if there is one.

    A segment may well reach beyond: then its batches go on there without a gap. ``before`` is the last offset ahead
    of the first row.
    """
    if split.stop_of_part is None or max(lasts) < split.stop_of_part:
        return []
    row = next(row for row, last in enumerate(lasts) if last >= (split.stop_of_part or 0))
    floor = lasts[row - 1] if row else before
    is_first = row == 0 and before < split.base_offset and split.positions.start > 0
    if bases[row] <= floor + 1 or is_first:
        return []
    return [(row, "offsets", f"{floor + 1} to {split.stop_of_part - 1}: from there on another segment is read")]


def beside_timed(split: Split, run: BatchRun, lasts: Sequence[int], before: int) -> list[tuple[int, str, str]]:
    """The row that jumps over the offset that the time index names, or into it, if there is one.

    Args:
        lasts: last offsets of the rows.
        before: the last offset ahead of the first row.
    """
    timed = split.timed
    if timed is None or before >= timed or lasts[-1] < timed:
        return []  # the offset lies ahead or behind
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
    starts = [start for _, start in epochs]
    for index, epoch in enumerate(said):
        row = index * TABLE_WIDTH
        if epoch < 0 or table[row + Table.MAGIC] < 2 or table[row + Table.DECISION] == Decision.DROP:
            continue
        base, last = table[row + Table.BASE_OFFSET], table[row + Table.LAST_OFFSET]
        if last < split.offsets.start or (split.offsets.stop is not None and base >= split.offsets.stop):
            continue  # nothing of it is wanted: it may be of another history
        expected = epochs[max(0, bisect_right(starts, max(base, split.offsets.start)) - 1)][0]
        if expected != epoch:
            wrong.append((index, "leader epoch", f"epoch {expected}, by the leader-epoch checkpoints here"))
    return wrong


def out_of_order(bases: Sequence[int], lasts: Sequence[int], before: int) -> list[tuple[int, int]]:
    """The rows whose offsets do not rise, each with the offset that it should be above.

    Of two neighbours that contradict each other the one is wrong without which the order is right: a batch that
    jumped ahead, or one that fell back. ``before`` is the last offset ahead of the first row.
    """
    if all(map(gt, bases, (before, *lasts))):
        return []
    wrong: list[tuple[int, int]] = []
    right: list[int] = []
    for row, base in enumerate(bases):
        while right and base <= lasts[right[-1]]:
            floor = lasts[right[-2]] if len(right) > 1 else before
            if base <= floor or any(index > right[-1] for index, _ in wrong):
                break
            wrong.append((right.pop(), floor))
        floor = lasts[right[-1]] if right else before
        if base > floor:
            right.append(row)
        else:
            wrong.append((row, floor))
    return sorted(wrong)
