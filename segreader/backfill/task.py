"""The work of a task: splits, each from its segments to files in the target and its ``done`` entry.

The same split may run twice, at the same time, and after the job has ended: only ``put_if_absent`` decides whose files
count. What travels to a task pickles, and holds no secret: each process finds credentials for itself.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, suppress
from dataclasses import field, replace
from functools import partial
from heapq import heapreplace
from typing import Final
from uuid import uuid4

import pyarrow as pa

from segreader.backfill.digest import RecordDigest
from segreader.backfill.done import DoneEntry, read_done
from segreader.backfill.job_splits import JobSplit, LostOffsets, SplitTexts
from segreader.backfill.lake.place import TablePlace
from segreader.backfill.lake.table import LakeTable
from segreader.backfill.output import OutputOptions, done_name
from segreader.backfill.source import (
    TASK_BYTES_AHEAD,
    TASK_THREADS,
    FellBackError,
    JobSource,
    Readable,
    Remains,
    ahead_of_writer,
    around_damage,
    from_brokers,
    kept_source,
    metrics_for,
    read_records,
)
from segreader.backfill.writer import SplitWriter
from segreader.errors import FormatError, ObjectChangedError, OptionError, StorageError
from segreader.format.columns import BufferPool
from segreader.plan.request import Policy, ReadOptions
from segreader.read.metrics import LiveMetrics, ScanMetrics
from segreader.spark.columns import to_spark
from segreader.spark.credentials import parse_provider, resolve_storage
from segreader.spark.options import STORAGE, parse_options, require_usable
from segreader.spark.worker import READ_BYTES, freeze_imports, this_pool, this_worker, without_locals
from segreader.storage.signed_url import redact
from segreader.storage.target.store import TargetStore, open_target
from segreader.values import dataclass


@dataclass(frozen=True, slots=True)
class Destination:
    """The target of a job; each process opens it for itself.

    Args:
        location: a directory, or the URL of one in a bucket.
        credentials: name of the provider, as the option of the data source; see ``segreader.spark.credentials``.
        settings: storage options; a secret among them is ``env:VARIABLE``.
        table: an Iceberg table whose catalog knows how its store is reached, in place of credentials and settings.
        is_vended: whether the catalog gives that with the table: each process asks it, and asks again for each task.

    Raises:
        OptionError: one of them holds a credential.
    """

    location: str
    credentials: str = "default"
    settings: Mapping[str, str] = field(default_factory=dict)
    table: TablePlace | None = None
    is_vended: bool = False

    def __post_init__(self) -> None:
        parse_provider(self.credentials)
        require_usable({f"{STORAGE}{name.lower()}": text for name, text in self.settings.items()})
        if any(redact(text) != text for text in (self.location, *self.settings.values())):
            raise OptionError(
                "the target holds a credential, and a job shows its target to everyone",
                found=redact(self.location),
                hint="Name what gives credentials instead: default, env:PREFIX or module:callable",
            )

    def of_table(self, table: LakeTable) -> Destination:
        """The destination for the files of a table that is there; its catalog is asked what it gives."""
        is_vended = self.table is not None and bool(table.vended())
        return replace(self, location=table.location, is_vended=is_vended)

    def open(self) -> TargetStore:
        """The target, with the credentials that this process has."""
        return open_target(self.location, self._storage())

    def kept(self) -> AbstractContextManager[TargetStore]:
        """The target for the time of a block, over a client that this worker keeps.

        The provider of credentials is asked all the same: where it gives others, the client is opened anew.
        """
        return this_worker().target(self.location, self._storage())

    def _storage(self) -> Mapping[str, object]:
        if self.table is not None and (given := self.table.storage(self.location, is_vended=self.is_vended)):
            return given
        return resolve_storage(self.credentials, self.location, self.settings)


_MANY_FILES = 64
_REPLACED = (
    "The plan of the job, and what is done of it, are of the log that was there before: begin it anew with --force, or "
    "with another target"
)


def do_split(
    split: JobSplit,
    source: JobSource,
    target: TargetStore,
    output: OutputOptions,
    *,
    options: ReadOptions | None = None,
    attempt: int = 0,
    plan: str = "",
) -> tuple[DoneEntry, bool]:
    """The entry of the split, and whether another attempt had written it.

    Args:
        source: what the split is read from.
        options: how records are read, and how far ahead of what is written; the columns are those of the output.
            ``on_corrupt='skip'`` goes on without damaged batches if their offsets are known.
        attempt: its number, for the entry.
        plan: name of the plan that the split is of, for the entry.

    Raises:
        SegreaderError: while reading or writing; nothing of the split is left behind then.
    """
    if (done := read_done(target, split.id)) is not None:
        return done, True
    began = time.monotonic()
    token = uuid4().hex[:12]
    number, read = split.partition.partition, split.read
    options = options or ReadOptions()
    threads = options.threads_for(is_remote=True, default=TASK_THREADS)
    most_bytes = options.most_bytes_ahead(is_remote=True, default=TASK_BYTES_AHEAD)
    # a row group's batches wait until they are written
    pool = this_pool(READ_BYTES + 3 * output.row_group_bytes // 2 + (most_bytes // 2 if threads > 1 else 0))
    passes_over_damage = options.on_corrupt is Policy.SKIP
    options = replace(options, on_corrupt=Policy.FAIL, **output.reading)
    schema = output.records
    earlier: list[str] = []
    remains: Remains | None = None
    while True:
        writer = SplitWriter(target, output, partition=number, start=split.start, stop=split.stop, token=token)
        metrics, digest = metrics_for(read), RecordDigest()
        try:
            make = partial(_rows, read, source, options, metrics, pool, remains, digest, schema)
            with closing(ahead_of_writer(make, threads=threads, most_bytes=most_bytes)) as batches:
                for rows in batches:
                    writer.write(rows)
            files = writer.finish()
            break
        except FellBackError:
            writer.discard()
            earlier, read = metrics.notes, from_brokers(read)
        except BaseException as error:
            if isinstance(error, FormatError) and passes_over_damage and remains is None:
                writer.discard()
                remains = around_damage(read, source, options, error)
                continue
            if (done := _lost_to_another(writer, target, split, error)) is not None:
                return done, True
            if isinstance(error, ObjectChangedError):
                error.hint = _REPLACED
            raise
    notes = list(dict.fromkeys([*earlier, *metrics.notes]))
    if len(files) > _MANY_FILES:
        notes.append(f"{split.id}: {len(files)} files, for its timestamps are out of order: choose another layout")
    entry = DoneEntry(
        split=split.id,
        topic=split.partition.topic,
        partition=split.partition.partition,
        start=split.start,
        stop=split.stop,
        token=token,
        records=digest.records,
        files=files,
        digest=digest.value(),
        control_batches=metrics.control_batches,
        control_records=metrics.control_records,
        aborted_batches=metrics.aborted_batches,
        aborted_records=metrics.aborted_records,
        undecodable=metrics.undecodable,
        size=split.size,
        bytes_read=metrics.bytes_read,
        requests=metrics.requests,
        seconds=round(time.monotonic() - began, 3),
        attempt=attempt,
        kernel=metrics.kernel,
        notes=tuple(notes),
        lost=_lost(split, metrics),
        damaged=() if remains is None else remains.lost,
        plan=plan,
        sources=_sources(metrics),
    )
    if target.put_if_absent(done_name(split.id), entry.to_bytes()):
        return entry, False
    target.delete([output.staging(target.has_atomic_move) + file.name for file in files])
    winner = read_done(target, split.id)
    assert winner is not None, "an entry that is there cannot be read"
    return winner, True


def _rows(
    read: Readable,
    source: JobSource,
    options: ReadOptions,
    metrics: ScanMetrics,
    pool: BufferPool,
    remains: Remains | None,
    digest: RecordDigest,
    schema: pa.Schema,
) -> Iterator[pa.RecordBatch]:
    """The records as they are written."""
    for batch in read_records(read, source, options, metrics, pool, remains):
        rows = to_spark(batch, schema)
        del batch
        digest.update(rows)
        yield rows
        del rows  # its buffers are free while the next one is read


def _lost_to_another(
    writer: SplitWriter, target: TargetStore, split: JobSplit, error: BaseException
) -> DoneEntry | None:
    """Leave nothing behind; the entry of another attempt, if it is that one's end that made this one fail."""
    with suppress(StorageError):  # what stays is an orphan; the first error tells more
        writer.discard()
    # the end of its job has removed what this attempt was writing
    return read_done(target, split.id) if isinstance(error, StorageError) else None


def _lost(split: JobSplit, metrics: ScanMetrics) -> tuple[LostOffsets, ...]:
    """What vanished while it was read: of a segment all that was left, of a live log up to where it begins now."""
    end = split.read.offsets.stop or split.stop
    stops = [end if one.stop is None else one.stop for one in metrics.missing]
    found = zip(metrics.missing, stops, strict=True)
    return tuple(LostOffsets(one.start, stop, one.error) for one, stop in found if one.start < stop)


def _sources(metrics: ScanMetrics) -> dict[str, int]:
    """Records by source, where there may be several."""
    if not isinstance(metrics, LiveMetrics):
        return {}
    return {name: one.records for name, one in metrics.sources.items() if one.parts}


DDL: Final = "split string, entry string, is_reused boolean"
"""Spark's schema of what the function yields."""

_SCHEMA = pa.schema([("split", pa.string()), ("entry", pa.string()), ("is_reused", pa.bool_())])
_LEAST_TASK_BYTES: Final = 32 << 20
_LEAST_TASKS: Final = 8


class SplitTask:
    """Does some of its splits, in any process: called with their indexes by an engine, or with rows by Spark.

    ``frame.mapInArrow(task.of_spark, DDL)``: each row of the frame is the number of one of ``groups``.

    Args:
        options: those of the data source.
        output: how records become files.
        target: where they go.
        splits: in the order in which they shall be begun.
        plan: name of the plan that they are of.
        on_missing: ``skip`` goes on without a segment that has vanished since the plan was made.
        on_corrupt: ``skip`` goes on without damaged batches.
        threads: of a task: one that writes, and one that reads ahead of it; with 1, one does both in turn. ``None``
            takes ``SEGREADER_THREADS`` of the executor, or else 2.
        read_ahead_bytes: of a task; ``None`` takes ``SEGREADER_READ_AHEAD_BYTES`` of the executor, or else 128 MiB.
    """

    def __init__(
        self,
        options: Mapping[str, str],
        output: OutputOptions,
        target: Destination,
        splits: Sequence[JobSplit],
        plan: str = "",
        *,
        on_missing: Policy = Policy.FAIL,
        on_corrupt: Policy = Policy.FAIL,
        threads: int | None = None,
        read_ahead_bytes: int | None = None,
    ) -> None:
        self._options = dict(options)
        self._on_missing = on_missing
        self._on_corrupt = on_corrupt
        self._threads, self._read_ahead_bytes = threads, read_ahead_bytes
        self._output = output
        self._target = target
        self._plan = plan
        self._splits = SplitTexts(splits)
        self.groups = grouped([split.size for split in splits])

    def __call__(self, indexes: Sequence[int]) -> Iterator[bytes]:
        """The entry of each of these splits, as ``DoneEntry.to_bytes`` writes it.

        Raises:
            SegreaderError: as ``do_split``.
        """
        return self.attempt(indexes, 0)

    def attempt(self, indexes: Sequence[int], number: int) -> Iterator[bytes]:
        """The same; the entries record this number of the attempt."""
        for entry, _ in self._done(indexes, number):
            yield entry.to_bytes()

    def name_of(self, index: int) -> str:
        """The id of one of these splits, for an engine that must say which one failed."""
        return self._splits[index].id

    @without_locals
    def of_spark(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One row for each split; see ``DDL``.

        Raises:
            SegreaderError: as ``do_split``. Spark hands it to the driver as text.
        """
        from pyspark import TaskContext  # only Spark's workers have it

        numbers = [number for batch in batches for number in batch.column(0).to_pylist()]
        if not numbers:
            return
        freeze_imports()
        context = TaskContext.get()
        attempt = context.attemptNumber() if context is not None else 0
        for entry, is_reused in self._done([index for number in numbers for index in self.groups[number]], attempt):
            yield pa.RecordBatch.from_pydict(
                {"split": [entry.split], "entry": [entry.to_bytes().decode()], "is_reused": [is_reused]}, _SCHEMA
            )

    def _done(self, indexes: Sequence[int], attempt: int) -> Iterator[tuple[DoneEntry, bool]]:
        options = parse_options(self._options, on_missing=self._on_missing)
        reading = replace(
            options.read_options,
            on_corrupt=self._on_corrupt,
            threads=self._threads,
            read_ahead_bytes=self._read_ahead_bytes,
        )
        with kept_source(options) as source, self._target.kept() as target:
            for index in indexes:
                yield do_split(
                    self._splits[index],
                    source,
                    target,
                    self._output,
                    options=reading,
                    attempt=attempt,
                    plan=self._plan,
                )


def grouped(sizes: Sequence[int]) -> list[list[int]]:
    """Indexes of splits, in units of work: a large split is one alone, small ones share one; the largest unit first.

    Args:
        sizes: stored bytes of each split, the largest first; 0 where it is unknown, and the split is alone then.
    """
    alone = [[index] for index, size in enumerate(sizes) if not size]
    known = [(size, index) for index, size in enumerate(sizes) if size]
    least = _LEAST_TASKS if sum(sizes) > _LEAST_TASK_BYTES else 1
    count = min(len(known), max(least, -(-sum(sizes) // _LEAST_TASK_BYTES)))
    units: list[tuple[int, list[int]]] = [(0, []) for _ in range(count)]
    room = [(0, unit) for unit in range(count)]  # a heap: each split goes where least is so far
    for size, index in known:
        total, unit = room[0]
        heapreplace(room, (total + size, unit))
        units[unit] = (total + size, [*units[unit][1], index])
    units.sort(key=lambda one: -one[0])
    return alone + [indexes for _, indexes in units]
