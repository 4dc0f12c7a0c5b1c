"""Aborted transactions: Redpanda's list beside a segment (``.tx``), and the same as Kafka's index of that segment.

Redpanda lists the transactions that reach into a segment, from their first to their last batch, in its own offsets.
Kafka's index names the marker and belongs to the marker's segment. What is made here is in between: an entry for each
transaction *and segment*, which covers the batches in this one and ends at the marker, or at the last batch if the
marker is in a later segment. So each segment's entries decide all of its own batches.

Source: Redpanda 24.3 ``tx_range_manifest``, ``producer_state::apply_transaction_end``, ``AbortedTxn`` (Kafka 4.0).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from segreader.catalog.layouts.redpanda.batches import RAFT_DATA, StoredBatch
from segreader.catalog.layouts.redpanda.manifest import MAX_INT64, parse_json_object
from segreader.errors import ManifestError
from segreader.format.index_files import AbortedTransaction

_VERSION: Final = 1
_ENTRY: Final = struct.Struct(">hqqqq")


@dataclass(frozen=True, slots=True, order=True)
class TransactionRange:
    """One aborted transaction, from its first to its last offset, as Redpanda counts; the marker comes later."""

    first_offset: int
    last_offset: int
    producer_id: int


@dataclass(slots=True)
class _Found:
    """Of one transaction in this segment, in Kafka's offsets: its batches, and its marker."""

    range: TransactionRange
    first: int = -1
    last: int = -1
    marker: int = -1


def parse_transaction_ranges(data: bytes, *, source: str | None = None) -> tuple[TransactionRange, ...]:
    """Read a ``.tx``; each transaction once, by first offset.

    Raises:
        ManifestError: it is no such list, or needs a newer reader.
    """
    fields = parse_json_object(data, source=source)
    if fields.get("version") != _VERSION or fields.get("compat_version") != _VERSION:
        raise ManifestError(
            "a list of aborted transactions has an unknown version",
            source=source,
            found=f"version {fields.get('version')!r}, readable from {fields.get('compat_version')!r} on",
            expected="version 1",
        )
    rows = fields.get("ranges") or []
    ranges: set[TransactionRange] = set()
    for row in rows if isinstance(rows, list) else [rows]:
        values = [row.get(name) for name in ("first", "last", "pid.id")] if isinstance(row, dict) else []
        numbers = [value for value in values if type(value) is int and 0 <= value <= MAX_INT64]
        if len(numbers) != 3 or numbers[0] > numbers[1]:
            raise ManifestError(
                "a list of aborted transactions holds an impossible one", source=source, found=repr(row)[:200]
            )
        ranges.add(TransactionRange(*numbers))
    return tuple(sorted(ranges))


def aborted_in_segment(
    batches: Iterable[StoredBatch | memoryview], ranges: Sequence[TransactionRange]
) -> list[AbortedTransaction]:
    """Kafka's entries for the batches of one segment, by rising last offset.

    Args:
        batches: all of the segment.
        ranges: what is listed beside it, by first offset.

    Raises:
        ManifestError: an entry for the only offset of a log, 0, would be needed: before it the transaction's begin
            must have taken one.
    """
    of_producer: dict[int, list[_Found]] = {}
    for one in ranges:
        of_producer.setdefault(one.producer_id, []).append(_Found(one))
    current = dict.fromkeys(of_producer, 0)
    last = 0
    for batch in batches:
        if isinstance(batch, StoredBatch) and batch.type == RAFT_DATA:
            last = batch.kafka_offset + batch.last_offset_delta
        if not isinstance(batch, StoredBatch) or (listed := of_producer.get(batch.producer_id)) is None:
            continue
        index = current[batch.producer_id]
        if batch.is_transactional_data:
            while index < len(listed) and listed[index].range.last_offset < batch.base_offset:
                index += 1
            current[batch.producer_id] = index
            if index < len(listed) and listed[index].range.first_offset <= batch.base_offset:
                found = listed[index]
                found.first = batch.kafka_offset if found.first < 0 else found.first
                found.last = batch.kafka_offset + batch.last_offset_delta
        elif batch.is_marker:
            while index < len(listed) and listed[index].range.last_offset < batch.base_offset:
                if listed[index].last >= 0:
                    listed[index].marker = batch.kafka_offset
                index += 1
            current[batch.producer_id] = index
    found_here = [one for listed in of_producer.values() for one in listed if one.last >= 0]
    if found_here and not last:
        raise ManifestError(
            "a transaction has records at offset 0, where its begin should be",
            found=found_here[0].range,
            hint="The list of aborted transactions is not that of this segment",
        )
    return _entries(found_here)


def encode_entries(entries: Iterable[AbortedTransaction]) -> bytes:
    """The ``.txnindex`` with these entries. Source: ``AbortedTxn`` (4.0)."""
    return b"".join(
        _ENTRY.pack(0, one.producer_id, one.first_offset, one.last_offset, one.last_stable_offset) for one in entries
    )


def _entries(found: list[_Found]) -> list[AbortedTransaction]:
    bounds = sorted((*_bounds(one), one.range.producer_id) for one in found)
    entries: list[AbortedTransaction] = []
    earliest_open = MAX_INT64
    for last, first, producer_id in reversed(bounds):
        entries.append(AbortedTransaction(producer_id, first, last, min(last + 1, earliest_open)))
        earliest_open = min(earliest_open, first)
    return entries[::-1]


def _bounds(one: _Found) -> tuple[int, int]:
    """Last and first offset of an entry, which must differ.

    The offset before a transaction's only offset here is no batch of another transaction of its producer: their
    markers are between them.
    """
    last = max(one.last, one.marker)
    if last > one.first:
        return last, one.first
    return (last, last - 1) if last else (1, 0)
