"""What a log holds, in numbers: one pass over the batches, without decoding a record."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, field, fields
from functools import partial
from typing import Any, Final

from segreader.cli.file_rows import FileKind, codec_name, pieces_of, side_file_rows
from segreader.errors import CorruptBatchError, FormatError, ObjectNotFoundError, shown_count
from segreader.format.batch import CRC_START, HEADER_SIZE, RecordBatchHeader, crc32c
from segreader.format.compression import Decompressor
from segreader.format.message_set import MessageHeader, iter_messages
from segreader.format.records import iter_records, parse_control_key
from segreader.format.scanner import BatchReady, Done, NeedData, SegmentScanner, Tail
from segreader.isolation import TransactionReplay
from segreader.read.ahead import ReadAhead, in_order
from segreader.segment import Segment
from segreader.storage.base import ObjectStore, read_each, read_whole
from segreader.values import dataclass

_MESSAGE_OVERHEAD = {0: 26, 1: 34}  # bytes of a message besides its key and value

_ITEM_BYTES: Final = 500
"""Of memory: an item that waits, or what a summary keeps of one producer."""


@dataclass(slots=True)
class CodecSummary:
    """The data batches of one codec. Bytes count what is compressed: records, without the header of their batch."""

    batches: int = 0
    records: int = 0
    stored_bytes: int = 0
    uncompressed_bytes: int = 0


@dataclass(slots=True)
class ProducerSummary:
    """What one idempotent or transactional producer wrote."""

    producer_epoch: int = -1
    batches: int = 0
    records: int = 0
    is_transactional: bool = False


@dataclass(slots=True)
class Totals:
    """Counters over the batches of a log; ``None`` where no batch has said it yet."""

    segments: int = 0
    size: int = 0
    batches: int = 0
    control_batches: int = 0
    records: int = 0
    first_offset: int | None = None
    last_offset: int | None = None
    first_timestamp: int | None = None
    max_timestamp: int | None = None
    max_marker_timestamp: int | None = None
    magics: dict[str, int] = field(default_factory=dict)
    timestamp_types: dict[str, int] = field(default_factory=dict)


class LogSummary:
    """What the segments of one partition hold together. Some that were read apart are joined in offset order.

    Args:
        store: where they lie.
        decompressor: of the thread that reads; its own by default.
    """

    def __init__(self, store: ObjectStore, decompressor: Decompressor | None = None) -> None:
        self._store = store
        self._decompressor = decompressor or Decompressor()
        self._totals = Totals()
        self._codecs: dict[str, CodecSummary] = {}
        self._producers: dict[int, ProducerSummary] = {}
        self._epochs: dict[int, int] = {}
        self._replay = TransactionReplay()
        self._ended: set[int] = set()  # ids of producers of which a transaction ended
        self._markers = {"COMMIT": 0, "ABORT": 0}
        self._damage: list[dict[str, Any]] = []
        self._notes: list[str] = []

    @property
    def is_sound(self) -> bool:
        """Whether no damage was found."""
        return not self._damage

    def read(self, segment: Segment) -> Iterator[int]:
        """Look at one segment and the files beside it, and give numbers of bytes as they are read.

        Damage is remembered, never raised.

        Raises:
            StorageError: bytes cannot be had.
        """
        self._totals.segments += 1
        self._totals.size += segment.log_size
        self._look_at_side_files(segment)
        source = self._store.url(segment.files.log)
        scanner = SegmentScanner(stop=segment.log_size)
        with closing(pieces_of(self._store, segment.files.log, segment.log_size)) as pieces:
            while True:
                try:
                    answer = scanner.next()
                except FormatError as error:
                    self._note_damage(error, source)
                    return
                if isinstance(answer, NeedData):
                    piece = next(pieces, b"")
                    scanner.feed(piece)
                    yield len(piece)
                elif isinstance(answer, BatchReady):
                    try:
                        self._add_batch(answer)
                    except FormatError as error:
                        error.located(position_shift=answer.position)
                        self._note_damage(error.located(position=answer.position), source)
                else:
                    self._note_tail(answer, segment, source)
                    return

    def join(self, later: LogSummary) -> None:
        """Add what was found in the segments behind those that are in this summary."""
        _join(self._totals, later._totals)
        for name, codec in later._codecs.items():
            _join(self._codecs.setdefault(name, CodecSummary()), codec)
        for producer_id, producer in later._producers.items():
            _join(self._producers.setdefault(producer_id, ProducerSummary()), producer)
        for epoch, first in later._epochs.items():
            self._epochs.setdefault(epoch, first)
        for producer_id in later._ended:
            self._replay.marker(producer_id, 0, False)
        for producer_id, offset in later._replay.open_transactions.items():
            self._replay.data(producer_id, offset)
        self._ended |= later._ended
        for name, count in later._markers.items():
            self._markers[name] += count
        for damage in later._damage:
            if damage not in self._damage:  # a checkpoint belongs to every segment of its directory
                self._damage.append(damage)
        self._notes += later._notes

    @property
    def memory_bytes(self) -> int:
        """About what it takes of memory."""
        return _ITEM_BYTES * (1 + len(self._producers) + len(self._epochs) + len(self._ended) + 2 * len(self._damage))

    def to_json(self) -> dict[str, Any]:
        """Everything, under the names of docs/reference/cli-objects.md."""
        codecs = [
            {"codec": name} | asdict(codec) | {"ratio": _ratio(codec)} for name, codec in sorted(self._codecs.items())
        ]
        producers = [
            {"producer_id": producer_id} | asdict(producer) for producer_id, producer in sorted(self._producers.items())
        ]
        still_open = [
            {"producer_id": producer_id, "first_offset": offset}
            for producer_id, offset in sorted(self._replay.open_transactions.items())
        ]
        return asdict(self._totals) | {
            "leader_epochs": [{"epoch": epoch, "first_offset": first} for epoch, first in self._epochs.items()],
            "codecs": codecs,
            "producers": producers,
            "transactions": {
                "committed": self._markers["COMMIT"],
                "aborted": self._markers["ABORT"],
                "open": still_open,
            },
            "damage": self._damage,
            "notes": self._notes,
        }

    def _add_batch(self, batch: BatchReady) -> None:
        header = batch.header
        totals = self._totals
        totals.batches += 1
        totals.magics[str(header.magic)] = totals.magics.get(str(header.magic), 0) + 1
        name = header.timestamp_type.java_name
        totals.timestamp_types[name] = totals.timestamp_types.get(name, 0) + 1
        if isinstance(header, MessageHeader):
            self._add_message_set(header, batch)
        else:
            self._add_record_batch(header, batch)

    def _add_message_set(self, header: MessageHeader, batch: BatchReady) -> None:
        _check(zlib.crc32, batch.data[16:], header.crc, header.offset)
        records = size = 0
        for message in iter_messages(batch.data, self._decompressor):
            self._cover(message.record.offset, message.record.offset)
            self._cover_time(message.record.timestamp_ms, message.record.timestamp_ms)
            records += 1
            size += _MESSAGE_OVERHEAD[message.magic] + len(message.record.key or b"") + len(message.record.value or b"")
        self._count(header.codec, records, header.size, size)

    def _add_record_batch(self, header: RecordBatchHeader, batch: BatchReady) -> None:
        _check(crc32c, batch.data[CRC_START:], header.crc, header.base_offset)
        self._cover(header.base_offset, header.last_offset)
        self._epochs.setdefault(header.partition_leader_epoch, header.base_offset)
        if header.is_control:
            self._totals.control_batches += 1
            if header.max_timestamp >= 0:
                self._totals.max_marker_timestamp = max(header.max_timestamp, self._totals.max_marker_timestamp or -1)
            self._add_control(header, batch)
            return
        first = None if header.delete_horizon_ms is not None or not header.record_count else header.base_timestamp
        self._cover_time(first, header.max_timestamp)
        stored = batch.data[HEADER_SIZE:]
        body = self._decompressor.decompress(header.codec, stored)
        self._count(header.codec, header.record_count, len(stored), len(body))
        if header.producer_id >= 0:
            producer = self._producers.setdefault(header.producer_id, ProducerSummary())
            producer.producer_epoch = max(producer.producer_epoch, header.producer_epoch)
            producer.batches += 1
            producer.records += header.record_count
            producer.is_transactional |= header.is_transactional
        if header.is_transactional and header.record_count:
            self._replay.data(header.producer_id, header.base_offset)

    def _add_control(self, header: RecordBatchHeader, batch: BatchReady) -> None:
        for record in iter_records(batch.data, self._decompressor, check_crcs=False):
            key = parse_control_key(record.key)
            if key.is_end_of_transaction:
                self._markers[key.type.name] += 1
                self._replay.marker(header.producer_id, header.base_offset, key.is_abort)
                self._ended.add(header.producer_id)

    def _count(self, codec: int, records: int, stored: int, uncompressed: int) -> None:
        self._totals.records += records
        counted = self._codecs.setdefault(codec_name(codec), CodecSummary())
        counted.batches += 1
        counted.records += records
        counted.stored_bytes += stored
        counted.uncompressed_bytes += uncompressed

    def _cover(self, first: int, last: int) -> None:
        totals = self._totals
        totals.first_offset = first if totals.first_offset is None else min(first, totals.first_offset)
        totals.last_offset = last if totals.last_offset is None else max(last, totals.last_offset)

    def _cover_time(self, first: int | None, latest: int) -> None:
        totals = self._totals
        if totals.first_timestamp is None and first is not None and first >= 0:
            totals.first_timestamp = first
        if latest >= 0:
            totals.max_timestamp = max(latest, -1 if totals.max_timestamp is None else totals.max_timestamp)

    def _look_at_side_files(self, segment: Segment) -> None:
        files = segment.files
        named = (
            (FileKind.INDEX, files.offset_index),
            (FileKind.TIME_INDEX, files.time_index),
            (FileKind.TRANSACTION_INDEX, files.transaction_index),
            (FileKind.SNAPSHOT, files.producer_snapshot),
            (FileKind.LEADER_EPOCHS, files.leader_epochs),
        )
        given = [(kind, name) for kind, name in named if name is not None]
        read = read_each(self._read_if_there, [name for _, name in given])
        for (kind, name), data in zip(given, read, strict=True):
            if data is None:
                continue
            try:
                if isinstance(data, FormatError):
                    raise data
                for _ in side_file_rows(kind, data, segment.base_offset):
                    pass
            except FormatError as error:
                self._note_damage(error, self._store.url(name))

    def _read_if_there(self, name: str) -> bytes | FormatError | None:
        """The bytes of a small object, or what is wrong with it; ``None`` where it is not there."""
        try:
            return read_whole(self._store, name)
        except ObjectNotFoundError:
            return None
        except FormatError as error:
            return error

    def _note_tail(self, done: Done, segment: Segment, source: str) -> None:
        if done.tail is Tail.END:
            return
        what = "ends inside a batch" if done.tail is Tail.CUT else "ends in zeros"
        text = f"{source}: the segment {what}: {shown_count(done.trailing_bytes, 'byte')} after byte {done.position}"
        if segment.is_active:
            self._notes.append(text)
        else:
            self._damage.append({"source": source, "position": done.position, "error": text})

    def _note_damage(self, error: FormatError, source: str) -> None:
        error.located(source=source)
        damage = {"source": source, "position": error.position, "error": str(error)}
        if damage not in self._damage:  # a checkpoint belongs to every segment of its directory
            self._damage.append(damage)


def read_summaries(
    store: ObjectStore, segments: Sequence[Segment], ahead: ReadAhead
) -> Generator[int | LogSummary, None, None]:
    """Of each segment, in their order, numbers of bytes as they are read, and then its summary.

    Raises:
        StorageError: as ``LogSummary.read``, after what is before.
    """

    def open_reader() -> Callable[[Segment], Iterator[int | LogSummary]]:
        return partial(_read_summary, store, Decompressor())

    return in_order(
        segments,
        open_reader,
        name="segreader-inspect",
        threads=ahead.threads,
        most_bytes=ahead.most_waiting,
        size_of=lambda one: _ITEM_BYTES if isinstance(one, int) else one.memory_bytes,
        fetched_of=lambda segment: ahead.held_by(segment.log_size),
        most_fetched=ahead.most_fetched,
    )


def _read_summary(store: ObjectStore, decompressor: Decompressor, segment: Segment) -> Iterator[int | LogSummary]:
    summary = LogSummary(store, decompressor)
    yield from summary.read(segment)
    yield summary


_ADDED: Final = frozenset(
    {"segments", "size", "batches", "control_batches", "records", "stored_bytes", "uncompressed_bytes"}
)


def _join(whole: Totals | CodecSummary | ProducerSummary, part: Totals | CodecSummary | ProducerSummary) -> None:
    """Add the numbers of what is behind."""
    for name, value, more in ((one.name, getattr(whole, one.name), getattr(part, one.name)) for one in fields(whole)):
        if isinstance(value, dict):
            joined: Any = dict(value)
            for key, count in more.items():
                joined[key] = joined.get(key, 0) + count
        elif value is None or more is None:
            joined = more if value is None else value
        elif name in _ADDED:
            joined = value + more
        elif name == "first_timestamp":
            joined = value
        else:
            joined = min(value, more) if name == "first_offset" else max(value, more)
        setattr(whole, name, joined)


def _check(checksum: Callable[[memoryview], int], data: memoryview, expected: int, base_offset: int) -> None:
    if (found := checksum(data)) != expected:
        raise CorruptBatchError(
            "a batch fails its CRC",
            found=f"{found:08x}",
            expected=f"{expected:08x} as its header says",
            base_offset=base_offset,
        )


def _ratio(codec: CodecSummary) -> float | None:
    """Uncompressed bytes for each stored one."""
    return round(codec.uncompressed_bytes / codec.stored_bytes, 3) if codec.stored_bytes else None
