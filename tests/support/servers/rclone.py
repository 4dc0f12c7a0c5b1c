"""rclone's S3 server: real signatures, and answers of its own kind (200 with a Content-Range, no If-Match)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from servers.process import free_port, running, script
from servers.s3 import S3Server


@contextlib.contextmanager
def rclone(directory: Path, served: Path | None = None) -> Iterator[S3Server]:
    """``rclone serve s3`` over a directory, until the block ends.

    Args:
        directory: for its files.
        served: what it serves, a bucket for each directory in it; by default an empty one of its own.
    """
    port = free_port()
    endpoint = f"http://127.0.0.1:{port}"
    fresh: list[str] = []
    if served is None:
        served = directory / "rclone"
        served.mkdir()
    else:
        fresh = ["--dir-cache-time", "0s"]  # others write there
    config = directory / "rclone.conf"
    config.touch()
    server = S3Server(endpoint, "RCLONEKEY", "rclone-secret-canary-4711")
    command = [
        script("rclone"),
        "serve",
        "s3",
        "--addr",
        f"127.0.0.1:{port}",
        "--auth-key",
        f"{server.key},{server.secret}",
        "--config",
        str(config),
        *fresh,
        str(served),
    ]
    with running(command, directory / "rclone.log", endpoint):
        yield server
