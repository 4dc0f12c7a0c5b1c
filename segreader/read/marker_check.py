"""Markers in the data against what the transaction indexes said of the data before them.

An index has no checksum, and one that is lost counts as empty: only the markers show that it is wrong.
"""

from __future__ import annotations

from segreader.errors import CorruptIndexError, FormatError
from segreader.format.batch import CONTROL_FLAG, TRANSACTIONAL_FLAG, parse_batch_header
from segreader.format.columns import NO_STOP, TABLE_WIDTH, Decision, Table
from segreader.format.compression import Decompressor
from segreader.format.scanner import BatchRun
from segreader.plan.split import Split
from segreader.read.transaction_replay import is_abort_marker


class MarkerCheck:
    """Remembers, of one split, which open transactions have data in it and what the indexes called that."""

    def __init__(self, decompressor: Decompressor) -> None:
        self._decompressor = decompressor
        # by producer id: whether it is called aborted, its first row in the run (-1: of an earlier run), its offset
        self._open: dict[int, tuple[bool, int, int]] = {}

    def find(
        self, split: Split, run: BatchRun, rows: int, aborted: list[int], has_visible: bool
    ) -> tuple[int, CorruptIndexError] | None:
        """The first marker that says otherwise than the indexes: how many rows stand before what it is about.

        Args:
            rows: how many of the run are sound.
            aborted: those of them that the indexes call aborted.
            has_visible: whether the run has other data of transactions; if not there is nothing to look at.
        """
        if not has_visible and not any(not was for was, _, _ in self._open.values()):
            self._open.clear()  # nothing of an open transaction was shown: no marker can make that wrong
            return None
        table, hidden = run.table, set(aborted)
        start, stop = split.offsets.start, NO_STOP if split.offsets.stop is None else split.offsets.stop
        flags = table[Table.ATTRIBUTES : rows * TABLE_WIDTH : TABLE_WIDTH]
        for row in [row for row, attributes in enumerate(flags) if attributes & TRANSACTIONAL_FLAG]:
            at, attributes = row * TABLE_WIDTH, flags[row]
            if table[at + Table.MAGIC] < 2:
                continue
            producer_id, base = table[at + Table.PRODUCER_ID], table[at + Table.BASE_OFFSET]
            if base >= stop or table[at + Table.LAST_OFFSET] < start:
                continue
            if not attributes & CONTROL_FLAG:
                if table[at + Table.RECORD_COUNT] and table[at + Table.DECISION] != Decision.DROP:
                    self._open.setdefault(producer_id, (row in hidden, row, base))
            elif (told := self._open.pop(producer_id, None)) is not None:
                is_abort = self._is_abort(run, at)
                if is_abort is not None and is_abort != told[0]:
                    position = table[at + Table.POSITION]
                    return max(0, told[1]), _contradiction(position, base, producer_id, is_abort, told[2])
        self._open = {one: (was, -1, offset) for one, (was, _, offset) in self._open.items()}
        return None

    def _is_abort(self, run: BatchRun, at: int) -> bool | None:
        start = run.table[at + Table.POSITION] - run.data_position
        batch = run.data[start : start + run.table[at + Table.SIZE]]
        try:
            return is_abort_marker(parse_batch_header(batch), batch, self._decompressor, True)
        except FormatError:
            return None  # damaged: decoding says so


def _contradiction(position: int, marker: int, producer_id: int, is_abort: bool, first: int) -> CorruptIndexError:
    said, called = ("ABORT", "committed") if is_abort else ("COMMIT", "aborted")
    return CorruptIndexError(
        "the transaction indexes contradict a marker",
        position=position,
        offset=marker,
        found=f"{said} of producer {producer_id}, whose records from offset {first} on the indexes call {called}",
        expected="the same of both",
        hint="A .txnindex of this or a later segment is damaged or lost: get it again, or look with "
        "segreader verify --deep",
    )
