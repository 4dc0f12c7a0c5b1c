"""A few threads that decode in the background. A program that ends waits for none of them: a store may hang."""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue
from threading import Lock, Thread
from typing import TypeAlias
from weakref import finalize

Job: TypeAlias = Callable[[], None]


class Workers:
    """Does what it is given, in order. Its threads begin with the first jobs, and end when it is stopped or garbage.

    Args:
        count: at most so many threads.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()  # its put is all that a finalizer may do
        self._lock = Lock()
        self._threads: list[Thread] = []
        self._stop = finalize(self, self._jobs.put, None)
        self._stop.atexit = False

    def submit(self, job: Job) -> None:
        """Have a thread do it; it must not raise."""
        self._jobs.put(job)
        with self._lock:
            if len(self._threads) < self._count:
                thread = Thread(target=_work, args=(self._jobs,), name="segreader-loader", daemon=True)
                self._threads.append(thread)
                thread.start()

    def stop(self) -> None:
        """Have the threads end once they have done what they were given."""
        self._stop()


def _work(jobs: SimpleQueue[Job | None]) -> None:
    while (job := jobs.get()) is not None:
        job()
        del job  # who waits for the next one holds no reader
    jobs.put(None)  # for the other threads
