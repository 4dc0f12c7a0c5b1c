"""urllib3's connection pools as this library needs them, and what their exceptions mean.

A request can be ended from another thread, bodies are read straight into a buffer, the connected address is checked,
and proxies and certificates are the system's. Exception texts of the libraries hold the URL; none of them is kept.
An ``Exchange`` is one request under way: a thread that is blocked in a read sees neither flags nor the clock, so
another thread, or a timer, shuts its connection under it.
"""

from __future__ import annotations

import contextlib
import heapq
import http
import http.client
import itertools
import socket
import ssl
import threading
import time
import urllib.request
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from email import errors
from typing import Any, BinaryIO, Protocol, cast
from urllib.parse import unquote, urlsplit

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import (
    ConnectTimeoutError,
    InvalidHeader,
    LocationValueError,
    NameResolutionError,
    ReadTimeoutError,
)
from urllib3.poolmanager import PoolManager, ProxyManager
from urllib3.util import Timeout, make_headers

from segreader.errors import OptionError, SegreaderError, StorageError, WrongAnswerError
from segreader.storage.retry import Remedy, RequestFailed
from segreader.storage.signed_url import SignedUrl

PeerCheck = Callable[[socket.socket], None]


class SomeReader(Protocol):
    """A body, as it arrives."""

    length: int | None
    """Bytes that are left of it; ``None`` where only its end shows how many."""

    def read_some(self, buffer: memoryview) -> int:
        """Put what has arrived at the buffer's beginning; returns how many bytes, 0 at the end of the body."""

    def isclosed(self) -> bool:
        """Whether the body was read to its end."""


class Exchange:
    """One request and its answer, which another thread may end.

    Args:
        check_peer: raises if the socket's other end must not be asked.
    """

    def __init__(self, check_peer: PeerCheck | None = None) -> None:
        self.check_peer = check_peer
        self.refusal: SegreaderError | None = None
        self.reader: SomeReader | None = None
        self.is_ended = False
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None

    def attach(self, sock: Any) -> None:
        """The socket that the request goes over, from now until ``detach``."""
        with self._lock:
            self._socket = _plain(sock)
            if self.is_ended:
                _shut(self._socket)

    def detach(self) -> None:
        """The exchange is over: its connection may serve another one now."""
        with self._lock:
            self._socket = None

    def end(self) -> None:
        """Break the connection; a thread that is blocked in a read gets an error at once."""
        with self._lock:
            self.is_ended = True
            _shut(self._socket)


def _plain(sock: Any) -> socket.socket | None:
    while sock is not None and not isinstance(sock, socket.socket):
        sock = getattr(sock, "socket", None)  # TLS inside TLS, through a proxy
    return sock


def _shut(sock: socket.socket | None) -> None:
    # Not SSLSocket.shutdown: that takes the TLS layer away from under the thread that reads.
    if sock is not None:
        with contextlib.suppress(OSError):
            socket.socket.shutdown(sock, socket.SHUT_RDWR)


class Stopped(Exception):
    """The caller no longer wants the range. Does not leave this package."""


class Stop:
    """Tells the requests of one read to end, wherever they wait."""

    def __init__(self) -> None:
        self.event = threading.Event()
        self._lock = threading.Lock()
        self._exchanges: set[Exchange] = set()

    def set(self) -> None:
        """End what is under way, and let nothing begin."""
        with self._lock:
            self.event.set()
            for exchange in self._exchanges:
                exchange.end()

    @contextmanager
    def ends(self, exchange: Exchange) -> Iterator[None]:
        """For the time of the block, ``set`` ends this exchange too."""
        with self._lock:
            self._exchanges.add(exchange)
            if self.event.is_set():
                exchange.end()
        try:
            yield
        finally:
            with self._lock:
                self._exchanges.discard(exchange)


_IDLE_S = 5.0
_PROXIES_S = 1.0


class Timer:
    """One call that is due; ``cancel`` makes it not happen, unless it has begun."""

    __slots__ = ("call",)

    def __init__(self, call: Callable[[], None]) -> None:
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        """Forget the call."""
        self.call = None


class Timers:
    """Makes calls when they are due. The calls must not block and must not raise.

    The thread starts with the first call, ends when nothing was due for a while, and belongs to its process.
    """

    def __init__(self) -> None:
        self._due: list[tuple[float, int, Timer]] = []
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def call_later(self, seconds: float, call: Callable[[], None]) -> Timer:
        """Have ``call`` made after so many seconds."""
        timer = Timer(call)
        with self._changed:
            entry = (time.monotonic() + seconds, next(self._numbers), timer)
            heapq.heappush(self._due, entry)
            if self._thread is None and not self._is_closed:
                self._thread = threading.Thread(target=self._run, name="segreader-timers", daemon=True)
                self._thread.start()
            elif self._due[0] is entry:
                self._changed.notify()
        return timer

    def close(self) -> None:
        """End the thread; what is due later is forgotten."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
            thread = self._thread
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                while self._due and self._due[0][2].call is None:
                    heapq.heappop(self._due)
                if self._is_closed:
                    return
                if not self._due:
                    if not self._changed.wait(_IDLE_S) and not self._due:
                        self._thread = None
                        return
                    continue
                left = self._due[0][0] - time.monotonic()
                if left > 0:
                    self._changed.wait(left)
                    continue
                call = heapq.heappop(self._due)[2].call
            if call is not None:
                call()


HEAD_SIZE = 64 << 10
"""Bytes of a head that are read at most."""

_LOST_HEADERS = (
    errors.FirstHeaderLineIsContinuationDefect,
    errors.InvalidHeaderDefect,
    errors.MisplacedEnvelopeHeaderDefect,
    errors.MissingHeaderBodySeparatorDefect,
)
"""What the parser notes of a line that is no header. It drops that line, or takes it and all behind it for text: a
length or a coding may be among them."""

_exchange: ContextVar[Exchange | None] = ContextVar("segreader_exchange", default=None)


class _HeadLines:
    """The file that a head is read from. ``http.client`` takes the end of a connection for the end of a head."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self._left = HEAD_SIZE

    def readline(self, limit: int) -> bytes:
        line = self.file.readline(limit)
        self._left -= len(line)
        if self._left < 0:
            raise http.client.HTTPException("the head is too long")
        if not line.endswith(b"\n") and len(line) < limit:
            raise http.client.RemoteDisconnected("the connection ended inside the head")
        return line

    def flush(self) -> None:
        """There is nothing to flush; ``HTTPResponse`` asks."""

    def close(self) -> None:
        self.file.close()


class BodyReader(http.client.HTTPResponse):
    """An answer whose body is read into a buffer, as much at a time as has arrived.

    ``HTTPResponse.readinto`` waits until the buffer is full, and if the connection breaks, does not say how much of it
    is good.
    """

    def begin(self) -> None:
        """Read the head, past interim answers (``1xx``); the exchange that waits for it learns of this reader.

        Raises:
            RemoteDisconnected: the connection ends before the head does.
            HTTPException: the heads are longer than ``HEAD_SIZE`` together, or the last one is malformed.
        """
        lines = _HeadLines(cast(BinaryIO, self.fp))
        self.fp = cast(Any, lines)
        super().begin()
        while 100 <= self.status < 200 and self.status != http.HTTPStatus.SWITCHING_PROTOCOLS:
            self.headers = self.msg = cast(Any, None)  # begin() reads the next head only if there is none yet
            super().begin()
        if any(isinstance(defect, _LOST_HEADERS) for defect in self.headers.defects):
            raise http.client.HTTPException("a line of the head is not a header")
        if self.version < 11 and "Transfer-Encoding" in self.headers:
            raise http.client.HTTPException("HTTP/1.0 with a Transfer-Encoding")  # RFC 9112 section 6.1
        if cast(Any, self.fp) is lines:
            self.fp = cast(Any, lines.file)
        exchange = _exchange.get()
        if exchange is not None:
            exchange.reader = self

    def read_some(self, buffer: memoryview) -> int:
        """Put what has arrived at the buffer's beginning; returns how many bytes, 0 at the end of the body."""
        if self.fp is None:
            return 0
        if self.length is None or self.chunked:
            data = self.read1(len(buffer))
            buffer[: len(data)] = data
            return len(data)
        count: int = cast(Any, self.fp).readinto1(buffer[: self.length])
        self.length -= count
        if not self.length:
            self.close()
        return count


class _Tracked:
    """What plain and TLS connections share."""

    response_class = BodyReader

    def _new_conn(self) -> socket.socket:
        sock: socket.socket = super()._new_conn()  # type: ignore[misc]
        exchange = _exchange.get()
        if exchange is not None and exchange.check_peer is not None and getattr(self, "proxy", None) is None:
            try:
                exchange.check_peer(sock)
            except SegreaderError as error:
                exchange.refusal = error  # urllib3 would wrap it with the URL in the text
                sock.close()
                raise OSError("address refused") from None
        return sock

    def getresponse(self) -> Any:
        exchange = _exchange.get()
        if exchange is not None:
            exchange.attach(cast(Any, self).sock)
        return super().getresponse()  # type: ignore[misc]


class _PlainConnection(_Tracked, HTTPConnection):  # type: ignore[misc]
    pass


class _TlsConnection(_Tracked, HTTPSConnection):  # type: ignore[misc]
    pass


class _PlainPool(HTTPConnectionPool):
    ConnectionCls = _PlainConnection


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


class Connections:
    """The connection pools of one process.

    Args:
        ca_file: certificates to trust in place of the system's.
        verify: ``False`` trusts any certificate, with a warning.
        size: idle connections kept for each host.
        certificate_file, key_file: PEM files of our own certificate and its key, for servers that ask for one.

    Raises:
        OptionError: ``ca_file`` holds no certificates, or ``certificate_file`` and ``key_file`` do not go together.
    """

    def __init__(
        self,
        *,
        ca_file: str | None = None,
        verify: bool = True,
        size: int = 10,
        certificate_file: str | None = None,
        key_file: str | None = None,
    ) -> None:
        self._verify = verify
        self._size = size
        self._lock = threading.Lock()
        self._managers: dict[str | None, PoolManager] = {}
        self._proxies: dict[str, str] = {}
        self._proxies_until = 0.0
        self._context = None if ca_file is None else _tls(ca_file, verify=verify)
        if certificate_file is not None:
            self._context = self._context or _tls(None, verify=verify)
            _identify(self._context, certificate_file, key_file)
        if not verify:
            warnings.warn("TLS certificates are not verified: anyone on the way can read and change data", stacklevel=4)

    def get(
        self, url: SignedUrl, headers: Mapping[str, str], exchange: Exchange, *, connect_s: float, idle_s: float
    ) -> urllib3.BaseHTTPResponse:
        """The head of the answer to one GET: no redirect is followed, nothing is tried again, no body is read."""
        parts = urlsplit(url.reveal())
        proxy = self._proxy_for(parts.scheme, parts.hostname or "", parts.port)
        options: dict[str, Any] = {
            "headers": dict(headers),
            "retries": False,
            "redirect": False,
            "preload_content": False,
            "decode_content": False,
            "timeout": Timeout(connect=connect_s, read=idle_s),
        }
        manager = self._manager(proxy)
        token = _exchange.set(exchange)
        try:
            if proxy is not None and parts.scheme == "http":
                return manager.urlopen("GET", url.reveal(), **options)
            # The parts as they were checked, not as another parser would see them; the path as it was signed.
            pool = manager.connection_from_host(parts.hostname, parts.port, parts.scheme)
            target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            return pool.urlopen("GET", target, **options)
        finally:
            _exchange.reset(token)

    def close(self) -> None:
        """Close what is idle."""
        with self._lock:
            managers, self._managers = self._managers, {}
        for manager in managers.values():
            manager.clear()

    def _proxy_for(self, scheme: str, host: str, port: int | None) -> str | None:
        now = time.monotonic()
        if now >= self._proxies_until:  # all of the environment is looked through, which a small request would notice
            self._proxies, self._proxies_until = urllib.request.getproxies(), now + _PROXIES_S
        proxies = self._proxies
        proxy = proxies.get(scheme) or proxies.get("all")
        if not proxy or urllib.request.proxy_bypass(f"{host}:{port}" if port else host):
            return None
        return proxy if "://" in proxy else f"http://{proxy}"

    def _manager(self, proxy: str | None) -> PoolManager:
        with self._lock:
            manager = self._managers.get(proxy)
            if manager is None:
                manager = self._managers[proxy] = self._make_manager(proxy)
            return manager

    def _make_manager(self, proxy: str | None) -> PoolManager:
        if self._context is None:
            self._context = _tls(None, verify=self._verify)  # 20 ms that plain http does not need
        options: dict[str, Any] = {
            "num_pools": 32,
            "maxsize": self._size,
            "block": False,
            "ssl_context": self._context,
            "cert_reqs": "CERT_REQUIRED" if self._verify else "CERT_NONE",
        }
        if proxy is None:
            manager = PoolManager(**options)
        else:
            parts = urlsplit(proxy)
            if parts.username is not None:
                userinfo = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
                options["proxy_headers"] = make_headers(proxy_basic_auth=userinfo)
                proxy = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
            manager = ProxyManager(proxy, **options)
        manager.pool_classes_by_scheme = {"http": _PlainPool, "https": _TlsPool}
        return manager


def _tls(ca_file: str | None, *, verify: bool) -> ssl.SSLContext:
    reason = ""
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        reason = error.strerror or type(error).__name__
    if reason:
        raise OptionError("the file of certificates cannot be used", source=ca_file, found=reason, hint="See ca_file")
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _identify(context: ssl.SSLContext, certificate_file: str, key_file: str | None) -> None:
    reason = ""
    try:
        context.load_cert_chain(certificate_file, key_file, password=lambda: "")  # or OpenSSL asks at the terminal
    except ssl.SSLError as error:
        reason = error.reason or "not a certificate and its key, or the key is encrypted"
    except OSError as error:
        reason = error.strerror or type(error).__name__
    if reason:
        raise OptionError(
            "the client's certificate cannot be used",
            source=certificate_file,
            found=reason,
            expected="PEM files of a certificate and of its key, without a password",
        )


def transport_failure(error: Exception, exchange: Exchange, source: str) -> RequestFailed:
    """What an exception of the transport means, and what may help.

    Args:
        exchange: the request that ended so.
        source: the object, as it may be shown.
    """
    if isinstance(exchange.refusal, StorageError):
        return RequestFailed(exchange.refusal.located(source=source), Remedy.NONE)
    chain = list(causes(error))

    def among(*kinds: type[BaseException]) -> BaseException | None:
        return next((cause for cause in chain if isinstance(cause, kinds)), None)

    def failed(message: str, hint: str, remedy: Remedy = Remedy.RETRY, found: str | None = None) -> RequestFailed:
        return RequestFailed(StorageError(message, source=source, found=found, hint=hint), remedy)

    if untrusted := among(ssl.SSLCertVerificationError, ssl.CertificateError):
        return failed(
            "the server's certificate is not trusted",
            "Name the CA with ca_file, or ask the host by the name in its certificate",
            Remedy.NONE,
            getattr(untrusted, "verify_message", "") or None,
        )
    if among(LocationValueError, http.client.InvalidURL) or type(error) is ValueError:
        return failed("not a URL that can be asked", "Check its host, port and characters", Remedy.NONE)
    if not among(http.client.RemoteDisconnected) and (garbage := among(http.client.HTTPException, InvalidHeader)):
        wrong = WrongAnswerError(
            "the answer is not HTTP that can be read",
            source=source,
            found=type(garbage).__name__,
            hint="Is it a proxy?",
        )
        return RequestFailed(wrong, Remedy.NONE)
    if among(NameResolutionError):
        return failed("the host's name cannot be resolved", "Check the name, and this machine's DNS")
    if among(ConnectTimeoutError):
        return failed("no connection could be made in time", "Check the host, the port, the network and the proxy")
    if exchange.is_ended or among(ReadTimeoutError, TimeoutError):
        return failed("no answer came in time", "Check the store's status")
    reason = next((c.strerror for c in chain if isinstance(c, OSError) and c.strerror and c.errno), None)
    return failed("the connection broke", "Check the network and the proxy", found=reason)


def causes(error: BaseException) -> Iterator[BaseException]:
    """An exception and those that it holds, or that led to it."""
    ahead, seen = [error], set[int]()
    while ahead:
        one = ahead.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        ahead += [arg for arg in one.args if isinstance(arg, BaseException)]
        ahead += [held for held in (one.__cause__, one.__context__) if held is not None]
