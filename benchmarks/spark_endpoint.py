"""Serves the objects of a made bucket over HTTP with ranges: ``python -m benchmarks.spark_endpoint CODEC BYTES``.

It prints its port. Nothing is kept: what a request wants is made when it comes.
"""

from __future__ import annotations

import re
import sys
from urllib.parse import unquote, urlsplit

from benchmarks.plan_bucket import Bucket
from benchmarks.spark_segments import bucket_of
from benchmarks.storage_server import Handler, Server
from segreader.errors import ObjectNotFoundError
from segreader.ranges import ByteRange

_RANGE = re.compile(r"bytes=(\d+)-(\d+)")


class MadeHandler(Handler):
    """One connection."""

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


def main() -> None:
    MadeHandler.bucket = bucket_of(sys.argv[1], int(sys.argv[2]))
    server = Server(("127.0.0.1", 0), MadeHandler)
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
