"""Logs that are read at once: the same findings in the same order, an end without delay, and bounded reading ahead."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from corpus import CORPUS
from planted import LONG_LATER_MS, Planted, damaged

from segreader.errors import StorageError
from segreader.evidence.findings import Finding
from segreader.evidence.rules import Code
from segreader.plan.request import ReadOptions
from segreader.storage.cancellation import cancellable
from segreader.stored.source import LocationSource
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import local_tiered_files, write_files
from segreader.testing.stores import FaultyStore, MemoryStore
from segreader.verify.verify import Reading, verify

THREADS = "segreader-verify"
WAYS = [
    ReadOptions(threads=1),
    ReadOptions(threads=2),
    ReadOptions(threads=8),
    ReadOptions(threads=8, read_ahead_bytes=1),
]


def threads() -> list[str]:
    return [one.name for one in threading.enumerate() if one.name.startswith(THREADS)]


def until(is_so: Callable[[], bool], seconds: float = 10) -> bool:
    end = time.monotonic() + seconds
    while not is_so() and time.monotonic() < end:
        time.sleep(0.002)
    return is_so()


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
    assert threads() == []


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


def bucket(segments: int = 12, batches: int = 8) -> MemoryStore:
    segment, some = SegmentBuilder(0), []
    for _ in range(segments):
        for _ in range(batches):
            segment.batch([b"x" * 1000])
        some.append(segment)
        segment = segment.roll()
    return MemoryStore(dict(local_tiered_files("orders", some)))


class Bodies:
    """Counts whole logs that are asked for, and holds each up, as a store on the network does."""

    def __init__(self, objects: MemoryStore) -> None:
        self.sizes = {name: len(data) for name, data in objects.objects.items()}
        self.open = self.most = self.begun = 0
        self.stuck_from: int | None = None
        self.broken = -1
        self._lock = threading.Lock()

    def __call__(self, request: str) -> None:
        kind, _, rest = request.partition(" ")
        name, _, span = rest.partition(" bytes=")
        if kind != "GET" or not name.endswith(".log") or span != f"0-{self.sizes[name] - 1}":
            return
        with self._lock:
            self.begun, self.open = self.begun + 1, self.open + 1
            self.most = max(self.most, self.open)
            number = self.begun
        try:
            if self.stuck_from is not None and number > self.stuck_from:
                ended = threading.Event()
                with cancellable(ended.set):
                    ended.wait(30)
                raise StorageError("the read was ended")
            time.sleep(0.01)
            if int(name.rpartition("/")[2][:20]) // 8 == self.broken:
                raise StorageError("out of order")
        finally:
            with self._lock:
                self.open -= 1


class RemoteStore(FaultyStore):
    """As a store on the network, which says how much one request asks for."""

    range_size = 1 << 20


def open_bucket(objects: MemoryStore, bodies: Bodies) -> LocationSource:
    return LocationSource("memory", opened=(RemoteStore(objects, bodies), ""))


def test_several_bodies_of_a_bucket_are_in_flight() -> None:
    objects = bucket()
    bodies = Bodies(objects)
    findings = list(verify(open_bucket(objects, bodies), deep=True))

    assert (findings, bodies.begun) == ([], 12)
    assert bodies.most >= 4
    assert threads() == []


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
    objects = bucket(segments=40)
    name = next(name for name in sorted(objects.objects) if name.endswith(".log"))
    data = bytearray(objects.objects[name])
    data[100] ^= 1
    objects.objects[name] = bytes(data)  # so that there is a finding to stop at
    begun = []
    for most in (1, 100_000):
        bodies = Bodies(objects)
        findings = verify(
            open_bucket(objects, bodies), deep=True, options=ReadOptions(threads=8, read_ahead_bytes=most)
        )
        assert next(findings).code is Code.CRC_MISMATCH
        time.sleep(0.2)
        begun.append(bodies.begun)
        findings.close()
        assert threads() == []

    assert begun[0] <= 2
    assert begun[0] < begun[1] <= 8


@pytest.fixture
def stuck() -> tuple[MemoryStore, Bodies]:
    objects = bucket()
    name = next(name for name in sorted(objects.objects) if name.endswith(".log"))
    data = bytearray(objects.objects[name])
    data[100] ^= 1
    objects.objects[name] = bytes(data)
    bodies = Bodies(objects)
    bodies.stuck_from = 1
    return objects, bodies


@pytest.mark.parametrize("by", ["close", "drop"])
def test_ending_verification_does_not_wait_for_bodies(stuck: tuple[MemoryStore, Bodies], by: str) -> None:
    objects, bodies = stuck
    findings = verify(open_bucket(objects, bodies), deep=True)
    assert next(findings).code is Code.CRC_MISMATCH
    assert until(lambda: bodies.open >= 4)

    began = time.monotonic()
    if by == "close":
        findings.close()
    del findings
    assert until(lambda: not threads())
    assert time.monotonic() - began < 0.3 + 0.5  # of a machine that may be busy
