"""What a read of a bucket takes, planning included, beside one stream of the same: ``make bench-bucket``.

The bucket is simulated, by a server in a process of its own (``storage_server``): each answer begins 50 ms late, a
connection carries 64 MB/s, a page of a listing has 1,000 names. What is measured is in benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import quote

from benchmarks.inputs import BATCH_BYTES, CODECS, Shape, make_batches, write_partitions
from benchmarks.native import demand_native
from benchmarks.rows import MIB, Row, parse_options, print_machine, run
from benchmarks.storage import serve

WAIT_MS, RATE = 50, 64_000_000
PARTITIONS, SEGMENTS, SEGMENT_BYTES = 8, 6, 16 * MIB
MANY = 1000
READ_AHEAD = 256 * MIB
SHAPE, SMALL_SHAPE = Shape("1 KiB", 1024), Shape("100 B", 100)
SMALL_BATCH = 4096
TIMES_ONE_STREAM = {8: 6.0, 16: 9.0}


class Bench:
    """The server, and how a process of its own is asked to read from it."""

    def __init__(self, endpoint: str, root: Path) -> None:
        self.endpoint, self.root = endpoint, root
        self._unknown: set[str] = set()

    def read(self, bucket: str, what: str = "read", *, how: dict[str, int] | None = None, **request: Any) -> Any:
        """What ``bucket_read`` measures."""
        asked = {
            "endpoint": self.endpoint,
            "bucket": bucket,
            "request": request,
            "how": {"in_flight": 8} if how is None else how,
            "what": what,
        }
        command = [sys.executable, "-m", "benchmarks.bucket_read", json.dumps(asked)]
        facts = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
        if new := set(facts["unknown"]) - self._unknown:
            print(f"this scan has no options {', '.join(sorted(new))}: its own defaults are measured")
            self._unknown |= new
        return facts

    def counts(self) -> dict[str, int]:
        """Requests since the last time, by kind."""
        connection = self._connection()
        connection.request("GET", "/.counts")
        counts: dict[str, int] = json.loads(connection.getresponse().read())
        connection.close()
        return counts

    def bare_s(self, bucket: str, connections: int, objects: int) -> float:
        """Wall of reading whole logs, one GET each, with ``http.client`` into buffers that are used again."""
        logs = sorted((self.root / bucket).rglob("*.log"))[:objects]

        def read_share(index: int) -> None:
            connection, buffer = self._connection(), memoryview(bytearray(MIB))
            for log in logs[index::connections]:
                connection.request("GET", "/" + quote(log.relative_to(self.root).as_posix()))
                answer = connection.getresponse()
                size = 0
                while got := answer.readinto(buffer):
                    size += got
                if size != log.stat().st_size:
                    raise ValueError("the server does not send all of an object")
            connection.close()

        began = time.perf_counter()
        with ThreadPoolExecutor(connections) as threads:
            list(threads.map(read_share, range(connections)))
        return time.perf_counter() - began

    def _connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self.endpoint.removeprefix("http://"))


def measure_rate(bench: Bench, codec: str, rounds: int) -> Iterator[Row]:
    """The whole topic by ``scan``, in turn with one bare stream; before it, what the server can give."""
    bucket = f"large-{codec}"
    batches = make_batches(SHAPE, SEGMENTS * SEGMENT_BYTES // (1 if codec == "none" else 8), BATCH_BYTES)
    if codec != "none":  # as many batches as fill a segment once they are compressed
        stored = sum(len(CODECS[codec](batch)) for batch in batches)
        batches *= max(1, round(SEGMENTS * SEGMENT_BYTES / stored))
    records = PARTITIONS * write_partitions(bench.root / bucket, PARTITIONS, SEGMENTS, batches, codec)
    logs = PARTITIONS * SEGMENTS
    stored = sum(log.stat().st_size for log in (bench.root / bucket).rglob("*.log"))
    times: dict[int, list[dict[str, Any]]] = {count: [] for count in (1, *TIMES_ONE_STREAM)}
    bare: dict[int, list[float]] = {1: [], max(TIMES_ONE_STREAM): []}
    for _ in range(rounds):
        for connections in bare:
            objects = max(logs // 4, 1) if connections == 1 else logs
            bare[connections].append(stored * objects / logs / bench.bare_s(bucket, connections, objects) / 1e6)
        for in_flight in times:
            if in_flight == 1 and times[1]:
                continue  # takes long, and is for comparison
            how = {"in_flight": in_flight, "threads": in_flight, "read_ahead_bytes": READ_AHEAD}
            facts = bench.read(bucket, how=how)
            if facts["rows"] != records:
                raise ValueError("the scan does not return every record")
            times[in_flight].append(facts)
    one = median(bare[1])
    most = max(TIMES_ONE_STREAM)
    ratios = tuple(rate / one for rate in bare[most])
    note = f"{median(bare[most]):.0f} MB/s; one stream {one:.0f}, by the settings {_expected(stored / logs):.0f}"
    name = f"{codec}: bare client, {most} connections / one stream"
    yield Row(name, ratios, TIMES_ONE_STREAM[most], "x", note, is_least=True)
    for in_flight, facts in times.items():
        rates = [stored / fact["wall_s"] / 1e6 for fact in facts]
        note = f"{median(rates):.0f} MB/s, plan included; {facts[0]['cpu_s']:.1f} s CPU"
        ratios = tuple(rate / one for rate in rates)
        target = TIMES_ONE_STREAM.get(in_flight)
        yield Row(f"{codec}: whole scan, {in_flight} in flight / one stream", ratios, target, "x", note, is_least=True)
    firsts = tuple(fact["first_s"] for fact in times[8])
    yield Row(f"{codec}: first record, 8 in flight", firsts, 1, " s", "wall from scan(), imports done")
    for in_flight in TIMES_ONE_STREAM:
        peaks = tuple(fact["peak"] / MIB for fact in times[in_flight])
        target = (READ_AHEAD + 64 * MIB) / MIB
        yield Row(f"{codec}: memory over imports, {in_flight} in flight", peaks, target, " MiB")


def _expected(object_bytes: float) -> float:
    """MB/s of one stream, by latency and rate alone."""
    return object_bytes / (WAIT_MS / 1000 + object_bytes / RATE) / 1e6


def measure_plans(bench: Bench, rounds: int) -> Iterator[Row]:
    """Two partitions of a thousand small segments: to plan both, and to read a few records of one."""
    batches = make_batches(SMALL_SHAPE, MANY * SMALL_BATCH, SMALL_BATCH)[:MANY]
    records = write_partitions(bench.root / "many", 2, MANY, batches, "none")
    plans = [bench.read("many", "plan") for _ in range(rounds)]
    note = f"{median(plan['cpu_s'] for plan in plans):.2f} s CPU"
    yield Row(f"plan of 2 x {MANY:,} segments", tuple(plan["wall_s"] for plan in plans), 4, " s", note)
    last_ms = batches[-1].first_timestamp_ms + len(batches[-1].records) - 1
    middle = records // 2
    one = {"offsets": [middle, middle + 1]}
    newest = {"since": last_ms - 9}
    for name, most, wanted, request, place in (
        ("one record by its offset", 12, 1, one, None),
        ("newest 10 ms by time", 20, 10, newest, None),
        ("newest 10 ms by time, and kept in a cache", None, 10, newest, "cache"),
        ("newest 10 ms by time, again, with that cache", 20, 10, newest, "cache"),
        ("one record by its offset, again, with that cache", 12, 1, one, "cache"),
    ):
        with _cache(bench, place):
            before = _warm_up_counts(bench)
            facts = bench.read("many", partitions=[0], **request)
        counts = {kind: count - before.get(kind, 0) for kind, count in bench.counts().items()}
        if facts["rows"] != wanted:
            raise ValueError(f"{name}: {facts['rows']} records, not {wanted}")
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()) if count)
        note = f"{kinds}; {facts['wall_s']:.2f} s, {facts['cpu_s']:.2f} s CPU"
        yield Row(f"requests of {MANY:,} segments: {name}", (sum(counts.values()),), most, "", note)


@contextmanager
def _cache(bench: Bench, place: str | None) -> Iterator[None]:
    """Reading processes that are started meanwhile keep small objects at this place."""
    if place is None:
        yield
        return
    os.environ["SEGREADER_CACHE"] = str(bench.root / f".{place}")
    try:
        yield
    finally:
        del os.environ["SEGREADER_CACHE"]


def _warm_up_counts(bench: Bench) -> dict[str, int]:
    """What the reading process asks for before what is measured: half of what it does where both are the same."""
    bench.counts()
    bench.read("warm")
    return {kind: count // 2 for kind, count in bench.counts().items()}


def measure(bench: Bench, codecs: Sequence[str], rounds: int) -> Iterator[Row]:
    for codec in codecs:
        yield from measure_rate(bench, codec, rounds)
    yield from measure_plans(bench, rounds)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bucket", description="A simulated bucket.")
    parser.add_argument("--rounds", type=int, default=3, help="of what is timed (3)")
    parser.add_argument("--codec", nargs="+", choices=CODECS, default=["none", "lz4"], help="of the large topic")
    arguments = parse_options(parser, rounds=2)
    demand_native()
    print_machine("pyarrow", "urllib3", "boto3")
    with tempfile.TemporaryDirectory(prefix="segreader-bench-") as place:
        write_partitions(Path(place) / "warm", 1, 1, make_batches(SMALL_SHAPE, SMALL_BATCH, SMALL_BATCH), "none")
        with serve(Path(place), f"wait_ms={WAIT_MS}&rate={RATE}") as endpoint:
            bench = Bench(endpoint, Path(place))
            run(measure(bench, arguments.codec, arguments.rounds), arguments.json)


if __name__ == "__main__":
    main()
