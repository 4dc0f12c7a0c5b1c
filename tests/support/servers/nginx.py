"""nginx over a directory: plain files behind URLs that may carry any query, as a signed one does.

Taken from the path, or unpacked (not installed) from Debian's package into ``build/servers``.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from servers.process import NotAvailableError, free_port, running

_CACHE = Path(__file__).parents[3] / "build" / "servers" / "nginx"

_CONF = """
daemon off;
master_process off;
pid {directory}/nginx.pid;
error_log {directory}/nginx-error.log;
events {{ worker_connections 256; }}
http {{
    access_log off;
    client_body_temp_path {directory}/t1;
    proxy_temp_path {directory}/t2;
    fastcgi_temp_path {directory}/t3;
    uwsgi_temp_path {directory}/t4;
    scgi_temp_path {directory}/t5;
    default_type application/octet-stream;
    server {{
        listen 127.0.0.1:{port};
        root {served};
    }}
}}
"""


@dataclass(frozen=True, slots=True)
class FileServer:
    """A running file server; ``root`` is what it serves."""

    endpoint: str
    root: Path

    def upload(self, objects: Mapping[str, bytes]) -> None:
        """Put the objects there. What is replaced becomes a second younger: nginx's tags are of time and size."""
        for name, data in objects.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            age = path.stat().st_mtime + 1 if path.exists() else None
            fresh = path.with_name(path.name + ".new")
            fresh.write_bytes(data)
            if age is not None:
                os.utime(fresh, (age, age))
            fresh.replace(path)

    def signed_url(self, name: str) -> str:
        """The object's URL with a query like that of a signed one; nobody checks it."""
        return f"{self.endpoint}/{quote(name)}?X-Amz-Expires=3600&X-Amz-Signature=nginx-canary-4711"


@contextlib.contextmanager
def nginx(directory: Path) -> Iterator[FileServer]:
    """An nginx that serves files, until the block ends."""
    program = _program()
    port = free_port()
    served = directory / "served"
    served.mkdir()
    conf = directory / "nginx.conf"
    conf.write_text(_CONF.format(directory=directory, port=port, served=served))
    endpoint = f"http://127.0.0.1:{port}"
    # A path for the log that is opened before the configuration is read.
    command = [program, "-p", str(directory), "-c", str(conf), "-e", str(directory / "nginx-error.log")]
    with running(command, directory / "nginx.log", endpoint):
        yield FileServer(endpoint, served)


def _program() -> str:
    if found := shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin"):
        return found
    unpacked = _CACHE / "usr" / "sbin" / "nginx"
    if not unpacked.exists():
        if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
            raise NotAvailableError("nginx is not installed, and no apt-get is here to fetch it with")
        downloads = _CACHE / "deb"
        downloads.mkdir(parents=True, exist_ok=True)
        try:
            _run(["apt-get", "download", "nginx"], downloads)
            _run(["dpkg-deb", "-x", str(next(downloads.glob("*.deb"))), str(_CACHE)], downloads)
        except (subprocess.SubprocessError, StopIteration, OSError) as error:
            raise NotAvailableError(f"nginx is not installed and could not be fetched: {error}") from error
    missing = subprocess.run(["ldd", str(unpacked)], capture_output=True, text=True, check=False).stdout
    if "not found" in missing:
        raise NotAvailableError("nginx was unpacked, but libraries that it needs are not installed")
    return str(unpacked)


def _run(command: list[str], directory: Path) -> None:
    subprocess.run(command, cwd=directory, check=True, capture_output=True, timeout=60)
