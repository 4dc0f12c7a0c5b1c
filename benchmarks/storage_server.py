"""A bucket that is as slow as a real one: what nginx cannot be.

It answers GET and HEAD of objects, ranges included, and S3's ListObjectsV2 in pages of 1,000. These query parameters
say how, and those of the command line are the defaults:

``wait_ms``: each answer begins so much later. ``rate``: bytes a second on a connection; nginx's ``limit_rate`` lets
the first second's worth go at once, so that a range of 16 MiB would not be slowed by 64 MB/s at all. ``late``: the
share of requests whose answer begins ``late_s`` seconds later, drawn by a generator of its own for each ``seed``.

``python -m benchmarks.storage_server DIRECTORY [QUERY]`` prints its port. The first part of a listing's path is the
bucket, a directory in there. GET of ``/.counts`` gives requests by kind since the last time, as JSON. One thread for
each connection, ``sendfile`` from the page cache, and no header parsed that it does not need, so that it takes little
of the cores that it shares with the reader.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import random
import re
import socket
import sys
import threading
import time
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlsplit
from xml.sax.saxutils import escape

PAGE = 1000
_SLICE = 512 << 10
_PUT_AT_ONCE = 8 << 20
_RANGE = re.compile(rb"\r\nrange: *bytes=(\d+)-(\d+)", re.IGNORECASE)
_TIME = "2026-01-01T00:00:00.000Z"


class Server:
    """Serves a directory; connections are threads."""

    def __init__(self, root: Path, defaults: Mapping[str, str]) -> None:
        self._root = root
        self._defaults = defaults
        self._draws: dict[str, random.Random] = {}
        self._counts: Counter[str] = Counter()
        self._digests: dict[str, tuple[str, str]] = {}
        self._lock = threading.Lock()

    def serve(self, listener: socket.socket) -> None:
        """Take connections for ever."""
        while True:
            connection, _ = listener.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._converse, args=(connection,), daemon=True).start()

    def _converse(self, connection: socket.socket) -> None:
        held = b""
        with connection, contextlib.suppress(OSError):
            while True:
                while (end := held.find(b"\r\n\r\n")) < 0:
                    if not (got := connection.recv(1 << 16)):
                        return
                    held += got
                head, held = held[:end], held[end + 4 :]
                self._answer(connection, head)

    def _answer(self, connection: socket.socket, head: bytes) -> None:
        method, target, _ = head.split(b" ", 2)
        parts = urlsplit(target.decode())
        query = {**self._defaults, **dict(parse_qsl(parts.query, keep_blank_values=True))}
        path = unquote(parts.path).lstrip("/")
        if path == ".counts":
            with self._lock:
                counts, self._counts = self._counts, Counter()
            _send_body(connection, json.dumps(counts).encode())
            return
        is_listing = query.get("list-type") == "2"
        kind = "LIST" if is_listing else f"{method.decode()} {path.rpartition('.')[2]}"
        with self._lock:
            self._counts[kind] += 1
        self._wait(query)
        if is_listing:
            _send_body(connection, self._list(path.partition("/")[0], query))
        else:
            self._send_object(connection, path, head, float(query.get("rate", 0)), is_head=method == b"HEAD")

    def _wait(self, query: Mapping[str, str]) -> None:
        seconds = float(query.get("wait_ms", 0)) / 1000
        if "late" in query:
            with self._lock:
                draw = self._draws.setdefault(query["seed"], random.Random(query["seed"])).random()
            if draw < float(query["late"]):
                seconds += float(query["late_s"])
        if seconds:
            time.sleep(seconds)

    def _send_object(self, connection: socket.socket, path: str, head: bytes, rate: float, *, is_head: bool) -> None:
        try:
            file = (self._root / path).open("rb")
        except OSError:
            connection.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
            return
        with file:
            stat = os.fstat(file.fileno())
            start, stop, status = 0, stat.st_size, "200 OK"
            lines = [f'ETag: "{self._etag(path, stat)}"', "Accept-Ranges: bytes"]
            if match := _RANGE.search(head):
                start, stop, status = int(match[1]), min(int(match[2]) + 1, stat.st_size), "206 Partial Content"
                lines.append(f"Content-Range: bytes {start}-{stop - 1}/{stat.st_size}")
            begin = "\r\n".join((f"HTTP/1.1 {status}", f"Content-Length: {stop - start}", *lines, "", ""))
            connection.sendall(begin.encode())
            if is_head:
                return
            began, first = time.monotonic(), start
            while start < stop:
                start += os.sendfile(connection.fileno(), file.fileno(), start, min(_SLICE, stop - start))
                if rate and (ahead := (start - first) / rate - (time.monotonic() - began)) > 0:
                    time.sleep(ahead)

    @functools.cache  # noqa: B019 - one server a process
    def _names(self, bucket: str) -> tuple[list[str], list[tuple[int, str]]]:
        """Names of a bucket's objects in order, with sizes and ETags, as they were at the first listing."""
        root = self._root / bucket
        found = sorted((path.relative_to(root).as_posix(), path) for path in root.rglob("*") if path.is_file())
        stats = [path.stat() for _, path in found]
        etags = [self._etag(f"{bucket}/{name}", stat) for (name, _), stat in zip(found, stats, strict=True)]
        return [name for name, _ in found], [(stat.st_size, etag) for stat, etag in zip(stats, etags, strict=True)]

    def _etag(self, path: str, stat: os.stat_result) -> str:
        """As S3's, in listings and answers: the MD5 of an object that was put at once, and no digest of a large one."""
        version = f"{stat.st_mtime_ns:x}-{stat.st_size:x}"
        if stat.st_size > _PUT_AT_ONCE:
            return version
        known = self._digests.get(path)
        if known is None or known[0] != version:
            digest = hashlib.md5((self._root / path).read_bytes(), usedforsecurity=False).hexdigest()
            known = self._digests[path] = version, digest
        return known[1]

    def _list(self, bucket: str, query: Mapping[str, str]) -> bytes:
        names, facts = self._names(bucket)
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        after = query.get("continuation-token") or query.get("start-after") or ""
        limit = min(PAGE, int(query.get("max-keys", PAGE)))
        at = max(bisect_left(names, prefix), bisect_right(names, after))
        shown: list[str] = []
        last, is_more = "", False
        while at < len(names) and names[at].startswith(prefix):
            if len(shown) == limit:
                is_more = True
                break
            name = names[at]
            rest = name[len(prefix) :]
            if delimiter and delimiter in rest:
                last = prefix + rest[: rest.index(delimiter) + 1]
                shown.append(f"<CommonPrefixes><Prefix>{_shown(last, query)}</Prefix></CommonPrefixes>")
                last += "\U0010ffff"
                at = bisect_left(names, last, at)
            else:
                last = name
                shown.append(_contents(_shown(name, query), *facts[at]))
                at += 1
        token = f"<NextContinuationToken>{escape(last)}</NextContinuationToken>" if is_more else ""
        encoding = "<EncodingType>url</EncodingType>" if query.get("encoding-type") else ""
        return (
            '<?xml version="1.0" encoding="UTF-8"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
            f"<Name>{bucket}</Name><Prefix>{_shown(prefix, query)}</Prefix><KeyCount>{len(shown)}</KeyCount>"
            f"<MaxKeys>{limit}</MaxKeys>{encoding}<IsTruncated>{str(is_more).lower()}</IsTruncated>{token}"
            f"{''.join(shown)}</ListBucketResult>"
        ).encode()


def _shown(name: str, query: Mapping[str, str]) -> str:
    return quote(name) if query.get("encoding-type") else escape(name)


def _contents(name: str, size: int, etag: str) -> str:
    times = f'<LastModified>{_TIME}</LastModified><ETag>"{etag}"</ETag>'
    return f"<Contents><Key>{name}</Key>{times}<Size>{size}</Size><StorageClass>STANDARD</StorageClass></Contents>"


def _send_body(connection: socket.socket, body: bytes) -> None:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/xml\r\nContent-Length: {len(body)}\r\n\r\n"
    connection.sendall(head.encode() + body)


def main() -> None:
    root, *query = sys.argv[1:]
    with socket.create_server(("127.0.0.1", 0), backlog=256) as listener:
        print(listener.getsockname()[1], flush=True)
        Server(Path(root), dict(parse_qsl("&".join(query)))).serve(listener)


if __name__ == "__main__":
    main()
