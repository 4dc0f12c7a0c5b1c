"""Why the source has no ``pushFilters``: a toy source that has it, and what Spark makes of it.

With pushdown on, Spark keeps the pruned plan where every use of a DataFrame finds it, so one use is given the rows of
another. Each case is expected to fail; the first Spark that passes one tells by that that it is mended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

HAS_PUSHDOWN = hasattr(DataSourceReader, "pushFilters")
"""Spark 4.0 has none: there the same source is read whole, and every case is right."""


@pytest.fixture
def toy(spark: SparkSession) -> Callable[[], DataFrame]:
    """Loads three partitions of ten rows, with pushdown on: in a session of its own, so that it is on nowhere else."""
    session = spark.newSession()
    session.conf.set("spark.sql.python.filterPushdown.enabled", "true")

    # Classes of a function travel by value: no worker has to import this module.
    class Reader(DataSourceReader):
        def __init__(self) -> None:
            self.wanted = [0, 1, 2]

        def pushFilters(self, filters: list[Any]) -> Iterable[Any]:
            for one in filters:
                if type(one).__name__ == "EqualTo" and one.attribute == ("partition",):
                    self.wanted = [one.value]
                else:
                    yield one

        def partitions(self) -> list[InputPartition]:
            return [InputPartition(partition) for partition in self.wanted]

        def read(self, partition: InputPartition) -> Iterator[tuple[int, int]]:
            return ((partition.value, offset) for offset in range(10))

    class Toy(DataSource):
        @classmethod
        def name(cls) -> str:
            return "toy"

        def schema(self) -> str:
            return "partition int, offset int"

        def reader(self, schema: StructType) -> DataSourceReader:
            return Reader()

    session.dataSource.register(Toy)
    return session.read.format("toy").load


def filtered_then_whole(load: Callable[[], DataFrame]) -> list[int]:
    frame = load()
    return [frame.where("partition = 1").count(), frame.count()]


def filtered_beside_whole(load: Callable[[], DataFrame]) -> list[int]:
    frame = load()
    return [frame.where("partition = 1").union(frame).count()]


def two_filters(load: Callable[[], DataFrame]) -> list[int]:
    frame = load()
    both = frame.where("partition = 1").union(frame.where("partition = 2"))
    return sorted(row["partition"] for row in both.collect())


def a_view(load: Callable[[], DataFrame]) -> list[int]:
    frame = load()
    frame.createOrReplaceTempView("toys")
    sql = frame.sparkSession.sql
    return [sql("SELECT * FROM toys WHERE partition = 1").count(), sql("SELECT * FROM toys").count()]


@pytest.mark.xfail(HAS_PUSHDOWN, reason="Spark mixes up two uses of a DataFrame", raises=AssertionError, strict=True)
@pytest.mark.parametrize(
    ("use", "right"),
    [
        (filtered_then_whole, [10, 30]),
        (filtered_beside_whole, [40]),
        (two_filters, [1] * 10 + [2] * 10),
        (a_view, [10, 30]),
    ],
)
def test_a_frame_that_is_used_twice_gives_each_use_its_rows(
    toy: Callable[[], DataFrame], use: Callable[[Callable[[], DataFrame]], list[int]], right: list[int]
) -> None:
    assert use(toy) == right


def test_frames_of_two_loads_have_nothing_to_do_with_each_other(toy: Callable[[], DataFrame]) -> None:
    assert [toy().where("partition = 1").count(), toy().count()] == [10, 30]


@pytest.mark.skipif(not HAS_PUSHDOWN, reason="Spark 4.0 pushes no filter down")
def test_a_filter_does_reach_the_source(toy: Callable[[], DataFrame]) -> None:
    assert toy().where("partition = 1").rdd.getNumPartitions() == 1
