"""moto's server with one write at a time, as S3 makes them: moto itself looks whether an object is there and then puts
it, and of two writers at once both may win. Run with a port."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from threading import Lock
from typing import Any

import moto.server
from werkzeug.serving import run_simple

_writing = Lock()
_server: Any = moto.server  # which exports neither by a list
_moto: Callable[..., Iterable[bytes]] = _server.DomainDispatcherApplication(_server.create_backend_app)


def serve(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
    """Answer a request; one that may change something alone."""
    if environ["REQUEST_METHOD"] in ("GET", "HEAD"):
        return _moto(environ, start_response)
    with _writing:
        return list(_moto(environ, start_response))


if __name__ == "__main__":
    run_simple("127.0.0.1", int(sys.argv[1]), serve, threaded=True)
