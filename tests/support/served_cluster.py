"""A fake cluster behind a socket on loopback, so that clients in other processes can ask it: Spark's workers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from fake_broker import FakeBroker, FakeKafka, Heard, Reply, topic_uuid
from fake_cluster import FakeCluster, FakeFetcher, ServedLog, ServedSegment, served

from segreader.broker.messages import EpochWanted, FetchAnswer, FetchedPartition, LeaderAndEpoch, OffsetWanted
from segreader.broker.primitives import uuid_text
from segreader.errors import BrokerError, OffsetOutOfRangeError
from segreader.isolation import IsolationLevel
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import kafka_uuid, write_local_tiered

_LEVELS = (IsolationLevel.READ_UNCOMMITTED, IsolationLevel.READ_COMMITTED)


class ServedCluster:
    """One broker that answers as the fake cluster does.

    Args:
        cluster: its logs may change while it is served.
    """

    def __init__(self, cluster: FakeCluster, broker: FakeBroker) -> None:
        self.cluster, self.broker = cluster, broker
        self._kafka = FakeKafka([broker])
        self.errors = self._kafka.errors
        broker.handlers["Metadata"] = self._metadata
        broker.handlers["ListOffsets"] = self._list_offsets
        broker.handlers["OffsetForLeaderEpoch"] = self._epoch_ends
        broker.handlers["Fetch"] = self._fetch

    def require(self, user: str, password: str) -> None:
        """Take no client that does not name this user by PLAIN; a refusal quotes nothing."""
        right = f"\0{user}\0{password}".encode()
        self.broker.handlers["SaslHandshake"] = lambda heard: {"error_code": 0, "mechanisms": ["PLAIN"]}
        self.broker.handlers["SaslAuthenticate"] = lambda heard: {
            "error_code": 0 if heard.message.auth_bytes == right else 58,
            "error_message": None if heard.message.auth_bytes == right else "Authentication failed",
            "auth_bytes": b"",
            "session_lifetime_ms": 0,
        }

    @property
    def bootstrap(self) -> str:
        """Where it listens."""
        return self.broker.address

    def asked(self, api: str) -> int:
        """How many requests of an API it got."""
        return len(self.broker.asked(api))

    def _metadata(self, heard: Heard) -> Reply:
        logs = self.cluster.logs
        self._kafka.topics = {topic: self.cluster.topic_ids.get(topic, kafka_uuid(topic)) for topic in logs}
        self._kafka.leaders = {
            (topic, number): LeaderAndEpoch(self.broker.node_id, log.lineage[-1][0])
            for topic, partitions in logs.items()
            for number, log in partitions.items()
        }
        return self._kafka.metadata(heard)

    def _list_offsets(self, heard: Heard) -> Reply:
        level = _LEVELS[heard.message.isolation_level]
        topics = []
        for topic in heard.message.topics:
            wanted = [OffsetWanted(topic.name, one.partition_index, one.timestamp) for one in topic.partitions]
            partitions = [
                {
                    "partition_index": one.partition,
                    "error_code": one.error,
                    "offset": one.offset,
                    "timestamp": one.timestamp_ms,
                    "leader_epoch": one.leader_epoch,
                }
                for one in self.cluster.list_offsets(wanted, level)
            ]
            topics.append({"name": topic.name, "partitions": partitions})
        return {"topics": topics}

    def _epoch_ends(self, heard: Heard) -> Reply:
        topics: list[dict[str, Any]] = []
        for topic in heard.message.topics:
            wanted = [EpochWanted(topic.topic, one.partition, one.leader_epoch) for one in topic.partitions]
            partitions = [
                {
                    "error_code": one.error,
                    "partition": one.partition,
                    "leader_epoch": one.leader_epoch,
                    "end_offset": one.end_offset,
                }
                for one in self.cluster.epoch_ends(wanted)
            ]
            topics.append({"topic": topic.topic, "partitions": partitions})
        return {"topics": topics}

    def _fetch(self, heard: Heard) -> Reply:
        message = heard.message
        names = {topic_uuid(topic_id): topic for topic, topic_id in self._kafka.topics.items()}
        found: list[FetchedPartition] = []
        for topic in message.topics:
            name = names[topic.topic_id] if heard.version >= 13 else topic.topic
            for one in topic.partitions:
                level = _LEVELS[message.isolation_level]
                size = one.partition_max_bytes
                fetcher = FakeFetcher(self.cluster, name, one.partition, one.fetch_offset, level, False, size)
                try:
                    answer = fetcher.poll()
                except OffsetOutOfRangeError:
                    answer = FetchedPartition(name, None, one.partition, 1, records=memoryview(b""))
                except BrokerError as error:
                    answer = FetchedPartition(name, None, one.partition, error.code or -1, records=memoryview(b""))
                if heard.version >= 13:
                    answer = replace(answer, topic=None, topic_id=uuid_text(topic.topic_id.bytes))
                found.append(answer)
        return FetchAnswer(tuple(found))


@contextmanager
def served_cluster(logs: dict[str, dict[int, ServedLog]], **arguments: Any) -> Iterator[ServedCluster]:
    """A broker that serves these logs until the block ends."""
    ids = {topic: kafka_uuid(topic) for topic in logs}
    with FakeBroker() as broker:
        yield ServedCluster(FakeCluster(logs, topic_ids=ids, **arguments), broker)
        assert not broker.errors


def tiered_log(
    root: Path, topic: str, segments: Sequence[SegmentBuilder], *, partition: int = 0, uploaded: int, local_from: int
) -> ServedLog:
    """A log whose first segments are written below ``root`` as uploads; the broker has them from one of them on.

    Args:
        uploaded: how many segments are uploaded.
        local_from: the first segment on the broker's own disk.
    """
    remote = list(segments[:uploaded])
    if remote:
        write_local_tiered(root, topic, remote, partition=partition)
    batches = [served(segment.to_bytes()) for segment in segments]
    starts = [some[0].base_offset for some in batches]
    log = ServedLog([batch for some in batches for batch in some], [(0, 0)])
    log.segments = [ServedSegment(f"segment-{at}", tuple(batches[at]), starts[at]) for at in range(uploaded)]
    log.local_start = starts[local_from] if local_from < len(starts) else log.end
    log.last_tiered = batches[uploaded - 1][-1].stop - 1 if uploaded else -1
    return log
