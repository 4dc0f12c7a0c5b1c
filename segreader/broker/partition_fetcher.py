"""Fetch one partition's records from its brokers: from a replica nearby, across leader changes, one history throughout.

Records are handed on as they came: they may begin before the position, and the last batch may be cut. One Fetch is
under way at a time, to one broker or another; an answer about anything but its partition is a ``ProtocolError``.
"""

from __future__ import annotations

from dataclasses import replace
from types import TracebackType
from typing import Self

from segreader.broker import api
from segreader.broker.client import BrokerClient
from segreader.broker.connection import ClientMetrics, Pending
from segreader.broker.connection_pool import NodeConnections, OpenConnection
from segreader.broker.location import check_location
from segreader.broker.messages import (
    NO_EPOCH,
    EpochWanted,
    FetchAnswer,
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    LeaderAndEpoch,
)
from segreader.broker.partition_state import PartitionState, Tries
from segreader.broker.protocol import ErrorCode
from segreader.broker.rules.backoff import Deadline
from segreader.broker.rules.fallback import RemoteReads, RemoteStep
from segreader.broker.rules.preferred_replica import KnownEnds
from segreader.broker.rules.truncation import FetchPosition, parse_batch_facts
from segreader.broker.settings import ClientSettings
from segreader.errors import BrokerError, ConnectionFailedError, ProtocolError, shown_count
from segreader.isolation import IsolationLevel
from segreader.values import dataclass

_QUICK_EMPTIES = 3
_QUICK_MS = 20


@dataclass(frozen=True, slots=True)
class _SentFetch:
    """A Fetch under way: the broker it went to, and what was known when it was sent."""

    request: FetchRequest
    pending: Pending[FetchAnswer]
    node_id: int
    leader: LeaderAndEpoch
    at_ms: int

    @property
    def asked(self) -> FetchPartition:
        """The partition that was asked for."""
        return self.request.partitions[0]


class _FetchChannel:
    """Sends Fetches of one partition and takes their answers. A connection is kept only while one is under way."""

    def __init__(self, connections: NodeConnections, settings: ClientSettings, metrics: ClientMetrics) -> None:
        self._connections = connections
        self._settings = settings
        self._metrics = metrics
        self._lent: OpenConnection | None = None
        self.peer: str | None = None
        """``host:port`` of the broker that was asked last."""

    def send(
        self, node_id: int, request: FetchRequest, leader: LeaderAndEpoch, *, deadline: Deadline, is_ahead: bool = False
    ) -> _SentFetch | None:
        """Send a Fetch for one partition.

        Args:
            is_ahead: only over a connection that is there and idle; ``None`` if there is none.

        Raises:
            ConnectionFailedError, AuthenticationError, UnsupportedVersionError: as for opening and sending.
        """
        self.drop()
        lent = self._connections.lend_idle(node_id) if is_ahead else self._connections.lend(node_id, deadline)
        if lent is None:
            return None
        self._lent = lent
        self.peer = str(lent.address)
        call = lent.plan(lambda offered: api.fetch(self._settings, offered, request))
        pending = lent.connection.send(call, deadline=deadline)
        return _SentFetch(request, pending, node_id, leader, lent.connection.now_ms())

    def receive(self, sent: _SentFetch, *, deadline: Deadline) -> tuple[FetchAnswer, FetchedPartition | None]:
        """The answer, and its one partition; ``None`` where the broker gave none, as one that throttles does.

        Raises:
            ConnectionFailedError: the connection failed, or no answer came in time.
            ProtocolError: the answer cannot be read, or is about something else.
        """
        assert self._lent is not None
        answer = self._lent.connection.receive(sent.pending, deadline=deadline)
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
                found=f"{shown_count(len(answer.partitions), 'partition')}, "
                f"the first {told.topic or told.topic_id}-{told.partition}",
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


class PartitionFetcher:
    """Gives the records of one partition from a position on; one thread uses it.

    ``poll`` for an answer, ``advance`` behind what it holds, decode and deliver it; the next answer comes meanwhile.
    Close it, or use it as a context manager.

    Args:
        offset: the first one wanted.
        rack: where the reader is; the client's by default.
        max_bytes: of records per answer; the first batch comes whole even if it is larger.
        wants_locations: ask for the location of remote segments rather than for their records.
        leader_epoch_of_position: of the record before ``offset``, -1 if not known: with it a truncation is seen.
        stop: nothing from this offset on is fetched ahead.
        reads_ahead: ``advance`` sends the next Fetch at once where there is something to read.
        topic_id: the one that the read was planned with; what is known of the topic by default.
        remote: what the caller remembers of this partition's locations; its own memory by default.

    Attributes:
        ends: the high watermark and last stable offset as far as they were told.
        remote: whether locations are asked for; tell it how reading them went.
    """

    def __init__(
        self,
        client: BrokerClient,
        topic: str,
        partition: int,
        offset: int,
        *,
        isolation_level: IsolationLevel = IsolationLevel.READ_COMMITTED,
        rack: str | None = None,
        max_bytes: int = 4 << 20,
        wants_locations: bool = False,
        leader_epoch_of_position: int = NO_EPOCH,
        stop: int | None = None,
        reads_ahead: bool = True,
        topic_id: str | None = None,
        remote: RemoteReads | None = None,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.stop = stop
        self.ends = KnownEnds()
        self.remote = remote or RemoteReads(jitter=client.jitter)
        self._client = client
        self._isolation_level = isolation_level
        self._max_bytes = max_bytes
        self._wants_locations = wants_locations
        self._reads_ahead = reads_ahead
        self._state = PartitionState(
            client,
            topic,
            partition,
            topic_id,
            FetchPosition(offset, leader_epoch_of_position),
            rack=client.settings.rack if rack is None else rack,
            isolation_level=isolation_level,
        )
        self._channel = _FetchChannel(client.connections, client.settings, client.metrics)
        self._ahead: _SentFetch | None = None
        self._resume: tuple[int, int] | None = None
        self._readable_until = -1
        self._quick_empties = 0

    def __repr__(self) -> str:
        return f"PartitionFetcher({self.topic}-{self.partition} at {self.position.offset})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def position(self) -> FetchPosition:
        """The next offset to be given, and the leader epoch of the record before it."""
        return self._state.reading.position

    @property
    def topic_id(self) -> str | None:
        """The topic's id, which does not change while this reads; ``None`` from brokers that have none."""
        return self._state.topic_id

    @property
    def source(self) -> str | None:
        """``host:port`` of the broker that is asked now."""
        return self._channel.peer

    def advance(self, next_offset: int, leader_epoch: int) -> None:
        """Say that everything before ``next_offset`` was delivered, the last record of it of ``leader_epoch``.

        Raises:
            ValueError: the position would go back.
        """
        has_moved = next_offset > self.position.offset
        self._state.reading.advance(next_offset, leader_epoch)
        if has_moved:
            self._state.replica.delivered()
        if self._reads_ahead:
            self._read_ahead()

    def seek(self, offset: int, leader_epoch: int = NO_EPOCH) -> None:
        """Go on elsewhere, for example at the common point that a ``TruncatedLogError`` names."""
        self._abandon()
        self._resume = None
        self._state.reading.seek(FetchPosition(offset, leader_epoch))

    def close(self) -> None:
        """End what is under way. Records that were returned stay valid."""
        self._abandon()

    def poll(self) -> FetchedPartition:
        """The next answer without an error: records, the location of a remote segment, or nothing yet.

        Nothing yet is normal at the end, and comes after at most ``fetch_max_wait_ms``. Moves of the leader, replicas
        that come and go, throttling and lost connections are dealt with until the time of an operation is over.

        Raises:
            AuthorizationError: READ is missing on the topic.
            OffsetOutOfRangeError: the position is not in the log (any more).
            TruncatedLogError: records that were read are no longer in the log; ``offset`` is the last common point.
            ConnectionFailedError, BrokerError: no broker could answer in time.
            ProtocolError: what came is no answer to what was asked.
        """
        tries = Tries.of(self._client)
        while True:
            self._state.follow_leader()
            if not self._state.is_valid(tries):
                continue
            answered = self._ask(tries)
            if answered is None:
                continue
            sent, answer, told = answered
            if told is None:
                if not answer.error:  # throttled (KIP-13): no topics at all
                    nothing = FetchedPartition(
                        self.topic, self.topic_id, self.partition, throttle_ms=answer.throttle_ms
                    )
                    return self._paced(sent, nothing)
                self._state.pause(tries, answer.error, refresh=False)
            elif self._state.takes(
                told, answer, tries, by=sent.node_id, sent_epoch=sent.asked.current_leader_epoch
            ) and (found := self._found(sent, told, tries)):
                return found

    def _ask(self, tries: Tries) -> tuple[_SentFetch, FetchAnswer, FetchedPartition | None] | None:
        """One Fetch and its answer; ``None`` if it failed, and to ask the next broker."""
        client, state = self._client, self._state
        sent, self._ahead = self._ahead, None
        offset = self._fetch_offset()
        if sent is not None and (sent.asked.fetch_offset != offset or sent.leader != state.leader):
            self._channel.drop()
            sent = None
        node_id = sent.node_id if sent is not None else -1
        try:
            if sent is None:
                source = state.choose()
                node_id = source.node_id
                if source.refresh_metadata:
                    client.want_refresh(self.topic)
                sent = self._send(node_id, source.rack, offset, tries.deadline)
                assert sent is not None
            if not tries.error:  # after a move the first record comes before all else
                client.refresh_beside(self.topic)
            answer, told = self._channel.receive(sent, deadline=tries.deadline)
        except ConnectionFailedError as failure:
            self._channel.drop()
            if node_id >= 0 and state.replica.connection_failed(node_id, client.now_ms()):
                client.metrics.retries["Fetch"] += 1  # at the leader, at once
            else:
                state.pause(tries, ErrorCode.NETWORK_EXCEPTION, failure=failure)
            return None
        if sent.request.wants_locations:
            client.extensions.answered(sent.node_id, answer.extension_version, client.now_ms())
        return sent, answer, told

    def _read_ahead(self) -> None:
        """Send the next Fetch, if the last answer said that there is more and nothing is in its way."""
        offset, state = self._fetch_offset(), self._state
        self._abandon()
        if offset >= self._readable_until or (self.stop is not None and offset >= self.stop):
            return
        try:
            state.follow_leader()
            source = state.choose()
            if state.reading.question() is None:
                self._ahead = self._send(source.node_id, source.rack, offset, self._client.deadline(), True)
        except BrokerError:
            self._abandon()  # poll meets it again, and raises

    def _send(
        self, node_id: int, rack: str, offset: int, deadline: Deadline, is_ahead: bool = False
    ) -> _SentFetch | None:
        client = self._client
        wants = (
            self._wants_locations
            and client.extensions.may_ask(node_id, client.now_ms())
            and self.remote.may_ask(offset, client.unix_ms())
        )
        asked = FetchPartition(
            self.topic,
            self.topic_id,
            self.partition,
            offset,
            self._state.leader.leader_epoch,
            self._max_bytes,
            self.stop if wants else None,
        )
        request = FetchRequest(
            (asked,),
            isolation_level=self._isolation_level,
            max_wait_ms=client.settings.fetch_max_wait_ms,
            min_bytes=client.settings.fetch_min_bytes,
            max_bytes=self._max_bytes,
            rack=rack,
            wants_locations=wants,
        )
        sent = self._channel.send(node_id, request, self._state.leader, deadline=deadline, is_ahead=is_ahead)
        if wants and sent is not None:
            client.metrics.locations_asked += 1
        return sent

    def _found(self, sent: _SentFetch, told: FetchedPartition, tries: Tries) -> FetchedPartition | None:
        """The part of an answer without an error to return; ``None``: ask again."""
        by_leader = sent.node_id == sent.leader.leader_id
        self.ends.told(told, by_leader=by_leader, leader_epoch=sent.asked.current_leader_epoch)
        is_committed = self._isolation_level is IsolationLevel.READ_COMMITTED
        self._readable_until = told.last_stable_offset if is_committed else told.high_watermark
        told = replace(told, topic=self.topic, topic_id=self.topic_id)
        if told.location is not None or told.location_error is not None:
            return self._located(sent, told)
        if not told.records:
            if sent.request.wants_locations and sent.asked.fetch_offset < self._readable_until:
                # There is something, and with the flag nothing came: once more without it, or this goes on for ever.
                self._fall_back(sent, sent.asked.fetch_offset + 1)
            return self._paced(sent, told)
        self._quick_empties = 0
        return self._living(sent, told, tries)

    def _located(self, sent: _SentFetch, told: FetchedPartition) -> FetchedPartition | None:
        client, location = self._client, told.location
        if not sent.request.wants_locations:  # it was not asked for
            return self._paced(sent, replace(told, location=None, location_error=None))
        reason = told.location_error
        if location is not None:
            reason = check_location(
                location, told, sent.asked.fetch_offset, sent.request.storage_formats, client.unix_ms()
            )
        if location is None or reason is not None:
            client.metrics.locations_rejected += 1
            self._fall_back(sent, sent.asked.fetch_offset + 1)
            return None
        client.metrics.locations_given += 1
        decision = self.remote.given(location.segment_id, expiry_ms=location.expiry_ms, now_ms=client.unix_ms())
        if decision is None:
            self._quick_empties = 0
            return told
        if decision.step is not RemoteStep.RENEW:
            self._fall_back(sent, location.last_offset + 1)
        return None

    def _fall_back(self, sent: _SentFetch, until: int) -> None:
        self.remote.fell_back(since=sent.asked.fetch_offset, until=until, now_ms=self._client.unix_ms())

    def _living(self, sent: _SentFetch, told: FetchedPartition, tries: Tries) -> FetchedPartition | None:
        """The records that are part of the leader's history.

        A broker does not cut what it reads from a remote segment at the end of an epoch that an unclean election ended.
        """
        assert told.records is not None
        batches = parse_batch_facts(told.records)
        history = self._state.history
        unknown = history.unknown(facts.leader_epoch for facts, _ in batches)
        if unknown:
            asked = [EpochWanted(self.topic, self.partition, epoch) for epoch in unknown]
            for epoch, end in zip(unknown, self._client.epoch_ends(asked), strict=True):
                history.learn(epoch, end)
        living = history.live(sent.asked.fetch_offset, (facts for facts, _ in batches))
        if living.resume_at is None:
            return told
        if living.is_stuck:
            self._state.pause(tries, ErrorCode.UNKNOWN_SERVER_ERROR)
            return None
        before = batches[living.count - 1] if living.count else None
        self._resume = (before[0].last_offset + 1 if before else sent.asked.fetch_offset, living.resume_at)
        return replace(told, records=told.records[: before[1]]) if before else None

    def _fetch_offset(self) -> int:
        """The position, or where the leader's history continues after it."""
        offset = self.position.offset
        if self._resume is not None and self._resume[0] <= offset < self._resume[1]:
            return self._resume[1]
        return offset

    def _paced(self, sent: _SentFetch, nothing: FetchedPartition) -> FetchedPartition:
        """An empty answer; a peer that gives many of them without waiting is not asked again at once."""
        client = self._client
        is_quick = nothing.throttle_ms < _QUICK_MS and client.now_ms() - sent.at_ms < min(
            _QUICK_MS, client.settings.fetch_max_wait_ms
        )
        self._quick_empties = self._quick_empties + 1 if is_quick else 0
        if self._quick_empties > _QUICK_EMPTIES:
            client.wait(client.backoff_policy.wait_ms(self._quick_empties - _QUICK_EMPTIES, client.jitter))
        return nothing

    def _abandon(self) -> None:
        self._ahead = None
        self._channel.drop()
