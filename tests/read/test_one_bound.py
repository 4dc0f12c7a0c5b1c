"""Every reader of logs holds ``read_ahead_bytes`` at most, and a constant: over HTTP, fsspec and local files."""

from __future__ import annotations

import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pytest
from backfill_runs import plan_into, request
from sample import exhaustive

from segreader.backfill.output import OutputOptions
from segreader.backfill.task import do_split
from segreader.backfill.writer import SplitWriter
from segreader.cli.summary import read_summaries
from segreader.loader import LoadQuery, ReaderPool, SplitEnumerator
from segreader.plan.request import ReadOptions
from segreader.plan.split import Split
from segreader.ranges import ByteRange
from segreader.read import plan_reader
from segreader.read.ahead import ReadAhead
from segreader.read.plan_reader import PlanReader
from segreader.read.split_reader import SplitReader
from segreader.storage.base import FetchBudget, Fetched, ObjectInfo, ObjectStore, RangeWindow, StoreView, fetching
from segreader.storage.cloud.fsspec_store import FsspecStore
from segreader.storage.http import store as http_store
from segreader.storage.http.settings import HttpSettings
from segreader.storage.http.store import HttpStore
from segreader.storage.local import LocalStore
from segreader.storage.signed_url import SignedUrl
from segreader.storage.target.store import open_target
from segreader.stored.source import LocationSource
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import local_tiered_files, write_files
from segreader.testing.stores import MemoryStore
from segreader.verify.verify import verify

MIB = 1 << 20
MOST = 32 * MIB
SLACK = 12 * MIB
"""Buffers that a read keeps for its next batches, and the batch in hand."""

RANGE, IN_FLIGHT = MIB, 16
SEGMENTS, SEGMENT = 8, 16 * MIB
RECORDS = SEGMENTS * 16 * 8
"""Without a bound, a store has all of a segment under way: 128 MiB of eight at a time."""


@pytest.fixture(scope="module")
def files() -> dict[str, bytes]:
    segment, some = SegmentBuilder(0), []
    for _ in range(SEGMENTS):
        for _ in range(16):
            segment.batch([bytes(SEGMENT // 128)] * 8)
        some.append(segment)
        segment = segment.roll()
    return dict(local_tiered_files("orders", some))


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        data = self.server.files[self.path[1:]]  # type: ignore[attr-defined]
        first, _, last = self.headers["Range"].removeprefix("bytes=").partition("-")
        start, stop = int(first), min(int(last) + 1, len(data))
        self.send_response(206)
        self.send_header("Content-Length", str(stop - start))
        self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{len(data)}")
        self.send_header("ETag", f'"{len(data)}"')
        self.end_headers()
        self.wfile.write(memoryview(data)[start:stop])


class Urls:
    """URLs of the files, and their names."""

    def __init__(self, base: str, files: dict[str, bytes]) -> None:
        self._base, self._files = base, files

    def url_for(self, name: str) -> SignedUrl:
        return SignedUrl(f"{self._base}/{name}")

    def refresh(self, name: str) -> SignedUrl:
        return self.url_for(name)

    def names(self, prefix: str = "") -> Iterator[ObjectInfo]:
        yield from (ObjectInfo(name, len(data)) for name, data in self._files.items())


@pytest.fixture(params=["http", "fsspec", "local"])
def place(request: pytest.FixtureRequest, files: dict[str, bytes], tmp_path: Path) -> Iterator[ObjectStore | str]:
    """A store; or, of local files, where they are."""
    if request.param == "local":
        write_files(tmp_path / "tier", files)
        yield str(tmp_path / "tier")
    elif request.param == "fsspec":
        write_files(tmp_path / "tier", files)
        system, root = fsspec.filesystem("file"), f"{tmp_path}/tier/"
        with closing(FsspecStore(system, "file://", root=root, piece_size=RANGE, in_flight=IN_FLIGHT)) as store:
            yield store
    else:
        server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        server.daemon_threads = True
        server.files = files  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        settings = HttpSettings(range_size=RANGE, in_flight=IN_FLIGHT, hedge_share=0, allow_http=True)
        with HttpStore(Urls(f"http://127.0.0.1:{server.server_address[1]}", files), settings=settings) as http:
            yield http
        server.shutdown()
        server.server_close()


class Slow:
    """A store whose readers stop for a while behind the first piece of a log: it may read ahead as far as it likes."""

    def __init__(self, inner: ObjectStore) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def close(self) -> None:
        """Stay open for the next reader."""

    def read_pieces(self, name: str, wanted: ByteRange, **expected: Any) -> Iterator[memoryview]:
        with closing(self.inner.read_pieces(name, wanted, **expected)) as pieces:
            for number, piece in enumerate(pieces):
                if number == 1 and wanted.size > 4 * MIB:
                    time.sleep(0.25)
                yield piece


def source_of(place: ObjectStore | str) -> LocationSource:
    store = LocalStore(Path(place)) if isinstance(place, str) else place
    return LocationSource("memory://", opened=(Slow(store), ""))  # type: ignore[arg-type]


def verified(place: ObjectStore | str, options: ReadOptions) -> None:
    assert list(verify(source_of(place), deep=True, options=options)) == []


def inspected(place: ObjectStore | str, options: ReadOptions) -> None:
    source = source_of(place)
    segments = [segment for known in source.logs() for segment in known.log.segments]
    with closing(read_summaries(source.store, segments, ReadAhead.of(source.store, options))) as found:
        assert sum(isinstance(one, int) for one in found) >= SEGMENTS


def mapped(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """The most bytes that ranges over HTTP had lent at a time: they are no memory of Python's."""
    lent = most = 0
    lock = threading.Lock()  # ranges are fetched by several threads
    take, give = http_store._Buffers.take, http_store._Buffers.give

    def taken(self, size):  # type: ignore[no-untyped-def]
        nonlocal lent, most
        buffer = take(self, size)
        with lock:
            lent += len(buffer)
            most = max(most, lent)
        return buffer

    def given(self, buffer):  # type: ignore[no-untyped-def]
        nonlocal lent
        with lock:
            lent -= len(buffer)
        give(self, buffer)

    monkeypatch.setattr(http_store._Buffers, "take", taken)
    monkeypatch.setattr(http_store._Buffers, "give", given)
    return lambda: most


def peak_of(work: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        work()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("number", [1, exhaustive(2), 8])
@pytest.mark.parametrize("reads", [verified, inspected])
def test_whole_logs_are_read_within_the_bound(
    place: ObjectStore | str,
    reads: Callable[[ObjectStore | str, ReadOptions], None],
    number: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    most_mapped = mapped(monkeypatch)
    peak = peak_of(lambda: reads(place, ReadOptions(threads=number, read_ahead_bytes=MOST)))
    assert peak + most_mapped() <= MOST + SLACK
    assert most_mapped() <= MOST // 2


@pytest.mark.parametrize("open_at_once", [1, 4])
def test_readers_of_a_pool_share_one_bound(
    place: ObjectStore | str, open_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = source_of(place)
    monkeypatch.setattr(LoadQuery, "open", lambda *_: source)
    query = LoadQuery(location="memory://", topic="orders", read_ahead_bytes=MOST, batch_bytes=MIB)
    with SplitEnumerator(query) as enumerator:
        splits = enumerator.discover()
    assert len(splits) == SEGMENTS
    most_mapped = mapped(monkeypatch)

    def read() -> None:
        with ReaderPool(query, max_open=open_at_once) as pool:
            readers = [pool.open(split) for split in splits[:4]]
            for _ in range(3):
                for reader in readers:
                    assert reader.read() is not None
            time.sleep(0.3)  # what they may have under way arrives

    peak = peak_of(read)
    assert peak + most_mapped() <= MOST + SLACK
    assert most_mapped() <= MOST // 2


@pytest.mark.parametrize("number", [1, 2])
def test_a_task_of_a_backfill_reads_ahead_of_its_writer_within_the_bound(
    place: ObjectStore | str, files: dict[str, bytes], tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files(tmp_path / "planned", files)
    plan = plan_into(open_target(tmp_path / "plan"), request(tmp_path / "planned", subscribe="orders"))
    (split,) = [one for one in plan.splits if one.start == 0]
    assert isinstance(split.read, Split)
    log = split.read.log.removeprefix("planned/")  # its name in the place, with another time
    split = replace(split, read=replace(split.read, log=log, offset_index=None, following=(), log_tag=None))
    store, most_mapped, write = source_of(place).store, mapped(monkeypatch), SplitWriter.write

    def slow(self: SplitWriter, batch: pa.RecordBatch) -> None:
        time.sleep(0.08)
        write(self, batch)

    monkeypatch.setattr(SplitWriter, "write", slow)
    output = OutputOptions(row_group_bytes=MIB)
    options = ReadOptions(threads=number, read_ahead_bytes=8 * MIB, batch_bytes=MIB)
    peak = peak_of(lambda: do_split(split, store, open_target(tmp_path / "out"), output, options=options))
    assert peak + most_mapped() <= 8 * MIB + SLACK
    assert most_mapped() <= 8 * MIB // min(number, 2)


def test_each_read_has_a_range_and_more_while_the_first_of_the_others_have_room() -> None:
    budget = FetchBudget(16 * MIB, reads=4)
    with fetching(budget):
        one, *others = [RangeWindow(16 * MIB, 100) for _ in range(4)]
    assert {window.range_size for window in (one, *others)} == {2 * MIB}
    assert [one.take() for _ in range(6)] == [True] * 5 + [False]
    assert [window.take() for window in others] == [True] * 3
    assert [window.take() for window in (one, *others)] == [False] * 4
    one.close()
    assert [others[0].take() for _ in range(3)] == [True, True, False]
    for window in others:
        window.close()
    assert budget.take(16 * MIB // 4, is_first=False)


def test_a_read_by_itself_asks_for_what_it_may_hold() -> None:
    for most, size, count in ((None, 16 * MIB, 8), (64 * MIB, 16 * MIB, 4), (4 * MIB, 4 * MIB, 1), (1, MIB, 1)):
        with fetching(most):
            window = RangeWindow(16 * MIB, 8)
        assert window.range_size == size
        assert [window.take() for _ in range(count + 1)] == [True] * count + [False]
        window.give_back()
        assert (window.take(), window.take()) == (True, False)


def test_a_read_has_as_many_ranges_at_once_as_its_bytes_are_for() -> None:
    for at_once in (1, 2, 4):
        with fetching(FetchBudget(16 * MIB, at_once=at_once)):
            window = RangeWindow(16 * MIB, 100)
        assert window.range_size == 16 * MIB // at_once
        assert [window.take() for _ in range(at_once + 1)] == [True] * at_once + [False]


@pytest.mark.parametrize(
    ("threads", "cores", "splits_at_once", "ranges_at_once"),
    [(4, 2, 4, 2), (8, 2, 8, 1), (16, 2, 8, 2), (16, 16, 16, 1)],
)
def test_threads_beyond_the_cores_fetch_ranges_of_few_splits(
    threads: int, cores: int, splits_at_once: int, ranges_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Remote(StoreView):
        range_size = 16 * MIB

    budgets: list[Fetched] = []

    def limit_fetched(reader: SplitReader, most: Fetched) -> None:
        budgets.append(most)

    monkeypatch.setattr(plan_reader, "usable_cores", lambda: cores)
    monkeypatch.setattr(SplitReader, "limit_fetched", limit_fetched)
    reader = PlanReader(Remote(MemoryStore({})), ReadOptions(threads=threads, read_ahead_bytes=256 * MIB))
    reader._share_memory(48)
    assert reader._at_once == splits_at_once
    with fetching(budgets[-1]):
        window = RangeWindow(16 * MIB, 100)
    assert [window.take() for _ in range(ranges_at_once + 1)] == [True] * ranges_at_once + [False]
    assert splits_at_once * ranges_at_once * window.range_size <= 128 * MIB
