"""The Python data source that Spark finds: its name, its columns, and a reader for a batch or a stream.

It has no ``pushFilters``: with pushdown on, Spark 4.1 to 4.3 return wrong rows when a DataFrame is used twice
(the pruned plan sticks to the relation). Rows are chosen by options, columns by a schema of the user's.
"""

from __future__ import annotations

from collections.abc import MutableMapping

from pyspark.sql.datasource import DataSource, DataSourceStreamReader
from pyspark.sql.types import StructType

from segreader.spark.batch import SegmentReader
from segreader.spark.options import parse_options, require_batch
from segreader.spark.read_limits import require_limits
from segreader.spark.schema import project, spark_schema
from segreader.spark.worker import show_log, without_locals

NAME = "segreader"


class SegmentSource(DataSource):
    """``spark.read.format("segreader")``: segments as rows with the columns of Spark's kafka source."""

    @without_locals
    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        show_log()
        self._parsed = parse_options(options)
        require_limits(self._parsed)

    @classmethod
    def name(cls) -> str:
        """What ``format()`` and ``USING`` say."""
        return NAME

    def schema(self) -> StructType:
        """The columns without a schema of the user's."""
        return spark_schema(include_headers=self._parsed.include_headers, raw_columns=self._parsed.raw_columns)

    def reader(self, schema: StructType) -> SegmentReader:
        """A reader of these columns.

        Raises:
            OptionError: the schema has other columns, or the options are those of a stream.
        """
        require_batch(self._parsed)
        return SegmentReader(self._parsed, project(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A reader of these columns that goes on with what is uploaded."""
        from segreader.spark.stream import stream_reader  # a batch read does without

        return stream_reader(self.options, schema)
