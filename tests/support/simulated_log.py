"""A partition's log as its leader has it, simulated: batches, producers, transactions, epochs, segments.

Brokers are played here, not tested: almost nothing that a client does is refused. ``simulator`` adds the remote tier.

Source: ``ProducerAppendInfo``, ``LeaderEpochFileCache``, ``UnifiedLog`` (4.0); KIP-98, KIP-890.
"""

from __future__ import annotations

from dataclasses import dataclass

from segreader.format.batch import Record, TimestampType
from segreader.testing.batches import ABORT, COMMIT, control_key, encode_batch, end_marker_value
from segreader.testing.producer_states import ProducerStates
from segreader.testing.side_files import AbortedEntry, ProducerEntry

LAST_EPOCH = 32767
"""A producer whose epoch comes here goes on with another id."""

_FIRST_TIMESTAMP_MS = 1_700_000_000_000


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """One batch, on whichever branch of the log; two batches are the same only if they are one object.

    ``aborts`` is the row that an ABORT marker adds to the transaction index, ``producers`` the state after the batch.
    """

    base_offset: int
    leader_epoch: int
    producer_id: int
    is_transactional: bool
    marker: int | None
    records: tuple[Record, ...]
    data: bytes
    max_timestamp_ms: int
    aborts: AbortedEntry | None
    producers: tuple[ProducerEntry, ...]

    @property
    def stop(self) -> int:
        """The offset behind its last one."""
        return self.base_offset + len(self.records)


@dataclass(slots=True)
class Producer:
    """A client: ``version`` is the transaction version it speaks, 0 of a producer that knows no transactions."""

    producer_id: int
    epoch: int
    version: int


class SimulatedLog:
    """The leader's log and its clients.

    Each public verb is one event; where it makes no sense at this point of the history, nothing happens.
    """

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.rolls = [0]
        self.lineage = [(0, 0)]
        self.log_start = 0
        self.producers = [
            Producer(-1, -1, 0),
            Producer(1000, 0, 0),
            Producer(2000, 0, 1),
            Producer(3000, 0, 2),
            Producer(4000, LAST_EPOCH - 3, 2),
        ]
        self._states = ProducerStates()

    @property
    def end(self) -> int:
        """The offset that the next record gets."""
        return self.batches[-1].stop if self.batches else 0

    @property
    def last_stable_offset(self) -> int:
        """Below it every transaction is decided. The high watermark is the log's end."""
        unstable = self._states.first_unstable_offset
        return self.end if unstable is None else max(unstable, self.log_start)

    def append(self, producer: int, count: int, codec: int = 0, transactional: bool = True) -> None:
        """A batch of data; a transactional producer begins a transaction with it if it is in none."""
        client = self.producers[producer]
        if client.version and not transactional and self._is_open(client.producer_id):
            return  # brokers refuse it
        base, epoch = self.end, self.lineage[-1][0]
        records = tuple(_record(offset, epoch, client.producer_id) for offset in range(base, base + count))
        sequence = -1 if client.producer_id < 0 else self._states.next_sequence(client.producer_id, client.epoch)
        max_timestamp_ms = max(record.timestamp_ms for record in records)
        is_transactional = client.version > 0 and transactional
        data = encode_batch(
            records,
            base_offset=base,
            last_offset=base + count - 1,
            leader_epoch=epoch,
            codec=codec,
            producer_id=client.producer_id,
            producer_epoch=client.epoch,
            base_sequence=sequence,
            transactional=is_transactional,
        )
        if client.producer_id >= 0:
            self._states.append_data(
                client.producer_id,
                client.epoch,
                base_sequence=sequence,
                base_offset=base,
                last_offset=base + count - 1,
                max_timestamp_ms=max_timestamp_ms,
                transactional=is_transactional,
            )
        self._add(client.producer_id, is_transactional, None, records, data, max_timestamp_ms, None)

    def finish(self, producer: int, abort: bool, by_coordinator: bool = False) -> None:
        """A marker, also where no transaction is open: an empty one, or a marker written twice.

        Args:
            by_coordinator: the transaction timed out, or its producer was fenced: an ABORT with the next epoch.
        """
        client = self.producers[producer]
        if not client.version:
            return
        abort = abort or by_coordinator
        epoch = min(client.epoch + (client.version > 1 or by_coordinator), LAST_EPOCH)
        kind = ABORT if abort else COMMIT
        offset = self.end
        record = Record(
            offset, _timestamp(offset) + 40_000, TimestampType.CREATE_TIME, control_key(kind), end_marker_value(3)
        )
        data = encode_batch(
            [record],
            base_offset=offset,
            last_offset=offset,
            leader_epoch=self.lineage[-1][0],
            producer_id=client.producer_id,
            producer_epoch=epoch,
            transactional=True,
            control=True,
        )
        aborts = self._states.append_marker(
            client.producer_id,
            epoch,
            offset=offset,
            timestamp_ms=record.timestamp_ms,
            coordinator_epoch=3,
            abort=abort,
        )
        self._add(client.producer_id, True, kind, (record,), data, record.timestamp_ms, aborts)
        client.epoch = epoch + by_coordinator  # who was fenced asks for its epoch again
        if client.epoch >= LAST_EPOCH:
            client.producer_id, client.epoch = client.producer_id + 1, 0

    def roll(self) -> None:
        """The leader closes its active segment."""
        if self.end > self.rolls[-1]:
            self.rolls.append(self.end)

    def elect(self, stride: int, phase: int = 0) -> None:
        """A replica that has everything becomes leader; its segments end elsewhere.

        Args:
            stride, phase: batches to a segment on that replica; 0 keeps the segments, as when a broker comes back.
        """
        self._lead(stride, phase)

    def elect_unclean(self, lost: int, stride: int, phase: int = 0) -> None:
        """A replica becomes leader that lacks the last ``lost`` batches. Producers and coordinators are not told."""
        kept = self.batches[: max(len(self.batches) - lost, 0)]
        if not kept or kept[-1].stop <= self.log_start:
            return
        self.batches = kept
        self._states = ProducerStates({entry.producer_id: entry for entry in kept[-1].producers})
        self.rolls = [roll for roll in self.rolls if roll <= self.end]
        self._lead(stride, phase)

    def delete_records(self, percent: int) -> None:
        """DeleteRecords: the log's start moves a part of the way to its end; nothing is removed yet."""
        self._start_at(self.log_start + (self.end - self.log_start) * percent // 100)

    def _add(
        self,
        producer_id: int,
        is_transactional: bool,
        marker: int | None,
        records: tuple[Record, ...],
        data: bytes,
        max_timestamp_ms: int,
        aborts: AbortedEntry | None,
    ) -> None:
        base, epoch = self.end, self.lineage[-1][0]
        producers = self._states.entries
        self.batches.append(
            Batch(
                base, epoch, producer_id, is_transactional, marker, records, data, max_timestamp_ms, aborts, producers
            )
        )

    def _is_open(self, producer_id: int) -> bool:
        return any(e.producer_id == producer_id and e.current_txn_first_offset >= 0 for e in self._states.entries)

    def _lead(self, stride: int, phase: int) -> None:
        """A new epoch begins at the end of the log; epochs that have no record in it are forgotten."""
        epoch = self.lineage[-1][0] + 1
        self.lineage = [*((e, start) for e, start in self.lineage if start < self.end), (epoch, self.end)]
        if stride:
            self.rolls = [0, *(b.base_offset for i, b in enumerate(self.batches) if i and (i + phase) % stride == 0)]

    def _start_at(self, offset: int) -> None:
        if offset > self.log_start:
            self.log_start = offset
            before = [(epoch, start) for epoch, start in self.lineage if start <= offset]
            self.lineage = [(before[-1][0], offset), *self.lineage[len(before) :]]


def _timestamp(offset: int) -> int:
    return _FIRST_TIMESTAMP_MS + offset * 7919 % 10_000


def _record(offset: int, leader_epoch: int, producer_id: int) -> Record:
    """A record that tells its branch: no two branches write the same at one offset."""
    value = f"{leader_epoch}/{offset}/{producer_id}".encode()
    key = None if offset % 3 == 0 else str(offset % 5).encode()
    return Record(offset, _timestamp(offset), TimestampType.CREATE_TIME, key, value, (("epoch", value[:1]),))
