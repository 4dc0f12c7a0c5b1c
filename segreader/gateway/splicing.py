"""Bytes from one socket to another without passing through this process: Linux's ``splice``, over a pipe.

Nearly all that a large answer costs a proxy is the kernel's copying to and fro. Where there is no splice, or TLS on one
side, bytes are copied.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import socket
from collections.abc import Callable
from typing import Any, Final

from segreader.errors import ConnectionFailedError

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


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


_UNABLE = frozenset((errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP))
