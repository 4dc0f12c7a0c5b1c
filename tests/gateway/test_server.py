"""The gateway as a process has it: listeners for brokers, TLS on both sides, limits, metrics and a clean end."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trustme
from frames import frames
from gateway_upstream import Client, Upstream, run

from segreader.broker import api
from segreader.broker.settings import ClientSettings, SecurityProtocol
from segreader.errors import OptionError
from segreader.gateway.config import GatewayConfig, Limits
from segreader.gateway.server import Gateway
from segreader.gateway.wire import SLICE

METADATA = next(one for one in frames("cluster") if one.api == "Metadata")
TOLD = api.decode_metadata(METADATA.version, memoryview(METADATA.response or b"")[4:])
NODES = {one.node_id for one in TOLD.nodes}


def free_base(count: int = 8) -> int:
    """The first of some free ports in a row."""
    while True:
        with contextlib.ExitStack() as held, contextlib.suppress(OSError, OverflowError):
            first = held.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]
            for number in range(first + 1, first + count):
                held.enter_context(socket.create_server(("127.0.0.1", number)))
            return int(first)


def list_groups(number: int = 1) -> bytes:
    data = struct.pack(">hhi", 16, 0, number) + b"\0\1c"
    return struct.pack(">i", len(data)) + data


def echo(request: bytes) -> bytes:
    data = request[4:8] + b"payload"
    return struct.pack(">i", len(data)) + data


@contextlib.asynccontextmanager
async def running(
    handler: Callable[[bytes], object] = echo,
    *,
    context: ssl.SSLContext | None = None,
    **settings: Any,
) -> AsyncIterator[tuple[Gateway, Upstream]]:
    upstream = Upstream(handler)  # type: ignore[arg-type]
    behind = await asyncio.start_server(upstream.serve, "127.0.0.1", 0, ssl=context)
    upstream.port = behind.sockets[0].getsockname()[1]
    config = GatewayConfig(
        bootstrap_servers=(f"127.0.0.1:{upstream.port}",),
        listen_host="127.0.0.1",
        listen_port=free_base(),
        location="s3://bucket",
        **settings,
    )
    gateway = Gateway(config)
    try:
        await gateway.start({1: ("127.0.0.1", upstream.port)})
        yield gateway, upstream
    finally:
        await gateway.stop()
        for writer in [*upstream.writers, *(client.writer for client in _CLIENTS)]:
            writer.close()
        _CLIENTS.clear()
        behind.close()
        await asyncio.sleep(0)


_CLIENTS: list[Client] = []
"""Those of the test that runs; ``running`` closes them."""


async def connected(port: int, context: ssl.SSLContext | None = None) -> Client:
    client = Client(*await asyncio.open_connection("127.0.0.1", port, ssl=context, limit=SLICE))
    _CLIENTS.append(client)
    return client


async def page(port: int, request: bytes) -> bytes:
    client = await connected(port)
    await client.send(request)
    return await client.reader.read()


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
            assert await (await connected(gateway.config.listen_port + 1)).is_closed()
            assert gateway.metrics.failed == {"ConnectionFailedError": 1}

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
            while not upstream.requests or len(gateway._relays) < 2:
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


def test_the_page_of_metrics_counts_and_knows_one_path() -> None:
    async def test() -> None:
        port = free_base(1)
        async with running(metrics_listen=("127.0.0.1", port)) as (gateway, _):
            client = await connected(gateway.config.listen_port)
            await client.ask(list_groups())
            text = (await page(port, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")).decode()
            assert text.startswith("HTTP/1.1 200 OK")
            assert "\nsegreader_gateway_connections_total 1\n" in text
            assert '\nsegreader_gateway_requests_total{api="ListGroups"} 1\n' in text
            assert f'\nsegreader_gateway_relayed_bytes_total{{direction="to_brokers"}} {len(list_groups())}\n' in text
            assert (await page(port, b"GET /other HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 404")
            assert await page(port, bytes(20_000)) == b""

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
            assert await (await connected(gateway.config.listen_port)).is_closed()
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
