"""A client of one cluster: whom to ask, over which connection, and how often.

Decisions are those of ``rules``; this module carries them out. Several threads may use it: each request has a
connection of its own while it lasts, and connections are kept for the next one.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self, TypeVar

from segreader.broker import calls
from segreader.broker.connection import Call
from segreader.broker.error_codes import ErrorCode, describe, name_of
from segreader.broker.group_offsets import committed_offsets
from segreader.broker.leader_requests import epoch_ends, list_offsets
from segreader.broker.messages import (
    ApiVersions,
    ClusterMetadata,
    CommittedOffsets,
    EpochEnd,
    EpochWanted,
    LeaderAndEpoch,
    ListedOffset,
    OffsetWanted,
    TopicConfigs,
)
from segreader.broker.metrics import ClientMetrics
from segreader.broker.node_connections import NodeConnections, parse_bootstrap
from segreader.broker.opening import Opener
from segreader.broker.rules.backoff import Backoff, BackoffPolicy, Deadline, Jitter
from segreader.broker.rules.fallback import ExtensionMemory
from segreader.broker.rules.leader import KnownCluster
from segreader.broker.rules.list_offsets import LatestTold
from segreader.broker.settings import ClientSettings
from segreader.errors import AuthorizationError, BrokerError, ConnectionFailedError
from segreader.isolation import IsolationLevel
from segreader.storage.retry import Clock

Answer = TypeVar("Answer")

_ROUNDS_BEFORE_FIRST_CONTACT = 3
_TRIES_OF_UNKNOWN_TOPICS = 4


class BrokerClient:
    """Asks a cluster; use it as a context manager, or ``close`` it.

    Args:
        bootstrap_servers: ``host:port,host:port`` or a list of such; asked in turn until one tells of the others.
        settings: who we are, what we trust, how long we wait.
        clock: time, and how it is waited for.
        jitter: a number from 0 to 1, to spread waits.

    Attributes:
        metrics: what was asked, by API.
        cluster: brokers, topics and leaders as far as is known.
    """

    def __init__(
        self,
        bootstrap_servers: str | Iterable[str],
        settings: ClientSettings | None = None,
        *,
        clock: Clock | None = None,
        jitter: Jitter = random.random,
    ) -> None:
        self.settings = settings or ClientSettings()
        self.metrics = ClientMetrics()
        self.cluster = KnownCluster()
        self.jitter = jitter
        self.latest_told = LatestTold()
        self.extensions = ExtensionMemory(self.settings.metadata_max_age_ms)
        self.backoff_policy = BackoffPolicy(self.settings.retry_backoff_ms, self.settings.retry_backoff_max_ms)
        self._clock = clock or Clock()
        self._stopped = threading.Event()
        self._lock = threading.RLock()
        self._told_at_ms: dict[str, int] = {}
        self._wanted: set[str] = set()
        opener = Opener(self.settings, clock=self._clock, metrics=self.metrics, stopped=self._stopped)
        self.connections = NodeConnections(parse_bootstrap(bootstrap_servers), opener, self.cluster)

    def __repr__(self) -> str:
        return f"BrokerClient({','.join(map(str, self.connections.bootstrap))!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections, and end waits in other threads."""
        self._stopped.set()
        self.connections.close()

    def metadata(self, topics: Sequence[str] | None = None) -> ClusterMetadata:
        """What a broker says now of topics and brokers; ``None``: of every topic that we may DESCRIBE.

        Errors of topics and partitions stand in the answer, but for a missing right. Topics are never created by it.

        Raises:
            AuthorizationError: a topic that was named may not be described.
            ConnectionFailedError: no broker answers.
        """
        answer = self._ask_metadata(topics, self.deadline())
        _refuse_forbidden(answer, topics or ())
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
        The latest offset is never told lower than before while the same leader epoch lasts.

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
        return committed_offsets(self, group, topics)

    def topic_configs(self, topics: Sequence[str], keys: Sequence[str] | None = None) -> tuple[TopicConfigs, ...]:
        """Configuration values of topics, in the order asked for; ``None``: all keys.

        Error 29 stays in an answer: readers often lack DESCRIBE_CONFIGS, and can go on without it.

        Raises:
            BrokerError: an answer is about other topics.
        """
        answer = self.ask_any(lambda offered: calls.describe_configs(self.settings, offered, topics, keys))
        told = {each.topic: each for each in answer}
        if told.keys() != set(topics):
            raise BrokerError("DescribeConfigs was answered for other topics")
        return tuple(told[topic] for topic in topics)

    # For the modules beside this one.

    def now_ms(self) -> int:
        """The time of deadlines: ms since an arbitrary start."""
        return int(self._clock.monotonic() * 1000)

    def unix_ms(self) -> int:
        """The time of URLs: ms since 1970 UTC."""
        return int(self._clock.now() * 1000)

    def deadline(self) -> Deadline:
        """The deadline of an operation that begins now."""
        return Deadline.after(self.now_ms(), self.settings.operation_timeout_ms)

    def wait(self, wait_ms: int) -> None:
        """Let time pass.

        Raises:
            ConnectionFailedError: the client was closed meanwhile.
        """
        if self._clock.wait(self._stopped, wait_ms / 1000) or self._stopped.is_set():
            raise ConnectionFailedError("this client is closed")

    def ask_any(self, make: Callable[[ApiVersions], Call[Answer]], *, deadline: Deadline | None = None) -> Answer:
        """The answer of whichever broker can be reached; all are tried, with waits, until the operation's time is over.

        Before the first contact with the cluster a few rounds must do: a wrong address is told soon.
        """
        deadline = deadline or self.deadline()
        backoff = Backoff(self.jitter, self.backoff_policy)
        while True:
            try:
                lent = self.connections.lend_any(deadline.at_ms)
                try:
                    return lent.connection.ask(lent.plan(make), until_ms=deadline.at_ms)
                finally:
                    self.connections.give_back(lent)
            except ConnectionFailedError:
                wait_ms = backoff.failed()
                is_hopeless = not self.cluster.nodes and backoff.failures >= _ROUNDS_BEFORE_FIRST_CONTACT
                if is_hopeless or self._stopped.is_set() or not deadline.allows(wait_ms, self.now_ms()):
                    raise
            self.wait(wait_ms)

    def refresh(self, topics: Sequence[str], deadline: Deadline) -> None:
        """Ask for the leaders of these topics anew, whatever is known.

        Raises:
            AuthorizationError: a topic may not be described (any more).
        """
        _refuse_forbidden(self._ask_metadata(sorted(set(topics)), deadline), topics)

    def wait_to_repeat(self, wait_ms: int, deadline: Deadline, refresh: Sequence[str] = ()) -> bool:
        """Wait before another try, with new metadata of ``refresh``; ``False`` if no time is left for that try.

        Raises:
            AuthorizationError, ConnectionFailedError: as for ``refresh`` and ``wait``.
        """
        if not deadline.allows(wait_ms, self.now_ms()):
            return False
        if refresh:
            self.refresh(refresh, deadline)
            if not deadline.allows(wait_ms, self.now_ms()):  # the broker took its time
                return False
        if wait_ms:
            self.wait(wait_ms)
        return True

    def want_refresh(self, topic: str) -> None:
        """Have metadata asked for at the next occasion, when nobody waits for it."""
        self._wanted.add(topic)

    def refresh_if_wanted(self, topic: str) -> None:
        """Ask now if that is wanted or what is known is too old; without one more try, for it is not needed yet."""
        age_ms = self.now_ms() - self._told_at_ms.get(topic, self.now_ms())
        if topic in self._wanted or age_ms > self.settings.metadata_max_age_ms:
            self._wanted.discard(topic)
            self._told_at_ms[topic] = self.now_ms()
            try:
                self.refresh([topic], self.deadline())
            except ConnectionFailedError:
                return

    def require_topics(self, topics: Sequence[str], deadline: Deadline) -> None:
        """Have the partitions of these topics in ``cluster``, not older than allowed.

        Raises:
            AuthorizationError: one may not be described.
            BrokerError: one is not there, also after some tries: brokers hear of a new topic one after another.
        """
        backoff = Backoff(self.jitter, self.backoff_policy)
        while missing := [each for each in dict.fromkeys(topics) if not self._is_known(each)]:
            answer = self._ask_metadata(missing, deadline)
            _refuse_forbidden(answer, missing)
            errors = {each.name: each.error for each in answer.topics if each.error}
            absent = [each for each in missing if not self.cluster.partitions(each)]
            if not absent:
                return
            error = errors.get(absent[0], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            client_may_wait = error not in _FINAL and backoff.failures < _TRIES_OF_UNKNOWN_TOPICS
            wait_ms = backoff.failed()
            if not client_may_wait or not deadline.allows(wait_ms, self.now_ms()):
                raise BrokerError(
                    f"topic {absent[0]} cannot be read: {describe(error)}",
                    code=error,
                    hint="Check its name" if error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else None,
                )
            self.wait(wait_ms)

    def _is_known(self, topic: str) -> bool:
        if not self.cluster.partitions(topic) or topic not in self._told_at_ms:
            return False
        return self.now_ms() - self._told_at_ms[topic] <= self.settings.metadata_max_age_ms

    def _ask_metadata(self, topics: Sequence[str] | None, deadline: Deadline) -> ClusterMetadata:
        answer = self.ask_any(lambda offered: calls.metadata(self.settings, offered, topics), deadline=deadline)
        with self._lock:
            change = self.cluster.merge(answer)
            for topic in answer.topics:
                if topic.name is not None:
                    self._told_at_ms[topic.name] = self.now_ms()
                    if topic.error:
                        self.metrics.errors[name_of(topic.error)] += 1
            for replaced in change.replaced:
                self.latest_told.forget(replaced.topic)
        if change.rebootstrap:
            self.connections.forget()
            return self._ask_metadata_again(topics, deadline)
        return answer

    def _ask_metadata_again(self, topics: Sequence[str] | None, deadline: Deadline) -> ClusterMetadata:
        """After 129, once: from the bootstrap list."""
        answer = self.ask_any(lambda offered: calls.metadata(self.settings, offered, topics), deadline=deadline)
        with self._lock:
            change = self.cluster.merge(answer)
        if change.rebootstrap:
            raise BrokerError(
                "the bootstrap servers send us back to the bootstrap servers",
                code=ErrorCode.REBOOTSTRAP_REQUIRED,
            )
        return answer


_FINAL = frozenset({ErrorCode.INVALID_TOPIC_EXCEPTION})


def _refuse_forbidden(answer: ClusterMetadata, topics: Sequence[str]) -> None:
    forbidden = sorted(
        each.name
        for each in answer.topics
        if each.error == ErrorCode.TOPIC_AUTHORIZATION_FAILED and each.name is not None and each.name in topics
    )
    if forbidden:
        raise AuthorizationError(
            f"no right to DESCRIBE topic {', '.join(forbidden)}", code=ErrorCode.TOPIC_AUTHORIZATION_FAILED
        )
