"""The HDFS plugin of KIP-405's authors, as Uber runs it: one file holds a segment with all that belongs to it.

``<topic>-<partition>-<topic id>/<segment id>``, no extension. Names hold no offset: the first batch is read. In a
view each file appears as plain ones, ``<file>.log``, ``<file>.index`` and so on; the file's header gives their places.
Byte table: docs/reference/layouts/uber.md.
Source: ``LogSegmentDataHeader``, ``RSMUtils``, ``HDFSRemoteStorageManager`` (satishd/kafka).
"""

from __future__ import annotations

import re
import struct
from collections import OrderedDict
from collections.abc import Generator
from itertools import pairwise
from threading import Lock
from typing import Final

from segreader.catalog.layouts.base import REMOTE_PARTITION_PATH, Layout, Names, PartitionFiles, PartitionPlace
from segreader.catalog.layouts.file_sets import counts_from, read_base_offset
from segreader.errors import CorruptIndexError, ManifestError, ObjectNotFoundError
from segreader.ranges import ByteRange
from segreader.segment import Segment, SegmentFiles, TopicIdPartition
from segreader.storage.base import ObjectInfo, ObjectStore, StoreView, VirtualFile, read_each, read_listed
from segreader.values import dataclass

HEADER_SIZE: Final = 25
PARTS: Final = ("index", "timeindex", "leader_epoch_checkpoint", "snapshot", "txnindex", "log")
"""The parts in the order in which they are stored."""

_HEADER: Final = struct.Struct(">b6i")
_ID: Final = r"[A-Za-z0-9_-]{22}"
_FILE: Final = re.compile(_ID)
_PART: Final = re.compile(
    rf"(?=(?s:.*)/{_ID}\.)"  # refuses the names of other layouts early
    rf"(?P<object>(?:.*/)?[^/]+-\d{{1,10}}-{_ID}/{_ID})\.(?P<kind>{'|'.join(PARTS)})",
    re.ASCII,
)
_HEADERS_KEPT: Final = 256


class UberLayout(Layout):
    """A segment is whole or not there. The older forms with a directory for each segment are not read."""

    name = "uber"
    names = Names(REMOTE_PARTITION_PATH, _FILE)
    plain_files = _PART

    def find(self, store: ObjectStore, place: PartitionPlace) -> PartitionFiles:
        """The segments of one partition, by two or three small requests for each.

        Raises:
            ManifestError: a file does not begin with the header of a segment file.
            FormatError: its log does not begin with a batch.
        """
        (prefix,) = place.prefixes
        files, foreign = [], []
        for info in store.list_level(prefix):
            if _FILE.fullmatch(info.name.removeprefix(prefix)):
                files.append(info)
            else:
                foreign.append(info.name)
        view = UberView(store)
        read = read_each(lambda info: _read_segment(view, place.partition, info), files)
        notes = [note for _, note in read if note is not None]
        return PartitionFiles([segment for segment, _ in read if segment is not None], (), foreign, notes)

    def view(self, store: ObjectStore) -> UberView:
        """The parts of each file under names of their own."""
        return UberView(store)


class UberView(StoreView):
    """A store in which the parts of single-file segments are files; it remembers the headers it met last."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self._headers: OrderedDict[str, SegmentFileHeader] = OrderedDict()
        self._lock = Lock()

    def open(self, name: str) -> VirtualFile | None:
        """The part of a stored file that has this name in the view."""
        if (match := _PART.fullmatch(name)) is None:
            return None
        start, size = self.header(match["object"]).part(match["kind"])
        return _Part(self.inner, match["object"], start, size, self.header(match["object"]).size)

    def header(self, name: str, size: int = -1) -> SegmentFileHeader:
        """Where the parts of a file begin and end.

        Args:
            name: of the stored object.
            size: its bytes; -1 asks the store.

        Raises:
            ManifestError: it does not begin with the header of a segment file.
        """
        with self._lock:
            if known := self._headers.get(name):
                self._headers.move_to_end(name)
                return known
        if size < 0:
            size = self.inner.size(name)
        wanted = min(HEADER_SIZE, size)
        data = self.inner.read_ranges(name, [ByteRange(0, wanted)])[0] if wanted else b""
        try:
            header = parse_segment_file_header(data, size)
        except ManifestError as error:
            raise error.located(source=self.inner.url(name)) from None
        with self._lock:
            self._headers[name] = header
            while len(self._headers) > _HEADERS_KEPT:
                self._headers.popitem(last=False)
        return header


@dataclass(frozen=True, slots=True)
class _Part:
    """Some bytes of a stored object as a file."""

    store: ObjectStore
    name: str
    start: int
    size: int
    object_size: int

    def pieces(self, wanted: ByteRange, *, expected_tag: str | None = None) -> Generator[memoryview, None, None]:
        """Consecutive pieces of a range of the part."""
        stored = ByteRange(self.start + wanted.start, self.start + wanted.stop)
        yield from read_listed(self.store, self.name, stored, size=self.object_size, tag=expected_tag)


def _read_segment(view: UberView, partition: TopicIdPartition, info: ObjectInfo) -> tuple[Segment | None, str | None]:
    is_certain, note = False, None
    try:
        header = view.header(info.name, info.size)
        sizes = {f"{info.name}.{kind}": header.part(kind)[1] for kind in PARTS}
        log, index = f"{info.name}.log", f"{info.name}.index"
        if not sizes[log]:
            return None, f"{info.name} holds an empty log: nothing says its offset, and it holds no record"
        base_offset = read_base_offset(view, log, sizes[log])
        try:
            is_certain = counts_from(view, base_offset, log, sizes[log], index, sizes[index])
        except CorruptIndexError as error:
            note = str(error)
    except ObjectNotFoundError:
        return None, f"{info.name} vanished while it was looked at: retention removed it, or a copy was given up"

    def named(kind: str) -> str | None:
        return f"{info.name}.{kind}" if sizes[f"{info.name}.{kind}"] else None

    segment = Segment(
        partition=partition,
        base_offset=base_offset,
        log_size=sizes[log],
        files=SegmentFiles(
            log=log,
            # their offsets count from the segment's base, which only these names leave open
            offset_index=index if is_certain else None,
            time_index=named("timeindex") if is_certain else None,
            transaction_index=named("txnindex"),
            producer_snapshot=named("snapshot"),
            leader_epochs=named("leader_epoch_checkpoint"),
            sizes=sizes,
        ),
        segment_id=info.name.rpartition("/")[2],
        version=info.modified_ms or 0,
        log_tag=info.tag,
    )
    return segment, note


@dataclass(frozen=True, slots=True)
class SegmentFileHeader:
    """Where the parts of one file begin, in bytes from its start.

    Args:
        starts: of each of ``PARTS``; a part ends where the next one begins, the log at the end of the file.
        size: bytes of the whole file.
    """

    starts: tuple[int, ...]
    size: int

    def part(self, kind: str) -> tuple[int, int]:
        """Start and size of a part; size 0 where it is absent or empty."""
        index = PARTS.index(kind)
        stop = self.starts[index + 1] if index + 1 < len(self.starts) else self.size
        return self.starts[index], stop - self.starts[index]


def parse_segment_file_header(data: bytes, size: int) -> SegmentFileHeader:
    """Decode the first 25 bytes of a single-file segment.

    Args:
        data: its beginning.
        size: bytes of the whole file.

    Raises:
        ManifestError: it is cut, has another version, or its parts do not follow each other inside the file.

    Source: ``LogSegmentDataHeader`` (satishd/kafka).
    """
    if len(data) < HEADER_SIZE:
        raise ManifestError(
            "the header of a segment file is cut",
            found=f"{len(data)} bytes",
            expected=f"{HEADER_SIZE} bytes",
            position=0,
        )
    version, *starts = _HEADER.unpack_from(data)
    if version != 0:
        raise ManifestError(
            "a segment file has an unknown version",
            found=version,
            expected=0,
            position=0,
            hint="If this object is not a segment of the HDFS plugin, choose another layout",
        )
    if starts[0] != HEADER_SIZE:
        raise ManifestError(
            "the first part of a segment file does not follow its header",
            found=f"byte {starts[0]}",
            expected=f"byte {HEADER_SIZE}",
            position=1,
        )
    for index, (one, two) in enumerate(pairwise([*starts, size])):
        if two < one:
            what = f"the {PARTS[index]} of a segment file ends before it begins"
            raise ManifestError(what, found=f"bytes {one} to {two}", position=1 + 4 * index)
    return SegmentFileHeader(tuple(starts), size)
