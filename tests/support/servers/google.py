"""As much of Google Cloud Storage as is asked for here: the JSON listing, in pages, and objects by their URLs.

No package that can be installed gives both. Tokens are given to everyone; a signature is not checked, but its presence.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

PAGE = 2


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
        data = self.objects.get(unquote(parts.path).removeprefix(f"/{self.bucket}/"))
        if data is None:
            return 404, {}, b'{"error": {"code": 404, "message": "No such object"}}'
        first, last = (int(number) for number in request.headers["Range"].removeprefix("bytes=").split("-"))
        body = data[first : last + 1]
        return 206, {"Content-Range": f"bytes {first}-{first + len(body) - 1}/{len(data)}", "ETag": '"1"'}, body

    def _page(self, query: dict[str, str]) -> bytes:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter")
        entries: dict[str, bool] = {}
        for name in sorted(name for name in self.objects if name.startswith(prefix)):
            directory, is_below, _ = name[len(prefix) :].partition(delimiter) if delimiter else (name, "", "")
            entries[f"{prefix}{directory}{delimiter}" if is_below else name] = bool(is_below)
        start = int(query.get("pageToken", 0))
        page = list(entries.items())[start : start + PAGE]
        items = [
            {"name": name, "size": str(len(self.objects[name])), "updated": "2026-01-02T03:04:05.678Z"}
            for name, is_directory in page
            if not is_directory
        ]
        more = {"nextPageToken": str(start + PAGE)} if start + PAGE < len(entries) else {}
        prefixes = [name for name, is_directory in page if is_directory]
        return json.dumps({"items": items, **({"prefixes": prefixes} if prefixes else {}), **more}).encode()


@contextlib.contextmanager
def google() -> Iterator[GoogleServer]:
    """The store, until the block ends."""
    server = GoogleServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._send(*server.answer(self))

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            token = {"access_token": "canary-4711", "expires_in": 3600, "token_type": "Bearer"}
            self._send(200, {"Content-Type": "application/json"}, json.dumps(token).encode())

        def _send(self, status: int, headers: dict[str, str], body: bytes) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listener:
        server.endpoint = f"http://127.0.0.1:{listener.server_address[1]}"
        thread = threading.Thread(target=listener.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield server
        listener.shutdown()
        thread.join()
