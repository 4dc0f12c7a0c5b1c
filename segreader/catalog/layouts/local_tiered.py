"""Kafka's ``LocalTieredStorage``: one directory a partition, one set of files a segment.

``<topic>-<partition>-<topicId>/<20 digits>-<segmentId>.<kind>``; the kinds are those of ``names.REMOTE_FILE``.
Source: ``RemoteTopicPartitionDirectory``, ``RemoteLogSegmentFileset`` (4.0).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from segreader.catalog.layouts.names import REMOTE_DIRECTORY, REMOTE_FILE
from segreader.segment import Segment, SegmentFiles, TopicIdPartition
from segreader.storage.base import ObjectInfo

NAME = "local-tiered"


def find_segments(objects: Iterable[ObjectInfo]) -> list[Segment]:
    """The segments among the listed objects, in any order; objects of other layouts are passed over."""
    sets: dict[tuple[str, str, str], dict[str, ObjectInfo]] = defaultdict(dict)
    for info in objects:
        directory, _, file = info.name.rpartition("/")
        if match := REMOTE_FILE.fullmatch(file):
            sets[directory, match["base"], match["segment_id"]][match["kind"]] = info
    segments = []
    for (directory, base, segment_id), files in sets.items():
        place = REMOTE_DIRECTORY.fullmatch(directory.rpartition("/")[2])
        if place is None or "log" not in files:
            continue
        names = {kind: info.name for kind, info in files.items()}
        segments.append(
            Segment(
                partition=TopicIdPartition(place["topic"], int(place["partition"]), place["topic_id"]),
                base_offset=int(base),
                log_size=files["log"].size,
                files=SegmentFiles(
                    log=names["log"],
                    offset_index=names.get("index"),
                    time_index=names.get("timeindex"),
                    transaction_index=names.get("txnindex"),
                    producer_snapshot=names.get("snapshot"),
                    leader_epochs=names.get("leader_epoch_checkpoint"),
                    sizes={info.name: info.size for info in files.values() if info.size >= 0},
                ),
                segment_id=segment_id,
            )
        )
    return segments
