"""What a loader's way to the records costs over a plain scan of the same segment, and what importing it costs."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import segreader
from benchmarks.inputs import SHAPES, Input, Shape, write_inputs
from benchmarks.rows import Row
from segreader.loader import LoadQuery, ReaderPool, SplitEnumerator

CODECS = ("none", "lz4", "zstd")
_PORTION = 1000
_WAIT_S = 60.0
_IMPORTS = {
    "nothing": "pass",
    "segreader.loader": "import segreader.loader",
    "its readers": "from segreader.loader import SplitEnumerator, ReaderPool",
    "pyarrow": "import pyarrow",
}


@dataclass(frozen=True, slots=True)
class Turn:
    """What one side took once: CPU seconds of all threads, and wall."""

    cpu: float
    wall: float


def scanned(source: Input) -> int:
    """Records of a scan with its defaults."""
    return sum(batch.num_rows for batch in segreader.scan(source.location).to_batches())


def loaded(source: Input, max_rows: int | None = None, timeout: float | None = None) -> int:
    """Records as a loader takes them, from the first look to the last read; its splits one after another."""
    query = LoadQuery(location=str(source.location))
    records = 0
    with SplitEnumerator(query) as enumerator, ReaderPool(query) as pool:
        for split in enumerator.discover():
            with pool.open(split) as reader:
                while (batch := reader.read(max_rows=max_rows, timeout=timeout)) is not None:
                    records += batch.num_rows
                if not reader.is_finished:
                    raise RuntimeError(f"{split.id} is not read to its end")
    return records


SIDES: dict[str, Callable[[Input], int]] = {
    "scan": scanned,
    "loader": loaded,
    "portions": lambda source: loaded(source, max_rows=_PORTION),
    "ahead": lambda source: loaded(source, timeout=_WAIT_S),
}


def measure_path(place: Path, rounds: int, mib: int) -> Iterator[Row]:
    """CPU and wall of the loader by those of the scan, for each shape and codec, each in a process of its own."""
    for shape in SHAPES[:2]:
        for codec in CODECS:
            with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
                yield from process.submit(_compare, place, shape, codec, rounds, mib).result()


def _compare(place: Path, shape: Shape, codec: str, rounds: int, mib: int) -> list[Row]:
    source = write_inputs(place, shape, [codec], mib << 20)[codec]
    turns: dict[str, list[Turn]] = {name: [] for name in SIDES}
    for index in range(-1, rounds):
        for name in SIDES if index % 2 else reversed(SIDES):
            turn = _timed(SIDES[name], source)
            if index >= 0:  # the first round warms up
                turns[name].append(turn)
    source.remove()
    name = f"{shape.name}, {codec}"
    speed = source.payload_bytes / median(one.cpu for one in turns["scan"]) / 1e6
    return [
        Row(f"CPU, loader / scan, {name}", _ratios(turns, "loader", "cpu"), 1.05, "x", f"scan: {speed:.0f} MB/s"),
        Row(f"wall, loader / scan, {name}", _ratios(turns, "loader", "wall"), 1.05, "x"),
        Row(f"CPU, {_PORTION} rows a read / scan, {name}", _ratios(turns, "portions", "cpu"), None, "x"),
        Row(f"CPU, time limit / scan, {name}", _ratios(turns, "ahead", "cpu"), None, "x"),
    ]


def _timed(work: Callable[[Input], int], source: Input) -> Turn:
    cpu, wall = time.process_time(), time.perf_counter()
    records = work(source)
    turn = Turn(time.process_time() - cpu, time.perf_counter() - wall)
    if records != source.records:
        raise RuntimeError(f"{records} of {source.records} records")
    return turn


def _ratios(turns: Mapping[str, list[Turn]], name: str, what: str) -> tuple[float, ...]:
    pairs = zip(turns[name], turns["scan"], strict=True)
    return tuple(getattr(ours, what) / getattr(scan, what) for ours, scan in pairs)


def measure_imports(rounds: int) -> Iterator[Row]:
    """Milliseconds that an import adds to a Python that does nothing; they take turns."""
    walls: dict[str, list[float]] = {name: [] for name in _IMPORTS}
    for index in range(-1, rounds):
        for name in _IMPORTS if index % 2 else reversed(_IMPORTS):
            began = time.perf_counter()
            subprocess.run([sys.executable, "-c", _IMPORTS[name]], check=True)
            if index >= 0:
                walls[name].append(1000 * (time.perf_counter() - began))
    idle = median(walls.pop("nothing"))
    for name, values in walls.items():
        yield Row(f"wall of importing {name}", tuple(one - idle for one in values), None, " ms")
