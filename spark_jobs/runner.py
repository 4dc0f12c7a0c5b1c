"""Units of work in tasks of Spark's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyspark.sql import SparkSession

from segreader.backfill.task import DDL, SplitTask
from spark_jobs.session import map_indexes


class SparkRunner:
    """Runs units of work as tasks of one Spark job.

    Args:
        text: describes the job in Spark's UI.
    """

    def __init__(self, spark: SparkSession, text: str) -> None:
        self._spark, self._text = spark, text

    def run(self, task: SplitTask, groups: Sequence[Sequence[int]]) -> Iterator[bytes]:
        """The entries, once all groups are done: Spark gives a driver no part of a result before.

        Raises:
            PySparkException: a task failed for good; see ``explained``.
        """
        for row in map_indexes(self._spark, task.of_spark, len(groups), DDL, self._text).collect():
            yield row["entry"].encode()
