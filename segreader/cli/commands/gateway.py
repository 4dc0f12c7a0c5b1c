"""``segreader gateway``: a Kafka proxy for unmodified brokers that gives readers the locations of remote segments."""

from __future__ import annotations

import json
import logging
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any

import click

from segreader.cli.options import parse_options, storage_option
from segreader.cli.output import debug_option, say

_EPILOG = """\b
Examples:
  segreader gateway --bootstrap-servers broker1:9092 --listen 0.0.0.0:19092 --advertised-host gw.example.com \\
      --location s3://logs/tiered
  segreader gateway --config gateway.toml --sign-for 5m
  segreader gateway --config gateway.toml --metrics 127.0.0.1:9404 --audit -

\b
A configuration file (docs/reference/gateway.md has every setting):
  bootstrap_servers = "broker1:9092,broker2:9092"
  listen = "0.0.0.0:19092"
  advertised_host = "gw.example.com"
  location = "s3://logs/tiered"
  sign_for = "15m"
  [client]
  "security.protocol" = "SASL_SSL"
  "sasl.mechanism" = "SCRAM-SHA-512"
  "sasl.username" = "gateway"
  "sasl.password" = "env:GATEWAY_PASSWORD"
"""


_LOGGERS = ("segreader", "segreader.gateway.process")


class _LineFormatter(logging.Formatter):
    """A record as one line, without what could be a secret.

    Args:
        form: ``text`` or ``json``.
        worker: the number of this process among several of a gateway.
    """

    def __init__(self, form: str, worker: int | None = None) -> None:
        super().__init__()
        self._form = form
        self._worker = worker

    def format(self, record: logging.LogRecord) -> str:
        """The line; an exception follows its message."""
        from segreader.storage.signed_url import redact

        moment = datetime.fromtimestamp(record.created, UTC)
        time = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        message = redact(record.getMessage())
        trace = redact(self.formatException(record.exc_info)) if record.exc_info else ""
        if self._form == "json":
            line: dict[str, Any] = {"time": time, "level": record.levelname, "logger": record.name, "message": message}
            if self._worker is not None:
                line["worker"] = self._worker
            return json.dumps(line | ({"exception": trace} if trace else {}), ensure_ascii=False)
        who = "" if self._worker is None else f"worker {self._worker}: "
        return f"{time} {record.levelname} {who}{' '.join(message.splitlines())}" + (f"\n{trace}" if trace else "")


def _set_up_logs(form: str, level: int, worker: int | None = None) -> None:
    """Send everything of this package to stderr; of the gateway's own life also what is no warning."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_LineFormatter(form, worker))
    all_of_it, of_its_life = map(logging.getLogger, _LOGGERS)
    all_of_it.addHandler(handler)
    all_of_it.setLevel(level)
    of_its_life.setLevel(min(level, logging.INFO))


@contextmanager
def _logs_as_before() -> Iterator[None]:
    """At the end logs go where they went before: a process may run other commands."""
    before = [(log, log.level, log.handlers[:]) for log in map(logging.getLogger, _LOGGERS)]
    try:
        yield
    finally:
        for log, level, handlers in before:
            log.setLevel(level)
            log.handlers[:] = handlers


@click.command(epilog=_EPILOG, short_help="Serve locations of remote segments in front of Kafka brokers.")
@click.option("--config", "file", metavar="FILE", help="A TOML file with any of the settings; options take precedence.")
@click.option("--bootstrap-servers", metavar="HOST:PORT,…", help="Bootstrap brokers.")
@click.option("--bootstrap", hidden=True)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help="Bootstrap address for clients. Broker n of the cluster gets port PORT + n; [ports] in the file changes it.",
)
@click.option("--advertised-host", metavar="HOST", help="The name under which clients reach this machine.")
@click.option("--location", metavar="LOCATION", help="Where the brokers' plugin keeps segments: s3://bucket/prefix, …")
@click.option("--storage", hidden=True)
@click.option(
    "--rsm-config",
    metavar="FILE",
    help="The broker's properties file, for the bucket and the prefix of a plugin's segments, in place of --location.",
)
@storage_option
@click.option("--layout", metavar="NAME", help="auto, aiven or local-tiered: how the plugin names its objects.")
@click.option("--sign-for", metavar="TIME", help="How long a signed URL is valid: 1m to 60m. Default: 15m.")
@click.option("--certificate", metavar="FILE", help="PEM: clients must use TLS; the server certificate.")
@click.option("--key", metavar="FILE", help="PEM: its private key.")
@click.option("--metrics", "metrics_listen", metavar="HOST:PORT", help="Address of the Prometheus metrics.")
@click.option("--audit", "audit_file", metavar="FILE", help="A line of JSON for each location given; - is stdout.")
@click.option("--workers", type=int, metavar="N", help="Processes that serve clients at the same ports. Default: 1.")
@click.option("--log-format", metavar="NAME", help="text (a line with time and level; default) or json.")
@click.option(
    "--refuse-below-log-start",
    "refuses_below_log_start",
    is_flag=True,
    default=None,
    help="Give no location of a segment that also holds deleted records, from below the log start.",
)
@debug_option
def gateway(file: str | None, storage_options: tuple[str, ...], **given: Any) -> None:
    """Run a Kafka proxy that hands readers signed URLs of remote segments.

    Every client works as before: it authenticates with the brokers through the gateway, and they decide what it may
    do. A reader that asks for locations (segreader does) gets a signed URL for the remote segment instead of its
    records, if the broker lets it read that topic at that moment. So brokers serve no remote data.

    The gateway itself needs a user with READ on __remote_log_metadata and DESCRIBE on the topics, and credentials
    that may read the store. Runs until SIGTERM or SIGINT, and answers requests under way before it ends. SIGHUP has it
    load certificates, logins, limits and the audit file again.
    """
    import asyncio

    from segreader.gateway.config import GatewayConfig
    from segreader.gateway.server import Gateway, known_nodes, locating_backend
    from segreader.gateway.workers import GatewayWorkers

    options = parse_options(storage_options)
    for old, new in (("bootstrap", "bootstrap_servers"), ("storage", "location")):
        flag = "--" + new.replace("_", "-")
        if (text := given.pop(old)) is None:
            continue
        if given[new] is not None:
            raise click.UsageError(f"--{old} is the earlier name of {flag}: give one of them")
        say(f"warning: --{old} is deprecated, give {flag}")
        given[new] = text
    given["rsm_config"] = given["rsm_config"] and os.path.abspath(given["rsm_config"])

    def load() -> GatewayConfig:
        return GatewayConfig.load(file, {**given, "storage_options": options or None})

    with warnings.catch_warnings(record=True, action="always", category=DeprecationWarning) as earlier:
        try:
            config = load()
        finally:
            for one in earlier:
                say(f"warning: {one.message}")
    is_debugging = click.get_current_context().meta.get("segreader.debug")
    set_up_logs = partial(_set_up_logs, config.log_format, logging.INFO if is_debugging else logging.WARNING)

    def ready() -> None:
        ports = ", ".join(f"broker {node} at {port}" for node, port in sorted(server.ports.items()))
        logging.getLogger(_LOGGERS[1]).info(
            "ready: clients begin at %s:%d (%s)", config.host_for_clients, config.listen_port, ports
        )

    server: Gateway | GatewayWorkers
    with _logs_as_before():
        set_up_logs()
        if config.workers == 1:
            server = Gateway(config, make_backend=locating_backend)
            running = server.run(ready, find_nodes=known_nodes, load=load)
        else:
            server = GatewayWorkers(
                config, make_backend=locating_backend, find_nodes=known_nodes, set_up_logs=set_up_logs
            )
            running = server.run(ready, load=load)
        asyncio.run(running)
