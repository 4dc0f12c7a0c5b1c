"""The Python data source itself: Spark's calls on one side, ``plan_read`` and ``read_split`` on the other.

It has no ``pushFilters``: with pushdown on, Spark 4.1 to 4.3 return wrong rows when a DataFrame is used twice
(the pruned plan sticks to the relation). Rows are chosen by options, columns by a schema of the user's.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator, MutableMapping

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from segreader.errors import OptionError
from segreader.plan.split import Split
from segreader.read.metrics import ScanMetrics
from segreader.read.options import ReadOptions
from segreader.read.split_reader import read_split
from segreader.spark.options import SparkOptions, parse_options
from segreader.spark.planning import open_location, plan_read
from segreader.spark.schema import READ_NAMES, arrow_schema, project, spark_schema, to_spark

NAME = "segreader"

logger = logging.getLogger(__name__)


class SplitPartition(InputPartition):
    """One split as Spark's unit of work: names and numbers only, no client and no secret."""

    def __init__(self, split: Split) -> None:
        super().__init__(split)
        self.split = split


class SegmentReader(DataSourceReader):
    """Reads the columns asked for, one task per split."""

    def __init__(self, options: SparkOptions, columns: tuple[str, ...]) -> None:
        self.options = options
        self.columns = columns

    def partitions(self) -> list[InputPartition]:
        """The splits, largest first so that no long task ends the stage; planned once per ``load()``.

        Raises:
            SegreaderError: as ``plan_read`` tells.
        """
        plan = plan_read(self.options)
        _show_log()
        logger.info(
            "%s: %d partitions, %d splits, %d bytes stored, %s",
            plan.location,
            len(plan.partitions),
            len(plan.splits),
            plan.size,
            self.options.isolation_level,
        )
        for note in plan.notes:
            logger.warning("%s", note)
        for end in plan.ends:
            if end.damage is not None:
                raise end.damage  # no task would meet it
            if end.reason.is_early:
                logger.warning("%s", end.text)
        return [SplitPartition(split) for split in sorted(plan.splits, key=_descending_size)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one split, in offset order.

        Raises:
            SegreaderError: the data is damaged, after the records before it; or the bytes cannot be had.
        """
        if not isinstance(partition, SplitPartition):  # Spark's stand-in where there is nothing to read
            return
        _freeze_imports()
        store = open_location(self.options).store
        schema = arrow_schema(self.columns)
        metrics = ScanMetrics()
        read_options = ReadOptions(
            columns=tuple(READ_NAMES[name] for name in self.columns),
            batch_rows=self.options.batch_records,
            batch_bytes=self.options.batch_bytes,
        )
        for batch in read_split(partition.split, store, read_options, metrics=metrics):
            yield to_spark(batch, schema)
        _show_log()
        for note in metrics.notes:
            logger.warning("%s", note)


class SegmentSource(DataSource):
    """``spark.read.format("segreader")``: segments as rows with the columns of Spark's kafka source."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._parsed = parse_options(options)

    @classmethod
    def name(cls) -> str:
        """What ``format()`` and ``USING`` say."""
        return NAME

    def schema(self) -> StructType:
        """The columns without a schema of the user's."""
        return spark_schema(include_headers=self._parsed.include_headers)

    def reader(self, schema: StructType) -> SegmentReader:
        """A reader of these columns."""
        return SegmentReader(self._parsed, project(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Refused: this version reads batches.

        Raises:
            OptionError: always.
        """
        raise OptionError("streaming reads are not in this version of segreader", hint="Use spark.read")


def _descending_size(partition: Split) -> int:
    return -partition.positions.size


def _freeze_imports() -> None:
    """Once per worker: take what the imports made out of garbage collection.

    Spark collects after every task; with pyarrow loaded that costs 20 ms, with frozen imports 2.
    """
    if not gc.get_freeze_count():
        gc.collect()
        gc.freeze()


def _show_log() -> None:
    """Let this package's log lines reach stderr where nobody set up logging: in Spark's Python processes."""
    if not logging.getLogger().hasHandlers() and not logger.hasHandlers():
        package = logging.getLogger("segreader")
        package.addHandler(logging.StreamHandler())
        package.setLevel(logging.INFO)
