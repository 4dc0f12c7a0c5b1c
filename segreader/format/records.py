"""The records of one batch as plain values, for tools that show a batch, and what control records mean.

``iter_records`` decodes with the kernels that fill columns; only the last step differs. Consumers are never given a
control record: ABORT and COMMIT end a transaction; the other types occur only in the logs and snapshots of a KRaft
quorum. A type or a version not known here is a value, not an error, because newer brokers may add some. Byte tables:
docs/reference/formats.md.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Iterator
from enum import IntEnum
from struct import unpack_from
from typing import TypeVar

from segreader.errors import CorruptBatchError, CorruptRecordError, FormatError, TruncatedError
from segreader.format.batch import COMMON_SIZE, Headers, Record, TimestampType, check_common
from segreader.format.columns import (
    Buffer,
    BufferPool,
    ColumnBuffers,
    Outcome,
    State,
    batch_table,
)
from segreader.format.compression import Decompressor
from segreader.format.kernel import Kernel, damage_error, load_kernel
from segreader.format.message_set import parse_message_set_entry
from segreader.values import dataclass

_COLUMNS = frozenset({"offset", "timestamp_ms", "timestamp_type", "key", "value", "headers"})


def iter_records(
    batch: bytes | memoryview,
    decompressor: Decompressor,
    *,
    check_crcs: bool = True,
    kernel: Kernel | None = None,
) -> Iterator[Record]:
    """The records of one whole batch of any magic, control records included, in the order they are stored.

    Args:
        batch: all its bytes.
        decompressor: used until the iterator is done.

    Raises:
        FormatError: after the records before the damage; ``position`` counts from the start of ``batch``.
    """
    data = memoryview(batch)
    size, magic = _size_and_magic(data)
    if len(data) != size:
        raise (TruncatedError if len(data) < size else CorruptBatchError)(
            "a batch is not as long as its size says",
            position=0,
            found=f"{len(data)} bytes",
            expected=f"{size} bytes",
            hint="Give one batch from its first byte to its last; SegmentScanner finds them",
        )
    if magic < 2:
        yield from parse_message_set_entry(data, decompressor, check_crcs=check_crcs)
        return
    kernel = kernel or load_kernel()
    table = batch_table()
    rows, _ = kernel.scan_batches(data, 0, 0, table, len(data))
    columns = ColumnBuffers(_COLUMNS, BufferPool(1 << 20), max_rows=1024, max_bytes=1 << 20)
    columns.state[State.NEXT_OFFSET] = -(1 << 63)
    columns.state[State.CURSOR_MOVES] = 0
    while True:
        error: FormatError | None = None
        outcome = Outcome(kernel.decode_batches(columns, data, 0, table, rows, check_crcs, decompressor))
        if outcome is Outcome.DAMAGED:
            error = damage_error(columns.state, table)
        if outcome is Outcome.GROW and columns.make_room():
            continue
        yield from _rows(columns)
        columns.reset()
        if error is not None:
            raise error
        if outcome in (Outcome.DONE, Outcome.STOPPED):
            return


def _size_and_magic(data: memoryview) -> tuple[int, int]:
    if len(data) < COMMON_SIZE:
        raise TruncatedError(
            "too few bytes for the header of a batch",
            position=0,
            found=f"{len(data)} bytes",
            expected=f"at least {COMMON_SIZE} bytes",
        )
    _, size, magic = check_common(data, 0)
    return size, magic


def _rows(columns: ColumnBuffers) -> Iterator[Record]:
    state, buffers = columns.state, columns.buffers
    for row in range(state[State.ROWS]):
        first, last = _span(buffers[Buffer.HEADER_OFFSETS], row)
        headers: Headers = tuple(
            (
                str(
                    _cell(buffers[Buffer.HEADER_KEY_OFFSETS], buffers[Buffer.HEADER_KEY_DATA], index),
                    "utf-8",
                ),
                None
                if state[State.HEADER_VALUE_NULLS] and not _is_set(buffers[Buffer.HEADER_VALUE_VALIDITY], index)
                else _cell(buffers[Buffer.HEADER_VALUE_OFFSETS], buffers[Buffer.HEADER_VALUE_DATA], index),
            )
            for index in range(first, last)
        )
        yield Record(
            offset=unpack_from("=q", _there(buffers[Buffer.OFFSET]), 8 * row)[0],
            timestamp_ms=unpack_from("=q", _there(buffers[Buffer.TIMESTAMP]), 8 * row)[0],
            timestamp_type=TimestampType(unpack_from("=i", _there(buffers[Buffer.TIMESTAMP_TYPE]), 4 * row)[0]),
            key=None
            if state[State.KEY_NULLS] and not _is_set(buffers[Buffer.KEY_VALIDITY], row)
            else _cell(buffers[Buffer.KEY_OFFSETS], buffers[Buffer.KEY_DATA], row),
            value=None
            if state[State.VALUE_NULLS] and not _is_set(buffers[Buffer.VALUE_VALIDITY], row)
            else _cell(buffers[Buffer.VALUE_OFFSETS], buffers[Buffer.VALUE_DATA], row),
            headers=headers,
        )


def _there(buffer: bytearray | None) -> bytearray:
    return buffer if buffer is not None else bytearray()


def _span(offsets: bytearray | None, row: int) -> tuple[int, int]:
    first, last = unpack_from("=ii", _there(offsets), 4 * row)
    return first, last


def _cell(offsets: bytearray | None, data: bytearray | None, row: int) -> bytes:
    first, last = _span(offsets, row)
    return bytes(_there(data)[first:last])


def _is_set(bits: bytearray | None, row: int) -> bool:
    return bool(_there(bits)[row >> 3] & (1 << (row & 7)))


_T = TypeVar("_T")
_KEY = struct.Struct(">hh")
_END_TXN_MARKER = struct.Struct(">hi")


class ControlRecordType(IntEnum):
    """The types that Kafka 4.x knows. Source: ``ControlRecordType`` (4.0)."""

    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


@dataclass(frozen=True, slots=True)
class EndTxnMarker:
    """Value of ABORT and COMMIT. Source: ``EndTransactionMarker`` (4.0)."""

    version: int
    coordinator_epoch: int


@dataclass(frozen=True, slots=True)
class Voter:
    """A member of the quorum; ``directory_id`` (22 characters of base64url) from version 1 on."""

    voter_id: int
    directory_id: str | None = None


@dataclass(frozen=True, slots=True)
class LeaderChange:
    """Value of LEADER_CHANGE. Source: ``LeaderChangeMessage`` (4.3), KIP-595, KIP-853."""

    version: int
    leader_id: int
    voters: tuple[Voter, ...]
    granting_voters: tuple[Voter, ...]


@dataclass(frozen=True, slots=True)
class SnapshotHeader:
    """Value of SNAPSHOT_HEADER, the first batch of a ``.checkpoint``. Source: KIP-630."""

    version: int
    last_contained_log_timestamp_ms: int


@dataclass(frozen=True, slots=True)
class SnapshotFooter:
    """Value of SNAPSHOT_FOOTER, the last batch of a ``.checkpoint``. Source: KIP-630."""

    version: int


@dataclass(frozen=True, slots=True)
class KRaftVersion:
    """Value of KRAFT_VERSION. Source: KIP-853."""

    version: int
    kraft_version: int


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a voter listens."""

    name: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class KRaftVoter:
    """A voter, where it listens, and which protocol versions it can speak."""

    voter_id: int
    directory_id: str
    endpoints: tuple[Endpoint, ...]
    min_supported_version: int
    max_supported_version: int


@dataclass(frozen=True, slots=True)
class KRaftVoters:
    """Value of KRAFT_VOTERS. Source: ``VotersRecord`` (4.3), KIP-853."""

    version: int
    voters: tuple[KRaftVoter, ...]


ControlValue = EndTxnMarker | LeaderChange | SnapshotHeader | SnapshotFooter | KRaftVersion | KRaftVoters


@dataclass(frozen=True, slots=True)
class ControlRecordKey:
    """The first four bytes of a control record's key; newer versions only add bytes."""

    version: int
    type_id: int

    @property
    def type(self) -> ControlRecordType:
        """The type, ``UNKNOWN`` for an id without a name here."""
        try:
            return ControlRecordType(self.type_id)
        except ValueError:
            return ControlRecordType.UNKNOWN

    @property
    def is_abort(self) -> bool:
        """Whether the record ends its producer's transaction with an abort."""
        return self.type_id == ControlRecordType.ABORT

    @property
    def is_end_of_transaction(self) -> bool:
        """Whether the record is an ABORT or a COMMIT."""
        return self.type_id in (ControlRecordType.ABORT, ControlRecordType.COMMIT)


@dataclass(frozen=True, slots=True)
class ControlRecord:
    """One control record; ``value`` stays bytes (or null) where its type or version is not known here."""

    key: ControlRecordKey
    value: ControlValue | bytes | None


def parse_control_key(key: bytes | memoryview | None) -> ControlRecordKey:
    """What kind of control record this is. Filtering needs no more than this.

    Raises:
        CorruptRecordError: null, below four bytes, or of a negative version.

    Source: ``ControlRecordType.parseTypeId`` (4.0).
    """
    if key is None or len(key) < _KEY.size:
        raise CorruptRecordError(
            "the key of a control record is cut",
            found="null" if key is None else f"{len(key)} bytes",
            expected=f"at least {_KEY.size} bytes",
        )
    version, type_id = _KEY.unpack_from(key)
    if version < 0:
        raise CorruptRecordError(
            "the key of a control record has an impossible version",
            found=version,
            expected="0 or more",
            position=0,
        )
    return ControlRecordKey(version, type_id)


def parse_control_record(key: bytes | memoryview | None, value: bytes | memoryview | None) -> ControlRecord:
    """A control record with its value decoded.

    Raises:
        CorruptRecordError: the key is impossible, or the value of a known type and version is cut or
        malformed;
            ``position`` counts from the start of the value.
    """
    parsed_key = parse_control_key(key)
    raw = None if value is None else bytes(value)
    decoder = _DECODERS.get(parsed_key.type)
    if decoder is None:
        return ControlRecord(parsed_key, raw)
    decode, latest = decoder
    reader = _MessageReader(raw or b"")
    version = reader.integer(2)
    if version < 0:
        raise CorruptRecordError(
            f"a {parsed_key.type.name} record has an impossible version",
            found=version,
            expected="0 or more",
            position=0,
        )
    if latest is not None and version > latest:
        return ControlRecord(parsed_key, raw)
    return ControlRecord(parsed_key, decode(reader, version))


class _MessageReader:
    """A cursor over Kafka's flexible message encoding; every read goes through ``take``."""

    __slots__ = ("_data", "_position")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def take(self, size: int) -> bytes:
        """The next ``size`` bytes."""
        stop = self._position + size
        if stop > len(self._data):
            raise CorruptRecordError(
                "the value of a control record is cut",
                found=f"{len(self._data) - self._position} bytes",
                expected=f"{size} bytes",
                position=self._position,
            )
        taken = self._data[self._position : stop]
        self._position = stop
        return taken

    def integer(self, size: int, *, signed: bool = True) -> int:
        """A big-endian integer of ``size`` bytes."""
        return int.from_bytes(self.take(size), "big", signed=signed)

    def unsigned_varint(self) -> int:
        """An unsigned varint of at most five bytes."""
        start, value = self._position, 0
        for shift in range(0, 35, 7):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise CorruptRecordError("a varint has more than five bytes", position=start)

    def array(self, element: Callable[[], _T]) -> tuple[_T, ...]:
        """A compact array; its length is stored plus one, and 0 means null, which no field here may be.

        Elements take bytes, so a wrong length ends at the end of the data.
        """
        start = self._position
        if (stored := self.unsigned_varint()) == 0:
            raise CorruptRecordError("an array of a control record is null", position=start)
        return tuple(element() for _ in range(stored - 1))

    def text(self) -> str:
        """A compact string, decoded as Java does: what is not UTF-8 is replaced."""
        start = self._position
        if (stored := self.unsigned_varint()) == 0:
            raise CorruptRecordError("a string of a control record is null", position=start)
        return self.take(stored - 1).decode("utf-8", "replace")

    def uuid(self) -> str:
        """A UUID in Kafka's text form."""
        return base64.urlsafe_b64encode(self.take(16))[:22].decode("ascii")

    def skip_tags(self) -> None:
        """Step over tagged fields, none of which is known here."""
        for _ in range(self.unsigned_varint()):
            self.unsigned_varint()
            self.take(self.unsigned_varint())


def _end_txn_marker(reader: _MessageReader, version: int) -> EndTxnMarker:
    return EndTxnMarker(version, reader.integer(4))


def _leader_change(reader: _MessageReader, version: int) -> LeaderChange:
    def voter() -> Voter:
        voter = Voter(reader.integer(4), reader.uuid() if version >= 1 else None)
        reader.skip_tags()
        return voter

    change = LeaderChange(version, reader.integer(4), reader.array(voter), reader.array(voter))
    reader.skip_tags()
    return change


def _snapshot_header(reader: _MessageReader, version: int) -> SnapshotHeader:
    header = SnapshotHeader(version, reader.integer(8))
    reader.skip_tags()
    return header


def _snapshot_footer(reader: _MessageReader, version: int) -> SnapshotFooter:
    reader.skip_tags()
    return SnapshotFooter(version)


def _kraft_version(reader: _MessageReader, version: int) -> KRaftVersion:
    record = KRaftVersion(version, reader.integer(2))
    reader.skip_tags()
    return record


def _kraft_voters(reader: _MessageReader, version: int) -> KRaftVoters:
    def endpoint() -> Endpoint:
        endpoint = Endpoint(reader.text(), reader.text(), reader.integer(2, signed=False))
        reader.skip_tags()
        return endpoint

    def voter() -> KRaftVoter:
        voter_id, directory_id, endpoints = reader.integer(4), reader.uuid(), reader.array(endpoint)
        lowest, highest = reader.integer(2), reader.integer(2)
        reader.skip_tags()
        reader.skip_tags()
        return KRaftVoter(voter_id, directory_id, endpoints, lowest, highest)

    voters = KRaftVoters(version, reader.array(voter))
    reader.skip_tags()
    return voters


# The second of each pair is the last version known; markers of a newer one only add bytes.
_DECODERS: dict[ControlRecordType, tuple[Callable[[_MessageReader, int], ControlValue], int | None]] = {
    ControlRecordType.ABORT: (_end_txn_marker, None),
    ControlRecordType.COMMIT: (_end_txn_marker, None),
    ControlRecordType.LEADER_CHANGE: (_leader_change, 1),
    ControlRecordType.SNAPSHOT_HEADER: (_snapshot_header, 0),
    ControlRecordType.SNAPSHOT_FOOTER: (_snapshot_footer, 0),
    ControlRecordType.KRAFT_VERSION: (_kraft_version, 0),
    ControlRecordType.KRAFT_VOTERS: (_kraft_voters, 0),
}
