"""The objects of a loopback server as a store: what a signer and a listing are to a bucket."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from segreader.catalog.layouts.local_tiered import LocalTieredLayout
from segreader.catalog.layouts.log_directory import LogDirectoryLayout
from segreader.catalog.listing import EVERYTHING, Wanted, list_places, read_place
from segreader.errors import LocationExpiredError
from segreader.storage.base import ObjectInfo, ObjectStore
from segreader.storage.http.settings import HttpSettings
from segreader.storage.http.store import HttpStore
from segreader.storage.metrics import StorageMetrics
from segreader.storage.signed_url import SignedUrl
from segreader.stored.source import SourceLog, Wants


class Urls:
    """URLs below ``endpoint``.

    Args:
        root: the directory that is served, for listing.
        query: how the server shall behave.
    """

    def __init__(self, endpoint: str, root: Path | None = None, query: str = "signature=none") -> None:
        self.endpoint, self.root, self.query = endpoint, root, query

    def text(self, name: str) -> str:
        return f"{self.endpoint}/{quote(name)}?{self.query}"

    def url_for(self, name: str) -> SignedUrl:
        return SignedUrl(self.text(name))

    def refresh(self, name: str) -> SignedUrl:
        raise LocationExpiredError("nothing renews it", source=name)

    def names(self, prefix: str = "") -> Iterator[ObjectInfo]:
        if self.root is not None:
            for path in sorted(self.root.rglob("*")):
                if path.is_file():
                    yield ObjectInfo(path.relative_to(self.root).as_posix(), path.stat().st_size)


def open_store(urls: Urls, **settings: Any) -> HttpStore:
    """A store with the usual settings but those given, over plain http, that keeps a request log."""
    return HttpStore(urls, settings=HttpSettings(allow_http=True, **settings), metrics=StorageMetrics(keep_log=True))


class ListedSource:
    """Where a ``Scan`` reads: the partitions that a listing of ``urls`` shows below ``prefix``, as in a bucket."""

    def __init__(self, urls: Urls, prefix: str) -> None:
        self.store: ObjectStore = open_store(urls)
        self.shown = self.prefix = prefix

    def logs(self, wanted: Wanted = EVERYTHING, wants: Wants | None = None) -> Iterator[SourceLog]:
        layouts = (LocalTieredLayout(), LogDirectoryLayout())
        for place in list_places(self.store, self.prefix, layouts, wanted):
            if wants is None or wants(place.partition):
                yield SourceLog(read_place(self.store, place, layouts))
