"""Stores over the fault server: URLs that carry a canary, settings that do not let a test wait, a clock that stands."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from fault_server import FaultServer

from segreader.errors import LocationExpiredError
from segreader.ranges import ByteRange
from segreader.storage.base import ObjectInfo
from segreader.storage.http.settings import HttpSettings
from segreader.storage.http.store import HttpStore
from segreader.storage.metrics import StorageMetrics
from segreader.storage.retry import Clock
from segreader.storage.signed_url import SignedUrl

CANARY = "canary-signature"


class FaultUrls:
    """Signed URLs of ``<scenario>/<id>``; ``refresh`` signs with what the server accepts, unless told otherwise."""

    def __init__(
        self,
        server: FaultServer,
        *,
        life_s: float | None = None,
        now: Callable[[], float] = lambda: 0.0,
        can_refresh: bool = True,
        refreshed: str | None = None,
    ) -> None:
        self.server, self.life_s, self.now = server, life_s, now
        self.can_refresh, self.refreshed = can_refresh, refreshed
        self.asked: list[str] = []
        self.refreshes = 0
        self._lock = threading.Lock()

    def url_for(self, name: str) -> SignedUrl:
        self.asked.append(name)
        return self._sign(name, CANARY)

    def refresh(self, name: str) -> SignedUrl:
        with self._lock:
            self.refreshes += 1
        if not self.can_refresh:
            raise LocationExpiredError("nothing renews it", hint="Make a new list")
        return self._sign(name, self.refreshed or self.server.signature)

    def names(self, prefix: str = "") -> Iterator[ObjectInfo]:
        yield from (ObjectInfo(f"clean/{name}", len(self.server.data)) for name in "cab")

    def _sign(self, name: str, signature: str) -> SignedUrl:
        scenario, _, id = name.partition("/")
        expires_at = None if self.life_s is None else self.now() + self.life_s
        return SignedUrl(self.server.url(scenario, id or "one", f"X-Amz-Signature={signature}"), expires_at)


class StandingClock(Clock):
    """Time passes only when someone waits."""

    def __init__(self, at: float = 1_000_000.0) -> None:
        self.at = at
        self.waits: list[float] = []

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at

    def wait(self, stopped: threading.Event, seconds: float) -> bool:
        self.waits.append(seconds)
        self.at += seconds
        return stopped.is_set()


def open_store(
    server: FaultServer, *, urls: FaultUrls | None = None, clock: Clock | None = None, **settings: Any
) -> HttpStore:
    """A store over the server, with few ranges at once, short waits and a request log.

    A server that is late because the machine is busy is waited for: a test of what comes too late sets the times.
    """
    usual: dict[str, Any] = {
        "allow_http": True,
        "range_size": 300_000,
        "in_flight": 1,
        "connect_timeout_s": 10.0,
        "idle_timeout_s": 10.0,
        "backoff_start_s": 0.01,
        "hedge_share": 0.0,
    }
    return HttpStore(
        urls or FaultUrls(server),
        settings=HttpSettings(**(usual | settings)),
        metrics=StorageMetrics(keep_log=True),
        clock=clock,
    )


def is_once_within(seconds: float, attempt: Callable[[int], object]) -> bool:
    """Whether one of five attempts takes less, and is not ``False``.

    A loaded machine is late now and then, a wrong timeout always.
    """
    for turn in range(5):
        began = time.monotonic()
        if attempt(turn) is not False and time.monotonic() - began < seconds:
            return True
    return False


def read(
    store: HttpStore,
    name: str,
    start: int = 0,
    stop: int = 600_000,
    expected_size: int | None = None,
    expected_tag: str | None = None,
) -> bytes:
    """A range, through ``read_pieces``."""
    pieces = store.read_pieces(name, ByteRange(start, stop), expected_size=expected_size, expected_tag=expected_tag)
    return b"".join(bytes(piece) for piece in pieces)
