"""Whether what was read is still the history of the partition: KIP-320 for files."""

from __future__ import annotations

from segreader.errors import DivergedPositionError, RecreatedTopicError
from segreader.loader.seen_log import SeenLog


def refuse_diverged(seen: SeenLog, next_offset: int, leader_epoch: int | None, source: str | None) -> None:
    """Raise if what lies before an offset was read of another history.

    Args:
        seen: the partition as it is.
        next_offset: everything below it was read.
        leader_epoch: of the last of that; ``None`` if it is not known.
        source: for the error.

    Raises:
        DivergedPositionError: the lineage gives the last epoch an earlier end, or the log ends before.

    Source: ``OffsetsForLeaderEpoch`` (KIP-320): the end of the largest epoch that is not larger.
    """
    common = seen.latest
    lineage = seen.readable.resolved.lineage
    if leader_epoch is not None and lineage is not None and len(lineage):
        known = [one.epoch for one in lineage if one.epoch <= leader_epoch]
        end = lineage.end_offset(known[-1]) if known else lineage.entries[0].start_offset
        common = common if end is None else min(common, end)
    if next_offset <= common:
        return
    raise DivergedPositionError(
        f"what was read of {seen.partition} is not its history any more",
        source=source,
        offset=common,
        found=f"offsets up to {common} in common"
        + ("" if leader_epoch is None else f" with epoch {leader_epoch}")
        + (f", and a log that ends at {seen.latest}" if common == seen.latest else ""),
        expected=f"everything below {next_offset}",
        hint=f"An unclean leader election, or an older copy: take back what was loaded from offset {common} on "
        "and begin there",
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
