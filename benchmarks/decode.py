"""How fast segments become Arrow, beside aiokafka and beside the bare floor: ``make bench-decode``.

The three take turns in one process and are timed in thread CPU time, so that ratios hold on a busy machine. What is
measured, and how to read the table, is in benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import resource
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import TypeVar

import pyarrow as pa

from benchmarks import report
from benchmarks.contenders import SCHEMA, aiokafka_batches, floor_bytes, segreader_batches
from benchmarks.inputs import CODECS, SHAPES, Input, Shape, write_inputs
from benchmarks.report import MIB, Peak, Result
from segreader.errors import OptionError
from segreader.format.kernel import load_kernel

LARGE_BATCH = 8 * MIB

T = TypeVar("T")


def alone(work: Callable[..., T], *arguments: object) -> T:
    """What ``work`` returns, from a process of its own.

    The heap that one measurement leaves behind changes the next: garbage collection walks over it, and memory is
    new to the process or is not.
    """
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        return process.submit(work, *arguments).result()


def cpu_seconds(work: Callable[[], object]) -> float:
    start = time.thread_time()
    work()
    return time.thread_time() - start


def drain(batches: Iterable[pa.RecordBatch]) -> None:
    for _batch in batches:
        pass


def measure(source: Input, shape: Shape, codec: str, rounds: int, is_frozen: bool) -> Result:
    """Let the three take turns; then see that both readers return the same table."""
    peak = measure_peak(source, codec)
    work: dict[str, Callable[[], object]] = {
        "segreader": lambda: drain(segreader_batches(source)),
        "aiokafka": lambda: drain(aiokafka_batches(source)),
        "floor": lambda: floor_bytes(source.log, codec),
    }
    for warm_up in work.values():
        warm_up()
    if is_frozen:
        gc.collect()
        gc.freeze()
    times: dict[str, list[float]] = {name: [] for name in work}
    for index in range(rounds):
        for name in work if index % 2 == 0 else reversed(work):
            times[name].append(cpu_seconds(work[name]))
    ours = pa.Table.from_batches(segreader_batches(source), schema=SCHEMA)
    if ours.num_rows != source.records or not ours.equals(pa.Table.from_batches(aiokafka_batches(source))):
        raise ValueError(f"segreader and aiokafka disagree about {shape.name}, {codec}")
    if floor_bytes(source.log, codec) != source.body_bytes:
        raise ValueError(f"the floor does not decompress all of {shape.name}, {codec}")
    return Result(
        shape=shape.name,
        codec=codec,
        records=source.records,
        stored_bytes=source.stored_bytes,
        body_bytes=source.body_bytes,
        payload_bytes=source.payload_bytes,
        segreader_s=tuple(times["segreader"]),
        aiokafka_s=tuple(times["aiokafka"]),
        floor_s=tuple(times["floor"]),
        peak=peak,
    )


def measure_peak(source: Input, codec: str) -> Peak:
    command = [sys.executable, "-m", "benchmarks.peak", str(source.location)]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return Peak(codec, int(printed), source.largest_batch)


def measure_kernels(source: Input) -> dict[str, float]:
    """CPU seconds of each kernel over the same input."""

    def seconds(kernel: str) -> float:
        return min(cpu_seconds(lambda: drain(segreader_batches(source, kernel))) for _ in range(3))

    return {kernel: seconds(kernel) for kernel in ("native", "reference")}


def measure_help(runs: int = 11) -> float | None:
    """CPU milliseconds of a process that runs ``segreader --help``; ``None`` where that command does not run."""
    script = Path(sysconfig.get_path("scripts")) / "segreader"
    module = [sys.executable, "-c", "import sys; from segreader.cli.main import main; sys.exit(main())"]
    command = [*([str(script)] if script.exists() else module), "--help"]
    times = []
    for _ in range(runs + 1):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        if subprocess.run(command, check=False, capture_output=True).returncode:
            return None
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return 1000 * median(times[1:])  # the first one warms the page cache


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.decode", description="Decoding beside aiokafka.")
    parser.add_argument("--rounds", type=int, default=7, help="how often each reads each input (7)")
    parser.add_argument("--size", type=int, default=64, metavar="MIB", help="size of an input, decompressed (64)")
    parser.add_argument("--codec", action="append", choices=CODECS, help="only this one; may be repeated")
    parser.add_argument("--freeze", action="store_true", help="spare both what garbage collection costs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every time to FILE")
    arguments = parser.parse_args()
    try:
        load_kernel("native")
    except OptionError as error:
        raise SystemExit(str(error)) from None
    codecs = arguments.codec or list(CODECS)
    results: list[Result] = []
    large: list[Peak] = []
    report.print_machine()
    with tempfile.TemporaryDirectory(prefix="segreader-bench-") as name:
        place = Path(name)
        body_bytes = arguments.size * MIB
        for shape in SHAPES:
            report.print_heading(shape.name)
            for codec, source in alone(write_inputs, place, shape, codecs, body_bytes).items():
                results.append(alone(measure, source, shape, codec, arguments.rounds, arguments.freeze))
                report.print_result(results[-1])
                source.remove()
        for codec, source in alone(write_inputs, place, SHAPES[1], codecs, body_bytes, LARGE_BATCH).items():
            large.append(measure_peak(source, codec))
            source.remove()
        kernels = alone(measure_kernels, alone(write_inputs, place, SHAPES[0], ["none"], 2 * MIB)["none"])
    help_ms = measure_help()
    report.print_peaks(results, large)
    report.print_kernels(kernels)
    report.print_help(help_ms)
    report.print_misses(results, large, help_ms)
    if arguments.json:
        facts = {
            "packages": {package: version(package) for package in report.PACKAGES},
            "results": [asdict(result) for result in results],
            "large_batches": [asdict(peak) for peak in large],
            "kernels_s": kernels,
            "help_ms": help_ms,
        }
        arguments.json.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
