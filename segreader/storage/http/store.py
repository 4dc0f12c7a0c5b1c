"""Objects behind URLs as a store: several ranges of a read are fetched at a time, and returned in order."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import field, replace
from itertools import islice
from mmap import mmap
from queue import SimpleQueue
from typing import Any, NoReturn, Self
from urllib.parse import SplitResult, unquote, urlsplit

from segreader.errors import LocationExpiredError, ObjectNotFoundError, OptionError, ShortReadError, StorageError
from segreader.ranges import ByteRange
from segreader.storage.base import ObjectInfo, RangeWindow, level_of, read_each
from segreader.storage.cancellation import WaitEnded, cancellable, left_alone, result_of
from segreader.storage.http.answer import Identity
from segreader.storage.http.connections import Stop, Stopped
from segreader.storage.http.range_fetcher import RangeFetcher
from segreader.storage.http.settings import HttpSettings
from segreader.storage.http.url_leases import UrlLeases, UrlProvider
from segreader.storage.metrics import StorageMetrics
from segreader.storage.retry import Clock
from segreader.storage.signed_url import SignedUrl, install_redaction, redact
from segreader.values import dataclass

_MOST_FREE = 4
_WHOLE_MIB = (1 << 20) - 1

_SMALL = 1 << 20
"""A range of so many bytes is fetched by the thread that reads it; the bytes of larger ones are given as they come."""


class _Buffers:
    """Buffers, a few of which are used again: touching fresh memory costs more than filling it.

    They are mapped: what the allocator gets back it keeps, for each thread.

    Args:
        size: of most of them; no more than a few times that is kept for another use.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.lent = 0
        self._free: list[mmap] = []
        self._lock = threading.Lock()

    def take(self, size: int) -> mmap:
        """A buffer of at least ``size`` bytes."""
        with self._lock:
            self.lent += 1
            fits = (at for at, free in enumerate(self._free) if size <= len(free) <= 2 * size)
            if (found := next(fits, None)) is not None:
                return self._free.pop(found)
        return mmap(-1, min(size + _WHOLE_MIB & ~_WHOLE_MIB, max(size, self.size)))

    def give(self, buffer: mmap) -> None:
        """Take back one that is no longer read."""
        with self._lock:
            self.lent -= 1
            self._free.append(buffer)
            while sum(map(len, self._free)) > _MOST_FREE * self.size:
                del self._free[0]


class _Process:
    """The connections, threads and locks of one process. A forked child makes its own."""

    def __init__(
        self, urls: UrlProvider, settings: HttpSettings, metrics: StorageMetrics, clock: Clock, former: _Process | None
    ) -> None:
        self.pid = os.getpid()
        pins: dict[str, Identity] | None = None if former is None else dict(former.fetcher.pins)
        self.leases = UrlLeases(urls, clock=clock, metrics=metrics)
        self.fetcher: RangeFetcher = RangeFetcher(self.leases, settings, metrics, clock, pins=pins, names=urls.names)
        self.workers = ThreadPoolExecutor(settings.in_flight, thread_name_prefix="segreader-http")
        self.buffers = _Buffers(settings.range_size)
        self.lock = threading.Lock()

    def forget(self) -> None:
        self.fetcher.pins.clear()
        self.leases.forget()
        self.buffers = _Buffers(self.buffers.size)

    def close(self) -> None:
        self.workers.shutdown(wait=True, cancel_futures=True)
        self.fetcher.close()


class HttpStore:
    """Objects whose URLs a provider gives, read strictly: the right bytes of one version of each object, or an error.

    The first answer pins an object's version for the life of the store, or until a read expects the tag of another one.
    May be shared by threads, and used in forked
    children; it cannot be pickled, as URLs cannot.

    Args:
        urls: gives and renews the URL of each object.
        metrics: where to count; its own by default.
        clock: the time; tests pass their own.
    """

    def __init__(
        self,
        urls: UrlProvider,
        *,
        settings: HttpSettings | None = None,
        metrics: StorageMetrics | None = None,
        clock: Clock | None = None,
    ) -> None:
        install_redaction()
        self._urls = urls
        self._settings = settings or HttpSettings()
        self.metrics = metrics or StorageMetrics()
        self._clock = clock or Clock()
        self.range_size = self._settings.range_size
        self._lock = threading.Lock()
        self._is_closed = False
        self._process: _Process | None = None

    def __reduce__(self) -> NoReturn:
        raise TypeError("a store holds URLs and connections and is not pickled: open it in the process that reads")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def url(self, name: str) -> str:
        """The object's URL without its query."""
        return str(self._here().leases.get(name).url)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """The objects that the provider names, in order of name."""
        found = [info for info in self._urls.names(prefix) if info.name.startswith(prefix)]
        yield from sorted(found, key=lambda info: info.name)

    def list_level(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """The objects that the provider names, and the directories that their names imply, of one level."""
        return level_of(self.list(prefix), prefix)

    def size(self, name: str) -> int:
        """Bytes of the object, from a request for its first byte: a URL signed for GET allows no HEAD."""
        fetcher = self._here().fetcher
        if (pin := fetcher.pins.get(name)) is not None:
            return pin.size
        try:
            stop = Stop()
            self._fetch_here(lambda: fetcher.fetch(name, 0, memoryview(bytearray(1)), stop=stop), stop)
        except ShortReadError as error:
            if error.position == 0:
                return 0
            raise
        return fetcher.pins[name].size

    def tag(self, name: str) -> str | None:
        """``ObjectInfo.tag`` of the version that was read or sized; ``None`` before, and where answers have none."""
        pin = self._here().fetcher.pins.get(name)
        return None if pin is None else pin.tag

    def has_tag(self, name: str, tag: str) -> bool:
        """Whether the version that was read has this tag; false before any was."""
        pin = self._here().fetcher.pins.get(name)
        return pin is not None and pin.has(tag)

    def read_into(self, name: str, start: int, buffer: memoryview) -> None:
        """Fill ``buffer`` with the bytes from ``start`` on, in several requests at once if it is large."""
        view = memoryview(buffer).cast("B")
        if not len(view):
            return
        self.metrics.add(bytes_wanted=len(view))
        wanted = ByteRange(start, start + len(view))
        parts = cut(wanted, self._settings.range_size)
        self._fetch_all(name, [(part, view[part.start - start : part.stop - start]) for part in parts])

    def read_ranges(self, name: str, ranges: Sequence[ByteRange]) -> Sequence[bytes]:
        """The bytes of each range, in the order asked for; ranges that are close together cost one request."""
        self.metrics.add(bytes_wanted=sum(wanted.size for wanted in ranges))
        fetches = coalesce(ranges, max_gap=self._settings.max_gap, max_size=self._settings.range_size)
        spans = [(fetch.span, memoryview(bytearray(fetch.span.size))) for fetch in fetches]
        step = self._settings.range_size
        parts = [
            (part, view[part.start - span.start : part.stop - span.start])
            for span, view in spans
            for part in cut(span, step)
        ]
        self._fetch_all(name, parts)
        found = [b""] * len(ranges)
        for fetch, (span, view) in zip(fetches, spans, strict=True):
            for index in fetch.answers:
                found[index] = bytes(view[ranges[index].start - span.start : ranges[index].stop - span.start])
        return found

    def read_pieces(
        self, name: str, wanted: ByteRange, *, expected_size: int | None = None, expected_tag: str | None = None
    ) -> Generator[memoryview, None, None]:
        """The bytes of one range in pieces of ``range_size``, several of which are under way at once.

        A piece is what has arrived of such a range, so the rest is not waited for. Its buffer is filled again when
        the next range is begun: one read holds at most ``in_flight`` of them, several at once hold few more together.
        Both are lowered where the caller limits what is fetched for it (``fetching``).
        Closing the generator breaks the connections that are reading, and waits for their threads.
        """
        self.metrics.add(bytes_wanted=wanted.size)
        process, stop = self._here(), Stop()
        if wanted.size <= min(_SMALL, self.range_size):
            buffer = memoryview(bytearray(wanted.size))
            self._fetch_here(
                lambda: process.fetcher.fetch(
                    name, wanted.start, buffer, expected_size=expected_size, expected_tag=expected_tag, stop=stop
                ),
                stop,
            )
            yield buffer
            return
        window = RangeWindow(self.range_size, self._settings.in_flight)
        ahead = deque(cut(wanted, window.range_size))
        under_way: deque[_Arriving] = deque()
        try:
            while ahead or under_way:
                while ahead and (not under_way or process.buffers.lent < self._settings.in_flight) and window.take():
                    part = ahead.popleft()
                    one = _Arriving(process.buffers.take(part.size), part.size)
                    under_way.append(one)
                    one.begin(
                        process.workers.submit(
                            self._fetch_in_thread,
                            process.fetcher,
                            name,
                            part.start,
                            one.view,
                            expected_size=expected_size,
                            expected_tag=expected_tag,
                            stop=stop,
                            tell=one.come.put,
                        )
                    )
                for piece in under_way[0].pieces(stop):
                    yield piece
                    self._check_process(process)
                process.buffers.give(under_way.popleft().buffer)
                window.give_back()
        finally:
            window.close()
            if process.pid == os.getpid():
                _end(stop, [one.future for one in under_way if one.future is not None])
                for one in under_way:
                    process.buffers.give(one.buffer)

    def forget(self) -> None:
        """Drop all that is known of objects but keep connections, between two reads of a store that is kept open.

        No version is pinned any more, URLs are signed anew, and memory is given back. No read may be under way.
        """
        if self._process is not None and self._process.pid == os.getpid():
            self._process.forget()

    def close(self) -> None:
        """Give back connections and threads, after the reads that are under way."""
        self._is_closed = True
        process, self._process = self._process, None
        if process is not None and process.pid == os.getpid():
            process.close()

    def _fetch_all(self, name: str, parts: Sequence[tuple[ByteRange, memoryview]]) -> None:
        """Fetch each part into its buffer; the first error, in order of the parts, ends the others."""
        process, stop = self._here(), Stop()
        if len(parts) == 1:
            self._fetch_here(lambda: process.fetcher.fetch(name, parts[0][0].start, parts[0][1], stop=stop), stop)
            return
        futures = [
            process.workers.submit(self._fetch_in_thread, process.fetcher, name, part.start, view, stop=stop)
            for part, view in parts
        ]
        try:
            for future in futures:
                result_of(future)
        finally:
            _end(stop, futures)

    def _fetch_in_thread(self, fetcher: RangeFetcher, *arguments: Any, **named: Any) -> None:
        """Fetch in one of the store's threads."""
        began = time.thread_time()
        try:
            fetcher.fetch(*arguments, **named)
        finally:
            self.metrics.add_thread_cpu(time.thread_time() - began)

    def _fetch_here(self, fetch: Callable[[], None], stop: Stop) -> None:
        """Fetch in this thread."""
        try:
            with cancellable(stop.set):
                fetch()
        except Stopped:
            raise WaitEnded("the read was ended") from None

    def _here(self) -> _Process:
        """The state of this process; made again after a fork."""
        process = self._process
        if process is not None and process.pid == os.getpid():
            return process
        if process is not None:  # forked: the thread that held a lock is not in this process
            self._lock = threading.Lock()
            self.metrics.renew_lock()
        with self._lock:
            if self._is_closed:
                raise StorageError("the store was closed", hint="Open it again")
            if self._process is process:
                self._process = _Process(self._urls, self._settings, self.metrics, self._clock, process)
            assert self._process is not None
            return self._process

    def _check_process(self, process: _Process) -> None:
        if process.pid != os.getpid():
            raise StorageError(
                "this read was begun in another process", hint="Begin it again: threads do not survive a fork"
            )


def _end(stop: Stop, futures: Sequence[Future[None]]) -> None:
    """End what is still under way and wait until it has."""
    if all(future.done() for future in futures):
        return
    stop.set()
    for future in futures:
        if not future.cancel():
            with contextlib.suppress(Stopped, StorageError), left_alone():
                future.result()


class _Arriving:
    """A range on its way into a buffer.

    Args:
        buffer: at least as large.
        size: of the range.
    """

    def __init__(self, buffer: mmap, size: int) -> None:
        self.buffer, self.view, self._size = buffer, memoryview(buffer)[:size], size
        self.come: SimpleQueue[int | None] = SimpleQueue()
        self.future: Future[None] | None = None

    def begin(self, future: Future[None]) -> None:
        """It is fetched; the future is done when all of it is there, or will not be."""
        self.future = future
        future.add_done_callback(lambda _: self.come.put(None))

    def pieces(self, stop: Stop) -> Iterator[memoryview]:
        """What has come each time; ``stop`` is set when the wait is cancelled."""
        given: int = 0
        come: int | None = 0
        while come is not None:
            with cancellable(stop.set), cancellable(lambda: self.come.put(None)):
                come = self.come.get()
                while come is not None and not self.come.empty():
                    come = self.come.get()
            if come is None:
                assert self.future is not None
                if stop.event.is_set() and not self.future.done():
                    raise WaitEnded("the read was ended")
                try:
                    self.future.result()
                except (Stopped, CancelledError):
                    raise WaitEnded("the read was ended") from None
            stop_at = self._size if come is None else come
            if stop_at > given:
                yield self.view[given:stop_at]
                given = stop_at


@dataclass(frozen=True, slots=True)
class Fetch:
    """One request, and which of the wanted ranges it answers (indexes into the input)."""

    span: ByteRange
    answers: tuple[int, ...]


def coalesce(wanted: Sequence[ByteRange], *, max_gap: int, max_size: int) -> list[Fetch]:
    """Join ranges that are close together. Pure: it decides, it does not fetch.

    Args:
        wanted: ranges of one object, in any order; they may overlap or repeat.
        max_gap: unwanted bytes to fetch rather than send a second request; 0 joins only ranges that touch.
        max_size: bytes of a request that joining does not pass. A wanted range is never cut: one that is larger
            is a request of its own.

    Returns:
        requests in order of position; every index of the input is in exactly one of them.
    """
    if max_gap < 0 or max_size < 1:
        raise ValueError(f"max_gap={max_gap} max_size={max_size}")
    fetches: list[Fetch] = []
    start = stop = 0
    answers: list[int] = []
    for index in sorted(range(len(wanted)), key=wanted.__getitem__):
        following = wanted[index]
        joined = max(stop, following.stop)
        if answers and following.start - stop <= max_gap and (joined == stop or joined - start <= max_size):
            stop = joined
            answers.append(index)
            continue
        if answers:
            fetches.append(Fetch(ByteRange(start, stop), tuple(answers)))
        start, stop, answers = following.start, following.stop, [index]
    if answers:
        fetches.append(Fetch(ByteRange(start, stop), tuple(answers)))
    return fetches


def cut(wanted: ByteRange, size: int) -> list[ByteRange]:
    """The range as consecutive parts of ``size`` bytes; the last one may be shorter."""
    return [ByteRange(start, min(start + size, wanted.stop)) for start in range(wanted.start, wanted.stop, size)]


Renew = Callable[[str], str]
"""Takes a URL that has expired, gives one for the same object that has not."""

_SIZED = ".log"
_PAGE = 1000
_FIRST_LOOK = 64 << 10
_LEAST_LOOK = 4 << 10
_A_URL = "https://host/path, with its query if it is signed"
_MOST_KEPT = 64 << 20
"""Bytes of logs that a list of URLs keeps between looking at them and reading them."""


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
            name = _object_name(signed)
            if name in self._urls:
                raise OptionError("two URLs name one object", found=name, hint="Give each object once")
            self._urls[name] = signed
        if not self._urls:
            raise OptionError("the list of URLs is empty", expected="one URL a line, of segments and their indexes")

    def __len__(self) -> int:
        return len(self._urls)

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


@dataclass(slots=True)
class _Beginning:
    """The first bytes of one version of an object."""

    version: Identity | None
    size: int = 0
    pieces: list[tuple[int, bytes]] = field(default_factory=list)

    def of(self, wanted: ByteRange) -> Iterator[memoryview]:
        """As many bytes of the range as are here."""
        for start, piece in self.pieces if wanted.start < self.size else ():
            if wanted.start < start + len(piece) and start < wanted.stop:
                yield memoryview(piece)[max(0, wanted.start - start) : wanted.stop - start]


class UrlListStore(HttpStore):
    """The objects of a ``UrlList``; sizes and tags of logs alone are looked up when they are listed, each once.

    They come with the first bytes. These are kept, as is what is read of logs from there on before they are read as
    listed: up to 64 MiB, which are not fetched again.
    """

    def __init__(self, urls: UrlList, *, settings: HttpSettings) -> None:
        super().__init__(urls, settings=settings)
        self._list = urls
        self._first_look = max(_LEAST_LOOK, min(_FIRST_LOOK, _MOST_KEPT // len(urls)))
        self._known: dict[str, tuple[int, str | None]] = {}
        self._begun: dict[str, _Beginning] = {}
        self._room = _MOST_KEPT

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
        while page := list(islice(infos, _PAGE)):
            logs = [info.name for info in page if info.name.endswith(_SIZED)]
            unknown = [name for name in logs if name not in self._known]
            self._known.update(zip(unknown, read_each(self._look_up, unknown), strict=True))
            for info in page:
                size, tag = self._known.get(info.name, (-1, None))
                yield replace(info, size=size, tag=tag)

    def read_pieces(
        self, name: str, wanted: ByteRange, *, expected_size: int | None = None, expected_tag: str | None = None
    ) -> Generator[memoryview, None, None]:
        """As ``HttpStore.read_pieces``, for the bytes that are not kept."""
        begun, at = self._begun.get(name), wanted.start
        version = self._here().fetcher.pins.get(name)
        if begun is not None and version is not None and begun.version == version:
            is_listed = expected_size in (None, version.size) and (expected_tag is None or version.has(expected_tag))
            for piece in begun.of(wanted) if is_listed else ():
                yield piece
                at += len(piece)
        if at == wanted.stop:
            return
        rest = super().read_pieces(
            name, ByteRange(at, wanted.stop), expected_size=expected_size, expected_tag=expected_tag
        )
        with contextlib.closing(rest):
            for piece in rest:
                if expected_size is None:
                    self._keep(name, at, piece)
                yield piece
                at += len(piece)

    def _keep(self, name: str, start: int, piece: memoryview) -> None:
        """Keep a piece that follows what is kept of an object."""
        process = self._here()
        with process.lock:
            version, begun = process.fetcher.pins.get(name), self._begun.get(name)
            if begun is None or begun.version != version:
                self._room += 0 if begun is None else begun.size
                begun = self._begun[name] = _Beginning(version)
            if start == begun.size and len(piece) <= self._room:
                begun.pieces.append((start, bytes(piece)))
                begun.size += len(piece)
                self._room -= len(piece)

    @property
    def keeps_all(self) -> bool:
        """Whether the logs that were listed are so small that each byte of them is fetched once."""
        return sum(size for size, _ in self._known.values()) <= _MOST_KEPT

    def _look_up(self, name: str) -> tuple[int, str | None]:
        """Size and tag of an object, by the answer with its first bytes, which are kept."""
        process, data, stop = self._here(), memoryview(bytearray(self._first_look)), Stop()
        try:
            self._fetch_here(lambda: process.fetcher.fetch(name, 0, data, stop=stop, may_end=True), stop)
        except ShortReadError as error:
            if error.position == 0:
                return 0, None
            raise
        size = self.size(name)
        self._keep(name, 0, data[:size])
        return size, self.tag(name)

    def forget(self) -> None:
        """As ``HttpStore.forget``; sizes and tags are looked up anew."""
        super().forget()
        self._known.clear()
        self._begun.clear()
        self._room = _MOST_KEPT


def split_url(text: str) -> SplitResult:
    """The parts of a URL.

    Raises:
        OptionError: it is none.
    """
    try:
        return urlsplit(text)
    except ValueError:
        raise OptionError("not a URL", found=redact(text), expected=_A_URL) from None


def _object_name(url: SignedUrl) -> str:
    parts = split_url(url.redacted)
    if parts.scheme not in ("http", "https") or not parts.netloc or parts.path in ("", "/"):
        raise OptionError("not the URL of an object", found=str(url), expected=_A_URL)
    return parts.netloc + unquote(parts.path)
