"""Markers in the data against what the transaction indexes said of the data before them.

An index has no checksum, and one that is lost counts as empty: only the markers show that it is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from segreader.errors import CorruptIndexError, FormatError
from segreader.format.batch import HEADER_SIZE, parse_batch_header
from segreader.format.columns import NO_STOP, TABLE_WIDTH, Table
from segreader.format.compression import Decompressor
from segreader.format.scanner import BatchRun
from segreader.plan.split import Split
from segreader.read.transaction_replay import is_abort_marker

_USUAL_SIZE: Final = 78  # of a marker as coordinators write it; another form is looked at more closely
_TYPE_POSITION: Final = HEADER_SIZE + 8
_ABORT, _COMMIT = 0, 1


@dataclass(frozen=True, slots=True)
class Transactional:
    """The rows of a run, rising, that bear on transactions: data, those of it called aborted, and control batches."""

    data: Sequence[int]
    aborted: Sequence[int]
    control: Sequence[int]


class MarkerCheck:
    """Remembers, of one split, which open transactions have data in it and what the indexes called that."""

    def __init__(self, decompressor: Decompressor) -> None:
        self._decompressor = decompressor
        # of transactions open where the last run ended: offset of data of theirs, by producer id
        self._hidden: dict[int, int] = {}
        self._shown: dict[int, int] = {}

    def find(self, split: Split, run: BatchRun, rows: Transactional) -> tuple[int, CorruptIndexError] | None:
        """The first marker that says otherwise than the indexes, and how many rows stand before what it is about.

        Most runs are told sound by their producers and types of markers alone; only others are gone through in order.
        """
        if not (rows.data or self._hidden or self._shown):
            return None
        columns = _Columns(run)
        producers, bases = columns.of(Table.PRODUCER_ID), columns.of(Table.BASE_OFFSET)
        data, control = _wanted(split, columns, rows.data), _wanted(split, columns, rows.control)
        if columns.has_empty:
            data = [row for row in data if columns.of(Table.RECORD_COUNT)[row]]
        aborted = set(rows.aborted)
        hidden = {producers[row]: row for row in data if row in aborted}
        shown = {producers[row]: row for row in data if row not in aborted}
        ends = {producers[row]: row for row in control}
        if self._may_contradict(columns, control, hidden, shown) and (
            found := self._walk(columns, data, control, aborted)
        ):
            return found
        for open_before, last in ((self._hidden, hidden), (self._shown, shown)):
            for producer_id in ends.keys() & open_before.keys():
                del open_before[producer_id]
            open_before.update((one, bases[row]) for one, row in last.items() if row > ends.get(one, -1))
        return None

    def _may_contradict(
        self, columns: _Columns, control: Sequence[int], hidden: dict[int, int], shown: dict[int, int]
    ) -> bool:
        """Whether any producer has a COMMIT and hidden data, or an ABORT and shown data, in whatever order."""
        run, producers = columns.run, columns.of(Table.PRODUCER_ID)
        positions, sizes = columns.of(Table.POSITION), columns.of(Table.SIZE)
        of_hidden, of_shown = hidden.keys() | self._hidden.keys(), shown.keys() | self._shown.keys()
        to_type = _TYPE_POSITION - run.data_position
        for row in control:
            is_hidden, is_shown = (one := producers[row]) in of_hidden, one in of_shown
            if is_hidden or is_shown:
                kind = run.data[positions[row] + to_type] if sizes[row] == _USUAL_SIZE else None
                if is_hidden is is_shown or kind != (_ABORT if is_hidden else _COMMIT):
                    return True
        return False

    def _walk(
        self, columns: _Columns, data: Sequence[int], control: Sequence[int], aborted: set[int]
    ) -> tuple[int, CorruptIndexError] | None:
        producers, bases = columns.of(Table.PRODUCER_ID), columns.of(Table.BASE_OFFSET)
        ends = set(control)
        # of each open transaction: whether it is hidden, its first row (-1: of an earlier run), an offset
        opened = {one: (True, -1, base) for one, base in self._hidden.items()}
        opened |= {one: (False, -1, base) for one, base in self._shown.items()}
        for row in sorted((*data, *control)):
            if row not in ends:
                opened.setdefault(producers[row], (row in aborted, row, bases[row]))
            elif (told := opened.pop(producers[row], None)) is not None:
                is_hidden, first, offset = told
                is_abort = self._is_abort(columns, row)
                if is_abort is not None and is_abort != is_hidden:
                    position = columns.of(Table.POSITION)[row]
                    return max(0, first), _contradiction(position, bases[row], producers[row], is_abort, offset)
        return None

    def _is_abort(self, columns: _Columns, row: int) -> bool | None:
        run = columns.run
        start = columns.of(Table.POSITION)[row] - run.data_position
        batch = run.data[start : start + columns.of(Table.SIZE)[row]]
        try:
            return is_abort_marker(parse_batch_header(batch), batch, self._decompressor, True)
        except FormatError:
            return None  # damaged: decoding says so


class _Columns:
    """The table of a run by columns, each cut out once."""

    def __init__(self, run: BatchRun) -> None:
        self.run = run
        self._columns: dict[Table, Sequence[int]] = {}

    def of(self, column: Table) -> Sequence[int]:
        if (known := self._columns.get(column)) is None:
            known = self._columns[column] = self.run.table[column : self.run.rows * TABLE_WIDTH : TABLE_WIDTH]
        return known

    @property
    def has_empty(self) -> bool:
        """Whether the cleaner emptied a batch: it says nothing."""
        return 0 in self.of(Table.RECORD_COUNT)


def _wanted(split: Split, columns: _Columns, rows: Sequence[int]) -> Sequence[int]:
    """Those with offsets that the split wants: what the indexes say of others was not asked for."""
    bases, lasts = columns.of(Table.BASE_OFFSET), columns.of(Table.LAST_OFFSET)
    start, stop = split.offsets.start, NO_STOP if split.offsets.stop is None else split.offsets.stop
    if not rows or (lasts[rows[0]] >= start and bases[rows[-1]] < stop):
        return rows
    return [row for row in rows if lasts[row] >= start and bases[row] < stop]


def _contradiction(position: int, marker: int, producer_id: int, is_abort: bool, data: int) -> CorruptIndexError:
    said, called = ("ABORT", "committed") if is_abort else ("COMMIT", "aborted")
    return CorruptIndexError(
        "the transaction indexes contradict a marker",
        position=position,
        offset=marker,
        found=f"{said} of producer {producer_id}, whose records at offset {data} the indexes call {called}",
        expected="the same of both",
        hint="A .txnindex of this or a later segment is damaged or lost: get it again, or look with "
        "segreader verify --deep",
    )
