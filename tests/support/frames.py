"""Frames of ``fixtures/frames``, and messages of three codecs in one plain form that is compared with ours.

The plain form of a message is a dict of its fields in snake case, without units; an id in Kafka's text form.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime
import json
import re
import uuid
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path
from struct import Struct
from typing import Any

from segreader.broker import messages as m
from segreader.broker.codec import FIRST_WITH_TOPIC_ID
from segreader.broker.location import FOLLOWING_TAG, LOCATION_TAG, encode_following, encode_location
from segreader.broker.primitives import Writer

FOLDER = Path(__file__).parents[2] / "fixtures/frames"
RECORDED = ("frames", "cluster")
NO_ID = "A" * 22


@dataclass(frozen=True)
class Frame:
    """One exchange: ``request`` and ``response`` are whole frames; ``decoded`` the answer in plain form, if known."""

    name: str
    api: str
    version: int
    request: bytes | None
    response: bytes | None
    decoded: Any = None

    def __str__(self) -> str:
        return self.name


@cache
def frames(file: str) -> tuple[Frame, ...]:
    """The exchanges of a file, in its order."""
    document = json.loads((FOLDER / f"{file}.json").read_text())
    return tuple(
        Frame(
            one.get("name") or f"{number}-{one['api']}-v{one['version']}",
            one["api"],
            one["version"],
            bytes.fromhex(one["request"]) if one["request"] else None,
            bytes.fromhex(one["response"]) if one["response"] else None,
            plain(one["decoded"]) if "decoded" in one else None,
        )
        for number, one in enumerate(document.get("exchanges") or document["frames"])
    )


def body(frame: bytes) -> memoryview:
    """What decoders take: a frame without its size."""
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    return memoryview(frame)[4:]


def snake(name: str) -> str:
    """``ThrottleTimeMs`` as ``throttle_time``."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower().removesuffix("_ms")


def plain(value: Any) -> Any:
    """Any codec's message, or the JSON of a fixture, in plain form."""
    if hasattr(value, "to_dict"):
        return plain(value.to_dict(json=False))
    if dataclasses.is_dataclass(value):
        return {snake(field.name): plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        if set(value) == {"length"}:
            return value["length"]
        return {snake(name): plain(of_name) for name, of_name in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, uuid.UUID):
        return base64.urlsafe_b64encode(value.bytes)[:22].decode()
    if isinstance(value, datetime.timedelta):
        return round(value / datetime.timedelta(milliseconds=1))
    if isinstance(value, datetime.datetime):
        return round(value.timestamp() * 1000)
    if type(value).__name__ == "ErrorCode":
        return value.value
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    return None if value == NO_ID else value


def without_defaults(message: dict[str, Any]) -> dict[str, Any]:
    """Without the structs that kio makes up for tagged fields that are not there; its answers to Fetch are changed."""
    for topic in message.get("responses", ()):
        for one in topic["partitions"]:
            for name in ("diverging_epoch", "current_leader"):
                if name in one and set(one[name].values()) == {-1}:
                    del one[name]
    return message


def expected(api: str, message: dict[str, Any]) -> Any:
    """The value of ``messages`` that a plain message stands for."""
    return _EXPECTED[api](message)


def _api_versions(message: dict[str, Any]) -> m.ApiVersions:
    if message["error_code"]:
        return m.ApiVersions(message["error_code"], {})
    ranges = {one["api_key"]: m.ApiVersionRange(one["min_version"], one["max_version"]) for one in message["api_keys"]}
    return m.ApiVersions(0, ranges, message.get("throttle_time", 0))


def _metadata(message: dict[str, Any]) -> m.ClusterMetadata:
    return m.ClusterMetadata(
        nodes=tuple(_node(one) for one in message["brokers"]),
        topics=tuple(
            m.TopicMetadata(
                topic["error_code"],
                topic["name"],
                topic.get("topic_id"),
                topic["is_internal"],
                tuple(
                    m.PartitionMetadata(
                        one["partition_index"],
                        one["error_code"],
                        m.LeaderAndEpoch(one["leader_id"], one["leader_epoch"]),
                        tuple(one["replica_nodes"]),
                        tuple(one["isr_nodes"]),
                        tuple(one["offline_replicas"]),
                    )
                    for one in topic["partitions"]
                ),
            )
            for topic in message["topics"]
        ),
        cluster_id=message["cluster_id"],
        controller_id=message["controller_id"],
        error=message.get("error_code") or 0,
        throttle_ms=message["throttle_time"],
    )


def _node(one: dict[str, Any]) -> m.Node:
    return m.Node(one["node_id"], one["host"], one["port"], one.get("rack"))


def _fetch(message: dict[str, Any]) -> m.FetchAnswer:
    """Its records are bytes, or a length where no more is known."""
    return m.FetchAnswer(
        partitions=tuple(
            _fetched(one, topic.get("topic"), topic.get("topic_id"))
            for topic in message["responses"]
            for one in topic["partitions"]
        ),
        error=message["error_code"],
        session_id=message["session_id"],
        throttle_ms=message["throttle_time"],
        nodes=tuple(_node(one) for one in message.get("node_endpoints") or ()),
    )


def _fetched(one: dict[str, Any], topic: str | None, topic_id: str | None) -> m.FetchedPartition:
    aborted, diverging, leader = one["aborted_transactions"], one.get("diverging_epoch"), one.get("current_leader")
    return m.FetchedPartition(
        topic=topic or None,
        topic_id=topic_id,
        partition=one["partition_index"],
        error=one["error_code"],
        high_watermark=one["high_watermark"],
        last_stable_offset=one["last_stable_offset"],
        log_start_offset=one["log_start_offset"],
        records=one["records"],
        aborted=None if aborted is None else tuple((each["producer_id"], each["first_offset"]) for each in aborted),
        diverging=(diverging["epoch"], diverging["end_offset"]) if diverging else None,
        preferred_read_replica=one["preferred_read_replica"],
        current_leader=m.LeaderAndEpoch(leader["leader_id"], leader["leader_epoch"]) if leader else None,
    )


def _list_offsets(message: dict[str, Any]) -> m.ListOffsetsAnswer:
    offsets = tuple(
        m.ListedOffset(
            topic["name"],
            one["partition_index"],
            one["error_code"],
            one["offset"],
            one["timestamp"],
            one.get("leader_epoch", -1),
        )
        for topic in message["topics"]
        for one in topic["partitions"]
    )
    return m.ListOffsetsAnswer(offsets, message.get("throttle_time", 0))


def _epoch_ends(message: dict[str, Any]) -> m.EpochEndsAnswer:
    ends = tuple(
        m.EpochEnd(topic["topic"], one["partition"], one["error_code"], one["leader_epoch"], one["end_offset"])
        for topic in message["topics"]
        for one in topic["partitions"]
    )
    return m.EpochEndsAnswer(ends, message["throttle_time"])


def _coordinator(message: dict[str, Any]) -> m.Coordinator:
    (one,) = message["coordinators"]
    node = None if one["error_code"] else m.Node(one["node_id"], one["host"], one["port"])
    return m.Coordinator(one["key"], one["error_code"], node, one["error_message"] or None, message["throttle_time"])


def _committed(message: dict[str, Any]) -> m.CommittedOffsets:
    (group,) = message["groups"]
    offsets = tuple(
        m.CommittedOffset(
            topic["name"],
            one["partition_index"],
            one["error_code"],
            one["committed_offset"],
            one["committed_leader_epoch"],
        )
        for topic in group["topics"]
        for one in topic["partitions"]
    )
    return m.CommittedOffsets(group["group_id"], group["error_code"], offsets, message["throttle_time"])


def _configs(message: dict[str, Any]) -> tuple[m.TopicConfigs, ...]:
    return tuple(
        m.TopicConfigs(
            one["resource_name"],
            one["error_code"],
            {config["name"]: config["value"] for config in one["configs"]},
            one["error_message"] or None,
        )
        for one in message["results"]
        if one["resource_type"] == 2
    )


def _handshake(message: dict[str, Any]) -> m.SaslHandshakeAnswer:
    return m.SaslHandshakeAnswer(message["error_code"], tuple(message["mechanisms"]))


def _authenticate(message: dict[str, Any]) -> m.SaslAuthenticateAnswer:
    return m.SaslAuthenticateAnswer(
        message["error_code"],
        message["auth_bytes"],
        message.get("session_lifetime", 0),
        message["error_message"] or None,
    )


_EXPECTED = {
    "ApiVersions": _api_versions,
    "DescribeConfigs": _configs,
    "Fetch": _fetch,
    "FindCoordinator": _coordinator,
    "ListOffsets": _list_offsets,
    "Metadata": _metadata,
    "OffsetFetch": _committed,
    "OffsetForLeaderEpoch": _epoch_ends,
    "SaslAuthenticate": _authenticate,
    "SaslHandshake": _handshake,
}


_FIRST_WITH_ENDPOINTS = 16
_DIVERGING_TAG, _LEADER_TAG, _ENDPOINTS_TAG = 0, 1, 0
_FETCH_HEAD = Struct(">ihi")
_FETCH_PARTITION = Struct(">ihqqq")
_ABORTED = Struct(">qq")
_EPOCH_END = Struct(">iq")
_LEADER = Struct(">ii")


def encode_fetch_answer(version: int, answer: m.FetchAnswer, *, correlation_id: int) -> bytes:
    """A whole frame with its size, as a broker or gateway sends it.

    Partitions of one topic that follow each other are sent as one topic.
    """
    writer = Writer(flexible=True)
    writer.int32(correlation_id)
    writer.tags()
    writer.pack(_FETCH_HEAD, answer.throttle_ms, answer.error, answer.session_id)
    has_ids = version >= FIRST_WITH_TOPIC_ID
    topics = [
        (name, list(of_topic))
        for name, of_topic in groupby(answer.partitions, lambda one: one.topic_id if has_ids else one.topic)
    ]
    writer.count(len(topics))
    for name, partitions in topics:
        if has_ids:
            writer.uuid(name)
        else:
            writer.string(name)
        writer.count(len(partitions))
        for partition in partitions:
            _write_partition(writer, partition)
        writer.tags()
    tags: list[tuple[int, bytes | bytearray]] = []
    if answer.nodes and version >= _FIRST_WITH_ENDPOINTS:
        tags.append((_ENDPOINTS_TAG, _encoded_nodes(answer.nodes)))
    if answer.extension_version is not None:
        tags.append((LOCATION_TAG, answer.extension_version.to_bytes(2, "big", signed=True)))
    writer.tags(tags)
    return writer.framed()


def _write_partition(writer: Writer, partition: m.FetchedPartition) -> None:
    writer.pack(
        _FETCH_PARTITION,
        partition.partition,
        partition.error,
        partition.high_watermark,
        partition.last_stable_offset,
        partition.log_start_offset,
    )
    writer.count(None if partition.aborted is None else len(partition.aborted))
    for producer_id, first_offset in partition.aborted or ():
        writer.pack(_ABORTED, producer_id, first_offset)
        writer.tags()
    writer.int32(partition.preferred_read_replica)
    writer.blob(partition.records)
    tags: list[tuple[int, bytes]] = []
    if partition.diverging is not None:
        tags.append((_DIVERGING_TAG, _EPOCH_END.pack(*partition.diverging) + b"\0"))
    if (leader := partition.current_leader) is not None:
        tags.append((_LEADER_TAG, _LEADER.pack(leader.leader_id, leader.leader_epoch) + b"\0"))
    if partition.location is not None:
        tags.append((LOCATION_TAG, encode_location(partition.location)))
    if partition.following:
        tags.append((FOLLOWING_TAG, encode_following([encode_location(one) for one in partition.following])))
    writer.tags(tags)


def _encoded_nodes(nodes: tuple[m.Node, ...]) -> bytearray:
    writer = Writer(flexible=True)
    writer.count(len(nodes))
    for node in nodes:
        writer.int32(node.node_id)
        writer.string(node.host)
        writer.int32(node.port)
        writer.string(node.rack)
        writer.tags()
    return writer.data
