"""Files of a local directory as a store."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from segreader.errors import (
    AccessDeniedError,
    ObjectNotFoundError,
    SegreaderError,
    ShortReadError,
    StorageError,
)
from segreader.ranges import ByteRange
from segreader.storage.base import ObjectInfo


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

    def read_into(self, name: str, start: int, buffer: memoryview) -> None:
        """Fill ``buffer`` with the bytes from ``start`` on."""
        try:
            file = os.open(self.root / name, os.O_RDONLY)
            try:
                done = 0
                while done < len(buffer):
                    got = os.preadv(file, [buffer[done:]], start + done)
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
            finally:
                os.close(file)
        except OSError as error:
            if isinstance(error, SegreaderError):
                raise
            raise _storage_error(error, self.url(name)) from error


def _storage_error(error: OSError, source: str) -> StorageError:
    reason = error.strerror or str(error)
    if isinstance(error, FileNotFoundError):
        return ObjectNotFoundError(
            "no such file", source=source, hint="Retention may have removed it since it was listed"
        )
    if isinstance(error, PermissionError):
        return AccessDeniedError(reason, source=source, hint="Give this user the right to read it")
    return StorageError(reason, source=source)
