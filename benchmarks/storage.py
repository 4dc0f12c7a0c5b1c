"""What reading over HTTP costs beside the bare connection, and what it gains: ``make bench-storage``.

Everything is paired in one run against servers on loopback. What is measured, and how to read the table, is in
benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any

import urllib3

from benchmarks.inputs import SHAPES, write_inputs
from benchmarks.rows import MIB, Row, parse_options, print_machine, run
from benchmarks.storage_urls import ListedSource, Urls, open_store
from segreader.plan.request import Bounds, Request
from segreader.ranges import ByteRange
from segreader.scans import Scan
from segreader.storage.http.store import HttpStore

GIB = 1 << 30
OBJECT = "object.log"
OBJECT_SIZE = 512 * MIB
PACED_SIZE = GIB
PACED_RATE = 64_000_000
LATE_REQUESTS, LATE_SIZE, LATE_AT_ONCE = 1000, 64 << 10, 8
BODY_SIZE = 16 * MIB
FLAT_BYTES = 8 * MIB


@contextlib.contextmanager
def serve(root: Path, query: str = "") -> Iterator[str]:
    """The endpoint of our own server over a directory, in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.storage_server", str(root), query]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.terminate()


@contextlib.contextmanager
def serve_fast(directory: Path) -> Iterator[tuple[str, Path, str]]:
    """Endpoint, served directory and name of the quickest server there is: nginx, or else our own."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
    from servers.nginx import nginx
    from servers.process import NotAvailableError

    with contextlib.ExitStack() as stack:
        try:
            server = stack.enter_context(nginx(directory))
            found = server.endpoint, server.root, "nginx"
        except NotAvailableError as error:
            print(f"{error}; our own server stands in")
            root = directory / "served"
            root.mkdir(exist_ok=True)
            found = stack.enter_context(serve(root)), root, "benchmarks.storage_server"
        yield found


def drain(store: HttpStore, name: str, size: int) -> None:
    if sum(len(piece) for piece in store.read_pieces(name, ByteRange(0, size))) != size:
        raise ValueError("the store does not read all of the object")


def bare_reader(url: str, size: int, range_size: int, in_flight: int, is_raw: bool) -> Callable[[], None]:
    """The same ranges through urllib3's ``readinto``, or ``http.client``'s below it, and nothing checked."""
    pool = urllib3.PoolManager(maxsize=in_flight)
    buffers = [bytearray(range_size) for _ in range(in_flight)]
    workers = ThreadPoolExecutor(in_flight)

    def read_share(index: int) -> None:
        view = memoryview(buffers[index])
        for start in range(index * range_size, size, in_flight * range_size):
            headers = {"Range": f"bytes={start}-{start + range_size - 1}", "Accept-Encoding": "identity"}
            response = pool.request("GET", url, headers=headers, preload_content=False)
            source: Any = response._fp if is_raw else response  # type: ignore[attr-defined]
            done = 0
            while count := source.readinto(view[done:]):
                done += count
            if done != range_size:
                raise ValueError("the bare loop does not read all of a range")
            response.release_conn()

    def read() -> None:
        for _ in workers.map(read_share, range(in_flight)):
            pass

    return read


def measure_cpu(endpoint: str, rounds: int) -> Iterator[Row]:
    """CPU of the process, all its threads, for the same ranges; the three take turns."""
    for in_flight, range_size in ((1, 16 * MIB), (8, 8 * MIB)):
        url = Urls(endpoint).text(OBJECT)
        with open_store(Urls(endpoint), range_size=range_size, in_flight=in_flight) as store:
            work: dict[str, Callable[[], None]] = {
                "ours": partial(drain, store, OBJECT, OBJECT_SIZE),
                "urllib3": bare_reader(url, OBJECT_SIZE, range_size, in_flight, False),
                "http.client": bare_reader(url, OBJECT_SIZE, range_size, in_flight, True),
            }
            times: dict[str, list[float]] = {name: [] for name in work}
            for index in range(-1, rounds):
                for name in work if index % 2 else reversed(work):
                    began = time.process_time()
                    work[name]()
                    if index >= 0:  # the first round warms up
                        times[name].append(time.process_time() - began)
        shape = f"{in_flight}x{range_size // MIB} MiB"
        note = ", ".join(f"{name} {median(of) / OBJECT_SIZE * GIB:.2f}" for name, of in times.items()) + " s/GiB"
        for name, target in (("urllib3", 1.10), ("http.client", None)):
            ratios = tuple(ours / bare for ours, bare in zip(times["ours"], times[name], strict=True))
            yield Row(f"CPU / {name} readinto, {shape}", ratios, target, unit="x", note=note if target else "")


def measure_speedup(endpoint: str, rounds: int) -> Iterator[Row]:
    """Wall time of one stream by that of several, each connection held to 64 MB/s."""
    times: dict[int, list[float]] = {1: [], 8: [], 16: []}
    urls = Urls(endpoint, query=f"rate={PACED_RATE}")
    for index in range(rounds):
        for in_flight in times if index % 2 == 0 else reversed(times):
            with open_store(urls, in_flight=in_flight) as store:
                began = time.perf_counter()
                drain(store, "sparse.log", PACED_SIZE)
                times[in_flight].append(time.perf_counter() - began)
    for in_flight, target in ((8, 6), (16, 8)):
        ratios = tuple(one / many for one, many in zip(times[1], times[in_flight], strict=True))
        note = f"{PACED_SIZE / median(times[in_flight]) / 1e6:.0f} MB/s; one: {PACED_SIZE / median(times[1]) / 1e6:.0f}"
        yield Row(f"wall, 64 MB/s a connection, {in_flight} in flight", ratios, target, "x", note, is_least=True)


def measure_hedging(endpoint: str, rounds: int) -> Iterator[Row]:
    """The 99th hundredth of waits for 64 KiB ranges, 3 % of whose answers are 1.5 s late."""

    def read_all(seed: str, share: float) -> tuple[float, float]:
        waits: list[float] = []
        urls = Urls(endpoint, query=f"late=0.03&late_s=1.5&seed={seed}")
        with open_store(urls, in_flight=LATE_AT_ONCE, hedge_share=share) as store:

            def read_one(index: int) -> None:
                start = index * LATE_SIZE
                began = time.perf_counter()
                store.read_ranges(OBJECT, [ByteRange(start, start + LATE_SIZE)])
                waits.append(time.perf_counter() - began)

            with ThreadPoolExecutor(LATE_AT_ONCE) as threads:
                list(threads.map(read_one, range(LATE_REQUESTS)))
            return sorted(waits)[int(0.99 * LATE_REQUESTS)], store.metrics.requests / LATE_REQUESTS

    pairs = []
    for index in range(rounds):
        turns = {}
        for name, share in (("off", 0.0), ("on", 0.05)) if index % 2 == 0 else (("on", 0.05), ("off", 0.0)):
            turns[name] = read_all(f"{index}-{name}", share)
        pairs.append((turns["on"], turns["off"]))
    waits = [f"{1000 * median(side[0] for side in sides):.0f} ms" for sides in zip(*pairs, strict=True)]
    ratios = tuple(on[0] / off[0] for on, off in pairs)
    extra = tuple(100 * (on[1] / off[1] - 1) for on, off in pairs)
    yield Row("p99 hedged / not, 3 % are 1.5 s late", ratios, 0.25, unit="x", note=" by ".join(waits))
    yield Row("GETs more with hedging", extra, 5, unit=" %")


def measure_memory(endpoint: str, gib: int) -> Iterator[Row]:
    """Peak of a process that reads an object of zeros, by its end and between its first GiB and its end."""
    command = [sys.executable, "-m", "benchmarks.storage_peak", endpoint, "sparse.log", str(gib * GIB)]
    began = time.perf_counter()
    peaks = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    note = f"{gib * GIB / (time.perf_counter() - began) / 1e6:.0f} MB/s"
    target = (8 * BODY_SIZE + 150_000_000) / 1e6
    yield Row(f"peak over imports, {gib} GiB, 8x16 MiB", (peaks[-1] / 1e6,), target, unit=" MB", note=note)
    yield Row("peak's growth after the first GiB", ((peaks[-1] - peaks[0]) / 1e6,), FLAT_BYTES / 1e6, unit=" MB")


def measure_scan(endpoint: str, root: Path) -> Iterator[Row]:
    """Bytes and requests of a scan of one segment that a listing shows."""
    source = write_inputs(root / "tiered", SHAPES[1], ["none"], 160 * MIB)["none"]
    urls, prefix = Urls(endpoint, root), "tiered/none/"
    got: list[int] = []

    def read(first: int | None = None, stop: int | None = None) -> tuple[Scan, dict[str, int], int]:
        scan = Scan(ListedSource(urls, prefix), Request(bounds=Bounds(first, stop)))
        store = scan.store
        assert isinstance(store, HttpStore)
        rows = sum(batch.num_rows for batch in scan.to_batches())
        store.close()
        suffixes = [line.split()[1].rpartition(".")[2] for line in store.metrics.log or []]
        got.append(store.metrics.bytes_got)
        return scan, {suffix: suffixes.count(suffix) for suffix in sorted(set(suffixes))}, rows

    scan, requests, rows = read()
    if rows != source.records:
        raise ValueError("the scan does not return every record")
    fetched = got[0] / source.stored_bytes
    yield Row("bytes fetched / segment, full read", (fetched,), 1.02, unit="x", note=_shown(requests))
    plain = -(-source.stored_bytes // BODY_SIZE)
    note = f"{plain} ranges of 16 MiB, {len(scan.plan().splits)} splits that each begin their own"
    yield Row("body GETs, full read", (requests["log"],), None, note=note)

    first, stop = source.records // 4, source.records * 3 // 4
    scan, requests, rows = read(first, stop)
    if rows != stop - first:
        raise ValueError("the scan does not return the records between two offsets")
    span = sum(split.positions.stop - split.positions.start for split in scan.plan().splits)
    note = f"{_shown(requests)}; {span / MIB:.0f} MiB"
    yield Row("index GETs, half a segment", (requests.get("index", 0),), 1, note=note)
    yield Row("body GETs, half a segment", (requests["log"],), -(-span // BODY_SIZE))
    others = sum(count for suffix, count in requests.items() if suffix not in ("index", "log"))
    yield Row(
        "other GETs, half a segment", (others,), None, note="size and body of the producer snapshot, for read_committed"
    )


def _shown(requests: dict[str, int]) -> str:
    return ", ".join(f"{suffix} {count}" for suffix, count in requests.items())


def write_objects(root: Path, gib: int) -> None:
    """A dense object, and one of zeros that takes no space."""
    block = os.urandom(BODY_SIZE)
    with (root / OBJECT).open("wb") as file:
        for _ in range(OBJECT_SIZE // BODY_SIZE):
            file.write(block)
    with (root / "sparse.log").open("wb") as file:
        file.truncate(max(gib * GIB, PACED_SIZE))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.storage", description="Reading over HTTP.")
    parser.add_argument("--rounds", type=int, default=7, help="pairs of the CPU figures (7)")
    parser.add_argument("--wall-rounds", type=int, default=3, help="pairs of the figures of waits (3)")
    parser.add_argument("--gib", type=int, default=10, help="size of the read whose memory is measured (10)")
    arguments = parse_options(parser)
    with tempfile.TemporaryDirectory(prefix="segreader-bench-") as place, serve_fast(Path(place)) as fast:
        endpoint, root, name = fast
        print_machine("urllib3")
        print(f"served by {name}")
        write_objects(root, arguments.gib)
        with serve(root) as slow:
            figures = chain(
                measure_cpu(endpoint, arguments.rounds),
                measure_speedup(slow, arguments.wall_rounds),
                measure_hedging(slow, arguments.wall_rounds),
                measure_memory(endpoint, arguments.gib),
                measure_scan(endpoint, root),
            )
            run(figures, arguments.json, server=name)


if __name__ == "__main__":
    main()
