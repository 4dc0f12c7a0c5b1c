"""What a gateway did: numbers, the page that Prometheus reads, and an audit line for each location that it gave.

No name of a topic or client is in a number, and no URL in any of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import IO, Final

from segreader.errors import OptionError

BOUNDS_S: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
_LONGEST_HEAD = 8 << 10
_PATIENCE_S = 5.0


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


@dataclass(slots=True)
class GatewayMetrics:
    """Counts of one gateway; they only grow, but for ``open_connections``.

    Args:
        requests: by API, as Kafka names it.
        to_clients, to_brokers: bytes of whole frames.
        failed: connections that ended in an error, by its class.
        locations_given: and ``refused``, by cause: one for each partition asked for with the flag.
        index_reads: offset indexes read from the store.
        catalogue: seconds since the catalogue was complete, and how many segments it knows; asked when shown.
    """

    connections: int = 0
    open_connections: int = 0
    refused_connections: int = 0
    requests: Counter[str] = field(default_factory=Counter)
    to_clients: int = 0
    to_brokers: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    locations_given: int = 0
    refused: Counter[Refused] = field(default_factory=Counter)
    probe_s: Histogram = field(default_factory=Histogram)
    index_reads: int = 0
    index_read_bytes: int = 0
    signed: int = 0
    catalogue: Callable[[], Mapping[str, float]] | None = field(default=None, repr=False)

    def sent_to_client(self, size: int) -> None:
        """Count bytes."""
        self.to_clients += size

    def sent_to_broker(self, size: int) -> None:
        """Count bytes."""
        self.to_brokers += size

    def text(self) -> str:
        """All of it in the text format of Prometheus, version 0.0.4."""
        return "".join(f"{line}\n" for line in self._lines())

    def _lines(self) -> Iterator[str]:
        yield from _one("connections_total", "counter", "Connections of clients.", self.connections)
        yield from _one("open_connections", "gauge", "Connections that are open.", self.open_connections)
        yield from _one(
            "refused_connections_total", "counter", "Connections above the limit.", self.refused_connections
        )
        yield from _many("requests_total", "Requests of clients.", "api", self.requests)
        yield from _many(
            "relayed_bytes_total",
            "Bytes of whole frames.",
            "direction",
            {"to_clients": self.to_clients, "to_brokers": self.to_brokers},
        )
        yield from _many("failed_connections_total", "Connections ended by an error.", "error", self.failed)
        yield from _one("locations_given_total", "counter", "Locations of segments given.", self.locations_given)
        causes = {cause.value: count for cause, count in self.refused.items()}
        yield from _many("locations_refused_total", "Asked for with the flag, not given.", "cause", causes)
        yield from _one("index_reads_total", "counter", "Offset indexes read from the store.", self.index_reads)
        yield from _one("index_read_bytes_total", "counter", "Bytes of these.", self.index_read_bytes)
        yield from _one("signatures_total", "counter", "URLs signed.", self.signed)
        for name, value in (self.catalogue() if self.catalogue is not None else {}).items():
            yield from _one(f"catalogue_{name}", "gauge", "Of the metadata topic, as this gateway knows it.", value)
        name = "segreader_gateway_probe_seconds"
        yield f"# HELP {name} Time of the Fetch that asks a broker whether a client may read."
        yield f"# TYPE {name} histogram"
        below = 0
        for bound, count in zip((*map(str, BOUNDS_S), "+Inf"), self.probe_s.counts, strict=True):
            below += count
            yield f'{name}_bucket{{le="{bound}"}} {below}'
        yield f"{name}_sum {self.probe_s.total_s:.6f}"
        yield f"{name}_count {below}"


def _one(name: str, kind: str, about: str, value: float) -> Iterator[str]:
    yield from _head(name, kind, about)
    yield f"segreader_gateway_{name} {value}"


def _many(name: str, about: str, label: str, values: Mapping[str, int]) -> Iterator[str]:
    yield from _head(name, "counter", about)
    for key, value in sorted(values.items()):
        yield f'segreader_gateway_{name}{{{label}="{key}"}} {value}'


def _head(name: str, kind: str, about: str) -> Iterator[str]:
    yield f"# HELP segreader_gateway_{name} {about}"
    yield f"# TYPE segreader_gateway_{name} {kind}"


async def serve_metrics(host: str, port: int, text: Callable[[], str]) -> asyncio.Server:
    """Answer ``GET /metrics`` with ``text()``.

    Raises:
        OptionError: the port is taken or not allowed.
    """

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(_PATIENCE_S):
                head = await reader.readuntil(b"\r\n\r\n")
                path = head.split(b" ", 2)[1:2]
                is_known = head.startswith(b"GET ") and path in ([b"/metrics"], [b"/"])
                body = text().encode() if is_known else b"see /metrics\n"
                status = b"200 OK" if is_known else b"404 Not Found"
                writer.write(
                    b"HTTP/1.1 %b\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
                    b"Content-Length: %d\r\nConnection: close\r\n\r\n%b" % (status, len(body), body)
                )
                await writer.drain()
        writer.close()

    try:
        return await asyncio.start_server(answer, host, port, limit=_LONGEST_HEAD)
    except OSError as error:
        raise OptionError(
            "the port of the metrics cannot be opened", found=f"{host}:{port} ({error.strerror})"
        ) from None


@dataclass(frozen=True, slots=True)
class LocationGiven:
    """The fields of an audit line.

    Args:
        principal: who the broker took the client for, where that is known; the gateway does not look into SASL tokens.
        object_name: unsigned, if clients get it.
        expiry_ms: of the signed URL, in ms since 1970 UTC; ``None`` without one.
    """

    time_ms: int
    client_id: str | None
    principal: str | None
    peer: str
    topic: str
    topic_id: str
    partition: int
    fetch_offset: int
    segment_id: str
    first_offset: int
    last_offset: int
    object_name: str | None
    expiry_ms: int | None

    def line(self) -> str:
        """The line without its end."""
        moment = datetime.fromtimestamp(self.time_ms / 1000, UTC)
        return json.dumps(
            {
                "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
                "client_id": self.client_id,
                "principal": self.principal,
                "peer": self.peer,
                "topic": self.topic,
                "topic_id": self.topic_id,
                "partition": self.partition,
                "fetch_offset": self.fetch_offset,
                "segment_id": self.segment_id,
                "first_offset": self.first_offset,
                "last_offset": self.last_offset,
                "object": self.object_name,
                "expiry_ms": self.expiry_ms,
            },
            ensure_ascii=True,
        )


class AuditLog:
    """Where the lines go: a file that is appended to, stdout (``-``), or nowhere."""

    def __init__(self, file: str | None) -> None:
        self._lock = threading.Lock()
        self._is_ours = file not in (None, "-")
        self._stream: IO[str] | None = None
        if file == "-":
            self._stream = sys.stdout
        elif file is not None:
            self._stream = Path(file).open("a", encoding="utf-8")  # noqa: SIM115

    def write(self, given: LocationGiven) -> None:
        """Write one line; it is handed to the system at once.

        Raises:
            OSError: it cannot be written; then no location may be given.
        """
        if self._stream is not None:
            with self._lock:
                self._stream.write(given.line() + "\n")
                self._stream.flush()

    def close(self) -> None:
        """Close the file."""
        if self._stream is not None and self._is_ours:
            self._stream.close()
