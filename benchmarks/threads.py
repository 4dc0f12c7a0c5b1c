"""What several threads gain, each with a scan of its own: ``make bench-threads``.

Wall time, so it needs a machine with idle cores: the table says how busy it was. What is measured is in
benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import gc
import os
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.decode import add_turns, drain
from benchmarks.inputs import SHAPES, Input, write_inputs
from benchmarks.native import demand_native, one_thread
from benchmarks.rows import MIB, Row, parse_options, print_machine, run
from segreader import scan

TARGETS = {2: 1.8, 16: 12.0}


def wall(source: Input, threads: int, times: int) -> tuple[float, float]:
    """Wall and CPU seconds of threads that begin together and read the whole file so often each."""
    begin = threading.Barrier(threads + 1)
    how: Any = one_thread()

    def read() -> None:
        begin.wait()
        for _ in range(times):
            drain(scan(source.location, **how).to_batches())

    readers = [threading.Thread(target=read) for _ in range(threads)]
    for reader in readers:
        reader.start()
    begin.wait()
    began, cpu = time.perf_counter(), time.process_time()
    for reader in readers:
        reader.join()
    return time.perf_counter() - began, time.process_time() - cpu


def measure(
    place: Path, codecs: Sequence[str], body_bytes: int, rounds: int, times: int, counts: Sequence[int]
) -> Iterator[Row]:
    """One thread and several take turns, forwards and backwards, after a round that warms up."""
    for shape in SHAPES:
        for codec, source in write_inputs(place, shape, codecs, body_bytes).items():
            gc.freeze()
            taken: dict[int, list[tuple[float, float]]] = {count: [] for count in (1, *counts)}
            for index in range(-1, rounds):
                for count in taken if index % 2 else reversed(taken):
                    pair = wall(source, count, times)
                    if index >= 0:
                        taken[count].append(pair)
            source.remove()
            for count in counts:
                gains = tuple(count * one[0] / many[0] for one, many in zip(taken[1], taken[count], strict=True))
                alone, beside = (1000 * median(cpu for _, cpu in taken[of]) / of / times for of in (1, count))
                note = f"CPU of a scan alone {alone:.0f} ms, beside others {beside:.0f}"
                yield Row(f"{shape.name}, {codec}: {count} threads / 1", gains, TARGETS.get(count), "x", note, True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.threads", description="Several threads beside one.")
    add_turns(parser, times=4)
    arguments = parse_options(parser, rounds=5, times=2)
    demand_native()
    print_machine("pyarrow")
    cores = len(os.sched_getaffinity(0))
    counts = [count for count in sorted({2, cores, *TARGETS}) if count <= cores]
    for count in sorted(set(TARGETS) - set(counts)):
        print(f"not measured: {count} threads, for there are {cores} cores")
    with tempfile.TemporaryDirectory(prefix="segreader-bench-") as place:
        body_bytes = arguments.size * MIB
        run(
            measure(Path(place), arguments.codec, body_bytes, arguments.rounds, arguments.times, counts), arguments.json
        )


if __name__ == "__main__":
    main()
