"""A leader for tests of the gateway: rights, epochs and offsets as Kafka has them, records as marked bytes.

It counts what it would have to read from the remote tier. Requests are decoded by kafka-python.
"""

from __future__ import annotations

import base64
import struct
import weakref
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from codecs_of_others import kafka_python_request
from fake_broker import encode_answer
from frames import encode_fetch_answer
from gateway_upstream import Around

from segreader.broker.api import decode_fetch, encode_fetch
from segreader.broker.messages import (
    FetchAnswer,
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    LeaderAndEpoch,
    Node,
    RemoteLogSegmentLocation,
)
from segreader.broker.protocol import SUPPORTED, Api
from segreader.catalog.metadata_log import RemoteLogSegmentMetadata
from segreader.format.checkpoints import LeaderEpoch, LeaderEpochs
from segreader.format.remote_log_metadata import RemoteLogSegmentMetadataRecord, TopicIdPartitionEntry
from segreader.gateway.audit import AuditLog
from segreader.gateway.located_fetch import LocatedFetch
from segreader.gateway.metrics import GatewayMetrics
from segreader.gateway.remote.catalogue import Catalogue, ObjectFinder
from segreader.gateway.remote.plans import RemotePlanner
from segreader.gateway.remote.signing import ObjectAccess
from segreader.isolation import IsolationLevel
from segreader.segment import SegmentState, TopicIdPartition
from segreader.storage.local import LocalStore
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import kafka_uuid, write_local_tiered

TOPIC = "orders"
TOPIC_ID = kafka_uuid(TOPIC)
CANARY = "X-Amz-Signature=c4nary5f2a9e1b7d3c4naryfe"


@dataclass
class Log:
    """One partition at its leader; ``epochs`` are (epoch, start offset)."""

    log_start: int = 0
    local_start: int = 200
    end: int = 300
    epochs: tuple[tuple[int, int], ...] = ((5, 0),)

    def epoch_end(self, asked: int) -> tuple[int, int]:
        if asked > self.epochs[-1][0]:
            return -1, -1
        known = [index for index, (epoch, _) in enumerate(self.epochs) if epoch <= asked]
        if not known:
            return -1, -1
        after = known[-1] + 1
        return self.epochs[known[-1]][0], self.epochs[after][1] if after < len(self.epochs) else self.end


@dataclass
class Leader:
    """A broker; change its fields while it runs."""

    logs: dict[int, Log] = field(default_factory=lambda: {0: Log()})
    may_read: bool = True
    list_offsets: int = 11
    epoch_error: int = 0
    throttle_ms: int = 0
    topic_id: str = TOPIC_ID
    node: Node = field(default_factory=lambda: Node(2, "other.example", 9092, "r"))
    asked: Counter[str] = field(default_factory=Counter)
    remote_reads: int = 0
    flags_seen: int = 0
    waits: list[int] = field(default_factory=list)
    records_size: int = 1000

    def __call__(self, request: bytes) -> bytes:
        key, version, number = struct.unpack_from(">hhi", request)
        api = Api(key).label
        self.asked[api] += 1
        _, _, message = kafka_python_request(api, version, memoryview(request))
        if key == Api.FETCH:
            self.flags_seen += b"\xc0\x61" in request or b"\xc1\x61" in request
            return encode_fetch_answer(version, self._fetch(version, message), correlation_id=number)
        return encode_answer(api, version, number, getattr(self, f"_{api.lower()}")(message))

    def _apiversions(self, message: Any) -> dict[str, Any]:
        offers = {int(api): (each.first, each.last) for api, each in SUPPORTED.items()}
        offers[int(Api.LIST_OFFSETS)] = (1, self.list_offsets)
        return {
            "api_keys": [
                {"api_key": key, "min_version": first, "max_version": last} for key, (first, last) in offers.items()
            ]
        }

    def _metadata(self, message: Any) -> dict[str, Any]:
        import uuid

        return {
            "brokers": [],
            "cluster_id": "c",
            "controller_id": 1,
            "topics": [
                {
                    "error_code": 0 if topic.name == TOPIC else 3,
                    "name": topic.name,
                    "topic_id": uuid.UUID(bytes=base64.urlsafe_b64decode(self.topic_id + "==")),
                    "partitions": [],
                }
                for topic in message.topics
            ],
        }

    def _listoffsets(self, message: Any) -> dict[str, Any]:
        return {
            "topics": [
                {
                    "name": topic.name,
                    "partitions": [
                        {
                            "partition_index": one.partition_index,
                            "error_code": 0,
                            "timestamp": -1,
                            "offset": {
                                -1: self.logs[one.partition_index].end,
                                -4: self.logs[one.partition_index].local_start,
                            }[one.timestamp],
                            "leader_epoch": 5,
                        }
                        for one in topic.partitions
                    ],
                }
                for topic in message.topics
            ]
        }

    def _offsetforleaderepoch(self, message: Any) -> dict[str, Any]:
        topics = []
        for topic in message.topics:
            partitions = []
            for one in topic.partitions:
                epoch, end = self.logs[one.partition].epoch_end(one.leader_epoch)
                partitions.append(
                    {
                        "error_code": self.epoch_error,
                        "partition": one.partition,
                        "leader_epoch": -1 if self.epoch_error else epoch,
                        "end_offset": -1 if self.epoch_error else end,
                    }
                )
            topics.append({"topic": topic.topic, "partitions": partitions})
        return {"topics": topics}

    def _fetch(self, version: int, message: Any) -> FetchAnswer:
        self.waits.append(message.max_wait_ms)
        if self.throttle_ms:
            return FetchAnswer((), throttle_ms=self.throttle_ms)
        partitions, nodes = [], set()
        for topic in message.topics:
            for one in topic.partitions:
                found = self._fetched(one, message.isolation_level)
                found = replace(found, topic=topic.topic) if version < 13 else replace(found, topic_id=self.topic_id)
                partitions.append(found)
                if found.current_leader is not None:
                    nodes.add(self.node)
        return FetchAnswer(tuple(partitions), nodes=tuple(nodes))

    def _fetched(self, one: Any, isolation: int) -> FetchedPartition:
        log, number = self.logs[one.partition], one.partition
        empty = memoryview(b"")
        if not self.may_read:
            return FetchedPartition(None, None, number, 29, records=empty)
        if one.current_leader_epoch not in (-1, log.epochs[-1][0]):
            leader = LeaderAndEpoch(2, log.epochs[-1][0])
            return FetchedPartition(None, None, number, 74, records=empty, current_leader=leader)
        if not log.log_start <= one.fetch_offset <= log.end:
            return FetchedPartition(None, None, number, 1, records=empty)
        records, aborted = b"", () if isolation else None
        if one.fetch_offset < log.local_start:
            if one.partition_max_bytes == 0 and self.list_offsets >= 11:
                aborted = None
            else:
                self.remote_reads += 1
                records = b"R" * self.records_size
        elif one.fetch_offset < log.end:
            records = b"L" * self.records_size
        ends = (log.end, log.end, log.log_start)
        return FetchedPartition(None, None, number, 0, *ends, records=memoryview(records), aborted=aborted)


class Known:
    """What a metadata topic would tell: change ``all`` and ``lag`` while it runs."""

    def __init__(self, segments: list[RemoteLogSegmentMetadata]) -> None:
        self.all, self.lag, self.version = segments, 0.0, 0

    def segments(self, topic: str, topic_id: str, partition: int) -> list[RemoteLogSegmentMetadata]:
        return [one for one in self.all if one.partition == TopicIdPartition(topic, partition, topic_id)]

    def topic_name(self, topic_id: str) -> str | None:
        return TOPIC if topic_id == TOPIC_ID else None

    def changes(self, topic_id: str, partition: int) -> object:
        return self.version

    def lag_s(self, topic_id: str, partition: int) -> float | None:
        return self.lag


class Signer:
    """Signs with a canary; set ``error`` to have it fail."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.signed: list[str] = []

    def at_hand(self, name: str) -> ObjectAccess | None:
        return None

    def access(self, name: str) -> ObjectAccess:
        if self.error is not None:
            raise self.error
        self.signed.append(name)
        return ObjectAccess(f"s3://bucket/{name}", f"https://bucket.example/{name}?{CANARY}", 4_000_000_000_000)


def segment_of(
    builder: SegmentBuilder,
    *,
    partition: int = 0,
    epochs: tuple[tuple[int, int], ...] = ((5, 0),),
    last_offset: int,
    version: int = 1,
    segment_id: str | None = None,
) -> RemoteLogSegmentMetadata:
    """The catalogue's entry for a segment that was written to a directory."""
    segment_id = segment_id or kafka_uuid(TOPIC, partition, TOPIC_ID, builder.base_offset)
    first = builder.base_offset
    own = [(epoch, max(start, first)) for epoch, start in epochs if start <= last_offset]
    while len(own) > 1 and own[1][1] <= first:
        own.pop(0)
    record = RemoteLogSegmentMetadataRecord(
        TopicIdPartitionEntry(TOPIC, TOPIC_ID, partition),
        segment_id,
        first,
        last_offset,
        1,
        0,
        0,
        LeaderEpochs(tuple(LeaderEpoch(*one) for one in own)),
        len(builder.to_bytes()),
        None,
        1,
        not builder.aborted,
    )
    name = TopicIdPartition(TOPIC, partition, TOPIC_ID)
    return RemoteLogSegmentMetadata(name, record, 1, 0, None, SegmentState.COPY_SEGMENT_FINISHED, version)


def segments_of_100(index_interval_bytes: int = 1) -> list[SegmentBuilder]:
    """Two segments with offsets 0 to 99 and 100 to 199, an index entry for each batch of ten records."""
    first = SegmentBuilder(leader_epoch=5, index_interval_bytes=index_interval_bytes)
    for number in range(10):
        first.batch([b"value-%d" % (10 * number + one) for one in range(10)])
    second = first.roll()
    for number in range(10):
        second.batch([b"value-%d" % (100 + 10 * number + one) for one in range(10)])
    return [first, second]


@dataclass
class Located:
    """A gateway's answer to the flag over a directory of segments."""

    fetch: LocatedFetch
    known: Known
    signer: Signer
    metrics: GatewayMetrics
    audit: Path
    builders: list[SegmentBuilder]
    catalogue: Catalogue


def located_over(
    root: Path,
    *,
    partitions: int = 1,
    elsewhere: Any = None,
    signer: Any = None,
    index_interval_bytes: int = 1,
    **settings: Any,
) -> Located:
    """Segments on disk for some partitions, and what answers the flag with them."""
    builders = segments_of_100(index_interval_bytes)
    segments = []
    for partition in range(partitions):
        write_local_tiered(root / "remote", TOPIC, builders, partition=partition)
        for number, builder in enumerate(builders):
            segments.append(segment_of(builder, partition=partition, last_offset=100 * number + 99))
    known, signer, metrics = Known(segments), signer or Signer(), GatewayMetrics()
    finder = ObjectFinder(LocalStore(root), "remote/", "auto")
    catalogue = Catalogue(known, finder, readers=2, cache_bytes=1 << 20, max_lag_s=30, metrics=metrics)
    audit = AuditLog(str(root / "audit.jsonl"), metrics)
    fetch = LocatedFetch(
        RemotePlanner(catalogue, elsewhere=elsewhere),
        catalogue,
        signer,
        audit=audit,
        metrics=metrics,
        **settings,
    )
    made = Located(fetch, known, signer, metrics, root / "audit.jsonl", builders, catalogue)
    weakref.finalize(made, audit.close)
    return made


def flagged(
    *wanted: tuple[int, int],
    number: int = 1,
    version: int = 17,
    epoch: int = 5,
    max_bytes: int = 1 << 20,
    formats: tuple[str, ...] = ("ApacheKafkaV1",),
    isolation_level: IsolationLevel = IsolationLevel.READ_COMMITTED,
    is_flagged: bool = True,
    stop: int | None = None,
    most_segments: int = 1,
) -> bytes:
    """A Fetch with the flag for (partition, offset) pairs."""
    request = FetchRequest(
        tuple(
            FetchPartition(TOPIC, TOPIC_ID, partition, offset, epoch, max_bytes, stop) for partition, offset in wanted
        ),
        isolation_level=isolation_level,
        wants_locations=is_flagged,
        storage_formats=formats,
        most_segments=most_segments,
    )
    return encode_fetch(version, request, correlation_id=number, client_id="reader")


async def asked(around: Around, frame: bytes) -> FetchAnswer:
    """The answer to a Fetch, through the gateway."""
    got = await around.client.ask(frame)
    assert got[4:8] == frame[8:12]
    return decode_fetch(struct.unpack_from(">h", frame, 6)[0], memoryview(got)[4:])


def locations(answer: FetchAnswer) -> dict[int, RemoteLogSegmentLocation | None]:
    """By partition."""
    assert all(one.location_error is None for one in answer.partitions)
    return {one.partition: one.location for one in answer.partitions}
