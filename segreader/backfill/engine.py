"""Who does the work of a job: the processes of this machine, without Spark and without Java.

A task is sent once to each worker process; groups of split indexes follow, one at a time. A worker and the driver are
joined by a socket that no other process has, so each sees the other's end as the end of its stream: a worker that is
killed is replaced, and workers whose driver is killed end. Workers are programs of their own (``python -c``), never
forks, and import nothing of the user's ``__main__``: a script without ``if __name__ == "__main__"`` is not run again.
"""

from __future__ import annotations

import atexit
import errno
import gc
import logging
import os
import pickle
import select
import selectors
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from enum import IntEnum
from math import ceil
from pathlib import Path
from queue import Empty, Queue, SimpleQueue
from typing import Any, Final, Generic, NoReturn, Protocol, Self, TypeVar, runtime_checkable

from segreader.errors import (
    AccessDeniedError,
    BrokerError,
    ConnectionFailedError,
    LocationExpiredError,
    ObjectChangedError,
    ObjectNotFoundError,
    OptionError,
    SchemaRegistryError,
    SegreaderError,
    StorageError,
    UntrustedLocationError,
)
from segreader.plan.request import usable_cores
from segreader.values import collect_seldom

ATTEMPTS: Final = 4
"""How often a group is tried, as Spark's ``spark.task.maxFailures``."""

_PAUSE_S: Final = 1.0
"""Before the second attempt; twice that before the third, and so on."""

_GRACE_S: Final = 1.0
"""What a worker has to remove what it was writing, when the driver wants no more."""

_ORPHAN_GRACE_S: Final = 0.4
_LOOK_S: Final = 0.5
"""How often each looks for an end that the socket does not show: somebody else may hold the other's end, by a fork."""

_SEND_S: Final = 60.0
_MOST_WAITING: Final = 32
"""Results that wait until the caller takes them; workers wait, too, after that. A commit takes longer than a split."""

_LENGTH: Final = struct.Struct("<Q")
_READ_BYTES: Final = 1 << 18
_TASK: Final = b"T"
_GROUP: Final = b"G"
_START: Final = (
    "import sys; sys.path[:] = sys.argv[4:]; del sys.argv[4:]; "
    "from {module} import {name}; {name}(*map(int, sys.argv[1:]))"
)
_KEEPS_PAGES: Final = {"MIMALLOC_PURGE_DELAY": "-1"}
"""Has Arrow's allocator keep freed pages: the next split reuses them and takes no page faults."""

_WITHOUT_NUMPY: Final = 18
"""The first major version of pyarrow that works without numpy; importing that costs each worker 0.05 s of CPU."""

_MEMORY_HINT: Final = (
    "Most likely the machine ran out of memory (`dmesg` tells): run again with fewer --processes, or a smaller "
    "--read-ahead-bytes; what is done stays done"
)
_FAULT_HINT: Final = (
    "A native library failed: what the worker wrote to stderr may tell which; run again with --processes 1"
)
_EXIT_HINT: Final = "What the worker wrote to stderr before its end tells more; what is done stays done"

_LASTING: Final = (
    AccessDeniedError,
    LocationExpiredError,
    ObjectChangedError,
    ObjectNotFoundError,
    UntrustedLocationError,
)
_LASTING_ERRNOS: Final = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EROFS))

_CONTROL_GROUPS: Final = Path("/sys/fs/cgroup")

_LOG: Final = logging.getLogger(__name__)

_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)
Task = Callable[[Sequence[int]], Iterator[_T]]
"""Yields one result for each index, in their order. A worker gets it pickled."""


class Engine(Protocol):
    """Who runs the task of a job."""

    def run(self, task: Task[_T], groups: Sequence[Sequence[int]]) -> Iterator[_T]:
        """The results of all groups as they come, each group's in its order.

        Args:
            task: yields one picklable result for each index.
            groups: units of work, in the order in which they shall be begun.
        """
        ...


@runtime_checkable
class NamesSplits(Protocol):
    """A task that can tell people which split an index is."""

    def name_of(self, index: int) -> str:
        """For an error's text."""
        ...


@runtime_checkable
class CountsAttempts(Protocol[_T_co]):
    """A task that records the number of the attempt in its results; any other task is called without it."""

    def attempt(self, indexes: Sequence[int], number: int) -> Iterator[_T_co]:
        """One result for each index.

        Args:
            number: 0 for the first attempt at the group, as Spark counts.
        """
        ...


class WorkerDiedError(SegreaderError):
    """A worker process ended again and again: killed, out of memory, or by a fault of a native library.

    ``source`` names the split that it was at, ``index`` is that split's, ``None`` where no worker got as far as that;
    ``exit_code`` is the process's, minus the signal's number where a signal ended it.
    """

    def __init__(
        self, message: str = "", *, index: int | None = None, exit_code: int | None = None, **fields: Any
    ) -> None:
        super().__init__(message, **fields)
        self.index = index
        self.exit_code = exit_code


class LocalEngine:
    """Runs a task in processes of this machine; with one process or one group in this one.

    As a context manager it keeps its processes from one run to the next, until the block ends: they import only once.

    Args:
        processes: at most so many; as many as this process may use cores by default.
        attempts: how often a group is tried when a worker dies, or the store or a broker fails for a while.

    Raises:
        OptionError: one of them is below 1.
    """

    def __init__(self, processes: int | None = None, attempts: int = ATTEMPTS) -> None:
        for name, number in (("processes", processes), ("attempts", attempts)):
            if number is not None and number < 1:
                raise OptionError(f"{name} must be at least 1", found=number)
        self._processes = processes if processes is not None else allowed_cores()
        self._attempts = attempts
        self.notes: list[str] = []
        """What went wrong in the latest run and was done again, a sentence each."""
        self._kept: list[_WorkerProcess] = []
        self._keeps = False

    def __enter__(self) -> Self:
        self._keeps = True
        return self

    def __exit__(self, *details: object) -> None:
        self._keeps = False
        _end(self._kept, at_once=False)
        self._kept = []

    def __repr__(self) -> str:
        return f"LocalEngine(processes={self._processes}, attempts={self._attempts})"

    def run(self, task: Task[_T], groups: Sequence[Sequence[int]]) -> Iterator[_T]:
        """The results of all groups as they come, each group's in its order; as ``Engine.run``.

        Worker processes end with the iterator, if it ends before its last result or outside of a ``with`` block: each
        removes what it was writing, or is killed after a second. Only what is missing of a group is done again.

        Raises:
            WorkerDiedError: workers died at the same group in each attempt, or none could be started.
            Exception: what the task raised in a worker, with its traceback as the cause. A ``StorageError`` or
                ``BrokerError`` that may pass is raised after the last attempt only.
        """
        self.notes = []
        work = [_Unit(indexes) for indexes in groups if indexes]
        processes = min(self._processes, len(work))
        if processes > 1 and (not sys.executable or getattr(sys, "frozen", False)):
            self._note("All work is done in one process: the program is no Python, so it starts no workers")
            processes = 1
        if processes <= 1:
            return self._run_here(task, work)
        return self._run_in_pool(task, work, processes)

    def _run_here(self, task: Task[_T], groups: Sequence[_Unit]) -> Iterator[_T]:
        for group in groups:
            while group.left:
                try:
                    with closing(_results(task, tuple(group.left), group.failures)) as results:
                        for result in results:
                            group.left.popleft()
                            yield result
                except Exception as error:
                    group.failures += 1
                    if not (may_pass(error) and group.left) or group.failures >= self._attempts:
                        raise
                    self._note(_failed_note(task, group, error))
                    time.sleep(_PAUSE_S * group.failures)

    def _run_in_pool(self, task: Task[_T], groups: Sequence[_Unit], processes: int) -> Iterator[_T]:
        workers, self._kept = self._kept, []
        pool = _Pool(task, groups, processes, self._attempts, self._note, workers, keeps=self._keeps)
        try:
            pool.start()
            while (outcome := pool.outcomes.get()).results:
                yield from outcome.results
            if outcome.error is not None:
                raise outcome.error
        finally:
            pool.stop()
            if self._keeps:
                self._kept += pool.kept
            else:
                _end(pool.kept, at_once=False)

    def _note(self, note: str) -> None:
        self.notes.append(note)
        _LOG.warning("%s", note)


def allowed_cores(control_groups: Path = _CONTROL_GROUPS) -> int:
    """Cores that this process may use: those that it may run on, or the share of its container if that is less.

    Args:
        control_groups: where Linux shows a container its limits.
    """
    return max(1, min([usable_cores(), *map(ceil, _shares_of_container(control_groups))]))


def _shares_of_container(folder: Path) -> Iterator[float]:
    """Cores by the limits of control groups: version 2, and version 1."""
    with suppress(OSError, ValueError):
        quota, period = (folder / "cpu.max").read_text().split()
        yield int(quota) / int(period)  # or `max`
    with suppress(OSError, ValueError):
        quota, period = ((folder / "cpu" / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        if int(quota) > 0:
            yield int(quota) / int(period)


def may_pass(error: BaseException) -> bool:
    """Whether another attempt may do better: the store, a broker or a registry failed, and did not refuse."""
    if isinstance(error, StorageError):
        from segreader.storage.cloud.failure import is_full

        return not (is_full(error) or isinstance(error, _LASTING)) and not any(
            isinstance(one, OSError) and one.errno in _LASTING_ERRNOS for one in _chain(error)
        )
    if isinstance(error, SchemaRegistryError):
        return error.status is not None and (error.status == 429 or error.status >= 500)
    if isinstance(error, BrokerError):
        from segreader.broker.protocol import is_retriable

        return isinstance(error, ConnectionFailedError) or (error.code is not None and is_retriable(error.code))
    return False


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__  # type: ignore[assignment]


def _results(task: Task[_T], indexes: Sequence[int], attempt: int) -> Generator[_T]:
    """What the task yields, as many as there are indexes; it is closed with this."""
    count = 0
    results = task.attempt(indexes, attempt) if isinstance(task, CountsAttempts) else task(indexes)
    try:
        for result in results:
            count += 1
            if count > len(indexes):
                break
            yield result
    finally:
        if isinstance(results, Generator):
            results.close()
    if count != len(indexes):
        raise RuntimeError(f"a task yields one result for each index: {len(indexes)} indexes, found {count} or more")


class _Unit:
    """What is left of a unit of work, and how often it failed."""

    __slots__ = ("failures", "left")

    def __init__(self, indexes: Sequence[int]) -> None:
        self.left = deque(indexes)
        self.failures = 0


def _name(task: object, index: int) -> str:
    return task.name_of(index) if isinstance(task, NamesSplits) else f"split {index}"


def _failed_note(task: object, group: _Unit, error: object) -> str:
    return f"{_name(task, group.left[0])}: attempt {group.failures} failed, another follows: {error}"


class _Tells(IntEnum):
    """What a worker tells."""

    STARTED = 0  # may be sent the task
    LOADED = 1  # has the task
    RESULT = 2
    FAILED = 3
    ENDED = 4


class _Stopped(BaseException):
    """The driver wants no more, or is no more."""


class _WorkerTraceback(Exception):
    """The traceback in the worker, as the cause of the error."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._text = text

    def __str__(self) -> str:
        return f"\n{self._text}"


class _WorkerProcess:
    """A worker as the driver has it: starts at once."""

    def __init__(self, environment: dict[str, str], path: Sequence[str]) -> None:
        ours, theirs = socket.socketpair()
        self.group: _Unit | None = None
        self.is_started = self.is_loaded = False
        self._received = bytearray()
        try:
            with closing(_above_stdio(theirs)) as end:
                self._process = _start(end.fileno(), environment, path)
        except BaseException:
            ours.close()
            raise
        self.socket = ours
        ours.settimeout(_SEND_S)

    def send(self, message: bytes) -> None:
        """Whether it arrives shows when it is read from."""
        with suppress(OSError):
            self.socket.sendall(_LENGTH.pack(len(message)))
            self.socket.sendall(message)

    def receive(self) -> tuple[list[bytes], bool]:
        """The messages that are here now, and whether more may come."""
        is_open = not self.has_ended()
        received = self._received
        try:
            while data := self.socket.recv(_READ_BYTES, socket.MSG_DONTWAIT):
                received += data
                if is_open:
                    break
            else:
                is_open = False
        except BlockingIOError:
            pass
        except OSError:
            is_open = False
        messages: list[bytes] = []
        start = 0
        while len(received) >= (begin := start + _LENGTH.size):
            stop = begin + _LENGTH.unpack_from(received, start)[0]
            if len(received) < stop:
                break
            messages.append(bytes(received[begin:stop]))
            start = stop
        del received[:start]
        return messages, is_open

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def stop(self) -> None:
        """Have it remove what it was writing, and end."""
        self._process.terminate()

    def reap(self, deadline: float) -> int:
        """Its exit code; it is killed if it has none by then, a value of ``time.monotonic``."""
        try:
            return self._process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()
        finally:
            self.socket.close()


def _above_stdio(end: socket.socket) -> socket.socket:
    """The same socket with a number that no standard stream has, which one may get where those are closed."""
    import fcntl

    with end:
        return socket.socket(fileno=fcntl.fcntl(end.fileno(), fcntl.F_DUPFD_CLOEXEC, 3))


def _start(end: int, environment: dict[str, str], path: Sequence[str]) -> subprocess.Popen[bytes]:
    """A process of this Python, with its flags and its path. Ctrl-C is the driver's: it starts with that blocked."""
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    program = _START.format(module=serve.__module__, name=serve.__name__)
    arrow = getattr(sys.modules.get("pyarrow"), "__version__", "0")
    numbers = end, os.getpid(), int(arrow.partition(".")[0])
    command = [sys.executable, *flags, "-c", program, *map(str, numbers), *path]
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))
    try:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=(end,), env=environment)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Outcome(Generic[_T_co]):
    """A result, an error, or neither: the end."""

    __slots__ = ("error", "results")

    def __init__(self, results: Sequence[_T_co] = (), error: BaseException | None = None) -> None:
        self.results, self.error = results, error


class _Pool(Generic[_T]):
    """Hands out groups and collects results in a thread of its own: workers go on while the caller commits."""

    def __init__(
        self,
        task: Task[_T],
        groups: Sequence[_Unit],
        processes: int,
        attempts: int,
        note: Callable[[str], None],
        workers: list[_WorkerProcess],
        *,
        keeps: bool,
    ) -> None:
        self.outcomes: Queue[_Outcome[_T]] = Queue(_MOST_WAITING)
        self.kept: list[_WorkerProcess] = []
        """The workers of an earlier pool, which this one had in ``workers``, and its own."""
        self._task, self._message = task, _TASK + pickle.dumps(task, protocol=5)
        self._keeps = keeps
        self._processes, self._attempts, self._note = processes, attempts, note
        self._todo, self._unfinished = deque(groups), len(groups)
        self._again: list[tuple[float, _Unit]] = []
        self._workers = workers
        self._died_early = 0
        self._selector = selectors.DefaultSelector()
        self._wake, self._woken = socket.socketpair()
        self._is_stopping = False
        self._thread = threading.Thread(target=self._dispatch, name="segreader-backfill", daemon=True)
        self._path = [os.path.abspath(entry) for entry in sys.path]
        threads = max(1, allowed_cores() // processes)
        # Arrow, and what numpy multiplies with, would have as many threads in each process as there are cores
        self._environment = {"OMP_NUM_THREADS": str(threads), **_KEEPS_PAGES, **os.environ}

    def start(self) -> None:
        atexit.register(self.stop)  # its thread is no more when what is left of a program is let go of
        self._thread.start()

    def stop(self) -> None:
        """End all workers, and wait until they have."""
        self._is_stopping = True
        with suppress(OSError):
            self._wake.send(b"\0")
        if self._thread is threading.current_thread():  # which collects an iterator that was forgotten
            return
        while self._thread.is_alive():  # it may wait for room
            with suppress(Empty):
                self.outcomes.get_nowait()
            self._thread.join(0.01)
        self._close()
        atexit.unregister(self.stop)

    def _close(self) -> None:
        for one in (self._wake, self._woken, self._selector):
            one.close()

    def _dispatch(self) -> None:
        outcome: _Outcome[_T] = _Outcome()
        try:
            self._selector.register(self._woken, selectors.EVENT_READ)
            self._take_over()
            while self._unfinished and not self._is_stopping:
                self._hand_out()
                self._take(self._selector.select(self._timeout()))
        except BaseException as error:
            outcome = _Outcome(error=error)
        try:
            if self._keeps and not self._unfinished:
                self.kept = self._workers
            else:
                _end(self._workers, at_once=self._unfinished > 0)
        finally:
            self.outcomes.put(outcome)
            self._close()

    def _take_over(self) -> None:
        """Give the task to the workers that are there."""
        for worker in tuple(self._workers):
            if worker.has_ended():
                self._workers.remove(worker)
                worker.reap(time.monotonic())
                continue
            self._selector.register(worker.socket, selectors.EVENT_READ, worker)
            if worker.is_started:
                worker.is_loaded = False
                worker.send(self._message)

    def _timeout(self) -> float:
        """Until the next group may be tried again; one that may be already waits for a worker."""
        now = time.monotonic()
        return min((due - now for due, _ in self._again if due > now), default=_LOOK_S)

    def _hand_out(self) -> None:
        """Give idle workers their next group, and start workers while there is more to do."""
        for worker in tuple(self._workers):
            if worker.is_loaded and worker.group is None and (group := self._next()) is not None:
                worker.group = group
                worker.send(_GROUP + pickle.dumps((tuple(group.left), group.failures)))
        waiting = len(self._todo) + len(self._again)
        free = sum(worker.group is None for worker in self._workers)
        for _ in range(min(self._processes - len(self._workers), waiting - free)):
            worker = _WorkerProcess(self._environment, self._path)
            self._workers.append(worker)
            self._selector.register(worker.socket, selectors.EVENT_READ, worker)

    def _next(self) -> _Unit | None:
        now = time.monotonic()
        for place, (due, group) in enumerate(self._again):
            if due <= now:
                del self._again[place]
                return group
        return self._todo.popleft() if self._todo else None

    def _take(self, events: Iterable[tuple[selectors.SelectorKey, int]]) -> None:
        ready = [key.data for key, _ in events]
        if None in ready:
            self._woken.recv(_READ_BYTES)
        for worker in tuple(self._workers):
            if not (worker in ready or worker.has_ended()):
                continue
            messages, is_open = worker.receive()
            results: list[_T] = []
            try:
                for message in messages:
                    self._take_message(worker, message, results)
            finally:
                if results:
                    self.outcomes.put(_Outcome(results))
            if not is_open:
                self._replace(worker)

    def _take_message(self, worker: _WorkerProcess, message: bytes, results: list[_T]) -> None:
        kind, content = pickle.loads(message)
        group = worker.group
        if kind == _Tells.STARTED:
            worker.is_started = True
            worker.send(self._message)
        elif kind == _Tells.LOADED:
            worker.is_loaded, self._died_early = True, 0
        elif group is None:
            raise _error_of(*content)  # the task cannot be loaded
        elif kind == _Tells.RESULT:
            results.append(pickle.loads(content))
            group.left.popleft()
        elif kind == _Tells.ENDED:
            worker.group = None
            self._unfinished -= 1
        else:
            worker.group = None
            self._try_again(group, _error_of(*content), may_pass=content[2])

    def _try_again(self, group: _Unit, error: BaseException, *, may_pass: bool) -> None:
        group.failures += 1
        if not (may_pass and group.left) or group.failures >= self._attempts:
            raise error
        self._note(_failed_note(self._task, group, error))
        self._again.append((time.monotonic() + _PAUSE_S * group.failures, group))

    def _replace(self, worker: _WorkerProcess) -> None:
        """Forget a worker that has ended; its group is to be done again."""
        self._workers.remove(worker)
        self._selector.unregister(worker.socket)
        code = worker.reap(time.monotonic() + _GRACE_S)
        end, hint = _describe_end(code)
        group = worker.group
        if group is None:
            if not worker.is_loaded:
                self._died_early += 1
            if self._died_early >= self._attempts:
                raise WorkerDiedError(
                    f"worker processes end before they have begun ({self._died_early} in a row)",
                    found=end,
                    exit_code=code,
                    hint=hint,
                )
        elif not group.left:  # it ended after its last result
            self._unfinished -= 1
        else:
            index = group.left[0]
            tries = group.failures + 1
            error = WorkerDiedError(
                "the worker process that was at this split died" + (f" in each of {tries} attempts" * (tries > 1)),
                source=_name(self._task, index),
                found=end,
                index=index,
                exit_code=code,
                hint=hint,
            )
            if tries < self._attempts:
                error.hint = None  # for the note
            self._try_again(group, error, may_pass=True)


def _end(workers: Sequence[_WorkerProcess], *, at_once: bool) -> None:
    """Wait until these have ended: after what they are at, or at once."""
    for worker in workers:
        if at_once:
            worker.stop()
        else:
            worker.send(b"")
    deadline = time.monotonic() + _GRACE_S
    for worker in workers:
        worker.reap(deadline)


def _describe_end(code: int) -> tuple[str, str]:
    """How a process ended, and the next step."""
    if code >= 0:
        return f"exit code {code}", _EXIT_HINT
    try:
        end = f"signal {-code} ({signal.Signals(-code).name})"
    except ValueError:
        end = f"signal {-code}"
    if -code == signal.SIGKILL:
        return end, _MEMORY_HINT
    is_fault = -code in (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE)
    return end, _FAULT_HINT if is_fault else _EXIT_HINT


def _error_of(pickled: bytes, text: str, may_pass: bool) -> BaseException:
    error: BaseException = pickle.loads(pickled)
    error.__cause__ = _WorkerTraceback(text)
    return error


def serve(end: int, driver: int, arrow: int) -> None:
    """The program of a worker: takes the task, then groups, from the socket ``end``, until the process ``driver`` ends.

    It ends with status 0 when it is told to, and by SIGTERM when it is stopped.

    Args:
        arrow: the major version of Arrow that the driver has; 0 where it has none.
    """
    collect_seldom()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _stop)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, signal.SIGTERM))
    os.set_inheritable(end, False)
    channel = socket.socket(fileno=end)
    inbox: SimpleQueue[bytes] = SimpleQueue()
    try:
        threading.Thread(target=_listen, args=(channel, driver, inbox), daemon=True).start()
        if arrow >= _WITHOUT_NUMPY:
            with _left_out("numpy"):
                leave_pandas_out()  # imports pyarrow, as the task will: the driver has it loaded
        _work(channel, inbox)
        gc.freeze()  # spares the collection at exit
    except _Stopped:
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)


def _stop(number: int, frame: object) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once
    raise _Stopped


def _listen(channel: socket.socket, driver: int, inbox: SimpleQueue[bytes]) -> None:
    """Fill the inbox until the driver is no more: then end this process, whatever it is at."""
    poll = select.poll()
    poll.register(channel, select.POLLIN)
    with suppress(OSError, EOFError):
        while os.getppid() == driver:
            if poll.poll(int(_LOOK_S * 1000)):
                inbox.put(_read(channel, _LENGTH.unpack(_read(channel, _LENGTH.size))[0]))
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
    time.sleep(_ORPHAN_GRACE_S)
    os._exit(1)


def _read(channel: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        if not (part := channel.recv(size - len(data))):
            raise EOFError
        data += part
    return bytes(data)


def _work(channel: socket.socket, inbox: SimpleQueue[bytes]) -> None:
    def tell(kind: _Tells, content: object = None) -> None:
        message = pickle.dumps((int(kind), content), protocol=5)
        try:
            channel.sendall(_LENGTH.pack(len(message)) + message)
        except OSError:
            raise _Stopped from None

    tell(_Tells.STARTED)
    task: Task[object]
    is_first = True
    while message := inbox.get():
        content = memoryview(message)[len(_TASK) :]
        if message.startswith(_TASK):
            try:
                task = pickle.loads(content)
            except Exception as error:
                tell(_Tells.FAILED, _portable(_unusable(error)))
            else:
                if "pyarrow" in sys.modules:
                    leave_pandas_out()
                gc.freeze()
                tell(_Tells.LOADED)
            continue
        try:
            with closing(_results(task, *pickle.loads(content))) as results:
                for result in results:
                    tell(_Tells.RESULT, pickle.dumps(result, protocol=5))
        except _Stopped:
            raise
        except BaseException as error:
            tell(_Tells.FAILED, _portable(error))
        else:
            tell(_Tells.ENDED)
        gc.collect()  # a few objects may hold much memory
        if is_first:
            gc.freeze()  # what was imported is not looked at again
            is_first = False


class _Finder:
    """A meta path finder that hides these packages and leaves all others to the next finder."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name in self._names:
            raise ModuleNotFoundError(f"{name} is left out of this process", name=name)


@contextmanager
def _left_out(*names: str) -> Iterator[None]:
    """Imports in the block fail for these packages, unless they are loaded already."""
    finder = _Finder(names)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


def leave_pandas_out() -> None:
    """Have Arrow do without pandas for as long as this process lives, if it has not imported it yet.

    Given its first Python number, Arrow imports pandas to know whether the number is a value of that: 0.2 s of CPU.
    Importing pandas still works; only ``to_pandas`` and ``from_pandas`` do not. For programs, never a library.
    Source: pyarrow 26 ``pandas-shim.pxi``, which looks once.
    """
    if "pandas" in sys.modules:
        return
    import pyarrow as pa

    with _left_out("pandas"):
        pa.scalar(0)


def _unusable(error: Exception) -> OptionError:
    return OptionError(
        "a worker process cannot load the task",
        found=f"{type(error).__name__}: {error}",
        hint="What it is made of must be in modules that can be imported, not in __main__",
    ).with_traceback(error.__traceback__)


def _portable(error: BaseException) -> tuple[bytes, str, bool]:
    """An error pickled, or what it says as a ``SegreaderError``; its traceback; whether another attempt may do better.

    The traceback is without its causes: those are of clients, which tell more in their texts than we show.
    """
    text = "".join(traceback.format_exception(error, chain=False))
    try:
        pickled = pickle.dumps(error, protocol=5)
        is_whole = isinstance(pickle.loads(pickled), Exception)  # neither SystemExit nor KeyboardInterrupt
    except Exception:
        is_whole = False
    if not is_whole:
        pickled = pickle.dumps(SegreaderError(f"{type(error).__qualname__}: {error}"), protocol=5)
    return pickled, text, may_pass(error)
