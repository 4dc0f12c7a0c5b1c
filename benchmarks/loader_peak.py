"""What many open, half-read readers of one pool hold; run in a process of its own, on one core.

``python -m benchmarks.loader_peak LOCATION READERS`` prints as JSON how far they raised the process's peak over its
imports, and how long it took: each read to the middle of its split one after another, and then all by turns.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time

from benchmarks.native import demand_native
from benchmarks.peak import peak_bytes
from segreader.loader import LoaderSplit, LoadQuery, ReaderPool, ResumableReader, SplitEnumerator

SPLIT_BYTES = 16 << 20
_PORTION = 1000
_TURNS = 2
_WAIT_S = 60.0


def to_the_middle(reader: ResumableReader, timeout: float | None) -> None:
    """Read a split half, and not to the end of a record batch."""
    middle = (reader.split.start + reader.split.stop) // 2
    while reader.next_offset < middle:
        reader.read(max_rows=_PORTION, timeout=timeout)


def held(splits: list[LoaderSplit], query: LoadQuery, readers: int, timeout: float | None) -> dict[str, float]:
    """Open so many readers, read each to the middle, then all by turns, and hold them to the end."""
    began = time.perf_counter()
    with ReaderPool(query) as pool:
        opened = [pool.open(splits[number % len(splits)]) for number in range(readers)]
        for reader in opened:
            to_the_middle(reader, timeout)
        halves, began = time.perf_counter() - began, time.perf_counter()
        for _ in range(_TURNS):
            for reader in opened:
                reader.read(max_rows=_PORTION, timeout=timeout)
        if any(reader.is_finished or reader.next_offset <= reader.split.start for reader in opened):
            raise RuntimeError("a reader is not in the middle of its split")
        return {"halves_s": halves, "turn_ms": 1000 * (time.perf_counter() - began) / _TURNS / readers}


def main() -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))  # nor may each hold a file
    demand_native()
    query = LoadQuery(location=sys.argv[1], split_bytes=SPLIT_BYTES)
    with SplitEnumerator(query) as enumerator:
        splits = enumerator.discover()
    before = peak_bytes()
    result: dict[str, float] = {"splits": len(splits)}
    for name, timeout in (("", None), ("ahead_", _WAIT_S)):
        times = held(splits, query, int(sys.argv[2]), timeout)
        result |= {name + key: value for key, value in times.items()}
        result[f"{name}peak_bytes"] = peak_bytes() - before
    print(json.dumps(result))


if __name__ == "__main__":
    main()
