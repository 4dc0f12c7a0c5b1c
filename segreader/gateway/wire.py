"""One connection as bytes: those that came, until somebody wants them, and those that go out. It knows no frame.

asyncio's own streams copy what comes twice before it can be sent on. Here it stays in the pieces that the socket gave,
and reading stops while too many of them wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final

from segreader.errors import ConnectionFailedError
from segreader.gateway.splicing import CAN_SPLICE, splice

SLICE: Final = 256 << 10
"""Bytes that asyncio takes from a socket at a time, and that wait in a direction before it is held up."""

Piece = bytes | memoryview


class Wire(asyncio.Protocol):
    """A connection that one task reads, and one task writes.

    Args:
        accepted: called with this when it is connected, in a task of its own.
    """

    def __init__(self, accepted: Callable[[Wire], Awaitable[None]] | None = None) -> None:
        self._accepted = accepted
        self._task: asyncio.Task[None] | None = None
        self._transport: Any = None
        self._pieces: deque[Piece] = deque()
        self.waiting = 0
        """Bytes that came and were not read yet."""
        self._is_at_end = self._is_lost = self._is_holding_up = False
        self._arrived: asyncio.Future[None] | None = None
        self._has_room: asyncio.Future[None] | None = None
        self._is_full = False

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._transport.set_write_buffer_limits(high=SLICE)
        found = transport.get_extra_info("socket")
        if found is not None:
            with contextlib.suppress(OSError):  # else a peer that vanished is never noticed
                found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self._accepted is not None:
            self._task = asyncio.ensure_future(_run(self._accepted, self))

    def data_received(self, data: bytes) -> None:
        self._pieces.append(data)
        self.waiting += len(data)
        if self.waiting > SLICE and not self._is_holding_up:
            self._is_holding_up = True
            self._transport.pause_reading()
        _wake(self._arrived)

    def eof_received(self) -> bool:
        self._is_at_end = True
        _wake(self._arrived)
        return self._transport.get_extra_info("sslcontext") is None

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_at_end = self._is_lost = True
        _wake(self._arrived)
        _wake(self._has_room)

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        _wake(self._has_room)

    # What others call

    @property
    def peer(self) -> str:
        """``host:port`` of the other side."""
        name = self._transport.get_extra_info("peername")
        return f"{name[0]}:{name[1]}" if name else "unknown"

    @property
    def unsent(self) -> int:
        """Bytes that wait for the other side to take them."""
        return int(self._transport.get_write_buffer_size())

    async def read(self, most: int) -> Piece:
        """Some of the next bytes, ``most`` of them; none where the stream ends."""
        if not self._pieces:
            if not self._is_at_end:
                await self._arrival()
            if not self._pieces:
                return b""
        piece = self._pieces.popleft()
        if len(piece) > most:
            view = memoryview(piece)
            self._pieces.appendleft(view[most:])
            piece = view[:most]
        self.waiting -= len(piece)
        if self._is_holding_up and self.waiting <= SLICE:
            self._is_holding_up = False
            if not self._is_lost:
                self._transport.resume_reading()
        return piece

    async def read_exactly(self, size: int) -> bytes | None:
        """The next ``size`` bytes; ``None`` where the stream ends before the first of them.

        Raises:
            ConnectionFailedError: it ends behind the first one.
        """
        data = bytes(await self.read(size))
        while len(data) < size:
            piece = await self.read(size - len(data))
            if not piece:
                if not data:
                    return None
                raise ConnectionFailedError("closed in the middle of a frame")
            data += piece
        return data

    def write(self, data: Piece) -> None:
        """Send bytes, or keep them until the other side takes them: ``drain`` before the next ones."""
        if not self._is_lost:
            self._transport.write(data)

    async def drain(self) -> None:
        """Wait until the other side takes more.

        Raises:
            ConnectionFailedError: it is gone.
        """
        if self._is_full and not self._is_lost:
            self._has_room = asyncio.get_running_loop().create_future()
            await self._has_room
        if self._is_lost:
            raise ConnectionFailedError("the other side is gone")

    async def splice_to(self, other: Wire, size: int, moved: Callable[[int], None]) -> int:
        """Move the next ``size`` bytes to another connection without taking them in; gives back how many.

        None are moved where that cannot be: with TLS, or while bytes wait here. Nothing else may read this one
        meanwhile, nor write to the other.

        Raises:
            ConnectionFailedError: one of them ends.
        """
        source, target = self._plain_number(), other._plain_number()
        if source is None or target is None or self._pieces:
            return 0
        await other._emptied()
        self._transport.pause_reading()
        try:
            if self._pieces or self._is_at_end:  # came while the other was emptied
                return 0
            return await splice(source, target, size, moved)
        finally:
            if not self._is_holding_up and not self._is_lost:
                self._transport.resume_reading()

    def _plain_number(self) -> int | None:
        """The socket's number, if bytes go through it as they are."""
        found = self._transport.get_extra_info("socket")
        if not CAN_SPLICE or self._is_lost or found is None or self._transport.get_extra_info("sslcontext") is not None:
            return None
        number = int(found.fileno())
        return number if number >= 0 else None

    async def _emptied(self) -> None:
        """Wait until the other side has taken everything."""
        if self.unsent:
            self._transport.set_write_buffer_limits(high=0)
            try:
                await self.drain()
            finally:
                self._transport.set_write_buffer_limits(high=SLICE)
        if self._is_lost:
            raise ConnectionFailedError("the other side is gone")

    def close(self) -> None:
        """Close it when what was written is sent."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close it now."""
        if self._transport is not None:
            self._transport.abort()

    async def _arrival(self) -> None:
        self._arrived = asyncio.get_running_loop().create_future()
        await self._arrived


def _wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)


async def _run(accepted: Callable[[Wire], Awaitable[None]], wire: Wire) -> None:
    try:
        await accepted(wire)
    finally:
        wire.close()


async def serve(
    accepted: Callable[[Wire], Awaitable[None]], host: str | None, port: int, *, context: ssl.SSLContext | None = None
) -> asyncio.Server:
    """Listen, and call ``accepted`` for each connection in a task of its own; it is closed when that ends.

    Raises:
        OSError: the port cannot be had.
    """
    return await asyncio.get_running_loop().create_server(lambda: Wire(accepted), host, port, ssl=context)


async def connect(host: str, port: int, *, context: ssl.SSLContext | None = None) -> Wire:
    """A connection to a peer.

    Raises:
        OSError: there is none.
    """
    _, wire = await asyncio.get_running_loop().create_connection(Wire, host, port, ssl=context)
    return wire
