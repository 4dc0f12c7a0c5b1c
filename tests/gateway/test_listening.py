"""How connections begin: PROXY headers where they are asked for only, names by TLS, certificates of clients."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
import trustme
from gateway_process import connected, list_groups, running
from gateway_upstream import handshake, run

from segreader.broker.settings import ClientSettings
from segreader.errors import OptionError, ProtocolError
from segreader.gateway.config import GatewayConfig
from segreader.gateway.listening import proxied_peer, proxy_body_size, subject_of

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"


def header(peer: str = "192.0.2.7", port: int = 4711, *, command: int = 0x21, more: bytes = b"") -> bytes:
    family = socket.AF_INET6 if ":" in peer else socket.AF_INET
    kind = 0x21 if ":" in peer else 0x11
    local = "::1" if ":" in peer else "127.0.0.1"
    body = socket.inet_pton(family, peer) + socket.inet_pton(family, local) + struct.pack("!HH", port, 9092) + more
    return SIGNATURE + struct.pack("!BBH", command, kind, len(body)) + body


@pytest.mark.parametrize(
    ("data", "peer"),
    [
        (header(), "192.0.2.7:4711"),
        (header("2001:db8::7"), "[2001:db8::7]:4711"),
        (header(more=b"\x04\0\x01x"), "192.0.2.7:4711"),
        (header(command=0x20), None),
        (SIGNATURE + b"\x21\0\0\0", None),
    ],
)
def test_a_header_names_the_client(data: bytes, peer: str | None) -> None:
    assert proxy_body_size(data[:16]) == len(data) - 16
    assert proxied_peer(data[:16], data[16:]) == peer


@pytest.mark.parametrize(
    "head",
    [
        b"PROXY TCP4 192.0",
        SIGNATURE + b"\x11\x11\0\x0c",
        SIGNATURE + b"\x22\x11\0\x0c",
        SIGNATURE + b"\x21\x11\xff\xff",
    ],
)
def test_another_header_is_refused(head: bytes) -> None:
    with pytest.raises(ProtocolError):
        proxy_body_size(head)


def test_cut_addresses_are_refused() -> None:
    with pytest.raises(ProtocolError, match="cut"):
        proxied_peer(header()[:16], header()[16:20])


def test_behind_a_load_balancer_the_peer_is_the_headers() -> None:
    async def test() -> None:
        async with running(proxy_protocol=True) as (gateway, upstream):
            client = await connected(gateway.config.listen_port)
            for byte in header():  # in pieces
                await client.send(bytes([byte]))
            assert (await client.ask(list_groups()))[8:] == b"payload"
            assert [relay.peer for relay in gateway._relays] == ["192.0.2.7:4711"]
            plain = await connected(gateway.config.listen_port)
            await plain.send(list_groups())
            with contextlib.suppress(ConnectionResetError):  # of bytes that were not read
                assert await plain.is_closed()
            assert gateway.metrics.failed == {"ProtocolError": 1}
            assert len(upstream.requests) == 1

    run(test)


@pytest.mark.parametrize(
    ("sources", "is_taken"),
    [("10.0.0.0/8 127.0.0.1", True), ("127.0.0.0/8", True), ("10.0.0.0/8 ::1", False)],
)
def test_a_header_is_taken_from_the_load_balancers_alone(sources: str, is_taken: bool) -> None:
    networks = tuple(map(ip_network, sources.split()))

    async def test() -> None:
        async with running(proxy_protocol=True, proxy_sources=networks) as (gateway, upstream):
            client = await connected(gateway.config.listen_port)
            with contextlib.suppress(ConnectionResetError):
                await client.send(header() + list_groups())
                assert await client.is_closed() is not is_taken
            assert len(upstream.requests) == is_taken
            assert gateway.metrics.failed == ({} if is_taken else {"ConnectionFailedError": 1})

    run(test)


def test_a_header_is_refused_at_a_port_that_asks_for_none(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with running(proxy_protocol=frozenset((1,))) as (gateway, upstream):
            client = await connected(gateway.config.listen_port)
            await client.send(header() + list_groups())
            assert await client.is_closed()
            assert upstream.requests == []
            assert gateway.metrics.failed == {"ProtocolError": 1}

    with caplog.at_level("INFO"):
        run(test)
    assert "PROXY header" in caplog.text


class Tls:
    """A gateway's certificate and clients of it."""

    def __init__(self, root: Path, *names: str) -> None:
        self.authority = trustme.CA()
        self.authority.cert_pem.write_to_path(str(root / "ca.pem"))
        self.ca = str(root / "ca.pem")
        self.settings = self.issue(root, *names)

    def issue(self, root: Path, *names: str) -> dict[str, Any]:
        own = self.authority.issue_cert(*names)
        own.cert_chain_pems[0].write_to_path(str(root / "own.pem"))
        own.private_key_pem.write_to_path(str(root / "own.key"))
        return {"certificate": str(root / "own.pem"), "key": str(root / "own.key")}

    def client(self, certificate: trustme.LeafCert | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.ca)
        if certificate is not None:
            certificate.configure_cert(context)
        return context


def test_one_port_serves_every_broker_by_the_name_that_tls_gives(tmp_path: Path) -> None:
    tls = Tls(tmp_path, "gw.example", "b1.gw.example", "b7.gw.example")

    async def test() -> None:
        settings = {"broker_host": "B{node_id}.gw.example", "advertised_host": "gw.example", **tls.settings}
        async with running(**settings) as (gateway, upstream):
            port = gateway.config.listen_port
            assert gateway.addresses.translate(1, "127.0.0.1", upstream.port) == ("B1.gw.example", port)
            assert gateway.ports == {1: port}
            assert len(gateway._listeners) == 1
            for name, node in (("gw.example", "a bootstrap server"), ("b1.gw.example", "broker 1")):
                client = await connected(port, tls.client(), name=name)
                assert (await client.ask(list_groups()))[8:] == b"payload"
                assert [relay.node for relay in gateway._relays] == [node]
                client.writer.close()
                while gateway._relays:
                    await asyncio.sleep(0.01)
            unknown = await connected(port, tls.client(), name="b7.gw.example")
            await unknown.send(list_groups())
            assert await unknown.is_closed()

    run(test)


def test_a_client_must_have_a_certificate_where_that_is_required_and_its_subject_is_its_name(tmp_path: Path) -> None:
    tls = Tls(tmp_path, "127.0.0.1")
    own = tls.authority.issue_cert("reader.example", common_name="reader, one", organization_name="O")

    async def test() -> None:
        async with running(client_ca=tls.ca, **tls.settings) as (gateway, upstream):
            client = await connected(gateway.config.listen_port, tls.client(own))
            await client.ask(list_groups())
            (relay,) = gateway._relays
            assert relay.login.principal is not None
            assert relay.login.principal.startswith("User:CN=reader\\, one,")
            assert relay.login.mechanism == "TLS"
            with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
                await (await connected(gateway.config.listen_port, tls.client())).ask(list_groups())
            strange = trustme.CA().issue_cert("reader.example")
            with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
                await (await connected(gateway.config.listen_port, tls.client(strange))).ask(list_groups())
            assert len(upstream.requests) == 1
        async with running(client_ca=tls.ca, client_auth="requested", **tls.settings) as (gateway, _):
            await (await connected(gateway.config.listen_port, tls.client())).ask(list_groups())
            assert [one.login.principal for one in gateway._relays] == [None]

    run(test)


def test_brokers_that_ask_for_a_certificate_beside_sasl_get_the_gateways(tmp_path: Path) -> None:
    authority = trustme.CA()
    own = authority.issue_cert("gateway.example", common_name="gateway")
    own.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "own.pem"))
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    asking = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(asking)
    authority.configure_trust(asking)
    asking.verify_mode = ssl.CERT_REQUIRED
    options = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "gateway",
        "sasl.password": "x",
        "ssl.ca.location": str(tmp_path / "ca.pem"),
    }

    async def test() -> None:
        given = ClientSettings.from_options({**options, "ssl.certificate.location": str(tmp_path / "own.pem")})
        async with running(context=asking, client=given) as (found, upstream):
            assert (await (await connected(found.config.listen_port)).ask(handshake("PLAIN")))[8:] == b"payload"
            assert dict(part[0] for part in upstream.writers[0].get_extra_info("peercert")["subject"])[
                "commonName"
            ] == ("gateway")
        async with running(context=asking, client=ClientSettings.from_options(options)) as (found, upstream):
            client = await connected(found.config.listen_port)
            await client.send(handshake("PLAIN"))
            assert await client.is_closed()
            assert upstream.requests == []

    run(test)


def test_a_header_comes_before_tls(tmp_path: Path) -> None:
    tls = Tls(tmp_path, "127.0.0.1")

    async def test() -> None:
        async with running(proxy_protocol=True, **tls.settings) as (gateway, _):
            client = await connected(gateway.config.listen_port)
            client.writer.write(header())
            await client.writer.start_tls(tls.client(), server_hostname="127.0.0.1")
            assert (await client.ask(list_groups()))[8:] == b"payload"
            assert [relay.peer for relay in gateway._relays] == ["192.0.2.7:4711"]

    run(test)


def test_subjects_are_named_as_kafka_names_them() -> None:
    parts = ((("countryName", "NO"),), (("organizationName", 'A "B"'),), (("commonName", "c"), ("userId", "u")))
    assert subject_of({"subject": parts}) == 'CN=c+UID=u,O=A \\"B\\",C=NO'
    assert subject_of(None) is subject_of({}) is None


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"broker_host": "b.example"}, "{node_id}"),
        ({"broker_host": "b{node_id}.example"}, "needs TLS"),
        ({"client_ca": "ca.pem"}, "needs TLS"),
        ({"client_auth": "maybe"}, "client_auth"),
        ({"log_format": "xml"}, "log_format"),
        ({"proxy_protocol": "yes"}, "list of ports"),
        ({"proxy_protocol": True, "proxy_sources": "10.0.0.1"}, "list of addresses"),
        ({"proxy_protocol": True, "proxy_sources": ["10.0.0.1/8"]}, "has host bits set"),
        ({"proxy_sources": ["10.0.0.1"]}, "needs proxy_protocol"),
        ({"broker_host": "b{node_id}.x", "certificate": "c", "key": "k", "ports": {"1": 5}}, "both"),
    ],
)
def test_settings_that_make_no_sense_are_refused(given: dict[str, Any], told: str) -> None:
    least = {"bootstrap_servers": "b1:9092", "listen": "127.0.0.1:19092", "location": "s3://bucket"}
    with pytest.raises(OptionError) as caught:
        GatewayConfig.load(None, {**least, **given})
    assert told in str(caught.value)
