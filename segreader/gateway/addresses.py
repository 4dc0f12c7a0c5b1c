"""Map each broker to an address of the gateway.

Brokers are learned from the answers that pass through. A new one gets its own listener before the answer that named it
goes on, so no client is sent to a closed port.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

from segreader.errors import OptionError

MAX_NODES: Final = 1000
"""Brokers of one cluster that get a listener."""

_LARGEST_PORT = 65535
_LONGEST_HOST = 255


@dataclass(frozen=True, slots=True)
class PortPlan:
    """Which port a broker gets.

    Args:
        base: plus the node id; the base itself is where clients begin.
        ports: node id -> port, in place of that rule where it is not empty: other brokers have no port then.
    """

    base: int
    ports: Mapping[int, int]

    def __post_init__(self) -> None:
        for port in (self.base, *self.ports.values()):
            if not 0 < port <= _LARGEST_PORT:
                raise OptionError("not a port to listen at", found=port, expected=f"1 to {_LARGEST_PORT}")
        if len({self.base, *self.ports.values()}) != len(self.ports) + 1:
            raise OptionError("two brokers have one port", hint="Every broker needs a port of its own at the gateway")

    def port_of(self, node_id: int) -> int | None:
        """The port of a broker, or ``None`` if it has none here."""
        if self.ports:
            return self.ports.get(node_id)
        port = self.base + node_id
        return port if node_id >= 0 and port <= _LARGEST_PORT else None


class AddressTable:
    """Brokers by node id: ``rewriting.Addresses``.

    Args:
        advertised_host: under which clients reach the gateway.
        open_listener: called once for each broker; false if its port cannot be had.
    """

    def __init__(
        self, advertised_host: str, plan: PortPlan, open_listener: Callable[[int, int], Awaitable[bool]]
    ) -> None:
        self._host = advertised_host
        self._plan = plan
        self._open_listener = open_listener
        self._brokers: dict[int, tuple[str, int]] = {}
        self._opening: dict[int, asyncio.Task[bool]] = {}
        self._refused: set[int] = set()

    @property
    def nodes(self) -> Mapping[int, tuple[str, int]]:
        """Where each known broker is."""
        return self._brokers

    def broker(self, node_id: int) -> tuple[str, int] | None:
        """Where a broker is now."""
        return self._brokers.get(node_id)

    def translate(self, node_id: int, host: str, port: int) -> tuple[str, int] | None:
        """The gateway's address for a broker that says to be at ``host`` and ``port``; ``None``: it has none.

        A broker that is new gets its listener soon: ``settle`` waits for that.
        """
        at = self._plan.port_of(node_id)
        if at is None or node_id in self._refused or not 0 < port <= _LARGEST_PORT or not 0 < len(host) < _LONGEST_HOST:
            return None
        if node_id not in self._brokers and len(self._brokers) >= MAX_NODES:
            return None
        if node_id not in self._brokers:
            self._opening[node_id] = asyncio.ensure_future(self._open_listener(node_id, at))
        self._brokers[node_id] = (host, port)
        return self._host, at

    async def settle(self) -> bool:
        """Wait until all listeners are open; true if one could not be, so that answers must be looked at anew."""
        has_failed = False
        while self._opening:
            node_id, opening = next(iter(self._opening.items()))
            is_open = await asyncio.shield(opening)
            if self._opening.pop(node_id, None) is not None and not is_open:
                self._refused.add(node_id)
                self._brokers.pop(node_id, None)
                has_failed = True
        return has_failed
