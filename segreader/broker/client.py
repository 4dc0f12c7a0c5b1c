"""Ask a Kafka cluster: leaders, offsets, epochs, committed offsets and topic configurations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from segreader.broker import api
from segreader.broker.error_codes import ErrorCode, describe, is_retriable, name_of
from segreader.broker.leader_requests import epoch_ends, list_offsets
from segreader.broker.messages import (
    ClusterMetadata,
    CommittedOffsets,
    Coordinator,
    EpochEnd,
    EpochWanted,
    LeaderAndEpoch,
    ListedOffset,
    OffsetWanted,
    TopicConfigs,
)
from segreader.broker.network_client import NetworkClient, refuse_forbidden
from segreader.broker.rules.backoff import Backoff, Deadline
from segreader.errors import AuthorizationError, BrokerError, ConnectionFailedError
from segreader.isolation import IsolationLevel

_FIND_AGAIN = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR})


class BrokerClient(NetworkClient):
    """Asks a cluster; use it as a context manager, or ``close`` it. Its arguments are those of ``NetworkClient``."""

    def metadata(self, topics: Sequence[str] | None = None) -> ClusterMetadata:
        """What a broker says now of topics and brokers; ``None``: of every topic that we may DESCRIBE.

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
        return list_offsets(self, wanted, isolation_level)

    def epoch_ends(self, wanted: Sequence[EpochWanted]) -> tuple[EpochEnd, ...]:
        """Where epochs end in the leaders' logs, in the order asked for; without errors.

        Raises:
            AuthorizationError: DESCRIBE is missing on a topic.
            BrokerError: as for ``list_offsets``.
        """
        return epoch_ends(self, wanted)

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
    while True:
        failed: ConnectionFailedError | None = None
        if coordinator is None:
            coordinator = _find(client, group, deadline, backoff)
        error = 0
        try:
            assert coordinator.node is not None
            lent = client.connections.lend_to(coordinator.node, deadline.at_ms)
            try:
                call = lent.plan(lambda offered: api.offset_fetch(client.settings, offered, group, topics))
                answer = lent.connection.ask(call, until_ms=deadline.at_ms)
            finally:
                client.connections.give_back(lent)
            error = _worst(answer)
            if answer.group != group:
                raise BrokerError("OffsetFetch was answered for another group", source=str(lent.address))
            if error in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND):
                return answer
        except ConnectionFailedError as failure:
            coordinator, failed = None, failure
        if error:
            client.metrics.errors[name_of(error)] += 1
            _raise_final(error, group, "OffsetFetch")
            if error in _FIND_AGAIN:
                coordinator = None
        _wait(client, deadline, backoff, "OffsetFetch", group, error, failed)


def _find(client: NetworkClient, group: str, deadline: Deadline, backoff: Backoff) -> Coordinator:
    while True:
        coordinator = client.ask_any(
            lambda offered: api.find_coordinator(client.settings, offered, group), deadline=deadline
        )
        if coordinator.error == ErrorCode.NONE and coordinator.node is not None and coordinator.group == group:
            return coordinator
        if coordinator.error:
            client.metrics.errors[name_of(coordinator.error)] += 1
            _raise_final(coordinator.error, group, "FindCoordinator")
        _wait(client, deadline, backoff, "FindCoordinator", group, coordinator.error, None)


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
            raise failed
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
