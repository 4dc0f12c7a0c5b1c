"""What a gateway costs those who only pass through it: three consumers, two codecs, held back and not."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from benchmarks.broker_consumers import NAMES, Asked, Reader, reader
from benchmarks.broker_kit import Bench, Kit, Offsets, cpu_s, write_topic
from benchmarks.rows import Row

CODECS = ("lz4", "none")
HELD_AT = 400e6
"""Bytes a second, as they are stored and sent."""

_LEAST = {"held to 400 MB/s": 0.95, "unlimited": 0.7}
_MOST_CPU = 0.35


@dataclass(slots=True)
class _Turns:
    """What one row's rounds took: seconds of each side, and seconds of the gateway's CPU."""

    direct: list[float] = field(default_factory=list)
    through: list[float] = field(default_factory=list)
    gateway: list[float] = field(default_factory=list)


def measure_plain(kit: Kit, bench: Bench, place: Path, stored_bytes: int, rounds: int) -> Iterator[Row]:
    """Each consumer reads all of a topic from the broker's own disk, direct and through the gateway, in turns."""
    with contextlib.ExitStack() as stack:
        readers = {name: stack.enter_context(reader(name, place, kit.jars())) for name in NAMES}
        for codec in CODECS:
            topic = f"plain-{codec}"
            offsets = write_topic(kit, bench.kafka, topic, stored_bytes, codec)
            stored = bench.stored_bytes(topic)
            for name, one in readers.items():
                for limit in _LEAST:
                    yield from _rows(bench, f"{name}, {codec}, {limit}", one, topic, offsets, stored, rounds)


def _rows(
    bench: Bench, name: str, one: Reader, topic: str, offsets: Offsets, stored: int, rounds: int
) -> Iterator[Row]:
    places = {"direct": bench.kafka.bootstrap, "through": bench.gateway.bootstrap}
    records = sum(end - first for first, end in offsets.values())
    limit = name.rpartition(", ")[2]
    rate = 0.0 if limit == "unlimited" else HELD_AT * records / stored
    turns = _Turns()
    for index in range(-1, rounds):
        for side in places if index % 2 else reversed(places):
            before = cpu_s(bench.gateway.pid)
            took = one.read(Asked(places[side], topic, rate, offsets))
            if index >= 0:
                getattr(turns, side).append(took)
                if side == "through":
                    turns.gateway.append(cpu_s(bench.gateway.pid) - before)
    ratios = tuple(a / b for a, b in zip(turns.direct, turns.through, strict=True))
    note = " and ".join(f"{stored / median(times) / 1e6:.0f}" for times in (turns.direct, turns.through))
    yield Row(f"{name}: through / direct", ratios, _LEAST[limit], "", f"{note} MB/s as stored", is_least=True)
    yield Row(f"{name}: gateway CPU", tuple(one / stored * 1e9 for one in turns.gateway), _MOST_CPU, " s/GB")
