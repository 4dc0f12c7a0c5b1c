"""The streaming side of the source: Spark's calls on one side, looks at the log and splits of it on the other.

Spark keeps the offsets. It asks one reader, in a process of its own on the driver, for offsets and splits, and gives
tasks another one, pickled when the stream starts: everything that ``read`` needs is in its partition. A batch that
failed comes again with the same two offsets, so ``partitions`` decides by them and by the log alone.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from segreader.ranges import OffsetRange
from segreader.spark.admission import TriggerDelay, count_backlog, take_bytes, take_rows
from segreader.spark.batch import SegmentReader, SplitPartition
from segreader.spark.data_loss import LossRule
from segreader.spark.followed import Look, SeenPartition, open_log
from segreader.spark.options import StreamOptions
from segreader.spark.read_limits import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from segreader.spark.stream_offsets import OffsetJson, StreamOffsets, TopicPartition, from_json, to_json
from segreader.spark.stream_start import first_offsets
from segreader.spark.worker import without_locals

logger = logging.getLogger(__name__)


class SegmentStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows the segments of a location as they are uploaded, or a live log as it is written.

    Args:
        options: of the stream.
        columns: the columns asked for.
        clock: seconds that do not go back.
        wait: for so many seconds.
    """

    def __init__(
        self,
        options: StreamOptions,
        columns: tuple[str, ...],
        *,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self.options = options
        self.columns = columns
        self._clock, self._wait = clock, wait
        self._log = open_log(options.read, clock)
        self._rule = LossRule(options.read.fail_on_data_loss, options.read.location)
        self._delay = TriggerDelay(options.min_offsets, options.max_delay_ms) if options.min_offsets else None
        self._look: Look | None = None
        self._looked_at = 0.0
        self._is_frozen = False
        self._decided: dict[TopicPartition, int] = {}
        self._initial: dict[TopicPartition, int] | None = None
        self._reached: dict[TopicPartition, int] | None = None
        self._is_first_batch = options.starts_at_end

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.options, self.columns)

    @without_locals
    def initialOffset(self) -> OffsetJson:
        """Where a new query starts; the same at every call.

        Raises:
            SegreaderError: as ``first_offsets`` and ``StreamLog.look`` tell.
        """
        return to_json(self._first())

    @without_locals
    def latestOffset(self, start: OffsetJson | None = None, limit: ReadLimit | None = None) -> OffsetJson:
        """Where the next batch ends; ``start`` while there is nothing to read, or not yet enough.

        Args:
            start: where it begins; not told by Spark 4.0 and 4.1, which call this without arguments.
            limit: how much to read; likewise.

        Raises:
            SegreaderError: offsets are gone, or as ``StreamLog.look`` tells.
        """
        is_first_batch, self._is_first_batch = self._is_first_batch, False
        if start is None:
            # What starts at the end has an empty first batch: were it to fail and come again, the end had moved on.
            return to_json(self._first() if is_first_batch and self._look is None else self._next_end())
        starts = from_json(start)
        if is_first_batch and starts == self._initial:
            return to_json(starts)
        look = self._current(starts)
        begins, ends = self._bounds(starts, look)
        if self._is_early(count_backlog(begins, ends), limit):
            return to_json(starts)
        if isinstance(limit, ReadMaxRows):
            ends = take_rows(begins, ends, limit.max_rows)
        elif isinstance(limit, ReadMaxBytes):
            behind = {name: (begins[name], end) for name, end in ends.items() if begins[name] < end}
            pieces = {name: look[name].pieces(begin, end) for name, (begin, end) in behind.items()}
            ends = take_bytes(begins, ends, pieces, limit.max_bytes)
        return to_json(ends)

    def getDefaultReadLimit(self) -> ReadLimit:
        """How much a trigger reads by the options."""
        options = self.options
        if options.max_offsets is not None:
            return ReadMaxRows(options.max_offsets)
        if options.max_bytes is not None:
            return ReadMaxBytes(options.max_bytes)
        if options.min_offsets is not None:
            return ReadMinRows(options.min_offsets)
        return ReadAllAvailable()

    @without_locals
    def prepareForTriggerAvailableNow(self) -> None:
        """Look once; what is uploaded later is for another run."""
        self._look_again()
        self._is_frozen = True

    @without_locals
    def reportLatestOffset(self) -> OffsetJson | None:
        """The ends that the last look found: what Spark shows as the latest offset, and so how far behind it is."""
        return None if self._look is None else to_json(_stops(self._look))

    @without_locals
    def partitions(self, start: OffsetJson, end: OffsetJson) -> list[InputPartition]:
        """The splits between two offsets, largest first; a partition that ``start`` lacks begins at its earliest.

        Raises:
            SegreaderError: offsets are gone, the end is before the start, or as for ``StreamLog.plan``.
        """
        starts, ends = from_json(start), from_json(end)
        self._require_forward(starts, ends)
        self._reached = {**starts, **ends}
        behind = {name: stop for name, stop in ends.items() if starts.get(name, -1) < stop}
        look = self._look_with(behind)
        wanted: dict[TopicPartition, OffsetRange] = {}
        for name, stop in behind.items():
            if name not in look:
                self._rule.gone(name)
            elif (first := self._begin(name, look[name], starts.get(name))) < stop:
                wanted[name] = OffsetRange(first, stop)
        planned = self._log.plan(look, wanted)
        plan = planned.plan
        for end_of_plan in plan.ends:
            stop = ends[end_of_plan.partition.topic, end_of_plan.partition.partition]
            if end_of_plan.offset is not None and end_of_plan.offset < stop:
                self._rule.cut(end_of_plan, stop)
        logger.info("%s: %d splits, %d bytes stored", plan.location, len(light := planned.light_splits()), plan.size)
        for note in (*plan.notes, *(f"{gap.text}: passed over" for gap in plan.gaps)):
            self._rule.note(note)
        return [SplitPartition(split) for split in light]

    @without_locals
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one split, as a batch read gives them."""
        return SegmentReader(self.options.read, self.columns).read(partition)

    def commit(self, end: OffsetJson) -> None:
        """Nothing: Spark's checkpoint alone knows how far the query is."""

    def stop(self) -> None:
        """Close connections and threads."""
        self._log.close()

    def _first(self) -> dict[TopicPartition, int]:
        if self._initial is None:
            self._initial = first_offsets(self.options, self._log, self._look or self._look_again(), self._rule)
        return self._initial

    def _look_again(self) -> Look:
        before = self._look or {}
        look = self._look = self._log.look()
        self._looked_at = self._clock()
        for name, seen in look.items():
            if name in before and before[name].partition.topic_id != seen.partition.topic_id:
                self._rule.replaced(before[name].partition, seen.partition)
            elif name in before and (decided := self._log.decided_end(before[name], seen)) is not None:
                self._decided[name] = min(decided, self._decided.get(name, decided))
        return look

    def _begin(self, name: TopicPartition, seen: SeenPartition, start: int | None) -> int:
        """Where a partition begins; what was read before must be what is there, as far as this process has seen it."""
        decided = self._decided.get(name)
        if decided is not None and start is not None:
            if start > decided:
                self._rule.diverged(name, start, decided)
            del self._decided[name]  # what is read from here on is of the new history
        return self._rule.begin(name, seen, start)

    def _next_end(self) -> StreamOffsets:
        """What is there, never before the end of the last batch: older Spark does not say where the next one begins."""
        look = self._look_again() if self._look is None else self._current(self._reached or _stops(self._look))
        return _stops(look) if self._reached is None else self._bounds(self._reached, look)[1]

    def _require_forward(self, starts: StreamOffsets, ends: StreamOffsets) -> None:
        """Refuse a batch that ends before it starts: the one after it would deliver offsets again.

        From Spark 4.2 on none is planned. Older Spark asks for an end without saying where the query is, and a query
        that was stopped may be further than the uploads. Only a first batch that comes again may start behind its end.
        """
        missing = sorted(starts.keys() - ends.keys())
        for name in missing if missing and starts != self._first() else ():  # a first batch may come again
            self._rule.gone(name)
        back = sorted(name for name, stop in ends.items() if stop < starts.get(name, stop))
        if back and (self.options.read.starting_offsets is not None or starts != self._first()):
            raise self._rule.ahead(back[0], starts[back[0]], ends[back[0]])

    def _current(self, starts: StreamOffsets) -> Look:
        """What is there; not looked up more than once a second."""
        look = self._look
        if look is None:
            return self._look_again()
        age = self._clock() - self._looked_at
        if self._is_frozen:
            return look
        if age < self._log.look_every_s:
            if any(seen.stop > starts.get(name, seen.earliest) for name, seen in look.items()):
                return look
            self._wait(self._log.look_every_s - age)
        return self._look_again()

    def _look_with(self, ends: StreamOffsets) -> Look:
        """A look that has these ends, if they are there at all."""
        look = self._look
        if look is None or any(name not in look or look[name].latest < end for name, end in ends.items()):
            return self._log.look() if self._is_frozen else self._look_again()
        return look

    def _bounds(self, starts: StreamOffsets, look: Look) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """Where each partition begins and ends by now; one that is gone stays where it is."""
        begins, ends = dict(starts), dict(starts)
        for name in sorted(starts.keys() - look.keys()):
            self._rule.gone(name)
        for name, seen in look.items():
            begins[name] = self._begin(name, seen, starts.get(name))
            ends[name] = max(begins[name], seen.stop)
        return begins, ends

    def _is_early(self, backlog: int, limit: ReadLimit | None) -> bool:
        """Whether there is not enough to read yet: never where Spark wants all there is, or the end is fixed."""
        if self._delay is None or self._is_frozen or isinstance(limit, ReadAllAvailable):
            return False
        return self._delay.holds_back(backlog, int(self._clock() * 1000))


def _stops(look: Look) -> dict[TopicPartition, int]:
    return {name: seen.stop for name, seen in look.items()}
