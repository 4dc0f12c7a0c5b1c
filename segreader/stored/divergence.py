"""Whether a log still is the one that was read: KIP-320 for files, and for the transactions that were decided by it."""

from __future__ import annotations

from dataclasses import dataclass

from segreader.format.compression import DEFAULT_LIMIT
from segreader.plan.lineage import Part, ResolvedLog
from segreader.storage.base import ObjectStore
from segreader.stored.log_offsets import read_log_offsets


@dataclass(frozen=True, slots=True)
class LogEnd:
    """Where a log ended when records were planned: markers below decided their transactions.

    Args:
        offset: one more than the last offset.
        leader_epoch: of the last offset; ``None`` if it is not known.
    """

    offset: int
    leader_epoch: int | None = None


def log_end(log: ResolvedLog, latest: int) -> LogEnd:
    """The end of a log.

    Args:
        latest: one more than its last offset.
    """
    epoch = None if log.lineage is None or latest < 1 else log.lineage.epoch_for(latest - 1)
    return LogEnd(latest, epoch)


def common_end(log: ResolvedLog, latest: int, leader_epoch: int | None) -> int:
    """Up to where a log is the same as one whose last offset was written by this epoch.

    Args:
        latest: one more than the last offset of the log.
        leader_epoch: ``None`` if it is not known: then the log's end counts.

    Source: ``OffsetsForLeaderEpoch`` (KIP-320): the end of the largest epoch that is not larger.
    """
    lineage = log.lineage
    if leader_epoch is None or not lineage:
        return latest
    known = [one.epoch for one in lineage if one.epoch <= leader_epoch]
    end = lineage.end_offset(known[-1]) if known else lineage.entries[0].start_offset
    return latest if end is None else min(latest, end)


def decided_end(
    store: ObjectStore,
    log: ResolvedLog,
    stop: int,
    *,
    start_snapshot: str | None = None,
    max_batch_bytes: int = DEFAULT_LIMIT,
) -> int:
    """Where the first transaction begins that is open at ``stop``, by the log below it; ``stop`` if none is.

    Costs a snapshot, and the batches behind it.

    Args:
        start_snapshot: a producer snapshot of where the log starts.
        max_batch_bytes: largest batch to hold.

    Raises:
        FormatError, StorageError: the log below cannot be read.
    """
    parts = tuple(Part(one.segment, one.start, min(one.stop, stop)) for one in log.parts if one.start < stop)
    if not parts:
        return stop
    below = ResolvedLog(
        log.partition, log.lineage, parts, tuple(one for one in log.holes if one.stop <= stop), (), log.is_assumed
    )
    ends = read_log_offsets(store, below, start_snapshot=start_snapshot, max_batch_bytes=max_batch_bytes)
    return stop if ends.stable_end is None else min(stop, ends.stable_end)
