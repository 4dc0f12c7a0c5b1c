"""Where a segment's files lie: names as a broker and as ``LocalTieredStorage`` give them.

The two ``_files`` functions only name bytes, so that an in-memory store can be filled with the same objects.
Source: ``LogFileUtils``, ``UnifiedLog``, ``Uuid``; for the remote names ``RemoteLogSegmentFileset`` (4.0).
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from segreader.testing.builder import SegmentBuilder
from segreader.testing.side_files import encode_partition_metadata


def kafka_uuid(*names: object) -> str:
    """A Kafka id (22 characters), always the same for the same names; it does not begin with a dash."""
    digest = hashlib.sha256("\0".join(map(str, names)).encode()).digest()
    return base64.urlsafe_b64encode(bytes([digest[0] & 0x7F]) + digest[1:16]).decode().rstrip("=")


def local_tiered_files(
    topic: str, segments: Sequence[SegmentBuilder], *, partition: int = 0, topic_id: str | None = None
) -> dict[str, bytes]:
    """Path below the storage's root -> bytes, of finished segments.

    Args:
        topic_id: made from the topic's name, unless given.

    Each ``.snapshot`` is the state at its segment's end. There is no ``.txnindex`` where it would be empty.
    """
    topic_id = topic_id or kafka_uuid(topic)
    files: dict[str, bytes] = {}
    for segment in segments:
        segment_id = kafka_uuid(topic, partition, topic_id, segment.base_offset)
        stem = f"{topic}-{partition}-{topic_id}/{segment.base_offset:020d}-{segment_id}"
        files |= {f"{stem}.{suffix}": data for suffix, data in _segment_files(segment).items()}
        files[f"{stem}.snapshot"] = segment.snapshot()
        files[f"{stem}.leader_epoch_checkpoint"] = segment.leader_epoch_checkpoint()
    return files


def broker_log_files(
    topic: str,
    segments: Sequence[SegmentBuilder],
    *,
    partition: int = 0,
    topic_id: str | None = None,
    preallocated: int = 0,
) -> dict[str, bytes]:
    """Path below a broker's data directory -> bytes, of a log whose last segment is the active one.

    Args:
        preallocated: zero-filled size of the active segment's indexes in bytes, as while the broker runs; 0
            gives them as a clean shutdown does.

    A ``.snapshot`` is the state before the offset in its name: the last one bears the log's end, and there is
    none for offset 0.
    """
    folder = f"{topic}-{partition}"
    files: dict[str, bytes] = {}
    for segment in segments:
        stem = f"{folder}/{segment.base_offset:020d}"
        files |= {f"{stem}.{suffix}": data for suffix, data in _segment_files(segment).items()}
        if segment.base_offset > 0:
            files[f"{stem}.snapshot"] = segment.snapshot_before()
    if segments:
        last = segments[-1]
        files[f"{folder}/{last.next_offset:020d}.snapshot"] = last.snapshot()
        files[f"{folder}/leader-epoch-checkpoint"] = last.leader_epoch_checkpoint()
        if preallocated:
            stem = f"{folder}/{last.base_offset:020d}"
            files[f"{stem}.index"] = last.index().ljust(preallocated // 8 * 8, b"\0")
            files[f"{stem}.timeindex"] = last.time_index(rolled=False).ljust(preallocated // 12 * 12, b"\0")
    files[f"{folder}/partition.metadata"] = encode_partition_metadata(topic_id or kafka_uuid(topic))
    return files


def write_local_tiered(
    root: Path,
    topic: str,
    segments: Sequence[SegmentBuilder],
    *,
    partition: int = 0,
    topic_id: str | None = None,
) -> Path:
    """Write finished segments below ``root`` as ``LocalTieredStorage`` does; the partition's directory."""
    return write_files(root, local_tiered_files(topic, segments, partition=partition, topic_id=topic_id))


def write_broker_log(
    root: Path,
    topic: str,
    segments: Sequence[SegmentBuilder],
    *,
    partition: int = 0,
    topic_id: str | None = None,
    preallocated: int = 0,
) -> Path:
    """Write a log below the data directory ``root`` as a broker does; the partition's directory."""
    return write_files(
        root,
        broker_log_files(topic, segments, partition=partition, topic_id=topic_id, preallocated=preallocated),
    )


def write_files(root: Path, files: Mapping[str, bytes]) -> Path:
    """Write path -> bytes below ``root``; the directory of the last file."""
    folder = root
    for path, data in files.items():
        folder = (root / path).parent
        folder.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)
    return folder


def _segment_files(segment: SegmentBuilder) -> dict[str, bytes]:
    files = {"log": segment.to_bytes(), "index": segment.index(), "timeindex": segment.time_index()}
    if segment.aborted:
        files["txnindex"] = segment.transaction_index()
    return files
