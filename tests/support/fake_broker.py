"""A broker on loopback that says what a test tells it to: over real sockets, in threads of its own.

Requests are decoded and answers encoded by kafka-python, so that what is tested here does not judge itself; Fetch
answers, whose unknown tags it cannot write, are ours.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from codecs_of_others import kafka_python_class, kafka_python_request
from frames import encode_fetch_answer
from kafka.protocol.schemas.fields.base import BaseField

from segreader.broker.messages import FetchAnswer, FetchedPartition, LeaderAndEpoch
from segreader.broker.primitives import uuid_text
from segreader.broker.protocol import SUPPORTED, Api

NAMES = {api.label: api for api in Api}
_BY_KEY = {int(api): api for api in SUPPORTED}


@dataclass(frozen=True, slots=True)
class Heard:
    """A request as the broker got it."""

    api: str
    version: int
    correlation_id: int
    client_id: str
    message: Any = field(repr=False)


@dataclass(frozen=True, slots=True)
class Raw:
    """Bytes in place of an answer's frame; then the connection is closed, unless it ``stays``."""

    data: bytes
    stays: bool = False


class Silence:
    """No answer at all."""


CLOSE = Raw(b"")
SILENCE = Silence()
Reply = Mapping[str, Any] | FetchAnswer | Raw | Silence
Handler = Callable[[Heard], Reply]


class FakeBroker:
    """One broker. Set ``handlers[api]`` for what it says always, or put replies into ``script[api]`` for once each.

    Args:
        context: for TLS.
        offers: API name -> (first, last) version; those that are spoken here by default.
    """

    def __init__(
        self,
        node_id: int = 1,
        *,
        context: ssl.SSLContext | None = None,
        offers: Mapping[str, tuple[int, int]] | None = None,
        port: int = 0,
    ) -> None:
        self.node_id = node_id
        self.requests: list[Heard] = []
        self.script: dict[str, list[Reply | Handler]] = {}
        self.handlers: dict[str, Handler] = {"ApiVersions": self._versions}
        self.offers = dict(offers or {api.label: (each.first, each.last) for api, each in SUPPORTED.items()})
        self._context = context
        self._threads: list[threading.Thread] = []
        self._streams: list[socket.socket] = []
        self._lock = threading.Lock()
        self._is_open = True
        self.errors: list[BaseException] = []
        self._listener = socket.create_server(("127.0.0.1", port))
        self.port: int = self._listener.getsockname()[1]
        self._start(self._accept)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def asked(self, *apis: str) -> list[str]:
        """The APIs of the requests so far, in order; only some of them if they are named."""
        return [each.api for each in self.requests if not apis or each.api in apis]

    def say(self, api: str, *replies: Reply | Handler) -> None:
        """Replies to the next requests of an API, one each."""
        self.script.setdefault(api, []).extend(replies)

    def hang_up(self) -> None:
        """Close every connection that is open."""
        with self._lock:
            streams, self._streams = self._streams, []
        for stream in streams:
            with contextlib.suppress(OSError):
                stream.shutdown(socket.SHUT_RDWR)
            stream.close()

    def close(self) -> None:
        """Stop to listen, and close every connection."""
        self._is_open = False
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.hang_up()
        for thread in self._threads:
            thread.join(5)

    def __enter__(self) -> FakeBroker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self, target: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while self._is_open:
            try:
                stream, _ = self._listener.accept()
            except OSError:
                return
            self._start(self._serve, stream)

    def _serve(self, stream: socket.socket) -> None:
        try:
            if self._context is not None:
                stream = self._context.wrap_socket(stream, server_side=True)
            with self._lock:
                self._streams.append(stream)
            while (frame := _read_frame(stream)) is not None:
                reply = self._reply(frame)
                if isinstance(reply, Silence):
                    continue
                data = reply.data if isinstance(reply, Raw) else reply
                stream.sendall(data)
                if isinstance(reply, Raw) and not reply.stays:
                    break
        except OSError:
            pass
        except BaseException as error:
            self.errors.append(error)
            raise
        finally:
            with contextlib.suppress(OSError):
                stream.shutdown(socket.SHUT_RDWR)
            stream.close()

    def _reply(self, frame: bytes) -> bytes | Raw | Silence:
        key, version, correlation_id = struct.unpack_from(">hhi", frame)
        api = _BY_KEY[key].label
        if api == "ApiVersions" and version > self.offers[api][1]:
            heard = Heard(api, version, correlation_id, "", None)
            self.requests.append(heard)
            return struct.pack(">iih", 6, correlation_id, 35)  # the layout of version 0, without the rest
        correlation_id, client_id, message = kafka_python_request(api, version, memoryview(frame))
        heard = Heard(api, version, correlation_id, client_id, message)
        self.requests.append(heard)
        scripted = self.script.get(api)
        given = scripted.pop(0) if scripted else self.handlers.get(api, lambda heard: CLOSE)
        reply = given(heard) if callable(given) else given
        if isinstance(reply, (Raw, Silence)):
            return reply
        if isinstance(reply, FetchAnswer):
            return encode_fetch_answer(version, reply, correlation_id=correlation_id)
        return encode_answer(api, version, correlation_id, reply)

    def _versions(self, heard: Heard) -> Reply:
        return {
            "api_keys": [
                {"api_key": int(NAMES[name]), "min_version": first, "max_version": last}
                for name, (first, last) in self.offers.items()
            ]
        }


def encode_answer(api: str, version: int, correlation_id: int, values: Mapping[str, Any]) -> bytes:
    """A whole frame from values by field name; structs are mappings, and what is not given has its default."""
    cls = kafka_python_class(api, "Response")
    message = _build(cls, cls.json["fields"], version, values)
    message.with_header(correlation_id=correlation_id)
    frame = bytes(message.encode(header=True))
    return struct.pack(">i", len(frame)) + frame


def _build(cls: Any, described: list[dict[str, Any]], version: int, values: Mapping[str, Any]) -> Any:
    fields: dict[str, Any] = {}
    unknown = set(values)
    for one in described:
        name = BaseField.underscore_name(one["name"])
        if name not in values:
            continue
        unknown.discard(name)
        first, last = BaseField.parse_versions(one["versions"])
        if not first <= version <= last:
            continue
        kind, value = one["type"], values[name]
        if kind.startswith("[]") and "fields" in one:
            struct_class = getattr(cls, kind[2:])
            value = [_build(struct_class, one["fields"], version, each) for each in value]
        fields[name] = value
    assert not unknown, f"no fields of {cls}: {unknown}"
    return cls(version=version, **fields)


def _read_frame(stream: socket.socket) -> bytes | None:
    head = _read_exactly(stream, 4)
    return None if head is None else _read_exactly(stream, struct.unpack(">i", head)[0])


def _read_exactly(stream: socket.socket, size: int) -> bytes | None:
    data = b""
    while len(data) < size:
        piece = stream.recv(size - len(data))
        if not piece:
            return None
        data += piece
    return data


@dataclass
class FakeKafka:
    """Some brokers and the topics that all of them tell of.

    Args:
        topics: name -> id; partitions are in ``leaders``.
        leaders: (topic, partition) -> who leads it since which epoch.
    """

    brokers: list[FakeBroker]
    topics: dict[str, str] = field(default_factory=dict)
    leaders: dict[tuple[str, int], LeaderAndEpoch] = field(default_factory=dict)
    errors: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for broker in self.brokers:
            broker.handlers["Metadata"] = self.metadata

    @property
    def bootstrap(self) -> str:
        return ",".join(each.address for each in self.brokers)

    def broker(self, node_id: int) -> FakeBroker:
        return next(each for each in self.brokers if each.node_id == node_id)

    def asked(self, *apis: str) -> list[str]:
        """The APIs asked, broker by broker."""
        return [each for broker in self.brokers for each in broker.asked(*apis)]

    def metadata(self, heard: Heard) -> Mapping[str, Any]:
        """What Metadata tells."""
        wanted = heard.message.topics
        names = list(self.topics) if wanted is None else [each.name for each in wanted]
        return {
            "brokers": [
                {"node_id": each.node_id, "host": "127.0.0.1", "port": each.port, "rack": None} for each in self.brokers
            ],
            "cluster_id": "c",
            "controller_id": self.brokers[0].node_id,
            "topics": [self._topic(name) for name in names],
        }

    def _topic(self, name: str) -> dict[str, Any]:
        error = self.errors.get(name, 0 if name in self.topics else 3)
        if error:
            return {"error_code": error, "name": name, "topic_id": uuid.UUID(int=0), "partitions": []}
        ids = [each.node_id for each in self.brokers]
        return {
            "error_code": 0,
            "name": name,
            "topic_id": topic_uuid(self.topics[name]),
            "partitions": [
                {
                    "error_code": 0 if leader.leader_id >= 0 else 5,
                    "partition_index": number,
                    "leader_id": leader.leader_id,
                    "leader_epoch": leader.leader_epoch,
                    "replica_nodes": ids,
                    "isr_nodes": ids,
                    "offline_replicas": [],
                }
                for (topic, number), leader in sorted(self.leaders.items())
                if topic == name
            ],
        }


def topic_uuid(text: str) -> uuid.UUID:
    """A topic id as kafka-python takes it."""
    import base64

    return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=="))


def new_topic_id(number: int) -> str:
    """A topic id, the same one for the same number."""
    text = uuid_text(uuid.UUID(int=number + (1 << 100)).bytes)
    assert text is not None
    return text


def fetched(topic_id: str, partition: int = 0, **fields: Any) -> FetchAnswer:
    """A Fetch answer about one partition, by id; fields as those of ``FetchedPartition``, and of ``FetchAnswer``."""
    of_answer = {name: fields.pop(name) for name in ("nodes", "throttle_ms", "extension_version") if name in fields}
    fields.setdefault("records", memoryview(b""))
    fields.setdefault("aborted", ())
    return FetchAnswer((FetchedPartition(None, topic_id, partition, **fields),), **of_answer)


@contextlib.contextmanager
def one_broker(**kwargs: Any) -> Iterator[FakeKafka]:
    """A cluster of one broker with topic ``t``, one partition, led in epoch 5."""
    with FakeBroker(**kwargs) as broker:
        kafka = FakeKafka([broker], {"t": new_topic_id(1)}, {("t", 0): LeaderAndEpoch(1, 5)})
        yield kafka
        assert not broker.errors
