"""Whether what was read is still the history of the partition: KIP-320 for files."""

from __future__ import annotations

from segreader.errors import DivergedPositionError, RecreatedTopicError
from segreader.isolation import IsolationLevel
from segreader.loader.query import LoadQuery
from segreader.loader.seen_log import SeenLog
from segreader.plan.split import EndReason
from segreader.storage.base import ObjectStore
from segreader.stored.divergence import LogEnd, common_end, decided_end


def refuse_diverged(
    seen: SeenLog,
    next_offset: int,
    leader_epoch: int | None,
    log_end: LogEnd | None,
    *,
    store: ObjectStore,
    query: LoadQuery,
    source: str | None,
) -> None:
    """Raise if the records before an offset were read from another history, or decided by markers of another one.

    Args:
        seen: the partition as it is.
        next_offset: everything below it was read.
        leader_epoch: of the last of that; ``None`` if it is not known.
        log_end: where the log ended by which it was planned; ``None`` if that is not known.
        store: where the partition is read, which happens only if the log has lost its end since.
        source: for the error.

    Raises:
        DivergedPositionError: the lineage gives an epoch an earlier end, or the log ends before.
    """
    common = common_end(seen.readable.resolved, seen.latest, leader_epoch)
    is_committed = query.isolation_level is IsolationLevel.READ_COMMITTED
    if next_offset <= common:
        if log_end is None or not is_committed or seen.reason is EndReason.DAMAGE:
            return
        leader_epoch = log_end.leader_epoch
        common = common_end(seen.readable.resolved, seen.latest, leader_epoch)
        if log_end.offset <= common:
            return
    again = common
    if is_committed:
        again = decided_end(
            store,
            seen.readable.resolved,
            common,
            start_snapshot=seen.start_snapshot,
            max_batch_bytes=query.max_batch_bytes,
        )
        if next_offset <= again:
            return  # what was lost decided nothing that was read
    raise DivergedPositionError(
        f"what was read of {seen.partition} is not its history any more",
        source=source,
        offset=again,
        found=f"offsets up to {common} in common"
        + ("" if leader_epoch is None else f" with epoch {leader_epoch}")
        + (f", and a log that ends at {seen.latest}" if common == seen.latest else "")
        + (f", where a transaction is open since offset {again}" if again < common else ""),
        expected=f"everything below {next_offset}"
        if next_offset > common or log_end is None
        else f"everything below {next_offset}, and the markers below {log_end.offset} that decided it",
        hint=f"An unclean leader election, or an older copy: take back what was loaded from offset {again} on and "
        "begin there",
    )


def recreated(topic: str, found: str | None, expected: str | None, source: str | None) -> RecreatedTopicError:
    """The error for a name that belongs to another topic now."""
    return RecreatedTopicError(
        f"topic {topic!r} was deleted, and another one was given its name",
        source=source,
        found=f"topic id {found}",
        expected=f"topic id {expected}",
        hint="What was loaded is of the old topic: begin anew, or choose one of the two by topic_id",
    )
