"""The URL of each object: kept while it lives, renewed early, and once for all threads when it is refused."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Protocol

from segreader.errors import LocationExpiredError, SegreaderError, StorageError
from segreader.storage.base import ObjectInfo
from segreader.storage.metrics import StorageMetrics
from segreader.storage.retry import Clock
from segreader.storage.signed_url import SignedUrl
from segreader.values import dataclass

EARLY = 0.8
"""The part of a URL's life after which the next one is fetched."""


class UrlProvider(Protocol):
    """Where the URLs of a store's objects come from. Called from many threads."""

    def url_for(self, name: str) -> SignedUrl:
        """A URL for GET requests of the object.

        Raises:
            ObjectNotFoundError: no object of that name is known.
        """

    def refresh(self, name: str) -> SignedUrl:
        """Another URL for the same object, after the last one was refused or grew old.

        Raises:
            LocationExpiredError: nothing at hand makes one.
        """

    def names(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """The objects whose names begin with ``prefix``, with their sizes, in order of name."""


@dataclass(frozen=True, slots=True, eq=False)
class Lease:
    """One URL for a while; leases are compared by identity.

    ``due_at`` is when the next one should be fetched, seconds since 1970 UTC; ``None``: not before it is refused.
    """

    url: SignedUrl
    due_at: float | None


class _Entry:
    __slots__ = ("lease", "lock", "refusal")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.lease: Lease | None = None
        self.refusal: SegreaderError | None = None


class UrlLeases:
    """One lease per object name."""

    def __init__(self, urls: UrlProvider, *, clock: Clock, metrics: StorageMetrics) -> None:
        self._urls = urls
        self._clock = clock
        self._metrics = metrics
        self._entries: dict[str, _Entry] = {}

    def get(self, name: str) -> Lease:
        """The current URL of the object, renewed after 80 % of its life.

        Raises:
            as ``UrlProvider.url_for``.
        """
        entry = self._entries.setdefault(name, _Entry())
        lease = entry.lease
        if lease is not None and (lease.due_at is None or self._clock.now() < lease.due_at):
            return lease
        with entry.lock:
            if entry.lease is None:
                entry.lease = self._lease(self._ask(name, is_first=True), None)
            elif entry.lease.due_at is not None and self._clock.now() >= entry.lease.due_at:
                try:
                    fresh = self._ask(name)
                except SegreaderError:  # the old one may still work; if not, the store refuses it
                    entry.lease = Lease(entry.lease.url, None)
                else:
                    entry.lease = self._lease(fresh, entry.lease.url)
            return entry.lease

    def renew(self, name: str, refused: Lease) -> Lease:
        """Another lease than the one that was refused: whichever thread comes first fetches it for all.

        Raises:
            SegreaderError: the provider has none; every thread that holds the refused lease gets the same error.
        """
        entry = self._entries[name]
        with entry.lock:
            if entry.lease is not None and entry.lease.url is not refused.url:
                return entry.lease
            if entry.refusal is None:
                try:
                    entry.lease = self._lease(self._ask(name), refused.url)
                    return entry.lease
                except SegreaderError as error:
                    entry.refusal = error
            refusal = entry.refusal
        raise refusal

    def forget(self) -> None:
        """Drop all leases; none may be in use."""
        self._entries.clear()

    def has_expired(self, lease: Lease) -> bool:
        """Whether the URL's own time is over."""
        return lease.url.expires_at is not None and lease.url.expires_at <= self._clock.now()

    def _ask(self, name: str, *, is_first: bool = False) -> SignedUrl:
        failure: SegreaderError
        try:
            if is_first:
                return self._urls.url_for(name)
            self._metrics.add(refreshes=1)
            return self._urls.refresh(name)
        except SegreaderError as error:
            failure = error
        except Exception as error:  # a client library's error may hold the credential it failed with
            kind = StorageError if is_first else LocationExpiredError
            failure = kind("no URL could be obtained for the object", source=name, found=type(error).__name__)
        failure.__cause__ = failure.__context__ = None
        raise failure

    def _lease(self, url: SignedUrl, former: SignedUrl | None) -> Lease:
        """A lease of the URL. One that lives no longer than the former is not fetched early again and again."""
        if url.expires_at is None:
            return Lease(url, None)
        if former is not None and former.expires_at is not None and url.expires_at <= former.expires_at:
            return Lease(url, None)
        now = self._clock.now()
        return Lease(url, now + EARLY * (url.expires_at - now))
