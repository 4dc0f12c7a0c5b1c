"""The connection that one partition's Fetches go over: one broker at a time, one answer after another.

An answer is about the one partition that was asked for, of the same topic, or it is a ``ProtocolError``.
"""

from __future__ import annotations

from dataclasses import dataclass

from segreader.broker import calls
from segreader.broker.connection import Pending
from segreader.broker.messages import FetchAnswer, FetchedPartition, FetchPartition, FetchRequest, LeaderAndEpoch
from segreader.broker.metrics import ClientMetrics
from segreader.broker.node_connections import NodeConnections
from segreader.broker.opening import OpenConnection
from segreader.broker.settings import ClientSettings
from segreader.errors import ConnectionFailedError, ProtocolError


@dataclass(frozen=True, slots=True)
class SentFetch:
    """A Fetch under way: to whom, and what was known when it was sent."""

    request: FetchRequest
    pending: Pending[FetchAnswer]
    node_id: int
    leader: LeaderAndEpoch
    at_ms: int

    @property
    def asked(self) -> FetchPartition:
        """The partition that was asked for."""
        return self.request.partitions[0]


class FetchLine:
    """Sends Fetches of one partition and takes their answers, over a connection that it keeps while it stays there."""

    def __init__(self, connections: NodeConnections, settings: ClientSettings, metrics: ClientMetrics) -> None:
        self._connections = connections
        self._settings = settings
        self._metrics = metrics
        self._lent: OpenConnection | None = None
        self._node_id = -1

    @property
    def peer(self) -> str | None:
        """``host:port`` of the broker that is asked now."""
        return str(self._lent.address) if self._lent is not None else None

    def is_at(self, node_id: int) -> bool:
        """Whether a Fetch to this broker can be sent at once: connected, nothing in flight, no wait imposed."""
        lent = self._lent
        return (
            lent is not None
            and self._node_id == node_id
            and lent.connection.is_open
            and not lent.connection.in_flight
            and lent.connection.quiet_until_ms <= lent.connection.now_ms()
            and lent.address == self._connections.address_of(node_id)
        )

    def send(self, node_id: int, request: FetchRequest, leader: LeaderAndEpoch, *, until_ms: int) -> SentFetch:
        """Send a Fetch for one partition.

        Raises:
            ConnectionFailedError, AuthenticationError, UnsupportedVersionError: as for opening and sending.
        """
        lent = self._to(node_id, until_ms)
        call = calls.fetch(self._settings, lent.versions, request)
        pending = lent.connection.send(call, until_ms=until_ms)
        return SentFetch(request, pending, node_id, leader, lent.connection.now_ms())

    def receive(self, sent: SentFetch, *, until_ms: int) -> tuple[FetchAnswer, FetchedPartition | None]:
        """The answer, and its one partition; ``None`` where the broker gave none, as one that throttles does.

        Raises:
            ConnectionFailedError: the connection failed, or no answer came in time.
            ProtocolError: the answer cannot be read, or is about something else.
        """
        if self._lent is None or self._node_id != sent.node_id:
            raise ConnectionFailedError(f"the connection to broker {sent.node_id} was given up")
        answer = self._lent.connection.receive(sent.pending, until_ms=until_ms)
        if not answer.partitions:
            return answer, None
        told, asked = answer.partitions[0], sent.asked
        is_same = told.topic == asked.topic if told.topic_id is None else told.topic_id == asked.topic_id
        if len(answer.partitions) > 1 or told.partition != asked.partition or not is_same:
            error = ProtocolError(
                f"the answer to {sent.pending.call} is not about the partition that was asked for",
                source=self.peer,
                found=f"{len(answer.partitions)} partitions, the first {told.topic or told.topic_id}-{told.partition}",
                expected=f"{asked.topic} ({asked.topic_id})-{asked.partition}",
            )
            self.drop()
            raise error
        if told.records is not None:
            self._metrics.fetched_bytes[sent.node_id] += len(told.records)
        return answer, told

    def drop(self) -> None:
        """Close the connection: what is under way on it is not wanted."""
        if self._lent is not None:
            self._lent.connection.close()
            self._lent = None

    def close(self) -> None:
        """Give the connection back; a Fetch that is under way costs it."""
        if self._lent is not None:
            self._connections.give_back(self._lent)
            self._lent = None

    def _to(self, node_id: int, until_ms: int) -> OpenConnection:
        lent = self._lent
        if lent is not None:
            is_there = self._node_id == node_id and lent.address == self._connections.address_of(node_id)
            if is_there and lent.connection.is_usable():
                return lent
            self.close()
        self._lent = self._connections.lend(node_id, until_ms)
        self._node_id = node_id
        return self._lent
