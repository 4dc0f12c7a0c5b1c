"""One split, from its bytes to Arrow record batches: the only loop in which storage and format meet."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import field
from typing import Final, Protocol

import pyarrow as pa

from segreader.errors import (
    CorruptBatchError,
    CorruptIndexError,
    FormatError,
    ObjectNotFoundError,
    SegreaderError,
    StorageError,
    shown_count,
)
from segreader.evidence.findings import MOST_NAMED
from segreader.format.batch import CONTROL_FLAG, TRANSACTIONAL_FLAG
from segreader.format.columns import TABLE_WIDTH, BufferPool, Decision, RunSummary, State, Table, records_within
from segreader.format.index_files import parse_offset_index
from segreader.format.scanner import BatchRun, Done, NeedData, SegmentScanner, Tail
from segreader.isolation import AbortedTransactionFilter, AbortedTransactions, IsolationLevel
from segreader.plan.request import Policy, ReadOptions
from segreader.plan.split import Assumed, Split
from segreader.ranges import ByteRange
from segreader.read.batch_order import (
    Deliverable,
    Jumps,
    begins_late,
    beside_timed,
    beyond,
    bytes_behind,
    ends_early,
    goes_back,
    is_sound,
    most_offset,
    of_other_epochs,
    out_of_order,
    range_ends_early,
    truncated,
)
from segreader.read.batch_positions import BatchPositions
from segreader.read.decoders import Decoder, RowDecoder, rows_below
from segreader.read.markers import MarkerCheck, Transactional
from segreader.read.metrics import Hole, MissingOffsets, ScanMetrics
from segreader.segment import TopicIdPartition
from segreader.storage.base import Fetched, ObjectStore, fetching, range_size_of, read_listed, read_whole
from segreader.values import dataclass

_MARKED = CONTROL_FLAG | TRANSACTIONAL_FLAG
_NOT_TRANSACTIONAL: Final = Transactional((), (), ())
_DECISION, _SKIP = int(Table.DECISION), int(Decision.SKIP)


class AssumptionError(Exception):
    """A log is not what its plan took it to be. It never leaves a scan, which plans anew.

    Args:
        split: of the log.
        position, base_offset: of the first batch that belongs to a transaction, all records before which were returned;
            ``None`` where something else is not as it was taken to be.
    """

    def __init__(self, split: Split, position: int | None = None, base_offset: int | None = None) -> None:
        super().__init__(split.log, position, base_offset)
        self.split, self.position, self.base_offset = split, position, base_offset


def read_split(
    split: Split,
    store: ObjectStore,
    options: ReadOptions,
    *,
    metrics: ScanMetrics | None = None,
    pool: BufferPool | None = None,
) -> Iterator[pa.RecordBatch]:
    """The records of one split as record batches, in offset order.

    Args:
        pool: where columns are written, by default one of this read's own.

    Raises:
        FormatError: the data is damaged and ``options.on_corrupt`` is ``fail``; after the records before it.
        StorageError: the bytes cannot be had.
    """
    return SplitReader(store, options, metrics=metrics, pool=pool).read(split)


class Aborted(Protocol):
    """Finds the aborted data of a split, run by run in order."""

    def rows(self, run: BatchRun, rows: int, data: Sequence[int]) -> Sequence[int]:
        """The rows among ``data``, batches of transactions, that were aborted, and that are below ``rows``."""


class Committed:
    """By transactions of which first and last offset are known, as transaction indexes list them."""

    def __init__(self, aborted: AbortedTransactions) -> None:
        self._covered = aborted.in_order()

    def rows(self, run: BatchRun, rows: int, data: Sequence[int]) -> Sequence[int]:
        """As ``Aborted.rows``."""
        table, stop = run.table, rows * TABLE_WIDTH
        producer_ids = table[Table.PRODUCER_ID : stop : TABLE_WIDTH]
        return self._covered(data, producer_ids, table[Table.BASE_OFFSET : stop : TABLE_WIDTH])


@dataclass(slots=True)
class _Facts:
    """Of one batch, what ``AbortedTransactionFilter`` asks for."""

    producer_id: int
    last_offset: int
    is_transactional: bool
    is_control: bool


class OpenEnded:
    """By transactions without their ends, as a Fetch answer or a location lists them: an ABORT marker ends each.

    Every control batch ends what its producer had open: a producer is in the filter from the first batch of its aborted
    transaction on, so the next marker is the ABORT.
    """

    def __init__(self, aborted: Iterable[tuple[int, int]]) -> None:
        self._filter = AbortedTransactionFilter(aborted)

    def rows(self, run: BatchRun, rows: int, data: Sequence[int]) -> Sequence[int]:
        """As ``Aborted.rows``."""
        table, found = run.table, []
        for row in range(rows):
            at = row * TABLE_WIDTH
            flags = table[at + Table.ATTRIBUTES]
            if table[at + Table.MAGIC] < 2 or table[at + Table.DECISION] or not flags & _MARKED:
                continue
            is_control = bool(flags & CONTROL_FLAG)
            facts = _Facts(
                table[at + Table.PRODUCER_ID],
                table[at + Table.LAST_OFFSET],
                bool(flags & TRANSACTIONAL_FLAG),
                is_control,
            )
            if not self._filter.admits(facts, ends_in_abort=is_control) and not is_control:
                found.append(row)
        return found


@dataclass(slots=True, eq=False)
class ReadApart:
    """What another reader saw of a split that it read by itself: for who reads the splits before and after it.

    Args:
        metrics: of this split.
        first: base and last offset of the first batch.
        position: the first byte that was not read.
        last: the rows behind the last full record batch.
        is_contradicted: a marker contradicts the transaction indexes.
        error: what ended the read.
    """

    metrics: ScanMetrics
    first: tuple[int, int] | None = None
    last_offset: int = -1
    next_offset: int = 0
    position: int = 0
    jumps: Jumps = field(default_factory=Jumps)
    markers: MarkerCheck | None = None
    last: pa.RecordBatch | None = None
    is_contradicted: bool = False
    error: Exception | None = None

    @property
    def is_sound(self) -> bool:
        """Whether nothing was met, up to now, that the splits before may explain otherwise."""
        metrics = self.metrics
        is_damaged = isinstance(self.error, FormatError | ObjectNotFoundError)
        return not (is_damaged or self.is_contradicted or metrics.holes or metrics.missing or metrics.doubts)


class SplitReader:
    """Reads splits one after another, keeping its buffers, codec contexts and connections between them.

    Use one from one thread. If a ``batch_positions`` is set, it records where the batches are.

    Args:
        pool: where columns are written, by default one of its own.
        decoder: made of the reader's ``RowDecoder``, it decodes in its place: ``HeaderDecoder``, ``CountDecoder``.
        assumed: raise ``AssumptionError`` where a log shows something else.
    """

    def __init__(
        self,
        store: ObjectStore,
        options: ReadOptions,
        *,
        metrics: ScanMetrics | None = None,
        pool: BufferPool | None = None,
        decoder: Callable[[RowDecoder], Decoder] | None = None,
        assumed: Assumed | None = None,
    ) -> None:
        self._store = store
        self._options = options
        self._assumed = assumed or Assumed()
        self._rows = RowDecoder(options, metrics, pool)
        self._decoder: Decoder = self._rows if decoder is None else decoder(self._rows)
        self.metrics = self._rows.metrics
        self.batch_positions: BatchPositions | None = None
        self._last_offset = -1  # of the batch before, in this log
        self._is_doubted = False  # the next batch contradicts one that was left out
        self._log: str | None = None
        self._jumps = Jumps()
        self._noted_jumps: dict[TopicIdPartition, list[str] | None] = {}
        self._markers: MarkerCheck | None = None
        self._next_split: Split | None = None  # the one that goes on where the last one ended
        self._aborted: Aborted | None = None
        self._most_fetched: Fetched = None
        self._range_size, self._streamed = range_size_of(store), 0
        self._apart: ReadApart | None = None
        self._entered: ReadApart | None = None
        self._held: list[pa.RecordBatch] = []  # undecided rows of the splits before

    def limit_fetched(self, most: Fetched) -> None:
        """Hold no more bytes of ranges than this from the next split on, if the store is on the network."""
        self._most_fetched = most
        self._range_size = range_size_of(self._store, most)

    def let_go(self) -> None:
        """Leave the buffers of the next record batch to others of the pool until the next split is read."""
        self._rows.let_go()

    @property
    def allocated_bytes(self) -> int:
        """In the buffers of the record batch that was decoded last, filled or not."""
        return self._rows.allocated_bytes

    @property
    def next_offset(self) -> int:
        """The position of a consumer after the last delivered record."""
        return self._rows.next_offset

    @property
    def undelivered(self) -> int:
        """The first offset that was not returned yet; valid whenever a record batch has just been taken."""
        return self._rows.undelivered

    def read(
        self,
        split: Split,
        next_offset: int | None = None,
        *,
        then: Split | None = None,
        aborted: Iterable[tuple[int, int]] = (),
    ) -> Iterator[pa.RecordBatch]:
        """The records of ``split``; see ``read_split``.

        Args:
            next_offset: a consumer's position before this split, if it is known: records below it were delivered.
            then: the split that is read next, if it goes on where this one ends: markers of transactions are looked
                for in it, and not in the bytes behind this one. What is decoded and undecided may come with its
                records.
            aborted: in place of the split's own: producer id and first offset of each aborted transaction that reaches
                into the split, in any order. All of them must still be open where it begins, or begin in it.
        """
        self._enter(split)
        self._next_split = None
        if self._apart is not None:
            self._apart.markers, self._apart.jumps = self._markers, self._jumps
        self._rows.begin(split.offsets, next_offset)
        self.metrics.splits += 1
        self._rows.clock.enter()
        is_read_committed = split.isolation_level is IsolationLevel.READ_COMMITTED
        self._aborted = _aborted_in(split, list(aborted)) if is_read_committed else None
        position = split.positions.start
        while position < split.positions.stop:
            scanner = SegmentScanner(
                start=position,
                stop=split.positions.stop,
                max_batch_size=self._options.max_batch_bytes,
                kernel=self._rows.kernel,
            )
            try:
                yield from self._scan(split, scanner, 0 if then is not None else bytes_behind(split))
                if self._apart is None:
                    yield from self._look_behind(split, scanner.position, then)
                else:
                    self._apart.position = scanner.position
                break
            except FormatError as error:
                yield from self._flush(split)
                self._rows.wrong_from = None
                position = self._pass_over(error, split, scanner.position, None)
            except ObjectNotFoundError as error:
                yield from self._flush(split)
                if self._options.on_missing is Policy.FAIL:
                    raise
                self.metrics.missing.append(
                    MissingOffsets(split.partition, self._rows.state[State.NEXT_OFFSET], split.offsets.stop, str(error))
                )
                if self._markers is not None:
                    self._markers.pass_over()
                break
            except StorageError:
                yield from self._flush(split)  # what came before is whole
                raise
        if self._apart is not None:
            *full, self._apart.last = [*self._decoder.flush(split)] or [None]
            yield from full
        else:
            yield from self._settle(split, then)
        self._rows.next_offset = self._rows.undelivered
        self._rows.clock.leave()
        self.metrics.body_bytes += self._rows.state[State.BODY_BYTES]
        self._rows.state[State.BODY_BYTES] = 0
        if self._apart is None:
            self.leave(split, then)

    def _enter(self, split: Split) -> None:
        """Prepare for a split, which may go on where the one before ended. Twice is as once."""
        goes_on = self._next_split is split
        if not goes_on:
            self._decoder.reset()
            self._held.clear()
        if not goes_on or self._log != split.log:
            self._last_offset = split.base_offset - 1
            self._is_doubted = False
            self._jumps = Jumps()
        self._log = split.log
        if split.isolation_level is not IsolationLevel.READ_COMMITTED or split.offsets.start == split.offsets.stop:
            self._markers = None
        elif self._markers is None or not goes_on:
            self._markers = MarkerCheck(self._rows.decompressor, notes_first=self._apart is not None)

    def _settle(self, split: Split, then: Split | None) -> Iterator[pa.RecordBatch]:
        """The last rows of a split; while they are undecided they wait for the next ones, unless they are many."""
        if then is None or self._markers is None or not self._markers.is_undecided:
            yield from self._flush(split)
            return
        *full, last = [*self._decoder.flush(split)] or [None]
        if full:
            yield from self._release()
            yield from full
        if last is not None:
            self._held.append(last)
        if sum(batch.num_rows for batch in self._held) >= self._options.batch_rows:
            yield from self._release()

    def leave(self, split: Split, then: Split | None) -> None:
        """A split was read, by this reader or apart; the next one, if any, goes on where it ends."""
        if then is None or then.log != split.log:
            self._note_jumps(split)
        self._next_split = then

    # reading splits at the same time

    def read_apart(self, split: Split, apart: ReadApart, then: Split | None) -> Generator[pa.RecordBatch, None, None]:
        """The records of a split that is read by itself, while others read those before and after it.

        Args:
            apart: is given what is seen, while it is read.
            then: as of ``read``. What concerns both is left to the reader that takes the splits in order.

        Raises:
            as ``read``.
        """
        self.metrics = self._rows.metrics = self._rows.clock.metrics = apart.metrics
        self._apart, self._next_split = apart, None
        yield from self.read(split, then=then)
        apart.last_offset, apart.next_offset = self._last_offset, self.next_offset

    def accepts(self, split: Split, apart: ReadApart, next_offset: int | None) -> bool:
        """Whether this reader would have read the split as the other one did, up to where that one is.

        If not, for example because it contradicts the splits before, this reader must read it again, in order.
        """
        if self._entered is not apart:
            self._enter(split)
            self._entered = apart
        if not apart.is_sound or apart.first is None or self._is_doubted:
            return False
        base, last = apart.first
        if next_offset is not None and next_offset > split.offsets.start and base < next_offset:
            return False
        before = self._last_offset
        if before >= split.base_offset:  # else the log begins here, or what is before is not known to this one either
            is_gap = base != before + 1
            if (
                base <= before
                or (is_gap and not self._jumps.is_explained)
                or (is_gap and split.stop_of_part is not None and last >= split.stop_of_part)
                or (split.timed is not None and before < split.timed <= last)
            ):
                return False
        return self._markers is None or apart.markers is None or self._markers.agrees(apart.markers)

    def join(self, split: Split, apart: ReadApart, then: Split | None) -> bool:
        """Go on behind a split that was read apart and accepted; returns whether its last rows are undecided.

        If they are, ``settle`` returns them as far as that is right, now or later.
        """
        self._last_offset = max(self._last_offset, apart.last_offset)
        self._jumps.join(apart.jumps)
        if self._markers is not None and apart.markers is not None:
            self._markers.join(apart.markers)
        self._rows.begin(split.offsets, apart.next_offset)
        self._rows.let_go()
        self._rows.next_offset = apart.next_offset
        return self._markers is not None and self._markers.is_undecided

    def settle(self, split: Split, apart: ReadApart, then: Split | None) -> Iterator[pa.RecordBatch]:
        """As ``join``; raises as ``read``."""
        if apart.last is not None:
            self._held.append(apart.last)
        yield from self._look_behind(split, apart.position, then)
        yield from self._settle(split, then)

    def release(self) -> Iterator[pa.RecordBatch]:
        """The rows of the splits before that wait for the next ones, which do not contradict them."""
        return self._release()

    def _flush(self, split: Split) -> Iterator[pa.RecordBatch]:
        yield from self._release()
        yield from self._decoder.flush(split)

    def _release(self) -> Iterator[pa.RecordBatch]:
        held, self._held = self._held, []
        for batch in held:
            rows = batch.num_rows if self._rows.wrong_from is None else rows_below(batch, self._rows.wrong_from)
            self.metrics.records -= batch.num_rows - rows
            if rows:
                yield batch.slice(0, rows)
                self._rows.clock.restart()

    def _behind_held(self, batches: Generator[pa.RecordBatch, None, bool]) -> Generator[pa.RecordBatch, None, bool]:
        while True:
            try:
                batch = next(batches)
            except StopIteration as end:
                return bool(end.value)
            yield from self._release()
            yield batch

    def _scan(self, split: Split, scanner: SegmentScanner, behind: int) -> Iterator[pa.RecordBatch]:
        wanted = ByteRange(scanner.position, split.positions.stop + behind)
        self._streamed = 0
        size, tag = (None, None) if split.is_active else (split.log_size, split.log_tag)
        with closing(read_listed(self._store, split.log, wanted, size=size, tag=tag)) as pieces:
            yield from self._scan_pieces(split, scanner, pieces, wanted.stop)

    def _scan_pieces(
        self, split: Split, scanner: SegmentScanner, pieces: Iterator[memoryview], stop: int
    ) -> Iterator[pa.RecordBatch]:
        behind = b""
        while True:
            answer = scanner.next_run()
            if isinstance(answer, NeedData):
                piece = self._next_piece(split, pieces)
                behind = bytes(piece[split.positions.stop - answer.range.start :])
                scanner.feed(piece)
                continue
            if isinstance(answer, Done):
                self._check_tail(split, answer)
                if split.is_last_of_segment and self._last_offset != self._assumed.ends.get(
                    split.log, self._last_offset
                ):
                    raise AssumptionError(split)
                while answer.position + len(behind) < stop and len(piece := self._next_piece(split, pieces)):
                    behind += piece
                self._check_next(split, behind)
                return
            after = split.offset_bound if scanner.position >= split.positions.stop else scanner.next_base_offset
            summary = self._rows.kernel.summarise(answer.table, answer.rows)
            sound = self._deliverable(split, answer, summary, after)
            if summary.flags & _MARKED and split.partition in self._assumed.plain:
                sound = _before_transactions(split, answer, sound)
            transactional = self._decide(split, answer, sound.rows) if summary.flags & _MARKED else _NOT_TRANSACTIONAL
            self.metrics.batches += sound.rows
            found = None if self._markers is None else self._markers.find(split, answer, transactional)
            if found is not None:
                if self._apart is not None:
                    self._apart.is_contradicted = True
                sound = Deliverable(max(0, found.row), found.error.located(source=self._store.url(split.log)))
            if self.batch_positions is not None:
                self.batch_positions.follow(answer, sound.rows)
            decoded = self._decoder.decode(split, answer, sound.rows, self._pass_over)
            is_stopped = yield from self._behind_held(decoded) if self._held else decoded
            if found is not None and found.row < 0:
                self._rows.wrong_from = found.offset
            elif is_stopped:
                return
            if sound.error is not None:
                yield from self._flush(split)
                raise sound.error

    def _note_jumps(self, split: Split) -> None:
        """Note which offsets the first logs of a partition skip, until one shows the log cleaner's work."""
        noted = self._noted_jumps.setdefault(split.partition, [])
        if noted is None:
            return
        if self._jumps.shows_cleaning:
            for note in noted:
                if note in self.metrics.notes:
                    self.metrics.notes.remove(note)
            self._noted_jumps[split.partition] = None
            return
        jumps = self._jumps.note(self._store.url(split.log))
        if jumps is not None and len(noted) <= MOST_NAMED:
            is_last = len(noted) == MOST_NAMED
            noted.append(f"{split.partition}: more logs jump over offsets like that" if is_last else jumps)
            self.metrics.notes.append(noted[-1])

    def _look_behind(self, split: Split, position: int, then: Split | None) -> Iterator[pa.RecordBatch]:
        """Look for the markers of transactions that continue after a split without a successor."""
        if then is not None or self._markers is None or not self._markers.is_undecided:
            return
        found = self._markers.look_ahead(self._store, split, position, self._options.max_batch_bytes)
        if found is None:
            return
        if found.is_hidden and self._options.on_corrupt is Policy.SKIP:
            self.metrics.doubt(found.error)
            return
        self._rows.wrong_from = found.offset
        yield from self._flush(split)
        if self._options.on_corrupt is Policy.FAIL:
            raise found.error
        found.error.message += f"; records from offset {found.offset} on are left out"
        self.metrics.doubt(found.error)
        self.metrics.early_ends += 1

    def _next_piece(self, split: Split, pieces: Iterator[memoryview]) -> memoryview | bytes:
        try:
            if self._most_fetched is None:
                piece = next(pieces, b"")
            else:
                with fetching(self._most_fetched):
                    piece = next(pieces, b"")
        except ObjectNotFoundError as error:
            raise error.located(
                source=self._store.url(split.log),
                offset=self._rows.state[State.NEXT_OFFSET],
                hint="The segment vanished while it was read, as retention does: plan again from this offset",
            ) from None
        self._rows.clock.end_read()
        self.metrics.bytes_read += len(piece)
        if self._range_size:  # pieces are what has come of a request
            before, self._streamed = self._streamed, self._streamed + len(piece)
            self.metrics.requests += -(-self._streamed // self._range_size) + (-before // self._range_size)
        else:
            self.metrics.requests += bool(len(piece))
        return piece

    def _decide(self, split: Split, run: BatchRun, rows: int) -> Transactional:
        """Mark the batches that readers of this isolation level do not get."""
        table, stop = run.table, rows * TABLE_WIDTH
        flags, decisions = table[Table.ATTRIBUTES : stop : TABLE_WIDTH], table[Table.DECISION : stop : TABLE_WIDTH]
        magics = table[Table.MAGIC : stop : TABLE_WIDTH]
        if min(magics, default=2) < 2 or any(decisions):  # in old formats the flags mean something else
            for row in range(rows):
                if magics[row] < 2 or decisions[row]:
                    flags[row] = 0
        aborted: Sequence[int] = ()
        control = [row for row, attributes in enumerate(flags) if attributes & CONTROL_FLAG]
        self.metrics.control_batches += len(control)
        self.metrics.control_records += records_within(split.offsets, table, control)
        data: list[int] = []
        if self._markers is not None:
            data = [row for row, attributes in enumerate(flags) if attributes & _MARKED == TRANSACTIONAL_FLAG]
        if self._aborted is not None:
            aborted = self._aborted.rows(run, rows, data)
            self.metrics.aborted_batches += len(aborted)
            self.metrics.aborted_records += records_within(split.offsets, table, aborted)
        for row in (*control, *aborted):
            table[row * TABLE_WIDTH + _DECISION] = _SKIP
        return Transactional(data, aborted, control)

    def _deliverable(self, split: Split, run: BatchRun, summary: RunSummary, after: int | None) -> Deliverable:
        """How many batches of the run may be delivered before one whose offsets cannot be right.

        The CRC does not cover base offsets: only neighbours show that one is wrong. ``after`` is an offset
        at which the next batch begins, or one in it, if it is known.
        """
        if self._apart is not None and self._apart.first is None:
            self._apart.first = run.table[Table.BASE_OFFSET], run.table[Table.LAST_OFFSET]
        is_doubted, self._is_doubted = self._is_doubted, False
        if (
            not is_doubted
            and is_sound(split, run, summary, self._last_offset, after)
            and self._jumps.follow_sound(split, summary, self._last_offset)
        ):
            self._last_offset = summary.last_offset
            return Deliverable(run.rows)
        table = run.table
        bases = table[Table.BASE_OFFSET : run.rows * TABLE_WIDTH : TABLE_WIDTH]
        lasts = table[Table.LAST_OFFSET : run.rows * TABLE_WIDTH : TABLE_WIDTH]
        is_whole = (
            table[(run.rows - 1) * TABLE_WIDTH + Table.POSITION] + table[(run.rows - 1) * TABLE_WIDTH + Table.SIZE]
            >= split.positions.stop
        )
        late = begins_late(split, run, lasts, self._last_offset, self._store.url, is_whole=is_whole)
        if late is not None:
            if self._options.on_corrupt is Policy.FAIL:
                return Deliverable(0, late)
            self.metrics.doubt(late)
        behind = [] if after is None else [after]
        ends_log = is_whole and split.is_last_of_segment and after is None
        for row, floor in out_of_order(
            [*bases, *behind],
            [*lasts, *behind],
            self._last_offset,
            most=most_offset(split),
            following=split.stop_of_part if ends_log else None,
            is_doubted=is_doubted,
            is_bound=is_whole and split.is_last_of_segment and after is not None,
        ):
            if row == run.rows:  # the one behind: it is judged when its own run comes
                self._is_doubted = True
                break
            start = table[row * TABLE_WIDTH + Table.POSITION]
            error = CorruptBatchError(
                "a batch's offsets do not fit between its neighbours'",
                source=self._store.url(split.log),
                position=start,
                base_offset=bases[row],
                found=f"offsets {bases[row]} to {lasts[row]}",
                expected=f"more than {floor}, and less than the next batch begins with",
                hint="A base offset is not under the CRC: read another copy of this segment",
            )
            if self._options.on_corrupt is Policy.FAIL:
                return Deliverable(row, error)
            table[row * TABLE_WIDTH + Table.DECISION] = Decision.DROP
            self._pass_over(error, split, start, start + table[row * TABLE_WIDTH + Table.SIZE])
            lasts[row] = floor
        wrong = beyond(split, bases, lasts, self._last_offset) + of_other_epochs(split, run)
        if split.timed is not None:
            wrong += beside_timed(split, run, lasts, self._last_offset)
        self._jumps.follow(split, run, bases, lasts, self._last_offset)
        self._last_offset = max(self._last_offset, *lasts)
        for row, what, expected in sorted(wrong):
            start = table[row * TABLE_WIDTH + Table.POSITION]
            error = CorruptBatchError(
                f"a batch's {what} cannot be",
                source=self._store.url(split.log),
                position=start,
                base_offset=bases[row],
                found=f"offsets {bases[row]} to {lasts[row]}, epoch {table[row * TABLE_WIDTH + Table.LEADER_EPOCH]}",
                expected=expected,
                hint="Base offsets and leader epochs are not under the CRC: read another copy of this segment",
            )
            if self._options.on_corrupt is Policy.FAIL:
                return Deliverable(row, error)
            if table[row * TABLE_WIDTH + Table.DECISION] != Decision.DROP:
                table[row * TABLE_WIDTH + Table.DECISION] = Decision.DROP
                self._pass_over(error, split, start, start + table[row * TABLE_WIDTH + Table.SIZE])
        return Deliverable(run.rows)

    def _check_tail(self, split: Split, done: Done) -> None:
        """Report what follows the last whole batch: a note for a live log, an error for a finished segment."""
        if done.tail is Tail.END:
            reaches = split.reaches if split.is_last_of_segment else None
            if reaches is None or self._last_offset >= reaches:
                return
            if reaches + 1 != split.stop_of_part or not self._jumps.is_explained:  # else the cleaner took the last ones
                raise ends_early(self._store.url(split.log), split.log_size, self._last_offset, reaches)
            return
        source = self._store.url(split.log)
        if not split.is_last_of_segment:
            raise CorruptIndexError(
                "the offset index points into the middle of a batch",
                position=split.positions.stop,
                found=f"a batch from byte {done.position} across it",
                expected="a batch's first byte",
                hint="Read without the index: give the whole segment as one split",
            )
        missing = (
            f", {shown_count(done.missing_bytes, 'byte is', 'bytes are')} missing"
            if done.missing_bytes is not None
            else ""
        )
        if split.is_padded and done.tail is not Tail.CUT:
            return
        if split.is_active and self._next_indexed(split, done.position) >= split.positions.stop:
            what = "ends inside a batch" if done.tail is Tail.CUT else "ends in zeros"
            self.metrics.notes.append(
                f"{source}: the active segment {what}: {shown_count(done.trailing_bytes, 'byte')} after byte "
                f"{done.position}{missing}"
            )
            return
        raise truncated(done)

    def _check_next(self, split: Split, behind: bytes) -> None:
        """Hold what the index and the header behind a split name against the last offset in it."""
        error: FormatError | None = goes_back(behind, self._last_offset)
        if error is not None:
            error.located(source=self._store.url(split.log), position_shift=split.positions.stop)
        elif not split.is_last_of_segment:
            error = range_ends_early(split, self._last_offset)
            if error is not None:
                error.located(source=self._store.url(split.offset_index or split.log))
        if error is None:
            return
        if self._options.on_corrupt is Policy.FAIL:
            raise error
        self.metrics.doubt(error)

    def _pass_over(self, error: FormatError, split: Split, start: int, stop: int | None) -> int:
        """Raise, or note the hole and say where reading can go on: behind the batch, or at the next index entry."""
        source = self._store.url(split.log)
        error.located(source=source)
        if self._options.on_corrupt is Policy.FAIL:
            raise error
        if stop is None:
            stop = self._next_indexed(split, start)
        self._jumps.explain()
        if self._markers is not None:
            self._markers.pass_over()
        self.metrics.holes.append(Hole(source, start, stop, str(error)))
        return stop

    def _next_indexed(self, split: Split, after: int) -> int:
        """The next place where the offset index says that a batch begins."""
        if split.offset_index is not None:
            try:
                index = parse_offset_index(
                    read_whole(self._store, split.offset_index), split.offsets.start, log_size=split.log_size
                )
            except SegreaderError:
                return split.positions.stop
            for position in index.positions():
                if after < position < split.positions.stop:
                    return position
        return split.positions.stop


def _before_transactions(split: Split, run: BatchRun, sound: Deliverable) -> Deliverable:
    """As many of the rows as are before the first that bears on a transaction."""
    table = run.table
    for row in range(sound.rows):
        at = row * TABLE_WIDTH
        if table[at + Table.MAGIC] >= 2 and table[at + Table.ATTRIBUTES] & _MARKED:
            error = AssumptionError(split, table[at + Table.POSITION], table[at + Table.BASE_OFFSET])
            return Deliverable(row, error)
    return sound


def _aborted_in(split: Split, open_ended: Sequence[tuple[int, int]]) -> Aborted | None:
    """Finds the aborted data of a split; ``None`` if there is none."""
    if open_ended:
        return OpenEnded(open_ended)
    return Committed(split.aborted) if len(split.aborted) else None
