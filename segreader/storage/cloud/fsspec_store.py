"""Objects through fsspec's own reads, for stores that cannot sign a URL: ``memory:``, ``hdfs:`` and many others.

fsspec gives no tag with a range, so ``info`` checks before and after each read that the object is the same. Its own
buffered files, caches and range merging are not used.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import field, replace
from typing import Any, NoReturn

from segreader.errors import (
    ObjectChangedError,
    ObjectNotFoundError,
    ShortReadError,
)
from segreader.ranges import ByteRange
from segreader.storage.base import (
    ObjectInfo,
    RangeWindow,
    find_listed,
    level_of,
    replaced,
    require_inside,
    tag_of,
    walk_levels,
)
from segreader.storage.cancellation import left_alone, result_of
from segreader.storage.cloud.failure import translated
from segreader.storage.cloud.pages import entries, modified_ms, pages_of
from segreader.storage.signed_url import install_redaction, redact
from segreader.values import dataclass

PIECE_SIZE = 8 << 20
IN_FLIGHT = 4

_ETAGS = ("ETag", "etag", "e_tag")
_TAGS = (*_ETAGS, "generation", "md5", "content_md5", "checksum")
_TIMES = ("mtime", "modified", "last_modified", "LastModified", "updated", "modificationTime", "created")
_MODIFIED = ("mtime", "modified", "last_modified", "LastModified", "updated")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Identity:
    """What identifies an object among others that have taken its name."""

    size: int
    checked_by: str
    value: str | None
    tags: tuple[str, ...] = field(default=(), compare=False)


class FsspecStore:
    """The objects of one fsspec filesystem; a name is a path in it, without the leading ``/``.

    Args:
        filesystem: any fsspec filesystem; made for this store alone, for it holds credentials.
        base: how its root is shown, such as ``memory://``; never with a credential.
        root: the filesystem's own name of its root: ``/`` or nothing.
        piece_size: bytes of one request of ``read_pieces``.
        in_flight: requests at once.
    """

    def __init__(
        self,
        filesystem: Any,
        base: str,
        *,
        root: str = "",
        piece_size: int = PIECE_SIZE,
        in_flight: int = IN_FLIGHT,
    ) -> None:
        install_redaction()
        self._filesystem = filesystem
        self._base = redact(base)
        self._root = root
        self.range_size = piece_size
        self._in_flight = in_flight
        self._workers = ThreadPoolExecutor(in_flight, thread_name_prefix="segreader-fsspec")
        self._has_warned = False

    def __repr__(self) -> str:
        return f"FsspecStore({self._base!r})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a store holds credentials and is not pickled; open the location where it is read")

    def url(self, name: str) -> str:
        """The object's URL, without credentials."""
        return self._base + name

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Every object whose name begins with ``prefix``, in order of name.

        A page at a time from S3, Azure and Google; a level at a time where fsspec would walk from directory to
        directory; elsewhere fsspec lists all before the first.
        """
        if (pages := self._pages(prefix)) is not None:
            yield from pages
        elif _finds_at_once(type(self._filesystem)):
            directory = prefix.rpartition("/")[0]
            found = self._fresh(prefix, lambda: self._filesystem.find(self._root + directory, detail=True).values())
            yield from (info for info in self._infos(found, prefix) if not info.name.endswith("/"))
        else:
            yield from walk_levels(self.list_level, prefix)

    def list_level(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Objects and directories of one level, in order of name: by pages as ``list``, or by fsspec's ``ls``."""
        if (pages := self._pages(prefix, is_level=True)) is not None:
            yield from pages
            return
        directory = prefix.rpartition("/")[0]
        try:
            found = self._fresh(prefix, lambda: self._filesystem.ls(self._root + directory, detail=True))
        except ObjectNotFoundError:
            return  # a directory that is not there holds nothing
        yield from level_of(self._infos(found, prefix), prefix)

    def _pages(self, prefix: str, *, is_level: bool = False) -> Iterator[ObjectInfo] | None:
        list_pages = pages_of(self._filesystem)
        bucket, is_inside, key = (self._root + prefix).partition("/")
        if list_pages is None or not is_inside:
            return None
        return entries(
            (
                [replace(info, name=f"{bucket}/{info.name}".removeprefix(self._root)) for info in page]
                for page in list_pages(self._filesystem, bucket, key, is_level=is_level)
            ),
            lambda: translated(self.url(prefix), listed=self.url(bucket)),
        )

    def _fresh(self, prefix: str, listing: Callable[[], Iterable[Any]]) -> Iterable[Any]:
        """What fsspec lists now; its cache is left empty."""
        with translated(self.url(prefix)):
            try:
                self._filesystem.invalidate_cache()
                return listing()
            finally:
                self._filesystem.invalidate_cache()

    def _infos(self, found: Iterable[Any], prefix: str) -> Sequence[ObjectInfo]:
        """What begins with the prefix, in order of name; objects that mark directories are left out."""
        infos = []
        for info in found:
            name, kind = str(info["name"]).removeprefix(self._root), info.get("type")
            if kind == "directory" and (name := name.rstrip("/") + "/") not in ("/", prefix):
                infos.append(ObjectInfo(name, -1))
            elif kind == "file" and not name.endswith("/"):
                time = next((info[key] for key in _MODIFIED if info.get(key)), None)
                size = -1 if info.get("size") is None else int(info["size"])
                infos.append(ObjectInfo(name, size, modified_ms(time), next(_tags(info), None)))
        return sorted((info for info in infos if info.name.startswith(prefix)), key=lambda info: info.name)

    def size(self, name: str) -> int:
        """Bytes of the object."""
        return self._identify(name).size

    def has_tag(self, name: str, tag: str) -> bool:
        """Whether the object has this tag now."""
        return tag in self._identify(name).tags

    def read_ranges(self, name: str, ranges: Sequence[ByteRange]) -> Sequence[bytes]:
        """The bytes of each range, in the order asked for."""
        before = self._identify(name)
        for wanted in ranges:
            require_inside(self.url(name), wanted, before.size)
        out = [result_of(future) for future in [self._submit(name, wanted) for wanted in ranges]]
        self._require_same(name, before)
        return out

    def read_into(self, name: str, start: int, buffer: memoryview) -> None:
        """Fill ``buffer`` with the bytes from ``start`` on."""
        if len(buffer):
            (data,) = self.read_ranges(name, [ByteRange(start, start + len(buffer))])
            buffer[:] = data

    def read_pieces(
        self, name: str, wanted: ByteRange, *, expected_size: int | None = None, expected_tag: str | None = None
    ) -> Generator[memoryview, None, None]:
        """The bytes of a range; a piece is given when the object is known to have been the same after it was read."""
        before = self._identify(name)
        if expected_size is not None and before.size != expected_size:
            raise replaced(self.url(name), found=f"{before.size} bytes", expected=f"{expected_size} bytes")
        if expected_tag not in (None, *before.tags) and not find_listed(self.list(name), name, expected_tag or ""):
            raise replaced(self.url(name), found=next(iter(before.tags), "no tag"), expected=expected_tag)
        require_inside(self.url(name), wanted, before.size)
        window = RangeWindow(self.range_size, self._in_flight + 1)  # with the piece in use
        starts = deque(range(wanted.start, wanted.stop, window.range_size))
        pending: deque[Future[bytes]] = deque()

        def begin() -> bool:
            if not starts or len(pending) >= self._in_flight or not window.take():
                return False
            start = starts.popleft()
            part = ByteRange(start, min(start + window.range_size, wanted.stop))
            pending.append(self._submit(name, part, before))
            return True

        try:
            while begin():
                pass
            while pending:
                piece = memoryview(result_of(pending.popleft()))
                begin()
                yield piece
                del piece
                window.give_back()
                while begin():
                    pass
        finally:
            window.close()
            for future in pending:
                future.cancel()

    def close(self) -> None:
        """End the threads; what they read is dropped."""
        self._workers.shutdown(wait=False, cancel_futures=True)

    def _submit(self, name: str, wanted: ByteRange, before: _Identity | None = None) -> Future[bytes]:
        return self._workers.submit(self._read, name, wanted, before)

    def _read(self, name: str, wanted: ByteRange, before: _Identity | None) -> bytes:
        with translated(self.url(name)):
            # By name: the second positional argument of s3fs is a version, not the start.
            data = self._filesystem.cat_file(self._root + name, start=wanted.start, end=wanted.stop)
        if len(data) != wanted.size:
            raise ShortReadError(
                "the store returned another number of bytes than requested",
                source=self.url(name),
                position=wanted.start,
                found=f"{len(data)} bytes",
                expected=f"{wanted.size} bytes",
            )
        if before is not None:
            self._require_same(name, before)
        return bytes(data)

    def _identify(self, name: str) -> _Identity:
        with translated(self.url(name)), left_alone():
            self._filesystem.invalidate_cache()
            info = self._filesystem.info(self._root + name)
        if info.get("type") == "directory" or info.get("size") is None:
            raise ObjectNotFoundError("no such object", source=self.url(name), found="a directory")
        for key in (*_TAGS, *_TIMES):
            if info.get(key):
                identity = _Identity(int(info["size"]), key, str(info[key]), tuple(_tags(info)))
                break
        else:
            identity = _Identity(int(info["size"]), "size", None)
        self._warn(identity.checked_by)
        return identity

    def _warn(self, checked_by: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            _log.warning(
                "%s: no signed URLs here, so bytes come through fsspec; that an object was not replaced is checked "
                "by its %s before and after each read, not with each range",
                self._base,
                "size" if checked_by == "size" else f"size and {checked_by}",
            )

    def _require_same(self, name: str, before: _Identity) -> None:
        after = self._identify(name)
        if after != before:
            raise ObjectChangedError(
                "the object was replaced while it was read",
                source=self.url(name),
                found=f"{after.size} bytes, {after.checked_by} {after.value}",
                expected=f"{before.size} bytes, {before.checked_by} {before.value}",
                hint="Read it again; what was read of it must not be used",
            )


def _tags(info: Mapping[str, Any]) -> Iterator[str]:
    """All tags that fsspec's description of an object holds, the most reliable one first."""
    for key in _TAGS:
        if (tag := tag_of("etag" if key in _ETAGS else key, info.get(key))) is not None:
            yield tag
    for key in _TIMES:  # one filesystem may list them as numbers and describe them as datetimes
        if info.get(key) and (time_ms := modified_ms(info[key])) is not None:
            yield f"{key}:{time_ms}"


def _finds_at_once(kind: type[Any]) -> bool:
    """Whether a filesystem can list everything itself; otherwise fsspec lists one directory after another."""
    from fsspec import AbstractFileSystem
    from fsspec.asyn import AsyncFileSystem

    walks = (AbstractFileSystem.find, AsyncFileSystem._find)
    return any(getattr(kind, name, walks[0]) not in walks for name in ("find", "_find"))
