"""Who leads a partition: asked, moved, taken away, and given to a replica that misses records."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kafka import TopicPartition
from kafka.errors import KafkaError
from kafka_kit.cluster import Cluster

_PREFERRED, _UNCLEAN = 0, 1
_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Led:
    """One partition as the controller has it; leader -1 where nobody can lead."""

    leader: int
    epoch: int
    replicas: tuple[int, ...]
    in_sync: frozenset[int]


class Leaders:
    """The leaders of a cluster's partitions.

    Args:
        cluster: whose node 1 is its only controller, and is neither frozen nor ended.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def of(self, topic: str, partition: int = 0) -> Led:
        """Who leads, and who is in sync."""
        (found,) = self._cluster.admin.describe_topics([topic])
        (one,) = [entry for entry in found["partitions"] if entry["partition_index"] == partition]
        return Led(one["leader_id"], one["leader_epoch"], tuple(one["replica_nodes"]), frozenset(one["isr_nodes"]))

    def wait_for(self, topic: str, is_so: Callable[[Led], bool], partition: int = 0) -> Led:
        """The partition once it is as wanted."""
        found: list[Led] = []

        def holds() -> bool:
            found.append(self.of(topic, partition))
            return is_so(found[-1])

        self._cluster.wait_until(holds, _SECONDS, f"{topic}-{partition} is not as wanted")
        return found[-1]

    def move(self, topic: str, to: int, partition: int = 0) -> Led:
        """Let another replica lead, as an operator does; returns when the controller has it so."""
        replicas = self.of(topic, partition).replicas
        order = [to, *(one for one in replicas if one != to)]
        if tuple(order) != replicas:
            self._reassign(topic, partition, order)
        return self._elect(topic, to, partition, _PREFERRED)

    def let_lag_lead(self, topic: str, lagging: int, partition: int = 0) -> Led:
        """An unclean election: a replica leads that is not in sync, as the leader is gone."""
        return self._elect(topic, lagging, partition, _UNCLEAN)

    def keep_on(self, topic: str, node: int) -> None:
        """Put all of a topic on one node: for topics of Kafka's own, that no other node's fate touches them."""
        self._cluster.wait_until(lambda: bool(self._cluster.partitions(topic)), _SECONDS, f"there is no {topic}")
        for one in self._cluster.partitions(topic):
            self._reassign(topic, one.partition, [node])

    @contextlib.contextmanager
    def frozen(self, *numbers: int) -> Iterator[None]:
        """Nodes that say nothing until the block ends; then they are in the cluster again."""
        for number in numbers:
            self._cluster.node(number).freeze()
        try:
            yield
        finally:
            for number in numbers:
                self._cluster.node(number).thaw()
            self._cluster.wait_ready(*numbers)

    def _elect(self, topic: str, to: int, partition: int, kind: int) -> Led:
        def holds() -> bool:
            if (led := self.of(topic, partition)).leader != to:
                self._cluster.admin.elect_leaders(kind, {topic: [partition]})
                led = self.of(topic, partition)
            return led.leader == to

        self._cluster.wait_until(holds, _SECONDS, f"node {to} does not lead {topic}-{partition}")
        return self.of(topic, partition)

    def _reassign(self, topic: str, partition: int, replicas: list[int]) -> None:
        where = TopicPartition(topic, partition)
        if refused := self._cluster.admin.alter_partition_reassignments({where: replicas})[where]:
            kind: type[KafkaError] = refused
            raise kind(f"{where} cannot be put on {replicas}")
        self.wait_for(topic, lambda led: led.replicas == tuple(replicas), partition)
