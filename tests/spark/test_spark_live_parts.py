"""Parts of a live log as values: packed, cut, joined, and written as JSON."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace

import pytest

from segreader.backfill.job_splits import JobSplit, split_from_json, split_to_json
from segreader.format.index_files import AbortedTransaction
from segreader.isolation import AbortedTransactions
from segreader.plan.cut import Cutting
from segreader.plan.live import BEYOND, LivePart, ReadFrom
from segreader.plan.split import Split
from segreader.ranges import ByteRange, OffsetRange
from segreader.segment import TopicIdPartition
from segreader.spark.live_cutting import cut_by_offsets, cut_parts, joined, narrowed

PLACE = TopicIdPartition("orders", 3, "AAAAAAAAAAAAAAAAAAAAAQ")
EPOCHS = ((0, 0), (4, 50), (5, 80))


def rows(count: int) -> AbortedTransactions:
    """Aborted transactions; the last one has an end that nobody told."""
    found = [AbortedTransaction(7, 10 * at, 10 * at + 5, 10 * at + 6) for at in range(count - 1)]
    return AbortedTransactions([*found, AbortedTransaction(8, 90, BEYOND, BEYOND)])


BROKER = LivePart(PLACE, OffsetRange(10, 100), ReadFrom.BROKER, epochs=EPOCHS, position_epoch=0)
LOCATED = replace(BROKER, read_from=ReadFrom.LOCATION, aborted=rows(9), segment_id="s", size=900)
STORED = replace(
    BROKER,
    read_from=ReadFrom.STORE,
    splits=(
        Split(
            partition=PLACE,
            log="a.log",
            log_size=900,
            positions=ByteRange(0, 900),
            offsets=OffsetRange(10, 100),
            aborted=rows(9),
            epochs=EPOCHS,
        ),
    ),
    size=900,
)
PARTS = [BROKER, LOCATED, replace(LOCATED, aborted=None), replace(LOCATED, aborted=AbortedTransactions()), STORED]


@pytest.mark.parametrize("part", PARTS)
def test_a_part_is_the_same_after_its_travel(part: LivePart) -> None:
    travelled = pickle.loads(pickle.dumps(part))
    assert travelled == part


@pytest.mark.parametrize("part", [replace(LOCATED, aborted=rows(400)), STORED])
def test_aborted_transactions_take_few_bytes(part: LivePart) -> None:
    assert len(pickle.dumps(part)) < 2048


@pytest.mark.parametrize("part", PARTS)
def test_a_split_of_a_job_is_the_same_after_its_json(part: LivePart) -> None:
    split = JobSplit(part.offsets.start, part.stop, part)
    document = json.loads(json.dumps(split_to_json(split)))

    assert split_from_json(document) == split
    assert split_from_json(document).size == (part.size or 0)


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
    pieces = list(cut_by_offsets(LOCATED, most))

    assert [piece.offsets.start for piece in pieces] == [10, *(piece.stop for piece in pieces[:-1])]
    assert pieces[-1].stop == 100
    assert max(piece.stop - piece.offsets.start for piece in pieces) <= (most or 90)


def test_a_located_segment_is_cut_by_its_size_and_what_a_broker_has_is_not() -> None:
    pieces = cut_parts(None, [LOCATED, BROKER], Cutting(split_bytes=300))

    assert [(one.read_from, one.stop - one.offsets.start) for one in pieces] == [
        *[(ReadFrom.LOCATION, 30)] * 3,
        (ReadFrom.BROKER, 90),
    ]
    assert sum(one.size or 0 for one in pieces) == 900


def test_parts_of_a_broker_that_follow_each_other_are_one() -> None:
    other = replace(BROKER, partition=replace(PLACE, partition=4))
    pieces = [*cut_by_offsets(BROKER, 20), *cut_by_offsets(other, 50)]
    assert joined(reversed(pieces)) == [BROKER, other]

    gap = [narrowed(BROKER, OffsetRange(10, 20)), narrowed(BROKER, OffsetRange(30, 40))]
    located = [narrowed(LOCATED, OffsetRange(10, 20)), narrowed(BROKER, OffsetRange(20, 40))]
    assert (joined(gap), joined(located)) == (gap, located)
