"""The gateway as a process: listeners, one relay for each client, the catalogue behind them, and a clean end.

Brokers that are away when it starts are tried again; ``reload`` takes over what may change while it runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import signal
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import fields, replace
from typing import Any, Final

from segreader.broker.authentication import make_context
from segreader.broker.client import BrokerClient
from segreader.broker.codec import SMALLEST_REQUEST
from segreader.broker.settings import ClientSettings
from segreader.catalog.metadata_consumer import MetadataConsumer
from segreader.errors import AuthenticationError, BrokerError, ConnectionFailedError, OptionError, SegreaderError
from segreader.gateway.admission import Admission, Arrivals, LimitReports, Turns, address_of
from segreader.gateway.audit import AuditLog
from segreader.gateway.config import GatewayConfig, parse_address
from segreader.gateway.identity import Login
from segreader.gateway.listening import Arrival, Listener, listen, make_server_context, receive
from segreader.gateway.located_fetch import LocatedFetch
from segreader.gateway.metrics import GatewayMetrics, MakePage, Page, serve_pages
from segreader.gateway.relay import Locating, Relay
from segreader.gateway.remote.catalogue import Catalogue, ObjectFinder
from segreader.gateway.remote.plans import RemotePlanner
from segreader.gateway.remote.signing import make_signer
from segreader.gateway.rewriting import AddressTable, PortPlan
from segreader.gateway.wire import LARGEST, Wire, connect
from segreader.storage.location import open_store
from segreader.values import dataclass

_log = logging.getLogger(__name__)
_process_log = logging.getLogger("segreader.gateway.process")

_BEGINNING = -1
"""The bootstrap listener of clients: it represents any broker."""

_FIRST_WAIT_S, _LONGEST_WAIT_S = 1.0, 30.0
"""Between two looks for brokers that are away."""

_WATCH_S = 10.0
_REACHABLE_FOR_S = 30.0
"""How long a broker that could be reached counts as reachable."""

RELOADED: Final = frozenset(
    ("certificate", "key", "key_password", "client_ca", "client_auth", "client", "audit_file", "drain_s", "limits")
)
"""Fields of the configuration that may change while the gateway runs."""

METRICS_PAGE: Final = "text/plain; version=0.0.4; charset=utf-8"

FindNodes = Callable[[ClientSettings, tuple[str, ...]], Mapping[int, tuple[str, int]]]


@dataclass(frozen=True, slots=True)
class Backend:
    """What answers the flag, and what must be closed after it.

    Args:
        catalogue_facts: for the metrics.
        was_complete: whether the catalogue has been complete once.
        reload: take over another configuration; raises OSError if the audit file cannot be opened.
    """

    locating: Locating
    catalogue_facts: Callable[[], Mapping[str, float]]
    close: Callable[[], None]
    was_complete: Callable[[], bool] = lambda: True
    reload: Callable[[GatewayConfig], None] = lambda config: None


MakeBackend = Callable[[GatewayConfig, GatewayMetrics], Backend]


class Gateway:
    """Listens for clients and relays them to their brokers.

    Args:
        make_backend: called once when the gateway starts, in a thread; ``None``: the flag is passed on like the rest.
        learned: called with a broker that is new or somewhere else: its id, host and port.
    """

    def __init__(
        self,
        config: GatewayConfig,
        *,
        make_backend: MakeBackend | None = None,
        learned: Callable[[int, str, int], None] = lambda node_id, host, port: None,
    ) -> None:
        self.config = config
        self.metrics = GatewayMetrics()
        self.addresses = AddressTable(
            config.broker_host or config.host_for_clients,
            PortPlan(config.listen_port, config.ports, is_shared=bool(config.broker_host)),
            self._open_listener,
            learned,
        )
        self._make_backend = make_backend
        self._backend: Backend | None = None
        self._listeners: dict[int, Listener] = {}
        self._pages: asyncio.Server | None = None
        self._relays: dict[Relay, asyncio.Task[Any]] = {}
        self._arriving: set[asyncio.Task[Any]] = set()
        self._accepted = 0
        self._reports = LimitReports(self.metrics)
        self._admission = Admission(self._reports)
        self._arrivals = Arrivals(self._reports)
        self._turns = Turns()
        self._to_brokers: ssl.SSLContext | None = None
        self._to_clients: ssl.SSLContext | None = None
        self._reached_s: float | None = None
        self._has_nodes = self.is_stopping = False
        self._ending = asyncio.Event()

    @property
    def ports(self) -> Mapping[int, int]:
        """The port of each broker that has one here."""
        found = {}
        for node_id, (host, port) in self.addresses.nodes.items():
            if (address := self.addresses.translate(node_id, host, port)) is not None:
                found[node_id] = address[1]
        return found

    async def start(self, nodes: Mapping[int, tuple[str, int]] | None = None) -> None:
        """Listen; returns when clients may come.

        Args:
            nodes: brokers that are known already: node id -> host and port.

        Raises:
            OptionError: a port cannot be had, or a certificate cannot be loaded.
            SegreaderError: the store cannot be opened.
        """
        config = self.config
        self._to_brokers, self._to_clients = make_contexts(config)
        if self._make_backend is not None:
            self._backend = await asyncio.to_thread(self._make_backend, config, self.metrics)
            self.metrics.catalogue = self._backend.catalogue_facts
        if config.metrics_listen is not None:
            self.metrics.text()  # has what it needs
            self._pages = await serve_pages(
                *config.metrics_listen, gateway_pages(self._metrics_page, lambda: ready_page(self.readiness()))
            )
        if not await self._open_listener(_BEGINNING, config.listen_port):
            raise OptionError("the port cannot be opened", found=f"{config.listen_host}:{config.listen_port}")
        if nodes is not None:
            await self._learn(nodes)

    async def _learn(self, nodes: Mapping[int, tuple[str, int]]) -> None:
        for node_id, (host, port) in nodes.items():
            if self.addresses.translate(node_id, host, port) is None:
                raise OptionError(f"broker {node_id} has no port at the gateway", hint="Add it to ports")
        if await self.addresses.settle():
            raise OptionError("the ports of some brokers cannot be opened", hint="Choose another base, or set ports")
        self._reached_s, self._has_nodes = time.monotonic(), True

    async def learn(self, node_id: int, host: str, port: int) -> None:
        """Take over a broker's address that another process of this gateway has learnt, and listen for it."""
        self.addresses.translate(node_id, host, port)
        await self.addresses.settle()

    def end(self) -> None:
        """Have ``run`` end."""
        self._ending.set()

    async def stop(self) -> None:
        """Take no more clients and requests, let answers under way go out, then close everything."""
        self.is_stopping = True
        for listener in self._listeners.values():
            listener.close()
        for task in self._arriving:  # without a request that a broker has seen
            task.cancel()
        for relay in self._relays:
            relay.drain()
        if self._relays:
            await asyncio.wait(self._relays.values(), timeout=self.config.drain_s)
        tasks = {*self._relays.values(), *self._arriving}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._pages is not None:
            self._pages.close()
        if self._backend is not None:
            await asyncio.to_thread(self._backend.close)

    async def run(
        self,
        ready: Callable[[], None],
        *,
        find_nodes: FindNodes,
        load: Callable[[], GatewayConfig] | None = None,
    ) -> None:
        """Start, call ``ready`` when the brokers are known, and stop on SIGTERM or SIGINT; a second one ends it now.

        Args:
            find_nodes: asked for the brokers, in a thread, until it answers.
            load: the configuration as it is now, for SIGHUP.

        Raises:
            SegreaderError: as ``start`` raises; or the brokers refuse the gateway's user.
        """

        async def reload() -> None:
            if load is not None:
                await self.reload(load)

        await until_signal(
            self._ending, self.start, lambda: self._watch(ready, find_nodes), reload=reload, stop=self.stop
        )

    async def reload(self, load: Callable[[], GatewayConfig]) -> bool:
        """Take over certificates, logins, limits and the audit file; false if something is wrong: then all stays.

        Connections stay as they are; limits hold for them, too.
        """
        try:
            given = await asyncio.to_thread(load)
            contexts = make_contexts(given)
            if self._backend is not None:
                await asyncio.to_thread(self._backend.reload, given)
        except (SegreaderError, OSError) as error:
            self.metrics.reloads["failed"] += 1
            _process_log.error("the configuration stays as it was: %s", error)
            return False
        self.config = reloaded(self.config, given)
        self._to_brokers, self._to_clients = contexts
        for relay in self._relays:
            relay.limits = given.limits
        self.metrics.reloads["ok"] += 1
        _process_log.info("the configuration is loaded again")
        return True

    async def _watch(self, ready: Callable[[], None], find_nodes: FindNodes) -> None:
        """Look for the brokers until they are known, then whether one can be reached."""
        wait_s = _FIRST_WAIT_S
        while not self._has_nodes:
            try:
                await self._learn(
                    await asyncio.to_thread(find_nodes, self.config.client, self.config.bootstrap_servers)
                )
            except AuthenticationError:
                raise
            except BrokerError as error:
                _log.warning("the brokers cannot be reached; next try in %.0f s: %s", wait_s, error)
                await asyncio.sleep(wait_s)
                wait_s = min(2 * wait_s, _LONGEST_WAIT_S)
        ready()
        while True:
            await asyncio.sleep(_WATCH_S)
            if self._reached_s is None or time.monotonic() - self._reached_s >= _WATCH_S:
                try:
                    (await self._connect(_BEGINNING)).close()
                except (BrokerError, OSError) as error:
                    _log.warning("no broker can be reached: %s", error)

    def _metrics_page(self) -> Page:
        return Page(self.metrics.text(), kind=METRICS_PAGE)

    def readiness(self) -> dict[str, bool]:
        """What must hold for the gateway to be ready for clients."""
        reached_s = self._reached_s
        return {
            "brokers": self._has_nodes and reached_s is not None and time.monotonic() - reached_s < _REACHABLE_FOR_S,
            "catalogue": self._backend is None or self._backend.was_complete(),
            "running": not self.is_stopping,
        }

    async def _open_listener(self, node_id: int, port: int) -> bool:
        if node_id != _BEGINNING and (self.config.broker_host or (node_id == 0 and not self.config.ports)):
            return True  # where clients begin, too
        try:
            self._listeners[node_id] = await listen(
                self.config.listen_host or None,
                port,
                lambda taken, peer: self._accept(node_id, port, taken, peer),
                is_shared=self.config.workers > 1,
            )
        except OSError as error:
            _log.error("port %d for broker %d cannot be opened: %s", port, node_id, error.strerror)
            return False
        return True

    async def _accept(self, node_id: int, port: int, taken: socket.socket, peer: str) -> None:
        self.metrics.connections += 1
        limits = self.config.limits
        if self._accepted >= limits.connections:
            self.metrics.refused_connections += 1
            self._reports.reached("connections", limits.connections, peer)
            taken.close()
            return
        client: Wire | None = None
        broker: Wire | None = None
        self._accepted += 1
        task = asyncio.current_task()
        assert task is not None
        self._arriving.add(task)
        try:
            has_header = self.config.has_proxy_header(port)
            with contextlib.ExitStack() as counted:
                try:
                    if not has_header:
                        counted.enter_context(self._admitted(peer))
                    elif not self.config.is_proxy_source(peer):
                        raise ConnectionFailedError("not one of proxy_sources")
                    await self._arrivals.turn("connections_per_s", limits.connections_per_s, address_of(peer))
                except BaseException:
                    taken.close()
                    raise
                arrival = await self._receive(taken, peer, has_header)
                client, peer = arrival.wire, arrival.peer
                if has_header:
                    counted.enter_context(self._admitted(peer))
                login = Login(arrival.subject, lambda principal: counted.enter_context(self._admitted_as(principal)))
                if login.principal is not None and not self._has_login:
                    counted.enter_context(self._admitted_as(login.principal))
                if not await self._has_request(client, peer):
                    return
                if (named := self.config.node_of(arrival.server_name)) is not None:
                    node_id = named
                broker = await self._connect(node_id)
                self._arriving.discard(task)
                await self._relay(node_id, arrival, broker, login)
        except (BrokerError, OSError) as error:
            self.metrics.failed[type(error).__name__] += 1
            _log.info("%s: %s", peer, error if isinstance(error, BrokerError) else type(error).__name__)
        finally:
            self._accepted -= 1
            self._arriving.discard(task)
            for wire in (broker, client):
                if wire is not None:
                    wire.close()

    async def _relay(self, node_id: int, arrival: Arrival, broker: Wire, login: Login) -> None:
        relay = Relay(
            arrival.wire,
            broker,
            peer=arrival.peer,
            login=login,
            must_log_in=self._has_login,
            node="a bootstrap server" if node_id == _BEGINNING else f"broker {node_id}",
            addresses=self.addresses,
            limits=self.config.limits,
            metrics=self.metrics,
            locating=self._backend.locating if self._backend is not None else None,
            is_strict=self.config.is_strict,
            reports=self._reports,
            turns=self._turns,
        )
        task = asyncio.current_task()
        assert task is not None
        self._relays[relay] = task
        self.metrics.open_connections = len(self._relays)
        try:
            await relay.run()
        finally:
            del self._relays[relay]
            self.metrics.open_connections = len(self._relays)

    def _admitted(self, peer: str) -> contextlib.AbstractContextManager[None]:
        most = self.config.limits.connections_per_address
        return self._admission.admitted("connections_per_address", most, address_of(peer))

    def _admitted_as(self, principal: str) -> contextlib.AbstractContextManager[None]:
        most = self.config.limits.connections_per_principal
        return self._admission.admitted("connections_per_principal", most, principal)

    @property
    def _has_login(self) -> bool:
        """Whether clients log in by SASL: the gateway's own user and they come to the same listener of a broker."""
        return self.config.client.security_protocol.has_sasl

    async def _receive(self, taken: socket.socket, peer: str, has_proxy_header: bool) -> Arrival:
        limit = self.config.limits.handshake_s
        try:
            async with asyncio.timeout(limit):
                return await receive(taken, peer, context=self._to_clients, has_proxy_header=has_proxy_header)
        except TimeoutError:
            self._reports.reached("handshake_s", limit, peer)
            raise ConnectionFailedError("no PROXY header or TLS in time", expected=f"{limit} s at most") from None

    async def _has_request(self, client: Wire, peer: str) -> bool:
        """Wait for a client's first request, before it has a connection to a broker; false if it ends without one."""
        limits = self.config.limits
        try:
            async with asyncio.timeout(limits.first_request_s):
                if (size := await client.has_size(SMALLEST_REQUEST, LARGEST, "request")) is None:
                    return False
                self._reports.check_request(limits, size, peer, is_before_login=self._has_login)
                return await client.has_frame(size)
        except TimeoutError:
            self._reports.reached("first_request_s", limits.first_request_s, peer)
            raise ConnectionFailedError("no request in time", expected=f"{limits.first_request_s} s at most") from None

    async def _connect(self, node_id: int) -> Wire:
        known = self.addresses.broker(max(node_id, 0))
        places = [known] if known is not None and node_id != _BEGINNING else []
        if node_id == _BEGINNING:
            places = [*([known] if known else ()), *(parse_address(one, "") for one in self.config.bootstrap_servers)]
        for host, port in places:
            try:
                async with asyncio.timeout(self.config.client.connect_timeout_ms / 1000):
                    wire = await connect(host, port, context=self._to_brokers)
                self._reached_s = time.monotonic()
                return wire
            except (OSError, TimeoutError) as error:
                last: Exception = error
        what = type(last).__name__ if places else "it is not known"
        raise ConnectionFailedError(f"broker {node_id if node_id >= 0 else ''} cannot be reached", found=what)


async def until_signal(
    ending: asyncio.Event,
    start: Callable[[], Awaitable[None]],
    work: Callable[[], Awaitable[None]],
    *,
    reload: Callable[[], Awaitable[None]],
    stop: Callable[[], Awaitable[None]],
) -> None:
    """Start, and work until SIGTERM or SIGINT, then stop; a second signal ends the process now.

    Args:
        ending: set by the signals, or by others, to end it.
        reload: called on SIGHUP; once more for those that come while it runs, which may have missed the change.

    Raises:
        Exception: as ``start`` or ``work`` raise.
    """
    loop = asyncio.get_running_loop()
    must_reload = False
    reloading: asyncio.Future[None] | None = None

    async def reload_while_asked() -> None:
        nonlocal must_reload
        while must_reload:
            must_reload = False
            await reload()

    def on_hangup() -> None:
        nonlocal must_reload, reloading
        must_reload = True
        if reloading is None or reloading.done():
            reloading = asyncio.ensure_future(reload_while_asked())

    loop.add_signal_handler(signal.SIGHUP, on_hangup)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ending.set)
    try:
        await start()
        tasks = asyncio.ensure_future(work()), asyncio.ensure_future(ending.wait())
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        result, _ = await asyncio.gather(*tasks, return_exceptions=True)
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
        await stop()
        loop.remove_signal_handler(signal.SIGHUP)
    if isinstance(result, Exception):
        raise result


def gateway_pages(metrics: MakePage, ready: MakePage) -> dict[str, MakePage]:
    """The pages by path."""
    return {"/metrics": metrics, "/": metrics, "/healthz": lambda: Page("ok\n"), "/readyz": ready}


def ready_page(facts: Mapping[str, bool]) -> Page:
    """Whether all of some facts hold, and which do."""
    is_ready = all(facts.values())
    text = json.dumps({"ready": is_ready, **facts}) + "\n"
    return Page(text, 200 if is_ready else 503, kind="application/json")


def reloaded(config: GatewayConfig, given: GatewayConfig) -> GatewayConfig:
    """A configuration with what may change while a gateway runs; what differs besides is logged."""
    changed = [one.name for one in fields(given) if getattr(given, one.name) != getattr(config, one.name)]
    if waiting := sorted(set(changed) - RELOADED):
        _process_log.warning("these settings change with the next start only: %s", ", ".join(waiting))
    return replace(config, **{name: getattr(given, name) for name in RELOADED})


def make_contexts(config: GatewayConfig) -> tuple[ssl.SSLContext | None, ssl.SSLContext | None]:
    """TLS to brokers and to clients, where it is spoken.

    Raises:
        OptionError: a certificate cannot be loaded.
    """
    to_brokers = make_context(config.client) if config.client.security_protocol.has_tls else None
    return to_brokers, make_server_context(config)


def locating_backend(config: GatewayConfig, metrics: GatewayMetrics) -> Backend:
    """The backend of a real gateway: metadata topic, store, signer and audit log.

    Raises:
        SegreaderError: the store cannot be opened or cannot sign; the audit file cannot be written.
    """
    store, prefix = open_store(config.location, storage_options=config.storage_options)
    signer = make_signer(config, store, prefix, metrics)
    try:
        audit = AuditLog(config.audit_file, metrics, is_shared=config.workers > 1)
    except OSError as error:
        raise OptionError("the audit file cannot be opened", found=error.strerror) from None
    client = BrokerClient(",".join(config.bootstrap_servers), config.client)
    consumer = MetadataConsumer(client)
    catalogue = Catalogue(
        consumer,
        ObjectFinder(store, prefix, config.layout),
        readers=config.limits.index_downloads,
        cache_bytes=config.limits.index_cache_bytes,
        max_lag_s=config.max_lag_s,
        metrics=metrics,
    )
    planner = RemotePlanner(catalogue, elsewhere=client.epoch_ends)
    locating = LocatedFetch(
        planner,
        catalogue,
        signer,
        audit=audit,
        metrics=metrics,
        refuses_below_log_start=config.refuses_below_log_start,
    )
    consumer.start()

    started_s = time.monotonic()
    known_complete = False

    def facts() -> Mapping[str, float]:
        lag = consumer.worst_lag_s()
        # Never complete yet: it lags by all the time that the gateway has had.
        lag_s = time.monotonic() - started_s if lag is None else lag
        return {"lag_seconds": round(lag_s, 3), "errors": len(consumer.errors())}

    def was_complete() -> bool:
        nonlocal known_complete
        known_complete = known_complete or consumer.worst_lag_s() is not None
        return known_complete

    def reload(given: GatewayConfig) -> None:
        audit.reopen(given.audit_file)
        client.renew_login(given.client)

    def close() -> None:
        client.close()
        consumer.close()
        catalogue.close()
        audit.close()
        store.close()

    return Backend(locating, facts, close, was_complete, reload)


def known_nodes(settings: ClientSettings, bootstrap_servers: tuple[str, ...]) -> dict[int, tuple[str, int]]:
    """The brokers of a cluster now, asked with the gateway's own rights.

    Raises:
        SegreaderError: no broker answers, or refuses this user.
    """
    try:
        with BrokerClient(",".join(bootstrap_servers), settings) as client:
            return {node.node_id: (node.host, node.port) for node in client.metadata([]).nodes}
    except SegreaderError as error:
        raise error.located(hint="Check bootstrap, and the client options of the gateway's own user") from None
