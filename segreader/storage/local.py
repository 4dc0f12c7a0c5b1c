"""Files of a local directory as a store."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from segreader.errors import (
    AccessDeniedError,
    ObjectChangedError,
    ObjectNotFoundError,
    ShortReadError,
    StorageError,
)
from segreader.ranges import ByteRange
from segreader.storage.base import ObjectInfo

PIECE_SIZE = 1 << 20
"""Bytes read at once: enough to amortise a system call, small enough to stay in the processor's cache."""


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
        """Every file below the root whose name begins with ``prefix``, in order of name."""
        top = self.root / prefix.rpartition("/")[0]
        found = [entry for entry in self._walk(top) if entry.name.startswith(prefix)]
        yield from sorted(found, key=lambda entry: entry.name)

    def _walk(self, directory: Path) -> Iterator[ObjectInfo]:
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    if entry.is_dir():
                        yield from self._walk(Path(entry.path))
                    elif entry.is_file():
                        name = Path(entry.path).relative_to(self.root).as_posix()
                        yield ObjectInfo(name, entry.stat().st_size)
        except OSError as error:
            raise _storage_error(error, str(directory)) from error

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
        self, name: str, wanted: ByteRange, *, expected_size: int | None = None
    ) -> Generator[memoryview, None, None]:
        """The bytes of a range, a mebibyte at a time, in two buffers by turns; a deleted file is read to its end."""
        buffers = [memoryview(bytearray(min(PIECE_SIZE, wanted.size))) for _ in range(2)]
        with self._opened(name) as file:
            if expected_size is not None and (size := os.fstat(file).st_size) != expected_size:
                raise ObjectChangedError(
                    "the file is not the one that was listed",
                    source=self.url(name),
                    found=f"{size} bytes",
                    expected=f"{expected_size} bytes",
                    hint="List the directory again",
                )
            for turn, start in enumerate(range(wanted.start, wanted.stop, PIECE_SIZE)):
                piece = buffers[turn % 2][: min(PIECE_SIZE, wanted.stop - start)]
                self._fill(file, name, start, piece)
                yield piece

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


def _storage_error(error: OSError, source: str) -> StorageError:
    reason = error.strerror or str(error)
    if isinstance(error, FileNotFoundError):
        return ObjectNotFoundError(
            "no such file", source=source, hint="Retention may have removed it since it was listed"
        )
    if isinstance(error, PermissionError):
        return AccessDeniedError(reason, source=source, hint="Give this user the right to read it")
    return StorageError(reason, source=source)
