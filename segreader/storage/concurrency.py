"""How many requests may be under way: all of them while the store keeps up, fewer when it says that it does not."""

from __future__ import annotations

import threading

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
        """Whether the store has asked for less, not long ago."""
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
        """Give a place back, and say how the request ended.

        Args:
            is_good: a whole answer came.
            is_throttled: the store said that it is asked too much.
        """
        with self._changed:
            self._in_flight -= 1
            if is_throttled and round_ == self._round:
                self._limit = max(1.0, self._limit / 2)
                self._round += 1
            elif is_good:
                self._limit = min(float(self._maximum), self._limit + 1 / self._limit)
            self._changed.notify_all()
