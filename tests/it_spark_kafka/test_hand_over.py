"""A query goes from Spark's kafka source to ours and back: no offset is missed, none is delivered twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from kafka_kit.clients import Sent, consume, producer, send
from kafka_kit.cluster import Cluster
from kafka_kit.judge import Judge
from pyspark.errors import StreamingQueryException

from segreader.cli.main import main

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("broker")]

PARTITIONS = 2
SCHEMA = "partition int, offset bigint, value binary"

Rows = Counter[tuple[int, int, bytes]]


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic that grows, and the queries over it: the k-th checkpoint has the k-th output."""

    judge: Judge
    name: str
    directory: Path

    @property
    def kafka(self) -> Cluster:
        return self.judge.kafka

    def write(self, count: int, *, upload: bool) -> None:
        """Add records: a half in a transaction, a quarter in one that is aborted, the rest in none."""
        quarter = [
            Sent(value=b"%d" % number * 20, partition=number % PARTITIONS) for number in range(count * PARTITIONS // 4)
        ]
        with producer(self.kafka.bootstrap, transactional_id=self.name, batch_size=1000) as out:
            for is_kept in (True, False, True):
                out.begin_transaction()
                send(out, self.name, quarter)
                out.commit_transaction() if is_kept else out.abort_transaction()
        with producer(self.kafka.bootstrap, codec="zstd", batch_size=1000) as out:
            send(out, self.name, quarter)
        self.kafka.settle(self.name)
        if upload:
            self.kafka.upload(self.name)

    def run(self, source: str, number: int = 0, **options: str) -> None:
        """Read all that the source has now, with a checkpoint that may have been used before."""
        place = {
            "segreader": ("location", self.kafka.location),
            "kafka": ("kafka.bootstrap.servers", self.kafka.bootstrap),
        }
        given = dict([place[source], ("subscribe", self.name), ("kafka.isolation.level", "read_committed")]) | options
        reader = self.judge.spark.readStream.format(source).options(**given).load()
        writer = reader.select("partition", "offset", "value").writeStream.format("parquet").trigger(availableNow=True)
        writer = writer.option("checkpointLocation", self.checkpoint(number)).option("path", self.output(number))
        query = writer.start()
        try:
            assert query.awaitTermination(300)
        finally:
            query.stop()

    def checkpoint(self, number: int) -> str:
        return str(self.directory / f"checkpoint-{number}")

    def output(self, number: int) -> str:
        return str(self.directory / f"output-{number}")

    def delivered(self, *numbers: int) -> Rows:
        """How often each record is in these outputs."""
        frames = [self.judge.spark.read.schema(SCHEMA).parquet(self.output(number)) for number in numbers or (0,)]
        return Counter((row[0], row[1], bytes(row[2])) for frame in frames for row in frame.collect())

    def committed(self) -> Rows:
        """Every record that a consumer is given, once."""
        found = consume(self.kafka.bootstrap, self.name, PARTITIONS)
        return Counter((one.partition, one.offset, one.value or b"") for one in found)


@pytest.fixture
def topic(judge: Judge, tmp_path: Path) -> Topic:
    name = f"hand-over-{tmp_path.name}"
    judge.kafka.create_topic(name, PARTITIONS, segment_bytes=10_000)
    return Topic(judge, name, tmp_path)


def test_a_checkpoint_moves_to_the_kafka_source_and_back(topic: Topic) -> None:
    topic.write(200, upload=True)
    topic.run("segreader", startingOffsets="earliest")
    assert topic.delivered() == topic.committed()

    topic.write(100, upload=True)
    topic.run("segreader")
    assert topic.delivered() == topic.committed()

    topic.write(100, upload=False)
    topic.run("kafka")
    assert topic.delivered() == topic.committed()

    topic.kafka.upload(topic.name)
    topic.run("segreader")
    topic.write(100, upload=True)
    topic.run("segreader")
    assert topic.delivered() == topic.committed()

    topic.write(100, upload=False)
    topic.run("kafka")
    delivered = topic.delivered()
    assert delivered == topic.committed()
    assert len(delivered) == 600 * PARTITIONS * 3 // 4


@pytest.fixture
def line(topic: Topic, capsys: pytest.CaptureFixture[str]) -> Callable[[int], str]:
    """What ``segreader spark offsets`` prints of a checkpoint."""

    def printed(number: int) -> str:
        capsys.readouterr()
        assert main(["spark", "offsets", topic.checkpoint(number)]) == 0
        return capsys.readouterr().out.strip()

    return printed


def test_a_line_of_offsets_starts_the_other_source(topic: Topic, line: Callable[[int], str]) -> None:
    topic.write(200, upload=False)
    topic.run("kafka", 0, startingOffsets="earliest")
    topic.write(200, upload=True)
    topic.run("segreader", 1, startingOffsets=line(0))
    topic.write(200, upload=False)
    topic.run("kafka", 2, startingOffsets=line(1))

    assert all(topic.delivered(number) for number in range(3))
    assert topic.delivered(0, 1, 2) == topic.committed()


def test_a_query_that_is_ahead_of_the_uploads_is_told_so(topic: Topic, line: Callable[[int], str]) -> None:
    topic.write(200, upload=True)
    topic.write(100, upload=False)
    topic.run("kafka", startingOffsets="earliest")

    with pytest.raises(StreamingQueryException, match="ends before the offset that comes next"):
        topic.run("segreader")
    topic.write(100, upload=True)
    topic.run("segreader", 1, startingOffsets=line(0))
    assert topic.delivered(0, 1) == topic.committed()
