"""Which hosts and addresses a URL from outside may make this process talk to.

Whoever writes a URL into a broker's answer, a manifest or a list decides what this machine asks. So the name is judged
before a connection is made, and the address once more when it is made: what a name resolves to may change in between.
Through a proxy the address is the proxy's own, and only the name is judged here.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Callable, Iterable
from dataclasses import replace
from urllib.parse import SplitResult, urlsplit

from segreader.errors import UntrustedLocationError
from segreader.storage.signed_url import SignedUrl, redact
from segreader.values import dataclass

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_REGION = r"(?:[a-z]{2}(?:-gov)?|eusc-[a-z]{2})-[a-z]{4,9}-\d{1,2}"
_AWS = rf"{_REGION}\.amazonaws\.(?:com|com\.cn|eu)"
_STORES = re.compile(
    rf"""(?x)
      (?:.+\.)? s3 (?:-external-1|-accelerate(?:\.dualstack)?)? \.amazonaws\.com
    | (?:.+\.)? s3 (?:-fips)? -{_REGION} \.amazonaws\.com
    | (?:.+\.)? s3 (?:-fips)? (?:\.dualstack)? \.{_AWS}
    | .+\.s3-accelerate (?:\.dualstack)? \.amazonaws\.eu
    | .+\.s3-accesspoint (?:-fips)? (?:\.dualstack)? \.{_AWS}
    | .+\.accesspoint\.s3-global\.amazonaws\.com
    | .+\.s3express (?:-fips)? -[a-z0-9]+-[a-z]{{2,3}}\d+ (?:\.dualstack)? \.{_AWS}
    | (?:.+\.)? (?:bucket|accesspoint)\.vpce-[a-z0-9-]+\.s3\.{_REGION} \.vpce\.amazonaws\.com
    | [a-z0-9-]+\.(?:blob|dfs)\.core\.(?:windows\.net|usgovcloudapi\.net|chinacloudapi\.cn)
    | [a-z0-9-]+\.z\d\d\.(?:blob|dfs)\.storage\.azure\.net
    | (?:.+\.)? storage\.googleapis\.com
    """
)
"""The hosts of S3, Azure Blob storage and Google Cloud Storage themselves, with their sovereign clouds. Below
``amazonaws.com`` and ``googleapis.com`` there are virtual machines, load balancers and gateways of anyone, too."""

HTTPS_PORT = 443
_DEFAULT_PORTS = {"http": 80, "https": HTTPS_PORT}
_LONGEST = 64 << 10
_SHOWN = 500

_METADATA = frozenset(
    ipaddress.ip_address(text)
    for text in (
        "169.254.169.254",  # AWS, Azure, Google, and most others
        "169.254.170.2",  # credentials of AWS's containers
        "169.254.170.23",
        "fd00:ec2::254",
        "fd00:ec2::23",
        "fd20:ce::254",  # Google
        "168.63.129.16",  # Azure's host, in a public range
        "100.100.100.200",  # Alibaba
        "192.0.0.192",  # Oracle
    )
)
_PRIVATE = tuple(
    ipaddress.ip_network(text)
    for text in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7", "fec0::/10")
)
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_COMPATIBLE = ipaddress.IPv6Network("::/96")
_HOST = re.compile(r"(?:[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?\.)*[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?", re.IGNORECASE)
_MAY_BE_ALLOWED = ("private", "loopback")
_ALLOW_HOST = "If the host is yours, allow it with the storage option allow_hosts, as in allow_hosts=minio.corp:9000"
_ALLOW_PRIVATE = "If the store is in your own network, name it in allow_hosts, or set allow_private=true"


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressPolicy:
    """What URLs from outside may name.

    Args:
        allow_clouds: whether the hosts of the clouds' stores may be named.
        host_suffixes: hosts that may be named too, with every host below them: ``a.b`` allows ``a.b`` and ``x.a.b``.
        endpoints: configured places as ``scheme://host:port``: these may be http, on any port, at a private address.
        ports: of hosts that are no endpoints.
        allow_private: whether hosts that are no endpoints may be at private and loopback addresses. Link-local,
            metadata, multicast and reserved addresses are always refused.
        allow_http: whether http will do for hosts that are no endpoints, on port 80 too.

    Raises:
        UntrustedLocationError: a host or an endpoint is none.
    """

    allow_clouds: bool = True
    host_suffixes: tuple[str, ...] = ()
    endpoints: tuple[str, ...] = ()
    ports: frozenset[int] = frozenset({HTTPS_PORT})
    allow_private: bool = False
    allow_http: bool = False

    def __post_init__(self) -> None:
        suffixes = [_host(text.strip("[]").removeprefix("*."), text) for text in self.host_suffixes]
        object.__setattr__(self, "host_suffixes", tuple(dict.fromkeys(suffixes)))
        object.__setattr__(self, "endpoints", tuple(dict.fromkeys(map(_origin, self.endpoints))))

    def with_endpoint(self, url: str) -> AddressPolicy:
        """The same, with the place of this URL as one more endpoint."""
        return replace(self, endpoints=(*self.endpoints, url))

    def with_hosts(self, hosts: Iterable[str]) -> AddressPolicy:
        """The same, with more hosts: ``host`` (and what is below it), ``host:port`` or ``scheme://host:port``."""
        suffixes, endpoints = list(self.host_suffixes), list(self.endpoints)
        for text in hosts:
            if "://" in text:
                endpoints.append(text)
            elif re.search(r"^(?:[^:]*|\[.*\]):\d+$", text):
                endpoints.append(f"https://{text}")
            else:
                suffixes.append(text)
        return replace(self, host_suffixes=tuple(suffixes), endpoints=tuple(endpoints))

    def allows_host(self, host: str) -> bool:
        """Whether a host, in lower case, may be named: a cloud's store, or one of ``host_suffixes``."""
        if self.allow_clouds and _STORES.fullmatch(host):
            return True
        return any(host == suffix or host.endswith(f".{suffix}") for suffix in self.host_suffixes)

    def is_endpoint(self, url: str | SignedUrl) -> bool:
        """Whether a URL leads to a configured place."""
        return _origin(url.reveal() if isinstance(url, SignedUrl) else url) in self.endpoints


def check_url(url: str | SignedUrl, policy: AddressPolicy) -> None:
    """Refuse a URL that names what the policy does not allow. Nothing is resolved.

    Raises:
        UntrustedLocationError: what it names, and how to allow it.
    """
    text = url.reveal() if isinstance(url, SignedUrl) else url
    if _origin(text) in policy.endpoints:
        return
    parts, shown = _split(text), redact(text)
    host, port = _host(parts.hostname or "", shown), parts.port or _DEFAULT_PORTS[parts.scheme]
    ports = policy.ports | ({_DEFAULT_PORTS["http"]} if policy.allow_http else set())
    if (address := _literal(host)) is not None:
        _check_address(address, policy.allow_private, shown)
    if parts.scheme == "http" and not policy.allow_http:
        raise UntrustedLocationError(
            "http lets anyone on the way read and change the data",
            source=shown,
            expected="https",
            hint=f"{_ALLOW_HOST}; a place may be allowed with its scheme, as in allow_hosts=http://minio.corp:9000",
        )
    if not policy.allows_host(host):
        raise UntrustedLocationError(
            "this host is not a cloud's store, and is not allowed", source=shown, found=host, hint=_ALLOW_HOST
        )
    if port not in ports:
        raise UntrustedLocationError(
            "this is not the port of a cloud's store",
            source=shown,
            found=port,
            expected=" or ".join(map(str, sorted(ports))),
            hint=_ALLOW_HOST,
        )


def check_peer(address: str, policy: AddressPolicy, *, url: str | SignedUrl | None = None) -> None:
    """Refuse to talk to an address that the policy does not allow.

    Args:
        address: of the connected peer, as ``getpeername`` gives it.
        url: the requested one: at a configured endpoint, private and loopback addresses are fine.

    Raises:
        UntrustedLocationError: what kind of address it is, and how to allow it.
    """
    shown = None if url is None else url.redacted if isinstance(url, SignedUrl) else redact(url)
    parsed = _literal(address.partition("%")[0])
    if parsed is None:
        raise UntrustedLocationError("the connection leads to no address", source=shown, found=repr(address))
    _check_address(parsed, policy.allow_private or (url is not None and policy.is_endpoint(url)), shown)


def peer_check(url: str | SignedUrl, policy: AddressPolicy) -> Callable[[socket.socket], None]:
    """``check_peer`` for connections made for one URL: to be called with each before a byte is sent over it."""
    place = SignedUrl(url) if isinstance(url, str) else url

    def check(sock: socket.socket) -> None:
        check_peer(str(sock.getpeername()[0]), policy, url=place)

    return check


def _split(url: str) -> SplitResult:
    """The parts of a URL that every parser would split alike. No reason of Python's is shown: it quotes passwords."""
    shown = redact(url)[:_SHOWN]
    if len(url) > _LONGEST:
        raise UntrustedLocationError("the URL is too long", source=shown, found=len(url), expected=f"<= {_LONGEST}")
    if bad := re.search(r"[\x00-\x20\x7f-\x9f\\]", url):
        raise UntrustedLocationError(
            "the URL holds a character that programs understand differently",
            source=repr(shown),
            found=repr(bad[0]),
            hint="Percent-encode it",
        )
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise UntrustedLocationError("not a URL", source=shown, expected="https://host/path") from None
    if parts.scheme not in _DEFAULT_PORTS:
        raise UntrustedLocationError(
            "only https is allowed", source=shown, found=parts.scheme or None, expected="https"
        )
    if "@" in parts.netloc:
        raise UntrustedLocationError("the URL holds a user name or a password", source=shown, hint="Leave it out")
    if not parts.hostname or parts.netloc.endswith(":") or port == 0:
        raise UntrustedLocationError("the URL names no place", source=shown, expected="https://host/path")
    return parts


def _origin(url: str) -> str:
    """``scheme://host:port`` of a URL, in one spelling."""
    parts = _split(url)
    host = _host(parts.hostname or "", redact(url))
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}:{parts.port or _DEFAULT_PORTS[parts.scheme]}"


def _host(host: str, shown: str) -> str:
    """The host in one spelling: lower case, no dot at the end, addresses in their usual form.

    Raises:
        UntrustedLocationError: it is no name of the internet.
    """
    name = host.lower().removesuffix(".")
    address = _literal(name)
    if address is not None and "%" not in name:
        return str(address)
    if len(name) > 253 or not _HOST.fullmatch(name) or re.fullmatch(r"\d+|0x[0-9a-f]*", name.rpartition(".")[2]):
        raise UntrustedLocationError(
            "not a host name", source=shown, found=repr(host), hint="Write names in other scripts as xn--… (IDNA)"
        )
    return name


def _literal(host: str) -> Address | None:
    """The address that a host spells, in any form that the system's resolver takes; ``None`` for a name.

    ``inet_aton`` reads what people forget: ``127.1``, ``0177.0.0.1``, ``0x7f000001``, ``2130706433``.
    """
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        pass
    try:
        return ipaddress.IPv4Address(socket.inet_aton(host)) if host.isascii() and not re.search(r"\s", host) else None
    except OSError:
        return None


def _check_address(address: Address, allow_private: bool, shown: str | None) -> None:
    kind = kind_of_address(address)
    if kind is not None and not (allow_private and kind in _MAY_BE_ALLOWED):
        raise UntrustedLocationError(
            f"this leads to a {kind} address",
            source=shown,
            found=str(address),
            expected="a public address",
            hint=_ALLOW_PRIVATE if kind in _MAY_BE_ALLOWED else None,
        )


def kind_of_address(address: Address) -> str | None:
    """What is special about an address, or ``None`` for a public one; one inside another is looked at too."""
    if address in _METADATA:
        return "metadata"
    if isinstance(address, ipaddress.IPv6Address):
        for inner in _inner(address):
            if (kind := kind_of_address(inner)) is not None:
                return kind
        if address.ipv4_mapped is not None or address in _NAT64:
            return None  # what is inside is public
    if address.is_loopback:
        return "loopback"
    if address.is_link_local:
        return "link-local"
    if address.is_multicast:
        return "multicast"
    if address.is_unspecified:
        return "reserved"
    if any(address in network for network in _PRIVATE):
        return "private"
    return None if address.is_global and not address.is_reserved else "reserved"


def _inner(address: ipaddress.IPv6Address) -> list[ipaddress.IPv4Address]:
    """The IPv4 addresses that an IPv6 address leads to: mapped, compatible, 6to4, Teredo and NAT64."""
    found = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    last = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    if address in _NAT64 or (address in _COMPATIBLE and int(address) > 1):
        found.append(last)
    return [inner for inner in found if inner is not None]
