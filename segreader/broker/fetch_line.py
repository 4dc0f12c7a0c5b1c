"""One partition's Fetches on their way: one at a time, to one broker or another.

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
from segreader.errors import ProtocolError


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
    """Sends Fetches of one partition and takes their answers. A connection is kept only while one is under way."""

    def __init__(self, connections: NodeConnections, settings: ClientSettings, metrics: ClientMetrics) -> None:
        self._connections = connections
        self._settings = settings
        self._metrics = metrics
        self._lent: OpenConnection | None = None
        self.peer: str | None = None
        """``host:port`` of the broker that was asked last."""

    def send(
        self, node_id: int, request: FetchRequest, leader: LeaderAndEpoch, *, until_ms: int, is_ahead: bool = False
    ) -> SentFetch | None:
        """Send a Fetch for one partition.

        Args:
            is_ahead: only over a connection that is there and idle; ``None`` if there is none.

        Raises:
            ConnectionFailedError, AuthenticationError, UnsupportedVersionError: as for opening and sending.
        """
        self.drop()
        lent = self._connections.lend_idle(node_id) if is_ahead else self._connections.lend(node_id, until_ms)
        if lent is None:
            return None
        self._lent = lent
        self.peer = str(lent.address)
        call = lent.plan(lambda offered: calls.fetch(self._settings, offered, request))
        pending = lent.connection.send(call, until_ms=until_ms)
        return SentFetch(request, pending, node_id, leader, lent.connection.now_ms())

    def receive(self, sent: SentFetch, *, until_ms: int) -> tuple[FetchAnswer, FetchedPartition | None]:
        """The answer, and its one partition; ``None`` where the broker gave none, as one that throttles does.

        Raises:
            ConnectionFailedError: the connection failed, or no answer came in time.
            ProtocolError: the answer cannot be read, or is about something else.
        """
        assert self._lent is not None
        answer = self._lent.connection.receive(sent.pending, until_ms=until_ms)
        if not answer.partitions:
            self._give_back()
            return answer, None
        told, asked = answer.partitions[0], sent.asked
        is_same = told.topic == asked.topic if told.topic_id is None else told.topic_id == asked.topic_id
        if len(answer.partitions) > 1 or told.partition != asked.partition or not is_same:
            self.drop()
            raise ProtocolError(
                f"the answer to {sent.pending.call} is not about the partition that was asked for",
                source=self.peer,
                found=f"{len(answer.partitions)} partitions, the first {told.topic or told.topic_id}-{told.partition}",
                expected=f"{asked.topic} ({asked.topic_id})-{asked.partition}",
            )
        self._give_back()
        if told.records:
            self._metrics.fetched_bytes[sent.node_id] += len(told.records)
        return answer, told

    def drop(self) -> None:
        """Close the connection of a Fetch under way: its answer is not wanted."""
        if self._lent is not None:
            self._lent.connection.close()
            self._lent = None

    def _give_back(self) -> None:
        assert self._lent is not None
        self._connections.give_back(self._lent)
        self._lent = None
