"""Offsets up to the largest that a batch can have are read like any others, by the library and by every command."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from loading import all_splits, load

import segreader
from segreader.cli.main import main
from segreader.format.batch import MAX_BASE_OFFSET
from segreader.loader import LoadQuery
from segreader.read.records import RECORD_COLUMNS
from segreader.tables.dataset import open_dataset
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import write_broker_log, write_files, write_local_tiered
from segreader.testing.records import ProducerRecord

T = 1_700_000_000_000
BASES = [(1 << 61) - 3, (1 << 62) - 3, 1 << 62, MAX_BASE_OFFSET - 1000]


def two_segments(base_offset: int) -> list[SegmentBuilder]:
    """Nine offsets: data, an aborted and a committed transaction; index entries for each batch."""
    first = SegmentBuilder(base_offset, index_interval_bytes=1)
    first.batch([at(0), at(1)]).batch([at(2)], producer_id=7, transactional=True).batch([at(3)])
    second = first.roll().marker(7, abort=True, timestamp_ms=T + 4).batch([at(5)], producer_id=8, transactional=True)
    return [first, second.marker(8, abort=False, timestamp_ms=T + 6).batch([at(7), at(8)])]


def at(number: int) -> ProducerRecord:
    return ProducerRecord(b"%d" % number, timestamp_ms=T + number)


def run(captured: pytest.CaptureFixture[str], *arguments: object) -> list[dict[str, Any]]:
    code = main([*map(str, arguments), "-o", "ndjson"])
    out, err = captured.readouterr()
    assert code == 0, err
    return [json.loads(line) for line in out.splitlines()]


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("write", [write_local_tiered, write_broker_log])
def test_large_offsets_are_read_whole_by_range_and_by_time(
    write: Callable[[Path, str, list[SegmentBuilder]], Path], base: int, tmp_path: Path
) -> None:
    write(tmp_path, "orders", two_segments(base))
    committed = [base + number for number in (0, 1, 3, 5, 7, 8)]

    for arguments, expected in (
        ({}, committed),
        ({"isolation_level": "read_uncommitted"}, sorted([*committed, base + 2])),
        ({"offsets": (base + 1, base + 6)}, committed[1:4]),
        ({"offsets": (base + 5, None)}, committed[3:]),
        ({"offsets": (0, 1 << 63)}, committed),
        ({"split_bytes": 1}, committed),
        ({"since": T + 3, "until": T + 8}, committed[2:5]),
    ):
        with segreader.scan(tmp_path, **arguments) as scan:
            assert [record.offset for record in scan.records()] == expected, arguments
    (end,) = segreader.scan(tmp_path).plan().ends
    assert end.offset in (base + 9, None)


def test_large_offsets_are_found_by_a_filter_and_loaded(tmp_path: Path) -> None:
    base = (1 << 62) + 5
    write_local_tiered(tmp_path, "orders", two_segments(base))

    table = open_dataset(tmp_path).scanner(filter=ds.field("offset") >= base + 5).to_table()
    assert table["offset"].to_pylist() == [base + 5, base + 7, base + 8]
    query = LoadQuery(location=str(tmp_path), topic="orders", columns=RECORD_COLUMNS)
    assert [record.offset for record in load(query, all_splits(query))] == [base + n for n in (0, 1, 3, 5, 7, 8)]


def test_commands_show_offsets_above_2_to_the_62(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = MAX_BASE_OFFSET - 1000
    write_local_tiered(tmp_path, "orders", two_segments(base))

    assert [row["offset"] for row in run(capsys, "cat", tmp_path, "--offsets", f"{base + 3}:{base + 8}")] == [
        base + 3,
        base + 5,
        base + 7,
    ]
    (row,) = run(capsys, "ls", tmp_path)
    assert row["partitions"] == 1
    segments = run(capsys, "ls", tmp_path, "orders/0")
    assert [(one["base_offset"], one["last_offset"]) for one in segments] == [(base, base + 3), (base + 4, base + 8)]
    (ends,) = run(capsys, "offsets", tmp_path)
    assert (ends["earliest"], ends["latest"]) == (base, base + 9)
    ((planned,),) = [row["partitions"] for row in run(capsys, "plan", tmp_path)]
    assert (planned["start_offset"], planned["stop_offset"]) == (base, base + 9)
    (checked,) = run(capsys, "verify", "--deep", tmp_path)
    assert checked["segments"] == 2


def test_a_batch_too_near_the_largest_offset_is_an_error(tmp_path: Path) -> None:
    log = SegmentBuilder((1 << 63) - 1000).batch([at(0)])
    write_local_tiered(tmp_path, "orders", [log])

    with pytest.raises(
        segreader.CorruptBatchError, match="found 9223372036854774808, expected 0 to 9223372034707292159"
    ):
        list(segreader.scan(tmp_path).records())


def test_an_end_farther_than_an_index_counts_is_not_believed(tmp_path: Path) -> None:
    first, second = two_segments(0)
    data = bytearray(second.to_bytes())
    data[second.batch_positions[-1] + 3] ^= 1  # the base offset of the last batch rises by 2^32
    folder = write_local_tiered(tmp_path, "orders", [first, second])
    (log,) = folder.glob("00000000000000000004-*.log")
    log.write_bytes(data)

    with segreader.scan(tmp_path) as scan:
        (end,) = scan.plan().ends
    assert end.offset is None


def test_a_name_with_more_than_63_bits_is_no_segment(tmp_path: Path) -> None:
    folder = write_local_tiered(tmp_path, "orders", two_segments(0))
    (log,) = folder.glob("00000000000000000000-*.log")
    write_files(folder, {f"{1 << 63:020d}{log.name[20:]}": log.read_bytes()})

    assert [record.offset for record in segreader.scan(tmp_path).records()] == [0, 1, 3, 5, 7, 8]
