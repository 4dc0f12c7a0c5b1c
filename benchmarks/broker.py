"""What a gateway and our client of brokers cost and spare, on a real broker: ``make bench-broker``.

What is measured, and how to read the table, is in benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.broker_backfill import Backfill, measure_backfill
from benchmarks.broker_followers import measure_followers
from benchmarks.broker_gateway import measure_latency, measure_locations, measure_workers
from benchmarks.broker_kit import CODEC, PARTITIONS, SEGMENT_BYTES, SHAPE, Bench, Kit, bench, write_topic
from benchmarks.broker_moves import measure_moves
from benchmarks.broker_plain import measure_plain
from benchmarks.native import demand_native
from benchmarks.rows import MIB, Row, parse_options, print_machine, run

FIGURES = ("plain", "latency", "backfill", "locations", "moves", "followers")
TOPIC = "backfill"


_CORES = 2
"""That client, broker and gateway share, on any machine."""


def measure(kit: Kit, place: Path, arguments: argparse.Namespace) -> Iterator[Row]:
    wanted = set(arguments.only or FIGURES)
    if wanted - {"moves", "followers"}:
        with bench(kit, place) as running:
            if "plain" in wanted:
                yield from measure_plain(kit, running, place, int(arguments.plain_gb * 1e9), arguments.rounds)
            if wanted - {"moves", "followers", "plain"}:
                yield from measure_tiered(kit, running, place, wanted, arguments)
    if "moves" in wanted:
        yield from measure_moves(kit, place / "moves", arguments.moves)
    if "followers" in wanted:
        yield from measure_followers(kit, place / "followers", int(arguments.gb * 3e8), arguments.rounds)


def measure_tiered(
    kit: Kit, running: Bench, place: Path, wanted: set[str], arguments: argparse.Namespace
) -> Iterator[Row]:
    """What is measured of one large topic, on the broker's disk first, and then in the remote tier alone."""
    offsets = write_topic(kit, running.kafka, TOPIC, int(arguments.gb * 1e9))
    stored = running.stored_bytes(TOPIC)
    records = sum(end - first for first, end in offsets.values())
    print(f"{records} records of {SHAPE.name}, {CODEC}, {stored / MIB:.0f} MiB stored\n")
    if "latency" in wanted:
        yield from measure_latency(running, TOPIC, offsets, arguments.rounds)
    if {"backfill", "locations"} & wanted:
        running.kafka.upload(TOPIC)
    if "locations" in wanted:
        yield from measure_locations(running, TOPIC, offsets, arguments.rounds, arguments.answers)
        yield from measure_workers(kit, running, place / "workers", TOPIC, offsets, arguments.rounds, arguments.answers)
    if "backfill" in wanted:
        yield from measure_backfill(Backfill(running, TOPIC, offsets), stored, arguments.rounds)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.broker", description="Brokers, gateway and client.")
    parser.add_argument("--gb", type=float, default=1.074, help="bytes of the topic as stored, in 1e9 (1 GiB)")
    parser.add_argument("--plain-gb", type=float, default=0.4, help="the same of each topic that only passes (0.4)")
    parser.add_argument("--rounds", type=int, default=5, help="how often each side has its turn (5)")
    parser.add_argument("--answers", type=int, default=4000, help="locations asked for in a round (4000)")
    parser.add_argument("--moves", type=int, default=30, help="moves of a leader (30)")
    parser.add_argument("--only", action="append", choices=FIGURES, help="only these figures; may be repeated")
    arguments = parse_options(parser, gb=0.1, rounds=2, moves=6)
    demand_native()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:_CORES])
    kit = Kit.load()
    print_machine("confluent-kafka", "aiokafka", "kafka-python", "pyarrow")
    print(f"{PARTITIONS} partitions, segments of {SEGMENT_BYTES // MIB} MiB")
    with contextlib.ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="segreader-bench-")))
        run(measure(kit, place, arguments), arguments.json)


if __name__ == "__main__":
    main()
