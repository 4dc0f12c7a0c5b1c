"""Pinterest's tiered storage: ``<base>/[<bits>/]<cluster>/<topic>-<partition>/<20 digits>.{log,index,timeindex}``.

Closed segments, byte for byte, beside two objects with hints, which are compared with the listing and never replace it.
``offset.wm`` names the last log that was completed; it is written after each log, and not again if that write fails.
``_metadata`` is sparse: an update that fails, or loses a race, leaves its segment out for ever. Times in it are those
of local files and bound nothing.

A directory looks like a broker's own; docs/reference/layouts/pinterest.md lists the differences. Source:
pinterest/tiered-storage 1.0.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from segreader.catalog.layouts.base import (
    PARTITION_PATH,
    Directory,
    Layout,
    Names,
    PartitionFiles,
    PartitionPlace,
    parse_offset,
)
from segreader.catalog.layouts.file_sets import FileName, assemble, gather
from segreader.errors import StorageError, shown_count
from segreader.segment import Segment, TopicIdPartition
from segreader.storage.base import ObjectInfo, ObjectStore, read_whole
from segreader.values import dataclass

NAME: Final = "pinterest"
WATERMARK: Final = "offset.wm"
METADATA: Final = "_metadata"

_LARGEST: Final = 8 << 20
_WATERMARK_SIZE: Final = 20
_FILE: Final = re.compile(r"(?P<base>\d{20})\.(?P<kind>log|index|timeindex)", re.ASCII)
_OF_A_BROKER: Final = re.compile(r"\d{20}\.(?:snapshot|txnindex)|leader-epoch-checkpoint|partition\.metadata", re.ASCII)
_BITS: Final = re.compile(r"[01]{1,128}")
_REORDERED_MS: Final = 600_000
"""Uploads run side by side; only what is more out of order than this is worth a note."""


@dataclass(frozen=True, slots=True)
class PinterestLayout(Layout):
    """Plain files, without snapshots and indexes of transactions.

    Args:
        entropy_bits: ``prefix.entropy.bits`` of the uploader; 0 or less for none, ``None`` takes what is there.
        use_metadata: whether to compare the listing with ``_metadata`` and ``offset.wm``.
        is_forced: the user named this layout, so a directory need not show that it is one.
    """

    entropy_bits: int | None = None
    use_metadata: bool = True
    is_forced: bool = False
    name = NAME
    names = Names(PARTITION_PATH, _FILE)

    def claim(self, directory: Directory, store: ObjectStore | None) -> Sequence[PartitionPlace]:
        """The partition, if what is shown can only be of this layout; else one request asks for a watermark."""
        partition = self.partition_of(directory.path)
        verdict = False if partition is None else self._is_ours(directory, partition)
        if verdict is None and store is not None:
            wanted = directory.path + WATERMARK
            verdict = any(info.name == wanted for info in store.list_level(wanted))
        return Layout.claim(self, directory, store) if verdict else ()

    def find(self, store: ObjectStore, place: PartitionPlace) -> PartitionFiles:
        """The segments of one partition, one for each ``.log``. Overlaps and holes stay as they are."""
        (prefix,) = place.prefixes
        objects: list[ObjectInfo] = []
        hints: dict[str, ObjectInfo] = {}
        for info in store.list_level(prefix):
            file = info.name.removeprefix(prefix)
            if file in (WATERMARK, METADATA):
                hints[file] = info
            else:
                objects.append(info)

        def parse(name: str) -> FileName | None:
            match = _FILE.fullmatch(name.removeprefix(prefix))
            if match is None or (base := parse_offset(match["base"])) is None:
                return None
            return FileName(place.partition, match["kind"], match["base"], base)

        found = assemble(store, gather(objects, parse, place.partition))
        notes = [*found.notes, *_reordered(found.segments)]
        if self.use_metadata:
            notes += hint_notes(store, hints, place.partition, {one.base_offset for one in found.segments})
        return PartitionFiles(found.segments, found.incomplete, found.foreign, notes)

    def _is_ours(self, directory: Directory, partition: TopicIdPartition) -> bool | None:
        """Whether it is a partition of this layout; ``None``: a broker's would look the same."""
        has_bits = self._has_entropy(directory.path, partition)
        if has_bits is False:
            return False
        names = directory.file_names
        if self.is_forced or WATERMARK in names or METADATA in names:
            return True
        if any(map(_OF_A_BROKER.fullmatch, names)):
            return False
        return has_bits

    def _has_entropy(self, path: str, partition: TopicIdPartition) -> bool | None:
        """Whether the path contains this partition's bits; ``None`` where it need not, or does not show."""
        elements = path.removesuffix("/").split("/")
        if len(elements) < 3 or (self.entropy_bits is not None and self.entropy_bits <= 0):
            return None
        bits, cluster = elements[-3], elements[-2]
        count = len(bits) if self.entropy_bits is None else self.entropy_bits
        if count <= 128 and _BITS.fullmatch(bits):
            is_right = bits == entropy_bits(cluster, partition.topic, partition.partition, count)
            return True if is_right else (None if self.entropy_bits is None else False)
        return None if self.entropy_bits is None else False


def entropy_bits(cluster: str, topic: str, partition: int, count: int) -> str:
    """The first ``count`` (1 to 128) binary digits of the hash that spreads partitions over prefixes.

    Source: ``ts.segment.uploader.s3.prefix.entropy.bits`` (pinterest/tiered-storage 1.0).
    """
    import hashlib

    digest = hashlib.md5(f"{cluster}-{topic}-{partition}".encode(), usedforsecurity=False).digest()
    return f"{int.from_bytes(digest, 'big'):0128b}"[:count]


def _reordered(segments: Sequence[Segment]) -> list[str]:
    """A note if segments of larger offsets were written long before those of smaller ones."""
    latest, late = 0, []
    for segment in sorted(segments, key=lambda one: one.base_offset):
        if segment.version and segment.version + _REORDERED_MS < latest:
            late.append(segment)
        latest = max(latest, segment.version)
    if not late:
        return []
    return [
        f"{shown_count(len(late), 'segment was', 'segments were')} written before others of smaller offsets, "
        f"the first is {late[0].files.log}: "
        "an upload came late, or the topic was deleted and created again and both are here under the same names"
    ]


def hint_notes(
    store: ObjectStore, hints: Mapping[str, ObjectInfo], partition: TopicIdPartition, bases: Collection[int]
) -> list[str]:
    """Notes on what the hints state and the listing contradicts.

    Args:
        hints: ``WATERMARK`` and ``METADATA``, those that are there.
        bases: base offsets of the segments whose logs were listed.
    """
    notes = []
    for file, compare in ((WATERMARK, _compare_watermark), (METADATA, _compare_metadata)):
        if info := hints.get(file):
            try:
                size = info.size if info.size >= 0 else store.size(info.name)
                if size > _LARGEST:
                    notes.append(f"{info.name} is not read: it has {size} bytes, more than {_LARGEST}")
                    continue
                text = compare(read_whole(store, info.name, size), partition, bases)
            except StorageError as error:
                text = f"cannot be read: {error}"
            except (ValueError, RecursionError):
                text = "is not what the uploader writes"
            if text:
                notes.append(f"{info.name} {text}; segments are taken from the listing")
    return notes


def parse_watermark(data: bytes) -> int:
    """Base offset of the segment whose log was completed last. Raises ``ValueError``."""
    offset = parse_offset(data.decode("ascii")) if len(data) == _WATERMARK_SIZE else None
    if offset is None:
        raise ValueError("not 20 digits")
    return offset


def parse_metadata(data: bytes) -> tuple[str, int, list[int]]:
    """Topic, partition and the base offsets in a ``_metadata``, whatever else it holds. Raises ``ValueError``."""
    document = json.loads(data)
    where = _member(document, "topicPartition", dict)
    entries = _member(_member(_member(document, "metadata", dict), "timeindex", dict), "entries", list)
    bases = [_member(entry, "baseOffset", int) for entry in entries]
    return _member(where, "topic", str), _member(where, "partition", int), bases


def _member(value: Any, name: str, kind: type) -> Any:
    found = value.get(name) if isinstance(value, dict) else None
    if not isinstance(found, kind) or isinstance(found, bool):
        raise ValueError(f"no {name}")
    return found


def _compare_watermark(data: bytes, partition: TopicIdPartition, bases: Collection[int]) -> str | None:
    offset = parse_watermark(data)
    if offset in bases:
        return None
    return f"says that the log of base offset {offset} was completed, which is not there"


def _compare_metadata(data: bytes, partition: TopicIdPartition, bases: Collection[int]) -> str | None:
    topic, number, named = parse_metadata(data)
    if (topic, number) != (partition.topic, partition.partition):
        return "is of another partition"
    if missing := sorted(set(named).difference(bases)):
        there = shown_count(len(missing), "segment that is", "segments that are")
        return f"names {there} not there, the first of base offset {missing[0]}"
    return None
