"""More readers than may be open, asked in every way at once; programs that end or fork while some are read."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from growing_log import GrowingLog
from loading import all_splits

from segreader.errors import ClosedError
from segreader.loader import LoaderSplit, LoadQuery, ReaderPool, ResumableReader

RECORDS = 400


@pytest.fixture
def log(tmp_path: Path) -> GrowingLog:
    made = GrowingLog(tmp_path / "tier")
    made.upload("orders", 0, RECORDS)
    return made


def query(log: GrowingLog) -> LoadQuery:
    return LoadQuery(location=str(log.root), topic="orders", batch_rows=50)


def only_split(log: GrowingLog) -> LoaderSplit:
    (split,) = all_splits(query(log))
    return split


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(("readers", "max_open"), [(2, 1), (7, 1), (9, 3)])
def test_readers_that_are_asked_in_turn_without_waiting_all_come_to_their_end(
    log: GrowingLog, threads: int, readers: int, max_open: int
) -> None:
    with ReaderPool(query(log), threads=threads, max_open=max_open) as pool:
        some = [pool.open(only_split(log)) for _ in range(readers)]
        seen: list[list[int]] = [[] for _ in some]
        end = time.monotonic() + 60
        while not all(one.is_finished for one in some) and time.monotonic() < end:
            for reader, mine in zip(some, seen, strict=True):
                batch = reader.read(timeout=0)
                mine += [] if batch is None else batch["offset"].to_pylist()
    assert seen == [list(range(RECORDS))] * readers


def test_a_reader_that_is_never_asked_again_does_not_keep_the_others_waiting(log: GrowingLog) -> None:
    with ReaderPool(query(log), threads=1, max_open=1) as pool:
        forgotten, other = pool.open(only_split(log)), pool.open(only_split(log))
        assert forgotten.read(timeout=0) is None
        batch = other.read(timeout=60)
        assert batch is not None
        assert other.read() is not None
        assert forgotten.read(timeout=60) is not None


@pytest.mark.parametrize("seed", range(4))
def test_reads_with_and_without_a_time_limit_do_not_lock_each_other_out(log: GrowingLog, seed: int) -> None:
    chance = random.Random(seed)
    pool = ReaderPool(query(log), threads=chance.choice([1, 2]), max_open=chance.choice([1, 2, 3]))
    readers = [pool.open(only_split(log)) for _ in range(6)]
    seen: list[list[int]] = [[] for _ in readers]

    def work(reader: ResumableReader, mine: list[int], seed: int) -> None:
        chance = random.Random(seed)
        while not reader.is_finished:
            batch = reader.read(max_rows=chance.choice([None, 7]), timeout=chance.choice([None, 0, 0.01, 1]))
            mine += [] if batch is None else batch["offset"].to_pylist()

    threads = [
        threading.Thread(target=work, args=(reader, mine, seed + at), daemon=True)
        for at, (reader, mine) in enumerate(zip(readers, seen, strict=True))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    pool.close()
    assert seen == [list(range(RECORDS))] * len(readers)


_PROGRAM = """
import os, sys, time
from segreader.errors import ClosedError
from segreader.loader import LoadQuery, ReaderPool, SplitEnumerator
from segreader.storage.local import LocalStore

class Hanging(LocalStore):
    def read_pieces(self, *_, **__):
        time.sleep(300)
        yield b""

query = LoadQuery(location=sys.argv[1], topic="orders")
with SplitEnumerator(query) as enumerator:
    (split,) = enumerator.discover()
pool = ReaderPool(query)
"""


def outcome(program: str, log: GrowingLog) -> str:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM + program, str(log.root)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_program_ends_though_a_store_hangs(log: GrowingLog) -> None:
    assert "None" in outcome("pool.store = Hanging('/')\nprint(pool.open(split).read(timeout=0.1))", log)


def test_a_fork_of_the_program_is_told_to_open_its_own(log: GrowingLog) -> None:
    program = """
reader = pool.open(split)
reader.read(max_rows=3, timeout=30)
if os.fork():
    os.wait()
else:
    for act in (reader.read, lambda: reader.read(timeout=9), lambda: pool.open(split)):
        try:
            act()
        except ClosedError as error:
            print(error)
    print(reader.position.next_offset, flush=True)
    with ReaderPool(query) as own:
        print(own.open(split, reader.position).read(timeout=30).num_rows, flush=True)
    os._exit(0)
"""
    told = outcome(program, log)
    assert told.count("made in another process") == 3
    assert told.split()[-2:] == ["3", str(RECORDS - 3)]


def test_a_pool_that_is_closed_under_load_ends_every_read(log: GrowingLog) -> None:
    pool = ReaderPool(query(log), threads=2, max_open=1)
    outcomes: list[object] = []

    def work(timeout: float | None) -> None:
        try:
            reader = pool.open(only_split(log))
            while True:
                reader.restore(only_split(log).position)
                reader.read(max_rows=7, timeout=timeout)
        except ClosedError as error:
            outcomes.append(error)

    threads = [threading.Thread(target=work, args=(timeout,), daemon=True) for timeout in (None, 0, 5) * 2]
    for thread in threads:
        thread.start()
    time.sleep(0.3)
    pool.close()
    for thread in threads:
        thread.join(30)
    assert len(outcomes) == len(threads)
