"""A list of presigned URLs as a store, one URL for each object."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import islice
from urllib.parse import SplitResult, unquote, urlsplit

from segreader.errors import LocationExpiredError, ObjectNotFoundError, OptionError
from segreader.storage.base import ObjectInfo, level_of
from segreader.storage.http.settings import HttpSettings
from segreader.storage.http.store import HttpStore
from segreader.storage.signed_url import SignedUrl, redact

Renew = Callable[[str], str]
"""Takes a URL that has expired, gives one for the same object that has not."""

_SIZED = ".log"
_AT_ONCE = 8
_PAGE = 1000


class UrlList:
    """The URLs of a list by the names of their objects: host and path, without the query.

    Args:
        urls: http or https URLs, in any order.
        renew: called with the old URL when one has expired; without it an expired URL is an error.

    Raises:
        OptionError: a text is no URL, or two URLs name one object.
    """

    def __init__(self, urls: Iterable[str | SignedUrl], renew: Renew | None = None) -> None:
        self._renew = renew
        self._urls: dict[str, SignedUrl] = {}
        for url in urls:
            signed = url if isinstance(url, SignedUrl) else SignedUrl(url)
            name = _name(signed)
            if name in self._urls:
                raise OptionError("two URLs name one object", found=name, hint="Give each object once")
            self._urls[name] = signed
        if not self._urls:
            raise OptionError("the list of URLs is empty", expected="one URL a line, of segments and their indexes")

    def names(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """The objects in order of name. A list has no sizes; the store looks up those of logs."""
        return (ObjectInfo(name, -1) for name in sorted(self._urls) if name.startswith(prefix))

    def url_for(self, name: str) -> SignedUrl:
        """The URL as it is known now."""
        try:
            return self._urls[name]
        except KeyError:
            raise ObjectNotFoundError("no URL of the list names this object", source=name) from None

    def refresh(self, name: str) -> SignedUrl:
        """A new URL for an object whose URL has expired.

        Raises:
            LocationExpiredError: nothing was given that renews URLs.
        """
        if self._renew is None:
            raise LocationExpiredError(
                "the URL has expired or was never allowed",
                source=str(self.url_for(name)),
                hint="Make a new list of URLs, or pass a function that renews them",
            )
        self._urls[name] = SignedUrl(self._renew(self.url_for(name).reveal()))
        return self._urls[name]


class UrlListStore(HttpStore):
    """The objects of a ``UrlList``; sizes and tags of logs alone are looked up when they are listed, each once."""

    def __init__(self, urls: UrlList, *, settings: HttpSettings) -> None:
        super().__init__(urls, settings=settings)
        self._list = urls
        self._known: dict[str, tuple[int, str | None]] = {}

    def url(self, name: str) -> str:
        """The URL without its query string; the name itself if it is not in the list."""
        try:
            return super().url(name)
        except ObjectNotFoundError:
            return name

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """The objects of the list, in order of name. Only logs have sizes."""
        return self._sized(self._list.names(prefix))

    def list_level(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Objects of one level and the directories that names of the list imply; sizes as in ``list``."""
        return self._sized(level_of(self._list.names(prefix), prefix))

    def _sized(self, infos: Iterator[ObjectInfo]) -> Iterator[ObjectInfo]:
        with ThreadPoolExecutor(_AT_ONCE) as workers:
            while page := list(islice(infos, _PAGE)):
                logs = [info.name for info in page if info.name.endswith(_SIZED)]
                unknown = [name for name in logs if name not in self._known]
                self._known.update(zip(unknown, workers.map(self._look_up, unknown), strict=True))
                for info in page:
                    size, tag = self._known.get(info.name, (-1, None))
                    yield replace(info, size=size, tag=tag)

    def _look_up(self, name: str) -> tuple[int, str | None]:
        """Size and tag of an object, by one request for both."""
        return self.size(name), self.tag(name)

    def forget(self) -> None:
        """As ``HttpStore.forget``; sizes and tags are looked up anew."""
        super().forget()
        self._known.clear()


def split_url(text: str) -> SplitResult:
    """The parts of a URL.

    Raises:
        OptionError: it is none.
    """
    try:
        return urlsplit(text)
    except ValueError:
        raise OptionError("not a URL", found=redact(text), expected="https://host/path?signature") from None


def _name(url: SignedUrl) -> str:
    parts = split_url(url.redacted)
    if parts.scheme not in ("http", "https") or not parts.netloc or parts.path in ("", "/"):
        raise OptionError("not the URL of an object", found=str(url), expected="https://host/path?signature")
    return parts.netloc + unquote(parts.path)
