from __future__ import annotations

import struct

import pytest

from segreader.catalog.layouts.file_sets import counts_from, read_base_offset
from segreader.errors import (
    CorruptBatchError,
    CorruptIndexError,
    FormatError,
    LimitExceededError,
    TruncatedError,
    UnsupportedMagicError,
)
from segreader.format.compression import Codec
from segreader.testing.builder import SegmentBuilder
from segreader.testing.stores import MemoryStore


def base_of(data: bytes) -> int:
    return read_base_offset(MemoryStore({"log": data}), "log", len(data))


def is_proven(base_offset: int, log: bytes, index: bytes) -> bool:
    return counts_from(MemoryStore({"l": log, "i": index}), base_offset, "l", len(log), "i", len(index))


def test_a_batch_says_its_offset_even_if_it_is_cut_behind_its_header() -> None:
    data = SegmentBuilder(4711).batch([b"x" * 100]).to_bytes()
    assert base_of(data) == 4711
    assert base_of(data[:62]) == 4711


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
@pytest.mark.parametrize("magic", [0, 1])
def test_a_wrapper_bears_its_last_offset_and_is_opened_for_its_first(magic: int, codec: Codec) -> None:
    assert base_of(SegmentBuilder(20).message_set([b"x"] * 10, magic=magic, codec=codec).to_bytes()) == 20


def test_what_begins_with_no_batch_is_a_format_error_with_its_name() -> None:
    with pytest.raises(UnsupportedMagicError) as caught:
        base_of(b"<html>this is no log, but as long as the header of a batch</html>")
    assert caught.value.source == "memory://bucket/log"
    with pytest.raises(CorruptBatchError):
        base_of(b"\0" * 100)
    with pytest.raises(TruncatedError, match="no place in the log"):
        base_of(b"\0" * 16)


def test_a_wrapper_that_is_cut_or_claims_to_be_huge_is_refused_before_it_is_read() -> None:
    whole = bytearray(SegmentBuilder(20).message_set([b"x"] * 10, codec=Codec.GZIP).to_bytes())
    with pytest.raises(TruncatedError):
        base_of(bytes(whole[:-1]))
    whole[8:12] = struct.pack(">i", 1 << 30)
    store = MemoryStore({"log": bytes(whole)})
    with pytest.raises(LimitExceededError):
        read_base_offset(store, "log", 1 << 31)
    assert store.requests == ["GET log bytes=0-60"]


def test_a_first_batch_cut_anywhere_or_with_any_bit_flipped_gives_an_offset_or_a_format_error() -> None:
    for builder in (SegmentBuilder(9).batch([b"x"]), SegmentBuilder(9).message_set([b"x"] * 3, codec=Codec.GZIP)):
        whole = builder.to_bytes()
        spoiled = [whole[:length] for length in range(1, len(whole))]
        spoiled += [bytes(b ^ (i == at // 8) << at % 8 for i, b in enumerate(whole)) for at in range(8 * len(whole))]
        for data in spoiled:
            try:
                assert base_of(data) >= 0
            except FormatError as error:
                assert error.source == "memory://bucket/log"


def test_an_index_proves_the_base_that_it_counts_from() -> None:
    built = SegmentBuilder(100, index_interval_bytes=1).batch([b"a", b"b"]).batch([b"c", b"d"]).batch([b"e"])
    log, index = built.to_bytes(), built.index()
    assert is_proven(100, log, index)
    assert is_proven(100, log, index + b"\0\0\0")
    assert not is_proven(101, log, index)


def test_an_index_of_messages_of_the_old_formats_proves_its_base_too() -> None:
    built = SegmentBuilder(100, index_interval_bytes=1)
    for _ in range(3):
        built.message_set([b"x"] * 4, codec=Codec.GZIP)
    assert is_proven(100, built.to_bytes(), built.index())
    assert not is_proven(103, built.to_bytes(), built.index())


@pytest.mark.parametrize(
    "index",
    [
        b"",
        b"\0" * 7,
        struct.pack(">ii", -1, 0),
        struct.pack(">ii", 1, -1),
        struct.pack(">ii", 3, 0),
    ],
)
def test_an_index_that_is_empty_damaged_or_of_several_batches_proves_nothing(index: bytes) -> None:
    log = SegmentBuilder(100).batch([b"a", b"b"]).batch([b"c", b"d"]).to_bytes()
    assert not is_proven(100, log, index)


@pytest.mark.parametrize("position", [1 << 30, 5])
def test_an_index_that_points_behind_its_log_or_to_no_batch_is_not_of_that_log(position: int) -> None:
    log = SegmentBuilder(100).batch([b"a", b"b"]).batch([b"c", b"d"]).to_bytes()
    with pytest.raises(CorruptIndexError, match=f"byte {position}") as caught:
        is_proven(100, log, struct.pack(">ii", 1, position))
    assert caught.value.source == "memory://bucket/i"
