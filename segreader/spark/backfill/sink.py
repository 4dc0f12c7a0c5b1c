"""One split, from its segment to files of the target and its ``done`` entry. Runs in a task, and knows no Spark.

A task may run twice, at the same time, and after the job has ended: only ``put_if_absent`` decides whose files count.
"""

from __future__ import annotations

import time
from contextlib import suppress
from uuid import uuid4

import pyarrow as pa

from segreader.errors import StorageError
from segreader.read.metrics import ScanMetrics
from segreader.read.options import ReadOptions
from segreader.read.split_reader import read_split
from segreader.spark.backfill.digest import RecordDigest
from segreader.spark.backfill.done import DoneEntry, read_done
from segreader.spark.backfill.exact import JobSplit
from segreader.spark.backfill.lost import LostOffsets
from segreader.spark.backfill.output import READ_COLUMNS, SCHEMA, STAGING, OutputOptions, done_name
from segreader.spark.backfill.writer import SplitWriter
from segreader.spark.buffers import READ_BYTES, this_pool
from segreader.spark.schema import to_spark
from segreader.storage.base import ObjectStore
from segreader.storage.target import TargetStore

_MANY_FILES = 64


def do_split(
    split: JobSplit,
    store: ObjectStore,
    target: TargetStore,
    output: OutputOptions,
    *,
    batch_records: int = 65536,
    batch_bytes: int = 4 << 20,
    attempt: int = 0,
    on_missing: str = "fail",
    plan: str = "",
) -> tuple[DoneEntry, bool]:
    """The entry of the split, and whether another attempt had written it.

    Args:
        store: what the segments are read from.
        batch_records, batch_bytes: where a record batch ends, whichever comes first.
        attempt: Spark's number, for the entry.
        on_missing: ``skip`` goes on without a segment that has vanished since the plan was made.
        plan: name of the plan that the split is of, for the entry.

    Raises:
        SegreaderError: as reading or writing tells; nothing of the split is left behind then.
    """
    if (done := read_done(target, split.id)) is not None:
        return done, True
    began = time.monotonic()
    token = uuid4().hex[:12]
    writer = SplitWriter(
        target, output, partition=split.partition.partition, start=split.start, stop=split.stop, token=token
    )
    metrics, digest = ScanMetrics(), RecordDigest()
    pool = this_pool(READ_BYTES + 3 * output.row_group_bytes // 2)  # a row group's batches wait until they are written
    options = ReadOptions(
        columns=READ_COLUMNS, batch_rows=batch_records, batch_bytes=batch_bytes, on_missing=on_missing
    )
    try:
        for batch in read_split(split.read, store, options, metrics=metrics, pool=pool):
            rows: pa.RecordBatch = to_spark(batch, SCHEMA)
            digest.update(rows)
            writer.write(rows)
        files = writer.finish()
    except BaseException as error:
        with suppress(StorageError):  # what stays is an orphan; the first error tells more
            writer.discard()
        if isinstance(error, StorageError) and (done := read_done(target, split.id)) is not None:
            return done, True  # the end of its job has removed what this attempt was writing
        raise
    notes = list(dict.fromkeys(metrics.notes))
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
        lost=tuple(
            LostOffsets(one.start, split.read.offsets.stop or split.stop, one.error)
            for one in metrics.missing
            if one.start < (split.read.offsets.stop or split.stop)
        ),
        plan=plan,
    )
    if target.put_if_absent(done_name(split.id), entry.to_bytes()):
        return entry, False
    target.delete([(STAGING if target.has_atomic_move else "") + file.name for file in files])
    winner = read_done(target, split.id)
    assert winner is not None, "an entry that is there cannot be read"
    return winner, True
