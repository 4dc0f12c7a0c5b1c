"""Transaction indexes and producer snapshots: checked by themselves, and against the batches of the log."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence

from segreader.errors import CorruptIndexError, shown_count
from segreader.evidence.findings import Findings
from segreader.evidence.rules import Code
from segreader.format.checkpoints import ProducerSnapshot, parse_producer_snapshot
from segreader.format.index_files import AbortedTransaction, parse_transaction_index
from segreader.format.scanner import Batch
from segreader.isolation import TransactionReplay
from segreader.plan.request import Policy
from segreader.segment import Segment

_ROW = 34


def check_transaction_index(
    found: Findings, data: bytes, name: str, base_offset: int, limit: int | None, policy: Policy = Policy.FAIL
) -> list[AbortedTransaction]:
    """Note what the file itself shows; returns the rows that can be.

    Args:
        limit: the last offset that the segment can have, where it is known.
        policy: as of ``settle_transaction_index``; with ``fail`` nothing is looked at behind the first wrong row.
    """
    if (sound := _sound_rows(data, base_offset, limit)) is not None:
        return sound
    rows: list[AbortedTransaction] = []
    whole = len(data) - len(data) % _ROW
    if whole < len(data):
        text = f"found {len(data)} bytes, expected a multiple of {_ROW}"
        found.add(Code.CUT_TRANSACTION_INDEX, name, text, position=whole)
    before = found.codes
    for position in range(0, whole, _ROW):
        if policy is Policy.FAIL and found.codes != before:
            break
        number = position // _ROW
        if version := int.from_bytes(data[position : position + 2], "big"):
            text = f"row {number} has version {version}, expected 0"
            found.add(Code.TRANSACTION_INDEX_VERSION, name, text, position=position)
            continue
        try:
            (row,) = parse_transaction_index(data[position : position + _ROW])
        except CorruptIndexError as error:
            text = f"row {number} cannot be: {error.found}"
            found.add(Code.TRANSACTION_INDEX_IMPOSSIBLE_ROW, name, text, position=position)
            continue
        last = row.last_offset
        if last < base_offset or (limit is not None and last > limit):
            text = f"row {number} names the marker {last}, and the segment has offsets {base_offset} to {limit}"
            found.add(Code.TRANSACTION_INDEX_OUTSIDE_SEGMENT, name, text, position=position, offset=last)
        elif rows and last <= rows[-1].last_offset:
            text = f"row {number} names the marker {last}, after {rows[-1].last_offset}"
            found.add(Code.TRANSACTION_INDEX_NOT_RISING, name, text, position=position, offset=last)
        rows.append(row)
    return rows


def _sound_rows(data: bytes, base_offset: int, limit: int | None) -> list[AbortedTransaction] | None:
    """The rows if nothing is wrong with them, as nearly always: parsed at a stroke."""
    if len(data) % _ROW or any(data[1::_ROW]):
        return None
    try:
        rows = list(parse_transaction_index(data, base_offset))
    except CorruptIndexError:
        return None
    return None if rows and limit is not None and rows[-1].last_offset > limit else rows


def settle_transaction_index(found: Findings, policy: Policy = Policy.FAIL, *, is_active: bool = False) -> list[str]:
    """What a plan says of the findings of ``check_transaction_index``; see ``Findings.settle``.

    Args:
        is_active: a broker still appends to the segment, and may be in the middle of a row.
    """
    is_being_written = is_active and found.codes == {Code.CUT_TRANSACTION_INDEX}
    return found.settle(Policy.SKIP if is_being_written else policy)


def check_has_rows(found: Findings, segment: Segment, size: int) -> None:
    """Note a transaction index that has no byte though the catalogue says that it has rows; 0 if it is not there."""
    if segment.has_aborts and not size:
        name = segment.files.transaction_index or f"{segment.files.log.removesuffix('log')}txnindex"
        text = "found no byte, expected a row for each transaction that is aborted in the segment"
        found.add(Code.MISSING_TRANSACTION_INDEX, name, text, offset=segment.base_offset)


def check_neighbours(
    found: Findings,
    name: str,
    snapshot_name: str,
    rows: Sequence[AbortedTransaction],
    before: Mapping[int, int] | None,
    after: Mapping[int, int] | None,
    start: int,
) -> None:
    """Hold the rows of a segment against the transactions that are open at its two ends, which snapshots tell.

    Args:
        name, snapshot_name: of the transaction index and of the snapshot at the segment's end.
        rows: with their markers in the segment.
        before: first offset of each transaction that is open at ``start``, by producer id; ``None`` if it is not known.
        after: of each that is open at the end.
        start: the first offset of the segment.
    """
    for number, row in enumerate(rows):
        if before is not None and row.first_offset < start and before.get(row.producer_id) != row.first_offset:
            text = (
                f"row {number}: producer {row.producer_id} aborts what it began at {row.first_offset}, and the "
                f"snapshot of the segment before has {_open(before.get(row.producer_id))}"
            )
            found.add(Code.TRANSACTION_INDEX_MISMATCH, name, text, position=number * _ROW, offset=row.last_offset)
        if after is not None and after.get(row.producer_id, row.last_offset) < row.last_offset:
            text = (
                f"producer {row.producer_id} has {_open(after[row.producer_id])}, and row {number} of the transaction "
                f"index aborts it at {row.last_offset}"
            )
            found.add(Code.SNAPSHOT_CONTRADICTS_LOG, snapshot_name, text, offset=row.last_offset)
    if before is None or after is None:
        return
    for producer_id, first in sorted(after.items()):
        if first < start and before.get(producer_id) != first:
            text = (
                f"producer {producer_id} has {_open(first)}, and {_open(before.get(producer_id))} by the snapshot of "
                "the segment before"
            )
            found.add(Code.SNAPSHOT_CONTRADICTS_LOG, snapshot_name, text, offset=first)


def check_last_batch(found: Findings, snapshot_name: str, opened: Mapping[int, int], last: Batch) -> None:
    """Hold a segment's last batch against the transactions that its snapshot calls open.

    Data of a transaction at the very end has no marker in the segment. A snapshot that does not know it is stale.
    """
    if last.is_transactional and not last.is_control and last.record_count:
        first = opened.get(last.producer_id)
        if first is None or first > last.base_offset:
            text = (
                f"producer {last.producer_id} has {_open(first)}, and the log ends inside a transaction of it, with a "
                f"batch at {last.base_offset}"
            )
            found.add(Code.SNAPSHOT_CONTRADICTS_LOG, snapshot_name, text, offset=last.base_offset)


def check_snapshot(found: Findings, data: bytes, name: str, limit: int | None) -> ProducerSnapshot | None:
    """Note what the file itself shows; returns the snapshot if it can be believed.

    Args:
        limit: the last offset of the segment that it ends, where it is known.
    """
    try:
        snapshot = parse_producer_snapshot(data)
    except CorruptIndexError as error:
        found.add_error(error, name, code=_snapshot_code(data))
        return None
    if snapshot.trailing_bytes:
        text = f"{snapshot.trailing_bytes} bytes follow {shown_count(len(snapshot), 'entry', 'entries')}"
        found.add(Code.SNAPSHOT_TRAILING_BYTES, name, text, position=len(data) - snapshot.trailing_bytes)
    for entry in snapshot:
        newest = max(entry.last_offset, entry.current_txn_first_offset or -1)
        if limit is not None and newest > limit:
            text = f"producer {entry.producer_id} has offset {newest}, and its log ends with {limit}"
            found.add(Code.SNAPSHOT_CONTRADICTS_LOG, name, text, offset=newest)
    return snapshot


def _snapshot_code(data: bytes) -> Code:
    """Which of the checks it fails: a file that is cut fails its checksum, too."""
    if len(data) >= 2 and int.from_bytes(data[:2], "big") != 1:
        return Code.SNAPSHOT_VERSION
    try:
        parse_producer_snapshot(data, check_crc=False)
    except CorruptIndexError:
        return Code.CUT_SNAPSHOT
    return Code.SNAPSHOT_CRC


class MarkerAudit:
    """Holds the rows of one segment's transaction index against its markers and the transactions of the log.

    Args:
        rows: of the transaction index.
        name: of the transaction index, or of the log where there is none.
        state: the transactions open at the segment's start; fed on.
    """

    def __init__(self, found: Findings, rows: Sequence[AbortedTransaction], name: str, state: TransactionLog) -> None:
        self._found, self._name, self._state = found, name, state
        self._rows = {row.last_offset: (number, row) for number, row in enumerate(rows)}
        self._skipped: list[tuple[int, int]] = []
        self._undecided: list[int] = []

    def marker(self, batch: Batch, is_abort: bool, *, is_live: bool) -> None:
        """A marker that ends a transaction; one that is not of the live history has its row all the same."""
        state, offset, producer_id = self._state, batch.base_offset, batch.producer_id
        is_certain = state.knows(producer_id)
        ended = state.marker(batch, is_abort) if is_live else None
        number, row = self._rows.get(offset, (-1, None))
        if row is not None and is_abort and row.producer_id == producer_id:
            del self._rows[offset]
            if ended is not None and is_certain and not state.is_cleaned:
                self._compare(number, row, ended)
        elif row is None and ended is not None and not state.is_cleaned:
            text = (
                f"producer {producer_id} aborts at offset {offset} what it began at {ended.first_offset}, "
                "and the transaction index has no row for it"
            )
            self._found.add(Code.MARKER_WITHOUT_ROW, self._name, text, offset=offset)

    def skip(self, start: int, stop: int, *, is_live: bool) -> None:
        """Offsets ``start <= offset < stop`` are in no batch, or in one that cannot be read."""
        if self._skipped and self._skipped[-1][1] == start:
            start = self._skipped.pop()[0]
        self._skipped.append((start, stop))
        if is_live:
            self._undecided += self._state.open_transactions
            self._state.restart(None)

    def end(self) -> None:
        """The segment has ended, with its last batch."""
        if self._state.is_cleaned:
            return
        starts = [start for start, _ in self._skipped]
        hidden = []
        for number, row in self._rows.values():
            at = bisect_right(starts, row.last_offset) - 1
            if at >= 0 and row.last_offset < self._skipped[at][1]:
                hidden.append(row.last_offset)
                continue
            text = f"row {number}: there is no ABORT of producer {row.producer_id} at offset {row.last_offset}"
            self._found.add(Code.ROW_WITHOUT_MARKER, self._name, text, position=number * _ROW, offset=row.last_offset)

        if hidden or self._undecided:
            start, stop = self._skipped[0]
            rows = shown_count(len(hidden), "row whose marker", "rows whose markers")
            left_out = [f"{rows} would be there"] * bool(hidden)
            left_out += [f"transactions of producers {_some(self._undecided)} open there"] * bool(self._undecided)
            gaps = shown_count(len(self._skipped), "gap")
            text = f"{gaps} between batches, the first at offsets {start}-{stop - 1}; not checked: "
            self._found.add(Code.UNCHECKED, self._name, text + ", ".join(left_out), offset=start)

    def compare_snapshot(self, snapshot: ProducerSnapshot, name: str) -> None:
        """Hold the snapshot of the segment's end against the open transactions of the replay."""
        state = self._state
        if state.is_cleaned:
            return
        told, replayed = snapshot.open_transactions(), state.open_transactions
        for producer_id in sorted(told.keys() | replayed.keys()):
            if not state.knows(producer_id) or told.get(producer_id) == replayed.get(producer_id):
                continue
            text = (
                f"producer {producer_id}: {_open(told.get(producer_id))} by the snapshot, "
                f"{_open(replayed.get(producer_id))} by the batches"
            )
            offset = told.get(producer_id, replayed.get(producer_id))
            self._found.add(Code.SNAPSHOT_CONTRADICTS_LOG, name, text, offset=offset)

    def _compare(self, number: int, row: AbortedTransaction, ended: AbortedTransaction) -> None:
        wrong = []
        if row.first_offset != ended.first_offset:
            wrong.append(f"first offset {row.first_offset}, by the batches {ended.first_offset}")
        elif self._state.is_complete and row.last_stable_offset != ended.last_stable_offset:
            wrong.append(f"last stable offset {row.last_stable_offset}, by the batches {ended.last_stable_offset}")
        if wrong:
            text = f"row {number}: {wrong[0]}"
            self._found.add(
                Code.TRANSACTION_INDEX_MISMATCH, self._name, text, position=number * _ROW, offset=row.last_offset
            )


def _open(first_offset: int | None) -> str:
    return "no open transaction" if first_offset is None else f"a transaction open since offset {first_offset}"


def _some(producer_ids: Sequence[int]) -> str:
    some = sorted(set(producer_ids))
    return ", ".join(map(str, some[:4])) + (f" and {len(some) - 4} more" if len(some) > 4 else "")


class TransactionLog:
    """Remembers, along a partition's live history, which transactions are open, and how far that is certain.

    ``is_complete``: nothing of the history is unknown, so it is certain of every producer. ``is_cleaned``: a batch so
    far shows that the log was compacted once; then markers and rows may outlive the data that they tell of.
    ``stop``: one more than the last offset of the history so far.
    """

    def __init__(self) -> None:
        self.is_cleaned = False
        self.is_complete = True
        self.stop = 0
        self._replay = TransactionReplay()
        self._known: set[int] = set()

    @property
    def open_transactions(self) -> dict[int, int]:
        """First offset of each open transaction, by producer id."""
        return self._replay.open_transactions

    def knows(self, producer_id: int) -> bool:
        """Whether it is certain of this producer."""
        return self.is_complete or producer_id in self._known

    def go_on_at(self, start: int) -> None:
        """The history continues at this offset; what is between is unknown."""
        if start != self.stop:
            self.restart(None)
            self.stop = start

    def restart(self, open_transactions: dict[int, int] | None) -> None:
        """Forget what was seen, and begin with the transactions open here, if these are known."""
        self._replay = TransactionReplay(open_transactions)
        self.is_complete = open_transactions is not None
        self._known.clear()

    def data(self, batch: Batch) -> None:
        """A transactional data batch. One that the cleaner emptied opens nothing: it empties only what is decided."""
        if batch.record_count:
            self._replay.data(batch.producer_id, batch.base_offset)

    def marker(self, batch: Batch, is_abort: bool) -> AbortedTransaction | None:
        """A marker; gives the transaction if it aborted one."""
        ended = self._replay.marker(batch.producer_id, batch.base_offset, is_abort)
        self._known.add(batch.producer_id)
        return ended
