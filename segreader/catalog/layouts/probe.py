"""Layouts that must ask the store because the names of one directory are not enough, and listings of many prefixes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Protocol, runtime_checkable

from segreader.catalog.layouts.base import Directory, PartitionPlace
from segreader.storage.base import ObjectInfo, ObjectStore

AT_ONCE: Final = 16
"""Requests under way while a catalogue is made."""

_MOST_PREFIXES: Final = 500
"""Above that many requests, one listing of everything costs less."""


@runtime_checkable
class ProbingLayout(Protocol):
    """A layout that has to ask the store before it knows which partitions a directory has."""

    def probe(self, store: ObjectStore, directory: Directory) -> Sequence[PartitionPlace]:
        """As ``places``, with the store at hand; what is below the directory belongs to the places it gives.

        A directory that certainly is none of this layout costs no request.
        """


def narrowest(directories: Collection[str], root: str) -> tuple[str, ...]:
    """Prefixes to list for the objects directly in ``directories``, all below ``root``: each one, or the root."""
    return tuple(sorted(directories)) if len(directories) <= _MOST_PREFIXES else (root,)


def list_prefixes(store: ObjectStore, prefixes: Sequence[str]) -> Iterator[ObjectInfo]:
    """What is directly in each of several directories, or anywhere below a single one."""
    if len(prefixes) == 1:
        yield from store.list(prefixes[0])
        return
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="segreader-list") as workers:
        for level in workers.map(lambda prefix: list(store.list_level(prefix)), prefixes):
            yield from (info for info in level if not info.name.endswith("/"))
