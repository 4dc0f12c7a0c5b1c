"""A broker's side of a gateway for tests: answers are bytes that the test says, sent in pieces of any size.

And a client's side that speaks frames, and a gateway around both, all on loopback and in one event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from fake_broker import encode_answer

from segreader.broker.codec import encode_request
from segreader.broker.protocol import Api
from segreader.gateway.config import Limits
from segreader.gateway.listening import listen, receive
from segreader.gateway.metrics import GatewayMetrics
from segreader.gateway.relay import Relay
from segreader.gateway.rewriting import AddressTable, PortPlan
from segreader.gateway.wire import connect

HOST = "gateway.example"
PORTS = PortPlan(10_000, {})

Reply = bytes | list[bytes] | None
Handler = Callable[[bytes], Reply | Awaitable[Reply]]


@dataclass
class Upstream:
    """A broker: ``handler`` gets each request without its size, and says the answer's whole frame, or ``None``."""

    handler: Handler
    pieces: random.Random | None = None
    requests: list[bytes] = field(default_factory=list)
    port: int = 0
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                frame = await reader.readexactly(size)
                self.requests.append(frame)
                reply = self.handler(frame)
                if asyncio.iscoroutine(reply):
                    reply = await reply
                for piece in self._cut(reply):
                    writer.write(piece)
                    await writer.drain()
                    if self.pieces is not None:
                        await asyncio.sleep(0)
        writer.close()

    def _cut(self, reply: Any) -> list[bytes]:
        if reply is None:
            return []
        if isinstance(reply, list):
            return reply
        if self.pieces is None:
            return [reply]
        cuts = sorted(self.pieces.randrange(len(reply) + 1) for _ in range(min(len(reply), 12)))
        return [reply[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(reply)], strict=True) if start < stop]


class SaslBroker:
    """Answers each SASL request with the next of ``answers``, an error code and bytes; without one, with a yes."""

    def __init__(self, *answers: tuple[int, bytes]) -> None:
        self.answers = list(answers)
        self.requests: list[bytes] = []

    def __call__(self, request: bytes) -> bytes:
        key, version, number = struct.unpack_from(">hhi", request)
        self.requests.append(request)
        if key == Api.SASL_HANDSHAKE:
            return encode_answer("SaslHandshake", version, number, {"error_code": 0, "mechanisms": []})
        if key != Api.SASL_AUTHENTICATE:
            return struct.pack(">i", 11) + request[4:8] + b"payload"
        code, data = self.answers.pop(0) if self.answers else (0, b"")
        fields = {"error_code": code, "error_message": None, "auth_bytes": data, "session_lifetime_ms": 0}
        return encode_answer("SaslAuthenticate", version, number, fields)


def handshake(mechanism: str) -> bytes:
    return encode_request(Api.SASL_HANDSHAKE, 1, {"mechanism": mechanism}, correlation_id=1, client_id="c")


def authenticate(token: bytes, number: int = 2) -> bytes:
    return encode_request(Api.SASL_AUTHENTICATE, 2, {"auth_bytes": token}, correlation_id=number, client_id="c")


@dataclass
class Client:
    """A client of the gateway."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, frame: bytes) -> None:
        self.writer.write(frame)
        await self.writer.drain()

    async def receive(self) -> bytes:
        """A whole frame with its size."""
        head = await self.reader.readexactly(4)
        return head + await self.reader.readexactly(*struct.unpack(">i", head))

    async def ask(self, frame: bytes) -> bytes:
        await self.send(frame)
        return await self.receive()

    async def is_closed(self) -> bool:
        """Whether the other side hangs up without another byte."""
        return await self.reader.read(1) == b""


@dataclass
class Around:
    """A gateway's relay between a client and a broker."""

    client: Client
    upstream: Upstream
    metrics: GatewayMetrics
    addresses: AddressTable
    opened: list[tuple[int, int]]
    relays: list[Relay]
    errors: list[BaseException]
    front: tuple[str, int]
    """Where more clients can connect to."""


@contextlib.asynccontextmanager
async def relayed(
    handler: Handler,
    *,
    locating: Any = None,
    limits: Limits | None = None,
    pieces: random.Random | None = None,
    refused_nodes: frozenset[int] = frozenset(),
    plan: PortPlan = PORTS,
) -> AsyncIterator[Around]:
    """A client, a relay and a broker; nothing but loopback between them."""
    upstream, metrics = Upstream(handler, pieces), GatewayMetrics()
    opened: list[tuple[int, int]] = []
    relays: list[Relay] = []
    errors: list[BaseException] = []

    async def open_listener(node_id: int, port: int) -> bool:
        await asyncio.sleep(0)
        opened.append((node_id, port))
        return node_id not in refused_nodes

    addresses = AddressTable(HOST, plan, open_listener)

    async def accept(taken: socket.socket, peer: str) -> None:
        client = (await receive(taken, peer)).wire
        broker = await connect("127.0.0.1", upstream.port)
        relay = Relay(
            client,
            broker,
            peer="127.0.0.1:1",
            node="broker 1",
            addresses=addresses,
            limits=limits or Limits(),
            metrics=metrics,
            locating=locating,
        )
        relays.append(relay)
        try:
            await relay.run()
        except Exception as error:
            errors.append(error)
        finally:
            broker.close()
            client.close()

    behind = await asyncio.start_server(upstream.serve, "127.0.0.1", 0)
    upstream.port = behind.sockets[0].getsockname()[1]
    front = await listen("127.0.0.1", 0, accept)
    place = front.sockets[0].getsockname()
    client = Client(*await asyncio.open_connection(*place))
    try:
        yield Around(client, upstream, metrics, addresses, opened, relays, errors, place)
    finally:
        client.writer.close()
        for writer in upstream.writers:
            writer.close()
        front.close()
        behind.close()
        await asyncio.sleep(0)


def run(test: Callable[[], Awaitable[None]], *, timeout_s: float = 60.0) -> None:
    """Run an async test to its end; one that hangs fails."""
    asyncio.run(asyncio.wait_for(test(), timeout_s))
