"""What the batches of some segments say about transactions, where no snapshot and no index says it.

A replay ends at damage: a marker may be hidden there, and then no later batch tells what it would have ended. Offsets
are not under the CRC, so they are believed only where they rise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain
from typing import Final, NamedTuple

import crc32c

from segreader.errors import CorruptBatchError, FormatError, ObjectNotFoundError
from segreader.format.batch import CRC_START, HEADER_SIZE, RecordBatchHeader
from segreader.format.compression import Decompressor
from segreader.format.index_files import AbortedTransaction
from segreader.format.records import iter_records, parse_control_key
from segreader.format.scanner import BatchReady, Done, SegmentScanner
from segreader.isolation import TransactionReplay
from segreader.plan.lineage import Part
from segreader.ranges import ByteRange
from segreader.read.segment_tail import require_whole
from segreader.segment import Segment
from segreader.storage.base import ObjectStore

VANISHED: Final = "Retention may have removed it: plan again, or leave such segments out with on_missing='skip'"

_MARKER_START: Final = b"\0\0\0\x08"
"""How a marker's record goes on behind its length as coordinators write it: no attributes, no deltas, a key of 4 bytes.
To decode it like any other takes many times as long, and a segment may hold a hundred thousand."""

_SHORTEST_MARKER: Final = 9
_ONE_BYTE_LENGTH: Final = 64


@dataclass(slots=True)
class Replayed:
    """What was found.

    Args:
        open: first offset of each transaction that is open where the replay ends, by producer id.
        aborted: those whose ABORT was met.
        damage: what ended the replay early.
        unread_from: with damage: nothing from this offset on is decided, whatever follows the damage.
    """

    open: dict[int, int] = field(default_factory=dict)
    aborted: list[AbortedTransaction] = field(default_factory=list)
    damage: FormatError | None = None
    unread_from: int | None = None


def replay_parts(
    store: ObjectStore,
    parts: Sequence[Part],
    known: Mapping[int, int],
    *,
    below: int | None,
    max_batch_bytes: int,
    check_crcs: bool,
) -> Replayed:
    """Read the batches of parts that follow each other.

    Args:
        known: first offset of each transaction that is open where they begin, by producer id.
        below: stop once every transaction that began below this offset has ended.
        max_batch_bytes: largest batch to hold.
        check_crcs: whether the batches that bear on transactions must pass their CRC.

    Raises:
        ObjectNotFoundError: a segment has vanished; ``offset`` is where its part begins.
    """
    found, replay = Replayed(), TransactionReplay(known)
    decompressor = Decompressor(max_batch_bytes)
    floor = 0
    waiting: set[int] | None = None

    def is_decided(offset: int) -> bool:
        nonlocal waiting
        if below is None or offset < below:
            return False
        if waiting is None:
            waiting = {one for one, first in replay.open_transactions.items() if first < below}
        return not waiting

    for part in parts:
        floor = max(floor, part.start)
        if is_decided(part.start):
            break
        try:
            scanned = _scan(store, part.segment, decompressor, max_batch_bytes, check_crcs)
            for batch in _in_order(scanned, part):
                if is_decided(batch.base_offset):
                    break
                floor = max(floor, min(batch.last_offset + 1, part.stop))
                if batch.producer_id is None:
                    continue
                if not batch.is_control:
                    replay.data(batch.producer_id, batch.base_offset)
                elif batch.is_abort is not None:
                    if ended := replay.marker(batch.producer_id, batch.base_offset, batch.is_abort):
                        found.aborted.append(ended)
                    if waiting is not None:
                        waiting.discard(batch.producer_id)
        except ObjectNotFoundError as error:
            error.hint = VANISHED
            raise error.located(source=store.url(part.segment.files.log), offset=part.start) from None
        except FormatError as error:
            found.unread_from = min([floor, *replay.open_transactions.values()])
            error.message += f"; it hides what was committed from offset {found.unread_from} on"
            found.damage = error.located(source=store.url(part.segment.files.log))
            return found
    found.open = replay.open_transactions
    return found


class _Batch(NamedTuple):
    """What counts of a batch.

    Args:
        position: its first byte.
        bears: it bears on transactions, or would if a bit of its header were another one.
        producer_id: of a transactional batch with records; the cleaner empties only what is decided.
        is_abort: of a control batch; ``None`` if it ends no transaction.
    """

    base_offset: int
    last_offset: int
    position: int
    bears: bool = False
    producer_id: int | None = None
    is_control: bool = False
    is_abort: bool | None = None


def _in_order(scanned: Iterator[_Batch | FormatError], part: Part) -> Iterator[_Batch]:
    """The batches of the part, each once the bytes after it show that its offsets can be right.

    Raises:
        FormatError: from here on nothing is sure.
    """
    held: _Batch | None = None
    floor = part.segment.base_offset
    for following in chain(scanned, [None]):
        if held is not None:
            is_below = held.base_offset < floor
            if isinstance(following, _Batch) and following.base_offset <= held.last_offset:
                is_below, held = True, following if following.bears else held
            if is_below and held.bears:
                raise _out_of_order(held, f"offsets that rise, from {floor} on")
            if not is_below and held.base_offset >= part.stop:
                if held.bears and held.base_offset > floor:
                    raise _out_of_order(held, f"{floor} to {part.stop - 1}: from there on another segment is read")
                return
            if not is_below:
                floor = held.last_offset + 1
                if held.last_offset >= part.start:
                    yield held
        if isinstance(following, FormatError):
            raise following
        held = following


def _out_of_order(batch: _Batch, expected: str) -> CorruptBatchError:
    return CorruptBatchError(
        "a batch's offsets do not fit between its neighbours'",
        position=batch.position,
        base_offset=batch.base_offset,
        found=f"offsets {batch.base_offset} to {batch.last_offset}",
        expected=expected,
        hint="A base offset is not under the CRC: read another copy of this segment",
    )


def _scan(
    store: ObjectStore, segment: Segment, decompressor: Decompressor, max_batch_bytes: int, check_crcs: bool
) -> Iterator[_Batch | FormatError]:
    """The batches of a segment as they lie; at damage the error, and then no more."""
    if not segment.log_size:
        return
    scanner = SegmentScanner(stop=segment.log_size, max_batch_size=max_batch_bytes)
    with closing(store.read_pieces(segment.files.log, ByteRange(0, segment.log_size))) as pieces:
        while True:
            try:
                answer = scanner.next()
                if isinstance(answer, BatchReady):
                    yield _judge(answer, decompressor, check_crcs)
                    continue
                if isinstance(answer, Done):
                    require_whole(answer, segment)
                    return
            except FormatError as error:
                yield error
                return
            scanner.feed(next(pieces, b""))


def _judge(batch: BatchReady, decompressor: Decompressor, check_crcs: bool) -> _Batch:
    """Raises FormatError if what the batch says of transactions cannot be believed or read."""
    header, position = batch.header, batch.position
    if not isinstance(header, RecordBatchHeader):
        return _Batch(header.offset, header.offset, position)
    bears = header.is_transactional or header.is_control or header.base_sequence < 0 <= header.producer_id
    if bears and check_crcs and (computed := crc32c.crc32c(batch.data[CRC_START:])) != header.crc:
        raise CorruptBatchError(
            "a batch fails its CRC-32C",
            found=f"{computed:08x} computed over bytes {CRC_START} to its end",
            expected=f"{header.crc:08x} as its header says",
            position=position,
            base_offset=header.base_offset,
            hint="Read another copy of this segment",
        )
    is_of_transaction = header.is_transactional and header.producer_id >= 0 and header.record_count != 0
    producer_id = header.producer_id if is_of_transaction else None
    is_abort = None
    if header.is_control and producer_id is not None:
        try:
            is_abort = is_abort_marker(header, batch.data, decompressor, check_crcs)
        except FormatError as error:
            raise error.located(position_shift=position, position=position, base_offset=header.base_offset) from None
    return _Batch(header.base_offset, header.last_offset, position, bears, producer_id, header.is_control, is_abort)


def is_abort_marker(
    header: RecordBatchHeader, batch: memoryview, decompressor: Decompressor, check_crcs: bool
) -> bool | None:
    """Whether a control batch aborts; ``None`` if it ends no transaction, as one that the cleaner emptied."""
    body = batch[HEADER_SIZE:]
    key: bytes | memoryview | None
    if (
        header.codec == 0
        and header.record_count == 1
        and _SHORTEST_MARKER < len(body) <= _ONE_BYTE_LENGTH
        and body[0] == (len(body) - 1) << 1
        and bytes(body[1:5]) == _MARKER_START
    ):
        key = body[5:9]
    else:
        records = list(iter_records(batch, decompressor, check_crcs=check_crcs))
        if not records:
            return None
        key = records[0].key
    parsed = parse_control_key(key)
    return parsed.is_abort if parsed.is_end_of_transaction else None
