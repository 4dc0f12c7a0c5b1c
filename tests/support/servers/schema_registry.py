"""A small schema registry: as much of Confluent's REST contract as clients of ours and of theirs use, in this process.

It begins with what ``fixtures/schemas/registry.json`` recorded of a real one. ``confluent_kafka``'s own client is its
judge: ``tests/schemas/test_registry_of_the_tests.py``.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import ssl
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

RECORDED = Path(__file__).parents[3] / "fixtures" / "schemas" / "registry.json"


@dataclass(frozen=True, slots=True)
class Answered:
    """One request: its method and path with the query, and its headers in lower case."""

    line: str
    headers: dict[str, str]


@dataclass(slots=True)
class Answer:
    """An answer that a test plants in place of the right one."""

    status: int = 200
    body: bytes = b"{}"
    headers: dict[str, str] = field(default_factory=dict)
    wait_s: float = 0.0
    cut: int = 0
    """Bytes of the body that are announced and do not come."""


class SchemaRegistryServer:
    """Its versions, the requests it got, and what it answers in place of the truth.

    Args:
        versions: as ``/subjects/…/versions/…`` answers with; ``deleted`` marks those that were deleted softly.
    """

    def __init__(self, versions: list[dict[str, Any]]) -> None:
        self.versions = versions
        self.requests: list[Answered] = []
        self.planted: list[Answer] = []
        self.instead: Callable[[str], Answer | None] = lambda path: None
        self.user: tuple[str, str] | None = None
        self.token: str | None = None
        self.url = ""
        self.is_over = threading.Event()
        self._lock = threading.Lock()

    @property
    def lines(self) -> list[str]:
        """The requests by method, path and query."""
        return [one.line for one in self.requests]

    def answer(self, method: str, target: str, headers: dict[str, str], body: bytes) -> Answer:
        """The answer to one request."""
        with self._lock:
            self.requests.append(Answered(f"{method} {target}", headers))
            if self.planted:
                return self.planted.pop(0)
            path = urlsplit(target).path
            if (instead := self.instead(path)) is not None:
                return instead
            if not self._allows(headers):
                return _error(401, 401, "Unauthorized")
            query = {name: values[-1] for name, values in parse_qs(urlsplit(target).query).items()}
            parts = [unquote(one) for one in path.strip("/").split("/")]
            try:
                return _json(self._right(method, parts, query, json.loads(body) if body else None))
            except _ContractError as error:
                return _error(*error.args)

    def _allows(self, headers: dict[str, str]) -> bool:
        given = headers.get("authorization", "")
        if self.user is not None:
            return given == "Basic " + base64.b64encode(":".join(self.user).encode()).decode()
        return self.token is None or given == f"Bearer {self.token}"

    def _right(self, method: str, parts: list[str], query: dict[str, str], body: Any) -> Any:
        shown = [one for one in self.versions if query.get("deleted") == "true" or not one.get("deleted")]
        match method, parts:
            case "GET", ["subjects"]:
                return list(dict.fromkeys(one["subject"] for one in shown))
            case "GET", ["subjects", subject, "versions"]:
                return [one["version"] for one in self._of(shown, subject)]
            case "GET", ["subjects", subject, "versions", version]:
                return self._version(self._of(shown, subject), version)
            case "GET", ["schemas", "ids", id]:
                return _schema_alone(self._first(lambda one: str(one["id"]) == id))
            case "GET", ["schemas", "ids", id, "versions"]:
                found = [one for one in shown if str(one["id"]) == id]
                return [{"subject": one["subject"], "version": one["version"]} for one in found]
            case "GET", ["schemas", "guids", guid]:
                return _schema_alone(self._first(lambda one: one.get("guid") == guid))
            case "GET", ["schemas", "types"]:
                return ["JSON", "PROTOBUF", "AVRO"]
            case "POST", ["subjects", subject, "versions"]:
                return self._register(subject, body)
            case "POST", ["subjects", subject]:
                return self._looked_up(subject, body)
            case "DELETE", ["subjects", subject]:
                return self._delete(subject, is_permanent=query.get("permanent") == "true")
        raise _ContractError(404, 404, "HTTP 404 Not Found")

    @staticmethod
    def _of(versions: list[dict[str, Any]], subject: str) -> list[dict[str, Any]]:
        found = [one for one in versions if one["subject"] == subject]
        if not found:
            raise _ContractError(404, 40401, f"Subject '{subject}' not found.")
        return found

    @staticmethod
    def _version(versions: list[dict[str, Any]], version: str) -> dict[str, Any]:
        if version == "latest":
            return _without_mark(versions[-1])
        for one in versions:
            if str(one["version"]) == version:
                return _without_mark(one)
        raise _ContractError(404, 40402, f"Version {version} not found.")

    def _first(self, is_it: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        for one in self.versions:
            if is_it(one):
                return one
        raise _ContractError(404, 40403, "Schema not found")

    def _register(self, subject: str, body: dict[str, Any]) -> dict[str, Any]:
        content = _content(body)
        for one in self.versions:
            if one["subject"] == subject and _content(one) == content:
                return {"id": one["id"], "guid": one["guid"]}
        same = next((one for one in self.versions if _content(one) == content), None)
        digest = hashlib.md5(json.dumps(content).encode(), usedforsecurity=False).digest()
        made = {
            "subject": subject,
            "version": 1 + max((one["version"] for one in self.versions if one["subject"] == subject), default=0),
            "id": same["id"] if same else 1 + max((one["id"] for one in self.versions), default=0),
            "guid": same["guid"] if same else str(uuid.UUID(bytes=digest)),
            **{name: value for name, value in body.items() if name in ("schema", "schemaType", "references") and value},
        }
        if made.get("schemaType") == "AVRO":
            del made["schemaType"]
        self.versions.append(made)
        return {"id": made["id"], "guid": made["guid"]}

    def _looked_up(self, subject: str, body: dict[str, Any]) -> dict[str, Any]:
        for one in self._of(self.versions, subject):
            if _content(one) == _content(body):
                return _without_mark(one)
        raise _ContractError(404, 40403, "Schema not found")

    def _delete(self, subject: str, *, is_permanent: bool) -> list[int]:
        found = self._of(self.versions, subject)
        if is_permanent:
            self.versions = [one for one in self.versions if one["subject"] != subject]
        else:
            for one in found:
                one["deleted"] = True
        return [one["version"] for one in found]


class _ContractError(Exception):
    """Status, code and message."""


def _content(one: dict[str, Any]) -> list[Any]:
    return [one.get("schemaType") or "AVRO", one["schema"], one.get("references") or []]


def _without_mark(one: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in one.items() if name != "deleted"}


def _schema_alone(one: dict[str, Any]) -> dict[str, Any]:
    return {name: one[name] for name in ("schema", "schemaType", "references", "guid") if name in one}


def _json(document: Any) -> Answer:
    return Answer(body=json.dumps(document).encode())


def _error(status: int, code: int, message: str) -> Answer:
    return Answer(status, json.dumps({"error_code": code, "message": message}).encode())


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16  # an answer in one piece: else each waits for an acknowledgement
    registry: SchemaRegistryServer

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        answer = self.registry.answer(self.command, self.path, headers, body)
        if answer.wait_s:
            self.registry.is_over.wait(answer.wait_s)
        with contextlib.suppress(OSError):  # the client may have gone
            self.send_response(answer.status)
            length = len(answer.body) + answer.cut
            for name, value in (
                {"Content-Type": "application/json", "Content-Length": f"{length}"} | answer.headers
            ).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer.body)
        self.close_connection = bool(answer.cut)

    do_GET = do_POST = do_DELETE = _serve

    def log_message(self, *_: object) -> None:
        """Print nothing."""


class _QuietServer(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """Print nothing: clients go as they like."""


@contextlib.contextmanager
def schema_registry(
    versions: list[dict[str, Any]] | None = None, *, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1"
) -> Iterator[SchemaRegistryServer]:
    """A registry on loopback until the block ends.

    Args:
        versions: what it has; by default what was recorded.
        tls: of the server, with its certificate.
        host: the name that its URL has.
    """
    if versions is None:
        versions = json.loads(RECORDED.read_text())["versions"]
    registry = SchemaRegistryServer(versions)
    handler = type("_Bound", (_Handler,), {"registry": registry})
    with _QuietServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        registry.url = f"{'http' if tls is None else 'https'}://{host}:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield registry
        finally:
            registry.is_over.set()
            server.shutdown()
            thread.join()
