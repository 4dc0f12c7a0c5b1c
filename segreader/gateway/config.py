"""The gateway's configuration as one value: from a TOML file, overridden by the command line.

Secrets are taken from the environment or from files of their own (``env:NAME``, ``@FILE``), never from the text of a
configuration file, and are shown nowhere.
"""

from __future__ import annotations

import difflib
import re
import tomllib
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import field, fields
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import Any, Final, Self

from segreader.broker.settings import ClientSettings
from segreader.catalog.layouts.aiven.settings import RsmConfig
from segreader.errors import OptionError
from segreader.storage.options import NAMES as STORAGE_NAMES
from segreader.storage.options import parse_storage_option, parse_values
from segreader.storage.signed_url import Secret, redact
from segreader.values import dataclass

SHORTEST_LIFE_S: Final = 60
LONGEST_LIFE_S: Final = 3600
MOST_WORKERS: Final = 128
LAYOUTS: Final = ("auto", "local-tiered", "aiven")
LOG_FORMATS: Final = ("text", "json")
CLIENT_AUTHS: Final = ("required", "requested")
NODE_ID: Final = "{node_id}"
"""Stands for a broker's id in ``broker_host``."""

_LARGEST_FILE = 1 << 20
_LONGEST_NAME = 255
_LIFE = re.compile(r"(\d{1,6})\s*(s|m|h)?")
_SECONDS = {None: 1, "s": 1, "m": 60, "h": 3600}
_CLIENT_SECRETS = frozenset(("sasl.password", "sasl.jaas.config", "sasl.oauthbearer.token", "ssl.key.password"))
_EARLIER = {"bootstrap": "bootstrap_servers", "storage": "location"}
"""Earlier names of settings, which are still taken."""
_ADDRESS = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<host>[^\[\]:/\s]*)):(?P<port>\d{1,5})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one client, and all together, may make the gateway hold.

    Args:
        connections: clients at a time.
        connections_per_address: of these, with one address.
        connections_per_principal: of these, logged in as one user, or with one certificate where there is no login.
        connections_per_s: of all clients that begin in a second; further ones wait, and addresses take turns.
        handshake_s: seconds for a PROXY header and for TLS.
        first_request_s: seconds until the first request of a connection is here; until then it has no broker.
        login_s: seconds until the broker has accepted a login, on listeners with SASL.
        request_bytes_before_login: largest frame until then, which is awaited whole; and of a later login.
        request_bytes, answer_bytes: largest frame that is passed on.
        flagged_request_bytes: largest Fetch request that is looked into for the flag; it is held whole.
        flagged_partitions: most partitions of such a request, if locations are to be given.
        held_bytes: of an answer that are held at a time for a look at them.
        in_flight: requests of a client that a broker has not answered yet.
        unread_s: seconds that a client may take nothing of an answer that waits for it.
        index_downloads: offset indexes read from the store at a time, by all clients together.
        index_cache_bytes: of offset indexes kept in memory.
    """

    connections: int = 5000
    connections_per_address: int = 1000
    connections_per_principal: int = 1000
    connections_per_s: int = 200
    handshake_s: int = 10
    first_request_s: int = 30
    login_s: int = 30
    request_bytes_before_login: int = 64 << 10
    request_bytes: int = 128 << 20
    answer_bytes: int = 256 << 20
    flagged_request_bytes: int = 256 << 10
    flagged_partitions: int = 1000
    held_bytes: int = 4 << 20
    in_flight: int = 64
    unread_s: int = 600
    index_downloads: int = 8
    index_cache_bytes: int = 256 << 20

    def __post_init__(self) -> None:
        for name in (one.name for one in fields(self)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 1 << 31:
                raise OptionError(f"the limit {name} must be a positive number", found=value)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayConfig:
    """Everything that a gateway needs to know.

    Args:
        bootstrap_servers: brokers to begin with, ``host:port``.
        listen_host, listen_port: where clients begin; broker n has the port ``listen_port + n``.
        ports: node id -> port, in place of that rule.
        advertised_host: under which clients reach the gateway; ``listen_host`` by default.
        location: where the segments are, ``s3://bucket/prefix`` for example.
        storage_options: of that location.
        layout: how the plugin names its objects; ``auto`` asks the store once.
        sign_for_s: seconds that a signed URL lives: 60 to 3600.
        gives_object_names: put the unsigned name into a location, for clients with rights of their own.
        url_base: for stores that cannot sign: a URL prefix under which the objects can be read by anyone who is told.
        allow_http: whether that prefix may be http.
        client: how the gateway itself speaks to the brokers: its own user, and TLS for all connections to them.
        broker_host: the name of each broker at the gateway, with ``{node_id}`` in it: clients reach all of them at
            ``listen_port``, and TLS tells which one they mean. Empty: a port a broker.
        certificate, key: PEM files; with them the gateway's listeners speak TLS.
        key_password: of ``key``.
        client_ca: PEM file of the authorities of clients' certificates; ``None``: clients are asked for none.
        client_auth: whether such a certificate is ``required`` or ``requested``.
        proxy_protocol: whether connections begin with a PROXY header: at all ports, at those given, or at none.
        proxy_sources: addresses and networks from which such a header is taken; none: from everywhere.
        metrics_listen: host and port of the metrics and of the pages of health; ``None`` for none.
        log_format: ``text`` or ``json``.
        audit_file: where a line is written for each location given; ``-`` is stdout, ``None`` for none.
        refuses_below_log_start: give no location of a segment that begins below the log start, for it holds records
            that were deleted.
        is_strict: pass only APIs that are known here.
        max_lag_s: how long ago the catalogue may have been complete.
        drain_s: how long a stop waits for answers under way.
        workers: processes that serve clients at the same ports.
    """

    bootstrap_servers: tuple[str, ...]
    listen_host: str
    listen_port: int
    location: str
    ports: Mapping[int, int] = field(default_factory=dict)
    advertised_host: str = ""
    broker_host: str = ""
    storage_options: Mapping[str, object] = field(default_factory=dict, repr=False)
    layout: str = "auto"
    sign_for_s: int = 15 * 60
    gives_object_names: bool = True
    url_base: str | None = None
    allow_http: bool = False
    client: ClientSettings = field(default_factory=ClientSettings)
    certificate: str | None = None
    key: str | None = None
    key_password: Secret | None = field(default=None, repr=False)
    client_ca: str | None = None
    client_auth: str = "required"
    proxy_protocol: bool | frozenset[int] = False
    proxy_sources: tuple[IPv4Network | IPv6Network, ...] = ()
    log_format: str = "text"
    metrics_listen: tuple[str, int] | None = None
    audit_file: str | None = None
    refuses_below_log_start: bool = False
    is_strict: bool = True
    max_lag_s: float = 30.0
    drain_s: float = 10.0
    workers: int = 1
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        if not self.bootstrap_servers:
            raise OptionError(
                "no broker to begin with", hint="Set bootstrap_servers to host:port of one or more brokers"
            )
        for server in self.bootstrap_servers:
            parse_address(server, "bootstrap_servers")
        if not SHORTEST_LIFE_S <= self.sign_for_s <= LONGEST_LIFE_S:
            raise OptionError(
                "sign_for is too short or too long",
                found=f"{self.sign_for_s} s",
                expected="1m to 60m",
                hint="Who loses the right to read keeps what was signed before, until then",
            )
        if self.layout not in LAYOUTS:
            raise OptionError("unknown layout", found=self.layout, expected=", ".join(LAYOUTS))
        if not isinstance(self.workers, int) or not 1 <= self.workers <= MOST_WORKERS:
            raise OptionError("impossible number of workers", found=self.workers, expected=f"1 to {MOST_WORKERS}")
        if (self.certificate is None) != (self.key is None):
            raise OptionError("TLS needs both certificate and key")
        self._check_tls()
        if self.url_base is not None:
            scheme = self.url_base.partition("://")[0].lower()
            if redact(self.url_base) != self.url_base or "?" in self.url_base or "@" in self.url_base:
                raise OptionError("url_base holds a credential", found=redact(self.url_base))
            if scheme != "https" and not (scheme == "http" and self.allow_http):
                raise OptionError(
                    "url_base is not an https URL", found=self.url_base, hint="allow_http = true takes http"
                )
        if not self.advertised_host and self.listen_host in ("", "0.0.0.0", "::"):
            raise OptionError(
                "advertised_host is needed where the gateway listens on all addresses",
                hint="Set it to the name under which clients reach this machine",
            )

    def _check_tls(self) -> None:
        if self.client.certificate_file is not None and not self.client.security_protocol.has_sasl:
            raise OptionError(
                "the gateway's client logs in by a certificate alone: brokers would take every client for the gateway",
                hint="Mutual TLS ends at a gateway: use SASL_SSL, or leave ssl.certificate.location out",
            )
        if self.proxy_sources and not self.proxy_protocol:
            raise OptionError("proxy_sources needs proxy_protocol", hint="Set proxy_protocol to true or to ports")
        if self.client_ca is not None and self.certificate is None:
            raise OptionError("client_ca needs TLS with clients", hint="Set certificate and key")
        if self.client_auth not in CLIENT_AUTHS:
            raise OptionError("unknown client_auth", found=self.client_auth[:40], expected=", ".join(CLIENT_AUTHS))
        if self.log_format not in LOG_FORMATS:
            raise OptionError("unknown log_format", found=self.log_format[:40], expected=", ".join(LOG_FORMATS))
        if self.broker_host:
            if self.broker_host.count(NODE_ID) != 1 or not self.broker_host.replace(NODE_ID, "0").isascii():
                raise OptionError(f"broker_host has no {NODE_ID}", found=self.broker_host[:80])
            if self.certificate is None:
                raise OptionError("broker_host needs TLS with clients", hint="Set certificate and key")
            if self.ports:
                raise OptionError("broker_host and ports both say where brokers are", hint="Give one of them")

    def has_proxy_header(self, port: int) -> bool:
        """Whether connections to a port begin with a PROXY header."""
        return self.proxy_protocol if isinstance(self.proxy_protocol, bool) else port in self.proxy_protocol

    def is_proxy_source(self, peer: str) -> bool:
        """Whether a PROXY header is taken from ``address:port``."""
        host = ip_address(peer.rpartition(":")[0].strip("[]").partition("%")[0])
        return not self.proxy_sources or any(host in network for network in self.proxy_sources)

    def node_of(self, server_name: str | None) -> int | None:
        """The broker that a client means by a name; ``None`` for another name, which is where clients begin."""
        before, after = self.broker_host.lower().split(NODE_ID) if self.broker_host else ("", "")
        if not self.broker_host or server_name is None or len(server_name) > _LONGEST_NAME:
            return None
        if not server_name.startswith(before) or not server_name.endswith(after):
            return None
        number = server_name[len(before) : len(server_name) - len(after)]
        return int(number) if number.isdecimal() and number.isascii() and len(number) < 10 else None

    @property
    def host_for_clients(self) -> str:
        """The host that answers name."""
        return self.advertised_host or self.listen_host

    @classmethod
    def load(cls, file: str | Path | None, given: Mapping[str, Any] | None = None) -> Self:
        """A configuration from a file and from what weighs more than it, by the names of ``docs/reference/gateway.md``.

        Raises:
            OptionError: a name is unknown, a value is none, or something is missing.
        """
        values = _read(Path(file)) if file is not None else {}
        directory = Path(file).parent if file is not None else Path()
        for name, value in (given or {}).items():
            if value is not None:
                values[name] = {**values.get(name, {}), **value} if isinstance(value, Mapping) else value
        for old, new in _EARLIER.items():
            if old in values:
                if new in values:
                    raise OptionError(f"{old} is the earlier name of {new}: give one of them")
                warnings.warn(f"the setting {old} is deprecated, use {new}", DeprecationWarning, stacklevel=2)
                values[new] = values.pop(old)
        _refuse_unknown("setting of the gateway", values, _PARSERS)
        arguments: dict[str, Any] = {}
        for name, value in values.items():
            arguments |= _PARSERS[name](name, value, directory)
        if (rsm_config := arguments.pop("rsm_config", None)) is not None:
            if "location" in arguments:
                raise OptionError("location and rsm_config both name the place of segments", hint="Give one of them")
            arguments["location"], found = _place_of(rsm_config)
            arguments["storage_options"] = {**found, **arguments.get("storage_options", {})}
        for name, field_name in (
            ("bootstrap_servers", "bootstrap_servers"),
            ("listen", "listen_port"),
            ("location", "location"),
        ):
            if field_name not in arguments:
                flag = name.replace("_", "-")
                raise OptionError(f"{name} is missing", hint=f"Give --{flag}, or {name} in the configuration file")
        return cls(**arguments)


def _place_of(rsm_config: str) -> tuple[str, Mapping[str, object]]:
    """The location that the broker's properties file names, with its key prefix, and its storage options."""
    config = RsmConfig.load(rsm_config)
    if config.key_prefix and not config.key_prefix.endswith("/"):
        raise OptionError(
            "key.prefix is not a directory, so its objects have no location of their own",
            source=rsm_config,
            found=repr(config.key_prefix),
            expected="a / at its end",
        )
    return config.location()


def parse_address(text: str, name: str) -> tuple[str, int]:
    """Host and port of ``host:port`` or ``[address]:port``.

    Raises:
        OptionError: it is neither.
    """
    match = _ADDRESS.fullmatch(text.strip())
    if match is None or not 0 < int(match["port"]) < 65536:
        raise OptionError(f"{name} is not an address", found=redact(text), expected="host:port")
    return match["six"] or match["host"] or "0.0.0.0", int(match["port"])


def parse_life(text: object, name: str = "sign_for") -> int:
    """Seconds of ``15m``, ``900s``, ``1h`` or a number of seconds."""
    match = _LIFE.fullmatch(str(text).strip())
    if match is None or isinstance(text, bool):
        raise OptionError(f"{name} is not a time", found=str(text)[:40], expected="such as 15m or 900s")
    return int(match[1]) * _SECONDS[match[2]]


def _read(file: Path) -> dict[str, Any]:
    try:
        with file.open("rb") as stream:
            return tomllib.loads(stream.read(_LARGEST_FILE).decode())
    except OSError as error:
        raise OptionError("the configuration file cannot be read", source=str(file), found=error.strerror) from None
    except ValueError:  # its text would quote the line
        raise OptionError("the configuration file is not TOML", source=str(file)) from None


def _text(field_name: str) -> Any:
    def parse(name: str, value: object, directory: Path) -> dict[str, Any]:
        if not isinstance(value, str) or not value.strip():
            raise OptionError(f"{name} is not text, or is empty")
        return {field_name: value.strip()}

    return parse


def _truth(field_name: str) -> Any:
    def parse(name: str, value: object, directory: Path) -> dict[str, Any]:
        if not isinstance(value, bool):
            raise OptionError(f"{name} is neither true nor false")
        return {field_name: value}

    return parse


def _seconds(field_name: str) -> Any:
    return lambda name, value, directory: {field_name: parse_life(value, name)}


def _count(field_name: str) -> Any:
    def parse(name: str, value: object, directory: Path) -> dict[str, Any]:
        if not isinstance(value, int) or isinstance(value, bool):
            raise OptionError(f"{name} is not a number", found=str(value)[:40])
        return {field_name: value}

    return parse


def _file(field_name: str) -> Any:
    def parse(name: str, value: object, directory: Path) -> dict[str, Any]:
        if not isinstance(value, str) or not value:
            raise OptionError(f"{name} is not a path")
        return {field_name: value if value == "-" else str((directory / value).expanduser())}

    return parse


def _bootstrap(name: str, value: object, directory: Path) -> dict[str, Any]:
    servers = value if isinstance(value, list) else str(value).split(",")
    return {"bootstrap_servers": tuple(str(one).strip() for one in servers if str(one).strip())}


def _listen(name: str, value: object, directory: Path) -> dict[str, Any]:
    host, port = parse_address(str(value), name)
    return {"listen_host": host, "listen_port": port}


def _metrics(name: str, value: object, directory: Path) -> dict[str, Any]:
    return {"metrics_listen": parse_address(str(value), name)}


def _ports(name: str, value: object, directory: Path) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise OptionError("ports is not a table of node ids and ports")
    try:
        return {"ports": {int(node): int(port) for node, port in value.items()}}
    except (TypeError, ValueError):
        raise OptionError("ports is not a table of node ids and ports") from None


def _proxy_protocol(name: str, value: object, directory: Path) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"proxy_protocol": value}
    if not isinstance(value, list) or not all(isinstance(one, int) and not isinstance(one, bool) for one in value):
        raise OptionError(f"{name} is neither true nor false, nor a list of ports")
    return {"proxy_protocol": frozenset(value)}


def _proxy_sources(name: str, value: object, directory: Path) -> dict[str, Any]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise OptionError(f"{name} is not a list of addresses and networks")
    try:
        return {"proxy_sources": tuple(map(ip_network, value))}
    except ValueError as error:
        raise OptionError(f"{name} is not a list of addresses and networks", found=str(error)[:80]) from None


def _refuse_unknown(what: str, names: Iterable[str], known: Iterable[str]) -> None:
    known = list(known)
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name[:40], known, 1)
            raise OptionError(
                f"unknown {what}: {name[:40]!r}",
                expected=None if near else ", ".join(known),
                hint=f"Did you mean {near[0]}?" if near else None,
            )


def _limits(name: str, value: object, directory: Path) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise OptionError("limits is not a table")
    _refuse_unknown("limit of the gateway", value, [one.name for one in fields(Limits)])
    return {"limits": Limits(**value)}


def _storage_options(name: str, value: object, directory: Path) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise OptionError("storage_options is not a table")
    return {"storage_options": {key: _storage_value(key, one) for key, one in value.items()}}


def _storage_value(name: str, value: object) -> object:
    if isinstance(value, str) and value.startswith(("env:", "@")):
        return parse_storage_option(f"{name}={value}")[1]
    if name in STORAGE_NAMES and not isinstance(value, Secret):
        parsed = parse_values({name: value})
        # The id of an S3 access key is a name, though it is hidden elsewhere.
        if any(isinstance(one, Secret) for field_name, one in parsed.items() if field_name != "key"):
            raise _not_in_clear(f"the storage option {name}")
    return value


def _client(name: str, value: object, directory: Path) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise OptionError("client is not a table of a Kafka client's options")
    options: dict[str, object] = {}
    for key, one in _flat(value):
        if isinstance(one, str) and one.startswith(("env:", "@")):
            options[key] = parse_storage_option(f"{key}={one}")[1]
        elif key.lower().removeprefix("kafka.") in _CLIENT_SECRETS and not isinstance(one, Secret):
            raise _not_in_clear(f"the client option {key}")
        else:
            options[key] = one
    return {"client": ClientSettings.from_options(options)}


def _flat(table: Mapping[str, object], prefix: str = "") -> list[tuple[str, object]]:
    """TOML reads ``sasl.password`` without quotes as a table in a table."""
    found: list[tuple[str, object]] = []
    for key, value in table.items():
        found += _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else [(prefix + key, value)]
    return found


def _key_password(name: str, value: object, directory: Path) -> dict[str, Any]:
    if not isinstance(value, str) or not value.startswith(("env:", "@")):
        raise _not_in_clear(name)
    return {"key_password": parse_storage_option(f"{name}={value}")[1]}


def _not_in_clear(what: str) -> OptionError:
    return OptionError(f"{what} is a secret in plain text", expected="env:VARIABLE or @FILE")


_PARSERS: dict[str, Any] = {
    "bootstrap_servers": _bootstrap,
    "listen": _listen,
    "advertised_host": _text("advertised_host"),
    "broker_host": _text("broker_host"),
    "ports": _ports,
    "location": _text("location"),
    "rsm_config": _file("rsm_config"),
    "storage_options": _storage_options,
    "layout": _text("layout"),
    "sign_for": _seconds("sign_for_s"),
    "gives_object_names": _truth("gives_object_names"),
    "url_base": _text("url_base"),
    "allow_http": _truth("allow_http"),
    "client": _client,
    "certificate": _file("certificate"),
    "key": _file("key"),
    "key_password": _key_password,
    "client_ca": _file("client_ca"),
    "client_auth": _text("client_auth"),
    "proxy_protocol": _proxy_protocol,
    "proxy_sources": _proxy_sources,
    "metrics_listen": _metrics,
    "log_format": _text("log_format"),
    "audit_file": _file("audit_file"),
    "refuses_below_log_start": _truth("refuses_below_log_start"),
    "is_strict": _truth("is_strict"),
    "max_lag": _seconds("max_lag_s"),
    "drain": _seconds("drain_s"),
    "workers": _count("workers"),
    "limits": _limits,
}
