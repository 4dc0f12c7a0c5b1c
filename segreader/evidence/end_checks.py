"""Where a log ends, against the files beside it: whether it is cut, or empty though the cleaner did not empty it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Final

from segreader.errors import FormatError, ObjectNotFoundError, SegreaderError
from segreader.evidence.log_checks import look_for_cleaning
from segreader.format.checkpoints import parse_producer_snapshot
from segreader.format.index_files import parse_offset_index, parse_time_index, parse_transaction_index
from segreader.ranges import ByteRange
from segreader.segment import Segment, StemFiles
from segreader.storage.base import ObjectStore

_TIME_ENTRY: Final = Struct(">qi")
_MOST_OTHERS: Final = 16


def why_not_emptied(store: ObjectStore, empty: Segment, others: Sequence[Segment], *, was_cleaned: bool) -> str | None:
    """What contradicts that the log cleaner left this log empty; ``None`` if nothing does.

    The cleaner leaves empty indexes, and traces in other segments. No other part of a broker leaves a finished segment
    without a batch.

    Args:
        others: the other segments of the partition.
        was_cleaned: a batch that was read shows that the log was compacted.
    """
    files = empty.files
    for name in (files.offset_index, files.time_index, files.transaction_index):
        if name is not None and any(_read(store, empty, name)):
            return f"{name.rpartition('/')[2]} beside it has entries"
    if was_cleaned:
        return None
    nearest = sorted((one for one in others if one.log_size), key=lambda one: abs(one.base_offset - empty.base_offset))
    for one in nearest[:_MOST_OTHERS]:
        try:
            if look_for_cleaning(store, one):
                return None
        except SegreaderError:
            continue  # reading it will say so
    return "no batch beside it shows that the log was compacted"


def largest_named(store: ObjectStore, segment: Segment) -> int | None:
    """The largest offset that the files beside a log name; ``None`` if they name none."""
    base, files = segment.base_offset, segment.files
    named: list[int] = []

    def look(name: str | None, offsets: Callable[[bytes], Sequence[int]]) -> None:
        try:
            if name is not None and (found := offsets(_read(store, segment, name))):
                named.append(max(found))
        except FormatError:
            pass  # what cannot be read names nothing

    look(files.offset_index, lambda data: [one.offset for one in parse_offset_index(data, base)])
    look(files.time_index, lambda data: [one.offset for one in parse_time_index(data, base)])
    look(files.transaction_index, lambda data: [row.last_offset for row in parse_transaction_index(data, base)])
    look(files.producer_snapshot, lambda data: [one.last_offset for one in parse_producer_snapshot(data)])
    return max((offset for offset in named if offset >= base), default=None)


def last_timed_offset(store: ObjectStore, segment: Segment) -> int | None:
    """The offset in the last entry of a time index, by its 12 bytes: the batch with the largest timestamp holds it.

    ``None`` where there is none, or the entry says nothing.
    """
    name = segment.files.time_index
    if name is None or isinstance(segment.files, StemFiles):  # the catalogue knows those segments' sizes and ends
        return None
    try:
        size = segment.files.sizes.get(name)
        size = store.size(name) if size is None else size
        if size < _TIME_ENTRY.size or size % _TIME_ENTRY.size:
            return None
        data = store.read_ranges(name, [ByteRange(size - _TIME_ENTRY.size, size)])[0]
    except ObjectNotFoundError:
        return None
    timestamp_ms, relative_offset = _TIME_ENTRY.unpack(data)
    if timestamp_ms <= 0 or relative_offset < 0:
        return None
    return segment.base_offset + int(relative_offset)


def _read(store: ObjectStore, segment: Segment, name: str) -> bytes:
    try:
        size = segment.files.sizes.get(name)
        size = store.size(name) if size is None else size
        return store.read_ranges(name, [ByteRange(0, size)])[0] if size else b""
    except ObjectNotFoundError:
        return b""
