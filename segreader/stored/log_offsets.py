"""The ends of a partition as a broker's ``ListOffsets`` gives them, from files: first, last and last stable offset."""

from __future__ import annotations

from dataclasses import dataclass

from segreader.format.compression import DEFAULT_LIMIT
from segreader.plan.lineage import ResolvedLog
from segreader.plan.split import EndReason
from segreader.ranges import OffsetRange
from segreader.storage.base import ObjectStore
from segreader.stored.segment_ends import OPEN_END, read_last_offset
from segreader.stored.transactions import read_transaction_state


@dataclass(frozen=True, slots=True)
class LogOffsets:
    """The ends of one partition, as far as its files tell.

    Args:
        earliest: the first offset; ``None`` where there is none.
        latest: one more than the last offset; ``None`` where there is none, or damage hides it.
        stable_end: ``read_committed`` readers read up to here.
        reason: why the stable end is where it is.
    """

    earliest: int | None
    latest: int | None
    stable_end: int | None
    reason: EndReason


def read_log_offsets(
    store: ObjectStore, log: ResolvedLog, *, start_snapshot: str | None = None, max_batch_bytes: int = DEFAULT_LIMIT
) -> LogOffsets:
    """The ends of a partition. Nothing of its records is read but the last batches, and what is behind a snapshot.

    Args:
        log: of one partition.
        start_snapshot: a producer snapshot of where the log starts.
        max_batch_bytes: largest batch to hold.
    """
    if not log.parts:
        return LogOffsets(None, None, None, EndReason.END_OF_DATA)
    latest = read_log_end(store, log, max_batch_bytes)
    stable, reason = latest, EndReason.END_OF_DATA if latest is not None else EndReason.DAMAGE
    bound = log.stop if latest is None else latest
    state = read_transaction_state(
        store, log, OffsetRange(bound), start_snapshot=start_snapshot, max_batch_bytes=max_batch_bytes
    )
    undecided = min([*(offset for _, offset in state.open), *state.held_back.values()], default=bound)
    if undecided < bound:
        stable, reason = undecided, EndReason.OPEN_TRANSACTION
    if state.unread_from is not None and state.unread_from < (bound if stable is None else stable):
        stable, reason = state.unread_from, EndReason.DAMAGE
    return LogOffsets(log.start, latest, None if stable is None else max(stable, log.start), reason)


def read_log_end(store: ObjectStore, log: ResolvedLog, max_batch_bytes: int) -> int | None:
    """One more than the last offset; ``None`` if damage hides it."""
    if log.stop <= OPEN_END:
        return log.stop
    part = log.parts[-1]
    last = read_last_offset(store, part.segment, max_batch_bytes)
    return None if last is None else max(last + 1, part.start)
