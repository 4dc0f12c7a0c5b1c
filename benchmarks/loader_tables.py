"""A topic in DuckDB and Polars: its segments, what a consumer is given of it, and a Parquet copy."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import KafkaError, Message, TopicPartition

import segreader
import segreader.duckdb
import segreader.polars
from benchmarks.broker_kit import Offsets, open_consumer
from benchmarks.rows import MIB, Row

ROW_GROUP = 122_880
_AT_ONCE = 10_000
TIMES_CONSUMER, TIMES_PARQUET, TIMES_PARQUET_POLARS = 6.0, 1.2, 1.5
_FROM_MESSAGE: Mapping[str, Callable[[Message], Any]] = {
    "key": Message.key,
    "value": Message.value,
    "partition": Message.partition,
    "offset": Message.offset,
}


@dataclass(frozen=True, slots=True)
class Query:
    """What is asked of all sides.

    Args:
        name: of the figure.
        sql: of the table ``records``.
        where, what: the same for Polars.
        columns: that a thoughtful user of a consumer would put into Arrow for it.
        assigned: what that user would read: offsets by partition.
        reads_rows: whether Parquet has to; if not, its time is for comparison only.
    """

    name: str
    sql: str
    where: pl.Expr | None
    what: tuple[pl.Expr, ...]
    columns: tuple[str, ...]
    assigned: Offsets
    reads_rows: bool = True


def queries(offsets: Offsets) -> list[Query]:
    """Count everything; some offsets of one partition; a condition on every key of the topic."""
    first, stop = offsets[1]
    quarter = (stop - first) // 4
    some = first + quarter, stop - quarter
    what = pl.len(), pl.col("value").bin.size().cast(pl.Int64).sum()
    return [
        Query("count(*)", "select count(*) from records", None, what[:1], ("offset",), offsets, reads_rows=False),
        Query(
            "half a partition",
            'select count(*), sum(octet_length(value)) from records where partition = 1 and "offset" between '
            f"{some[0]} and {some[1] - 1}",
            (pl.col("partition") == 1) & pl.col("offset").is_between(some[0], some[1] - 1),
            what,
            ("partition", "offset", "value"),
            {1: some},
        ),
        Query(
            "half the keys",
            "select count(*), sum(octet_length(value)) from records where key >= 'key-5'::blob",
            pl.col("key") >= b"key-5",
            what,
            ("key", "value"),
            offsets,
        ),
    ]


@dataclass(frozen=True, slots=True)
class Table:
    """The topic, wherever it is.

    Args:
        bootstrap: a broker that has all of it on its disk.
        topic: its name.
        stored: what ``segreader.scan`` is told to find all of it in files.
        copy: a directory of Parquet files.
    """

    bootstrap: str
    topic: str
    stored: Mapping[str, Any]
    copy: Path

    def by_segreader(self, query: Query) -> object:
        """DuckDB, from the segments."""
        with duckdb.connect() as connection:
            dataset = segreader.duckdb.register(connection, "records", **self.stored)
            try:
                return connection.sql(query.sql).fetchall()
            finally:
                dataset.close()

    def by_consumer(self, query: Query) -> object:
        """DuckDB, from the broker, with no more columns and offsets than it takes."""
        schema = pa.schema([segreader.scan(**self.stored).schema.field(name) for name in query.columns])
        batches = (
            pa.RecordBatch.from_arrays(
                [pa.array(map(_FROM_MESSAGE[field.name], messages), field.type) for field in schema], schema=schema
            )
            for messages in consumed(self.bootstrap, self.topic, query.assigned)
        )
        with duckdb.connect() as connection:
            connection.register("records", pa.RecordBatchReader.from_batches(schema, batches))
            return connection.sql(query.sql).fetchall()

    def by_parquet(self, query: Query) -> object:
        """DuckDB, from the copy."""
        with duckdb.connect() as connection:
            connection.sql(f"create view records as select * from read_parquet('{self.copy}/*.parquet')")
            return connection.sql(query.sql).fetchall()

    def by_segreader_polars(self, query: Query) -> object:
        """Polars, from the segments."""
        return _collected(segreader.polars.scan(**self.stored), query)

    def by_parquet_polars(self, query: Query) -> object:
        """Polars, from the copy."""
        return _collected(pl.scan_parquet(self.copy / "*.parquet"), query)

    def write_copy(self) -> int:
        """Make the copy, a file for each partition, with pyarrow's defaults but for compression; returns its bytes."""
        self.copy.mkdir()
        with segreader.scan(**self.stored) as scan:
            names = sorted({end.partition.partition for end in scan.plan().ends})
        for name in names:
            with (
                segreader.scan(**self.stored, partitions=name) as scan,
                pq.ParquetWriter(self.copy / f"{name}.parquet", scan.schema, compression="none") as out,
            ):
                for table in _in_groups(scan.to_batches(), ROW_GROUP):
                    out.write_table(table, row_group_size=ROW_GROUP)
        return sum(file.stat().st_size for file in self.copy.iterdir())


def _collected(records: pl.LazyFrame, query: Query) -> object:
    chosen = records if query.where is None else records.filter(query.where)
    return chosen.select(*query.what).collect().rows()


def _in_groups(batches: Iterator[pa.RecordBatch], rows: int) -> Iterator[pa.Table]:
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        while (count := sum(one.num_rows for one in held)) >= rows:
            table = pa.Table.from_batches(held)
            yield table.slice(0, rows)
            held = table.slice(rows).to_batches() if count > rows else []
    if held:
        yield pa.Table.from_batches(held)


def consumed(bootstrap: str, topic: str, offsets: Offsets) -> Iterator[Sequence[Message]]:
    """The messages at these offsets, ten thousand at a time, as confluent-kafka gives them."""
    consumer = open_consumer(bootstrap)
    left = {partition: stop - first for partition, (first, stop) in offsets.items()}
    try:
        consumer.assign([TopicPartition(topic, partition, first) for partition, (first, _) in offsets.items()])
        while any(left.values()):
            messages = []
            for message in consumer.consume(_AT_ONCE, 1.0):
                error = message.error()
                if error is None:
                    partition = message.partition()
                    assert partition is not None
                    if left[partition]:
                        left[partition] -= 1
                        messages.append(message)
                elif error.code() != KafkaError._PARTITION_EOF:
                    raise RuntimeError(str(error))
            yield messages
    finally:
        consumer.close()


def measure_tables(table: Table, offsets: Offsets, codec: str, rounds: int) -> Iterator[Row]:
    """Wall of each query; the sides take turns, forwards and backwards, after a round that warms up."""
    print(f"the Parquet copy has {table.write_copy() / MIB:.0f} MiB")
    sides: dict[str, Callable[[Query], object]] = {
        "segreader": table.by_segreader,
        "consumer": table.by_consumer,
        "Parquet": table.by_parquet,
        "Polars segreader": table.by_segreader_polars,
        "Polars Parquet": table.by_parquet_polars,
    }
    for query in queries(offsets):
        walls: dict[str, list[float]] = {name: [] for name in sides}
        answers: dict[str, object] = {}
        for index in range(-1, rounds):
            for name in sides if index % 2 else reversed(sides):
                began = time.perf_counter()
                answers[name] = sides[name](query)
                if index >= 0:
                    walls[name].append(time.perf_counter() - began)
        if len({str(answer) for answer in answers.values()}) > 1:
            raise RuntimeError(f"{query.name}: the sides disagree: {answers}")
        for shown, one, other, target, is_least in (
            ("DuckDB, consumer / ours", "consumer", "segreader", TIMES_CONSUMER, True),
            ("DuckDB, ours / Parquet", "segreader", "Parquet", TIMES_PARQUET, False),
            ("Polars, ours / Parquet", "Polars segreader", "Polars Parquet", TIMES_PARQUET_POLARS, False),
        ):
            ratios = tuple(a / b for a, b in zip(walls[one], walls[other], strict=True))
            note = f"{median(walls[one]):.3f} by {median(walls[other]):.3f} s"
            bound = target if is_least or query.reads_rows else None
            yield Row(f"{codec}, {query.name}: {shown}", ratios, bound, "x", note, is_least)
