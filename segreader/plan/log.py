"""One partition at one moment: what readers of stored segments and of brokers both ask of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from segreader.segment import TopicIdPartition
from segreader.values import dataclass


@dataclass(frozen=True, slots=True)
class Piece:
    """Some of a partition's offsets that are read as a whole.

    Args:
        stop: the offset behind it, where a batch begins.
        size: stored bytes.
    """

    stop: int
    size: int


@dataclass(frozen=True, slots=True)
class LogEnd:
    """Where a log ended when records were planned: markers below decided their transactions.

    Args:
        offset: one more than the last offset.
        leader_epoch: of the last offset; ``None`` if it is not known.
    """

    offset: int
    leader_epoch: int | None = None


class Log(Protocol):
    """A partition at one moment: ``StoredLog`` from its segments, ``LiveLog`` from its leader."""

    @property
    def partition(self) -> TopicIdPartition:
        """Which one."""

    @property
    def earliest(self) -> int:
        """The first offset that is there."""

    @property
    def latest(self) -> int:
        """One more than the last offset that is there."""

    @property
    def stable(self) -> int:
        """The last stable offset: readers of ``read_committed`` read up to here."""

    def offset_for(self, time_ms: int) -> int | None:
        """The first offset that is not older than a time; ``None`` if all are. Markers count, as for a broker."""

    def pieces(self, start: int, stop: int) -> Sequence[Piece]:
        """The offsets between two, in pieces that are read as a whole."""
