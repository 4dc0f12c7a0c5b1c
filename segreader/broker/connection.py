"""One connection to one broker: requests go out, answers come back in the same order.

Knows frames, time and the order of answers; what is in a frame is the calls' business. One thread uses it at a time.

An answer's memory: frames are read into buffers that come back to the connection's pool once nothing refers to them.
A view into an answer (records, for example) stays good for as long as somebody holds it, also after the connection is
closed; who holds many of them holds their memory.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import field
from typing import Generic, TypeVar

from segreader.broker.authentication import is_refusal_of_certificate, tls_failure
from segreader.broker.rules.backoff import LONGEST_THROTTLE_MS, Deadline
from segreader.broker.settings import ClientSettings
from segreader.errors import BrokerError, ConnectionFailedError, ProtocolError
from segreader.format.columns import BufferPool
from segreader.storage.retry import Clock
from segreader.values import dataclass


@dataclass(slots=True)
class ClientMetrics:
    """Counts of one client; they only grow.

    Args:
        requests: by the API's name as Kafka has it: ``Fetch``, ``Metadata`` …
        retries: by the API's name.
        errors: by the error's name as Kafka has it, answers of all partitions together.
        bytes_sent, bytes_received: whole frames.
        connections: opened.
        throttled_ms: that brokers asked to wait.
        fetched_bytes: of record batches, by broker id.
        locations_asked, locations_given, locations_rejected: of the location extension.
    """

    requests: Counter[str] = field(default_factory=Counter)
    retries: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    bytes_sent: int = 0
    bytes_received: int = 0
    connections: int = 0
    throttled_ms: int = 0
    fetched_bytes: Counter[int] = field(default_factory=Counter)
    locations_asked: int = 0
    locations_given: int = 0
    locations_rejected: int = 0


Answer = TypeVar("Answer")

_SIZE = struct.Struct(">i")
_SMALL_FRAME = 64 << 10
_LONGEST_PIECE = 1 << 20
_FRAME = "the frame"
_STRANGERS = {b"\x15\x03": "a TLS alert", b"HT": "an HTTP server", b"SS": "an SSH server", b"22": "a mail server"}


@dataclass(frozen=True, slots=True)
class Call(Generic[Answer]):
    """One request and how its answer is read.

    Args:
        name, version: of the API.
        encode: the whole frame with this correlation id.
        decode: the answer in a frame without its size.
        held_ms: how long the broker may hold the answer on purpose.
        answer_bytes: of record batches asked for, which bounds the answer's size.
    """

    name: str
    version: int
    encode: Callable[[int], bytes]
    decode: Callable[[memoryview], Answer]
    held_ms: int = 0
    answer_bytes: int = 0

    def __str__(self) -> str:
        return f"{self.name} v{self.version}"


@dataclass(slots=True, eq=False)
class Pending(Generic[Answer]):
    """A request that was sent; ``frame`` is its answer once it was read."""

    call: Call[Answer]
    correlation_id: int
    frame: memoryview | None = field(default=None, repr=False)


class Connection:
    """Frames over one socket.

    Args:
        stream: connected, with TLS if there is any.
        peer: ``host:port``, as errors name it.
        stopped: set from elsewhere to end waits.
    """

    def __init__(
        self,
        stream: socket.socket,
        peer: str,
        settings: ClientSettings,
        *,
        clock: Clock,
        metrics: ClientMetrics,
        stopped: threading.Event,
    ) -> None:
        self.peer = peer
        self.renew_session: Callable[[], None] | None = None
        """Authenticates again; called when ``renew_at_ms`` is over and no request is in flight (KIP-368)."""
        self.renew_at_ms: int | None = None
        self._stream = stream
        self._settings = settings
        self._clock = clock
        self._metrics = metrics
        self._stopped = stopped
        self._in_flight: deque[Pending[object]] = deque()
        self._pool = BufferPool(max_bytes=3 * settings.frame_limit())
        self._last_id = 0
        self._answers = 0
        self._quiet_until_ms = 0
        self._is_renewing = False
        self._closed_because: str | None = None

    def __repr__(self) -> str:
        return f"Connection({self.peer!r}, {'open' if self.is_open else 'closed'})"

    @property
    def is_open(self) -> bool:
        """Whether requests can be sent, as far as is known here."""
        return self._closed_because is None

    @property
    def in_flight(self) -> int:
        """Requests whose answers have not been read yet."""
        return len(self._in_flight)

    @property
    def quiet_until_ms(self) -> int:
        """When the broker's throttle time is over, on this connection's clock; nothing is sent before."""
        return self._quiet_until_ms

    def now_ms(self) -> int:
        """The connection's time: ms since an arbitrary start."""
        return int(self._clock.monotonic() * 1000)

    def send(self, call: Call[Answer], *, deadline: Deadline | None = None) -> Pending[Answer]:
        """Send a request; its answer is for ``receive``.

        Args:
            deadline: of the whole operation, on this connection's clock; throttle time puts it off.

        Raises:
            ConnectionFailedError: the connection is closed, was reset, or the broker asks to wait for longer.
            AuthenticationError: the session had to be renewed, and that was refused.
        """
        self._require_open()
        if self._must_renew():
            self._renew(deadline)
        self._keep_quiet(call, deadline)
        self._last_id = (self._last_id + 1) & 0x7FFFFFFF
        pending = Pending(call, self._last_id)
        frame = call.encode(pending.correlation_id)
        with self._closing_on_failure(call, "sending"):
            self._stream.settimeout(self._seconds_left(self._due(call, deadline), call, "to send"))
            size = len(frame)
            try:
                self._stream.sendall(frame)
            finally:
                del frame  # it may hold a password, and a traceback this variable
        self._in_flight.append(pending)  # type: ignore[arg-type]
        self._metrics.requests[call.name] += 1
        self._metrics.bytes_sent += size
        return pending

    def receive(self, pending: Pending[Answer], *, deadline: Deadline | None = None) -> Answer:
        """The answer to a request; those before it are read, too, and kept for their callers.

        The request's time-out counts from this call on: what waits in the socket for a slow reader is not late. Nor is
        what waits in the broker for the end of the throttle time that an earlier answer announced.

        Raises:
            ConnectionFailedError: the broker closed the connection, or did not answer in time.
            ProtocolError: what came is no answer to this request.
        """
        call = pending.call
        due_ms = self._due(call, deadline)
        while pending.frame is None:
            self._require_open()
            if pending not in self._in_flight:
                raise ConnectionFailedError(f"the answer to {call} was handed out before", source=self.peer)
            self._read_frame(due_ms)
        frame, pending.frame = pending.frame, None
        try:
            answer = call.decode(frame)
        except ProtocolError as error:
            self._close(f"the answer to {call} could not be read")
            raise error.located(source=self.peer) from error.__cause__
        except BaseException:
            self._close(f"the answer to {call} could not be read")
            raise
        self._throttle(getattr(answer, "throttle_ms", 0))
        return answer

    def ask(self, call: Call[Answer], *, deadline: Deadline | None = None) -> Answer:
        """The answer to one request."""
        return self.receive(self.send(call, deadline=deadline), deadline=deadline)

    def is_usable(self) -> bool:
        """Whether an idle connection is still open at the other end: nothing came, not even its end."""
        if not self.is_open:
            return False
        if self._in_flight:
            return True
        try:
            self._stream.setblocking(False)
            self._stream.recv(1)
        except (BlockingIOError, ssl.SSLWantReadError):
            return True
        except (OSError, ValueError):
            pass
        self._close("it was closed while it was idle")
        return False

    def close(self) -> None:
        """Close the socket. Answers that were returned stay valid."""
        self._close("it was closed here")

    def _due(self, call: Call[Answer], deadline: Deadline | None) -> int:
        now_ms = self.now_ms()
        quiet_until_ms = min(max(self._quiet_until_ms, now_ms), now_ms + LONGEST_THROTTLE_MS)
        due_ms = quiet_until_ms + self._settings.request_timeout_ms + call.held_ms
        if deadline is None:
            return due_ms
        deadline.excuse(now_ms, quiet_until_ms)
        return min(due_ms, deadline.at_ms)

    def _must_renew(self) -> bool:
        return (
            self.renew_session is not None
            and self.renew_at_ms is not None
            and self.now_ms() >= self.renew_at_ms
            and not self._is_renewing
        )

    def _renew(self, deadline: Deadline | None) -> None:
        """Authenticate again with nothing in flight, as KIP-368 wants it; answers under way are read first."""
        assert self.renew_session is not None
        while self._in_flight:
            self._read_frame(self._due(self._in_flight[0].call, deadline))
        self._is_renewing = True
        try:
            self.renew_session()
        except BaseException:
            self._close("its session could not be renewed")
            raise
        finally:
            self._is_renewing = False

    def _keep_quiet(self, call: Call[Answer], deadline: Deadline | None) -> None:
        now_ms = self.now_ms()
        wait_ms = self._quiet_until_ms - now_ms
        if wait_ms <= 0:
            return
        if deadline is not None and not deadline.excuse(now_ms, self._quiet_until_ms):
            raise ConnectionFailedError(
                f"the broker asks to wait {wait_ms} ms before {call}",
                source=self.peer,
                expected=f"at most {LONGEST_THROTTLE_MS} ms of throttle time in one operation",
                hint="This client is far over its quota there; raise the quota",
            )
        if self._clock.wait(self._stopped, wait_ms / 1000):
            self._close("it was closed here")
            self._require_open()

    def _throttle(self, throttle_ms: int) -> None:
        if throttle_ms > 0:
            self._metrics.throttled_ms += throttle_ms
            self._quiet_until_ms = max(self._quiet_until_ms, self.now_ms() + throttle_ms)

    def _read_frame(self, due_ms: int) -> None:
        pending = self._in_flight[0]
        with self._closing_on_failure(pending.call, "waiting for"):
            frame = self._read(pending.call, due_ms)
            found = _SIZE.unpack_from(frame)[0]
            if found != pending.correlation_id:
                raise ProtocolError(
                    f"an answer that belongs to no request came for {pending.call}",
                    source=self.peer,
                    position=0,
                    found=f"correlation id {found}",
                    expected=pending.correlation_id,
                )
        self._in_flight.popleft()
        self._answers += 1
        self._metrics.bytes_received += _SIZE.size + len(frame)
        pending.frame = frame

    def _read(self, call: Call[object], due_ms: int) -> memoryview:
        head = bytearray(_SIZE.size)
        self._fill(memoryview(head), call, due_ms, "its size")
        size = _SIZE.unpack(head)[0]
        limit = self._settings.frame_limit(call.answer_bytes)
        if not _SIZE.size <= size <= limit:
            stranger = next((name for first, name in _STRANGERS.items() if head.startswith(first)), None)
            raise ProtocolError(
                f"the answer to {call} has an impossible size",
                source=self.peer,
                position=0,
                found=f"{size} bytes" + (f", which is how {stranger} begins" if stranger else ""),
                expected=f"{_SIZE.size} to {limit}",
                hint="Check the port and security.protocol" if stranger or not self._answers else None,
            )
        buffer = bytearray(size) if size <= _SMALL_FRAME else self._pool.lease(_rounded(size))
        frame = memoryview(buffer)[:size]
        self._fill(frame, call, due_ms, _FRAME)
        return frame.toreadonly()

    def _fill(self, target: memoryview, call: Call[object], due_ms: int, what: str) -> None:
        filled = 0
        while filled < len(target):
            self._stream.settimeout(self._seconds_left(due_ms, call, "for"))
            # TLS locks the whole of what it is given to read into; small pieces keep the time-out exact as well.
            try:
                got = self._stream.recv_into(target[filled : filled + _LONGEST_PIECE])
            except ConnectionResetError:
                raise self._ended("reset", call, filled, len(target), what) from None
            if got == 0:
                raise self._ended("closed", call, filled, len(target), what)
            filled += got

    def _ended(self, how: str, call: Call[object], filled: int, size: int, what: str) -> ConnectionFailedError:
        if filled or what == _FRAME:
            message = f"{how} by the broker after {filled} of {size} bytes of {what} of the answer to {call}"
        else:
            message = f"{how} by the broker before it answered {call}"
        hint = None
        is_at_once = not filled and what != _FRAME
        if is_at_once and self._answers == 0:
            hint = "A listener with TLS closes like this: check port and security.protocol"
        elif is_at_once and self._answers <= 2 and not self._settings.security_protocol.has_sasl:
            hint = "A listener with SASL closes like this: check security.protocol"
        return ConnectionFailedError(message, source=self.peer, hint=hint)

    def _seconds_left(self, due_ms: int, call: Call[Answer], doing: str) -> float:
        left_ms = due_ms - self.now_ms()
        if left_ms <= 0:
            raise TimeoutError(f"{doing} {call}")
        return left_ms / 1000

    @contextlib.contextmanager
    def _closing_on_failure(self, call: Call[Answer], doing: str) -> Iterator[None]:
        """Whatever fails while bytes are on the way leaves an unusable stream."""
        try:
            yield
        except BrokerError as error:
            self._close(error.message)
            raise
        except TimeoutError:
            self._close(f"{call} timed out")
            raise ConnectionFailedError(
                f"timed out {doing} {call}",
                source=self.peer,
                hint="The broker is silent or the network slow; request.timeout.ms bounds this wait",
            ) from None
        except ssl.SSLError as error:
            self._close("TLS failed")
            if is_refusal_of_certificate(error):
                raise tls_failure(error, self.peer) from None
            raise ConnectionFailedError(
                f"TLS failed {doing} {call}: {error.reason or type(error).__name__}", source=self.peer
            ) from None
        except OSError as error:
            what = error.strerror or type(error).__name__
            self._close(what)
            raise ConnectionFailedError(f"the connection broke {doing} {call}: {what}", source=self.peer) from None
        except BaseException:
            self._close("it was interrupted")
            raise

    def _require_open(self) -> None:
        if self._closed_because is not None:
            raise ConnectionFailedError(f"the connection is closed: {self._closed_because}", source=self.peer)

    def _close(self, why: str) -> None:
        if self._closed_because is None:
            self._closed_because = why
            self._in_flight.clear()
            with contextlib.suppress(OSError):
                self._stream.close()


def _rounded(size: int) -> int:
    """A little more than ``size``: answers that differ by a batch share a buffer."""
    step = max(_SMALL_FRAME, 1 << max(0, size.bit_length() - 4))
    return -(-size // step) * step
