"""What the markers in a log say of its transactions.

A replay finds the transactions of segments where no snapshot and no index tells them. It ends at damage: a marker may
be hidden there, and then no later batch tells what it would have ended. Offsets are not under the CRC, so they are
believed only where they rise.

A reader holds markers against what the transaction indexes said of the data before them. An index has no checksum, and
one that is lost counts as empty: only the markers show that it is wrong. Where a reader stops inside a transaction, the
batches behind are looked at for its marker, up to ``LOOK_AHEAD`` bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import field
from itertools import chain
from typing import Final, NamedTuple

from segreader.errors import (
    CorruptBatchError,
    CorruptIndexError,
    FormatError,
    ObjectChangedError,
    ObjectNotFoundError,
)
from segreader.format.batch import CONTROL_FLAG, CRC_START, HEADER_SIZE, RecordBatchHeader, crc32c, parse_batch_header
from segreader.format.columns import NO_STOP, TABLE_WIDTH, Table
from segreader.format.compression import Decompressor
from segreader.format.index_files import AbortedTransaction
from segreader.format.scanner import BatchReady, BatchRun, Done, NeedData, SegmentScanner, Tail
from segreader.isolation import TransactionReplay
from segreader.plan.lineage import Part
from segreader.plan.split import END_OF_LOG, LOOK_AHEAD, Split
from segreader.ranges import ByteRange
from segreader.read.batch_order import require_whole
from segreader.segment import Segment
from segreader.storage.base import ObjectStore
from segreader.values import dataclass

VANISHED: Final = "Retention may have removed it: plan again, or leave such segments out with on_missing='skip'"

_MARKER_START: Final = b"\0\0\0\x08"
"""How a marker's record goes on behind its length as coordinators write it: no attributes, no deltas, a key of 4 bytes.
To decode it like any other takes many times as long, and a segment may hold a hundred thousand."""

_SHORTEST_MARKER: Final = 9
_ONE_BYTE_LENGTH: Final = 64

_USUAL_SIZE: Final = 78  # of a marker as coordinators write it; another form is looked at more closely
_TYPE_POSITION: Final = HEADER_SIZE + 8
_ABORT, _COMMIT = 0, 1
_HINT: Final = (
    "A .txnindex of this or a later segment is damaged or lost: get it again, or look with segreader verify --deep"
)
_FIRST_LOOK: Final = 64 << 10
"""Bytes to ask for first: most transactions end within them."""


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
    start: int = 0,
) -> Replayed:
    """Read the batches of parts that follow each other.

    Args:
        known: first offset of each transaction that is open where they begin, by producer id.
        below: stop once every transaction that began below this offset has ended.
        max_batch_bytes: largest batch to hold.
        check_crcs: whether the batches that bear on transactions must pass their CRC.
        start: the first byte of the first log that is read; a batch begins there.

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

    for at, part in enumerate(parts):
        floor = max(floor, part.start)
        if is_decided(part.start):
            break
        try:
            scanned = _scan(store, part.segment, 0 if at else start, decompressor, max_batch_bytes, check_crcs)
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
    store: ObjectStore, segment: Segment, start: int, decompressor: Decompressor, max_batch_bytes: int, check_crcs: bool
) -> Iterator[_Batch | FormatError]:
    """The batches of a segment from byte ``start`` on; at damage the error, and then no more."""
    if not segment.log_size:
        return
    scanner = SegmentScanner(start=start, stop=segment.log_size, max_batch_size=max_batch_bytes)
    with closing(store.read_pieces(segment.files.log, ByteRange(start, segment.log_size))) as pieces:
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
    if bears and check_crcs and (computed := crc32c(batch.data[CRC_START:])) != header.crc:
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
    from segreader.format.records import iter_records, parse_control_key

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


@dataclass(frozen=True, slots=True)
class Transactional:
    """The rows of a run, rising, that bear on transactions: data, those of it called aborted, and control batches."""

    data: Sequence[int]
    aborted: Sequence[int]
    control: Sequence[int]


class Contradiction(NamedTuple):
    """What the indexes say wrongly.

    Args:
        row: batches of the run that stand before the first that may be wrong; -1 if that is of an earlier run.
        offset: the first offset that may be shown or hidden wrongly.
        error: to be raised.
        is_hidden: the records may be hidden wrongly, and none that is shown is wrong.
    """

    row: int
    offset: int
    error: CorruptIndexError
    is_hidden: bool = False


class MarkerCheck:
    """Remembers, along splits that follow each other, which open transactions have data there and what the indexes
    called that.

    Args:
        notes_first: for ``join``, remember of each producer what was met first, and whether a transaction ended.
    """

    def __init__(self, decompressor: Decompressor, *, notes_first: bool = False) -> None:
        self._is_complete = True
        self._first: dict[int, int | None] | None = {} if notes_first else None
        self._ended: set[int] = set()
        self._decompressor = decompressor
        # of transactions open where the last run ended: first offset of data of theirs, by producer id
        self._hidden: dict[int, int] = {}
        self._shown: dict[int, int] = {}

    @property
    def is_undecided(self) -> bool:
        """Whether the marker of some transaction has not been seen yet."""
        return bool(self._hidden or self._shown)

    def pass_over(self) -> None:
        """Batches were not seen, and a marker may be among them: nothing is concluded across."""
        self._is_complete = False
        self._hidden.clear()
        self._shown.clear()

    def agrees(self, later: MarkerCheck) -> bool:
        """Whether certainly nothing that was met first behind contradicts what is open here."""
        first = later._first or {}
        return all(first.get(one, _ABORT) == _ABORT for one in self._hidden) and all(
            first.get(one, _COMMIT) == _COMMIT for one in self._shown
        )

    def join(self, later: MarkerCheck) -> None:
        """Take what another one, that agrees, followed of the splits behind."""
        for mine, others in ((self._hidden, later._hidden), (self._shown, later._shown)):
            for producer_id in mine.keys() & later._ended:
                del mine[producer_id]
            for producer_id, offset in others.items():
                mine.setdefault(producer_id, offset)

    def _note_first(self, split: Split, run: BatchRun, rows: Transactional, first: dict[int, int | None]) -> None:
        """Note of producers that are met for the first time how their transaction ends, as far as that is plain."""
        columns = _Columns(run)
        producers, sizes, positions = columns.of(Table.PRODUCER_ID), columns.of(Table.SIZE), columns.of(Table.POSITION)
        data: Sequence[int] = _wanted(split.offsets.start, split.offsets.stop, columns, rows.data)
        control = _wanted(split.offsets.start, split.stop_of_part, columns, rows.control)
        if columns.has_empty:
            counts = columns.of(Table.RECORD_COUNT)
            data = [row for row in data if counts[row]]
        ends = {producers[row]: row for row in reversed(control)}
        begins = {producers[row]: row for row in reversed(data)}
        new = (ends.keys() | begins.keys()) - first.keys()
        aborted = set(rows.aborted) if new else ()
        for producer_id in new:
            row = begins.get(producer_id, run.rows)
            if row < ends.get(producer_id, run.rows):
                first[producer_id] = _ABORT if row in aborted else _COMMIT
            else:
                row = ends[producer_id]
                at = positions[row] - run.data_position + _TYPE_POSITION
                first[producer_id] = run.data[at] if sizes[row] == _USUAL_SIZE else None
        self._ended |= ends.keys()

    def find(self, split: Split, run: BatchRun, rows: Transactional) -> Contradiction | None:
        """The first marker that says otherwise than the indexes.

        Most runs are sound by their producers and types of markers alone; only others are checked in order.
        """
        if self._first is not None and (rows.data or rows.control):
            self._note_first(split, run, rows, self._first)
        if not (rows.data or self._hidden or self._shown):
            return None
        columns = _Columns(run)
        producers, bases = columns.of(Table.PRODUCER_ID), columns.of(Table.BASE_OFFSET)
        data = _wanted(split.offsets.start, split.offsets.stop, columns, rows.data)
        of_hidden = _wanted(split.offsets.start, split.offsets.stop, columns, rows.aborted)
        control = _wanted(split.offsets.start, split.stop_of_part, columns, rows.control)
        if columns.has_empty:
            counts = columns.of(Table.RECORD_COUNT)
            data, of_hidden = [row for row in data if counts[row]], [row for row in of_hidden if counts[row]]
        aborted = set(of_hidden)
        of_shown = [row for row in data if row not in aborted] if aborted else data
        hidden = {producers[row]: row for row in of_hidden}
        shown = {producers[row]: row for row in of_shown}
        hidden.pop(-1, None)
        shown.pop(-1, None)
        of_both = (hidden.keys() | self._hidden.keys()) & (shown.keys() | self._shown.keys())
        if (of_both or self._may_contradict(columns, control, hidden, shown)) and (
            found := self._walk(split, columns, data, control, aborted)
        ):
            return found
        ends = {producers[row]: row for row in control}
        for open_before, of_data, last in ((self._hidden, of_hidden, hidden), (self._shown, of_shown, shown)):
            for producer_id in ends.keys() & open_before.keys():
                del open_before[producer_id]
            begun = {one for one, row in last.items() if row > ends.get(one, -1)} - open_before.keys()
            for row in of_data if begun else ():
                if (one := producers[row]) in begun and row > ends.get(one, -1):
                    open_before.setdefault(one, bases[row])
        return None

    def look_ahead(self, store: ObjectStore, split: Split, position: int, max_batch_bytes: int) -> Contradiction | None:
        """What the markers behind a split say otherwise than the indexes.

        Args:
            position: the first byte of the log that was not seen.

        Raises:
            StorageError: bytes cannot be had; an object that is gone says nothing.
        """
        waiting = {one: (True, offset) for one, offset in self._hidden.items()}
        waiting |= {one: (False, offset) for one, offset in self._shown.items()}
        places: list[tuple[str, int, int, int, int | None]]
        places = [(split.log, position, split.log_size, 0, split.stop_of_part)]
        behind = split.stop_of_part or 0
        for name, length, end in split.following:
            if (name, length, end) != END_OF_LOG:
                places.append((name, 0, length, behind, end))
                behind = end
        budget = LOOK_AHEAD
        try:
            for log, start, size, floor, stop in places:
                scanner = SegmentScanner(start=start, stop=size, max_batch_size=max_batch_bytes)
                pieces = _pieces(store, log, start, min(size, start + budget))
                while not isinstance(answer := scanner.next_run(), Done):
                    if isinstance(answer, NeedData):
                        if (piece := next(pieces, None)) is None:
                            return None
                        budget -= len(piece)
                        scanner.feed(piece)
                    elif found := self._judge(store, log, answer, floor, stop, waiting):
                        return found
                    if not waiting:
                        return None
                if answer.tail is Tail.CUT and not split.is_active:
                    return None
        except (FormatError, ObjectNotFoundError, ObjectChangedError):
            return None
        if split.following[-1:] != (END_OF_LOG,) or not self._is_complete:
            return None
        producer_id, (is_hidden, offset) = min(waiting.items(), key=lambda item: item[1][1])
        return Contradiction(
            -1, offset, _without_marker(store.url(split.log), producer_id, offset, is_hidden), is_hidden
        )

    def _judge(
        self,
        store: ObjectStore,
        log: str,
        run: BatchRun,
        floor: int,
        stop: int | None,
        waiting: dict[int, tuple[bool, int]],
    ) -> Contradiction | None:
        """Hold the markers of a run against the transactions that wait for theirs; those that have it wait no more."""
        columns = _Columns(run)
        producers, magics = columns.of(Table.PRODUCER_ID), columns.of(Table.MAGIC)
        control = [
            row
            for row, flags in enumerate(columns.of(Table.ATTRIBUTES))
            if flags & CONTROL_FLAG and magics[row] >= 2 and producers[row] in waiting
        ]
        for row in _wanted(floor, stop, columns, control):
            if (verdict := waiting.pop(producers[row], None)) is not None:
                is_hidden, offset = verdict
                if self._says_otherwise(columns, row, is_hidden):
                    error = _contradiction(columns, row, not is_hidden, offset)
                    first = min([offset, *(other for _, other in waiting.values())])
                    return Contradiction(-1, first, error.located(source=store.url(log)), is_hidden)
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
        self, split: Split, columns: _Columns, data: Sequence[int], control: Sequence[int], aborted: set[int]
    ) -> Contradiction | None:
        producers, bases = columns.of(Table.PRODUCER_ID), columns.of(Table.BASE_OFFSET)
        ends = set(control)
        # of each open transaction: whether it is hidden, its first row (-1: of an earlier run), its first offset
        opened = {one: (True, -1, base) for one, base in self._hidden.items()}
        opened |= {one: (False, -1, base) for one, base in self._shown.items()}
        for row in sorted((*data, *control)):
            producer_id, error = producers[row], None
            opening = opened.get(producer_id)
            if row not in ends:
                if opening is None:
                    opened[producer_id] = (row in aborted, row, bases[row])
                elif opening[0] is not (row in aborted) and producer_id >= 0:
                    error = _in_parts(columns, row, max(opening[2], split.offsets.start))
            elif opening is not None:
                if self._says_otherwise(columns, row, opening[0]):
                    error = _contradiction(columns, row, not opening[0], max(opening[2], split.offsets.start))
                else:
                    del opened[producer_id]
            if error is not None:  # what the indexes call the other ones is not to be believed, too
                rows, offsets = [row for _, row, _ in opened.values()], [base for _, _, base in opened.values()]
                return Contradiction(min(rows), min(offsets), error)
        return None

    def _says_otherwise(self, columns: _Columns, row: int, is_hidden: bool) -> bool:
        """Whether a sound marker is a COMMIT of hidden data, or an ABORT of shown data."""
        run = columns.run
        start, size = columns.of(Table.POSITION)[row] - run.data_position, columns.of(Table.SIZE)[row]
        if size == _USUAL_SIZE and run.data[start + _TYPE_POSITION] == (_ABORT if is_hidden else _COMMIT):
            return False
        batch = run.data[start : start + size]
        try:
            if crc32c(batch[CRC_START:]) != columns.of(Table.CRC)[row]:
                return False
            return is_abort_marker(parse_batch_header(batch), batch, self._decompressor, True) is (not is_hidden)
        except FormatError:
            return False  # damaged: decoding says so


def _pieces(store: ObjectStore, log: str, start: int, stop: int) -> Iterator[bytes]:
    """A few bytes, and then the rest."""
    middle = min(start + _FIRST_LOOK, stop)
    for first, after in ((start, middle), (middle, stop)):
        if first < after:
            yield store.read_ranges(log, [ByteRange(first, after)])[0]


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


def _wanted(start: int, stop: int | None, columns: _Columns, rows: Sequence[int]) -> Sequence[int]:
    """Those with offsets ``start <= offset < stop``: what the indexes say of others was not asked for."""
    bases, lasts = columns.of(Table.BASE_OFFSET), columns.of(Table.LAST_OFFSET)
    stop = NO_STOP if stop is None else stop
    if not rows or (lasts[rows[0]] >= start and bases[rows[-1]] < stop):
        return rows
    return [row for row in rows if lasts[row] >= start and bases[row] < stop]


def _contradiction(columns: _Columns, row: int, is_abort: bool, data: int) -> CorruptIndexError:
    said, called = ("ABORT", "committed") if is_abort else ("COMMIT", "aborted")
    producer_id = columns.of(Table.PRODUCER_ID)[row]
    return CorruptIndexError(
        "the transaction indexes contradict a marker",
        position=columns.of(Table.POSITION)[row],
        offset=columns.of(Table.BASE_OFFSET)[row],
        found=f"{said} of producer {producer_id}, whose records at offset {data} the indexes call {called}",
        expected="the same of both",
        hint=_HINT,
    )


def _in_parts(columns: _Columns, row: int, data: int) -> CorruptIndexError:
    producer_id, offset = columns.of(Table.PRODUCER_ID)[row], columns.of(Table.BASE_OFFSET)[row]
    return CorruptIndexError(
        "the transaction indexes call a part of a transaction aborted",
        position=columns.of(Table.POSITION)[row],
        offset=offset,
        found=f"records of producer {producer_id} at offsets {data} and {offset}, with no marker between them",
        expected="all of them aborted, or none",
        hint=_HINT,
    )


def _without_marker(source: str, producer_id: int, offset: int, is_hidden: bool) -> CorruptIndexError:
    called = "aborted" if is_hidden else "committed"
    return CorruptIndexError(
        "the log ends without a marker of a transaction that the files beside it call decided",
        source=source,
        offset=offset,
        found=f"records of producer {producer_id} from offset {offset} on, called {called}, and no marker behind them",
        expected="an ABORT or COMMIT, or a transaction that the last .snapshot calls open",
        hint="The .snapshot of the last segment is stale, or a .txnindex is damaged: get them again, or look with "
        "segreader verify --deep",
    )
