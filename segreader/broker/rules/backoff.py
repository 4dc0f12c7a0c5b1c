"""How long to wait before the next try, and until when to try at all. Neither clock nor randomness lives here.

Source: the defaults of Kafka's clients (``retry.backoff.ms``, ``retry.backoff.max.ms``; ``ExponentialBackoff`` of 4.3).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from segreader.values import dataclass

Jitter = Callable[[], float]
"""Gives a number from 0 to 1, such as ``random.random``; a test gives a constant."""


@dataclass(frozen=True, slots=True)
class BackoffPolicy:
    """Waits that double from ``first_ms`` up to ``limit_ms``, each spread by a share of itself.

    Args:
        first_ms: before the first repeat.
        limit_ms: the longest wait; the spread does not exceed it.
        spread: 0.2 means between 80 and 120 % of the wait.
    """

    first_ms: int = 100
    limit_ms: int = 1000
    spread: float = 0.2

    def __post_init__(self) -> None:
        if not (0 < self.first_ms <= self.limit_ms and 0 <= self.spread < 1):
            raise ValueError(f"no policy: first {self.first_ms} ms, limit {self.limit_ms} ms, spread {self.spread}")

    def wait_ms(self, failures: int, jitter: Jitter) -> int:
        """How long to wait after that many failures in a row; 0 after none."""
        if failures <= 0:
            return 0
        # More doublings than this pass every limit; without a bound the number itself would grow for ever.
        plain = min(self.limit_ms, self.first_ms << min(failures - 1, 40))
        return min(self.limit_ms, round(plain * (1 + self.spread * (2 * jitter() - 1))))


USUAL = BackoffPolicy()
"""Before an operation is repeated: 100 ms, doubling to 1 s."""

HINTED_LEADER = BackoffPolicy(first_ms=10)
"""Where a leader named by KIP-951 has not heard of its election yet: 10 ms, doubling to the usual limit (ours)."""

REMOTE_READS = BackoffPolicy(first_ms=200, limit_ms=10_000)
"""Before an object store is asked again: 200 ms, doubling."""


class Backoff:
    """Counts failures in a row and says how long to wait after each.

    Args:
        policy: how the waits grow.
        jitter: where their spread comes from.
    """

    __slots__ = ("_jitter", "_policy", "failures")

    def __init__(self, jitter: Jitter, policy: BackoffPolicy = USUAL) -> None:
        self._jitter = jitter
        self._policy = policy
        self.failures = 0

    def failed(self) -> int:
        """One more failure: the ms to wait before the next try."""
        self.failures += 1
        return self._policy.wait_ms(self.failures, self._jitter)

    def succeeded(self) -> None:
        """The next failure is the first one again."""
        self.failures = 0


LONGEST_THROTTLE_MS: Final = 600_000
"""How much throttle time an operation waits for in all (ours): a quota of 1 KB/s asks for minutes after one batch."""


class Deadline:
    """The moment at which an operation ends, however many tries it took.

    Time for which brokers ask to be left alone (KIP-219) does not count: with ``excuse`` the moment is put off.

    Args:
        at_ms: the moment, as the caller's clock counts.
    """

    __slots__ = ("_excused_ms", "_excused_until_ms", "at_ms")

    def __init__(self, at_ms: int) -> None:
        self.at_ms = at_ms
        self._excused_ms = 0
        self._excused_until_ms = 0

    def __repr__(self) -> str:
        return f"Deadline({self.at_ms})"

    @classmethod
    def after(cls, now_ms: int, allowed_ms: int = 60_000) -> Deadline:
        """The deadline of an operation that begins now."""
        return cls(now_ms + allowed_ms)

    def within(self, now_ms: int, allowed_ms: int) -> Deadline:
        """The deadline of a part of the operation that may take so long."""
        return Deadline(min(self.at_ms, now_ms + allowed_ms))

    def excuse(self, now_ms: int, until_ms: int) -> bool:
        """Put it off by a throttle time; what several brokers ask for at the same time counts once.

        Returns:
            Whether it was; ``False`` if the operation would wait for longer than ``LONGEST_THROTTLE_MS`` in all.
        """
        more_ms = until_ms - max(now_ms, self._excused_until_ms)
        if more_ms <= 0:
            return True
        if self._excused_ms + more_ms > LONGEST_THROTTLE_MS:
            return False
        self._excused_until_ms = until_ms
        self._excused_ms += more_ms
        self.at_ms += more_ms
        return True

    def left_ms(self, now_ms: int) -> int:
        """How long is left; never below 0."""
        return max(0, self.at_ms - now_ms)

    def is_over(self, now_ms: int) -> bool:
        """Whether nothing is left."""
        return now_ms >= self.at_ms

    def allows(self, wait_ms: int, now_ms: int) -> bool:
        """Whether a try that waits so long first still begins in time; if not, the last error is the answer now."""
        return wait_ms < self.left_ms(now_ms)
