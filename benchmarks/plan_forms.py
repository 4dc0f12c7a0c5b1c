"""Segments as two layouts have them: small ones to be listed, and ones whose every byte can be made, to be read.

A batch has a fixed size and random bytes in it; only offsets, times and CRC differ from one to the next. So any part of
a topic of any size is made in no time, and what a real writer would have written beside it is known, too.
"""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Mapping
from functools import lru_cache

from crc32c import crc32c

from benchmarks.plan_bucket import Files, Form, Made, Topic
from segreader.format.batch import Record, TimestampType
from segreader.testing.batches import encode_batch
from segreader.testing.side_files import encode_leader_epochs, encode_producer_snapshot

FIRST_TIME_MS = 1_700_000_000_000
BATCH_MS = 1000
"""Time from one batch of a partition to the next."""

BATCH_RECORDS = 16
CHUNK_SIZE = 4 << 20
"""``chunk.size`` of Aiven's plugin, as its documentation has it."""

_SNAPSHOT, _EPOCHS = encode_producer_snapshot([]), encode_leader_epochs([(0, 0)])
_BLOCK_SIZE = 128 << 10


def _make_batch() -> bytes:
    values = random.Random(405)
    return encode_batch(
        [
            Record(at, FIRST_TIME_MS + at, TimestampType.CREATE_TIME, b"key-%04d" % at, values.randbytes(1000))
            for at in range(BATCH_RECORDS)
        ],
        base_offset=0,
        last_offset=BATCH_RECORDS - 1,
    )


_BATCH = _make_batch()
BATCH_SIZE = len(_BATCH)


def batches_of(topic: Topic) -> int:
    """How many batches a segment has."""
    return topic.records // BATCH_RECORDS


def batch(number: int) -> bytes:
    """A partition's batch of this number."""
    time_ms = FIRST_TIME_MS + number * BATCH_MS
    covered = _BATCH[21:27] + struct.pack(">qq", time_ms, time_ms + BATCH_RECORDS - 1) + _BATCH[43:]
    return struct.pack(">q", number * BATCH_RECORDS) + _BATCH[8:17] + struct.pack(">I", crc32c(covered)) + covered


def log(topic: Topic, number: int) -> Made:
    """The log of a segment."""
    count = batches_of(topic)

    def read(start: int, stop: int) -> bytes:
        first = start // BATCH_SIZE
        made = b"".join(batch(number * count + at) for at in range(first, -(-stop // BATCH_SIZE)))
        return made[start - first * BATCH_SIZE : stop - first * BATCH_SIZE]

    return Made(count * BATCH_SIZE, read)


@lru_cache(maxsize=1)
def offset_index(count: int) -> bytes:
    """The ``.index``, the same in every segment: an entry for each batch but the first."""
    entries = (((at + 1) * BATCH_RECORDS - 1, at * BATCH_SIZE) for at in range(1, count))
    return b"".join(struct.pack(">ii", *entry) for entry in entries)


@lru_cache(maxsize=4)
def time_index(count: int, number: int) -> bytes:
    """The ``.timeindex`` of a segment, likewise."""
    last_ms = FIRST_TIME_MS + number * count * BATCH_MS + BATCH_RECORDS - 1
    entries = ((last_ms + at * BATCH_MS, (at + 1) * BATCH_RECORDS - 1) for at in range(1, count))
    return b"".join(struct.pack(">qi", *entry) for entry in entries)


def _indexes(topic: Topic, number: int) -> dict[str, bytes | Made]:
    count = batches_of(topic)
    return {
        "index": Made(8 * (count - 1), lambda start, stop: offset_index(count)[start:stop]),
        "timeindex": Made(12 * (count - 1), lambda start, stop: time_index(count, number)[start:stop]),
    }


def _local_tiered(topic: Topic, partition: int) -> str:
    return f"{topic.name}-{partition}-{topic.topic_id}/"


def _aiven(topic: Topic, partition: int) -> str:
    return f"{topic.name}-{topic.topic_id}/{partition}/"


def _small_local_tiered(topic: Topic, partition: int, number: int) -> Files:
    """A log is one batch that the cleaner emptied, so that its end is found at once."""
    base = number * topic.records
    return {
        "index": b"",
        "leader_epoch_checkpoint": _EPOCHS,
        "log": encode_batch([], base_offset=base, last_offset=base + topic.records - 1),
        "snapshot": _SNAPSHOT,
        "timeindex": b"",
    }


def _local_tiered_files(topic: Topic, partition: int, number: int) -> Files:
    return {
        **_indexes(topic, number),
        "leader_epoch_checkpoint": _EPOCHS,
        "log": log(topic, number),
        "snapshot": _SNAPSHOT,
    }


def _small_aiven(topic: Topic, partition: int, number: int) -> Files:
    size = 100_000_000
    return {
        "indexes": _SNAPSHOT + _EPOCHS,
        "log": Made(size, lambda start, stop: bytes(stop - start)),
        "rsm-manifest": _manifest(topic, partition, number, size, {}, is_compressed=False),
    }


def _aiven_files(topic: Topic, partition: int, number: int) -> Files:
    """Compressed, so that only whole chunks can be had: each a zstd frame of raw blocks, for the bytes are random."""
    plain, indexes = log(topic, number), _indexes(topic, number)
    sizes = {"offset": len(indexes["index"]), "timestamp": len(indexes["timeindex"])}

    def read(start: int, stop: int) -> bytes:
        first = start // _framed_size(CHUNK_SIZE)
        made = b"".join(
            _framed(plain.read(at, min(at + CHUNK_SIZE, plain.size)))
            for at in range(
                first * CHUNK_SIZE, min(-(-stop // _framed_size(CHUNK_SIZE)) * CHUNK_SIZE, plain.size), CHUNK_SIZE
            )
        )
        return made[start - first * _framed_size(CHUNK_SIZE) : stop - first * _framed_size(CHUNK_SIZE)]

    def read_indexes(start: int, stop: int) -> bytes:
        count = batches_of(topic)
        return (offset_index(count) + time_index(count, number) + _SNAPSHOT + _EPOCHS)[start:stop]

    return {
        "indexes": Made(sum(sizes.values()) + len(_SNAPSHOT) + len(_EPOCHS), read_indexes),
        "log": Made(plain.size // CHUNK_SIZE * _framed_size(CHUNK_SIZE) + _framed_size(plain.size % CHUNK_SIZE), read),
        "rsm-manifest": _manifest(topic, partition, number, plain.size, sizes, is_compressed=True),
    }


def _framed_size(size: int) -> int:
    return 9 + size + 3 * -(-size // _BLOCK_SIZE) if size else 0


def _framed(data: bytes) -> bytes:
    """A zstd frame of raw blocks. Source: RFC 8878, section 3.1.1."""
    frame = [struct.pack("<IBI", 0xFD2FB528, 0xA0, len(data))]
    for start in range(0, len(data), _BLOCK_SIZE):
        block = data[start : start + _BLOCK_SIZE]
        is_last = start + _BLOCK_SIZE >= len(data)
        frame += [(len(block) << 3 | is_last).to_bytes(3, "little"), block]
    return b"".join(frame)


def _manifest(
    topic: Topic, partition: int, number: int, size: int, indexes: Mapping[str, int], *, is_compressed: bool
) -> bytes:
    parts, position = {}, 0
    sizes = {"offset": 0, "timestamp": 0, **indexes, "producerSnapshot": len(_SNAPSHOT), "leaderEpoch": len(_EPOCHS)}
    for kind, part_size in sizes.items():
        parts[kind] = {"position": position, "size": part_size}
        position += part_size
    stored = (_framed_size(CHUNK_SIZE), _framed_size(size % CHUNK_SIZE))
    base = number * topic.records
    time_ms = FIRST_TIME_MS + number * batches_of(topic) * BATCH_MS
    document = {
        "version": "1",
        "chunkIndex": {
            "type": "fixed",
            "originalChunkSize": CHUNK_SIZE,
            "originalFileSize": size,
            "transformedChunkSize": stored[0] if is_compressed else CHUNK_SIZE,
            "finalTransformedChunkSize": stored[1] if is_compressed else size % CHUNK_SIZE,
        },
        "segmentIndexes": parts,
        "compression": is_compressed,
        "remoteLogSegmentMetadata": {
            "remoteLogSegmentId": {
                "topicIdPartition": {
                    "topicId": topic.topic_id,
                    "topicPartition": {"topic": topic.name, "partition": partition},
                },
                "id": topic.segment_id(partition, number),
            },
            "startOffset": base,
            "endOffset": base + topic.records - 1,
            "maxTimestampMs": time_ms + (batches_of(topic) - 1) * BATCH_MS + BATCH_RECORDS - 1,
            "brokerId": 1,
            "eventTimestampMs": time_ms,
            "segmentLeaderEpochs": {"0": base},
        },
    }
    return json.dumps(document).encode()


SMALL = {"local-tiered": Form(_local_tiered, _small_local_tiered), "aiven": Form(_aiven, _small_aiven)}
"""Forms to be listed; nothing can be read from their logs."""

WHOLE = {"local-tiered": Form(_local_tiered, _local_tiered_files), "aiven": Form(_aiven, _aiven_files)}
"""Forms to be read, with logs and indexes of many batches."""
