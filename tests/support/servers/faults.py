"""A proxy before an S3 server, which fails the requests that a test chooses and passes on all others.

It is a program of its own, run with a port and the server's endpoint: deltalake holds Python's lock while it waits for
an answer. ``PUT /_rules`` says what fails from then on, ``GET /_rules`` what came of it.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from http.client import HTTPConnection, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

CANARY = "signed-query-canary-4711"
"""In the text of each error, where stores repeat what they were asked."""

_PER_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "expect"}
_FOR_EVER = 1 << 30
_RULES = "/_rules"


class Fault(StrEnum):
    """What happens to a request."""

    SLOW_DOWN = "slow-down"
    """503 SlowDown; the store does not get the request."""
    RESET = "reset"
    """The connection is reset; the store does not get the request."""
    LOST_ANSWER = "lost-answer"
    """The store does what was asked, and the connection is reset."""
    ERROR_AFTER = "error-after"
    """The store does what was asked, and the answer is 500."""
    CUT_ANSWER = "cut-answer"
    """The store does what was asked, and its answer ends in the middle."""
    FULL = "full"
    """507, as MinIO says that its disks are full."""
    QUOTA = "quota"
    """403 QuotaExceeded, as Ceph and others say it."""


_ANSWERS = {
    Fault.SLOW_DOWN: (503, "SlowDown", "Please reduce your request rate."),
    Fault.ERROR_AFTER: (500, "InternalError", "We encountered an internal error. Please try again."),
    Fault.FULL: (507, "XMinioStorageFull", "Storage backend has reached its minimum free drive threshold."),
    Fault.QUOTA: (403, "QuotaExceeded", "Quota of the bucket is used up."),
}


@dataclass(slots=True)
class Rule:
    """Which requests fail, how, and how often.

    Args:
        pattern: found in ``PUT bucket/key?query``.
        times: so often, and then not any more; for ever by default.
        after: so many of these requests are well before the first one fails.
    """

    fault: Fault
    pattern: str
    times: int = _FOR_EVER
    after: int = 0
    met: int = 0
    hit: int = 0

    def __post_init__(self) -> None:
        self.fault = Fault(self.fault)  # of JSON

    def takes(self, line: str) -> bool:
        """Whether this request fails; counts it."""
        if re.search(self.pattern, line) is None:
            return False
        self.met += 1
        if self.met <= self.after or self.hit >= self.times:
            return False
        self.hit += 1
        return True


@dataclass(slots=True)
class Seen:
    """What came to the proxy: its rules, with how often each was met, and all requests.

    Args:
        requests: seconds since an arbitrary moment, ``PUT bucket/key?query``, and the fault, if there was one.
    """

    rules: list[Rule] = field(default_factory=list)
    requests: list[tuple[float, str, str]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class FaultyS3:
    """The proxy, as a test holds it."""

    endpoint: str

    @contextlib.contextmanager
    def failing(self, *rules: Rule) -> Iterator[Seen]:
        """Fail these requests until the block ends; then what came is known."""
        seen = Seen()
        self._ask("PUT", json.dumps([asdict(rule) for rule in rules]))
        try:
            yield seen
        finally:
            found = json.loads(self._ask("GET"))
            seen.rules = [Rule(**one) for one in found["rules"]]
            seen.requests = [(at, line, fault) for at, line, fault in found["requests"]]
            self._ask("PUT", "[]")

    def _ask(self, method: str, body: str | None = None) -> str:
        connection = HTTPConnection(urlsplit(self.endpoint).netloc, timeout=60)
        with contextlib.closing(connection):
            connection.request(method, _RULES, body)
            return connection.getresponse().read().decode()


@contextlib.contextmanager
def faulty(upstream: str, directory: Path) -> Iterator[FaultyS3]:
    """A proxy before the S3 server at this endpoint, until the block ends."""
    from servers.process import free_port, running

    endpoint = f"http://127.0.0.1:{(port := free_port())}"
    command = [sys.executable, "-P", __file__, str(port), upstream]
    with running(command, directory / "faults.log", endpoint + _RULES):
        yield FaultyS3(endpoint)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    upstream: str
    seen = Seen()
    lock = threading.Lock()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is no error here."""

    def fault_of(self, line: str) -> Fault | None:
        """What happens to a request."""
        with self.lock:
            found = next((rule.fault for rule in self.seen.rules if rule.takes(line)), None)
            self.seen.requests.append((time.monotonic(), line, found or ""))
            return found

    def control(self, body: bytes) -> bytes:
        """Take other rules, or tell what came."""
        with self.lock:
            if body:
                self.seen = Seen([Rule(**one) for one in json.loads(body)])
            return json.dumps(asdict(self.seen)).encode()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server
    _upstream: HTTPConnection | None = None

    def setup(self) -> None:
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def finish(self) -> None:
        if self._upstream is not None:
            self._upstream.close()
        super().finish()

    def do_any(self) -> None:
        """Answer one request."""
        body = self._body()
        if self.path == _RULES:
            return self._answer(200, self.server.control(body))
        fault = self.server.fault_of(f"{self.command} {unquote(self.path.lstrip('/'))}")
        if fault is Fault.RESET:
            return self._reset()
        if fault in (Fault.SLOW_DOWN, Fault.FULL, Fault.QUOTA):
            return self._refuse(fault)
        answer, data = self._passed_on(body)
        if fault is Fault.LOST_ANSWER:
            return self._reset()
        if fault is Fault.ERROR_AFTER:
            return self._refuse(fault)
        return self._send(answer, data, is_cut=fault is Fault.CUT_ANSWER)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = do_any

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return body

    def _passed_on(self, body: bytes) -> tuple[HTTPResponse, bytes]:
        headers = {name: text for name, text in self.headers.items() if name.lower() not in _PER_HOP}
        headers["Content-Length"] = str(len(body))
        if self._upstream is None:
            self._upstream = HTTPConnection(urlsplit(self.server.upstream).netloc, timeout=60)
        self._upstream.request(self.command, self.path, body, headers)
        answer = self._upstream.getresponse()
        data = answer.read()
        if answer.will_close:
            self._upstream.close()
        return answer, data

    def _send(self, answer: HTTPResponse, data: bytes, *, is_cut: bool) -> None:
        size = answer.getheader("Content-Length") if self.command == "HEAD" else str(len(data))
        lines = [f"HTTP/1.1 {answer.status} {answer.reason}"]
        lines += [f"{name}: {text}" for name, text in answer.getheaders() if name.lower() not in _PER_HOP]
        whole = "\r\n".join([*lines, f"Content-Length: {size or 0}", "\r\n"]).encode("latin-1") + data
        if is_cut:
            self.wfile.write(whole[: len(whole) - len(data) // 2 if data else len(whole) // 2])
            self.close_connection = True
        else:
            self.wfile.write(whole)

    def _refuse(self, fault: Fault) -> None:
        status, code, text = _ANSWERS[fault]
        body = (
            f"<?xml version='1.0' encoding='UTF-8'?><Error><Code>{code}</Code><Message>{text} {CANARY}</Message>"
            f"<Resource>/?X-Amz-Signature={CANARY}</Resource><RequestId>1</RequestId></Error>"
        ).encode()
        self._answer(status, body)

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response_only(status)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _reset(self) -> None:
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()

    def log_message(self, format: str, *arguments: Any) -> None:
        """Nothing."""


if __name__ == "__main__":
    with _Server(("127.0.0.1", int(sys.argv[1])), _Handler) as server:
        server.upstream = sys.argv[2]
        server.serve_forever(0.05)
