"""One split, from its segment to files of the target and its ``done`` entry. Runs in a task, and knows no Spark.

A task may run twice, at the same time, and after the job has ended: only ``put_if_absent`` decides whose files count.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace
from uuid import uuid4

import pyarrow as pa

from segreader.backfill.digest import RecordDigest
from segreader.backfill.done import DoneEntry, read_done
from segreader.backfill.exact import JobSplit
from segreader.backfill.lost import LostOffsets
from segreader.backfill.output import READ_COLUMNS, SCHEMA, STAGING, OutputOptions, done_name
from segreader.backfill.source import (
    FellBackError,
    JobSource,
    Remains,
    around_damage,
    from_brokers,
    metrics_for,
    read_records,
)
from segreader.backfill.writer import SplitWriter
from segreader.errors import FormatError, ObjectChangedError, StorageError
from segreader.live.metrics import LiveMetrics
from segreader.plan.request import Policy
from segreader.read.metrics import ScanMetrics
from segreader.read.options import ReadOptions
from segreader.spark.buffers import READ_BYTES, this_pool
from segreader.spark.schema import to_spark
from segreader.storage.target.store import TargetStore

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
        options: how records are read; the columns are those of the output. ``on_corrupt='skip'`` goes on without
            damaged batches, where the offsets that they had can be told.
        attempt: Spark's number, for the entry.
        plan: name of the plan that the split is of, for the entry.

    Raises:
        SegreaderError: as reading or writing tells; nothing of the split is left behind then.
    """
    if (done := read_done(target, split.id)) is not None:
        return done, True
    began = time.monotonic()
    token = uuid4().hex[:12]
    number, read = split.partition.partition, split.read
    pool = this_pool(READ_BYTES + 3 * output.row_group_bytes // 2)  # a row group's batches wait until they are written
    options = options or ReadOptions()
    passes_over_damage = options.on_corrupt is Policy.SKIP
    options = replace(options, columns=READ_COLUMNS, on_corrupt=Policy.FAIL)
    earlier: list[str] = []
    remains: Remains | None = None
    while True:
        writer = SplitWriter(target, output, partition=number, start=split.start, stop=split.stop, token=token)
        metrics, digest = metrics_for(read), RecordDigest()
        try:
            batches = (
                read_records(read, source, options, metrics, pool)
                if remains is None
                else remains.read(source, options, metrics, pool)
            )
            for batch in batches:
                rows: pa.RecordBatch = to_spark(batch, SCHEMA)
                digest.update(rows)
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
    target.delete([(STAGING if target.has_atomic_move else "") + file.name for file in files])
    winner = read_done(target, split.id)
    assert winner is not None, "an entry that is there cannot be read"
    return winner, True


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
    stops = [end if one.stop is None or not isinstance(metrics, LiveMetrics) else one.stop for one in metrics.missing]
    found = zip(metrics.missing, stops, strict=True)
    return tuple(LostOffsets(one.start, stop, one.error) for one, stop in found if one.start < stop)


def _sources(metrics: ScanMetrics) -> dict[str, int]:
    """Records by source, where there may be several."""
    if not isinstance(metrics, LiveMetrics):
        return {}
    return {name: one.records for name, one in metrics.sources.items() if one.parts}
