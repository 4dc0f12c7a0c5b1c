"""A connection's bytes: in the pieces that came, from socket to socket, and never more than a little in between."""

from __future__ import annotations

import asyncio
import gc
import random
import ssl
from collections.abc import Awaitable, Callable

import pytest
import trustme
from gateway_upstream import run as run_async

from segreader.errors import ConnectionFailedError
from segreader.gateway import wire as module
from segreader.gateway.wire import CAN_SPLICE, SLICE, Wire, connect, serve


class Pairs:
    """Both ends of the connections of one test."""

    def __init__(self) -> None:
        self._wires: list[Wire] = []
        self._servers: list[asyncio.Server] = []
        self._is_over = asyncio.Event()

    async def open(self, context: tuple[ssl.SSLContext, ssl.SSLContext] | None = None) -> tuple[Wire, Wire]:
        accepted: asyncio.Future[Wire] = asyncio.get_running_loop().create_future()

        async def keep(wire: Wire) -> None:
            accepted.set_result(wire)
            await self._is_over.wait()

        server = await serve(keep, "127.0.0.1", 0, context=context and context[0])
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


@pytest.mark.skipif(not CAN_SPLICE, reason="this system has no splice")
@pytest.mark.parametrize("size", [1, 70_000, 20_000_000])
def test_bytes_go_from_socket_to_socket_and_others_stay(size: int) -> None:
    data = random.Random(size).randbytes(size)

    async def test(pairs: Pairs) -> None:
        source, middle_in = await pairs.open()
        middle_out, target = await pairs.open()
        moved: list[int] = []
        middle_out.write(b"before")
        pouring = asyncio.ensure_future(pour(source, data + b"after"))
        reading = asyncio.ensure_future(everything(target, 6 + size + 4))
        left = size
        while left:
            left -= await middle_in.splice_to(middle_out, left, moved.append)
            if left:  # what asyncio took before it was told to leave it
                piece = await middle_in.read(left)
                middle_out.write(piece)
                await middle_out.drain()
                left -= len(piece)
        assert await middle_in.read_exactly(5) == b"after"
        middle_out.write(b"more")
        assert await reading == b"before" + data + b"more"
        assert sum(moved) <= size
        await pouring

    run(test)


@pytest.mark.skipif(not CAN_SPLICE, reason="this system has no splice")
def test_a_source_that_ends_and_a_target_that_goes_are_told() -> None:
    async def test(pairs: Pairs) -> None:
        source, middle_in = await pairs.open()
        middle_out, target = await pairs.open()
        splicing = asyncio.ensure_future(middle_in.splice_to(middle_out, 1000, lambda _: None))
        await asyncio.sleep(0.1)
        source.write(b"x" * 10)
        source.close()
        with pytest.raises(ConnectionFailedError, match="middle of a frame"):
            await splicing

        source, middle_in = await pairs.open()
        pouring = asyncio.ensure_future(pour(source, bytes(64 << 20)))
        splicing = asyncio.ensure_future(middle_in.splice_to(middle_out, 64 << 20, lambda _: None))
        await asyncio.sleep(0.2)
        target.abort()
        with pytest.raises(ConnectionFailedError):
            await splicing
        pouring.cancel()

    run(test)


@pytest.mark.skipif(not CAN_SPLICE, reason="this system has no splice")
def test_a_splice_that_is_given_up_leaves_no_file_open() -> None:
    import os

    async def test(pairs: Pairs) -> None:
        _, middle_in = await pairs.open()
        middle_out, _ = await pairs.open()
        gc.collect()  # what other tests left must not close meanwhile
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(20):
            splicing = asyncio.ensure_future(middle_in.splice_to(middle_out, 1000, lambda _: None))
            await asyncio.sleep(0.01)
            splicing.cancel()
            await asyncio.gather(splicing, return_exceptions=True)
        assert len(os.listdir("/proc/self/fd")) == before

    run(test)


def test_with_tls_nothing_is_spliced() -> None:
    authority = trustme.CA()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(server)
    client = ssl.create_default_context()
    authority.configure_trust(client)

    async def test(pairs: Pairs) -> None:
        near, far = await pairs.open((server, client))
        plain, other = await pairs.open()
        assert await near.splice_to(plain, 10, lambda _: None) == 0
        assert await plain.splice_to(near, 10, lambda _: None) == 0
        near.write(b"secret")
        assert await far.read_exactly(6) == b"secret"
        near.close()
        assert await far.read(1) == b""
        other.close()

    run(test)


def test_where_there_is_no_splice_bytes_are_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CAN_SPLICE", False)

    async def test(pairs: Pairs) -> None:
        near, _ = await pairs.open()
        other, _ = await pairs.open()
        assert await near.splice_to(other, 10, lambda _: None) == 0

    run(test)
