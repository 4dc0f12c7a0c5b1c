"""How the plugin names objects, and what it keeps of the names in the broker's metadata.

``<key.prefix><topic>-<topicId>/<partition>/<20 digits>-<segmentId>.<suffix>``: taken apart from the right, for topics
may hold ``-`` and ``.``, and ids ``-``. Source: ``ObjectKeyFactory``, ``SegmentCustomMetadataSerde`` of the plugin.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, NamedTuple

from segreader.errors import ManifestError
from segreader.segment import TopicIdPartition

LOG: Final = "log"
INDEXES: Final = "indexes"
MANIFEST: Final = "rsm-manifest"

_ID = r"[A-Za-z0-9_-]{22}"
_DIRECTORY = re.compile(
    rf"[^/]*?(?P<topic>[A-Za-z0-9._-]+)-(?P<topic_id>{_ID})/(?P<partition>0|[1-9][0-9]{{0,9}})/", re.DOTALL
)
PARTITION_PATH: Final = re.compile(rf".*[A-Za-z0-9._-]-{_ID}/(?:0|[1-9][0-9]{{0,9}})/", re.DOTALL)
"""Every path that ``parse_directory`` knows."""

STEM: Final = rf"[0-9]{{20}}-{_ID}"
_FILE = re.compile(rf"(?P<stem>(?P<base>[0-9]{{20}})-(?P<segment_id>{_ID}))\.(?P<suffix>[a-z_-]+)")
_MAX_INT = (1 << 31) - 1
_MAX_LONG = (1 << 63) - 1


class ObjectName(NamedTuple):
    """An object's name, taken apart: ``stem`` is all of it before the dot."""

    stem: str
    base_offset: int
    segment_id: str
    suffix: str


def parse_directory(path: str, key_prefix: str = "") -> TopicIdPartition | None:
    """The partition that a directory is for, by its path alone; ``None`` if it is for none.

    Args:
        path: from the store's root on, with ``/`` at its end.
        key_prefix: the plugin's ``key.prefix``, where it is known. What follows its last ``/`` comes before the topic
            without anything between them.
    """
    element = "/".join(path.rsplit("/", 3)[-3:])
    glued = key_prefix.rpartition("/")[2]
    match = glued and element.startswith(glued) and _DIRECTORY.fullmatch(element.removeprefix(glued))
    match = match or _DIRECTORY.fullmatch(element)
    if not match or (partition := int(match["partition"])) > _MAX_INT:
        return None
    return TopicIdPartition(match["topic"], partition, match["topic_id"])


def parse_name(name: str) -> ObjectName | None:
    """The parts of an object's name; ``None`` if no segment's objects are named so."""
    directory, slash, file = name.rpartition("/")
    if not directory[-1:].isdigit():  # files of other layouts have similar names: this excludes most of them at once
        return None
    match = _FILE.fullmatch(file)
    if match is None or (base := int(match["base"])) > _MAX_LONG or parse_directory(directory + slash) is None:
        return None
    return ObjectName(f"{directory}/{match['stem']}", base, match["segment_id"], match["suffix"])


def main_path(partition: TopicIdPartition, base_offset: int, segment_id: str) -> str:
    """What the names of a segment's objects have between the prefix and the dot."""
    return f"{partition.topic}-{partition.topic_id}/{partition.partition}/{base_offset:020d}-{segment_id}"


@dataclass(frozen=True, slots=True)
class CustomMetadata:
    """What the broker's metadata keeps for the plugin; ``None`` where the broker is not configured to keep it.

    ``remote_size`` is the sum of the segment's three objects. ``object_prefix`` and ``object_key`` replace
    the configured prefix and of ``main_path`` in the names of the log and the indexes.
    """

    remote_size: int | None = None
    object_prefix: str | None = None
    object_key: str | None = None


def parse_custom_metadata(data: bytes | memoryview) -> CustomMetadata:
    """Decode the custom metadata of a remote segment. No bytes are no fields; unknown fields are ignored.

    Raises:
        ManifestError: the bytes are no section of tagged fields, or a field has not the form of its kind.
    """
    if not len(data):
        return CustomMetadata()
    view = memoryview(data)
    count, position = _unsigned(view, 0, 5)
    fields: dict[int, memoryview] = {}
    previous = -1
    for _ in range(count):
        tag, position = _unsigned(view, position, 5)
        size, position = _unsigned(view, position, 5)
        if tag <= previous or size > len(view) - position:
            raise _malformed(position)
        fields[tag] = view[position : position + size]
        previous, position = tag, position + size
    if position != len(view):
        raise _malformed(position)
    return CustomMetadata(
        _size(fields[0]) if 0 in fields else None,
        _text(fields[1]) if 1 in fields else None,
        _text(fields[2]) if 2 in fields else None,
    )


def _size(field: memoryview) -> int:
    value, position = _unsigned(field, 0, 10)
    if position != len(field) or value & 1 or value >> 1 > _MAX_LONG:  # zig-zag: an odd one is negative
        raise _malformed(0)
    return value >> 1


def _text(field: memoryview) -> str:
    length, position = _unsigned(field, 0, 5)
    if position + length - 1 != len(field):
        raise _malformed(position)
    try:
        return str(field[position:], "utf-8")
    except UnicodeDecodeError:
        raise _malformed(position) from None


def _unsigned(data: memoryview, position: int, longest: int) -> tuple[int, int]:
    """A variable-length number, and where it ends."""
    value = 0
    for index, byte in enumerate(data[position : position + longest]):
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value, position + index + 1
    raise _malformed(position)


def _malformed(position: int) -> ManifestError:
    return ManifestError("custom metadata is malformed", position=position, expected="a section of tagged fields")
