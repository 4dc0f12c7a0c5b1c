"""Canary secrets go in at every place that takes one; nothing that comes out may hold one."""

from __future__ import annotations

import http.server
import pickle
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from canaries import CANARIES, QUERY, everything_logged, leaks, shown

from segreader.errors import OptionError, SegreaderError
from segreader.ranges import ByteRange
from segreader.storage.base import ObjectInfo
from segreader.storage.http.settings import HttpSettings
from segreader.storage.http.store import HttpStore
from segreader.storage.options import address_policy, find_storage_options, parse_storage_options
from segreader.storage.signed_url import Secret, SignedUrl

OBJECT = bytes(range(256)) * 64


@pytest.fixture
def logged() -> Iterator[list[str]]:
    """What all loggers say."""
    with everything_logged() as lines:
        yield lines


class _Server(http.server.ThreadingHTTPServer):
    """Serves one object as each fault of the path's first part will have it, and says the request back in errors."""

    daemon_threads = True
    requests = 0


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the server is no part of what is tested."""

    def do_GET(self) -> None:
        assert isinstance(self.server, _Server)
        self.server.requests += 1
        fault = self.path.split("/")[1]
        start, stop = 0, len(OBJECT)
        if wanted := self.headers.get("Range"):
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            start, stop = int(first), min(int(last) + 1 if last else stop, stop)
        body, headers, status = OBJECT[start:stop], {"ETag": '"1"'}, 206
        headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(OBJECT)}"
        if fault.isdigit():
            status, headers = int(fault), {"Location": f"http://127.0.0.1:9/{self.path}"}
            body = f"<Error><Message>{self.path} {dict(self.headers)}</Message></Error>".encode()
        elif fault == "html":
            status, body, headers = 200, f"<html>{self.path}</html>".encode(), {"Content-Type": "text/html"}
        elif fault == "shifted":
            headers["Content-Range"] = f"bytes {start + 1}-{stop}/{len(OBJECT)}"
        elif fault == "nonsense":
            headers["Content-Range"] = f"{self.path}"
        elif fault == "changed":
            headers["ETag"] = f'"{self.server.requests}{self.path}"'
        self.send_response(status, self.path if fault == "nonsense" else None)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if fault in ("reset", "cut"):
            self.wfile.write(body[: len(body) // 2])
            self.wfile.flush()
            if fault == "reset":
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
            self.close_connection = True
            return
        self.wfile.write(body)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The URL of a server on loopback."""
    made = _Server(("127.0.0.1", 0), _Handler)
    made.handle_error = lambda *_: None  # type: ignore[method-assign]
    threading.Thread(target=made.serve_forever, args=(0.05,), daemon=True).start()
    yield f"http://127.0.0.1:{made.server_address[1]}"
    made.shutdown()
    made.server_close()


class _Urls:
    """Gives every object a signed URL below a base; refuses to renew it in a way that quotes it."""

    def __init__(self, base: str) -> None:
        self._base = base

    def url_for(self, name: str) -> SignedUrl:
        return SignedUrl(f"{self._base}/{name}?{QUERY}")

    def refresh(self, name: str) -> SignedUrl:
        raise RuntimeError(f"cannot renew {self._base}/{name}?{QUERY}")

    def names(self, prefix: str = "") -> Iterator[ObjectInfo]:
        return iter(())


FAULTS = ["ok", "400", "401", "403", "404", "412", "416", "307", "429", "500", "503"]
FAULTS += ["html", "shifted", "nonsense", "changed", "reset", "cut"]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_the_store_leaks_nothing(fault: str, server: str, logged: list[str]) -> None:
    settings = HttpSettings(
        allow_http=True, tries=2, backoff_start_s=0.001, backoff_max_s=0.002, idle_timeout_s=2, hedge_share=0
    )
    with HttpStore(_Urls(server), settings=settings) as store:
        out = [store.url("k"), repr(store), repr(vars(store)), repr(settings), repr(store.metrics)]
        read: list[Callable[[], object]] = [
            lambda: store.size(f"{fault}/k"),
            lambda: store.read_ranges(f"{fault}/k", [ByteRange(0, 5000), ByteRange(9000, 9001)]),
            lambda: list(store.read_pieces(f"{fault}/k", ByteRange(0, len(OBJECT)))),
        ]
        for one in read:
            try:
                one()
            except Exception as error:
                out.append(shown(error))
                assert isinstance(error, SegreaderError | RuntimeError)
        with pytest.raises(TypeError) as caught:
            pickle.dumps(store)
        out.append(shown(caught.value))
    assert leaks("\n".join(out)) == []
    assert leaks("\n".join(logged)) == []
    assert any("urllib3" in line for line in logged)


def test_a_host_that_does_not_answer_leaks_nothing(logged: list[str]) -> None:
    settings = HttpSettings(allow_http=True, tries=2, backoff_start_s=0.001, backoff_max_s=0.002, connect_timeout_s=1)
    for base in ("http://127.0.0.1:9/b", "http://no-such-host.invalid/b", "http://[::1]:9/b", "https://127.0.0.1:9/b"):
        with HttpStore(_Urls(base), settings=settings) as store, pytest.raises(SegreaderError) as caught:
            store.size("k")
        assert leaks(shown(caught.value)) == []
    assert leaks("\n".join(logged)) == []


def test_a_url_that_is_not_allowed_leaks_nothing(logged: list[str]) -> None:
    settings = HttpSettings(policy=address_policy(find_storage_options("https://h", environ={}, files=())))
    bases = ["https://evil.example", f"https://u:{CANARIES['password']}@b.s3.amazonaws.com", "https://10.0.0.1"]
    for base in [*bases, "ftp://b.s3.amazonaws.com", "https://b.s3.amazonaws.com\\", "https://[::1"]:
        with HttpStore(_Urls(base), settings=settings) as store, pytest.raises(SegreaderError) as caught:
            store.read_ranges("k", [ByteRange(0, 1)])
        assert leaks(shown(caught.value)) == []
    assert leaks("\n".join(logged)) == []


def test_storage_options_leak_nothing_however_wrong_they_are(tmp_path: Path) -> None:
    out = []
    secret = {name: CANARIES[name] for name in ("key", "secret", "token")}
    found = find_storage_options("s3://b", secret, environ={}, files=())
    out += [repr(found), str(found), f"{found}", repr(pickle.dumps(found)), repr(parse_storage_options(["key=x"]))]
    file = tmp_path / "c.toml"
    wrong: list[Callable[[], object]] = [
        lambda: parse_storage_options([CANARIES["secret"]]),
        lambda: parse_storage_options([f"key=@/none/{CANARIES['secret']}"]),
        lambda: find_storage_options("s3://b", {CANARIES["secret"]: "x"}, environ={}, files=()),
        lambda: find_storage_options("s3://b", {"key": CANARIES["key"]}, environ={}, files=()),
        lambda: find_storage_options("az://b", secret, environ={}, files=()),
        lambda: find_storage_options("s3://b", {"anon": CANARIES["secret"]}, environ={}, files=()),
        lambda: find_storage_options("s3://b", {"endpoint_url": f"http://h/?{QUERY}"}, environ={}, files=()),
        lambda: find_storage_options(
            "s3://b", {"endpoint_url": f"http://u:{CANARIES['password']}@h"}, environ={}, files=()
        ),
        lambda: find_storage_options("s3://b", environ={f"SEGREADER_STORAGE_ANON{''}": CANARIES["secret"]}, files=()),
        lambda: find_storage_options("s3://b", environ={}, files=[file]),
    ]
    file.write_text(f'[storage]\nkey = "{CANARIES["secret"]}\n')
    for one in wrong:
        with pytest.raises(OptionError) as caught:
            one()
        out.append(shown(caught.value))
    assert leaks("\n".join(out)) == []


def test_the_canaries_would_be_found() -> None:
    for name, value in CANARIES.items():
        assert leaks(f"x{value}x") == leaks(repr({"a": value})) == leaks(quote(value, safe="")) == [name]
    assert leaks(repr(pickle.dumps(Secret(CANARIES["secret"]).reveal()))) == ["secret"]
