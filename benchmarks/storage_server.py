"""A file server that is slow or late when the URL says so: what nginx cannot be.

Query parameters: ``rate`` sends at most that many bytes a second on a connection; ``late`` is the share of requests
whose answer begins ``late_s`` seconds later, drawn by a generator of its own for each ``seed``. nginx's ``limit_rate``
lets the first second's worth go at once, so that a range of 16 MiB would not be slowed by 64 MB/s at all.

``python -m benchmarks.storage_server DIRECTORY`` prints its port. One thread for each connection, ``sendfile``.
"""

from __future__ import annotations

import os
import random
import re
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

_SLICE = 512 << 10
_RANGE = re.compile(r"bytes=(\d+)-(\d+)")


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    root: Path
    draws: dict[str, random.Random] = {}  # noqa: RUF012 - shared by all connections on purpose
    lock = threading.Lock()

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        path = self.root / unquote(parts.path).lstrip("/")
        if not path.is_file():
            self.send_error(404)
            return
        self._delay(query)
        stat = path.stat()
        start, stop, status = 0, stat.st_size, 200
        if match := _RANGE.fullmatch(self.headers.get("Range", "")):
            start, stop, status = int(match[1]), min(int(match[2]) + 1, stat.st_size), 206
        self.send_response(status)
        self.send_header("Content-Length", str(stop - start))
        self.send_header("ETag", f'"{stat.st_mtime_ns:x}-{stat.st_size:x}"')
        if status == 206:
            self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{stat.st_size}")
        self.end_headers()
        try:
            self._send(path, start, stop, float(query.get("rate", 0)))
        except OSError:
            self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _delay(self, query: dict[str, str]) -> None:
        if "late" not in query:
            return
        with self.lock:
            draw = self.draws.setdefault(query["seed"], random.Random(query["seed"])).random()
        if draw < float(query["late"]):
            time.sleep(float(query["late_s"]))

    def _send(self, path: Path, start: int, stop: int, rate: float) -> None:
        began, first = time.monotonic(), start
        with path.open("rb") as file:
            while start < stop:
                start += os.sendfile(self.connection.fileno(), file.fileno(), start, min(_SLICE, stop - start))
                if rate and (ahead := (start - first) / rate - (time.monotonic() - began)) > 0:
                    time.sleep(ahead)


class Server(ThreadingHTTPServer):
    """Many connections at once; clients that go away are nobody's business."""

    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, *_: object) -> None:
        """Say nothing."""


def main() -> None:
    Handler.root = Path(sys.argv[1])
    server = Server(("127.0.0.1", 0), Handler)
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
