"""Our encoders and decoders by the API's name: a request of the same content as one in plain form."""

from __future__ import annotations

from typing import Any

from segreader.broker import api as wire
from segreader.broker.api import decode_fetch
from segreader.broker.messages import EpochWanted, FetchPartition, FetchRequest, OffsetWanted
from segreader.isolation import IsolationLevel

DECODERS = {
    "ApiVersions": wire.decode_api_versions,
    "DescribeConfigs": wire.decode_describe_configs,
    "Fetch": decode_fetch,
    "FindCoordinator": wire.decode_find_coordinator,
    "ListOffsets": wire.decode_list_offsets,
    "Metadata": wire.decode_metadata,
    "OffsetFetch": wire.decode_offset_fetch,
    "OffsetForLeaderEpoch": wire.decode_epoch_ends,
    "SaslAuthenticate": wire.decode_sasl_authenticate,
    "SaslHandshake": wire.decode_sasl_handshake,
}
LEVELS = (IsolationLevel.READ_UNCOMMITTED, IsolationLevel.READ_COMMITTED)


def request_again(api: str, version: int, message: dict[str, Any], names: dict[str, Any]) -> bytes:
    """Our request of the same content."""
    if api == "ApiVersions":
        software = message.get("client_software_name") or "", message.get("client_software_version") or ""
        return wire.encode_api_versions(version, *software, **names)
    if api == "Metadata":
        topics = message["topics"]
        if topics is None:
            return wire.encode_metadata(version, **names)
        ids = [one["topic_id"] for one in topics if one.get("topic_id")]
        by_name = [one["name"] for one in topics if one["name"]]
        return wire.encode_metadata(version, by_name, topic_ids=ids, **names)
    if api == "Fetch":
        partitions = tuple(
            FetchPartition(
                topic.get("topic") or "",
                topic.get("topic_id"),
                one["partition"],
                one["fetch_offset"],
                one["current_leader_epoch"],
                one["partition_max_bytes"],
            )
            for topic in message["topics"]
            for one in topic["partitions"]
        )
        level = LEVELS[message["isolation_level"]]
        request = FetchRequest(
            partitions, level, message["max_wait"], message["min_bytes"], message["max_bytes"], message["rack_id"]
        )
        return wire.encode_fetch(version, request, **names)
    if api == "ListOffsets":
        wanted = [
            OffsetWanted(topic["name"], one["partition_index"], one["timestamp"], one.get("current_leader_epoch", -1))
            for topic in message["topics"]
            for one in topic["partitions"]
        ]
        level, timeout_ms = LEVELS[message.get("isolation_level", 0)], message.get("timeout", 0)
        return wire.encode_list_offsets(version, wanted, level, timeout_ms, **names)
    if api == "OffsetForLeaderEpoch":
        asked = [
            EpochWanted(topic["topic"], one["partition"], one["leader_epoch"], one["current_leader_epoch"])
            for topic in message["topics"]
            for one in topic["partitions"]
        ]
        return wire.encode_epoch_ends(version, asked, **names)
    if api == "FindCoordinator":
        (group,) = message["coordinator_keys"]
        return wire.encode_find_coordinator(version, group, **names)
    if api == "OffsetFetch":
        (of_group,) = message["groups"]
        wanted_of = {one["name"]: one["partition_indexes"] for one in of_group["topics"]}
        return wire.encode_offset_fetch(version, of_group["group_id"], wanted_of, **names)
    if api == "DescribeConfigs":
        resources = message["resources"]
        keys = resources[0]["configuration_keys"]
        return wire.encode_describe_configs(version, [one["resource_name"] for one in resources], keys, **names)
    if api == "SaslHandshake":
        return wire.encode_sasl_handshake(version, message["mechanism"], **names)
    assert api == "SaslAuthenticate"
    return wire.encode_sasl_authenticate(version, message["auth_bytes"], **names)
