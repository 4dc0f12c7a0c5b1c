"""What a Python worker keeps from one task to the next: clients of stores and brokers, imports that are not collected.

Spark gives a worker one task after another, of any query. To open a bucket takes requests for its region and for
credentials, and handshakes; to open a target, the proof that it keeps its conditions; to ask brokers, a login. So
clients are kept, by their place and by what they were opened with. What a client knows of objects is not: by the next
task they may be others.
"""

from __future__ import annotations

import gc
import os
import sys
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cache
from threading import Lock
from typing import Final, Generic, Protocol, TypeVar

from segreader.live.cluster import KafkaCluster
from segreader.spark.brokers import Brokers
from segreader.storage.base import ObjectStore
from segreader.storage.http.settings import HttpSettings
from segreader.storage.http.store import HttpStore
from segreader.storage.location import open_store
from segreader.storage.target.store import TargetStore, open_target
from segreader.storage.view import StoreView, VirtualFile
from segreader.values import collect_seldom

MOST_STORES: Final = 8
MOST_TARGETS: Final = 4
MOST_CLUSTERS: Final = 4
IN_FLIGHT: Final = 4
"""Ranges that a task has under way: half of what a read of its own has, for an executor runs several tasks."""


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

        One whose block ends with an error is closed: who tries again shall not meet it. Nobody's client is closed
        before its last block has ended.

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
        if isinstance(self.store, HttpStore):
            self.store.forget()


class LentStore(StoreView):
    """A store that stays open when its borrower closes it."""

    def open(self, name: str) -> VirtualFile | None:
        """All files are those of the store."""
        return None

    def close(self) -> None:
        """Whoever lent it does that."""


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
