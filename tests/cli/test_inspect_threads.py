"""Logs that are summarised at once: the same summaries and errors, and an end without delay."""

from __future__ import annotations

import random
import time
from collections.abc import Generator
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from corpus import CORPUS
from held_bodies import Bodies, RemoteStore, bucket, threads, until
from planted import Planted, damaged

from segreader.cli.main import main
from segreader.cli.summary import LogSummary, read_summaries
from segreader.errors import StorageError
from segreader.plan.request import ReadOptions
from segreader.read.ahead import ReadAhead
from segreader.stored.source import LocationSource
from segreader.testing.directory import write_files
from segreader.testing.stores import MemoryStore

NAME = "segreader-inspect"
WAYS = (["--threads", "1"], ["--threads", "2"], ["--threads", "8"], ["--threads", "8", "--read-ahead-bytes", "1"])


@pytest.fixture
def run(capsysbinary: pytest.CaptureFixture[bytes]) -> Any:
    def run(place: Path, *arguments: str) -> tuple[int, bytes, bytes]:
        return (main(["inspect", str(place), "-o", "ndjson", *arguments]), *capsysbinary.readouterr())

    return run


@pytest.mark.parametrize("place", ["tv2/local", "legacy/local", "k39/remote/kafka-tiered-storage", "aiven-zstd/remote"])
def test_summaries_of_what_brokers_wrote_do_not_depend_on_threads(place: str, run: Any) -> None:
    one, *others = [run(CORPUS / place, *way) for way in WAYS]

    assert one[0] == 0
    assert one[1].count(b"\n") > 1
    assert all(other == one for other in others)
    assert threads(NAME) == []


def test_summaries_of_damage_do_not_depend_on_threads(tmp_path: Path, run: Any) -> None:
    dice, planted = random.Random(5), Planted(tmp_path)
    write_files(tmp_path, planted.files)
    paths = sorted(planted.files)
    codes = set()
    for _ in range(25):
        hurt = dice.sample(paths, dice.choice([1, 2, 4]))
        for path in hurt:
            (tmp_path / path).write_bytes(damaged(planted.files[path], dice))
        one, *others = [run(tmp_path, *way) for way in WAYS]
        assert all(other == one for other in others), hurt
        codes.add(one[0])
        for path in hurt:
            (tmp_path / path).write_bytes(planted.files[path])
    assert 1 in codes


def read(objects: MemoryStore, bodies: Bodies, options: ReadOptions) -> Generator[int | LogSummary, None, None]:
    source = LocationSource("memory", opened=(RemoteStore(objects, bodies), ""))
    segments = [segment for known in source.logs() for segment in known.log.segments]
    return read_summaries(source.store, segments, ReadAhead.of(source.store, options))


def test_several_bodies_of_a_bucket_are_in_flight() -> None:
    objects = bucket()
    for options, least, most in ((ReadOptions(), 4, 8), (ReadOptions(threads=1), 1, 1)):
        bodies = Bodies(objects)
        bodies.least = least
        found = [one for one in read(objects, bodies, options) if isinstance(one, LogSummary)]
        assert [one.to_json()["records"] for one in found] == [8] * 12
        assert bodies.begun == 12
        assert least <= bodies.most <= most


@pytest.mark.parametrize("broken", [0, 5, 11])
def test_an_error_of_a_store_comes_after_the_summaries_before_it(broken: int) -> None:
    objects = bucket()
    for options in (ReadOptions(threads=1), ReadOptions(threads=8)):
        bodies = Bodies(objects)
        bodies.broken = broken
        found: list[LogSummary] = []
        with pytest.raises(StorageError, match="out of order"):
            found.extend(one for one in read(objects, bodies, options) if isinstance(one, LogSummary))
        assert len(found) == broken
        assert threads(NAME) == []


def test_logs_are_not_read_further_ahead_than_is_allowed() -> None:
    begun: list[int] = []
    for most in (1, 100_000):
        objects = bucket(segments=40)
        bodies = Bodies(objects)
        found = read(objects, bodies, ReadOptions(threads=8, read_ahead_bytes=most))
        while isinstance(next(found), int):
            pass
        until(lambda bodies=bodies: bodies.begun > max(begun, default=0))  # type: ignore[misc]
        time.sleep(0.2)
        begun.append(bodies.begun)
        found.close()
        assert threads(NAME) == []

    assert begun[0] <= 2
    assert begun[0] < begun[1] <= 20


def test_ending_it_does_not_wait_for_bodies() -> None:
    objects = bucket()

    def end_one() -> float:
        bodies = Bodies(objects)
        bodies.stuck_from = 1
        found = read(objects, bodies, ReadOptions())
        while isinstance(next(found), int):
            pass
        assert until(lambda: bodies.open >= 4)

        began = time.monotonic()
        found.close()
        assert until(lambda: not threads(NAME))
        return time.monotonic() - began

    assert median(end_one() for _ in range(3)) < 0.3 + 0.5  # the machine may be busy with something else once
