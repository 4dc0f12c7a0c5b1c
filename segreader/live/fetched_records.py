"""The records of one Fetch answer: which whole batches of it count, and where to continue, by headers alone.

Nothing is decoded here, so that the next request can be on its way before the records are looked at.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from segreader.errors import FormatError, ProtocolError, TruncatedLogError
from segreader.format.columns import TABLE_WIDTH, Table
from segreader.format.compression import DEFAULT_LIMIT
from segreader.format.kernel import Kernel
from segreader.format.scanner import BatchRun, Done, NeedData, SegmentScanner


@dataclass(frozen=True, slots=True)
class FetchedBatches:
    """What of an answer is to be decoded.

    Args:
        data: whole batches, in the memory of the answer.
        next_offset: the next one to ask for.
        leader_epoch: of the last batch; -1 where there is none.
        batches: how many.
    """

    data: memoryview
    next_offset: int
    leader_epoch: int = -1
    batches: int = 0


def take_batches(
    records: memoryview,
    next_offset: int,
    stop: int,
    epochs: Sequence[tuple[int, int]] = (),
    *,
    high_watermark: int = -1,
    source: str | None = None,
    max_batch_bytes: int = DEFAULT_LIMIT,
    kernel: Kernel | None = None,
) -> FetchedBatches:
    """The batches of an answer to a Fetch at ``next_offset`` that hold offsets below ``stop``.

    A cut batch at the end is left out. So is everything from the first batch on whose epoch had ended before: of a
    remote segment a broker sends the lost branch, too, and is to be asked again from where that epoch ends.

    Args:
        epochs: of the live log and the first offset of each, as it was planned; empty if that is not to be judged.
        high_watermark: of the answer; -1 if it is not told.
        source: how the partition is named to people.

    Raises:
        ProtocolError: the records lie behind the high watermark, do not reach the offset, or are of a lost branch only.
        TruncatedLogError: they are of an epoch that was not there when the read was planned: the log that was to be
            read is gone.
        FormatError: the first header cannot be.

    Source: KIP-74 (the first batch comes whole), KIP-101.
    """
    scanner = SegmentScanner(stop=len(records), max_batch_size=max_batch_bytes, kernel=kernel)
    scanner.feed(records)
    starts = [start for _, start in epochs]
    size = batches = 0
    last, leader_epoch = next_offset - 1, -1
    while True:
        try:
            run = scanner.next_run()
        except FormatError as error:
            if batches:
                break  # the part before it is sound; it comes again at the head of the next response
            raise error.located(source=source, offset=next_offset) from None
        if isinstance(run, Done | NeedData):
            break
        for row in range(run.rows):
            batch = _FetchedBatch.of(run, row)
            if batch.last_offset < next_offset:  # an earlier one: some brokers begin there
                size = batch.end
                continue
            if 0 <= high_watermark <= batch.last_offset:
                raise ProtocolError(
                    "a Fetch answer has records behind its high watermark",
                    source=source,
                    base_offset=batch.base_offset,
                    found=f"offsets {batch.base_offset} to {batch.last_offset}",
                    expected=f"offsets below {high_watermark}",
                )
            if batch.base_offset >= stop:  # nothing of the range is left, whatever the cleaner removed
                last = max(last, stop - 1)
                break
            expected = _epoch_at(epochs, starts, max(batch.base_offset, next_offset))
            if expected is not None and 0 <= batch.leader_epoch != expected:
                if batch.leader_epoch > epochs[-1][0]:
                    raise _truncated(batch, last + 1, epochs, source)
                return _until_dead(records, size, batches, last, leader_epoch, batch, epochs, next_offset, source)
            last, leader_epoch, size = max(last, batch.last_offset), batch.leader_epoch, batch.end
            batches += 1
        else:
            continue
        break
    if not batches and len(records) and scanner.position == 0:
        raise ProtocolError(
            "a Fetch answer has no whole batch",
            source=source,
            offset=next_offset,
            found=f"{len(records)} bytes",
            expected="the first batch as a whole",
        )
    return FetchedBatches(records[:size], last + 1, leader_epoch, batches)


@dataclass(frozen=True, slots=True)
class _FetchedBatch:
    base_offset: int
    last_offset: int
    leader_epoch: int
    end: int

    @classmethod
    def of(cls, run: BatchRun, row: int) -> _FetchedBatch:
        table, at = run.table, row * TABLE_WIDTH
        epoch = table[at + Table.LEADER_EPOCH] if table[at + Table.MAGIC] >= 2 else -1
        base, last = table[at + Table.BASE_OFFSET], table[at + Table.LAST_OFFSET]
        return cls(base, last, epoch, table[at + Table.POSITION] + table[at + Table.SIZE])


def _epoch_at(epochs: Sequence[tuple[int, int]], starts: Sequence[int], offset: int) -> int | None:
    at = bisect_right(starts, offset) - 1
    return epochs[at][0] if at >= 0 else None


def _truncated(
    batch: _FetchedBatch, next_offset: int, epochs: Sequence[tuple[int, int]], source: str | None
) -> TruncatedLogError:
    return TruncatedLogError(
        "the log that was to be read is gone",
        source=source,
        offset=next_offset,
        found=f"epoch {batch.leader_epoch} at offset {batch.base_offset}",
        expected=f"epochs up to {epochs[-1][0]}, as when the read was planned",
        hint="An unclean leader election took records away: plan again",
    )


def _until_dead(
    records: memoryview,
    size: int,
    batches: int,
    last: int,
    leader_epoch: int,
    dead: _FetchedBatch,
    epochs: Sequence[tuple[int, int]],
    next_offset: int,
    source: str | None,
) -> FetchedBatches:
    """The part before a batch of a diverged history; the next request begins where its epoch ended."""
    end = next((start for epoch, start in epochs if epoch > dead.leader_epoch), last + 1)
    following = max(last + 1, end)
    if following <= next_offset:
        raise ProtocolError(
            "a broker answers with records of a lost branch",
            source=source,
            base_offset=dead.base_offset,
            found=f"epoch {dead.leader_epoch}",
            expected="the epoch that wrote this offset in the leader's own history",
            hint="Plan again: leader epochs have changed, or this broker has not heard of it",
        )
    return FetchedBatches(records[:size], following, leader_epoch, batches)
