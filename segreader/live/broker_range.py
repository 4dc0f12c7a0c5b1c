"""A range of offsets as a broker's Fetch answers give it.

Where the range ends is a snapshot, so it is over when its last offset was passed, or when nothing is left of it because
the cleaner removed the last records. An empty answer alone says nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Final, Self

from segreader.broker.messages import EARLIEST_LOCAL, FetchedPartition, OffsetWanted, RemoteLogSegmentLocation
from segreader.broker.rules.fallback import RemoteReads
from segreader.errors import ConnectionFailedError, ProtocolError
from segreader.format.compression import DEFAULT_LIMIT
from segreader.isolation import IsolationLevel
from segreader.live.cluster import FETCH_BYTES, Cluster, Fetcher
from segreader.live.fetched_records import take_batches
from segreader.plan.live import LivePart
from segreader.read.ahead import one_ahead

PATIENCE_S: Final = 60.0
"""How long a broker may have nothing to give of offsets that were readable when they were planned."""

_EMPTY_ANSWERS: Final = 4
_SMALL_BYTES: Final = 1 << 20  # as a Java consumer asks for
_FIRST_WAIT_S: Final = 0.01
_LONGEST_WAIT_S: Final = 0.2


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
    """

    offset: int
    next_offset: int
    data: memoryview
    aborted: tuple[tuple[int, int], ...] | None
    location: RemoteLogSegmentLocation | None
    answer: FetchedPartition


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
        since, empty = self._clock(), 0
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
                return FetchedAnswer(offset, offset, memoryview(b""), answer.aborted, answer.location, answer)
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
                    since, empty = self._clock(), 0
                    if taken.batches:
                        return FetchedAnswer(offset, taken.next_offset, taken.data, answer.aborted, None, answer)
                    continue
            empty += 1
            if empty == _EMPTY_ANSWERS // 2 and self._max_bytes > _SMALL_BYTES:
                self._ask_for_less()
            if self._is_over(answer, empty):
                self.position = self.stop
                break
            if self._clock() - since > PATIENCE_S:
                raise self._nothing_came(answer)
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

    def _nothing_came(self, answer: FetchedPartition) -> ConnectionFailedError:
        end = answer.last_stable_offset if self._is_committed else answer.high_watermark
        return ConnectionFailedError(
            f"no records came for {PATIENCE_S:.0f} s",
            source=self._shown,
            offset=self.position,
            found=f"empty answers, and offsets readable up to {end}",
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

    return one_ahead(answers, name="segreader-fetch")
