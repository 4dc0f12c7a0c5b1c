"""Files of a local directory as a store."""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from segreader.errors import (
    AccessDeniedError,
    ObjectNotFoundError,
    ShortReadError,
    StorageError,
)
from segreader.ranges import ByteRange, PieceBuffer
from segreader.storage.base import ObjectInfo, replaced, walk_levels

PIECE_SIZE = 1 << 20
"""Bytes read at once: enough to amortise a system call, small enough to stay in the processor's cache."""

_TICK_NS = 2_000_000_000
"""FAT's clock ticks every two seconds."""


class LocalStore:
    """The files below one directory; names are paths relative to it, with ``/``.

    Args:
        root: the directory.

    Raises:
        ObjectNotFoundError: it is not there.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root)
        if not self.root.is_dir():
            raise ObjectNotFoundError(
                "no such directory",
                source=str(root),
                hint="Give a directory that holds segments, or one above it",
            )

    def url(self, name: str) -> str:
        """The file's path."""
        return str(self.root / name)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Every file below the root whose name begins with ``prefix``, in order of name; one level is held at a time.

        A link to a directory that the path has already come through is left out, in ``list_level`` too.
        """
        return walk_levels(self.list_level, prefix)

    def list_level(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Files and directories of one level, in order of name. A directory that is not there holds nothing."""
        directory, slash, begin = prefix.rpartition("/")
        if slash and not {"", ".", ".."}.isdisjoint(directory.split("/")):
            return
        parent = directory + slash
        try:
            with os.scandir(self.root / directory) as entries:
                found = [entry for entry in entries if entry.name.startswith(begin)]
            found.sort(key=_listed_name)
            for entry in found:  # its size is read when its turn comes, so a look at a few names costs only those
                if (info := self._info(entry, parent)) is not None:
                    yield info
        except (FileNotFoundError, NotADirectoryError) as error:
            if not slash:
                raise _storage_error(error, str(self.root)) from error
        except OSError as error:
            raise _storage_error(error, self.url(directory)) from error
        except ValueError:  # no file can have such a name: it holds a zero byte
            return

    def _info(self, entry: os.DirEntry[str], parent: str) -> ObjectInfo | None:
        """What one entry is; ``None`` for what is neither file nor directory, is gone, or leads back up."""
        name = parent + entry.name
        try:
            if entry.is_file():
                status = entry.stat()
                return ObjectInfo(name, status.st_size, status.st_mtime_ns // 1_000_000, _tag(status))
            if entry.is_dir():
                is_loop = entry.is_symlink() and self._comes_through(entry.stat(), parent)
                return None if is_loop else ObjectInfo(f"{name}/", -1)
        except FileNotFoundError:
            pass
        return None

    def _comes_through(self, directory: os.stat_result, parent: str) -> bool:
        parts = parent.split("/")[:-1]
        return any(
            os.path.samestat(directory, (self.root / "/".join(parts[:depth])).stat()) for depth in range(len(parts) + 1)
        )

    def size(self, name: str) -> int:
        """Bytes of the file."""
        try:
            return (self.root / name).stat().st_size
        except OSError as error:
            raise _storage_error(error, self.url(name)) from error

    def read_ranges(self, name: str, ranges: Sequence[ByteRange]) -> Sequence[bytes]:
        """The bytes of each range, in the order asked for."""
        out = []
        for wanted in ranges:
            buffer = bytearray(wanted.size)
            self.read_into(name, wanted.start, memoryview(buffer))
            out.append(bytes(buffer))
        return out

    def read_pieces(
        self, name: str, wanted: ByteRange, *, expected_size: int | None = None, expected_tag: str | None = None
    ) -> Generator[memoryview, None, None]:
        """The bytes of a range, a mebibyte at a time, in two buffers by turns; a deleted file is read to its end."""
        buffers = [PieceBuffer(min(PIECE_SIZE, wanted.size)) for _ in range(2)]
        with self._opened(name) as file:
            status = os.fstat(file)
            if expected_size is not None and status.st_size != expected_size:
                raise replaced(self.url(name), found=f"{status.st_size} bytes", expected=f"{expected_size} bytes")
            if expected_tag is not None and _tag(status) != expected_tag:
                raise replaced(self.url(name), found=_tag(status), expected=expected_tag)
            for turn, start in enumerate(range(wanted.start, wanted.stop, PIECE_SIZE)):
                piece = buffers[turn % 2].piece(min(PIECE_SIZE, wanted.stop - start))
                self._fill(file, name, start, piece)
                yield piece

    def has_tag(self, name: str, tag: str) -> bool:
        """Whether the file has this tag now."""
        try:
            return _tag(os.stat(self.root / name)) == tag
        except OSError:
            return False

    def identity(self, name: str) -> str | None:
        """What distinguishes a file from another of its name: inode, size and time of the last change.

        ``None`` if it was changed just now: a clock that ticks a few times a second would not show another change.
        """
        try:
            status = os.stat(self.root / name)
        except OSError:
            return None
        if abs(time.time_ns() - status.st_mtime_ns) < _TICK_NS:
            return None
        return f"{status.st_dev} {status.st_ino} {status.st_size} {status.st_mtime_ns}"

    def close(self) -> None:
        """Nothing is held."""

    def read_into(self, name: str, start: int, buffer: memoryview) -> None:
        """Fill ``buffer`` with the bytes from ``start`` on."""
        with self._opened(name) as file:
            self._fill(file, name, start, buffer)

    @contextmanager
    def _opened(self, name: str) -> Iterator[int]:
        try:
            file = os.open(self.root / name, os.O_RDONLY)
        except OSError as error:
            raise _storage_error(error, self.url(name)) from error
        try:
            yield file
        finally:
            os.close(file)

    def _fill(self, file: int, name: str, start: int, buffer: memoryview) -> None:
        done = 0
        while done < len(buffer):
            try:
                got = os.preadv(file, [buffer[done:]], start + done)
            except OSError as error:
                raise _storage_error(error, self.url(name)) from error
            if not got:
                raise ShortReadError(
                    "the file ends before the range does",
                    source=self.url(name),
                    position=start + done,
                    found=f"{done} bytes",
                    expected=f"{len(buffer)} bytes from byte {start}",
                    hint="It was cut while it was read; list the directory again",
                )
            done += got


def _listed_name(entry: os.DirEntry[str]) -> str:
    """The name by which an entry is listed, and sorted: a directory's ends with a slash."""
    return f"{entry.name}/" if entry.is_dir() else entry.name


def _tag(status: os.stat_result) -> str:
    """The time of the last change in nanoseconds: unlike the inode, copies and network mounts keep it."""
    return f"mtime:{status.st_mtime_ns}"


def _storage_error(error: OSError, source: str) -> StorageError:
    reason = error.strerror or str(error)
    if isinstance(error, FileNotFoundError):
        return ObjectNotFoundError(
            "no such file", source=source, hint="Retention may have removed it since it was listed"
        )
    if isinstance(error, PermissionError):
        return AccessDeniedError(reason, source=source, hint="Give this user the right to read it")
    return StorageError(reason, source=source)
