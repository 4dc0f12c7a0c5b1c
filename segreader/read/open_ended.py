"""Splits whose aborted transactions are known without their ends: an ABORT marker ends each.

A Fetch answer lists producer and first offset only. So does a location. Batches must then be read in order from the
first one on, which is how they come.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from segreader.format.batch import CONTROL_FLAG, TRANSACTIONAL_FLAG
from segreader.format.columns import TABLE_WIDTH, Table
from segreader.format.scanner import BatchRun
from segreader.isolation import AbortedTransactionFilter, IsolationLevel
from segreader.plan.split import Split
from segreader.read.marker_check import Transactional
from segreader.read.split_reader import SplitReader


@dataclass(slots=True)
class _Facts:
    """Of one batch, what ``AbortedTransactionFilter`` asks for."""

    producer_id: int
    last_offset: int
    is_transactional: bool
    is_control: bool


class OpenEndedReader(SplitReader):
    """As ``SplitReader``, for splits with aborted transactions of either kind."""

    _filter: AbortedTransactionFilter | None = None

    @property
    def undelivered(self) -> int:
        """The first offset that was not handed out yet: true whenever a record batch has just been taken."""
        return self._undelivered

    def read_open_ended(
        self, split: Split, aborted: Iterable[tuple[int, int]], next_offset: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The records of a split.

        Args:
            aborted: producer id and first offset of each aborted transaction that reaches into the split, in any
                order. All of them must still be open where it begins, or begin in it.
            next_offset: as in ``read``.

        Raises:
            as ``read``.
        """
        is_committed = split.isolation_level is IsolationLevel.READ_COMMITTED
        some = list(aborted) if is_committed else []
        self._filter = AbortedTransactionFilter(some) if some else None
        try:
            yield from self.read(split, next_offset)
        finally:
            self._filter = None

    def _decide(self, split: Split, run: BatchRun, rows: int) -> Transactional:
        if self._filter is not None:
            aborted = _aborted_rows(self._filter, run, rows)
            self._aborted_of = lambda numbers, producer_ids, base_offsets: aborted
        return super()._decide(split, run, rows)


def _aborted_rows(aborted: AbortedTransactionFilter, run: BatchRun, rows: int) -> list[int]:
    """The rows of aborted data; every control batch ends what its producer had open.

    A producer is in the filter from the first batch of its aborted transaction on, so the next marker is the ABORT.
    """
    table, found = run.table, []
    for row in range(rows):
        at = row * TABLE_WIDTH
        flags = table[at + Table.ATTRIBUTES]
        if table[at + Table.MAGIC] < 2 or table[at + Table.DECISION] or not flags & (TRANSACTIONAL_FLAG | CONTROL_FLAG):
            continue
        is_control = bool(flags & CONTROL_FLAG)
        facts = _Facts(
            table[at + Table.PRODUCER_ID],
            table[at + Table.LAST_OFFSET],
            bool(flags & TRANSACTIONAL_FLAG),
            is_control,
        )
        if not aborted.admits(facts, ends_in_abort=is_control) and not is_control:
            found.append(row)
    return found
