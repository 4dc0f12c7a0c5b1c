"""The gateway where it is not alone: behind a load balancer, behind certificates, before brokers that come later."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
import urllib3
from kafka_kit.clients import Sent, consume, producer, send
from kafka_kit.gateway import RunningGateway, gateway
from kafka_kit.racks import READER, WRITER, Racks
from kafka_kit.rights import bearer_token
from prometheus_client.parser import text_string_to_metric_families
from servers.process import free_port

from segreader.broker.client import BrokerClient
from segreader.broker.partition_fetcher import PartitionFetcher
from segreader.broker.settings import ClientSettings
from segreader.errors import BrokerError
from segreader.isolation import IsolationLevel

pytestmark = [pytest.mark.exhaustive, pytest.mark.xdist_group("cluster")]

TOPIC = "gateway-behind-balancers"
COUNT = 300
BALANCER = "127.0.0.2"
CLIENT = ("203.0.113.7", 4711)


@pytest.fixture(scope="module", autouse=True)
def topic_of_all(racks: Racks) -> Iterator[None]:
    racks.cluster.create_topic(TOPIC, replicas=[[1, 2, 3]], segment_bytes=20_000)
    with producer(racks.steady, batch_num_messages=10) as made:
        send(made, TOPIC, [Sent(value=b"value-%d-" % number + b"x" * 500) for number in range(COUNT)])
    racks.cluster.upload_closed(TOPIC)
    with racks.rights.allowed(READER, "READ", TOPIC):
        yield


@contextlib.contextmanager
def forwarded(place: tuple[str, int], target: tuple[str, int], header: bytes = b"") -> Iterator[None]:
    """A load balancer of TCP, until the block ends.

    Args:
        header: what it sends before a client's bytes.
    """

    def pipe(source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data)
        for one in (source, sink):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def serve(taken: socket.socket) -> None:
        with taken, contextlib.suppress(OSError), socket.create_connection(target) as behind:
            behind.sendall(header)
            back = threading.Thread(target=pipe, args=(behind, taken), daemon=True)
            back.start()
            pipe(taken, behind)
            back.join()

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listening.accept()[0],), daemon=True).start()

    with socket.create_server(place) as listening:
        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()


def proxy_header(client: tuple[str, int]) -> bytes:
    """Version 2, as a load balancer sends it for a client by TCP over IPv4."""
    addresses = socket.inet_aton(client[0]) + socket.inet_aton(BALANCER) + struct.pack("!HH", client[1], 9093)
    return b"\r\n\r\n\0\r\nQUIT\n" + struct.pack("!BBH", 0x21, 0x11, len(addresses)) + addresses


def config_of(racks: Racks, directory: Path) -> dict[str, Any]:
    """Of a gateway that speaks TLS and asks clients for a certificate; its certificate is the balancer's, too."""
    authority, own = trustme.CA(), directory / "own.pem"
    authority.issue_cert("127.0.0.1", BALANCER).private_key_and_cert_chain_pem.write_to_path(str(own))
    authority.cert_pem.write_to_path(str(directory / "trusted.pem"))
    return {
        "bootstrap_servers": racks.steady,
        "location": racks.cluster.location,
        "url_base": "https://segments.example/",
        "certificate": str(own),
        "key": str(own),
        "client_ca": str(racks.certificates.authority),
        "log_format": "json",
    }


def located(running: RunningGateway, bootstrap: str, options: dict[str, Any]) -> dict[str, Any]:
    """The audit's line for a location that a client with these options is given."""
    with BrokerClient(bootstrap, ClientSettings.from_options(options)) as client:
        level = IsolationLevel.READ_COMMITTED
        fetcher = PartitionFetcher(
            client, TOPIC, 0, 0, isolation_level=level, rack="", max_bytes=1 << 20, wants_locations=True
        )
        deadline = time.monotonic() + 60
        while not client.metrics.locations_given:  # the catalogue may not be complete yet
            assert time.monotonic() < deadline
            fetcher.poll()
    return running.audited()[-1]


def log_of(running: RunningGateway) -> list[dict[str, Any]]:
    return [json.loads(line) for line in running.log.read_text().splitlines()]


def test_behind_a_balancer_the_audit_names_the_certificate_and_the_address_of_the_client(
    racks: Racks, tmp_path: Path
) -> None:
    with gateway(tmp_path, config_of(racks, tmp_path) | {"advertised_host": BALANCER, "proxy_protocol": True}) as found:
        first = int(found.bootstrap.rpartition(":")[2])
        options = {
            "security.protocol": "SSL",
            "ssl.ca.location": str(tmp_path / "trusted.pem"),
            "ssl.certificate.location": str(racks.certificates.client),
            "ssl.key.location": str(racks.certificates.client),
        }
        with contextlib.ExitStack() as balancer:
            for port in range(first, first + 4):
                place = forwarded((BALANCER, port), ("127.0.0.1", port), proxy_header(CLIENT))
                balancer.enter_context(place)
            line = located(found, f"{BALANCER}:{first}", options)
            assert line["principal"].startswith("User:CN=client,")
            assert line["mechanism"] == "TLS"
            assert line["peer"] == "203.0.113.7:4711"
            assert time.time() * 1000 < line["expiry_ms"] <= time.time() * 1000 + 15 * 60_000
            del options["ssl.certificate.location"], options["ssl.key.location"]
            with pytest.raises(BrokerError):  # of no authority that the gateway asks for
                located(found, f"{BALANCER}:{first}", options)
            with pytest.raises(BrokerError):  # past the balancer, without its header
                located(found, found.bootstrap, options)
        assert found.count("failed_connections_total") > 0
        assert {one["level"] for one in log_of(found)} <= {"INFO", "WARNING"}


def test_the_audit_names_the_subject_of_a_token(racks: Racks, tmp_path: Path) -> None:
    config = config_of(racks, tmp_path) | {"bootstrap_servers": racks.cluster.bootstrap_by("SASL_PLAINTEXT")}
    del config["client_ca"]
    config["client"] = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": WRITER.name,
        "sasl.password": "env:GATEWAY_PASSWORD",
    }
    token = bearer_token(READER.name)
    options = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token": token,
        "ssl.ca.location": str(tmp_path / "trusted.pem"),
    }
    with gateway(tmp_path, config, env={"GATEWAY_PASSWORD": WRITER.password}) as found:
        line = located(found, found.bootstrap, options)
        assert (line["principal"], line["mechanism"]) == (f"User:{READER.name}", "OAUTHBEARER")
        assert token not in found.audit.read_text() + found.log.read_text() + found.metrics()


def test_brokers_that_are_away_at_the_start_are_served_when_they_come(racks: Racks, tmp_path: Path) -> None:
    away = ("127.0.0.1", free_port())
    config = config_of(racks, tmp_path) | {"bootstrap_servers": f"127.0.0.1:{away[1]}"}
    for name in ("certificate", "key", "client_ca"):
        del config[name]
    with gateway(tmp_path, config, page="healthz") as found:
        assert page(found, "healthz") == (200, "ok\n")
        status, text = page(found, "readyz")
        assert (status, json.loads(text)["ready"]) == (503, False)
        assert 0 < lag_s(found) < 60
        with forwarded(away, ("127.0.0.1", racks.cluster.node(1).config.port)):
            racks.cluster.wait_until(lambda: page(found, "readyz")[0] == 200, 90.0, "the gateway is not ready")
            assert consume(found.bootstrap, TOPIC) == consume(racks.bootstrap, TOPIC)
            assert lag_s(found) < 60
        log = log_of(found)
    assert all(one.keys() >= {"time", "level", "message"} for one in log)
    assert any(one["message"].startswith("ready:") for one in log)


def page(running: RunningGateway, name: str) -> tuple[int, str]:
    answer = urllib3.request("GET", running.metrics_url.replace("/metrics", f"/{name}"), retries=False, timeout=10.0)
    return answer.status, answer.data.decode()


def lag_s(running: RunningGateway) -> float:
    """As the parser of Prometheus' own client reads it."""
    families = {one.name: one for one in text_string_to_metric_families(running.metrics())}
    assert families["segreader_gateway_build_info"].samples[0].value == 1
    (sample,) = families["segreader_gateway_catalogue_lag_seconds"].samples
    return sample.value
