"""The gateway as a process has it: listeners for brokers, TLS on both sides, limits, metrics and a clean end."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trustme
from frames import frames
from gateway_process import connected, echo, list_groups, running
from gateway_upstream import Client, run

from segreader.broker import api
from segreader.broker.settings import ClientSettings, SecurityProtocol
from segreader.errors import OptionError
from segreader.gateway.config import GatewayConfig, Limits
from segreader.gateway.server import Gateway
from segreader.gateway.wire import SLICE

METADATA = next(one for one in frames("cluster") if one.api == "Metadata")
TOLD = api.decode_metadata(METADATA.version, memoryview(METADATA.response or b"")[4:])
NODES = {one.node_id for one in TOLD.nodes}


def test_each_broker_has_a_port_and_the_first_one_is_where_clients_begin() -> None:
    async def test() -> None:
        async with running() as (gateway, upstream):
            base = gateway.config.listen_port
            assert gateway.ports == {1: base + 1}
            for port in (base, base + 1):
                client = await connected(port)
                assert (await client.ask(list_groups()))[8:] == b"payload"
                client.writer.close()
            assert len(upstream.requests) == 2

    run(test)


def test_a_broker_that_metadata_names_gets_its_listener_before_the_client_hears_of_it() -> None:
    async def test() -> None:
        async with running(lambda request: METADATA.response) as (gateway, _):
            base = gateway.config.listen_port
            client = await connected(base)
            got = await client.ask(METADATA.request or b"")
            told = api.decode_metadata(METADATA.version, memoryview(got)[4:])
            assert {one.node_id for one in told.nodes} == NODES
            for one in told.nodes:
                (await connected(one.port)).writer.close()
            assert set(gateway.ports) == NODES | {1}

    run(test)


def test_a_port_that_cannot_be_had_is_told() -> None:
    async def test() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            config = GatewayConfig(
                bootstrap_servers=("127.0.0.1:1",),
                listen_host="127.0.0.1",
                listen_port=taken.getsockname()[1],
                location="s3://bucket",
            )
            with pytest.raises(OptionError, match="port cannot be opened"):
                await Gateway(config).start()

    run(test)


def test_clients_above_the_limit_are_hung_up_on() -> None:
    async def test() -> None:
        async with running(limits=Limits(connections=2)) as (gateway, _):
            clients = [await connected(gateway.config.listen_port) for _ in range(2)]
            for client in clients:
                await client.ask(list_groups())
            assert await (await connected(gateway.config.listen_port)).is_closed()
            assert gateway.metrics.refused_connections == 1
            clients[0].writer.close()
            while gateway.metrics.open_connections == 2:
                await asyncio.sleep(0.01)
            await (await connected(gateway.config.listen_port)).ask(list_groups())

    run(test)


def test_a_client_whose_broker_is_down_is_hung_up_on() -> None:
    async def test() -> None:
        async with running() as (gateway, _):
            with socket.create_server(("127.0.0.1", 0)) as gone:
                port = gone.getsockname()[1]
            gateway.addresses.translate(1, "127.0.0.1", port)
            client = await connected(gateway.config.listen_port + 1)
            await client.send(list_groups())
            assert await client.is_closed()
            assert gateway.metrics.failed == {"ConnectionFailedError": 1}

    run(test)


def test_clients_above_the_limit_of_an_address_are_hung_up_on(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with running(limits=Limits(connections_per_address=2)) as (gateway, _):
            clients = [await connected(gateway.config.listen_port) for _ in range(2)]
            for client in clients:
                await client.ask(list_groups())
            for _ in range(3):
                assert await (await connected(gateway.config.listen_port)).is_closed()
            assert gateway.metrics.limits_reached == {"connections_per_address": 3}
            clients[0].writer.close()
            while gateway.metrics.open_connections == 2:
                await asyncio.sleep(0.01)
            await (await connected(gateway.config.listen_port)).ask(list_groups())

    run(test)
    said = [one.getMessage() for one in caplog.records if "connections_per_address (2) reached" in one.getMessage()]
    assert said == ["limit connections_per_address (2) reached by 127.0.0.1, 1 times since last logged"]


def test_a_broker_hears_of_a_client_with_its_first_whole_request() -> None:
    async def test() -> None:
        async with running() as (gateway, upstream):
            clients = [await connected(gateway.config.listen_port) for _ in range(3)]
            for client, cut in zip(clients, (0, 3, -1), strict=True):
                await client.send(list_groups()[:cut])
            await asyncio.sleep(0.2)
            assert upstream.writers == []
            await clients[2].send(list_groups()[-1:])
            assert (await clients[2].receive())[8:] == b"payload"
            assert len(upstream.writers) == 1
            for client in clients[:2]:
                client.writer.close()

    run(test)


def test_a_first_request_that_is_larger_than_what_waits_is_passed_on() -> None:
    data = struct.pack(">hhi", 16, 0, 1) + b"\0\1c" + bytes(5 * SLICE)

    async def test() -> None:
        async with running() as (gateway, upstream):
            client = await connected(gateway.config.listen_port)
            await client.send(struct.pack(">i", len(data)) + data)
            assert (await client.receive())[8:] == b"payload"
            assert upstream.requests == [data]

    run(test)


def test_a_client_that_does_not_ask_in_time_is_hung_up_on() -> None:
    async def test() -> None:
        async with running(limits=Limits(first_request_s=1)) as (gateway, upstream):
            busy = await connected(gateway.config.listen_port)
            await busy.ask(list_groups())
            silent, slow = [await connected(gateway.config.listen_port) for _ in range(2)]
            await slow.send(list_groups()[:10])
            assert await silent.is_closed()
            assert await slow.is_closed()
            await asyncio.sleep(0.3)
            assert (await busy.ask(list_groups()))[8:] == b"payload"
            assert gateway.metrics.limits_reached == {"first_request_s": 2}
            assert len(upstream.writers) == 1

    run(test)


def test_a_stop_lets_answers_under_way_go_out_and_takes_no_more() -> None:
    async def test() -> None:
        go = asyncio.Event()

        async def slow(request: bytes) -> bytes:
            await go.wait()
            return echo(request)

        async with running(slow) as (gateway, upstream):
            busy, idle = [await connected(gateway.config.listen_port) for _ in range(2)]
            await busy.send(list_groups(7))
            while not upstream.requests or not gateway._arriving:
                await asyncio.sleep(0.01)
            stopping = asyncio.ensure_future(gateway.stop())
            assert await idle.is_closed()
            with pytest.raises(ConnectionRefusedError):
                await connected(gateway.config.listen_port)
            go.set()
            assert await busy.receive() == echo(list_groups(7)[4:])
            assert await busy.is_closed()
            await stopping

    run(test)


def test_a_stop_does_not_wait_for_ever() -> None:
    async def test() -> None:
        async with running(lambda request: None, drain_s=0.2) as (gateway, upstream):
            client = await connected(gateway.config.listen_port)
            await client.send(list_groups())
            while not upstream.requests:
                await asyncio.sleep(0.01)
            await gateway.stop()
            assert await client.is_closed()

    run(test)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def test_tls_is_spoken_with_clients_and_verified_with_brokers(authority: trustme.CA, tmp_path: Path) -> None:
    broker, own = authority.issue_cert("127.0.0.1"), authority.issue_cert("127.0.0.1")
    to_broker = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    broker.configure_cert(to_broker)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    own.cert_chain_pems[0].write_to_path(str(tmp_path / "own.pem"))
    own.private_key_pem.write_to_path(str(tmp_path / "own.key"))
    settings = ClientSettings(security_protocol=SecurityProtocol.SSL, ca_file=str(tmp_path / "ca.pem"))
    files: dict[str, Any] = {"certificate": str(tmp_path / "own.pem"), "key": str(tmp_path / "own.key")}
    trusting = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))

    async def test() -> None:
        async with running(context=to_broker, client=settings, **files) as (gateway, _):
            client = await connected(gateway.config.listen_port, trusting)
            assert (await client.ask(list_groups()))[8:] == b"payload"
            client.writer.close()
        strange = replace(settings, ca_file=None)
        async with running(context=to_broker, client=strange) as (gateway, upstream):
            client = await connected(gateway.config.listen_port)
            await client.send(list_groups())
            assert await client.is_closed()
            assert upstream.requests == []

    run(test)


def test_a_certificate_that_is_none_is_told(tmp_path: Path) -> None:
    (tmp_path / "bad.pem").write_text("c4nary")
    bad = str(tmp_path / "bad.pem")

    async def test() -> None:
        with pytest.raises(OptionError, match="certificate") as caught:
            async with running(certificate=bad, key=bad):
                pass
        assert "c4nary" not in str(caught.value)

    run(test)


def test_a_reload_serves_a_new_certificate_new_limits_and_drops_nobody(authority: trustme.CA, tmp_path: Path) -> None:
    def issue(name: str) -> dict[str, Any]:
        own = authority.issue_cert("127.0.0.1", common_name=name)
        own.cert_chain_pems[0].write_to_path(str(tmp_path / "own.pem"))
        own.private_key_pem.write_to_path(str(tmp_path / "own.key"))
        return {"certificate": str(tmp_path / "own.pem"), "key": str(tmp_path / "own.key")}

    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    trusting = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))

    async def name_at(port: int) -> tuple[Client, str]:
        client = await connected(port, trusting)
        await client.ask(list_groups())
        (name,) = [
            part[0][1] for part in client.writer.get_extra_info("peercert")["subject"] if part[0][0] == "commonName"
        ]
        return client, name

    async def test() -> None:
        async with running(**issue("first")) as (gateway, _):
            port = gateway.config.listen_port
            early, name = await name_at(port)
            assert name == "first"
            issue("second")
            given = replace(gateway.config, limits=Limits(connections=2, request_bytes=1000), drain_s=3.0)
            assert await gateway.reload(lambda: given)
            late, name = await name_at(port)
            assert name == "second"
            assert (await early.ask(list_groups()))[8:] == b"payload"
            with pytest.raises((ConnectionError, ssl.SSLError, asyncio.IncompleteReadError)):
                await name_at(port)
            assert gateway.metrics.refused_connections == 1
            await early.send(struct.pack(">i", 2000))  # the new limit holds for a connection of before
            assert await early.is_closed()
            assert (await late.ask(list_groups()))[8:] == b"payload"
            assert gateway.metrics.reloads == {"ok": 1}

    run(test)


def test_a_reload_that_fails_leaves_all_as_it_was_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with running() as (gateway, _):
            before = gateway.config
            (tmp_path / "bad.pem").write_text("c4nary")
            bad = replace(before, certificate=str(tmp_path / "bad.pem"), key=str(tmp_path / "bad.pem"))
            assert not await gateway.reload(lambda: bad)
            assert gateway.config is before
            assert gateway.metrics.reloads == {"failed": 1}
            assert (await (await connected(before.listen_port)).ask(list_groups()))[8:] == b"payload"
            with caplog.at_level("WARNING"):
                assert await gateway.reload(lambda: replace(before, location="s3://other"))
            assert gateway.config.location == before.location
            assert "with the next start only: location" in caplog.text

    run(test)
    assert "stays as it was" in caplog.text
    assert "c4nary" not in caplog.text
