"""Calls that are due later, made by one thread. A blocked read cannot watch the time itself."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable

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
