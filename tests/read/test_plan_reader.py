"""A plan gives the same records, errors, notes and counts for any number of threads, in the same order."""

from __future__ import annotations

import gc
import random
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from planted import Planted, sound_log

import segreader
from segreader.errors import OptionError, SegreaderError
from segreader.plan.request import ReadOptions
from segreader.read.metrics import COST
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import write_files, write_local_tiered

SPENT = ("requests", "bytes_read", *COST)
"""Where a split is read once more, more is spent; everything else is the same."""

WAYS = [(2, 1 << 28), (8, 1 << 28), (2, 1), (8, 20_000)]
"""Threads and bytes ahead: of many splits, and of one."""


def threads_left() -> list[str]:
    return [one.name for one in threading.enumerate() if one.name.startswith("segreader-read")]


def read(location: Path, **arguments: Any) -> tuple[list[tuple[Any, ...]], str | None, dict[str, Any]]:
    """The rows that come before the end or an error, the error, and what was counted."""
    rows: list[tuple[Any, ...]] = []
    error = None
    with segreader.scan(location, columns=("partition", "offset", "value"), **arguments) as scan:
        try:
            for batch in scan.to_batches():
                rows += zip(*(batch.column(at).to_pylist() for at in range(3)), strict=True)
        except SegreaderError as raised:
            error = f"{type(raised).__name__}: {raised}"
        counted = {name: value for name, value in asdict(scan.metrics).items() if name not in SPENT}
    assert threads_left() == []
    return rows, error, counted


def read_alike(location: Path, **arguments: Any) -> tuple[list[tuple[Any, ...]], str | None, dict[str, Any]]:
    """What one thread reads; several give the same."""
    alone = read(location, threads=1, **arguments)
    for threads, most in WAYS:
        assert read(location, threads=threads, read_ahead_bytes=most, **arguments) == alone, (threads, most)
    return alone


@pytest.mark.parametrize("on_corrupt", ["fail", "skip"])
@pytest.mark.parametrize("seed", range(30))
def test_damage_anywhere_is_the_same_for_any_number_of_threads(tmp_path: Path, seed: int, on_corrupt: str) -> None:
    chance = random.Random(seed)
    one = Planted(tmp_path, sound_log(4))
    number, kind = chance.randrange(4), chance.choice(["log", "log", "log", "txnindex", "index", "timeindex"])
    data = one.data(number, kind)
    if data:
        at = chance.randrange(len(data))
        data[at] ^= 1 << chance.randrange(8)
    one.put(number, kind, data)
    write_files(one.root, one.files)
    for split_bytes, level in ((1, "read_committed"), (1 << 20, "read_committed"), (1, "read_uncommitted")):
        read_alike(
            one.root, split_bytes=split_bytes, batch_rows=2, isolation_level=level, on_corrupt=on_corrupt, on_gap="skip"
        )


@pytest.mark.parametrize("shift", [-4, -1, 1, 4])
@pytest.mark.parametrize("batch", [1, 4, 7])
def test_a_shifted_batch_at_a_border_is_the_same_error_for_any_number_of_threads(
    tmp_path: Path, batch: int, shift: int
) -> None:
    segment = SegmentBuilder(0, index_interval_bytes=1)
    for _ in range(8):
        segment.batch([b"x" * 20] * 5)
    one = Planted(tmp_path, [segment])
    data = one.data(0, "log")
    at = segment.batch_positions[batch]
    data[at : at + 8] = (int.from_bytes(data[at : at + 8], "big") + shift).to_bytes(8, "big")
    one.put(0, "log", data)
    write_files(one.root, one.files)
    _, error, _ = read_alike(one.root, split_bytes=1, batch_rows=2)
    assert error is not None
    read_alike(one.root, split_bytes=1, batch_rows=2, on_corrupt="skip")


@pytest.mark.parametrize("on_corrupt", ["fail", "skip"])
@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_transaction_that_an_index_hides_across_splits_is_the_same_error(
    tmp_path: Path, number: int, on_corrupt: str
) -> None:
    one = Planted(tmp_path, sound_log(4))
    one.put(number, "txnindex", b"")
    write_files(one.root, one.files)
    for split_bytes in (1, 600, 1 << 20):
        for batch_rows in (1, 3, 100):
            rows, error, counted = read_alike(
                one.root, split_bytes=split_bytes, batch_rows=batch_rows, on_corrupt=on_corrupt
            )
            assert rows
            assert counted["records"] == len(rows)
            assert (error is not None) == (on_corrupt == "fail")


def test_jumps_are_noted_once_for_any_number_of_threads(tmp_path: Path) -> None:
    segment = SegmentBuilder(0, index_interval_bytes=1)
    for number in range(12):
        segment.batch([b"x" * 20] * 5)
        if number in (2, 5, 6):
            segment.skip(10)
    write_local_tiered(tmp_path, "orders", [segment])
    rows, error, counted = read_alike(tmp_path, split_bytes=1, batch_rows=2)
    assert (len(rows), error, len(counted["notes"])) == (60, None, 1)
    assert "offsets 15 to 24 and 2 more ranges" in counted["notes"][0]


def partitions(root: Path, count: int, segments: int = 3, value: bytes = b"x" * 100) -> None:
    for partition in range(count):
        segment, some = SegmentBuilder(0, index_interval_bytes=1000), []
        for _ in range(segments):
            for _ in range(20):
                segment.batch([value] * 10)
            some.append(segment)
            segment = segment.roll()
        write_local_tiered(root, "orders", some, partition=partition)


def test_records_are_ordered_by_partition_and_offset(tmp_path: Path) -> None:
    partitions(tmp_path, 5)
    rows, error, counted = read_alike(tmp_path, batch_rows=30)
    assert error is None
    assert [row[:2] for row in rows] == [(partition, offset) for partition in range(5) for offset in range(600)]
    assert (counted["records"], counted["splits"]) == (3000, 15)


class Opened:
    """Notes which logs a store is asked for."""

    def __init__(self, scan: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.logs: list[str] = []
        inner = scan.store.read_pieces

        def read_pieces(name: str, *arguments: Any, **given: Any) -> Any:
            self.logs.append(name)
            return inner(name, *arguments, **given)

        monkeypatch.setattr(scan.store, "read_pieces", read_pieces)


def test_the_first_batches_open_no_other_split_and_start_no_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partitions(tmp_path, 2)
    with segreader.scan(tmp_path, batch_rows=30, threads=8) as scan:
        scan.plan()
        opened = Opened(scan, monkeypatch)
        batches = scan.to_batches()
        next(batches)
        next(batches)
        assert (len(opened.logs), threads_left()) == (1, [])
        next(batches)
        deadline = time.monotonic() + 10
        while len(opened.logs) < 6 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert len(set(opened.logs)) == 6  # and now it hurries
        batches.close()  # type: ignore[attr-defined]
        assert threads_left() == []


def test_a_scan_that_is_dropped_leaves_no_thread(tmp_path: Path) -> None:
    partitions(tmp_path, 3)
    scan = segreader.scan(tmp_path, batch_rows=30, threads=3)
    batches = scan.to_batches()
    for _ in range(5):
        next(batches)
    assert threads_left()
    del batches
    gc.collect()
    assert threads_left() == []


def test_metrics_are_of_what_was_taken_while_reading(tmp_path: Path) -> None:
    partitions(tmp_path, 3)
    with segreader.scan(tmp_path, batch_rows=30, threads=3) as scan:
        taken = 0
        for batch in scan.to_batches():
            taken += batch.num_rows
            assert taken <= scan.metrics.records <= taken + 600
        assert scan.metrics.records == taken == 1800


def test_what_waits_is_bounded(tmp_path: Path) -> None:
    partitions(tmp_path, 6, value=b"x" * 2000)
    most = 1 << 20
    with segreader.scan(tmp_path, batch_rows=20, threads=4, read_ahead_bytes=most) as scan:
        scan.plan()
        batches = scan.to_batches()
        before = pa.total_allocated_bytes()
        size = 0
        for _ in range(3):
            size = next(batches).nbytes
        time.sleep(0.5)
        read_now = scan.metrics.bytes_read
        assert size
        assert sum(batch.num_rows for batch in batches) > 0
        assert read_now <= scan.metrics.bytes_read
        assert pa.total_allocated_bytes() - before < 4 * most


@pytest.mark.parametrize("name", ["threads", "read_ahead_bytes"])
def test_options_of_reading_ahead_must_be_positive(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OptionError, match=f"{name} must be positive"):
        ReadOptions(**{name: 0})  # type: ignore[arg-type]
    variable = f"SEGREADER_{name.upper()}"
    for text in ("0", "-1", "many"):
        monkeypatch.setenv(variable, text)
        with pytest.raises(OptionError, match=f"{variable} must be a positive number"):
            (ReadOptions().threads_for(is_remote=True), ReadOptions().most_bytes_ahead(is_remote=True))
    monkeypatch.setenv(variable, "5")
    options = ReadOptions()
    assert (options.threads_for(is_remote=True) if name == "threads" else options.most_bytes_ahead(is_remote=True)) == 5
    given = ReadOptions(**{name: 7})  # type: ignore[arg-type]
    assert (given.threads_for(is_remote=True) if name == "threads" else given.most_bytes_ahead(is_remote=True)) == 7


def test_a_store_on_the_network_is_read_by_eight_threads_at_least(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SEGREADER_THREADS", raising=False)
    options = ReadOptions()
    assert options.threads_for(is_remote=True) == max(8, options.threads_for(is_remote=False))
