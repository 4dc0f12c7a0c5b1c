"""Serves the objects of a made bucket over HTTP with ranges: ``python -m benchmarks.spark_endpoint CODEC BYTES``.

It prints its port. Nothing is kept: what a request wants is made when it comes.
"""

from __future__ import annotations

import re
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

from benchmarks.plan_bucket import Bucket
from benchmarks.spark_segments import bucket_of
from segreader.errors import ObjectNotFoundError
from segreader.ranges import ByteRange

_RANGE = re.compile(r"bytes=(\d+)-(\d+)")


class MadeHandler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    bucket: Bucket

    def do_GET(self) -> None:
        name = unquote(urlsplit(self.path).path).lstrip("/")
        try:
            size = self.bucket.size(name)
        except (ObjectNotFoundError, KeyError):
            self.send_error(404)
            return
        match = _RANGE.fullmatch(self.headers.get("Range", ""))
        start, stop = (int(match[1]), min(int(match[2]) + 1, size)) if match else (0, size)
        self.send_response(206 if match else 200)
        self.send_header("Content-Length", str(stop - start))
        self.send_header("ETag", '"made"')
        if match:
            self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{size}")
        self.end_headers()
        try:
            for piece in self.bucket.read_pieces(name, ByteRange(start, stop)) if start < stop else ():
                self.wfile.write(piece)
        except OSError:
            self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def main() -> None:
    MadeHandler.bucket = bucket_of(sys.argv[1], int(sys.argv[2]))
    server = ThreadingHTTPServer(("127.0.0.1", 0), MadeHandler)
    server.daemon_threads = True
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
