"""Segments in Spark: ``read(spark, location, …)``, or ``register(spark)`` and ``spark.read.format("segreader")``."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


def register(spark: SparkSession) -> None:
    """Make ``format("segreader")`` known in this session.

    Spark finds the source by itself where ``pyspark_segreader`` is on its path. A session made by
    ``newSession()`` needs its own call; a second call changes nothing. Where nothing says which Python a session on
    this machine starts for its workers, it is the one that calls.

    Raises:
        ImportError: the reason why the source cannot be loaded, which Spark itself does not show.
        OptionError: ``PYSPARK_PYTHON`` names a Python that has no segreader.
    """
    from pyspark.errors import AnalysisException

    from segreader.spark.source import SegmentSource
    from segreader.spark.worker import choose_python

    choose_python(spark)
    try:
        spark.dataSource.register(SegmentSource)
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":  # Spark 4.0, where it has found it by itself
            raise


def read(
    spark: SparkSession,
    location: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
    options: Mapping[str, object] | None = None,
    *,
    schema: StructType | str | None = None,
    columns: Sequence[str] | None = None,
    **more: object,
) -> DataFrame:
    """The records that ``format("segreader")`` reads with these options, for less CPU.

    The plan is made now, in this process, which needs access to the location as tasks do. The frame is lazy: its tasks
    read the splits of this plan whenever it is used. Its own ``count()`` decodes no values, unless it is cached.

    Args:
        spark: a session, of Spark Connect, too.
        location: directory or URL with the segments, or several; the same as the option.
        options: by the names of the data source: ``{"storage.region": "eu-west-1"}``. Values may be texts, numbers,
            booleans, and lists and mappings in place of JSON; ``None`` is as if not given.
        schema: the columns, some of them in any order, as ``spark.read.schema`` takes it.
        columns: the same by their names alone.
        more: options whose name is a word: ``subscribe="orders"``.

    Raises:
        OptionError: an option is unknown, missing or malformed, or a column is.
        SegreaderError: there is no such topic, or it cannot be planned; the message says why.
    """
    from segreader.spark.source import read_frame
    from segreader.spark.worker import choose_python

    choose_python(spark)
    return read_frame(spark, location, {**(options or {}), **more}, schema=schema, columns=columns)
