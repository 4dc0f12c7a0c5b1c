"""One partition and its remote tier, simulated: the judge of what a reader of the remote files must see.

It plays producers, transaction coordinators, replicas that are elected (with and without loss), uploads that succeed,
fail or are done twice, retention and DeleteRecords, and writes the remote files byte for byte as brokers do. What a
consumer of the living log sees is worked out from the history itself, by brute force, and never from those files: no
transaction index, snapshot or checkpoint is asked. It knows nothing of the library's rules of isolation and lineage.

Source: ``RLMCopyTask``, ``RLMExpirationTask``, ``LeaderEpochFileCache``, ``UnifiedLog``, ``LocalTieredStorage``
(4.0); KIP-98, KIP-405, KIP-890.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from simulated_log import Batch, SimulatedLog

from segreader.format.batch import Record
from segreader.testing.batches import COMMIT
from segreader.testing.directory import kafka_uuid, write_files
from segreader.testing.side_files import (
    IndexRecorder,
    encode_leader_epochs,
    encode_producer_snapshot,
    encode_transaction_index,
)

TOPIC = "sim"
MANDATORY = ("log", "index", "timeindex", "leader_epoch_checkpoint", "snapshot")
"""The files without which a set is no segment."""

_INDEX_INTERVAL_BYTES = 100  # so that small segments have entries


@dataclass(frozen=True, slots=True, eq=False)
class RemoteSegment:
    """One upload, whole or not. ``lineage`` is what its leader-epoch checkpoint says."""

    segment_id: str
    batches: tuple[Batch, ...]
    lineage: tuple[tuple[int, int], ...]
    files: Mapping[str, bytes]
    base_offset: int

    @property
    def stop(self) -> int:
        """The offset behind its last one."""
        return self.batches[-1].stop

    @property
    def is_whole(self) -> bool:
        """Whether nothing of it is missing, so that no one can tell it from a finished one by its files."""
        return all(kind in self.files for kind in MANDATORY)


@dataclass(frozen=True, slots=True)
class Truth:
    """What consumers of the living log see of the part that the remote tier holds.

    Args:
        start: the log start offset, as far as the reader can know it.
        end: where the remote tier ends.
        stable_end: below it every transaction is decided by markers below ``end``.
        open_since_unseen: a transaction that is open at ``end`` began below everything the remote tier holds, and the
            last segment's snapshot may be one of a lost branch.
        has_hole: offsets in the middle are on no remote file.
    """

    start: int
    end: int
    stable_end: int
    uncommitted: tuple[Record, ...]
    committed: tuple[Record, ...]
    open_since_unseen: bool
    has_hole: bool


class SimulatedPartition(SimulatedLog):
    """The leader's log, its clients, and what leaders past and present have uploaded; each public verb is one event."""

    def __init__(self) -> None:
        super().__init__()
        self.remote: list[RemoteSegment] = []
        self._uploaded: dict[int, int] = {}  # epoch -> the offset behind the last that was uploaded of it
        self._attempts = 0

    def upload(self, count: int = 1) -> None:
        """Upload the next segments, as many as may be."""
        for _ in range(count):
            if (segment := self._next_upload()) is None:
                return
            self.remote.append(segment)
            for batch in segment.batches:
                self._uploaded[batch.leader_epoch] = max(self._uploaded.get(batch.leader_epoch, 0), batch.stop)

    def fail_upload(self, written: int) -> None:
        """An upload whose broker dies after ``written`` files; if these are all, only the word of its end is lost."""
        if (segment := self._next_upload()) is None:
            return
        files = dict(list(segment.files.items())[:written])
        if written == 1:
            files["log"] = files["log"][: len(files["log"]) * 2 // 3]
        self.remote.append(_with_files(segment, files))

    def expire(self, count: int, left: int = 0) -> None:
        """Retention takes the oldest remote segments; at least one whole set of files stays.

        Args:
            left: how many files of the last one are there still.
        """
        stops = sorted({s.stop for s in self.remote if s.is_whole and self._lives(s)})[:-1][:count]
        if not stops:
            return
        epochs = {epoch for epoch, _ in self.lineage}
        self._start_at(stops[-1])
        gone = [
            s
            for s in self.remote
            if (s.stop <= self.log_start and any(b.leader_epoch in epochs for b in s.batches))
            or s.batches[-1].leader_epoch < self.lineage[0][0]
        ]
        self.remote = [s for s in self.remote if s not in gone]
        if gone and left:
            last = max(gone, key=lambda s: s.stop)
            self.remote.append(_with_files(last, dict(list(last.files.items())[-left:])))

    def write(self, root: Path) -> None:
        """Write the remote tier below ``root``; the later an upload, the later its files' time."""
        directory = f"{TOPIC}-0-{kafka_uuid(TOPIC)}"
        for time, segment in enumerate(self.remote):
            stem = f"{directory}/{segment.base_offset:020d}-{segment.segment_id}"
            files = {f"{stem}.{kind}": data for kind, data in segment.files.items()}
            write_files(root, files)
            for name in files:
                os.utime(root / name, (1_700_000_000 + time, 1_700_000_000 + time))

    def leader_epoch_checkpoint(self) -> bytes:
        """The file of the leader as it is now."""
        return encode_leader_epochs(self.lineage)

    # the truth

    @property
    def is_deceptive(self) -> bool:
        """Whether the newest upload is of a branch that is lost: its files look no different from living ones."""
        newest = self._newest()
        return newest is not None and newest.batches[-1] not in self.batches

    def truth(self, *, told_by_leader: bool = False) -> Truth:
        """What the reader must see, in both isolation levels.

        Args:
            told_by_leader: the reader knows the leader's checkpoint, not only what was uploaded.
        """
        newest = self._newest()
        lineage = self.lineage if told_by_leader or newest is None else newest.lineage
        start = lineage[0][1]
        whole = [s for s in self.remote if s.is_whole]
        uploaded = {id(batch) for segment in whole for batch in segment.batches}
        places = [i for i, b in enumerate(self.batches) if id(b) in uploaded and b.stop > start]
        held = [self.batches[i] for i in places]
        end = held[-1].stop if held else start
        below = [b for b in self.batches if b.stop <= end]
        undecided = [
            b for i, b in enumerate(below) if b.is_transactional and b.marker is None and _fate(below, i) is None
        ]
        stable_end = min((b.base_offset for b in undecided), default=end)
        committed = [
            b
            for i, b in zip(places, held, strict=True)
            if b.base_offset < stable_end and (not b.is_transactional or _fate(self.batches, i) == COMMIT)
        ]
        ends_dead = bool(held) and any(held[-1] in s.batches and not self._lives(s) for s in whole)
        return Truth(
            start=start,
            end=end,
            stable_end=stable_end,
            uncommitted=_data(held, start),
            committed=_data(committed, start),
            open_since_unseen=ends_dead and stable_end < max(held[0].base_offset, start),
            has_hole=any(after - before > 1 for before, after in pairwise(places)),
        )

    # what is behind the verbs

    def _lives(self, segment: RemoteSegment) -> bool:
        return segment.batches[-1] in self.batches

    def _newest(self) -> RemoteSegment | None:
        """The whole set with the highest epoch, then the highest end, then the latest."""
        whole = [(s.lineage[-1][0], s.stop, i, s) for i, s in enumerate(self.remote) if s.is_whole]
        return max(whole, key=lambda row: row[:3])[3] if whole else None

    def _uploaded_stop(self) -> int:
        """Up to where this leader believes its own lineage to be uploaded."""
        stops = [start for _, start in self.lineage[1:]] + [self.end]
        for (epoch, _), stop in reversed(list(zip(self.lineage, stops, strict=True))):
            if epoch in self._uploaded:
                return min(self._uploaded[epoch], stop)
        return 0

    def _next_upload(self) -> RemoteSegment | None:
        first = max(self._uploaded_stop(), self.log_start)
        closed = pairwise(self.rolls)
        base, stop = next(((base, stop) for base, stop in closed if stop > first), (0, 0))
        if stop == 0 or stop > self.last_stable_offset:
            return None
        self._attempts += 1
        batches = tuple(b for b in self.batches if base <= b.base_offset < stop)
        lineage = tuple((epoch, start) for epoch, start in self.lineage if start < stop)
        return RemoteSegment(
            kafka_uuid("segment", self._attempts), batches, lineage, self._files(base, batches, lineage), base
        )

    def _files(self, base: int, batches: Sequence[Batch], lineage: Sequence[tuple[int, int]]) -> dict[str, bytes]:
        """In the order in which they are uploaded."""
        indexes = IndexRecorder(base, _INDEX_INTERVAL_BYTES)
        position = 0
        for batch in batches:
            indexes.append(position, len(batch.data), batch.stop - 1, batch.max_timestamp_ms)
            position += len(batch.data)
        files = {
            "log": b"".join(batch.data for batch in batches),
            "index": indexes.offset_index(),
            "timeindex": indexes.time_index(),
        }
        if aborted := [batch.aborts for batch in batches if batch.aborts]:
            files["txnindex"] = encode_transaction_index(aborted)
        files["leader_epoch_checkpoint"] = encode_leader_epochs(lineage)
        files["snapshot"] = encode_producer_snapshot(batches[-1].producers)
        return files


def _fate(batches: Sequence[Batch], place: int) -> int | None:
    """How the transaction of a batch ended: the first marker of its producer behind it; ``None`` if there is none."""
    producer_id = batches[place].producer_id
    return next((b.marker for b in batches[place + 1 :] if b.marker is not None and b.producer_id == producer_id), None)


def _data(batches: Iterable[Batch], start: int) -> tuple[Record, ...]:
    return tuple(record for b in batches if b.marker is None for record in b.records if record.offset >= start)


def _with_files(segment: RemoteSegment, files: Mapping[str, bytes]) -> RemoteSegment:
    return RemoteSegment(segment.segment_id, segment.batches, segment.lineage, files, segment.base_offset)
