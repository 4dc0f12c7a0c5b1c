"""Frames between two streams: looked at as they come, passed on in slices, never stored whole.

A slice waits until the other side has room, so that a slow reader stops its broker and not this process. asyncio's
``write`` copies what it cannot send at once, and again after each send: that is why slices are small.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol, TypeVar

from segreader.broker.primitives import Reader
from segreader.errors import ConnectionFailedError, ProtocolError
from segreader.gateway.frames import SIZE
from segreader.gateway.wire import SLICE, Piece, Wire

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
        """None: they are to be kept here."""
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
