"""Partitions of any size for the workers of Spark, made as they are read."""

from __future__ import annotations

import random
import struct

from crc32c import crc32c

from benchmarks.plan_bucket import Bucket, Files, Form, Made, Topic
from benchmarks.plan_forms import WHOLE
from segreader.format.batch import Record, TimestampType
from segreader.format.compression import Codec
from segreader.testing.batches import encode_batch

SEGMENT = 1 << 30
RECORDS = 128
VALUE = 1000
HEX = b"0123456789abcdef"


def batches(codec: int) -> Form:
    """Segments of 1 GiB of batches of 128 KB of records; each batch is stored as wide as the others."""
    values = random.Random(6)
    records = [
        Record(at, 1_700_000_000_000, TimestampType.CREATE_TIME, b"key-%04d" % at, bytes(values.choices(HEX, k=VALUE)))
        for at in range(RECORDS)
    ]
    whole = encode_batch(records, base_offset=0, last_offset=RECORDS - 1, codec=codec)
    size, count = len(whole), SEGMENT // len(whole)
    entries = [((at + 1) * RECORDS - 1, at * size) for at in range(1, count)]
    index = b"".join(struct.pack(">ii", *entry) for entry in entries)
    other = WHOLE["local-tiered"]

    def files(topic: Topic, partition: int, number: int) -> Files:
        base = number * topic.records

        def read(start: int, stop: int) -> bytes:
            first = start // size
            made = b"".join(struct.pack(">q", base + at * RECORDS) + whole[8:] for at in range(first, -(-stop // size)))
            return made[start - first * size : stop - first * size]

        plain = other.files(topic, partition, number)
        return {**plain, "index": index, "timeindex": b"", "log": Made(count * size, read)}

    assert crc32c(whole[21:]) == struct.unpack_from(">I", whole, 17)[0]
    return Form(other.directory, files)


def records_of(form: Form) -> int:
    """Offsets of one segment."""
    log = form.files(Topic("t", 1, 1, 0), 0, 0)["index"]
    return (len(log) // 8 + 1) * RECORDS


def bucket_of(codec: str, size: int) -> Bucket:
    """One partition of so many bytes in segments of 1 GiB."""
    form = batches(Codec[codec.upper()])
    return Bucket(form, [Topic("orders", 1, size // SEGMENT, records_of(form))])
