"""Clocks that stand still: one moves only when somebody waits, and remembers how long; one of asyncio, by hand."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator

from segreader.storage.retry import Clock


class HandClock(Clock):
    """Time by hand: ``waits`` are the seconds of every wait, which take no time at all."""

    def __init__(self, start_s: float = 1000.0) -> None:
        self.at_s = start_s
        self.waits: list[float] = []

    def now(self) -> float:
        return 1_800_000_000.0 + self.at_s

    def monotonic(self) -> float:
        return self.at_s

    def wait(self, stopped: threading.Event, seconds: float) -> bool:
        self.waits.append(seconds)
        self.at_s += seconds
        return stopped.is_set()


class HeldTime:
    """Where the time of an event loop stands; it moves by hand."""

    def __init__(self, at_s: float) -> None:
        self.at_s = at_s


@contextlib.contextmanager
def held_loop_time() -> Iterator[HeldTime]:
    """Hold the time of the event loop that runs, however long the machine takes for the steps of the block.

    Timers that are due later never fire in it: have no step wait for one.
    """
    loop = asyncio.get_running_loop()
    held = HeldTime(loop.time())
    loop.time = lambda: held.at_s  # type: ignore[method-assign]
    try:
        yield held
    finally:
        del loop.time
