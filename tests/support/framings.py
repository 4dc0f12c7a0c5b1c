"""Bodies as producers frame them, with every option that a codec has: for what Java's producer writes there is
``segreader.testing.compressors``."""

from __future__ import annotations

import zlib

import cramjam
import lz4.block
import lz4.frame
import zstandard

XERIAL = bytes.fromhex("82534e4150505900 00000001 00000001")


def gzip_member(data: bytes, flags: int = 0, fields: bytes = b"") -> bytes:
    """A gzip member with any flags and optional header fields; flag 2 appends the header's checksum."""
    header = b"\x1f\x8b\x08" + bytes([flags]) + bytes(6) + fields
    if flags & 2:
        header += (zlib.crc32(header) & 0xFFFF).to_bytes(2, "little")
    trailer = zlib.crc32(data).to_bytes(4, "little") + len(data).to_bytes(4, "little")
    return header + zlib.compress(data, wbits=-15) + trailer


def snappy_raw(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


def snappy_xerial(data: bytes, block_size: int = 32 << 10) -> bytes:
    blocks = [snappy_raw(data[at : at + block_size]) for at in range(0, len(data), block_size)]
    return XERIAL + b"".join(len(block).to_bytes(4, "big") + block for block in blocks)


def lz4_frame(data: bytes, **options: object) -> bytes:
    settings = {"block_linked": False, "store_size": False, **options}
    framed: bytes = lz4.frame.compress(data, **settings)
    return framed


def lz4_block(data: bytes, *, stored: bool = False) -> bytes:
    """One block with its length, as in a frame."""
    block = data if stored else lz4.block.compress(data, store_size=False)
    return (len(block) | stored << 31).to_bytes(4, "little") + block


def zstd_stream(data: bytes, **options: int) -> bytes:
    """A zstd frame without a content size, as Java's producer writes it."""
    parameters = zstandard.ZstdCompressionParameters.from_level(3, write_content_size=0, **options)
    stream = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    return stream.compress(data) + stream.flush()


def zstd_with_size(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True).compress(data)
