"""Tasks for the engine of `segreader backfill`, in a module that workers can import without pytest."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from segreader.backfill import engine
from segreader.errors import SegreaderError, ThrottledError


@dataclass(frozen=True)
class Squares:
    """The square of each index, and the process that made it."""

    sleep_s: float = 0.0

    def __call__(self, indexes: Sequence[int]) -> Iterator[tuple[int, int]]:
        for index in indexes:
            time.sleep(self.sleep_s)
            yield index * index, os.getpid()


class Processes:
    """The process of each index."""

    def __call__(self, indexes: Sequence[int]) -> Iterator[int]:
        for _ in indexes:
            yield os.getpid()


@dataclass(frozen=True)
class Journal:
    """Writes a line for each split that it begins; a file in the folder is what a test counts attempts by."""

    folder: Path

    def begin(self, index: int) -> int:
        """How often this split was begun, this time included."""
        with open(self.folder / f"{index}.begun", "ab") as file:
            file.write(b"x")
            return file.tell()

    def attempts(self, index: int) -> int:
        path = self.folder / f"{index}.begun"
        return path.stat().st_size if path.exists() else 0


@dataclass(frozen=True)
class DiesAt:
    """Kills its process at one split, in its first attempts."""

    journal: Journal
    index: int
    attempts: int = 1
    signal: int = signal.SIGKILL
    exit_code: int | None = None

    def __call__(self, indexes: Sequence[int]) -> Iterator[int]:
        for index in indexes:
            attempt = self.journal.begin(index)
            if index == self.index and attempt <= self.attempts:
                if self.exit_code is not None:
                    os._exit(self.exit_code)
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                os.kill(os.getpid(), self.signal)
                time.sleep(60)
            yield index

    def name_of(self, index: int) -> str:
        return f"orders-0/{index:020d}"


@dataclass(frozen=True)
class RaisesAt:
    """Raises an error at one split, in its first attempts."""

    journal: Journal
    index: int
    error: BaseException
    attempts: int = 1
    cause: BaseException | None = None

    def __call__(self, indexes: Sequence[int]) -> Iterator[int]:
        for index in indexes:
            if index == self.index and self.journal.begin(index) <= self.attempts:
                raise self.error from self.cause
            yield index


@dataclass(frozen=True)
class Counts:
    """Which attempt made a result; that at one split dies, in its first attempts, or raises."""

    index: int
    attempts: int
    error: Exception | None = None

    def __call__(self, indexes: Sequence[int]) -> Iterator[tuple[int, int]]:
        raise AssertionError("it is told which attempt it is")

    def attempt(self, indexes: Sequence[int], number: int) -> Iterator[tuple[int, int]]:
        for index in indexes:
            if index == self.index and number < self.attempts:
                if self.error is not None:
                    raise self.error
                os.kill(os.getpid(), signal.SIGKILL)
                time.sleep(60)
            yield index, number


class WontTravelError(SegreaderError):
    """Pickles, and cannot be made again."""

    def __reduce__(self) -> tuple[object, ...]:
        return (_refuse, ())


def _refuse() -> None:
    raise ValueError("not again")


class UnpicklableError(SegreaderError):
    """Holds what does not pickle."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message)
        self.lock = threading.Lock()


@dataclass(frozen=True)
class Raises:
    """Makes an error in the worker."""

    kind: type[BaseException]
    text: str

    def __call__(self, indexes: Sequence[int]) -> Iterator[int]:
        raise self.kind(self.text)
        yield


@dataclass(frozen=True)
class CleansUp:
    """Holds a file as long as it works on a split, and removes it when it is stopped, however busy the machine is."""

    folder: Path
    sleep_s: float = 60.0

    def __call__(self, indexes: Sequence[int]) -> Iterator[int]:
        vars(engine)["_ORPHAN_GRACE_S"] = 8.0
        for index in indexes:
            held = self.folder / f"{index}.held"
            try:
                held.write_text(str(os.getpid()))
                if index:
                    time.sleep(self.sleep_s)
                yield index
            finally:
                held.unlink(missing_ok=True)


class FailsAtItsEnd:
    """Fails when it has given everything, as a store that cannot be closed."""

    def __call__(self, indexes: Sequence[int]) -> Iterator[int]:
        yield from indexes
        raise ThrottledError("at the end")


@dataclass(frozen=True)
class FailsBeside:
    """Fails at split 0 as soon as another worker holds a file for split 1."""

    folder: Path

    def __call__(self, indexes: Sequence[int]) -> Iterator[int]:
        if indexes[0]:
            yield from CleansUp(self.folder)(indexes)
        while not list(self.folder.glob("*.held")):
            time.sleep(0.01)
        raise ZeroDivisionError("at split 0")


@dataclass(frozen=True)
class HoldsOn:
    """Writes its process's id, and neither ends nor lets anything stop it: a native call that does not return."""

    folder: Path

    def __call__(self, indexes: Sequence[int]) -> Iterator[int]:
        for index in indexes:
            (self.folder / f"{os.getpid()}.pid").touch()
            while index:
                try:
                    time.sleep(60)
                except BaseException:
                    continue
            yield index


class Meets:
    """Ends when as many processes as there are groups are at work at the same time."""

    def __init__(self, folder: Path, parties: int) -> None:
        self._folder, self._parties = folder, parties

    def __call__(self, indexes: Sequence[int]) -> Iterator[int]:
        for index in indexes:
            (self._folder / f"{os.getpid()}.here").touch()
            deadline = time.monotonic() + 60
            while len(list(self._folder.glob("*.here"))) < self._parties:
                if time.monotonic() > deadline:
                    raise TimeoutError("nobody else came")
                time.sleep(0.01)
            yield index


class Surroundings:
    """What a worker's process looks like."""

    def __call__(self, indexes: Sequence[int]) -> Iterator[dict[str, object]]:
        for _ in indexes:
            yield {
                "process": os.getpid(),
                "modules": sorted(name for name in sys.modules if name.partition(".")[0] in ("pyspark", "py4j")),
                "path": sys.path,
                "main": getattr(sys.modules["__main__"], "__file__", None),
                "sigint": signal.getsignal(signal.SIGINT) is signal.SIG_IGN,
                "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
                "threads": threading.active_count(),
                "arrow_threads": os.environ.get("OMP_NUM_THREADS"),
                "stdin": os.read(0, 1),
                "sockets": sum(_is_socket(number) for number in os.listdir("/proc/self/fd") if int(number) > 2),
            }


class UsesArrow:
    """Whether Arrow works, as in a task's own module; what it imports by itself; and what numpy makes of 1, 2, 3."""

    def __init__(self, imported: tuple[str, ...] = ()) -> None:
        self._imported = imported

    def __reduce__(self) -> tuple[object, ...]:
        return _with_arrow, ()

    def __call__(self, indexes: Sequence[int]) -> Iterator[tuple[bool, tuple[str, ...], int]]:
        import numpy as np
        import pyarrow as pa

        for index in indexes:
            works = pa.scalar(index).as_py() == index and pa.array([index, None]).to_pylist() == [index, None]
            yield works, self._imported, int(np.array([1, 2, 3]).sum())


def _with_arrow() -> UsesArrow:
    import pyarrow as pa

    assert pa.array([1, None]).null_count == 1
    return UsesArrow(tuple(name for name in ("numpy", "pandas") if name in sys.modules))


def _is_socket(number: str) -> bool:
    try:
        return os.readlink(f"/proc/self/fd/{number}").startswith("socket:")
    except OSError:  # that of the listing
        return False


@dataclass(frozen=True)
class Large:
    """Results of so many bytes, counted in a file as they are made."""

    journal: Journal
    size: int

    def __call__(self, indexes: Sequence[int]) -> Iterator[bytes]:
        for index in indexes:
            self.journal.begin(index)
            yield bytes(self.size)


@dataclass(frozen=True)
class Yields:
    """Another number of results than there are indexes."""

    count: int

    def __call__(self, indexes: Sequence[int]) -> Iterator[int]:
        yield from range(self.count)


@dataclass(frozen=True)
class Heavy:
    """A task that is itself large when it is pickled."""

    payload: bytes

    def __call__(self, indexes: Sequence[int]) -> Iterator[int]:
        for _ in indexes:
            yield len(self.payload)
