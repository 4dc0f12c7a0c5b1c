"""Secrets that tests put in everywhere, and the search for them in what comes out."""

from __future__ import annotations

import base64
import contextlib
import http.server
import json
import logging
import pickle
import threading
import traceback
import warnings
from collections.abc import Iterator
from urllib.parse import quote
from xml.sax.saxutils import escape

ACCESS_KEY = "AKIAC4NARYC4NARYC4NA"
CANARIES = {
    "key": ACCESS_KEY,
    "secret": "c4nary/Secret+Key/c4nary0123456789abcdef",
    "token": "c4naryToken//////////wEaCXVzLWVhc3QtMSJ",
    "signature": "c4nary5f2a9e1b7d3c4nary5f2a9e1b7d3c4naryfe",
    "sas": "c4narySas%2Bq0=c4nary",
    "account_key": "c4naryAccountKey+/==",
    "password": "c4naryP4ssword",
}
QUERY = (
    f"X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={ACCESS_KEY}%2F20261101%2Fus-east-1%2Fs3%2Faws4_request"
    f"&X-Amz-Date=20261101T000000Z&X-Amz-Expires=900&X-Amz-Security-Token={quote(CANARIES['token'], safe='')}"
    f"&X-Amz-Signature={CANARIES['signature']}&sig={CANARIES['sas']}"
)


def leaks(text: str | bytes) -> list[str]:
    """The canaries that are in a text: as they are, percent-encoded, as repr shows them, or in base64."""
    text = text.decode(errors="replace") if isinstance(text, bytes) else text
    found = []
    for name, value in CANARIES.items():
        forms = {value, quote(value, safe=""), quote(value), repr(value)[1:-1], value.partition("//")[0]}
        forms |= {base64.b64encode(value.encode()).decode().rstrip("=")}
        if any(form in text for form in forms):
            found.append(name)
    return found


class _Everything(logging.Handler):
    """Keeps what any logger says, as two kinds of handlers would show it."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(logging.Formatter("%(name)s %(message)s").format(record))
        self.lines.append(repr(vars(record)))


@contextlib.contextmanager
def everything_logged() -> Iterator[list[str]]:
    """What all loggers say at DEBUG until the block ends, warnings too."""
    handler = _Everything()
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            logging.captureWarnings(True)
            yield handler.lines
    finally:
        logging.captureWarnings(False)
        root.setLevel(level)
        root.removeHandler(handler)


def shown(error: BaseException) -> str:
    """All that an error says: text, repr, fields, pickle, and the traceback with what caused it."""
    with contextlib.suppress(Exception):
        return "\n".join(
            [
                str(error),
                repr(error),
                repr(vars(error)),
                repr(error.args),
                "".join(traceback.format_exception(error)),
                repr(pickle.dumps(error)),
            ]
        )
    return "".join(traceback.format_exception(error))


class _Refusing(http.server.BaseHTTPRequestHandler):
    """Refuses everything, and says the whole request back."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""

    def do_GET(self) -> None:
        said = escape(f"{self.path} {dict(self.headers)}")
        code = "<Error><Code>SignatureDoesNotMatch</Code>"
        body = f'<?xml version="1.0"?>{code}<Message>{said}</Message><StringToSign>{said}</StringToSign></Error>'
        self.send_response(403)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    do_HEAD = do_POST = do_GET


class _Quoting(_Refusing):
    """Answers everything with one status, and repeats secrets wherever an answer has text, without naming them."""

    status, code, is_json = 403, "AccessDenied", False

    def do_GET(self) -> None:
        said = f"the token {CANARIES['token']} of {ACCESS_KEY} with {CANARIES['secret']} is not good"
        body = json.dumps({"error": {"code": self.status, "message": said, "errors": [{"message": said}]}})
        if not self.is_json:
            known = f"<Code>{self.code}</Code><Message>{said}</Message><RequestId>{said}</RequestId>"
            body = f'<?xml version="1.0"?><Error>{known}<HostId>{said}</HostId></Error>'
        self.send_response(self.status, said)
        self.send_header("Content-Type", "application/json" if self.is_json else "application/xml")
        if self.code:
            self.send_header("x-ms-error-code", self.code)
        for name in ("x-amz-request-id", "x-amz-id-2", "x-ms-request-id", "x-goog-hash", "x-amz-bucket-region"):
            self.send_header(name, said)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body.encode())

    do_HEAD = do_POST = do_GET


@contextlib.contextmanager
def quoting_server(status: int, code: str, *, is_json: bool = False) -> Iterator[str]:
    """The URL of a server on loopback whose every answer is this error, with secrets in its texts."""
    answer = {"status": status, "code": code, "is_json": is_json}
    with refusing_server(type("_OneError", (_Quoting,), answer)) as url:
        yield url


@contextlib.contextmanager
def refusing_server(handler: type[_Refusing] = _Refusing) -> Iterator[str]:
    """The URL of a server on loopback that refuses every request with 403, and quotes it."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
