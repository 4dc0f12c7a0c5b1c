"""A gateway, its broker and a client that asks for much, each in a process of its own; and what others pay for it.

``python gateway_attacks.py broker|gateway|NAME PORT …`` is one of these processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import mmap
import selectors
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from selectors import EpollSelector
from statistics import median
from typing import Any

from gateway_process import PORTS, list_groups
from servers.process import claimed_ports

from segreader.broker.codec import encode_request
from segreader.broker.location import request_tags
from segreader.broker.protocol import Api
from segreader.gateway.config import GatewayConfig
from segreader.gateway.relay import Relay
from segreader.gateway.server import Backend, Gateway
from segreader.gateway.wire import Piece, Wire

PARTITIONS = 28_000
_ANSWER = struct.Struct(">ii7s")
_REQUESTS = 300
_UNDER_WAY_S = 0.3
"""An attack has begun when the gateway has spent so much CPU time on it."""


def _broker(port: int) -> None:
    """Answers a Fetch with very many empty partitions, and anything else with a few bytes."""

    class Broker(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.Transport)
            self.transport, self.waiting = transport, bytearray()

        def data_received(self, data: bytes) -> None:
            self.waiting += data
            while len(self.waiting) >= 12:
                (size,) = struct.unpack_from(">i", self.waiting)
                if len(self.waiting) < 4 + size:
                    return
                number = bytes(self.waiting[8:12])
                is_fetch = self.waiting[4:6] == b"\0\1"
                del self.waiting[: 4 + size]
                answer = number + (many_partitions() if is_fetch else b"payload")
                self.transport.write(struct.pack(">i", len(answer)) + answer)

    async def serve() -> None:
        server = await asyncio.get_running_loop().create_server(Broker, "127.0.0.1", port)
        await server.serve_forever()

    asyncio.run(serve())


def many_partitions() -> bytes:
    """An answer to Fetch, version 17, behind its correlation id."""
    one = struct.pack(">ihqqqBiBB", 0, 0, 9, 9, 0, 1, -1, 1, 0)
    count = bytes((PARTITIONS + 1 & 0x7F | 0x80, PARTITIONS + 1 >> 7 & 0x7F | 0x80, PARTITIONS + 1 >> 14))
    return struct.pack(">Bihi", 0, 0, 0, 0) + b"\x02" + bytes(16) + count + one * PARTITIONS + b"\x00\x00"


class _NoLocations:
    async def answer(self, link: object, request: object) -> None:
        raise AssertionError


def _gateway(clock: Path, port: int, behind: int) -> None:
    config = GatewayConfig(
        bootstrap_servers=(f"127.0.0.1:{behind}",), listen_host="127.0.0.1", listen_port=port, location="s3://bucket"
    )
    made = Gateway(config, make_backend=lambda *_: Backend(_NoLocations(), dict, lambda: None))

    async def serve() -> None:
        await made.start({1: ("127.0.0.1", behind)})
        await asyncio.Event().wait()

    _show_cpu_time(clock)
    asyncio.run(serve())


_CLOCK = struct.Struct("dd")
_WATCHED = "127.0.0.2"


def _show_cpu_time(clock: Path) -> None:
    """Write CPU times of this thread to a file that others map: those of the watched client's requests, and of all.

    A request's time goes from the step of the event loop in which it arrived to the call that sends it on, and the same
    for its answer: other processes may run meanwhile.
    """
    shown, began, watched = _mapped(clock), [0.0, 0.0], set[Wire]()
    since: dict[Wire, float] = {}
    select, updated, write, init = EpollSelector.select, Wire.buffer_updated, Wire.write, Relay.__init__

    def select_and_note(selector: Any, timeout: float | None = None) -> Any:
        found = select(selector, timeout)
        began[0] = time.thread_time()
        _CLOCK.pack_into(shown, 0, began[1], began[0])
        return found

    def note_arrival(wire: Wire, size: int) -> None:
        if wire in watched:
            since.setdefault(wire, began[0])
        updated(wire, size)

    def note_end(wire: Wire, data: Piece) -> None:
        if wire in watched and since:
            began[1] += time.thread_time() - since.popitem()[1]
            _CLOCK.pack_into(shown, 0, began[1], began[0])
        write(wire, data)

    def watch(relay: Relay, client: Wire, broker: Wire, **more: Any) -> None:
        if more["peer"].startswith(_WATCHED):
            watched.update((client, broker))
        init(relay, client, broker, **more)

    patched: Any = Wire
    patched.buffer_updated, patched.write = note_arrival, note_end
    patched = EpollSelector
    patched.select = select_and_note
    patched = Relay
    patched.__init__ = watch


def _mapped(clock: Path) -> mmap.mmap:
    with clock.open("r+b") as file:
        return mmap.mmap(file.fileno(), _CLOCK.size)


def _ask_over(port: int, connections: int, frames: bytes, answer_size: int) -> None:
    """Send the same on each of many connections whenever it is answered."""
    waiting = selectors.DefaultSelector()
    left: dict[socket.socket, int] = {}
    for _ in range(connections):
        one = socket.create_connection(("127.0.0.1", port))
        waiting.register(one, selectors.EVENT_READ)
        one.sendall(frames)
        left[one] = answer_size
    while True:
        for key, _ in waiting.select():
            found = key.fileobj
            assert isinstance(found, socket.socket)
            left[found] -= len(found.recv(1 << 20))
            if not left[found]:
                found.sendall(frames)
                left[found] = answer_size


def _hang_up(port: int) -> None:
    """Come, ask and go at once."""
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)) as one:
            one.sendall(list_groups())


def _ask_for_many_partitions(port: int) -> None:
    asked = [
        {
            "partition": number,
            "current_leader_epoch": 5,
            "fetch_offset": 42,
            "last_fetched_epoch": -1,
            "log_start_offset": -1,
            "partition_max_bytes": 1 << 20,
        }
        for number in range(PARTITIONS)
    ]
    message = {
        "replica_id": -1,
        "max_wait_ms": 0,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "isolation_level": 1,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": None, "topic_id": "AAAAAAAAAAAAAAAAAAAAAQ", "partitions": asked}],
        "forgotten_topics_data": [],
        "rack_id": "",
        "tags": request_tags(),
    }
    frame = encode_request(Api.FETCH, 17, message, correlation_id=9, client_id="greedy")
    _ask_over(port, 1, frame, 8 + len(many_partitions()))


def _large(port: int) -> None:
    data = list_groups()[4:] + bytes(8 << 20)
    _ask_over(port, 1, struct.pack(">i", len(data)) + data, _ANSWER.size)


ATTACKS: dict[str, Callable[[int], None]] = {
    "28,000 partitions": _ask_for_many_partitions,
    "64 requests ahead": lambda port: _ask_over(port, 1, list_groups() * 64, _ANSWER.size * 64),
    "50 connections": lambda port: _ask_over(port, 50, list_groups(), _ANSWER.size),
    "50 connections, 20 ahead": lambda port: _ask_over(port, 50, list_groups() * 20, _ANSWER.size * 20),
    "hang-ups": _hang_up,
    "8 MiB requests": _large,
}


@contextlib.contextmanager
def _process(*arguments: object) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, str(Path(__file__)), *map(str, arguments)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.kill()


def _connected(port: int, address: str) -> socket.socket:
    deadline = time.monotonic() + 90
    while True:
        one = socket.socket()
        one.bind((address, 0))
        try:
            one.connect(("127.0.0.1", port))
            return one
        except OSError:
            one.close()
            assert time.monotonic() < deadline
            time.sleep(0.05)


def paid_for(attack: str, directory: Path) -> tuple[float, float]:
    """CPU seconds for which a request of another client and its answer are in a gateway: alone, and under an attack.

    Each is the median over many requests.
    """
    clock = directory / "clock"
    clock.write_bytes(bytes(_CLOCK.size))
    with contextlib.ExitStack() as stack:
        port = stack.enter_context(claimed_ports(PORTS))
        shown = stack.enter_context(_mapped(clock))
        stack.enter_context(_process("broker", port + 5))
        _connected(port + 5, "127.0.0.1").close()
        stack.enter_context(_process("gateway", clock, port, port + 5))
        other = stack.enter_context(_connected(port, _WATCHED))
        _spent(other, shown)
        alone = _spent(other, shown)
        _, before = _CLOCK.unpack_from(shown)
        stack.enter_context(_process(attack, port))
        while _CLOCK.unpack_from(shown)[1] < before + _UNDER_WAY_S:
            time.sleep(0.01)
        return alone, _spent(other, shown)


def _spent(other: socket.socket, shown: mmap.mmap) -> float:
    spent: list[float] = []
    for number in range(_REQUESTS):
        before, _ = _CLOCK.unpack_from(shown)
        other.sendall(list_groups(number))
        answer = other.recv(_ANSWER.size, socket.MSG_WAITALL)
        spent.append(_CLOCK.unpack_from(shown)[0] - before)
        assert _ANSWER.unpack(answer)[1] == number
        time.sleep(0.002)
    return median(spent)


if __name__ == "__main__":
    what, *rest = sys.argv[1:]
    if what == "gateway":
        _gateway(Path(rest[0]), *map(int, rest[1:]))
    else:
        {"broker": _broker, **ATTACKS}[what](int(rest[0]))
