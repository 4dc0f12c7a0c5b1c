"""What Pinterest's uploader notes about a partition, held against what is there. Hints: never an error, never a list.

``offset.wm`` is written after each log, and not again if that fails. ``_metadata`` is sparse: an update that fails, or
loses a race, leaves its segment out for ever. Times in it are those of local files and bound nothing.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any, Final

from segreader.catalog.layouts.file_sets import parse_offset
from segreader.errors import StorageError
from segreader.ranges import ByteRange
from segreader.segment import TopicIdPartition
from segreader.storage.base import ObjectInfo, ObjectStore

WATERMARK: Final = "offset.wm"
METADATA: Final = "_metadata"

_LARGEST: Final = 8 << 20
_WATERMARK_SIZE: Final = 20


def hint_notes(
    store: ObjectStore, hints: Mapping[str, ObjectInfo], partition: TopicIdPartition, bases: Collection[int]
) -> list[str]:
    """What the hints say otherwise than the listing.

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
                data = store.read_ranges(info.name, [ByteRange(0, size)])[0] if size else b""
                text = compare(data, partition, bases)
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
        return f"names {len(missing)} segments that are not there, the first of base offset {missing[0]}"
    return None
