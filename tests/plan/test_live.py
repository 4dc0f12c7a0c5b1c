"""Where the seam between the tiers lies, whatever the marks of a leader say together."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segreader.errors import OffsetOutOfRangeError
from segreader.format.checkpoints import LeaderEpoch, LeaderEpochs
from segreader.format.index_files import AbortedTransaction
from segreader.isolation import AbortedTransactions
from segreader.plan.cut import Cutting, SplitOffsets
from segreader.plan.live import (
    BEYOND,
    LivePart,
    LogMarks,
    ReadFrom,
    Seam,
    cut_by_offsets,
    epoch_before,
    epochs_from,
    joined,
    narrowed,
    place_seam,
)
from segreader.plan.live import uncovered as rest_of
from segreader.ranges import OffsetRange
from segreader.segment import TopicIdPartition

ONE = TopicIdPartition("t", 0)
MARKS = LogMarks(log_start=10, end=100, local_start=60, last_tiered=79)


@pytest.mark.parametrize(
    ("start", "stop", "prefers_store", "seam"),
    [
        (None, None, False, Seam(10, 60, 100)),
        (None, None, True, Seam(10, 80, 100)),
        (20, 50, False, Seam(20, 50, 50)),
        (20, 50, True, Seam(20, 50, 50)),
        (70, 75, False, Seam(70, 70, 75)),
        (70, 75, True, Seam(70, 75, 75)),
        (90, 200, True, Seam(90, 90, 100)),
        (100, None, False, Seam(100, 100, 100)),
    ],
)
def test_the_seam_lies_at_the_local_start_or_behind_what_is_tiered(
    start: int | None, stop: int | None, prefers_store: bool, seam: Seam
) -> None:
    assert place_seam(MARKS, ONE, start=start, stop=stop, prefers_store=prefers_store) == seam


@pytest.mark.parametrize(
    ("marks", "seam"),
    [
        (LogMarks(0, 100, 0, -1), Seam(0, 0, 100)),  # not tiered
        (LogMarks(0, 100, 60, -1), Seam(0, 60, 100)),  # a new leader does not know what is uploaded
        (LogMarks(50, 100, 50, 20), Seam(50, 50, 100)),  # all remote segments have expired
        (LogMarks(50, 100, 40, 79), Seam(50, 80, 100)),  # the log start was moved meanwhile
        (LogMarks(0, 100, 120, 119), Seam(0, 100, 100)),  # all of it is remote, and more came meanwhile
        (LogMarks(0, 100, None, None), Seam(0, 100, 100)),  # an old broker: every offset may be remote
        (LogMarks(50, 40, 50, -1), Seam(50, 50, 50)),  # records were deleted meanwhile
    ],
)
def test_marks_that_do_not_fit_together_are_clamped(marks: LogMarks, seam: Seam) -> None:
    assert place_seam(marks, ONE, prefers_store=True) == seam


def test_offsets_that_are_deleted_are_refused_or_told() -> None:
    with pytest.raises(OffsetOutOfRangeError, match="are deleted"):
        place_seam(MARKS, ONE, start=5)
    assert place_seam(MARKS, ONE, start=5, may_have_lost=True) == Seam(10, 60, 100, OffsetRange(5, 10))
    assert place_seam(MARKS, ONE, start=5, stop=8, may_have_lost=True).lost == OffsetRange(5, 8)
    with pytest.raises(OffsetOutOfRangeError, match="beyond the end"):
        place_seam(MARKS, ONE, start=101)


@given(
    *(st.integers(0, 50) for _ in range(3)),
    st.none() | st.integers(0, 60),
    st.none() | st.integers(-1, 60),
    st.none() | st.integers(0, 60),
    st.booleans(),
)
def test_every_offset_is_on_one_side_of_the_seam(
    log_start: int,
    end: int,
    start: int,
    local_start: int | None,
    last_tiered: int | None,
    stop: int | None,
    prefers_store: bool,
) -> None:
    marks = LogMarks(log_start, end, local_start, last_tiered)
    if start > max(end, log_start):
        return
    seam = place_seam(marks, ONE, start=start, stop=stop, prefers_store=prefers_store, may_have_lost=True)

    assert seam.start <= seam.seam <= seam.stop <= max(end, log_start)
    assert seam.start >= min(log_start, seam.start if stop is None else stop)
    if local_start is not None and seam.start < seam.seam and not prefers_store:
        assert seam.seam <= max(local_start, log_start)


def test_epochs_of_a_part_begin_with_the_one_that_holds_its_first_offset() -> None:
    lineage = LeaderEpochs((LeaderEpoch(0, 0), LeaderEpoch(3, 10), LeaderEpoch(4, 20)))

    assert epochs_from(lineage, 10) == ((3, 10), (4, 20))
    assert epochs_from(lineage, 15) == ((3, 10), (4, 20))
    part = LivePart(ONE, OffsetRange(5, 99), ReadFrom.BROKER, epochs=epochs_from(lineage, 5))
    assert narrowed(part, OffsetRange(25, 99)).epochs == ((4, 20),)
    assert [epoch_before(lineage, offset) for offset in (0, 1, 10, 11, 20, 99)] == [-1, 0, 0, 3, 3, 4]


def test_what_runs_leave_over() -> None:
    runs = [OffsetRange(2, 5), OffsetRange(5, 7), OffsetRange(9, 10)]

    assert rest_of(OffsetRange(0, 12), runs) == [OffsetRange(0, 2), OffsetRange(7, 9), OffsetRange(10, 12)]
    assert rest_of(OffsetRange(2, 7), runs[:2]) == []


def test_a_part_has_an_end_and_pickles() -> None:
    part = LivePart(ONE, OffsetRange(3, 9), ReadFrom.BROKER, epochs=((1, 0),))

    assert pickle.loads(pickle.dumps(part)) == part
    assert part.stop == 9
    with pytest.raises(ValueError, match="has an end"):
        _ = LivePart(ONE, OffsetRange(3), ReadFrom.BROKER).stop


EPOCHS = ((0, 0), (4, 50), (5, 80))
BROKER = LivePart(ONE, OffsetRange(10, 100), ReadFrom.BROKER, epochs=EPOCHS, position_epoch=0)
ABORTED = AbortedTransactions(
    [
        *(AbortedTransaction(7, 10 * at, 10 * at + 5, 10 * at + 6) for at in range(8)),
        AbortedTransaction(8, 90, BEYOND, BEYOND),
    ]
)
LOCATED = replace(BROKER, read_from=ReadFrom.LOCATION, aborted=ABORTED, segment_id="s", size=900)


def test_a_part_with_fewer_offsets_knows_the_epoch_before_them() -> None:
    some = narrowed(LOCATED, OffsetRange(60, 90))
    assert (some.position_epoch, some.epochs) == (4, ((4, 50), (5, 80)))
    assert some.aborted is not None
    assert all(one.last_offset >= 60 and one.first_offset < 90 for one in some.aborted)
    assert narrowed(LOCATED, LOCATED.offsets) is LOCATED
    assert narrowed(BROKER, OffsetRange(10, 20)).position_epoch == 0
    assert narrowed(BROKER, OffsetRange(50, 60)).position_epoch == 0


@pytest.mark.parametrize("most", [1, 7, 90, 91, None])
def test_pieces_by_offsets_follow_each_other(most: int | None) -> None:
    pieces = list(cut_by_offsets(LOCATED, Cutting(most_offsets=most)))

    assert [piece.offsets.start for piece in pieces] == [10, *(piece.stop for piece in pieces[:-1])]
    assert pieces[-1].stop == 100
    assert max(piece.stop - piece.offsets.start for piece in pieces) <= (most or 90)


def test_a_located_segment_is_cut_by_its_size_and_what_a_broker_has_is_not() -> None:
    cutting = Cutting(split_bytes=300, offsets=SplitOffsets.INDEXED)
    pieces = [piece for part in (LOCATED, BROKER) for piece in cut_by_offsets(part, cutting)]

    assert [(one.read_from, one.stop - one.offsets.start) for one in pieces] == [
        *[(ReadFrom.LOCATION, 30)] * 3,
        (ReadFrom.BROKER, 90),
    ]
    assert sum(one.size or 0 for one in pieces) == 900


def test_parts_of_a_broker_that_follow_each_other_are_one() -> None:
    assert joined(cut_by_offsets(BROKER, Cutting(most_offsets=20))) == [BROKER]

    gap = [narrowed(BROKER, OffsetRange(10, 20)), narrowed(BROKER, OffsetRange(30, 40))]
    located = [narrowed(LOCATED, OffsetRange(10, 20)), narrowed(BROKER, OffsetRange(20, 40))]
    assert (joined(gap), joined(located)) == (gap, located)


def test_a_located_segment_is_whole_where_splits_share_its_offsets() -> None:
    assert list(cut_by_offsets(LOCATED, Cutting(split_bytes=300))) == [LOCATED]


def test_what_a_broker_has_is_cut_by_offsets_where_its_bytes_are_not_known() -> None:
    cutting = Cutting(split_bytes=900, offsets=SplitOffsets.INDEXED, most_unsized=40)

    assert [one.offsets.start for one in cut_by_offsets(BROKER, cutting)] == [10, 50, 90]
    assert list(cut_by_offsets(LOCATED, cutting)) == [LOCATED]
