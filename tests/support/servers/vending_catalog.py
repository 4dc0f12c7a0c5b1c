"""A REST catalog of Iceberg that gives access to a bucket with each table, and to nothing without its token.

As much of the REST contract as pyiceberg asks for, over a catalog in SQLite. Source: Iceberg's
``rest-catalog-open-api``.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from pyiceberg.catalog.rest import CreateTableRequest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table import CommitTableRequest, Table
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

TOKEN = "catalog-canary-4711"


@dataclass
class VendingCatalog:
    """A running catalog.

    Args:
        catalog: what is behind it.
        gives: with each table: properties of its store, made anew each time.
    """

    catalog: SqlCatalog
    gives: dict[str, str]
    uri: str = ""
    given: list[str] = field(default_factory=list)
    """The session's token of each answer with a table."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, method: str, path: str, data: bytes) -> tuple[int, dict[str, Any] | None]:
        """Status and body of a request that had the token."""
        parts = [unquote(part) for part in urlsplit(path).path.strip("/").split("/")][1:]
        match method, parts:
            case "GET", ["config"]:
                return 200, {"defaults": {}, "overrides": {}}
            case "GET" | "HEAD", ["namespaces", name]:
                return (200, {"namespace": [name], "properties": {}}) if self._has(name) else _missing("Namespace")
            case "POST", ["namespaces"]:
                named = json.loads(data)["namespace"]
                self.catalog.create_namespace_if_not_exists(tuple(named))
                return 200, {"namespace": named, "properties": {}}
            case "POST", ["namespaces", name, "tables"]:
                absent = {"location": None, "partition-spec": None, "write-order": None}
                asked = CreateTableRequest.model_validate({**absent, **json.loads(data)})
                table = self.catalog.create_table(
                    (name, asked.name),
                    asked.table_schema,
                    partition_spec=asked.partition_spec or UNPARTITIONED_PARTITION_SPEC,
                    sort_order=asked.write_order or UNSORTED_SORT_ORDER,
                    properties=asked.properties,
                )
                return 200, self._told(table)
            case (("GET" | "HEAD" | "POST"), ["namespaces", name, "tables", table_name]):
                try:
                    table = self.catalog.load_table((name, table_name))
                except NoSuchTableError:
                    return _missing("Table")
                if method != "POST":
                    return 200, self._told(table)
                commit = CommitTableRequest.model_validate_json(data)
                try:
                    done = self.catalog.commit_table(table, commit.requirements, commit.updates)
                except CommitFailedException as error:
                    return 409, _error("CommitFailedException", str(error), 409)
                return 200, json.loads(done.model_dump_json(by_alias=True))
        return _missing("Endpoint")

    def _has(self, name: str) -> bool:
        return (name,) in self.catalog.list_namespaces()

    def _told(self, table: Table) -> dict[str, Any]:
        token = f"session-canary-{len(self.given)}"
        self.given.append(token)
        return {
            "metadata-location": table.metadata_location,
            "metadata": json.loads(table.metadata.model_dump_json(by_alias=True)),
            "config": {**self.gives, "s3.session-token": token},
        }


def _missing(what: str) -> tuple[int, dict[str, Any]]:
    return 404, _error(f"NoSuch{what}Exception", "it is not there", 404)


def _error(kind: str, message: str, code: int) -> dict[str, Any]:
    return {"error": {"type": kind, "message": message, "code": code}}


@contextlib.contextmanager
def vending_catalog(root: Path, behind: dict[str, str], gives: dict[str, str]) -> Iterator[VendingCatalog]:
    """A catalog, until the block ends.

    Args:
        root: for its database.
        behind: properties of the catalog that it keeps its tables with.
        gives: properties of the store that it gives with each table.
    """
    catalog = SqlCatalog("behind", **{"uri": f"sqlite:///{root}/behind.db", **behind})
    server = VendingCatalog(catalog, gives)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                status, body = 401, _error("NotAuthorizedException", "no token", 401)
            else:
                with server.lock:
                    status, found = server.answer(self.command, self.path, data)
                body = found or {}
            text = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(text)

        do_GET = do_HEAD = do_POST = handle_any

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listener:
        server.uri = f"http://127.0.0.1:{listener.server_address[1]}"
        thread = threading.Thread(target=listener.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield server
        listener.shutdown()
        thread.join()
    catalog.engine.dispose()
