"""A listing that goes on where one object keeps its segment from being understood, such as a cut manifest."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from segreader.catalog.layouts.base import Layout, PartitionPlace
from segreader.catalog.listing import PartitionLog, read_place
from segreader.errors import CatalogError, ManifestError, SegreaderError
from segreader.evidence.codes import Code
from segreader.evidence.findings import Findings
from segreader.storage.base import ObjectInfo, ObjectStore
from segreader.storage.view import StoreView

_MOST_BROKEN: Final = 32
_OFFSET: Final = re.compile("[0-9]{20}")


@dataclass(frozen=True, slots=True)
class Readable:
    """What can be understood of one partition.

    Args:
        log: its segments, without those that cannot be; ``None`` if it cannot be listed.
        hidden: base offsets of those, as far as their names tell.
    """

    log: PartitionLog | None
    hidden: frozenset[int] = frozenset()


def read_around(found: Findings, store: ObjectStore, place: PartitionPlace, layouts: Sequence[Layout]) -> Readable:
    """The segments of one partition without those that cannot be understood, each of which is noted."""
    hiding = _HidingStore(store)
    for _ in range(_MOST_BROKEN):
        try:
            return Readable(read_place(hiding, place, layouts), hiding.offsets)
        except SegreaderError as error:
            found.add_error(error, place.prefixes[0], code=_code_of(error))
            if error.source is None or not hiding.hide(error.source):
                break
    return Readable(None)


def _code_of(error: SegreaderError) -> Code | None:
    """An object that has not the size that a manifest says is not itself a broken manifest."""
    if isinstance(error, ManifestError) and not (error.source or "").endswith("manifest"):
        return Code.MANIFEST_MISMATCH
    return Code.BAD_MANIFEST if isinstance(error, CatalogError) else None


class _HidingStore(StoreView):
    """A store whose listings pass over some segments."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self._stems: set[str] = set()

    def open(self, name: str) -> None:
        """It has no other meaning."""

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """As the store below, without the hidden segments."""
        return (info for info in self.inner.list(prefix) if not self._is_hidden(info.name))

    def list_level(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """As the store below, without the hidden segments."""
        return (info for info in self.inner.list_level(prefix) if not self._is_hidden(info.name))

    def hide(self, url: str) -> bool:
        """Pass over the segment that the object of this URL belongs to; ``False`` if it is hidden already."""
        stem = _stem(url)
        if stem in self._stems:
            return False
        self._stems.add(stem)
        return True

    @property
    def offsets(self) -> frozenset[int]:
        """Base offsets of the hidden segments."""
        named = (_OFFSET.match(stem.rpartition("/")[2]) for stem in self._stems)
        return frozenset(int(match[0]) for match in named if match)

    def _is_hidden(self, name: str) -> bool:
        return bool(self._stems) and _stem(self.inner.url(name)) in self._stems


def _stem(url: str) -> str:
    directory, slash, file = url.rpartition("/")
    return directory + slash + file.partition(".")[0]
