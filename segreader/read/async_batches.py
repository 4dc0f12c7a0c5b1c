"""Record batches for asyncio: one thread reads, one batch ahead of whoever takes them.

Knows threads and event loops, and nothing of how records are read: the same synchronous reader is stepped.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Generic, TypeVar
from weakref import finalize

Item = TypeVar("Item")


async def iter_in_thread(make: Callable[[], Iterator[Item]]) -> AsyncGenerator[Item, None]:
    """What an iterator gives, from a thread of its own that is at most one step ahead of what was taken.

    The thread begins with the first item that is asked for, and closes the iterator when it ends: with the last item,
    at an error, when this generator is closed (``aclose``, or the end of its loop) or dropped, or when who waits for an
    item is cancelled. Only cancellation does not wait for the thread: a step may take as long as a store's time limit.

    Args:
        make: called in the thread; what it gives is used there alone.

    Raises:
        whatever the iterator raises, after the items before it.
    """
    reader = _Reader(make)
    try:
        while await reader.has_next():
            yield reader.take()
    except asyncio.CancelledError:
        reader.stop()
        raise
    finally:
        if not reader.is_stopped:
            await reader.end()


class _Steps(Generic[Item]):
    """What the thread and the event loop share. It does not know the reader, so that the reader can be garbage.

    There is one item at a time: the thread steps when it may, and may again when the item has been taken.
    """

    def __init__(self, make: Callable[[], Iterator[Item]]) -> None:
        self._make = make
        self.may_step: SimpleQueue[bool] = (
            SimpleQueue()
        )  # the one lock that a finalizer may use, whatever it interrupts
        self.lock = Lock()
        self.is_stopped = False
        self.is_over = False
        self.items: list[Item] = []
        self.error: BaseException | None = None
        self.waiter: asyncio.Future[None] | None = None

    def run(self) -> None:
        """The thread's work: step until there is nothing more, or nobody wants it."""
        items = self._stepped()
        error: BaseException | None = None
        try:
            while self.may_step.get() and not self.is_stopped:
                try:
                    item = next(items)
                except StopIteration:
                    break
                self._tell(item)
                del item  # who takes it is the only one who has it: its buffers come back when he lets go
        except BaseException as raised:  # it belongs to the task that reads, whatever it is
            error = raised
        finally:
            items.close()
            self._tell_end(None if self.is_stopped else error)
            del error

    def _stepped(self) -> Generator[Item, None, None]:
        yield from self._make()

    def _tell(self, item: Item) -> None:
        with self.lock:
            self.items.append(item)
            self._wake()

    def _tell_end(self, error: BaseException | None) -> None:
        with self.lock:
            if self.is_stopped:
                self.items.clear()
            self.is_over, self.error = True, error
            self._wake()

    def _wake(self) -> None:
        waiter, self.waiter = self.waiter, None
        if waiter is not None:
            try:
                waiter.get_loop().call_soon_threadsafe(_wake, waiter)
            except RuntimeError:  # that loop is closed, and whoever waited in it is gone
                return

    def stop(self) -> None:
        """Have the thread end after the step that it is in, and drop what nobody took."""
        self.is_stopped = True
        self.may_step.put(False)


class _Reader(Generic[Item]):
    """The event loop's side of a thread that reads; the thread ends when this is garbage."""

    def __init__(self, make: Callable[[], Iterator[Item]]) -> None:
        self._steps = _Steps(make)
        self._thread = Thread(target=self._steps.run, name="segreader-async", daemon=True)
        self._dropped = finalize(self, self._steps.stop)
        self._dropped.atexit = False
        self._has_begun = False

    @property
    def is_stopped(self) -> bool:
        """Whether the thread was told to end."""
        return self._steps.is_stopped

    async def has_next(self) -> bool:
        """Wait for an item; raises what the iterator raised."""
        if not self._has_begun:
            self._has_begun = True
            self._steps.may_step.put(True)
            self._thread.start()
        if not await self._told():
            await asyncio.sleep(0)  # items that lie ready all the time must not keep other tasks from running
        if self._steps.items:
            return True
        self._thread.join()  # it has said its last word
        error, self._steps.error = self._steps.error, None
        if error is not None:
            try:
                raise error
            finally:
                del error  # its traceback knows this frame
        return False

    def take(self) -> Item:
        """The item that is there; the thread goes on with the next one."""
        item = self._steps.items.pop()
        self._steps.may_step.put(True)
        return item

    def stop(self) -> None:
        """Have the thread end, without waiting for it."""
        self._dropped()

    async def end(self) -> None:
        """Have the thread end, and wait until it has closed the iterator."""
        self.stop()
        if self._has_begun and _is_in_loop():
            while not self._steps.is_over:
                await self._told()
            self._thread.join()

    async def _told(self) -> bool:
        """Wait until the thread has told something; whether that took any waiting."""
        steps = self._steps
        with steps.lock:
            if steps.items or steps.is_over:
                return False
            waiter = steps.waiter = asyncio.get_running_loop().create_future()
        await waiter
        return True


def _is_in_loop() -> bool:
    """Whether waiting is possible. When a program ends without closing its generators, they end in no loop; the thread
    may be frozen by then with the lock in its hands."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
