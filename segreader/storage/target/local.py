"""A directory as a target: files are written under hidden names, synced to disk, and renamed in one step."""

from __future__ import annotations

import errno
import io
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TYPE_CHECKING, BinaryIO, Final

from segreader.errors import AccessDeniedError, ObjectNotFoundError, StorageError
from segreader.storage.base import ObjectInfo
from segreader.storage.local import LocalStore
from segreader.storage.signed_url import redact
from segreader.storage.target.names import checked, finished_name, is_unfinished, unfinished_name

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer

_BUFFER = 256 << 10
_TRIES = 3
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}


class LocalTarget:
    """Files below one directory, which is made with the first of them.

    A file is written beside its place, under a hidden name, and is on the disk before it takes its own. A writer that
    was killed leaves the hidden one; ``list`` does not show it, and ``forget_unfinished`` removes it.

    Args:
        root: the directory.
    """

    has_atomic_move = True

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self._root = os.path.abspath(root)

    def __repr__(self) -> str:
        return f"LocalTarget({redact(self._root)!r})"

    def url(self, name: str) -> str:
        """The file's path."""
        return redact(os.path.join(self._root, name))

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """Write a file if there is none; whether the one that is there holds our bytes.

        The link to its name is what one writer alone can make. A file server may have made it, lost the answer, and
        refuse the second try: what is there decides.
        """
        for _ in range(_TRIES):
            if (is_ours := self._linked(name, data)) is not None:
                return is_ours
        return self.read(name) == data

    def _linked(self, name: str, data: bytes) -> bool | None:
        """``None`` if the hidden file went before it had its name: a driver that ends a job forgets such files."""
        path = self._path(name)
        with self._translated(name), self._unfinished(path, name) as (part, file):
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            try:
                os.link(part, path)
            except FileExistsError:
                return self.read(name) == data
            except FileNotFoundError:
                return self.read(name) == data if os.path.exists(path) else None
            except OSError as error:
                if error.errno in _NO_LINKS:
                    raise self._without_links(name, error) from error
                raise
            with suppress(FileNotFoundError):
                os.unlink(part)  # at once: whoever is killed from here on leaves nothing
            _sync_directory(os.path.dirname(path))
            return True

    def put(self, name: str, data: bytes) -> None:
        """Write a file at once; one that is there is replaced."""
        with self.create(name) as file:
            file.write(data)

    def read(self, name: str) -> bytes:
        """All bytes of a file."""
        path = self._path(name)
        with self._translated(name), open(path, "rb") as file:
            return file.read()

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Every finished file whose name begins with ``prefix``, in order of name."""
        if not os.path.isdir(self._root):
            return
        for info in LocalStore(self._root).list(prefix):
            if not is_unfinished(info.name):
                yield info

    @contextmanager
    def create(self, name: str) -> Iterator[BinaryIO]:
        """A file that takes its name, on the disk, when the block has ended without an error."""
        path = self._path(name)
        with self._unfinished(path, name) as (part, file):
            # The bytes are synced through a descriptor of our own: a writer of Parquet may have closed the file.
            with self._translated(name):
                descriptor = os.dup(file.fileno())
            try:
                yield file
                with self._translated(name):
                    if not file.closed:
                        file.flush()
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)
            with self._translated(name):
                os.replace(part, path)
                _sync_directory(os.path.dirname(path))

    def move(self, source: str, target: str) -> None:
        """Rename a file; done already if only ``target`` is there."""
        old, new = self._path(source), self._path(target)
        with self._translated(source):
            os.makedirs(os.path.dirname(new), exist_ok=True)
            try:
                os.replace(old, new)
            except FileNotFoundError:
                if not os.path.isfile(new):
                    raise
                return
            _sync_directory(os.path.dirname(new))
            with suppress(FileNotFoundError):  # another driver, for whom all is moved, may have pruned it
                _sync_directory(os.path.dirname(old))

    def delete(self, names: Iterable[str]) -> None:
        """Remove files; one that is not there is removed already. Directories stay."""
        for name in names:
            path = self._path(name)
            with self._translated(name), suppress(FileNotFoundError, NotADirectoryError):
                os.unlink(path)

    def forget_unfinished(self, is_left: Callable[[str], bool]) -> int:
        """Remove the hidden files of writers that were killed."""
        if not os.path.isdir(self._root):
            return 0
        left = 0
        for info in LocalStore(self._root).list():
            name = finished_name(info.name)
            if name is not None and is_left(name):
                with self._translated(info.name), suppress(FileNotFoundError):
                    os.unlink(os.path.join(self._root, info.name))
                    left += 1
        return left

    def prune(self, directory: str) -> None:
        """Remove a directory and those in it, as far as they are empty."""
        for place, _, _ in os.walk(self._path(directory.rstrip("/")), topdown=False):
            with suppress(OSError):
                os.rmdir(place)

    def close(self) -> None:
        """Nothing is held."""

    def _path(self, name: str) -> str:
        return os.path.join(self._root, checked(name))

    @contextmanager
    def _unfinished(self, path: str, name: str) -> Iterator[tuple[str, BinaryIO]]:
        """A hidden file beside ``path``, and its path; gone after the block if it did not take another name."""
        part = os.path.join(os.path.dirname(path), unfinished_name(name))
        with self._translated(name):
            file = io.BufferedWriter(_made(part, self.url(name)), _BUFFER)
        try:
            yield part, file
        finally:
            # What is still buffered is not worth an error of its own: it was synced, or is not wanted.
            with suppress(OSError):
                file.close()
            with suppress(OSError):
                os.unlink(part)

    def _translated(self, name: str) -> AbstractContextManager[None]:
        return _translated(self.url(name))

    def _without_links(self, name: str, error: OSError) -> StorageError:
        return StorageError(
            f"this file system makes no hard links ({error.strerror}), so the first of two writers cannot be known",
            source=self.url(name),
            hint="Give a directory of a local disk or NFS as the target, or the bucket itself by its URL",
        )


def _made(path: str, source: str) -> _File:
    """A new file, and the directories above it, which another process may just be pruning."""
    for _ in range(_TRIES):
        with suppress(FileNotFoundError):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            return _File(path, source)
    return _File(path, source)


class _File(io.FileIO):
    """A new file; a full disk raises one of our errors, whichever library writes."""

    def __init__(self, path: str, source: str) -> None:
        super().__init__(path, "xb")
        self._source = source

    def write(self, data: Buffer, /) -> int:
        with _translated(self._source):
            return super().write(data) or 0


@contextmanager
def _translated(source: str) -> Iterator[None]:
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        raise _storage_error(error, source) from error


_AGAIN: Final = "run it again: what is finished stays"


def _storage_error(error: OSError, source: str) -> StorageError:
    reason = error.strerror or str(error)
    there = _nearest(error.filename if isinstance(error.filename, str) else source)
    shown = redact(there)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        what = "the disk is full" if error.errno == errno.ENOSPC else "the quota of this user on the disk is used up"
        hint = f"Make room there, or give a target on another disk, then {_AGAIN}"
        return StorageError(f"{what} ({reason})", source=source, found=_room(there), hint=hint)
    if error.errno == errno.EFBIG:
        what = f"a file may not grow as large as this one ({reason})"
        return StorageError(what, source=source, hint=f"Raise the limit (ulimit -f unlimited), then {_AGAIN}")
    if error.errno == errno.EROFS:
        hint = f"Mount it for writing, or give another target, then {_AGAIN}"
        return AccessDeniedError(f"the file system is read-only: {shown}", source=source, hint=hint)
    if isinstance(error, PermissionError):
        hint = f"Give this user the right to write there, or give another target, then {_AGAIN}"
        return AccessDeniedError(f"no right to it ({reason})", source=source, found=_rights(there), hint=hint)
    if isinstance(error, NotADirectoryError | FileExistsError):
        hint = "Give another directory as the target, or move that file away"
        return StorageError("a file is where a directory should be", source=source, found=shown, hint=hint)
    if isinstance(error, FileNotFoundError | IsADirectoryError):
        return ObjectNotFoundError("no such file", source=source, hint="Check whether the target is the right one")
    return StorageError(
        f"the disk or file server failed ({reason})", source=source, hint=f"Check that it works, then {_AGAIN}"
    )


def _nearest(path: str) -> str:
    """The path itself, or the first directory or file above it that is there."""
    while not os.path.lexists(path) and (above := os.path.dirname(path)) != path:
        path = above
    return path


def _room(path: str) -> str | None:
    """How much of its file system is free, for a person; ``None`` where it does not say."""
    try:
        system = os.statvfs(path)
    except OSError:
        return None
    free, size = (count * system.f_frsize >> 10 for count in (system.f_bavail, system.f_blocks))
    return f"{free:,} KiB free of {size:,} KiB" + ("" if system.f_favail or not system.f_files else ", no inode free")


def _rights(path: str) -> str | None:
    """Who owns what refuses, and who asks."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    mode = stat.filemode(status.st_mode)
    return f"{redact(path)} {mode} of user {status.st_uid}, this is user {os.geteuid()}"


def _sync_directory(path: str) -> None:
    """Bring the names in a directory to the disk; a file system that cannot has nothing to bring."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)
