"""Limits on the load of a store: how many requests at once, and when a late answer gets a second request."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from segreader.storage.metrics import StorageMetrics

_POLL_S = 0.1


class ConcurrencyLimiter:
    """Additive increase, multiplicative decrease, of the requests in flight.

    An answer that says "slow down" halves the limit, once for all the requests that were under way when it came: they
    were sent under the old limit. Every full round of good answers raises it by one again.

    Args:
        maximum: requests in flight at most, and at the beginning.
    """

    def __init__(self, maximum: int) -> None:
        if maximum < 1:
            raise ValueError(f"maximum={maximum}")
        self._maximum = maximum
        self._limit = float(maximum)
        self._in_flight = 0
        self._round = 0
        self._changed = threading.Condition()

    @property
    def limit(self) -> int:
        """Requests that may be in flight now."""
        return int(self._limit)

    @property
    def is_lowered(self) -> bool:
        """Whether the store has recently asked for less."""
        return self.limit < self._maximum

    def acquire(self, stopped: threading.Event | None = None) -> int | None:
        """Wait for a place and take it.

        Returns:
            the round it belongs to, for ``release``; ``None`` if ``stopped`` was set meanwhile.
        """
        with self._changed:
            while self._in_flight >= self.limit:
                if stopped is not None and stopped.is_set():
                    return None
                self._changed.wait(_POLL_S)
            self._in_flight += 1
            return self._round

    def release(self, round_: int, *, is_good: bool = False, is_throttled: bool = False) -> None:
        """Give a place back, with the outcome of the request.

        Args:
            is_good: a whole answer came.
            is_throttled: the store asked for fewer requests.
        """
        with self._changed:
            self._in_flight -= 1
            if is_throttled and round_ == self._round:
                self._limit = max(1.0, self._limit / 2)
                self._round += 1
            elif is_good:
                self._limit = min(float(self._maximum), self._limit + 1 / self._limit)
            self._changed.notify_all()


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
