"""The metadata topic as brokers give it: followed, complete or not, begun anew when it is another one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from segreader.broker.client import BrokerClient
from segreader.broker.messages import (
    EARLIEST,
    ClusterMetadata,
    FetchedPartition,
    ListedOffset,
    OffsetWanted,
    PartitionMetadata,
    TopicMetadata,
)
from segreader.broker.settings import ClientSettings
from segreader.catalog.metadata_consumer import MetadataConsumer
from segreader.catalog.metadata_log import METADATA_TOPIC
from segreader.errors import BrokerError, ConnectionFailedError, FormatError, TruncatedLogError
from segreader.format.remote_log_metadata import metadata_partition
from segreader.isolation import IsolationLevel
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import kafka_uuid
from segreader.testing.remote_log_metadata import encode_segment_metadata, encode_segment_update

COUNT = 3
TOPIC, TOPIC_ID = "orders", kafka_uuid("orders")
OWN = metadata_partition(TOPIC_ID, 0, COUNT)


@dataclass
class Cluster:
    """What stands for ``BrokerClient`` and the fetchers: a log for each metadata partition."""

    logs: list[SegmentBuilder] = field(default_factory=lambda: [SegmentBuilder() for _ in range(COUNT)])
    starts: list[int] = field(default_factory=lambda: [0] * COUNT)
    topic_id: str = "AAAAAAAAAAAAAAAAAAAAAQ"
    topic_error: int = 0
    offsets_error: BrokerError | None = None
    poll_error: dict[int, Exception] = field(default_factory=dict)
    most: int = 1 << 20
    polls: int = 0
    listed: int = 0
    settings: ClientSettings = field(default_factory=ClientSettings)
    ends: dict[int, int] = field(default_factory=dict)

    def metadata(self, topics: Sequence[str] | None = None) -> ClusterMetadata:
        partitions = tuple(PartitionMetadata(number) for number in range(len(self.logs)))
        topic = TopicMetadata(self.topic_error, METADATA_TOPIC, self.topic_id, True, partitions)
        return ClusterMetadata((), (topic,))

    def list_offsets(self, wanted: Sequence[OffsetWanted], isolation_level: IsolationLevel) -> tuple[ListedOffset, ...]:
        self.listed += 1
        if self.offsets_error is not None:
            raise self.offsets_error
        return tuple(
            ListedOffset(
                one.topic,
                one.partition,
                0,
                self.starts[one.partition]
                if one.timestamp == EARLIEST
                else self.ends.get(one.partition, self.logs[one.partition].next_offset),
            )
            for one in wanted
        )

    def add(self, *segments: tuple[str, int, int], finished: bool = True, partition: int = 0) -> None:
        """Put records about segments (id, first and last offset) of the topic into the log they go to."""
        log = self.logs[metadata_partition(TOPIC_ID, partition, COUNT)]
        for segment_id, first, last in segments:
            log.batch(
                [
                    encode_segment_metadata(
                        TOPIC,
                        TOPIC_ID,
                        partition,
                        segment_id,
                        start_offset=first,
                        end_offset=last,
                        epochs=[(0, first)],
                        log_size=100,
                    )
                ]
            )
            if finished:
                log.batch([encode_segment_update(TOPIC, TOPIC_ID, partition, segment_id, 1)])


@dataclass
class Fetcher:
    cluster: Cluster
    partition: int
    position: int

    def poll(self) -> FetchedPartition:
        self.cluster.polls += 1
        if error := self.cluster.poll_error.get(self.partition):
            raise error
        log = self.cluster.logs[self.partition]
        data = log.to_bytes()
        starts = [*log.batch_positions, len(data)]
        # From the batch that holds the position on; the last one may be cut.
        offsets = [int.from_bytes(data[at : at + 8], "big") for at in log.batch_positions]
        index = max((number for number, offset in enumerate(offsets) if offset <= self.position), default=0)
        records = data[starts[index] :][: self.cluster.most] if self.position < log.next_offset else b""
        return FetchedPartition(
            METADATA_TOPIC,
            None,
            self.partition,
            records=memoryview(records),
            high_watermark=log.next_offset,
            log_start_offset=self.cluster.starts[self.partition],
        )

    def advance(self, next_offset: int, leader_epoch: int) -> None:
        assert next_offset > self.position
        assert leader_epoch == 0
        self.position = next_offset

    def close(self) -> None:
        pass


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def consumer_of(cluster: Cluster, clock: Clock | None = None) -> MetadataConsumer:
    def make(client: BrokerClient, partition: int, offset: int) -> Fetcher:
        return Fetcher(cluster, partition, offset)

    return MetadataConsumer(cluster, make_fetcher=make, clock=clock or Clock())  # type: ignore[arg-type]


def known(consumer: MetadataConsumer, partition: int = 0) -> list[int]:
    return sorted(one.base_offset for one in consumer.segments(TOPIC, TOPIC_ID, partition))


A, B, C = (kafka_uuid(name) for name in "ABC")


def test_what_the_topic_says_is_known_and_what_is_added_follows() -> None:
    cluster = Cluster()
    cluster.add((A, 0, 99))
    cluster.add((B, 100, 199), finished=False)
    consumer = consumer_of(cluster)
    assert consumer.lag_s(TOPIC_ID, 0) is None
    consumer.read_round()
    assert known(consumer) == [0]
    assert consumer.topic_name(TOPIC_ID) == TOPIC
    assert consumer.topic_name(kafka_uuid("other")) is None

    before = consumer.changes(TOPIC_ID, 0)
    consumer.read_round()
    assert consumer.changes(TOPIC_ID, 0) == before
    cluster.logs[OWN].batch([encode_segment_update(TOPIC, TOPIC_ID, 0, B, 1)])
    consumer.read_round()
    assert known(consumer) == [0, 100]
    assert consumer.changes(TOPIC_ID, 0) != before
    cluster.logs[OWN].batch([encode_segment_update(TOPIC, TOPIC_ID, 0, A, 2)])
    consumer.read_round()
    assert known(consumer) == [100]


def test_a_quiet_topic_costs_one_look_at_its_ends() -> None:
    cluster = Cluster()
    cluster.add((A, 0, 99))
    consumer = consumer_of(cluster)
    consumer.read_round()
    polls, listed = cluster.polls, cluster.listed
    for _ in range(5):
        consumer.read_round()
    assert (cluster.polls, cluster.listed) == (polls, listed + 5)


def test_answers_that_end_within_a_batch_lose_nothing() -> None:
    cluster = Cluster(most=400)
    cluster.add(*((kafka_uuid(number), 100 * number, 100 * number + 99) for number in range(30)))
    consumer = consumer_of(cluster)
    consumer.read_round()
    assert known(consumer) == [100 * number for number in range(30)]


def test_an_answer_without_a_whole_batch_is_told_and_not_asked_for_for_ever() -> None:
    cluster = Cluster(most=50)
    cluster.add((A, 0, 99))
    consumer = consumer_of(cluster)
    consumer.read_round()
    assert "whole batch" in str(consumer.errors()[OWN])
    assert consumer.lag_s(TOPIC_ID, 0) is None


def test_records_that_never_come_are_not_waited_for_for_ever() -> None:
    cluster = Cluster()
    cluster.ends[OWN] = 5
    cluster.logs[OWN].next_offset = 0
    consumer = consumer_of(cluster)
    log = cluster.logs[OWN]
    log.next_offset, data = 5, log.to_bytes()
    assert data == b""
    consumer.read_round()
    assert "no records come" in str(consumer.errors()[OWN])


def test_the_lag_is_counted_from_when_the_ends_were_asked_for() -> None:
    cluster, clock = Cluster(), Clock()
    cluster.add((A, 0, 99))
    consumer = consumer_of(cluster, clock)
    consumer.read_round()
    clock.now += 7
    assert consumer.lag_s(TOPIC_ID, 0) == consumer.worst_lag_s() == 7
    consumer.read_round()
    assert consumer.lag_s(TOPIC_ID, 0) == 0


def test_a_partition_that_cannot_be_read_keeps_no_other_from_being_complete() -> None:
    cluster, clock = Cluster(), Clock()
    cluster.add((A, 0, 99))
    other = next(number for number in range(100) if metadata_partition(TOPIC_ID, number, COUNT) != OWN)
    cluster.add((B, 0, 99), partition=other)
    cluster.poll_error[OWN] = ConnectionFailedError("gone")
    consumer = consumer_of(cluster, clock)
    consumer.read_round()
    assert consumer.lag_s(TOPIC_ID, 0) is None
    assert consumer.worst_lag_s() is None
    assert (consumer.lag_s(TOPIC_ID, other), known(consumer, other)) == (0, [0])
    assert list(consumer.errors()) == [OWN]

    cluster.poll_error.clear()
    consumer.read_round()
    assert (consumer.lag_s(TOPIC_ID, 0), known(consumer), consumer.errors()) == (0, [0], {})


def test_a_damaged_record_stops_its_partition_where_it_stands() -> None:
    cluster = Cluster()
    cluster.add((A, 0, 99))
    cluster.logs[OWN].batch([b"\x01\x00\x00damaged"])
    cluster.add((B, 100, 199))
    consumer = consumer_of(cluster)
    for _ in range(3):
        consumer.read_round()
        assert isinstance(consumer.errors()[OWN], FormatError)
        assert consumer.lag_s(TOPIC_ID, 0) is None
    assert known(consumer) == [0]


def test_a_topic_that_lost_records_is_read_anew() -> None:
    cluster = Cluster()
    cluster.add((A, 0, 99), (B, 100, 199))
    consumer = consumer_of(cluster)
    consumer.read_round()
    era = consumer.changes(TOPIC_ID, 0)
    cluster.logs[OWN] = SegmentBuilder()
    cluster.add((C, 0, 49))
    with pytest.raises(TruncatedLogError):
        consumer.read_round()
    assert known(consumer) == [0, 100]  # and not complete: nobody is to believe it
    assert consumer.lag_s(TOPIC_ID, 0) is None
    consumer.read_round()
    assert (known(consumer), consumer.lag_s(TOPIC_ID, 0)) == ([0], 0)
    assert consumer.changes(TOPIC_ID, 0) != era


def test_a_topic_without_its_first_records_is_read_from_where_it_begins() -> None:
    cluster = Cluster()
    log = cluster.logs[OWN]
    log.next_offset = log.base_offset = 500
    cluster.starts[OWN] = 500
    cluster.add((A, 0, 99))
    consumer = consumer_of(cluster)
    consumer.read_round()
    assert known(consumer) == [0]


def test_without_the_topic_nothing_is_known_and_it_is_looked_for_again() -> None:
    cluster = Cluster(topic_error=3)
    consumer = consumer_of(cluster)
    with pytest.raises(BrokerError, match="cannot be read"):
        consumer.read_round()
    assert consumer.lag_s(TOPIC_ID, 0) is None
    assert consumer.worst_lag_s() is None
    cluster.topic_error = 0
    cluster.add((A, 0, 99))
    consumer.read_round()
    assert known(consumer) == [0]


def test_brokers_that_tell_no_ends_let_the_lag_grow() -> None:
    cluster, clock = Cluster(), Clock()
    cluster.add((A, 0, 99))
    consumer = consumer_of(cluster, clock)
    consumer.read_round()
    cluster.offsets_error = ConnectionFailedError("gone")
    clock.now += 40
    with pytest.raises(ConnectionFailedError):
        consumer.read_round()
    assert consumer.lag_s(TOPIC_ID, 0) == 40


def test_its_thread_reads_until_it_is_closed() -> None:
    cluster = Cluster()
    cluster.add((A, 0, 99))
    consumer = consumer_of(cluster)
    consumer.start()
    while not known(consumer):
        pass
    consumer.close()
    assert consumer._thread is not None
    assert not consumer._thread.is_alive()
