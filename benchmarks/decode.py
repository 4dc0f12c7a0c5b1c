"""How fast segments become Arrow, beside aiokafka and beside the C limit: ``make bench-decode``.

All take turns in one process and are timed in CPU of all its threads, so that ratios hold on a busy machine. What is
measured, and how to read the table, is in benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import resource
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TypeVar

import pyarrow as pa

from benchmarks.contenders import SCHEMA, aiokafka_batches, segreader_batches
from benchmarks.inputs import CODECS, SHAPES, Input, Shape, write_inputs
from benchmarks.limit import c_limit
from benchmarks.native import demand_native
from benchmarks.rows import MIB, Row, parse_options, print_machine, run

PACKAGES = ("aiokafka", "pyarrow", "crc32c", "lz4", "zstandard", "cramjam", "isal")
LARGE_BATCH = 8 * MIB
KAFKA_CODECS = [codec for codec in CODECS if "-" not in codec]

TIMES_AIOKAFKA = {
    "100 B": {"none": 12, "lz4": 9, "zstd": 4.4, "snappy": 4.7, "gzip": 4.1},
    "1 KiB, 2 headers": {"none": 6.5, "lz4": 4.5, "zstd": 3.1, "snappy": 2.5, "gzip": 3.5},
    "10 KiB": {"none": 3.3, "lz4": 2.5, "zstd": 2.1, "snappy": 1.4, "gzip": 2.8},
}
LIMIT_SHARE = {"none": 0.45, "lz4": 0.65, "zstd": 0.8, "snappy": 0.8, "gzip": 0.82}
LIMIT_SHARE_OF_LARGE_NONE = 0.6
PEAK_MIB = 16
HELP_MS = 150

T = TypeVar("T")


def alone(work: Callable[..., T], *arguments: object, **named: object) -> T:
    """What ``work`` returns, from a process of its own.

    The heap that one measurement leaves behind changes the next: garbage collection walks over it, and memory is
    new to the process or is not.
    """
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        return process.submit(work, *arguments, **named).result()


def cpu_seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def drain(batches: Iterable[pa.RecordBatch]) -> None:
    for _batch in batches:
        pass


@dataclass(frozen=True, slots=True)
class Times:
    """CPU seconds of each side, all threads, one a round, of the same rounds."""

    segreader: list[float]
    aiokafka: list[float]
    aiokafka_once: list[float]
    limit: list[float]
    limit_3: list[float]


def measure(source: Input, shape: Shape, codec: str, rounds: int) -> Times:
    """Let them take turns; then see that all of them read the same.

    ``aiokafka`` is the fair one: it reads 1 MiB at a time, and the collector does not walk over what was imported.
    ``aiokafka_once`` reads the file in one go and pays for the collector, as this benchmark once had it. ``limit_3``
    has three streams of CRC at once.
    """
    limit = c_limit()
    work: dict[str, Callable[[], object]] = {
        "segreader": lambda: drain(segreader_batches(source)),
        "aiokafka": lambda: drain(aiokafka_batches(source)),
        "aiokafka_once": lambda: drain(aiokafka_batches(source, None)),
        "limit": lambda: limit.body_bytes(source.log),
        "limit_3": lambda: limit.body_bytes(source.log, 3),
    }
    times: dict[str, list[float]] = {name: [] for name in work}
    for index in range(-1, rounds):
        for name in work if index % 2 else reversed(work):
            gc.collect()
            if name != "aiokafka_once":
                gc.freeze()
            seconds = cpu_seconds(work[name])
            gc.unfreeze()
            if index >= 0:  # the first round warms up
                times[name].append(seconds)
    ours = pa.Table.from_batches(segreader_batches(source), schema=SCHEMA)
    if ours.num_rows != source.records or not ours.equals(pa.Table.from_batches(aiokafka_batches(source))):
        raise ValueError(f"segreader and aiokafka disagree about {shape.name}, {codec}")
    if {limit.body_bytes(source.log, streams) for streams in (1, 3)} != {source.body_bytes}:
        raise ValueError(f"the C limit does not decompress all of {shape.name}, {codec}")
    return Times(**times)


def rows_of(times: Times, source: Input, shape: Shape, codec: str) -> Iterator[Row]:
    """The figures of one codec at one size."""
    framing = codec.partition("-")[0]
    fair = tuple(theirs / ours for theirs, ours in zip(times.aiokafka, times.segreader, strict=True))
    once = median(theirs / ours for theirs, ours in zip(times.aiokafka_once, times.segreader, strict=True))
    rate = source.payload_bytes / median(times.segreader) / 1e6
    note = f"{rate:.0f} MB/s of records; {once:.2f}x as it was"
    target = TIMES_AIOKAFKA[shape.name][framing]
    yield Row(f"{shape.name}, {codec}: fair aiokafka / ours", fair, target, "x", note, is_least=True)
    share = tuple(limit / ours for limit, ours in zip(times.limit, times.segreader, strict=True))
    target = LIMIT_SHARE_OF_LARGE_NONE if (shape, codec) == (SHAPES[-1], "none") else LIMIT_SHARE[framing]
    strict = median(limit / ours for limit, ours in zip(times.limit_3, times.segreader, strict=True))
    rates = [source.body_bytes / median(one) / 1e6 for one in (times.limit, times.limit_3, times.segreader)]
    note = "{:.0f} MB/s of bodies, {:.0f} by three streams of CRC, ours {:.0f}".format(*rates) + f" ({strict:.2f})"
    yield Row(f"{shape.name}, {codec}: share of the C limit", share, target, "", note, is_least=True)


def measure_peak(source: Input) -> int:
    """By how many bytes one scan raises the peak of a process that has imported everything."""
    command = [sys.executable, "-m", "benchmarks.peak", str(source.location)]
    return int(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def measure_all(place: Path, codecs: Sequence[str], body_bytes: int, rounds: int, seed: str) -> Iterator[Row]:
    """Every codec at every size; then peaks, kernels and the start of the command."""
    peaks: dict[str, int] = {}
    for shape in SHAPES:
        inputs = alone(write_inputs, place, shape, codecs, body_bytes, seed=seed)
        for codec, source in inputs.items():
            yield from rows_of(alone(measure, source, shape, codec, rounds), source, shape, codec)
            peaks[f"{shape.name}, {codec}"] = measure_peak(source)
            source.remove()
    most = max(peaks, key=lambda name: peaks[name])
    values = tuple(peak / MIB for peak in peaks.values())
    yield Row("most memory over imports, 16 KiB batches", (max(values),), PEAK_MIB, " MiB", most)
    for codec, source in alone(write_inputs, place, SHAPES[1], codecs, body_bytes, LARGE_BATCH).items():
        target = 24 + 3 * source.largest_batch / MIB
        yield Row(f"memory over imports, 8 MiB batches, {codec}", (measure_peak(source) / MIB,), target, " MiB")
        source.remove()
    yield from measure_kernels(alone(write_inputs, place, SHAPES[0], ["none"], 2 * MIB)["none"])
    yield from measure_help()


def measure_kernels(source: Input) -> Iterator[Row]:
    """CPU of the reference kernel beside the native one, over the same input."""
    seconds = [
        min(cpu_seconds(lambda kernel=kernel: drain(segreader_batches(source, kernel))) for _ in range(3))  # type: ignore[misc]
        for kernel in ("reference", "native")
    ]
    yield Row("reference kernel / native, 100 B, none", (seconds[0] / seconds[1],), None, "x")


def measure_help(runs: int = 11) -> Iterator[Row]:
    """CPU of a process that runs ``segreader --help``."""
    script = Path(sysconfig.get_path("scripts")) / "segreader"
    module = [sys.executable, "-c", "import sys; from segreader.cli.main import main; sys.exit(main())"]
    command = [*([str(script)] if script.exists() else module), "--help"]
    times = []
    for _ in range(runs + 1):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime))
    yield Row("segreader --help", tuple(times[1:]), HELP_MS, " ms")  # the first one warms the page cache


def add_turns(parser: argparse.ArgumentParser, *, times: int) -> None:
    """The options of a benchmark whose sides take turns at reading inputs.

    Args:
        times: the default of ``--times``.
    """
    parser.add_argument("--rounds", type=int, default=7, help="how often each has its turn (7)")
    parser.add_argument("--times", type=int, default=times, help=f"how often it reads the input in a turn ({times})")
    parser.add_argument("--size", type=int, default=64, metavar="MIB", help="size of an input, decompressed (64)")
    parser.add_argument("--codec", nargs="+", choices=KAFKA_CODECS, default=KAFKA_CODECS, help="only these")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.decode", description="Decoding beside aiokafka.")
    parser.add_argument("--rounds", type=int, default=7, help="how often each reads each input (7)")
    parser.add_argument("--size", type=int, default=64, metavar="MIB", help="size of an input, decompressed (64)")
    parser.add_argument("--codec", nargs="+", choices=CODECS, help="only these")
    parser.add_argument("--seed", default="", help="other records: any text")
    arguments = parse_options(parser, rounds=5, codec=KAFKA_CODECS)
    demand_native()
    print_machine(*PACKAGES)
    codecs = arguments.codec or list(CODECS)
    with tempfile.TemporaryDirectory(prefix="segreader-bench-") as place:
        figures = measure_all(Path(place), codecs, arguments.size * MIB, arguments.rounds, arguments.seed)
        run(figures, arguments.json)


if __name__ == "__main__":
    main()
