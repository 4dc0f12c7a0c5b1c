"""One client's connection and the one to its broker: requests one way, answers the other, in their order.

Only APIs and versions that can be passed on are offered and passed. Answers go on unchanged, in slices as they come, or
with the gateway's addresses in the place of the brokers'. What authenticates a client passes through unchanged; only
the name in it is kept, for the audit.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from struct import Struct
from typing import Final, Protocol, cast

from segreader import __version__
from segreader.broker import api
from segreader.broker.codec import (
    SMALLEST_REQUEST,
    RequestHead,
    answer_body,
    api_label,
    codec_of,
    is_flexible,
    message_name,
    read_request_head,
    request_body,
)
from segreader.broker.location import extension_tag
from segreader.broker.messages import ApiVersionRange
from segreader.broker.primitives import Reader, Writer
from segreader.broker.protocol import ANSWERS, API_NAMES, PRODUCE_START, Api, ErrorCode
from segreader.errors import BrokerError, ConnectionFailedError, ProtocolError, UnsupportedVersionError
from segreader.gateway.admission import LimitReports, Turns, address_of
from segreader.gateway.config import Limits
from segreader.gateway.fetch_messages import TOO_LONG, FlaggedFetch, flagged_fetch_steps, has_many_tags, pass_fetch
from segreader.gateway.identity import SASL_APIS, Login
from segreader.gateway.metrics import GatewayMetrics
from segreader.gateway.rewriting import (
    FIRST_WITH_COORDINATORS,
    HEAD_APIS,
    AddressTable,
    rewrite_start,
    rewrite_whole,
    rewrites,
)
from segreader.gateway.wire import LARGEST, SIZE, FrameSource, Outlet, Wire, read_size
from segreader.values import dataclass

_log = logging.getLogger(__name__)

_ANSWER_HEAD = Struct(">ii")
_FIRST_LOOK = 512
_LONGEST_ANSWER_S = 1800.0
"""Longer than any client waits: a group may take its time to assemble, but no client waits longer than this."""

_LONGEST_LOOK = 72 << 10
"""What a look at the head of a request may need: two strings of 32 KiB and tagged fields."""


PARSED: Final[Mapping[int, ApiVersionRange]] = {
    Api.PRODUCE: ApiVersionRange(0, 13),
    Api.FETCH: ApiVersionRange(0, 18),
    Api.LIST_OFFSETS: ApiVersionRange(0, 11),
    Api.METADATA: ApiVersionRange(0, 13),
    Api.FIND_COORDINATOR: ApiVersionRange(0, 6),
    Api.SASL_HANDSHAKE: ApiVersionRange(1, 1),
    Api.API_VERSIONS: ApiVersionRange(0, 5),
    Api.SASL_AUTHENTICATE: ApiVersionRange(0, 2),
    Api.DESCRIBE_CLUSTER: ApiVersionRange(0, 2),
    Api.SHARE_FETCH: ApiVersionRange(1, 2),
    Api.SHARE_ACKNOWLEDGE: ApiVersionRange(1, 2),
}
"""Versions that can be looked into; other APIs pass in any version. SASL tokens of handshake 0 are no frames."""

_NEWEST: Final = PARSED[Api.API_VERSIONS].last
_BEFORE_LOGIN: Final = SASL_APIS | {Api.API_VERSIONS}
_NEVER: Final = frozenset((52, 53, 54, Api.DESCRIBE_QUORUM, 58, 59, 82))
"""Answers with addresses of controllers."""

Deliver = Callable[[FrameSource], Awaitable[None]]


class Locating(Protocol):
    """What answers a Fetch that asks for locations."""

    async def answer(self, link: Relay, request: FlaggedFetch) -> None:
        """Send the client the answer to its request."""


@dataclass(slots=True)
class _Pending:
    """A request that a broker has not answered yet."""

    correlation_id: int
    api: int
    version: int
    deliver: Deliver
    asked_s: float
    is_own: bool = False


class Relay:
    """A client's connection: ``run`` until one side closes it.

    Args:
        client, broker: the connection to each side.
        peer: the client's address.
        login: who the client is, as its login with the broker names it.
        node: of the broker, as errors and metrics name it.
        locating: answers the flag; ``None``: the flag passes unanswered.
        must_log_in: take only what a login needs, one small request at a time, until the broker has accepted one.
        reports: where limits that were reached are counted.
        turns: of the clients of the whole gateway.
    """

    def __init__(
        self,
        client: Wire,
        broker: Wire,
        *,
        peer: str,
        node: str,
        addresses: AddressTable,
        limits: Limits,
        metrics: GatewayMetrics,
        locating: Locating | None,
        login: Login | None = None,
        must_log_in: bool = False,
        is_strict: bool = True,
        reports: LimitReports | None = None,
        turns: Turns | None = None,
    ) -> None:
        self.peer = peer
        self.login = login or Login()
        self.node = node
        self.addresses = addresses
        self.limits = limits
        self.metrics = metrics
        self.patience_s = 60.0
        """How long a broker may take for a question of the gateway's own."""
        self.offered: Mapping[int, ApiVersionRange] = {}
        """What the broker itself offers; empty until it was asked."""
        self._last_flagged: FlaggedFetch | None = None
        self._last_offers: tuple[tuple[int, bytes], bytes] = (-1, b""), b""
        self.to_client = Outlet(client, metrics.sent_to_client)
        self._from_client, self._from_broker = client, broker
        client.is_in_small_steps = True  # its large requests would hold others up
        self.to_broker = Outlet(broker, metrics.sent_to_broker)
        self._locating = locating
        self._reports = reports or LimitReports(metrics)
        self._turns = turns or Turns()
        self._address = address_of(peer)
        self._is_strict = is_strict
        self._must_log_in = must_log_in
        self._pending: deque[_Pending] = deque()
        self._has_room = asyncio.Event()
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self._is_draining = self._is_between = False
        self._reading: asyncio.Task[None] | None = None
        self._own_id = 0

    async def run(self) -> None:
        """Relay until a side closes, ``drain`` was called and all is answered, or a peer breaks the protocol.

        Raises:
            BrokerError: what a peer did wrong; with the direction and the node.
        """
        self._reading = asyncio.ensure_future(self._requests())
        loop = asyncio.get_running_loop()
        self._from_client.patience_s = patience_s = self.limits.unread_s
        late: asyncio.Future[None] = loop.create_future()
        tasks = [self._reading, asyncio.ensure_future(self._answers()), late]
        timer = loop.call_later(self.limits.login_s, self._login_is_due, late)
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        except BrokerError as error:
            if self._from_client.is_stalled:
                self._reports.reached("unread_s", patience_s, self.peer)
            raise error.located(source=self.node) from None
        finally:
            timer.cancel()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _login_is_due(self, late: asyncio.Future[None]) -> None:
        if self._is_before_login and not late.done():
            limit = self.limits.login_s
            self._reports.reached("login_s", limit, self.peer)
            late.set_exception(ConnectionFailedError("no login in time", expected=f"{limit} s at most"))

    @property
    def _is_before_login(self) -> bool:
        return self._must_log_in and not self.login.is_accepted

    def drain(self) -> None:
        """Take no more requests, and end when the last one is answered."""
        self._is_draining = True
        if self._is_between and self._reading is not None:
            self._reading.cancel()

    async def idle(self) -> None:
        """Wait until every request is answered."""
        await self._is_idle.wait()

    # From the client to the broker

    async def _requests(self) -> None:
        try:
            while not self._is_draining:
                self._is_between = True
                size = await read_size(self._from_client, SMALLEST_REQUEST, LARGEST, "request")
                self._is_between = False
                if size is None:
                    return
                self._reports.check_request(self.limits, size, self.peer, is_before_login=self._is_before_login)
                await self._turns.turn(self.login.principal or self._address)
                await self._request(FrameSource(self._from_client, size, name="request", limit=_LONGEST_LOOK))
                if self._from_client.waiting:
                    await asyncio.sleep(0)  # more have come at once: others have their turn
        except asyncio.CancelledError:
            if not (self._is_draining and self._is_between):
                raise
        await self.idle()

    async def _request(self, source: FrameSource) -> None:
        if len(self._pending) >= self.limits.in_flight:
            await self._room()
        held, head, is_answered = await _looked_at(source)
        if why := _may_pass(head.api, head.version, is_strict=self._is_strict):
            if head.api == Api.API_VERSIONS and head.version > _NEWEST:
                await source.pass_on(source.left, None)
                await self.idle()
                await self.to_client.send(_unsupported_version(head.correlation_id))
                await self.to_client.flush()
                return
            raise ProtocolError(why)
        self.metrics.requests[api_label(head.api)] += 1
        if self._is_before_login:
            if head.api not in _BEFORE_LOGIN:
                raise ProtocolError(f"{message_name(head.api, head.version, 'request')} before login")
            held += await source.rest(self.limits.request_bytes_before_login)
        if self._locating is not None and head.api == Api.FETCH and self._is_short(source.size):
            held += await source.rest(self.limits.flagged_request_bytes)
            if (request := await self._flagged(held, head)) is not None:
                started = time.monotonic()
                await self.idle()
                await self._locating.answer(self, request)
                self.metrics.answered(api_label(head.api), time.monotonic() - started)
                return
        deliver = self._deliverer(head)
        if head.api in SASL_APIS and source.size <= (most := self.limits.request_bytes_before_login):
            held += await source.rest(most)
            if (answered := self.login.asked(memoryview(held), head)) is not None:
                deliver = partial(self._deliver_login, answered)
        if is_answered:
            self._expect(head.correlation_id, head.api, head.version, deliver)
        await self.to_broker.send(SIZE.pack(source.size) + held)
        await source.pass_on(source.left, self.to_broker)
        await self.to_broker.flush()
        if self._is_before_login:
            await self.idle()  # its answer may be what ends the login

    async def _room(self) -> None:
        self._reports.reached("in_flight", self.limits.in_flight, self.peer)
        while len(self._pending) >= self.limits.in_flight:
            self._has_room.clear()
            try:
                await asyncio.wait_for(self._has_room.wait(), _LONGEST_ANSWER_S)
            except TimeoutError:
                raise ConnectionFailedError("the broker answers nothing any more") from None

    def _is_short(self, size: int) -> bool:
        """Whether a Fetch is looked into for the flag."""
        most = self.limits.flagged_request_bytes
        if size > most:
            self._reports.reached("flagged_request_bytes", most, self.peer)
        return size <= most

    async def _flagged(self, frame: bytes, head: RequestHead) -> FlaggedFetch | None:
        if (last := self._last_flagged) is not None and (same := last.again(frame, head)) is not None:
            return same
        steps = flagged_fetch_steps(frame, head, self.limits.flagged_partitions)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                if end.value is TOO_LONG:
                    self._reports.reached("flagged_partitions", self.limits.flagged_partitions, self.peer)
                    return None
                self._last_flagged = cast(FlaggedFetch | None, end.value)
                return self._last_flagged
            await asyncio.sleep(0)  # others have their turn

    def _deliverer(self, head: RequestHead) -> Deliver:
        if head.api == Api.API_VERSIONS:
            return lambda source: self._deliver_api_versions(source, head.version)
        return lambda source: self.pass_answer(source, head.api, head.version)

    async def pass_answer(self, source: FrameSource, api: int, version: int) -> None:
        """Pass one answer on to the client, with the gateway's addresses in the place of the brokers'.

        Raises:
            ProtocolError: it is no such answer.
        """
        client, addresses = self.to_client, self.addresses
        if not rewrites(api, version):
            await client.send(SIZE.pack(source.size))
            await source.pass_on(source.left, client)
        elif api in HEAD_APIS and not (api == Api.FIND_COORDINATOR and version >= FIRST_WITH_COORDINATORS):
            await self._pass_start(source, Api(api), version)
        elif api in (Api.FETCH, Api.SHARE_FETCH):
            await pass_fetch(source, client, Api(api), version, addresses)
        else:
            frame = memoryview(await source.rest())
            answer = await rewrite_whole(frame, Api(api), version, addresses)
            if await addresses.settle():
                answer = await rewrite_whole(frame, Api(api), version, addresses)
            await client.send(SIZE.pack(len(answer)) + answer)

    async def _pass_start(self, source: FrameSource, api: Api, version: int) -> None:
        def rewrite(reader: Reader) -> tuple[bytes, int]:
            start, size = rewrite_start(reader.unread, api, version, self.addresses)
            reader.take(size)
            return start, size

        (start, _), raw = await source.parsed(rewrite)
        if await self.addresses.settle():
            start, _ = rewrite_start(memoryview(raw), api, version, self.addresses)
        await self.to_client.send(SIZE.pack(source.size + len(start) - len(raw)) + start)
        await source.pass_on(source.left, self.to_client)

    async def _deliver_api_versions(self, source: FrameSource, version: int) -> None:
        frame = await source.rest()
        asked, answer = self._last_offers
        if asked == (version, frame[4:]):  # again and again
            answer = frame[:4] + answer[4:]
        else:
            answer, offered = rewrite_api_versions(
                memoryview(frame), version, is_strict=self._is_strict, announces=self._locating is not None
            )
            self.offered = offered or self.offered
            self._last_offers = (version, frame[4:]), answer
        await self.to_client.send(SIZE.pack(len(answer)) + answer)

    async def _deliver_login(self, answered: Callable[[memoryview], None], source: FrameSource) -> None:
        frame = await source.rest()
        answered(memoryview(frame))
        await self.to_client.send(SIZE.pack(len(frame)) + frame)

    def _expect(self, correlation_id: int, api: int, version: int, deliver: Deliver, *, is_own: bool = False) -> None:
        self._pending.append(_Pending(correlation_id, api, version, deliver, time.monotonic(), is_own))
        self._is_idle.clear()

    def next_id(self) -> int:
        """A correlation id for a request of the gateway's own on this connection."""
        self._own_id = (self._own_id + 1) & 0x7FFFFFFF
        return self._own_id

    async def ask(
        self,
        api: Api,
        version: int,
        frame: bytes,
        correlation_id: int,
        deliver: Deliver,
        *,
        held_s: float = 0.0,
    ) -> None:
        """Send a request of the gateway's own as this client, and wait until its answer was delivered.

        Answers to what the client asked before go out first. Not to be called while the client's requests go on.

        Args:
            held_s: how long the broker may hold the answer on purpose.

        Raises:
            ConnectionFailedError: it comes too late.
        """
        loop = asyncio.get_running_loop()
        done: asyncio.Future[bool] = loop.create_future()

        def too_late() -> None:
            if not done.done():
                done.set_result(False)

        async def and_tell(source: FrameSource) -> None:
            timer.cancel()  # the client may take its time
            await deliver(source)
            if not done.done():
                done.set_result(True)

        timer = loop.call_later(self.patience_s + held_s, too_late)
        try:
            self._expect(correlation_id, api, version, and_tell, is_own=True)
            await self.to_broker.send(frame)
            await self.to_broker.flush()
            is_answered = await done
        finally:
            timer.cancel()
        if not is_answered:
            # A client that gave up meanwhile would not be noticed: nothing is read from it now.
            raise ConnectionFailedError(f"no answer to {message_name(api, version, 'request')} in time")

    async def question(self, api: Api, version: int, encode: Callable[[int], bytes]) -> memoryview:
        """The answer's frame to a question of the gateway's own, asked as this client; not the client's to see.

        Raises:
            ProtocolError: it is larger than may be held.
        """
        frames: list[bytes] = []

        async def keep(source: FrameSource) -> None:
            frames.append(await source.rest())

        number = self.next_id()
        await self.ask(api, version, encode(number), number, keep)
        return memoryview(frames[0])

    async def find_offers(self) -> None:
        """Ask what the broker offers, if the client never did."""
        if self.offered:
            return
        for version in (3, 0):
            frame = await self.question(
                Api.API_VERSIONS,
                version,
                lambda number, version=version: api.encode_api_versions(  # type: ignore[misc]
                    version, "segreader-gateway", __version__, correlation_id=number, client_id="segreader-gateway"
                ),
            )
            told = api.decode_api_versions(version, frame)
            if not told.error:
                self.offered = told.ranges
                return
        raise UnsupportedVersionError("the broker reports no versions", code=told.error)

    # From the broker to the client

    async def _answers(self) -> None:
        while True:
            if (head := await self._from_broker.read_exactly(_ANSWER_HEAD.size)) is None:
                return
            size, correlation_id = _ANSWER_HEAD.unpack(head)
            if size > self.limits.answer_bytes:
                self._reports.reached("answer_bytes", self.limits.answer_bytes, self.node)
            if not 4 <= size <= self.limits.answer_bytes:
                raise ProtocolError(
                    "impossible size of an answer", found=size, expected=f"4 to {self.limits.answer_bytes}"
                )
            if not self._pending:
                raise ProtocolError("an unexpected response", found=f"correlation id {correlation_id}")
            pending = self._pending[0]
            name = message_name(pending.api, pending.version)
            if correlation_id != pending.correlation_id:
                raise ProtocolError(
                    f"{name}: the answer to another request",
                    found=f"correlation id {correlation_id}",
                    expected=str(pending.correlation_id),
                )
            source = FrameSource(
                self._from_broker,
                size,
                correlation_id.to_bytes(4, "big", signed=True),
                name=name,
                limit=self.limits.held_bytes,
            )
            try:
                await pending.deliver(source)
            except ProtocolError:
                if source.is_too_large:
                    self._reports.reached("held_bytes", self.limits.held_bytes, self.node)
                raise
            if source.left:
                raise ProtocolError(f"{name}: bytes are left over", found=f"{source.left} bytes")
            await self.to_client.flush()
            if self._from_broker.waiting:
                await asyncio.sleep(0)
            self._pending.popleft()
            if not pending.is_own:
                self.metrics.answered(api_label(pending.api), time.monotonic() - pending.asked_s)
            self._has_room.set()
            if not self._pending:
                self._is_idle.set()


async def _looked_at(source: FrameSource) -> tuple[bytes, RequestHead, bool]:
    """The beginning of a request, what is in it, and whether the request is answered at all.

    Raises:
        ProtocolError: it is no request.
    """
    held = await source.some(_FIRST_LOOK)
    try:
        head = read_request_head(memoryview(held))
        return held, head, _expects_answer(memoryview(held), head)
    except ProtocolError:
        if not source.left:
            raise
    held += await source.some(_LONGEST_LOOK - len(held))
    head = read_request_head(memoryview(held))
    return held, head, _expects_answer(memoryview(held), head)


def _may_pass(api: int, version: int, *, is_strict: bool) -> str | None:
    """Why a request is not passed on; ``None`` if it is."""
    if api in _NEVER or (is_strict and api not in API_NAMES):
        return f"{message_name(api, version, 'request')} is not passed on by this gateway"
    parsed = PARSED.get(api)
    if parsed is not None and not parsed.first <= version <= parsed.last:
        return f"{message_name(api, version, 'request')}: only versions {parsed.first} to {parsed.last} are passed on"
    return None


def _expects_answer(data: memoryview, head: RequestHead) -> bool:
    """Whether a request is answered at all: only Produce with ``acks`` 0 is not.

    Args:
        data: the request behind its size, at least up to ``acks``.

    Raises:
        ProtocolError: the bytes end before ``acks``.
    """
    if head.api != Api.PRODUCE:
        return True
    reader = Reader(data, flexible=False, what=message_name(head.api, head.version, "request"), start=head.position)
    if is_flexible(Api(head.api), head.version) and has_many_tags(reader):
        raise reader.error("too many tagged fields in the header")
    reader = request_body(data, head)
    return bool(codec_of(PRODUCE_START, head.version, reader.flexible, False).read(reader).acks != 0)


def rewrite_api_versions(
    frame: memoryview, version: int, *, is_strict: bool = True, announces: bool = True
) -> tuple[bytes, Mapping[int, ApiVersionRange]]:
    """A whole answer to ApiVersions with what the gateway can pass, and the ranges that the broker itself offers.

    An answer with an error has the layout of version 0, and stays as it is.

    Args:
        is_strict: leave out APIs that are not known here, too.
        announces: add the extension's tag.

    Raises:
        ProtocolError: it is no such answer.
    """
    reader = answer_body(Api.API_VERSIONS, version, frame)
    body_at = reader.position
    if reader.int16() == ErrorCode.UNSUPPORTED_VERSION:
        return bytes(frame), {}
    reader.position = body_at
    codec = codec_of(ANSWERS[Api.API_VERSIONS], version, reader.flexible)
    message = codec.read(reader)
    reader.finish()
    entries = []
    for one in message.api_keys:
        if one.api_key in _NEVER or (is_strict and one.api_key not in API_NAMES):
            continue
        if (parsed := PARSED.get(one.api_key)) is not None:
            first, last = max(one.min_version, parsed.first), min(one.max_version, parsed.last)
            one = one._replace(min_version=first, max_version=last)
        if one.min_version <= one.max_version:
            entries.append(one)
    tags = message.tags
    if announces and reader.flexible:
        extension = extension_tag()
        tags = (*(one for one in tags if one[0] != extension[0]), extension)
    writer = Writer(flexible=reader.flexible)
    writer.raw(frame[:body_at])
    codec.write(writer, message._replace(api_keys=entries, tags=tags))
    offered = {one.api_key: ApiVersionRange(one.min_version, one.max_version) for one in message.api_keys}
    return bytes(writer.data), offered


def _unsupported_version(correlation_id: int) -> bytes:
    """The frame that answers a version of ApiVersions that is newer than this gateway: the client asks with an older.

    Source: KIP-511.
    """
    writer = Writer(flexible=False)
    writer.int32(correlation_id)
    offered = {"api_key": Api.API_VERSIONS, "min_version": PARSED[Api.API_VERSIONS].first, "max_version": _NEWEST}
    answer = {"error_code": ErrorCode.UNSUPPORTED_VERSION, "api_keys": [offered]}
    codec_of(ANSWERS[Api.API_VERSIONS], 0, False).write(writer, answer)
    return writer.framed()
