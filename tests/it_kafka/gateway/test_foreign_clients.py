"""Clients of other makers print the same lines direct and through the gateway, while others write and read beside them.

All of them speak TLS and log in by SCRAM. ``FOREIGN_RUNS=10`` has each conversation ten times.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import Counter
from collections.abc import Iterator
from difflib import unified_diff
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from foreign_clients import programs, python
from foreign_clients.conversation import PARTITIONS, Conversation, ForeignClient, in_order
from foreign_clients.tools import Tools, tools
from kafka_kit.clients import Sent, consume, producer, send, transaction
from kafka_kit.gateway import RunningGateway, gateway
from kafka_kit.java import JavaReader
from kafka_kit.racks import READER, WRITER, Racks
from servers.pool import skip_or_fail
from servers.process import NotAvailableError

pytestmark = [pytest.mark.exhaustive, pytest.mark.xdist_group("cluster")]

RUNS = range(int(os.environ.get("FOREIGN_RUNS", "1")))
PREFIX = "foreign"
TOPIC = f"{PREFIX}-read"
LOAD = f"{PREFIX}-load"
COUNT, ABORTED, WRITTEN = 300, 30, 30
LOAD_BYTES_PER_S = 2 << 20

CLIENTS: dict[str, ForeignClient] = {
    "librdkafka": python.confluent,
    "kafka-python": python.kafka_python,
    "aiokafka": python.aiokafka,
    "kcat": programs.kcat,
    "franz-go": partial(programs.go_client, "franz"),
    "sarama": partial(programs.go_client, "sarama"),
    "segmentio": partial(programs.go_client, "segmentio", skips_nothing=True),
    "kafkajs": programs.kafkajs,
}
"""Beside Java's, which share a process."""
OF_JAVA = {
    "consumer": {"read_committed": COUNT, "read_uncommitted": COUNT + ABORTED},
    "console_consumer": {"group": COUNT, "group-848": COUNT},
    "console_producer": {"left": WRITTEN},
    "share_consumer": {"share": COUNT + ABORTED},
    "describe": {"TopicCommand": 1 + PARTITIONS, "GetOffsetShell": 4 * PARTITIONS, "ConsumerGroupCommand": PARTITIONS},
}
"""With how many lines they have of a kind, at least."""
SIDES = ("direct", "through")


@pytest.fixture(scope="module")
def read_topic(racks: Racks) -> Iterator[None]:
    """Most of it is in the remote tier alone; an aborted transaction comes before the last committed records.

    A marker at the end would leave it to chance whether a client's committed offset is before or after it.
    """
    racks.cluster.create_topic(TOPIC, replicas=[[1, 2, 3], [2, 3, 1], [3, 1, 2]], segment_bytes=20_000)
    values = [b"value-%d-" % number + b"x" * 500 for number in range(COUNT)]
    sent = [
        Sent(
            value=value,
            key=b"key",
            partition=number % PARTITIONS,
            timestamp_ms=1_700_000_000_000 + number,
            headers=(("h", b"1"),),
        )
        for number, value in enumerate(values)
    ]
    aborted = [Sent(value=b"aborted", partition=number % PARTITIONS) for number in range(ABORTED)]
    with (
        transaction(racks.steady, TOPIC, aborted, name=TOPIC, is_kept=False),
        producer(racks.steady, batch_num_messages=10, codec="gzip") as made,
    ):
        send(made, TOPIC, sent[: COUNT // 2])
    has_markers = partial(_has, racks, COUNT // 2 + ABORTED + PARTITIONS)
    racks.cluster.wait_until(has_markers, 30.0, "the transaction has no markers")
    with producer(racks.steady, batch_num_messages=10, codec="gzip") as made:
        send(made, TOPIC, sent[COUNT // 2 :])
    racks.cluster.upload_closed(TOPIC)
    described = Consumer({"bootstrap.servers": racks.steady, "group.id": f"{TOPIC}-described", "log_level": 0})
    described.commit(offsets=[TopicPartition(TOPIC, number, 10 * number) for number in range(PARTITIONS)])
    described.close()
    with contextlib.ExitStack() as rights:
        for operation, kind in (
            ("READ", "TOPIC"),
            ("WRITE", "TOPIC"),
            ("DESCRIBE_CONFIGS", "TOPIC"),
            ("READ", "GROUP"),
        ):
            racks.rights.allow(READER, operation, PREFIX, kind=kind, is_prefix=True)
            rights.callback(racks.rights.take_away, READER, PREFIX, kind=kind)
        yield


def _has(racks: Racks, offsets: int) -> bool:
    return sum(one.latest for one in racks.cluster.offsets(TOPIC).values()) == offsets


@pytest.fixture(scope="module")
def running(racks: Racks, read_topic: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    files = racks.certificates
    config = {
        "bootstrap_servers": racks.cluster.bootstrap_by("SASL_SSL"),
        "location": racks.cluster.location,
        "url_base": "https://segments.example/",
        "certificate": str(files.broker),
        "key": str(files.broker),
        "client": {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": WRITER.name,
            "sasl.password": "env:GATEWAY_PASSWORD",
            "ssl.ca.location": str(files.authority),
        },
    }
    with gateway(tmp_path_factory.mktemp("gateway"), config, env={"GATEWAY_PASSWORD": WRITER.password}) as found:
        yield found


@pytest.fixture(scope="module")
def java_tools(java: JavaReader, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tools]:
    with tools(tmp_path_factory.mktemp("tools"), java) as found:
        yield found


@pytest.fixture(scope="module", autouse=True)
def load(running: RunningGateway, racks: Racks) -> Iterator[None]:
    """A producer and a consumer that are busy through the gateway all the time; they lose and repeat nothing."""
    racks.cluster.create_topic(LOAD, PARTITIONS, replicas=3)
    login = {**_librdkafka(racks, running.bootstrap), "log_level": 0}
    writer = Producer({**login, "enable.idempotence": True, "linger.ms": 20})
    group = {"group.id": LOAD, "auto.offset.reset": "earliest", "fetch.wait.max.ms": 50}
    reader = Consumer(login | group)
    reader.subscribe([LOAD])
    stop, sent, found = threading.Event(), [0], Counter[int]()

    def write() -> None:
        value, piece = os.urandom(1000), LOAD_BYTES_PER_S // 1000 // 20
        while not stop.wait(0.05):
            for _ in range(piece):
                writer.produce(LOAD, b"%d " % sent[0] + value, partition=sent[0] % PARTITIONS)
                sent[0] += 1
            writer.poll(0)

    def read() -> None:
        while not stop.is_set() or len(found) < sent[0]:
            found.update(_number(one) for one in reader.consume(1000, 0.2))

    threads = [threading.Thread(target=one, daemon=True) for one in (write, read)]
    for one in threads:
        one.start()
    yield
    stop.set()
    threads[0].join(30)
    assert writer.flush(60) == 0
    threads[1].join(60)
    reader.close()
    assert sent[0] > 0
    assert found == Counter(range(sent[0]))


def _number(message: Message) -> int:
    assert message.error() is None, message.error()
    value = message.value()
    assert value is not None
    return int(value.split(b" ", 1)[0])


def _librdkafka(racks: Racks, bootstrap: str) -> dict[str, str]:
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": WRITER.name,
        "sasl.password": WRITER.password,
        "ssl.ca.location": str(racks.certificates.authority),
    }


def said(client: ForeignClient, wanted: Conversation, racks: Racks) -> list[str]:
    """The lines of a client, and what it has left behind: offsets of its groups, and records."""
    racks.cluster.create_topic(wanted.into, PARTITIONS, replicas=3)
    try:
        lines = list(client(wanted))
    except NotAvailableError as error:
        skip_or_fail("foreign", error.message)
    for group in (wanted.group, f"{wanted.group}-848"):
        asking = Consumer({"bootstrap.servers": racks.steady, "group.id": group, "log_level": 0})
        found = asking.committed([TopicPartition(TOPIC, number) for number in range(PARTITIONS)], 30)
        lines += [f"committed {group} {one.partition} {one.offset}" for one in found]
        asking.close()
    left = consume(racks.bootstrap, wanted.into, PARTITIONS)
    lines += [f"left {one.partition} {one.offset} {one.key!r} {one.value!r} {one.headers}" for one in left]
    names = {wanted.group: "GROUP", wanted.into: "INTO"}
    return in_order([_replaced(line, names) for line in lines])


def _replaced(line: str, names: dict[str, str]) -> str:
    for name, other in names.items():
        line = line.replace(name, other)
    return line


def conversation(name: str, bootstrap: str, racks: Racks, directory: Path) -> Conversation:
    return Conversation(
        bootstrap=bootstrap,
        user=WRITER if name.startswith("describe") else READER,  # who may describe the cluster
        authority=racks.certificates.authority,
        topic=TOPIC,
        count=COUNT,
        everything=COUNT + ABORTED + PARTITIONS,
        group=group_of(name),
        into=f"{PREFIX}-{name}-into",
        written=WRITTEN,
        directory=directory,
    )


def group_of(name: str) -> str:
    return f"{PREFIX}-{name}-group"


def compare(name: str, client: ForeignClient, running: RunningGateway, racks: Racks, directory: Path) -> list[str]:
    """The same conversation twice; the lines that it has both times."""
    passed = running.count("relayed_bytes_total")
    bootstraps = dict(zip(SIDES, (racks.cluster.bootstrap_by("SASL_SSL"), running.bootstrap), strict=True))
    direct, through = (
        said(client, conversation(f"{name}-{side}", bootstrap, racks, directory), racks)
        for side, bootstrap in bootstraps.items()
    )
    assert [line[:150] for line in unified_diff(direct, through, *SIDES, n=0, lineterm="")] == []
    assert running.count("relayed_bytes_total") > passed
    return direct


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("name", CLIENTS)
def test_another_makers_client_prints_the_same_lines_through_it(
    name: str, run: int, running: RunningGateway, racks: Racks, tmp_path: Path
) -> None:
    lines = compare(f"{name}-{run}", CLIENTS[name], running, racks, tmp_path)
    kinds = Counter(line.split(" ")[0] for line in lines)
    assert kinds["group"] >= COUNT
    assert kinds["left"] == WRITTEN


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("name", OF_JAVA)
def test_kafkas_own_clients_print_the_same_lines_through_it(
    name: str, run: int, running: RunningGateway, racks: Racks, java_tools: Tools, tmp_path: Path
) -> None:
    if name == "share_consumer":
        for side in SIDES:
            java_tools.begin_share_group(racks.steady, group_of(f"{name}-{run}-{side}"))
    lines = compare(f"{name}-{run}", getattr(java_tools, name), running, racks, tmp_path)
    kinds = Counter(line.split(" ")[0] for line in lines)
    assert kinds >= Counter(OF_JAVA[name])
