"""A clock that moves only when somebody waits, and remembers how long they wanted to."""

from __future__ import annotations

import threading

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
