"""Objects behind URLs as a store: the ranges of a read are fetched several at a time, and given in order."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NoReturn, Self

from segreader.errors import ShortReadError, StorageError
from segreader.ranges import ByteRange
from segreader.storage.base import ObjectInfo, level_of
from segreader.storage.http.answer import Identity
from segreader.storage.http.coalesce import coalesce, cut
from segreader.storage.http.exchange import Stop, Stopped
from segreader.storage.http.range_fetcher import RangeFetcher
from segreader.storage.http.settings import HttpSettings
from segreader.storage.http.url_leases import UrlLeases, UrlProvider
from segreader.storage.metrics import StorageMetrics
from segreader.storage.retry import Clock
from segreader.storage.signed_url import install_redaction


class _Buffers:
    """Buffers of one size that are used again: touching fresh memory costs more than filling it."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._free: list[bytearray] = []

    def take(self, size: int) -> bytearray:
        """A buffer of at least ``size`` bytes; of exactly that where it is smaller than usual."""
        if size < self.size:
            return bytearray(size)
        try:
            return self._free.pop()
        except IndexError:
            return bytearray(self.size)

    def give(self, buffer: bytearray) -> None:
        """Take back one that is no longer read."""
        if len(buffer) == self.size:
            self._free.append(buffer)


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
            fetcher.fetch(name, 0, memoryview(bytearray(1)))
        except ShortReadError as error:
            if error.position == 0:
                return 0
            raise
        return fetcher.pins[name].size

    def tag(self, name: str) -> str | None:
        """``ObjectInfo.tag`` of the version that was read or sized; ``None`` before, and where answers have none."""
        pin = self._here().fetcher.pins.get(name)
        return None if pin is None else pin.tag

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

        A piece's buffer is filled again when the next one is asked for, so that at most ``in_flight`` of them exist.
        Closing the generator breaks the connections that are reading, and waits for their threads.
        """
        self.metrics.add(bytes_wanted=wanted.size)
        ahead = deque(cut(wanted, self._settings.range_size))
        if len(ahead) == 1:
            buffer = memoryview(bytearray(wanted.size))
            self._here().fetcher.fetch(
                name, wanted.start, buffer, expected_size=expected_size, expected_tag=expected_tag
            )
            yield buffer
            return
        process, stop = self._here(), Stop()
        under_way: deque[tuple[Future[None], bytearray, memoryview]] = deque()
        try:
            while ahead or under_way:
                while ahead and len(under_way) < self._settings.in_flight:
                    part = ahead.popleft()
                    buffer_of_part = process.buffers.take(self._settings.range_size)
                    view = memoryview(buffer_of_part)[: part.size]
                    future = process.workers.submit(
                        process.fetcher.fetch,
                        name,
                        part.start,
                        view,
                        expected_size=expected_size,
                        expected_tag=expected_tag,
                        stop=stop,
                    )
                    under_way.append((future, buffer_of_part, view))
                future, buffer_of_part, view = under_way[0]
                future.result()
                yield view
                self._check_process(process)
                under_way.popleft()
                process.buffers.give(buffer_of_part)
        finally:
            if process.pid == os.getpid():
                _end(stop, [future for future, _, _ in under_way])
                for _, buffer_of_part, _ in under_way:
                    process.buffers.give(buffer_of_part)

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
        process = self._here()
        if len(parts) == 1:
            process.fetcher.fetch(name, parts[0][0].start, parts[0][1])
            return
        stop = Stop()
        futures = [
            process.workers.submit(process.fetcher.fetch, name, part.start, view, stop=stop) for part, view in parts
        ]
        try:
            for future in futures:
                future.result()
        finally:
            _end(stop, futures)

    def _here(self) -> _Process:
        """What belongs to this process; made anew after a fork."""
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
            with contextlib.suppress(Stopped, StorageError):
                future.result()
