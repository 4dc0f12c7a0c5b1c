"""One server process of the tests: its port, its start, the wait until it answers, its end."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType

import urllib3

from segreader.errors import StorageError

START_S = 120.0
"""How long a server may take to start on a machine that is busy."""

_PORTS = range(12000, 32000)
_CLAIMS = contextlib.ExitStack()
_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


class NotAvailableError(StorageError):
    """A server cannot be had on this machine; its tests are skipped with this text."""


def free_port() -> int:
    """A port for a server that is started later, or stopped and started again: ours until this process ends."""
    return free_ports(1)


def free_ports(count: int) -> int:
    """The first of some such ports in a row.

    They lie below those that a system gives to outgoing connections, and a lock tells other test processes to keep
    off: a port that was merely free a moment ago may be taken by anybody before the server is up.
    """
    return _CLAIMS.enter_context(claimed_ports(count))


@contextlib.contextmanager
def claimed_ports(count: int) -> Iterator[int]:
    """As ``free_ports``, but they are ours until the block ends."""
    with contextlib.ExitStack() as claims:
        yield _claim(count, claims)


def _claim(count: int, claims: contextlib.ExitStack) -> int:
    while True:
        first = random.choice(range(_PORTS.start, _PORTS.stop - count))
        with contextlib.ExitStack() as tried, contextlib.suppress(OSError):
            for port in range(first, first + count):
                tried.enter_context(_claimed(port))
            claims.push(tried.pop_all())
            return first


@contextlib.contextmanager
def _claimed(port: int) -> Iterator[None]:
    """Hold the port's lock until the block ends.

    Raises:
        OSError: another process holds it, or somebody listens there.
    """
    directory = Path(tempfile.gettempdir()) / f"segreader-test-ports-{os.getuid()}"
    directory.mkdir(exist_ok=True)
    with (directory / str(port)).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
        yield


def dies_with_us() -> None:
    """For ``preexec_fn``: a process that Linux kills when the tests are killed, so that no cluster is left behind.

    It dies with the thread that started it: start what is to last from the main thread.
    """
    if sys.platform == "linux":
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def script(name: str) -> str:
    """The program that a Python package of the test environment installed."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise NotAvailableError(f"{name} is not installed: pip install '.[dev]' in the checkout")
    return found


class Process:
    """A process that is ended with the block that started it.

    Args:
        command: program and arguments.
        log: the file its output goes to.
        env: variables to set besides ours.
    """

    def __init__(self, command: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> None:
        self.log = log
        with log.open("wb") as out:
            self._process = subprocess.Popen(
                command,
                stdout=out,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env={**os.environ, **(env or {})},
                preexec_fn=dies_with_us,
            )

    @property
    def pid(self) -> int:
        """The process: for what a benchmark counts."""
        return self._process.pid

    def __enter__(self) -> Process:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def wait_until(self, is_ready: Callable[[], bool], seconds: float = START_S) -> None:
        """Return once the server answers.

        Raises:
            RuntimeError: it ended, or did not answer in time; with the end of its output.
        """
        until = time.monotonic() + seconds
        while not is_ready():
            if self._process.poll() is not None or time.monotonic() > until:
                tail = self.log.read_text(errors="replace")[-2000:]
                raise RuntimeError(f"{self._process.args!r} is not ready (exit {self._process.poll()}):\n{tail}")
            time.sleep(0.05)

    def stop(self) -> None:
        """End it: asked first, then made to."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(3)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


def answers(url: str) -> bool:
    """Whether something speaks HTTP there."""
    try:
        urllib3.request("GET", url, retries=False, timeout=1.0)
    except urllib3.exceptions.HTTPError:
        return False
    return True


@contextlib.contextmanager
def running(command: Sequence[str], log: Path, url: str, env: Mapping[str, str] | None = None) -> Iterator[Process]:
    """A process that speaks HTTP at ``url``, until the block ends."""
    with Process(command, log, env) as process:
        process.wait_until(lambda: answers(url))
        yield process
