"""The fault matrix of storage with read-ahead on: ``scan``, ``cat`` and tables end as with one thread, word for word.

One segment of a partition comes from a server that misbehaves, the others from files.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Generator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from fault_server import FaultServer
from fault_urls import CANARY, open_store
from held_bodies import threads as threads_named
from held_bodies import until
from sample import exhaustive

import segreader
from segreader.cli.main import main
from segreader.errors import SegreaderError
from segreader.ranges import ByteRange
from segreader.storage.local import LocalStore
from segreader.tables.dataset import open_dataset
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import write_local_tiered

MENDED = ["clean", "status-503x2", "rstbefore", "resetmid", "finmid", "cuthead", "chunked", "interim-103x1", "expired"]
WRONG = [
    "status-404x9", "status-403x9", "status-500x99", "retryafters-3600", "finmidforever", "failbehind", "byteatatime",
    "etagchange", "etagchangeignored", "etaggone", "sizechange", "timechange", "weaktagchange", "shrunk", "full200",
    "wrongcr", "nocr", "nototal", "lengthlie", "twolengths", "html200", "multipart", "gzip", "chunked-long", "http10",
    "redirect-host", "bighead", "longhead", "manyheaders", "garbage", "shortok", "empty", "bitflip",
]  # fmt: skip
SAMPLE = ["clean", "resetmid", "expired", "status-404x9", "status-500x99", "finmidforever", "failbehind", "etagchange",
          "wrongcr", "shortok", "garbage", "bitflip"]  # fmt: skip
ROWS = 4 * 600
_numbers = itertools.count()


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("partition")
    segment, some = SegmentBuilder(0), []
    for _ in range(4):
        for number in range(60):
            segment.batch([f"{number:05d}".encode() * 200] * 10)
        some.append(segment)
        segment = segment.roll()
    write_local_tiered(place, "orders", some)
    return place


@pytest.fixture(scope="module")
def server(root: Path) -> Iterator[FaultServer]:
    with FaultServer(sorted(root.rglob("*.log"))[2].read_bytes()) as server:
        yield server


class Faulty:
    """Takes the place of ``LocalStore.read_pieces`` for one log."""

    def __init__(self, server: FaultServer, log: str, scenario: str, monkeypatch: pytest.MonkeyPatch) -> None:
        inner, id = LocalStore.read_pieces, f"run{next(_numbers)}"
        self.id, self.name = id, f"{scenario}/{id}"

        def read_pieces(
            store: LocalStore, name: str, wanted: ByteRange, **expected: Any
        ) -> Generator[memoryview, None, None]:
            if not name.endswith(log) or wanted.size < 500_000:  # planning reads some bytes of the end
                yield from inner(store, name, wanted, **expected)
                return
            settings: dict[str, Any] = {"range_size": 200_000, "tries": 3, "backoff_start_s": 0.001}
            with open_store(server, **settings) as other:
                yield from other.read_pieces(self.name, wanted)

        monkeypatch.setattr(LocalStore, "read_pieces", read_pieces)


def read_by(way: str, root: Path, threads: int, capsysbinary: pytest.CaptureFixture[bytes]) -> tuple[list[int], str]:
    """The offsets that come, and the error behind them."""
    if way == "cat":
        code = int(main(["cat", str(root), "--threads", str(threads), "-o", "ndjson"]))
        out, err = capsysbinary.readouterr()
        return [json.loads(line)["offset"] for line in out.splitlines()], f"{code} {err.decode()}"
    offsets: list[int] = []
    try:
        if way == "scan":
            with segreader.scan(root, threads=threads, batch_rows=50) as scan:
                for batch in scan.to_batches():
                    offsets += batch.column("offset").to_pylist()
        else:
            with closing(open_dataset(root, topic="orders", threads=threads)) as table:
                for batch in table.scanner(columns=["offset", "value"], batch_size=50).to_batches():
                    offsets += batch.column("offset").to_pylist()
    except SegreaderError as error:
        return offsets, f"{type(error).__name__} {error}"
    return offsets, ""


@pytest.mark.parametrize("way", ["scan", "cat", "table"])
@pytest.mark.parametrize("scenario", [one if one in SAMPLE else exhaustive(one) for one in (*MENDED, *WRONG)])
def test_a_fault_is_the_same_for_any_number_of_threads(
    root: Path,
    server: FaultServer,
    scenario: str,
    way: str,
    monkeypatch: pytest.MonkeyPatch,
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    log = sorted(root.rglob("*.log"))[2].name
    found = {}
    for threads in (1, 2, 8):
        with monkeypatch.context() as patch:
            faulty = Faulty(server, log, scenario, patch)
            offsets, error = read_by(way, root, threads, capsysbinary)
        assert CANARY not in error
        found[threads] = offsets, error.replace(faulty.id, "run")
    assert [(len(offsets), error) for offsets, error in found.values()] == 3 * [(len(found[1][0]), found[1][1])]
    assert found[1] == found[2] == found[8]
    offsets, error = found[1]
    assert offsets == list(range(len(offsets)))
    if scenario in MENDED:
        assert len(offsets) == ROWS
    else:
        assert 1200 <= len(offsets) < 1800
        assert error
    assert until(lambda: not threads_named("segreader-read") + threads_named("segreader-http"))
