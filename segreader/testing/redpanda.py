"""Kafka's batches as Redpanda stores and uploads them: segments with its own batches in between, manifests, lists of
aborted transactions.

Written apart from ``segreader.catalog`` on purpose, so that a mistake there is not repeated here. Source: Redpanda 24.3
``model/record``, ``partition_manifest``, ``segment_meta_cstore``, ``tx_range_manifest``.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Literal

from crc32c import crc32c

from segreader.catalog.layouts.redpanda.layout import xxh32
from segreader.format.checkpoints import parse_producer_snapshot
from segreader.testing.builder import SegmentBuilder
from segreader.testing.records import FIRST_TIMESTAMP_MS
from segreader.values import dataclass

RAFT_DATA, RAFT_CONFIGURATION, TX_FENCE, ARCHIVAL_METADATA = 1, 2, 10, 19
UNSET = -1 << 63

_KAFKA = struct.Struct(">qiibIhiqqqhii")
_STORED = struct.Struct("<iqbIhiqqqhii")  # all but the CRC before it
_COVERED = struct.Struct(">hiqqqhii")
_FRAME = 1024
_COLUMNS = (
    "is_compacted",
    "size_bytes",
    "base_offset",
    "committed_offset",
    "base_timestamp",
    "max_timestamp",
    "delta_offset",
    "ntp_revision",
    "archiver_term",
    "segment_term",
    "delta_offset_end",
    "sname_format",
    "metadata_size_hint",
)


@dataclass(slots=True)
class _Upload:
    """One segment on its way to the bucket, in Redpanda's offsets."""

    base_offset: int
    delta_offset: int
    term: int
    data: bytearray = field(default_factory=bytearray)
    committed_offset: int = -1
    delta_offset_end: int = 0
    times: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Written:
    """A data batch, as both count."""

    producer_id: int
    kafka_offset: int
    first: int
    last: int
    is_marker: bool


def redpanda_files(
    topic: str,
    segments: Sequence[SegmentBuilder],
    *,
    partition: int = 0,
    revision: int = 21,
    cluster_uuid: str | None = None,
    manifest: Literal["bin", "json"] = "bin",
    name_format: int = 3,
    spilled: int = 0,
    first_delta: int = 0,
) -> dict[str, bytes]:
    """Key -> bytes, of the segments of one log. What is not decided at its end is not uploaded, as Redpanda does it.

    Args:
        segments: magic 2 throughout. Where one offset is left out, a fence of a transaction is put. No transaction
            may begin at offset 0: its fence takes one.
        cluster_uuid: makes labelled keys; without it they are hashed.
        spilled: how many segments, from the first on, a spill-over manifest holds.
        first_delta: how far Kafka's offsets are behind at the start of the log.
    """
    path = f"kafka/{topic}/{partition}_{revision}"
    label = cluster_uuid or f"{xxh32(path.encode()) & 0xF0000000:08x}"
    uploads, written = _write(segments, first_delta)
    ranges = _ranges(segments, written)
    files: dict[str, bytes] = {}
    rows = []
    for upload in uploads:
        name = f"{upload.base_offset}-{upload.term}-v1.log"
        if name_format > 1:
            name = f"{upload.base_offset}-{upload.committed_offset}-{len(upload.data)}-{upload.term}-v1.log"
        hashed = f"{xxh32(f'{path}/{name}'.encode()):08x}"
        key = f"{cluster_uuid or hashed}/{path}/{name}.{upload.term}"
        files[key] = bytes(upload.data)
        touched = [one for one in ranges if one[0] <= upload.committed_offset and one[1] >= upload.base_offset]
        if touched:
            files[key + ".tx"] = encode_transaction_ranges(touched)
        rows.append(_row(upload, revision, name_format, len(files.get(key + ".tx", b""))))
    folder = f"{label}/meta/{path}"
    spill_rows = []
    if spilled:
        held = rows[:spilled]
        spill_rows = [_spill_row(held)]
        bounds = [held[0]["base_offset"], held[-1]["committed_offset"]]
        bounds += [bounds[0] - held[0]["delta_offset"], bounds[1] + 1 - held[-1]["delta_offset_end"]]
        bounds += [held[0]["base_timestamp"], held[-1]["max_timestamp"]]
        name = ".".join(map(str, ["manifest.bin", *bounds]))
        files[f"{folder}/{name}"] = encode_binary_manifest(topic, partition, revision, held)
    encode = encode_binary_manifest if manifest == "bin" else encode_json_manifest
    files[f"{folder}/manifest.{manifest}"] = encode(topic, partition, revision, rows[spilled:], spillover=spill_rows)
    return files


def to_stored(batch: bytes, delta: int) -> bytes:
    """A magic 2 batch with Redpanda's header, ``delta`` offsets further on."""
    base_offset, length, _, magic, crc, *rest = _KAFKA.unpack_from(batch)
    if magic != 2:
        raise ValueError(f"magic {magic}: Redpanda stores magic 2 only")
    return _stored(base_offset + delta, RAFT_DATA, crc, rest, batch[61 : length + 12])


def internal_batch(kind: int, base_offset: int, *, offsets: int = 1, producer_id: int = -1) -> bytes:
    """A batch of Redpanda's own, at an offset of its own counting."""
    rest = [0, offsets - 1, FIRST_TIMESTAMP_MS, FIRST_TIMESTAMP_MS, producer_id, -1, -1, 1]
    body = b"\x0c\x00\x00\x00\x01\x01\x00"  # one record with neither key nor value
    return _stored(base_offset, kind, crc32c(_COVERED.pack(*rest) + body), rest, body)


def encode_transaction_ranges(ranges: Iterable[tuple[int, int, int]]) -> bytes:
    """A ``.tx`` from (first, last, producer id)."""
    rows = [{"pid.id": pid, "pid.epoch": 0, "first": first, "last": last} for first, last, pid in ranges]
    return json.dumps({"version": 1, "compat_version": 1, "ranges": rows}, separators=(",", ":")).encode()


def encode_json_manifest(
    topic: str,
    partition: int,
    revision: int,
    rows: Sequence[Mapping[str, int]],
    *,
    spillover: Sequence[Mapping[str, int]] = (),
    **fields: object,
) -> bytes:
    """A ``manifest.json``; ``fields`` are put in, too. What has its default is left out, as Redpanda does it."""
    document: dict[str, object] = {
        "version": 1,
        "namespace": "kafka",
        "topic": topic,
        "partition": partition,
        "revision": revision,
        "last_offset": rows[-1]["committed_offset"] if rows else 0,
    }
    if rows:
        document["start_offset"] = rows[0]["base_offset"]
        document["segments"] = {f"{row['base_offset']}-{row['segment_term']}-v1.log": _json_row(row) for row in rows}
    if spillover:
        document["archive_start_offset"] = spillover[0]["base_offset"]
        document["spillover"] = [_json_row(row) for row in spillover]
    return json.dumps(document | fields, separators=(",", ":")).encode()


def encode_binary_manifest(
    topic: str,
    partition: int,
    revision: int,
    rows: Sequence[Mapping[str, int]],
    *,
    spillover: Sequence[Mapping[str, int]] = (),
    replaced: Sequence[tuple[int, int]] = (),
    version: int = 4,
    start_kafka_offset: int = UNSET,
) -> bytes:
    """A ``manifest.bin``.

    Args:
        replaced: (base offset, term) of rewritten segments.
        version: 2 ends after the first fields, 4 has what came later.
    """
    start = rows[0]["base_offset"] if rows else UNSET
    archive_start = spillover[0]["base_offset"] if spillover else UNSET
    last = rows[-1]["committed_offset"] if rows else 0
    parts = [_sized(b"kafka"), _sized(topic.encode()), struct.pack("<iq", partition, revision)]
    parts += [_sized(_table(rows)), struct.pack("<I", len(replaced))]
    for base_offset, term in replaced:
        parts.append(_envelope(struct.pack("<qqqqqqi", revision, base_offset, base_offset, UNSET, term, 0, 3)))
    parts.append(
        struct.pack("<qqqqqqqqq", last, start, UNSET, last, 0, archive_start, UNSET, UNSET, start_kafka_offset)
    )
    if version > 2:
        parts += [struct.pack("<q", 0), _sized(_table(spillover)), struct.pack("<q?qq", -1, False, UNSET, last)]
    return _envelope(b"".join(parts), version)


def _write(segments: Sequence[SegmentBuilder], delta: int) -> tuple[list[_Upload], list[_Written]]:
    """The segments' bytes up to where all is decided, and where each data batch came to lie."""
    opened = parse_producer_snapshot(segments[-1].snapshot()).open_transactions().values() if segments else ()
    stop = min(opened, default=1 << 62)
    uploads: list[_Upload] = []
    written: list[_Written] = []
    ends = [segment.base_offset for segment in segments[1:]] + [segment.next_offset for segment in segments[-1:]]
    for segment, end in zip(segments, ends, strict=True):
        upload = _Upload(segment.base_offset + delta, delta, segment.leader_epoch)
        upload.data += internal_batch(RAFT_CONFIGURATION, upload.base_offset)
        delta += 1
        next_offset, log = segment.base_offset, segment.to_bytes()
        for number, position in enumerate(segment.batch_positions):
            base, length, *_ = _KAFKA.unpack_from(log, position)
            if base >= stop:
                break
            batch = log[position : position + length + 12]
            fields = _KAFKA.unpack_from(batch)
            if base == next_offset + 1:
                upload.data += internal_batch(TX_FENCE, next_offset + delta, producer_id=fields[9])
            upload.data += to_stored(batch, delta)
            upload.times += [fields[7], fields[8]]
            next_offset = base + fields[6] + 1
            written.append(_Written(fields[9], base, base + delta, next_offset - 1 + delta, bool(fields[5] & 0x20)))
            if number % 2:
                upload.data += internal_batch(ARCHIVAL_METADATA, next_offset + delta)
                delta += 1
        upload.committed_offset = max(next_offset, min(end, stop)) + delta - 1
        upload.delta_offset_end = delta
        if segment.base_offset < stop:
            uploads.append(upload)
    return uploads, written


def _ranges(segments: Sequence[SegmentBuilder], written: Sequence[_Written]) -> list[tuple[int, int, int]]:
    """Each aborted transaction from its first batch to its last one before the marker."""
    ranges = []
    for entry in (entry for segment in segments for entry in segment.aborted):
        own = [
            one
            for one in written
            if one.producer_id == entry.producer_id
            and entry.first_offset <= one.kafka_offset < entry.last_offset
            and not one.is_marker
        ]
        if own:
            ranges.append((own[0].first, own[-1].last, entry.producer_id))
    return sorted(ranges)


def _row(upload: _Upload, revision: int, name_format: int, list_size: int) -> dict[str, int]:
    values = (
        0,
        len(upload.data),
        upload.base_offset,
        upload.committed_offset,
        upload.times[0] if upload.times else FIRST_TIMESTAMP_MS,
        max(upload.times, default=FIRST_TIMESTAMP_MS),
        upload.delta_offset,
        revision,
        upload.term,
        upload.term,
        upload.delta_offset_end if name_format > 1 else UNSET,
        name_format,
        list_size if name_format > 2 else 0,
    )
    return dict(zip(_COLUMNS, values, strict=True))


def _spill_row(held: Sequence[Mapping[str, int]]) -> dict[str, int]:
    first, last = held[0], held[-1]
    return {
        **first,
        "size_bytes": sum(row["size_bytes"] for row in held),
        "committed_offset": last["committed_offset"],
        "max_timestamp": last["max_timestamp"],
        "delta_offset_end": last["delta_offset_end"],
        "segment_term": last["segment_term"],
        "sname_format": 3,
    }


def _json_row(row: Mapping[str, int]) -> dict[str, object]:
    left_out = {"ntp_revision"} | {name for name, value in row.items() if value == UNSET}
    if row["sname_format"] == 1:
        left_out.add("sname_format")
    fields: dict[str, object] = {name: value for name, value in row.items() if name not in left_out}
    fields["is_compacted"] = bool(row["is_compacted"])
    return fields


def _stored(base_offset: int, kind: int, crc: int, rest: Sequence[int], body: bytes) -> bytes:
    covered = _STORED.pack(len(body) + 61, base_offset, kind, crc, *rest)
    return struct.pack("<I", crc32c(covered)) + covered + body


def _sized(data: bytes) -> bytes:
    return struct.pack("<I", len(data)) + data


def _envelope(content: bytes, version: int = 0) -> bytes:
    return struct.pack("<BBI", version, 0, len(content)) + content


def _table(rows: Sequence[Mapping[str, int]]) -> bytes:
    columns = b"".join(_column([row[name] for row in rows], name == "base_offset") for name in _COLUMNS)
    return _envelope(_envelope(columns + struct.pack("<I", 0)))


def _column(values: Sequence[int], is_rising: bool) -> bytes:
    frames = [values[at : at + _FRAME] for at in range(0, len(values), _FRAME)]
    return _envelope(struct.pack("<I", len(frames)) + b"".join(_frame(frame, is_rising) for frame in frames))


def _frame(values: Sequence[int], is_rising: bool) -> bytes:
    whole = len(values) // 16 * 16
    newest = [*values[whole:], *([0] * 16)][:16]
    parts = [struct.pack("<I16q?", 16, *newest, whole > 0)]
    if whole:
        rows, last = [], values[0]
        for at in range(0, whole, 16):
            differences = []
            for value in values[at : at + 16]:
                differences.append((value - last if is_rising else value ^ last) & (1 << 64) - 1)
                last = value
            rows.append(_pack(differences))
        data = _sized(b"".join(rows))
        parts.append(_envelope(struct.pack("<qq", values[0], last) + data + struct.pack("<I", len(rows))))
    return _envelope(b"".join(parts) + struct.pack("<Q?", len(values), False))


def _pack(differences: Sequence[int]) -> bytes:
    bits = max(differences).bit_length()
    parts, done = [bytes([bits])], 0
    for width in (64, 32, 16, 8):
        if bits - done >= width:
            parts += [(value >> done & (1 << width) - 1).to_bytes(width // 8, "little") for value in differences]
            done += width
    rest = sum((value >> done) << (bits - done) * index for index, value in enumerate(differences))
    return b"".join(parts) + rest.to_bytes(2 * (bits - done), "little")
