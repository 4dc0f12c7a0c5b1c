"""Accept connections of clients: the port, the PROXY header that a load balancer sends, and TLS, in that order.

Certificates may change between two connections: a context is asked for when one arrives. Nothing is read beyond the
PROXY header before TLS takes over.

Source: the PROXY protocol, version 2 (haproxy.org, doc/proxy-protocol.txt); RFC 6066 for the server's name.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from struct import Struct
from typing import Any, Final
from weakref import WeakKeyDictionary

from segreader.errors import ConnectionFailedError, OptionError, ProtocolError
from segreader.gateway.config import GatewayConfig
from segreader.gateway.wire import Wire
from segreader.values import dataclass

_log = logging.getLogger(__name__)

_BACKLOG = 1024
_NEVER_S = 1 << 20
"""For a timeout that asyncio would choose else: ``receive`` has none, and its caller has."""

_EXHAUSTED = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))
_EXHAUSTED_FOR_S = 1.0

_SIGNATURE: Final = b"\r\n\r\n\0\r\nQUIT\n"
_PROXY_HEAD = Struct("!12sBBH")
_LONGEST_PROXY_BODY = 4096
_TCP_4, _TCP_6 = 0x11, 0x21
_ADDRESSES = {_TCP_4: Struct("!4s4sHH"), _TCP_6: Struct("!16s16sHH")}

TakeSocket = Callable[[socket.socket, str], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Arrival:
    """A client's connection that is ready for Kafka's protocol.

    Args:
        peer: ``host:port`` of the client; with the PROXY protocol what the load balancer says.
        subject: of the client's certificate, as Kafka names principals; ``None`` without one.
        server_name: that the client asked for by TLS (SNI), in lower case.
    """

    wire: Wire
    peer: str
    subject: str | None = None
    server_name: str | None = None


class Listener:
    """Open ports of one address; connections are accepted until ``close`` and go on after it.

    Args:
        take: called with each socket and its peer, in a task of its own; it closes the socket.
    """

    def __init__(self, sockets: Sequence[socket.socket], take: TakeSocket) -> None:
        self.sockets = sockets
        self._take = take
        self._taking: set[asyncio.Task[None]] = set()
        self._accepting = [asyncio.ensure_future(self._accept(one)) for one in sockets]

    def close(self) -> None:
        """Accept no more connections."""
        for task in self._accepting:
            task.cancel()
        for one in self.sockets:
            one.close()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                taken, address = await loop.sock_accept(listening)
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    _log.error("no connection can be accepted: %s", error.strerror)
                    await asyncio.sleep(_EXHAUSTED_FOR_S)
                continue
            task = asyncio.ensure_future(_logged(self._take(taken, _text(*address[:2]))))
            self._taking.add(task)
            task.add_done_callback(self._taking.discard)
            await asyncio.sleep(0)  # a thousand may wait to be accepted: others have their turn


async def _logged(taking: Awaitable[None]) -> None:
    try:
        await taking
    except Exception as error:  # its text may quote what a client sent
        _log.error("a connection ended in an unexpected error: %s", type(error).__name__)
        _log.debug("it was raised here", exc_info=True)


async def listen(host: str | None, port: int, take: TakeSocket, *, is_shared: bool = False) -> Listener:
    """Listen at all addresses of a host; ``None``: at all of this machine.

    Args:
        is_shared: with other processes of this user: the kernel gives each connection to one of them.

    Raises:
        OSError: the port cannot be had.
    """
    sockets = await _bound(host, port, is_shared=is_shared)
    try:
        for one in sockets:
            one.listen(_BACKLOG)
    except OSError:
        for one in sockets:
            one.close()
        raise
    return Listener(sockets, take)


async def check_free(host: str | None, port: int) -> None:
    """Check that nothing listens at a port: with SO_REUSEPORT, sharing it would raise no error.

    Raises:
        OSError: something does, or the port cannot be had.
    """
    for one in await _bound(host, port):
        one.close()


async def _bound(host: str | None, port: int, *, is_shared: bool = False) -> list[socket.socket]:
    found = await asyncio.get_running_loop().getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    with contextlib.ExitStack() as opened:
        sockets = []
        for family, kind, number, _, address in dict.fromkeys(found):
            try:
                one = opened.enter_context(socket.socket(family, kind, number))
            except OSError as error:
                if error.errno == errno.EAFNOSUPPORT:  # no IPv6 on this machine
                    continue
                raise
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if is_shared:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if family == socket.AF_INET6:
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            one.bind(address)
            one.setblocking(False)
            sockets.append(one)
        opened.pop_all()
    return sockets


async def receive(
    taken: socket.socket, peer: str, *, context: ssl.SSLContext | None = None, has_proxy_header: bool = False
) -> Arrival:
    """Make an accepted socket a connection; it is closed where that fails, or is cancelled.

    Raises:
        ProtocolError: the PROXY header is missing or damaged.
        ConnectionFailedError: the client hangs up, or TLS fails.
    """
    try:
        if has_proxy_header:
            peer = await _read_proxy_header(taken) or peer
        _, wire = await asyncio.get_running_loop().connect_accepted_socket(
            Wire, taken, ssl=context, ssl_handshake_timeout=_NEVER_S if context is not None else None
        )
    except ssl.SSLError as error:
        taken.close()
        raise ConnectionFailedError(f"TLS with the client failed: {error.reason or type(error).__name__}") from None
    except BaseException as error:
        taken.close()
        if isinstance(error, OSError) and not isinstance(error, (ConnectionFailedError, ProtocolError)):
            raise ConnectionFailedError("the client hung up", found=type(error).__name__) from None
        raise
    secured = wire.extra("ssl_object")
    if secured is None:
        return Arrival(wire, peer)
    return Arrival(wire, peer, subject_of(wire.extra("peercert")), _server_names.get(secured))


async def _read_proxy_header(taken: socket.socket) -> str | None:
    head = await _exactly(taken, _PROXY_HEAD.size, _SIGNATURE)
    size = proxy_body_size(head)
    return proxied_peer(head, await _exactly(taken, size))


async def _exactly(taken: socket.socket, size: int, start: bytes = b"") -> bytes:
    loop, data = asyncio.get_running_loop(), b""
    while len(data) < size:
        if not (piece := await loop.sock_recv(taken, size - len(data))):
            raise ConnectionFailedError("closed in the PROXY header")
        data += piece
        if not start.startswith(data[: len(start)]):
            raise _no_proxy_header()
    return data


def proxy_body_size(head: bytes) -> int:
    """How many bytes follow the first 16 of a PROXY header.

    Raises:
        ProtocolError: it is no header of version 2.
    """
    signature, command, _, size = _PROXY_HEAD.unpack(head)
    if signature != _SIGNATURE:
        raise _no_proxy_header()
    if command not in (0x20, 0x21):
        raise ProtocolError("a PROXY header of an unknown version or command", found=command, expected="version 2")
    if size > _LONGEST_PROXY_BODY:
        raise ProtocolError("the PROXY header is too long", found=size, expected=f"<= {_LONGEST_PROXY_BODY}")
    return int(size)


def proxied_peer(head: bytes, body: bytes) -> str | None:
    """``host:port`` of the client; ``None`` where the load balancer speaks for itself, or over no TCP.

    Raises:
        ProtocolError: the addresses are cut.
    """
    _, command, family, _ = _PROXY_HEAD.unpack(head)
    layout = _ADDRESSES.get(family)
    if command == 0x20 or layout is None:
        return None
    if len(body) < layout.size:
        raise ProtocolError("the addresses of a PROXY header are cut", found=f"{len(body)} bytes")
    host, _, port, _ = layout.unpack_from(body)
    return _text(str(ipaddress.ip_address(host)), port)


def _no_proxy_header() -> ProtocolError:
    return ProtocolError(
        "a connection without a PROXY header at a port that asks for one",
        hint="Only the load balancer may connect to this port; see proxy_protocol",
    )


def _text(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def make_server_context(config: GatewayConfig) -> ssl.SSLContext | None:
    """What the listeners speak TLS with; ``None`` if they do not.

    Raises:
        OptionError: a certificate cannot be loaded.
    """
    if config.certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.sni_callback = _remember_name
    secret = config.key_password
    try:
        context.load_cert_chain(
            config.certificate, config.key, password=lambda: "" if secret is None else secret.reveal()
        )
    except (OSError, ValueError):
        raise OptionError(
            "the gateway's certificate and key cannot be loaded", found=config.certificate, expected="PEM"
        ) from None
    if config.client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED if config.client_auth == "required" else ssl.CERT_OPTIONAL
        try:
            context.load_verify_locations(cafile=config.client_ca)
        except (OSError, ValueError):
            raise OptionError("client_ca cannot be loaded", found=config.client_ca, expected="PEM") from None
    return context


_server_names: WeakKeyDictionary[Any, str] = WeakKeyDictionary()


def _remember_name(connection: Any, name: str | None, _: ssl.SSLContext) -> None:
    if name is not None:
        _server_names[connection] = name.lower()


_SHORT = {
    "commonName": "CN",
    "countryName": "C",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}


def subject_of(certificate: Any) -> str | None:
    """The subject of a client's certificate as Kafka's default names its principal (RFC 2253: the last part first)."""
    if not certificate or not (parts := certificate.get("subject")):
        return None
    return ",".join(
        "+".join(f"{_SHORT.get(name, name)}={_escaped(value)}" for name, value in part) for part in parts[::-1]
    )


def _escaped(value: str) -> str:
    text = "".join(f"\\{one}" if one in ',+"\\<>;' else one for one in value)
    return f"\\{text}" if text[:1] in (" ", "#") else text
