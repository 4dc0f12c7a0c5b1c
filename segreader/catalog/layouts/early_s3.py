"""The S3 plugin of KIP-405's preview: ``<topic>-<partition>/<20 digits>.{log,index,timeindex}.<segment id>``.

The id comes after the extension, and nothing else was stored: no transactions' index, no snapshot, no epochs.
Source: ``S3RemoteStorageManager`` (satishd/kafka).
"""

from __future__ import annotations

import re
from typing import Final

from segreader.catalog.layouts.base import (
    PARTITION_PATH,
    Layout,
    Names,
    PartitionFiles,
    PartitionPlace,
    parse_offset,
)
from segreader.catalog.layouts.file_sets import FileName, assemble, gather, kafka_id
from segreader.storage.base import ObjectStore

_FILE: Final = re.compile(
    r"(?P<base>\d{20})\.(?P<kind>log|index|timeindex)"
    r"\.(?P<segment_id>[A-Za-z0-9_-]{22}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})",
    re.ASCII,
)


class EarlyS3Layout(Layout):
    """Plain files. Ids are read as Kafka writes them, and as the UUIDs with dashes that the first versions wrote."""

    name = "early-s3"
    names = Names(PARTITION_PATH, _FILE)

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
