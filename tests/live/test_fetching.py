"""What of a Fetch answer is decoded and where to go on, by batch headers alone; and asking until a range is over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from segreader.broker.connection import ClientMetrics
from segreader.broker.messages import EpochEnd, FetchedPartition
from segreader.errors import ConnectionFailedError, FormatError, ProtocolError, TruncatedLogError
from segreader.format.batch import Record, TimestampType
from segreader.format.checkpoints import LeaderEpoch
from segreader.live.fetching import BrokerRange, iter_answers, take_batches
from segreader.live.marks import walk_epochs
from segreader.plan.live import LivePart, ReadFrom
from segreader.ranges import OffsetRange
from segreader.segment import TopicIdPartition
from segreader.testing.batches import encode_batch


def batch(base: int, count: int = 1, epoch: int = 0) -> bytes:
    records = [Record(base + at, 1, TimestampType.CREATE_TIME, None, b"v") for at in range(count)]
    return encode_batch(records, base_offset=base, last_offset=base + count - 1, leader_epoch=epoch)


def taken(data: bytes, at: int, stop: int = 1000, epochs: Any = (), **arguments: Any) -> tuple[int, int, int]:
    """How many bytes are decoded, where to go on, and how many batches."""
    found = take_batches(memoryview(data), at, stop, epochs, **arguments)
    return len(found.data), found.next_offset, found.batches


def test_a_cut_batch_at_the_end_is_asked_for_again() -> None:
    one, two = batch(0, 3), batch(3, 2)

    for cut in range(len(two)):
        assert taken(one + two[:cut], 0) == (len(one), 3, 1)
    assert taken(one + two, 0) == (len(one + two), 5, 2)


def test_an_answer_without_a_whole_batch_is_no_answer() -> None:
    with pytest.raises(ProtocolError, match="no whole batch"):
        taken(batch(0, 3)[:-1], 0)
    assert taken(b"", 7) == (0, 7, 0)


def test_batches_before_the_offset_are_passed_over_and_those_behind_the_end_left_out() -> None:
    one, two, three = batch(0, 3), batch(3, 2), batch(5, 5)

    assert taken(one + two + three, 4, 6)[1:] == (10, 2)
    assert taken(one + two + three, 4, 5) == (len(one + two), 5, 1)
    assert taken(one, 3) == (len(one), 3, 0)


def test_what_the_cleaner_removed_before_the_end_needs_no_other_request() -> None:
    assert taken(batch(50), 10, 40) == (0, 40, 0)
    assert taken(batch(10) + batch(50), 10, 40)[1:] == (40, 1)


def test_records_behind_the_high_watermark_are_refused() -> None:
    assert taken(batch(0, 3), 0, high_watermark=3)[1] == 3
    with pytest.raises(ProtocolError, match="behind its high watermark"):
        taken(batch(0, 3), 0, high_watermark=2)


def test_of_a_lost_branch_nothing_is_taken_and_its_end_is_asked_for() -> None:
    epochs = ((0, 0), (2, 10))
    good, dead = batch(5, 5, epoch=0), batch(10, 5, epoch=1)

    assert taken(good + dead, 5, epochs=epochs) == (len(good), 10, 1)
    assert taken(batch(5, 2) + batch(12, 3, epoch=0), 5, epochs=epochs)[1:] == (10, 1)
    with pytest.raises(ProtocolError, match="lost branch"):
        taken(dead, 10, epochs=epochs)


def test_an_epoch_that_was_not_there_when_it_was_planned_is_another_log() -> None:
    with pytest.raises(TruncatedLogError) as caught:
        taken(batch(5, 5, epoch=0) + batch(10, epoch=3), 5, epochs=((0, 0), (2, 10)))
    assert caught.value.offset == 10


def test_a_header_that_cannot_be_is_an_error_once_it_stands_first() -> None:
    bad = bytearray(batch(3))
    bad[16] = 9

    assert taken(batch(0, 3) + bytes(bad), 0)[1:] == (3, 1)
    with pytest.raises(FormatError):
        taken(bytes(bad), 3)


class Answers:
    """A cluster and a fetcher that say what a list says."""

    def __init__(self, answers: list[FetchedPartition], local_start: int = 0) -> None:
        self.shown, self.metrics = "fake", ClientMetrics()
        self.answers, self.local_start = answers, local_start
        self.positions: list[int] = []

    def fetcher(self, *_: Any, **__: Any) -> Answers:
        return self

    def poll(self) -> FetchedPartition:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def advance(self, next_offset: int, leader_epoch: int) -> None:
        self.positions.append(next_offset)

    def close(self) -> None:
        pass

    def list_offsets(self, wanted: Any, isolation_level: Any) -> Any:
        from segreader.broker.messages import ListedOffset

        return [ListedOffset("t", 0, 0, self.local_start)]


def answer(data: bytes = b"", end: int = 100) -> FetchedPartition:
    return FetchedPartition(
        "t", None, 0, high_watermark=end, last_stable_offset=end, records=memoryview(data), aborted=()
    )


PART = LivePart(TopicIdPartition("t", 0), OffsetRange(0, 10), ReadFrom.BROKER)


def clock(step: float = 1.0) -> Callable[[], float]:
    now = iter(range(1 << 30))
    return lambda: next(now) * step


def asked(cluster: Answers, **arguments: Any) -> BrokerRange:
    return BrokerRange(cluster, PART, clock=clock(), sleep=lambda seconds: None, **arguments)  # type: ignore[arg-type]


def test_a_range_is_over_when_its_last_offset_was_passed() -> None:
    cluster = Answers([answer(batch(0, 5)), answer(), answer(batch(5, 5)), answer(batch(10, 5))])

    assert [one.offset for one in iter_answers(asked(cluster))] == [0, 5]
    assert cluster.positions == [5, 10]


def test_empty_answers_end_a_range_only_where_records_are_local_and_the_end_is_reached() -> None:
    with asked(Answers([answer(end=10)])) as done:
        assert done.next() is None
        assert done.position == 10
    for local_start, end in ((5, 10), (0, 9)):
        with pytest.raises(ConnectionFailedError, match="no records came"):
            asked(Answers([answer(end=end)], local_start)).next()


def throttled(ms: int) -> FetchedPartition:
    return FetchedPartition("t", None, 0, throttle_ms=ms)


def test_throttle_time_does_not_count_as_time_without_records() -> None:
    cluster = Answers([*[throttled(30_000)] * 10, *[answer()] * 3, answer(batch(0, 10))])
    with asked(cluster) as asking:  # by this clock a look takes a second
        found = asking.next()

    assert found is not None
    assert found.next_offset == 10


def test_throttled_answers_are_not_taken_for_the_end_of_a_range() -> None:
    with asked(Answers([*[throttled(10)] * 9, *[answer(end=10)] * 3, answer(batch(0, 5), end=10)])) as asking:
        found = asking.next()

    assert found is not None
    assert found.next_offset == 5


def test_who_only_throttles_is_left_at_last() -> None:
    with pytest.raises(ConnectionFailedError, match=r"no records came.* 660000 ms of throttle time"):
        asked(Answers([throttled(60_000)])).next()


def test_the_next_answer_is_asked_for_before_the_one_before_is_worked_on() -> None:
    cluster = Answers([answer(batch(0, 5)), answer(batch(5, 5))])
    answers: Iterator[Any] = iter_answers(asked(cluster))
    next(answers)
    next(answers)

    assert cluster.positions == [5, 10]


def test_who_stops_early_leaves_no_thread() -> None:
    import threading

    before = set(threading.enumerate())
    answers: Any = iter_answers(asked(Answers([answer(batch(at)) for at in range(10)])))
    next(answers)
    answers.close()

    assert not set(threading.enumerate()) - before


def ends(lineage: list[tuple[int, int]], log_end: int) -> tuple[Callable[[int], EpochEnd], list[int]]:
    """What a leader with this lineage answers, and what it was asked."""
    asked_for: list[int] = []

    def ask(epoch: int) -> EpochEnd:
        asked_for.append(epoch)
        below = [one for one, _ in lineage if one <= epoch]
        above = [start for one, start in lineage if one > epoch]
        if epoch > lineage[-1][0]:
            return EpochEnd("t", 0, 0)
        return EpochEnd("t", 0, 0, below[-1] if below else epoch, above[0] if above else log_end)

    return ask, asked_for


@pytest.mark.parametrize(
    ("lineage", "start", "found", "requests"),
    [
        ([(0, 0)], 0, [(0, 0)], 1),
        ([(0, 0), (5, 10), (9, 20)], 0, [(0, 0), (5, 10), (9, 20)], 3),
        ([(0, 0), (5, 10), (9, 20)], 10, [(5, 10), (9, 20)], 3),
        ([(0, 0), (5, 10), (9, 20)], 25, [(9, 20)], 2),
        ([(500, 1000)], 1000, [(500, 1000)], 2),
        ([(500, 1000)], 0, [(500, 1000)], 3),
        ([(7, 30)], 30, [(7, 30)], 2),
    ],
)
def test_a_lineage_is_asked_for_epoch_by_epoch_down_to_the_first_offset(
    lineage: list[tuple[int, int]], start: int, found: list[tuple[int, int]], requests: int
) -> None:
    ask, asked_for = ends(lineage, 2000)

    assert list(walk_epochs(ask, lineage[-1][0], start)) == [LeaderEpoch(*one) for one in found]
    assert len(asked_for) <= requests + 1


def test_a_leader_that_contradicts_itself_is_refused_and_asks_for_no_endless_walk() -> None:
    for liar in (
        lambda epoch: EpochEnd("t", 0, 0, epoch + 1, 5),
        lambda epoch: EpochEnd("t", 0, 0, epoch, 1000 - epoch),
    ):
        with pytest.raises(ProtocolError):
            walk_epochs(liar, 100, 0)
    with pytest.raises(ProtocolError, match="too many epochs"):
        walk_epochs(lambda epoch: EpochEnd("t", 0, 0, epoch, epoch + 5), 1 << 30, 0)
    assert list(walk_epochs(lambda epoch: EpochEnd("t", 0, 0), 3, 0)) == []
    assert list(walk_epochs(lambda epoch: EpochEnd("t", 0, 0), -1, 0)) == []
