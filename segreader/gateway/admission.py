"""How many connections an address or a principal may have, how many begin in a second, and what is said of limits.

Each time is counted in the metrics; the log has a line for each limit at most every ten seconds, with who it was last.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import Final

from segreader.errors import ConnectionFailedError, ProtocolError
from segreader.gateway.config import Limits
from segreader.gateway.metrics import GatewayMetrics

_log = logging.getLogger(__name__)

QUIET_S: Final = 10.0


class LimitReports:
    """Counts limits that were reached, and logs them.

    Args:
        clock: seconds since an arbitrary start.
    """

    def __init__(self, metrics: GatewayMetrics, clock: Callable[[], float] = time.monotonic) -> None:
        self._metrics = metrics
        self._clock = clock
        self._logged: dict[str, tuple[float, int]] = {}

    def reached(self, limit: str, value: int, who: str) -> None:
        """A limit is reached.

        Args:
            limit: its name in the configuration.
            value: what it is set to.
            who: the client's address or principal, or else the broker or partition.
        """
        self._metrics.limits_reached[limit] += 1
        count, now = self._metrics.limits_reached[limit], self._clock()
        last, counted = self._logged.get(limit, (now - QUIET_S, 0))
        if now - last >= QUIET_S:
            self._logged[limit] = (now, count)
            _log.warning("limit %s (%d) reached by %s, %d times since last logged", limit, value, who, count - counted)

    def check_request(self, limits: Limits, size: int, who: str, *, is_before_login: bool) -> None:
        """Check the size of a request that a client announces.

        Args:
            who: the client's address.

        Raises:
            ProtocolError: it is above the limit that holds now.
        """
        limit, most = "request_bytes", limits.request_bytes
        if is_before_login:
            limit, most = "request_bytes_before_login", limits.request_bytes_before_login
        if size > most:
            self.reached(limit, most, who)
            raise ProtocolError(f"the request is larger than {limit}", found=size, expected=f"{most} at most")


class Admission:
    """Counts the connections of all clients by what must not have too many."""

    def __init__(self, reports: LimitReports) -> None:
        self._reports = reports
        self._open: dict[str, Counter[str]] = {}

    @contextlib.contextmanager
    def admitted(self, limit: str, most: int, key: str) -> Iterator[None]:
        """Count a connection while the block runs.

        Args:
            limit: its name in the configuration.
            key: the address or the principal.

        Raises:
            ConnectionFailedError: there are ``most`` already.
        """
        self.enter(limit, most, key)
        try:
            yield
        finally:
            self.leave(limit, key)

    def enter(self, limit: str, most: int, key: str) -> None:
        """Count a connection until ``leave``; raises as ``admitted``."""
        counts = self._open.setdefault(limit, Counter())
        if counts[key] >= most:
            self._reports.reached(limit, most, key)
            raise ConnectionFailedError(f"too many connections: {limit}", expected=f"{most} at most")
        counts[key] += 1

    def leave(self, limit: str, key: str) -> None:
        """A connection is gone."""
        counts = self._open[limit]
        counts[key] -= 1
        if not counts[key]:
            del counts[key]


class Arrivals:
    """Lets connections begin one after another, few in a second; addresses that have some waiting take turns.

    A connection costs a thousand times a request's bytes: TLS, a connection to a broker, a login.
    """

    def __init__(self, reports: LimitReports) -> None:
        self._reports = reports
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._next_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    async def turn(self, limit: str, per_s: int, address: str) -> None:
        """Wait until a connection may begin.

        Args:
            limit: its name in the configuration.
            per_s: how many may in a second.
        """
        loop = asyncio.get_running_loop()
        now = loop.time()
        if not self._waiting and self._next_s - now <= (_AT_ONCE - 1) / per_s:
            self._next_s = max(self._next_s, now) + 1 / per_s
            return
        self._reports.reached(limit, per_s, address)
        turn = loop.create_future()
        self._waiting.setdefault(address, deque()).append(turn)
        if self._timer is None:
            self._timer = loop.call_later(1 / per_s, self._give_turn, per_s)
        await turn

    def _give_turn(self, per_s: int) -> None:
        loop, self._timer = asyncio.get_running_loop(), None
        while self._waiting:
            address = next(iter(self._waiting))
            queue = self._waiting.pop(address)
            turn = queue.popleft()
            if queue:
                self._waiting[address] = queue  # behind the others
            if not turn.done():
                turn.set_result(None)
                self._next_s = loop.time() + 1 / per_s
                break
        if self._waiting:
            self._timer = loop.call_later(1 / per_s, self._give_turn, per_s)


_AT_ONCE: Final = 16
"""Connections that begin without a wait after a quiet time."""

_STEPS_OF_A_TURN: Final = 4
"""A request takes about so many steps of the event loop, to and fro."""
_SHARED_FOR_S: Final = 10.0
"""How long several clients are taken to be there after each of their requests."""


class Turns:
    """Lets requests of several clients begin in turns: one of each client in a few steps of the event loop.

    A client's connections share its turns. A turn is as long as a request, so that about one of each other client comes
    between a request and its answer. Requests of a client that is alone begin at once.
    """

    def __init__(self) -> None:
        self._begun: set[str] = set()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._last = ""
        self._shared_until_s = 0.0
        self._is_counting = False

    async def turn(self, who: str) -> None:
        """Wait until a request may begin.

        Args:
            who: the client's principal, or its address.
        """
        loop = asyncio.get_running_loop()
        now = loop.time()
        if who != self._last:
            if self._last:
                self._shared_until_s = now + _SHARED_FOR_S
            self._last = who
        if now >= self._shared_until_s and not self._waiting:
            return
        if not self._is_counting:
            self._is_counting = True
            loop.call_soon(self._step, loop, 1)
        if who not in self._begun and who not in self._waiting:
            self._begun.add(who)
            return
        turn = loop.create_future()
        self._waiting.setdefault(who, deque()).append(turn)
        await turn

    def _step(self, loop: asyncio.AbstractEventLoop, steps: int) -> None:
        if steps < _STEPS_OF_A_TURN:
            loop.call_soon(self._step, loop, steps + 1)
            return
        self._begun.clear()
        for who, waiting in [*self._waiting.items()]:
            while waiting:
                if not (turn := waiting.popleft()).done():
                    turn.set_result(None)
                    self._begun.add(who)
                    break
            if not waiting:
                del self._waiting[who]
        self._is_counting = bool(self._begun)
        if self._is_counting:
            loop.call_soon(self._step, loop, 1)


def address_of(peer: str) -> str:
    """The address of ``address:port``."""
    return peer.rpartition(":")[0] or peer
