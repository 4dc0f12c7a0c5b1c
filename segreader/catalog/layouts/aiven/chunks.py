"""The chunks of a log in its stored object: bytes of the plain file mapped to bytes of the object, and back.

The plain file is cut every ``original_chunk_size`` bytes, not at batches. Each chunk is stored by itself, and the
stored chunks follow each other with nothing between them. Source: ``FixedSizeChunkIndex``, ``VariableSizeChunkIndex``,
``ChunkSizesBinaryCodec`` of the plugin (1.1).
"""

from __future__ import annotations

import base64
from array import array
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from struct import Struct

import zstandard

from segreader.errors import ManifestError, ShortReadError
from segreader.ranges import ByteRange

_MAX_LIST_SIZE = 10 << 20
_MAX_INT = (1 << 31) - 1
_INT = Struct(">i")
_BASE_AND_WIDTH = Struct(">ib")


@dataclass(frozen=True, slots=True)
class ChunkIndex:
    """Of one log: how long its chunks are, and where each begins in the stored object.

    Args:
        original_chunk_size: bytes of each chunk of the plain file but the last.
        original_file_size: bytes of the plain file.
        starts: first byte of each stored chunk, from 0 on.
        stored_size: bytes of the stored object.
    """

    original_chunk_size: int
    original_file_size: int
    starts: Sequence[int] = field(repr=False)
    stored_size: int

    def __len__(self) -> int:
        return len(self.starts)

    def original_range(self, chunk: int) -> ByteRange:
        """The bytes of the plain file that a chunk holds."""
        start = chunk * self.original_chunk_size
        return ByteRange(start, min(start + self.original_chunk_size, self.original_file_size))

    def stored_range(self, chunks: range) -> ByteRange:
        """The bytes of the stored object that consecutive chunks take."""
        return ByteRange(self.starts[chunks.start], self._stop(chunks.stop - 1))

    def chunks_of(self, wanted: ByteRange) -> range:
        """The chunks that hold a range of the plain file."""
        return range(wanted.start // self.original_chunk_size, (wanted.stop - 1) // self.original_chunk_size + 1)

    def stored_sizes(self, chunks: range) -> Iterable[int]:
        """Bytes of each of these chunks as it is stored."""
        return (self._stop(chunk) - self.starts[chunk] for chunk in chunks)

    def _stop(self, chunk: int) -> int:
        return self.starts[chunk + 1] if chunk + 1 < len(self.starts) else self.stored_size


def fixed_chunks(chunk_size: int, file_size: int, stored_chunk_size: int, last_stored_size: int) -> ChunkIndex:
    """The index of chunks that are all stored in the same size but the last.

    Raises:
        ManifestError: a chunk that holds something has no stored bytes, or an empty file has some.
    """
    count = -(-file_size // chunk_size)
    if (last_stored_size > 0) != (count > 0) or (count > 1 and not stored_chunk_size):
        raise ManifestError(
            "the sizes of the stored chunks contradict the size of the file",
            found=f"stored chunks of {stored_chunk_size} bytes, the last of {last_stored_size}",
            expected=f"{count} chunks that are not empty",
        )
    starts = range(0, count * max(1, stored_chunk_size), max(1, stored_chunk_size))
    return ChunkIndex(chunk_size, file_size, starts, max(0, count - 1) * stored_chunk_size + last_stored_size)


def variable_chunks(chunk_size: int, file_size: int, sizes: Sequence[int]) -> ChunkIndex:
    """The index of chunks whose stored sizes are listed.

    Raises:
        ManifestError: there are not as many sizes as chunks, or one is 0.
    """
    if len(sizes) != (count := -(-file_size // chunk_size)):
        raise ManifestError(
            "the list of chunks contradicts the size of the file",
            found=f"{len(sizes)} chunks",
            expected=f"{count} of {chunk_size} bytes for {file_size} bytes",
        )
    if 0 in sizes:
        raise ManifestError("a stored chunk has no bytes", found=f"0 bytes for chunk {sizes.index(0)}")
    starts = array("q", accumulate(sizes, initial=0))
    stored_size = starts.pop()
    return ChunkIndex(chunk_size, file_size, starts, stored_size)


def decode_chunk_sizes(text: str) -> array[int]:
    """The stored sizes of a ``transformedChunks``: base64 of one zstd frame around the list.

    Raises:
        ManifestError: it is something else, or longer than the plugin would take (10 MiB).
    """
    try:
        frame = base64.b64decode(text, validate=True)
        declared = zstandard.get_frame_parameters(frame).content_size
        if declared > _MAX_LIST_SIZE:  # also where the frame has no size
            raise ManifestError("the list of chunks is too long", expected=f"at most {_MAX_LIST_SIZE} bytes, declared")
        data = zstandard.ZstdDecompressor().decompress(frame, allow_extra_data=False) if declared else b""
    except (ValueError, zstandard.ZstdError):
        raise ManifestError("the list of chunks is not base64 of a zstd frame") from None
    return parse_chunk_sizes(data)


def parse_chunk_sizes(data: bytes) -> array[int]:
    """The sizes in the list: all but the last are differences to the smallest of them, in one to four bytes.

    Raises:
        ManifestError: the list is cut, too long, or holds a negative size.
    """
    count = _INT.unpack_from(data)[0] if len(data) >= _INT.size else -1
    position = _INT.size
    sizes = array("q")
    if count > 1:
        if len(data) < position + _BASE_AND_WIDTH.size:
            raise _malformed_list(data)
        base, width = _BASE_AND_WIDTH.unpack_from(data, position)
        position += _BASE_AND_WIDTH.size
        stop = position + (count - 1) * width
        if base < 0 or not 1 <= width <= 4 or stop + _INT.size != len(data):
            raise _malformed_list(data)
        sizes.extend(base + int.from_bytes(data[at : at + width]) for at in range(position, stop, width))
        position = stop
    if count > 0 and len(data) == position + _INT.size:
        sizes.append(_INT.unpack_from(data, position)[0])
        position = len(data)
    if count != len(sizes) or position != len(data) or (sizes and not 0 <= min(sizes) <= max(sizes) <= _MAX_INT):
        raise _malformed_list(data)
    return sizes


def cut_chunks(pieces: Generator[memoryview, None, None], sizes: Iterable[int]) -> Generator[memoryview, None, None]:
    """The chunks in a stream of pieces, each until the next is asked for; only one that straddles pieces is copied.

    Raises:
        ShortReadError: the pieces end before the chunks do.
    """
    piece = memoryview(b"")
    for size in sizes:
        if size <= len(piece):
            chunk, piece = piece[:size], piece[size:]
        else:
            joined = bytearray(piece)
            while len(joined) < size:
                arrived = next(pieces, None)
                if arrived is None:
                    raise ShortReadError("the object ends inside a chunk", found=len(joined), expected=f"{size} bytes")
                missing = size - len(joined)
                joined += arrived[:missing]
                piece = arrived[missing:]
            chunk = memoryview(joined)
        yield chunk


def _malformed_list(data: bytes) -> ManifestError:
    return ManifestError(
        "the list of chunks is malformed", found=f"{len(data)} bytes", expected="count, base and sizes"
    )
