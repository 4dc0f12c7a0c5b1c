"""Ends waits for a store from another thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from queue import SimpleQueue
from threading import RLock
from typing import TypeVar

from segreader.errors import StorageError

Result = TypeVar("Result")


class Cancellation:
    """What a thread's reads wait for, so that another thread can end these waits."""

    def __init__(self) -> None:
        self.is_cancelled = False
        self._lock = RLock()
        self._calls: dict[object, Callable[[], object]] = {}

    @property
    def is_awaited(self) -> bool:
        """Whether a wait that can be ended is under way."""
        return bool(self._calls)

    def cancel(self) -> None:
        """End all waits that are under way, and those that begin from now on."""
        with self._lock:
            self.is_cancelled = True
            calls = list(self._calls.values())
        for call in calls:
            call()

    @contextmanager
    def covers(self) -> Iterator[None]:
        """For the time of the block, waits of this thread belong to this cancellation."""
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)

    @contextmanager
    def ends(self, call: Callable[[], object]) -> Iterator[None]:
        """For the time of the block, ``cancel`` makes this call, which ends what the block waits for."""
        key = object()
        with self._lock:
            self._calls[key] = call
            is_late = self.is_cancelled
        try:
            if is_late:
                call()
            yield
        finally:
            with self._lock:
                del self._calls[key]


class WaitEnded(StorageError):
    """The reader of the bytes is gone. Nothing but the thread that waited for them sees it."""


_current: ContextVar[Cancellation | None] = ContextVar("segreader_cancellation", default=None)


@contextmanager
def cancellable(call: Callable[[], object]) -> Iterator[None]:
    """For the time of the block, the cancellation of this thread, if there is one, makes the call."""
    current = _current.get()
    if current is None:
        yield
        return
    with current.ends(call):
        yield


def require_wanted() -> None:
    """Go on only while this thread's work is wanted: between steps that are not waits.

    Raises:
        WaitEnded: its cancellation was called.
    """
    current = _current.get()
    if current is not None and current.is_cancelled:
        raise WaitEnded("the read was ended")


def left_alone() -> AbstractContextManager[None]:
    """For the time of the block, this thread waits for something that nothing ends: a cancellation goes on without."""
    return cancellable(lambda: None)


def result_of(future: Future[Result]) -> Result:
    """The result of a future.

    Raises:
        WaitEnded: the wait was cancelled. And what the future raises.
    """
    if not future.done():
        ended: SimpleQueue[object] = SimpleQueue()
        future.add_done_callback(ended.put)
        with cancellable(lambda: ended.put(None)):
            ended.get()
        if not future.done():
            raise WaitEnded("the read was ended")
    return future.result()
