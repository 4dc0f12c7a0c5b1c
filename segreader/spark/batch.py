"""A batch read: Spark's calls on one side, plans and readers of splits on the other."""

from __future__ import annotations

import logging
import pickle
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from segreader.errors import ObjectNotFoundError
from segreader.plan.request import ReadOptions
from segreader.plan.split import ReadPlan, Split
from segreader.read.decoders import decoder_of
from segreader.read.metrics import MissingOffsets, ScanMetrics
from segreader.read.split_reader import SplitReader
from segreader.spark.columns import ALL_NAMES, arrow_schema, to_spark
from segreader.spark.locations import kept_locations
from segreader.spark.options import SparkOptions
from segreader.spark.planning import SPLITS_A_CORE, LightSplit, plan_splits
from segreader.spark.worker import freeze_imports, prepare_to_plan, show_log, this_pool, without_locals

if TYPE_CHECKING:  # a worker that asks no broker does not wait for what could
    from segreader.plan.live import LivePart

PACKED_BYTES: Final = 8 << 20
"""Splits that are stored in so many bytes together are one task of ``FrameTask``, where there are enough tasks."""

_MOST_IN_GROUP: Final = 64
_ROWS: Final = pa.schema([pa.field("rows", pa.int64())])

logger = logging.getLogger(__name__)


class SplitPartition(InputPartition):
    """One split, or one part of a live log, as Spark's unit of work: names and numbers, no client and no secret."""

    def __init__(self, split: LightSplit | LivePart) -> None:
        super().__init__(split)

    @property
    def split(self) -> Split:
        """The split, maybe without its aborted transactions."""
        split: Split = self.value.split
        return split

    @property
    def part(self) -> LivePart | None:
        """The part of a live log, where brokers are asked."""
        return None if isinstance(self.value, LightSplit) else self.value


class SegmentReader(DataSourceReader):
    """Reads the columns asked for, one task per split.

    Args:
        options: with the schemas that were learnt.
        schema: of the record batches; by default that of ``arrow_schema``.
    """

    def __init__(self, options: SparkOptions, columns: tuple[str, ...], schema: pa.Schema | None = None) -> None:
        self.options = options
        self.columns = columns
        self.schema = arrow_schema(columns, options.read_options) if schema is None else schema

    @without_locals
    def partitions(self) -> list[InputPartition]:
        """The splits, largest first so that no long task ends the stage; planned once per ``load()``.

        Raises:
            SegreaderError: as ``plan_splits``.
        """
        prepare_to_plan()
        return [SplitPartition(split) for split in self.plan()]

    @without_locals
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one split, in offset order.

        Raises:
            SegreaderError: the data is damaged, after the records before it; or the bytes cannot be had.
        """
        if not isinstance(partition, SplitPartition):  # Spark's stand-in where there is nothing to read
            return
        freeze_imports()
        show_log()
        metrics, batches = self._open(partition)
        budget, began = self.options.read_budget, time.monotonic()
        for batch in batches:
            yield to_spark(batch, self.schema)
            if budget is not None:
                time.sleep(max(0.0, metrics.bytes_read / budget - (time.monotonic() - began)))
        for note in (*metrics.notes, *map(_lost, metrics.missing)):
            logger.warning("%s", note)

    def plan(self, *, cores: int | None = None) -> list[LightSplit] | list[LivePart]:
        """The splits, largest first, and a log line that says what is read.

        Args:
            cores: how many tasks run at once; those of this machine by default.

        Raises:
            SegreaderError: as ``plan_splits``.
        """
        show_log()
        if self.options.brokers is not None:
            from segreader.spark.live import plan_live_read

            live = plan_live_read(self.options)
            parts = live.light_splits()
            _log_plan(live.plan, parts, self.options)
            return parts
        planned = plan_splits(self.options, cores=cores)
        try:
            splits = planned.light_splits()
            _log_plan(planned.plan, splits, self.options)
            if planned.advice is not None:
                logger.info("%s: %s", planned.plan.location, planned.advice)
            return splits
        finally:
            planned.store.close()

    def _open(self, partition: SplitPartition) -> tuple[ScanMetrics, Iterator[pa.RecordBatch]]:
        """The record batches of a split, and what counts while they are read."""
        options = self.options
        read_options = replace(options.read_options, columns=tuple(ALL_NAMES[name] for name in self.columns))
        if partition.part is None:
            metrics = ScanMetrics()
            return metrics, self._stored(partition.value, read_options, metrics)
        from segreader.read.metrics import LiveMetrics
        from segreader.spark.live import read_part

        counted = LiveMetrics()
        return counted, read_part(options, partition.part, read_options, counted)

    def _stored(self, split: LightSplit, options: ReadOptions, metrics: ScanMetrics) -> Iterator[pa.RecordBatch]:
        with kept_locations(self.options) as locations:
            try:
                whole = split.open(locations.store, locations.resolve)
                decoder = decoder_of(options)
                reader = SplitReader(locations.store, options, metrics=metrics, pool=this_pool(), decoder=decoder)
                yield from reader.read(whole)
            except ObjectNotFoundError as error:
                error.hint = "It was deleted after the plan was made: load() plans anew, failOnDataLoss=false goes on"
                raise


class FrameTask:
    """The work of ``DataFrame.mapInArrow``: each row of its frame is the number of a group of splits.

    It travels to every task. So the groups are pickles, of which a task opens its own alone.

    Args:
        reader: of the columns asked for.
        groups: of splits.
    """

    def __init__(self, reader: SegmentReader, groups: Sequence[Sequence[LightSplit | LivePart]]) -> None:
        self._reader = reader
        self._groups = tuple(pickle.dumps(tuple(group)) for group in groups)

    def __len__(self) -> int:
        return len(self._groups)

    @without_locals
    def records(self, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The records of the groups with these numbers; raises as ``SegmentReader.read``."""
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                for split in pickle.loads(self._groups[number]):
                    yield from self._reader.read(SplitPartition(split))

    @without_locals
    def counts(self, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """How many records that are, in one row."""
        rows = sum(batch.num_rows for batch in self.records(numbers))
        yield pa.record_batch([pa.array([rows], pa.int64())], schema=_ROWS)


def pack(
    splits: Sequence[LightSplit] | Sequence[LivePart], options: SparkOptions, *, cores: int
) -> list[list[LightSplit | LivePart]]:
    """The splits in groups, of which each is one task: several where they are tiny, and others go on beside them.

    Splits of which no size is known, and those that were cut by offsets, stay alone.

    Args:
        splits: the largest first.
        cores: how many tasks run at once.
    """
    if options.max_records_per_partition is not None:
        return [[split] for split in splits]
    total = sum(_stored_bytes(split) or 0 for split in splits)
    least = max(SPLITS_A_CORE * cores, options.min_partitions or 0)
    most_bytes = min(PACKED_BYTES, options.split_bytes, total // least)
    groups: list[list[LightSplit | LivePart]] = []
    room = 0
    for split in splits:
        size = _stored_bytes(split)
        if size is not None and groups and size <= room and len(groups[-1]) < _MOST_IN_GROUP:
            groups[-1].append(split)
            room -= size
        else:
            groups.append([split])
            room = 0 if size is None else most_bytes - size
    return groups


def _stored_bytes(split: LightSplit | LivePart) -> int | None:
    return split.split.positions.size if isinstance(split, LightSplit) else split.size


def _log_plan(plan: ReadPlan, splits: Sequence[LightSplit | LivePart], options: SparkOptions) -> None:
    """Log what is read, and the notes of the plan.

    Raises:
        FormatError: damage hides an end, and no task would meet it.
    """
    logger.info(
        "%s: %d partitions, %d splits, %d bytes stored, %s",
        plan.location,
        len({one.split.partition if isinstance(one, LightSplit) else one.partition for one in splits}),
        len(splits),
        plan.size,
        options.isolation_level,
    )
    for note in plan.notes:
        logger.warning("%s", note)
    for end in plan.ends:
        if end.damage is not None:
            raise end.damage
        if end.reason.is_early:
            logger.warning("%s", end.text)
    if plan.gaps:
        logger.warning("%d offsets are in no segment", sum(gap.stop - gap.start for gap in plan.gaps))


def _lost(missing: MissingOffsets) -> str:
    """What a task skipped because ``failOnDataLoss`` is false."""
    end = "its end" if missing.stop is None else str(missing.stop - 1)
    return f"{missing.partition}: offsets {missing.start} to {end} are passed over: {missing.error}"
