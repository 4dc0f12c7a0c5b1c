"""Parts of a live plan, turned into records: from the store, by location, or from the broker in their place.

One reader decodes all three, with the same kernel and the same rules. Offsets that were delivered never come again,
whatever source they came from.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from copy import copy
from dataclasses import replace

import pyarrow as pa

from segreader.broker.messages import EARLIEST, OffsetWanted, RemoteLogSegmentLocation
from segreader.broker.rules.fallback import Cause, RemoteReads, RemoteStep, cause_of
from segreader.broker.rules.fetch_errors import is_failed_read
from segreader.errors import (
    BrokerError,
    CorruptIndexError,
    FormatError,
    ObjectNotFoundError,
    OffsetOutOfRangeError,
    SegmentGapError,
    SegreaderError,
    StorageError,
)
from segreader.format.columns import BufferPool
from segreader.isolation import IsolationLevel
from segreader.live.cluster import Cluster
from segreader.live.fetching import BrokerRange, FetchedAnswer, FetchedStore, iter_answers
from segreader.live.locations import UrlCache, located_split, now_ms, with_end
from segreader.live.marks import require_history
from segreader.plan.live import LivePart, ReadFrom
from segreader.plan.request import Policy, ReadOptions
from segreader.plan.split import Split
from segreader.ranges import ByteRange, OffsetRange
from segreader.read.metrics import LiveMetrics, MissingOffsets
from segreader.read.split_reader import SplitReader
from segreader.storage.base import ObjectStore

_PROBES = 32
"""Number of steps through the offsets after an unreadable one, to find one that can be read."""


class LiveReader:
    """Reads parts one after another. Use one from one thread.

    Args:
        store: where parts from the store lie; ``None`` if there are none.
        located: URLs and store of located segments; ``None`` if locations are not to be asked for.
        clock_ms: the time, in ms since 1970 UTC.
    """

    def __init__(
        self,
        cluster: Cluster,
        options: ReadOptions,
        *,
        store: ObjectStore | None = None,
        located: tuple[UrlCache, ObjectStore] | None = None,
        metrics: LiveMetrics | None = None,
        clock_ms: Callable[[], int] = now_ms,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.metrics = metrics or LiveMetrics()
        self._cluster, self._options = cluster, options
        self._clock_ms, self._sleep = clock_ms, sleep
        self._located = located
        self._fetched = FetchedStore(cluster.shown)
        self._pool = BufferPool()
        self._broker = self._reader(self._fetched, options)
        # What the object store has wrong the broker may have right: damage there is no end, and nothing to pass over.
        strict = replace(options, on_corrupt=Policy.FAIL, on_missing=Policy.FAIL)
        self._store = None if store is None else self._reader(store, strict)
        self._remote = None if located is None else self._reader(located[1], strict)
        self._delivered = 0
        self._reads: dict[str, RemoteReads] = {}

    def _reader(self, store: ObjectStore, options: ReadOptions) -> SplitReader:
        return SplitReader(store, options, metrics=self.metrics, pool=self._pool)

    @property
    def delivered(self) -> int:
        """The first offset of the part that was not returned yet."""
        return self._delivered

    def read(self, part: LivePart) -> Iterator[pa.RecordBatch]:
        """The records of one part, in offset order.

        Raises:
            TruncatedLogError: an unclean election took away what was to be read.
            OffsetOutOfRangeError: retention took it away.
            SegmentGapError: the store lacks it, and the broker cannot read it.
            BrokerError, StorageError, FormatError: it cannot be read from anywhere.
        """
        self._delivered = part.offsets.start
        self.metrics.sources[part.read_from.value].parts += 1
        if part.read_from is ReadFrom.BROKER or (part.read_from is ReadFrom.STORE and self._store is None):
            require_history(self._cluster, part.partition, part.offsets.start, part.position_epoch)
        while True:
            try:
                if part.read_from is ReadFrom.STORE and self._store is not None:
                    yield from self._from_store(part, self._store)
                elif part.read_from is ReadFrom.LOCATION:
                    yield from self._by_locations(part)
                else:
                    yield from self._from_broker(part, part.stop)
                return
            except BrokerError as error:
                if not is_failed_read(error):
                    raise
                found = self._unreadable(part, error)
                if self._options.on_gap is Policy.FAIL:
                    raise found from error
                self._pass_over(part, self._next_readable(part), found)

    # offsets that cannot be read from anywhere

    def _unreadable(self, part: LivePart, error: BrokerError) -> SegreaderError:
        """What to say of the next offset, which the broker cannot read."""
        hint = "Restore the object, or read what is left with on_gap='skip' (--on-gap skip)"
        if part.hole is None:
            found = copy(error)
            found.source, found.offset, found.hint = found.source or self._shown(part), self._delivered, hint
            return found
        return SegmentGapError(
            f"offsets of {part.partition} can be read neither from the store nor from the broker",
            source=self._shown(part),
            offset=self._delivered,
            found=f"{part.hole}; {error.message}",
            hint=hint,
        )

    def _shown(self, part: LivePart) -> str:
        return f"{self._cluster.shown}/{part.partition}"

    def _next_readable(self, part: LivePart) -> int:
        """The first offset behind the next one that the broker can read, as far as a few requests find it; the end of
        the part if there is none. What was not found is reported as missing with the rest."""
        low, step = self._delivered, max(1, (part.stop - self._delivered) // _PROBES)
        high = min(low + step, part.stop)
        while high < part.stop and not self._is_readable(part, high):
            low, high = high, min(high + step, part.stop)
        while high - low > 1:
            middle = (low + high) // 2
            if self._is_readable(part, middle):
                high = middle
            else:
                low = middle
        return high

    def _is_readable(self, part: LivePart, offset: int) -> bool:
        try:
            with BrokerRange(
                self._cluster,
                part,
                offset,
                locations=RemoteReads() if part.read_from is ReadFrom.LOCATION else None,
                max_bytes=1,
                max_batch_bytes=self._options.max_batch_bytes,
                sleep=self._sleep,
            ) as asked:
                asked.next()
        except BrokerError as error:
            if not is_failed_read(error):
                raise
            return False
        return True

    def _pass_over(self, part: LivePart, stop: int, error: SegreaderError) -> None:
        """Go on behind offsets that cannot be read; they are counted as missing."""
        self.metrics.missing.append(MissingOffsets(part.partition, self._delivered, stop, str(error)))
        self._delivered = stop

    # the store

    def _from_store(self, part: LivePart, reader: SplitReader) -> Iterator[pa.RecordBatch]:
        position = part.offsets.start
        try:
            for split in part.splits:
                yield from self._followed(ReadFrom.STORE, reader, reader.read(split, position))
                position = reader.next_offset
        except (StorageError, FormatError) as error:
            self._fall_back(cause_of(error), part, str(error))
            yield from self._in_place_of(error, part, part.stop)

    # the broker

    def _from_broker(self, part: LivePart, stop: int) -> Iterator[pa.RecordBatch]:
        """What is not delivered yet of the part's offsets below ``stop``, as Fetch answers have it."""
        with self._ask(part, stop) as asked, closing(iter_answers(asked)) as answers:
            for answer in answers:
                yield from self._decoded(part, answer, stop)

    def _in_place_of(self, lost: StorageError | FormatError, part: LivePart, stop: int) -> Iterator[pa.RecordBatch]:
        """The broker's records below ``stop`` where an object cannot be read; if they cannot either, ``lost`` is what
        is raised, and an object that is not there may be passed over (``on_missing``)."""
        try:
            yield from self._from_broker(part, stop)
        except BrokerError as error:
            if not is_failed_read(error):
                raise
            found = copy(lost)
            found.offset = self._delivered
            found.hint = (
                f"Offsets {self._delivered} to {stop - 1} cannot be read from the broker either: {error.message}. "
                "Restore the object"
            )
            if not isinstance(lost, ObjectNotFoundError):
                raise found from error
            found.hint += ", or read what is left with on_missing='skip' (--on-missing skip)"
            if self._options.on_missing is Policy.FAIL:
                raise found from error
            self._pass_over(part, stop, found)

    def _ask(self, part: LivePart, stop: int | None = None, *, locations: RemoteReads | None = None) -> BrokerRange:
        """Requests the part from the next undelivered offset on."""
        return BrokerRange(
            self._cluster,
            part,
            self._delivered,
            stop,
            locations=locations,
            max_batch_bytes=self._options.max_batch_bytes,
            sleep=self._sleep,
        )

    def _decoded(self, part: LivePart, answer: FetchedAnswer, stop: int) -> Iterator[pa.RecordBatch]:
        name = f"{part.partition} (Fetch at {answer.offset})"
        size = len(answer.data)
        split = Split(
            partition=part.partition,
            log=name,
            log_size=size,
            positions=ByteRange(0, size),
            offsets=OffsetRange(max(answer.offset, self._delivered), stop),
            isolation_level=part.isolation_level,
            epochs=part.epochs,
        )
        self._fetched.put(name, answer.data)
        try:
            aborted = answer.aborted or ()
            yield from self._followed(ReadFrom.BROKER, self._broker, self._broker.read(split, aborted=aborted))
        finally:
            self._fetched.drop(name)
        self._delivered = max(self._delivered, answer.next_offset)

    # locations

    def _by_locations(self, part: LivePart) -> Iterator[pa.RecordBatch]:
        reads = self._reads_of(part)
        while self._delivered < part.stop:
            if self._remote is None or not reads.may_ask(self._delivered, self._clock_ms()):
                yield from self._from_broker(part, part.stop)
                return
            answer = self._told(part)
            if answer is None:
                with self._ask(part, locations=reads) as asked:
                    answer = asked.next()
            if answer is None:
                self._delivered = part.stop
                return
            if answer.location is None:  # nothing is known there of this offset: records, and go on behind them
                reads.fell_back(since=answer.offset, until=answer.next_offset, now_ms=self._clock_ms())
                self.metrics.fallbacks[Cause.NO_LOCATION.value] += 1
                yield from self._decoded(part, answer, part.stop)
                continue
            location = answer.location
            if (reason := self._refusal(part, answer, location)) is not None:
                self.metrics.locations_rejected += 1
                reads.fell_back(since=self._delivered, until=self._delivered + 1, now_ms=self._clock_ms())
                self._fall_back(Cause.LOCATION_REJECTED, part, f"a location was dropped: {reason}")
                yield from self._answer_without(part)
                continue
            yield from self._from_location(part, answer, location, reads)

    def _told(self, part: LivePart) -> FetchedAnswer | None:
        """The location of the next undelivered offset from planning in this process, if that was a moment ago."""
        if self._located is None:
            return None
        return self._located[0].recall(part.partition, self._delivered, self._clock_ms())

    def _reads_of(self, part: LivePart) -> RemoteReads:
        """What is remembered of a partition's locations: falls in a row count over its parts. The store itself tries
        again what failed."""
        return self._reads.setdefault(str(part.partition), RemoteReads(retries=0))

    def _refusal(self, part: LivePart, answer: FetchedAnswer, location: RemoteLogSegmentLocation) -> str | None:
        """Why a location cannot be used here."""
        if reason := answer.refusal(self._clock_ms()):
            return reason
        if location.signed_url is None:
            return "it has no signed URL"
        if part.isolation_level is IsolationLevel.READ_COMMITTED and answer.aborted is None and part.aborted is None:
            return "it does not list aborted transactions"
        return None

    def _answer_without(self, part: LivePart) -> Iterator[pa.RecordBatch]:
        """One response with records, requested without locations."""
        with self._ask(part) as asked:
            answer = asked.next()
        if answer is None:
            self._delivered = part.stop
        else:
            yield from self._decoded(part, answer, part.stop)

    def _from_location(
        self, part: LivePart, answer: FetchedAnswer, location: RemoteLogSegmentLocation, reads: RemoteReads
    ) -> Iterator[pa.RecordBatch]:
        """The records of one located segment; the broker's for what cannot be had of it."""
        stop = min(location.last_offset + 1, part.stop)
        step = reads.given(location.segment_id, expiry_ms=location.expiry_ms, now_ms=self._clock_ms())
        if step is None and self._located is not None and (location.stop is None or stop < answer.stop):
            location = with_end(part.partition, location, stop, self._located)
        to_the_end = False
        lost: StorageError | FormatError | None = None
        while True:
            if step is None:
                try:
                    yield from self._located_records(part, answer, location, stop, to_the_end=to_the_end)
                    if self._delivered < stop and not to_the_end and location.stop not in (None, location.size):
                        to_the_end = True  # there may be more of it behind the bytes named
                        continue
                    reads.finished()
                    self._delivered = max(self._delivered, stop)
                    return
                except CorruptIndexError as error:
                    if location.start:  # the bytes named may begin behind records that are wanted
                        location = replace(location, start=None)
                        continue
                    if not to_the_end and location.stop not in (None, location.size):  # or end inside a batch
                        to_the_end = True
                        continue
                    step, why, lost = reads.failed(error), str(error), error
                except (StorageError, FormatError) as error:
                    step, why, lost = reads.failed(error), str(error), error
            else:
                why = "its URL is about to expire"
            if step.step is RemoteStep.CHECK_START:
                self._require_retained(part)
                step = reads.start_checked()
            if step.step is RemoteStep.RENEW:
                return  # the caller asks again from the next undelivered offset
            if step.step is RemoteStep.FALL_BACK:
                reads.fell_back(since=self._delivered, until=stop, now_ms=self._clock_ms())
                self.metrics.locations_rejected += step.cause is Cause.LOCATION_REJECTED
                self._fall_back(step.cause, part, why)
                if lost is None:
                    yield from self._from_broker(part, stop)
                else:
                    yield from self._in_place_of(lost, part, stop)
                self._delivered = max(self._delivered, stop)
                return
            self._sleep(step.wait_ms / 1000)
            step = None

    def _located_records(
        self,
        part: LivePart,
        answer: FetchedAnswer,
        location: RemoteLogSegmentLocation,
        stop: int,
        *,
        to_the_end: bool,
    ) -> Iterator[pa.RecordBatch]:
        assert self._located is not None
        assert self._remote is not None
        urls = self._located[0]
        name = urls.put(part.partition, location, lambda: self._ask_again(part))
        split = located_split(
            part.partition,
            location,
            name,
            OffsetRange(self._delivered, stop),
            part.isolation_level,
            part.epochs,
            part.aborted,
            to_the_end=to_the_end,
        )
        aborted = answer.aborted or () if part.aborted is None else ()
        yield from self._followed(ReadFrom.LOCATION, self._remote, self._remote.read(split, aborted=aborted))

    def _ask_again(self, part: LivePart) -> RemoteLogSegmentLocation | None:
        """Another location for the segment that is being read, because its URL has expired."""
        self.metrics.url_refreshes += 1
        with self._ask(part, locations=self._reads_of(part)) as asked:
            answer = asked.next()
        if answer is None or answer.location is None or self._refusal(part, answer, answer.location) is not None:
            return None
        return answer.location

    def _require_retained(self, part: LivePart) -> None:
        """Raise if the next offset was deleted, as retention does."""
        place = part.partition
        (first,) = self._cluster.list_offsets(
            [OffsetWanted(place.topic, place.partition, EARLIEST)], part.isolation_level
        )
        if first.offset > self._delivered:
            raise OffsetOutOfRangeError(
                f"offsets of {place} were deleted while they were read",
                source=self._cluster.shown,
                offset=self._delivered,
                found=f"the log begins at {first.offset}",
                hint="Retention took them: plan again from there",
            )

    # both

    def _followed(
        self, source: ReadFrom, reader: SplitReader, batches: Iterator[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        """The record batches; with each it is known what was delivered, also if the next one cannot be had."""
        for batch in self.metrics.counted(source, batches):
            self._delivered = max(self._delivered, reader.undelivered)
            yield batch

    def _fall_back(self, cause: Cause, part: LivePart, why: str) -> None:
        self.metrics.fallbacks[cause.value] += 1
        self.metrics.sources[ReadFrom.BROKER.value].parts += 1
        self.metrics.notes.append(f"{part.partition}: from offset {self._delivered} on by the broker: {why}")
