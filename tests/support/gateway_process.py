"""A gateway with its listeners in front of one broker, all in one event loop; and clients of it."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Callable
from typing import Any

from gateway_upstream import Client, Upstream
from servers.pool import skip_or_fail

from segreader.gateway.config import GatewayConfig
from segreader.gateway.server import Gateway
from segreader.gateway.wire import SLICE


def require_prometheus() -> None:
    """Skip the test where the package of the metrics is missing; CI has it."""
    if importlib.util.find_spec("prometheus_client") is None:
        skip_or_fail("prometheus", "prometheus-client is not installed: make .venv/.dev")


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


async def connected(port: int, context: ssl.SSLContext | None = None, *, name: str | None = None) -> Client:
    """A client; ``name`` is what it calls the gateway by TLS."""
    opened = await asyncio.open_connection("127.0.0.1", port, ssl=context, limit=SLICE, server_hostname=name)
    client = Client(*opened)
    _CLIENTS.append(client)
    return client


async def page(port: int, request: bytes) -> bytes:
    client = await connected(port)
    await client.send(request)
    return await client.reader.read()
