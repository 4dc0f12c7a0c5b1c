"""Logs that are read at once: the same findings in the same order, an end without delay, and bounded reading ahead."""

from __future__ import annotations

import random
import time
from pathlib import Path
from statistics import median

import pytest
from corpus import CORPUS
from held_bodies import Bodies, RemoteStore, bucket, damaged_bucket, interrupted, threads, until
from planted import LONG_LATER_MS, Planted, damaged

from segreader.evidence.findings import Finding
from segreader.evidence.rules import Code
from segreader.plan.request import ReadOptions
from segreader.stored.source import LocationSource
from segreader.testing.directory import write_files
from segreader.testing.stores import MemoryStore
from segreader.verify.verify import Reading, verify

NAME = "segreader-verify"
GRACE_S = 0.3
WAYS = [
    ReadOptions(threads=1),
    ReadOptions(threads=2),
    ReadOptions(threads=8),
    ReadOptions(threads=8, read_ahead_bytes=1),
]


def found(place: Path, options: ReadOptions) -> tuple[list[Finding], int, int]:
    """The findings, and the bytes that were read and known when all of them were there."""
    reading = Reading()
    source = LocationSource(str(place))
    findings = list(verify(source, deep=True, options=options, reading=reading, now_ms=LONG_LATER_MS))
    return findings, reading.done, reading.whole


@pytest.mark.parametrize(
    "place", ["tv2/remote/kafka-tiered-storage", "tv2/local", "cluster/local", "aiven-zstd/remote"]
)
def test_findings_of_what_brokers_wrote_do_not_depend_on_threads(place: str) -> None:
    one, *others = [found(CORPUS / place, options) for options in WAYS]

    assert all(other == one for other in others)
    assert one[1] >= one[2] > 0
    assert threads(NAME) == []


@pytest.mark.parametrize("seed", range(2))
def test_findings_of_damage_do_not_depend_on_threads(seed: int, tmp_path: Path) -> None:
    dice, planted = random.Random(seed), Planted(tmp_path)
    write_files(tmp_path, planted.files)
    paths = sorted(planted.files)
    codes: set[Code] = set()
    for _ in range(25):
        hurt = dice.sample(paths, dice.choice([1, 2, 4]))
        for path in hurt:
            (tmp_path / path).write_bytes(damaged(planted.files[path], dice))
        one, *others = [found(tmp_path, options) for options in WAYS]
        assert all(other == one for other in others), hurt
        codes |= {finding.code for finding in one[0]}
        for path in hurt:
            (tmp_path / path).write_bytes(planted.files[path])
    assert len(codes) > 10


def open_bucket(objects: MemoryStore, bodies: Bodies) -> LocationSource:
    return LocationSource("memory", opened=(RemoteStore(objects, bodies), ""))


def test_several_bodies_of_a_bucket_are_in_flight() -> None:
    objects = bucket()
    bodies = Bodies(objects)
    bodies.least = 4
    findings = list(verify(open_bucket(objects, bodies), deep=True))

    assert (findings, bodies.begun) == ([], 12)
    assert bodies.most >= 4
    assert threads(NAME) == []


def test_with_one_thread_one_log_is_read_after_another() -> None:
    objects = bucket()
    bodies = Bodies(objects)
    options = ReadOptions(threads=1)

    assert list(verify(open_bucket(objects, bodies), deep=True, options=options)) == []
    assert (bodies.begun, bodies.most) == (12, 1)


@pytest.mark.parametrize("broken", [0, 5, 11])
def test_a_log_that_cannot_be_read_is_a_finding_at_its_place(broken: int) -> None:
    objects = bucket()
    ways: list[list[Finding]] = []
    for options in WAYS:
        bodies = Bodies(objects)
        bodies.broken = broken
        ways.append(list(verify(open_bucket(objects, bodies), deep=True, options=options)))

    assert [one.code for one in ways[0]] == [Code.UNREADABLE_OBJECT]
    assert all(way == ways[0] for way in ways)


def test_logs_are_not_read_further_ahead_than_is_allowed() -> None:
    objects = damaged_bucket(segments=40)  # so that there is a finding to stop at
    begun: list[int] = []
    for most in (1, 100_000):
        bodies = Bodies(objects)
        findings = verify(
            open_bucket(objects, bodies), deep=True, options=ReadOptions(threads=8, read_ahead_bytes=most)
        )
        assert next(findings).code is Code.CRC_MISMATCH
        until(lambda bodies=bodies: bodies.begun > max(begun, default=0))  # type: ignore[misc]
        time.sleep(0.2)
        begun.append(bodies.begun)
        findings.close()
        assert threads(NAME) == []

    assert begun[0] <= 2
    assert begun[0] < begun[1] <= 8


@pytest.mark.parametrize("by", ["close", "drop"])
def test_ending_verification_does_not_wait_for_bodies(by: str) -> None:
    objects = damaged_bucket()

    def end_one() -> float:
        bodies = Bodies(objects)
        bodies.stuck_from = 1
        findings = verify(open_bucket(objects, bodies), deep=True)
        assert next(findings).code is Code.CRC_MISMATCH
        assert until(lambda: bodies.open >= 4)

        began = time.monotonic()
        if by == "close":
            findings.close()
        del findings
        assert until(lambda: not threads(NAME))
        return time.monotonic() - began

    assert median(end_one() for _ in range(3)) < GRACE_S  # the machine may be busy with something else once


@pytest.mark.parametrize("number", [1, 2, 8])
def test_an_interrupt_ends_verification_at_once(number: int) -> None:
    objects = bucket()

    def end_one() -> float:
        bodies = Bodies(objects)
        bodies.stuck_from = 1
        findings = verify(open_bucket(objects, bodies), deep=True, options=ReadOptions(threads=number))
        took = interrupted(lambda: list(findings), lambda: bodies.begun > 1 and bodies.open > 0)
        assert until(lambda: not threads(NAME))
        return took

    assert median(end_one() for _ in range(3)) < GRACE_S
