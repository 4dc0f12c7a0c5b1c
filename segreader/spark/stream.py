"""The streaming side of the source: Spark's calls on one side, looks at the log and splits of it on the other.

Spark keeps the offsets. It asks one reader, in a process of its own on the driver, for offsets and splits, and gives
tasks another one, pickled when the stream starts: everything that ``read`` needs is in its partition. A batch that
failed comes again with the same two offsets, so ``partitions`` decides by them and by the log alone.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from segreader.errors import (
    AmbiguousTopicError,
    DivergedPositionError,
    ObjectNotFoundError,
    OffsetOutOfRangeError,
    OptionError,
    SegreaderError,
)
from segreader.isolation import IsolationLevel
from segreader.plan.log import Log
from segreader.plan.split import ReadEnd
from segreader.ranges import OffsetRange
from segreader.segment import TopicIdPartition
from segreader.spark.batch import SegmentReader, SplitPartition
from segreader.spark.checkpoint import OffsetJson, StreamOffsets, TopicPartition, flat, from_json, to_json
from segreader.spark.option_values import EARLIEST, LATEST
from segreader.spark.options import OTHERS_FROM_EARLIEST, SparkOptions
from segreader.spark.rate_limits import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
    count_backlog,
    read_limit,
    take_bytes,
    take_rows,
    trigger_delay,
)
from segreader.spark.stream_source import Look, open_source
from segreader.spark.worker import without_locals

_GOES_ON: Final = "With failOnDataLoss=false the stream continues with the offsets that exist"

logger = logging.getLogger(__name__)


class SegmentStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows the segments of a location as they are uploaded, or a live log as it is written.

    Args:
        options: of the stream, with the schemas that were learnt.
        columns: the columns asked for.
        schema: as of ``SegmentReader``.
        clock: seconds that do not go back.
        wait: for so many seconds.
    """

    def __init__(
        self,
        options: SparkOptions,
        columns: tuple[str, ...],
        schema: pa.Schema | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self.options = options
        self.columns, self.schema = columns, schema
        self._clock, self._wait = clock, wait
        self._source = open_source(options, clock)
        self._data_loss = DataLossPolicy(options.fail_on_data_loss, options.location)
        self._delay = trigger_delay(options)
        self._look: Look | None = None
        self._looked_at = 0.0
        self._is_frozen = False
        self._decided: dict[TopicPartition, int] = {}
        self._initial: dict[TopicPartition, int] | None = None
        self._reached: dict[TopicPartition, int] | None = None
        self._is_first_batch = options.starts_at_end

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.options, self.columns, self.schema)

    @without_locals
    def initialOffset(self) -> OffsetJson:
        """Where a new query starts; the same at every call.

        Raises:
            SegreaderError: as ``StoredStreamSource.look`` tell.
        """
        return to_json(self._first())

    @without_locals
    def latestOffset(self, start: OffsetJson | None = None, limit: ReadLimit | None = None) -> OffsetJson:
        """Where the next batch ends; ``start`` while there is nothing to read, or not yet enough.

        Args:
            start: where it begins; not told by Spark 4.0 and 4.1, which call this without arguments.
            limit: how much to read; likewise.

        Raises:
            SegreaderError: offsets are gone, or as ``StoredStreamSource.look``.
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
        return read_limit(self.options)

    @without_locals
    def prepareForTriggerAvailableNow(self) -> None:
        """Look once; what is uploaded later is for another run."""
        self._look_again()
        self._is_frozen = True

    @without_locals
    def reportLatestOffset(self) -> OffsetJson | None:
        """The ends that the last look found: what Spark shows as the latest offset, and so how far behind it is."""
        return None if self._look is None else to_json(self._stops(self._look))

    @without_locals
    def partitions(self, start: OffsetJson, end: OffsetJson) -> list[InputPartition]:
        """The splits between two offsets, largest first; a partition that ``start`` lacks begins at its earliest.

        Raises:
            SegreaderError: offsets are gone, the end is before the start, or as for ``StoredStreamSource.plan``.
        """
        starts, ends = from_json(start), from_json(end)
        self._require_forward(starts, ends)
        self._reached = {**starts, **ends}
        behind = {name: stop for name, stop in ends.items() if starts.get(name, -1) < stop}
        look = self._look_with(behind)
        wanted: dict[TopicPartition, OffsetRange] = {}
        for name, stop in behind.items():
            if name not in look:
                self._data_loss.missing_partition(name)
            elif (first := self._begin(name, look[name], starts.get(name))) < stop:
                wanted[name] = OffsetRange(first, stop)
        planned = self._source.plan(look, wanted)
        plan = planned.plan
        for end_of_plan in plan.ends:
            stop = ends[end_of_plan.partition.topic, end_of_plan.partition.partition]
            if end_of_plan.offset is not None and end_of_plan.offset < stop:
                self._data_loss.short_batch(end_of_plan, stop)
        logger.info("%s: %d splits, %d bytes stored", plan.location, len(light := planned.light_splits()), plan.size)
        for note in (*plan.notes, *(f"{gap.text}: passed over" for gap in plan.gaps)):
            self._data_loss.note(note)
        return [SplitPartition(split) for split in light]

    @without_locals
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one split, as a batch read gives them."""
        return SegmentReader(self.options, self.columns, self.schema).read(partition)

    def commit(self, end: OffsetJson) -> None:
        """Nothing: Spark's checkpoint alone knows how far the query is."""

    def stop(self) -> None:
        """Close connections and threads."""
        self._source.close()

    def _first(self) -> dict[TopicPartition, int]:
        if self._initial is None:
            self._initial = self._first_offsets(self._look or self._look_again())
        return self._initial

    def _first_offsets(self, look: Look) -> dict[TopicPartition, int]:
        """The first offset to read of every partition: ``startingOffsets`` and its kin, held against what is there.

        Raises:
            OptionError: the option does not name exactly the partitions that are there.
            OffsetOutOfRangeError: an offset is gone or not there yet, or nothing is as new as a time.
        """
        read = self.options
        if read.starting_times is not None:
            times = read.starting_times
            by_name = dict.fromkeys(look, times) if isinstance(times, int) else flat(times)
            _require_same("startingOffsetsByTimestamp", by_name, look)
            return {name: self._at_time(name, look[name], time_ms) for name, time_ms in by_name.items()}
        if read.starting_offsets is not None:
            given = flat(read.starting_offsets)
            if read.starting_offsets_default is not None:
                given = dict.fromkeys(look, read.starting_offsets_default) | given
            _require_same("startingOffsets", given, look)
            return {name: self._at_offset(name, look[name], offset) for name, offset in given.items()}
        return {name: self._stop(log) if self.options.starts_at_end else log.earliest for name, log in look.items()}

    def _at_offset(self, name: TopicPartition, log: Log, offset: int) -> int:
        if offset == EARLIEST:
            return log.earliest
        return self._stop(log) if offset == LATEST else self._data_loss.check_start(name, log, offset)

    def _at_time(self, name: TopicPartition, log: Log, time_ms: int) -> int:
        found = log.offset_for(time_ms)
        if found is not None:
            return min(found, self._stop(log))
        if self.options.starts_at_latest:
            return self._stop(log)
        raise OffsetOutOfRangeError(
            f"nothing of {name[0]}-{name[1]} is as new as the time to start from",
            source=self.options.location,
            found=f"no record from {time_ms} on",
            hint="With startingOffsetsByTimestampStrategy=latest the stream starts at the end then",
        )

    def _look_again(self) -> Look:
        before = self._look or {}
        look = self._look = self._source.look()
        self._looked_at = self._clock()
        for name, log in look.items():
            if name in before and before[name].partition.topic_id != log.partition.topic_id:
                self._data_loss.recreated(before[name].partition, log.partition)
            elif name in before and (decided := self._source.decided_end(before[name], log)) is not None:
                self._decided[name] = min(decided, self._decided.get(name, decided))
        return look

    def _begin(self, name: TopicPartition, log: Log, start: int | None) -> int:
        """Where a partition begins; what was read before must be what is there, as far as this process has seen it."""
        decided = self._decided.get(name)
        if decided is not None and start is not None:
            if start > decided:
                self._data_loss.diverged(name, start, decided)
            del self._decided[name]  # what is read from here on is of the new history
        return self._data_loss.check_start(name, log, start)

    def _next_end(self) -> StreamOffsets:
        """What is there, never before the end of the last batch: older Spark does not say where the next one begins."""
        look = self._look_again() if self._look is None else self._current(self._reached or self._stops(self._look))
        return self._stops(look) if self._reached is None else self._bounds(self._reached, look)[1]

    def _require_forward(self, starts: StreamOffsets, ends: StreamOffsets) -> None:
        """Refuse a batch that ends before it starts: the one after it would deliver offsets again.

        From Spark 4.2 on none is planned. Older Spark asks for an end without saying where the query is, and a query
        that was stopped may be further than the uploads. Only a first batch that comes again may start behind its end.
        """
        missing = sorted(starts.keys() - ends.keys())
        for name in missing if missing and starts != self._first() else ():  # a first batch may come again
            self._data_loss.missing_partition(name)
        back = sorted(name for name, stop in ends.items() if stop < starts.get(name, stop))
        if back and (self.options.starting_offsets is not None or starts != self._first()):
            raise self._data_loss.ahead(back[0], starts[back[0]], ends[back[0]])

    def _current(self, starts: StreamOffsets) -> Look:
        """What is there; not looked up more than once a second."""
        look = self._look
        if look is None:
            return self._look_again()
        age = self._clock() - self._looked_at
        if self._is_frozen:
            return look
        if age < self._source.look_every_s:
            if any(self._stop(log) > starts.get(name, log.earliest) for name, log in look.items()):
                return look
            self._wait(self._source.look_every_s - age)
        return self._look_again()

    def _look_with(self, ends: StreamOffsets) -> Look:
        """A look that has these ends, if they are there at all."""
        look = self._look
        if look is None or any(name not in look or look[name].latest < end for name, end in ends.items()):
            return self._source.look() if self._is_frozen else self._look_again()
        return look

    def _bounds(self, starts: StreamOffsets, look: Look) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """Where each partition begins and ends by now; one that is gone stays where it is."""
        begins, ends = dict(starts), dict(starts)
        for name in sorted(starts.keys() - look.keys()):
            self._data_loss.missing_partition(name)
        for name, log in look.items():
            begins[name] = self._begin(name, log, starts.get(name))
            ends[name] = max(begins[name], self._stop(log))
        return begins, ends

    def _stop(self, log: Log) -> int:
        """Up to where the stream may read a partition."""
        is_committed = self.options.isolation_level is IsolationLevel.READ_COMMITTED
        return log.stable if is_committed else log.latest

    def _stops(self, look: Look) -> dict[TopicPartition, int]:
        return {name: self._stop(log) for name, log in look.items()}

    def _is_early(self, backlog: int, limit: ReadLimit | None) -> bool:
        """Whether there is not enough to read yet: never where Spark wants all there is, or the end is fixed."""
        if self._delay is None or self._is_frozen or isinstance(limit, ReadAllAvailable):
            return False
        return self._delay.holds_back(backlog, int(self._clock() * 1000))


def _require_same(option: str, given: StreamOffsets, look: Mapping[TopicPartition, object]) -> None:
    for problem, names in (("lacks", look.keys() - given.keys()), ("names, in vain,", given.keys() - look.keys())):
        if names:
            raise OptionError(
                f"{option} must name exactly the partitions that are read; it {problem} "
                + ", ".join(f"{topic}-{partition}" for topic, partition in sorted(names)),
                hint=OTHERS_FROM_EARLIEST if option == "startingOffsets" and problem == "lacks" else None,
            )


class DataLossPolicy:
    """The option ``failOnDataLoss``: raises where offsets are gone, or logs that once and lets the stream go on.

    Source: ``KafkaMicroBatchStream.reportDataLoss`` (Spark 4).

    Args:
        fails: the option.
        source: where is read, for people.
    """

    def __init__(self, fails: bool, source: str) -> None:
        self.fails = fails
        self.source = source
        self._noted: set[str] = set()

    def note(self, text: str) -> None:
        """A warning in the log, the first time: a trigger comes every second, and most say the same."""
        if text not in self._noted:
            self._noted.add(text)
            logger.warning("%s", text)

    def check_start(self, name: TopicPartition, log: Log, start: int | None) -> int:
        """The first offset to read of a partition, where ``start`` comes next; its earliest where none does.

        Raises:
            OffsetOutOfRangeError: it is not there, whether gone or not there yet.
        """
        if start is None:
            return log.earliest
        if start < log.earliest:
            self._fail_or_note(
                OffsetOutOfRangeError(
                    f"offsets of {_text(name)} are gone: retention has deleted them, or they are elsewhere",
                    source=self.source,
                    found=f"segments from offset {log.earliest} on",
                    expected=f"offset {start}",
                    hint=_GOES_ON,
                )
            )
        elif start > log.latest:
            hint = "With failOnDataLoss=false the stream waits until that offset is there"
            self._fail_or_note(self._too_early(name, start, log.latest, hint))
        return max(start, log.earliest)

    def ahead(self, name: TopicPartition, start: int, end: int) -> OffsetOutOfRangeError:
        """The error of a batch that ends before it starts, whatever the option says.

        Args:
            start: the offset that comes next.
            end: what Spark before 4.2 has noted as the end of the batch.
        """
        hint = (
            "Spark before 4.2 has noted that end: when the uploads have caught up, start a query with a new checkpoint "
            "at the line that segreader spark offsets prints"
        )
        return self._too_early(name, start, end, hint)

    def missing_partition(self, name: TopicPartition) -> None:
        """A partition with offsets that come next has no segment any more.

        Raises:
            ObjectNotFoundError: by the option.
        """
        self._fail_or_note(
            ObjectNotFoundError(f"{_text(name)} is not here any more", source=self.source, hint=_GOES_ON)
        )

    def short_batch(self, end: ReadEnd, stop: int) -> None:
        """A batch cannot be given the offsets that it was planned with when it was tried before.

        Raises:
            OffsetOutOfRangeError: by the option.
        """
        self._fail_or_note(
            OffsetOutOfRangeError(
                f"offsets of {end.partition} that this batch was planned with are not there any more",
                source=self.source,
                found=end.text,
                expected=f"offsets up to {stop}",
                hint=_GOES_ON,
            )
        )

    def diverged(self, name: TopicPartition, start: int, decided: int) -> None:
        """An election took away what the stream has read, or what had decided it.

        Args:
            start: the offset that comes next.
            decided: below it nothing has changed.

        Raises:
            DivergedPositionError: by the option.
        """
        self._fail_or_note(
            DivergedPositionError(
                f"what this stream has read of {_text(name)} is not its history any more",
                source=self.source,
                offset=decided,
                found=f"offsets up to {decided} that are certain",
                expected=f"everything below {start}",
                hint="An unclean leader election took records or markers away: take back what was written from offset "
                f"{decided} on, and start a query with a new checkpoint there. With failOnDataLoss=false this one goes "
                "on",
            )
        )

    def recreated(self, before: TopicIdPartition, now: TopicIdPartition) -> None:
        """Another topic has taken the name while the stream was reading.

        Raises:
            AmbiguousTopicError: by the option.
        """
        self._fail_or_note(
            AmbiguousTopicError(
                f"topic {now.topic!r} was deleted and created again while a stream was reading it",
                source=self.source,
                found=f"topic id {now.topic_id}",
                expected=before.topic_id,
                hint="Its offsets start again: start a new query with a new checkpoint",
            )
        )

    def _too_early(self, name: TopicPartition, start: int, end: int, hint: str) -> OffsetOutOfRangeError:
        return OffsetOutOfRangeError(
            f"{_text(name)} ends before the offset that comes next: the topic was created again, or what its broker "
            "has is not uploaded yet",
            source=self.source,
            found=f"the end at offset {end}",
            expected=f"offset {start}",
            hint=hint,
        )

    def _fail_or_note(self, error: SegreaderError) -> None:
        if self.fails:
            raise error
        self.note(str(error))


def _text(name: TopicPartition) -> str:
    return f"{name[0]}-{name[1]}"
