"""The header of an LZ4 frame, as far as Kafka reads it."""

from __future__ import annotations

from dataclasses import dataclass

from segreader.errors import CorruptBatchError

LZ4_MAGIC = b"\x04\x22\x4d\x18"


@dataclass(frozen=True, slots=True)
class Lz4FrameHeader:
    """The header's facts about the blocks that follow it.

    ``size`` is where the first block begins, ``block_size`` the most bytes a block may hold.
    """

    size: int
    block_size: int
    has_block_checksums: bool = False
    has_content_checksum: bool = False


def parse_lz4_frame_header(data: memoryview, *, is_checked: bool = True) -> Lz4FrameHeader:
    """Decode the header at the start of ``data``.

    Args:
        data: the frame, or more.
        is_checked: whether the header's own checksum must be right. In magic 0 it need not: old clients
            computed it over the wrong bytes (KAFKA-3160).

    Raises:
        CorruptBatchError: no lz4 frame, a cut or damaged header, or options that Kafka refuses: another
            version, blocks that depend on each other, a reserved bit.

    Source: ``Lz4BlockInputStream.readHeader``, ``Lz4BlockOutputStream`` (4.0); LZ4 Frame Format 1.6.
    """
    usual = _USUAL_HEADERS.get(bytes(data[:7]))
    if usual is not None:
        return usual
    if data[:4] != LZ4_MAGIC:
        raise CorruptBatchError(
            "lz4 data has no frame magic", position=0, found=bytes(data[:4]).hex(), expected=LZ4_MAGIC.hex()
        )
    size = 15 if len(data) > 4 and data[4] & 0x08 else 7
    if len(data) < size:
        raise CorruptBatchError(
            "lz4 frame header is cut", position=0, found=f"{len(data)} bytes", expected=f"{size} bytes"
        )
    flags, block_descriptor, checksum = data[4], data[5], data[size - 1]
    if flags & 0xE3 != 0x60 or block_descriptor & 0x8F or block_descriptor < 0x40:
        raise CorruptBatchError(
            "lz4 frame has options that Kafka does not read",
            position=4,
            found=bytes(data[4:6]).hex(),
            expected="version 1, independent blocks of 64 KiB to 4 MiB, no reserved bit",
        )
    right = _header_checksum(bytes(data[4 : size - 1]))
    if is_checked and checksum != right:
        raise CorruptBatchError(
            "lz4 frame header fails its checksum",
            position=size - 1,
            found=f"{checksum:02x}",
            expected=f"{right:02x}",
        )
    return Lz4FrameHeader(size, _block_size(block_descriptor >> 4), bool(flags & 0x10), bool(flags & 0x04))


def block_frame(block: memoryview | bytes, block_size: int) -> bytes:
    """A frame of one block and its checksum, for a frame decoder: only that can check a block.

    Args:
        block: the block's length field, its data and its checksum.
        block_size: the most bytes a block of its frame may hold.
    """
    return b"".join((_CHECKED_BLOCKS[block_size], block, bytes(4)))


def _block_size(code: int) -> int:
    return 1 << 2 * code + 8


def _header_checksum(descriptor: bytes) -> int:
    """The second byte of the XXH32 of fewer than 16 bytes. Source: the xxHash specification 0.1.1."""
    value = 374761393 + len(descriptor)
    whole = len(descriptor) & ~3
    for start in range(0, whole, 4):
        value = (value + int.from_bytes(descriptor[start : start + 4], "little") * 3266489917) & 0xFFFFFFFF
        value = ((value << 17 | value >> 15) * 668265263) & 0xFFFFFFFF
    for byte in descriptor[whole:]:
        value = (value + byte * 374761393) & 0xFFFFFFFF
        value = ((value << 11 | value >> 21) * 2654435761) & 0xFFFFFFFF
    value = ((value ^ value >> 15) * 2246822519) & 0xFFFFFFFF
    value = ((value ^ value >> 13) * 3266489917) & 0xFFFFFFFF
    return (value ^ value >> 16) >> 8 & 0xFF


def _header_bytes(flags: int, code: int) -> bytes:
    descriptor = bytes((flags, code << 4))
    return LZ4_MAGIC + descriptor + bytes((_header_checksum(descriptor),))


_USUAL_HEADERS = {_header_bytes(0x60, code): Lz4FrameHeader(7, _block_size(code)) for code in range(4, 8)}
_CHECKED_BLOCKS = {_block_size(code): _header_bytes(0x70, code) for code in range(4, 8)}
PLAIN_START = _header_bytes(0x60, 4)
"""The header that Java producers write: blocks of 64 KiB, no checksums."""

CHECKED_STARTS = frozenset(_CHECKED_BLOCKS.values())
"""Headers of frames with a checksum behind each block and nothing else, as some clients write them."""
