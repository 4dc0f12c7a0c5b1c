"""Segments in Spark: ``register(spark)``, then ``spark.read.format("segreader")``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Make ``format("segreader")`` known in this session.

    Spark finds the source by itself where ``pyspark_segreader`` is on its path. A session made by
    ``newSession()`` needs its own call; a second call changes nothing.

    Raises:
        ImportError: the reason why the source cannot be loaded, which Spark itself does not show.
    """
    from pyspark.errors import AnalysisException

    from segreader.spark.source import SegmentSource

    try:
        spark.dataSource.register(SegmentSource)
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":  # Spark 4.0, where it has found it by itself
            raise
