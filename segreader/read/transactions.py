"""What the files at hand say about a partition's transactions: which were aborted, and up to where all are decided.

A transaction index lies with the segment of the abort *marker*, often a later one than the data; the producer
snapshot at the end of the last segment says which transactions are still open there. Source: KIP-98;
``RemoteLogManager.collectAbortedTransactions``, ``ProducerStateManager`` (Kafka 4.0).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

from segreader.errors import CorruptIndexError, FormatError, ObjectNotFoundError
from segreader.format.batch import RecordBatchHeader
from segreader.format.compression import Decompressor
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
    """Of one partition: its aborted transactions, and those still open where its last segment ends."""

    aborted: AbortedTransactions
    open: tuple[tuple[int, int], ...] = ()

    @property
    def first_open(self) -> tuple[int, int] | None:
        """Offset and producer id of the earliest open transaction: where the decided part ends."""
        return min(((offset, producer_id) for producer_id, offset in self.open), default=None)


def read_transaction_state(store: ObjectStore, segments: Sequence[Segment], offsets: OffsetRange) -> TransactionState:
    """Read the transaction indexes that bear on these offsets, and the open transactions at the end.

    Args:
        segments: all segments of one partition, by base offset.
        offsets: what will be read.

    Raises:
        CorruptIndexError: an index or snapshot contradicts itself.
    """
    replay, replayed, emitted = _replay_tail(store, segments)
    aborted: list[AbortedTransaction] = list(emitted)
    for index, segment in enumerate(segments):
        is_before = index + 1 < len(segments) and segments[index + 1].base_offset <= offsets.start
        if is_before or segment.files.transaction_index is None or index in replayed:
            continue
        found = _read_transaction_index(store, segment)
        aborted.extend(found)
    return TransactionState(AbortedTransactions(aborted), tuple(sorted(replay.open_transactions.items())))


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


def _replay_tail(
    store: ObjectStore, segments: Sequence[Segment]
) -> tuple[TransactionReplay, range, list[AbortedTransaction]]:
    """The open transactions at the end: from the last snapshot there is, and the batches after it."""
    first = len(segments)
    while first > 0:
        snapshot = segments[first - 1].files.producer_snapshot
        if snapshot is not None:
            try:
                size = segments[first - 1].files.sizes.get(snapshot)
                entries = parse_producer_snapshot(read_whole(store, snapshot, size))
            except (CorruptIndexError, ObjectNotFoundError):
                pass  # as the broker: fall back to an older snapshot and replay
            else:
                replay = TransactionReplay(entries.open_transactions())
                break
        first -= 1
    else:
        replay = TransactionReplay()
    emitted: list[AbortedTransaction] = []
    for segment in segments[first:]:
        emitted.extend(_replay_segment(store, segment, replay))
    return replay, range(first, len(segments)), emitted


def _replay_segment(store: ObjectStore, segment: Segment, replay: TransactionReplay) -> list[AbortedTransaction]:
    """Feed one segment's batches to the replay; returns the aborts whose markers it holds."""
    emitted: list[AbortedTransaction] = []
    if not segment.log_size:
        return emitted
    decompressor = Decompressor()
    with closing(store.read_pieces(segment.files.log, ByteRange(0, segment.log_size))) as pieces:
        for batch in _whole_batches(pieces, segment.log_size):
            header = batch.header
            if not isinstance(header, RecordBatchHeader) or not header.is_transactional or header.producer_id < 0:
                continue
            if not header.is_control:
                replay.data(header.producer_id, header.base_offset)
            elif (is_abort := _marker(batch.data, decompressor)) is not None:
                ended = replay.marker(header.producer_id, header.base_offset, is_abort)
                emitted += [ended] if ended else []
    return emitted


def _whole_batches(pieces: Iterator[memoryview], stop: int) -> Iterator[BatchReady]:
    """The batches up to the end or the first damage: what cannot be located cannot be read, and reading will say so."""
    scanner = SegmentScanner(stop=stop)
    while True:
        try:
            answer = scanner.next()
        except FormatError:
            return
        if isinstance(answer, NeedData):
            scanner.feed(next(pieces, b""))
        elif isinstance(answer, BatchReady):
            yield answer
        else:
            return


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
