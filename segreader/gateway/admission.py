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
        """A client has reached a limit.

        Args:
            limit: its name in the configuration.
            value: what it is set to.
            who: the client's address, or its principal.
        """
        self._metrics.limits_reached[limit] += 1
        count, now = self._metrics.limits_reached[limit], self._clock()
        last, counted = self._logged.get(limit, (now - QUIET_S, 0))
        if now - last >= QUIET_S:
            self._logged[limit] = (now, count)
            _log.warning("limit %s (%d) reached by %s, %d times since last logged", limit, value, who, count - counted)

    def check_size(self, limit: str, most: int, size: int, who: str) -> None:
        """Check the size of a request that a client announces; the rest as for ``reached``.

        Raises:
            ProtocolError: it is above the limit.
        """
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

_REQUESTS_IN_A_STEP: Final = 2
_MOST_CLIENTS: Final = 1000
"""Of whom the requests are counted, at most."""


class Turns:
    """Lets requests begin in turns: few of one client in each step of the event loop, over all of its connections."""

    def __init__(self) -> None:
        self._begun: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    async def turn(self, who: str) -> None:
        """Wait until a request may begin.

        Args:
            who: the client's principal, or its address.
        """
        if who not in self._waiting and self._begun[who] < _REQUESTS_IN_A_STEP:
            if len(self._begun) > _MOST_CLIENTS:
                self._begun.clear()
            self._begun[who] += 1
            return
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._give_turns)
        turn = loop.create_future()
        self._waiting.setdefault(who, deque()).append(turn)
        await turn

    def _give_turns(self) -> None:
        self._begun.clear()
        for who, waiting in [*self._waiting.items()]:
            while waiting and self._begun[who] < _REQUESTS_IN_A_STEP:
                if not (turn := waiting.popleft()).done():
                    turn.set_result(None)
                    self._begun[who] += 1
            if not waiting:
                del self._waiting[who]
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._give_turns)


def address_of(peer: str) -> str:
    """The address of ``address:port``."""
    return peer.rpartition(":")[0] or peer
