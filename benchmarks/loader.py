"""What loaders and tables cost beside a plain scan, a consumer and a Parquet copy: ``make bench-loader``.

What is measured, and how to read the table, is in benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.broker_kit import PARTITIONS, SHAPE, Kit, write_topic
from benchmarks.inputs import SHAPES, write_inputs
from benchmarks.loader_path import measure_imports, measure_path
from benchmarks.loader_restore import measure_restore
from benchmarks.loader_tables import Table, measure_tables
from benchmarks.native import demand_native
from benchmarks.rows import MIB, Row, parse_options, print_machine, run

FIGURES = ("path", "restore", "readers", "tables", "import")
TOPIC = "table"
CODECS = ("lz4", "none")
READERS_TARGET_MIB = 1024
SEGMENT_BYTES = 64 * MIB
_CALM = {"log.retention.check.interval.ms": "60000", "log.cleaner.backoff.ms": "60000"}
_JVM = ("-Xmx1g", "-Xms1g", "-XX:+UseG1GC")


def measure_readers(place: Path, mib: int, readers: int) -> Iterator[Row]:
    """The peak of a process with so many readers that are open and half read, on one core."""
    source = write_inputs(place, SHAPES[1], ["lz4"], mib * MIB)["lz4"]
    command = [sys.executable, "-m", "benchmarks.loader_peak", str(source.location), str(readers)]
    found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    source.remove()
    for name, shown in (("", "no time limit"), ("ahead_", "a time limit, too")):
        peak, halves, turn = (found[f"{name}{what}"] for what in ("peak_bytes", "halves_s", "turn_ms"))
        note = f"{found['splits']} splits; all halves in {halves:.1f} s, then {turn:.1f} ms a read, by turns"
        yield Row(f"peak of {readers} readers, {shown}", (peak / MIB,), READERS_TARGET_MIB, " MiB", note)


def measure_topic(kit: Kit, place: Path, gb: float, codec: str, rounds: int) -> Iterator[Row]:
    """The queries over what is in the remote tier of a topic that a broker has on its disk, too."""
    with kit.cluster(place / "kafka", settings=_CALM, jvm=_JVM) as kafka:
        last_segments = PARTITIONS * SEGMENT_BYTES // 2  # are not uploaded
        write_topic(kit, kafka, TOPIC, int(gb * 1e9) + last_segments, codec, SEGMENT_BYTES)
        offsets = {number: (one.earliest, one.latest_tiered + 1) for number, one in kafka.offsets(TOPIC).items()}
        stored_bytes = sum(file.stat().st_size for file in Path(kafka.location).glob("**/*.log"))
        records = sum(stop - first for first, stop in offsets.values())
        print(
            f"{records} records of {SHAPE.name}, {codec}, {PARTITIONS} partitions, {stored_bytes / MIB:.0f} MiB stored"
        )
        stored = {"location": kafka.location, "topic": TOPIC}
        yield from measure_tables(Table(kafka.bootstrap, TOPIC, stored, place / "copy"), offsets, codec, rounds)


def measure(place: Path, arguments: argparse.Namespace) -> Iterator[Row]:
    wanted = arguments.only or FIGURES
    if "import" in wanted:
        yield from measure_imports(arguments.rounds)
    if "path" in wanted:
        yield from measure_path(place, arguments.rounds, arguments.mib)
    if "restore" in wanted:
        yield from measure_restore(place, arguments.segment, arguments.restores)
    if "readers" in wanted:
        yield from measure_readers(place, arguments.segment, arguments.readers)
    if "tables" in wanted:
        kit = Kit.load()
        for codec in arguments.codec or CODECS:
            with tempfile.TemporaryDirectory(dir=place) as name:
                yield from measure_topic(kit, Path(name), arguments.gb, codec, arguments.rounds)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.loader", description="Loaders and tables.")
    parser.add_argument("--rounds", type=int, default=7, help="how often each side has its turn (7)")
    parser.add_argument("--mib", type=int, default=256, help="size of an input of the path, decompressed (256)")
    parser.add_argument(
        "--segment", type=int, default=1024, metavar="MIB", help="size of a segment to restore in (1024)"
    )
    parser.add_argument("--restores", type=int, default=300, help="offsets to restore at (300)")
    parser.add_argument("--readers", type=int, default=1000, help="open readers (1000)")
    parser.add_argument("--gb", type=float, default=1.074, help="bytes of the topic as stored, in 1e9 (1 GiB)")
    parser.add_argument("--codec", nargs="+", choices=("none", "lz4", "zstd"), help="of the topic")
    parser.add_argument("--only", nargs="+", choices=FIGURES, help="only these figures")
    arguments = parse_options(parser, only=["tables"], codec=["lz4"], rounds=3, gb=0.5)
    demand_native()
    print_machine("confluent-kafka", "duckdb", "polars", "pyarrow")
    with tempfile.TemporaryDirectory(prefix="segreader-bench-") as place:
        run(measure(Path(place), arguments), arguments.json)


if __name__ == "__main__":
    main()
