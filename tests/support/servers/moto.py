"""moto's server: every rule of S3 but signatures and their expiry, which it does not check."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

from servers.process import free_port, running
from servers.s3 import S3Server


@contextlib.contextmanager
def moto(directory: Path) -> Iterator[S3Server]:
    """A moto server, until the block ends."""
    port = free_port()
    endpoint = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-P", str(Path(__file__).with_name("moto_atomic.py")), str(port)]
    with running(command, directory / "moto.log", endpoint + "/moto-api/"):
        yield S3Server(endpoint, "AKIAMOTOMOTOMOTOMOTO", "moto-secret-canary-4711")
