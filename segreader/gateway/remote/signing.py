"""Signed URLs of single objects, for clients that were found to have the right to read: made when asked for.

A URL is a secret: it is in no log, metric or audit line. One is used again for as long as more than half of its life
is left; that spares signatures, and says nothing about who may have it.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import field
from typing import Protocol
from urllib.parse import quote

from segreader.errors import LocationExpiredError, OptionError, StorageError
from segreader.gateway.config import GatewayConfig
from segreader.gateway.metrics import GatewayMetrics
from segreader.storage.base import ObjectStore
from segreader.storage.cloud.signing import BucketStore, SigningUrls
from segreader.storage.signed_url import SignedUrl
from segreader.values import dataclass

_CACHED = 50_000


@dataclass(frozen=True, slots=True)
class ObjectAccess:
    """What a client gets to know of an object.

    Args:
        name: unsigned, such as ``s3://bucket/key``; ``None`` where it would mean nothing to others.
        url: signed; ``None`` where the store cannot sign.
        expiry_ms: of the URL, in ms since 1970 UTC.
    """

    name: str | None
    url: str | None = field(default=None, repr=False)
    expiry_ms: int | None = None


class Signer(Protocol):
    """What signs one object."""

    def access(self, name: str) -> ObjectAccess:
        """How others may read the object.

        Raises:
            StorageError: it cannot be signed now.
        """

    def at_hand(self, name: str) -> ObjectAccess | None:
        """The same if that takes no time, ``None`` if something must be computed or asked for."""


class _KeptAccess:
    """What was made for objects, each until half of its life is over. For several threads."""

    def __init__(self, life_s: int, clock: Callable[[], float]) -> None:
        self._life_s = life_s
        self._clock = clock
        self._lock = threading.Lock()
        self._made: OrderedDict[str, tuple[ObjectAccess, float]] = OrderedDict()

    def get(self, name: str) -> ObjectAccess | None:
        with self._lock:
            access, end = self._made.get(name, (None, 0.0))
        return None if end - self._clock() <= self._life_s / 2 else access

    def put(self, name: str, access: ObjectAccess, end: float) -> ObjectAccess:
        with self._lock:
            self._made[name] = (access, end)
            while len(self._made) > _CACHED:
                self._made.popitem(last=False)
        return access


class BucketSigner:
    """Signs with the gateway's own credentials for a bucket.

    Args:
        store: the bucket.
        life_s: how long a URL lives; never longer than the credentials.
        gives_names: whether the unsigned name is given, too.
        clock: seconds since 1970 UTC.
    """

    def __init__(
        self,
        store: BucketStore,
        *,
        life_s: int,
        gives_names: bool,
        metrics: GatewayMetrics,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._signing: SigningUrls = store.signing_for(life_s, clock=clock)
        if why := self._signing.bucket.opens_more():
            raise OptionError(f"no locations can be given: {why}", hint=self._signing.bucket.hint())
        self._store = store
        self._life_s = life_s
        self._gives_names = gives_names
        self._metrics = metrics
        self._clock = clock
        self._kept = _KeptAccess(life_s, clock)
        self.at_hand = self._kept.get

    def access(self, name: str) -> ObjectAccess:
        """A URL with more than half of its life left, and when it ends.

        Raises:
            StorageError: the credentials cannot be used; LocationExpiredError: they have ended.
        """
        if (known := self.at_hand(name)) is not None:
            return known
        now = self._clock()
        url = self._signing.url_for(name)
        end = self._end(url, now)
        if end - now <= self._life_s / 2:  # the credentials end soon: there may be new ones
            url = self._signing.refresh(name)
            end = self._end(url, now)
        if end <= now:
            raise LocationExpiredError("the credentials have ended", source=self._store.url(name))
        self._metrics.signed += 1
        shown = self._store.url(name) if self._gives_names else None
        return self._kept.put(name, ObjectAccess(shown, url.reveal(), int(end * 1000)), end)

    def _end(self, url: SignedUrl, now: float) -> float:
        """When the URL ends; one without a signature, of a public bucket, gets an end all the same."""
        end = now + self._life_s
        return end if url.expires_at is None else min(url.expires_at, end)


class BaseUrlSigner:
    """URLs without a signature below one prefix: for a directory that a web server shows to those who may see it."""

    def __init__(self, base: str, *, life_s: int, clock: Callable[[], float] = time.time) -> None:
        self._base = base.rstrip("/")
        self._life_s = life_s
        self._clock = clock
        self._kept = _KeptAccess(life_s, clock)

    def access(self, name: str) -> ObjectAccess:
        """The object's URL; the same one for half of its life, so that a location is encoded once."""
        if (known := self._kept.get(name)) is not None:
            return known
        end = self._clock() + self._life_s
        return self._kept.put(name, ObjectAccess(None, f"{self._base}/{quote(name)}", int(end * 1000)), end)

    at_hand = access


class NameSigner:
    """No URL at all: for clients with rights of their own at a store that cannot sign here."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def access(self, name: str) -> ObjectAccess:
        """The object's unsigned name."""
        return ObjectAccess(self._store.url(name))

    at_hand = access


def make_signer(config: GatewayConfig, store: ObjectStore, prefix: str, metrics: GatewayMetrics) -> Signer:
    """The signer for a configured location.

    Args:
        prefix: of the location's names in the store; ``url_base`` replaces it.

    Raises:
        OptionError: this store's objects cannot be handed out.
    """
    if config.url_base is not None:
        return _Below(BaseUrlSigner(config.url_base, life_s=config.sign_for_s), prefix)
    if isinstance(store, BucketStore):
        return BucketSigner(store, life_s=config.sign_for_s, gives_names=config.gives_object_names, metrics=metrics)
    if config.gives_object_names and "://" in config.location and not config.location.startswith(("file:", "local:")):
        return NameSigner(store)
    raise OptionError(
        "readers could not use this gateway's locations: this location has no signed URLs",
        source=store.url(prefix),
        hint="Use S3, Azure with an account key, or Google with a service account's key; for tests there is url_base",
    )


class _Below:
    """A signer of names below a prefix, which its own URLs do not have."""

    def __init__(self, signer: Signer, prefix: str) -> None:
        self._signer, self._prefix = signer, prefix

    def access(self, name: str) -> ObjectAccess:
        if not name.startswith(self._prefix):
            raise StorageError("the object is outside the location", source=name)
        return self._signer.access(name.removeprefix(self._prefix))

    at_hand = access
