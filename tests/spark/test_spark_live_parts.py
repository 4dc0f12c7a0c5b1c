"""Parts of a live log as values: packed, and written as JSON."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace

import pytest

from segreader.backfill.job_splits import JobSplit, split_from_json, split_to_json
from segreader.format.index_files import AbortedTransaction
from segreader.isolation import AbortedTransactions
from segreader.plan.live import BEYOND, LivePart, ReadFrom
from segreader.plan.split import Split
from segreader.ranges import ByteRange, OffsetRange
from segreader.segment import TopicIdPartition

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
