"""What a gateway and our client of brokers cost and spare, on a real broker: ``make bench-broker``.

What is measured, and how to read the table, is in benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.broker_backfill import Backfill, measure_backfill
from benchmarks.broker_gateway import measure_latency, measure_locations, measure_throughput
from benchmarks.broker_kit import CODEC, PARTITIONS, SEGMENT_BYTES, SHAPE, Kit, bench, write_topic
from benchmarks.broker_moves import measure_moves
from benchmarks.native import demand_native
from benchmarks.rows import MIB, Row, parse_options, print_machine, run

FIGURES = ("throughput", "latency", "backfill", "locations", "moves")
TOPIC = "backfill"


def measure(kit: Kit, place: Path, arguments: argparse.Namespace) -> Iterator[Row]:
    wanted = arguments.only or FIGURES
    if set(wanted) - {"moves"}:
        with bench(kit, place) as running:
            offsets = write_topic(kit, running.kafka, TOPIC, int(arguments.gb * 1e9))
            logs = (running.kafka.nodes[0].config.directory / "data").glob(f"{TOPIC}-*/*.log")
            stored = sum(file.stat().st_size for file in logs)
            records = sum(end - first for first, end in offsets.values())
            print(f"{records} records of {SHAPE.name}, {CODEC}, {stored / MIB:.0f} MiB stored\n")
            if "throughput" in wanted:
                yield from measure_throughput(running, TOPIC, offsets, stored, arguments.rounds)
            if "latency" in wanted:
                yield from measure_latency(running, TOPIC, offsets, arguments.rounds)
            if {"backfill", "locations"} & set(wanted):
                running.kafka.upload(TOPIC)
            if "locations" in wanted:
                yield from measure_locations(running, TOPIC, offsets, arguments.rounds, arguments.answers)
            if "backfill" in wanted:
                yield from measure_backfill(Backfill(running, TOPIC, offsets), stored, arguments.rounds)
    if "moves" in wanted:
        yield from measure_moves(kit, place / "moves", arguments.moves)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.broker", description="Brokers, gateway and client.")
    parser.add_argument("--gb", type=float, default=1.074, help="bytes of the topic as stored, in 1e9 (1 GiB)")
    parser.add_argument("--rounds", type=int, default=5, help="how often each side has its turn (5)")
    parser.add_argument("--answers", type=int, default=4000, help="locations asked for in a round (4000)")
    parser.add_argument("--moves", type=int, default=30, help="moves of a leader (30)")
    parser.add_argument("--only", action="append", choices=FIGURES, help="only these figures; may be repeated")
    arguments = parse_options(parser)
    demand_native()
    kit = Kit.load()
    print_machine("confluent-kafka", "kafka-python", "pyarrow")
    print(f"{PARTITIONS} partitions, segments of {SEGMENT_BYTES // MIB} MiB")
    with contextlib.ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="segreader-bench-")))
        run(measure(kit, place, arguments), arguments.json)


if __name__ == "__main__":
    main()
