"""The newest time in a segment, only where that is certain: a filter may then leave the whole segment unread.

A time index has no checksum, and a copy of it may be cut. So its last entry is held against the log: the batch that it
names must have just that time, and no batch behind it a newer one. Before it nothing is newer, for a broker adds
an entry for each new maximum that it meets at an index interval, and one at the end for the maximum of all.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from segreader.errors import FormatError, StorageError
from segreader.format.batch import RecordBatchHeader
from segreader.format.compression import DEFAULT_LIMIT
from segreader.plan.lineage import Part
from segreader.ranges import ByteRange
from segreader.segment import Segment
from segreader.storage.base import ObjectStore
from segreader.stored.segment_ends import iter_headers, read_end_of_index

_ENTRY: Final = Struct(">qi")
_MOST_BYTES: Final = 1 << 20
"""Of the log that are read to be certain; a maximum further back is not worth it."""


def certain_newest_ms(store: ObjectStore, part: Part, max_batch_bytes: int = DEFAULT_LIMIT) -> int | None:
    """A time that no record of the part is newer than, in ms; ``None`` where nothing here proves one.

    Args:
        part: of one segment. One that a broker may still write to proves nothing.
    """
    segment = part.segment
    if segment.is_active or not segment.log_size:
        return None
    if segment.max_timestamp_ms is not None:  # as the broker stated it, under a CRC or in a manifest
        return segment.max_timestamp_ms if segment.max_timestamp_ms > 0 else None
    try:
        entry = _last_entry(store, segment)
        return None if entry is None or not _is_proved(store, segment, *entry, max_batch_bytes) else entry[0]
    except (FormatError, StorageError):
        return None


def _last_entry(store: ObjectStore, segment: Segment) -> tuple[int, int] | None:
    """Time and offset of the last entry of the time index."""
    name = segment.files.time_index
    if name is None:
        return None
    size = segment.files.sizes.get(name)
    size = store.size(name) if size is None else size
    if size < _ENTRY.size or size % _ENTRY.size:
        return None
    data = store.read_ranges(name, [ByteRange(size - _ENTRY.size, size)])[0]
    timestamp_ms, relative_offset = _ENTRY.unpack(data)
    return (timestamp_ms, segment.base_offset + relative_offset) if timestamp_ms > 0 <= relative_offset else None


def _is_proved(store: ObjectStore, segment: Segment, newest_ms: int, offset: int, max_batch_bytes: int) -> bool:
    """Whether the batches from the one with ``offset`` on say that ``newest_ms`` is the maximum."""
    start = 0
    if segment.log_size > _MOST_BYTES:
        if segment.files.offset_index is None:
            return False
        index = read_end_of_index(store, segment.files.offset_index, segment)
        before = [entry for entry in index if entry.offset < offset]  # an entry's own batch may begin the search
        if not before or segment.log_size - before[-1].position > _MOST_BYTES:
            return False
        start = before[-1].position
    is_found = False
    for header in iter_headers(store, segment, start, max_batch_bytes):
        if not isinstance(header, RecordBatchHeader) or header.max_timestamp > newest_ms:
            return False
        is_found |= header.base_offset <= offset <= header.last_offset and header.max_timestamp == newest_ms
    return is_found
