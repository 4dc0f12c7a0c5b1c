"""What a read of live data asks of a Kafka cluster, and the client that answers it.

Readers and planners know these two protocols and no connection, so that they can be driven by a simulated cluster.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from segreader.broker.connection import ClientMetrics
from segreader.broker.messages import (
    ClusterMetadata,
    CommittedOffset,
    EpochEnd,
    EpochWanted,
    FetchedPartition,
    FetchPartition,
    ListedOffset,
    OffsetWanted,
    TopicConfigs,
)
from segreader.broker.rules.fallback import RemoteReads
from segreader.isolation import IsolationLevel

if TYPE_CHECKING:
    from segreader.broker.client import BrokerClient

FETCH_BYTES = 8 << 20
"""Bytes of records to ask for at once."""


class Fetcher(Protocol):
    """Reads one partition in order. It follows replicas, leaders and truncation by itself; use it from one thread."""

    def poll(self) -> FetchedPartition:
        """The answer to one Fetch at the present position: records, a location, or neither yet.

        Raises:
            BrokerError, OffsetOutOfRangeError: it cannot be read, and why; TruncatedLogError: what was read is gone.
        """

    def advance(self, next_offset: int, leader_epoch: int) -> None:
        """Go on from another offset. ``leader_epoch`` is that of the record before it; -1 if it is not known."""

    def close(self) -> None:
        """Give back its connection."""


class Cluster(Protocol):
    """Brokers of one cluster. All calls are retried as Kafka's rules say, and raise ``BrokerError`` in the end."""

    shown: str
    """How people call it: its brokers."""
    metrics: ClientMetrics

    def metadata(self, topics: Collection[str] | None) -> ClusterMetadata:
        """Topics and leaders; every topic that this user may see for ``None``."""

    def list_offsets(self, wanted: Sequence[OffsetWanted], isolation_level: IsolationLevel) -> Sequence[ListedOffset]:
        """The offsets asked for, in that order. One that the broker is too old for has error 35."""

    def epoch_ends(self, wanted: Sequence[EpochWanted]) -> Sequence[EpochEnd]:
        """Where epochs end, in the order asked for."""

    def locate(
        self, wanted: Sequence[FetchPartition], isolation_level: IsolationLevel, *, most_segments: int
    ) -> Sequence[FetchedPartition]:
        """Locations of remote segments from some offsets on, of the partitions whose leaders give them at once."""

    def committed_offsets(self, group: str, topics: Mapping[str, Collection[int]] | None) -> Sequence[CommittedOffset]:
        """What a group has committed; every topic of it for ``None``."""

    def topic_configs(self, topics: Collection[str], names: Collection[str]) -> Sequence[TopicConfigs]:
        """Configuration values of topics."""

    def fetcher(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        isolation_level: IsolationLevel,
        topic_id: str | None = None,
        locations: RemoteReads | None = None,
        leader_epoch_of_position: int = -1,
        stop: int | None = None,
        max_bytes: int = FETCH_BYTES,
    ) -> Fetcher:
        """What reads a partition from an offset on.

        Args:
            locations: what is remembered of this partition's locations, to ask for them; ``None``: for records alone.
        """

    def close(self) -> None:
        """Close all connections."""


class KafkaCluster:
    """A cluster reached over the network.

    Args:
        bootstrap_servers: ``host:port``, several separated by commas.
        broker_options: settings by Kafka's names; see ``ClientSettings``.

    Raises:
        OptionError: an option is unknown.
    """

    def __init__(self, bootstrap_servers: str, broker_options: Mapping[str, object] | None = None) -> None:
        from segreader.broker.client import BrokerClient
        from segreader.broker.settings import ClientSettings

        self._settings = ClientSettings.from_options(broker_options or {})
        self.client: BrokerClient = BrokerClient(bootstrap_servers, self._settings)
        self.shown = bootstrap_servers
        self.metrics = self.client.metrics

    def metadata(self, topics: Collection[str] | None) -> ClusterMetadata:
        """As ``Cluster``."""
        return self.client.metadata(None if topics is None else list(topics))

    def list_offsets(self, wanted: Sequence[OffsetWanted], isolation_level: IsolationLevel) -> Sequence[ListedOffset]:
        """As ``Cluster``."""
        return self.client.list_offsets(list(wanted), isolation_level)

    def epoch_ends(self, wanted: Sequence[EpochWanted]) -> Sequence[EpochEnd]:
        """As ``Cluster``."""
        return self.client.epoch_ends(list(wanted))

    def locate(
        self, wanted: Sequence[FetchPartition], isolation_level: IsolationLevel, *, most_segments: int
    ) -> Sequence[FetchedPartition]:
        """As ``Cluster``."""
        return self.client.locate(wanted, isolation_level, most_segments=most_segments)

    def committed_offsets(self, group: str, topics: Mapping[str, Collection[int]] | None) -> Sequence[CommittedOffset]:
        """As ``Cluster``."""
        asked = None if topics is None else {topic: sorted(numbers) for topic, numbers in topics.items()}
        return self.client.committed_offsets(group, asked).offsets

    def topic_configs(self, topics: Collection[str], names: Collection[str]) -> Sequence[TopicConfigs]:
        """As ``Cluster``."""
        return self.client.topic_configs(list(topics), list(names))

    def fetcher(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        isolation_level: IsolationLevel,
        topic_id: str | None = None,
        locations: RemoteReads | None = None,
        leader_epoch_of_position: int = -1,
        stop: int | None = None,
        max_bytes: int = FETCH_BYTES,
    ) -> Fetcher:
        """As ``Cluster``."""
        from segreader.broker.partition_fetcher import PartitionFetcher

        return PartitionFetcher(
            self.client,
            topic,
            partition,
            offset,
            isolation_level=isolation_level,
            max_bytes=max_bytes,
            topic_id=topic_id,
            wants_locations=locations is not None,
            remote=locations,
            leader_epoch_of_position=leader_epoch_of_position,
            stop=stop,
        )

    def close(self) -> None:
        """As ``Cluster``."""
        self.client.close()
