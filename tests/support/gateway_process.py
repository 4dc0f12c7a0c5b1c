"""A gateway with its listeners in front of one broker, all in one event loop; and clients of it."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import ssl
import struct
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import urllib3
from gateway_upstream import Client, Upstream
from servers.pool import skip_or_fail
from servers.process import claimed_ports

from segreader.gateway.config import GatewayConfig
from segreader.gateway.server import Gateway
from segreader.gateway.wire import SLICE


def require_prometheus() -> None:
    """Skip the test where the package of the metrics is missing; CI has it."""
    if importlib.util.find_spec("prometheus_client") is None:
        skip_or_fail("prometheus", "prometheus-client is not installed: make .venv/.dev")


PORTS = 8
"""Ports in a row for a gateway: where clients begin, those of its brokers, and perhaps its pages."""


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
    with claimed_ports(PORTS) as base:
        config = GatewayConfig(
            bootstrap_servers=(f"127.0.0.1:{upstream.port}",),
            listen_host="127.0.0.1",
            listen_port=base,
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


def started(config: Path) -> subprocess.Popen[str]:
    """The command in a process of its own."""
    command = [sys.executable, "-m", "segreader.cli.main", "gateway", "--config", str(config)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=dict(os.environ))


def line_with(process: subprocess.Popen[str], text: str) -> str:
    """The next line of stderr that has a text in it."""
    assert process.stderr is not None
    lines: list[str] = []
    while not (lines and text in lines[-1]):
        lines.append(process.stderr.readline())
        assert lines[-1], lines
    return lines[-1]


def status(port: int, path: str) -> tuple[int, str]:
    """A page of a gateway: its status and its text."""
    found = urllib3.request("GET", f"http://127.0.0.1:{port}{path}", retries=5, timeout=10.0)
    return found.status, found.data.decode()
