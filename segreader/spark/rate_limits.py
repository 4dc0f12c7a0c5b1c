"""How much of what is there one trigger reads: Spark's limits where this Spark has them, and the arithmetic, which is
pure.

By rows a trigger is what Spark's kafka source makes of it, partition by partition; by bytes it is whole segments.
Source: ``KafkaMicroBatchStream.rateLimit``, ``.delayBatch`` (Spark 4).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from segreader.errors import OptionError
from segreader.plan.log import Piece
from segreader.spark.checkpoint import StreamOffsets, TopicPartition
from segreader.spark.options import SparkOptions
from segreader.values import dataclass

try:
    from pyspark.sql.streaming import datasource as _limits
except ImportError:  # Spark 4.0 and 4.1
    _limits = None  # type: ignore[assignment]

DEFAULT_DELAY_MS: Final = 900_000
"""Without ``maxTriggerDelay``."""

HAS_LIMITS = _limits is not None
"""Whether Spark asks a source written in Python how much a trigger shall read."""

if TYPE_CHECKING or HAS_LIMITS:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )
else:

    class SupportsTriggerAvailableNow:
        """Stands where Spark has none: ``Trigger.AvailableNow`` is then one trigger with all that is there."""

    class ReadLimit:
        """Stands where Spark has none; that Spark never hands one over."""

    @dataclass
    class ReadAllAvailable(ReadLimit): ...

    @dataclass
    class ReadMaxBytes(ReadLimit):
        max_bytes: int

    @dataclass
    class ReadMaxRows(ReadLimit):
        max_rows: int

    @dataclass
    class ReadMinRows(ReadLimit):
        min_rows: int


def require_limits(options: SparkOptions) -> None:
    """Refuse what an older Spark would leave out without a word.

    There a trigger is always all that is there, and ``AvailableNow`` is one of them: the rest would stay unread.

    Raises:
        OptionError: a limit is given to Spark 4.0 or 4.1.
    """
    if options.limits and not HAS_LIMITS:
        limit = next(iter(options.limits))
        raise OptionError(
            f"{limit} needs Spark 4.2 or later: before, no Python source is asked how much to read",
            hint="Leave it out: a trigger then reads all that is there",
        )


def read_limit(options: SparkOptions) -> ReadLimit:
    """How much a trigger reads by the options."""
    limits = options.limits
    if (most := limits.get("maxOffsetsPerTrigger")) is not None:
        return ReadMaxRows(most)
    if (most := limits.get("maxBytesPerTrigger")) is not None:
        return ReadMaxBytes(most)
    if (least := limits.get("minOffsetsPerTrigger")) is not None:
        return ReadMinRows(least)
    return ReadAllAvailable()


def trigger_delay(options: SparkOptions) -> TriggerDelay | None:
    """What holds triggers back that have little to read; ``None`` if the options do not ask for that."""
    least = options.limits.get("minOffsetsPerTrigger")
    return None if least is None else TriggerDelay(least, options.limits.get("maxTriggerDelay", DEFAULT_DELAY_MS))


def count_backlog(starts: StreamOffsets, ends: StreamOffsets) -> int:
    """Offsets between ``starts`` and ``ends``, of all partitions together; a partition without a start counts none."""
    return sum(max(0, end - starts.get(partition, end)) for partition, end in ends.items())


def take_rows(starts: StreamOffsets, ends: StreamOffsets, limit: int) -> dict[TopicPartition, int]:
    """The ends of a trigger of about ``limit`` offsets, shared out in proportion to the backlogs.

    A share is rounded down, but one below 1 is 1: no partition starves, and many small ones together may exceed the
    limit.

    Args:
        starts: the next offset to read, of every partition in ``ends``.
        ends: where the log ends now.
    """
    backlogs = {partition: end - starts[partition] for partition, end in ends.items() if end > starts[partition]}
    total = sum(backlogs.values())
    taken = dict(ends)
    for partition, backlog in backlogs.items():
        share = max(1, limit * backlog // total)
        taken[partition] = min(starts[partition] + share, ends[partition])
    return taken


def take_bytes(
    starts: StreamOffsets, ends: StreamOffsets, backlogs: Mapping[TopicPartition, Sequence[Piece]], limit: int
) -> dict[TopicPartition, int]:
    """The ends of a trigger of about ``limit`` stored bytes: whole pieces, one of each partition in turn.

    It stops behind the first piece that reaches the limit, so one is always read. The partition with the largest
    backlog comes first: when the limit is less than a segment, none waits for ever.

    Args:
        starts: the next offset to read, of every partition in ``ends``.
        ends: where the log ends now.
        backlogs: the offsets between, by partition, in offset order.
    """
    order = sorted(backlogs, key=lambda one: (-sum(piece.size for piece in backlogs[one]), one))
    waiting = deque((partition, deque(backlogs[partition])) for partition in order)
    taken = {partition: starts[partition] for partition in ends}
    size = 0
    while waiting and size < limit:
        partition, pieces = waiting.popleft()
        if not pieces:
            continue
        piece = pieces.popleft()
        size += piece.size
        taken[partition] = min(piece.stop, ends[partition])
        if pieces:
            waiting.append((partition, pieces))
        else:
            taken[partition] = ends[partition]
    return taken


@dataclass(slots=True)
class TriggerDelay:
    """Remembers when a trigger last had something to read: ``minOffsetsPerTrigger`` and ``maxTriggerDelay``.

    The first one is never held back, as in Spark's kafka source.

    Args:
        min_offsets: wait until so many are there …
        max_delay_ms: … but at most so long after the last trigger.
    """

    min_offsets: int
    max_delay_ms: int
    last_ms: int | None = None

    def holds_back(self, backlog: int, now_ms: int) -> bool:
        """Whether a trigger with so many offsets to read should wait.

        Args:
            backlog: offsets that could be read.
            now_ms: by any clock that does not go back.
        """
        is_due = self.last_ms is None or now_ms - self.last_ms >= self.max_delay_ms
        if backlog < self.min_offsets and not is_due:
            return True
        if backlog:
            self.last_ms = now_ms
        return False


__all__ = [
    "HAS_LIMITS",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxBytes",
    "ReadMaxRows",
    "ReadMinRows",
    "SupportsTriggerAvailableNow",
    "TriggerDelay",
    "count_backlog",
    "read_limit",
    "require_limits",
    "take_bytes",
    "take_rows",
    "trigger_delay",
]
