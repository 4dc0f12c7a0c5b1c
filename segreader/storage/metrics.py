"""What reading costs: requests, bytes and waits, counted by every thread of a store."""

from __future__ import annotations

import threading
import time
from collections import deque

_RECENT = 1000


class StorageMetrics:
    """Counters of one scan, or of one store.

    ``requests`` counts every GET that was sent, with ``retries`` and ``hedges`` among them; ``bytes_got`` every byte of
    a body that arrived, wanted or not. ``first_byte_s`` holds the latest 1000 waits from sending to the head.

    Args:
        keep_log: whether to keep ``log``, a line such as ``GET a.log bytes=0-99`` for each request.
    """

    def __init__(self, *, keep_log: bool = False) -> None:
        self.requests = 0
        self.bytes_wanted = 0
        self.bytes_got = 0
        self.retries = 0
        self.refreshes = 0
        self.hedges = 0
        self.throttles = 0
        self.first_byte_s: deque[float] = deque(maxlen=_RECENT)
        self.log: list[str] | None = [] if keep_log else None
        self.bodies_in_flight_most = 0
        self._threads_cpu_s = 0.0
        self._bodies, self._body_s, self._busy_s, self._changed_at = 0, 0.0, 0.0, 0.0
        self._lock = threading.Lock()

    def add(
        self,
        *,
        bytes_wanted: int = 0,
        bytes_got: int = 0,
        retries: int = 0,
        refreshes: int = 0,
        hedges: int = 0,
        throttles: int = 0,
    ) -> None:
        """Count what happened."""
        with self._lock:
            self.bytes_wanted += bytes_wanted
            self.bytes_got += bytes_got
            self.retries += retries
            self.refreshes += refreshes
            self.hedges += hedges
            self.throttles += throttles

    def add_request(self, line: str) -> None:
        """Count one request; ``line`` goes to the log and must hold no query string."""
        with self._lock:
            self.requests += 1
            if self.log is not None:
                self.log.append(line)

    def add_body(self, change: int) -> None:
        """Note that a body begins to arrive (1), or does no longer (-1)."""
        now = time.monotonic()
        with self._lock:
            if self._bodies:
                self._body_s += self._bodies * (now - self._changed_at)
                self._busy_s += now - self._changed_at
            self._bodies, self._changed_at = self._bodies + change, now
            self.bodies_in_flight_most = max(self.bodies_in_flight_most, self._bodies)

    def add_thread_cpu(self, seconds: float) -> None:
        """Count CPU time of one of the store's own threads."""
        with self._lock:
            self._threads_cpu_s += seconds

    def take_thread_cpu(self) -> float:
        """CPU seconds of the store's own threads not taken before, so that reads side by side count each once."""
        with self._lock:
            taken, self._threads_cpu_s = self._threads_cpu_s, 0.0
        return taken

    @property
    def bodies_in_flight_mean(self) -> float:
        """How many arrived at a time, while any did."""
        return self._body_s / self._busy_s if self._busy_s else 0.0

    def add_first_byte(self, seconds: float) -> None:
        """Note how long a request waited for the head of its answer."""
        self.first_byte_s.append(seconds)

    def first_byte_quantile(self, share: float) -> float | None:
        """The wait that ``share`` of the latest requests did not pass, in seconds; ``None`` before the first."""
        waits = sorted(self.first_byte_s.copy())
        return waits[min(len(waits) - 1, int(share * len(waits)))] if waits else None

    def as_dict(self) -> dict[str, int | float | None]:
        """The counters by name, and the median, 95th and 99th hundredth of the waits, for people and JSON."""
        with self._lock:
            counters: dict[str, int | float | None] = {
                name: getattr(self, name)
                for name in (
                    "requests",
                    "bytes_wanted",
                    "bytes_got",
                    "retries",
                    "refreshes",
                    "hedges",
                    "throttles",
                )
            }
        counters["bodies_in_flight_mean"] = self.bodies_in_flight_mean
        counters["bodies_in_flight_most"] = self.bodies_in_flight_most
        for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
            counters[f"first_byte_{name}_s"] = self.first_byte_quantile(share)
        return counters

    def renew_lock(self) -> None:
        """Make a new lock in a forked child, where a thread of the parent may hold the old one for ever."""
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._lock = threading.Lock()


def metrics_of(store: object) -> StorageMetrics | None:
    """The counters of a store, also of one that views are laid over; ``None`` where nothing is counted."""
    while store is not None:
        if isinstance(metrics := getattr(store, "metrics", None), StorageMetrics):
            return metrics
        store = getattr(store, "inner", None)
    return None
