"""The base offset of a log from its first batch, for layouts whose names do not contain it."""

from __future__ import annotations

import struct
from typing import Final

from segreader.errors import CorruptIndexError, FormatError, LimitExceededError, TruncatedError
from segreader.format.batch import COMMON_SIZE, HEADER_SIZE, check_common, parse_batch_header
from segreader.format.compression import DEFAULT_LIMIT, Decompressor
from segreader.format.message_set import iter_messages, parse_message_header
from segreader.ranges import ByteRange
from segreader.storage.base import ObjectStore

_INDEX_ENTRY: Final = struct.Struct(">ii")


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
