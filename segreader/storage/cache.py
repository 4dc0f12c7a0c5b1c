"""Small immutable objects on the local disk, so that the next process need not fetch them: off unless it is asked for.

An entry belongs to one version of one object: its key is a digest of the object's URL without a query, its name, size,
time and tag as they were listed (of a local file: its size, time of change and inode), and the ranges that were read.
It is kept only if the bytes are those of that version, and is checked by a digest of its own when it is read. So an
object that was overwritten has other keys, and a damaged entry counts as none.

Entries are files of their own, written beside their place and renamed, so several processes may share a directory.
"""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Final

from segreader.errors import OptionError
from segreader.ranges import ByteRange
from segreader.storage.base import ObjectInfo, ObjectStore, StoreView

DIRECTORY: Final = "SEGREADER_CACHE"
LIMIT: Final = "SEGREADER_CACHE_BYTES"

DEFAULT_LIMIT: Final = 1 << 30
_FORM: Final = b"segreader cache 1\n"
_OWN: Final = "segreader-1"
"""Below the directory that is given, which may hold other things and have other rights."""

_DIGEST_SIZE: Final = 16
_LARGEST: Final = 512 << 10
"""Bytes of an entry. What is larger costs its transfer, not its request."""

_DIRECTORIES: Final = 256
_LOOKS: Final = 8
"""Of 256 entries that are written, how many look at the size of their directory."""

_SHARE_LEFT: Final = 0.75
_BLOCK: Final = 4096
_UNUSED_S: Final = 24 * 3600
"""An entry that is read is marked as used once in so long."""

_MOST_KNOWN: Final = 1 << 18
"""Objects whose listed versions are remembered, the last ones: a plan reads what it has just listed."""

_log = logging.getLogger(__name__)


class DiskCache:
    """Bytes by key in a directory. What cannot be read is not there, and what cannot be written is not kept.

    Args:
        place: the directory; it is made, with what is below it, for this user alone.
        limit: bytes of all entries, in blocks of the disk. The ones that were not used for longest go first.
    """

    def __init__(self, place: str | os.PathLike[str], limit: int = DEFAULT_LIMIT) -> None:
        self._place, self._limit = Path(place).expanduser(), limit
        self._root = self._place / _OWN
        self._is_open: bool | None = None
        self._notes = ["%s: %s cannot be used, so nothing is kept: %s"]  # each is taken out by one thread

    def get(self, key: bytes) -> bytes | None:
        """What was put there; ``None`` if it is not there, or damaged."""
        if not self._opened():
            return None
        path = self._path(key)
        try:
            with open(path, "rb", buffering=0) as file:
                status = os.fstat(file.fileno())
                data = file.read(_LARGEST + len(_FORM) + _DIGEST_SIZE + 1)
            if time.time() - status.st_mtime > _UNUSED_S:
                os.utime(path)
        except OSError:
            return None
        begin = _FORM + _digest(key, data[len(_FORM) + _DIGEST_SIZE :])
        return data[len(begin) :] if data.startswith(begin) else None

    def put(self, key: bytes, data: bytes) -> None:
        """Keep some bytes, in place of what is there."""
        if len(data) > _LARGEST or not self._opened():
            return
        path = self._path(key)
        try:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            file, written = tempfile.mkstemp(dir=path.parent)  # for this user alone
            try:
                with open(file, "wb", buffering=0) as out:
                    out.write(_FORM + _digest(key, data) + data)
                os.replace(written, path)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(written)
                raise
            if key[1] < _LOOKS:
                self._evict(path.parent)
        except OSError as error:
            self._give_up(str(error.strerror or error))

    def _path(self, key: bytes) -> Path:
        text = key.hex()
        return self._root / text[:2] / text[2:]

    def _opened(self) -> bool:
        """Whether there is a directory of our own, which no one else can write to."""
        if self._is_open is None:
            try:
                self._place.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._root.mkdir(mode=0o700, exist_ok=True)
                status = os.lstat(self._root)
                is_own = not hasattr(os, "geteuid") or (status.st_uid == os.geteuid() and not status.st_mode & 0o077)
                if not is_own:
                    self._give_up("it is not this user's alone (mode 0700)")
                elif self._is_open is None:
                    self._is_open = True
            except OSError as error:
                self._give_up(str(error.strerror or error))
        return bool(self._is_open)

    def _give_up(self, reason: str) -> None:
        self._is_open = False
        with contextlib.suppress(IndexError):
            _log.warning(self._notes.pop(), DIRECTORY, self._root, reason)

    def _evict(self, directory: Path) -> None:
        """Remove the entries of a directory that were not used for longest, if it has more than its share."""
        sizes = []
        with os.scandir(directory) as entries:
            for one in entries:
                with contextlib.suppress(FileNotFoundError):  # another thread has renamed or removed it just now
                    status = one.stat()
                    sizes.append((status.st_mtime, -(-status.st_size // _BLOCK) * _BLOCK, one.path))
        total, most = sum(size for _, size, _ in sizes), self._limit // _DIRECTORIES
        if total <= most:
            return
        for _, size, path in sorted(sizes):
            if total <= _SHARE_LEFT * most:
                return
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            total -= size


class CachingStore(StoreView):
    """A store of which small objects are kept on the disk once they were read.

    Args:
        store: lists tags, and can compare one with what it has read (``has_tag``), or gives the identity of files.
        cache: where they are kept.
        keeps: whether objects of this name never change and hold no records.
    """

    def __init__(self, store: ObjectStore, cache: DiskCache, keeps: Callable[[str], bool]) -> None:
        super().__init__(store)
        self._cache, self._keeps = cache, keeps
        self._known: dict[str, ObjectInfo] = {}

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Every object whose name begins so; the versions of those that may be kept are remembered."""
        return self._learn(self.inner.list(prefix))

    def list_level(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Objects and directories of one level, likewise."""
        return self._learn(self.inner.list_level(prefix))

    def size(self, name: str) -> int:
        """Bytes of the object; as it was listed if it is kept as a whole."""
        if (known := self._known.get(name)) is not None:
            key = self._key(name, [ByteRange(0, known.size)])
            if key is not None and self._cache.get(key) is not None:
                return known.size
        return self.inner.size(name)

    def read_ranges(self, name: str, ranges: Sequence[ByteRange]) -> Sequence[bytes]:
        """The bytes of each range, in the order asked for: from the disk if they are kept."""
        if (key := self._key(name, ranges)) is None:
            return self.inner.read_ranges(name, ranges)
        if (data := self._cache.get(key)) is not None and len(data) == sum(wanted.size for wanted in ranges):
            return _cut(data, ranges)
        known = self._known.get(name)
        read = self.inner.read_ranges(name, ranges)
        if self._key(name, ranges) == key and self._is_listed(name, known):
            self._cache.put(key, b"".join(read))
        return read

    def _learn(self, infos: Iterator[ObjectInfo]) -> Iterator[ObjectInfo]:
        for info in infos:
            if info.size > 0 and info.tag is not None and self._keeps(info.name):
                self._known[info.name] = info
                if len(self._known) > _MOST_KNOWN:
                    with contextlib.suppress(KeyError, RuntimeError):  # another thread does it, too
                        del self._known[next(iter(self._known))]
            yield info

    def _key(self, name: str, ranges: Sequence[ByteRange]) -> bytes | None:
        """The key of some ranges of the version that was listed; ``None`` if they are not to be kept."""
        known = self._known.get(name)
        if known is None or not ranges or any(wanted.stop > known.size for wanted in ranges):
            return None
        version = f"{known.size} {known.modified_ms} {known.tag}"
        if (identity := getattr(self.inner, "identity", None)) is not None:
            if (of_file := identity(name)) is None:
                return None
            version += f" {of_file}"
        spans = ",".join(f"{wanted.start}-{wanted.stop}" for wanted in ranges)
        return _digest(
            *(text.encode("utf-8", "surrogatepass") for text in (self.inner.url(name), name, version, spans))
        )

    def _is_listed(self, name: str, known: ObjectInfo | None) -> bool:
        """Whether what was read is the version that was listed."""
        if known is None or known.tag is None:
            return False
        has_tag = getattr(self.inner, "has_tag", None)
        return has_tag is not None and bool(has_tag(name, known.tag))


def with_cache(store: ObjectStore, keeps: Callable[[str], bool]) -> ObjectStore:
    """The store, with the cache that the environment names: ``SEGREADER_CACHE``, and ``SEGREADER_CACHE_BYTES``.

    Raises:
        OptionError: the limit is no number.
    """
    place = os.environ.get(DIRECTORY, "").strip()
    if not place:
        return store
    text = os.environ.get(LIMIT, "").strip() or str(DEFAULT_LIMIT)
    if not text.isascii() or not text.isdigit() or not int(text):
        raise OptionError(f"{LIMIT} must be a positive number", found=repr(text))
    return CachingStore(store, DiskCache(place, int(text)), keeps)


def _digest(*parts: bytes) -> bytes:
    """Of several texts; where one ends and the next one begins counts."""
    digest = blake2b(digest_size=_DIGEST_SIZE)
    for part in parts:
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.digest()


def _cut(data: bytes, ranges: Sequence[ByteRange]) -> list[bytes]:
    out, start = [], 0
    for wanted in ranges:
        out.append(data[start : start + wanted.size])
        start += wanted.size
    return out
