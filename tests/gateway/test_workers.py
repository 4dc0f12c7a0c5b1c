"""Several processes of one gateway: the same ports, one page, every signal for all, and another for a dead one."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import pickle
import re
import signal
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
from fake_broker import FakeBroker, FakeKafka, Heard, Reply, one_broker
from gateway_process import PORTS, line_with, require_prometheus, started, status
from servers.process import claimed_ports, free_port

from segreader.broker.client import BrokerClient
from segreader.cli.exit_codes import ExitCode
from segreader.cli.main import main
from segreader.gateway.config import GatewayConfig
from segreader.gateway.server import until_signal
from segreader.gateway.workers import GatewayWorkers, WorkerProcess, WorkerTask, _send

VERSIONS = struct.pack(">hhi", 18, 0, 7) + b"\0\1c"
_PATIENCE_S = 30.0

_opened = contextlib.ExitStack()


class Peer:
    """A client on a connection of its own, which is closed with the gateway of the test."""

    def __init__(self, port: int) -> None:
        self._stream = _opened.enter_context(socket.create_connection(("127.0.0.1", port), _PATIENCE_S))

    def send(self, request: bytes = VERSIONS) -> None:
        self._stream.sendall(struct.pack(">i", len(request)) + request)

    def receive(self) -> bytes:
        """A frame without its size; none where the gateway hangs up."""
        data = b""
        while len(data) < 4 or len(data) < 4 + struct.unpack_from(">i", data)[0]:
            if not (piece := self._stream.recv(1 << 16)):
                return b""
            data += piece
        return data[4:]

    def is_served(self) -> bool:
        try:
            self.send()
            return self.receive()[:4] == VERSIONS[4:8]
        except ConnectionError:
            return False


@dataclass
class Started:
    """A gateway with its workers."""

    process: subprocess.Popen[str]
    config: Path
    text: str
    port: int
    pages: int
    audit: Path

    def count(self, name: str, **labels: object) -> float:
        """A number of the metrics page; those of all labels together if none are given."""
        shown = ",".join(f'{key}="{value}"' for key, value in labels.items())
        label = re.escape(f"{{{shown}}}") if labels else r"(?:\{[^}]*\})?"
        text = status(self.pages, "/metrics")[1]
        return sum(map(float, re.findall(rf"^segreader_gateway_{name}{label} (\S+)$", text, re.MULTILINE)))

    def of_workers(self, name: str) -> dict[str, float]:
        text = status(self.pages, "/metrics")[1]
        found = re.findall(rf'^segreader_gateway_worker_{name}{{worker="(\d+)"}} (\S+)$', text, re.MULTILINE)
        return {number: float(value) for number, value in found}

    def peers_of_all(self, number: int = 2) -> list[Peer]:
        """Clients that are served, at least one by each worker."""
        peers: list[Peer] = []
        until = time.monotonic() + _PATIENCE_S
        while sum(count > 0 for count in self.of_workers("open_connections").values()) < number:
            assert time.monotonic() < until, len(peers)
            peers.append(Peer(self.port))
            assert peers[-1].is_served()
            time.sleep(0.02)  # a worker that was started again takes clients some time after it tells its numbers
        return peers

    def pids(self) -> list[int]:
        """The processes of the workers, by their number."""
        found = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return [int(one) for one in found]

    def hang_up(self, settings: str = "") -> None:
        self.config.write_text(self.text + settings)
        self.process.send_signal(signal.SIGHUP)


def eventually(holds: Callable[[], Any], what: str = "it never held") -> None:
    until = time.monotonic() + _PATIENCE_S
    while not holds():
        assert time.monotonic() < until, what
        time.sleep(0.02)


def settings(root: Path, bootstrap: str, port: int, pages: int, workers: int = 2) -> str:
    return (
        f'bootstrap_servers = "{bootstrap}"\nlisten = "127.0.0.1:{port}"\nlocation = "{root}"\n'
        f'url_base = "https://segments.example"\nmetrics_listen = "127.0.0.1:{pages}"\nworkers = {workers}\n'
        f'audit_file = "{root / "audit.jsonl"}"\n'
    )


@contextlib.contextmanager
def running(root: Path, kafka: FakeKafka, more: str = "") -> Iterator[Started]:
    require_prometheus()
    config = root / "gateway.toml"
    with claimed_ports(PORTS) as port:
        pages = port + PORTS - 1
        text = settings(root, kafka.bootstrap, port, pages) + more
        config.write_text(text)
        with started(config) as process:
            try:
                line_with(process, "ready: clients begin at")
                yield Started(process, config, text, port, pages, root / "audit.jsonl")
            finally:
                process.kill()
                _opened.close()


def test_all_workers_serve_the_same_ports_and_one_page_shows_them_all(tmp_path: Path) -> None:
    with one_broker() as kafka, running(tmp_path, kafka) as found:
        peers = found.peers_of_all()
        assert found.count("connections_total") == found.count("open_connections") == len(peers)
        assert found.count("requests_total", api="ApiVersions") == len(peers)
        assert sum(found.of_workers("open_connections").values()) == len(peers)
        assert found.of_workers("starts_total") == {"1": 1, "2": 1}
        assert len(found.pids()) == 2
        for name in ("cpu_seconds_total", "resident_memory_bytes", "open_fds"):
            assert all(value > 0 for value in found.of_workers(f"process_{name}").values())
        assert status(found.pages, "/healthz") == (200, "ok\n")
        facts = json.loads(status(found.pages, "/readyz")[1])
        assert (facts["brokers"], facts["running"], facts["workers"]) == (True, True, True)
        found.process.send_signal(signal.SIGTERM)
        assert found.process.wait(30) == 0


def test_a_worker_gets_every_secret_of_the_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANARY", "c4nary")
    (tmp_path / "token").write_text("c4nary")
    given = {
        "bootstrap_servers": "b:1",
        "listen": "127.0.0.1:1",
        "location": "s3://bucket",
        "storage_options": {"secret": "env:CANARY"},
        "certificate": "own.pem",
        "key": "own.pem",
        "key_password": "env:CANARY",
    }
    by_name = {"sasl.username": "u", "sasl.password": "env:CANARY"}
    for client in (
        {"sasl.mechanism": "PLAIN", **by_name},
        {
            "sasl.mechanism": "SCRAM-SHA-512",
            **by_name,
            "ssl.certificate.location": "a",
            "ssl.key.password": "env:CANARY",
        },
        {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token": "env:CANARY"},
        {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.file": str(tmp_path / "token")},
    ):
        config = GatewayConfig.load(None, {**given, "client": {"security.protocol": "SASL_SSL", **client}})
        sent, heard = [Connection(one.detach()) for one in socket.socketpair()]
        with sent, heard:
            _send(sent, "reload", config)
            _, got = pickle.loads(heard.recv_bytes())
        settings = got.client
        settings.require_secrets()
        secrets = [got.key_password, got.storage_options["secret"], settings.sasl_password, settings.key_password]
        assert {one.reveal() for one in secrets if one is not None} == {"c4nary"}
        assert (settings.sasl_password is not None) == ("sasl.password" in client)
        assert (settings.key_password is not None) == ("ssl.key.password" in client)
        if "sasl.password" not in client:
            assert settings.token_provider() == "c4nary"
        assert b"c4nary" not in pickle.dumps(got.client)


def test_a_worker_that_is_killed_is_started_again_and_the_others_go_on(tmp_path: Path) -> None:
    with one_broker() as kafka, running(tmp_path, kafka) as found:
        peers, pids = found.peers_of_all(), found.pids()
        before = found.count("connections_total")
        os.kill(pids[0], signal.SIGKILL)
        line = line_with(found.process, "is started again")
        assert re.search(rf"ERROR worker \d \(process {pids[0]}\) ended: SIGKILL; it is started again in 0\.5 s", line)
        assert pids[1] in found.pids()
        served = [one.is_served() for one in peers]
        assert True in served
        assert False in served  # those of the dead one
        assert status(found.pages, "/healthz")[0] == 200
        eventually(lambda: sorted(found.of_workers("starts_total").values()) == [1, 2])
        assert found.count("connections_total") >= before  # what it counted is not forgotten
        more = found.peers_of_all()
        assert all(one.is_served() for one in more)
        assert set(found.pids()) & {pids[0]} == set()
        found.process.send_signal(signal.SIGTERM)
        assert found.process.wait(30) == 0


def test_a_hangup_reaches_all_workers_and_those_that_start_later_and_drops_nobody(tmp_path: Path) -> None:
    with one_broker() as kafka, running(tmp_path, kafka) as found:
        peers = found.peers_of_all()
        found.hang_up('certificate = "none.pem"\nkey = "none.pem"\n')
        line_with(found.process, "the configuration stays as it was")
        found.audit.rename(tmp_path / "rotated")
        found.hang_up("[limits]\nconnections = 1\n")
        told = {line_with(found.process, "is loaded again").split(" INFO ")[1][:9] for _ in range(2)}
        assert told == {"worker 1:", "worker 2:"}
        assert found.audit.exists()
        eventually(lambda: found.count("reloads_total", result="ok") == 1)
        assert found.count("reloads_total", result="failed") == 1
        assert all(one.is_served() for one in peers)
        assert not any(Peer(found.port).is_served() for _ in range(20))  # both have more than one
        (first, _) = found.pids()
        os.kill(first, signal.SIGKILL)
        eventually(lambda: sorted(found.of_workers("starts_total").values()) == [1, 2])
        with_room = [one for one in (Peer(found.port) for _ in range(60)) if one.is_served()]
        assert len(with_room) <= 1  # the new one has the limit, too


def workers_of(config: GatewayConfig) -> GatewayWorkers:
    return GatewayWorkers(config, make_backend=None, find_nodes=lambda *_: {}, set_up_logs=lambda _: None)


class Answering:
    """A worker that says what it made of a new configuration, once it may."""

    def __init__(self, answer: bool | None) -> None:
        self.answer, self.may_answer = answer, asyncio.Event()
        self.told: list[GatewayConfig] = []

    async def ask(self, what: str, config: GatewayConfig) -> bool | None:
        await self.may_answer.wait()
        return self.answer

    def tell(self, what: str, config: GatewayConfig) -> None:
        self.told.append(config)


@pytest.mark.parametrize(
    ("answers", "is_taken"),
    [
        ((True, True), True),
        ((False, False), False),
        ((True, False), True),
        ((None, None), True),
        ((False, None), False),
    ],
)
def test_a_worker_that_is_started_while_others_reload_hears_of_it(
    answers: tuple[bool | None, bool | None], is_taken: bool
) -> None:
    old, new = [
        GatewayConfig.load(None, {"bootstrap_servers": "b:1", "listen": "127.0.0.1:1", "location": "s3://b", **limits})
        for limits in ({}, {"limits": {"connections": 1}})
    ]

    async def reload() -> None:
        workers, asked, late = workers_of(old), [Answering(one) for one in answers], Answering(True)
        workers._workers = dict(enumerate(asked))  # type: ignore[arg-type]
        reloading = asyncio.ensure_future(workers.reload(lambda: new))
        asked[0].may_answer.set()
        await asyncio.sleep(0.05)
        workers._workers[1] = late  # type: ignore[assignment]
        asked[1].may_answer.set()
        await reloading
        assert (workers.config == new) == is_taken
        assert late.told == [new] * is_taken
        assert [one.told for one in asked] == [[], []]

    asyncio.run(reload())


class Ready:
    """A worker with a catalogue, or one that loads it yet."""

    def __init__(self, has_catalogue: bool) -> None:
        self.state: tuple[dict[str, Any], dict[str, float], dict[str, bool]] = (
            {},
            {},
            {"brokers": True, "catalogue": has_catalogue, "running": True},
        )

    async def ask(self, what: str, *, timeout_s: float) -> None: ...


def test_a_gateway_is_ready_when_every_worker_has_its_catalogue_and_then_while_one_has() -> None:
    settings = {"bootstrap_servers": "b:1", "listen": "127.0.0.1:1", "location": "s3://b", "workers": 2}
    workers = workers_of(GatewayConfig.load(None, settings))

    def is_ready(*catalogues: bool) -> bool:
        workers._workers = {number: Ready(one) for number, one in enumerate(catalogues)}  # type: ignore[misc]
        return asyncio.run(workers._ready_page()).status == 200

    assert not is_ready(True, True)  # no worker listens yet
    workers._is_ready.set()
    assert not is_ready(True, False)
    assert is_ready(True, True)
    assert is_ready(True, False)  # that one was started again
    assert is_ready(True)
    assert not is_ready(False, False)
    assert not is_ready()


def test_a_worker_starts_with_what_holds_when_its_process_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    old = GatewayConfig.load(None, {"bootstrap_servers": "b:1", "listen": "127.0.0.1:1", "location": "s3://b"})
    new = replace(old, drain_s=1.0)

    class Started(Exception):
        """With the task that a worker was given."""

    async def begin(make_task: Callable[[], WorkerTask], _heard: object) -> None:
        workers.config = new  # a reload ends
        workers._heard(2, None, "broker", (7, "b7", 9092))  # type: ignore[arg-type]
        raise Started(make_task())

    monkeypatch.setattr(WorkerProcess, "start", begin)
    workers = workers_of(old)
    with pytest.raises(Started) as caught:
        asyncio.run(workers._keep(1))
    [task] = caught.value.args
    assert task.config.drain_s == 1.0
    assert task.nodes == {7: ("b7", 9092)}


def test_a_hangup_while_the_configuration_is_loaded_has_it_loaded_once_more() -> None:
    async def hang_up() -> int:
        loads, may_end, ending = 0, asyncio.Event(), asyncio.Event()

        async def load() -> None:
            nonlocal loads
            loads += 1
            await may_end.wait()

        async def work() -> None:
            os.kill(os.getpid(), signal.SIGHUP)
            while not loads:
                await asyncio.sleep(0.001)
            for _ in range(2):  # of the second and the third, one is enough
                os.kill(os.getpid(), signal.SIGHUP)
                await asyncio.sleep(0.05)
            assert loads == 1
            may_end.set()
            while loads < 2:
                await asyncio.sleep(0.001)
            await asyncio.sleep(0.05)
            os.kill(os.getpid(), signal.SIGHUP)
            while loads < 3:
                await asyncio.sleep(0.001)

        async def nothing() -> None: ...

        async with asyncio.timeout(_PATIENCE_S):
            await until_signal(ending, nothing, work, reload=load, stop=nothing)
        return loads

    assert asyncio.run(hang_up()) == 3


@pytest.mark.parametrize("is_group", [False, True])
def test_a_stop_lets_every_worker_answer_what_is_under_way(tmp_path: Path, is_group: bool) -> None:
    may_answer = threading.Event()

    def slowly(heard: Heard) -> Reply:
        may_answer.wait(20)
        return {"error_code": 15, "node_id": -1, "host": "", "port": -1}

    with one_broker() as kafka, running(tmp_path, kafka) as found:
        peers, pids = found.peers_of_all(), found.pids()
        kafka.brokers[0].handlers["FindCoordinator"] = slowly
        for one in peers:
            one.send(struct.pack(">hhi", 10, 0, 9) + b"\0\1c" + b"\0\1g")
        eventually(lambda: len(kafka.asked("FindCoordinator")) == len(peers))
        for pid in [*pids, found.process.pid] if is_group else [found.process.pid]:  # as systemd does, or a terminal
            os.kill(pid, signal.SIGTERM)
        eventually(lambda: not can_connect(found.port))
        may_answer.set()
        assert [one.receive()[:4] for one in peers] == [struct.pack(">i", 9)] * len(peers)
        assert [one.receive() for one in peers] == [b""] * len(peers)
        rest = found.process.communicate(timeout=30)[1]
        assert found.process.returncode == 0, rest
        assert "Traceback" not in rest
        assert not any(is_alive(pid) for pid in pids)


def test_workers_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    with one_broker() as kafka, running(tmp_path, kafka) as found:
        pids = found.pids()
        found.process.kill()
        found.process.wait(30)
        eventually(lambda: not any(is_alive(pid) for pid in pids))
        assert not can_connect(found.port)


def test_where_a_broker_is_now_is_known_to_all_workers_when_one_hears_of_it(tmp_path: Path) -> None:
    with one_broker() as kafka, FakeBroker(2) as second, running(tmp_path, kafka) as found:
        second.handlers["Metadata"] = kafka.metadata
        kafka.brokers.append(second)
        assert not can_connect(found.port + 2)
        with BrokerClient(f"127.0.0.1:{found.port}") as client:
            told = client.metadata(["t"])
        assert (2, found.port + 2) in [(one.node_id, one.port) for one in told.nodes]
        eventually(lambda: len(listeners(found.port + 2)) == 2)
        for _ in range(30):
            assert Peer(found.port + 2).is_served()
        with FakeBroker(2) as moved:
            moved.handlers["Metadata"] = kafka.metadata
            kafka.brokers[1] = moved
            second.close()
            with BrokerClient(f"127.0.0.1:{found.port}") as client:
                client.metadata(["t"])
            eventually(lambda: all(Peer(found.port + 2).is_served() for _ in range(30)))
            assert len(moved.asked("ApiVersions")) >= 30


def test_what_is_wrong_with_the_settings_is_told_once_and_ends_it(tmp_path: Path) -> None:
    require_prometheus()
    with one_broker() as kafka, claimed_ports(PORTS) as base:
        config = tmp_path / "gateway.toml"
        # Only a worker finds out that this location has no URLs to give.
        text = settings(tmp_path, kafka.bootstrap, base, base + PORTS - 1).replace("url_base", "# url_base")
        config.write_text(text)
        with started(config) as process:
            told = process.communicate(timeout=60)[1]
        assert process.returncode == ExitCode.USAGE
        assert told.count("this location has no signed URLs") == 1
        assert "Traceback" not in told


def test_a_port_that_is_taken_is_told_though_it_could_be_shared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with one_broker() as kafka, running(tmp_path, kafka) as found:
        assert (
            main(["gateway", "--config", str(found.config), "--metrics", f"127.0.0.1:{free_port()}"]) == ExitCode.USAGE
        )
        assert f"the port cannot be opened; found 127.0.0.1:{found.port}" in capsys.readouterr().err


def test_a_platform_without_shared_ports_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delattr(socket, "SO_REUSEPORT")
    asked = ["--bootstrap-servers", "b:1", "--listen", f"127.0.0.1:{free_port()}", "--location", str(tmp_path)]
    log = logging.getLogger("segreader")
    before = log.level, log.handlers[:]
    assert main(["gateway", *asked, "--workers", "2"]) == ExitCode.USAGE
    assert (log.level, log.handlers) == before  # what else this process does is logged as before
    assert "SO_REUSEPORT" in capsys.readouterr().err


def can_connect(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1.0).close()
    except OSError:
        return False
    return True


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def listeners(port: int) -> list[str]:
    """The listening sockets of a port on loopback."""
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    return [line for line in lines if line.split()[1].endswith(f":{port:04X}") and line.split()[3] == "0A"]
