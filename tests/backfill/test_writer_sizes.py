from __future__ import annotations

import random
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from written_splits import TOKEN, rows

from segreader.backfill.output import OutputLayout, OutputOptions, parse_partition_by
from segreader.backfill.writer import SplitWriter, WrittenFile
from segreader.storage.target.store import open_target

AIM = 200_000
DAY_US = 86_400_000_000
RATIOS = (1.0, 1.17, 1.3, 1.45, 1.55, 1.8, 2.0, 2.4, 2.6, 3.4, 5.2)
"""Of what a split's output has to what a file aims at."""


def records(start: int, count: int, share: float, **columns: list[Any]) -> pa.RecordBatch:
    """Records of 1,000 bytes, of which this share is no more compressible."""
    noise = int(1000 * share)
    values = [random.randbytes(noise) + bytes(1000 - noise) for _ in range(count)]
    return rows(count, start=start, value=values, key=[b"%d" % at for at in range(start, start + count)], **columns)


def write(
    out: Path,
    output: OutputOptions,
    ratio: float,
    *,
    share: float = 0.5,
    batch_rows: int = 20,
    times: Callable[[int], int] = lambda at: at,
) -> list[WrittenFile]:
    """The files of a split of about this many times what a file aims at."""
    stop = int(ratio * output.file_bytes / (1000 * share + 15)) + 5
    writer = SplitWriter(open_target(out), output, partition=0, start=0, stop=stop, token=TOKEN)
    for start in range(0, stop, batch_rows):
        count = min(batch_rows, stop - start)
        writer.write(records(start, count, share, timestamp=[times(at) for at in range(start, start + count)]))
    files = sorted(writer.finish(), key=lambda one: one.first_offset)
    assert sum(one.rows for one in files) == stop
    return files


@pytest.mark.parametrize("share", [1.0, 0.5, 0.1])
@pytest.mark.parametrize("row_group_bytes", [AIM // 4, AIM, 3 * AIM])
@pytest.mark.parametrize("batch_rows", [7, 100])
def test_no_split_ends_in_a_crumb(tmp_path: Path, share: float, row_group_bytes: int, batch_rows: int) -> None:
    sizes = []
    for ratio in RATIOS:
        output = OutputOptions(file_bytes=AIM, row_group_bytes=row_group_bytes)
        files = write(tmp_path, output, ratio, share=share, batch_rows=batch_rows)
        found = [one.size / AIM for one in files]
        if sum(found) >= 1:
            assert min(found) >= 0.6, (ratio, found)
            assert max(found) <= 1.75, (ratio, found)
            sizes += found
    assert 0.9 <= statistics.median(sizes) <= 1.3


def test_a_small_split_is_one_file(tmp_path: Path) -> None:
    for ratio in (0.02, 0.3, 0.9):
        output = OutputOptions(file_bytes=AIM, row_group_bytes=AIM // 8)
        assert len(write(tmp_path, output, ratio)) == 1


@pytest.mark.parametrize("layout", ["day(timestamp)", "bucket(1, key)", "plain days"])
def test_a_split_within_one_day_has_even_files_too(tmp_path: Path, layout: str) -> None:
    if layout == "plain days":
        output = OutputOptions(layout=OutputLayout.DATE, file_bytes=AIM, row_group_bytes=AIM // 4)
    else:
        fields = parse_partition_by(layout)
        output = OutputOptions(table="iceberg", partition_by=fields, file_bytes=AIM, row_group_bytes=AIM // 4)
    for ratio in RATIOS:
        sizes = [one.size / AIM for one in write(tmp_path, output, ratio, times=lambda at: at * 1000)]
        assert min(sizes) >= 0.6, (ratio, sizes)


@pytest.mark.parametrize("ratio", [3.0, 4.3, 7.7])
def test_a_day_that_ends_within_a_split_ends_in_no_crumb_either(tmp_path: Path, ratio: float) -> None:
    output = OutputOptions(
        table="delta", partition_by=parse_partition_by("day(timestamp)"), file_bytes=AIM, row_group_bytes=AIM // 8
    )
    count = ratio * AIM / 515 + 10
    files = write(tmp_path, output, ratio, times=lambda at: int(at / count * 1.999 * DAY_US))
    days = {one.partition for one in files}

    assert days == {(0,), (1,)}
    assert min(one.size for one in files) >= 0.6 * AIM


def test_buckets_have_even_files_each(tmp_path: Path) -> None:
    output = OutputOptions(
        table="iceberg", partition_by=parse_partition_by("bucket(4, key)"), file_bytes=AIM, row_group_bytes=AIM
    )
    files = write(tmp_path, output, 4 * 1.5)
    sizes = [one.size / AIM for one in files]

    assert {one.partition for one in files} == {(0,), (1,), (2,), (3,)}
    assert min(sizes) >= 0.6
    assert max(sizes) <= 1.75


def test_row_groups_are_even_and_never_larger_than_asked_for(tmp_path: Path) -> None:
    output = OutputOptions(file_bytes=AIM, row_group_bytes=AIM // 2, codec="none")
    for file in write(tmp_path, output, 4.4, share=1.0):
        metadata = pq.ParquetFile(tmp_path / "_staging" / file.name).metadata
        groups = [metadata.row_group(at).total_byte_size for at in range(metadata.num_row_groups)]
        assert max(groups) <= 1.2 * AIM / 2
        assert min(groups[:-1], default=AIM) >= AIM / 5


def test_offsets_without_records_do_not_make_crumbs(tmp_path: Path) -> None:
    """The cleaner left one offset of ten, and the first half of the split is lost."""
    output = OutputOptions(file_bytes=AIM, row_group_bytes=AIM // 4)
    writer = SplitWriter(open_target(tmp_path), output, partition=0, start=0, stop=12_000, token=TOKEN)
    for start in range(6000, 12_000, 200):
        writer.write(records(0, 20, 0.5, offset=list(range(start, start + 200, 10))))
    sizes = [one.size / AIM for one in writer.finish()]

    assert min(sizes) >= 0.6


def test_files_that_aim_at_a_byte_are_still_of_many_records(tmp_path: Path) -> None:
    writer = SplitWriter(
        open_target(tmp_path),
        OutputOptions(file_bytes=1, row_group_bytes=AIM),
        partition=0,
        start=0,
        stop=1000,
        token=TOKEN,
    )
    for start in range(0, 1000, 20):
        writer.write(records(start, 20, 0.5))
    assert {one.rows for one in writer.finish()} >= {20}
