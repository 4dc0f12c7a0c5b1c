"""A connection's bytes: in the pieces that came, from socket to socket, and never more than a little in between."""

from __future__ import annotations

import asyncio
import random
import socket
import ssl
from collections.abc import Awaitable, Callable

import pytest
import trustme
from gateway_upstream import run as run_async

from segreader.errors import ConnectionFailedError
from segreader.gateway.listening import Listener, listen, receive
from segreader.gateway.wire import SLICE, Wire, connect

Contexts = tuple[ssl.SSLContext, ssl.SSLContext]


@pytest.fixture(scope="module")
def contexts() -> Contexts:
    """TLS of a server and of a client that trusts it."""
    authority = trustme.CA()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(server)
    client = ssl.create_default_context()
    authority.configure_trust(client)
    return server, client


class Pairs:
    """Both ends of the connections of one test."""

    def __init__(self) -> None:
        self._wires: list[Wire] = []
        self._servers: list[Listener] = []
        self._is_over = asyncio.Event()

    async def open(self, context: Contexts | None = None) -> tuple[Wire, Wire]:
        accepted: asyncio.Future[Wire] = asyncio.get_running_loop().create_future()

        async def keep(taken: socket.socket, peer: str) -> None:
            wire = (await receive(taken, peer, context=context and context[0])).wire
            accepted.set_result(wire)
            await self._is_over.wait()
            wire.close()

        server = await listen("127.0.0.1", 0, keep)
        self._servers.append(server)
        near = await connect("127.0.0.1", server.sockets[0].getsockname()[1], context=context and context[1])
        self._wires += (near, await accepted)
        return near, await accepted

    async def close(self) -> None:
        self._is_over.set()
        for wire in self._wires:
            wire.abort()
        for server in self._servers:
            server.close()
        for _ in range(3):  # until the loop has closed them
            await asyncio.sleep(0)


def run(test: Callable[[Pairs], Awaitable[None]]) -> None:
    async def closing() -> None:
        pairs = Pairs()
        try:
            await test(pairs)
        finally:
            await pairs.close()

    run_async(closing)


async def everything(wire: Wire, size: int) -> bytes:
    got = bytearray()
    while len(got) < size:
        piece = await wire.read(1 << 20)
        assert piece
        got += piece
    return bytes(got)


async def pour(wire: Wire, data: bytes) -> None:
    for start in range(0, len(data), 50_000):
        wire.write(data[start : start + 50_000])
        await wire.drain()


def test_bytes_are_read_in_any_sizes() -> None:
    data = random.Random(1).randbytes(300_000)

    async def test(pairs: Pairs) -> None:
        near, far = await pairs.open()
        pouring = asyncio.ensure_future(pour(near, data))
        chosen, got = random.Random(2), b""
        while len(got) < len(data):
            size = chosen.choice((1, 4, 100, 70_000))
            if chosen.random() < 0.5:
                got += await far.read_exactly(min(size, len(data) - len(got))) or b""
            else:
                got += await far.read(size)
        assert got == data
        await pouring
        near.close()
        assert await far.read_exactly(1) is None
        assert await far.read(1) == b""

    run(test)


def test_a_stream_that_ends_within_what_is_wanted_is_told() -> None:
    async def test(pairs: Pairs) -> None:
        near, far = await pairs.open()
        near.write(b"abc")
        near.close()
        with pytest.raises(ConnectionFailedError, match="middle of a frame"):
            await far.read_exactly(4)

    run(test)


def test_reading_stops_while_too_much_waits() -> None:
    async def test(pairs: Pairs) -> None:
        near, far = await pairs.open()
        pouring = asyncio.ensure_future(pour(near, bytes(64 << 20)))
        await asyncio.sleep(0.5)
        assert far.waiting <= 2 * SLICE
        assert near.unsent <= 2 * SLICE
        assert not pouring.done()
        await everything(far, 64 << 20)
        await pouring

    run(test)


def test_who_waits_for_room_hears_that_the_other_side_is_gone() -> None:
    async def test(pairs: Pairs) -> None:
        near, far = await pairs.open()
        pouring = asyncio.ensure_future(pour(near, bytes(64 << 20)))
        await asyncio.sleep(0.2)
        far.abort()
        with pytest.raises(ConnectionFailedError):
            await pouring
        near.write(b"into nothing")

    run(test)


@pytest.mark.parametrize("size", [1, 70_000, 20_000_000])
@pytest.mark.parametrize("has_tls", [False, True])
def test_bytes_pass_in_their_order_and_others_stay(size: int, has_tls: bool, contexts: Contexts) -> None:
    data = random.Random(size).randbytes(size)

    async def test(pairs: Pairs) -> None:
        source, middle_in = await pairs.open(contexts if has_tls else None)
        middle_out, target = await pairs.open(contexts if has_tls else None)
        moved: list[int] = []
        middle_out.write(b"before")
        passing = asyncio.ensure_future(middle_in.pass_to(middle_out, size, moved.append, b"first"))
        pouring = asyncio.ensure_future(pour(source, data + b"after"))
        assert await everything(target, 11 + size) == b"beforefirst" + data
        await passing
        assert await middle_in.read_exactly(5) == b"after"
        middle_out.write(b"more")
        assert await everything(target, 4) == b"more"
        assert sum(moved) == size + 5
        await pouring

    run(test)


def test_what_passes_waits_for_a_slow_target_and_stays_as_it_was() -> None:
    size = 32 << 20
    data = random.Random(5).randbytes(size)

    async def test(pairs: Pairs) -> None:
        source, middle_in = await pairs.open()
        middle_out, target = await pairs.open()
        other, far = await pairs.open()
        passing = asyncio.ensure_future(middle_in.pass_to(middle_out, size, lambda _: None))
        pouring = asyncio.ensure_future(pour(source, data))
        await asyncio.sleep(0.3)
        assert not pouring.done()
        assert middle_in.waiting + middle_out.unsent <= 2 << 20
        # Others use the shared buffer while bytes of this one wait.
        crossing = asyncio.ensure_future(pour(other, bytes(4 << 20)))
        assert await everything(far, 4 << 20) == bytes(4 << 20)
        assert await everything(target, size) == data
        await asyncio.gather(passing, pouring, crossing)

    run(test)


def test_a_source_that_ends_and_a_target_that_goes_are_told() -> None:
    async def test(pairs: Pairs) -> None:
        source, middle_in = await pairs.open()
        middle_out, target = await pairs.open()
        passing = asyncio.ensure_future(middle_in.pass_to(middle_out, 100_000, lambda _: None))
        await asyncio.sleep(0.1)
        source.write(b"x" * 10)
        source.close()
        with pytest.raises(ConnectionFailedError, match="middle of a frame"):
            await passing

        source, middle_in = await pairs.open()
        pouring = asyncio.ensure_future(pour(source, bytes(64 << 20)))
        passing = asyncio.ensure_future(middle_in.pass_to(middle_out, 64 << 20, lambda _: None))
        await asyncio.sleep(0.2)
        target.abort()
        with pytest.raises(ConnectionFailedError):
            await passing
        pouring.cancel()

    run(test)


def test_a_pass_that_is_given_up_leaves_the_connection_as_it_was() -> None:
    async def test(pairs: Pairs) -> None:
        source, middle_in = await pairs.open()
        middle_out, _ = await pairs.open()
        for _ in range(3):
            passing = asyncio.ensure_future(middle_in.pass_to(middle_out, 1 << 20, lambda _: None))
            await asyncio.sleep(0.01)
            passing.cancel()
            await asyncio.gather(passing, return_exceptions=True)
        source.write(b"abc")  # fewer than it would have waited for
        assert await middle_in.read_exactly(3) == b"abc"

    run(test)
