"""How producers compress a batch: one function per codec, each with the framing that Java's producer writes.

A compressor is any ``bytes -> bytes``. Where a test needs another producer's framing (or a broken one), it
passes its own to the builder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import cramjam
import lz4.frame
import zstandard
from isal import igzip

from segreader.format.compression import Codec

Compressor = Callable[[bytes], bytes]

XERIAL_HEADER = bytes.fromhex("82534e4150505900 00000001 00000001")
"""Magic, version and lowest compatible version. Source: ``SnappyOutputStream`` (xerial)."""


def gzip(data: bytes) -> bytes:
    """One gzip member without a time in its header."""
    return igzip.compress(data, mtime=0)


def snappy_xerial(data: bytes, block_size: int = 32 << 10) -> bytes:
    """A xerial stream with a new block every ``block_size`` bytes: what Java writes."""
    blocks = [snappy_raw(data[at : at + block_size]) for at in range(0, len(data), block_size)]
    return XERIAL_HEADER + b"".join(len(block).to_bytes(4, "big") + block for block in blocks)


def snappy_raw(data: bytes) -> bytes:
    """One snappy block without any framing: what librdkafka writes."""
    return bytes(cramjam.snappy.compress_raw(data))


def lz4_frame(data: bytes) -> bytes:
    """An LZ4 frame of independent 64 KiB blocks, with neither size nor checksums."""
    framed: bytes = lz4.frame.compress(
        data,
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        content_checksum=False,
        store_size=False,
    )
    return framed


def lz4_frame_with_old_checksum(data: bytes) -> bytes:
    """The same with the header checksum of magic 0, which took in the frame's magic. Source: KAFKA-3160."""
    framed = bytearray(lz4_frame(data))
    framed[6] = 0x1A  # over magic, FLG and BD; 0x82 is the right one, over FLG 60 and BD 40
    return bytes(framed)


def zstd(data: bytes) -> bytes:
    """A zstd frame without a content size, as a stream writes it."""
    stream = zstandard.ZstdCompressor(level=3).compressobj()
    return stream.compress(data) + stream.flush()


def stored(data: bytes) -> bytes:
    """The data as it is: codec none."""
    return data


JAVA_COMPRESSORS: Mapping[int, Compressor] = {
    Codec.NONE: stored,
    Codec.GZIP: gzip,
    Codec.SNAPPY: snappy_xerial,
    Codec.LZ4: lz4_frame,
    Codec.ZSTD: zstd,
}
"""What Java's producer uses for each codec."""
