"""A batch as verification sees it: the facts of its header, of any magic, without its bytes."""

from __future__ import annotations

from array import array
from typing import Final, NamedTuple

from segreader.format.batch import (
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    LOG_APPEND_TIME_FLAG,
    TRANSACTIONAL_FLAG,
    RecordBatchHeader,
)
from segreader.format.columns import TABLE_WIDTH, Table
from segreader.format.message_set import MessageHeader

LARGEST_RELATIVE_OFFSET: Final = (1 << 31) - 1
"""How far above its base offset a segment can reach. Source: ``LogSegment.canConvertToRelativeOffset`` (4.3)."""


class Batch(NamedTuple):
    """Header fields by the names of ``RecordBatchHeader``; of a message set both offsets are the last one."""

    position: int
    size: int
    base_offset: int
    last_offset: int
    leader_epoch: int
    magic: int
    attributes: int
    max_timestamp: int
    producer_id: int
    record_count: int
    crc: int

    @property
    def is_control(self) -> bool:
        """Whether it holds a control record."""
        return self.magic == 2 and bool(self.attributes & CONTROL_FLAG)

    @property
    def is_transactional(self) -> bool:
        """Whether it belongs to a transaction of a producer."""
        return self.magic == 2 and bool(self.attributes & TRANSACTIONAL_FLAG) and self.producer_id >= 0

    @property
    def has_append_time(self) -> bool:
        """Whether all its records take ``max_timestamp``."""
        return bool(self.attributes & LOG_APPEND_TIME_FLAG)

    @property
    def was_cleaned(self) -> bool:
        """Whether the log cleaner has been here: records are missing, or are to go at a certain time."""
        return self.magic == 2 and (
            self.record_count <= self.last_offset - self.base_offset or bool(self.attributes & DELETE_HORIZON_FLAG)
        )


def batch_of_header(header: RecordBatchHeader | MessageHeader, position: int) -> Batch:
    """The facts of the header at ``position``."""
    if isinstance(header, RecordBatchHeader):
        return Batch(
            position,
            header.size,
            header.base_offset,
            header.last_offset,
            header.partition_leader_epoch,
            header.magic,
            header.attributes,
            header.max_timestamp,
            header.producer_id,
            header.record_count,
            header.crc,
        )
    last, time = header.offset, header.timestamp_ms
    return Batch(position, header.size, last, last, -1, header.magic, header.attributes, time, -1, -1, header.crc)


def batch_of_row(table: array[int], row: int) -> Batch:
    """The facts of a row of a scanner's table."""
    at = row * TABLE_WIDTH
    facts = table[at : at + TABLE_WIDTH]
    return Batch(
        facts[Table.POSITION],
        facts[Table.SIZE],
        facts[Table.BASE_OFFSET],
        facts[Table.LAST_OFFSET],
        facts[Table.LEADER_EPOCH],
        facts[Table.MAGIC],
        facts[Table.ATTRIBUTES],
        facts[Table.MAX_TIMESTAMP],
        facts[Table.PRODUCER_ID],
        facts[Table.RECORD_COUNT],
        facts[Table.CRC],
    )


def is_beside(named: int, base_offset: int, last_offset: int, before: int) -> bool:
    """Whether a batch contradicts that one of its log has an offset, which is above ``before`` and not above its last.

    Offsets jump only where the cleaner was at work, and it writes indexes anew: these name the last offset of a batch.

    Args:
        named: by a time index.
        base_offset, last_offset: of the batch, of magic 2.
        before: the last offset ahead of the batch.
    """
    return base_offset > named or (base_offset > before + 1 and last_offset != named)
