"""Object stores: named objects, their sizes, and ranges of their bytes. Nothing of Kafka.

``ObjectStore`` is what a store can do. ``StoreView`` and ``MountedStores`` are laid over other stores: some names as
files that are stored in another form, and several stores as one.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import replace
from heapq import merge
from operator import attrgetter
from threading import Lock, Semaphore
from time import monotonic
from typing import Final, Protocol, TypeVar

from segreader.errors import LimitExceededError, ObjectChangedError, ShortReadError, StorageError
from segreader.ranges import ByteRange
from segreader.storage.cancellation import Cancellation, cancellable
from segreader.values import dataclass

_LONGEST_TAG = 100
_MOST_LISTINGS: Final = 64
_MOST_LISTED: Final = 1000
"""Listings that ``ListedOnce`` keeps, and the names of one that were looked at; a page of each may be behind them."""

_MOST_REMEMBERED: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One listed object: its name in the store and its size in bytes; -1 where a listing has none.

    ``modified_ms`` is the store's time of the last write, where it has one. A name that ends in ``/`` is a
    directory (of ``list_level`` only). ``tag`` identifies this version of the object among those of the same name,
    where the listing has such a thing: ``etag:…``, ``generation:…``, or the time of the last change. It is no secret.
    """

    name: str
    size: int
    modified_ms: int | None = None
    tag: str | None = None


class ObjectStore(Protocol):
    """Ranges to bytes. Stores hold no data between calls and may be shared by threads."""

    def url(self, name: str) -> str:
        """The object's name for people: never with a credential or a query string."""

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Every object whose name begins with ``prefix``, in order of name; a page at a time where there are pages."""

    def list_level(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Objects and directories whose name begins with ``prefix`` and has no ``/`` after it but at its end.

        ``list_level("a/")`` gives what is directly in ``a``; ``list_level("a/b-")`` what begins with ``b-`` there.
        In order of name within each page of the store.
        """

    def size(self, name: str) -> int:
        """Bytes of the object.

        Raises:
            ObjectNotFoundError: there is none of that name.
        """

    def read_ranges(self, name: str, ranges: Sequence[ByteRange]) -> Sequence[bytes]:
        """The bytes of each range, in the order asked for.

        Raises:
            ObjectNotFoundError, AccessDeniedError: as named.
            ShortReadError: the object ends inside a range.
        """

    def read_into(self, name: str, start: int, buffer: memoryview) -> None:
        """Fill ``buffer`` with the bytes from ``start`` on; raises as ``read_ranges``."""

    def read_pieces(
        self, name: str, wanted: ByteRange, *, expected_size: int | None = None, expected_tag: str | None = None
    ) -> Generator[memoryview, None, None]:
        """The bytes of one range in consecutive pieces of the store's own size.

        A piece is valid until the next one is asked for. A store may fetch ahead; closing the generator ends that.

        Args:
            expected_size: bytes of the whole object as it was listed; another size means that it was replaced.
            expected_tag: ``ObjectInfo.tag`` as it was listed; another version means that it was replaced.

        Raises:
            as ``read_ranges``; ObjectChangedError: the object is not the one that was listed, or changes meanwhile.
        """

    def close(self) -> None:
        """Give back connections and threads; the store cannot be used afterwards."""


def read_listed(
    store: ObjectStore, name: str, wanted: ByteRange, *, size: int | None, tag: str | None
) -> Generator[memoryview, None, None]:
    """``store.read_pieces`` of an object as it was listed. A store that lists no tags is not given any."""
    if tag is None:
        return store.read_pieces(name, wanted, expected_size=size)
    return store.read_pieces(name, wanted, expected_size=size, expected_tag=tag)


def tag_of(kind: str, value: object) -> str | None:
    """``kind:value`` as ``ObjectInfo.tag`` has it; ``None`` for an empty value.

    An ETag loses its quotes and the mark of weak ones: Azure lists tags without quotes and answers with them.
    """
    text = str(value or "")
    if kind == "etag":
        text = text.strip().removeprefix("W/").strip('"')
    return f"{kind}:{text[:_LONGEST_TAG]}" if text else None


def find_listed(listed: Iterable[ObjectInfo], name: str, tag: str) -> ObjectInfo | None:
    """The object, if a listing still gives it this tag.

    Call it when an answer lacks the tag that was listed: some stores list other tags than they answer with, and only
    a listing that has changed as well proves that the object was replaced.
    """
    return next((info for info in listed if info.name == name and info.tag == tag), None)


def replaced(source: str, *, found: object, expected: object) -> ObjectChangedError:
    """The error for an object that is not the one that was listed."""
    return ObjectChangedError(
        "the object is not the one that was listed",
        source=source,
        found=found,
        expected=expected,
        hint="It was replaced since it was planned, as by another upload or by compaction: plan again",
    )


def level_of(listed: Iterable[ObjectInfo], prefix: str) -> Iterator[ObjectInfo]:
    """Objects and directories of ``list_level(prefix)``, from every object that begins with the prefix.

    Args:
        listed: objects in order of name, all of which begin with ``prefix``; they may be directories.
        prefix: of the level: ``"a/"``, or ``"a/b-"`` for a part of it.
    """
    last, begins = None, len(prefix)
    for info in listed:
        slash = info.name.find("/", begins)
        if slash < 0:
            yield info
        elif (directory := info.name[: slash + 1]) != last:
            last = directory
            yield ObjectInfo(directory, -1)


def walk_levels(list_level: Callable[[str], Iterator[ObjectInfo]], prefix: str) -> Iterator[ObjectInfo]:
    """Every object whose name begins with ``prefix``, in order of name, by the store's levels; one of each is held."""
    levels = [list_level(prefix)]
    while levels:
        for info in levels[-1]:
            if info.name.endswith("/"):
                levels.append(list_level(info.name))
                break
            yield info
        else:
            levels.pop()


def require_inside(source: str, wanted: ByteRange, size: int) -> None:
    """Raise ``ShortReadError`` if the range passes the end of an object of this size."""
    if wanted.stop > size:
        raise ShortReadError(
            "the object ends before the range does",
            source=source,
            position=size,
            found=f"{max(0, size - wanted.start)} bytes",
            expected=f"{wanted.size} bytes from byte {wanted.start}",
            hint="It was cut since it was listed; list the location again",
        )


class VirtualFile(Protocol):
    """A plain file that is made from the bytes of stored objects."""

    @property
    def size(self) -> int:
        """Bytes of the plain file."""

    def pieces(self, wanted: ByteRange, *, expected_tag: str | None = None) -> Generator[memoryview, None, None]:
        """Consecutive pieces of the range, which is within the file; each is valid until the next is asked for.

        Args:
            expected_tag: of the stored object that a log is made from.
        """


class StoreView:
    """A store whose names are those of another one, but for those that ``open`` explains.

    Subclasses say which, if any; everything else goes to the store below. As any store it may be shared by threads.
    """

    def __init__(self, store: ObjectStore) -> None:
        self.inner = store

    def open(self, name: str) -> VirtualFile | None:
        """The file of this name; ``None``, as every name by default, if the store below knows the name itself.

        Raises:
            ObjectNotFoundError: it would be a file of this view, and is not there.
        """
        return None

    def url(self, name: str) -> str:
        """As the store below."""
        return self.inner.url(name)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """The stored objects, not the files of the view."""
        return self.inner.list(prefix)

    def list_level(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """The stored objects, not the files of the view."""
        return self.inner.list_level(prefix)

    def size(self, name: str) -> int:
        """Bytes of the plain file."""
        file = self.open(name)
        return self.inner.size(name) if file is None else file.size

    def read_ranges(self, name: str, ranges: Sequence[ByteRange]) -> Sequence[bytes]:
        """The bytes of each range, in the order asked for."""
        file = self.open(name)
        if file is None:
            return self.inner.read_ranges(name, ranges)
        out = []
        for wanted in ranges:
            require_inside(self.url(name), wanted, file.size)
            out.append(b"".join(bytes(piece) for piece in file.pieces(wanted)))  # a piece lives until the next
        return out

    def read_into(self, name: str, start: int, buffer: memoryview) -> None:
        """Fill ``buffer`` with the bytes from ``start`` on."""
        file = self.open(name)
        if file is None:
            self.inner.read_into(name, start, buffer)
        elif len(buffer):
            wanted = ByteRange(start, start + len(buffer))
            require_inside(self.url(name), wanted, file.size)
            done = 0
            for piece in file.pieces(wanted):
                buffer[done : done + len(piece)] = piece
                done += len(piece)

    def read_pieces(
        self, name: str, wanted: ByteRange, *, expected_size: int | None = None, expected_tag: str | None = None
    ) -> Generator[memoryview, None, None]:
        """The bytes of one range in consecutive pieces; a tag is that of the stored object."""
        file = self.open(name)
        if file is None:
            yield from read_listed(self.inner, name, wanted, size=expected_size, tag=expected_tag)
            return
        if expected_size is not None and file.size != expected_size:
            raise replaced(self.url(name), found=f"{file.size} bytes", expected=f"{expected_size} bytes")
        require_inside(self.url(name), wanted, file.size)
        yield from file.pieces(wanted, expected_tag=expected_tag)

    def close(self) -> None:
        """Close the store below."""
        self.inner.close()


class RememberingStore(StoreView):
    """A store that keeps what was read of it in ranges of up to 1 MiB: for a few reads that overlap, not for a scan."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self._known: dict[tuple[str, ByteRange], bytes] = {}

    def read_ranges(self, name: str, ranges: Sequence[ByteRange]) -> Sequence[bytes]:
        """The bytes of each range, in the order asked for."""
        unknown = [one for one in dict.fromkeys(ranges) if (name, one) not in self._known]
        read = dict(zip(unknown, self.inner.read_ranges(name, unknown) if unknown else (), strict=True))
        self._known.update({(name, one): data for one, data in read.items() if one.size <= _MOST_REMEMBERED})
        return [read[one] if one in read else self._known[name, one] for one in ranges]

    def read_pieces(
        self, name: str, wanted: ByteRange, *, expected_size: int | None = None, expected_tag: str | None = None
    ) -> Generator[memoryview, None, None]:
        """The bytes of one range in consecutive pieces."""
        pieces = read_listed(self.inner, name, wanted, size=expected_size, tag=expected_tag)
        if wanted.size > _MOST_REMEMBERED:
            yield from pieces
            return
        if (data := self._known.get((name, wanted))) is None:
            data = self._known[name, wanted] = b"".join(bytes(piece) for piece in pieces)
        yield memoryview(data)


class FetchedAtOnce(StoreView):
    """A store some small ranges of which are fetched at once, before each is asked for, and given once.

    An error is raised when its range is asked for.
    """

    def __init__(self, store: ObjectStore, ranges: Sequence[tuple[str, ByteRange]]) -> None:
        super().__init__(store)

        def fetch(one: tuple[str, ByteRange]) -> bytes | StorageError:
            try:
                return store.read_ranges(one[0], [one[1]])[0]
            except StorageError as error:
                return error

        self._fetched = dict(zip(ranges, read_each(fetch, ranges), strict=True))

    def read_ranges(self, name: str, ranges: Sequence[ByteRange]) -> Sequence[bytes]:
        """The bytes of each range, in the order asked for."""
        fetched = self._fetched.pop((name, ranges[0]), None) if len(ranges) == 1 else None
        if isinstance(fetched, StorageError):
            raise fetched
        return self.inner.read_ranges(name, ranges) if fetched is None else [fetched]


class ListedOnce(StoreView):
    """A store that goes on with a listing of a directory where it would begin it again: once, and in order.

    Whoever looks at the first names of a directory and later at all of them costs no request twice.
    """

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self._begun: dict[str, tuple[list[ObjectInfo], Iterator[ObjectInfo]]] = {}

    def list_level(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Objects and directories of one level, as they were when the listing was begun."""
        if (begun := self._begun.pop(prefix, None)) is not None:
            yield from begun[0]
            yield from begun[1]
            return
        seen: list[ObjectInfo] = []
        rest = self.inner.list_level(prefix)
        try:
            for info in rest:
                seen.append(info)
                yield info
        except GeneratorExit:
            self._keep(prefix, seen, rest)
            raise
        self._keep(prefix, seen, rest)

    def _keep(self, prefix: str, seen: list[ObjectInfo], rest: Iterator[ObjectInfo]) -> None:
        if len(self._begun) < _MOST_LISTINGS and len(seen) <= _MOST_LISTED:
            self._begun[prefix] = seen, rest


class MountedStores:
    """Several stores as one, each under a prefix of names; closing it closes them all.

    Args:
        mounts: the stores by prefix. A name goes, without the prefix, to the store of the longest one that it begins
            with; the one of ``""`` has all others, and what it has under another one's prefix is not seen.

    Raises:
        ValueError: no store is mounted at ``""``.
    """

    def __init__(self, mounts: Mapping[str, ObjectStore]) -> None:
        if "" not in mounts:
            raise ValueError("one store must be mounted at the empty prefix")
        self._mounts = dict(sorted(mounts.items(), key=lambda mount: -len(mount[0])))

    def __repr__(self) -> str:
        return f"MountedStores({self._mounts!r})"

    @property
    def inner(self) -> ObjectStore:
        """The store of all names that are under no other one's prefix."""
        return self._mounts[""]

    def url(self, name: str) -> str:
        """The URL that the object's own store gives."""
        store, inner = self._find(name)
        return store.url(inner)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """The objects of all stores whose names begin so, in order of name."""
        return merge(
            *(self._named(mount, store.list(prefix[len(mount) :])) for mount, store in self._under(prefix)),
            key=attrgetter("name"),
        )

    def list_level(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Objects and directories of one level; a prefix with ``/`` is a directory there, whatever its store holds."""
        directories: set[str] = set()
        levels = []
        for mount, store in self._under(prefix):
            name, is_below, _ = mount[len(prefix) :].partition("/")
            if is_below:
                directories.add(f"{prefix}{name}/")
            else:
                levels.append(self._named(mount, store.list_level(prefix[len(mount) :])))
        mounted = [ObjectInfo(name, -1) for name in sorted(directories)]
        others = ((info for info in level if info.name not in directories) for level in levels)
        return merge(mounted, *others, key=attrgetter("name"))

    def size(self, name: str) -> int:
        """Bytes of the object."""
        store, inner = self._find(name)
        return store.size(inner)

    def read_ranges(self, name: str, ranges: Sequence[ByteRange]) -> Sequence[bytes]:
        """The bytes of each range, in the order asked for."""
        store, inner = self._find(name)
        return store.read_ranges(inner, ranges)

    def read_into(self, name: str, start: int, buffer: memoryview) -> None:
        """Fill ``buffer`` with the bytes from ``start`` on."""
        store, inner = self._find(name)
        store.read_into(inner, start, buffer)

    def read_pieces(
        self, name: str, wanted: ByteRange, *, expected_size: int | None = None, expected_tag: str | None = None
    ) -> Generator[memoryview, None, None]:
        """The bytes of one range in consecutive pieces."""
        store, inner = self._find(name)
        return read_listed(store, inner, wanted, size=expected_size, tag=expected_tag)

    def close(self) -> None:
        """Close every store, also where one of them fails."""
        with ExitStack() as stack:
            for store in self._mounts.values():
                stack.callback(store.close)

    def _find(self, name: str) -> tuple[ObjectStore, str]:
        mount = next(mount for mount in self._mounts if name.startswith(mount))
        return self._mounts[mount], name[len(mount) :]

    def _under(self, prefix: str) -> Iterator[tuple[str, ObjectStore]]:
        """The stores that may have a name that begins so."""
        for mount, store in self._mounts.items():
            if mount.startswith(prefix) or prefix.startswith(mount):
                yield mount, store
            if prefix.startswith(mount):
                return  # every such name is this one's, or of a longer prefix

    def _named(self, mount: str, listed: Iterator[ObjectInfo]) -> Iterator[ObjectInfo]:
        """What a store lists, by its names here; without what another store hides."""
        longer = tuple(other for other in self._mounts if len(other) > len(mount) and other.startswith(mount))
        for info in listed:
            name = mount + info.name
            if not (longer and name.startswith(longer)):
                yield replace(info, name=name)


_MOST_WORKERS: Final = 64
"""Threads of this process that read small objects: as many requests as stores take at once from one client."""

_FIRST_WORKERS: Final = 16
_QUICK_S: Final = 0.001
_QUICK: Final = 4
"""So many items in that time come from memory or a disk: more threads would wait for each other, mostly."""

_WATCHED_S: Final = 0.02
_SLOW_S: Final = 0.005
"""An item that takes longer waits for a network, mostly, and more of them may be asked for meanwhile."""

_places = Semaphore(_MOST_WORKERS)


def _renew_places() -> None:
    """In a forked child: the threads that hold places are not in it."""
    global _places
    _places = Semaphore(_MOST_WORKERS)


os.register_at_fork(after_in_child=_renew_places)


_LEAST_RANGE: Final = 1 << 20
"""What a read is allowed to hold does not make its requests smaller than this."""


class FetchBudget:
    """Bytes of the ranges that several reads hold together, at most: what is under way, and the piece in use.

    Each read may have one range at any time, so its ranges are small enough for all; it begins more where the first
    ranges of the others would still have room.

    Args:
        most_bytes: of all reads. Ranges are not made smaller than 1 MiB for it.
        reads: how many there are at a time.
        at_once: ranges that a single read has at a time.
    """

    def __init__(self, most_bytes: int, reads: int = 1, *, at_once: int = 1) -> None:
        self.most_range = max(_LEAST_RANGE, most_bytes // (2 * reads if reads > 1 else at_once))
        self._most_bytes, self._reads = most_bytes, reads
        self._held, self._lock = 0, Lock()
        self._given_back: deque[int] = deque()

    def take(self, size: int, *, is_first: bool) -> bool:
        """Count one more range of a read, unless it has to wait; the first one never has."""
        with self._lock:
            while self._given_back:
                self._held -= self._given_back.popleft()
            if not is_first and self._held + size * self._reads > self._most_bytes:
                return False
            self._held += size
            return True

    def give_back(self, size: int) -> None:
        """Count so much less from now on. A finalizer may call it: it takes no lock."""
        self._given_back.append(size)


Fetched = int | FetchBudget | None
"""How many bytes of ranges are held: by each read by itself, by several together, or as many as a store likes."""

_most_fetched: ContextVar[Fetched] = ContextVar("segreader_most_fetched", default=None)


@contextmanager
def fetching(most: Fetched) -> Iterator[None]:
    """For the time of the block, a ``read_pieces`` that this thread begins holds so many bytes of ranges at most.

    A store on the network asks for smaller ranges then, and for fewer at a time; ``None`` leaves both to it.
    """
    token = _most_fetched.set(most)
    try:
        yield
    finally:
        _most_fetched.reset(token)


class RangeWindow:
    """The ranges that one read of a store holds.

    Args:
        range_size: of the store, bytes of a request; ``fetching`` may make it less.
        at_once: how many the store asks for at a time.
    """

    def __init__(self, range_size: int, at_once: int) -> None:
        most = _most_fetched.get()
        self._budget = FetchBudget(most) if isinstance(most, int) else most
        self._at_once, self._held = at_once, 0
        self.range_size = range_size if self._budget is None else min(range_size, self._budget.most_range)

    def take(self) -> bool:
        """Whether one more may be asked for; it is counted then."""
        may = not self._held or self._held < self._at_once
        if may and self._budget is not None:
            may = self._budget.take(self.range_size, is_first=not self._held)
        self._held += may
        return may

    def give_back(self, count: int = 1) -> None:
        """So many are held no more."""
        self._held -= count
        if self._budget is not None:
            self._budget.give_back(count * self.range_size)

    def close(self) -> None:
        """None is held any more."""
        self.give_back(self._held)


def range_size_of(store: object, most_fetched: Fetched = None) -> int:
    """Bytes of one request of a store on the network, also of one that views are laid over; 0 of local files.

    Args:
        most_fetched: as of ``fetching``; ``None`` leaves it as this thread has it.
    """
    while store is not None:
        if isinstance(size := getattr(store, "range_size", None), int):
            with fetching(_most_fetched.get() if most_fetched is None else most_fetched):
                return RangeWindow(size, 1).range_size
        store = getattr(store, "inner", None)
    return 0


MOST_WHOLE: Final = 256 << 20
"""Bytes of an object that is read whole, where less is not known: logs are read in pieces, all else is small."""

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def read_whole(store: ObjectStore, name: str, size: int | None = None, *, most: int = MOST_WHOLE) -> bytes:
    """All bytes of an object. ``size`` saves asking for it.

    Raises:
        LimitExceededError: it has more than ``most`` bytes; none of them was read.
    """
    if size is None:
        size = store.size(name)
    if size > most:
        raise LimitExceededError(
            "an object is too large to be what its name says",
            source=store.url(name),
            found=f"{size} bytes",
            expected=f"at most {most}",
            hint="It was damaged or replaced: put a sound copy in its place, or move it away",
        )
    return store.read_ranges(name, [ByteRange(0, size)])[0] if size else b""


def read_each(read: Callable[[_Item], _Result], items: Sequence[_Item]) -> list[_Result]:
    """``read`` of every item, in their order, many at a time; the first error in that order is raised.

    Items that come from memory are read one after another. Others are read 16 at a time, and up to 64 if they turn out
    to be slow; of all calls in this process together never more than 64, and of each at least one.
    """
    if len(items) < 3:
        return [read(item) for item in items]
    answers: dict[int, _Result] = {}
    failures: dict[int, BaseException] = {}
    numbers = iter(range(len(items)))
    running: list[Future[None]] = []
    ending = Cancellation()

    def work(places: Semaphore | None) -> None:
        began = monotonic()
        try:  # every worker takes the next item: a future for each would cost more than reading it from memory
            with ending.covers():
                while not failures and (at := next(numbers, None)) is not None:
                    try:
                        answers[at] = read(items[at])
                    except BaseException as error:
                        failures[at] = error
                    now = monotonic()
                    if now - began > _SLOW_S:  # each time: other calls may have given places back
                        begin(3, places or _places)
                        now = monotonic()
                    began = now
        finally:
            if places is not None:
                places.release()

    def begin(count: int, places: Semaphore) -> None:
        for _ in range(count):
            if len(running) < len(items) and not failures and places.acquire(blocking=False):
                try:
                    running.append(workers.submit(work, places))
                except BaseException:  # the caller was interrupted and waits for the others
                    places.release()
                    raise

    with (
        ThreadPoolExecutor(_MOST_WORKERS, thread_name_prefix="segreader-small") as workers,
        cancellable(ending.cancel),
    ):
        try:
            begin(1, _places)
            if not running:
                work(None)
            begin(_joining(running, answers), _places)
            for one in running:  # a worker that ends has added to them before
                one.result()
        except BaseException as error:
            failures[len(items)] = error  # so that the others end
            ending.cancel()
            raise
    if failures:
        raise failures[min(failures)]
    return [answers[at] for at in range(len(items))]


def _joining(running: Sequence[Future[None]], answers: Mapping[int, object]) -> int:
    """How many workers join the first one as soon as it cannot keep up; 0 if it has done all, or others joined it."""
    seen, needed, seconds = 0, _QUICK, _QUICK_S
    while len(running) == 1 and wait(running, seconds).not_done:
        if len(answers) - seen < needed:
            return _FIRST_WORKERS - 1
        seen, needed, seconds = len(answers), 1, _WATCHED_S
    return 0
