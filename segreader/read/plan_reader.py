"""The record batches of a plan, in its order, read by one thread or by several.

One thread reads split after split, and what it knows of one goes over to the next. Several read splits apart, each as
if it were alone; the reader that takes them in order checks at each border what one thread would have checked. Where
anything is not plainly as one thread would have seen it, damage above all, that reader reads the split again, so that
records, errors and notes are the same for any number of threads.

With ``Order.PARTITION`` each partition has such a reader, and record batches of the partitions alternate as they are
ready. The error that is raised is that of the first partition in the plan that has one, after all the records before
it: partitions behind it are dropped, and those before it are read to their ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from copy import copy
from dataclasses import fields
from itertools import groupby, zip_longest
from operator import attrgetter
from typing import Final, NamedTuple

import pyarrow as pa

from segreader.errors import FormatError, StorageError
from segreader.format.columns import BufferPool
from segreader.format.kernel import load_kernel
from segreader.plan.request import Order, Policy, ReadOptions, usable_cores
from segreader.plan.split import Assumed, ReadPlan, Split
from segreader.read.ahead import Ahead, ReadAhead
from segreader.read.decoders import Decoder, RowDecoder
from segreader.read.metrics import COST, ScanMetrics
from segreader.read.split_reader import ReadApart, SplitReader
from segreader.storage.base import FetchBudget, ObjectStore

Shape = Callable[[pa.RecordBatch], pa.RecordBatch]
"""What becomes of each batch before it is given: filtered, projected."""

_UNHURRIED: Final = 2
"""Batches that are taken, or splits that are read, before others are read ahead: a few rows cost no more than these."""

_POOL_BYTES: Final = 24 << 20
_FEW_THREADS: Final = 8
"""The more splits are read at a time, the more record batches wait for the first one."""

_THREAD_BYTES: Final = 1 << 20
"""Of what a thread needs to read and to decompress."""

_ROW_BYTES: Final = 64
"""Of a row's numbers and offsets in the buffers of a record batch."""

_FIRST_WINDOW: Final = 8 << 20
"""Of local files so much is read ahead at first, and more each time the records are waited for: what is decoded long
before it is used has left the processor's caches by then."""


class _PlannedRead(NamedTuple):
    """A split on its way.

    Args:
        then: the split that goes on where it ends.
        is_first: of its partition.
        lane: splits of one are taken in order.
    """

    split: Split
    then: Split | None
    is_first: bool
    lane: int = 0


class _Run(NamedTuple):
    """Splits of one lane, and the damage that is raised behind them."""

    steps: Sequence[_PlannedRead]
    damage: FormatError | None


class _Item(NamedTuple):
    """Some rows of a split that was read apart.

    Args:
        lane: of the split.
        batch: ``shape``\\ d; the last item of a split may have none.
        rows: how many there were before.
        size: of the memory that it holds.
    """

    lane: int
    apart: ReadApart
    batch: pa.RecordBatch | None
    rows: int
    size: int
    is_last: bool = False


class PlanReader:
    """Reads plans, in the order that the options ask for.

    Args:
        metrics: counts what was read of the plan up to the batch that was returned last.
        decoder: as of ``SplitReader``.
        shape: applied to each batch, in the thread that reads it.
        assumed: as of ``SplitReader``.
    """

    def __init__(
        self,
        store: ObjectStore,
        options: ReadOptions,
        *,
        metrics: ScanMetrics | None = None,
        decoder: Callable[[RowDecoder], Decoder] | None = None,
        shape: Shape | None = None,
        assumed: Assumed | None = None,
    ) -> None:
        self._store, self._options, self._decoder, self._shape = store, options, decoder, shape
        self._assumed = assumed
        ahead = ReadAhead.of(store, options)
        self._is_remote = bool(ahead.range_size)
        self._threads, self._most_bytes = ahead.threads, ahead.most_bytes
        self._at_once = 1  # splits that are read at a time
        self._most_fetched: int | None = None  # for each of them
        self._ranges_at_once = 1  # of each of them
        self._batch_bytes = options.batch_bytes * 5 // 4 + _ROW_BYTES * options.batch_rows
        self._pool = BufferPool(_POOL_BYTES, load_kernel(options.kernel).allocate)
        self._reader = self._open_split_reader(metrics)
        self.metrics = self._reader.metrics
        self._is_by_partition = options.order is Order.PARTITION and self._threads > 1

    def read(self, plan: ReadPlan) -> Generator[pa.RecordBatch, None, None]:
        """The records of a plan.

        Raises:
            as ``SplitReader.read``; and the damage in which a partition ends, if it is not to be skipped.
        """
        runs = _runs(plan, self._options.on_corrupt is Policy.FAIL)
        self._share_memory(sum(len(run.steps) for run in runs))
        if self._is_by_partition and len(runs) > 1:
            yield from self._read_ahead(runs)
            return
        steps: list[_PlannedRead] = []
        damage: FormatError | None = None
        for run in runs:
            steps += (step._replace(lane=0) for step in run.steps)
            if (damage := run.damage) is not None:
                break
        yield from self._read(steps)
        if damage is not None:
            raise copy(damage)

    def _read(self, steps: Sequence[_PlannedRead]) -> Generator[pa.RecordBatch, None, None]:
        count = 0
        for at, step in enumerate(steps):
            rest = steps[at + 1 :] if self._threads > 1 else ()
            if count >= _UNHURRIED and rest:
                yield from self._read_ahead([_Run(steps[at:], None)])
                return
            before = count
            with closing(_in_order(self._reader, step)) as batches:
                for batch in batches:
                    yield self._shaped(batch)
                    count += 1
                    if count >= _UNHURRIED and rest:
                        del batch
                        yield from self._read_ahead([_Run(rest, None)], batches)
                        return
            count += count == before

    def _open_split_reader(self, metrics: ScanMetrics | None = None) -> SplitReader:
        reader = SplitReader(
            self._store,
            self._options,
            metrics=metrics,
            pool=self._pool,
            decoder=self._decoder,
            assumed=self._assumed,
        )
        self._limit_fetched(reader)
        return reader

    def _limit_fetched(self, reader: SplitReader) -> None:
        most, at_once = self._most_fetched, self._ranges_at_once
        reader.limit_fetched(most if most is None or at_once == 1 else FetchBudget(most, at_once=at_once))

    def _share_memory(self, splits: int) -> None:
        """Half of the bytes, or less where threads are many, are for ranges: the same for each thread.

        More threads than cores wait for a store, and what they read waits for the splits before: instead of them, the
        others have several ranges under way.
        """
        self._at_once = wanted = max(1, min(self._threads, splits))
        if self._is_remote:
            self._at_once = min(wanted, max(_FEW_THREADS, usable_cores()))
            self._ranges_at_once = -(-wanted // self._at_once)
            self._most_fetched = self._most_bytes // (self._at_once * (2 if self._at_once <= _FEW_THREADS else 4))
            self._limit_fetched(self._reader)
        if self._at_once > 1:
            self._pool.max_bytes = self._most_waiting + _POOL_BYTES

    @property
    def _most_waiting(self) -> int:
        """Bytes of record batches, at most."""
        return max(1, self._most_bytes - self._at_once * ((self._most_fetched or 0) + _THREAD_BYTES))

    def _shaped(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch if self._shape is None else self._shape(batch)

    def _read_ahead(
        self, lanes: Sequence[_Run], begun: Iterable[pa.RecordBatch] | None = None
    ) -> Generator[pa.RecordBatch, None, None]:
        """The batches of a split that was begun, and those of lanes, which are read meanwhile.

        Args:
            lanes: the splits of several are of as many partitions.
        """
        steps = [step for lane in lanes for step in lane.steps]
        ahead = Ahead(
            steps,
            self._open_reader,
            name="segreader-read",
            size_of=attrgetter("size"),
            made_of=self._made_of,
            lane_of=attrgetter("lane"),
        )
        try:
            threads = min(self._at_once, len(steps))
            is_one_later = begun is not None and threads == self._at_once  # up to the end of its split, this one reads
            if begun is None:
                self._reader.let_go()
            is_small = not self._is_remote and len(lanes) == 1  # a slow partition might take all of it
            window = _FIRST_WINDOW if is_small else None
            ahead.hurry(self._most_waiting, threads - is_one_later, window=window)
            for batch in begun or ():
                yield self._shaped(batch)
                del batch  # its buffers are free while the next one is waited for
            self._reader.let_go()
            ahead.add_threads(is_one_later)
            yield from self._take_lanes(lanes, ahead)
        finally:
            ahead.close()

    def _take_lanes(
        self, lanes: Sequence[_Run], ahead: Ahead[_PlannedRead, _Item]
    ) -> Generator[pa.RecordBatch, None, None]:
        given: deque[_Item] = deque()
        left = {number: self._join(lane, given, is_only=len(lanes) == 1) for number, lane in enumerate(lanes)}
        failed: Exception | None = None
        for number, lane in enumerate(lanes):
            if not lane.steps:
                failed = lane.damage and copy(lane.damage)
                _keep_before(number, left, ahead)
                break
        try:
            while found := ahead.next():
                number = found[0].lane
                given.append(found.pop())
                while number in left:
                    try:
                        batch = next(left[number])
                    except StopIteration:
                        del left[number]
                        break
                    except Exception as error:
                        failed = error
                        _keep_before(number, left, ahead)
                        break
                    if batch is None:
                        break
                    yield batch
                    del batch  # its buffers are free while the next one is waited for
            if left:
                raise StorageError("the read was ended")
            if failed is not None:
                raise failed
        finally:
            failed = None  # its traceback knows this frame
            for lane_left in left.values():
                lane_left.close()

    def _made_of(self, step: _PlannedRead) -> int:
        """Bytes of a record batch that is not closed yet, at most."""
        return min(self._batch_bytes, 4 * step.split.positions.size)

    def _open_reader(self) -> Callable[[_PlannedRead], Iterator[_Item]]:
        """A reader of splits apart, for one thread."""
        reader = self._open_split_reader()

        def size_of(batch: pa.RecordBatch) -> int:
            held = reader.allocated_bytes
            return held if 2 * batch.get_total_buffer_size() >= held else int(batch.nbytes)  # else it is a small copy

        def read(step: _PlannedRead) -> Iterator[_Item]:
            apart = ReadApart(ScanMetrics(kernel=reader.metrics.kernel))
            try:
                with closing(reader.read_apart(step.split, apart, step.then)) as batches:
                    for batch in batches:
                        given = self._shaped(batch)
                        item = _Item(step.lane, apart, given, batch.num_rows, size_of(given))
                        del batch, given
                        yield item
                        del item
                last = None if apart.last is None else self._shaped(apart.last)
            except Exception as error:
                apart.error, last = error, None
            reader.let_go()
            yield _Item(step.lane, apart, last, 0, 0 if last is None else size_of(last), is_last=True)

        return read

    def _join(self, lane: _Run, given: deque[_Item], *, is_only: bool) -> Generator[pa.RecordBatch | None, None, None]:
        """The batches of a lane, each split of which was read apart; ``None`` where another item must be given.

        Raises:
            as ``read``.
        """
        reader = self._reader
        if not is_only:
            reader = self._open_split_reader(self.metrics)
            reader.let_go()
        for step in lane.steps:
            yield from self._take(reader, step, given)
        if lane.damage is not None:
            raise copy(lane.damage)

    def _take(
        self, reader: SplitReader, step: _PlannedRead, given: deque[_Item]
    ) -> Generator[pa.RecordBatch | None, None, None]:
        """The batches of a split that was read apart; or, where it has to be, read once more in order."""
        split = step.split
        position, seen, rows = _position(reader, step), ScanMetrics(), 0
        while not given:
            yield None
        item = given.popleft()
        while reader.accepts(split, item.apart, position):
            _follow(self.metrics, item.apart.metrics, seen)
            if item.is_last:
                yield from self._end(reader, step, item)
                return
            yield from self._each_shaped(reader.release())
            rows += item.rows
            batch = item.batch
            del item
            yield batch
            del batch  # its buffers are free while the next one is waited for
            while not given:
                yield None
            item = given.popleft()
        take_back(self.metrics, seen)
        yield from self._each_shaped(without_first(rows, _in_order(reader, step)))
        while not item.is_last:
            while not given:
                yield None
            item = given.popleft()

    def _end(
        self, reader: SplitReader, step: _PlannedRead, item: _Item
    ) -> Generator[pa.RecordBatch | None, None, None]:
        """What is left of a split that was read apart."""
        split, apart = step.split, item.apart
        if apart.error is not None:  # what the splits before have is whole
            yield from self._each_shaped(reader.release())
            raise apart.error
        self.metrics.notes.extend(apart.metrics.notes)
        if reader.join(split, apart, step.then):
            yield from self._each_shaped(reader.settle(split, apart, step.then))
        else:
            yield from self._each_shaped(reader.release())
            if item.batch is not None:
                yield item.batch
        reader.leave(split, step.then)

    def _each_shaped(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return batches if self._shape is None else map(self._shape, batches)


def _in_order(reader: SplitReader, step: _PlannedRead) -> Generator[pa.RecordBatch, None, None]:
    yield from reader.read(step.split, _position(reader, step), then=step.then)


def _position(reader: SplitReader, step: _PlannedRead) -> int | None:
    return None if step.is_first else reader.next_offset


def _keep_before(
    number: int,
    left: dict[int, Generator[pa.RecordBatch | None, None, None]],
    ahead: Ahead[_PlannedRead, _Item],
) -> None:
    """Read no more of this lane and those behind it."""
    ahead.drop_behind(number - 1)
    for one in [one for one in left if one >= number]:
        left.pop(one).close()


def without_first(rows: int, batches: Generator[pa.RecordBatch, None, None]) -> Iterator[pa.RecordBatch]:
    """The rows of the batches but for some, which were given before."""
    with closing(batches):
        for batch in batches:
            left = batch.slice(min(rows, batch.num_rows)) if rows else batch
            rows -= min(rows, batch.num_rows)
            if left.num_rows:
                yield left


_NUMBERS: Final = tuple(
    one.name for one in fields(ScanMetrics) if isinstance(getattr(ScanMetrics(), one.name), int | float)
)
_SPENT: Final = ("requests", "bytes_read", *COST)


def _follow(whole: ScanMetrics, part: ScanMetrics, seen: ScanMetrics) -> None:
    """Count in what a part has counted since it was last seen."""
    for name in _NUMBERS:
        count = getattr(part, name)
        setattr(whole, name, getattr(whole, name) + count - getattr(seen, name))
        setattr(seen, name, count)


def take_back(whole: ScanMetrics, seen: ScanMetrics) -> None:
    """Count out what is read once more; what it has cost was spent all the same."""
    for name in _NUMBERS:
        if name not in _SPENT:
            setattr(whole, name, getattr(whole, name) - getattr(seen, name))


def _runs(plan: ReadPlan, fails: bool) -> list[_Run]:
    """The splits of each partition, a lane each, and the damage in which it ends, if that is to be raised."""
    of_partition = {partition: list(some) for partition, some in groupby(plan.splits, attrgetter("partition"))}
    runs: list[_Run] = []
    for end in plan.ends:
        some, damage = of_partition.get(end.partition, []), end.damage if fails else None
        steps: list[_PlannedRead] = []
        for split, following in zip_longest(some, some[1:]):
            then = following if following is not None and split.is_followed_by(following) else None
            steps.append(_PlannedRead(split, then, split is some[0], len(runs)))
        if steps or damage is not None:
            runs.append(_Run(steps, damage))
    return runs
