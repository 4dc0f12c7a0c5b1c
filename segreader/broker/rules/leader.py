"""Who leads a partition, and where to go when a broker says that it does not any more (KIP-951).

Knowledge comes from Metadata, and from Fetch and Produce answers that name the new leader. A leader's epoch never goes
back while the topic is the same one. Source: KIP-951, KIP-320, KIP-516; Kafka 4.3 ``Metadata``; the short wait for a
leader that has not heard of its election is this project's own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import field, replace
from enum import Enum, auto
from threading import Lock
from typing import Final

from segreader.broker.messages import (
    ClusterMetadata,
    LeaderAndEpoch,
    Node,
    PartitionMetadata,
    TopicMetadata,
)
from segreader.broker.protocol import ErrorCode
from segreader.broker.rules.backoff import HINTED_LEADER, Backoff, Jitter
from segreader.errors import BrokerError
from segreader.values import dataclass

HINTS_AT_ONCE: Final = 5
"""How many named leaders in a row are asked without a wait; after more redirections the client waits."""


@dataclass(frozen=True, slots=True)
class TopicReplaced:
    """A topic was deleted and made again: reads of the old id end with an error."""

    topic: str
    old_id: str
    new_id: str


@dataclass(frozen=True, slots=True)
class MetadataChange:
    """What an answer of Metadata changed.

    Args:
        moved: (topic, partition) whose leader or epoch is another one now.
        replaced: topics with a new id.
        errors: topic -> error of those that were asked for and cannot be described.
        rebootstrap: the broker wants every address to be forgotten: start again from the bootstrap list.
    """

    moved: frozenset[tuple[str, int]] = frozenset()
    replaced: tuple[TopicReplaced, ...] = ()
    errors: Mapping[str, int] = field(default_factory=dict)
    rebootstrap: bool = False


class Hint(Enum):
    """What became of a leader that an answer named."""

    TAKEN = auto()
    ABSENT = auto()
    STALE = auto()
    UNKNOWN_NODE = auto()
    UNKNOWN_PARTITION = auto()


class KnownCluster:
    """Brokers, topics and leaders, as far as this client knows them from any broker.

    Shared by everything that a client does, in any thread: it changes only through ``merge`` and
    ``take_hint``, one after another, and what it gives out never changes.
    """

    __slots__ = ("_lock", "_nodes", "_partitions", "_topic_ids", "cluster_id")

    def __init__(self) -> None:
        self._lock = Lock()
        self._nodes: dict[int, Node] = {}
        self._topic_ids: dict[str, str | None] = {}
        self._partitions: dict[str, dict[int, PartitionMetadata]] = {}
        self.cluster_id: str | None = None

    @property
    def nodes(self) -> Mapping[int, Node]:
        """Broker id -> where it listens."""
        return self._nodes

    def topic_id(self, topic: str) -> str | None:
        """The topic's id, ``None`` where it is not known or brokers are too old to have one."""
        return self._topic_ids.get(topic)

    def partitions(self, topic: str) -> tuple[PartitionMetadata, ...]:
        """The topic's partitions by number; empty if it is not known."""
        return tuple(each for _, each in sorted(self._partitions.get(topic, {}).items()))

    def partition(self, topic: str, partition: int) -> PartitionMetadata | None:
        """One partition with its leader, replicas and offline replicas; ``None`` if it is not known."""
        return self._partitions.get(topic, {}).get(partition)

    def leader(self, topic: str, partition: int) -> LeaderAndEpoch:
        """Who leads; ids are -1 where that is not known."""
        known = self.partition(topic, partition)
        return known.leader if known is not None else LeaderAndEpoch()

    def require_same_topic(self, topic: str, topic_id: str | None) -> None:
        """Nothing, while ``topic`` is the one that a read began with.

        Raises:
            BrokerError: the topic was deleted and made again, so its offsets are others.
        """
        now = self.topic_id(topic)
        if topic_id is not None and now is not None and now != topic_id:
            raise BrokerError(
                f"topic {topic} was deleted and made again while it was read",
                code=ErrorCode.INCONSISTENT_TOPIC_ID,
                found=f"topic id {now}",
                expected=topic_id,
            )

    def merge(self, answer: ClusterMetadata) -> MetadataChange:
        """Take an answer of Metadata, and tell what it changed.

        Its brokers replace those known; a known leader that it does not list stays if its partition does. A partition
        with a lower epoch than is known, of the same topic id, is older news and stays out. One with an error or
        without an epoch makes the epoch unknown.
        """
        with self._lock:
            return self._merged(answer)

    def _merged(self, answer: ClusterMetadata) -> MetadataChange:
        if answer.error == ErrorCode.REBOOTSTRAP_REQUIRED:
            self._nodes, self._partitions = {}, {}
            return MetadataChange(rebootstrap=True)
        moved: set[tuple[str, int]] = set()
        replaced: list[TopicReplaced] = []
        errors: dict[str, int] = {}
        for topic in answer.topics:
            if topic.name is None:
                continue
            if topic.error != ErrorCode.NONE:
                errors[topic.name] = topic.error
                moved.update((topic.name, number) for number in self._partitions.pop(topic.name, {}))
                continue
            if (change := self._replaced(topic.name, topic)) is not None:
                replaced.append(change)
                self._partitions.pop(topic.name, None)
            moved.update((topic.name, number) for number in self._merge_partitions(topic.name, topic.partitions))
            if topic.topic_id is not None:
                self._topic_ids[topic.name] = topic.topic_id
        self._replace_nodes(answer.nodes)
        self.cluster_id = answer.cluster_id or self.cluster_id
        return MetadataChange(frozenset(moved), tuple(replaced), errors)

    def take_hint(
        self, topic: str, partition: int, hint: LeaderAndEpoch | None, nodes: Iterable[Node], *, topic_id: str | None
    ) -> Hint:
        """Take the leader that an answer with error 6 or 74 names, if it is newer than what is known.

        Args:
            hint: CurrentLeader of the partition.
            nodes: NodeEndpoints of the answer; the one of that leader replaces a known address.
            topic_id: of the request; a hint for another topic of that name does not count.
        """
        if hint is None or hint.leader_id < 0 or hint.leader_epoch < 0:
            return Hint.ABSENT
        with self._lock:
            return self._take(topic, partition, hint, nodes, topic_id)

    def _take(
        self, topic: str, partition: int, hint: LeaderAndEpoch, nodes: Iterable[Node], topic_id: str | None
    ) -> Hint:
        if hint.leader_epoch <= self.leader(topic, partition).leader_epoch:
            return Hint.STALE
        told = {node.node_id: node for node in nodes}
        node = told.get(hint.leader_id, self._nodes.get(hint.leader_id))
        if node is None:
            return Hint.UNKNOWN_NODE
        known = self.partition(topic, partition)
        if known is None or (topic_id is not None and self.topic_id(topic) not in (None, topic_id)):
            return Hint.UNKNOWN_PARTITION
        self._nodes = {**self._nodes, node.node_id: node}
        self._partitions[topic] = {**self._partitions[topic], partition: replace(known, leader=hint, error=0)}
        return Hint.TAKEN

    def _replaced(self, name: str, topic: TopicMetadata) -> TopicReplaced | None:
        known = self._topic_ids.get(name)
        if known is None or topic.topic_id is None or topic.topic_id == known:
            return None
        return TopicReplaced(name, known, topic.topic_id)

    def _merge_partitions(self, topic: str, told: Collection[PartitionMetadata]) -> set[int]:
        known = self._partitions.get(topic, {})
        merged = {each.partition: _newer(known.get(each.partition), each) for each in told}
        self._partitions[topic] = merged
        before = {number: each.leader for number, each in known.items()}
        after = {number: each.leader for number, each in merged.items()}
        return {number for number in before.keys() | after.keys() if before.get(number) != after.get(number)}

    def _replace_nodes(self, told: Collection[Node]) -> None:
        if not told:  # a broker that starts may list none; what is known is better than nothing
            return
        leaders = {each.leader.leader_id for parts in self._partitions.values() for each in parts.values()}
        kept = {node_id: node for node_id, node in self._nodes.items() if node_id in leaders}
        self._nodes = kept | {node.node_id: node for node in told}


def _newer(known: PartitionMetadata | None, told: PartitionMetadata) -> PartitionMetadata:
    if told.error != ErrorCode.NONE or told.leader.leader_epoch < 0:
        return replace(told, leader=LeaderAndEpoch(told.leader.leader_id))
    if known is not None and told.leader.leader_epoch < known.leader.leader_epoch:
        return known
    return told


class LeaderStep(Enum):
    """What to do when a broker refused to answer for a partition."""

    ASK_NEW_LEADER = auto()
    """The named leader was taken over: tell ``leader_changed`` to the replica and position rules, ask it after
    ``wait_ms`` (mostly 0), and ask for Metadata in the background."""
    ASK_AGAIN_THERE = auto()
    """The same broker, after ``wait_ms``, without Metadata."""
    REFRESH_METADATA = auto()
    """Refresh, wait ``wait_ms``, ask the leader in the metadata."""
    STOP = auto()
    """The partition is no longer in our metadata: its reader has gone."""


@dataclass(frozen=True, slots=True)
class LeaderDecision:
    """What to do, how long to wait before, and what became of the leader that the answer named."""

    step: LeaderStep
    wait_ms: int = 0
    hint: Hint = Hint.ABSENT


class LeaderFinder:
    """Decides for one partition what errors 6, 74 and 75 ask for.

    Give it every such answer, of any API; tell ``answered`` when a broker answered without one of them.

    Args:
        cluster: what the client knows; a hint that counts is written there.
        topic_id: the one that the read began with.
    """

    __slots__ = ("_at_once", "_backoff", "_cluster", "_hinted", "_hinted_backoff", "_partition", "_refused_epoch",
                 "_topic", "_topic_id")  # fmt: skip

    def __init__(
        self, cluster: KnownCluster, topic: str, partition: int, *, jitter: Jitter, topic_id: str | None = None
    ) -> None:
        self._cluster = cluster
        self._topic = topic
        self._partition = partition
        self._topic_id = topic_id
        self._backoff = Backoff(jitter)
        self._hinted_backoff = Backoff(jitter, HINTED_LEADER)
        self._hinted: LeaderAndEpoch | None = None
        self._refused_epoch: int | None = None
        self._at_once = 0

    def refused(
        self, error: int, *, by: int, sent_epoch: int, hint: LeaderAndEpoch | None = None, nodes: Iterable[Node] = ()
    ) -> LeaderDecision:
        """Decide about error 6, 74 or 75 of the partition.

        Args:
            by: the broker that answered.
            sent_epoch: the CurrentLeaderEpoch of the request.
            hint: CurrentLeader of the answer; ListOffsets and OffsetForLeaderEpoch have none.
            nodes: NodeEndpoints of the answer.

        Raises:
            ValueError: the error is another one.
        """
        if error == ErrorCode.UNKNOWN_LEADER_EPOCH:
            is_hinted = self._hinted == LeaderAndEpoch(by, sent_epoch)
            wait_ms = (self._hinted_backoff if is_hinted else self._backoff).failed()
            return LeaderDecision(LeaderStep.ASK_AGAIN_THERE, wait_ms)
        if error not in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH):
            raise ValueError(f"error {error} says nothing of leaders")
        taken = self._cluster.take_hint(self._topic, self._partition, hint, nodes, topic_id=self._topic_id)
        if taken is Hint.UNKNOWN_PARTITION:
            return LeaderDecision(LeaderStep.STOP, hint=taken)
        if taken is not Hint.TAKEN:
            return LeaderDecision(LeaderStep.REFRESH_METADATA, self._backoff.failed(), taken)
        self._hinted = hint
        self._hinted_backoff.succeeded()
        is_first = sent_epoch != self._refused_epoch and self._at_once < HINTS_AT_ONCE
        self._refused_epoch = sent_epoch
        self._at_once += 1
        return LeaderDecision(LeaderStep.ASK_NEW_LEADER, 0 if is_first else self._backoff.failed(), taken)

    def answered(self) -> None:
        """A broker answered for the partition: the next refusal is the first one again."""
        self._hinted = None
        self._refused_epoch = None
        self._at_once = 0
        self._backoff.succeeded()
        self._hinted_backoff.succeeded()
