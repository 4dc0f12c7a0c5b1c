"""Record batches for asyncio: a thread reads, one batch ahead of the consumer (``read/ahead.py``)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import TypeVar

from segreader.read.ahead import Ahead, make_each

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
    ahead = Ahead([make], make_each, name="segreader-async")
    try:
        while found := await _next(ahead):
            yield found.pop()
    except asyncio.CancelledError:
        ahead.stop()
        raise
    finally:
        if not ahead.is_stopped:
            await _close(ahead)


async def _next(ahead: Ahead[Callable[[], Iterator[Item]], Item]) -> list[Item]:
    """As ``Ahead.next``."""
    has_waited = False
    while True:
        told = _Told()
        if (found := ahead.poll(told)) is not None:
            break
        await told.future
        has_waited = True
    if not has_waited:
        await asyncio.sleep(0)  # items that are ready all the time must not keep other tasks from running
    return found


async def _close(ahead: Ahead[Callable[[], Iterator[Item]], Item]) -> None:
    """End the thread, and wait until it has closed the iterator."""
    ahead.stop()
    if not _is_in_loop():
        return
    while not ahead.has_ended(told := _Told()):
        await told.future
    ahead.close()


class _Told:
    """Ends a wait in this event loop from any thread."""

    def __init__(self) -> None:
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def __call__(self) -> None:
        try:
            self.future.get_loop().call_soon_threadsafe(_end_wait, self.future)
        except RuntimeError:  # that loop is closed, and nothing waits in it
            return


def _is_in_loop() -> bool:
    """Whether waiting is possible. When a program ends without closing its generators, they end in no loop; the thread
    may be frozen by then with the lock in its hands."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _end_wait(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
