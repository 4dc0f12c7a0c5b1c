"""The gateway as a process: listeners, one relay for each client, the catalogue behind them, and a clean end."""

from __future__ import annotations

import asyncio
import logging
import signal
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from segreader.broker.authentication import make_context
from segreader.broker.client import BrokerClient
from segreader.broker.settings import ClientSettings
from segreader.catalog.metadata_consumer import MetadataConsumer
from segreader.errors import BrokerError, ConnectionFailedError, OptionError, SegreaderError
from segreader.gateway.catalogue import Catalogue, ObjectFinder
from segreader.gateway.config import GatewayConfig, parse_address
from segreader.gateway.located_fetch import LocatedFetch
from segreader.gateway.metrics import AuditLog, GatewayMetrics, serve_metrics
from segreader.gateway.relay import Locating, Relay
from segreader.gateway.remote_plans import RemotePlanner
from segreader.gateway.rewriting import AddressTable, PortPlan
from segreader.gateway.signing import make_signer
from segreader.gateway.wire import Wire, connect, serve
from segreader.storage.location import open_store

_log = logging.getLogger(__name__)

_BEGINNING = -1
"""The bootstrap listener of clients: it represents any broker."""


@dataclass(frozen=True, slots=True)
class Backend:
    """What answers the flag, and what must be closed after it."""

    locating: Locating
    catalogue_facts: Callable[[], Mapping[str, float]]
    close: Callable[[], None]


class Gateway:
    """Listens for clients and relays them to their brokers.

    Args:
        make_backend: called once when the gateway starts, in a thread; ``None``: the flag is passed on like the rest.
    """

    def __init__(
        self, config: GatewayConfig, *, make_backend: Callable[[GatewayConfig, GatewayMetrics], Backend] | None = None
    ) -> None:
        self.config = config
        self.metrics = GatewayMetrics()
        self.addresses = AddressTable(
            config.host_for_clients, PortPlan(config.listen_port, config.ports), self._open_listener
        )
        self._make_backend = make_backend
        self._backend: Backend | None = None
        self._servers: dict[int, asyncio.Server] = {}
        self._metrics_server: asyncio.Server | None = None
        self._relays: dict[Relay, asyncio.Task[Any]] = {}
        self._accepted = 0
        self._to_brokers: ssl.SSLContext | None = None
        self._to_clients: ssl.SSLContext | None = None

    @property
    def ports(self) -> Mapping[int, int]:
        """The port of each broker that has a listener."""
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
        if config.client.security_protocol.has_tls:
            self._to_brokers = make_context(config.client)
        if config.certificate is not None:
            self._to_clients = _server_context(config)
        if self._make_backend is not None:
            self._backend = await asyncio.to_thread(self._make_backend, config, self.metrics)
            self.metrics.catalogue = self._backend.catalogue_facts
        if config.metrics_listen is not None:
            self._metrics_server = await serve_metrics(*config.metrics_listen, self.metrics.text)
        if not await self._open_listener(_BEGINNING, config.listen_port):
            raise OptionError("the port cannot be opened", found=f"{config.listen_host}:{config.listen_port}")
        for node_id, (host, port) in (nodes or {}).items():
            if self.addresses.translate(node_id, host, port) is None:
                raise OptionError(f"broker {node_id} has no port at the gateway", hint="Add it to ports")
        if await self.addresses.settle():
            raise OptionError("the ports of some brokers cannot be opened", hint="Choose another base, or set ports")

    async def stop(self) -> None:
        """Take no more clients and requests, let answers under way go out, then close everything."""
        for server in self._servers.values():
            server.close()
        for relay in self._relays:
            relay.drain()
        if self._relays:
            await asyncio.wait(self._relays.values(), timeout=self.config.drain_s)
        for task in list(self._relays.values()):
            task.cancel()
        await asyncio.gather(*self._relays.values(), return_exceptions=True)
        if self._metrics_server is not None:
            self._metrics_server.close()
        if self._backend is not None:
            await asyncio.to_thread(self._backend.close)

    async def run(self, ready: Callable[[], None], nodes: Mapping[int, tuple[str, int]] | None = None) -> None:
        """Start, call ``ready``, and stop on SIGTERM or SIGINT; a second one ends it at once."""
        stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stopping.set)
        await self.start(nodes)
        ready()
        await stopping.wait()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
        await self.stop()

    async def _open_listener(self, node_id: int, port: int) -> bool:
        if node_id == _BEGINNING + 1 and not self.config.ports:
            return True  # broker 0 is where clients begin
        try:
            self._servers[node_id] = await serve(
                lambda client: self._accept(node_id, client),
                self.config.listen_host or None,
                port,
                context=self._to_clients,
            )
        except OSError as error:
            _log.error("port %d for broker %d cannot be opened: %s", port, node_id, error.strerror)
            return False
        return True

    async def _accept(self, node_id: int, client: Wire) -> None:
        self.metrics.connections += 1
        peer = client.peer
        if self._accepted >= self.config.limits.connections:
            self.metrics.refused_connections += 1
            return
        broker: Wire | None = None
        self._accepted += 1
        try:
            broker = await self._connect(node_id)
            await self._relay(node_id, peer, client, broker)
        except (BrokerError, OSError) as error:
            self.metrics.failed[type(error).__name__] += 1
            _log.info("%s: %s", peer, error if isinstance(error, BrokerError) else type(error).__name__)
        finally:
            self._accepted -= 1
            if broker is not None:
                broker.close()

    async def _relay(self, node_id: int, peer: str, client: Wire, broker: Wire) -> None:
        relay = Relay(
            client,
            broker,
            peer=peer,
            node="a bootstrap server" if node_id == _BEGINNING else f"broker {node_id}",
            addresses=self.addresses,
            limits=self.config.limits,
            metrics=self.metrics,
            locating=self._backend.locating if self._backend is not None else None,
            is_strict=self.config.is_strict,
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

    async def _connect(self, node_id: int) -> Wire:
        known = self.addresses.broker(max(node_id, 0))
        places = [known] if known is not None and node_id != _BEGINNING else []
        if node_id == _BEGINNING:
            places = [*([known] if known else ()), *(parse_address(one, "") for one in self.config.bootstrap_servers)]
        for host, port in places:
            try:
                async with asyncio.timeout(self.config.client.connect_timeout_ms / 1000):
                    return await connect(host, port, context=self._to_brokers)
            except (OSError, TimeoutError) as error:
                last: Exception = error
        what = type(last).__name__ if places else "it is not known"
        raise ConnectionFailedError(f"broker {node_id if node_id >= 0 else ''} cannot be reached", found=what)


def _server_context(config: GatewayConfig) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    secret = config.key_password
    try:
        context.load_cert_chain(
            config.certificate or "", config.key, password=lambda: "" if secret is None else secret.reveal()
        )
    except (OSError, ValueError):
        raise OptionError(
            "the gateway's certificate and key cannot be loaded", found=config.certificate, expected="PEM"
        ) from None
    return context


def locating_backend(config: GatewayConfig, metrics: GatewayMetrics) -> Backend:
    """The backend of a real gateway: metadata topic, store, signer and audit log.

    Raises:
        SegreaderError: the store cannot be opened or cannot sign; the audit file cannot be written.
    """
    store, prefix = open_store(config.location, storage_options=config.storage_options)
    signer = make_signer(config, store, prefix, metrics)
    try:
        audit = AuditLog(config.audit_file)
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

    def facts() -> Mapping[str, float]:
        lag = consumer.worst_lag_s()
        return {"lag_seconds": float("inf") if lag is None else round(lag, 3), "errors": len(consumer.errors())}

    def close() -> None:
        client.close()
        consumer.close()
        catalogue.close()
        audit.close()
        store.close()

    return Backend(locating, facts, close)


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
