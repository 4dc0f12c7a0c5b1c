"""Where the batches lie whose records are on their way: what a reader must know to be stopped and to go on there."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from dataclasses import dataclass
from typing import Final

from segreader.format.columns import TABLE_WIDTH, Decision, Table
from segreader.format.scanner import BatchRun

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
class Stretch:
    """The batches of the records of one record batch, and the one behind them. A value: it outlives the reading.

    Args:
        lasts, bases, positions, epochs: of each batch, by rising offset.
        stop: the byte behind the last batch that was met.
        last_epoch: of that batch.
    """

    lasts: array[int]
    bases: array[int]
    positions: array[int]
    epochs: array[int]
    stop: int
    last_epoch: int

    def place_of(self, next_offset: int) -> BatchPlace:
        """A place where a batch begins from which on nothing at or behind ``next_offset`` is passed over.

        It is that of the batch with the offset. If the next one that is known begins behind it, it is that of the batch
        before: that nothing lies between them is not to be seen by who goes on there.
        """
        at = bisect_left(self.lasts, next_offset)
        taken = bisect_left(self.lasts, next_offset - 1)
        if at < len(self.lasts) and self.bases[at] > next_offset:
            at = taken
        epoch = self.epochs[taken] if taken < len(self.epochs) else self.last_epoch
        known = None if epoch < 0 else epoch
        if at < len(self.lasts):
            return BatchPlace(self.positions[at], self.bases[at], known)
        return BatchPlace(self.stop, None, known)


class Trail:
    """Remembers where the batches lie that have records for the reader, until these were taken.

    ``first`` is where the first batch begins that was met, with its base offset.
    """

    def __init__(self) -> None:
        self.first: tuple[int, int] | None = None
        self._stop, self._last_epoch = 0, -1
        self._lasts, self._bases, self._positions, self._epochs = (array("q") for _ in range(4))

    def follow(self, run: BatchRun, rows: int) -> None:
        """Go on over the first ``rows`` batches of a run. Those that the reader is given nothing of leave no mark."""
        if not rows:
            return
        table, stop = run.table, rows * TABLE_WIDTH
        if self.first is None:
            self.first = table[Table.POSITION], table[Table.BASE_OFFSET]
        if table[Table.DECISION : stop : TABLE_WIDTH].count(_DECODE) == rows:
            self._lasts += table[Table.LAST_OFFSET : stop : TABLE_WIDTH]
            self._bases += table[Table.BASE_OFFSET : stop : TABLE_WIDTH]
            self._positions += table[Table.POSITION : stop : TABLE_WIDTH]
            self._epochs += table[Table.LEADER_EPOCH : stop : TABLE_WIDTH]
        else:
            for row in range(0, stop, TABLE_WIDTH):
                if table[row + Table.DECISION] == _DECODE:
                    self._lasts.append(table[row + Table.LAST_OFFSET])
                    self._bases.append(table[row + Table.BASE_OFFSET])
                    self._positions.append(table[row + Table.POSITION])
                    self._epochs.append(table[row + Table.LEADER_EPOCH])
        last = stop - TABLE_WIDTH
        self._stop = table[last + Table.POSITION] + table[last + Table.SIZE]
        self._last_epoch = table[last + Table.LEADER_EPOCH]

    def cut(self, next_offset: int) -> Stretch:
        """The batches of the records below ``next_offset``, and the one that has the next; those before are forgotten.

        Args:
            next_offset: one more than the offset of the last record that was taken.
        """
        at = bisect_left(self._lasts, next_offset)
        behind = at + 1
        stretch = Stretch(
            self._lasts[:behind],
            self._bases[:behind],
            self._positions[:behind],
            self._epochs[:behind],
            self._stop,
            self._last_epoch,
        )
        for column in (self._lasts, self._bases, self._positions, self._epochs):
            del column[:at]
        return stretch
