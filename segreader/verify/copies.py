"""Two segments that hold the same offsets of the same history: whether their batches are the same, too."""

from __future__ import annotations

import struct
from collections import defaultdict
from dataclasses import dataclass
from typing import Final

import crc32c

from segreader.evidence.batch import Batch
from segreader.evidence.codes import Code
from segreader.evidence.findings import Findings
from segreader.plan.lineage import DropReason, ResolvedLog

_BATCH: Final = struct.Struct(">qqI")


@dataclass(slots=True)
class _Overlap:
    """Offsets ``start <= offset < stop`` that two logs hold, and of each how many of them are in batches; a digest."""

    copy: str
    delivered: str
    start: int
    stop: int
    seen: dict[str, tuple[int, int]]


class Copies:
    """Remembers a digest of the batches in every overlap, never the batches.

    An epoch and an offset name one record, whoever uploaded it (``LeaderEpochFileCache``), and replicas copy batches as
    they are; only what the cleaner rewrote may differ.
    """

    def __init__(self, resolved: ResolvedLog) -> None:
        self._overlaps: dict[str, list[_Overlap]] = defaultdict(list)
        for dropped in resolved.dropped:
            if dropped.reason is not DropReason.DUPLICATE:
                continue
            for part in resolved.parts:
                start, stop = max(part.start, dropped.start), min(part.stop, dropped.stop)
                if start < stop and part.segment is not dropped.segment:
                    copy, delivered = dropped.segment.files.log, part.segment.files.log
                    overlap = _Overlap(copy, delivered, start, stop, {copy: (0, 0), delivered: (0, 0)})
                    self._overlaps[copy].append(overlap)
                    self._overlaps[delivered].append(overlap)

    def is_compared(self, log: str) -> bool:
        """Whether another log holds offsets of this one."""
        return log in self._overlaps

    def add(self, log: str, batch: Batch) -> None:
        """Take the next batch of a log."""
        for overlap in self._overlaps[log]:
            if batch.magic == 2 and overlap.start <= batch.base_offset and batch.last_offset < overlap.stop:
                count, digest = overlap.seen[log]
                facts = _BATCH.pack(batch.base_offset, batch.last_offset, batch.crc & 0xFFFFFFFF)
                count += batch.last_offset - batch.base_offset + 1
                overlap.seen[log] = (count, crc32c.crc32c(facts, digest))

    def check(self, found: Findings, log: str) -> None:
        """A log was read to its end: note what differs from those that were read before."""
        for overlap in self._overlaps.pop(log, ()):
            other = overlap.delivered if log == overlap.copy else overlap.copy
            if other in self._overlaps or overlap.seen[log] == overlap.seen[other]:
                continue
            text = f"at offsets {overlap.start}-{overlap.stop - 1} it holds other batches than {other}"
            if (count := overlap.seen[log][0]) != (of_other := overlap.seen[other][0]):
                fuller = log if count > of_other else other
                text += f": {count} of these offsets, and that one {of_other}; the fuller copy is {fuller}"
            found.add(Code.CONFLICTING_COPIES, log, text, offset=overlap.start)

    def leave_out(self, found: Findings, log: str) -> None:
        """A log could not be read whole: note which others hold its offsets, and compare it with none."""
        for overlap in self._overlaps.get(log, ()):
            other = overlap.delivered if log == overlap.copy else overlap.copy
            text = f"offsets {overlap.start}-{overlap.stop - 1} cannot be compared with {other}, which has them, too"
            found.add(Code.UNCHECKED, log, text, offset=overlap.start)
        self.forget(log)

    def forget(self, log: str) -> None:
        """The cleaner was at work, or a log could not be read whole: it is compared with none."""
        for overlap in self._overlaps.pop(log, ()):
            other = overlap.delivered if log == overlap.copy else overlap.copy
            if overlap in self._overlaps.get(other, ()):
                self._overlaps[other].remove(overlap)
