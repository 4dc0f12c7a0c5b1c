"""A scan: what is asked for, turned into a plan and into records. The library's front door."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import pyarrow as pa

from segreader.catalog.listing import PartitionLog
from segreader.errors import (
    FormatError,
    ObjectNotFoundError,
    OptionError,
    UndecidedTransactionError,
)
from segreader.format.columns import DEFAULT_MAX_BYTES, DEFAULT_MAX_ROWS
from segreader.format.compression import DEFAULT_LIMIT
from segreader.format.offset_index import OffsetIndex, parse_offset_index
from segreader.isolation import AbortedTransactions, IsolationLevel
from segreader.plan.planner import DEFAULT_SPLIT_BYTES, cut_segment, needs_index, offset_at, overlapping
from segreader.plan.split import ReadPlan, Split, Undecided
from segreader.ranges import OffsetRange
from segreader.read.arrow import schema
from segreader.read.metrics import ScanMetrics
from segreader.read.options import DEFAULT_COLUMNS, ReadOptions
from segreader.read.records import RECORD_COLUMNS, ConsumerRecord, iter_consumer_records
from segreader.read.source import Source, open_source
from segreader.read.split_reader import SplitReader
from segreader.read.transactions import read_transaction_state, read_whole
from segreader.segment import Segment

Offsets = OffsetRange | tuple[int | None, int | None] | str | None


class Scan:
    """Records of some partitions at a location. Made by ``segreader.scan``; nothing is read before it is asked for.

    It is an Arrow stream (``__arrow_c_stream__``): pyarrow, Polars, DuckDB and pandas take it as it is. It can be
    read more than once; ``metrics`` counts the last read.
    """

    def __init__(
        self,
        source: Source,
        *,
        topic: str | None = None,
        topic_id: str | None = None,
        partitions: Collection[int] | None = None,
        offsets: Offsets = None,
        isolation_level: str | IsolationLevel = IsolationLevel.READ_COMMITTED,
        split_bytes: int = DEFAULT_SPLIT_BYTES,
        options: ReadOptions | None = None,
    ) -> None:
        self.location = source.shown
        self.options = options or ReadOptions()
        self.isolation_level = _isolation_level(isolation_level)
        self.offsets = parse_offsets(offsets)
        if split_bytes < 1:
            raise OptionError("split_bytes must be positive", found=split_bytes)
        self._wanted = (topic, topic_id, partitions)
        self._split_bytes = split_bytes
        self._plan: ReadPlan | None = None
        self._source, self.store = source, source.store
        self.metrics = ScanMetrics()

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of what is returned."""
        return schema(self.options.columns)

    def plan(self) -> ReadPlan:
        """What a read will do, decided from listings, indexes and snapshots; made once.

        Raises:
            CatalogError: the location, or what lies there, does not answer the request.
            ObjectNotFoundError: topic or partition are not there.
        """
        if self._plan is None:
            topic, topic_id, partitions = self._wanted
            logs = self._source.partitions(topic=topic, topic_id=topic_id, partitions=partitions)
            splits: list[Split] = []
            undecided: list[Undecided] = []
            notes: list[str] = []
            for log in logs:
                self._plan_partition(log, splits, undecided, notes)
            self._plan = ReadPlan(self.location, tuple(splits), tuple(undecided), tuple(notes))
        return self._plan

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Record batches, ordered by topic, partition and offset; each holds rows of one partition.

        Raises:
            FormatError: data is damaged, after the records before it (``on_corrupt='fail'``).
            StorageError: bytes cannot be had.
            UndecidedTransactionError: after everything that is decided, if some of what was asked for is not.
        """
        return self._batches(self.options)

    def _batches(self, options: ReadOptions) -> Iterator[pa.RecordBatch]:
        plan = self.plan()
        reader = SplitReader(self.store, options)
        self.metrics = reader.metrics
        self.metrics.notes.extend(plan.notes)
        log = None
        for split in plan.splits:
            yield from reader.read(split, reader.next_offset if split.log == log else None)
            log = split.log
        if plan.undecided:
            raise _undecided_error(plan)

    def to_arrow(self) -> pa.Table:
        """Everything as one table; raises as ``to_batches``."""
        return pa.Table.from_batches(self.to_batches(), schema=self.schema)

    def records(self) -> Iterator[ConsumerRecord]:
        """Everything as Python objects, in the same order; raises as ``to_batches``."""
        for batch in self._batches(replace(self.options, columns=RECORD_COLUMNS)):
            yield from iter_consumer_records(batch)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> Any:
        """The Arrow C stream of ``to_batches``. Source: the Arrow PyCapsule interface."""
        reader = pa.RecordBatchReader.from_batches(self.schema, self.to_batches())
        return reader.__arrow_c_stream__(requested_schema)

    def close(self) -> None:
        """Give back connections and threads of the store; without this they go with the process."""
        self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _plan_partition(
        self, log: PartitionLog, splits: list[Split], undecided: list[Undecided], notes: list[str]
    ) -> None:
        wanted, aborted = self.offsets, AbortedTransactions()
        if self.isolation_level is IsolationLevel.READ_COMMITTED:
            state = read_transaction_state(
                self.store, log.segments, wanted, max_batch_bytes=self.options.max_batch_bytes
            )
            aborted = state.aborted
            ends = [state.first_open] if state.first_open is not None else []
            if state.unread_from is not None and (
                wanted.start > state.unread_from or self.options.on_corrupt == "skip"
            ):  # otherwise reading meets the damage itself
                ends.append((state.unread_from, Undecided.DAMAGED))
            if ends and (wanted.stop is None or wanted.stop > min(ends)[0]):
                offset, producer_id = min(ends)
                undecided.append(Undecided(log.partition, max(offset, wanted.start), producer_id))
                wanted = OffsetRange(wanted.start, max(offset, wanted.start))
        for segment, following in overlapping(log.segments, wanted):
            index = self._index(segment, notes) if needs_index(segment, following, wanted, self._split_bytes) else None
            for positions in cut_segment(segment, index, wanted, self._split_bytes):
                splits.append(
                    Split(
                        partition=log.partition,
                        log=segment.files.log,
                        log_size=segment.log_size,
                        positions=positions,
                        offsets=wanted,
                        isolation_level=self.isolation_level,
                        aborted=aborted.within(
                            max(segment.base_offset, wanted.start),
                            following if following is not None else 1 << 62,
                        ),
                        is_active=segment.is_active,
                        base_offset=segment.base_offset,
                        next_base_offset=following,
                        offset_index=segment.files.offset_index,
                        offset_bound=offset_at(index, positions.stop),
                    )
                )

    def _index(self, segment: Segment, notes: list[str]) -> OffsetIndex | None:
        """The segment's offset index; a missing or damaged one costs reading, not records."""
        name = segment.files.offset_index
        if name is None or segment.log_size == 0:
            return None
        try:
            data = read_whole(self.store, name, segment.files.sizes.get(name))
            return parse_offset_index(data, segment.base_offset, log_size=segment.log_size)
        except ObjectNotFoundError:
            return None
        except FormatError as error:
            notes.append(f"{error.located(source=self.store.url(name))}; read without it")
            return None


def parse_offsets(offsets: Offsets) -> OffsetRange:
    """An offset range from ``A:B`` (either may be left out; ``B`` is exclusive), a pair, or a range.

    Raises:
        OptionError: it is none of these.
    """
    if offsets is None:
        return OffsetRange()
    if isinstance(offsets, OffsetRange):
        return offsets
    try:
        if isinstance(offsets, str):
            start_text, colon, stop_text = offsets.partition(":")
            if not colon:
                raise ValueError(offsets)
            start, stop = int(start_text or 0), int(stop_text) if stop_text else None
        else:
            start, stop = offsets[0] or 0, offsets[1]
        return OffsetRange(start, stop)
    except (ValueError, TypeError, IndexError) as error:
        raise OptionError(
            "not a range of offsets", found=repr(offsets), expected="A:B with 0 <= A <= B; B is exclusive"
        ) from error


def _isolation_level(value: str | IsolationLevel) -> IsolationLevel:
    try:
        return IsolationLevel(value)
    except ValueError as error:
        expected = " or ".join(level.value for level in IsolationLevel)
        raise OptionError("unknown isolation level", found=repr(value), expected=expected) from error


def _undecided_error(plan: ReadPlan) -> UndecidedTransactionError:
    first = plan.undecided[0]
    more = f" (and {len(plan.undecided) - 1} more partitions)" if len(plan.undecided) > 1 else ""
    return UndecidedTransactionError(
        f"the files here do not say whether a transaction of {first.partition} was committed{more}",
        source=plan.location,
        offset=first.offset,
        found="damage in front of the markers that would say it"
        if first.producer_id == Undecided.DAMAGED
        else f"producer {first.producer_id} in an open transaction at the end of the last segment",
        expected="its COMMIT or ABORT marker",
        hint=f"Everything below offset {first.offset} is decided: ask for offsets up to it, or for read_uncommitted",
    )


def scan(
    location: str | os.PathLike[str] | None = None,
    *,
    urls: Sequence[str] | None = None,
    renew: Callable[[str], str] | None = None,
    storage_options: Mapping[str, object] | None = None,
    topic: str | None = None,
    topic_id: str | None = None,
    partitions: Collection[int] | int | None = None,
    offsets: Offsets = None,
    isolation_level: str | IsolationLevel = IsolationLevel.READ_COMMITTED,
    columns: Collection[str] = DEFAULT_COLUMNS,
    split_bytes: int = DEFAULT_SPLIT_BYTES,
    batch_rows: int = DEFAULT_MAX_ROWS,
    batch_bytes: int = DEFAULT_MAX_BYTES,
    check_crcs: bool = True,
    on_corrupt: str = "fail",
    max_batch_bytes: int = DEFAULT_LIMIT,
    kernel: str | None = None,
) -> Scan:
    """The records at a location, as a scan that reads when it is asked to.

    Args:
        location: a directory, or a prefix in a bucket (``s3://``, ``abfss://``, ``gs://``, any fsspec URL), in Kafka's
            ``LocalTieredStorage`` layout or that of a broker's log directory; or one partition's directory in either;
            or the signed URL of one segment.
        urls: in place of a location: signed URLs of segments and their indexes, in any order.
        renew: called with a signed URL that has expired, gives another one for the same object.
        storage_options: credentials, endpoint and the like, under the names that pandas and Polars take; see
            ``docs/options.md``.
        topic: its name; every topic by default.
        topic_id: which topic of that name, where it was deleted and created again.
        partitions: which; all by default.
        offsets: ``"A:B"``, ``(A, B)`` or an ``OffsetRange``; ``B`` is exclusive, and either may be left out.
        isolation_level: ``read_committed`` (default) or ``read_uncommitted``.
        columns: which columns, in this order; see ``docs/architecture.md``. Others are not built.
        split_bytes: stored bytes of a split to aim at.
        batch_rows, batch_bytes: when a record batch is closed, whichever is reached first.
        check_crcs: whether batches must pass their CRC.
        on_corrupt: ``fail`` or ``skip``.
        max_batch_bytes: largest batch to hold, stored or decompressed.
        kernel: ``native`` or ``reference``; by default what is there.

    Raises:
        OptionError: an argument is unknown. ObjectNotFoundError: the directory is not there.
    """
    return Scan(
        open_source(location, urls=urls, renew=renew, storage_options=storage_options),
        topic=topic,
        topic_id=topic_id,
        partitions=[partitions] if isinstance(partitions, int) else partitions,
        offsets=offsets,
        isolation_level=isolation_level,
        split_bytes=split_bytes,
        options=ReadOptions(
            columns=tuple(columns),
            batch_rows=batch_rows,
            batch_bytes=batch_bytes,
            check_crcs=check_crcs,
            on_corrupt=on_corrupt,
            max_batch_bytes=max_batch_bytes,
            kernel=kernel,
        ),
    )
