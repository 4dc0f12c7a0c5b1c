"""The gateway as a platform team runs it before real brokers: TLS and certificates on both sides, SIGHUP under way."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import trustme
import urllib3
from confluent_kafka import Consumer, TopicPartition
from gateway_process import list_groups
from gateway_upstream import authenticate, handshake
from kafka_kit.clients import Sent, producer, send
from kafka_kit.fetched import take
from kafka_kit.gateway import RunningGateway, gateway
from kafka_kit.racks import READER, USERS, WRITER, Racks
from kafka_kit.rights import User

from segreader.broker.api import decode_sasl_authenticate
from segreader.broker.client import BrokerClient
from segreader.broker.partition_fetcher import PartitionFetcher
from segreader.broker.settings import ClientSettings
from segreader.isolation import IsolationLevel

pytestmark = [pytest.mark.exhaustive, pytest.mark.xdist_group("cluster")]

TOPIC = "gateway-operations"
COUNT = 300


@pytest.fixture(scope="module")
def topic_of_all(racks: Racks) -> Iterator[None]:
    racks.cluster.create_topic(TOPIC, replicas=[[1, 2, 3]], segment_bytes=20_000)
    with producer(racks.steady, batch_num_messages=10) as made:
        send(made, TOPIC, [Sent(value=b"value-%d-" % number + b"x" * 500) for number in range(COUNT)])
    racks.cluster.upload_closed(TOPIC)
    with racks.rights.allowed(READER, "READ", TOPIC), racks.rights.allowed(READER, "READ", TOPIC, kind="GROUP"):
        yield


@pytest.fixture(scope="module")
def tls(racks: Racks, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The gateway's own certificate and key in one file, to be replaced."""
    return Path(shutil.copy(racks.certificates.broker, tmp_path_factory.mktemp("tls") / "own.pem"))


@pytest.fixture(scope="module")
def running(
    racks: Racks, tls: Path, topic_of_all: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningGateway]:
    files = racks.certificates
    config = {
        "bootstrap_servers": racks.cluster.bootstrap_by("SASL_SSL"),
        "location": str(racks.cluster.remote / "kafka-tiered-storage"),
        "url_base": "https://segments.example/",
        "certificate": str(tls),
        "key": str(tls),
        "client_ca": str(files.authority),
        "log_format": "json",
        "client": {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": WRITER.name,
            "sasl.password": "env:GATEWAY_PASSWORD",
            "ssl.ca.location": str(files.authority),
            "ssl.certificate.location": str(files.client),
        },
    }
    env = {"GATEWAY_PASSWORD": WRITER.password}
    with gateway(tmp_path_factory.mktemp("gateway"), config, env=env) as found:
        yield found


def login(racks: Racks, mechanism: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "sasl.username": READER.name,
        "sasl.password": READER.password,
        "ssl.ca.location": str(racks.certificates.authority),
        "ssl.certificate.location": str(racks.certificates.client),
        "ssl.key.location": str(racks.certificates.client),
    }


class Raw:
    """A client that logs in as far as a test wants, by PLAIN over TLS."""

    def __init__(self, running: RunningGateway, racks: Racks, user: User) -> None:
        host, port = running.bootstrap.rsplit(":", 1)
        context = ssl.create_default_context(cafile=str(racks.certificates.authority))
        context.check_hostname = False
        context.load_cert_chain(racks.certificates.client)
        self.socket = context.wrap_socket(socket.create_connection((host, int(port)), 30.0))
        self.user = user

    def ask(self, frame: bytes) -> bytes | None:
        """The answer behind its size; ``None`` where the gateway hangs up."""
        try:
            self.socket.sendall(frame)
            size = int.from_bytes(self._exactly(4), "big")
            return self._exactly(size)
        except (EOFError, OSError):
            return None

    def log_in(self) -> int | None:
        """The broker's error code; ``None`` where the gateway hangs up."""
        self.ask(handshake("PLAIN"))
        answer = self.ask(authenticate(b"\0%s\0%s" % (self.user.name.encode(), self.user.password.encode())))
        return None if answer is None else decode_sasl_authenticate(2, memoryview(answer)).error

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            if not (piece := self.socket.recv(size - len(data))):
                raise EOFError
            data += piece
        return data


@contextlib.contextmanager
def limited(racks: Racks, tmp_path: Path, **limits: int) -> Iterator[RunningGateway]:
    """A gateway before the brokers' listener with SASL over TLS, with these limits."""
    with secured(racks, tmp_path, location=str(tmp_path), limits=limits) as found:
        yield found


@contextlib.contextmanager
def secured(racks: Racks, tmp_path: Path, **settings: object) -> Iterator[RunningGateway]:
    """A gateway with TLS before the brokers' listener with SASL over TLS."""
    files = racks.certificates
    config = {
        "bootstrap_servers": racks.cluster.bootstrap_by("SASL_SSL"),
        "url_base": "https://segments.example/",
        "certificate": str(files.broker),
        "key": str(files.broker),
        **settings,
        "client": {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": WRITER.name,
            "sasl.password": "env:GATEWAY_PASSWORD",
            "ssl.ca.location": str(files.authority),
            "ssl.certificate.location": str(files.client),
        },
    }
    with gateway(tmp_path, config, env={"GATEWAY_PASSWORD": WRITER.password}) as found:
        yield found


Open = Callable[[RunningGateway, User], Raw]


@pytest.fixture
def opened(racks: Racks) -> Iterator[Open]:
    """Makes connections of clients, and closes them."""
    with contextlib.ExitStack() as closing:

        def connect(running: RunningGateway, user: User) -> Raw:
            client = Raw(running, racks, user)
            closing.callback(client.socket.close)
            return client

        yield connect


def test_a_login_with_a_broker_must_be_finished_in_time(racks: Racks, tmp_path: Path, opened: Open) -> None:
    with limited(racks, tmp_path, login_s=5) as found:
        done = opened(found, READER)
        assert done.log_in() == 0
        half = opened(found, READER)
        half.ask(handshake("PLAIN"))
        began = time.monotonic()
        assert half.socket.recv(1) == b""
        assert time.monotonic() - began < 20
        assert done.ask(list_groups()) is not None
        assert found.count("limits_reached_total") == 1
        assert "limit login_s (5) reached by 127.0.0.1:" in found.log.read_text()


def test_before_a_login_a_broker_hears_of_nothing_else(racks: Racks, tmp_path: Path, opened: Open) -> None:
    with limited(racks, tmp_path) as found:
        assert opened(found, READER).ask(list_groups()) is None
        with BrokerClient(found.bootstrap, ClientSettings.from_options(login(racks, "SCRAM-SHA-256"))) as client:
            assert len(client.metadata([]).nodes) == 3


def test_a_user_has_so_many_connections_and_another_one_has_its_own(racks: Racks, tmp_path: Path, opened: Open) -> None:
    with limited(racks, tmp_path, connections_per_principal=2) as found:
        clients = [opened(found, READER) for _ in range(2)]
        assert [one.log_in() for one in clients] == [0, 0]
        assert opened(found, READER).log_in() is None
        assert opened(found, replace(READER, password="wrong")).log_in() == 58
        assert opened(found, WRITER).log_in() == 0
        assert f"limit connections_per_principal (2) reached by User:{READER.name}" in found.log.read_text()
        clients[0].socket.close()
        deadline = time.monotonic() + 30
        while opened(found, READER).log_in() != 0:
            assert time.monotonic() < deadline


def clients_of_workers(running: RunningGateway) -> dict[str, int]:
    found = re.findall(
        r'^segreader_gateway_worker_open_connections{worker="(\d+)"} (\S+)$', running.metrics(), re.MULTILINE
    )
    return {number: int(float(count)) for number, count in found}


def until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def records_through(running: RunningGateway, racks: Racks) -> list[int | None]:
    """The offsets that a consumer of READER gets of the whole topic."""
    settings = {"group.id": TOPIC, "enable.auto.commit": False, "log_level": 0}
    consumer = Consumer({"bootstrap.servers": running.bootstrap, **login(racks, "SCRAM-SHA-512"), **settings})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    offsets: list[int | None] = []
    while len(offsets) < COUNT:
        offsets += [message.offset() for message in consumer.consume(COUNT, 5.0) if message.error() is None]
    consumer.close()
    return offsets


@pytest.mark.usefixtures("topic_of_all")
def test_workers_serve_clients_by_tls_and_login_and_go_on_when_one_of_them_dies(
    racks: Racks, tmp_path: Path, opened: Open
) -> None:
    location = str(racks.cluster.remote / "kafka-tiered-storage")
    with secured(racks, tmp_path, location=location, workers=2, client_ca=str(racks.certificates.authority)) as found:
        readyz = found.metrics_url.replace("/metrics", "/readyz")
        until(lambda: urllib3.request("GET", readyz, timeout=10.0).status == 200, "the gateway is not ready")
        clients: list[Raw] = []
        while len(clients) < 100 and sum(count > 0 for count in clients_of_workers(found).values()) < 2:
            clients.append(opened(found, READER))
            assert clients[-1].log_in() == 0
        assert min(clients_of_workers(found).values()) > 0
        assert opened(found, replace(READER, password="wrong")).log_in() == 58
        assert opened(found, READER).ask(list_groups()) is None  # before a login
        assert records_through(found, racks) == list(range(COUNT))
        until(lambda: located(found, racks, 30), "a worker gives no locations")  # its catalogue may be complete later

        os.kill(found.pid, signal.SIGHUP)
        until(lambda: found.count("reloads_total") == 1, "it is not loaded again")
        assert all(one.ask(list_groups()) is not None for one in clients)

        children = Path(f"/proc/{found.pid}/task/{found.pid}/children").read_text().split()
        os.kill(int(children[0]), signal.SIGKILL)
        until(lambda: found.count("worker_starts_total") == 3, "the worker is not started again")
        served = [one.ask(list_groups()) is not None for one in clients]
        assert True in served  # those of the other one
        assert False in served
        assert records_through(found, racks) == list(range(COUNT))
        until(
            lambda: min(clients_of_workers(found).values()) >= 0 and located(found, racks, 2), "no locations any more"
        )
    lines = found.audit.read_text().splitlines()
    assert {(json.loads(line)["principal"], json.loads(line)["topic"]) for line in lines} == {
        (f"User:{READER.name}", TOPIC)
    }


def located(running: RunningGateway, racks: Racks, connections: int) -> bool:
    """Whether a client is given a location over each of some connections."""
    given = 0
    for _ in range(connections):
        with BrokerClient(running.bootstrap, ClientSettings.from_options(login(racks, "PLAIN"))) as client:
            level = IsolationLevel.READ_COMMITTED
            fetcher = PartitionFetcher(
                client, TOPIC, 0, 0, isolation_level=level, rack="", max_bytes=1 << 20, wants_locations=True
            )
            fetcher.poll()
            given += client.metrics.locations_given
    return given == connections


def ended(running: RunningGateway) -> float:
    """Connections that have ended, or that are not complete yet."""
    return running.count("connections_total") - running.count("open_connections")


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_the_audit_names_the_user_that_the_broker_let_in(running: RunningGateway, racks: Racks, mechanism: str) -> None:
    settings = ClientSettings.from_options(login(racks, mechanism))
    with BrokerClient(running.bootstrap, settings) as client:
        level = IsolationLevel.READ_COMMITTED
        fetcher = PartitionFetcher(
            client, TOPIC, 0, 0, isolation_level=level, rack="", max_bytes=1 << 20, wants_locations=True
        )
        deadline = time.monotonic() + 30
        while not client.metrics.locations_given:  # the catalogue may not be complete yet
            assert time.monotonic() < deadline
            fetcher.poll()
    last = running.audited()[-1]
    assert (last["principal"], last["mechanism"], last["topic"]) == (f"User:{READER.name}", mechanism, TOPIC)
    assert last["peer"].startswith("127.0.0.1:")
    assert last["last_byte"] is None or last["last_byte"] >= last["first_byte"]
    written = running.audit.read_text() + running.log.read_text(errors="replace") + running.metrics()
    for secret in (user.password for user in USERS):
        assert secret not in written


def test_a_consumer_reads_on_through_reloads_on_its_own_connections(
    running: RunningGateway, racks: Racks, tls: Path
) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": running.bootstrap,
            **login(racks, "SCRAM-SHA-512"),
            "group.id": TOPIC,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.message.max.bytes": 20_000,
            "queued.max.messages.kbytes": 20,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    offsets: list[int | None] = []
    before: float | None = None
    reloads = 0
    while len(offsets) < COUNT:
        offsets += [message.offset() for message in consumer.consume(20, 5.0) if message.error() is None]
        if reloads < 5 and len(offsets) >= 20 * (reloads + 1):
            before = ended(running) if before is None else before
            shutil.copy(racks.certificates.broker, tls)
            running.audit.rename(running.audit.with_suffix(f".{reloads}")) if running.audit.exists() else None
            os.kill(running.pid, signal.SIGHUP)
            reloads += 1
            while running.count("reloads_total") < reloads:
                time.sleep(0.01)
    assert before is not None
    until(lambda: ended(running) <= before, "a connection has ended")  # another one may not be complete yet
    consumer.close()
    assert offsets == list(range(COUNT))
    assert running.audit.exists()  # the log has a file of its name again
    assert "stays as it was" not in running.log.read_text()


def test_brokers_share_a_port_under_names_of_their_own(
    racks: Racks, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["gw.example", *(f"b{number}.gw.example" for number in (1, 2, 3))]
    authority, own, trusted = trustme.CA(), tmp_path / "own.pem", tmp_path / "ca.pem"
    authority.issue_cert(*names).private_key_and_cert_chain_pem.write_to_path(own)
    authority.cert_pem.write_to_path(trusted)
    resolve = socket.getaddrinfo
    monkeypatch.setattr(
        socket,
        "getaddrinfo",
        lambda host, *rest, **more: resolve("127.0.0.1" if host in names else host, *rest, **more),
    )
    racks.cluster.create_topic(topic, replicas=[[1], [2], [3]])
    with producer(racks.steady) as made:
        send(made, topic, [Sent(value=b"%d" % number, partition=number) for number in range(3)])
    config = {
        "bootstrap_servers": racks.cluster.bootstrap_by("SASL_PLAINTEXT"),
        "advertised_host": "gw.example",
        "broker_host": "b{node_id}.gw.example",
        "location": str(tmp_path),
        "url_base": "https://segments.example/",
        "certificate": str(own),
        "key": str(own),
        "client": {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": WRITER.name,
            "sasl.password": "env:GATEWAY_PASSWORD",
        },
    }
    options = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": READER.name,
        "sasl.password": READER.password,
        "ssl.ca.location": str(trusted),
    }
    with gateway(tmp_path, config, env={"GATEWAY_PASSWORD": WRITER.password}) as found:
        port = int(found.bootstrap.rpartition(":")[2])
        settings = ClientSettings.from_options(options)
        with (
            racks.rights.allowed(READER, "READ", topic),
            BrokerClient(f"gw.example:{port}", settings) as client,
        ):
            nodes = {node.node_id: (node.host, node.port) for node in client.metadata([topic]).nodes}
            assert nodes == {number: (f"b{number}.gw.example", port) for number in (1, 2, 3)}
            for partition in range(3):
                level = IsolationLevel.READ_COMMITTED
                fetcher = PartitionFetcher(
                    client,
                    topic,
                    partition,
                    0,
                    isolation_level=level,
                    rack="",
                    max_bytes=1 << 20,
                    wants_locations=False,
                )
                assert take(fetcher, 1) == [(0, b"%d" % partition)]
