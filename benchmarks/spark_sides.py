"""What takes turns: the ways from a topic's segments to Parquet, and to nothing."""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import shutil
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from benchmarks.rows import MIB
from benchmarks.spark_inputs import COLUMNS, Topic
from segreader import scan
from segreader.plan.request import ReadOptions
from segreader.plan.split import Split
from segreader.read.split_reader import SplitReader
from segreader.spark import read
from spark_jobs.backfill import main as backfill

WORKERS = 2
_ROW_GROUP = 64 * MIB


@dataclass(frozen=True, slots=True)
class Sides:
    """The ways of one topic; each returns how many records it moved, or raises.

    Args:
        scratch: a directory for what is written.
        pool: Python processes without Spark, as many as Spark has cores, for the side that needs them.
    """

    spark: SparkSession
    topic: Topic
    scratch: Path
    pool: ProcessPoolExecutor | None = None

    def frame(self) -> DataFrame:
        """The topic by our source, with the columns of the kafka source."""
        reader = self.spark.read.format("segreader").option("location", str(self.topic.location))
        return reader.option("subscribe", self.topic.name).load()

    def sink(self, codec: str = "zstd") -> None:
        """The direct sink in Spark: the whole job from its plan to ``_SUCCESS``."""
        place = self.place(f"sink-{codec}")
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            arguments = ["--location", str(self.topic.location), "--topic", self.topic.name, "--codec", codec]
            arguments += ["--engine", "spark"]
            code = backfill([*arguments, "--target", str(place), "--force"])
        if code:
            raise RuntimeError(f"the backfill ended with {code}: {said.getvalue()}")

    def spark_writer(self) -> None:
        """Our source, written by Spark's Parquet writer."""
        write_parquet(self.frame(), self.place("spark"))

    def noop(self) -> None:
        """Our source to nothing."""
        write_nothing(self.frame())

    def read_noop(self) -> None:
        """Our source to nothing by ``segreader.spark.read``."""
        write_nothing(read(self.spark, self.topic.location, subscribe=self.topic.name))

    def parquet_noop(self) -> None:
        """The same rows from uncompressed Parquet files to nothing; ``sink("none")`` wrote them."""
        names = [name if name != "timestamp_type" else "timestampType" for name in COLUMNS]
        frame = self.spark.read.option("recursiveFileLookup", "true").parquet(str(self.place("sink-none")))
        write_nothing(frame.select(*names))

    def pyarrow_writer(self) -> None:
        """The same batches written by pyarrow in as many processes, with no Spark."""
        assert self.pool is not None
        place = self.place("pyarrow")
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        location = str(self.topic.location)
        splits = scan(location, topic=self.topic.name, columns=_SINK_COLUMNS, split_bytes=128 * MIB).plan().splits
        by_size = sorted(splits, key=lambda split: split.positions.stop - split.positions.start, reverse=True)
        tasks = [(split, location, place / f"{number}.parquet") for number, split in enumerate(by_size)]
        rows = sum(self.pool.map(_write_split, tasks))
        if rows != self.topic.records:
            raise RuntimeError(f"pyarrow wrote {rows} records of {self.topic.records}")

    def place(self, name: str) -> Path:
        return self.scratch / self.topic.name / name

    def check(self, name: str) -> int:
        """Bytes of the Parquet files of a side, which must hold each record."""
        files = [
            file
            for file in self.place(name).rglob("*.parquet")
            if not any(part.startswith(("_", ".")) for part in file.relative_to(self.place(name)).parts)
        ]
        rows = sum(pq.read_metadata(file).num_rows for file in files)
        if rows != self.topic.records:
            raise RuntimeError(f"{name} holds {rows} records of {self.topic.records}")
        return sum(file.stat().st_size for file in files)


def write_parquet(frame: DataFrame, place: Path) -> None:
    """By Spark's own writer, zstd at its default level."""
    frame.write.mode("overwrite").option("compression", "zstd").parquet(str(place))


def write_nothing(frame: DataFrame) -> None:
    """Have every row made, and dropped."""
    frame.write.format("noop").mode("overwrite").save()


_SINK_COLUMNS = (*COLUMNS, "headers")


def _write_split(task: tuple[Split, str, Path]) -> int:
    """Decode a split and write it as pyarrow does by itself, with the sink's settings for columns."""
    split, location, file = task
    store = scan(location, topic=split.partition.topic).store
    assert store is not None
    options = ReadOptions(columns=_SINK_COLUMNS, batch_rows=65536, batch_bytes=4 * MIB)
    rows, pending, size = 0, [], 0
    writer: pq.ParquetWriter | None = None
    for batch in SplitReader(store, options).read(split):
        if writer is None:
            writer = pq.ParquetWriter(
                file,
                batch.schema,
                compression="zstd",
                compression_level=1,
                use_dictionary=["topic", "partition", "timestamp_type"],
                column_encoding={"offset": "DELTA_BINARY_PACKED", "timestamp": "DELTA_BINARY_PACKED"},
                write_statistics=["topic", "partition", "offset", "timestamp"],
            )
        rows += batch.num_rows
        pending.append(batch)
        size += batch.nbytes
        if size >= _ROW_GROUP:
            writer.write_table(pa.Table.from_batches(pending), row_group_size=1 << 26)
            pending, size = [], 0
    if writer is not None:
        if pending:
            writer.write_table(pa.Table.from_batches(pending), row_group_size=1 << 26)
        writer.close()
    return rows


@contextlib.contextmanager
def worker_pool() -> Iterator[ProcessPoolExecutor]:
    """Python processes that stay, as Spark's workers do."""
    with ProcessPoolExecutor(WORKERS, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield pool
