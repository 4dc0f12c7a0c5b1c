"""Spark's Python processes: what one keeps from one task to the next, and what it shows of an error.

Spark gives a worker one task after another, of any query. To open a bucket takes requests for its region and for
credentials, and handshakes; to open a target, the proof that it keeps its conditions; to ask brokers, a login. So
clients are kept, by their place and by what they were opened with. What a client knows of objects is not: by the next
task they may be others. Memory that batches are decoded into is kept, too: pages touched once are used again.

With ``spark.sql.execution.pyspark.udf.tracebackWithLocals.enabled`` (Spark 4.3) a Python worker writes the local
variables of every frame into the message of an error, and that goes to the driver, its event log and its pages. Values
of ours mask secrets; those of cloud clients and of users' providers do not. So errors leave without the frames below
(``without_locals``). What our errors know is in their text.
"""

from __future__ import annotations

import gc
import inspect
import logging
import os
import shutil
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cache, wraps
from pathlib import Path
from threading import Lock, local
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, Protocol, TypeVar, cast

from segreader.errors import OptionError
from segreader.format.columns import BufferPool
from segreader.format.kernel import load_kernel
from segreader.spark.credentials import Brokers
from segreader.storage.base import ObjectStore, StoreView
from segreader.storage.local import LocalStore
from segreader.storage.location import open_store
from segreader.storage.options import Kind, kind_of
from segreader.storage.target.store import TargetStore, open_target
from segreader.values import collect_seldom, dataclass

if TYPE_CHECKING:  # each client is imported when it is used: workers start faster
    from segreader.live.cluster import KafkaCluster

MOST_STORES: Final = 8
MOST_TARGETS: Final = 4
MOST_CLUSTERS: Final = 4
IN_FLIGHT: Final = 4
"""Ranges that a task has under way: half of what a read of its own has, for an executor runs several tasks."""

READ_BYTES: Final = 24 << 20
"""For batches that are let go of before the next one but one."""

_PYTHON: Final = "python3"
"""What Spark starts where nothing says another."""

SHOWS_LOCALS: Final = "SPARK_TRACEBACK_WITH_LOCALS"
"""The variable that Spark sets in the workers that do so. Source: PySpark 4.3 ``handle_worker_exception``."""

logger = logging.getLogger(__name__)

_P = ParamSpec("_P")
_R = TypeVar("_R")


class _Closable(Protocol):
    def close(self) -> None: ...


_Client = TypeVar("_Client", bound=_Closable)


@dataclass(slots=True)
class _Kept(Generic[_Client]):
    client: _Client
    opened_with: Hashable
    users: int = 0
    is_kept: bool = True


class Clients(Generic[_Client]):
    """Clients by place, lent for a while each. Of too many the one that was asked for least recently is closed.

    Args:
        most: how many are kept.
        on_rest: called with a client that is no longer used, and kept.
    """

    def __init__(self, most: int, on_rest: Callable[[_Client], None] = lambda client: None) -> None:
        self._most, self._on_rest = most, on_rest
        self._kept: OrderedDict[str, _Kept[_Client]] = OrderedDict()
        self._lock = Lock()

    def __repr__(self) -> str:
        return f"Clients({len(self._kept)} of {self._most})"

    def __len__(self) -> int:
        return len(self._kept)

    @contextmanager
    def lend(self, place: str, opened_with: Hashable, open_client: Callable[[], _Client]) -> Iterator[_Client]:
        """The client of a place for the time of the block, opened if none is kept that was opened with the same.

        A client whose block ends with an error is closed, so that a retry gets another; but never before the last block
        that uses it has ended.

        Args:
            place: only one client of each is kept.
            opened_with: what decides whether it serves; credentials, too.
        """
        kept = self._take(place, opened_with, open_client)
        is_good = False
        try:
            yield kept.client
            is_good = True
        except GeneratorExit:  # who reads wants no more
            is_good = True
            raise
        finally:
            self._give_back(place, kept, is_good)

    def _take(self, place: str, opened_with: Hashable, open_client: Callable[[], _Client]) -> _Kept[_Client]:
        with self._lock:
            kept = self._kept.get(place)
            if kept is None or kept.opened_with != opened_with:
                fresh = _Kept(open_client(), opened_with)
                self._drop(place)
                kept = self._kept[place] = fresh
                while len(self._kept) > self._most:
                    self._drop(next(iter(self._kept)))
            self._kept.move_to_end(place)
            kept.users += 1
            return kept

    def _give_back(self, place: str, kept: _Kept[_Client], is_good: bool) -> None:
        with self._lock:
            kept.users -= 1
            if not is_good and self._kept.get(place) is kept:
                self._drop(place)
            elif not kept.users:
                (self._on_rest if kept.is_kept else _close)(kept.client)

    def _drop(self, place: str) -> None:
        kept = self._kept.pop(place, None)
        if kept is not None:
            kept.is_kept = False
            if not kept.users:
                kept.client.close()


def _close(client: _Closable) -> None:
    client.close()


@dataclass(frozen=True, slots=True)
class OpenedStore:
    """A store, and what its names begin with at the location that it was opened for."""

    store: ObjectStore
    prefix: str

    def close(self) -> None:
        """Close the store."""
        self.store.close()

    def forget(self) -> None:
        """Know nothing of objects."""
        if isinstance(self.store, LocalStore):
            return
        from segreader.storage.http.store import HttpStore

        if isinstance(self.store, HttpStore):
            self.store.forget()


class LentStore(StoreView):
    """A store that stays open when its user closes it."""

    def close(self) -> None:
        """Nothing: the worker closes it."""


class Worker:
    """What one process keeps."""

    def __init__(self) -> None:
        self.stores = Clients(MOST_STORES, OpenedStore.forget)
        self.targets: Clients[TargetStore] = Clients(MOST_TARGETS)
        self.clusters: Clients[KafkaCluster] = Clients(MOST_CLUSTERS)

    @contextmanager
    def store(self, location: str, options: Mapping[str, object]) -> Iterator[tuple[ObjectStore, str]]:
        """What ``open_store`` gives, for the time of the block.

        Args:
            options: of the storage, with the credentials that hold now.
        """

        def open_now() -> OpenedStore:
            if kind_of(location) is Kind.LOCAL:
                return OpenedStore(*open_store(location, storage_options=options))
            from segreader.storage.http.settings import HttpSettings

            settings = HttpSettings(in_flight=IN_FLIGHT)
            return OpenedStore(*open_store(location, storage_options=options, settings=settings))

        with self.stores.lend(location, frozenset(options.items()), open_now) as opened:
            yield LentStore(opened.store), opened.prefix

    def target(self, location: str, options: Mapping[str, object]) -> AbstractContextManager[TargetStore]:
        """What ``open_target`` gives, for the time of the block."""
        return self.targets.lend(location, frozenset(options.items()), lambda: open_target(location, options))

    def cluster(self, brokers: Brokers) -> AbstractContextManager[KafkaCluster]:
        """A client of these brokers, for the time of the block, with the secrets that this process has now."""
        settings = brokers.resolve()
        return self.clusters.lend(brokers.servers, frozenset(settings.items()), lambda: brokers.connect(settings))


def this_worker() -> Worker:
    """That of this process. A forked child has one of its own: it neither uses nor closes its parent's sockets."""
    return _worker_of(os.getpid())


@cache
def _worker_of(process: int) -> Worker:
    return Worker()


@cache
def freeze_imports() -> None:
    """Once per worker: take what the imports made out of garbage collection.

    Spark collects after every task; with pyarrow loaded that costs 20 ms, with frozen imports 2. Asking how many
    objects are frozen costs 7, so the answer is remembered.
    """
    gc.collect()
    gc.freeze()


@cache
def prepare_to_plan() -> None:
    """Once per process: collect seldom, where Spark has started it to ask this source for its splits.

    A process of somebody else's, such as a test that asks the source itself, stays as it is.
    """
    program = getattr(sys.modules.get("__main__"), "__spec__", None)
    if program is not None and program.name.startswith("pyspark."):
        collect_seldom()


def choose_python(spark: Any) -> None:
    """Let a session on this machine start its workers with this Python, where nothing says which one.

    Spark takes ``PYSPARK_PYTHON`` when its context starts, or else ``python3`` of the path: often another one than that
    of a virtual environment, without this package. Source: PySpark 4.3 ``SparkContext._do_init``.

    Raises:
        OptionError: ``PYSPARK_PYTHON`` names a Python on this machine that has no segreader.
    """
    context = getattr(spark, "_sc", None)
    if context is None:  # of Spark Connect: the server starts them
        return
    if not context.master.startswith("local"):
        if context.pythonExec == _PYTHON and not _is_this(context.pythonExec):
            logger.warning(
                "executors start %s of their path, this program runs %s: set PYSPARK_PYTHON before the session starts",
                _PYTHON,
                sys.executable,
            )
    elif _is_this(context.pythonExec):
        return
    elif context.pythonExec == _PYTHON and not os.environ.get("PYSPARK_PYTHON"):
        chosen = context.getConf().get("spark.pyspark.python", sys.executable)
        os.environ["PYSPARK_PYTHON"] = context.pythonExec = chosen
    elif not _has_package(context.pythonExec):
        raise OptionError(
            f"PYSPARK_PYTHON={context.pythonExec} has no segreader, and Spark starts workers with it",
            hint=f"Install it there, or set PYSPARK_PYTHON={sys.executable} before the session starts",
        )


def _is_this(python: str) -> bool:
    """Whether a command starts the Python of this process; of two environments with one Python only one is."""
    found = shutil.which(python)
    if found is None:
        return False
    here, there = Path(sys.executable), Path(found)
    return here.parent == there.parent and here.resolve() == there.resolve()


@cache
def _has_package(python: str) -> bool:
    script = "import importlib.util as u, sys; sys.exit(not all(map(u.find_spec, ('segreader', 'pyarrow'))))"
    with suppress(OSError, subprocess.TimeoutExpired):
        return subprocess.run([python, "-c", script], capture_output=True, timeout=60).returncode == 0
    return False


class _PerThread(local):
    pool: BufferPool | None = None


_KEPT: Final = _PerThread()


def this_pool(max_bytes: int = READ_BYTES) -> BufferPool:
    """The pool of this thread, which keeps at most so many bytes from now on."""
    if _KEPT.pool is None:
        _KEPT.pool = BufferPool(allocate=load_kernel().allocate)
    _KEPT.pool.max_bytes = max_bytes
    return _KEPT.pool


def show_log() -> None:
    """Let this package's log lines reach stderr if logging is not set up: in Spark's Python processes."""
    package = logging.getLogger("segreader")
    if not package.hasHandlers():  # nor the root
        package.addHandler(logging.StreamHandler())
        package.setLevel(logging.INFO)


def without_locals(called: Callable[_P, _R]) -> Callable[_P, _R]:
    """The function that Spark calls, whose errors end their traceback here where Spark would show variables."""
    if inspect.isgeneratorfunction(called):

        @wraps(called)
        def generate(*args: _P.args, **kwargs: _P.kwargs) -> Iterator[Any]:
            try:
                yield from called(*args, **kwargs)
            except Exception as error:
                if not os.environ.get(SHOWS_LOCALS):
                    raise
                raise error.with_traceback(None) from None  # a context manager would put the traceback back

        return cast(Callable[_P, _R], generate)

    @wraps(called)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return called(*args, **kwargs)
        except Exception as error:
            if not os.environ.get(SHOWS_LOCALS):
                raise
            raise error.with_traceback(None) from None

    return call
