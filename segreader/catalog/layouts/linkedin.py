"""LinkedIn's Azure plugin: a container for each topic, in it ``<partition>.<segment uuid>.<KIND>``; plain files.

A container is named ``[<prefix>-]<topic uuid>``: the topic's name is stored nowhere. Nor is an offset: every segment's
first batch is read to learn it. Source: ``AzureBlobRemoteStorageManager``, ``ContainerNameEncoder``
(linkedin/kafka-remote-storage-azure).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from segreader.catalog.layouts.base import (
    Directory,
    Layout,
    Names,
    PartitionFiles,
    PartitionPlace,
    last_directory,
    parse_partition,
)
from segreader.catalog.layouts.file_sets import FileName, assemble, gather, kafka_id
from segreader.segment import TopicIdPartition
from segreader.storage.base import ObjectStore

UNKNOWN_TOPIC: Final = "unknown"
"""The topic of a container whose name holds no id."""

_UUID: Final = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_CONTAINER: Final = re.compile(rf"(?:[0-9a-z][0-9a-z-]*-)?(?P<topic_id>{_UUID})")
_KINDS: Final = {
    "SEGMENT": "log",
    "OFFSET": "index",
    "TIMESTAMP": "timeindex",
    "TRANSACTION": "txnindex",
    "PRODUCER_SNAPSHOT": "snapshot",
    "LEADER_EPOCH": "leader_epoch_checkpoint",
}
_BLOB: Final = re.compile(
    rf"(?P<partition>\d{{1,10}})\.(?P<segment_id>{_UUID})\.(?P<kind>{'|'.join(_KINDS)})", re.ASCII
)


class LinkedInLayout(Layout):
    """The topic's name is its id, with dashes, as in the container's name; the container may be a store of its own."""

    name = "linkedin-azure"
    is_experimental = True
    names = Names(file=_BLOB)

    def claim(self, directory: Directory, store: ObjectStore | None) -> Sequence[PartitionPlace]:
        """The partitions of all blobs of a container, or without a store of those that it shows."""
        files = directory.files if store is None else store.list_level(directory.path)
        matches = (_BLOB.fullmatch(info.name.rpartition("/")[2]) for info in files)
        texts = {match["partition"] for match in matches if match}
        numbers = sorted(number for text in texts if (number := parse_partition(text)) is not None)
        topic = last_directory(directory.path or (store.url("") if store is not None else ""))
        topic_id = None
        if match := _CONTAINER.fullmatch(topic):
            topic = match["topic_id"]
            topic_id = kafka_id(topic)
        return [
            PartitionPlace(
                TopicIdPartition(topic or UNKNOWN_TOPIC, number, topic_id), (f"{directory.path}{number}.",), self.name
            )
            for number in numbers
        ]

    def find(self, store: ObjectStore, place: PartitionPlace) -> PartitionFiles:
        """The segments of one partition, each with the offset of its first batch."""
        (prefix,) = place.prefixes
        directory = prefix.rpartition("/")[0]

        def parse(name: str) -> FileName | None:
            match = _BLOB.fullmatch(name.removeprefix(f"{directory}/" if directory else ""))
            if match is None:
                return None
            segment_id = kafka_id(match["segment_id"])
            return FileName(place.partition, _KINDS[match["kind"]], segment_id, segment_id=segment_id)

        return assemble(store, gather(store.list_level(prefix), parse, place.partition))
