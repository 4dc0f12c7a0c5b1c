"""An object store that misbehaves on purpose: one path, one fault.

``/bkt/<scenario>/<id>`` is an object of ``server.data``. The scenario says what goes wrong; the id separates the counts
and the log of one test from another's. A thread for each connection; nothing is random, so that a test can say what it
expects.
"""

from __future__ import annotations

import contextlib
import json
import random
import re
import socket
import ssl
import struct
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

MIB = 1 << 20
_HTML = b"<html><body>Please log in</body></html>"
_REASONS = {200: "OK", 206: "Partial Content", 307: "Temporary Redirect", 403: "Forbidden", 404: "Not Found"}
_CODES = {
    400: "BadRequest",
    401: "AuthenticationFailed",
    403: "AccessDenied",
    404: "NoSuchKey",
    408: "RequestTimeout",
    412: "PreconditionFailed",
    416: "InvalidRange",
    429: "TooManyRequests",
    500: "InternalError",
    502: "BadGateway",
    503: "SlowDown",
    504: "GatewayTimeout",
}


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it came."""

    method: str
    range: str | None
    if_match: str | None
    at: float
    query: str
    headers: dict[str, str]


@dataclass(slots=True)
class _Call:
    """One request on its way through a scenario."""

    server: FaultServer
    sock: socket.socket
    request: Request
    id: str
    number: int
    """From 1 on, among the requests for this id."""
    argument: str
    start: int = 0
    stop: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    version: str = "1.1"

    @property
    def data(self) -> memoryview:
        return memoryview(self.server.data)

    def head(self, status: int, headers: dict[str, Any]) -> None:
        lines = [f"HTTP/{self.version} {status} {_REASONS.get(status, 'Status')}"]
        lines += [f"{name}: {value}" for name, value in headers.items() if value is not None]
        self.sock.sendall(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace"))

    def range_head(self, status: int = 206, *, data: memoryview | None = None, **changes: Any) -> None:
        data = self.data if data is None else data
        headers = {
            "Content-Length": self.stop - self.start,
            "Content-Range": f"bytes {self.start}-{self.stop - 1}/{len(data)}",
            "ETag": '"v1"',
            "Last-Modified": "Sat, 21 Nov 2026 10:00:00 GMT",
        }
        headers.update({name.replace("_", "-"): value for name, value in changes.items()})
        self.head(status, headers)

    def send(self, start: int, stop: int) -> None:
        """Bytes of the object."""
        self.server.count_sent(self.id, stop - start)  # before the client can have it
        self.sock.sendall(self.data[start:stop])

    def error(self, status: int, code: str | None = None, *, message: str = "", **headers: str) -> None:
        code = code or _CODES.get(status, "Error")
        query = self.request.query.replace("&", "&amp;")
        body = (
            f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{message}</Message>"
            f"<Resource>{query}</Resource></Error>"
        ).encode()
        self.head(status, {**{n.replace("_", "-"): v for n, v in headers.items()}, "Content-Length": len(body)})
        self.sock.sendall(body)

    def good(self) -> None:
        """What a store without a fault answers."""
        if self.request.if_match not in (None, '"v1"'):
            return self.error(412)
        if self.start >= len(self.data):
            return self.error(416, Content_Range=f"bytes */{len(self.data)}")
        self.range_head()
        return self.send(self.start, self.stop)

    def reset(self) -> None:
        """End the connection with RST."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.hang_up()

    def hang_up(self) -> None:
        raise ConnectionAbortedError

    def wait(self, seconds: float) -> None:
        self.server.closing.wait(seconds)

    def wait_until_read(self) -> None:
        """Wait until the client has taken all that was sent, however late it is: RST discards what was not read."""
        if not _TCP.exists():
            return self.wait(0.1)
        looks, until = 0, time.monotonic() + 10
        while looks < 2 and time.monotonic() < until:  # twice: what is on its way is in neither queue of one look
            looks = 0 if _is_under_way(self.sock) else looks + 1
            self.wait(0.002)
        return None


_TCP = Path("/proc/net/tcp")


def _is_under_way(sock: socket.socket) -> bool:
    """Whether a peer on this machine has not read all that was sent to it."""
    own, peer = (f"{place[1]:04X}" for place in (sock.getsockname(), sock.getpeername()))
    for line in _TCP.read_text().splitlines()[1:]:
        _, local, remote, _, queues, *_ = line.split()
        ends, (sent, received) = (local[-4:], remote[-4:]), queues.split(":")
        if (ends == (own, peer) and int(sent, 16)) or (ends == (peer, own) and int(received, 16)):
            return True
    return False


Scenario = Callable[[_Call], None]
SCENARIOS: dict[str, Scenario] = {}


def scenario(function: Scenario) -> Scenario:
    SCENARIOS[function.__name__] = function
    return function


def _middle(call: _Call) -> int:
    """Where bodies break: at ``argument`` eighths, or in the middle."""
    return call.start + (call.stop - call.start) * int(call.argument or 4) // 8


@scenario
def clean(call: _Call) -> None:
    call.good()


@scenario
def status(call: _Call) -> None:
    """``status-503x2``: the first two answers are 503."""
    code, _, times = call.argument.partition("x")
    call.error(int(code)) if call.number <= int(times) else call.good()


@scenario
def retryafter(call: _Call) -> None:
    """``retryafter-1``: the first answer is 503 with Retry-After."""
    call.error(503, Retry_After=call.argument) if call.number == 1 else call.good()


@scenario
def retryafters(call: _Call) -> None:
    """``retryafters-25``: every answer is 503 with Retry-After."""
    call.error(503, Retry_After=call.argument)


@scenario
def throttle(call: _Call) -> None:
    """``throttle-4``: SlowDown for whatever is above so many requests at once."""
    with call.server.lock:
        call.server.at_once += 1
        is_much = call.server.at_once > int(call.argument)
    try:
        call.wait(0.02)
        call.error(503) if is_much else call.good()
    finally:
        with call.server.lock:
            call.server.at_once -= 1


@scenario
def together(call: _Call) -> None:
    """``together-3``: the first answers wait until so many requests are under way, or for ``late_s``."""
    if call.number >= int(call.argument or 1):
        call.server.together.set()
    if not call.server.together.wait(call.server.late_s):
        call.server.together.set()
        call.server.waited_alone += 1
    call.good()


@scenario
def rstbefore(call: _Call) -> None:
    call.reset() if call.number == 1 else call.good()


@scenario
def resetmid(call: _Call) -> None:
    if call.number > 1:
        return call.good()
    call.range_head()
    call.send(call.start, _middle(call))
    call.wait_until_read()
    return call.reset()


@scenario
def finmid(call: _Call) -> None:
    if call.number > 1:
        return call.good()
    call.range_head()
    call.send(call.start, _middle(call))
    return call.hang_up()


@scenario
def finmidforever(call: _Call) -> None:
    call.range_head()
    call.send(call.start, _middle(call))
    call.hang_up()


@scenario
def resetevery(call: _Call) -> None:
    """``resetevery-2048``: no answer gives more than so many KiB, then RST."""
    stop = min(call.stop, call.start + (int(call.argument) << 10))
    call.range_head()
    call.send(call.start, stop)
    if stop < call.stop:
        call.wait_until_read()
        call.reset()


@scenario
def byteatatime(call: _Call) -> None:
    """One byte more with each answer."""
    call.range_head()
    call.send(call.start, call.start + 1)
    call.hang_up()


@scenario
def stallmid(call: _Call) -> None:
    if call.number > 1:
        return call.good()
    call.range_head()
    call.send(call.start, _middle(call))
    return call.wait(20)


@scenario
def stallhead(call: _Call) -> None:
    call.wait(20) if call.number == 1 else call.good()


@scenario
def driphead(call: _Call) -> None:
    """A head that comes byte by byte, and never ends."""
    if call.number > 1:
        return call.good()
    for byte in b"HTTP/1.1 206 Partial Content\r\nX: " + b"a" * 1000:
        call.sock.sendall(bytes([byte]))
        call.wait(0.05)
    return None


@scenario
def dripheads(call: _Call) -> None:
    """Every head comes byte by byte, and never ends."""
    for byte in b"HTTP/1.1 206 Partial Content\r\nX: " + b"a" * 60_000:
        call.sock.sendall(bytes([byte]))
        call.wait(0.05)


@scenario
def stallheads(call: _Call) -> None:
    """No answer comes at all."""
    call.wait(100)


@scenario
def stalls(call: _Call) -> None:
    """A few bytes of the body come, on every try, and no more."""
    call.range_head()
    call.send(call.start, call.start + 10)
    call.wait(100)


@scenario
def dripchunks(call: _Call) -> None:
    """A chunked body, where the line before a chunk never ends."""
    call.range_head(Content_Length=None, Transfer_Encoding="chunked")
    call.sock.sendall(b"a\r\n" + bytes(call.data[call.start : call.start + 10]) + b"\r\n")
    while not call.server.closing.is_set():
        call.sock.sendall(b"0")
        call.wait(0.02)


@scenario
def driperrors(call: _Call) -> None:
    """A 500 whose text comes byte by byte, and never ends."""
    call.head(500, {"Content-Length": 100_000})
    while not call.server.closing.is_set():
        call.sock.sendall(b"x")
        call.wait(0.02)


@scenario
def continues(call: _Call) -> None:
    """``100 Continue`` without end."""
    if call.number > 1:
        return call.good()
    while not call.server.closing.is_set():
        call.sock.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        call.wait(0.02)
    return None


@scenario
def hintsforever(call: _Call) -> None:
    """``103 Early Hints`` without end, on every try."""
    while not call.server.closing.is_set():
        call.sock.sendall(b"HTTP/1.1 103 Early Hints\r\n\r\n")
        call.wait(0.02)


@scenario
def drip(call: _Call) -> None:
    """10 KB/s, on the first connection or (``drip-9``) on that many."""
    if call.number > int(call.argument or 1):
        return call.good()
    call.range_head()
    for at in range(call.start, call.stop, 500):
        call.send(at, min(at + 500, call.stop))
        call.wait(0.05)
    return None


@scenario
def dripbehind(call: _Call) -> None:
    """The object's beginning is good, all else comes at 10 KB/s."""
    if call.start == 0:
        return call.good()
    call.range_head()
    for at in range(call.start, call.stop, 500):
        call.send(at, min(at + 500, call.stop))
        call.wait(0.05)
    return None


@scenario
def failbehind(call: _Call) -> None:
    """The object's beginning is good, all else is 500."""
    call.good() if call.start == 0 else call.error(500)


@scenario
def notag(call: _Call) -> None:
    """No ETag in any answer."""
    call.range_head(ETag=None)
    call.send(call.start, call.stop)


@scenario
def versions(call: _Call) -> None:
    """The object is replaced after the first answer, and If-Match is honoured."""
    tag = '"v1"' if call.number == 1 else '"v2"'
    if call.request.if_match not in (None, tag):
        return call.error(412)
    call.range_head(ETag=tag)
    return call.send(call.start, call.stop)


@scenario
def late(call: _Call) -> None:
    """``late-33``: every 33rd head comes 1.5 s late."""
    if call.number % int(call.argument) == int(call.argument) // 2:
        call.wait(call.server.late_s)
    call.good()


@scenario
def latefirst(call: _Call) -> None:
    if call.number == 1:
        call.wait(call.server.late_s)
    call.good()


def _second_version(call: _Call, *, tag: str | None, data: bytes, modified: str | None = None) -> None:
    """From the second GET on, another object."""
    if call.number == 1:
        call.range_head(ETag='"v1"' if tag else None)
        return call.send(call.start, call.stop)
    stop = min(call.stop, len(data))
    call.stop = stop
    changes: dict[str, Any] = {"Last_Modified": modified} if modified else {}
    call.range_head(data=memoryview(data), ETag=tag, **changes)
    return call.sock.sendall(data[call.start : stop])


@scenario
def etagchange(call: _Call) -> None:
    if call.number > 1 and call.request.if_match == '"v1"':
        return call.error(412)
    return _second_version(call, tag='"v2"', data=call.server.other_data)


@scenario
def etagchangeignored(call: _Call) -> None:
    """A server that knows no If-Match."""
    _second_version(call, tag='"v2"', data=call.server.other_data)


@scenario
def etaggone(call: _Call) -> None:
    if call.number == 1:
        return call.good()
    call.range_head(ETag=None)
    return call.send(call.start, call.stop)


@scenario
def sizechange(call: _Call) -> None:
    _second_version(call, tag='"v1"', data=call.server.data + b"more")


@scenario
def sizeandtagchange(call: _Call) -> None:
    _second_version(call, tag='"v2"', data=call.server.data[: len(call.server.data) // 2 + call.start // 2])


@scenario
def timechange(call: _Call) -> None:
    """No tag; another Last-Modified."""
    _second_version(call, tag=None, data=call.server.other_data, modified="Sat, 21 Nov 2026 11:00:00 GMT")


@scenario
def weaktag(call: _Call) -> None:
    if call.request.if_match is not None:
        return call.error(412)
    call.range_head(ETag='W/"v1"')
    return call.send(call.start, call.stop)


@scenario
def weaktagchange(call: _Call) -> None:
    call.range_head(ETag=f'W/"v{call.number}"')
    call.send(call.start, call.stop)


@scenario
def shrunk(call: _Call) -> None:
    """From the second GET on the object is too short for any range."""
    call.good() if call.number == 1 else call.error(416, Content_Range="bytes */10")


@scenario
def full200(call: _Call) -> None:
    """The range is ignored."""
    call.head(200, {"Content-Length": len(call.data), "ETag": '"v1"'})
    call.sock.sendall(call.data)


@scenario
def r200cr(call: _Call) -> None:
    """200 in place of 206, with a right Content-Range."""
    call.range_head(200)
    call.send(call.start, call.stop)


@scenario
def wrongcr(call: _Call) -> None:
    """Another range, and the header says so."""
    shift = 100
    call.range_head(Content_Range=f"bytes {call.start + shift}-{call.stop + shift - 1}/{len(call.data)}")
    call.sock.sendall(call.data[call.start + shift : call.stop + shift])


@scenario
def nocr(call: _Call) -> None:
    call.range_head(Content_Range=None)
    call.send(call.start, call.stop)


@scenario
def nototal(call: _Call) -> None:
    call.range_head(Content_Range=f"bytes {call.start}-{call.stop - 1}/*")
    call.send(call.start, call.stop)


@scenario
def shortok(call: _Call) -> None:
    """Half of the range, in an answer that agrees with itself."""
    call.stop = _middle(call)
    call.range_head()
    call.send(call.start, call.stop)


@scenario
def lengthlie(call: _Call) -> None:
    """A right Content-Range, and a length that is not its."""
    call.range_head(Content_Length=call.stop - call.start + 7)
    call.sock.sendall(bytes(call.data[call.start : call.stop]) + b"trailer")


@scenario
def twolengths(call: _Call) -> None:
    size = call.stop - call.start
    call.range_head(Content_Length=f"{size}\r\nContent-Length: {size + 1}")
    call.send(call.start, call.stop)


@scenario
def bitflip(call: _Call) -> None:
    body = bytearray(call.data[call.start : call.stop])
    body[len(body) // 2] ^= 1
    call.range_head()
    call.sock.sendall(body)


@scenario
def html200(call: _Call) -> None:
    call.head(200, {"Content-Type": "text/html", "Content-Length": len(_HTML)})
    call.sock.sendall(_HTML)


@scenario
def multipart(call: _Call) -> None:
    call.head(206, {"Content-Type": "multipart/byteranges; boundary=x", "Content-Length": call.stop - call.start})
    call.send(call.start, call.stop)


@scenario
def gzip(call: _Call) -> None:
    call.range_head(Content_Encoding="gzip")
    call.send(call.start, call.stop)


@scenario
def chunked(call: _Call) -> None:
    """No length; ``chunked-short`` ends too soon, ``chunked-long`` too late, ``chunked-bad`` in nonsense."""
    call.range_head(Content_Length=None, Transfer_Encoding="chunked")
    stop = call.stop - 1000 if call.argument == "short" else call.stop
    for at in range(call.start, stop, 50_000):
        part = call.data[at : min(at + 50_000, stop)]
        call.sock.sendall(b"%x\r\n%b\r\n" % (len(part), bytes(part)))
    if call.argument == "long":
        call.sock.sendall(b"4\r\nmore\r\n")
    call.sock.sendall(b"nonsense\r\n" if call.argument == "bad" else b"0\r\n\r\n")
    if call.argument == "bad":
        call.hang_up()


CODINGS = {
    "gzipchunked": "gzip, chunked",
    "chunkedgzip": "chunked, gzip",
    "identity": "identity",
    "twice": "chunked, chunked",
    "tworepeated": "chunked\r\nTransfer-Encoding: chunked",
    "repeated": "gzip\r\nTransfer-Encoding: chunked",
    "repeatedlater": "chunked\r\nTransfer-Encoding: identity",
    "unknown": "x-secret-coding",
    "parameter": "chunked;q=1",
    "quoted": '"chunked"',
    "blank": "",
    "spaced": "chunked ",
    "folded": "\r\n chunked",
    "control": "\x0bchunked",
    "length": "chunked\r\nContent-Length: {size}",
    "lengthidentity": "identity\r\nContent-Length: {size}",
    "upper": "CHUNKED",
    "title": "Chunked",
}
"""Transfer-Encoding as ``transfer-<name>`` sends it."""
GOOD_CODINGS = {"upper", "title"}
WRONG_CODINGS = sorted(CODINGS.keys() - GOOD_CODINGS)


def _chunks(data: bytes | memoryview) -> bytes:
    return b"".join(
        b"%x\r\n%b\r\n" % (len(data[at : at + 50_000]), bytes(data[at : at + 50_000]))
        for at in range(0, len(data), 50_000)
    )


def _transfer(call: _Call, share: float = 1.0) -> None:
    """A chunked body; below a coding that is none, as many bytes of it as the range has, or a share of them."""
    size = call.stop - call.start
    call.range_head(Content_Length=None, Transfer_Encoding=CODINGS[call.argument].format(size=size))
    body = _chunks(call.data[call.start : call.stop]) + b"0\r\n\r\n"
    with contextlib.suppress(OSError):
        call.sock.sendall(body if call.argument in GOOD_CODINGS else body[: int(size * share)])
    call.hang_up()


@scenario
def transfer(call: _Call) -> None:
    """A chunked body below a Transfer-Encoding of ``CODINGS``."""
    _transfer(call)


@scenario
def transferbroken(call: _Call) -> None:
    """The same, which breaks off in the middle; the second answer is good."""
    _transfer(call, 0.5) if call.number == 1 else call.good()


@scenario
def transferlater(call: _Call) -> None:
    """The first answer is plain and breaks off; what follows is as in ``transfer``."""
    if call.number > 1:
        return _transfer(call)
    call.range_head()
    call.send(call.start, call.start + (call.stop - call.start) // 2)
    return call.hang_up()


HEADS = {
    "spacebeforecolon": "Transfer-Encoding : chunked",
    "nocolon": "Transfer-Encoding chunked",
    "noname": ": chunked",
    "from": "From me",
}
"""Lines that are no headers, as ``head-<name>`` sends one before the headers that say how long the body is."""


@scenario
def head(call: _Call) -> None:
    """A chunked body below a head with a line that is no header."""
    call.range_head(Content_Length=None, Date=f"now\r\n{HEADS[call.argument]}")
    with contextlib.suppress(OSError):
        call.sock.sendall(_chunks(call.data[call.start : call.stop]) + b"0\r\n\r\n")
    call.hang_up()


@scenario
def http10(call: _Call) -> None:
    """A chunked body from a server of HTTP/1.0, which knows none."""
    call.version = "1.0"
    call.range_head(Content_Length=None, Transfer_Encoding="chunked", Connection="keep-alive")
    call.sock.sendall(_chunks(call.data[call.start : call.stop]) + b"0\r\n\r\n")


LENGTHS = {"plus": "+{size}", "minus": "-{size}", "hex": "0x{size:x}", "under": "{size:_}", "list": "{size}, {size}"}
LENGTHS |= {"float": "{size}.0", "blank": "", "word": "many", "arabic": "\u0663", "huge": "9" * 30}
"""Content-Length as ``length-<name>`` sends it."""


@scenario
def length(call: _Call) -> None:
    """A Content-Length that is no number, or not the only one."""
    call.range_head(Content_Length=LENGTHS[call.argument].format(size=call.stop - call.start))
    with contextlib.suppress(OSError):
        call.send(call.start, call.stop)
    call.hang_up()


@scenario
def interim(call: _Call) -> None:
    """``interim-103x2``: two ``103 Early Hints`` with headers of their own before the answer; ``x0``: without end."""
    status, _, times = call.argument.partition("x")
    for _ in range(int(times) or 10_000):
        call.head(int(status), {"Link": "</style.css>; rel=preload", "Content-Length": 5, "ETag": '"hint"'})
    call.good()


@scenario
def trailers(call: _Call) -> None:
    """A chunked body whose trailer never ends."""
    if call.number > 1:
        return call.good()
    call.range_head(Content_Length=None, Transfer_Encoding="chunked")
    body = bytes(call.data[call.start : call.stop])
    call.sock.sendall(b"%x\r\n%b\r\n0\r\n" % (len(body), body))
    while not call.server.closing.is_set():
        call.sock.sendall(b"X: y\r\n")
        call.wait(0.02)
    return None


@scenario
def close(call: _Call) -> None:
    """No length: the body ends with the connection."""
    call.range_head(Content_Length=None, Connection="close")
    call.send(call.start, call.stop)
    call.hang_up()


@scenario
def redirect(call: _Call) -> None:
    """``redirect-metadata`` and so on: 307 to a place that must not be asked."""
    places = {
        "host": f"{call.server.origin}/bkt/clean/{call.id}-elsewhere?X-Amz-Signature=canary-location",
        "metadata": "http://169.254.169.254/latest/meta-data/",
        "file": "file:///etc/passwd",
        "moved": f"{call.server.origin}/bkt/clean/{call.id}-elsewhere",
    }
    call.head(
        301 if call.argument == "moved" else 307,
        {
            "Location": places[call.argument],
            "Content-Length": 0,
            "x-amz-bucket-region": "eu-north-1" if call.argument == "moved" else None,
        },
    )


@scenario
def gone(call: _Call) -> None:
    """``gone-3``: 404 after three GETs."""
    call.good() if call.number <= int(call.argument) else call.error(404)


@scenario
def skewed(call: _Call) -> None:
    call.error(403, "RequestTimeTooSkewed")


@scenario
def archived(call: _Call) -> None:
    call.error(403, "InvalidObjectState")


@scenario
def archivedazure(call: _Call) -> None:
    call.head(409, {"x-ms-error-code": "BlobArchived", "Content-Length": 0})


@scenario
def truncxml(call: _Call) -> None:
    """An error whose XML ends in the middle, and whose length lies."""
    call.head(403, {"Content-Length": 100_000})
    call.sock.sendall(b"<?xml version='1.0'?><Error><Code>InvalidObjectState</Code><Mess")
    call.hang_up()


@scenario
def hugeerror(call: _Call) -> None:
    """An error of 100 MB."""
    call.head(403, {"Content-Length": 100 * MIB})
    call.sock.sendall(b"<Error><Code>InvalidObjectState</Code>")
    for _ in range(100):
        call.sock.sendall(b"x" * MIB)


@scenario
def expired(call: _Call) -> None:
    """Good for the signature that ``server.signature`` names; ``expired-400`` says so as rclone does."""
    if parse_qs(call.request.query).get("X-Amz-Signature") == [call.server.signature]:
        return call.good()
    return call.error(int(call.argument or 403), "AccessDenied", message="Request has expired")


@scenario
def token(call: _Call) -> None:
    """S3's 400 for a session that ended."""
    if parse_qs(call.request.query).get("X-Amz-Signature") == [call.server.signature]:
        return call.good()
    return call.error(400, "ExpiredToken")


@scenario
def bighead(call: _Call) -> None:
    call.range_head(X_Padding="a" * 100_000)
    call.send(call.start, call.stop)


@scenario
def longhead(call: _Call) -> None:
    """No line is too long, nor are there too many, but together they are."""
    headers: dict[str, Any] = {f"X_{number}": "a" * 5000 for number in range(50)}
    call.range_head(**headers)
    call.send(call.start, call.stop)


@scenario
def cuthead(call: _Call) -> None:
    """The connection ends inside the first head."""
    if call.number > 1:
        return call.good()
    call.sock.sendall(b'HTTP/1.1 206 Partial Content\r\nETag: "v1"\r\n')
    return call.hang_up()


@scenario
def manyheaders(call: _Call) -> None:
    headers: dict[str, Any] = {f"X_{number}": "a" for number in range(1000)}
    call.range_head(**headers)
    call.send(call.start, call.stop)


@scenario
def garbage(call: _Call) -> None:
    call.sock.sendall(b"\x00\xffSSH-2.0-OpenSSH\r\n" * 3)
    call.hang_up()


@scenario
def empty(call: _Call) -> None:
    """An object without bytes; ``empty-200`` from a store that answers 200."""
    if call.argument == "200":
        return call.head(200, {"Content-Length": 0, "ETag": '"v1"'})
    return call.error(416, Content_Range="bytes */0")


class FaultServer:
    """The server; a context manager. Serves until it is closed, and then ends every connection.

    Args:
        data: the object.
        tls: serves https with this context.
        rate: bytes per second of each connection; ``None``: as fast as it goes.
    """

    def __init__(
        self, data: bytes | None = None, *, tls: ssl.SSLContext | None = None, rate: int | None = None, port: int = 0
    ) -> None:
        self.data = random.Random(4).randbytes(MIB) if data is None else data
        self.other_data = bytes(len(self.data))
        self.signature = "good"
        self.late_s = 1.5
        self.at_once = 0
        self.together = threading.Event()
        self.waited_alone = 0
        """Answers of ``together`` that waited in vain for other requests."""
        self.lock = threading.Lock()
        self.closing = threading.Event()
        self.connections = 0
        self.sent: dict[str, int] = defaultdict(int)
        self._requests: dict[str, list[Request]] = defaultdict(list)
        self._tls = tls
        self._rate = rate
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", port), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self.host = "localhost" if tls else "127.0.0.1"
        self.origin = f"http{'s' if tls else ''}://{self.host}:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> FaultServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def url(self, scenario: str, id: str = "one", query: str = "X-Amz-Signature=canary-signature") -> str:
        """The URL of an object."""
        return f"{self.origin}/bkt/{scenario}/{id}?{query}"

    def log(self, id: str = "one") -> list[Request]:
        """The requests for an id, in the order in which they came."""
        with self.lock:
            return list(self._requests[id])

    def count_sent(self, id: str, size: int) -> None:
        with self.lock:
            self.sent[id] += size

    def close(self) -> None:
        self.closing.set()
        self._listener.close()
        self.drop_connections()

    def drop_connections(self) -> None:
        """End every connection, as a store that is killed does."""
        with self.lock:
            for sock in self._open:
                with contextlib.suppress(OSError):
                    socket.socket.shutdown(sock, socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        with self.lock:
            self._open.add(sock)
            self.connections += 1
        plain = sock
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                sock = self._tls.wrap_socket(sock, server_side=True)
                with self.lock:
                    self._open.discard(plain)
                    self._open.add(sock)
            pending = b""
            while not self.closing.is_set():
                while b"\r\n\r\n" not in pending:
                    received = sock.recv(65536)
                    if not received:
                        return
                    pending += received
                head, _, pending = pending.partition(b"\r\n\r\n")
                self._answer(sock, head.decode("latin-1"))
        except OSError:
            pass
        finally:
            with self.lock:
                self._open -= {plain, sock}
            sock.close()

    def _answer(self, sock: socket.socket, head: str) -> None:
        line, *lines = head.split("\r\n")
        method, target, _ = line.split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (text.partition(":") for text in lines)}
        parts = urlsplit(target)
        _, root, name, *rest = [*parts.path.split("/"), "", ""]
        if root == "_log":
            body = json.dumps([[r.method, r.range, r.if_match, r.at] for r in self.log(name)]).encode()
            sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
            return
        request = Request(method, headers.get("range"), headers.get("if-match"), time.monotonic(), parts.query, headers)
        id = rest[0]
        with self.lock:
            self._requests[id].append(request)
            number = len(self._requests[id])
        kind, _, argument = name.partition("-")
        out: Any = _Slow(sock, self._rate) if self._rate else sock
        call = _Call(self, out, request, id, number, argument, headers=headers, stop=len(self.data))
        if method == "HEAD":
            call.head(200, {"Content-Length": len(self.data), "ETag": '"v1"'})
            return
        if match := re.fullmatch(r"bytes=(\d+)-(\d+)", request.range or ""):
            call.start, call.stop = int(match[1]), min(int(match[2]) + 1, len(self.data))
        SCENARIOS[kind](call)


class _Slow:
    """A socket that sends at a rate."""

    def __init__(self, sock: socket.socket, rate: int) -> None:
        self._sock, self._rate = sock, rate

    def sendall(self, data: bytes | memoryview) -> None:
        view = memoryview(data)
        began = time.monotonic()
        step = max(1, self._rate // 50)
        for at in range(0, len(view), step):
            self._sock.sendall(view[at : at + step])
            ahead = (at + step) / self._rate - (time.monotonic() - began)
            if ahead > 0:
                time.sleep(ahead)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)
