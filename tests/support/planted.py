"""A sound partition in ``LocalTieredStorage``, defects planted into it, and what verification says of them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from segreader.evidence.findings import Finding
from segreader.format.index_files import parse_time_index
from segreader.stored.source import Catalog, LocationSource
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import kafka_uuid, local_tiered_files, write_files
from segreader.testing.remote_log_metadata import NO_TAGS, Tags, encode_segment_metadata, encode_segment_update
from segreader.verify.verify import verify

TOPIC = "orders"
TOPIC_ID = kafka_uuid(TOPIC)
LONG_LATER_MS = 4_000_000_000_000
"""A time at which nothing that a test writes looks like an upload that is going on."""

Files = dict[str, bytes]


def sound_log(count: int = 3) -> list[SegmentBuilder]:
    """Segments with index entries, two leader epochs, and transactions that end in later segments."""
    segment = SegmentBuilder(0, index_interval_bytes=200)
    segments = []
    for number in range(count):
        segments.append(segment)
        if number == 1:
            segment.new_leader(4)
        for value in range(12):
            segment.batch([b"%d" % value, b"x" * 40])
        segment.batch([b"a"], producer_id=7, transactional=True)
        segment.batch([b"b"], producer_id=8, transactional=True)
        segment.marker(7, abort=True).batch([b"c"])
        if number:
            segment.marker(8, abort=number % 2 == 1)
        segment.batch([b"d", b"e"])
        segment = segment.roll()
    return segments


class Planted:
    """The files of a partition, open to changes.

    Args:
        root: an empty directory.
        segments: of the partition.
    """

    def __init__(self, root: Path, segments: list[SegmentBuilder] | None = None, *, partition: int = 0) -> None:
        self.root = root
        self.segments = sound_log() if segments is None else segments
        self.files: Files = dict(local_tiered_files(TOPIC, self.segments, partition=partition))

    def name(self, number: int, kind: str) -> str:
        """The path of a file of the segment with this number."""
        start = f"{self.segments[number].base_offset:020d}-"
        return next(
            path for path in self.files if path.rpartition("/")[2].startswith(start) and path.endswith(f".{kind}")
        )

    def data(self, number: int, kind: str) -> bytearray:
        """The bytes of a file, to be changed and put back."""
        return bytearray(self.files[self.name(number, kind)])

    def put(self, number: int, kind: str, data: bytes | bytearray) -> None:
        """Replace a file."""
        self.files[self.name(number, kind)] = bytes(data)

    def remove(self, number: int, kind: str) -> None:
        """Take a file away."""
        del self.files[self.name(number, kind)]

    def rename(self, number: int, base_offset: int) -> None:
        """Give the files of a segment another offset in their names."""
        start = f"{self.segments[number].base_offset:020d}-"
        for path in [path for path in self.files if path.rpartition("/")[2].startswith(start)]:
            directory, _, file = path.rpartition("/")
            self.files[f"{directory}/{base_offset:020d}-{file[21:]}"] = self.files.pop(path)

    def find(self, *, deep: bool = False, catalog: Catalog | None = None, now_ms: int | None = None) -> list[Finding]:
        """Write everything and verify it."""
        write_files(self.root, self.files)
        return list(self._find(deep, catalog, now_ms))

    def codes_of_both(self, catalog: Catalog | None = None) -> set[str]:
        """The codes that are found without looking into the logs, which are those that are found with it."""
        codes = self.codes(catalog=catalog)
        assert self.codes(catalog=catalog, deep=True) == codes
        return codes

    def codes(self, *, deep: bool = False, catalog: Catalog | None = None, with_info: bool = False) -> set[str]:
        """The codes that are found, without info unless it is asked for."""
        found = self.find(deep=deep, catalog=catalog)
        return {one.code.value for one in found if with_info or one.severity.value != "info"}

    def _find(self, deep: bool, catalog: Catalog | None, now_ms: int | None) -> Iterator[Finding]:
        source = LocationSource(str(self.root), catalog=catalog)
        return verify(source, deep=deep, now_ms=LONG_LATER_MS if now_ms is None else now_ms)


STARTED, FINISHED, DELETING, DELETED = range(4)


class Told:
    """A partition and what the metadata topic says of it.

    Args:
        states: of each segment, the last one it reached.
        segments: of the partition.
        calls_empty: whether its broker says which transaction indexes are empty.
    """

    def __init__(
        self,
        root: Path,
        states: tuple[int, ...] = (FINISHED, FINISHED, FINISHED),
        *,
        segments: list[SegmentBuilder] | None = None,
        calls_empty: bool = False,
    ) -> None:
        self.planted = Planted(root / "remote", segments)
        self.root = root
        self.records: list[bytes] = []
        for segment, state in zip(self.planted.segments, states, strict=True):
            tags = {0: b"\1"} if calls_empty and not segment.aborted else NO_TAGS
            self.tell(segment, kafka_uuid(TOPIC, 0, TOPIC_ID, segment.base_offset), state, tags=tags)

    def tell(
        self, segment: SegmentBuilder, segment_id: str, state: int, *, log_size: int | None = None, tags: Tags = NO_TAGS
    ) -> None:
        """Say that a segment was uploaded, and how far that came."""
        last = segment.next_offset - 1
        epochs = [(epoch, max(start, segment.base_offset)) for epoch, start in segment.leader_epochs if start <= last]
        self.records.append(
            encode_segment_metadata(
                TOPIC,
                TOPIC_ID,
                0,
                segment_id,
                start_offset=segment.base_offset,
                end_offset=last,
                epochs=epochs[-1:],
                max_timestamp_ms=parse_time_index(segment.time_index(), 0).max_timestamp_ms or 0,
                log_size=len(segment.to_bytes()) if log_size is None else log_size,
                tags=tags,
            )
        )
        for reached in {STARTED: (), FINISHED: (1,), DELETING: (1, 2), DELETED: (1, 2, 3)}[state]:
            self.records.append(encode_segment_update(TOPIC, TOPIC_ID, 0, segment_id, reached))

    def write_metadata(self) -> Path:
        """Write the metadata topic; the place of its log directories."""
        built = SegmentBuilder(0).batch(self.records)
        write_files(self.root / "metadata", {f"__remote_log_metadata-0/{0:020d}.log": built.to_bytes()})
        return self.root / "metadata"

    def codes(self, *, with_info: bool = False) -> set[str]:
        """What is found, the same with and without looking into the logs."""
        catalog = Catalog(metadata=self.write_metadata())
        codes = self.planted.codes(catalog=catalog, with_info=with_info)
        assert self.planted.codes(catalog=catalog, with_info=with_info, deep=True) == codes
        return codes


def damaged(data: bytes, dice: random.Random) -> bytes:
    """The bytes after one accident."""
    at, count = dice.randrange(len(data)), dice.randrange(1, 40)
    match dice.choice(["flip", "cut", "overwrite", "zero", "insert", "delete"]):
        case "flip":
            return data[:at] + bytes([data[at] ^ 1 << dice.randrange(8)]) + data[at + 1 :]
        case "cut":
            return data[:at]
        case "overwrite":
            return data[:at] + dice.randbytes(count) + data[at + count :]
        case "zero":
            return data[:at] + bytes(count) + data[at + count :]
        case "insert":
            return data[:at] + dice.randbytes(count) + data[at:]
        case _:
            return data[:at] + data[at + count :]
