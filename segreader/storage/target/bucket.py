"""A bucket as a target: what S3, Google and Azure have in common when objects are written.

An object of a bucket is there whole or not at all, and the store itself keeps the condition "if there is none". This
module handles lost answers, and stores that do not keep the condition.
"""

from __future__ import annotations

import io
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TYPE_CHECKING, BinaryIO, NoReturn, Protocol, cast

from segreader.errors import AccessDeniedError, ObjectNotFoundError, StorageError
from segreader.storage.base import ObjectInfo
from segreader.storage.cloud.failure import as_of_target, is_full, translated
from segreader.storage.cloud.pages import Pages, entries
from segreader.storage.retry import BackOff, Clock
from segreader.storage.signed_url import redact
from segreader.storage.target.names import checked, is_unfinished, unfinished_name

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

PART_SIZE = 16 << 20
"""Bytes of one request of a large object: S3 wants 5 MiB at least, Google a multiple of 256 KiB."""

_TRIES = 5
_LONGEST_S = 20.0
"""No try of ours begins later than that after the first one: the cloud's client has tried each for a while."""
_BACK_OFF = BackOff()
_log = logging.getLogger(__name__)


class Upload(Protocol):
    """A large object on its way: no reader sees it before ``finish``."""

    def add(self, data: bytes) -> None:
        """The next ``PART_SIZE`` bytes."""

    def finish(self, data: bytes) -> None:
        """The last bytes, at least one; the object is there now."""

    def abort(self) -> None:
        """Forget what was added."""


class WritableBucket(Protocol):
    """What differs between the clouds. Keys are whole; errors are those of the cloud's client."""

    base: str
    """How it is shown, with ``/`` at the end: ``s3://bucket/``."""
    hint: str
    """What to set when the store refuses."""
    rights: Mapping[str, str]
    """What to ``write``, ``read``, ``list`` and ``delete`` needs, in the store's words."""
    rivals: int
    """How many writers at once try out whether it keeps its conditions."""

    def put(self, key: str, data: bytes, *, is_new: bool = False) -> None:
        """Write an object in one request; with ``is_new`` any error if there is one of that name."""

    def get(self, key: str) -> bytes:
        """All bytes of an object."""

    def remove(self, key: str) -> None:
        """Delete an object; that there is none may be an error."""

    def pages(self, prefix: str) -> Pages:
        """The objects whose names begin so, in order of name."""

    def upload(self, key: str) -> Upload:
        """Begin a large object."""

    def begun(self, prefix: str) -> Iterator[tuple[str, Callable[[], None]]]:
        """Large objects that were begun and not finished, if the store lists them: each key, and a call to abort it."""


class BucketTarget:
    """Objects below one prefix of a bucket.

    Whether the store keeps the condition of ``put_if_absent`` is tried out before the first one, on an object with a
    unique hidden name; a store that checks and then writes may pass, if no two writers meet there.

    What a killed writer leaves is in no listing; S3 bills for it until ``forget_unfinished`` or a lifecycle rule
    (``AbortIncompleteMultipartUpload``) removes it, Google and Azure forget it after a week.

    Args:
        bucket: made for this target alone, for it holds credentials.
        prefix: comes before each name: nothing, or text with ``/`` at its end.
        clock: waits between two tries.
    """

    has_atomic_move = False

    def __init__(self, bucket: WritableBucket, prefix: str, *, clock: Clock | None = None) -> None:
        self._bucket = bucket
        self._prefix = prefix
        self._clock = clock or Clock()
        self._closed = threading.Event()
        self._probing = threading.Lock()
        self._keeps_conditions = False

    def __repr__(self) -> str:
        return f"BucketTarget({self.url('')!r})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a target holds credentials and is not pickled; open the location where it is written")

    def url(self, name: str) -> str:
        """The object's URL, without credentials."""
        return redact(self._bucket.base + self._prefix + name)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """Write an object if there is none; whether the one that is there holds our bytes.

        A refusal may be the answer to our own second try, whose first one arrived: whatever went wrong, what is there
        decides. Where nothing is, two writers hindered each other, or no try arrived: it is tried again.
        """
        key = self._key(name)
        self._require_conditions()
        until = self._clock.monotonic() + _LONGEST_S
        for failures in range(1, _TRIES + 1):
            try:
                with self._translated(name, "write"):
                    self._bucket.put(key, data, is_new=True)
                return True
            except (AccessDeniedError, ObjectNotFoundError):
                raise
            except StorageError as error:
                problem = error
            try:
                return self.read(name) == data
            except AccessDeniedError:
                raise
            except ObjectNotFoundError:
                if is_full(problem):
                    raise problem from None
            except StorageError as error:
                problem = error
            if not self._goes_on(failures, until):
                break
        raise StorageError(
            f"it is not known whether this object was written: {problem.message}",
            source=self.url(name),
            found=problem.found,
            hint="It may still appear; run it again: what is finished stays",
        ) from problem

    def _goes_on(self, failures: int, until: float) -> bool:
        """Wait for the next try; whether there is one."""
        if failures >= _TRIES or self._clock.monotonic() > until:
            return False
        return not self._clock.wait(self._closed, _BACK_OFF.seconds(failures) or 0.0)

    def put(self, name: str, data: bytes) -> None:
        """Write an object at once; one that is there is replaced."""
        key = self._key(name)
        with self._translated(name, "write"):
            self._bucket.put(key, data)

    def read(self, name: str) -> bytes:
        """All bytes of an object."""
        key = self._key(name)
        with self._translated(name, "read"):
            return self._bucket.get(key)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Every object whose name begins with ``prefix``, in order of name; a page of the store at a time."""
        for info in entries(self._bucket.pages(self._prefix + prefix), lambda: self._translated(prefix, "list")):
            if not is_unfinished(info.name):
                yield ObjectInfo(info.name.removeprefix(self._prefix), info.size, info.modified_ms)

    @contextmanager
    def create(self, name: str) -> Iterator[BinaryIO]:
        """A file for the bytes of an object, which is there once the block has ended without an error."""
        writer = _Writer(self._bucket, self._key(name), lambda: self._translated(name, "write"))
        try:
            yield cast(BinaryIO, writer)
            writer.finish()
        except BaseException:
            writer.abort()
            raise

    def move(self, source: str, target: str) -> None:
        """Not here: a bucket copies and deletes."""
        raise StorageError("a bucket has no atomic move", source=self.url(source), hint="Write objects in their place")

    def delete(self, names: Iterable[str]) -> None:
        """Remove objects; one that is not there is removed already."""
        for name in names:
            key = self._key(name)
            try:
                with self._translated(name, "delete"):
                    self._bucket.remove(key)
            except ObjectNotFoundError:
                pass

    def forget_unfinished(self, is_left: Callable[[str], bool]) -> int:
        """Abort the uploads of writers that were killed, where the store lists them."""
        left = 0
        with self._translated("", "list"):
            for key, abort in self._bucket.begun(self._prefix):
                name = key.removeprefix(self._prefix)
                if is_left(name):
                    with (
                        suppress(ObjectNotFoundError),
                        self._translated(name, "delete"),
                    ):  # its writer has ended it itself
                        abort()
                        left += 1
        return left

    def prune(self, directory: str) -> None:
        """Nothing: a bucket has no directories."""

    def close(self) -> None:
        """End the waits between tries; connections end with the client."""
        self._closed.set()

    def _key(self, name: str) -> str:
        return checked(self._prefix + checked(name))

    @contextmanager
    def _translated(self, name: str, act: str) -> Iterator[None]:
        """Errors of the cloud's client as ours, with what was refused and what it needs.

        Args:
            name: of the object, for the error.
            act: one of the bucket's ``rights``.
        """
        url = self.url(name)
        try:
            with translated(url, self._bucket.hint, listed=url if act == "list" else None):
                yield
        except StorageError as error:
            self._explain(error, act)
            as_of_target(error)
            raise

    def _explain(self, error: StorageError, act: str) -> None:
        found = str(error.found)
        if isinstance(error, ObjectNotFoundError):
            if act == "write" and "NoSuchUpload" in found:
                error.message = "the store has forgotten this upload, which a lifecycle rule or another run ended"
                error.hint = "Run it again: what is finished stays"
            elif act == "write" or "there is no such" in error.message:  # of no other thing that is written into
                what = "container" if self._bucket.base.startswith("abfs") else "bucket"
                error.message = f"there is no such {what}: {self._bucket.base.partition('://')[2].rstrip('/')}"
                error.hint = (
                    f"Create the {what} first, as a job does not; or check its name, the account and the endpoint"
                )
            elif act == "read":
                error.hint = "Check whether the target is the right one"
        elif isinstance(error, AccessDeniedError) and error.message == "the store refuses":
            error.message = f"the store refuses to {act}"
            error.hint = f"It needs {self._bucket.rights[act]}. {self._bucket.hint}"

    def _require_conditions(self) -> None:
        """Try it out, once: at most one of several concurrent writers wins, and later ones are refused.

        Raises:
            StorageError: it is not so, or nothing can be written.
        """
        with self._probing:
            failures, until = 0, self._clock.monotonic() + _LONGEST_S
            while not self._keeps_conditions:
                name = unfinished_name()
                try:
                    problem = self._race(name)
                finally:
                    self._forget(name)
                self._keeps_conditions = problem is None
                failures += 1
                if problem is not None and not self._goes_on(failures, until):
                    raise problem

    def _race(self, name: str) -> StorageError | None:
        """Have writers meet; what went wrong if the store failed all but the last one, so that nothing is known."""
        rivals = [f"{number}".encode() for number in range(self._bucket.rivals)]
        with ThreadPoolExecutor(len(rivals)) as threads:
            problems = list(threads.map(lambda data: self._problem(name, data), rivals))
        winners = [data for data, problem in zip(rivals, problems, strict=True) if problem is None]
        late = self._problem(name, b"late")
        if isinstance(late, AccessDeniedError | ObjectNotFoundError):
            raise late
        try:
            with self._translated("", "read"):
                kept = self._bucket.get(self._prefix + name)
        except ObjectNotFoundError:
            raise (late or next(filter(None, problems), None) or self._lax()) from None
        if late is None and kept == b"late" and not winners:
            return next(filter(None, problems))
        # Without a known winner, an answer was lost: the stored bytes show whose it was.
        if len(winners) > 1 or kept not in (winners or rivals) or late is None:
            raise self._lax()
        return None

    def _problem(self, name: str, data: bytes) -> StorageError | None:
        """What went wrong when an object was to be made; ``None`` if it was made."""
        try:
            with self._translated("", "write"):
                self._bucket.put(self._prefix + name, data, is_new=True)
        except StorageError as error:
            return error
        return None

    def _lax(self) -> StorageError:
        return StorageError(
            "this store does not keep the condition 'if there is none' when an object is written, so that of two "
            "writers both would win",
            source=self.url(""),
            hint="Write to a store that keeps If-None-Match: * (AWS S3, Google and Azure do), with a client that sends "
            "it (botocore above 1.35.20), or to a local directory and copy it from there",
        )

    def _forget(self, name: str) -> None:
        try:
            with self._translated(name, "delete"):
                self._bucket.remove(self._prefix + name)
        except StorageError as error:
            _log.debug("a hidden object is left: %s", error)


class _Writer(io.RawIOBase):
    """A file whose bytes leave in parts of one size; a small one leaves in one request at its end."""

    def __init__(self, bucket: WritableBucket, key: str, guard: Callable[[], AbstractContextManager[None]]) -> None:
        self._bucket = bucket
        self._key = key
        self._guard = guard
        self._upload: Upload | None = None
        self._held = bytearray()
        self._sent = 0

    def writable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """Bytes written so far."""
        return self._sent + len(self._held)

    def write(self, data: ReadableBuffer, /) -> int:
        """Take all of the bytes."""
        if self.closed:
            raise ValueError("write to a closed file")
        with memoryview(data).cast("B") as view:
            size = len(view)
            for start in range(0, size, PART_SIZE):
                self._held += view[start : start + PART_SIZE]
                self._send()
        return size

    def finish(self) -> None:
        """Make the object: of its last part, or of all there is."""
        self.close()
        with self._guard():
            if self._upload is None:
                self._bucket.put(self._key, bytes(self._held))
            else:
                self._upload.finish(bytes(self._held))
        self._held.clear()

    def abort(self) -> None:
        """Forget what was sent, as far as the store allows it."""
        self.close()
        self._held.clear()
        if self._upload is not None:
            try:
                with self._guard():
                    self._upload.abort()
            except StorageError as error:
                _log.debug("parts of an object that was given up are left: %s", error)

    def _send(self) -> None:
        # One byte stays at least: the last part is then never empty.
        while len(self._held) > PART_SIZE:
            with self._guard():
                self._upload = self._upload or self._bucket.upload(self._key)
                self._upload.add(bytes(memoryview(self._held)[:PART_SIZE]))
            del self._held[:PART_SIZE]
            self._sent += PART_SIZE
