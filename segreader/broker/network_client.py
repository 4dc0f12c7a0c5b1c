"""Requests to a cluster: which broker, over which connection, how often, and what is known of leaders meanwhile.

The decisions are those of ``rules``. Several threads may use a client: each request has a connection of its own while
it lasts, and connections are kept for the next one.
"""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from types import TracebackType
from typing import Generic, Protocol, Self, TypeVar

from segreader.broker import api
from segreader.broker.connection import Call, ClientMetrics, Pending
from segreader.broker.connection_pool import NodeConnections, OpenConnection, Opener, parse_bootstrap
from segreader.broker.messages import ApiVersions, ClusterMetadata
from segreader.broker.protocol import ErrorCode, describe, name_of
from segreader.broker.rules.backoff import Backoff, BackoffPolicy, Deadline, Jitter
from segreader.broker.rules.fallback import ExtensionMemory
from segreader.broker.rules.leader import KnownCluster
from segreader.broker.rules.list_offsets import LatestTold
from segreader.broker.settings import ClientSettings
from segreader.errors import (
    AuthorizationError,
    BrokerError,
    ConnectionFailedError,
    ProtocolError,
    SegreaderError,
    shown_count,
)
from segreader.storage.retry import Clock
from segreader.values import dataclass

Answer = TypeVar("Answer")

_ROUNDS_BEFORE_FIRST_CONTACT = 3
_TRIES_OF_UNKNOWN_TOPICS = 4
_FINAL = frozenset({ErrorCode.INVALID_TOPIC_EXCEPTION})


class NetworkClient:
    """Sends requests to a cluster and keeps its metadata; use it as a context manager, or ``close`` it.

    Args:
        bootstrap_servers: ``host:port,host:port`` or a list of such; asked in turn until one answers.
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
        self._is_refreshing = False
        opener = Opener(self.settings, clock=self._clock, metrics=self.metrics, stopped=self._stopped)
        self.connections = NodeConnections(parse_bootstrap(bootstrap_servers), opener, self.cluster)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({','.join(map(str, self.connections.bootstrap))!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections, and end waits in other threads; a request under way there ends with its answer."""
        self._stopped.set()
        self.connections.close()

    def renew_login(self, settings: ClientSettings) -> None:
        """Log in by these settings from the next connection on; certificates are read anew. Open ones stay."""
        self.connections.opener.renew(settings)

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

        Before the first contact with the cluster a few rounds must do, so that a wrong address fails soon.
        """
        deadline = deadline or self.deadline()
        backoff = Backoff(self.jitter, self.backoff_policy)
        while True:
            try:
                lent = self.connections.lend_any(deadline)
                try:
                    return lent.connection.ask(lent.plan(make), deadline=deadline)
                finally:
                    self.connections.give_back(lent)
            except ConnectionFailedError:
                wait_ms = backoff.failed()
                is_hopeless = not self.cluster.nodes and backoff.failures >= _ROUNDS_BEFORE_FIRST_CONTACT
                if is_hopeless or self._stopped.is_set() or not deadline.allows(wait_ms, self.now_ms()):
                    raise
            self.wait(wait_ms)

    def refresh(self, topics: Sequence[str], deadline: Deadline) -> None:
        """Ask for the leaders of these topics, even if they are known.

        Raises:
            AuthorizationError: a topic may not be described (any more).
        """
        refuse_forbidden(self.ask_metadata(sorted(set(topics)), deadline), topics)

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
        """Have metadata asked for by the next ``refresh_beside``."""
        with self._lock:
            self._wanted.add(topic)

    def refresh_beside(self, topic: str) -> None:
        """Ask for metadata in a thread of its own, if that is wanted or what is known is too old; nothing waits for it.

        Call it with a request of your own under way: connections that are idle are used.
        """
        with self._lock:
            now_ms = self.now_ms()
            if now_ms - self._told_at_ms.get(topic, now_ms) > self.settings.metadata_max_age_ms:
                self._wanted.add(topic)
                self._told_at_ms[topic] = now_ms
            if not self._wanted or self._is_refreshing:
                return
            self._is_refreshing = True
        threading.Thread(target=self._refresh_wanted, name="segreader-metadata", daemon=True).start()

    def _refresh_wanted(self) -> None:
        while True:
            with self._lock:
                topics = sorted(self._wanted)
                self._wanted.clear()
                if not topics or self._stopped.is_set():
                    self._is_refreshing = False
                    return
            # What is known is good enough to read on; where it is not, the read asks again, and raises.
            with contextlib.suppress(SegreaderError):
                self.ask_metadata(topics, self.deadline())

    def require_topics(self, topics: Sequence[str], deadline: Deadline) -> None:
        """Have the partitions of these topics in ``cluster``, not older than allowed.

        Raises:
            AuthorizationError: one may not be described.
            BrokerError: one is not there, also after some tries: brokers hear of a new topic one after another.
        """
        backoff = Backoff(self.jitter, self.backoff_policy)
        error = 0
        while missing := [each for each in dict.fromkeys(topics) if not self._is_known(each)]:
            with naming(error):
                answer = self.ask_metadata(missing, deadline)
            refuse_forbidden(answer, missing)
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

    def ask_metadata(self, topics: Sequence[str] | None, deadline: Deadline) -> ClusterMetadata:
        """A broker's metadata of topics and brokers, merged into ``cluster``; ``None``: of every topic."""
        answer = self.ask_any(lambda offered: api.metadata(self.settings, offered, topics), deadline=deadline)
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
        answer = self.ask_any(lambda offered: api.metadata(self.settings, offered, topics), deadline=deadline)
        with self._lock:
            change = self.cluster.merge(answer)
        if change.rebootstrap:
            raise BrokerError(
                "the bootstrap servers send us back to the bootstrap servers",
                code=ErrorCode.REBOOTSTRAP_REQUIRED,
            )
        return answer


@contextlib.contextmanager
def naming(error: int | None) -> Iterator[None]:
    """Let a failure of a connection name the Kafka error that led to this work, 0 or ``None`` if there was none."""
    try:
        yield
    except ConnectionFailedError as failure:
        name_cause(failure, error)
        raise


def name_cause(failure: ConnectionFailedError, error: int | None) -> ConnectionFailedError:
    """The failure with the Kafka error of the last answer before it, 0 or ``None`` if there was none."""
    if not error:
        return failure
    return failure.located(code=error, found=f"{describe(error)} in the last answer before")


def refuse_forbidden(answer: ClusterMetadata, topics: Sequence[str]) -> None:
    """Raise if one of these topics may not be described.

    Raises:
        AuthorizationError: it names all of them.
    """
    forbidden = sorted(
        each.name
        for each in answer.topics
        if each.error == ErrorCode.TOPIC_AUTHORIZATION_FAILED and each.name is not None and each.name in topics
    )
    if forbidden:
        raise AuthorizationError(
            f"no right to DESCRIBE topic {', '.join(forbidden)}", code=ErrorCode.TOPIC_AUTHORIZATION_FAILED
        )


class _AboutPartition(Protocol):
    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...


Wanted = TypeVar("Wanted", bound=_AboutPartition)
Told = TypeVar("Told", bound=_AboutPartition)


@dataclass(frozen=True, slots=True)
class Reply(Generic[Wanted, Told]):
    """A leader's response to one request: ``told`` is ``None`` if none could be asked or its connection failed.

    Args:
        error: why none could be asked, as metadata has it.
    """

    wanted: Wanted
    told: Told | None
    version: int = -1
    failure: ConnectionFailedError | None = None
    error: int = ErrorCode.NONE


@dataclass(slots=True)
class _Sent(Generic[Wanted, Answer]):
    lent: OpenConnection
    requests: list[tuple[tuple[Wanted, ...], Pending[Answer]]]


def ask_leaders(
    client: NetworkClient,
    rounds: Sequence[Sequence[Wanted]],
    make: Callable[[ApiVersions, Sequence[Wanted]], Call[Sequence[Told]]],
    deadline: Deadline,
) -> Iterator[Reply[Wanted, Told]]:
    """Each question with its leader's answer; all requests are sent before the first answer is read.

    Args:
        rounds: questions, each partition once in each.
        make: the request for some questions, read as one answer for each.

    Raises:
        AuthenticationError, UnsupportedVersionError: a leader refuses us or is too old.
        ProtocolError: an answer lacks a partition, or has one that was not asked about.
    """
    by_leader: dict[int, list[list[Wanted]]] = {}
    for number, each_round in enumerate(rounds):
        for each in each_round:
            leader_id = client.cluster.leader(each.topic, each.partition).leader_id
            if leader_id < 0:
                yield Reply(each, None, error=ErrorCode.LEADER_NOT_AVAILABLE)
                continue
            requests = by_leader.setdefault(leader_id, [])
            requests.extend([] for _ in range(number + 1 - len(requests)))
            requests[number].append(each)
    sent: list[_Sent[Wanted, Sequence[Told]]] = []
    try:
        for leader_id, requests in by_leader.items():
            asked = [tuple(each) for each in requests if each]
            try:
                lent = client.connections.lend(leader_id, deadline)
            except ConnectionFailedError as error:
                yield from [Reply(each, None, failure=error) for some in asked for each in some]
                continue
            of_leader: _Sent[Wanted, Sequence[Told]] = _Sent(lent, [])
            sent.append(of_leader)
            for some in asked:
                call = lent.plan(partial(_about, make, some))
                try:
                    of_leader.requests.append((some, lent.connection.send(call, deadline=deadline)))
                except ConnectionFailedError as error:
                    yield from [Reply(each, None, failure=error) for each in some]
        for of_leader in sent:
            for some, pending in of_leader.requests:
                try:
                    told = of_leader.lent.connection.receive(pending, deadline=deadline)
                except ConnectionFailedError as error:
                    yield from [Reply(each, None, failure=error) for each in some]
                    continue
                yield from _matched(some, told, pending.call, of_leader.lent)
    finally:
        for of_leader in sent:
            client.connections.give_back(of_leader.lent)


def _about(
    make: Callable[[ApiVersions, Sequence[Wanted]], Call[Sequence[Told]]], some: Sequence[Wanted], offered: ApiVersions
) -> Call[Sequence[Told]]:
    return make(offered, some)


def _matched(
    asked: Sequence[Wanted], told: Sequence[Told], call: Call[Sequence[Told]], lent: OpenConnection
) -> Iterator[Reply[Wanted, Told]]:
    by_place = {(each.topic, each.partition): each for each in told}
    wanted = {(each.topic, each.partition) for each in asked}
    if len(by_place) != len(told) or by_place.keys() != wanted:
        lent.connection.close()
        raise ProtocolError(
            f"the answer to {call} is not about the partitions that were asked about",
            source=str(lent.address),
            found=f"{shown_count(len(told), 'partition')}, {len(wanted & by_place.keys())} of them asked about",
            expected=len(wanted),
        )
    yield from (Reply(each, by_place[each.topic, each.partition], call.version) for each in asked)
