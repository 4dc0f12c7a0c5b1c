"""One client's connection and the one to its broker: requests one way, answers the other, in their order.

What authenticates a client passes through like everything else: it is not looked at, kept or logged.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from struct import Struct
from typing import Protocol

from segreader import __version__
from segreader.broker import api
from segreader.broker.messages import ApiVersionRange
from segreader.broker.protocol import Api
from segreader.errors import BrokerError, ConnectionFailedError, ProtocolError, UnsupportedVersionError
from segreader.gateway.addresses import AddressTable
from segreader.gateway.answers import Deliver, pass_answer
from segreader.gateway.config import Limits
from segreader.gateway.fetch_requests import FlaggedFetch, may_be_flagged, parse_flagged_fetch
from segreader.gateway.frames import (
    SIZE,
    SMALLEST_REQUEST,
    RequestHead,
    api_label,
    expects_answer,
    parse_request_head,
    what,
)
from segreader.gateway.metrics import GatewayMetrics
from segreader.gateway.rewriting import NEWEST, may_pass, rewrite_api_versions, unsupported_version
from segreader.gateway.streams import FrameSource, Outlet, read_size
from segreader.gateway.wire import Wire

_log = logging.getLogger(__name__)

_ANSWER_HEAD = Struct(">ii")
_FIRST_LOOK = 512
_LONGEST_ANSWER_S = 1800.0
"""Longer than any client waits: a group may take its time to assemble, but no client waits longer than this."""

_LONGEST_LOOK = 72 << 10
"""What a look at the head of a request may need: two strings of 32 KiB and tagged fields."""


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
    is_own: bool = False


class Relay:
    """A client's connection: ``run`` until one side closes it.

    Args:
        client, broker: the connection to each side.
        peer: the client's address.
        node: of the broker, as errors and metrics name it.
        locating: answers the flag; ``None``: the flag passes unanswered.
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
        is_strict: bool = True,
    ) -> None:
        self.peer = peer
        self.node = node
        self.addresses = addresses
        self.limits = limits
        self.metrics = metrics
        self.patience_s = 60.0
        """How long a broker may take for a question of the gateway's own."""
        self.offered: Mapping[int, ApiVersionRange] = {}
        """What the broker itself offers; empty until it was asked."""
        self.to_client = Outlet(client, metrics.sent_to_client)
        self._from_client, self._from_broker = client, broker
        self.to_broker = Outlet(broker, metrics.sent_to_broker)
        self._locating = locating
        self._is_strict = is_strict
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
        tasks = [self._reading, asyncio.ensure_future(self._answers())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        except BrokerError as error:
            raise error.located(source=self.node) from None
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

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
                size = await read_size(self._from_client, SMALLEST_REQUEST, self.limits.request_bytes, "request")
                self._is_between = False
                if size is None:
                    return
                await self._request(FrameSource(self._from_client, size, name="request", limit=_LONGEST_LOOK))
        except asyncio.CancelledError:
            if not (self._is_draining and self._is_between):
                raise
        await self.idle()

    async def _request(self, source: FrameSource) -> None:
        while len(self._pending) >= self.limits.in_flight:
            self._has_room.clear()
            try:
                await asyncio.wait_for(self._has_room.wait(), _LONGEST_ANSWER_S)
            except TimeoutError:
                raise ConnectionFailedError("the broker answers nothing any more") from None
        held = b""
        head: RequestHead | None = None
        is_answered = True
        for look in (_FIRST_LOOK, _LONGEST_LOOK):
            held += await source.some(look - len(held))
            try:
                head = parse_request_head(memoryview(held))
                is_answered = expects_answer(memoryview(held), head)
                break
            except ProtocolError:
                if look == _LONGEST_LOOK or not source.left:
                    raise
        assert head is not None
        if why := may_pass(head.api, head.version, is_strict=self._is_strict):
            if head.api == Api.API_VERSIONS and head.version > NEWEST:
                await source.pass_on(source.left, None)
                await self.idle()
                await self.to_client.send(unsupported_version(head.correlation_id))
                await self.to_client.flush()
                return
            raise ProtocolError(why)
        self.metrics.requests[api_label(head.api)] += 1
        if self._locating is not None and head.api == Api.FETCH and source.size <= self.limits.flagged_request_bytes:
            held += await source.rest(self.limits.flagged_request_bytes)
            if may_be_flagged(held, head):
                request = parse_flagged_fetch(memoryview(held), head)
                if request is not None:
                    await self.idle()
                    await self._locating.answer(self, request)
                    return
        if is_answered:
            self._expect(head.correlation_id, head.api, head.version, self._deliverer(head))
        await self.to_broker.send(SIZE.pack(source.size) + held)
        await source.pass_on(source.left, self.to_broker)
        await self.to_broker.flush()

    def _deliverer(self, head: RequestHead) -> Deliver:
        if head.api == Api.API_VERSIONS:
            return lambda source: self._deliver_api_versions(source, head.version)
        return lambda source: pass_answer(source, self.to_client, head.api, head.version, self.addresses)

    async def _deliver_api_versions(self, source: FrameSource, version: int) -> None:
        frame = await source.rest()
        answer, offered = rewrite_api_versions(
            memoryview(frame), version, is_strict=self._is_strict, announces=self._locating is not None
        )
        self.offered = offered or self.offered
        await self.to_client.send(SIZE.pack(len(answer)) + answer)

    def _expect(self, correlation_id: int, api: int, version: int, deliver: Deliver, *, is_own: bool = False) -> None:
        self._pending.append(_Pending(correlation_id, api, version, deliver, is_own))
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
        begun = asyncio.Event()
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def and_tell(source: FrameSource) -> None:
            begun.set()
            await deliver(source)
            if not done.done():
                done.set_result(None)

        self._expect(correlation_id, api, version, and_tell, is_own=True)
        await self.to_broker.send(frame)
        await self.to_broker.flush()
        try:
            async with asyncio.timeout(self.patience_s + held_s):
                await begun.wait()
        except TimeoutError:
            # A client that gave up meanwhile would not be noticed: nothing is read from it now.
            raise ConnectionFailedError(f"no answer to {what(api, version, 'request')} in time") from None
        await done  # the client may take its time

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
            if not 4 <= size <= self.limits.answer_bytes:
                raise ProtocolError(
                    "impossible size of an answer", found=size, expected=f"4 to {self.limits.answer_bytes}"
                )
            if not self._pending:
                raise ProtocolError("an unexpected response", found=f"correlation id {correlation_id}")
            pending = self._pending[0]
            name = what(pending.api, pending.version)
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
            await pending.deliver(source)
            if source.left:
                raise ProtocolError(f"{name}: bytes are left over", found=f"{source.left} bytes")
            await self.to_client.flush()
            self._pending.popleft()
            self._has_room.set()
            if not self._pending:
                self._is_idle.set()
