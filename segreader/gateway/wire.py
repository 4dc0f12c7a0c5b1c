"""One connection as bytes, and the frames in it: looked at as they come, passed on in slices, never stored whole.

asyncio's own streams copy what comes twice before it can be sent on, and its ``write`` copies what it cannot send at
once, and again after each send. Here bytes stay in the pieces that the socket gave, pieces are small, and reading stops
while too many of them wait; a slice waits until the other side has room, so that a slow reader stops its broker and not
this process.

Nearly all that a large answer costs a proxy is the kernel's copying to and fro, and pages for what is read. So large
parts are read into one buffer that all connections share, and leave it at once, in the callback that they came with.
Splicing them over a pipe would spare a fifth of that, and needs pipes and code of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import threading
from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import Any, Final, Protocol, TypeVar

from segreader.broker.primitives import Reader
from segreader.errors import ConnectionFailedError, ProtocolError

SIZE: Final = Struct(">i")

LARGEST: Final = (1 << 31) - 1
"""What the size of a frame can say."""

SLICE: Final = 256 << 10
"""Bytes that wait in a direction before it is held up."""

_AT_A_TIME = 64 << 10
"""Bytes that are taken from a socket at a time where they are to be looked at."""

_BUFFER_SIZE = 1 << 20
"""The same where they only pass."""

_BEHIND = 4 << 10
"""Bytes that are read behind a large part: most likely the head of the next one."""

_LINGER_S = 30.0
"""How long a closed connection may take what was written: one that takes nothing would hold its memory for ever."""

Piece = bytes | memoryview


class _Shared(threading.local):
    """What all connections of an event loop read into; nothing stays in it from one callback to the next."""

    def __init__(self) -> None:
        self.buffer = memoryview(bytearray(_BUFFER_SIZE))


_shared = _Shared()


class _Passing:
    """A large part that goes on to another connection as it comes.

    Args:
        first: bytes to send before it.
    """

    __slots__ = ("first", "left", "moved", "other")

    def __init__(self, other: Wire, left: int, first: bytes, moved: Callable[[int], None]) -> None:
        self.other = other
        self.left = left
        self.first = first
        self.moved = moved


class Wire(asyncio.BufferedProtocol):
    """A connection that one task reads, and one task writes."""

    def __init__(self) -> None:
        self._transport: Any = None
        self._pieces: deque[Piece] = deque()
        self.waiting = 0
        """Bytes that came and were not read yet."""
        self._is_at_end = self._is_lost = self._is_closed = self._is_holding_up = False
        self._arrived: asyncio.Future[None] | None = None
        self._has_room: asyncio.Future[None] | None = None
        self._is_full = False
        self._passing: _Passing | None = None
        self._socket: Any = None
        """Where bytes go through it as they are."""
        self.is_in_small_steps = False
        """Whether little passes at a time, so that others have their turn soon."""
        self.patience_s: float | None = None
        """How long the other side may take nothing; then ``is_stalled``."""
        self.is_stalled = False

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._transport.set_write_buffer_limits(high=SLICE)
        found = transport.get_extra_info("socket")
        if found is not None:
            with contextlib.suppress(OSError):  # else a peer that vanished is never noticed
                found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if transport.get_extra_info("sslcontext") is None:
                self._socket = found

    def get_buffer(self, sizehint: int) -> memoryview:
        passing = None if self.is_in_small_steps else self._passing
        wanted = _AT_A_TIME if passing is None else passing.left + _BEHIND
        return _shared.buffer[:wanted]

    def buffer_updated(self, nbytes: int) -> None:
        data = _shared.buffer[:nbytes]
        if (passing := self._passing) is not None and passing.left:
            part = data[: passing.left]
            data = data[len(part) :]
            passing.left -= len(part)
            passing.other._send(passing.first, part)
            passing.moved(len(passing.first) + len(part))
            passing.first = b""
            if passing.other.unsent or passing.other._is_lost:
                self._hold_up()
                _wake(self._arrived)
            elif not passing.left:
                _wake(self._arrived)
        if data:
            self._pieces.append(bytes(data))
            self.waiting += len(data)
            if self.waiting > SLICE:
                self._hold_up()
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

    def extra(self, name: str) -> Any:
        """What asyncio knows about the connection by that name."""
        return self._transport.get_extra_info(name)

    @property
    def unsent(self) -> int:
        """Bytes that wait for the other side to take them."""
        return 0 if self._is_lost else int(self._transport.get_write_buffer_size())

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
            self._go_on()
        return piece

    def _hold_up(self) -> None:
        if not self._is_holding_up:
            self._is_holding_up = True
            self._transport.pause_reading()

    def _go_on(self) -> None:
        if self._is_holding_up:
            self._is_holding_up = False
            if not self._is_lost:
                self._transport.resume_reading()

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

    async def has_size(self, least: int, most: int, name: str) -> int | None:
        """Wait until the size of a frame is here, without reading it; ``None`` where the stream ends before.

        Raises:
            ProtocolError: it is no such size.
        """
        while self.waiting < SIZE.size and not self._is_at_end:
            await self._arrival()
        if self.waiting < SIZE.size:
            return None
        head = b""
        for piece in self._pieces:
            if len(head := head + bytes(piece[: SIZE.size - len(head)])) == SIZE.size:
                break
        return check_size(SIZE.unpack(head)[0], least, most, name)

    async def has_frame(self, size: int) -> bool:
        """Wait until a whole frame of ``size`` is here with its size field, or as much of it as may wait here."""
        while self.waiting < (wanted := min(SIZE.size + size, SLICE)) and not self._is_at_end:
            await self._arrival()
        return self.waiting >= wanted

    def write(self, data: Piece) -> None:
        """Send bytes, or keep them until the other side takes them: ``drain`` before the next ones."""
        if not self._is_lost:
            self._transport.write(data)

    async def drain(self) -> None:
        """Wait until the other side takes more.

        Raises:
            ConnectionFailedError: it is gone, or takes nothing for too long.
        """
        if self._is_full and not self._is_lost:
            self._has_room = asyncio.get_running_loop().create_future()
            try:
                async with asyncio.timeout(self.patience_s):
                    await self._has_room
            except TimeoutError:
                self.is_stalled = True
                raise ConnectionFailedError("the other side takes nothing", found=f"for {self.patience_s} s") from None
        if self._is_lost:
            raise ConnectionFailedError("the other side is gone")

    async def pass_to(self, other: Wire, size: int, moved: Callable[[int], None], first: bytes = b"") -> None:
        """Send the next ``size`` bytes to another connection as they come, behind ``first``.

        No bytes may wait here. Nothing else may read this one meanwhile, nor write to the other.

        Args:
            moved: called with the size of each part that was sent.

        Raises:
            ConnectionFailedError: one of them ends.
        """
        assert not self._pieces
        await other._emptied()
        passing = self._passing = _Passing(other, size, first, moved)
        try:
            while self._pieces and passing.left:  # came while the other was emptied
                piece = await self.read(passing.left)
                other.write(first + piece if passing.first else piece)
                moved(len(passing.first) + len(piece))
                passing.first = b""
                passing.left -= len(piece)
            while passing.left:
                await other._emptied()
                if self._is_at_end:
                    raise ConnectionFailedError(
                        "closed in the middle of a frame", found=f"{passing.left} bytes missing"
                    )
                self._go_on()
                await self._arrival()
        finally:
            self._passing = None
            if self.waiting <= SLICE:
                self._go_on()

    def _send(self, first: bytes, data: memoryview) -> None:
        """Send bytes that the caller uses for others when this returns; what cannot go now is copied."""
        if self._is_lost or self._transport.is_closing():
            return
        if self._socket is not None and not self.unsent:
            try:
                sent = os.writev(self._socket.fileno(), (first, data))
            except OSError:  # asyncio finds out what it is
                sent = 0
            first, data = first[sent:], data[max(0, sent - len(first)) :]
        if first or data:
            self._transport.write(first + bytes(data))

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
        """Close it when what was written is sent, or when the other side takes nothing for too long."""
        if self._transport is None or self._is_closed:
            return
        if self.unsent:
            asyncio.get_running_loop().call_later(_LINGER_S, self.abort)
        self._is_closed = True
        self._transport.close()  # one of TLS that was closed by its peer answers nothing from here on

    def abort(self) -> None:
        """Close it now."""
        if self._transport is not None:
            self._is_closed = True
            self._transport.abort()

    async def _arrival(self) -> None:
        self._arrived = asyncio.get_running_loop().create_future()
        await self._arrived


def _wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)


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
_WORTH_PASSING: Final = 64 << 10

_T = TypeVar("_T")


class Sink(Protocol):
    """Where bytes of a frame go."""

    async def send(self, data: Piece) -> None:
        """Take some bytes."""

    async def take(self, wire: Wire, size: int) -> int:
        """Take the next bytes of a connection as they come; gives back how many, perhaps none."""


class Held:
    """Bytes of a small frame, kept until all of them are known."""

    def __init__(self) -> None:
        self.pieces: list[Piece] = []

    async def send(self, data: Piece) -> None:
        """Keep some bytes."""
        self.pieces.append(data)

    async def take(self, wire: Wire, size: int) -> int:
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

    async def take(self, wire: Wire, size: int) -> int:
        """Have the next bytes of a connection go out as they come; gives back how many."""
        first = b"".join(self._pieces)
        self._pieces.clear()
        self._size = 0
        await wire.pass_to(self._wire, size, self._sent, first)
        return size


class FrameSource:
    """The bytes of one frame, in order.

    Args:
        wire: the connection that they come from.
        size: bytes of the frame behind its size field.
        start: the first of them, which were read already.
        limit: how many bytes may be held at a time for a look at them.
    """

    __slots__ = ("_at", "_base", "_held", "_limit", "_name", "_unread", "_wire", "is_too_large", "size")

    def __init__(
        self, wire: Wire, size: int, start: bytes = b"", *, name: str = "answer", limit: int = 1 << 20
    ) -> None:
        self.size = size
        self.is_too_large = False
        """Whether an error was raised because more would have to be held than may be."""
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
                    self.is_too_large = self._unread > 0
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
            if sink is not None and size >= _WORTH_PASSING and not self._wire.waiting:
                taken = await sink.take(self._wire, size)
                self._unread -= taken
                self._base += taken
                size -= taken
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
            self.is_too_large = True
            raise ProtocolError(
                f"{self._name}: too large to be held", found=f"{self.left} bytes", expected=f"{limit} bytes at most"
            )
        if self._unread:
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
    return check_size(SIZE.unpack(data)[0], least, most, name)


def check_size(size: int, least: int, most: int, name: str) -> int:
    """The size of a frame.

    Raises:
        ProtocolError: it is no such size.
    """
    if size == _START_OF_PROXY_HEADER:
        raise ProtocolError("a PROXY header at a port that asks for none", hint="Set proxy_protocol for this port")
    if not least <= size <= most:
        raise ProtocolError(f"{name}: impossible size of a frame", found=size, expected=f"{least} to {most}")
    return size


_START_OF_PROXY_HEADER: Final = 0x0D0A0D0A
