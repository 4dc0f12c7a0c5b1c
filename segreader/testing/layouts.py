"""The same segments as the plugins of different people lay them out: path below a location -> bytes.

Written apart from ``segreader.catalog`` on purpose, so that a mistake there is not repeated here. Sources: at each
function.
"""

from __future__ import annotations

import base64
import hashlib
import json
import struct
import uuid
from collections.abc import Callable, Sequence

from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import kafka_uuid

Segments = Sequence[SegmentBuilder]


def pinterest_files(
    topic: str,
    segments: Segments,
    *,
    partition: int = 0,
    base_prefix: str = "tiered",
    cluster: str = "my-cluster",
    entropy_bits: int = 0,
    hints: bool = True,
    kinds: Sequence[str] = ("log", "index", "timeindex"),
) -> dict[str, bytes]:
    """As pinterest/tiered-storage 1.0 uploads closed segments.

    Args:
        entropy_bits: digits of the hash in the path; 0 for none.
        hints: whether ``offset.wm`` and ``_metadata`` are there.
        kinds: the files that are there of each segment.
    """
    digest = hashlib.md5(f"{cluster}-{topic}-{partition}".encode(), usedforsecurity=False).digest()
    bits = "".join(f"{byte:08b}" for byte in digest)[:entropy_bits]
    folder = "/".join(part for part in (base_prefix, bits, cluster, f"{topic}-{partition}") if part)
    files: dict[str, bytes] = {}
    for segment in segments:
        of_segment = _plain(segment)
        files |= {f"{folder}/{segment.base_offset:020d}.{kind}": of_segment[kind] for kind in kinds}
    if hints and segments:
        files[f"{folder}/offset.wm"] = f"{segments[-1].base_offset:020d}".encode()
        entries = [
            {
                "timestamp": 1_727_164_800_000 + segment.base_offset,
                "relativeOffset": 0,
                "baseOffset": segment.base_offset,
            }
            for segment in segments
        ]
        document = {
            "topicPartition": {"topic": topic, "partition": partition, "hash": 0},
            "metadata": {"timeindex": {"entries": entries, "timeIndexType": "TOPIC_PARTITION", "size": len(entries)}},
            "loadHash": "00",
        }
        files[f"{folder}/_metadata"] = json.dumps(document, separators=(",", ":")).encode()
    return files


def early_s3_files(topic: str, segments: Segments, *, partition: int = 0) -> dict[str, bytes]:
    """As the S3 plugin of KIP-405's preview: the segment's id follows the extension."""
    files: dict[str, bytes] = {}
    for segment in segments:
        segment_id = kafka_uuid(topic, partition, segment.base_offset)
        for kind in ("log", "index", "timeindex"):
            files[f"{topic}-{partition}/{segment.base_offset:020d}.{kind}.{segment_id}"] = _plain(segment)[kind]
    return files


def uber_files(
    topic: str, segments: Segments, *, partition: int = 0, topic_id: str | None = None, base: str = "kafka-rsm"
) -> dict[str, bytes]:
    """As the HDFS plugin of satishd/kafka: a segment with all its files in one, behind a header."""
    folder = f"{base}/{topic}-{partition}-{topic_id or kafka_uuid(topic)}"
    return {f"{folder}/{kafka_uuid(topic, partition, one.base_offset)}": uber_file(one) for one in segments}


def uber_file(segment: SegmentBuilder) -> bytes:
    """One single-file segment."""
    plain = _plain(segment)
    parts = [plain[kind] for kind in ("index", "timeindex", "epochs", "snapshot", "txnindex", "log")]
    starts, at = [], 25
    for part in parts:
        starts.append(at)
        at += len(part)
    return struct.pack(">b6i", 0, *starts) + b"".join(parts)


def linkedin_files(
    topic: str, segments: Segments, *, partition: int = 0, topic_id: str | None = None, container_prefix: str = ""
) -> dict[str, bytes]:
    """As linkedin/kafka-remote-storage-azure; a container is a directory here."""
    container = str(_uuid(topic_id or kafka_uuid(topic)))
    if container_prefix:
        container = f"{container_prefix}-{container}"
    names = {
        "log": "SEGMENT",
        "index": "OFFSET",
        "timeindex": "TIMESTAMP",
        "snapshot": "PRODUCER_SNAPSHOT",
        "txnindex": "TRANSACTION",
        "epochs": "LEADER_EPOCH",
    }
    files: dict[str, bytes] = {}
    for segment in segments:
        segment_id = _uuid(kafka_uuid(topic, partition, segment.base_offset))
        for kind, data in _stored(segment).items():
            files[f"{container}/{partition}.{segment_id}.{names[kind]}"] = data
    return files


def confluent_files(
    topic: str,
    segments: Segments,
    *,
    partition: int = 0,
    topic_id: str | None = None,
    prefix: str = "",
    tier_epoch: int = 0,
) -> dict[str, bytes]:
    """As Confluent Platform names objects: a random id comes first."""
    names = {
        "log": "segment",
        "index": "offset-index",
        "timeindex": "timestamp-index",
        "snapshot": "producer-state",
        "txnindex": "transaction-index",
        "epochs": "epoch-state",
    }
    files: dict[str, bytes] = {}
    for segment in segments:
        object_id = kafka_uuid("object", topic, partition, segment.base_offset, tier_epoch)
        stem = f"{prefix}0/{object_id}/{topic_id or kafka_uuid(topic)}/{partition}"
        stem += f"/{segment.base_offset:020d}_{tier_epoch}_v0"
        files |= {f"{stem}.{names[kind]}": data for kind, data in _stored(segment).items()}
    return files


def named_files(segments: Segments, name: Callable[[int, str], str]) -> dict[str, bytes]:
    """Finished segments under names of one's own, for a pattern.

    Args:
        name: the path for a base offset and one of ``log``, ``index``, ``timeindex``, ``txnindex``, ``snapshot``,
            ``epochs``.
    """
    return {name(one.base_offset, kind): data for one in segments for kind, data in _stored(one).items()}


def _plain(segment: SegmentBuilder) -> dict[str, bytes]:
    return {
        "log": segment.to_bytes(),
        "index": segment.index(),
        "timeindex": segment.time_index(),
        "txnindex": segment.transaction_index(),
        "snapshot": segment.snapshot(),
        "epochs": segment.leader_epoch_checkpoint(),
    }


def _stored(segment: SegmentBuilder) -> dict[str, bytes]:
    """As ``_plain``, without an empty transaction index."""
    return {kind: data for kind, data in _plain(segment).items() if data or kind != "txnindex"}


def _uuid(text: str) -> uuid.UUID:
    return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=="))
