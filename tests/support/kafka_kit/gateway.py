"""A gateway as its users run it: ``segreader gateway`` with a configuration file, in a process of its own."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import urllib3
from gateway_process import require_prometheus
from servers.process import Process, free_port, free_ports, script

_NODES = 3
_START_S = 60.0


@dataclass(frozen=True, slots=True)
class RunningGateway:
    """A gateway that answers.

    Args:
        bootstrap: what its clients begin with.
        metrics_url: of its counters.
        audit: a line for each location that it gave.
        log: what it printed.
        pid: its process.
    """

    bootstrap: str
    metrics_url: str
    audit: Path
    log: Path
    pid: int

    def metrics(self) -> str:
        """Its counters as Prometheus reads them."""
        return urllib3.request("GET", self.metrics_url, timeout=10.0).data.decode()

    def count(self, name: str) -> float:
        """One counter, all its labels together."""
        found = re.findall(rf"^segreader_gateway_{name}(?:{{[^}}]*}})? (\S+)$", self.metrics(), re.MULTILINE)
        return sum(map(float, found))

    def audited(self) -> list[dict[str, Any]]:
        """The locations that it gave; waits until those of before are written."""
        while self.count("audit_lines_waiting"):
            time.sleep(0.01)
        return [json.loads(line) for line in self.audit.read_text().splitlines()] if self.audit.exists() else []


@contextlib.contextmanager
def gateway(
    directory: Path, config: Mapping[str, object], *, env: Mapping[str, str] | None = None, page: str = "readyz"
) -> Iterator[RunningGateway]:
    """A gateway in front of up to three brokers, until the block ends.

    Args:
        config: by the names of its configuration file; ports and files are set here.
        env: variables that hold its secrets.
        page: which is waited for; before it is ready it takes clients, and may know no location yet.
    """
    require_prometheus()
    port, metrics = free_ports(_NODES + 1), free_port()
    given = {
        "listen": f"127.0.0.1:{port}",
        "metrics_listen": f"127.0.0.1:{metrics}",
        "audit_file": str(directory / "audit.jsonl"),
        **config,
    }
    file = directory / "gateway.toml"
    file.write_text(_toml(given))
    log = directory / "gateway.log"
    url = f"http://127.0.0.1:{metrics}/metrics"
    with Process([script("segreader"), "gateway", "--config", str(file)], log, env) as process:
        process.wait_until(lambda: _is_ready(port, url.replace("/metrics", f"/{page}")), _START_S)
        yield RunningGateway(f"127.0.0.1:{port}", url, directory / "audit.jsonl", log, process.pid)


def _is_ready(port: int, url: str) -> bool:
    """Whether clients and the readers of metrics are heard, and the page says that all is well."""
    try:
        socket.create_connection(("127.0.0.1", port), 1.0).close()
        return urllib3.request("GET", url, retries=False, timeout=2.0).status == 200
    except (OSError, urllib3.exceptions.HTTPError):
        return False


def _toml(values: Mapping[str, object]) -> str:
    """Plain values first, then tables; JSON's strings, numbers and truths are TOML's, too."""
    plain = [f"{name} = {json.dumps(one)}" for name, one in values.items() if not isinstance(one, Mapping)]
    tables = [
        "\n".join([f"[{name}]", *(f"{json.dumps(key)} = {json.dumps(value)}" for key, value in one.items())])
        for name, one in values.items()
        if isinstance(one, Mapping)
    ]
    return "\n\n".join(["\n".join(plain), *tables]) + "\n"
