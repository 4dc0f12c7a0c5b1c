"""The connections of one client: opened when needed, lent to one request after another, kept while they are good."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from segreader.broker.handshake import Address, OpenConnection, Opener
from segreader.broker.messages import Node
from segreader.broker.rules.leader import KnownCluster
from segreader.errors import ConnectionFailedError, OptionError

_DEFAULT_PORT = 9092


def parse_bootstrap(servers: str | Iterable[str]) -> tuple[Address, ...]:
    """Addresses from ``host:port,host:port`` or a list of such; an IPv6 address is in brackets.

    Raises:
        OptionError: there is none, or one is no address.
    """
    texts = servers.split(",") if isinstance(servers, str) else list(servers)
    found: list[Address] = []
    for text in texts:
        if not text.strip():
            continue
        # A listener's name may stand before the address in Kafka's own files: SASL_SSL://host:port.
        place = text.strip().rpartition("://")[2]
        host, colon, port = place.rpartition(":")
        if not colon or place.endswith("]"):
            host, port = place, str(_DEFAULT_PORT)
        try:
            if (":" in host) != (host.startswith("[") and host.endswith("]")):
                raise ValueError
            if not (port.isascii() and port.isdigit()) or set(host) & set("/@?# "):
                raise ValueError
            address = Address(host.removeprefix("[").removesuffix("]"), int(port))
        except ValueError:
            raise OptionError(
                "one of the bootstrap servers is not a valid address", expected="host:port, separated by commas"
            ) from None
        if address not in found:
            found.append(address)
    if not found:
        raise OptionError("bootstrap servers name no broker", expected="host:port, separated by commas")
    return tuple(found)


class NodeConnections:
    """Lends connections to brokers by their id, or to any broker.

    Args:
        bootstrap: asked in turn while no broker is known.
        cluster: where brokers listen, as far as is known.
    """

    def __init__(self, bootstrap: tuple[Address, ...], opener: Opener, cluster: KnownCluster) -> None:
        self.bootstrap = bootstrap
        self._opener = opener
        self._cluster = cluster
        self._idle: dict[Address, list[OpenConnection]] = {}
        self._failures: dict[Address, int] = {}
        self._is_local = False
        self._is_closed = False
        self._lock = threading.Lock()

    def address_of(self, node_id: int) -> Address:
        """Where a broker listens.

        Raises:
            ConnectionFailedError: it is not known, or what was told is no address.
        """
        node = self._cluster.nodes.get(node_id)
        if node is None:
            raise ConnectionFailedError(f"where broker {node_id} listens is not known")
        return _address(node)

    def lend(self, node_id: int, until_ms: int) -> OpenConnection:
        """A connection to a broker, for the caller alone until it is given back.

        Raises:
            ConnectionFailedError, AuthenticationError, UnsupportedVersionError: as ``Opener.open`` says.
        """
        return self._to(self.address_of(node_id), until_ms)

    def lend_idle(self, node_id: int) -> OpenConnection | None:
        """A connection to a broker that can be used at once, if there is one; none is opened or waited for."""
        lent = self._usable(self.address_of(node_id))
        if lent is None or lent.connection.quiet_until_ms <= lent.connection.now_ms():
            return lent
        self.give_back(lent)
        return None

    def lend_to(self, node: Node, until_ms: int) -> OpenConnection:
        """A connection to a broker that an answer named."""
        return self._to(_address(node), until_ms)

    def lend_any(self, until_ms: int) -> OpenConnection:
        """A connection to whichever broker can be reached: an idle one first, then those known, then the bootstrap
        list; those that failed lately come last, behind them those that ask us to be quiet for a while.

        Raises:
            ConnectionFailedError: none of them; it is the last one's.
        """
        with self._lock:
            idle = [address for address, kept in self._idle.items() if kept]
        known = [_address(node) for node in self._cluster.nodes.values() if _is_good(node)]
        places = list(dict.fromkeys((*idle, *known, *self.bootstrap)))
        places.sort(key=lambda address: (self._is_quiet(address), self._failures.get(address, 0)))
        failed: ConnectionFailedError | None = None
        for address in places:
            try:
                return self._to(address, until_ms)
            except ConnectionFailedError as error:
                failed = error
        assert failed is not None
        raise failed

    def give_back(self, lent: OpenConnection) -> None:
        """Keep a connection for the next request, if it is good and nothing is in flight on it."""
        if lent.connection.is_open and not lent.connection.in_flight and not self._is_closed:
            with self._lock:
                self._idle.setdefault(lent.address, []).append(lent)
        else:
            lent.connection.close()

    def forget(self) -> None:
        """Close all that are idle, for the next ones to begin with the bootstrap list."""
        with self._lock:
            idle = [each for kept in self._idle.values() for each in kept]
            self._idle.clear()
        for each in idle:
            each.connection.close()

    def close(self) -> None:
        """Close all that are idle; those that are lent are closed when they come back."""
        self._is_closed = True
        self.forget()

    def _to(self, address: Address, until_ms: int) -> OpenConnection:
        if self._is_closed:
            raise ConnectionFailedError("this client is closed")
        if (kept := self._usable(address)) is not None:
            return kept
        is_ours = address in self.bootstrap
        try:
            opened = self._opener.open(address, until_ms=until_ms, may_be_loopback=is_ours or self._is_local)
        except ConnectionFailedError:
            self._failures[address] = self._failures.get(address, 0) + 1
            raise
        self._failures[address] = 0
        if is_ours and opened.is_loopback:
            self._is_local = True
        return opened

    def _is_quiet(self, address: Address) -> bool:
        """Whether a connection that is kept waits for the end of its broker's throttle time."""
        kept = self._idle.get(address, ())
        return any(each.connection.quiet_until_ms > each.connection.now_ms() for each in tuple(kept))

    def _usable(self, address: Address) -> OpenConnection | None:
        while (kept := self._take(address)) is not None:
            if kept.connection.is_usable():
                return kept
        return None

    def _take(self, address: Address) -> OpenConnection | None:
        with self._lock:
            kept = self._idle.get(address)
            return kept.pop() if kept else None


def _is_good(node: Node) -> bool:
    try:
        Address(node.host, node.port)
    except ValueError:
        return False
    return True


def _address(node: Node) -> Address:
    try:
        return Address(node.host, node.port)
    except ValueError:
        raise ConnectionFailedError(f"the address of broker {node.node_id} is not valid") from None
