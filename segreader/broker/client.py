"""Ask a Kafka cluster: leaders, offsets, epochs, committed offsets and topic configurations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Generic, NamedTuple, TypeVar

from segreader.broker import api
from segreader.broker.connection import Call
from segreader.broker.messages import (
    ApiVersions,
    ClusterMetadata,
    CommittedOffsets,
    Coordinator,
    EpochEnd,
    EpochWanted,
    FetchAnswer,
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    LeaderAndEpoch,
    ListedOffset,
    OffsetWanted,
    TopicConfigs,
)
from segreader.broker.network_client import (
    Answer,
    NetworkClient,
    Told,
    ask_leaders,
    name_cause,
    naming,
    refuse_forbidden,
)
from segreader.broker.protocol import ErrorCode, describe, is_retriable, makes_metadata_stale, name_of
from segreader.broker.rules.backoff import Backoff, Deadline
from segreader.broker.rules.fetch_errors import REPEATS_OF_SERVER_ERRORS
from segreader.broker.rules.list_offsets import Look, OffsetLookup
from segreader.errors import AuthorizationError, BrokerError, ConnectionFailedError
from segreader.isolation import IsolationLevel

_FIND_AGAIN = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR})


class BrokerClient(NetworkClient):
    """Asks a cluster; use it as a context manager, or ``close`` it. Its arguments are those of ``NetworkClient``."""

    def metadata(self, topics: Sequence[str] | None = None) -> ClusterMetadata:
        """The current metadata of topics and brokers; ``None``: of every topic that we may DESCRIBE.

        Errors of topics and partitions stand in the answer, but for a missing right. Topics are never created by it.

        Raises:
            AuthorizationError: a topic that was named may not be described.
            ConnectionFailedError: no broker answers.
        """
        answer = self.ask_metadata(topics, self.deadline())
        refuse_forbidden(answer, topics or ())
        return answer

    def leader(self, topic: str, partition: int) -> LeaderAndEpoch:
        """Who leads a partition, asked for unless it is known and not too old.

        Raises:
            AuthorizationError: the topic may not be described.
            BrokerError: there is no such topic or partition, or it has no leader for all the time of an operation.
        """
        deadline = self.deadline()
        backoff = Backoff(self.jitter, self.backoff_policy)
        self.require_topics([topic], deadline)
        while True:
            known = self.cluster.partition(topic, partition)
            if known is None and self.cluster.partitions(topic):
                count = len(self.cluster.partitions(topic))
                raise BrokerError(
                    f"topic {topic} has no partition {partition}",
                    code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    expected=f"0 to {count - 1}",
                )
            if known is not None and known.leader.leader_id >= 0:
                return known.leader
            wait_ms = backoff.failed()
            if not deadline.allows(wait_ms, self.now_ms()):
                raise BrokerError(
                    f"{topic}-{partition} has no leader",
                    code=ErrorCode.LEADER_NOT_AVAILABLE,
                    hint="Are the brokers of its replicas running?",
                )
            self.wait(wait_ms)
            with naming(ErrorCode.LEADER_NOT_AVAILABLE):
                self.refresh([topic], deadline)

    def topic_id(self, topic: str) -> str | None:
        """The topic's id; ``None`` from brokers that have none."""
        self.require_topics([topic], self.deadline())
        return self.cluster.topic_id(topic)

    def list_offsets(
        self, wanted: Sequence[OffsetWanted], isolation_level: IsolationLevel = IsolationLevel.READ_COMMITTED
    ) -> tuple[ListedOffset, ...]:
        """Offsets by special timestamp or time, in the order asked for; from the leaders.

        An offset is -1 where there is none. Error 35 stays in an answer: the broker does not know that timestamp yet.
        The latest offset never goes backwards within one leader epoch.

        Raises:
            AuthorizationError: DESCRIBE is missing on some topics; all are named.
            BrokerError: there is no such topic or partition, or no leader knows until the operation's time is over.
        """
        deadline = self.deadline()
        self.require_topics([each.topic for each in wanted], deadline)
        lookup = OffsetLookup(
            wanted, isolation_level, latest=self.latest_told, jitter=self.jitter, policy=self.backoff_policy
        )

        def make(offered: ApiVersions, some: Sequence[OffsetWanted]) -> Call[Sequence[ListedOffset]]:
            call = api.list_offsets(self.settings, offered, [_fenced(self, each) for each in some], isolation_level)
            return _parts(call, lambda answer: answer.offsets, lambda answer: answer.throttle_ms)

        failure: ConnectionFailedError | None = None
        while True:
            for reply in ask_leaders(self, lookup.requests(), make, deadline):
                if reply.told is None:
                    failure = reply.failure or failure
                    lookup.not_answered(reply.wanted, reply.error)
                    continue
                if reply.told.error:
                    self.metrics.errors[name_of(reply.told.error)] += 1
                lookup.answered(reply.wanted, reply.told, version=reply.version)
            step = lookup.next_step()
            if step.look is Look.DONE:
                return lookup.results()
            self.metrics.retries["ListOffsets"] += 1
            stale = [each.topic for each in wanted] if step.look is Look.REFRESH_THEN_ASK else []
            late = lookup.timed_out()
            with naming(late.code):
                has_time = self.wait_to_repeat(step.wait_ms, deadline, stale)
            if not has_time:
                raise _with_cause(late, failure)

    def epoch_ends(self, wanted: Sequence[EpochWanted]) -> tuple[EpochEnd, ...]:
        """Where epochs end in the leaders' logs, in the order asked for; without errors.

        Raises:
            AuthorizationError: DESCRIBE is missing on a topic.
            BrokerError: as for ``list_offsets``.
        """
        deadline = self.deadline()
        self.require_topics([each.topic for each in wanted], deadline)
        found: dict[tuple[str, int, int], EpochEnd] = {}
        backoff = Backoff(self.jitter, self.backoff_policy)
        server_errors = 0
        failure: ConnectionFailedError | None = None
        last: EpochEnd | None = None

        def make(offered: ApiVersions, some: Sequence[EpochWanted]) -> Call[Sequence[EpochEnd]]:
            return _epoch_call(self, offered, [_fenced(self, each) for each in some])

        while True:
            is_stale = False
            left = [each for each in wanted if _epoch_key(each) not in found]
            for reply in ask_leaders(self, _rounds(left), make, deadline):
                told = reply.told
                if told is None:
                    is_stale, failure = True, reply.failure or failure
                    if reply.error:
                        last = EpochEnd(reply.wanted.topic, reply.wanted.partition, reply.error)
                elif told.error == ErrorCode.NONE:
                    found[_epoch_key(reply.wanted)] = told
                else:
                    last = told
                    self.metrics.errors[name_of(told.error)] += 1
                    _refuse_forbidden(told.topic, told.error)
                    server_errors += told.error == ErrorCode.UNKNOWN_SERVER_ERROR
                    is_stale = (
                        is_stale or makes_metadata_stale(told.error) or told.error == ErrorCode.OFFSET_NOT_AVAILABLE
                    )
            if all(_epoch_key(each) in found for each in wanted):
                return tuple(found[_epoch_key(each)] for each in wanted)
            self.metrics.retries["OffsetForLeaderEpoch"] += 1
            stale = [each.topic for each in wanted] if is_stale else []
            is_hopeless = server_errors > REPEATS_OF_SERVER_ERRORS
            with naming(last.error if last is not None else None):
                has_time = not is_hopeless and self.wait_to_repeat(backoff.failed(), deadline, stale)
            if not has_time:
                about = f" for {last.topic}-{last.partition}: {describe(last.error)}" if last is not None else ""
                error = BrokerError(
                    f"OffsetForLeaderEpoch had no answer in time{about}", code=last.error if last is not None else None
                )
                raise _with_cause(error, failure)

    def locate(
        self, wanted: Sequence[FetchPartition], isolation_level: IsolationLevel, *, most_segments: int
    ) -> tuple[FetchedPartition, ...]:
        """Where the remote segments from some offsets on are, as the leaders say at once: one request for each leader.

        Partitions of which a leader says nothing of use are left out: ask for them with a fetcher.

        Args:
            wanted: partitions of topics in ``cluster``, each once, with the end of what is wanted.
            most_segments: of each.

        Raises:
            AuthenticationError, ProtocolError: as for every request.
        """
        asked = [
            replace(one, current_leader_epoch=leader.leader_epoch)
            for one in wanted
            if (leader := self.cluster.leader(one.topic, one.partition)).leader_id >= 0
            and self.extensions.may_ask(leader.leader_id, self.now_ms())
        ]

        def make(offered: ApiVersions, some: Sequence[FetchPartition]) -> Call[Sequence[_ToldPlace]]:
            request = FetchRequest(
                tuple(some),
                isolation_level,
                max_wait_ms=0,
                max_bytes=1,
                wants_locations=True,
                most_segments=most_segments,
            )
            node_id = self.cluster.leader(some[0].topic, some[0].partition).leader_id

            def parts(answer: FetchAnswer) -> Sequence[_ToldPlace]:
                self.extensions.answered(node_id, answer.extension_version, self.now_ms())
                told = {(one.topic_id or one.topic, one.partition): one for one in answer.partitions}
                found = []
                for one in some:  # a broker that throttles leaves all out
                    own = told.get((one.topic_id, one.partition)) or told.get((one.topic, one.partition))
                    if own is not None:
                        own = replace(own, topic=one.topic, topic_id=one.topic_id)
                    found.append(_ToldPlace(one.topic, one.partition, own))
                return found

            return _parts(api.fetch(self.settings, offered, request), parts, lambda answer: answer.throttle_ms)

        self.metrics.locations_asked += len(asked)
        told = [one.told.answer for one in ask_leaders(self, [asked], make, self.deadline()) if one.told is not None]
        found = [one for one in told if one is not None and one.location is not None]
        self.metrics.locations_given += sum(1 + len(one.following) for one in found)
        return tuple(found)

    def committed_offsets(self, group: str, topics: Mapping[str, Sequence[int]] | None = None) -> CommittedOffsets:
        """What a consumer group has committed; ``None``: for all its partitions. Nothing is joined or changed.

        A partition's offset is -1 where nothing is committed; commits that are pending in a transaction are waited for.

        Raises:
            AuthorizationError: DESCRIBE is missing on the group or a topic.
            BrokerError: the group has no coordinator until the operation's time is over.
        """
        return _committed_offsets(self, group, topics)

    def topic_configs(self, topics: Sequence[str], keys: Sequence[str] | None = None) -> tuple[TopicConfigs, ...]:
        """Configuration values of topics, in the order asked for; ``None``: all keys.

        Error 29 stays in an answer: readers often lack DESCRIBE_CONFIGS, and can go on without it.

        Raises:
            BrokerError: an answer is about other topics.
        """
        answer = self.ask_any(lambda offered: api.describe_configs(self.settings, offered, topics, keys))
        told = {each.topic: each for each in answer}
        if told.keys() != set(topics):
            raise BrokerError("DescribeConfigs was answered for other topics")
        return tuple(told[topic] for topic in topics)


def _committed_offsets(
    client: NetworkClient, group: str, topics: Mapping[str, Sequence[int]] | None
) -> CommittedOffsets:
    deadline = client.deadline()
    backoff = Backoff(client.jitter, client.backoff_policy)
    coordinator: Coordinator | None = None
    error = 0
    while True:
        failed: ConnectionFailedError | None = None
        if coordinator is None:
            with naming(error):
                coordinator = _find(client, group, deadline, backoff)
        try:
            assert coordinator.node is not None
            lent = client.connections.lend_to(coordinator.node, deadline)
            try:
                call = lent.plan(lambda offered: api.offset_fetch(client.settings, offered, group, topics))
                answer = lent.connection.ask(call, deadline=deadline)
            finally:
                client.connections.give_back(lent)
            error = _worst(answer)
            if answer.group != group:
                raise BrokerError("OffsetFetch was answered for another group", source=str(lent.address))
            if error in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND):
                return answer
        except ConnectionFailedError as failure:
            coordinator, failed = None, failure
        if error and failed is None:
            client.metrics.errors[name_of(error)] += 1
            _raise_final(error, group, "OffsetFetch")
            if error in _FIND_AGAIN:
                coordinator = None
        _wait(client, deadline, backoff, "OffsetFetch", group, error, failed)


def _find(client: NetworkClient, group: str, deadline: Deadline, backoff: Backoff) -> Coordinator:
    error = 0
    while True:
        with naming(error):
            coordinator = client.ask_any(
                lambda offered: api.find_coordinator(client.settings, offered, group), deadline=deadline
            )
        if coordinator.error == ErrorCode.NONE and coordinator.node is not None and coordinator.group == group:
            return coordinator
        if coordinator.error:
            client.metrics.errors[name_of(coordinator.error)] += 1
            _raise_final(coordinator.error, group, "FindCoordinator")
        error = coordinator.error
        _wait(client, deadline, backoff, "FindCoordinator", group, error, None)


def _wait(
    client: NetworkClient,
    deadline: Deadline,
    backoff: Backoff,
    api: str,
    group: str,
    error: int,
    failed: ConnectionFailedError | None,
) -> None:
    client.metrics.retries[api] += 1
    wait_ms = backoff.failed()
    if not deadline.allows(wait_ms, client.now_ms()):
        if failed is not None:
            raise name_cause(failed, error)
        raise BrokerError(f"{api} had no answer in time for group {group}: {describe(error)}", code=error)
    client.wait(wait_ms)


def _worst(answer: CommittedOffsets) -> int:
    """The group's error, or one of a partition that concerns the whole answer."""
    if answer.error:
        return answer.error
    codes = {each.error for each in answer.offsets}
    for code in (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNSTABLE_OFFSET_COMMIT):
        if code in codes:
            return code
    return 0


def _raise_final(error: int, group: str, api: str) -> None:
    if error in (ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED):
        raise AuthorizationError(f"no right to DESCRIBE group {group}", code=error)
    if error == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        raise AuthorizationError(f"no right to DESCRIBE a topic of group {group}", code=error)
    if not is_retriable(error):
        raise BrokerError(f"{api} failed for group {group}: {describe(error)}", code=error)


def _with_cause(error: BrokerError, failure: ConnectionFailedError | None) -> BrokerError:
    """The error with the last failure of a connection, if no broker's own answer says more."""
    if error.code is not None or failure is None:
        return error
    return error.located(found=f"{failure.source}: {failure.message}", hint=failure.hint)


def ask_epoch_end(client: NetworkClient, wanted: EpochWanted, deadline: Deadline) -> EpochEnd | None:
    """The leader's current answer, errors included; ``None`` if it could not be asked. No retries, no waits."""

    def make(offered: ApiVersions, some: Sequence[EpochWanted]) -> Call[Sequence[EpochEnd]]:
        return _epoch_call(client, offered, some)

    return next(reply.told for reply in ask_leaders(client, [[wanted]], make, deadline))


def _epoch_call(client: NetworkClient, offered: ApiVersions, some: Sequence[EpochWanted]) -> Call[Sequence[EpochEnd]]:
    call = api.epoch_ends(client.settings, offered, some)
    return _parts(call, lambda answer: answer.ends, lambda answer: answer.throttle_ms)


class _Throttled(tuple[Told, ...], Generic[Told]):
    """Parts of an answer that keep its throttle time, which the connection looks for."""

    throttle_ms: int


def _parts(
    call: Call[Answer], parts: Callable[[Answer], Sequence[Told]], throttle_ms: Callable[[Answer], int]
) -> Call[Sequence[Told]]:
    def decode(frame: memoryview) -> Sequence[Told]:
        answer = call.decode(frame)
        found = _Throttled(parts(answer))
        found.throttle_ms = throttle_ms(answer)
        return found

    return Call(call.name, call.version, call.encode, decode, call.held_ms, call.answer_bytes)


def _fenced(client: NetworkClient, wanted: OffsetOrEpoch) -> OffsetOrEpoch:
    """The question with the newest epoch known: a leader that is none any more refuses it."""
    known = client.cluster.leader(wanted.topic, wanted.partition).leader_epoch
    return wanted if known <= wanted.current_leader_epoch else replace(wanted, current_leader_epoch=known)


class _ToldPlace(NamedTuple):
    """What a leader's answer has of one partition."""

    topic: str
    partition: int
    answer: FetchedPartition | None


OffsetOrEpoch = TypeVar("OffsetOrEpoch", OffsetWanted, EpochWanted)


def _rounds(wanted: Sequence[EpochWanted]) -> list[list[EpochWanted]]:
    rounds: list[dict[tuple[str, int], EpochWanted]] = []
    for each in dict.fromkeys(wanted):
        place = (each.topic, each.partition)
        free = next((one for one in rounds if place not in one), None)
        if free is None:
            rounds.append(free := {})
        free[place] = each
    return [list(one.values()) for one in rounds]


def _epoch_key(wanted: EpochWanted) -> tuple[str, int, int]:
    return (wanted.topic, wanted.partition, wanted.leader_epoch)


def _refuse_forbidden(topic: str, error: int) -> None:
    if error == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        raise AuthorizationError(f"no right to DESCRIBE topic {topic}", code=error)
