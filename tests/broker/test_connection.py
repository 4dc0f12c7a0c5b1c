"""Frames, order, time and size on one connection, over real sockets."""

from __future__ import annotations

import contextlib
import gc
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fake_broker import CLOSE, SILENCE, FakeBroker, Heard, Raw, one_broker
from hand_clock import HandClock

from segreader.broker import api
from segreader.broker.connection import Call, ClientMetrics, Connection
from segreader.broker.connection_pool import Address, OpenConnection, Opener
from segreader.broker.messages import ClusterMetadata
from segreader.broker.rules.backoff import Deadline
from segreader.broker.settings import ClientSettings
from segreader.errors import ConnectionFailedError, ProtocolError, UnsupportedVersionError
from segreader.storage.retry import Clock

SETTINGS = ClientSettings(request_timeout_ms=10_000, connect_timeout_ms=10_000)
IMPATIENT = ClientSettings(request_timeout_ms=300, connect_timeout_ms=300)
LATE = 1 << 60


class Echo:
    """The other end of a socket pair, driven by hand."""

    def __init__(self, settings: ClientSettings, clock: Clock | None) -> None:
        ours, self.theirs = socket.socketpair()
        self.clock = clock or Clock()
        self.metrics = ClientMetrics()
        self.stopped = threading.Event()
        self.connection = Connection(
            ours, "broker:9092", settings, clock=self.clock, metrics=self.metrics, stopped=self.stopped
        )

    def answer(self, correlation_id: int, body: bytes) -> None:
        self.theirs.sendall(struct.pack(">ii", 4 + len(body), correlation_id) + body)


def call(name: str = "Fetch", answer_bytes: int = 0) -> Call[memoryview]:
    return Call(name, 17, lambda number: struct.pack(">ii", 4, number), lambda frame: frame[4:], 0, answer_bytes)


@pytest.fixture
def make_echo() -> Iterator[Callable[..., Echo]]:
    made: list[Echo] = []

    def make(settings: ClientSettings = SETTINGS, clock: Clock | None = None) -> Echo:
        made.append(Echo(settings, clock))
        return made[-1]

    yield make
    for one in made:
        one.connection.close()
        one.theirs.close()


@pytest.fixture
def echo(make_echo: Callable[..., Echo]) -> Echo:
    return make_echo()


def open_to(broker: FakeBroker, settings: ClientSettings = SETTINGS, clock: Clock | None = None) -> OpenConnection:
    opener = Opener(settings, clock=clock or Clock(), metrics=ClientMetrics(), stopped=threading.Event())
    return opener.open(Address("127.0.0.1", broker.port), deadline=Deadline(LATE))


def ask_metadata(opened: OpenConnection) -> ClusterMetadata:
    return opened.connection.ask(api.metadata(SETTINGS, opened.versions, ["t"]))


def test_answers_come_to_their_requests_also_when_the_later_one_is_asked_for_first(echo: Echo) -> None:
    first, second = echo.connection.send(call()), echo.connection.send(call())
    echo.answer(1, b"one")
    echo.answer(2, b"two")

    assert bytes(echo.connection.receive(second)) == b"two"
    assert bytes(echo.connection.receive(first)) == b"one"
    assert echo.connection.in_flight == 0


def test_an_answer_in_single_bytes_is_whole(echo: Echo) -> None:
    pending = echo.connection.send(call())
    frame = struct.pack(">ii", 9, 1) + b"slow!"

    def trickle() -> None:
        for each in frame:
            echo.theirs.sendall(bytes([each]))

    thread = threading.Thread(target=trickle)
    thread.start()
    assert bytes(echo.connection.receive(pending)) == b"slow!"
    thread.join()


def test_a_wrong_correlation_id_closes_the_connection(echo: Echo) -> None:
    pending = echo.connection.send(call())
    echo.answer(7, b"")

    with pytest.raises(ProtocolError, match=r"Fetch v17.*correlation id 7, expected 1"):
        echo.connection.receive(pending)
    assert not echo.connection.is_open


@pytest.mark.parametrize("size", [-1, 0, 3, (1 << 20) + 1, 0x7FFFFFFF])
def test_an_impossible_size_is_refused_before_memory_is_taken(make_echo: Callable[..., Echo], size: int) -> None:
    echo = make_echo(ClientSettings(max_frame_bytes=1 << 20))
    pending = echo.connection.send(call())
    echo.theirs.sendall(struct.pack(">i", size))

    with pytest.raises(ProtocolError, match=f"impossible size; found {size} bytes"):
        echo.connection.receive(pending)
    assert not echo.connection.is_open


def test_a_fetch_may_be_answered_with_twice_what_it_asks_for(make_echo: Callable[..., Echo]) -> None:
    echo = make_echo(ClientSettings(max_frame_bytes=1 << 10))
    pending = echo.connection.send(call(answer_bytes=1 << 20))
    body = bytes((2 << 20) - 4)
    thread = threading.Thread(target=echo.answer, args=(1, body))
    thread.start()

    assert len(echo.connection.receive(pending)) == len(body)
    thread.join()


@pytest.mark.parametrize(
    ("start", "stranger"), [(b"\x15\x03\x03\x00", "a TLS alert"), (b"HTTP", "an HTTP server"), (b"SSH-", "an SSH")]
)
def test_a_stranger_at_the_port_is_named(echo: Echo, start: bytes, stranger: str) -> None:
    pending = echo.connection.send(call())
    echo.theirs.sendall(start)

    with pytest.raises(ProtocolError, match=stranger):
        echo.connection.receive(pending)


def test_a_close_within_a_frame_tells_how_much_came(echo: Echo) -> None:
    pending = echo.connection.send(call())
    echo.theirs.sendall(struct.pack(">ii", 100, 1) + b"abc")
    echo.theirs.close()

    with pytest.raises(ConnectionFailedError, match=r"(closed|reset) by the broker after 7 of 100 bytes of the frame"):
        echo.connection.receive(pending)


def test_a_silent_broker_is_left_after_the_request_timeout(make_echo: Callable[..., Echo]) -> None:
    echo = make_echo(IMPATIENT)
    pending = echo.connection.send(call())

    with pytest.raises(ConnectionFailedError, match="broker:9092: timed out waiting for Fetch v17"):
        echo.connection.receive(pending)
    assert not echo.connection.is_open


def test_the_operations_end_is_before_the_request_timeout(echo: Echo) -> None:
    pending = echo.connection.send(call())

    with pytest.raises(ConnectionFailedError, match="timed out"):
        echo.connection.receive(pending, deadline=Deadline(echo.connection.now_ms()))


def test_an_answer_that_waits_for_a_slow_reader_is_not_late(make_echo: Callable[..., Echo]) -> None:
    clock = HandClock()
    echo = make_echo(clock=clock)
    pending = echo.connection.send(call())
    echo.answer(1, b"early")
    clock.at_s += 3600

    assert bytes(echo.connection.receive(pending)) == b"early"


def test_nothing_is_sent_before_the_throttle_time_is_over() -> None:
    clock = HandClock()
    settings = ClientSettings()
    with one_broker() as kafka:
        opened = open_to(kafka.brokers[0], settings, clock)
        kafka.brokers[0].say("Metadata", lambda heard: {**kafka.metadata(heard), "throttle_time_ms": 750})
        ask_metadata(opened)
        assert clock.waits == []
        ask_metadata(opened)
        assert clock.waits == [0.75]
        ask_metadata(opened)
        assert clock.waits == [0.75]
        opened.connection.close()


def test_a_throttle_time_that_nobody_waits_for_is_told_at_once() -> None:
    clock = HandClock()
    with one_broker() as kafka:
        opened = open_to(kafka.brokers[0], ClientSettings(), clock)
        kafka.brokers[0].say("Metadata", lambda heard: {**kafka.metadata(heard), "throttle_time_ms": 2**31 - 1})
        ask_metadata(opened)

        deadline = Deadline.after(opened.connection.now_ms(), 60_000)
        with pytest.raises(ConnectionFailedError, match="asks to wait 2147483647 ms"):
            opened.connection.send(api.metadata(SETTINGS, opened.versions, ["t"]), deadline=deadline)
        assert clock.waits == []
        opened.connection.close()


def test_throttle_time_puts_the_end_of_an_operation_off_and_is_waited_for() -> None:
    clock = HandClock()
    with one_broker() as kafka:
        opened = open_to(kafka.brokers[0], ClientSettings(), clock)
        kafka.brokers[0].say("Metadata", lambda heard: {**kafka.metadata(heard), "throttle_time_ms": 9000})
        ask_metadata(opened)
        deadline = Deadline.after(opened.connection.now_ms(), 1500)
        opened.connection.ask(api.metadata(SETTINGS, opened.versions, ["t"]), deadline=deadline)
        assert clock.waits == [9.0]
        assert deadline.left_ms(opened.connection.now_ms()) == 1500
        opened.connection.close()


@pytest.mark.parametrize(("came_ms", "is_late"), [(799, False), (800, True)])
def test_an_answer_that_a_throttle_time_holds_back_is_not_late(
    came_ms: int, is_late: bool, make_echo: Callable[..., Echo], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = HandClock()
    echo = make_echo(IMPATIENT, clock)
    pending = echo.connection.send(call())
    echo.connection._throttle(500)
    due = echo.connection._due

    def due_and_wait(*given: Any) -> int:
        found = due(*given)
        clock.at_s += came_ms / 1000
        echo.answer(pending.correlation_id, b"late")
        return found

    monkeypatch.setattr(echo.connection, "_due", due_and_wait)
    deadline = Deadline.after(echo.connection.now_ms(), 300)
    with pytest.raises(ConnectionFailedError, match="timed out") if is_late else contextlib.nullcontext():
        assert bytes(echo.connection.receive(pending, deadline=deadline)) == b"late"


def test_a_wait_ends_when_the_client_is_closed(make_echo: Callable[..., Echo]) -> None:
    echo = make_echo(clock=HandClock())
    echo.connection._throttle(1000)
    echo.stopped.set()

    with pytest.raises(ConnectionFailedError, match="closed"):
        echo.connection.send(call())


def test_an_answer_stays_good_while_somebody_holds_it(echo: Echo) -> None:
    held = []
    for number in range(1, 6):
        pending = echo.connection.send(call())
        thread = threading.Thread(target=echo.answer, args=(number, bytes([number]) * 200_000))
        thread.start()
        held.append(echo.connection.receive(pending)[100:])
        thread.join()
    echo.connection.close()

    assert [bytes(set(view)) for view in held] == [bytes([number]) for number in range(1, 6)]


def test_the_memory_of_large_answers_is_used_again_once_nobody_holds_them(echo: Echo) -> None:
    buffers = set()
    for number in range(1, 6):
        pending = echo.connection.send(call())
        thread = threading.Thread(target=echo.answer, args=(number, bytes(200_000)))
        thread.start()
        view = echo.connection.receive(pending)
        buffers.add(id(view.obj))
        thread.join()
        del view, pending
        gc.collect()

    assert len(buffers) == 1


def test_an_answer_cannot_be_written_into(echo: Echo) -> None:
    pending = echo.connection.send(call())
    echo.answer(1, b"body")
    assert echo.connection.receive(pending).readonly


def test_an_idle_connection_that_the_broker_closed_is_not_used_again(echo: Echo) -> None:
    assert echo.connection.is_usable()
    echo.theirs.close()
    assert not echo.connection.is_usable()


def test_bytes_that_nobody_asked_for_end_a_connection(echo: Echo) -> None:
    echo.answer(1, b"")
    assert not echo.connection.is_usable()


def test_versions_are_asked_with_3_and_with_0_where_that_is_not_known() -> None:
    with one_broker(offers={"ApiVersions": (0, 2), "Metadata": (0, 12)}) as kafka:
        opened = open_to(kafka.brokers[0])
        assert [(each.api, each.version) for each in kafka.brokers[0].requests] == [
            ("ApiVersions", 3),
            ("ApiVersions", 0),
        ]
        ask_metadata(opened)
        assert kafka.brokers[0].requests[-1].version == 12
        opened.connection.close()


def test_a_broker_that_only_refuses_versions_is_not_asked_for_ever() -> None:
    with FakeBroker(offers={"ApiVersions": (0, -1)}) as broker:
        with pytest.raises(UnsupportedVersionError, match="UNSUPPORTED_VERSION"):
            open_to(broker)
        assert len(broker.requests) == 2


def test_a_broker_that_is_too_old_is_named_with_both_sides_versions() -> None:
    with one_broker(offers={"ApiVersions": (0, 3), "Metadata": (0, 5)}) as kafka:
        opened = open_to(kafka.brokers[0])
        with pytest.raises(UnsupportedVersionError, match=r"Metadata.*versions 0 to 5, expected one of 9 to 13"):
            ask_metadata(opened)
        opened.connection.close()


def test_who_closes_before_the_first_answer_may_want_tls() -> None:
    with FakeBroker() as broker:
        broker.say("ApiVersions", CLOSE)
        with pytest.raises(ConnectionFailedError, match=r"closed by the broker before it answered ApiVersions v3.*TLS"):
            open_to(broker)


def test_who_closes_at_the_first_question_may_want_sasl() -> None:
    with FakeBroker() as broker:
        opened = open_to(broker)
        broker.say("Metadata", CLOSE)
        with pytest.raises(ConnectionFailedError, match=r"before it answered Metadata v13.*SASL"):
            ask_metadata(opened)


def test_who_accepts_and_says_nothing_costs_the_connect_timeout() -> None:
    with FakeBroker() as broker:
        broker.say("ApiVersions", SILENCE)
        with pytest.raises(ConnectionFailedError, match="timed out waiting for ApiVersions v3"):
            open_to(broker, IMPATIENT)


def test_nobody_at_the_port_is_told_with_host_and_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    opener = Opener(SETTINGS, clock=Clock(), metrics=ClientMetrics(), stopped=threading.Event())
    with pytest.raises(ConnectionFailedError, match=rf"127\.0\.0\.1:{port}: cannot connect: Connection refused"):
        opener.open(Address("127.0.0.1", port), deadline=Deadline(LATE))


@pytest.mark.parametrize(
    "host",
    [
        *("169.254.169.254", "0.0.0.0", "224.0.0.1", "fe80::1"),
        *("fd00:ec2::254", "168.63.129.16", "100.100.100.200", "192.0.0.192"),  # where clouds keep credentials
        *("64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1", "::ffff:169.254.169.254"),  # 169.254.169.254 within IPv6
    ],
)
def test_no_broker_is_looked_for_where_none_can_be(host: str) -> None:
    opener = Opener(SETTINGS, clock=Clock(), metrics=ClientMetrics(), stopped=threading.Event())
    with pytest.raises(ConnectionFailedError, match="a broker cannot be at"):
        opener.open(Address(host, 80), deadline=Deadline(LATE))


def test_a_broker_elsewhere_cannot_send_us_to_this_machine() -> None:
    with FakeBroker() as broker:
        opener = Opener(SETTINGS, clock=Clock(), metrics=ClientMetrics(), stopped=threading.Event())
        with pytest.raises(ConnectionFailedError, match=r"advertised\.listeners"):
            opener.open(Address("127.0.0.1", broker.port), deadline=Deadline(LATE), may_be_loopback=False)
        assert broker.requests == []


def test_bytes_left_over_behind_an_answer_are_an_error_that_names_the_api() -> None:
    def longer(heard: Heard) -> Raw:
        return Raw(struct.pack(">iihh", 8, heard.correlation_id, 0, 0) if heard.version == 3 else b"")

    with FakeBroker() as broker:
        broker.say("ApiVersions", longer)
        with pytest.raises(ProtocolError, match=f"127.0.0.1:{broker.port}.*ApiVersions 3"):
            open_to(broker)
