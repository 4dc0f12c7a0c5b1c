"""Partitions that alternate: each in order, none held back by another, errors and notes as of one thread."""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from planted import Planted, sound_log

import segreader
from segreader.errors import OptionError, SegreaderError, StorageError
from segreader.read.metrics import COST
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import write_files, write_local_tiered

SPENT = ("requests", "bytes_read", *COST)
WAYS = [(1, 1 << 28), (2, 1 << 28), (8, 1 << 28), (2, 1), (8, 20_000)]
"""Threads and bytes ahead."""

Rows = dict[int, list[tuple[Any, ...]]]


def threads_left() -> list[str]:
    return [one.name for one in threading.enumerate() if one.name.startswith("segreader-read")]


def read(location: Path, **arguments: Any) -> tuple[Rows, str | None, dict[str, Any]]:
    """The rows of each partition, the error behind them, and what was counted."""
    rows: Rows = defaultdict(list)
    error = None
    with segreader.scan(location, columns=("partition", "offset", "value"), **arguments) as scan:
        try:
            for batch in scan.to_batches():
                (partition,) = set(batch.column(0).to_pylist())
                rows[partition] += zip(*(batch.column(at).to_pylist() for at in (1, 2)), strict=True)
        except SegreaderError as raised:
            error = f"{type(raised).__name__}: {raised}"
        counted = {name: value for name, value in asdict(scan.metrics).items() if name not in SPENT}
        for name, value in counted.items():
            if isinstance(value, list):
                counted[name] = sorted(value, key=str)
    assert threads_left() == []
    return rows, error, counted


def partitions(root: Path, count: int, segments: int = 2, batches: int = 20) -> None:
    for partition in range(count):
        segment, some = SegmentBuilder(0, index_interval_bytes=1000), []
        for _ in range(segments):
            for _ in range(batches):
                segment.batch([b"x" * 100] * 10)
            some.append(segment)
            segment = segment.roll()
        write_local_tiered(root, "orders", some, partition=partition)


def damaged(root: Path, seed: int) -> None:
    """Four partitions, of which some are damaged."""
    chance = random.Random(seed)
    for partition in range(4):
        one = Planted(root, sound_log(3), partition=partition)
        if chance.random() < 0.6:
            number, kind = chance.randrange(3), chance.choice(["log", "log", "log", "txnindex", "index"])
            if data := one.data(number, kind):
                data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
                one.put(number, kind, data)
        write_files(one.root, one.files)


@pytest.mark.parametrize("seed", range(12))
def test_damage_that_is_skipped_is_counted_and_noted_as_by_one_thread(tmp_path: Path, seed: int) -> None:
    damaged(tmp_path, seed)
    given: dict[str, Any] = {"batch_rows": 2, "on_corrupt": "skip", "on_gap": "skip"}
    for split_bytes in (1, 1 << 20):
        alone = read(tmp_path, threads=1, split_bytes=split_bytes, **given)
        for threads, most in WAYS:
            found = read(
                tmp_path, threads=threads, read_ahead_bytes=most, order="partition", split_bytes=split_bytes, **given
            )
            assert found == alone, (threads, most, split_bytes)


@pytest.mark.parametrize("seed", range(12))
def test_the_error_is_that_of_one_thread_after_all_records_before_it(tmp_path: Path, seed: int) -> None:
    damaged(tmp_path, seed)
    for split_bytes in (1, 1 << 20):
        given: dict[str, Any] = {"batch_rows": 2, "on_gap": "skip", "split_bytes": split_bytes}
        alone, expected, _ = read(tmp_path, threads=1, **given)
        whole, _, _ = read(tmp_path, threads=1, on_corrupt="skip", **given)
        failed = max(alone, default=0)
        for threads, most in WAYS:
            rows, error, _ = read(tmp_path, threads=threads, read_ahead_bytes=most, order="partition", **given)
            assert error == expected, (threads, most)
            for partition, some in rows.items():
                if expected is None or partition <= failed:
                    assert some == alone[partition], (threads, most, partition)
                else:  # perhaps some of the partitions behind, from their beginnings on
                    assert some == whole[partition][: len(some)], (threads, most, partition)


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_each_partition_is_in_order_of_its_offsets(tmp_path: Path, threads: int) -> None:
    partitions(tmp_path, 5)
    rows, error, counted = read(tmp_path, threads=threads, batch_rows=30, order="partition")
    assert error is None
    assert {one: [row[0] for row in some] for one, some in rows.items()} == {one: list(range(400)) for one in range(5)}
    assert (counted["records"], counted["splits"]) == (2000, 10)


class Held:
    """Holds back reads of some logs until they are let go."""

    def __init__(self, scan: Any, monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
        self.is_let_go = threading.Event()
        inner = scan.store.read_pieces

        def read_pieces(name: str, *arguments: Any, **given: Any) -> Any:
            def pieces() -> Iterator[Any]:
                if any(one in name for one in names):
                    assert self.is_let_go.wait(60)
                yield from inner(name, *arguments, **given)

            return pieces()

        monkeypatch.setattr(scan.store, "read_pieces", read_pieces)


def taken_from(batches: Iterator[pa.RecordBatch], rows: int) -> dict[int, int]:
    """The rows of each partition among the next ones."""
    found: dict[int, int] = defaultdict(int)
    while rows > 0:
        batch = next(batches)
        found[batch["partition"][0].as_py()] += batch.num_rows
        rows -= batch.num_rows
    return found


@pytest.mark.parametrize("most_bytes", [1, (8 << 20) + 300_000, 1 << 28])
@pytest.mark.parametrize("slow", [0, 2, 3])
@pytest.mark.parametrize("threads", [3, 8])
def test_a_slow_partition_does_not_hold_back_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: int, slow: int, most_bytes: int
) -> None:
    partitions(tmp_path, 4, segments=3)
    with segreader.scan(
        tmp_path, batch_rows=30, threads=threads, read_ahead_bytes=most_bytes, order="partition"
    ) as scan:
        scan.plan()
        held = Held(scan, monkeypatch, f"-{slow}-")
        batches = scan.to_batches()
        deadline = threading.Timer(30, held.is_let_go.set)
        deadline.start()
        found = taken_from(batches, 3 * 600)
        assert not held.is_let_go.is_set()  # else they waited for the slow one
        deadline.cancel()
        assert found == {one: 600 for one in range(4) if one != slow}
        held.is_let_go.set()
        assert taken_from(batches, 600) == {slow: 600}
        assert next(batches, None) is None


def test_in_total_order_nothing_comes_before_the_first_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partitions(tmp_path, 3)
    with segreader.scan(tmp_path, batch_rows=30, threads=4) as scan:
        scan.plan()
        held = Held(scan, monkeypatch, "-0-")
        threading.Timer(0.3, held.is_let_go.set).start()
        found = taken_from(scan.to_batches(), 30)
        assert (found, held.is_let_go.is_set()) == ({0: 30}, True)


def test_partitions_alternate(tmp_path: Path) -> None:
    partitions(tmp_path, 3, batches=100)
    with segreader.scan(tmp_path, batch_rows=30, threads=3, order="partition") as scan:
        seen = [batch["partition"][0].as_py() for batch in scan.to_batches()]
    assert sum(one != two for one, two in pairwise(seen)) > 10


def test_a_store_that_fails_ends_the_read_after_the_partitions_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partitions(tmp_path, 4)
    with segreader.scan(tmp_path, batch_rows=30, threads=4, order="partition") as scan:
        scan.plan()
        store: Any = scan.store
        inner = store.read_pieces

        def read_pieces(name: str, *arguments: Any, **given: Any) -> Any:
            if "-1-" in name or "-2-" in name:
                raise StorageError("refused", source=name)
            if "-0-" in name:
                time.sleep(0.1)
            return inner(name, *arguments, **given)

        monkeypatch.setattr(store, "read_pieces", read_pieces)
        rows: dict[int, int] = defaultdict(int)
        with pytest.raises(StorageError, match="refused") as caught:
            for batch in scan.to_batches():
                rows[batch["partition"][0].as_py()] += batch.num_rows
        assert "-1-" in str(caught.value.source)
        assert rows[0] == 400
        assert not {1, 2} & set(rows)
    assert threads_left() == []


def test_a_read_of_alternating_partitions_that_is_closed_leaves_no_thread(tmp_path: Path) -> None:
    partitions(tmp_path, 4)
    with segreader.scan(tmp_path, batch_rows=30, threads=3, order="partition") as scan:
        batches = scan.to_batches()
        for _ in range(5):
            next(batches)
        assert threads_left()
        batches.close()  # type: ignore[attr-defined]
        assert threads_left() == []


def test_an_unknown_order_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="unknown order"):
        segreader.scan(tmp_path, order="offset")
