"""How much of a remote segment belongs to the leader's history. Pure.

Lost segments stay in the store and in the catalogue after an unclean election, at offsets where the leader has other
records. OffsetForLeaderEpoch decides: the leader must know each epoch of the segment and end it where the segment does.
Source: docs/reference/protocol.md; KIP-320; ``LeaderEpochFileCache.endOffsetFor`` (4.3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from segreader.broker.messages import EpochEnd


def epochs_used(epochs: Sequence[tuple[int, int]], first: int, last: int) -> list[tuple[int, int]]:
    """The epochs, and their first offsets, that offsets ``first`` to ``last`` of a segment lie in.

    An epoch without an offset of its own, which begins where the next one does, is left out.
    """
    used = []
    for index, (epoch, start) in enumerate(epochs):
        stop = epochs[index + 1][1] if index + 1 < len(epochs) else last + 1
        if start < stop and stop > first and start <= last:
            used.append((epoch, start))
    return used


def common_stop(epochs: Sequence[tuple[int, int]], first: int, last: int, ends: Mapping[int, EpochEnd]) -> int:
    """The offset behind the last one, from ``first`` on, that the segment and the leader have in common.

    Args:
        epochs: of the segment, each with its first offset there; ascending.
        first: the offset to begin with, which the segment holds.
        last: the segment's last offset.
        ends: what the leader says of each epoch of ``epochs_used``.

    Returns:
        ``first`` if even that one is not common.
    """
    used = epochs_used(epochs, first, last)
    if not used or used[0][1] > first:
        return first
    stop = first
    for index, (epoch, _) in enumerate(used):
        wanted = used[index + 1][1] if index + 1 < len(used) else last + 1
        told = ends.get(epoch)
        if told is None or told.error or told.leader_epoch != epoch or told.end_offset <= stop:
            break
        stop = min(told.end_offset, wanted)
        if told.end_offset < wanted or (told.end_offset > wanted and index + 1 < len(used)):
            break
    return stop
