"""Where the batches lie whose records are on their way: what a reader must know to be stopped and to go on there."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from typing import Final

from segreader.format.columns import TABLE_WIDTH, Decision, Table
from segreader.format.scanner import BatchRun
from segreader.values import dataclass

_DECODE: Final = int(Decision.DECODE)


@dataclass(frozen=True, slots=True)
class BatchPlace:
    """Where a batch begins.

    Args:
        position: its first byte in the log.
        base_offset: as its header says; ``None`` if it was not looked at.
        leader_epoch: of the batch that the record before is in; ``None`` where none is told.
    """

    position: int
    base_offset: int | None
    leader_epoch: int | None


@dataclass(frozen=True, slots=True)
class KnownBatches:
    """The batches of the records of one record batch, and the one behind them. A value: it outlives the reading.

    Args:
        rows: of each batch its row of the batch table, ``TABLE_WIDTH`` numbers, by rising offset.
        stop: the byte behind the last batch that was met.
        last_epoch: of that batch.
    """

    rows: array[int]
    stop: int
    last_epoch: int

    def place_of(self, next_offset: int) -> BatchPlace:
        """Where to continue so that nothing at or after ``next_offset`` is skipped: the beginning of a batch.

        It is the batch with the offset. If the next known batch begins after the offset, it is the batch before: a
        reader that continues at the next one could not see that there is nothing in between.
        """
        rows = self.rows
        at, taken = _reaching(rows, next_offset), _reaching(rows, next_offset - 1)
        if at < len(rows) and rows[at + Table.BASE_OFFSET] > next_offset:
            at = taken
        epoch = rows[taken + Table.LEADER_EPOCH] if taken < len(rows) else self.last_epoch
        known = None if epoch < 0 else epoch
        if at < len(rows):
            return BatchPlace(rows[at + Table.POSITION], rows[at + Table.BASE_OFFSET], known)
        return BatchPlace(self.stop, None, known)


class BatchPositions:
    """Remembers where the batches lie that have records for the reader, until these were taken.

    ``first`` is where the first batch begins that was met, with its base offset.
    """

    def __init__(self) -> None:
        self.first: tuple[int, int] | None = None
        self._stop, self._last_epoch = 0, -1
        self._rows: array[int] = array("q")

    def follow(self, run: BatchRun, rows: int) -> None:
        """Go on over the first ``rows`` batches of a run. Those that the reader is given nothing of leave no mark."""
        if not rows:
            return
        table, stop = run.table, rows * TABLE_WIDTH
        if self.first is None:
            self.first = table[Table.POSITION], table[Table.BASE_OFFSET]
        if table[Table.DECISION : stop : TABLE_WIDTH].count(_DECODE) == rows:
            self._rows += table[:stop]
        else:
            for row in range(0, stop, TABLE_WIDTH):
                if table[row + Table.DECISION] == _DECODE:
                    self._rows += table[row : row + TABLE_WIDTH]
        last = stop - TABLE_WIDTH
        self._stop = table[last + Table.POSITION] + table[last + Table.SIZE]
        self._last_epoch = table[last + Table.LEADER_EPOCH]

    def cut(self, next_offset: int) -> KnownBatches:
        """The batches of the records below ``next_offset``, and the one that has the next; those before are forgotten.

        Args:
            next_offset: one more than the offset of the last record that was taken.
        """
        at = _reaching(self._rows, next_offset)
        known = KnownBatches(self._rows[: at + TABLE_WIDTH], self._stop, self._last_epoch)
        del self._rows[:at]
        return known


def _reaching(rows: array[int], offset: int) -> int:
    """Where the row of the first batch begins whose last offset is not below ``offset``; the end without one."""
    count = len(rows) // TABLE_WIDTH
    found = bisect_left(range(count), offset, key=lambda row: rows[row * TABLE_WIDTH + Table.LAST_OFFSET])
    return found * TABLE_WIDTH
