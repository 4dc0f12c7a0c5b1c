"""Confluent Platform's tiered storage: ``[<prefix>]0/<object id>/<topic id>/<partition>/<file>``; plain files.

``<file>`` is ``<base offset:20>_<tier epoch>_v<version>.<type>``. A random id comes first, so nothing can be narrowed:
all of ``0/`` is listed to learn which partitions there are. Which objects count is recorded in a metadata topic that is
not read here: of two copies the one of the later leader is preferred. The topic's name is in user metadata of
the objects, which a listing does not show: the topic's id is its name here.

Source: ``TierObjectStore``, ``ArchiveTask`` (Confluent Server 5.4 to 6, as published); no version is documented.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from segreader.catalog.layouts.base import Directory, Layout, Names, PartitionFiles, PartitionPlace, parse_offset
from segreader.catalog.layouts.file_sets import FileName, assemble, gather, list_prefixes, narrowest
from segreader.segment import TopicIdPartition
from segreader.storage.base import ObjectStore

_ID: Final = r"[A-Za-z0-9_-]{22}"
_KINDS: Final = {
    "segment": "log",
    "offset-index": "index",
    "timestamp-index": "timeindex",
    "transaction-index": "txnindex",
    "producer-state": "snapshot",
    "epoch-state": "leader_epoch_checkpoint",
}
_DIRECTORY: Final = re.compile(
    rf"(?P<root>(?:.*/)?0/)(?P<object_id>{_ID})/(?P<topic>(?P<topic_id>{_ID}))/(?P<partition>\d{{1,10}})/", re.ASCII
)
_FILE: Final = re.compile(
    rf"(?P<base>\d{{20}})_(?P<tier_epoch>\d{{1,10}})_v\d{{1,10}}\.(?P<kind>{'|'.join(_KINDS)})", re.ASCII
)


class ConfluentLayout(Layout):
    """Segments of compacted topics have gaps, and every transaction index repeats what concerns its segment."""

    name = "confluent"
    is_experimental = True
    names = Names(_DIRECTORY, _FILE, re.compile(rf"(?:.*/)?0/{_ID}/", re.DOTALL))

    def claim(self, directory: Directory, store: ObjectStore | None) -> Sequence[PartitionPlace]:
        """The partition of an object's own directory; its other objects are anywhere below the same root."""
        match = _DIRECTORY.fullmatch(directory.path)
        partition = None if match is None else self.partition(match)
        return () if match is None or partition is None else (PartitionPlace(partition, (match["root"],), self.name),)

    def claim_below(self, directory: Directory, store: ObjectStore) -> Sequence[PartitionPlace]:
        """The partitions below a ``0/``, from one listing of all that is there."""
        found: dict[TopicIdPartition, set[str]] = defaultdict(set)
        for info in store.list(directory.path):
            if (name := _parse(info.name)) is not None:
                found[name.partition].add(info.name.rpartition("/")[0] + "/")
        return [
            PartitionPlace(partition, narrowest(directories, directory.path), self.name)
            for partition, directories in sorted(found.items(), key=lambda item: item[0].order)
        ]

    def find(self, store: ObjectStore, place: PartitionPlace) -> PartitionFiles:
        """The sets of objects of one partition, copies included."""
        return assemble(store, gather(list_prefixes(store, place.prefixes), _parse, place.partition))


def _parse(name: str) -> FileName | None:
    path, _, file = name.rpartition("/")
    place, match = _DIRECTORY.fullmatch(path + "/"), _FILE.fullmatch(file)
    if place is None or match is None:
        return None
    partition, base = ConfluentLayout().partition(place), parse_offset(match["base"])
    if partition is None or base is None:
        return None
    stem = name.removesuffix("." + match["kind"])
    return FileName(partition, _KINDS[match["kind"]], stem, base, place["object_id"], int(match["tier_epoch"]))
