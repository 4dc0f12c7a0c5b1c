"""Which transactions of a partition were aborted, and up to where all are decided, from its files.

A transaction index belongs to the segment of the abort *marker*, often a later one than the data; the producer
snapshot at the end of the last segment says which transactions are still open there. Nothing is concluded across a
hole: a marker may lie in it. Source: KIP-98; ``RemoteLogManager.collectAbortedTransactions``, ``ProducerStateManager``
(Kafka 4.0).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from itertools import dropwhile, pairwise
from typing import Final

from segreader.catalog.listing import PartitionLog, read_file
from segreader.errors import FormatError, LimitExceededError, ObjectChangedError, ObjectNotFoundError
from segreader.evidence.findings import Findings
from segreader.evidence.rules import Code
from segreader.evidence.transaction_checks import (
    check_has_rows,
    check_last_batch,
    check_neighbours,
    check_snapshot,
    check_transaction_index,
    settle_transaction_index,
)
from segreader.format.checkpoints import MOST_OF_SNAPSHOT, ProducerSnapshot
from segreader.format.compression import DEFAULT_LIMIT
from segreader.format.index_files import AbortedTransaction
from segreader.format.scanner import Batch
from segreader.isolation import AbortedTransactions
from segreader.plan.lineage import Part, ResolvedLog
from segreader.plan.request import Policy
from segreader.ranges import OffsetRange
from segreader.read.markers import VANISHED, Replayed, replay_parts
from segreader.storage.base import ObjectStore, read_each, read_whole
from segreader.values import dataclass

_AT_ONCE: Final = 16

NOWHERE: Final = ("", 0)
"""To replay from: no log has this name."""


@dataclass(frozen=True, slots=True)
class TransactionState:
    """Some offsets of one partition: its aborted transactions, and up to where all are decided.

    Args:
        open: producer id and first offset of each transaction that is open where the log ends; of those that begin
            below the end of the offsets, if these have one.
        held_back: by the start of a hole: the first offset of a transaction that is open there and whose end is not
            told behind the hole. Of the holes in the offsets, and of the first one behind them.
        unread_from: an offset from which on damage hides what was decided.
        damage: that damage.
        notes: what is wrong with the files that were read, and keeps no record back.
        last_marker, last_of_producers: the largest offset that the transaction index of the newest log names, and the
            snapshot of its end; -1 for none. The cleaner may have removed the latter.
        is_from_start: no snapshot can be read: what is open where the log begins is taken to be nothing.
    """

    aborted: AbortedTransactions
    open: tuple[tuple[int, int], ...] = ()
    held_back: Mapping[int, int] = field(default_factory=dict)
    unread_from: int | None = None
    damage: FormatError | None = None
    notes: tuple[str, ...] = ()
    last_marker: int = -1
    last_of_producers: int = -1
    is_from_start: bool = False

    @property
    def first_open(self) -> tuple[int, int] | None:
        """Offset and producer id of the earliest open transaction: where the decided part ends."""
        return min(((offset, producer_id) for producer_id, offset in self.open), default=None)


def read_transaction_state(
    store: ObjectStore,
    log: ResolvedLog,
    offsets: OffsetRange,
    *,
    start_snapshot: str | None = None,
    last_batches: Mapping[str, Batch] | None = None,
    max_batch_bytes: int = DEFAULT_LIMIT,
    check_crcs: bool = True,
    on_corrupt: Policy = Policy.FAIL,
    replay_from: tuple[str, int] | None = None,
) -> TransactionState:
    """Read the transaction indexes that matter for these offsets, and the open transactions at the end and at holes.

    Args:
        log: which segment delivers which offsets; what indexes say of other offsets is of another history.
        offsets: what will be read.
        start_snapshot: a producer snapshot of where the log starts.
        last_batches: by the name of its log: the last batch of a segment, where it is known.
        max_batch_bytes: largest batch to hold where batches are replayed.
        check_crcs: whether these must pass their CRC.
        on_corrupt: ``fail`` raises where an index is damaged; ``skip`` notes it.
        replay_from: name of the log and byte before which no batch belongs to a transaction; ``NOWHERE`` if none does.

    Raises:
        CorruptIndexError: an index is cut or contradicts itself.
        ObjectNotFoundError, ObjectChangedError: a segment has vanished; ``offset`` is where its part begins.
    """
    files = _Files(store, log, on_corrupt, last_batches or {})
    aborted: list[AbortedTransaction] = []
    open_at: dict[int, dict[int, int]] = {}
    stop = offsets.stop
    enough: int | None = None
    replayed, is_from_start = Replayed(), False
    first_log, start = replay_from or NOWHERE
    for run in _runs(log.parts, offsets):
        is_first = run[0] is log.parts[0]
        replayed = Replayed()
        if stop is not None and (decided := _decided_by(files, run, stop)) is not None:
            enough = decided
            break
        known, rest = _last_snapshot(files, run, start_snapshot if is_first else None)
        is_from_start |= len(rest) == len(run)
        if replay_from is not None:
            rest = list(dropwhile(lambda part: part.segment.files.log != first_log, rest))
        replayed = replay_parts(
            store, rest, known, below=stop, max_batch_bytes=max_batch_bytes, check_crcs=check_crcs, start=start
        )
        aborted += replayed.aborted
        if replayed.damage is not None:
            break
        if stop is not None:
            replayed.open = {one: first for one, first in replayed.open.items() if first < stop}
            if not replayed.open and run[-1].stop >= stop:
                enough = run[-1].stop
        open_at[run[-1].stop] = replayed.open
    aborted += _read_aborted(files, log.parts, offsets, enough)[0]
    files.compare()
    told = {(entry.producer_id, entry.first_offset) for entry in aborted}
    held_back: dict[int, int] = {}
    for hole in log.holes:
        undecided = [first for one, first in open_at.pop(hole.start, {}).items() if (one, first) not in told]
        if undecided:
            held_back[hole.start] = min(undecided)
    at_end = tuple(sorted(item for opened in open_at.values() for item in opened.items()))
    return TransactionState(
        AbortedTransactions(aborted),
        at_end,
        held_back,
        replayed.unread_from,
        replayed.damage,
        tuple(files.notes),
        files.last_marker,
        files.last_of_producers,
        is_from_start,
    )


def snapshot_at_start(listed: PartitionLog, log: ResolvedLog) -> str | None:
    """The ``start_snapshot`` of a listing, if what is read begins there."""
    begins = log.parts and listed.segments and log.parts[0].start == listed.segments[0].base_offset
    return listed.start_snapshot if begins else None


def _runs(parts: Sequence[Part], offsets: OffsetRange) -> Iterator[list[Part]]:
    """The parts, without a hole between them, that can decide transactions of the offsets."""
    run: list[Part] = []
    for part in parts:
        if run and run[-1].stop < part.start:
            if part.start > offsets.start:
                yield run
            run = []
        if not run and offsets.stop is not None and part.start >= offsets.stop:
            return
        run.append(part)
    if run:
        yield run


def _decided_by(files: _Files, run: Sequence[Part], stop: int) -> int | None:
    """Where the part with the last offset below ``stop`` ends, if a snapshot there says that all below is decided."""
    last = next((part for part in run if part.stop >= stop), None)
    if last is None or (known := files.snapshot(last)) is None:
        return None
    return last.stop if all(first >= stop for first in known.values()) else None


def _last_snapshot(
    files: _Files, run: Sequence[Part], start_snapshot: str | None
) -> tuple[Mapping[int, int], Sequence[Part]]:
    """The open transactions at the last snapshot, and the parts after it."""
    for index in range(len(run), 0, -1):
        if (known := files.snapshot(run[index - 1])) is not None:
            return known, run[index:]
    if start_snapshot is not None:
        return files.at_start(start_snapshot), run
    return {}, run


def read_aborted(
    store: ObjectStore, log: ResolvedLog, parts: Sequence[Part], offsets: OffsetRange
) -> tuple[list[AbortedTransaction], bool]:
    """The rows of the transaction indexes that touch the offsets: of the part that holds the first of them, and of
    the following ones until one row says that everything below the end is decided.

    Args:
        log: whose parts these are.

    Returns:
        The rows, and whether one of them said that.

    Raises:
        CorruptIndexError: an index is cut or contradicts itself.
        ObjectNotFoundError, ObjectChangedError: a segment has vanished; ``offset`` is where its part begins.

    Source: ``RemoteLogManager.collectAbortedTransactions`` (4.3).
    """
    return _read_aborted(_Files(store, log, Policy.FAIL, {}), parts, offsets, None)


def _read_aborted(
    files: _Files, parts: Sequence[Part], offsets: OffsetRange, enough: int | None
) -> tuple[list[AbortedTransaction], bool]:
    """See ``read_aborted``; no marker from ``enough`` on ends one of the transactions asked for."""
    wanted = [
        part
        for part in parts
        if part.stop > offsets.start
        and (enough is None or part.start < enough)
        and part.segment.files.transaction_index is not None
    ]
    aborted: list[AbortedTransaction] = []
    for first in range(0, len(wanted), _AT_ONCE):
        some = wanted[first : first + _AT_ONCE]
        for part, rows in zip(some, read_each(files.rows, some), strict=True):
            for row in rows:
                is_of_the_end = files.is_newest(part) and row.last_offset >= part.start  # and beyond it the log is cut
                if not is_of_the_end and not part.start <= row.last_offset < part.stop:
                    continue  # the marker is where the lineage follows another segment
                aborted.append(row)
                if offsets.stop is not None and row.last_stable_offset >= offsets.stop:
                    return aborted, True
    return aborted, False


class _Files:
    """Reads the transaction indexes and the snapshots of a log, and notes what is wrong with them."""

    def __init__(
        self, store: ObjectStore, log: ResolvedLog, on_corrupt: Policy, last_batches: Mapping[str, Batch]
    ) -> None:
        self._store, self._log, self._on_corrupt, self._last_batches = store, log, on_corrupt, last_batches
        self._rows: dict[int, list[AbortedTransaction]] = {}  # by the start of their part, as all here
        self._open: dict[int, dict[int, int]] = {}
        self.notes: list[str] = []
        self.last_marker = self.last_of_producers = -1

    def is_newest(self, part: Part) -> bool:
        """Whether the log ends with this part and its segment, and no broker appends to that."""
        segment = part.segment
        is_whole = segment.last_offset is None or segment.last_offset < part.stop
        return part is self._log.parts[-1] and is_whole and not segment.is_active

    def rows(self, part: Part) -> list[AbortedTransaction]:
        """The rows of the transaction index of the part's segment, of all its offsets."""
        store, segment = self._store, part.segment
        name = segment.files.transaction_index
        if name is None:
            return []
        found = Findings(store, self._log.partition, most=1)
        try:
            try:
                data = read_file(store, segment, name)
            except ObjectNotFoundError:
                if name in segment.files.sizes:
                    raise  # it was listed
                store.size(segment.files.log)
                data = b""  # as Kafka: a transaction index that was never written is an empty one
        except (ObjectNotFoundError, ObjectChangedError) as error:
            error.hint = VANISHED
            raise error.located(source=store.url(name), offset=part.start) from None
        except LimitExceededError as error:
            if self._on_corrupt is Policy.FAIL:
                raise
            found.add_error(error, name, code=Code.OVERSIZED_FILE)
            self.notes += found.settle(Policy.SKIP)
            return []
        limit = None if part is self._log.parts[-1] else segment.last_offset  # the newest log may be cut
        rows = check_transaction_index(found, data, name, segment.base_offset, limit, self._on_corrupt)
        check_has_rows(found, segment, len(data))
        self.notes += settle_transaction_index(found, self._on_corrupt, is_active=segment.is_active)
        if rows and self.is_newest(part):
            self.last_marker = max(row.last_offset for row in rows)
        self._rows[part.start] = rows
        return rows

    def snapshot(self, part: Part) -> dict[int, int] | None:
        """The transactions open at the part's end; ``None`` if no snapshot says it, as the broker then looks further.

        That of a segment whose end is not in the log any more tells of another history.
        """
        segment = part.segment
        name = segment.files.producer_snapshot
        if name is None or (segment.last_offset is not None and part.stop <= segment.last_offset):
            return None
        snapshot = self._parse_snapshot(name, segment.files.sizes.get(name))
        if snapshot is None:
            return None
        if snapshot.entries and self.is_newest(part):
            entries = (max(entry.last_offset, entry.current_txn_first_offset or -1) for entry in snapshot)
            self.last_of_producers = max(entries)
        self._open[part.start] = snapshot.open_transactions()
        return snapshot.open_transactions()

    def compare(self) -> None:
        """Hold the rows that were read against the snapshots that were, and these against the last batches.

        A last batch that its snapshot contradicts is only noted: the records before it are good.

        Raises:
            CorruptIndexError: rows and snapshots contradict each other.
        """
        found, of_last = Findings(self._store, self._log.partition), Findings(self._store, self._log.partition)
        for before, part in pairwise([None, *self._log.parts] if self._open else []):
            if part is None or part.start not in self._open:
                continue
            files = part.segment.files
            rows = [row for row in self._rows.get(part.start, ()) if part.start <= row.last_offset < part.stop]
            known = self._open.get(before.start) if before is not None and before.stop == part.start else None
            index, snapshot = files.transaction_index or files.log, files.producer_snapshot or files.log
            check_neighbours(found, index, snapshot, rows, known, self._open[part.start], part.start)
            if (last := self._last_batches.get(files.log)) is not None:
                check_last_batch(of_last, snapshot, self._open[part.start], last)
        self.notes += of_last.settle(Policy.SKIP)
        self.notes += found.settle(self._on_corrupt)

    def at_start(self, name: str) -> dict[int, int]:
        """The transactions that a snapshot of the log's start calls open; none if it cannot be had."""
        snapshot = self._parse_snapshot(name, None)
        return {} if snapshot is None else snapshot.open_transactions()

    def _parse_snapshot(self, name: str, size: int | None) -> ProducerSnapshot | None:
        """A snapshot; ``None`` if it is not there or, with a note, is damaged."""
        found, snapshot = Findings(self._store, self._log.partition), None
        try:
            data = read_whole(self._store, name, size, most=MOST_OF_SNAPSHOT)
            snapshot = check_snapshot(found, data, name, None)
        except ObjectNotFoundError:
            return None
        except LimitExceededError as error:
            found.add_error(error, name, code=Code.OVERSIZED_FILE)
        self.notes += found.settle(Policy.SKIP)
        return snapshot
