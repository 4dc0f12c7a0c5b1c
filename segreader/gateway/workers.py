"""Several processes of one gateway: each serves clients at the same ports, and a parent starts and watches them.

The ports are shared by SO_REUSEPORT: the kernel gives every new connection to one of the workers. The parent takes no
clients. It has the signals, the configuration and the pages of metrics and health; over a socket pair with each worker
it sends what changes, and asks for its numbers. A worker reads the metadata topic by itself and counts its limits by
itself. One that dies is started again; connections that the kernel had given to it are lost, as those that it served.
"""

from __future__ import annotations

import asyncio
import io
import logging
import os
import pickle
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import fields, replace
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, Final

from segreader.broker.settings import ClientSettings
from segreader.errors import OptionError, SegreaderError
from segreader.gateway.config import GatewayConfig
from segreader.gateway.listening import check_free
from segreader.gateway.metrics import GAUGES, GatewayMetrics, Page, WorkerFacts, serve_pages
from segreader.gateway.server import (
    METRICS_PAGE,
    FindNodes,
    Gateway,
    MakeBackend,
    gateway_pages,
    make_contexts,
    ready_page,
    reloaded,
    until_signal,
)
from segreader.storage.signed_url import Secret
from segreader.values import dataclass

_log = logging.getLogger("segreader.gateway.process")

_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.5, 30.0
_LIVED_S: Final = 30.0
"""A worker that lived so long is started again at once."""

_PATIENCE_S = 2.0
"""How long the pages wait for a worker's numbers, before they show those of before."""

_END_S: Final = 10.0
"""How much longer than ``drain`` a worker may take to end."""


@dataclass(frozen=True, slots=True)
class WorkerTask:
    """What a worker gets when it starts.

    Args:
        number: which one it is, from 1.
        set_up_logs: called with that number.
        nodes: brokers that the gateway has heard of: where they are.
    """

    number: int
    config: GatewayConfig
    make_backend: MakeBackend | None
    find_nodes: FindNodes
    set_up_logs: Callable[[int], None]
    nodes: Mapping[int, tuple[str, int]]


class _OwnPickler(pickle.Pickler):
    """For a process of this gateway, which gets its secrets: they are hidden in any other pickle."""

    def reducer_override(self, one: Any) -> Any:
        if type(one) is Secret:
            return Secret, (one.reveal(),)
        if type(one) is ClientSettings:
            return partial(ClientSettings, **{each.name: getattr(one, each.name) for each in fields(one)}), ()
        return NotImplemented


def _send(channel: Connection, *message: Any) -> None:
    _OwnPickler(data := io.BytesIO(), pickle.HIGHEST_PROTOCOL).dump(message)
    channel.send_bytes(data.getbuffer())


class WorkerProcess:
    """The parent's side of one worker process.

    Args:
        heard: called with each message that answers nothing.
    """

    def __init__(
        self, process: asyncio.subprocess.Process, channel: Connection, heard: Callable[[WorkerProcess, str, Any], None]
    ) -> None:
        self.process = process
        self.error: BaseException | None = None
        """What it ended by, if it could say."""
        self.state: tuple[Mapping[str, Any], Mapping[str, float], Mapping[str, bool]] | None = None
        """Its numbers, those of its catalogue, and what holds, when it was last asked."""
        self._channel = channel
        self._heard = heard
        self._asked: dict[str, asyncio.Future[Any]] = {}
        asyncio.get_running_loop().add_reader(channel.fileno(), self._hear)

    @classmethod
    async def start(
        cls, make_task: Callable[[], WorkerTask], heard: Callable[[WorkerProcess, str, Any], None]
    ) -> WorkerProcess:
        """Start one; it has not begun to listen when this returns.

        Args:
            make_task: called when its process is there: what changes after that is for the caller to tell.
        """
        own, its = socket.socketpair()
        with its:
            command = f"from segreader.gateway.workers import work; work({its.fileno()})"
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", command, stdin=asyncio.subprocess.DEVNULL, pass_fds=(its.fileno(),)
            )
        worker = cls(process, Connection(own.detach()), heard)
        worker.tell(make_task())
        return worker

    def tell(self, *message: Any) -> None:
        """Send a message; none arrives where the worker is gone."""
        try:
            _send(self._channel, *message)
        except OSError:
            self._close()

    async def ask(self, what: str, *more: Any, timeout_s: float | None = None) -> Any:
        """The answer to a question; ``None`` if the worker is gone or too slow. One at a time of each."""
        if (answer := self._asked.get(what)) is None:
            answer = self._asked[what] = asyncio.get_running_loop().create_future()
            self.tell(what, *more)
        await asyncio.wait({answer}, timeout=timeout_s)
        return answer.result() if answer.done() else None

    async def ended(self) -> int:
        """Wait for its end: its exit status, or the negative number of the signal that ended it."""
        status = await self.process.wait()
        while not self._channel.closed:  # what it said last
            self._hear()
        return status

    def _hear(self) -> None:
        try:
            kind, content = pickle.loads(self._channel.recv_bytes())
        except (EOFError, OSError):
            self._close()
            return
        if kind == "error":
            self.error = content
        elif kind == "state":
            self.state = content
        if (asked := self._asked.pop(kind, None)) is not None:
            asked.set_result(content)
        else:
            self._heard(self, kind, content)

    def _close(self) -> None:
        if not self._channel.closed:
            asyncio.get_running_loop().remove_reader(self._channel.fileno())
            self._channel.close()
        for asked in self._asked.values():
            if not asked.done():
                asked.set_result(None)
        self._asked.clear()


class GatewayWorkers:
    """A gateway of several processes.

    Args:
        make_backend, find_nodes: as of ``Gateway``; functions that another process can import.
        set_up_logs: called in each worker with its number; such a function, too.
    """

    def __init__(
        self,
        config: GatewayConfig,
        *,
        make_backend: MakeBackend | None,
        find_nodes: FindNodes,
        set_up_logs: Callable[[int], None],
    ) -> None:
        self.config = config
        self.ports: Mapping[int, int] = {}
        """The port of each broker that has one here."""
        self.metrics = GatewayMetrics()
        """What the parent counts itself, and what workers that are gone have counted."""
        self._make_task = partial(WorkerTask, make_backend=make_backend, find_nodes=find_nodes, set_up_logs=set_up_logs)
        self._workers: dict[int, WorkerProcess] = {}
        self._starts: dict[int, int] = {}
        self._nodes: dict[int, tuple[str, int]] = {}
        self._ready_numbers: set[int] = set()
        self._is_ready = asyncio.Event()
        self._was_ready = False  # whether /readyz has seen every worker ready
        self._ending = asyncio.Event()
        self._keeping: list[asyncio.Task[None]] = []
        self._pages: asyncio.Server | None = None

    async def run(self, ready: Callable[[], None], *, load: Callable[[], GatewayConfig]) -> None:
        """Start all workers, call ``ready`` when they are, and stop them on SIGTERM or SIGINT.

        Raises:
            OptionError: the ports cannot be had or shared, or a certificate cannot be loaded.
            SegreaderError: a worker cannot start, before all of them have.
        """

        async def work() -> None:
            keeping = self._keeping = [
                asyncio.ensure_future(self._keep(number)) for number in range(1, self.config.workers + 1)
            ]
            started = asyncio.ensure_future(self._is_ready.wait())
            await asyncio.wait((started, *keeping), return_when=asyncio.FIRST_COMPLETED)
            started.cancel()
            if self._is_ready.is_set():
                ready()
            done, _ = await asyncio.wait(keeping, return_when=asyncio.FIRST_COMPLETED)
            for one in done:
                one.result()

        await until_signal(self._ending, self._start, work, reload=lambda: self.reload(load), stop=self._stop)

    async def _start(self) -> None:
        config = self.config
        if not hasattr(socket, "SO_REUSEPORT"):
            raise OptionError("several workers need SO_REUSEPORT, which this platform has not", hint="Set workers to 1")
        make_contexts(config)
        for port in sorted({config.listen_port, *config.ports.values()}):
            try:
                await check_free(config.listen_host or None, port)
            except OSError as error:
                found = f"{config.listen_host}:{port} ({error.strerror})"
                raise OptionError("the port cannot be opened", found=found) from None
        if config.metrics_listen is not None:
            self.metrics.text()  # has what it needs
            pages = gateway_pages(self._metrics_page, self._ready_page)
            self._pages = await serve_pages(*config.metrics_listen, pages)

    async def _keep(self, number: int) -> None:
        """Have one worker run: where it dies another takes its place."""
        wait_s = 0.0
        while not self._ending.is_set():
            self._starts[number] = self._starts.get(number, 0) + 1
            began_s = time.monotonic()
            worker = self._workers[number] = await WorkerProcess.start(
                partial(self._task_of, number), partial(self._heard, number)
            )
            try:
                status = await worker.ended()
            except asyncio.CancelledError:
                await self._end(worker)
                raise
            del self._workers[number]
            if worker.state is not None:
                self.metrics.add({name: one for name, one in worker.state[0].items() if name not in GAUGES})
                worker.state = None
            if worker.error is not None and not self._is_ready.is_set():
                raise worker.error
            wait_s = (
                0.0 if time.monotonic() - began_s >= _LIVED_S else min(max(2 * wait_s, _FIRST_WAIT_S), _LONGEST_WAIT_S)
            )
            how = signal.Signals(-status).name if status < 0 else f"exit status {status}"
            what = how if worker.error is None else f"{how}: {worker.error}"
            _log.error(
                "worker %d (process %d) ended: %s; it is started again in %.1f s",
                number,
                worker.process.pid,
                what,
                wait_s,
            )
            await asyncio.sleep(wait_s)

    def _task_of(self, number: int) -> WorkerTask:
        return self._make_task(number=number, config=replace(self.config, metrics_listen=None), nodes=dict(self._nodes))

    async def _end(self, worker: WorkerProcess) -> None:
        """Have a worker answer what is under way and end; kill it if that takes too long."""
        worker.tell("end")
        try:
            async with asyncio.timeout(self.config.drain_s + _END_S):
                await worker.ended()
        except TimeoutError:
            worker.process.kill()
            await worker.ended()

    async def _stop(self) -> None:
        self._ending.set()
        for task in self._keeping:
            task.cancel()
        await asyncio.gather(*self._keeping, return_exceptions=True)
        if self._pages is not None:
            self._pages.close()

    def _heard(self, number: int, worker: WorkerProcess, kind: str, content: Any) -> None:
        if kind == "broker":
            node_id, *place = content
            if self._nodes.get(node_id) != tuple(place):
                self._nodes[node_id] = tuple(place)
                for other in self._workers.values():
                    if other is not worker:
                        other.tell("broker", *content)
        elif kind == "ready":
            self.ports = content
            self._ready_numbers.add(number)
            if len(self._ready_numbers) == self.config.workers:
                self._is_ready.set()

    async def reload(self, load: Callable[[], GatewayConfig]) -> None:
        """Have all workers take over what may change; if something is wrong with it all stays."""
        try:
            config = reloaded(self.config, await asyncio.to_thread(load))
            make_contexts(config)
        except (SegreaderError, OSError) as error:
            self.metrics.reloads["failed"] += 1
            _log.error("the configuration stays as it was: %s", error)
            return
        given = replace(config, metrics_listen=None)
        asked = list(self._workers.values())
        taken = await asyncio.gather(*(one.ask("reload", given) for one in asked))
        if True in taken or False not in taken:
            self.config = config
            for worker in self._workers.values():
                if worker not in asked:  # it was started meanwhile
                    worker.tell("reload", given)
        self.metrics.reloads["failed" if False in taken else "ok"] += 1

    async def _states(self) -> list[tuple[Mapping[str, Any], Mapping[str, float], Mapping[str, bool]]]:
        """Of each worker, as it is now; of one that says nothing as it was."""
        workers = list(self._workers.values())
        await asyncio.gather(*(one.ask("state", timeout_s=_PATIENCE_S) for one in workers))
        return [one.state for one in workers if one.state is not None]

    async def _metrics_page(self) -> Page:
        shown, found = GatewayMetrics(), await self._states()
        for counts in (self.metrics.counts(), *(one[0] for one in found)):
            shown.add(counts)
        names = sorted({name for one in found for name in one[1]})
        shown.catalogue = lambda: {name: max(one[1].get(name, 0.0) for one in found) for name in names}
        shown.workers = {
            number: WorkerFacts(
                worker.process.pid, worker.state[0]["open_connections"] if worker.state else 0, self._starts[number]
            )
            for number, worker in self._workers.items()
        }
        return Page(shown.text(), kind=METRICS_PAGE)

    async def _ready_page(self) -> Page:
        """Ready when all workers are; after that as long as one is, for the others are started again."""
        found = [one[2] for one in await self._states()]
        names = ("brokers", "catalogue", "running")
        if self._is_ready.is_set() and len(found) == self.config.workers:
            self._was_ready = self._was_ready or all(one[name] for one in found for name in names)
        is_enough = any if self._was_ready else all
        facts = {name: bool(found) and is_enough(one[name] for one in found) for name in names}
        facts["running"] = facts["running"] and not self._ending.is_set()
        return ready_page(facts | {"workers": self._is_ready.is_set()})


def work(number: int) -> None:
    """Be a worker: what to do comes over an open file, a socket, of this number."""
    channel = Connection(number)
    try:
        (task,) = pickle.loads(channel.recv_bytes())
    except EOFError:
        return  # the parent is gone
    task.set_up_logs(task.number)
    try:
        asyncio.run(_serve(task, channel))
    except KeyboardInterrupt:
        sys.exit(1)
    except Exception as error:
        if not isinstance(error, SegreaderError):
            traceback.print_exc()
        else:
            _send(channel, "error", error)
        sys.exit(1)


async def _serve(task: WorkerTask, channel: Connection) -> None:
    await _Serving(task, channel).run()


class _Serving:
    """The worker's side of the socket pair."""

    def __init__(self, task: WorkerTask, channel: Connection) -> None:
        self._find_nodes = task.find_nodes
        self._channel = channel
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Future[None]] = set()
        self._is_ready = False
        self._later = dict(task.nodes)
        self._gateway = Gateway(task.config, make_backend=task.make_backend, learned=self._learned)

    async def run(self) -> None:
        """Serve clients until the parent says otherwise, or is gone, or a signal ends this process."""
        self._loop.add_reader(self._channel.fileno(), self._hear)
        await self._gateway.run(self._ready, find_nodes=self._find_nodes)

    def _hear(self) -> None:
        try:
            kind, *content = pickle.loads(self._channel.recv_bytes())
        except (EOFError, OSError):
            self._loop.remove_reader(self._channel.fileno())
            self._lost()
            return
        if kind == "state":
            metrics = self._gateway.metrics
            counts, facts = metrics.counts(), metrics.catalogue() if metrics.catalogue is not None else {}
            del counts["reloads"]  # the parent counts them, once
            self._tell("state", (counts, facts, self._gateway.readiness()))
        elif kind == "end":
            self._gateway.end()
        elif kind == "reload":
            self._do(self._reload(*content))
        else:
            self._learn(*content)

    def _tell(self, kind: str, content: Any) -> None:
        try:
            _send(self._channel, kind, content)
        except OSError:
            self._lost()

    def _lost(self) -> None:
        """The parent is gone: answer what is under way and end, or end now if this does so already."""
        if self._gateway.is_stopping:
            os.kill(os.getpid(), signal.SIGTERM)
        self._gateway.end()

    async def _reload(self, config: GatewayConfig) -> None:
        self._tell("reload", await self._gateway.reload(lambda: config))

    def _learned(self, node_id: int, host: str, port: int) -> None:
        self._tell("broker", (node_id, host, port))

    def _learn(self, node_id: int, host: str, port: int) -> None:
        if self._is_ready:
            self._do(self._gateway.learn(node_id, host, port))
        else:
            self._later[node_id] = (host, port)

    def _ready(self) -> None:
        self._is_ready = True
        for node_id, place in self._later.items():
            self._learn(node_id, *place)
        self._tell("ready", dict(self._gateway.ports))

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.add(doing := asyncio.ensure_future(work))
        doing.add_done_callback(self._tasks.discard)
