"""A second request for an answer that is late: when to send it, and which of the two counts."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from segreader.storage.metrics import StorageMetrics

_REFRESHED_EVERY = 32

Head = TypeVar("Head")


class HedgePolicy:
    """After how long a second request goes out, and how many there may be.

    Args:
        after_s: never sooner than this.
        share: hedges per request at most; one is always allowed, or a short read could never have any.
    """

    def __init__(self, metrics: StorageMetrics, *, after_s: float, share: float) -> None:
        self._metrics = metrics
        self._after_s = after_s
        self._share = share
        self._lock = threading.Lock()
        self._requests = 0
        self._hedges = 0
        self._delay_s = after_s

    def delay_s(self) -> float | None:
        """Seconds to wait for the first head: the 95th hundredth of the latest, or ``after_s``; ``None``: no hedge."""
        if self._share <= 0:
            return None
        with self._lock:
            self._requests += 1
            if self._requests % _REFRESHED_EVERY == 0:
                self._delay_s = max(self._after_s, self._metrics.first_byte_quantile(0.95) or 0.0)
            return self._delay_s

    def allow(self) -> bool:
        """Take one hedge; returns whether there was one to take."""
        with self._lock:
            if self._hedges + 1 > max(1.0, self._share * self._requests):
                return False
            self._hedges += 1
            return True


class Race(Generic[Head]):
    """Two requests for the same bytes, of which the first with a good head wins.

    Only the winner's body is ever read, so that bytes of two answers cannot mix. Each side gives a call that ends it;
    the winner's claim makes the other side's call, from the winner's thread.
    """

    def __init__(self, end_first: Callable[[], None]) -> None:
        self._lock = threading.Lock()
        self._end_first = end_first
        self._end_second: Callable[[], None] | None = None
        self._thread: threading.Thread | None = None
        self._is_decided = False
        self._second: Head | None = None

    def start_second(self, run: Callable[[], None], end: Callable[[], None]) -> bool:
        """Begin the second request in a thread of its own, unless the race is over."""
        with self._lock:
            if self._is_decided:
                return False
            self._end_second = end
            self._thread = threading.Thread(target=run, name="segreader-hedge", daemon=True)
            self._thread.start()
            return True

    def first_is_here(self) -> Head | None:
        """The first request has a head, or has failed: it counts, unless the second one was sooner.

        Returns:
            the second one's head if that has won, else ``None``, and the second one is ended.
        """
        with self._lock:
            has_lost, self._is_decided = self._is_decided, True
        if has_lost:
            return self._second
        if self._end_second is not None:
            self._end_second()
        return None

    def second_is_here(self, head: Head) -> bool:
        """The second request has a good head; returns whether it counts. If not, the caller throws it away."""
        with self._lock:
            if self._is_decided:
                return False
            self._is_decided = True
            self._second = head
        self._end_first()
        return True
