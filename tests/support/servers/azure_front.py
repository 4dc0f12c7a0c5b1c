"""A program before azurite that makes it more like Azure: the account by its host, and listings from a name on.

A process of its own: ``deltalake`` holds Python's lock while it waits for some answers. Called with the port to listen
on, that of azurite, and the account.
"""

from __future__ import annotations

import http.client
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit
from xml.etree import ElementTree

_OF_A_CONNECTION = frozenset({"transfer-encoding", "connection", "keep-alive", "date", "server", "content-length"})


class _Front(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    behind = 0
    host = ""

    def forward(self) -> None:
        data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name: text for name, text in self.headers.items() if name.lower() != "host"}
        connection = http.client.HTTPConnection("127.0.0.1", self.behind)
        try:
            connection.request(self.command, self.path, data or None, headers | {"Host": self.host})
            answer = connection.getresponse()
            body = answer.read()
        finally:
            connection.close()
        query = parse_qs(urlsplit(self.path).query)
        if answer.status == 200 and "startFrom" in query:
            body = _listed_from(body, query["startFrom"][0])
        size = answer.getheader("Content-Length", "0") if self.command == "HEAD" else str(len(body))
        self.send_response(answer.status)
        for name, text in answer.getheaders():
            if name.lower() not in _OF_A_CONNECTION:
                self.send_header(name, text)
        self.send_header("Content-Length", size)
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = forward

    def log_message(self, *_: object) -> None:
        pass


def _listed_from(body: bytes, first: str) -> bytes:
    """A listing without the blobs whose names are before this one. Source: "List Blobs" of Azure's REST reference."""
    root = ElementTree.fromstring(body)
    blobs = root.find("Blobs")
    assert blobs is not None
    for blob in [one for one in blobs if (one.findtext("Name") or "") < first]:
        blobs.remove(blob)
    listed: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return listed


if __name__ == "__main__":
    port, behind, account = sys.argv[1:]
    _Front.behind, _Front.host = int(behind), f"{account}.blob.localhost:{behind}"
    ThreadingHTTPServer(("127.0.0.1", int(port)), _Front).serve_forever()
