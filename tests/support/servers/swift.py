"""OpenStack Swift with its s3api: real SigV4, and presigned URLs that really expire.

Four processes on one device directory, no memcached; the file system must have extended attributes. They wait long for
each other: where a machine stands still for a second, an object would be stored and never listed.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from servers.process import NotAvailableError, Process, answers, free_port, script
from servers.s3 import REGION, S3Server

PAGE = 100
"""Objects of one page of a listing: S3 has a thousand, which would be slow to fill."""

_SWIFT_CONF = """
[swift-hash]
swift_hash_path_suffix = a
swift_hash_path_prefix = b
[storage-policy:0]
name = gold
default = yes
"""

_PATIENCE = """
conn_timeout = 30
node_timeout = 60
container_update_timeout = 60
"""

_BACKEND_CONF = """
[DEFAULT]
bind_ip = 127.0.0.1
bind_port = {port}
devices = {devices}
mount_check = false
disable_fallocate = true
workers = 0
user = {user}
swift_dir = {etc}
log_level = WARNING
{patience}
[pipeline:main]
pipeline = {name}-server
[app:{name}-server]
use = egg:swift#{name}
"""

_PROXY_CONF = """
[DEFAULT]
bind_ip = 127.0.0.1
bind_port = {port}
workers = 0
user = {user}
swift_dir = {etc}
log_level = WARNING
{patience}
[pipeline:main]
pipeline = {pipeline} proxy-server
[app:proxy-server]
use = egg:swift#proxy
allow_account_management = true
account_autocreate = true
"""

_FILTERS = {
    "catch_errors": {},
    "gatekeeper": {},
    "healthcheck": {},
    "cache": {"use": "egg:swift#memcache", "memcache_servers": "127.0.0.1:1"},
    "listing_formats": {},
    "s3api": {"location": REGION, "max_bucket_listing": str(PAGE)},
    "tempauth": {"user_test_tester": "swift-secret-canary-4711 .admin"},
    "copy": {},
    "slo": {},
    "dlo": {},
    "versioned_writes": {"allow_versioned_writes": "true", "allow_object_versioning": "true"},
    "symlink": {},
}


@contextlib.contextmanager
def swift(directory: Path) -> Iterator[S3Server]:
    """A Swift cluster of one device behind its S3 interface, until the block ends."""
    etc, devices = directory / "swift", directory / "swift" / "devices"
    (devices / "d1").mkdir(parents=True)
    _require_extended_attributes(devices)
    (etc / "swift.conf").write_text(_SWIFT_CONF)
    facts = {"devices": devices, "etc": etc, "user": _user(), "patience": _PATIENCE}
    backends = {name: free_port() for name in ("account", "container", "object")}
    for name, port in backends.items():
        (etc / f"{name}.conf").write_text(_BACKEND_CONF.format(name=name, port=port, **facts))
    _build_rings(etc, backends)
    port = free_port()
    (etc / "proxy.conf").write_text(_proxy_conf(port=port, **facts))
    with contextlib.ExitStack() as stack:
        processes = {
            name: stack.enter_context(
                Process([script(f"swift-{name}-server"), str(etc / f"{name}.conf")], directory / f"swift-{name}.log")
            )
            for name in (*backends, "proxy")
        }
        for name, at in (*backends.items(), ("proxy", port)):
            url = f"http://127.0.0.1:{at}/healthcheck"
            processes[name].wait_until(lambda url=url: answers(url))  # type: ignore[misc]
        yield S3Server(f"http://127.0.0.1:{port}", "test:tester", "swift-secret-canary-4711")


def _proxy_conf(**facts: object) -> str:
    text = _PROXY_CONF.format(pipeline=" ".join(_FILTERS), **facts)
    for name, settings in _FILTERS.items():
        lines = {"use": f"egg:swift#{name}", **settings}
        text += f"[filter:{name}]\n" + "".join(f"{key} = {value}\n" for key, value in lines.items())
    return text


def _build_rings(etc: Path, backends: dict[str, int]) -> None:
    code = (
        "import sys\n"
        "from swift.common.ring import RingBuilder\n"
        "for item in sys.argv[1:]:\n"
        "    name, port = item.split(':')\n"
        "    builder = RingBuilder(4, 1, 0)\n"
        "    builder.add_dev({'region': 1, 'zone': 1, 'ip': '127.0.0.1', 'port': int(port), 'device': 'd1',\n"
        "                     'weight': 1, 'replication_ip': '127.0.0.1', 'replication_port': int(port)})\n"
        "    builder.rebalance()\n"
        "    builder.get_ring().save(f'{name}.ring.gz')\n"
    )
    command = [sys.executable, "-c", code, *(f"{name}:{port}" for name, port in backends.items())]
    done = subprocess.run(command, cwd=etc, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotAvailableError(f"Swift's rings cannot be built: {done.stderr[-500:]}")


def _require_extended_attributes(directory: Path) -> None:
    import os

    try:
        os.setxattr(directory, b"user.segreader", b"1")
    except OSError as error:
        raise NotAvailableError(f"Swift needs extended attributes at {directory}: {error.strerror}") from error


def _user() -> str:
    import getpass

    return getpass.getuser()
