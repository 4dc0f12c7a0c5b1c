"""What the splits of a job are read from: segments at a location, or a log that brokers still serve."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Final

import pyarrow as pa

from segreader.backfill.job_splits import LostOffsets, SplitRun
from segreader.errors import FormatError
from segreader.format.columns import TABLE_WIDTH, BufferPool, Table
from segreader.format.scanner import Done, NeedData, SegmentScanner
from segreader.plan.live import LivePart, ReadFrom
from segreader.plan.request import Policy, ReadOptions
from segreader.plan.split import Split
from segreader.ranges import ByteRange, OffsetRange
from segreader.read.ahead import limited, one_lane
from segreader.read.metrics import LiveMetrics, ScanMetrics
from segreader.read.split_reader import read_split
from segreader.spark.locations import kept_locations
from segreader.spark.options import SparkOptions
from segreader.storage.base import ObjectStore, read_listed
from segreader.values import dataclass

Readable = Split | SplitRun | LivePart
"""How the records of a split are read."""

TASK_THREADS: Final = 2
TASK_BYTES_AHEAD: Final = 128 << 20
"""Of a task, for an executor runs several: half for ranges that are under way, half for the next row group."""

_MADE_BYTES: Final = 5 << 20
"""Of a record batch that is not closed yet."""


@dataclass(frozen=True, slots=True)
class LiveSource:
    """Brokers, and what holds the remote tier beside them.

    Args:
        options: those of the data source.
    """

    options: SparkOptions


JobSource = ObjectStore | LiveSource


class FellBackError(Exception):
    """The object store failed within a part, and brokers continued.

    The records are right all the same; how many offsets hold none is counted twice then.
    """


@contextmanager
def kept_source(options: SparkOptions) -> Iterator[JobSource]:
    """The source for the time of the block, over clients that this worker keeps."""
    if options.brokers is not None:
        yield LiveSource(options)
        return
    with kept_locations(options) as locations:
        yield locations.store


def metrics_for(read: Readable) -> ScanMetrics:
    """What counts while this is read."""
    return LiveMetrics() if isinstance(read, LivePart) else ScanMetrics()


@dataclass(frozen=True, slots=True)
class Remains:
    """The undamaged rest of a split.

    Args:
        pieces: the stretches between them.
        lost: the offsets between the stretches: all that the damaged batches had, and maybe some that no batch had.
        notes: what was noticed while they were looked for.
        error: of the first damage.
    """

    pieces: tuple[Split, ...]
    lost: tuple[LostOffsets, ...]
    notes: tuple[str, ...]
    error: FormatError

    def read(
        self, source: JobSource, options: ReadOptions, metrics: ScanMetrics, pool: BufferPool | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The records in offset order; as ``read_records``.

        Raises:
            FormatError: there is more damage in a stretch than there was when it was looked for.
        """
        assert not isinstance(source, LiveSource)
        for piece in self.pieces:
            yield from _read_piece(piece, source, replace(options, on_corrupt=Policy.SKIP), metrics, pool)
        if metrics.holes or metrics.early_ends:
            raise self.error
        metrics.notes[:] = self.notes  # a stretch that is read alone says that it lacks what is behind it


def around_damage(read: Readable, source: JobSource, options: ReadOptions, error: FormatError) -> Remains:
    """The split without the batches that are damaged.

    Args:
        error: that was met in it.

    Raises:
        FormatError: that one: which offsets the damaged batches had cannot be told.
    """
    if isinstance(source, LiveSource) or isinstance(read, LivePart):
        raise error
    if isinstance(read, SplitRun):
        return _around_damage_in_run(read, source, options, error)
    if read.offsets.stop is None:
        raise error
    metrics, wanted = ScanMetrics(), read.offsets
    for _ in read_split(read, source, replace(options, columns=("offset",), on_corrupt=Policy.SKIP), metrics=metrics):
        pass
    if metrics.doubts or metrics.missing or not metrics.holes:
        raise error
    holes = sorted(metrics.holes, key=lambda hole: hole.start)
    starts = [read.positions.start, *(hole.stop for hole in holes)]
    stops = [*(hole.start for hole in holes), read.positions.stop]
    pieces: list[Split] = []
    lost: list[LostOffsets | None] = []
    whys: list[str] = []
    at: int | None = None  # behind the last sound batch
    for start, stop, hole in zip(starts, stops, [*holes, None], strict=True):
        found = _offsets_of(read, source, ByteRange(start, stop), options, error) if start < stop else None
        if found is not None:
            if at is not None and found.start < at:
                raise error
            if whys:
                lost.append(_lost_of(wanted, at, found.start, whys))
                whys = []
            at = found.stop
            if (mine := found.intersection(wanted)) is not None:
                pieces.append(_piece(read, ByteRange(start, stop), mine))
        if hole is not None:
            whys.append(f"{hole.source}, bytes {hole.start} to {hole.stop}, is damaged: {hole.error}")
    if whys:
        lost.append(_lost_of(wanted, at, None, whys))
    return Remains(tuple(pieces), tuple(filter(None, lost)), tuple(metrics.notes), error)


def _around_damage_in_run(run: SplitRun, source: ObjectStore, options: ReadOptions, error: FormatError) -> Remains:
    """The same for each split of a run; one that is sound stays whole."""
    found = [_around_damage_if_any(split, source, options, error) for split in run.splits]
    return Remains(
        tuple(piece for one in found for piece in one.pieces),
        tuple(lost for one in found for lost in one.lost),
        tuple(note for one in found for note in one.notes),
        error,
    )


def _around_damage_if_any(split: Split, source: ObjectStore, options: ReadOptions, error: FormatError) -> Remains:
    try:
        for _ in read_split(split, source, replace(options, columns=("offset",), on_corrupt=Policy.FAIL)):
            pass
    except FormatError:
        return around_damage(split, source, options, error)
    return Remains((split,), (), (), error)


def _offsets_of(
    read: Split, store: ObjectStore, positions: ByteRange, options: ReadOptions, error: FormatError
) -> OffsetRange | None:
    """The offsets of the batches in these bytes, by their headers; ``None`` if there are none.

    Raises:
        FormatError: ``error``: they are of an old format, whose headers do not tell them.
    """
    scanner = SegmentScanner(start=positions.start, stop=positions.stop, max_batch_size=options.max_batch_bytes)
    size, tag = (None, None) if read.is_active else (read.log_size, read.log_tag)
    first, after = None, 0
    with closing(read_listed(store, read.log, positions, size=size, tag=tag)) as pieces:
        while not isinstance(answer := scanner.next_run(), Done):
            if isinstance(answer, NeedData):
                scanner.feed(next(pieces, b""))
                continue
            table, stop = answer.table, answer.rows * TABLE_WIDTH
            if min(table[Table.MAGIC : stop : TABLE_WIDTH]) < 2:
                raise error
            first = table[Table.BASE_OFFSET] if first is None else first
            after = max(after, *(last + 1 for last in table[Table.LAST_OFFSET : stop : TABLE_WIDTH]))
    return None if first is None else OffsetRange(first, after)


def _piece(read: Split, positions: ByteRange, offsets: OffsetRange) -> Split:
    """A stretch of a split. What indexes name beside it was held against the whole."""
    return replace(
        read,
        positions=positions,
        offsets=offsets,
        chunk_size=None,
        offset_bound=None,
        first_bound=None,
        timed=None,
        reaches=None,
    )


def _lost_of(wanted: OffsetRange, start: int | None, stop: int | None, whys: Sequence[str]) -> LostOffsets | None:
    """Of the offsets wanted those between two stretches, if there are any."""
    assert wanted.stop is not None
    first = wanted.start if start is None else max(start, wanted.start)
    after = wanted.stop if stop is None else min(stop, wanted.stop)
    return LostOffsets(first, after, "; ".join(whys)) if first < after else None


def from_brokers(read: Readable) -> Readable:
    """The same records, from the brokers alone."""
    if not isinstance(read, LivePart):
        raise TypeError("a split of segments at a location is in no broker")
    return replace(read, read_from=ReadFrom.BROKER, splits=(), aborted=None)


def read_records(
    read: Readable,
    source: JobSource,
    options: ReadOptions,
    metrics: ScanMetrics,
    pool: BufferPool | None = None,
    remains: Remains | None = None,
) -> Iterator[pa.RecordBatch]:
    """The records in offset order.

    Args:
        metrics: made by ``metrics_for``.
        pool: as of ``read_split``.
        remains: what is left of it, where batches are damaged.

    Raises:
        FellBackError: begin again with ``from_brokers``.
        SegreaderError: as ``read_split`` and ``read_part``.
    """
    if remains is not None:
        yield from remains.read(source, options, metrics, pool)
        return
    if not isinstance(read, LivePart):
        assert not isinstance(source, LiveSource), "splits of a job have one kind of source"
        for split in (read,) if isinstance(read, Split) else read.splits:
            yield from _read_piece(split, source, options, metrics, pool)
        return
    assert isinstance(source, LiveSource), "splits of a job have one kind of source"
    assert isinstance(metrics, LiveMetrics)
    from segreader.spark.live import read_part  # loads the Kafka client, which other reads do without

    for batch in read_part(source.options, read, options, metrics):
        if metrics.fallbacks:
            raise FellBackError
        yield batch
    if metrics.fallbacks:
        raise FellBackError


def _read_piece(
    split: Split, store: ObjectStore, options: ReadOptions, metrics: ScanMetrics, pool: BufferPool | None
) -> Iterator[pa.RecordBatch]:
    """As ``read_split``; of a segment that vanished, only what the split has of it is missing."""
    missing = len(metrics.missing)
    yield from read_split(split, store, options, metrics=metrics, pool=pool)
    metrics.missing[missing:] = [replace(one, stop=split.offsets.stop) for one in metrics.missing[missing:]]


def ahead_of_writer(
    make: Callable[[], Iterator[pa.RecordBatch]], *, threads: int, most_bytes: int
) -> Generator[pa.RecordBatch, None, None]:
    """The record batches of an iterator, read by a thread of their own while others are written.

    Closing it ends the thread.

    Args:
        make: called in that thread.
        threads: with one, the caller's does both in turn.
        most_bytes: half of ranges that are fetched, half of record batches that wait.
    """
    if threads < 2:
        yield from limited(make(), most_bytes)
        return
    half = max(1, most_bytes // 2)
    yield from one_lane(
        lambda: limited(make(), half),
        name="segreader-backfill",
        most_bytes=half,
        size_of=lambda batch: int(batch.get_total_buffer_size()),
        made_of=_MADE_BYTES,
    )
