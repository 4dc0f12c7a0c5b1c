"""Records of a partition by Fetch: a range of offsets, the batches of an answer that count, bytes at hand.

Where a range ends is a snapshot, so it is over when its last offset was passed, or when nothing is left of it because
the cleaner removed the last records. An empty answer alone says nothing. Batches are chosen by their headers, so that
the next request can be on its way before any record is decoded.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from typing import Final, Self

from segreader.broker.location import check_location
from segreader.broker.messages import (
    EARLIEST_LOCAL,
    FetchedPartition,
    FetchRequest,
    OffsetWanted,
    RemoteLogSegmentLocation,
)
from segreader.broker.rules.backoff import LONGEST_THROTTLE_MS
from segreader.broker.rules.fallback import RemoteReads
from segreader.errors import (
    AuthenticationError,
    AuthorizationError,
    BrokerError,
    ConnectionFailedError,
    FormatError,
    ObjectNotFoundError,
    ProtocolError,
    ShortReadError,
    TruncatedLogError,
)
from segreader.format.columns import TABLE_WIDTH, Table
from segreader.format.compression import DEFAULT_LIMIT
from segreader.format.index_files import AbortedTransaction
from segreader.format.kernel import Kernel
from segreader.format.scanner import BatchRun, Done, NeedData, SegmentScanner
from segreader.isolation import IsolationLevel
from segreader.live.cluster import FETCH_BYTES, Cluster, Fetcher
from segreader.plan.live import BEYOND, LivePart
from segreader.ranges import ByteRange
from segreader.read.ahead import one_lane
from segreader.segment import TopicIdPartition
from segreader.storage.base import ObjectInfo
from segreader.values import dataclass

PATIENCE_S: Final = 60.0
"""How long a broker may have nothing to give of offsets that were readable when they were planned."""

_EMPTY_ANSWERS: Final = 4
_SMALL_BYTES: Final = 1 << 20  # as a Java consumer asks for
_FIRST_WAIT_S: Final = 0.01
_LONGEST_WAIT_S: Final = 0.2
_POLLS: Final = 120
_FORMATS: Final = FetchRequest(()).storage_formats

NOT_OF_THE_DATA = (AuthenticationError, AuthorizationError, TruncatedLogError)
"""What every request of this reader meets, whichever offset it is about."""


@dataclass(frozen=True, slots=True)
class FetchedAnswer:
    """One answer that says something: batches to decode, or a location.

    Args:
        offset: that was asked for.
        next_offset: behind the batches; ``offset`` with a location.
        data: whole batches.
        aborted: (producer id, first offset) of aborted transactions that overlap them, in any order; ``None`` where
            the peer did not look them up.
        location: of the offset's segment.
        answer: as it came.
        stop: the first offset that was not wanted any more; a location's bytes may end there.
    """

    offset: int
    next_offset: int
    data: memoryview
    aborted: tuple[tuple[int, int], ...] | None
    location: RemoteLogSegmentLocation | None
    answer: FetchedPartition
    stop: int

    def refusal(self, now_ms: int) -> str | None:
        """Why its location must not be used, if it has one; ``None`` if it may. See ``check_location``."""
        if self.location is None:
            return None
        return check_location(self.location, self.answer, self.offset, _FORMATS, now_ms)


class BrokerRange:
    """Asks for the offsets of one part, in order.

    Args:
        start: where to begin; the part's first offset by default.
        stop: where to end; the part's end by default.
        locations: what is remembered of the partition's, where they are welcome instead of records.
        max_bytes: of records to ask for at once; 1 asks for the first batch alone.
        clock, sleep: for tests.
    """

    def __init__(
        self,
        cluster: Cluster,
        part: LivePart,
        start: int | None = None,
        stop: int | None = None,
        *,
        locations: RemoteReads | None = None,
        max_bytes: int = FETCH_BYTES,
        max_batch_bytes: int = DEFAULT_LIMIT,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.position = part.offsets.start if start is None else start
        self.stop = part.stop if stop is None else stop
        self._cluster, self._part, self._epochs = cluster, part, part.epochs
        self._max_batch_bytes, self._clock, self._sleep = max_batch_bytes, clock, sleep
        self._locations = locations
        self._is_committed = part.isolation_level is IsolationLevel.READ_COMMITTED
        self._shown = f"{cluster.shown}/{part.partition}"
        self._max_bytes = max_bytes
        self._fetcher = self._open(max_bytes)

    def _open(self, max_bytes: int) -> Fetcher:
        part = self._part
        return self._cluster.fetcher(
            part.partition.topic,
            part.partition.partition,
            self.position,
            isolation_level=part.isolation_level,
            topic_id=part.partition.topic_id,
            locations=self._locations,
            leader_epoch_of_position=self._epoch_before(self.position),
            stop=self.stop,
            max_bytes=max_bytes,
        )

    def next(self) -> FetchedAnswer | None:
        """The next answer that says something; ``None`` when the range is over. With batches the position moves on.

        Raises:
            ConnectionFailedError: for a minute there was nothing. BrokerError, FormatError: as named there.
        """
        since, empty, throttled_ms = self._clock(), 0, 0
        while self.position < self.stop:
            answer = self._fetcher.poll()
            offset = self.position
            if answer.location is not None and self._locations is None:
                raise ProtocolError(
                    "a broker responds with a location that was not requested",
                    source=self._shown,
                    offset=offset,
                    expected="records",
                )
            if answer.location is not None:
                data = memoryview(b"")
                return FetchedAnswer(offset, offset, data, answer.aborted, answer.location, answer, self.stop)
            if answer.records is not None and len(answer.records):
                taken = take_batches(
                    answer.records,
                    offset,
                    self.stop,
                    self._epochs,
                    high_watermark=answer.high_watermark,
                    source=self._shown,
                    max_batch_bytes=self._max_batch_bytes,
                )
                if taken.next_offset > offset:
                    self.move(taken.next_offset, taken.leader_epoch)
                    since, empty, throttled_ms = self._clock(), 0, 0
                    if taken.batches:
                        return FetchedAnswer(
                            offset, taken.next_offset, taken.data, answer.aborted, None, answer, self.stop
                        )
                    continue
            throttled_ms += answer.throttle_ms
            if answer.throttle_ms and throttled_ms <= LONGEST_THROTTLE_MS:
                continue  # the next poll waits for as long
            empty += 1
            if empty == _EMPTY_ANSWERS // 2 and self._max_bytes > _SMALL_BYTES:
                self._ask_for_less()
            if self._is_over(answer, empty):
                self.position = self.stop
                break
            if self._clock() - since - throttled_ms / 1000 > PATIENCE_S or throttled_ms > LONGEST_THROTTLE_MS:
                raise self._nothing_came(answer, self._clock() - since, throttled_ms)
            self._sleep(min(_FIRST_WAIT_S * 2 ** min(empty - 1, 8), _LONGEST_WAIT_S))
        return None

    def _ask_for_less(self) -> None:
        """A broker that reads a remote segment gives nothing if that takes it longer than it may."""
        self._fetcher.close()
        self._max_bytes = _SMALL_BYTES
        self._fetcher = self._open(_SMALL_BYTES)

    def move(self, next_offset: int, leader_epoch: int = -1) -> None:
        """Go on from another offset, because records up to there are had from elsewhere."""
        self.position = next_offset
        self._fetcher.advance(next_offset, self._epoch_before(next_offset) if leader_epoch < 0 else leader_epoch)

    def close(self) -> None:
        """Give back the connection."""
        self._fetcher.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _is_over(self, answer: FetchedPartition, empty: int) -> bool:
        """Whether nothing is left: the broker could give records up to the end, has them on its own disk, and gives
        none again and again. One empty answer can also mean a throttled or a late read."""
        end = answer.last_stable_offset if self._is_committed else answer.high_watermark
        if empty < _EMPTY_ANSWERS or end < self.stop:
            return False
        place = self._part.partition
        (local,) = self._cluster.list_offsets(
            [OffsetWanted(place.topic, place.partition, EARLIEST_LOCAL)], self._part.isolation_level
        )
        return not local.error and 0 <= local.offset <= self.position

    def _nothing_came(self, answer: FetchedPartition, waited_s: float, throttled_ms: int) -> ConnectionFailedError:
        end = answer.last_stable_offset if self._is_committed else answer.high_watermark
        return ConnectionFailedError(
            f"no records came for {waited_s:.0f} s",
            source=self._shown,
            offset=self.position,
            found=f"empty answers, {throttled_ms} ms of throttle time, and offsets readable up to {end}",
            expected=f"records up to offset {self.stop}",
            hint="The broker may be throttling, or its remote reads fail: see its log",
        )

    def _epoch_before(self, offset: int) -> int:
        if offset == self._part.offsets.start:
            return self._part.position_epoch
        before = [epoch for epoch, start in self._epochs if start < offset]
        return before[-1] if before else self._part.position_epoch


def iter_answers(asked: BrokerRange) -> Generator[FetchedAnswer, None, None]:
    """The answers of a range with batches; while one is worked on the next is on its way."""

    def answers() -> Iterator[FetchedAnswer]:
        while (answer := asked.next()) is not None:
            yield answer

    return one_lane(answers, name="segreader-fetch")


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


class FetchedStore:
    """Names and memory. What was read is dropped: a frame's memory must not outlive its records.

    Args:
        shown: what people call the place that the bytes came from.
    """

    def __init__(self, shown: str) -> None:
        self._shown = shown
        self._held: dict[str, memoryview] = {}

    def put(self, name: str, data: memoryview) -> None:
        """Hold these bytes until ``drop``."""
        self._held[name] = data

    def drop(self, name: str) -> None:
        """Let go of them."""
        self._held.pop(name, None)

    def url(self, name: str) -> str:
        """The cluster and the name."""
        return f"{self._shown}/{name}"

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """What is held."""
        return (ObjectInfo(name, len(self._held[name])) for name in sorted(self._held) if name.startswith(prefix))

    def list_level(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """What is held; there are no directories."""
        return self.list(prefix)

    def size(self, name: str) -> int:
        """Bytes held under this name."""
        return len(self._bytes(name))

    def read_ranges(self, name: str, ranges: Sequence[ByteRange]) -> Sequence[bytes]:
        """The bytes of each range."""
        return [bytes(self._part(name, wanted)) for wanted in ranges]

    def read_into(self, name: str, start: int, buffer: memoryview) -> None:
        """Fill ``buffer`` with the bytes from ``start`` on."""
        if len(buffer):
            buffer[:] = self._part(name, ByteRange(start, start + len(buffer)))

    def read_pieces(
        self, name: str, wanted: ByteRange, *, expected_size: int | None = None, expected_tag: str | None = None
    ) -> Generator[memoryview, None, None]:
        """The range in one piece, without a copy."""
        yield self._part(name, wanted)

    def close(self) -> None:
        """Let go of everything."""
        self._held.clear()

    def _bytes(self, name: str) -> memoryview:
        try:
            return self._held[name]
        except KeyError:
            raise ObjectNotFoundError("this answer was dropped", source=self.url(name)) from None

    def _part(self, name: str, wanted: ByteRange) -> memoryview:
        data = self._bytes(name)
        if wanted.stop > len(data):
            raise ShortReadError("the answer ends before the range does", source=self.url(name), position=len(data))
        return data[wanted.start : wanted.stop]


def aborted_at_either(
    cluster: Cluster, partition: TopicIdPartition, behind: int, within: int, known: Sequence[AbortedTransaction]
) -> list[AbortedTransaction]:
    """As ``aborted_across``, at the offset behind some segments; at the last one within them where that one cannot be
    read, because its object is lost. Those that are ``known`` are left out.

    Raises:
        BrokerError: neither can be read.
    """
    try:
        found = aborted_across(cluster, partition, behind)
    except BrokerError as error:
        if within >= behind or isinstance(error, NOT_OF_THE_DATA):
            raise
        found = aborted_across(cluster, partition, within)
    ended = {(row.producer_id, row.first_offset) for row in known}
    return [row for row in found if (row.producer_id, row.first_offset) not in ended]


def aborted_across(cluster: Cluster, partition: TopicIdPartition, offset: int) -> list[AbortedTransaction]:
    """The aborted transactions that began at or before ``offset`` and ended at or behind it, asked by a small Fetch.

    The broker tells no ends: here they reach beyond everything that is read. At the last stable offset itself it would
    list none, so that ``offset`` must lie below.

    Raises:
        ConnectionFailedError: it gives no records of that offset.
    """
    fetcher = cluster.fetcher(
        partition.topic,
        partition.partition,
        offset,
        isolation_level=IsolationLevel.READ_COMMITTED,
        topic_id=partition.topic_id,
        max_bytes=1,
    )
    with closing(fetcher):
        for _ in range(_POLLS):
            answer = fetcher.poll()
            if answer.records is not None and len(answer.records) and answer.aborted is not None:
                return [AbortedTransaction(one, first, BEYOND, BEYOND) for one, first in answer.aborted]
    raise ConnectionFailedError(
        "which transactions were aborted cannot be asked",
        source=f"{cluster.shown}/{partition}",
        offset=offset,
        found="empty answers",
        expected="a record batch, and the aborted transactions that overlap it",
    )
