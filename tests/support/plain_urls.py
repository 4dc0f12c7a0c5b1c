"""Lists of URLs of plain logs, served over HTTP."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from corpus import Case, NormalRecord, cases

import segreader

PLAIN = [case for case in cases("tv2", remote=True) if case.topic.startswith(("txn", "codec", "multi"))]

SHAPES = ("txn-span", "txn-interleaved", "codec-zstd", "multi")


class Files(ThreadingHTTPServer):
    """Serves ranges of files, and counts the bytes of bodies by name."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files = files
        self.most = 1 << 62
        self.sent: dict[str, int] = dict.fromkeys(files, 0)
        self.asked: dict[str, int] = dict.fromkeys(files, 0)
        self.least: dict[str, int] = dict.fromkeys(files, 1 << 62)
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
        start, stop = int(first), min(int(last) + 1, int(first) + self.server.most, len(data))
        self.send_response(206 if start < stop else 416)
        self.send_header("Content-Length", str(max(0, stop - start)))
        self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{len(data)}" if start < stop else "bytes */0")
        self.send_header("ETag", f'"{hash(data)}"')
        with self.server.lock:  # before the client can have it, and the test looks
            self.server.sent[name] += max(0, stop - start)
            self.server.asked[name] += 1
            self.server.least[name] = min(self.server.least[name], int(last) + 1 - start)
        self.end_headers()
        self.wfile.write(data[start:stop])


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


def rows_in(scan: segreader.Scan) -> int:
    return sum(batch.num_rows for batch in scan.to_batches())
