"""The gateway before three real brokers: ordinary clients, locations for those who may read, and no secret told."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka_kit.clients import Received, Sent, consume, producer, send, transaction
from kafka_kit.fetched import take
from kafka_kit.gateway import RunningGateway, gateway
from kafka_kit.java import JavaReader, console_consumer
from kafka_kit.racks import READER, STRANGER, USERS, WRITER, Racks
from kafka_kit.rights import User
from kafka_kit.scanned import received, scanned
from servers.rclone import rclone
from servers.s3 import S3Server

import segreader
from segreader.broker.client import BrokerClient
from segreader.broker.partition_fetcher import PartitionFetcher
from segreader.broker.settings import ClientSettings
from segreader.errors import AuthorizationError
from segreader.isolation import IsolationLevel
from segreader.live.scan import LiveScan
from segreader.ranges import ByteRange
from segreader.storage.http.store import HttpStore

pytestmark = [pytest.mark.exhaustive, pytest.mark.xdist_group("cluster")]

TOPIC = "behind-the-gateway"
LARGE = "behind-the-gateway-and-large"
HUGE = "behind-the-gateway-and-huge"
ABORTED = "behind-the-gateway-and-aborted"
COUNT = 300
MECHANISM = "SCRAM-SHA-256"


@pytest.fixture(scope="module")
def store(racks: Racks, tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """The cluster's remote tier as a bucket."""
    with rclone(tmp_path_factory.mktemp("rclone"), racks.cluster.remote) as server:
        yield server


@pytest.fixture(scope="module")
def running(
    racks: Racks, store: S3Server, topic_of_all: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningGateway]:
    """A gateway whose clients log in, as it does itself."""
    config = {
        "bootstrap_servers": racks.cluster.bootstrap_by("SASL_PLAINTEXT"),
        "location": "s3://kafka-tiered-storage",
        "storage_options": {**store.storage_options, "secret": "env:STORE_SECRET"},
        "client": {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": MECHANISM,
            "sasl.username": WRITER.name,
            "sasl.password": "env:GATEWAY_PASSWORD",
        },
    }
    env = {"STORE_SECRET": store.secret, "GATEWAY_PASSWORD": WRITER.password}
    with gateway(tmp_path_factory.mktemp("gateway"), config, env=env) as found:
        yield found


@pytest.fixture(scope="module")
def topic_of_all(racks: Racks) -> Iterator[None]:
    """A topic of which most is in the remote tier alone, with an aborted transaction on both sides; READER reads it."""
    racks.cluster.create_topic(TOPIC, replicas=[[1, 2, 3]], segment_bytes=20_000)
    sent = [Sent(value=value_of(number), key=b"key", timestamp_ms=1_700_000_000_000) for number in range(COUNT)]
    aborted = [Sent(value=b"aborted")] * 20
    around = transaction(racks.steady, TOPIC, aborted, name=TOPIC, is_kept=False)
    with around, producer(racks.steady, batch_num_messages=10) as made:
        send(made, TOPIC, sent)
    racks.cluster.settle(TOPIC)  # nothing behind an open transaction is uploaded
    racks.cluster.upload_closed(TOPIC)
    with racks.rights.allowed(READER, "READ", TOPIC), racks.rights.allowed(READER, "READ", TOPIC, kind="GROUP"):
        yield


def value_of(number: int) -> bytes:
    return b"value-%d-" % number + b"x" * 500


def placed(one: Received) -> tuple[int, int]:
    return one.partition, one.offset


def login(user: User) -> dict[str, str]:
    """By the names of librdkafka and of our own options."""
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": MECHANISM,
        "sasl.username": user.name,
        "sasl.password": user.password,
    }


def scan_options(user: User, store: S3Server) -> dict[str, Any]:
    """Of a reader that trusts the store's address and has no key of it."""
    return {"storage_options": {"allow_hosts": store.endpoint}, "broker_options": login(user)}


@contextlib.contextmanager
def asking(
    running: RunningGateway, user: User, topic: str = TOPIC, partition: int = 0, offset: int = 0
) -> Iterator[Callable[[], int]]:
    """A client that wants locations; each call is a Fetch, and gives how many of them it has been given."""
    with BrokerClient(running.bootstrap, ClientSettings.from_options(login(user))) as client:
        isolation = IsolationLevel.READ_COMMITTED
        fetcher = PartitionFetcher(
            client, topic, partition, offset, isolation_level=isolation, rack="", max_bytes=1, wants_locations=True
        )

        def ask() -> int:
            fetcher.poll()
            return client.metrics.locations_given

        yield ask


def upload(running: RunningGateway, racks: Racks, topic: str) -> None:
    """Return when all that can be is in the remote tier alone, and the gateway has heard of it."""
    racks.cluster.upload_closed(topic)
    last = {number: offsets.earliest_local - 1 for number, offsets in racks.cluster.offsets(topic).items()}

    def has_heard() -> bool:
        with contextlib.ExitStack() as connected:
            asks = [connected.enter_context(asking(running, WRITER, topic, *one)) for one in last.items()]
            return all(ask() for ask in asks)

    racks.cluster.wait_until(has_heard, 60.0, "the gateway does not hear of a segment")


def test_the_java_console_consumer_reads_through_it(running: RunningGateway, tmp_path: Path) -> None:
    settings = tmp_path / "client.properties"
    jaas = "org.apache.kafka.common.security.scram.ScramLoginModule required"
    settings.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={MECHANISM}\nisolation.level=read_committed\n"
        f'sasl.jaas.config={jaas} username="{READER.name}" password="{READER.password}";\n'
    )
    arguments = ("--group", TOPIC, "--from-beginning", "--command-config", str(settings))
    lines = console_consumer(running.bootstrap, TOPIC, *arguments, count=COUNT)
    assert lines == [value_of(number).decode() for number in range(COUNT)]


def test_the_java_consumer_is_given_through_it_what_the_brokers_give(
    running: RunningGateway, racks: Racks, java: JavaReader
) -> None:
    jaas = "org.apache.kafka.common.security.scram.ScramLoginModule required"
    settings = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": MECHANISM,
        "sasl.jaas.config": f'{jaas} username="{READER.name}" password="{READER.password}";',
    }
    for isolation in ("read_committed", "read_uncommitted"):
        through = java.read(running.bootstrap, TOPIC, isolation=isolation, settings=settings)
        assert through == java.read(racks.bootstrap, TOPIC, isolation=isolation)


def test_librdkafka_produces_commits_and_reads_in_a_group_through_it(
    running: RunningGateway, racks: Racks, topic: str
) -> None:
    racks.cluster.create_topic(topic, 3, replicas=3)
    secure = {name.replace(".", "_"): text for name, text in login(WRITER).items()}
    records = [Sent(value=b"value-%d" % number, partition=number % 3) for number in range(90)]
    with producer(running.bootstrap, **secure) as made:
        send(made, topic, records)
    with producer(running.bootstrap, transactional_id=topic, **secure) as made:
        for is_kept in (True, False):
            made.begin_transaction()
            send(made, topic, [Sent(value=b"kept" if is_kept else b"aborted")] * 5)
            made.commit_transaction(60) if is_kept else made.abort_transaction(60)

    group = {"group.id": topic, "auto.offset.reset": "earliest", "enable.auto.commit": False, "log_level": 0}
    consumer = Consumer({"bootstrap.servers": running.bootstrap, **login(WRITER), **group})
    consumer.subscribe([topic])
    values: list[bytes | None] = []
    while len(values) < 95:
        values += [message.value() for message in consumer.consume(100, 1.0) if message.error() is None]
    consumer.commit(asynchronous=False)
    committed = consumer.committed([TopicPartition(topic, number) for number in range(3)], 30)
    consumer.close()

    assert Counter(values) == Counter([one.value for one in records] + [b"kept"] * 5)
    assert [one.offset for one in committed][1:] == [30, 30]
    assert committed[0].offset >= 36


def test_kafka_python_produces_and_reads_in_a_group_through_it(
    running: RunningGateway, racks: Racks, topic: str
) -> None:
    racks.cluster.create_topic(topic, 2, replicas=3)
    secure = {
        "bootstrap_servers": running.bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": MECHANISM,
        "sasl_plain_username": WRITER.name,
        "sasl_plain_password": WRITER.password,
    }
    made = KafkaProducer(**secure)
    sent = [made.send(topic, b"value-%d" % number, partition=number % 2) for number in range(50)]
    assert [one.get(60).offset for one in sent] == [number // 2 for number in range(50)]
    made.close()

    consumer = KafkaConsumer(topic, group_id=topic, auto_offset_reset="earliest", consumer_timeout_ms=60_000, **secure)
    values = [next(consumer).value for _ in range(50)]
    consumer.close()
    assert sorted(values) == sorted(b"value-%d" % number for number in range(50))


def test_leaders_can_move_behind_it(running: RunningGateway, racks: Racks, topic: str) -> None:
    racks.cluster.create_topic(topic, replicas=[[2, 3, 1]])
    secure = {name.replace(".", "_"): text for name, text in login(WRITER).items()}
    settings = ClientSettings.from_options(login(WRITER))
    with producer(running.bootstrap, **secure) as made, BrokerClient(running.bootstrap, settings) as client:
        fetcher = PartitionFetcher(
            client, topic, 0, 0, isolation_level=IsolationLevel.READ_COMMITTED, rack="", max_bytes=1 << 20
        )
        for number, leader in enumerate((2, 3, 1)):
            racks.leaders.move(topic, leader)
            send(made, topic, [Sent(value=b"%d" % number)])
            assert take(fetcher, 1) == [(number, b"%d" % number)]


def test_a_scan_through_it_takes_the_remote_part_from_the_store_alone(
    running: RunningGateway, racks: Racks, store: S3Server
) -> None:
    seam = racks.cluster.offsets(TOPIC)[0].earliest_local
    relayed = running.count("relayed_bytes_total")
    options = scan_options(READER, store)
    scan = segreader.scan(f"kafka://{running.bootstrap}", topic=TOPIC, offsets=(0, seam), **options)
    assert isinstance(scan, LiveScan)
    with scan:
        found = received(scan.records())
        sources = scan.metrics.sources

    assert found == [one for one in consume(racks.bootstrap, TOPIC) if one.offset < seam]
    assert sources["location"].records == len(found) > 0
    assert sources["broker"].records == sources["broker"].bytes_read == 0
    assert running.count("relayed_bytes_total") - relayed < sources["location"].bytes_read / 4


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_a_scan_through_it_of_both_parts_equals_the_brokers_records(
    running: RunningGateway, racks: Racks, java: JavaReader, store: S3Server, isolation: str
) -> None:
    given = running.count("locations_given_total")
    options = {**scan_options(READER, store), "isolation_level": isolation}
    assert scanned(f"kafka://{running.bootstrap}", TOPIC, **options) == java.read(
        racks.bootstrap, TOPIC, isolation=isolation
    )
    assert running.count("locations_given_total") > given


def test_of_a_few_offsets_a_scan_through_it_fetches_their_bytes(
    running: RunningGateway, racks: Racks, store: S3Server
) -> None:
    topic = LARGE
    racks.cluster.create_topic(topic, 4, replicas=[[1, 2, 3]] * 4, segment_bytes=1_000_000)
    sent = [Sent(value=value_of(number) * 2, partition=number % 4) for number in range(12_000)]
    with producer(racks.steady, batch_num_messages=10) as made:
        send(made, topic, sent)
    upload(running, racks, topic)
    options = scan_options(READER, store)
    with racks.rights.allowed(READER, "READ", topic):
        scan = segreader.scan(f"kafka://{running.bootstrap}", topic=topic, offsets=(100, 110), **options)
        assert isinstance(scan, LiveScan)
        with scan:
            found = received(scan.records())
            source = scan.metrics.sources["location"]
        direct = consume(racks.bootstrap, topic, 4)
        assert sorted(found, key=placed) == [one for one in direct if 100 <= one.offset < 110]
        assert (source.records, len(found)) == (40, 40)
        assert source.bytes_read < 129_000

        asked = running.count('requests_total{api="Fetch"}')
        seam = min(one.earliest_local for one in racks.cluster.offsets(topic).values())
        wide = segreader.scan(f"kafka://{running.bootstrap}", topic=topic, offsets=(0, seam), **options)
        assert isinstance(wide, LiveScan)
        with wide:
            plan = wide.plan()
            assert len(plan.parts) >= 8
            # one for all locations, and one of each partition for the transactions that end behind them
            assert running.count('requests_total{api="Fetch"}') - asked <= 1 + 4
            assert sorted(received(wide.records()), key=placed) == [one for one in direct if one.offset < seam]


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_ten_offsets_of_a_segment_of_60_mib_cost_one_get_of_their_bytes(
    running: RunningGateway, racks: Racks, store: S3Server, isolation: str
) -> None:
    topic = f"{HUGE}-{isolation}"
    racks.cluster.create_topic(topic, replicas=[[1]], segment_bytes=60 << 20)
    with producer(racks.steady, batch_num_messages=16) as made:
        send(made, topic, (Sent(value=b"%07d" % number + b"x" * 1000) for number in range(62_000)))
    upload(running, racks, topic)
    assert max(one.stat().st_size for one in racks.cluster.remote.rglob(f"{topic}-*/*.log")) > 59 << 20
    options = {**scan_options(READER, store), "offsets": (100, 110), "isolation_level": isolation}
    asked = running.count('requests_total{api="Fetch"}')
    with racks.rights.allowed(READER, "READ", topic):
        scan = segreader.scan(f"kafka://{running.bootstrap}", topic=topic, **options)
        assert isinstance(scan, LiveScan)
        with scan:
            values = [one.value for one in scan.records()]
            store_read = scan._located and scan._located[1]
            assert isinstance(store_read, HttpStore)
            got = store_read.metrics
    fetches = running.count('requests_total{api="Fetch"}') - asked
    assert values == [b"%07d" % number + b"x" * 1000 for number in range(100, 110)]
    assert scan.metrics.sources["broker"].records == 0
    assert got.requests - got.hedges == 1
    assert got.bytes_wanted < 60_000
    assert fetches <= (2 if isolation == "read_committed" else 1)  # one asks which transactions ended behind it


def test_a_scan_through_it_loads_no_transaction_index(
    running: RunningGateway, racks: Racks, java: JavaReader, store: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = ABORTED
    racks.cluster.create_topic(topic, replicas=[[1, 2, 3]], segment_bytes=20_000)
    for number in range(6):
        around = transaction(racks.steady, topic, [Sent(value=b"a" * 500)] * 20, name=topic, is_kept=number % 2 == 1)
        with around, producer(racks.steady, batch_num_messages=10) as made:
            send(made, topic, [Sent(value=value_of(one)) for one in range(40)])
    upload(running, racks, topic)
    seam = racks.cluster.offsets(topic)[0].earliest_local
    loaded: list[str] = []
    read_ranges = HttpStore.read_ranges

    def watched(self: HttpStore, name: str, ranges: Sequence[ByteRange]) -> Sequence[bytes]:
        loaded.append(name)
        return read_ranges(self, name, ranges)

    monkeypatch.setattr(HttpStore, "read_ranges", watched)
    indexes = list(racks.cluster.remote.rglob(f"{topic}-*/*.txnindex"))
    with racks.rights.allowed(READER, "READ", topic):
        options = {**scan_options(READER, store), "offsets": (0, seam)}
        scan = segreader.scan(f"kafka://{running.bootstrap}", topic=topic, **options)
        assert isinstance(scan, LiveScan)
        with scan:
            found = received(scan.records())
            assert scan.metrics.sources["broker"].records == 0
    assert found == [one for one in java.read(racks.bootstrap, topic, isolation="read_committed") if one.offset < seam]
    assert len(indexes) > 1
    assert [name for name in loaded if name.endswith("txnindex")] == []


def test_a_reader_that_does_not_trust_the_stores_address_takes_the_brokers_records(
    running: RunningGateway, racks: Racks
) -> None:
    scan = segreader.scan(f"kafka://{running.bootstrap}", topic=TOPIC, broker_options=login(READER))
    assert isinstance(scan, LiveScan)
    with scan:
        found = received(scan.records())
        assert scan.metrics.sources["location"].bytes_read == 0
    assert found == consume(racks.bootstrap, TOPIC)


def test_who_may_not_read_is_given_no_location(running: RunningGateway, racks: Racks, store: S3Server) -> None:
    given = running.count("locations_given_total")
    with racks.rights.allowed(STRANGER, "DESCRIBE", TOPIC):
        with pytest.raises(AuthorizationError, match=TOPIC), asking(running, STRANGER) as ask:
            ask()
        with pytest.raises(AuthorizationError, match=TOPIC):
            scanned(f"kafka://{running.bootstrap}", TOPIC, **scan_options(STRANGER, store))
    assert running.count("locations_given_total") == given


def test_who_lost_the_right_is_given_no_location_from_then_on(running: RunningGateway, racks: Racks) -> None:
    with contextlib.ExitStack() as connected:
        with racks.rights.allowed(STRANGER, "READ", TOPIC):
            ask = connected.enter_context(asking(running, STRANGER))
            assert ask() == 1
            assert ask() == 2
        given = running.count("locations_given_total")
        with pytest.raises(AuthorizationError, match=TOPIC):
            ask()
    with pytest.raises(AuthorizationError, match=TOPIC), asking(running, STRANGER) as ask:
        ask()
    assert running.count("locations_given_total") == given


def test_what_it_gave_is_audited_and_no_secret_is_in_anything_it_wrote(
    running: RunningGateway, store: S3Server
) -> None:
    with asking(running, READER) as ask:
        assert ask() == 1
    audited = running.audited()
    written = running.audit.read_text() + running.log.read_text(errors="replace") + running.metrics()

    assert audited
    assert all(one["topic"].startswith(TOPIC) for one in audited)
    assert {(one["principal"], one["mechanism"]) for one in audited[-1:]} == {(f"User:{READER.name}", MECHANISM)}
    assert {one["principal"] for one in audited} <= {f"User:{user.name}" for user in USERS}
    for secret in (store.secret, "X-Amz-Signature", "Signature=", *(user.password for user in USERS)):
        assert secret not in written
