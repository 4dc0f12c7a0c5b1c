"""What segreader reads in the remote tier is what Spark's kafka source reads from the broker, byte for byte."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest
from kafka_kit.clients import Headers, Sent, producer, send
from kafka_kit.cluster import Cluster
from kafka_kit.judge import Judge

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("broker")]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PARTITIONS = 2
COUNT = 16_000
START_MS = 1_700_000_000_000
HEADERS: tuple[Headers, ...] = (
    (),
    (("a", b"1"), ("a", None), ("b", b"")),
    (("only", None),),
    (("\u00e9", b"\xff\x00"),),
)


def of_codec(kafka: Cluster, topic: str) -> None:
    """Plain records: 1.6 MB in batches of some kB."""
    kafka.create_topic(topic, PARTITIONS, segment_bytes=200_000)
    with producer(kafka.bootstrap, codec=topic.removeprefix("codec-"), batch_size=8000) as out:
        send(out, topic, [_plain(number) for number in range(COUNT)])


def _plain(number: int) -> Sent:
    return Sent(
        value=b"%09d" % number * 11,
        key=b"%d" % (number % 97),
        partition=number % PARTITIONS,
        timestamp_ms=START_MS + number // 10 * 1000,
    )


def of_shapes(kafka: Cluster, topic: str) -> None:
    """Keys, values and headers that are null, empty, repeated or large; times that go back."""
    kafka.create_topic(topic, PARTITIONS, segment_bytes=50_000)
    with producer(kafka.bootstrap, codec="lz4", batch_size=4000) as out:
        send(
            out,
            topic,
            [
                Sent(
                    value=(None, b"", b"\x00\xff" * 40, b"x" * (number * 7))[number % 4],
                    key=(None, b"", b"key")[number % 3],
                    partition=number % PARTITIONS,
                    timestamp_ms=START_MS + (number * 37 % 1000) * 1001,
                    headers=HEADERS[number % 5 % len(HEADERS)],
                )
                for number in range(2000)
            ],
        )


def of_append_time(kafka: Cluster, topic: str) -> None:
    """The broker's clock, one time for all of a batch."""
    kafka.create_topic(topic, segment_bytes=20_000, message_timestamp_type="LogAppendTime")
    with producer(kafka.bootstrap, codec="zstd", batch_size=2000) as out:
        for _ in range(5):
            send(out, topic, [Sent(value=b"%d" % number) for number in range(1000)])


def of_transactions(kafka: Cluster, topic: str) -> None:
    """Two producers whose transactions interleave, some of them aborted, across small segments."""
    kafka.create_topic(topic, PARTITIONS, segment_bytes=8_000)
    with (
        producer(kafka.bootstrap, transactional_id=f"{topic}-1", codec="lz4") as one,
        producer(kafka.bootstrap, transactional_id=f"{topic}-2") as two,
    ):
        for turn in range(8):
            one.begin_transaction()
            two.begin_transaction()
            for _ in range(3):
                for out in (one, two):
                    send(out, topic, [_early(number) for number in range(60)])
            one.commit_transaction() if turn % 3 else one.abort_transaction()
            two.abort_transaction() if turn % 2 else two.commit_transaction()
        with producer(kafka.bootstrap) as plain:
            send(plain, topic, [_early(number) for number in range(20)])


def _early(number: int) -> Sent:
    """Of a time long before that of the markers, which have the broker's."""
    return Sent(value=b"%d" % number * 9, partition=number % PARTITIONS, timestamp_ms=START_MS)


def of_compaction(kafka: Cluster, topic: str) -> None:
    """Offsets with holes: cleaned first, tiered then, for a broker does not tier what it cleans."""
    kafka.create_topic(
        topic,
        segment_bytes=20_000,
        remote_storage_enable="false",
        cleanup_policy="compact",
        min_cleanable_dirty_ratio="0.001",
    )
    with producer(kafka.bootstrap, codec="snappy", batch_size=3000) as out:
        send(out, topic, [Sent(value=b"%d" % number * 20, key=b"%d" % (number % 700)) for number in range(4000)])
    node = kafka.nodes[0].config.directory / "data"
    checkpoint = node / "cleaner-offset-checkpoint"
    until = time.monotonic() + 60
    while f"{topic} 0" not in (checkpoint.read_text() if checkpoint.exists() else ""):
        assert time.monotonic() < until, "not compacted"
        time.sleep(0.1)
    kafka.configure(topic, {"cleanup.policy": "delete", "remote.storage.enable": "true"})


TOPICS: dict[str, Callable[[Cluster, str], None]] = {
    **{f"codec-{codec}": of_codec for codec in CODECS},
    "shapes": of_shapes,
    "append-time": of_append_time,
    "transactions": of_transactions,
    "compacted": of_compaction,
}


@pytest.fixture(scope="module")
def judged(judge: Judge) -> Judge:
    """The judge, when all topics are written and uploaded."""
    for topic, write in TOPICS.items():
        write(judge.kafka, topic)
    judge.kafka.upload(*TOPICS)
    return judge


@pytest.mark.parametrize("codec", CODECS)
def test_records_are_the_same_from_the_remote_tier_and_from_the_broker(judged: Judge, codec: str) -> None:
    found = judged.agreed(subscribe=f"codec-{codec}")

    assert (found.records, found.value_bytes) == (COUNT, COUNT * 99)


def test_null_and_empty_keys_values_and_headers_are_the_same(judged: Judge) -> None:
    assert judged.agreed(subscribe="shapes", includeHeaders="true").records == 2000


def test_times_that_the_broker_gave_are_the_same(judged: Judge) -> None:
    assert judged.agreed(subscribe="append-time").records == 5000
    assert judged.ours(subscribe="append-time").where("timestampType = 1").count() == 5000


@pytest.mark.parametrize(("isolation", "records"), [("read_committed", 1640), ("read_uncommitted", 2900)])
def test_what_a_reader_sees_of_transactions_is_the_same(judged: Judge, isolation: str, records: int) -> None:
    assert judged.agreed(subscribe="transactions", isolation=isolation).records == records


def test_a_marker_may_be_the_first_that_is_new_enough(judged: Judge) -> None:
    behind = judged.agreed(subscribe="transactions", startingTimestamp=str(START_MS + 1))
    before = judged.agreed(subscribe="transactions", endingTimestamp=str(START_MS + 1))

    assert behind.records + before.records == 1640
    assert behind.records > 1000


def test_what_the_cleaner_left_is_the_same(judged: Judge) -> None:
    assert 700 <= judged.agreed(subscribe="compacted").records < 4000


def test_a_read_up_to_the_end_of_the_remote_tier_is_the_same_while_the_broker_has_more(judge: Judge) -> None:
    kafka, topic = judge.kafka, "growing"
    kafka.create_topic(topic, PARTITIONS, segment_bytes=20_000)
    with producer(kafka.bootstrap, batch_size=2000) as out:
        send(out, topic, [_plain(number) for number in range(1000)])
        kafka.upload(topic)
        send(out, topic, [_plain(number) for number in range(20)])
    offsets = kafka.offsets(topic)
    ends = {topic: {str(number): one.latest_tiered + 1 for number, one in offsets.items()}}

    assert [one.latest for one in offsets.values()] == [510, 510]
    assert judge.agreed(subscribe=topic, endingOffsets=json.dumps(ends)).records == 1000
    assert judge.ours(subscribe=topic).count() == 1000
