"""What a driver and a worker of the Spark pipeline hold, and how long the driver plans: ``make bench-spark-plan``.

Buckets are made as they are listed (``plan_bucket``), and segments of a few GiB as they are read, over HTTP: nothing of
either lies on a disk. Every figure comes from a process of its own. What is measured is in benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain

from benchmarks.plan import alone
from benchmarks.rows import MIB, Row, parse_options, print_machine, run

SEGMENTS = 100_000
TERABYTES = 10
GIB = 1 << 30
SIZES = (GIB, 8 * GIB)


def measure_driver(rounds: int) -> Iterator[Row]:
    """100,000 segments, and 10 TB in segments of 1 GiB, through the source and through the job."""
    for name, size, partitions, segments, bound in (
        (f"{SEGMENTS:,} segments", "small", 100, SEGMENTS // 100, 10),
        (f"{TERABYTES} TB", "large", 100, TERABYTES * 10**12 // GIB // 100 + 1, 60),
    ):
        for side in ("source", "job"):
            facts = [alone("benchmarks.spark_plan_peak", side, partitions, segments, size) for _ in range(rounds)]
            first = facts[0]
            note = (
                f"{first['segments']:,} segments, {first['splits']:,} splits, {first['pickled'] / 1e6:.0f} MB to send"
            )
            yield Row(f"{name}: plan of the {side}", tuple(one["cpu"] for one in facts), bound, " s CPU", note)
            yield Row(f"{name}: wall of it, {side}", tuple(one["wall"] for one in facts), None, " s")
            note = f"{first['imports'] / 1e6:.0f} MB of it are imports"
            yield Row(f"{name}: peak, {side}", tuple(one["peak"] / 1e6 for one in facts), 1000, " MB", note)


def measure_worker(rounds: int, sizes: tuple[int, ...]) -> Iterator[Row]:
    """One partition of a few GiB in one worker, with default options: rows to Spark, and files."""
    for codec in ("none", "lz4"):
        with served(codec, max(sizes)) as endpoint:
            for side in ("read", "sink"):
                peaks = []
                for size in sizes:
                    facts = [alone("benchmarks.spark_worker_peak", side, codec, size, endpoint) for _ in range(rounds)]
                    peaks.append(max(one["peak"] for one in facts))
                    note = f"{facts[0]['records']:,} records, {facts[0]['imports'] / MIB:.0f} MiB are imports"
                    values = tuple(one["peak"] / MIB for one in facts)
                    yield Row(f"worker: {side} of {size // GIB} GiB, {codec}: peak", values, 400, " MiB", note)
                name = f"worker: {side}, {codec}: {sizes[-1] // GIB} GiB by {sizes[0] // GIB} GiB"
                yield Row(name, (peaks[-1] / peaks[0],), None, "x", "how far the read-ahead fills up differs")


@contextmanager
def served(codec: str, size: int) -> Iterator[str]:
    """The URL of a server of the partition, in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.spark_endpoint", codec, str(size)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(server.stdout.readline())}"
        finally:
            server.terminate()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_plan", description="Driver and worker of Spark.")
    parser.add_argument("--rounds", type=int, default=3, help="of each figure (3)")
    parser.add_argument("--sizes", default=",".join(str(size // GIB) for size in SIZES), help="GiB of a task (1,8)")
    parser.add_argument("--only", choices=("driver", "worker"), help="measure one of the two")
    arguments = parse_options(parser)
    sizes = tuple(int(size) * GIB for size in arguments.sizes.split(","))
    print_machine("pyarrow")
    with tempfile.TemporaryDirectory(prefix="segreader-bench-") as place:
        os.environ["TMPDIR"] = place
        measures = {
            "driver": measure_driver(arguments.rounds),
            "worker": measure_worker(arguments.rounds, sizes),
        }
        wanted = [figures for kind, figures in measures.items() if arguments.only in (None, kind)]
        run(chain.from_iterable(wanted), arguments.json)


if __name__ == "__main__":
    main()
