"""A segment built by hand: batches in, and what a broker would write beside them out.

The builder plays the broker: it gives out offsets and sequences, notes open and aborted transactions, and
decides which batches get an index entry. It checks nothing: ``Lies`` and ``raw`` make segments that no broker
would write.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from segreader.format.batch import Record, TimestampType
from segreader.format.compression import Codec
from segreader.testing.batches import ABORT, COMMIT, TRUTH, Lies, control_key, encode_batch, end_marker_value
from segreader.testing.compressors import Compressor
from segreader.testing.message_sets import encode_message_set
from segreader.testing.producer_states import ProducerStates
from segreader.testing.records import FIRST_TIMESTAMP_MS, Writable, as_consumed, resolve, timestamp_at
from segreader.testing.side_files import (
    AbortedEntry,
    IndexRecorder,
    encode_leader_epochs,
    encode_producer_snapshot,
    encode_transaction_index,
)

NO_PRODUCER = -1


class SegmentBuilder:
    """One segment of one partition, appended batch by batch; every method that appends returns the builder.

    Args:
        base_offset: of the segment, and of its first batch.
        leader_epoch: written into each batch until ``new_leader``.
        index_interval_bytes: ``index.interval.bytes`` of the broker that is played.
        transaction_version: 2 bumps the producer epoch in every marker (KIP-890), 1 does not.

    ``records`` are the data records as a ``read_uncommitted`` consumer should see them, ``aborted`` the rows
    of the transaction index, ``batch_positions`` where each batch begins.
    """

    def __init__(
        self,
        base_offset: int = 0,
        *,
        leader_epoch: int = 0,
        index_interval_bytes: int = 4096,
        transaction_version: int = 2,
    ) -> None:
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.leader_epoch = leader_epoch
        self.transaction_version = transaction_version
        self.leader_epochs: list[tuple[int, int]] = []
        self.records: list[Record] = []
        self.aborted: list[AbortedEntry] = []
        self.batch_positions: list[int] = []
        self._data = bytearray()
        self._indexes = IndexRecorder(base_offset, index_interval_bytes)
        self._producers = ProducerStates()
        self._producers_before = self._producers.copy()

    def roll(self) -> SegmentBuilder:
        """The next segment of the same log: it continues this one's offsets, producers and epochs."""
        following = SegmentBuilder(
            self.next_offset,
            leader_epoch=self.leader_epoch,
            index_interval_bytes=self._indexes.interval_bytes,
            transaction_version=self.transaction_version,
        )
        following.leader_epochs = list(self.leader_epochs)
        following._producers = self._producers.copy()
        following._producers_before = self._producers.copy()
        return following

    def batch(
        self,
        records: Sequence[Writable],
        *,
        codec: int = Codec.NONE,
        producer_id: int = NO_PRODUCER,
        producer_epoch: int | None = None,
        base_sequence: int | None = None,
        transactional: bool = False,
        base_offset: int | None = None,
        last_offset: int | None = None,
        log_append_time_ms: int | None = None,
        delete_horizon_ms: int | None = None,
        compressor: Compressor | None = None,
        lies: Lies = TRUTH,
    ) -> Self:
        """Append a magic 2 data batch.

        Args:
            producer_epoch, base_sequence: follow from the producer's earlier batches, unless given.
            base_offset, last_offset: wider than the records where compaction removed some.
            log_append_time_ms: the broker's clock, which all records then take.
            delete_horizon_ms: ms after which tombstones may go.
            compressor: another framing than Java's.
            lies: header fields, or the body, that contradict the rest.
        """
        base = self.next_offset if base_offset is None else base_offset
        written = resolve(records, base, TimestampType.CREATE_TIME)
        last = last_offset
        if last is None:
            last = max((record.offset for record in written), default=base)
        producer_epoch, base_sequence = self._identify(producer_id, producer_epoch, base_sequence)
        data = encode_batch(
            written,
            base_offset=base,
            last_offset=last,
            leader_epoch=self.leader_epoch,
            codec=codec,
            compressor=compressor,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            transactional=transactional,
            log_append_time_ms=log_append_time_ms,
            delete_horizon_ms=delete_horizon_ms,
            lies=lies,
        )
        max_timestamp_ms = _latest(written, log_append_time_ms)
        self._append(data, base, last, max_timestamp_ms)
        self.records += as_consumed(written, log_append_time_ms)
        self._note_producer(producer_id, producer_epoch, base_sequence, base, last, max_timestamp_ms, transactional)
        return self

    def empty_batch(
        self,
        offsets: int = 1,
        *,
        producer_id: int = NO_PRODUCER,
        producer_epoch: int | None = None,
        base_sequence: int | None = None,
        transactional: bool = False,
        control: bool = False,
        max_timestamp_ms: int = FIRST_TIMESTAMP_MS,
    ) -> Self:
        """Append the 61 bytes that the cleaner keeps of a batch all of whose ``offsets`` records are gone."""
        base, last = self.next_offset, self.next_offset + offsets - 1
        producer_epoch, base_sequence = self._identify(producer_id, producer_epoch, base_sequence)
        data = encode_batch(
            [],
            base_offset=base,
            last_offset=last,
            leader_epoch=self.leader_epoch,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=-1 if control else base_sequence,
            transactional=transactional,
            control=control,
            max_timestamp_ms=max_timestamp_ms,
        )
        self._append(data, base, last, max_timestamp_ms)
        if not control:
            self._note_producer(producer_id, producer_epoch, base_sequence, base, last, max_timestamp_ms, transactional)
        return self

    def marker(
        self,
        producer_id: int,
        *,
        abort: bool = False,
        producer_epoch: int | None = None,
        coordinator_epoch: int = 0,
        timestamp_ms: int | None = None,
    ) -> Self:
        """Append the ABORT or COMMIT that ends the producer's transaction; without one it changes nothing."""
        if producer_epoch is None:
            producer_epoch = self._producers.epoch(producer_id) + (self.transaction_version >= 2)
        offset = self.next_offset
        timestamp_ms = timestamp_at(offset) if timestamp_ms is None else timestamp_ms
        self.control(
            ABORT if abort else COMMIT,
            end_marker_value(coordinator_epoch),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transactional=True,
            timestamp_ms=timestamp_ms,
        )
        entry = self._producers.append_marker(
            producer_id,
            producer_epoch,
            offset=offset,
            timestamp_ms=timestamp_ms,
            coordinator_epoch=coordinator_epoch,
            abort=abort,
        )
        if entry is not None:
            self.aborted.append(entry)
        return self

    def control(
        self,
        control_type: int,
        value: bytes | None,
        *,
        producer_id: int = NO_PRODUCER,
        producer_epoch: int = -1,
        transactional: bool = False,
        timestamp_ms: int | None = None,
    ) -> Self:
        """Append a control batch of any type (2 and up occur in KRaft logs); it ends no transaction."""
        offset = self.next_offset
        time = timestamp_at(offset) if timestamp_ms is None else timestamp_ms
        record = Record(offset, time, TimestampType.CREATE_TIME, control_key(control_type), value)
        data = encode_batch(
            [record],
            base_offset=offset,
            last_offset=offset,
            leader_epoch=self.leader_epoch,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transactional=transactional,
            control=True,
        )
        self._append(data, offset, offset, time)
        return self

    def message_set(
        self,
        records: Sequence[Writable],
        *,
        magic: int = 1,
        codec: int = Codec.NONE,
        log_append_time_ms: int | None = None,
        wrapper_offset: int | None = None,
        compressor: Compressor | None = None,
        crc: int | None = None,
    ) -> Self:
        """Append magic 0 or 1: one message for each record, or one compressed wrapper around all of them.

        Args:
            wrapper_offset, crc: false values for the wrapper (or the last message).
        """
        kind = TimestampType.CREATE_TIME if magic else TimestampType.NO_TIMESTAMP_TYPE
        written = resolve(records, self.next_offset, kind)
        entries = encode_message_set(
            written,
            magic,
            codec=codec,
            compressor=compressor,
            log_append_time_ms=log_append_time_ms,
            wrapper_offset=wrapper_offset,
            crc=crc,
        )
        ends = written if codec == Codec.NONE else written[-1:]
        for data, end in zip(entries, ends, strict=True):
            covered = [end] if codec == Codec.NONE else written
            self._append(data, end.offset, end.offset, _latest(covered, log_append_time_ms), lineage=False)
        self.records += as_consumed(written, log_append_time_ms)
        return self

    def raw(self, data: bytes) -> Self:
        """Append bytes as they are: damage, or a zero tail. They take no offset and no index entry."""
        self._data += data
        return self

    def skip(self, offsets: int) -> Self:
        """Leave out ``offsets`` offsets, as compaction does."""
        self.next_offset += offsets
        return self

    def new_leader(self, leader_epoch: int) -> Self:
        """Batches from here on carry another leader epoch."""
        self.leader_epoch = leader_epoch
        return self

    def to_bytes(self) -> bytes:
        """The ``.log``."""
        return bytes(self._data)

    def index(self) -> bytes:
        """The ``.index``; empty below ``index_interval_bytes``, which is normal."""
        return self._indexes.offset_index()

    def time_index(self, *, rolled: bool = True) -> bytes:
        """The ``.timeindex``; a rolled segment has its largest time as last entry."""
        return self._indexes.time_index(rolled=rolled)

    def transaction_index(self) -> bytes:
        """The ``.txnindex``; brokers keep no file when it is empty."""
        return encode_transaction_index(self.aborted)

    def snapshot(self) -> bytes:
        """The ``.snapshot`` at the segment's end: the one that goes to the remote tier with it."""
        return encode_producer_snapshot(self._producers.entries)

    def snapshot_before(self) -> bytes:
        """The ``.snapshot`` at the segment's start: the one of the same number in a broker's directory."""
        return encode_producer_snapshot(self._producers_before.entries)

    def leader_epoch_checkpoint(self) -> bytes:
        """The lineage up to the segment's end."""
        return encode_leader_epochs(self.leader_epochs)

    def _identify(self, producer_id: int, epoch: int | None, sequence: int | None) -> tuple[int, int]:
        if epoch is None:
            epoch = -1 if producer_id < 0 else self._producers.epoch(producer_id)
        if sequence is None:
            sequence = -1 if producer_id < 0 else self._producers.next_sequence(producer_id, epoch)
        return epoch, sequence

    def _note_producer(
        self,
        producer_id: int,
        epoch: int,
        sequence: int,
        base: int,
        last: int,
        max_timestamp_ms: int,
        transactional: bool,
    ) -> None:
        if producer_id >= 0:
            self._producers.append_data(
                producer_id,
                epoch,
                base_sequence=sequence,
                base_offset=base,
                last_offset=last,
                max_timestamp_ms=max_timestamp_ms,
                transactional=transactional,
            )

    def _append(self, data: bytes, base: int, last: int, max_timestamp_ms: int, *, lineage: bool = True) -> None:
        if lineage and self.leader_epoch >= 0 and self.leader_epoch > (self.leader_epochs or [(-1, 0)])[-1][0]:
            self.leader_epochs.append((self.leader_epoch, base))
        self.batch_positions.append(len(self._data))
        self._data += data
        self._indexes.append(self.batch_positions[-1], len(data), last, max_timestamp_ms)
        self.next_offset = last + 1


def _latest(records: Sequence[Record], log_append_time_ms: int | None) -> int:
    if log_append_time_ms is not None:
        return log_append_time_ms
    return max((record.timestamp_ms for record in records), default=-1)
