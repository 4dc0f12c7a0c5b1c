"""What a read cost and what it met: counted while it runs, shown when it is done."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from segreader.format.kernel import kernel_name
from segreader.plan.split import ReadPlan
from segreader.segment import TopicIdPartition


@dataclass(frozen=True, slots=True)
class Hole:
    """A damaged part that was left out because ``on_corrupt`` is ``skip``.

    ``start`` and ``stop`` are bytes of ``source``; ``error`` says what was wrong.
    """

    source: str
    start: int
    stop: int
    error: str

    @property
    def text(self) -> str:
        """What was left out, for people."""
        return f"bytes {self.start} to {self.stop} of {self.source}: {self.error}"


@dataclass(frozen=True, slots=True)
class MissingOffsets:
    """Offsets ``start <= offset < stop`` whose segment vanished between plan and read, with ``on_missing='skip'``."""

    partition: TopicIdPartition
    start: int
    stop: int | None
    error: str

    @property
    def text(self) -> str:
        """What is missing, for people."""
        last = "the end" if self.stop is None else self.stop - 1
        return f"{self.partition}: offsets {self.start} to {last}: {self.error}"


@dataclass(slots=True)
class ScanMetrics:
    """Counters of one scan. ``kernel`` says which decoder ran: ``native`` or ``reference``.

    Batches are those that were met, records those of the offsets that were wanted. ``doubts`` counts the notes on
    damage that was passed over and left out no batch: neighbours, indexes or markers contradict each other.
    """

    kernel: str = field(default_factory=kernel_name)
    splits: int = 0
    requests: int = 0
    bytes_read: int = 0
    batches: int = 0
    control_batches: int = 0
    aborted_batches: int = 0
    control_records: int = 0
    aborted_records: int = 0
    records: int = 0
    body_bytes: int = 0
    holes: list[Hole] = field(default_factory=list)
    missing: list[MissingOffsets] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    doubts: int = 0

    def doubt(self, error: Exception) -> None:
        """Note damage that is passed over and leaves out no batch."""
        self.notes.append(str(error))
        self.doubts += 1

    def add(self, other: ScanMetrics) -> None:
        """Count in what another reader of the same scan has counted."""
        for one in fields(ScanMetrics):
            if one.name == "kernel":
                self.kernel = other.kernel
            else:
                setattr(self, one.name, getattr(self, one.name) + getattr(other, one.name))


def lacks(plan: ReadPlan, metrics: ScanMetrics) -> bool:
    """Whether a read lacks records that its options let it go on without, or passed over damage that may hide some."""
    is_cut = any(end.damage is not None for end in plan.ends)
    return bool(metrics.holes or metrics.missing or metrics.doubts or plan.gaps or is_cut)


def texts_of(plan: ReadPlan, metrics: ScanMetrics) -> list[str]:
    """What people should know of a read: its notes, what it lacks, and where records end before the data does."""
    return list(
        dict.fromkeys(
            [
                *(f"note: {note}" for note in metrics.notes),
                *(f"left out: {hole.text}" for hole in metrics.holes),
                *(f"missing: {one.text}" for one in metrics.missing),
                *(f"missing: {gap.text}" for gap in plan.gaps),
                *(end.text for end in plan.ends if end.reason.is_early),
            ]
        )
    )
