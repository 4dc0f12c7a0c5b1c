"""What the files at hand say about a partition's transactions: which were aborted, and up to where all are decided.

A transaction index lies with the segment of the abort *marker*, often a later one than the data; the producer
snapshot at the end of the last segment says which transactions are still open there. Source: KIP-98;
``RemoteLogManager.collectAbortedTransactions``, ``ProducerStateManager`` (Kafka 4.0).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from segreader.errors import CorruptIndexError, FormatError, ObjectNotFoundError
from segreader.format.batch import RecordBatchHeader
from segreader.format.compression import DEFAULT_LIMIT, Decompressor
from segreader.format.control import parse_control_key
from segreader.format.producer_snapshot import parse_producer_snapshot
from segreader.format.records import iter_records
from segreader.format.scanner import BatchReady, NeedData, SegmentScanner
from segreader.format.transaction_index import AbortedTransaction, parse_transaction_index
from segreader.isolation import AbortedTransactions, TransactionReplay
from segreader.ranges import ByteRange, OffsetRange
from segreader.segment import Segment
from segreader.storage.base import ObjectStore


@dataclass(frozen=True, slots=True)
class TransactionState:
    """Of one partition: its aborted transactions, and those still open where its last segment ends.

    ``unread_from`` is an offset behind which damage kept batches from being replayed: there nothing is known.
    """

    aborted: AbortedTransactions
    open: tuple[tuple[int, int], ...] = ()
    unread_from: int | None = None

    @property
    def first_open(self) -> tuple[int, int] | None:
        """Offset and producer id of the earliest open transaction: where the decided part ends."""
        return min(((offset, producer_id) for producer_id, offset in self.open), default=None)


def read_transaction_state(
    store: ObjectStore, segments: Sequence[Segment], offsets: OffsetRange, *, max_batch_bytes: int = DEFAULT_LIMIT
) -> TransactionState:
    """Read the transaction indexes that bear on these offsets, and the open transactions at the end.

    Args:
        segments: all segments of one partition, by base offset.
        offsets: what will be read.
        max_batch_bytes: largest batch to hold where batches are replayed.

    Raises:
        CorruptIndexError: an index or snapshot contradicts itself.
    """
    tail = _replay_tail(store, segments, max_batch_bytes)
    aborted: list[AbortedTransaction] = list(tail.emitted)
    for index, segment in enumerate(segments):
        is_before = index + 1 < len(segments) and segments[index + 1].base_offset <= offsets.start
        if not is_before and segment.files.transaction_index is not None:
            aborted.extend(_read_transaction_index(store, segment))
    return TransactionState(AbortedTransactions(aborted), tuple(sorted(tail.open.items())), tail.unread_from)


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
class _Tail:
    """What the last snapshot and the batches after it say, as far as they can be read."""

    open: dict[int, int] = field(default_factory=dict)
    emitted: list[AbortedTransaction] = field(default_factory=list)
    unread_from: int | None = None


def _replay_tail(store: ObjectStore, segments: Sequence[Segment], max_batch_bytes: int) -> _Tail:
    """The open transactions at the end: from the last snapshot there is, and the batches after it."""
    first, replay = len(segments), TransactionReplay()
    while first > 0:
        known = _read_snapshot(store, segments[first - 1])
        if known is not None:
            replay = TransactionReplay(known)
            break
        first -= 1
    tail = _Tail()
    for segment in segments[first:]:
        for header, is_abort in _iter_transactional(store, segment, max_batch_bytes, tail):
            if is_abort is None:
                replay.data(header.producer_id, header.base_offset)
            elif ended := replay.marker(header.producer_id, header.base_offset, is_abort):
                tail.emitted.append(ended)
    tail.open = replay.open_transactions
    return tail


def _read_snapshot(store: ObjectStore, segment: Segment) -> dict[int, int] | None:
    """The transactions open at the segment's end; ``None`` if no snapshot says it, as the broker then looks further."""
    name = segment.files.producer_snapshot
    if name is None:
        return None
    try:
        return parse_producer_snapshot(read_whole(store, name, segment.files.sizes.get(name))).open_transactions()
    except (CorruptIndexError, ObjectNotFoundError):
        return None


def _iter_transactional(
    store: ObjectStore, segment: Segment, max_batch_bytes: int, tail: _Tail
) -> Iterator[tuple[RecordBatchHeader, bool | None]]:
    """The transactional batches of a segment; with markers, whether they abort.

    Notes in ``tail`` from which offset on damage hides the rest.
    """
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
            next_offset = max(next_offset, header.next_offset)
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


def read_whole(store: ObjectStore, name: str, size: int | None = None) -> bytes:
    """All bytes of a small object: an index, a snapshot, a checkpoint. ``size`` saves asking for it."""
    if size is None:
        size = store.size(name)
    return store.read_ranges(name, [ByteRange(0, size)])[0] if size else b""
