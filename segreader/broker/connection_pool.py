"""The connections of one client: opened when needed, lent to one request after another, kept while they are good.

To open one takes TCP, TLS, ApiVersions, then SASL, which authenticates again before a session ends (KIP-368). A refusal
raises ``AuthenticationError`` at once: retries with the same password lock accounts. No error shows a password or
token, even if the broker's own text does.
"""

from __future__ import annotations

import contextlib
import ipaddress
import random
import socket
import ssl
import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

from segreader.broker import api
from segreader.broker.authentication import SaslExchange, make_context, printable, start_exchange, with_tls
from segreader.broker.connection import Call, ClientMetrics, Connection
from segreader.broker.messages import ApiVersions, Node
from segreader.broker.protocol import Api, choose_version, describe
from segreader.broker.rules.backoff import Deadline
from segreader.broker.rules.leader import KnownCluster
from segreader.broker.settings import ClientSettings
from segreader.errors import (
    AuthenticationError,
    BrokerError,
    ConnectionFailedError,
    OptionError,
    UnsupportedVersionError,
)
from segreader.storage.guard import kind_of_address
from segreader.storage.retry import Clock
from segreader.values import dataclass

Answer = TypeVar("Answer")

_FIRST_VERSION = 3
_UNSUPPORTED_VERSION = 35
_MOST_STEPS = 4
_SHORTEST_SESSION_MS = 1_000
_EARLIEST, _LATEST = 0.85, 0.95
_NO_BROKERS = ("metadata", "link-local", "multicast")


@dataclass(frozen=True, slots=True)
class Address:
    """Where a broker listens."""

    host: str
    port: int

    def __post_init__(self) -> None:
        if not self.host or not 0 < self.port < 1 << 16 or not self.host.isprintable() or len(self.host) > 255:
            raise ValueError(f"no address: port {self.port}")

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(slots=True, eq=False)
class OpenConnection:
    """A connection that is ready, what its broker speaks, and whether that is this machine."""

    address: Address
    connection: Connection
    versions: ApiVersions
    is_loopback: bool

    def plan(self, make: Callable[[ApiVersions], Call[Answer]]) -> Call[Answer]:
        """The request in a version that this broker speaks.

        Raises:
            UnsupportedVersionError: there is none; it names the broker.
        """
        try:
            return make(self.versions)
        except UnsupportedVersionError as error:
            raise error.located(source=str(self.address)) from None


class Opener:
    """Opens connections with one client's settings; what it remembers is the TLS context, read from files once."""

    def __init__(
        self, settings: ClientSettings, *, clock: Clock, metrics: ClientMetrics, stopped: threading.Event
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._metrics = metrics
        self._stopped = stopped
        self._context: ssl.SSLContext | None = None

    def renew(self, settings: ClientSettings) -> None:
        """Log in by these settings from the next connection on; their certificates are read anew."""
        self._context, self._settings = None, settings

    def open(self, address: Address, *, deadline: Deadline, may_be_loopback: bool = True) -> OpenConnection:
        """Connect, learn the versions and authenticate.

        Args:
            deadline: of the whole operation, on the clock of connections.
            may_be_loopback: ``False`` for an address that a broker elsewhere named.

        Raises:
            ConnectionFailedError: nothing listens there, or what listens is not a broker.
            AuthenticationError: the broker refuses us, or its certificate is not trusted.
            UnsupportedVersionError: the broker is too old.
            OptionError: certificates of the settings cannot be loaded.
        """
        settings, peer = self._settings, str(address)
        context = self._context
        if settings.security_protocol.has_tls and context is None:
            context = make_context(settings)
            if self._settings is settings:
                self._context = context
        # TLS and the first request have their own time-out, for servers that accept and stay silent.
        stream = self._connect(address, deadline, may_be_loopback)
        try:
            is_loopback = _ip(stream.getpeername()[0]).is_loopback
            if context is not None:
                stream = with_tls(stream, context, address.host, peer)
            connection = Connection(
                stream, peer, settings, clock=self._clock, metrics=self._metrics, stopped=self._stopped
            )
        except OSError as error:
            stream.close()
            if isinstance(error, BrokerError):  # a certificate that is refused is an OSError, too
                raise
            raise ConnectionFailedError(f"the connection broke: {_what(error)}", source=peer) from None
        except BaseException:
            stream.close()
            raise
        try:
            versions = self._ask_versions(connection, deadline)
            if settings.security_protocol.has_sasl:
                authenticate(connection, settings, versions, deadline=deadline)
        except BaseException:
            connection.close()
            raise
        self._metrics.connections += 1
        return OpenConnection(address, connection, versions, is_loopback)

    def _connect(self, address: Address, deadline: Deadline, may_be_loopback: bool) -> socket.socket:
        now_ms = int(self._clock.monotonic() * 1000)
        due_ms = deadline.within(now_ms, self._settings.connect_timeout_ms).at_ms
        try:
            places = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            what = error.strerror if isinstance(error, OSError) else None
            raise ConnectionFailedError(
                f"no address is known for this host: {what}",
                source=str(address),
                hint="If a broker named it, see its advertised.listeners",
            ) from None
        failed: ConnectionFailedError | None = None
        for family, kind, protocol, _, place in places:
            try:
                _check(_ip(str(place[0])), address, may_be_loopback=may_be_loopback)
                left_ms = due_ms - int(self._clock.monotonic() * 1000)
                if left_ms <= 0:
                    raise TimeoutError
                return _dial(family, kind, protocol, place, left_ms / 1000)
            except TimeoutError:
                failed = ConnectionFailedError(
                    "timed out while connecting",
                    source=str(address),
                    hint="A firewall drops packets like this; socket.connection.setup.timeout.ms bounds the wait",
                )
            except ConnectionFailedError as error:
                failed = error
            except OSError as error:
                hint = (
                    "Is the broker running, and is this its port?"
                    if isinstance(error, ConnectionRefusedError)
                    else None
                )
                failed = ConnectionFailedError(f"cannot connect: {_what(error)}", source=str(address), hint=hint)
        raise failed or ConnectionFailedError("no address is known for this host", source=str(address))

    def _ask_versions(self, connection: Connection, deadline: Deadline) -> ApiVersions:
        deadline = deadline.within(connection.now_ms(), self._settings.connect_timeout_ms)
        for version in (_FIRST_VERSION, 0):
            answer = connection.ask(api.api_versions(self._settings, version), deadline=deadline)
            if answer.error == 0:
                return answer
            if answer.error != _UNSUPPORTED_VERSION:
                break
        raise UnsupportedVersionError(
            f"the broker does not report its API versions: {describe(answer.error)}",
            code=answer.error,
            source=connection.peer,
        )


def authenticate(
    connection: Connection,
    settings: ClientSettings,
    offered: ApiVersions,
    *,
    deadline: Deadline | None = None,
    choose: Callable[[float, float], float] = random.uniform,
) -> None:
    """Authenticate on a connection with nothing in flight, and have it done again before the session ends.

    Args:
        offered: the broker's versions.
        deadline: of the operation, on the connection's clock.
        choose: gives a number between two others: where in the session it is renewed.

    Raises:
        AuthenticationError: the broker refuses mechanism, user, password or token, or cannot prove itself (SCRAM).
        ConnectionFailedError: the broker closed the connection or was silent.
    """
    assert settings.sasl_mechanism is not None
    exchange = start_exchange(settings)
    try:
        _shake_hands(connection, settings, deadline)
        lifetime_ms = _exchange(connection, settings, offered, exchange, deadline)
    except AuthenticationError as error:
        connection.close()
        raise error.located(source=connection.peer) from None
    connection.renew_at_ms = None
    if lifetime_ms > 0:
        wait_ms = int(max(lifetime_ms, _SHORTEST_SESSION_MS) * choose(_EARLIEST, _LATEST))
        connection.renew_at_ms = connection.now_ms() + wait_ms

        def renew() -> None:
            deadline = Deadline.after(connection.now_ms(), settings.operation_timeout_ms)
            authenticate(connection, settings, offered, deadline=deadline, choose=choose)

        connection.renew_session = renew


def _shake_hands(connection: Connection, settings: ClientSettings, deadline: Deadline | None) -> None:
    answer = connection.ask(api.sasl_handshake(settings), deadline=deadline)
    if answer.error:
        raise AuthenticationError(
            f"the mechanism {settings.sasl_mechanism} is refused: {describe(answer.error)}",
            code=answer.error,
            expected=", ".join(printable(each) for each in answer.mechanisms[:10]) or None,
            hint="Set sasl.mechanism to one that this listener offers",
        )


def _exchange(
    connection: Connection,
    settings: ClientSettings,
    offered: ApiVersions,
    exchange: SaslExchange,
    deadline: Deadline | None,
) -> int:
    """The session's life in ms; 0: it has no end."""
    version = choose_version(Api.SASL_AUTHENTICATE, offered)
    # No secret is in a variable here: crash reports print those of every frame of a traceback.
    call = api.sasl_authenticate(settings, version, exchange.first())
    for _ in range(_MOST_STEPS):
        answer = connection.ask(call, deadline=deadline)
        if answer.error:
            said = printable(answer.error_message)
            if exchange.is_secret_in(said):
                said = ""
            raise AuthenticationError(
                f"{_who(settings)} is refused with {settings.sasl_mechanism}: {describe(answer.error)}"
                + (f", {said}" if said else ""),
                code=answer.error,
                hint="Check user, password or token, and that this mechanism is set up for the user",
            )
        following = exchange.next(answer.data)
        if following is None:
            return answer.session_lifetime_ms
        call = api.sasl_authenticate(settings, version, following)
    raise AuthenticationError(f"{settings.sasl_mechanism} does not come to an end with this broker")


def _who(settings: ClientSettings) -> str:
    return f"user {settings.sasl_username!r}" if settings.sasl_username else "the token"


def _dial(family: int, kind: int, protocol: int, place: object, seconds: float) -> socket.socket:
    stream = socket.socket(family, kind, protocol)
    try:
        stream.settimeout(seconds)
        stream.connect(place)  # type: ignore[arg-type]
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with contextlib.suppress(OSError):
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    except BaseException:
        stream.close()
        raise
    return stream


def _check(place: ipaddress.IPv4Address | ipaddress.IPv6Address, address: Address, *, may_be_loopback: bool) -> None:
    """Brokers are often at private addresses, but never at those where a cloud's machines ask for their credentials."""
    kind = kind_of_address(place)
    if place.is_unspecified or kind in _NO_BROKERS or (kind == "loopback" and not may_be_loopback):
        raise ConnectionFailedError(
            f"a broker cannot be at {place}" + (" as seen from here" if kind == "loopback" else ""),
            source=str(address),
            hint="Brokers send their addresses to clients: see advertised.listeners",
        )


def _ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    place = ipaddress.ip_address(text.partition("%")[0])
    mapped = getattr(place, "ipv4_mapped", None)
    return place if mapped is None else mapped


def _what(error: OSError) -> str:
    return error.strerror or type(error).__name__


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
        self.opener = opener
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

    def lend(self, node_id: int, deadline: Deadline) -> OpenConnection:
        """A connection to a broker, for the caller alone until it is given back.

        Raises:
            ConnectionFailedError, AuthenticationError, UnsupportedVersionError: as ``Opener.open`` says.
        """
        return self._to(self.address_of(node_id), deadline)

    def lend_idle(self, node_id: int) -> OpenConnection | None:
        """A connection to a broker that can be used at once, if there is one; none is opened or waited for."""
        lent = self._usable(self.address_of(node_id))
        if lent is None or lent.connection.quiet_until_ms <= lent.connection.now_ms():
            return lent
        self.give_back(lent)
        return None

    def lend_to(self, node: Node, deadline: Deadline) -> OpenConnection:
        """A connection to a broker that an answer named."""
        return self._to(_address(node), deadline)

    def lend_any(self, deadline: Deadline) -> OpenConnection:
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
                return self._to(address, deadline)
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

    def _to(self, address: Address, deadline: Deadline) -> OpenConnection:
        if self._is_closed:
            raise ConnectionFailedError("this client is closed")
        if (kept := self._usable(address)) is not None:
            return kept
        is_ours = address in self.bootstrap
        try:
            opened = self.opener.open(address, deadline=deadline, may_be_loopback=is_ours or self._is_local)
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
