"""Small objects, whole: indexes, snapshots, checkpoints; many of them at once where a store is far away."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from segreader.ranges import ByteRange
from segreader.storage.base import ObjectStore

_AT_ONCE: Final = 16

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def read_whole(store: ObjectStore, name: str, size: int | None = None) -> bytes:
    """All bytes of an object. ``size`` saves asking for it."""
    if size is None:
        size = store.size(name)
    return store.read_ranges(name, [ByteRange(0, size)])[0] if size else b""


def read_each(read: Callable[[_Item], _Result], items: Sequence[_Item]) -> list[_Result]:
    """``read`` of every item, in their order, several at a time; the first error in that order is raised."""
    if len(items) < 3:
        return [read(item) for item in items]
    answers: dict[int, _Result] = {}
    failures: dict[int, BaseException] = {}
    places = iter(range(len(items)))

    def work() -> None:
        while not failures and (at := next(places, None)) is not None:
            try:
                answers[at] = read(items[at])
            except BaseException as error:
                failures[at] = error

    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="segreader-small") as workers:
        try:  # every worker takes the next item: a future for each would cost more than reading it from memory
            for worker in [workers.submit(work) for _ in range(min(_AT_ONCE, len(items)))]:
                worker.result()
        except BaseException as error:
            failures[len(items)] = error  # so that the others end
            raise
    if failures:
        raise failures[min(failures)]
    return [answers[at] for at in range(len(items))]
