from __future__ import annotations

import lz4.frame
import pytest

from segreader.errors import CorruptBatchError
from segreader.format.compression import Lz4FrameHeader, parse_lz4_frame_header

USUAL = bytes.fromhex("04224d18604082")


def parse(data: bytes, *, is_checked: bool = True) -> Lz4FrameHeader:
    return parse_lz4_frame_header(memoryview(data), is_checked=is_checked)


def test_the_header_that_java_writes_means_blocks_of_64_kib_and_no_checksums() -> None:
    assert parse(USUAL + b"rest") == Lz4FrameHeader(size=7, block_size=64 << 10)


@pytest.mark.parametrize("code", [4, 5, 6, 7])
@pytest.mark.parametrize("store_size", [False, True])
@pytest.mark.parametrize("block_checksum", [False, True])
@pytest.mark.parametrize("content_checksum", [False, True])
def test_every_option_that_kafka_reads_is_read_as_another_encoder_writes_it(
    code: int, store_size: bool, block_checksum: bool, content_checksum: bool
) -> None:
    frame = lz4.frame.compress(
        bytes(5 << 20),
        block_size=code,
        block_linked=False,
        store_size=store_size,
        block_checksum=block_checksum,
        content_checksum=content_checksum,
    )

    assert parse(frame) == Lz4FrameHeader(
        size=15 if store_size else 7,
        block_size=1 << (8 + 2 * code),
        has_block_checksums=block_checksum,
        has_content_checksum=content_checksum,
    )


@pytest.mark.parametrize("size", [7, 15])
def test_only_one_value_of_the_header_checksum_is_right(size: int) -> None:
    frame = lz4.frame.compress(b"x" * 100, block_linked=False, store_size=size == 15)
    right = frame[size - 1]
    for value in set(range(256)) - {right}:
        with pytest.raises(CorruptBatchError, match=f"found {value:02x}, expected {right:02x}") as caught:
            parse(frame[: size - 1] + bytes([value]) + frame[size:])
        assert caught.value.position == size - 1


def test_a_header_need_not_be_checked() -> None:
    assert parse(USUAL[:6] + b"\x1a", is_checked=False) == parse(USUAL)


@pytest.mark.parametrize(
    ("flags", "block_descriptor"),
    [
        pytest.param(0x40, 0x40, id="blocks that depend on each other"),
        pytest.param(0x20, 0x40, id="version 0"),
        pytest.param(0xA0, 0x40, id="version 2"),
        pytest.param(0x61, 0x40, id="dictionary"),
        pytest.param(0x62, 0x40, id="reserved flag"),
        pytest.param(0x60, 0x30, id="blocks below 64 KiB"),
        pytest.param(0x60, 0x41, id="reserved low bits"),
        pytest.param(0x60, 0xC0, id="reserved high bit"),
    ],
)
def test_options_that_java_refuses_are_refused(flags: int, block_descriptor: int) -> None:
    with pytest.raises(CorruptBatchError, match=f"found {flags:02x}{block_descriptor:02x}"):
        parse(USUAL[:4] + bytes([flags, block_descriptor, 0]) + bytes(20), is_checked=False)


def test_another_magic_is_not_an_lz4_frame() -> None:
    with pytest.raises(CorruptBatchError, match="found 05224d18, expected 04224d18"):
        parse(b"\x05" + USUAL[1:])


@pytest.mark.parametrize("header", [USUAL, lz4.frame.compress(b"x", block_linked=False, store_size=True)[:15]])
def test_a_header_cut_at_any_byte_is_corrupt(header: bytes) -> None:
    for size in range(len(header)):
        with pytest.raises(CorruptBatchError):
            parse(header[:size])
