"""What a broker remembers of producers while it appends: the source of ``.snapshot`` and ``.txnindex``.

Source: ``ProducerStateManager``, ``ProducerAppendInfo``, ``ProducerStateEntry`` (4.0).
"""

from __future__ import annotations

from collections.abc import Mapping

from segreader.testing.side_files import AbortedEntry, ProducerEntry

_SEQUENCES = 1 << 31


class ProducerStates:
    """The producers of one partition, in the order of their first batch.

    A state is handed from segment to segment with ``copy``.
    """

    def __init__(self, entries: Mapping[int, ProducerEntry] | None = None) -> None:
        self._entries = dict(entries or {})

    def copy(self) -> ProducerStates:
        """The same knowledge, which may then go its own way."""
        return ProducerStates(self._entries)

    @property
    def entries(self) -> tuple[ProducerEntry, ...]:
        """Rows of a ``.snapshot`` taken now."""
        return tuple(self._entries.values())

    @property
    def first_unstable_offset(self) -> int | None:
        """First offset of the earliest open transaction."""
        return min(
            (e.current_txn_first_offset for e in self.entries if e.current_txn_first_offset >= 0),
            default=None,
        )

    def epoch(self, producer_id: int) -> int:
        """The epoch last seen, 0 for a new producer."""
        entry = self._entries.get(producer_id)
        return entry.producer_epoch if entry else 0

    def next_sequence(self, producer_id: int, producer_epoch: int) -> int:
        """The sequence that the producer's next batch must begin with."""
        entry = self._entries.get(producer_id)
        if entry is None or entry.producer_epoch != producer_epoch:
            return 0
        return (entry.last_sequence + 1) % _SEQUENCES

    def append_data(
        self,
        producer_id: int,
        producer_epoch: int,
        *,
        base_sequence: int,
        base_offset: int,
        last_offset: int,
        max_timestamp_ms: int,
        transactional: bool,
    ) -> None:
        """Note a data batch, an emptied one too."""
        old = self._entries.get(producer_id)
        first = old.current_txn_first_offset if old else -1
        delta = last_offset - base_offset
        self._entries[producer_id] = ProducerEntry(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            last_sequence=-1 if base_sequence < 0 else (base_sequence + delta) % _SEQUENCES,
            last_offset=last_offset,
            offset_delta=delta,
            timestamp_ms=max_timestamp_ms,
            coordinator_epoch=old.coordinator_epoch if old else -1,
            current_txn_first_offset=base_offset if transactional and first < 0 else first,
        )

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        *,
        offset: int,
        timestamp_ms: int,
        coordinator_epoch: int,
        abort: bool,
    ) -> AbortedEntry | None:
        """Note an ABORT or COMMIT; the row of the transaction index, when there is one to write."""
        old = self._entries.get(producer_id)
        bumped = old is None or old.producer_epoch != producer_epoch  # a new epoch forgets the batches of the old one
        self._entries[producer_id] = ProducerEntry(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            last_sequence=-1 if old is None or bumped else old.last_sequence,
            last_offset=-1 if old is None or bumped else old.last_offset,
            offset_delta=0 if old is None or bumped else old.offset_delta,
            timestamp_ms=timestamp_ms,
            coordinator_epoch=coordinator_epoch,
            current_txn_first_offset=-1,
        )
        if not abort or old is None or old.current_txn_first_offset < 0:
            return None
        stable = self.first_unstable_offset
        return AbortedEntry(producer_id, old.current_txn_first_offset, offset, offset + 1 if stable is None else stable)
