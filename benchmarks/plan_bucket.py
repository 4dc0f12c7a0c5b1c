"""A bucket of any size that is never held: names, sizes and the bytes that are read are made when asked for.

It counts what it is asked as a bill does: a page of a listing holds 1000 names, a range of an object is one request.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from threading import Lock

from segreader.catalog.layouts.registry import choose_layouts, open_view
from segreader.catalog.listing import EVERYTHING, Wanted, list_places, read_place
from segreader.errors import ObjectNotFoundError
from segreader.ranges import ByteRange
from segreader.storage.base import ObjectInfo, level_of
from segreader.stored.source import SourceLog, Wants
from segreader.testing.directory import kafka_uuid

PAGE = 1000


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic, and how much of it lies in the bucket. ``records`` are the offsets of a segment."""

    name: str
    partitions: int
    segments: int
    records: int = 1000

    @property
    def topic_id(self) -> str:
        return kafka_uuid(self.name)

    def segment_id(self, partition: int, number: int) -> str:
        return kafka_uuid(self.name, partition, number)

    def stem(self, partition: int, number: int) -> str:
        """What the files of a segment are called, but for what stands behind the dot."""
        return f"{number * self.records:020d}-{self.segment_id(partition, number)}"


@dataclass(frozen=True, slots=True)
class Made:
    """An object of which any part can be made."""

    size: int
    read: Callable[[int, int], bytes]

    def __len__(self) -> int:
        return self.size


Files = Mapping[str, bytes | Made]
"""What is stored of one segment, by what stands behind the dot."""


@dataclass(frozen=True, slots=True)
class Form:
    """How topics are laid out: the directory of a partition, and the files of its segments by number."""

    directory: Callable[[Topic, int], str]
    files: Callable[[Topic, int, int], Files]


class Bucket:
    """A store of topics in one form.

    ``pages`` and ``listed`` count listings and what they gave, ``reads`` and ``read_bytes`` ranges of objects and how
    large they were, by what stands behind the dot.
    """

    def __init__(self, form: Form, topics: Sequence[Topic]) -> None:
        self._form = form
        self._places = {form.directory(topic, one): (topic, one) for topic in topics for one in range(topic.partitions)}
        self._directories = sorted(self._places)
        self._lock = Lock()
        self.pages = self.listed = 0
        self.reads: Counter[str] = Counter()
        self.read_bytes: Counter[str] = Counter()

    @property
    def objects(self) -> int:
        """How many there are."""
        return sum(
            topic.segments * len(self._form.files(topic, partition, 0)) for topic, partition in self._places.values()
        )

    def url(self, name: str) -> str:
        return f"sim://bucket/{name}"

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        return self._paged(self._below(prefix))

    def list_level(self, prefix: str = "") -> Iterator[ObjectInfo]:
        return self._paged(level_of(self._below(prefix, is_level=True), prefix))

    def size(self, name: str) -> int:
        self._count_read(name, 0)
        return len(self._stored(name))

    def read_ranges(self, name: str, ranges: Sequence[ByteRange]) -> Sequence[bytes]:
        return [self._read(name, wanted) for wanted in ranges]

    def read_into(self, name: str, start: int, buffer: memoryview) -> None:
        if len(buffer):
            buffer[:] = self._read(name, ByteRange(start, start + len(buffer)))

    def read_pieces(
        self, name: str, wanted: ByteRange, *, expected_size: int | None = None, expected_tag: str | None = None
    ) -> Generator[memoryview, None, None]:
        self._count_read(name, wanted.size)
        stored = self._stored(name)
        for start in range(wanted.start, wanted.stop, 1 << 20):
            yield memoryview(_part(stored, start, min(start + (1 << 20), wanted.stop)))

    def close(self) -> None:
        pass

    def _read(self, name: str, wanted: ByteRange) -> bytes:
        self._count_read(name, wanted.size)
        return _part(self._stored(name), wanted.start, wanted.stop)

    def _below(self, prefix: str, *, is_level: bool = False) -> Iterator[ObjectInfo]:
        """The objects below a prefix in order; of a level one for each directory: a delimiter spares the others."""
        parent = prefix.rpartition("/")[0] + "/"
        if parent in self._places and parent != prefix:
            yield from (info for info in self._objects_in(parent) if info.name.startswith(prefix))
            return
        for at in range(bisect_left(self._directories, prefix), len(self._directories)):
            directory = self._directories[at]
            if not directory.startswith(prefix):
                return
            for info in self._objects_in(directory):
                yield info
                if is_level and directory != prefix:
                    break

    def _objects_in(self, directory: str) -> Iterator[ObjectInfo]:
        topic, partition = self._places[directory]
        for number in range(topic.segments):
            stem = directory + topic.stem(partition, number)
            for kind, stored in self._form.files(topic, partition, number).items():
                yield ObjectInfo(f"{stem}.{kind}", len(stored))

    def _stored(self, name: str) -> bytes | Made:
        directory, slash, file = name.rpartition("/")
        topic, partition = self._places[directory + slash]
        stem, _, kind = file.partition(".")
        number = int(stem[:20]) // topic.records
        files = self._form.files(topic, partition, number)
        if stem != topic.stem(partition, number) or kind not in files:
            raise ObjectNotFoundError("no such object", source=self.url(name))
        return files[kind]

    def _paged(self, found: Iterator[ObjectInfo]) -> Iterator[ObjectInfo]:
        """A request for each page that is begun, an empty one, too."""
        page = list(islice(found, PAGE))
        with self._lock:
            self.pages += 1
        while page:
            with self._lock:
                self.listed += len(page)
            yield from page
            if page := list(islice(found, PAGE)):
                with self._lock:
                    self.pages += 1

    def _count_read(self, name: str, size: int) -> None:
        kind = name.rpartition(".")[2]
        with self._lock:
            self.reads[kind] += 1
            self.read_bytes[kind] += size


class Prepared(Bucket):
    """A bucket that has made its names and its objects, and holds them; ETags are as S3 has them of small objects."""

    def __init__(self, form: Form, topics: Sequence[Topic]) -> None:
        super().__init__(form, topics)
        self._made: dict[str, bytes | Made] = {}
        self._infos: dict[str, list[ObjectInfo]] = {}
        for directory, (topic, partition) in self._places.items():
            infos = self._infos[directory] = []
            for number in range(topic.segments):
                stem = directory + topic.stem(partition, number)
                for kind, stored in form.files(topic, partition, number).items():
                    infos.append(ObjectInfo(f"{stem}.{kind}", len(stored), tag=_tag_of(stored)))
                    self._made[infos[-1].name] = stored

    def _objects_in(self, directory: str) -> Iterator[ObjectInfo]:
        return iter(self._infos[directory])

    def _stored(self, name: str) -> bytes | Made:
        return self._made[name]


def _tag_of(stored: bytes | Made) -> str | None:
    return None if isinstance(stored, Made) else f"etag:{hashlib.md5(stored, usedforsecurity=False).hexdigest()}"


def _part(stored: bytes | Made, start: int, stop: int) -> bytes:
    return stored.read(start, stop) if isinstance(stored, Made) else stored[start:stop]


class BucketSource:
    """Where a ``Scan`` reads: a bucket, by listing, its layout unknown."""

    shown = "sim://bucket"

    def __init__(self, bucket: Bucket) -> None:
        self._layouts = choose_layouts(None)
        self.store = open_view(bucket, self._layouts)

    def logs(self, wanted: Wanted = EVERYTHING, wants: Wants | None = None) -> Iterator[SourceLog]:
        for place in list_places(self.store, "", self._layouts, wanted):
            if wants is None or wants(place.partition):
                yield SourceLog(read_place(self.store, place, self._layouts))
