"""Hand-over from a load to Kafka's own consumer on a real cluster: every record once, and refusals that are true."""

from __future__ import annotations

from typing import Any

import confluent_kafka
import pytest
from kafka_kit.clients import Sent, consume, producer, send, transaction
from kafka_kit.racks import Racks

import segreader
from segreader.errors import OffsetOutOfRangeError, RecreatedTopicError, TruncatedLogError
from segreader.isolation import IsolationLevel
from segreader.loader.splits import Position
from segreader.loader.starting_offsets import StartingOffsets

pytestmark = [pytest.mark.exhaustive, pytest.mark.xdist_group("cluster")]

SMALL: dict[str, Any] = {"batch_num_messages": 10}
"""No batch is larger than a segment."""
PATIENCE = {"request.timeout.ms": 2000}


def write(racks: Racks, topic: str, count: int, text: bytes = b"value", partition: int = 0) -> None:
    with producer(racks.steady, **SMALL) as made:
        send(made, topic, [Sent(value=text, partition=partition) for _ in range(count)])


def loaded(
    racks: Racks, topic: str, isolation: str = "read_committed"
) -> tuple[list[tuple[int, int]], StartingOffsets]:
    """Partition and offset of what a load of the remote tier gives, and where it ends."""
    scan = segreader.scan(racks.cluster.location, topic=topic, isolation_level=isolation)
    records = [(record.partition, record.offset, record.leader_epoch) for record in scan.records()]
    positions = [
        Position(
            topic=topic,
            topic_id=end.partition.topic_id,
            partition=end.partition.partition,
            next_offset=end.offset or 0,
            isolation_level=IsolationLevel(isolation),
            leader_epoch=max(epoch or 0 for number, _, epoch in records if number == end.partition.partition),
        )
        for end in scan.plan().ends
    ]
    return [(number, offset) for number, offset, _ in records], StartingOffsets.of(positions)


def live(racks: Racks, starting: StartingOffsets) -> list[tuple[int, int]]:
    """Partition and offset of what Kafka's consumer is given from there to the end."""
    settings = {
        "bootstrap.servers": racks.bootstrap,
        "group.id": "none",
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
        "isolation.level": starting.isolation_level.value,
    }
    consumer = confluent_kafka.Consumer(settings)
    found: list[tuple[int, int]] = []
    ended: set[int | None] = set()
    try:
        consumer.assign([confluent_kafka.TopicPartition(*place, at) for place, at in starting.to_flink().items()])
        while len(ended) < len(starting.offsets):
            for message in consumer.consume(1000, 0.2):
                error = message.error()
                if error is None:
                    found.append((message.partition() or 0, message.offset() or 0))
                else:
                    assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF, error
                    ended.add(message.partition())
    finally:
        consumer.close()
    return found


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_a_load_and_kafkas_consumer_from_its_end_give_every_record_once(
    racks: Racks, topic: str, isolation: str
) -> None:
    racks.cluster.create_topic(topic, 2, segment_bytes=10_000)
    data = [Sent(value=b"x" * 100, partition=number % 2) for number in range(300)]
    for name, is_kept in (("kept", True), ("dropped", False)):
        with transaction(racks.steady, topic, data, name=f"{topic}-{name}", is_kept=is_kept, **SMALL) as more:
            write(racks, topic, 50, b"y" * 100)
            more(data[:20])
    with transaction(racks.steady, topic, data, name=f"{topic}-open", is_kept=False, **SMALL) as more:
        write(racks, topic, 200, b"z" * 100)
        write(racks, topic, 200, b"z" * 100, partition=1)
        racks.cluster.upload_closed(topic)
        records, starting = loaded(racks, topic, isolation)
        more(data)
    write(racks, topic, 30)

    checked = starting.check(racks.bootstrap, PATIENCE)
    expected = [(one.partition, one.offset) for one in consume(racks.bootstrap, topic, 2, isolation=isolation)]
    rest = live(racks, checked)
    assert records
    assert rest
    assert sorted(records + rest) == expected


def test_a_partition_that_is_new_since_the_load_is_added_from_its_beginning(racks: Racks, topic: str) -> None:
    racks.cluster.create_topic(topic, segment_bytes=10_000)
    write(racks, topic, 100, b"x" * 200)
    racks.cluster.upload(topic)
    records, starting = loaded(racks, topic)
    racks.cluster.admin.create_partitions({topic: 3})
    racks.cluster.wait_known(topic, 3)
    write(racks, topic, 7, partition=2)

    checked = starting.check(racks.bootstrap, PATIENCE)
    assert [(one.partition, one.next_offset) for one in checked.added] == [(1, 0), (2, 0)]
    expected = [(one.partition, one.offset) for one in consume(racks.bootstrap, topic, 3)]
    assert sorted(records + live(racks, checked)) == expected


def test_offsets_that_were_deleted_meanwhile_are_refused_with_the_first_that_is_left(racks: Racks, topic: str) -> None:
    racks.cluster.create_topic(topic)
    write(racks, topic, 40)
    starting = StartingOffsets.of([Position(topic=topic, partition=0, next_offset=20)])
    starting.check(racks.bootstrap, PATIENCE)
    racks.cluster.admin.delete_records({racks.cluster.partitions(topic)[0]: 21})
    with pytest.raises(OffsetOutOfRangeError) as caught:
        starting.check(racks.bootstrap, PATIENCE)
    assert caught.value.offset == 21


def test_a_topic_that_was_created_again_is_not_gone_on_with(racks: Racks, topic: str) -> None:
    racks.cluster.create_topic(topic, segment_bytes=10_000)
    write(racks, topic, 100, b"x" * 200)
    racks.cluster.upload(topic)
    _, starting = loaded(racks, topic)
    racks.cluster.admin.delete_topics([topic])
    racks.cluster.wait_until(lambda: topic not in racks.cluster.admin.list_topics(), 30.0, "it is not deleted")
    racks.cluster.create_topic(topic)
    write(racks, topic, 100, b"x" * 200)
    with pytest.raises(RecreatedTopicError) as caught:
        starting.check(racks.bootstrap, PATIENCE)
    topic_id = starting.positions[0].topic_id
    assert topic_id is not None
    assert topic_id in str(caught.value)


def test_records_that_an_unclean_election_took_away_are_told_though_the_log_grew_past_them(
    racks: Racks, topic: str
) -> None:
    racks.cluster.create_topic(topic, replicas=[[2, 3]])
    write(racks, topic, 30, b"common")
    try:
        with racks.leaders.frozen(3):
            racks.leaders.wait_for(topic, lambda led: led.in_sync == {2})
            write(racks, topic, 20, b"lost")
            epoch = racks.leaders.of(topic).epoch
            starting = StartingOffsets.of([Position(topic=topic, partition=0, next_offset=50, leader_epoch=epoch)])
            starting.check(racks.bootstrap, PATIENCE)
            racks.cluster.node(2).freeze()
            racks.leaders.wait_for(topic, lambda led: led.leader == -1)
        racks.leaders.let_lag_lead(topic, 3)
        write(racks, topic, 40, b"rewritten")
        with pytest.raises(TruncatedLogError) as caught:
            starting.check(racks.bootstrap, PATIENCE)
        assert caught.value.offset == 30
    finally:
        racks.cluster.node(2).thaw()
        racks.cluster.wait_ready()
    racks.leaders.wait_for(topic, lambda led: led.in_sync == {2, 3})
