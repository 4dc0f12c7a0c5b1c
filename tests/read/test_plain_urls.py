"""Lists of plain URLs, without snapshots: what a Java consumer was given, and each byte of small logs once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from corpus import Case, NormalRecord, cases, normal
from sample import sampled

import segreader
from segreader.storage.http import store as url_store
from segreader.storage.metrics import metrics_of
from segreader.testing.builder import SegmentBuilder

PLAIN = [case for case in cases("tv2", remote=True) if case.topic.startswith(("txn", "codec", "multi"))]

SHAPES = ("txn-span", "txn-interleaved", "codec-zstd", "multi")


class Files(ThreadingHTTPServer):
    """Serves ranges of files, and counts the bytes of bodies by name."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files = files
        self.sent: dict[str, int] = dict.fromkeys(files, 0)
        self.lock = threading.Lock()

    def scan(self, **arguments: Any) -> Any:
        place = f"http://127.0.0.1:{self.server_address[1]}"
        options = {"allow_hosts": place, "allow_private": True, "allow_http": True, "in_flight": 2}
        return segreader.scan(urls=[f"{place}/{name}" for name in self.files], storage_options=options, **arguments)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Files

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        name = self.path[1:]
        data = self.server.files[name]
        first, _, last = self.headers["Range"].removeprefix("bytes=").partition("-")
        start, stop = int(first), min(int(last) + 1, len(data))
        self.send_response(206 if start < stop else 416)
        self.send_header("Content-Length", str(max(0, stop - start)))
        self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{len(data)}" if start < stop else "bytes */0")
        self.send_header("ETag", f'"{hash(data)}"')
        self.end_headers()
        self.wfile.write(data[start:stop])
        with self.server.lock:
            self.server.sent[name] += max(0, stop - start)


@contextmanager
def serving(files: dict[str, bytes]) -> Iterator[Files]:
    server = Files(files)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def plain_logs(case: Case, *kinds: str) -> dict[str, bytes]:
    """The remote files of a topic under the names of a log directory: no id, and no snapshot."""
    found = {}
    for directory in case.remote:
        partition = directory.name.removesuffix(f"-{case.topic_id}")
        for path in directory.iterdir():
            stem, _, kind = path.name.partition(".")
            if kind in kinds:
                found[f"{partition}/{stem[:20]}.{kind}"] = path.read_bytes()
    return found


def by_partition(rows: list[NormalRecord]) -> dict[int, list[NormalRecord]]:
    found: dict[int, list[NormalRecord]] = {}
    for row in rows:
        found.setdefault(row.partition, []).append(row)
    return found


@pytest.mark.parametrize("kinds", [("log",), ("log", "index", "timeindex", "txnindex")], ids=["logs", "with indexes"])
@pytest.mark.parametrize("case", sampled(PLAIN, lambda case: case.topic in SHAPES), ids=str)
def test_plain_urls_give_what_a_consumer_was_given(case: Case, kinds: tuple[str, ...]) -> None:
    with serving(plain_logs(case, *kinds)) as server:
        for level in ("committed", "uncommitted"):
            stop = case.offline_lso if level == "committed" else case.remote_stop
            expected = by_partition([row for row in case.truth(level) if row.offset < stop(row.partition)])
            for threads in (1, 2, 8):
                with server.scan(isolation_level=f"read_{level}", threads=threads) as scan:
                    assert by_partition([normal(record) for record in scan.records()]) == expected


def bare_logs() -> dict[str, bytes]:
    """Four logs of 300 KB without anything beside them, with a transaction across each border."""
    files, segment = {}, SegmentBuilder(0)
    for number in range(4):
        if number:
            segment.marker(7, abort=bool(number % 2))
        for _ in range(30):
            segment.batch([b"x" * 1000] * 10)
        segment.batch([b"of a transaction"], producer_id=7, transactional=True)
        files[f"orders-0/{segment.base_offset:020d}.log"] = segment.to_bytes()
        segment = segment.roll()
    return files


def rows_in(scan: segreader.Scan) -> int:
    return sum(batch.num_rows for batch in scan.to_batches())


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_each_byte_of_bare_logs_is_fetched_once(level: str) -> None:
    with serving(bare_logs()) as server, server.scan(isolation_level=level) as scan:
        count = rows_in(scan)
        metrics = metrics_of(scan.store)
    assert count == 4 * 300 + (1 if level == "read_committed" else 4)
    assert metrics is not None
    assert metrics.bytes_got == sum(map(len, server.files.values()))
    repeated = metrics.hedges + metrics.retries  # on a busy machine
    assert metrics.requests - repeated == 2 * 4  # the first bytes of each, which tell its size, and the others


def test_what_is_too_much_to_keep_is_fetched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(url_store, "_MOST_KEPT", 500_000)
    with serving(bare_logs()) as server, server.scan() as scan:
        assert rows_in(scan) == 1201
    assert sum(server.sent.values()) > sum(map(len, server.files.values()))


def test_a_log_that_was_replaced_since_it_was_looked_at_is_read_as_it_was() -> None:
    with serving(bare_logs()) as server, server.scan() as scan:
        scan.plan()
        for name, data in server.files.items():
            server.files[name] = data[:-1] + bytes([data[-1] ^ 1])
        assert rows_in(scan) == 1201


def test_small_and_empty_logs_are_whole() -> None:
    files = bare_logs()
    last = SegmentBuilder(1207).batch([b"x"] * 3)
    files[f"orders-0/{last.base_offset:020d}.log"] = last.to_bytes()
    files[f"orders-0/{last.next_offset:020d}.log"] = b""
    with serving(files) as server, server.scan(isolation_level="read_uncommitted", on_gap="skip") as scan:
        assert rows_in(scan) == 1207
        metrics = metrics_of(scan.store)
    assert metrics is not None
    assert metrics.bytes_got == sum(map(len, files.values()))
