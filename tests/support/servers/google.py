"""As much of Google Cloud Storage as is asked for here: the JSON listing, in pages, objects by their URLs, and uploads.

No package that can be installed gives both. Tokens are given to everyone; a signature is not checked, but its presence.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from servers.google_xml import answer_xml, is_xml
from servers.process import free_port, running

PAGE = 2
_MISSING: tuple[int, dict[str, str], bytes] = (404, {}, b'{"error": {"code": 404, "message": "No such object"}}')


@dataclass
class GoogleServer:
    """A running store of one bucket."""

    endpoint: str = ""
    bucket: str = "segments"
    objects: dict[str, bytes] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    prefixes: list[str] = field(default_factory=list)
    """Of each page that was asked for."""
    is_public: bool = False
    keeps_of_a_part: int = 1 << 40
    """Bytes of a part of a resumable upload that are kept at most; a multiple of 256 KiB with Google."""
    sessions: dict[str, tuple[str, bytearray]] = field(default_factory=dict)
    """Resumable uploads that are not finished: the object's name, and what is kept of it."""
    parts: dict[str, dict[str, bytes]] = field(default_factory=dict)
    """Of uploads of the XML interface that are not finished."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def service_account_key(self) -> str:
        """A new key file's text; tokens for it come from here."""
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import rsa

        key = rsa.generate_private_key(65537, 2048).private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return json.dumps(
            {
                "type": "service_account",
                "project_id": "acme",
                "private_key_id": "1",
                "private_key": key.decode(),
                "client_email": "reader@acme.iam.gserviceaccount.com",
                "token_uri": f"{self.endpoint}/token",
            }
        )

    def answer(self, request: BaseHTTPRequestHandler) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body for a GET."""
        parts = urlsplit(request.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        self.requests.append(f"{parts.path}?{','.join(sorted(query))}")
        self.prefixes += [query.get("prefix", "")] if parts.path.endswith("/o") else []
        is_signed = "X-Goog-Signature" in query or request.headers.get("Authorization") == "Bearer canary-4711"
        if not (is_signed or self.is_public):
            return 401, {}, b'{"error": {"code": 401, "message": "Anonymous caller"}}'
        if parts.path == f"/storage/v1/b/{self.bucket}/o":
            return 200, {"Content-Type": "application/json"}, self._page(query)
        below = f"/storage/v1/b/{self.bucket}/o/"
        is_media = query.get("alt") == "media"
        is_json = parts.path.startswith(below)
        name = unquote(parts.path.removeprefix(below if is_json else f"/{self.bucket}/"))
        data = self.objects.get(name)
        if data is None:
            return _MISSING
        if is_json and not is_media:
            return 200, {"Content-Type": "application/json"}, self._described(name)
        if is_media and "Range" not in request.headers:
            return 200, {"Content-Type": "application/octet-stream"}, data
        first, last = request.headers["Range"].removeprefix("bytes=").split("-")
        start = int(first)
        body = data[start : int(last) + 1 if last else None]
        return 206, {"Content-Range": f"bytes {start}-{start + len(body) - 1}/{len(data)}", "ETag": '"1"'}, body

    def change(self, request: BaseHTTPRequestHandler) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body for a POST, PUT or DELETE of an object or a session of its upload."""
        parts = urlsplit(request.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        data = request.rfile.read(int(request.headers.get("Content-Length", 0)))
        self.requests.append(f"{request.command} {parts.path}?{','.join(sorted(query))}")
        place = f"/storage/v1/b/{self.bucket}/o"
        with self.lock:
            if "upload_id" in query:
                return self._resume(request, query["upload_id"], data)
            if request.headers.get("Authorization") != "Bearer canary-4711":
                return 403, {}, b'{"error": {"code": 403, "message": "Anonymous caller"}}'
            if request.command == "DELETE":
                is_there = self.objects.pop(unquote(parts.path.removeprefix(f"{place}/")), None) is not None
                return (204, {}, b"") if is_there else _MISSING
            if parts.path != f"/upload{place}":
                return _MISSING
            if query.get("ifGenerationMatch") == "0" and query["name"] in self.objects:
                return 412, {}, b'{"error": {"code": 412, "message": "conditionNotMet"}}'
            if query["uploadType"] == "media":
                return self._made(query["name"], data)
            session = f"session-canary-{len(self.requests)}"
            self.sessions[session] = (query["name"], bytearray())
            return 200, {"Location": f"{self.endpoint}{parts.path}?uploadType=resumable&upload_id={session}"}, b""

    def _resume(self, request: BaseHTTPRequestHandler, session: str, data: bytes) -> tuple[int, dict[str, str], bytes]:
        if session not in self.sessions:
            return _MISSING
        name, kept = self.sessions[session]
        if request.command == "DELETE":
            del self.sessions[session]
            return 499, {}, b""
        span, _, total = request.headers["Content-Range"].removeprefix("bytes ").partition("/")
        if int(span.partition("-")[0]) != len(kept):
            return 400, {}, b'{"error": {"code": 400, "message": "not where the last part ended"}}'
        kept += data[: self.keeps_of_a_part]
        if total == str(len(kept)):
            del self.sessions[session]
            return self._made(name, bytes(kept))
        return 308, {"Range": f"bytes=0-{len(kept) - 1}"}, b""

    def _made(self, name: str, data: bytes) -> tuple[int, dict[str, str], bytes]:
        self.objects[name] = data
        return 200, {"Content-Type": "application/json"}, self._described(name)

    def _described(self, name: str) -> bytes:
        size = str(len(self.objects[name]))
        return json.dumps({"name": name, "bucket": self.bucket, "size": size, "generation": "1"}).encode()

    def _page(self, query: dict[str, str]) -> bytes:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter")
        objects = dict(self.objects)  # others may put and delete meanwhile
        entries: dict[str, bool] = {}
        for name in sorted(name for name in objects if name.startswith(prefix)):
            directory, is_below, _ = name[len(prefix) :].partition(delimiter) if delimiter else (name, "", "")
            entries[f"{prefix}{directory}{delimiter}" if is_below else name] = bool(is_below)
        start = int(query.get("pageToken", 0))
        page = list(entries.items())[start : start + PAGE]
        items = [
            {"name": name, "size": str(len(objects[name])), "updated": "2026-01-02T03:04:05.678Z"}
            for name, is_directory in page
            if not is_directory
        ]
        more = {"nextPageToken": str(start + PAGE)} if start + PAGE < len(entries) else {}
        prefixes = [name for name, is_directory in page if is_directory]
        return json.dumps({"items": items, **({"prefixes": prefixes} if prefixes else {}), **more}).encode()


@contextlib.contextmanager
def google(port: int = 0) -> Iterator[GoogleServer]:
    """The store, until the block ends; by default at any port."""
    server = GoogleServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._send(*(answer_xml(server, self) if is_xml(self) else server.answer(self)))

        def do_HEAD(self) -> None:
            self._send(*answer_xml(server, self))

        def do_PUT(self) -> None:
            self._send(*(answer_xml(server, self) if is_xml(self) else server.change(self)))

        def do_DELETE(self) -> None:
            self._send(*(answer_xml(server, self) if is_xml(self) else server.change(self)))

        def do_POST(self) -> None:
            if self.path != "/token":
                self._send(*(answer_xml(server, self) if is_xml(self) else server.change(self)))
                return
            self.rfile.read(int(self.headers["Content-Length"]))
            token = {"access_token": "canary-4711", "expires_in": 3600, "token_type": "Bearer"}
            self._send(200, {"Content-Type": "application/json"}, json.dumps(token).encode())

        def _send(self, status: int, headers: dict[str, str], body: bytes) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as listener:
        server.endpoint = f"http://127.0.0.1:{listener.server_address[1]}"
        thread = threading.Thread(target=listener.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield server
        listener.shutdown()
        thread.join()


@contextlib.contextmanager
def google_beside(directory: Path) -> Iterator[GoogleServer]:
    """The store as a process of its own, until the block ends: its objects are not in the value.

    ``deltalake`` holds Python's lock while it waits for some answers.
    """
    port = free_port()
    endpoint = f"http://127.0.0.1:{port}"
    support = str(Path(__file__).parents[1])
    command = [sys.executable, "-P", "-m", "servers.google", str(port)]
    with running(command, directory / "google.log", endpoint, env={"PYTHONPATH": support}):
        yield GoogleServer(endpoint)


if __name__ == "__main__":
    with google(int(sys.argv[1])):
        threading.Event().wait()
