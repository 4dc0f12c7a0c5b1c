"""What the files at hand say about a partition's transactions: which were aborted, and up to where all are decided.

A transaction index lies with the segment of the abort *marker*, often a later one than the data; the producer
snapshot at the end of the last segment says which transactions are still open there. Source: KIP-98;
``RemoteLogManager.collectAbortedTransactions``, ``ProducerStateManager`` (Kafka 4.0).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Final

from segreader.errors import CorruptIndexError, FormatError, ObjectNotFoundError
from segreader.format.batch import RecordBatchHeader
from segreader.format.compression import DEFAULT_LIMIT, Decompressor
from segreader.format.control import parse_control_key
from segreader.format.producer_snapshot import parse_producer_snapshot
from segreader.format.records import iter_records
from segreader.format.scanner import BatchReady, NeedData, SegmentScanner
from segreader.format.transaction_index import AbortedTransaction, parse_transaction_index
from segreader.isolation import AbortedTransactions, TransactionReplay
from segreader.plan.lineage import Part, ResolvedLog
from segreader.ranges import ByteRange, OffsetRange
from segreader.read.small_objects import read_each, read_whole
from segreader.segment import Segment
from segreader.storage.base import ObjectStore

_AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True)
class TransactionState:
    """Of one partition: its aborted transactions, and those still open where its last segment ends.

    Args:
        open: producer id and first offset of each open transaction.
        unread_from: an offset behind which damage kept batches from being replayed: there nothing is known.
        held_back: by the start of each hole: the first offset of a transaction that is open there and whose end is
            not told behind the hole.
    """

    aborted: AbortedTransactions
    open: tuple[tuple[int, int], ...] = ()
    unread_from: int | None = None
    held_back: Mapping[int, int] = field(default_factory=dict)

    @property
    def first_open(self) -> tuple[int, int] | None:
        """Offset and producer id of the earliest open transaction: where the decided part ends."""
        return min(((offset, producer_id) for producer_id, offset in self.open), default=None)


def read_transaction_state(
    store: ObjectStore, log: ResolvedLog, offsets: OffsetRange, *, max_batch_bytes: int = DEFAULT_LIMIT
) -> TransactionState:
    """Read the transaction indexes that bear on these offsets, and the open transactions at the end.

    Args:
        log: which segment delivers which offsets; what indexes say of other offsets is of another history.
        offsets: what will be read.
        max_batch_bytes: largest batch to hold where batches are replayed.

    Raises:
        CorruptIndexError: an index contradicts itself.
    """
    tail = _replay(store, log.parts, max_batch_bytes)
    aborted = [*tail.emitted, *_read_aborted(store, log.parts, offsets)]
    held_back: dict[int, int] = {}
    told = {(entry.producer_id, entry.first_offset) for entry in aborted}
    for hole in log.holes:
        before = [part for part in log.parts if part.stop <= hole.start]
        known = _replay(store, before, max_batch_bytes)
        aborted.extend(known.emitted)
        if known.unread_from is not None:
            held_back[hole.start] = known.unread_from
        undecided = [first for producer_id, first in known.open.items() if (producer_id, first) not in told]
        if undecided:
            held_back[hole.start] = min(*undecided, held_back.get(hole.start, hole.start))
    return TransactionState(AbortedTransactions(aborted), tuple(sorted(tail.open.items())), tail.unread_from, held_back)


def _read_aborted(store: ObjectStore, parts: Sequence[Part], offsets: OffsetRange) -> list[AbortedTransaction]:
    """The rows of the transaction indexes that touch the offsets: of the part that holds the first of them, and of
    the following ones until one row says that everything below the end is decided.

    Source: ``RemoteLogManager.collectAbortedTransactions`` (4.3).
    """
    wanted = [part for part in parts if part.stop > offsets.start and part.segment.files.transaction_index is not None]
    aborted: list[AbortedTransaction] = []
    for first in range(0, len(wanted), _AT_ONCE):
        some = wanted[first : first + _AT_ONCE]
        for part, rows in zip(
            some, read_each(lambda part: _read_transaction_index(store, part.segment), some), strict=True
        ):
            for row in rows:
                if not part.start <= row.last_offset < part.stop:
                    continue  # the marker lies where the lineage follows another segment
                aborted.append(row)
                if offsets.stop is not None and row.last_stable_offset >= offsets.stop:
                    return aborted
    return aborted


def _read_transaction_index(store: ObjectStore, segment: Segment) -> list[AbortedTransaction]:
    name = segment.files.transaction_index
    if name is None:
        return []
    try:
        data = read_whole(store, name, segment.files.sizes.get(name))
    except ObjectNotFoundError:
        return []  # as Kafka: a transaction index that is not there is an empty one
    try:
        return list(parse_transaction_index(data, segment.base_offset))
    except FormatError as error:
        raise error.located(source=store.url(name)) from error


@dataclass(slots=True)
class _Replayed:
    """What the last snapshot and the batches after it say, as far as they can be read."""

    open: dict[int, int] = field(default_factory=dict)
    emitted: list[AbortedTransaction] = field(default_factory=list)
    unread_from: int | None = None


def _replay(store: ObjectStore, parts: Sequence[Part], max_batch_bytes: int) -> _Replayed:
    """The open transactions at the end of the parts: from the last snapshot there is, and the batches after it."""
    first, replay = len(parts), TransactionReplay()
    while first > 0:
        known = _read_snapshot(store, parts[first - 1])
        if known is not None:
            replay = TransactionReplay(known)
            break
        first -= 1
    replayed = _Replayed()
    for part in parts[first:]:
        for header, is_abort in _iter_transactional(store, part, max_batch_bytes, replayed):
            if is_abort is None:
                replay.data(header.producer_id, header.base_offset)
            elif ended := replay.marker(header.producer_id, header.base_offset, is_abort):
                replayed.emitted.append(ended)
    replayed.open = replay.open_transactions
    return replayed


def _read_snapshot(store: ObjectStore, part: Part) -> dict[int, int] | None:
    """The transactions open at the part's end; ``None`` if no snapshot says it, as the broker then looks further.

    That of a segment whose end is not in the log any more tells of another history.
    """
    segment = part.segment
    name = segment.files.producer_snapshot
    if name is None or (segment.last_offset is not None and part.stop <= segment.last_offset):
        return None
    try:
        return parse_producer_snapshot(read_whole(store, name, segment.files.sizes.get(name))).open_transactions()
    except (CorruptIndexError, ObjectNotFoundError):
        return None


def _iter_transactional(
    store: ObjectStore, part: Part, max_batch_bytes: int, tail: _Replayed
) -> Iterator[tuple[RecordBatchHeader, bool | None]]:
    """The transactional batches of a part of a segment; with markers, whether they abort.

    Notes in ``tail`` from which offset on damage hides the rest.
    """
    segment = part.segment
    if not segment.log_size:
        return
    decompressor, scanner = (
        Decompressor(max_batch_bytes),
        SegmentScanner(stop=segment.log_size, max_batch_size=max_batch_bytes),
    )
    next_offset = segment.base_offset
    with closing(store.read_pieces(segment.files.log, ByteRange(0, segment.log_size))) as pieces:
        while True:
            try:
                answer = scanner.next()
            except FormatError:
                tail.unread_from = next_offset if tail.unread_from is None else tail.unread_from
                return
            if isinstance(answer, NeedData):
                scanner.feed(next(pieces, b""))
                continue
            if not isinstance(answer, BatchReady):
                return
            header = answer.header
            if not isinstance(header, RecordBatchHeader):
                continue
            if header.base_offset >= part.stop:
                return
            next_offset = max(next_offset, header.next_offset)
            if header.last_offset < part.start:
                continue
            if not header.is_transactional or header.producer_id < 0:
                continue
            if not header.is_control:
                yield header, None
            elif (is_abort := _marker(answer.data, decompressor)) is not None:
                yield header, is_abort


def _marker(batch: memoryview, decompressor: Decompressor) -> bool | None:
    """Whether a control batch aborts; ``None`` if it ends no transaction, as one that the cleaner emptied."""
    try:
        records = list(iter_records(batch, decompressor))
        key = parse_control_key(records[0].key) if records else None
    except FormatError:
        return None
    return key.is_abort if key is not None and key.is_end_of_transaction else None
