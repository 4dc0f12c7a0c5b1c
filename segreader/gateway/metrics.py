"""What a gateway did, in numbers, and the pages for Prometheus and for probes of its health.

No name of a topic or client is in a number, and no URL in any of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import platform
from bisect import bisect_left
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import field, fields
from enum import StrEnum
from functools import partial
from itertools import accumulate
from typing import Any, Final

from segreader import __version__
from segreader.broker.location import EXTENSION_VERSION
from segreader.errors import OptionError, install_hint
from segreader.values import dataclass

BOUNDS_S: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


class Refused(StrEnum):
    """Why a partition that was asked for with the flag got records, or an error, and no location."""

    IN_SESSION = "fetch session"
    NOT_CAUGHT_UP = "catalogue not caught up"
    NO_SEGMENT = "no remote segment"
    LOCAL = "offset is local"
    TOO_MANY = "too many partitions in one request"
    UNKNOWN_LOCAL_START = "local start unknown"
    OTHER_HISTORY = "segment of another history"
    UNKNOWN_HISTORY = "history unknown"
    FORMAT = "format not asked for"
    BELOW_LOG_START = "segment begins below the log start"
    OUT_OF_RANGE = "offset out of range"
    PROBE_ERROR = "broker refused"
    NO_ANSWER = "broker did not answer"
    STORE = "store failed"
    SIGNER = "signer failed"
    AUDIT = "audit line not written"
    UNSUPPORTED = "broker too old"


@dataclass(slots=True)
class Histogram:
    """Times in seconds, counted by how long they were."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_S) + 1))
    total_s: float = 0.0

    def add(self, seconds: float) -> None:
        """Count one."""
        self.counts[bisect_left(BOUNDS_S, seconds)] += 1
        self.total_s += seconds

    def add_all(self, other: Histogram) -> None:
        """Count all of another."""
        self.counts = [own + one for own, one in zip(self.counts, other.counts, strict=True)]
        self.total_s += other.total_s


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    """One process of a gateway that has several."""

    pid: int
    open_connections: int
    starts: int


@dataclass(slots=True)
class GatewayMetrics:
    """Counts of one gateway; they only grow, but for ``open_connections``.

    Args:
        requests: by API, as Kafka names it.
        to_clients, to_brokers: bytes of whole frames.
        failed: connections that ended in an error, by its class.
        limits_reached: by the limit's name.
        locations_given: and ``refused``, by cause: one for each partition asked for with the flag.
        index_reads: offset indexes read from the store.
        audit_lines: written; and ``audit_waiting``, ``audit_lost``, ``audit_errors`` of the file.
        request_s: from a whole request to the end of its answer, by API.
        reloads: of the configuration, by how they ended: ``ok`` or ``failed``.
        catalogue: seconds since the catalogue was complete, and how many segments it knows; asked when shown.
        workers: the processes of a gateway that has several, by number.
    """

    connections: int = 0
    open_connections: int = 0
    refused_connections: int = 0
    requests: Counter[str] = field(default_factory=Counter)
    to_clients: int = 0
    to_brokers: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    limits_reached: Counter[str] = field(default_factory=Counter)
    locations_given: int = 0
    refused: Counter[Refused] = field(default_factory=Counter)
    probe_s: Histogram = field(default_factory=Histogram)
    index_reads: int = 0
    index_read_bytes: int = 0
    signed: int = 0
    audit_lines: int = 0
    audit_waiting: int = 0
    audit_lost: int = 0
    audit_errors: int = 0
    reloads: Counter[str] = field(default_factory=Counter)
    request_s: dict[str, Histogram] = field(default_factory=dict)
    catalogue: Callable[[], Mapping[str, float]] | None = field(default=None, repr=False)
    workers: Mapping[int, WorkerFacts] = field(default_factory=dict, repr=False)
    _registry: Any = field(default=None, init=False, repr=False)

    def counts(self) -> dict[str, Any]:
        """The numbers of now for another process, which may ``add`` them."""
        return {one.name: getattr(self, one.name) for one in fields(self) if one.name not in _NOT_COUNTED}

    def add(self, counts: Mapping[str, Any]) -> None:
        """Count what another process counted."""
        for name, value in counts.items():
            own = getattr(self, name)
            if isinstance(value, int):
                setattr(self, name, own + value)
            elif isinstance(value, Counter):
                own.update(value)
            elif isinstance(value, Histogram):
                own.add_all(value)
            else:
                for key, times in value.items():
                    own.setdefault(key, Histogram()).add_all(times)

    def sent_to_client(self, size: int) -> None:
        """Count bytes."""
        self.to_clients += size

    def sent_to_broker(self, size: int) -> None:
        """Count bytes."""
        self.to_brokers += size

    def answered(self, api: str, seconds: float) -> None:
        """Count a request whose answer has gone to the client."""
        if (times := self.request_s.get(api)) is None:
            times = self.request_s[api] = Histogram()
        times.add(seconds)

    def text(self) -> str:
        """All of it in the text format of Prometheus, version 0.0.4.

        Raises:
            OptionError: the package prometheus-client is missing.
        """
        if self._registry is None:
            self._registry = _make_registry(self)
        from prometheus_client import generate_latest

        return str(generate_latest(self._registry), "utf-8")


GAUGES: Final = ("open_connections", "audit_waiting")
"""Numbers that a process takes with it when it ends."""

_NOT_COUNTED = frozenset(("catalogue", "workers", "_registry"))


def _make_registry(metrics: GatewayMetrics) -> Any:
    try:
        from prometheus_client import CollectorRegistry, ProcessCollector
    except ModuleNotFoundError:
        raise OptionError("metrics_listen needs the package prometheus-client", hint=install_hint("gateway")) from None
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(metrics))
    ProcessCollector(registry=registry)
    return registry


class _Families:
    """What prometheus-client asks for the numbers of now: counting costs a gateway no more than an addition."""

    def __init__(self, metrics: GatewayMetrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Any]:
        """Every metric."""
        from prometheus_client.core import GaugeMetricFamily

        own = self._metrics
        build = GaugeMetricFamily(
            f"{_PREFIX}build_info", "This gateway: always 1.", labels=("version", "python", "extension")
        )
        build.add_metric((__version__, platform.python_version(), str(EXTENSION_VERSION)), 1)
        yield build
        yield _counter("connections", "Connections of clients.", own.connections)
        yield _gauge("open_connections", "Connections that are open.", own.open_connections)
        yield _counter("refused_connections", "Connections above the limit.", own.refused_connections)
        yield _counters("requests", "Requests of clients.", "api", own.requests)
        relayed = {"to_clients": own.to_clients, "to_brokers": own.to_brokers}
        yield _counters("relayed_bytes", "Bytes of whole frames.", "direction", relayed)
        yield _counters("failed_connections", "Connections ended by an error.", "error", own.failed)
        yield _counters("limits_reached", "How often a limit was reached.", "limit", own.limits_reached)
        yield _counter("locations_given", "Locations of segments given.", own.locations_given)
        yield _counters("locations_refused", "Asked for with the flag, not given.", "cause", own.refused)
        yield _counter("index_reads", "Offset indexes read from the store.", own.index_reads)
        yield _counter("index_read_bytes", "Bytes of these.", own.index_read_bytes)
        yield _counter("signatures", "URLs signed.", own.signed)
        yield _counter("audit_lines", "Audit lines written.", own.audit_lines)
        yield _gauge("audit_lines_waiting", "Audit lines that wait to be written.", own.audit_waiting)
        yield _counter("audit_lines_lost", "Audit lines lost.", own.audit_lost)
        yield _counter("audit_errors", "Writes of the audit file that failed.", own.audit_errors)
        yield _counters("reloads", "Reloads of the configuration.", "result", own.reloads)
        for name, value in (own.catalogue() if own.catalogue is not None else {}).items():
            yield _gauge(f"catalogue_{name}", "Of the metadata topic, as this gateway knows it.", value)
        if own.workers:
            yield from _of_workers(own.workers)
        about = "Time of the Fetch that asks a broker whether a client may read."
        yield _histograms("probe_seconds", about, "", {"": own.probe_s})
        about = "Time from a whole request to the end of its answer; a Fetch may wait for records."
        yield _histograms("request_seconds", about, "api", own.request_s)


def _of_workers(workers: Mapping[int, WorkerFacts]) -> Iterator[Any]:
    """What each process has; of the operating system what prometheus-client tells of it."""
    from prometheus_client import ProcessCollector
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

    open_ = GaugeMetricFamily(f"{_PREFIX}worker_open_connections", "Of a worker.", labels=("worker",))
    starts = CounterMetricFamily(f"{_PREFIX}worker_starts", "How often a worker was started.", labels=("worker",))
    found: dict[str, Any] = {}
    for number, worker in sorted(workers.items()):
        labels = {"worker": str(number)}
        open_.add_metric((str(number),), worker.open_connections)
        starts.add_metric((str(number),), worker.starts)
        for family in ProcessCollector(pid=partial(int, worker.pid), registry=None).collect():
            name = f"{_PREFIX}worker_{family.name}"
            all_workers = found.setdefault(name, Metric(name, f"{family.documentation} Of a worker.", family.type))
            for sample in family.samples:
                all_workers.add_sample(f"{_PREFIX}worker_{sample.name}", labels, sample.value)
    yield from (open_, starts, *found.values())


_PREFIX = "segreader_gateway_"


def _gauge(name: str, about: str, value: float) -> Any:
    from prometheus_client.core import GaugeMetricFamily

    return GaugeMetricFamily(_PREFIX + name, about, value=value)


def _counter(name: str, about: str, value: float) -> Any:
    from prometheus_client.core import CounterMetricFamily

    return CounterMetricFamily(_PREFIX + name, about, value=value)


def _counters(name: str, about: str, label: str, values: Mapping[Any, int]) -> Any:
    from prometheus_client.core import CounterMetricFamily

    found = CounterMetricFamily(_PREFIX + name, about, labels=(label,))
    for key, value in sorted(values.items()):
        found.add_metric((str(key),), value)
    return found


def _histograms(name: str, about: str, label: str, times: Mapping[str, Histogram]) -> Any:
    """One histogram for each value of a label; without a label one."""
    from prometheus_client.core import HistogramMetricFamily

    found = HistogramMetricFamily(_PREFIX + name, about, labels=(label,) if label else ())
    for key, one in sorted(times.items()):
        below = accumulate(one.counts)
        buckets = [(bound, float(count)) for bound, count in zip(_BOUND_NAMES, below, strict=True)]
        found.add_metric((key,) if label else (), buckets, one.total_s)
    return found


_BOUND_NAMES = (*map(str, BOUNDS_S), "+Inf")


_LONGEST_HEAD = 8 << 10
_PATIENCE_S = 5.0
_STATUS = {200: b"200 OK", 404: b"404 Not Found", 503: b"503 Service Unavailable"}
TEXT = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Page:
    """An answer to ``GET``."""

    text: str
    status: int = 200
    kind: str = TEXT


MakePage = Callable[[], Page | Awaitable[Page]]


async def serve_pages(host: str, port: int, pages: Mapping[str, MakePage]) -> asyncio.Server:
    """Answer ``GET`` and ``HEAD`` of some paths.

    Raises:
        OptionError: the port is taken or not allowed.
    """

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(_PATIENCE_S):
                verb, path, *_ = [*(await reader.readuntil(b"\r\n\r\n")).split(b" ", 2), b""]
                make = pages.get(path.partition(b"?")[0].decode("latin-1")) if verb in (b"GET", b"HEAD") else None
                made = make() if make is not None else Page(f"see {', '.join(pages)}\n", 404)
                page = made if isinstance(made, Page) else await made
                body = page.text.encode()
                head = b"HTTP/1.1 %b\r\nContent-Type: %b\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
                writer.write(head % (_STATUS[page.status], page.kind.encode(), len(body)))
                if verb != b"HEAD":
                    writer.write(body)
                await writer.drain()
        writer.close()

    try:
        return await asyncio.start_server(answer, host, port, limit=_LONGEST_HEAD)
    except OSError as error:
        raise OptionError(
            "the port of the metrics cannot be opened", found=f"{host}:{port} ({error.strerror})"
        ) from None
