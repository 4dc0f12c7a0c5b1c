"""URLs that this process signs with the user's own credentials, one for each object of a bucket.

fsspec's filesystems find the credentials and list; a signature is computed here, without a request. What differs
between S3, Azure and Google is in one class each, and nothing else of them is known outside.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, NoReturn, Protocol
from urllib.parse import quote

from segreader.errors import LocationExpiredError
from segreader.storage.base import ObjectInfo
from segreader.storage.cloud.failure import translated
from segreader.storage.cloud.pages import Pages, azure_pages, entries, google_pages, s3_pages
from segreader.storage.http.settings import HttpSettings
from segreader.storage.http.store import HttpStore
from segreader.storage.metrics import StorageMetrics
from segreader.storage.signed_url import SignedUrl

LIFE_S = 3600
"""Seconds that a signature is made for; it lives shorter where the credentials do."""

_RECONNECT_AFTER_S = 10.0


class Bucket(Protocol):
    """One bucket or container: what is in it, and URLs that read it."""

    base: str
    """How it is shown, with ``/`` at the end: ``s3://bucket/``."""
    headers: Mapping[str, str]
    """Headers that the signature covers, or that the store wants besides."""

    def pages(self, prefix: str, *, is_level: bool = False) -> Pages:
        """The objects whose names begin so, in order of name, as the store's pages come; or one level of them."""

    def sign(self, name: str, life_s: int) -> str:
        """A URL that reads the object for so many seconds."""

    def credentials_end(self) -> float | None:
        """Seconds since 1970 UTC at which the credentials stop working, where that is known."""

    def find_credentials(self) -> None:
        """Look for new credentials where they were found before."""

    def opens_more(self) -> str | None:
        """Why a URL must not be handed to others: it opens more than one object, or needs more than itself."""

    def hint(self) -> str:
        """What to set when the store refuses."""


class SigningUrls:
    """Signed URLs of one bucket's objects: a ``UrlProvider``.

    Args:
        bucket: whose.
        life_s: seconds that a signature is made for.
        clock: seconds since 1970 UTC.
    """

    def __init__(self, bucket: Bucket, *, life_s: int = LIFE_S, clock: Callable[[], float] = time.time) -> None:
        self.bucket = bucket
        self._life_s = life_s
        self._clock = clock
        self._lock = threading.Lock()
        self._found_at = float("-inf")

    def __repr__(self) -> str:
        return f"SigningUrls({self.bucket.base!r})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a store holds credentials and is not pickled; open the location where it is read")

    def names(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """The objects whose names begin so, in order of name; a page of the listing at a time."""
        return self._entries(prefix, self.bucket.pages(prefix))

    def level(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Objects and directories of one level; a page of the listing at a time."""
        return self._entries(prefix, self.bucket.pages(prefix, is_level=True))

    def _entries(self, prefix: str, pages: Pages) -> Iterator[ObjectInfo]:
        base, hint = self.bucket.base, self.bucket.hint()
        return entries(pages, lambda: translated(base + prefix, hint, listed=base))

    def url_for(self, name: str) -> SignedUrl:
        """A URL that reads the object; it dies with its signature or with the credentials, whichever is first."""
        with translated(self.bucket.base + name, self.bucket.hint()):
            url = SignedUrl(self.bucket.sign(name, self._life_s))
            end = self.bucket.credentials_end()
        if end is not None and (url.expires_at is None or end < url.expires_at):
            return SignedUrl(url.reveal(), end)
        return url

    def refresh(self, name: str) -> SignedUrl:
        """Another URL for the object, with credentials that are looked for anew: at most every ten seconds.

        Raises:
            LocationExpiredError: the credentials have ended and no others are found.
        """
        with self._lock, translated(self.bucket.base + name, self.bucket.hint()):
            if self._clock() - self._found_at >= _RECONNECT_AFTER_S:
                self.bucket.find_credentials()
                self._found_at = self._clock()
        url = self.url_for(name)
        if url.expires_at is not None and url.expires_at <= self._clock():
            raise LocationExpiredError(
                "the credentials have ended, and no others are found",
                source=self.bucket.base + name,
                hint=self.bucket.hint(),
            )
        return url


class BucketStore(HttpStore):
    """The objects of a bucket, listed with the user's credentials and read by URLs that they sign.

    Whether the URLs are http, and where they lead, is what the user configured and is not judged here.
    """

    def __init__(
        self, bucket: Bucket, *, settings: HttpSettings | None = None, metrics: StorageMetrics | None = None
    ) -> None:
        settings = replace(settings or HttpSettings(), allow_http=True, policy=None)
        settings = replace(settings, extra_headers={**settings.extra_headers, **bucket.headers})
        self._signing = SigningUrls(bucket)
        super().__init__(self._signing, settings=settings, metrics=metrics)

    def __repr__(self) -> str:
        return f"BucketStore({self._signing.bucket.base!r})"

    def signing_for(self, life_s: int, *, clock: Callable[[], float] = time.time) -> SigningUrls:
        """URLs of the same bucket that live for so many seconds, to be handed to others."""
        return SigningUrls(self._signing.bucket, life_s=life_s, clock=clock)

    def url(self, name: str) -> str:
        """The object as people name it: ``s3://bucket/key``."""
        return self._signing.bucket.base + name

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """The objects whose names begin so, in order of name; a page of the listing at a time."""
        return self._signing.names(prefix)

    def list_level(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Objects and directories of one level; nothing deeper or beside it is listed."""
        return self._signing.level(prefix)


def s3_session(profile: str | None) -> Any:
    """A session of AWS's client, which has found no credentials yet.

    All of a process share what botocore knows of services, which takes 0.1 s of CPU to read.
    """
    from aiobotocore.session import AioSession
    from botocore.exceptions import BotoCoreError

    session = AioSession(profile=profile)
    with contextlib.suppress(BotoCoreError):  # connecting raises it
        session.register_component("data_loader", _descriptions_in(session.get_config_variable("data_path")))
    return session


@lru_cache(maxsize=4)
def _descriptions_in(place: str | None) -> Any:
    from botocore.loaders import create_loader

    return create_loader(place)


class S3Bucket:
    """A bucket of S3 or of an S3-compatible store, through s3fs."""

    def __init__(self, filesystem: Any, bucket: str) -> None:
        self.base = f"s3://{bucket}/"
        self.headers: Mapping[str, str] = {"x-amz-request-payer": "requester"} if filesystem.req_kw else {}
        self._filesystem = filesystem
        self._bucket = bucket

    def pages(self, prefix: str, *, is_level: bool = False) -> Pages:
        """Pages of ``ListObjectsV2``."""
        return s3_pages(self._filesystem, self._bucket, prefix, is_level=is_level)

    def sign(self, name: str, life_s: int) -> str:
        """A presigned ``GetObject``; of an anonymous bucket, the plain URL."""
        filesystem, path = self._filesystem, f"{self._bucket}/{name}"
        is_connected = getattr(filesystem, "_s3", None) is not None  # then a signature needs no request, nor its thread
        if is_connected and (url := _at_once(filesystem._url(path, expires=life_s, **filesystem.req_kw))) is not None:
            return url
        return str(filesystem.sign(path, expiration=life_s, **filesystem.req_kw))

    def credentials_end(self) -> float | None:
        """The end of a role's or an instance's session; a key pair has none."""
        signer = getattr(getattr(self._filesystem, "_s3", None), "_request_signer", None)
        end = getattr(getattr(signer, "_credentials", None), "_expiry_time", None)
        return end.timestamp() if end is not None else None

    def find_credentials(self) -> None:
        """Read files, variables and the instance's service again, unless a key was given by hand."""
        if self._filesystem.key is None and not self._filesystem.anon:
            self._filesystem.session = s3_session(self._filesystem.kwargs.get("profile"))
            self._filesystem.connect(refresh=True)

    def opens_more(self) -> str | None:
        """Readers of a requester-pays bucket must send a header, and pay."""
        return "a bucket whose readers pay wants a header besides the URL" if self.headers else None

    def hint(self) -> str:
        """Which options name the credentials."""
        return (
            "Set key and secret (and token) or profile in storage_options (--storage-option key=…), or the variables "
            "that AWS clients read; anon=true for a public bucket. The rights needed are s3:GetObject and s3:ListBucket"
        )


def _at_once(coroutine: Coroutine[Any, Any, str]) -> str | None:
    """What a coroutine gives without waiting for anything; ``None`` if it would wait, or fails."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return str(done.value)
    except Exception:
        return None
    finally:
        coroutine.close()
    return None


class AzureContainer:
    """A container of Azure Blob storage, through adlfs: by account key, by shared access signature, or public."""

    def __init__(self, filesystem: Any, container: str) -> None:
        self.base = f"abfs://{container}/"
        self.headers: Mapping[str, str] = {}
        self._filesystem = filesystem
        self._container = container
        given = _connection_parts(filesystem.connection_string)
        if not given and filesystem.credential is None:
            given = {"accountkey": filesystem.account_key, "sharedaccesssignature": filesystem.sas_token}
        self._key = given.get("accountkey")
        self._sas = given.get("sharedaccesssignature")

    @classmethod
    def of(cls, filesystem: Any, container: str) -> AzureContainer | None:
        """The container, if its URLs can be made without a request: not with a token of Entra ID."""
        found = cls(filesystem, container)
        return found if found._key or found._sas or filesystem.anon else None

    def pages(self, prefix: str, *, is_level: bool = False) -> Pages:
        """Pages of ``List Blobs``."""
        return azure_pages(self._filesystem, self._container, prefix, is_level=is_level)

    def sign(self, name: str, life_s: int) -> str:
        """A URL with a signature for this blob; with the container's or account's one where only that is known."""
        if self._key:
            url: str = self._filesystem.sign(f"{self._container}/{name}", expiration=life_s)
            return url
        client = self._filesystem.service_client.get_blob_client(self._container, name)
        plain = str(client.url).partition("?")[0]
        return f"{plain}?{self._sas.lstrip('?')}" if self._sas else plain

    def credentials_end(self) -> float | None:
        """Keys have no end; that of a shared access signature is in the URL."""
        return None

    def find_credentials(self) -> None:
        """A key signs again; nothing renews a shared access signature."""

    def opens_more(self) -> str | None:
        """A shared access signature of the whole container opens the whole container."""
        return None if self._key or not self._sas else "the shared access signature opens more than one blob"

    def hint(self) -> str:
        """Which options name the credentials."""
        return (
            "Set account_name with account_key or sas_token, or connection_string, in storage_options "
            "(--storage-option account_name=…); anon=true for a public container. A shared access signature needs the "
            "rights to read and to list"
        )


class GoogleBucket:
    """A bucket of Google Cloud Storage, through gcsfs: by a service account's key, or public."""

    def __init__(self, filesystem: Any, bucket: str) -> None:
        self.base = f"gs://{bucket}/"
        self.headers: Mapping[str, str] = {}
        self._filesystem = filesystem
        self._bucket = bucket

    @classmethod
    def of(cls, filesystem: Any, bucket: str) -> GoogleBucket | None:
        """The bucket, if its URLs can be made without a request: only a service account's own key signs here."""
        credentials = filesystem.credentials
        can_sign = credentials.token == "anon" or hasattr(credentials.credentials, "_signer")
        return cls(filesystem, bucket) if can_sign else None

    def pages(self, prefix: str, *, is_level: bool = False) -> Pages:
        """Pages of ``objects.list``."""
        return google_pages(self._filesystem, self._bucket, prefix, is_level=is_level)

    def sign(self, name: str, life_s: int) -> str:
        """A V4 signed URL; of a public bucket, the plain URL."""
        if self._filesystem.credentials.token == "anon":
            return f"{self._filesystem._location}/{self._bucket}/{quote(name, safe='/~')}"
        more: dict[str, object] = {}
        if payer := self._filesystem.requester_pays:
            more["query_parameters"] = {"userProject": payer if isinstance(payer, str) else self._filesystem.project}
        url: str = self._filesystem.sign(f"{self._bucket}/{name}", expiration=life_s, version="v4", **more)
        return url

    def credentials_end(self) -> float | None:
        """A service account's key has no end that could be known here."""
        return None

    def find_credentials(self) -> None:
        """The key that was given is all there is; it signs again."""

    def opens_more(self) -> str | None:
        """A signed URL opens one object."""
        return None

    def hint(self) -> str:
        """Which options name the credentials."""
        return (
            "Set token to a service account's key file in storage_options (--storage-option token=…), or "
            "GOOGLE_APPLICATION_CREDENTIALS; token='anon' for a public bucket. The rights needed are "
            "storage.objects.get and storage.objects.list"
        )


def _connection_parts(text: str | None) -> dict[str, str | None]:
    pairs = (part.partition("=") for part in (text or "").split(";") if part)
    return {name.strip().lower(): value for name, _, value in pairs}
