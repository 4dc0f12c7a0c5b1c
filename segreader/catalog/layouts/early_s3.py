"""The S3 plugin of KIP-405's preview: ``<topic>-<partition>/<20 digits>.{log,index,timeindex}.<segment id>``.

The id comes after the extension, and nothing else was stored: no transactions' index, no snapshot, no epochs.
Source: ``S3RemoteStorageManager`` (satishd/kafka).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from segreader.catalog.layouts.base import Directory, PartitionFiles, PartitionPlace
from segreader.catalog.layouts.file_sets import FileName, assemble, directory_partition, gather, kafka_id, parse_offset
from segreader.segment import TopicIdPartition
from segreader.storage.base import ObjectStore

NAME: Final = "early-s3"

_FILE: Final = re.compile(
    r"(?P<base>\d{20})\.(?P<kind>log|index|timeindex)"
    r"\.(?P<segment_id>[A-Za-z0-9_-]{22}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class EarlyS3Layout:
    """Plain files. Ids are read as Kafka writes them, and as the UUIDs with dashes that the first versions wrote."""

    name: str = field(default=NAME, init=False)
    is_experimental: bool = field(default=False, init=False)

    def partition_of(self, path: str) -> TopicIdPartition | None:
        """By the name of the last directory."""
        return directory_partition(path)

    def places(self, directory: Directory) -> Sequence[PartitionPlace]:
        """The partition of this directory, if its files have the names of this layout."""
        partition = directory_partition(directory.path)
        if partition is None or not any(map(_FILE.fullmatch, directory.file_names)):
            return ()
        return (PartitionPlace(partition, (directory.path,), NAME),)

    def find(self, store: ObjectStore, place: PartitionPlace) -> PartitionFiles:
        """The sets of files of one partition."""
        (prefix,) = place.prefixes

        def parse(name: str) -> FileName | None:
            match = _FILE.fullmatch(name.removeprefix(prefix))
            if match is None or (base := parse_offset(match["base"])) is None:
                return None
            segment_id = kafka_id(match["segment_id"])
            return FileName(place.partition, match["kind"], f"{base}.{segment_id}", base, segment_id)

        return assemble(store, gather(store.list_level(prefix), parse, place.partition))
