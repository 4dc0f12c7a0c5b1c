"""One level of a store that only knows whole names: the directories that names in order imply."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from segreader.storage.base import ObjectInfo


def level_of(listed: Iterable[ObjectInfo], prefix: str) -> Iterator[ObjectInfo]:
    """Objects and directories of ``list_level(prefix)``, from every object that begins with the prefix.

    Args:
        listed: objects in order of name, all of which begin with ``prefix``; they may be directories.
        prefix: of the level: ``"a/"``, or ``"a/b-"`` for a part of it.
    """
    last = None
    for info in listed:
        name, slash, _ = info.name[len(prefix) :].partition("/")
        if not slash:
            yield info
        elif (directory := f"{prefix}{name}/") != last:
            last = directory
            yield ObjectInfo(directory, -1)
