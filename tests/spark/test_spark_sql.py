"""The source in SQL: a temporary view has options, a table of the catalog has none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from corpus import CORPUS
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from segreader.errors import OptionError
from segreader.spark import read, register
from segreader.spark.options import parse_options

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

REMOTE = str(CORPUS / "tv2" / "remote")
VIEW = f"""CREATE TEMPORARY VIEW orders USING segreader OPTIONS (
    location '{REMOTE}', subscribe 'multi', startingOffsets '{{"multi":{{"1":100}}}}',
    startingOffsetsDefault 'earliest')"""


@pytest.fixture(autouse=True)
def _registered(spark: SparkSession) -> Iterator[None]:
    register(spark)
    yield
    spark.catalog.dropTempView("orders")


def test_a_temporary_view_reads_with_its_options(spark: SparkSession) -> None:
    spark.sql(VIEW)
    starts = spark.sql(
        "SELECT partition, min(offset) AS first FROM orders GROUP BY partition ORDER BY partition"
    ).collect()

    assert [tuple(row) for row in starts] == [(0, 0), (1, 100), (2, 0), (3, 0)]


def test_a_frame_that_was_read_may_be_a_view(spark: SparkSession) -> None:
    frame = read(spark, REMOTE, subscribe="multi")
    frame.createOrReplaceTempView("orders")
    (row,) = spark.sql("SELECT count(*) AS records FROM orders").collect()

    assert row.records == frame.count()


@pytest.mark.parametrize(
    "rest",
    ["", f"LOCATION '{REMOTE}'", "OPTIONS (subscribe 'multi')", f"OPTIONS (path '{REMOTE}', subscribe 'multi')"],
)
def test_a_table_is_refused_with_what_to_do(spark: SparkSession, rest: str) -> None:
    with pytest.raises(
        PySparkException, match=r"cannot be made of segreader.*CREATE TEMPORARY VIEW name USING segreader"
    ):
        spark.sql(f"CREATE TABLE orders USING segreader {rest}")


def test_a_source_without_any_option_is_that_of_a_table() -> None:
    with pytest.raises(OptionError, match=r"location is missing.*CREATE TEMPORARY VIEW"):
        parse_options({})
