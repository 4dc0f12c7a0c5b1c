"""A listing that goes on where one object keeps its segment from being understood, such as a cut manifest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from segreader.catalog.layouts.base import Layout, PartitionPlace
from segreader.catalog.listing import PartitionLog, read_place
from segreader.errors import CatalogError, ManifestError, SegreaderError
from segreader.read.verify.codes import Code
from segreader.read.verify.findings import Findings
from segreader.storage.base import ObjectInfo, ObjectStore
from segreader.storage.view import StoreView

_MOST_BROKEN: Final = 32


def read_around(
    found: Findings, store: ObjectStore, place: PartitionPlace, layouts: Sequence[Layout]
) -> PartitionLog | None:
    """The segments of one partition without those that cannot be understood, each of which is noted.

    Returns:
        ``None`` if the partition cannot be listed.
    """
    hiding = _HidingStore(store)
    for _ in range(_MOST_BROKEN):
        try:
            return read_place(hiding, place, layouts)
        except SegreaderError as error:
            found.add_error(error, place.prefixes[0], code=_code_of(error))
            source = error.source
            if source is None or not hiding.hide(source):
                return None
    return None


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
        """It stands for nothing else."""

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

    def _is_hidden(self, name: str) -> bool:
        return bool(self._stems) and _stem(self.inner.url(name)) in self._stems


def _stem(url: str) -> str:
    directory, slash, file = url.rpartition("/")
    return directory + slash + file.partition(".")[0]
