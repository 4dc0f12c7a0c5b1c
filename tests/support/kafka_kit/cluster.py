"""A Kafka cluster on loopback with tiered storage, and what is asked of it: topics, and that all of them is uploaded.

The remote tier is the directory ``remote``, as ``LocalTieredStorage`` lays it out. One node is about 400 MB.
"""

from __future__ import annotations

import base64
import contextlib
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import KafkaError
from kafka.protocol.consumer import IsolationLevel, OffsetSpec
from kafka_kit.jars import BROKER, fetch_jars
from kafka_kit.node import SMALL_JVM, Node, NodeConfig, java_command
from servers.process import free_port

_START_S = 90.0
_TIER_S = 120.0
_CONFIG_S = 30.0
_KNOWN_S = 30.0
_KEEP_LOCAL = {"local.retention.ms": "-2"}
_DROP_LOCAL = {"local.retention.ms": "1"}
TIERED = {"remote.storage.enable": "true", "retention.ms": "-1", **_KEEP_LOCAL}
"""Of a topic whose closed segments are uploaded and whose last one is not, however old: see ``Cluster.upload``."""


@dataclass(frozen=True, slots=True)
class LogOffsets:
    """What the broker says of one partition. Source: KIP-405, KIP-1005.

    Args:
        earliest: first offset, wherever it lies.
        latest: next offset to be written.
        earliest_local: first offset on the broker's own disk.
        latest_tiered: last offset in the remote tier; -1 for none.
    """

    earliest: int
    latest: int
    earliest_local: int
    latest_tiered: int

    @property
    def is_uploaded(self) -> bool:
        """Whether nothing is left on the broker's disk alone."""
        return self.latest_tiered + 1 == self.latest == self.earliest_local


class Cluster:
    """Nodes that share a remote tier.

    Args:
        nodes: of the cluster; they run.
        remote: the directory of ``LocalTieredStorage``.
        jars: what they were started from.
    """

    def __init__(self, nodes: Sequence[Node], remote: Path, jars: Path) -> None:
        self.nodes = tuple(nodes)
        self.remote = remote
        self._jars = jars
        self._admin: KafkaAdminClient | None = None

    @property
    def bootstrap(self) -> str:
        """What clients call ``bootstrap.servers``."""
        return ",".join(f"127.0.0.1:{node.config.port}" for node in self.nodes)

    def bootstrap_by(self, listener: str) -> str:
        """The same for clients that come by another listener, ``SASL_SSL``."""
        return ",".join(f"127.0.0.1:{node.config.listeners[listener]}" for node in self.nodes)

    def node(self, number: int) -> Node:
        """The node of that number."""
        return self.nodes[number - 1]

    @property
    def location(self) -> str:
        """What segreader calls ``location``."""
        return str(self.remote / "kafka-tiered-storage")

    @property
    def admin(self) -> KafkaAdminClient:
        """A client for the life of the cluster; but for offsets it asks node 1 alone, for others may be frozen."""
        if self._admin is None:
            self._admin = KafkaAdminClient(
                bootstrap_servers=self.bootstrap.split(",")[:1], reconnect_backoff_max_ms=500
            )
            self._admin._controller_id = 1
            self._admin._manager.least_loaded_node = lambda: 1
        return self._admin

    def each_asked(self) -> Iterator[KafkaAdminClient]:
        """The same client for each node, while that node is asked in place of node 1."""
        manager = self.admin._manager
        for node in self.nodes:
            manager.least_loaded_node = lambda number=node.config.node_id: number
            try:
                yield self.admin
            finally:
                manager.least_loaded_node = lambda: 1

    def create_topic(
        self,
        topic: str,
        partitions: int = 1,
        *,
        replicas: int | Sequence[Sequence[int]] = 1,
        segment_bytes: int = 1 << 20,
        **configs: str | int,
    ) -> None:
        """Make a tiered topic; returns when all nodes know it. ``max_message_bytes`` is ``max.message.bytes``.

        Args:
            replicas: how many nodes have each partition; or which ones, for each partition, the first one to lead it.
            segment_bytes: where a segment ends; below 1 MiB Kafka 4 wants another name for it, which is used here.
        """
        given = {name.replace("_", "."): str(value) for name, value in configs.items()}
        settings = TIERED | {"internal.segment.bytes": str(segment_bytes)} | given
        if isinstance(replicas, int):
            wanted: dict[str, object] = {"num_partitions": partitions, "replication_factor": replicas}
        else:
            wanted = {"assignments": dict(enumerate(map(list, replicas)))}
        self.admin.create_topics({topic: wanted | {"configs": settings}}, wait_for_metadata=True)
        self.wait_known(topic, partitions if isinstance(replicas, int) else len(replicas))

    def wait_known(self, topic: str, partitions: int) -> None:
        """Return when every node knows that the topic has so many partitions: clients may ask any of them."""
        self.wait_until(partial(self._is_known, topic, partitions), _KNOWN_S, f"not all nodes know {topic}")

    def configure(self, topic: str, configs: Mapping[str, str]) -> None:
        """Change configs of a topic, by Kafka's names; returns when a broker goes by them."""
        self.admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, dict(configs))])
        self.wait_until(partial(self._has_configs, topic, configs), _CONFIG_S, f"{topic} has not taken {configs}")

    def partitions(self, topic: str) -> list[TopicPartition]:
        """The topic's partitions, in order."""
        (found,) = self.admin.describe_topics([topic])
        return [TopicPartition(topic, number) for number in range(len(found["partitions"]))]

    def offsets(self, topic: str) -> dict[int, LogOffsets]:
        """What lies where, for each partition."""
        partitions = self.partitions(topic)
        specs = (OffsetSpec.EARLIEST, OffsetSpec.LATEST, OffsetSpec.EARLIEST_LOCAL, OffsetSpec.LATEST_TIERED)
        answers = [self.admin.list_partition_offsets(dict.fromkeys(partitions, spec)) for spec in specs]
        return {one.partition: LogOffsets(*(answer[one].offset for answer in answers)) for one in partitions}

    def upload(self, *topics: str) -> None:
        """Return when all that was written to the topics is in the remote tier, and nowhere else.

        The last segment is closed, too: a broker does so as soon as its newest record is older than the local
        retention. Afterwards segments are closed by size again.

        Raises:
            TimeoutError: the broker does not upload all of it; an open transaction holds uploads up.
        """
        for topic in topics:
            self.configure(topic, _DROP_LOCAL)
        for topic in topics:
            self.wait_until(partial(self._is_uploaded, topic), _TIER_S, f"{topic} is not uploaded")
            self.configure(topic, _KEEP_LOCAL)

    def upload_closed(self, topic: str) -> None:
        """Return when all that can be is in the remote tier alone: closed segments below the first open transaction.

        Raises:
            TimeoutError: the broker does not upload so much.
        """
        self.configure(topic, {"local.retention.bytes": "1"})
        self.wait_until(partial(self._has_last_segments_only, topic), _TIER_S, f"{topic} is not uploaded")

    def settle(self, topic: str) -> None:
        """Return when no transaction is open in the topic: the markers of one may come a moment after its commit.

        Raises:
            TimeoutError: one stays open.
        """
        self.wait_until(partial(self._is_stable, topic), _TIER_S, f"{topic} has an open transaction")

    def tool(self, main: str, *arguments: str) -> str:
        """What one of Kafka's own programs prints, ``org.apache.kafka.tools.…``."""
        done = subprocess.run(
            java_command(self._jars, SMALL_JVM, main, *arguments), capture_output=True, text=True, timeout=120
        )
        if done.returncode:
            raise RuntimeError(f"{main} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done.stdout

    def wait_ready(self, *numbers: int) -> None:
        """Return when every node takes part in the cluster, or the nodes of these numbers do; all of them were started.

        Raises:
            RuntimeError: a node ended; with the end of its log.
            TimeoutError: a node does not answer.
        """
        self.wait_until(self._answers, _START_S, "a node does not listen")
        wanted = set(numbers or (node.config.node_id for node in self.nodes))
        self.wait_until(lambda: wanted <= self._active(), _START_S, "the cluster is not complete")

    def close(self) -> None:
        """End all of it. What is in the remote tier is complete; nobody starts these nodes again."""
        if self._admin is not None:
            self._admin.close()
        for node in self.nodes:
            node.kill()

    def _answers(self) -> bool:
        for node in self.nodes:
            if node.pid is None:
                raise RuntimeError(f"node {node.config.node_id} ended:\n{node.tail()}")
        return all(node.listens() for node in self.nodes)

    def _active(self) -> set[int]:
        """The nodes that may lead and have replicas: one that has just come (again) is known before, but fenced."""
        brokers = self.admin.describe_cluster()["brokers"]
        return {one["broker_id"] for one in brokers if not one["is_fenced"]}

    def _is_known(self, topic: str, partitions: int) -> bool:
        told = [admin.describe_topics([topic]) for admin in self.each_asked()]
        return all(len(found["partitions"]) == partitions for (found,) in told)

    def _has_configs(self, topic: str, configs: Mapping[str, str]) -> bool:
        asked = ConfigResource(ConfigResourceType.TOPIC, topic, dict(configs))
        found = self.admin.describe_configs([asked], config_filter="all")["topic"][topic]
        return all(found[name]["value"] == value for name, value in configs.items())

    def _has_last_segments_only(self, topic: str) -> bool:
        (found,) = self.admin.describe_topics([topic])
        leaders = {one["partition_index"]: one["leader_id"] for one in found["partitions"]}
        latest = dict.fromkeys(self.partitions(topic), OffsetSpec.LATEST)
        stable = self.admin.list_partition_offsets(latest, isolation_level=IsolationLevel.READ_COMMITTED)
        for where, end in stable.items():
            offsets = self.offsets(topic)[where.partition]
            log = self.node(leaders[where.partition]).config.directory / "data" / f"{topic}-{where.partition}"
            first, *later = sorted(int(file.stem) for file in log.glob("*.log"))
            if (later and later[0] <= end.offset) or not first == offsets.earliest_local == offsets.latest_tiered + 1:
                return False
        return True

    def _is_stable(self, topic: str) -> bool:
        latest = dict.fromkeys(self.partitions(topic), OffsetSpec.LATEST)
        ends = self.admin.list_partition_offsets(latest)
        stable = self.admin.list_partition_offsets(latest, isolation_level=IsolationLevel.READ_COMMITTED)
        return all(stable[where].offset == end.offset for where, end in ends.items())

    def _is_uploaded(self, topic: str) -> bool:
        return all(offsets.is_uploaded for offsets in self.offsets(topic).values())

    def wait_until(self, is_so: Callable[[], bool], seconds: float, what: str) -> None:
        """Return once something is so; what Kafka refuses meanwhile is asked again.

        Raises:
            TimeoutError: it is not so; with the end of the nodes' logs.
        """
        until = time.monotonic() + seconds
        last: Exception | None = None
        while time.monotonic() < until:
            try:
                if is_so():
                    return
            except KafkaError as error:
                last = error
            time.sleep(0.1)
        logs = "\n".join(node.tail() for node in self.nodes)
        raise TimeoutError(f"{what} after {seconds:g} s ({last}):\n{logs}")


@contextlib.contextmanager
def cluster(
    directory: Path,
    nodes: int = 1,
    *,
    controllers: int | None = None,
    replication: int | None = None,
    listeners: Sequence[str] = (),
    settings: Mapping[str, str] | None = None,
    node_settings: Mapping[int, Mapping[str, str]] | None = None,
    jvm: Sequence[str] = SMALL_JVM,
) -> Iterator[Cluster]:
    """A cluster that runs until the block ends.

    Args:
        directory: for logs, data and the remote tier.
        nodes: how many brokers.
        controllers: how many of them, the first ones, are controllers, too; by default all.
        replication: of the topics that Kafka keeps for itself; by default all nodes have them.
        listeners: security protocols of other listeners besides ``PLAINTEXT``.
        settings: properties of all nodes.
        node_settings: properties of single nodes by their numbers, ``{1: {"broker.rack": "a"}}``.
        jvm: options of their Java.

    Raises:
        NotAvailableError: the programs cannot be had on this machine.
    """
    jars = fetch_jars(BROKER)
    doors = [{name: free_port() for name in ("PLAINTEXT", *listeners)} for _ in range(nodes)]
    votes = [free_port() for _ in range(nodes)]
    voters = ",".join(f"{number}@127.0.0.1:{port}" for number, port in enumerate(votes[:controllers], 1))
    cluster_id = base64.urlsafe_b64encode(b"\0" + uuid.uuid4().bytes[1:]).decode().rstrip("=")
    remote = directory / "remote"
    remote.mkdir(parents=True)
    members = [
        Node(
            NodeConfig(
                node_id=number,
                directory=directory / f"node-{number}",
                port=door.pop("PLAINTEXT"),
                controller_port=vote,
                voters=voters,
                cluster_id=cluster_id,
                remote=remote,
                replication=replication or nodes,
                listeners=door,
                settings={**(settings or {}), **(node_settings or {}).get(number, {})},
            ),
            jars,
            jvm,
        )
        for number, (door, vote) in enumerate(zip(doors, votes, strict=True), 1)
    ]
    running = Cluster(members, remote, jars)
    try:
        first, *others = members
        first.format()
        for node in others:
            node.format_like(first)
        for node in members:
            node.start()
        running.wait_ready()
        yield running
    finally:
        running.close()
