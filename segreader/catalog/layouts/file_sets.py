"""Sets of plain files that make a segment each, gathered from a listing: what several layouts have in common.

Where no name contains a segment's base offset, it is read from the first batch of the log.
"""

from __future__ import annotations

import base64
import struct
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import field
from typing import Final

from segreader.catalog.layouts.base import IncompleteSegment, PartitionFiles, segment_files
from segreader.errors import (
    CorruptIndexError,
    FormatError,
    LimitExceededError,
    ObjectNotFoundError,
    TruncatedError,
    shown_count,
)
from segreader.format.batch import COMMON_SIZE, HEADER_SIZE, check_common, parse_batch_header
from segreader.format.compression import DEFAULT_LIMIT, Decompressor
from segreader.format.message_set import iter_messages, parse_message_header
from segreader.ranges import ByteRange
from segreader.segment import Segment, TopicIdPartition
from segreader.storage.base import ObjectInfo, ObjectStore, read_each
from segreader.values import dataclass

UNKNOWN_OFFSET: Final = -1
"""Base offset of an incomplete set whose names do not contain it."""

_MOST_FOREIGN: Final = 1000
_RELATIVE: Final = ("index", "timeindex")
"""Kinds of files whose offsets count from the segment's base."""

_MOST_PREFIXES: Final = 500
"""Above that many requests, one listing of everything costs less."""

_TIME_BITS: Final = 48
"""Bits of a time in ms: enough until the year 10889."""

_INDEX_ENTRY: Final = struct.Struct(">ii")


@dataclass(frozen=True, slots=True)
class FileName:
    """The parts of an object's name.

    Args:
        partition: whose file.
        kind: ``log``, ``index``, ``timeindex``, ``txnindex``, ``leader_epoch_checkpoint``, or ``snapshot``: the
            state at the segment's end.
        set_name: the same for all files of one segment, and for no other segment of the partition.
        base_offset: ``None`` where the first batch must be asked.
        generation: of two copies the larger one is preferred; among equals the one that was written later.
    """

    partition: TopicIdPartition
    kind: str
    set_name: str
    base_offset: int | None = None
    segment_id: str | None = None
    generation: int = 0


@dataclass(slots=True)
class FileSet:
    """The objects of one segment."""

    name: FileName
    files: dict[str, ObjectInfo] = field(default_factory=dict)


@dataclass(slots=True)
class Gathered:
    """The sets of one partition, and what belongs to none."""

    sets: dict[str, FileSet] = field(default_factory=dict)
    foreign: list[str] = field(default_factory=list)
    foreign_count: int = 0

    def add(self, info: ObjectInfo, name: FileName) -> None:
        """Put an object into its set; a second one of the same kind is foreign."""
        files = self.sets.setdefault(name.set_name, FileSet(name)).files
        if files.setdefault(name.kind, info) is not info:
            self.add_foreign(info.name)

    def add_foreign(self, name: str) -> None:
        """Note an object; of very many only the first ones are named."""
        self.foreign_count += 1
        if len(self.foreign) < _MOST_FOREIGN:
            self.foreign.append(name)


def narrowest(directories: Collection[str], root: str) -> tuple[str, ...]:
    """Prefixes to list for the objects directly in ``directories``, all below ``root``: each one, or the root."""
    return tuple(sorted(directories)) if len(directories) <= _MOST_PREFIXES else (root,)


def list_prefixes(store: ObjectStore, prefixes: Sequence[str]) -> Iterator[ObjectInfo]:
    """What is directly in each of several directories, or anywhere below a single one."""
    if len(prefixes) == 1:
        yield from store.list(prefixes[0])
        return
    for level in read_each(lambda prefix: list(store.list_level(prefix)), prefixes):
        yield from (info for info in level if not info.name.endswith("/"))


def gather(
    objects: Iterable[ObjectInfo], parse: Callable[[str], FileName | None], partition: TopicIdPartition
) -> Gathered:
    """The objects of one partition, in sets. What ``parse`` cannot read is foreign; other partitions are none of it."""
    gathered = Gathered()
    for info in objects:
        if (name := parse(info.name)) is None:
            gathered.add_foreign(info.name)
        elif name.partition == partition:
            gathered.add(info, name)
    return gathered


def assemble(store: ObjectStore, gathered: Gathered) -> PartitionFiles:
    """The sets as segments. A set without its log is incomplete; one without an index is read, and noted.

    Where no name contains a base offset, the first batch of every log is read, some logs at a time; an offset index is
    used then only if it certainly counts from that offset.

    Raises:
        FormatError: a log's first batch is needed for its base offset, and it does not begin with one.
        StorageError: as the store raises.
    """
    whole = [one for one in gathered.sets.values() if "log" in one.files]
    incomplete = [_incomplete(one) for one in gathered.sets.values() if "log" not in one.files]
    if any(one.name.base_offset is None or one.files["log"].size < 0 for one in whole):
        read = read_each(lambda one: _read_segment(store, one), whole)
    else:
        read = [(_segment(one, one.name.base_offset or 0, one.files["log"].size), None) for one in whole]
    segments = [segment for segment, _ in read if segment is not None]
    found = [*(note for _, note in read if note is not None), *_lacking(whole)]
    if gathered.foreign_count > len(gathered.foreign):
        found.append(f"{gathered.foreign_count} objects belong to no segment; the first {_MOST_FOREIGN} are named")
    return PartitionFiles(segments, incomplete, gathered.foreign, found)


def kafka_id(text: str) -> str:
    """The 22-character form of an id, given in that form or as a UUID with dashes."""
    if len(text) != 36:
        return text
    return base64.urlsafe_b64encode(uuid.UUID(text).bytes).decode("ascii").rstrip("=")


def _read_segment(store: ObjectStore, one: FileSet) -> tuple[Segment | None, str | None]:
    """The segment, if there is one, and a note of what is wrong."""
    log, note = one.files["log"], None
    try:
        size = log.size if log.size >= 0 else store.size(log.name)
        if one.name.base_offset is not None:
            return _segment(one, one.name.base_offset, size), None
        if size == 0:
            return None, f"{log.name} is empty, and nothing says its offset; it may be what is left of a cut copy"
        base_offset = read_base_offset(store, log.name, size)
        index, is_certain = one.files.get("index"), False
        if index is not None:
            index_size = index.size if index.size >= 0 else store.size(index.name)
            try:
                is_certain = counts_from(store, base_offset, log.name, size, index.name, index_size)
            except CorruptIndexError as error:
                note = str(error)
        if not is_certain:
            one = FileSet(one.name, {kind: info for kind, info in one.files.items() if kind not in _RELATIVE})
        return _segment(one, base_offset, size), note
    except ObjectNotFoundError:
        return None, f"{log.name} vanished while it was looked at: retention removed it, or a copy was given up"


def _segment(one: FileSet, base_offset: int, log_size: int) -> Segment:
    log = one.files["log"]
    return Segment(
        partition=one.name.partition,
        base_offset=base_offset,
        log_size=log_size,
        files=segment_files(one.files),
        segment_id=one.name.segment_id,
        version=one.name.generation << _TIME_BITS | min(max(log.modified_ms or 0, 0), (1 << _TIME_BITS) - 1),
        log_tag=log.tag,
    )


def _incomplete(one: FileSet) -> IncompleteSegment:
    first = min(info.name for info in one.files.values())
    base_offset = UNKNOWN_OFFSET if one.name.base_offset is None else one.name.base_offset
    epochs = one.files.get("leader_epoch_checkpoint")
    name = epochs.name if epochs is not None else None
    return IncompleteSegment(base_offset, first, ("log",), one.name.segment_id, leader_epochs=name)


def _lacking(whole: Sequence[FileSet]) -> list[str]:
    notes = []
    for kind, text in (("index", "offset index: read from the start"), ("timeindex", "time index")):
        lacking = [one.files["log"].name for one in whole if kind not in one.files]
        if lacking:
            segments = shown_count(len(whole), "segment has", "segments have")
            notes.append(f"{len(lacking)} of {segments} no {text}; the first is {min(lacking)}")
    return notes


def read_base_offset(store: ObjectStore, log: str, log_size: int) -> int:
    """Offset of the first record that a log can hold, read from its first batch.

    The segment's own base offset may be lower, where compaction removed the first batches.

    Args:
        log_size: bytes of the log; more than none.

    Raises:
        FormatError: it does not begin with a batch, or with a compressed message set that cannot be opened: only
            inside one is its first offset.
    """
    try:
        head = store.read_ranges(log, [ByteRange(0, min(HEADER_SIZE, log_size))])[0]
        if len(head) < COMMON_SIZE:
            raise TruncatedError(
                "the first batch is cut", found=f"{log_size} bytes", expected=f"{HEADER_SIZE} bytes", position=0
            )
        offset, size, magic = check_common(head, 0)
        if magic == 2 or parse_message_header(head).codec == 0:
            return offset
        if size > log_size:
            raise TruncatedError(
                "the first batch is cut", found=f"{log_size} bytes", expected=f"{size} bytes", position=0
            )
        if size > DEFAULT_LIMIT:
            raise LimitExceededError(
                "the first batch is too large to be opened",
                found=f"{size} bytes",
                expected=f"at most {DEFAULT_LIMIT} bytes",
                position=0,
            )
        entry = store.read_ranges(log, [ByteRange(0, size)])[0]
        return next(iter_messages(entry, Decompressor(), check_crcs=True)).record.offset
    except FormatError as error:
        raise error.located(
            source=store.url(log),
            hint="Its base offset is in no name: without the first batch it has no place in the log",
        ) from None


def counts_from(store: ObjectStore, base_offset: int, log: str, log_size: int, index: str, index_size: int) -> bool:
    """Whether the entries of an offset index certainly count from ``base_offset``, an offset not below their base.

    An entry's offset is at least the last one of the batch at its position (``OffsetIndex``, 4.0): where both are
    equal under this base, no lower one fits. ``False`` is no damage; the index then cannot be used, for offsets that
    seem too large would cut records off.

    Raises:
        CorruptIndexError: the last entry points behind the log, or to where no batch begins: one of the two is cut, or
            of another segment.
        StorageError: as the store raises.
    """
    entries = index_size // _INDEX_ENTRY.size
    if not entries:
        return False
    start = (entries - 1) * _INDEX_ENTRY.size
    relative, position = _INDEX_ENTRY.unpack(store.read_ranges(index, [ByteRange(start, start + _INDEX_ENTRY.size)])[0])
    if position >= log_size:
        raise _not_of_log(store, index, log, start, f"byte {position} of a log of {log_size} bytes")
    if relative < 0 or not 0 <= position <= log_size - HEADER_SIZE:
        return False
    head = store.read_ranges(log, [ByteRange(position, position + HEADER_SIZE)])[0]
    try:
        offset, _, magic = check_common(head, 0)
        last = parse_batch_header(head).last_offset if magic == 2 else offset
    except FormatError:
        raise _not_of_log(store, index, log, start, f"byte {position}, where no batch begins") from None
    return bool(base_offset + relative == last)


def _not_of_log(store: ObjectStore, index: str, log: str, entry: int, found: str) -> CorruptIndexError:
    return CorruptIndexError(
        "the offset index is not of the log beside it",
        source=store.url(index),
        position=entry,
        found=f"an entry for {found}",
        expected=f"one for a batch of {log.rpartition('/')[2]}",
        hint="The log is cut, or one of the two is another segment's: look with segreader verify",
    )
