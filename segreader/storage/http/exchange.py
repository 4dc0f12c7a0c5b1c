"""A request under way, and what ends it from outside: another thread, or a timer.

A thread that is blocked in a read sees neither flags nor the clock, so its connection is shut under it.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from segreader.errors import SegreaderError

PeerCheck = Callable[[socket.socket], None]


class SomeReader(Protocol):
    """A body, as it arrives."""

    length: int | None
    """Bytes that are left of it; ``None`` where only its end shows how many."""

    def read_some(self, buffer: memoryview) -> int:
        """Put what has arrived at the buffer's beginning; returns how many bytes, 0 at the end of the body."""

    def isclosed(self) -> bool:
        """Whether the body was read to its end."""


class Exchange:
    """One request and its answer, which another thread may end.

    Args:
        check_peer: raises if the socket's other end must not be asked.
    """

    def __init__(self, check_peer: PeerCheck | None = None) -> None:
        self.check_peer = check_peer
        self.refusal: SegreaderError | None = None
        self.reader: SomeReader | None = None
        self.is_ended = False
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None

    def attach(self, sock: Any) -> None:
        """The socket that the request goes over, from now until ``detach``."""
        with self._lock:
            self._socket = _plain(sock)
            if self.is_ended:
                _shut(self._socket)

    def detach(self) -> None:
        """The exchange is over: its connection may serve another one now."""
        with self._lock:
            self._socket = None

    def end(self) -> None:
        """Break the connection; a thread that is blocked reading from it goes on with an error at once."""
        with self._lock:
            self.is_ended = True
            _shut(self._socket)


def _plain(sock: Any) -> socket.socket | None:
    while sock is not None and not isinstance(sock, socket.socket):
        sock = getattr(sock, "socket", None)  # TLS inside TLS, through a proxy
    return sock


def _shut(sock: socket.socket | None) -> None:
    # Not SSLSocket.shutdown: that takes the TLS layer away from under the thread that reads.
    if sock is not None:
        with contextlib.suppress(OSError):
            socket.socket.shutdown(sock, socket.SHUT_RDWR)


class Stopped(Exception):
    """The caller no longer wants the range. Does not leave this package."""


class Stop:
    """Tells the requests of one read to end, wherever they wait."""

    def __init__(self) -> None:
        self.event = threading.Event()
        self._lock = threading.Lock()
        self._exchanges: set[Exchange] = set()

    def set(self) -> None:
        """End what is under way, and let nothing begin."""
        with self._lock:
            self.event.set()
            for exchange in self._exchanges:
                exchange.end()

    @contextmanager
    def ends(self, exchange: Exchange) -> Iterator[None]:
        """For the time of the block, ``set`` ends this exchange too."""
        with self._lock:
            self._exchanges.add(exchange)
            if self.event.is_set():
                exchange.end()
        try:
            yield
        finally:
            with self._lock:
                self._exchanges.discard(exchange)


_IDLE_S = 5.0


class Timer:
    """One call that is due; ``cancel`` makes it not happen, unless it has begun."""

    __slots__ = ("call",)

    def __init__(self, call: Callable[[], None]) -> None:
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        """Forget the call."""
        self.call = None


class Timers:
    """Makes calls when they are due. The calls must not block and must not raise.

    The thread starts with the first call, ends when nothing was due for a while, and belongs to its process.
    """

    def __init__(self) -> None:
        self._due: list[tuple[float, int, Timer]] = []
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def call_later(self, seconds: float, call: Callable[[], None]) -> Timer:
        """Have ``call`` made after so many seconds."""
        timer = Timer(call)
        with self._changed:
            entry = (time.monotonic() + seconds, next(self._numbers), timer)
            heapq.heappush(self._due, entry)
            if self._thread is None and not self._is_closed:
                self._thread = threading.Thread(target=self._run, name="segreader-timers", daemon=True)
                self._thread.start()
            elif self._due[0] is entry:
                self._changed.notify()
        return timer

    def close(self) -> None:
        """End the thread; what is due later is forgotten."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
            thread = self._thread
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                while self._due and self._due[0][2].call is None:
                    heapq.heappop(self._due)
                if self._is_closed:
                    return
                if not self._due:
                    if not self._changed.wait(_IDLE_S) and not self._due:
                        self._thread = None
                        return
                    continue
                left = self._due[0][0] - time.monotonic()
                if left > 0:
                    self._changed.wait(left)
                    continue
                call = heapq.heappop(self._due)[2].call
            if call is not None:
                call()
