"""A reader's positions: of any record, where the batch begins that has the next one, whatever lies between."""

from __future__ import annotations

from pathlib import Path

import pytest

from segreader.format.batch import RecordBatchHeader
from segreader.format.scanner import BatchReady, NeedData, SegmentScanner
from segreader.isolation import AbortedTransactions, IsolationLevel
from segreader.plan.request import ReadOptions
from segreader.plan.split import Split
from segreader.ranges import ByteRange, OffsetRange
from segreader.read.batch_positions import BatchPlace, BatchPositions
from segreader.read.split_reader import SplitReader
from segreader.segment import TopicIdPartition
from segreader.testing.builder import SegmentBuilder
from segreader.testing.stores import MemoryStore


def batches_of(data: bytes) -> list[tuple[int, int, int, bool]]:
    """Position, base offset and last offset of each batch, and whether it has records for readers."""
    scanner, found = SegmentScanner(stop=len(data)), []
    while True:
        answer = scanner.next()
        if isinstance(answer, NeedData):
            scanner.feed(data[answer.range.start : answer.range.stop])
        elif isinstance(answer, BatchReady):
            header = answer.header
            assert isinstance(header, RecordBatchHeader)
            found.append((answer.position, header.base_offset, header.last_offset, not header.is_control))
        else:
            return found


@pytest.mark.parametrize("batch_rows", [1, 4, 1000])
@pytest.mark.parametrize("kernel", ["native", "reference"])
def test_from_the_place_of_a_record_on_nothing_behind_it_is_passed_over(
    batch_rows: int, kernel: str, tmp_path: Path
) -> None:
    segment = SegmentBuilder()
    for number in range(30):
        if number % 5 == 2:
            segment.batch([b"t"] * 2, producer_id=7, producer_epoch=0, transactional=True).marker(7)
        else:
            segment.batch([b"v"] * (1 + number % 4))
    data = segment.to_bytes()
    batches = batches_of(data)
    split = Split(
        partition=TopicIdPartition("t", 0), log="a.log", log_size=len(data), positions=ByteRange(0, len(data)),
        offsets=OffsetRange(0), isolation_level=IsolationLevel.READ_COMMITTED, aborted=AbortedTransactions(),
    )  # fmt: skip
    reader = SplitReader(MemoryStore({"a.log": data}), ReadOptions(batch_rows=batch_rows, kernel=kernel))
    reader.batch_positions = positions = BatchPositions()
    count = 0
    for batch in reader.read(split):
        offsets = batch["offset"].to_pylist()
        skipped = range(offsets[-1] + 1, reader.next_offset)
        assert not any(base in skipped and has_records for _, base, _, has_records in batches)
        known = positions.cut(offsets[-1] + 1)
        for offset in offsets:
            count += 1
            behind = [one for one in batches if one[2] >= offset + 1 and one[3]]
            place = known.place_of(offset + 1)
            if behind and behind[0][1] <= offset + 1:
                assert place == BatchPlace(behind[0][0], behind[0][1], 0)
            elif behind:  # a marker lies between, which nobody sees who begins behind it
                (own,) = (one for one in batches if one[1] <= offset <= one[2])
                assert place == BatchPlace(own[0], own[1], 0)
            else:
                assert place == BatchPlace(len(data), None, 0)
    assert count == sum(1 + last - base for _, base, last, has_records in batches if has_records)
    assert positions.first == (0, 0)
