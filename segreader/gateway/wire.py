"""One connection as bytes, and the frames in it: looked at as they come, passed on in slices, never stored whole.

asyncio's own streams copy what comes twice before it can be sent on, and its ``write`` copies what it cannot send at
once, and again after each send. Here bytes stay in the pieces that the socket gave, pieces are small, and reading stops
while too many of them wait; a slice waits until the other side has room, so that a slow reader stops its broker and not
this process.

Nearly all that a large answer costs a proxy is the kernel's copying to and fro. So large parts go from one socket to
another without passing through this process: Linux's ``splice``, over a pipe. Where there is none, or TLS on one side,
bytes are copied.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import socket
import ssl
from collections import deque
from collections.abc import Awaitable, Callable
from struct import Struct
from typing import Any, Final, Protocol, TypeVar

from segreader.broker.primitives import Reader
from segreader.errors import ConnectionFailedError, ProtocolError

SIZE: Final = Struct(">i")

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


_FIRST_LOOK: Final = 64
"""Bytes of a frame that are waited for before it is looked into, if it has so many."""

_SMALL: Final = 64 << 10
_WORTH_SPLICING: Final = 512 << 10

_T = TypeVar("_T")


class Sink(Protocol):
    """Where bytes of a frame go."""

    async def send(self, data: Piece) -> None:
        """Take some bytes."""

    async def splice(self, wire: Wire, size: int) -> int:
        """Take the next bytes of a connection as they are in its socket; gives back how many, perhaps none."""


class Held:
    """Bytes of a small frame, kept until all of them are known."""

    def __init__(self) -> None:
        self.pieces: list[Piece] = []

    async def send(self, data: Piece) -> None:
        """Keep some bytes."""
        self.pieces.append(data)

    async def splice(self, wire: Wire, size: int) -> int:
        """None: they stay here."""
        return 0


class Outlet:
    """One direction of a connection: bytes go out in the order of ``send``; little pieces together, with ``flush``.

    Args:
        sent: called with the number of bytes sent.
    """

    __slots__ = ("_pieces", "_sent", "_size", "_wire")

    def __init__(self, wire: Wire, sent: Callable[[int], None]) -> None:
        self._wire = wire
        self._sent = sent
        self._pieces: list[Piece] = []
        self._size = 0

    async def send(self, data: Piece) -> None:
        """Take some bytes; waits while the other side takes none."""
        self._pieces.append(data)
        self._size += len(data)
        if self._size >= _SMALL:
            await self.flush()

    async def flush(self) -> None:
        """Hand everything to the socket, and wait until it has room again."""
        if not self._size:
            return
        data = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        self._sent(len(data))
        self._size = 0
        self._wire.write(data)
        await self._wire.drain()

    async def splice(self, wire: Wire, size: int) -> int:
        """Have the next bytes of a connection go out from socket to socket; gives back how many, perhaps none."""
        await self.flush()
        return await wire.splice_to(self._wire, size, self._sent)


class FrameSource:
    """The bytes of one frame, in order.

    Args:
        wire: the connection that they come from.
        size: bytes of the frame behind its size field.
        start: the first of them, which were read already.
        limit: how many bytes may be held at a time for a look at them.
    """

    __slots__ = ("_at", "_base", "_held", "_limit", "_name", "_unread", "_wire", "size")

    def __init__(
        self, wire: Wire, size: int, start: bytes = b"", *, name: str = "answer", limit: int = 1 << 20
    ) -> None:
        self.size = size
        self._wire = wire
        self._held, self._at, self._base = start, 0, 0
        self._unread = size - len(start)
        self._name = name
        self._limit = limit

    @property
    def left(self) -> int:
        """Bytes of the frame that were neither taken nor passed on."""
        return self._unread + len(self._held) - self._at

    async def parsed(self, parse: Callable[[Reader], _T]) -> tuple[_T, bytes]:
        """What ``parse`` makes of the next bytes, and the bytes that it read; it is called again when more have come.

        Raises:
            ProtocolError: it fails with all that may be held, or with all that there is.
        """
        if self._unread and not self._base and len(self._held) < _FIRST_LOOK:
            await self._more(_FIRST_LOOK)
        while True:
            reader = Reader(self._held, flexible=True, what=self._name, start=self._at, to_come=self._unread)
            try:
                value = parse(reader)
            except ProtocolError as error:
                held = len(self._held) - self._at
                if not self._unread or held >= self._limit:
                    raise error.located(position_shift=self._base) from None
                await self._more(min(max(2 * held, 64), self._limit))
                continue
            taken = self._held[self._at : reader.position]
            self._at = reader.position
            return value, taken

    async def _more(self, least: int) -> None:
        """Read until ``least`` bytes are held, or the frame ends."""
        pieces: list[Piece] = [self._held[self._at :]]
        self._base += self._at
        held = len(pieces[0])
        while self._unread and held < least:
            piece = await self._read()
            pieces.append(piece)
            held += len(piece)
        self._held, self._at = b"".join(pieces), 0

    async def _read(self, most: int = SLICE) -> Piece:
        piece = await self._wire.read(min(most, self._unread))
        if not piece:
            raise ConnectionFailedError("closed in the middle of a frame", found=f"{self._unread} bytes missing")
        self._unread -= len(piece)
        return piece

    async def pass_on(self, size: int, sink: Sink | None) -> None:
        """Hand the next ``size`` bytes on as they come; without a sink they are dropped.

        Raises:
            ProtocolError: the frame has not so many.
        """
        if not 0 <= size <= self.left:
            raise ProtocolError(
                f"{self._name}: the frame ends too early", found=f"{self.left} bytes", expected=f"{size} bytes"
            )
        held = min(size, len(self._held) - self._at)
        if held:
            if sink is not None:
                await sink.send(self._held[self._at : self._at + held])
            self._at += held
        size -= held
        while size:
            if sink is not None and size >= _WORTH_SPLICING and not self._wire.waiting:
                spliced = await sink.splice(self._wire, size)
                self._unread -= spliced
                self._base += spliced
                size -= spliced
                if not size:
                    return
            piece = await self._read(size)
            self._base += len(piece)
            size -= len(piece)
            if sink is not None:
                await sink.send(piece)

    async def some(self, most: int) -> bytes:
        """The next bytes: ``most``, or fewer where the frame ends before."""
        wanted = min(most, self.left)
        if len(self._held) - self._at < wanted:
            await self._more(wanted)
        taken = self._held[self._at : self._at + wanted]
        self._at += wanted
        return taken

    async def rest(self, limit: int | None = None) -> bytes:
        """All that is left of the frame.

        Raises:
            ProtocolError: that is more than may be held.
        """
        limit = self._limit if limit is None else limit
        if self.left > limit:
            raise ProtocolError(
                f"{self._name}: too large to be held", found=f"{self.left} bytes", expected=f"{limit} bytes at most"
            )
        await self._more(self.left)
        taken, self._at = self._held[self._at :], len(self._held)
        return taken


async def read_size(wire: Wire, least: int, most: int, name: str) -> int | None:
    """The size of the next frame; ``None`` where the stream ends between frames.

    Raises:
        ProtocolError: it is no such size.
        ConnectionFailedError: the stream ends within it.
    """
    if (data := await wire.read_exactly(SIZE.size)) is None:
        return None
    (size,) = SIZE.unpack(data)
    if not least <= size <= most:
        raise ProtocolError(f"{name}: impossible size of a frame", found=size, expected=f"{least} to {most}")
    return int(size)


CAN_SPLICE: Final = hasattr(os, "splice")
_PIPE_SIZE = 1 << 20
_WORTH_WAKING = 256 << 10
"""Fewer bytes, and both sides would do their work in many more steps: the broker the most."""

_SPLICE_MOVE, _SPLICE_NONBLOCK = 1, 2


class _Ends:
    """Other numbers for two sockets, and a pipe between: asyncio minds its own numbers, and these are ours."""

    def __init__(self, source: int, target: int) -> None:
        self._numbers: list[int] = []
        self._wakes_at = 1
        self._socket: socket.socket | None = None
        try:
            self.source = self._keep(os.dup(source))
            self._socket = socket.socket(fileno=self.source)
            self.target = self._keep(os.dup(target))
            self.pipe_out, self.pipe_in = map(self._keep, os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC))
        except OSError:
            self.close()
            raise
        with contextlib.suppress(OSError, AttributeError):  # a user's pipes may hold a few MiB together
            fcntl.fcntl(self.pipe_in, fcntl.F_SETPIPE_SZ, _PIPE_SIZE)

    def _keep(self, number: int) -> int:
        self._numbers.append(number)
        return number

    def wake_at(self, size: int) -> None:
        """Have ``source`` count as readable when so many bytes have come, or it ends."""
        if self._socket is not None and size != self._wakes_at:
            with contextlib.suppress(OSError):
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)
            self._wakes_at = size

    def close(self) -> None:
        self.wake_at(1)
        if self._socket is not None:
            self._socket.detach()  # its number is one of ours
            self._socket = None
        for number in self._numbers:
            os.close(number)
        self._numbers.clear()


async def splice(source: int, target: int, size: int, moved: Callable[[int], None]) -> int:
    """Move ``size`` bytes from one socket to another; gives back how many were moved.

    Nothing else may use ``source`` or ``target`` meanwhile. Fewer are moved only where this kernel cannot
    splice these sockets, and then none.

    Args:
        moved: called with each part that ``target`` took.

    Raises:
        ConnectionFailedError: ``source`` ends before, or ``target`` is gone.
    """
    try:
        ends = _Ends(source, target)
    except OSError:
        return 0  # no more numbers for files
    try:
        return await _splice(ends, size, moved)
    finally:
        ends.close()


async def _splice(ends: _Ends, size: int, moved: Callable[[int], None]) -> int:
    loop = asyncio.get_running_loop()
    flags = _SPLICE_MOVE | _SPLICE_NONBLOCK
    left = size
    while left:
        try:
            held = os.splice(ends.source, ends.pipe_in, min(left, _PIPE_SIZE), flags=flags)
        except BlockingIOError:
            ends.wake_at(min(left, _WORTH_WAKING))
            await _ready(loop, loop.add_reader, loop.remove_reader, ends.source)
            continue
        except OSError as error:
            if left == size and error.errno in _UNABLE:
                return 0
            raise ConnectionFailedError("the connection broke in the middle of a frame") from None
        if not held:
            raise ConnectionFailedError("closed in the middle of a frame", found=f"{left} bytes missing")
        left -= held
        while held:
            try:
                taken = os.splice(ends.pipe_out, ends.target, held, flags=flags)
            except BlockingIOError:
                await _ready(loop, loop.add_writer, loop.remove_writer, ends.target)
                continue
            except OSError:
                raise ConnectionFailedError("the other side is gone") from None
            held -= taken
            moved(taken)
        await asyncio.sleep(0)  # others have their turn
    return size


async def _ready(
    loop: asyncio.AbstractEventLoop, add: Callable[..., Any], remove: Callable[[int], Any], end: int
) -> None:
    waiter: asyncio.Future[None] = loop.create_future()
    add(end, _wake, waiter)
    try:
        await waiter
    finally:
        remove(end)


_UNABLE = frozenset((errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP))
