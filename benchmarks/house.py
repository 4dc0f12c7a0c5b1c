"""Measures what a newcomer must hold in their head: the files that one read enters, and how much there is of it all.

python -m benchmarks.house

A file counts as entered when a function of it runs while the work is done a second time in one process: what importing
runs does not count. Nothing needs Java or brokers: the Spark read is the data source's own work, driver and tasks.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import logging
import pickle
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import grimp

import segreader

ROOT = Path(segreader.__file__).parents[1]
PACKAGE = ROOT / "segreader"
CORPUS = str(ROOT / "fixtures/corpus/tv2/remote")
TOPIC = "txn-span"
MOST_ENTRIES = 15


def main() -> None:
    """Print the figures as a table."""
    logging.disable()
    paths = sorted(path for path in PACKAGE.rglob("*.py") if PACKAGE / "testing" not in path.parents)
    graph = grimp.build_graph("segreader")
    rows: list[tuple[str, object]] = [
        ("files a local `scan()` enters (open, plan, read)", len(entered(scan_locally))),
        ("files a Spark read enters", len(entered(read_for_spark))),
        ("files a flagged Fetch enters in the gateway", len(entered_by_a_flagged_fetch())),
        ("modules without the test kit", len(paths)),
        ("lines without the test kit", sum(len(path.read_text().splitlines()) for path in paths)),
        ("circles of imports inside packages", sum(bool(_breakers(graph, one)) for one in _packages(graph))),
        ("class names that exist twice", sum(count > 1 for count in Counter(class_names()).values())),
        (f"folders with more than {MOST_ENTRIES} entries", _shown(large_folders())),
    ]
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"| {name:{width}} | {value} |")
    if "-v" in sys.argv:
        print(*sorted(entered(scan_locally)), "", *sorted(entered_by_a_flagged_fetch()), sep="\n")


def scan_locally() -> None:
    """Read a topic with transactions from a directory."""
    for _ in segreader.scan(CORPUS, topic=TOPIC).to_batches():
        pass


def read_for_spark() -> None:
    """What the driver and a task of Spark do for the same topic."""
    from segreader.spark.source import SegmentSource

    source = SegmentSource({"location": CORPUS, "subscribe": TOPIC})
    reader = source.reader(source.schema())
    for partition in reader.partitions():
        task, mine = pickle.loads(pickle.dumps((reader, partition)))
        for _ in task.read(mine):
            pass


def entered_by_a_flagged_fetch() -> set[str]:
    """The files that a gateway enters to give a location to a client that it knows.

    The broker is the tests' leader, whose answers are recorded while the same is done for the first time.
    """
    sys.path.insert(0, str(ROOT / "tests/support"))
    from gateway_upstream import relayed
    from located_broker import Leader, flagged, located_over

    from segreader.gateway.remote.signing import BaseUrlSigner

    leader, recorded = Leader(), dict[bytes, bytes]()

    def answer(request: bytes) -> bytes:
        correlation_id, known = request[4:8], request[:4] + request[8:]
        if known not in recorded:
            recorded[known] = leader(request)
        return recorded[known][:4] + correlation_id + recorded[known][8:]

    with tempfile.TemporaryDirectory() as root, asyncio.Runner() as runner:
        signer = BaseUrlSigner("https://bucket.example", life_s=900)
        located = located_over(Path(root), signer=signer)
        with contextlib.closing(located.catalogue):
            gateway = relayed(answer, locating=located.fetch)
            around, frame = runner.run(gateway.__aenter__()), flagged((0, 142))
            found = entered(lambda: runner.run(around.client.ask(frame)))
            runner.run(gateway.__aexit__(None, None, None))
        assert located.metrics.locations_given == 2
    return found


def entered(work: Callable[[], object]) -> set[str]:
    """The files of the library of which a function runs in any thread while the work is done."""
    found: set[str] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            found.add(frame.f_code.co_filename)

    work()
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return {str(Path(name).relative_to(ROOT)) for name in found if name.startswith(f"{PACKAGE}/")}


def class_names() -> Iterator[str]:
    """The name of each class of the library."""
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.ClassDef):
                yield node.name


def large_folders() -> dict[str, int]:
    """How many entries the folders with more than enough of them show."""
    folders = [PACKAGE, *(path.parent for path in PACKAGE.rglob("*/__init__.py"))]
    counts = {str(folder.relative_to(ROOT)): entries(folder) for folder in folders}
    return {folder: count for folder, count in sorted(counts.items()) if count > MOST_ENTRIES}


def entries(folder: Path) -> int:
    """Modules and packages in a folder, itself not counted."""
    modules = [path for path in folder.iterdir() if path.suffix in (".py", ".pyx") and path.name != "__init__.py"]
    return len(modules) + sum((path / "__init__.py").exists() for path in folder.iterdir() if path.is_dir())


def _packages(graph: grimp.ImportGraph) -> list[str]:
    return [module for module in graph.modules if graph.find_children(module)]


def _breakers(graph: grimp.ImportGraph, package: str) -> set[tuple[str, str]]:
    return graph.nominate_cycle_breakers(package)


def _shown(counts: dict[str, int]) -> str:
    return f"{len(counts)}: " + ", ".join(f"{folder} {count}" for folder, count in counts.items())


if __name__ == "__main__":
    main()
