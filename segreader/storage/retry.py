"""When to try again, how long to wait, and when a whole job has tried enough. Knows no HTTP but ``Retry-After``."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from enum import Enum, auto

from segreader.errors import StorageError
from segreader.values import dataclass


class Clock:
    """Time, as a store sees it; tests give one that does not wait."""

    def now(self) -> float:
        """Seconds since 1970 UTC."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds from an arbitrary start, never going back."""
        return time.monotonic()

    def wait(self, stopped: threading.Event, seconds: float) -> bool:
        """Let ``seconds`` pass, or fewer if ``stopped`` is set meanwhile; returns whether it is."""
        return stopped.wait(seconds)


class Remedy(Enum):
    """What may help after a request failed."""

    NONE = auto()
    RETRY = auto()
    SLOW_DOWN = auto()
    """Retry, and ask less at once."""
    REFRESH = auto()
    """Another URL, once."""


class RequestFailed(Exception):
    """One request failed: the error to raise if nothing helps, and what may help. Does not leave this package."""

    def __init__(self, error: StorageError, remedy: Remedy, retry_after_s: float | None = None) -> None:
        super().__init__(str(error))
        self.error = error
        self.remedy = remedy
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, slots=True)
class BackOff:
    """How long to wait before a try: anything between nothing and a bound that doubles ("full jitter").

    Args:
        start_s, max_s: the bound before the second try, and the largest one.
        retry_after_max_s: the longest wait that a server may ask for; longer ones end the tries.
    """

    start_s: float = 0.1
    max_s: float = 5.0
    retry_after_max_s: float = 60.0

    def seconds(
        self, failures: int, retry_after_s: float | None = None, *, jitter: Callable[[], float] = random.random
    ) -> float | None:
        """The wait after so many failures (1 or more), or ``None`` if the server asks for too long a one.

        Args:
            jitter: gives a number from 0 to 1.
        """
        bound = min(self.max_s, self.start_s * 2.0 ** min(failures - 1, 30))
        if retry_after_s is None:
            return bound * jitter()
        if retry_after_s > self.retry_after_max_s:
            return None
        return retry_after_s + bound * jitter()


class RetryBudget:
    """What one job may try again: a share of its ranges, or a few where they are few.

    A store that is down fails a job of thousands of ranges soon, rather than every range after all its tries.
    """

    def __init__(self, share: float = 0.1, at_least: int = 32) -> None:
        self._share = share
        self._at_least = at_least
        self._ranges = 0
        self._spent = 0
        self._lock = threading.Lock()

    def earn(self) -> None:
        """Note the first request of a range."""
        with self._lock:
            self._ranges += 1

    def spend(self) -> bool:
        """Take one retry; returns whether there was one left."""
        with self._lock:
            if self._spent + 1 > max(self._at_least, self._share * self._ranges):
                return False
            self._spent += 1
            return True


def parse_retry_after(text: str | None, now: float) -> float | None:
    """Seconds that a ``Retry-After`` header asks to wait, or ``None`` if it cannot be parsed.

    Args:
        now: seconds since 1970 UTC.

    Source: RFC 9110 section 10.2.3: a count of seconds, or an HTTP date.
    """
    if text is None:
        return None
    text = text.strip()
    if text.isascii() and text.isdigit():
        return float(text[:12])
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - now)
    except (ValueError, TypeError, OverflowError):
        return None
