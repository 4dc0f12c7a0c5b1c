"""The five codecs of a batch, decompressed into one reused buffer that never outgrows a limit.

What a body may look like is measured on Kafka's Java client: what it reads is read here, what it refuses is
refused here. No size that the data declares is believed: the buffer grows with the bytes that come out.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from struct import Struct
from struct import error as StructError

import cramjam
import lz4.frame
import zstandard
from isal import igzip_lib, isal_zlib

from segreader.errors import CorruptBatchError, LimitExceededError, UnsupportedCodecError
from segreader.values import dataclass

DEFAULT_LIMIT = 256 << 20
"""Bytes that one body may hold after decompression, unless the caller sets another limit."""

_FIRST_SIZE = 256 << 10
_KEPT_SIZE = 8 << 20
_KEPT_CALLS = 64

_BIG_INT32 = Struct(">i").unpack_from
_LITTLE_UINT32 = Struct("<I").unpack_from


class Codec(IntEnum):
    """What the codec bits of a batch's attributes name. Source: ``CompressionType`` (4.0)."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @property
    def label(self) -> str:
        """The name as Kafka's tools print it."""
        return self.name.lower()


class Decompressor:
    """Bodies of batches, one at a time, for one thread.

    It remembers a buffer and a zstd context, which cost more to make than most batches cost to decode. A
    buffer above 8 MiB is given back after 64 bodies that did not need it.

    Args:
        limit: bytes that one body may hold; at most this and a few MiB are kept, however small the input.
    """

    def __init__(self, limit: int = DEFAULT_LIMIT) -> None:
        self.limit = limit
        self.codecs: object = None  # the native kernel's, which decompress ordinary bodies without the interpreter lock
        self._workspace: Workspace | None = None

    def decompress(self, codec: int, data: memoryview | bytes, magic: int = 2) -> memoryview:
        """The body that ``data`` holds, as a view that the next call ends.

        Args:
            codec: the codec bits of the batch's or message's attributes.
            data: the compressed records section, whole.
            magic: of the batch or the wrapper message; 0 and 1 have no zstd, 0 has broken lz4 headers.

        Returns:
            ``data`` itself where nothing is compressed, else a part of the buffer.

        Raises:
            UnsupportedCodecError: the codec bits name nothing in this message format.
            CorruptBatchError: the data is not what the codec writes, is cut, or fails its checksum.
            LimitExceededError: the body is longer than the limit; than half of it and 16 MiB if its zstd window
                is above 32 MiB.

        Source: ``Compression.wrapForInput`` and the streams it makes (4.0).
        """
        view = memoryview(data)
        if codec == 0:
            return view
        decode = _DECODERS.get(codec)
        if decode is None or (decode is _decompress_zstd and magic < 2):
            raise UnsupportedCodecError(
                f"codec {codec} is not part of message format {magic}",
                found=codec,
                expected="0 to 4" if magic >= 2 else "0 to 3",
            )
        workspace = self._workspace = self._workspace or Workspace()
        workspace.begin(self.limit)
        whole = decode(view, workspace, magic)
        return workspace.result() if whole is None else workspace.adopt(whole)


def _truncated(codec: str, position: int) -> CorruptBatchError:
    return CorruptBatchError(f"{codec} data ends too early", position=position, found="end of data")


# gzip

_IsalError: type[Exception] = igzip_lib.IsalError  # type: ignore[assignment]  # the stub says: an instance
_GZIP_START = b"\x1f\x8b\x08\x00"
_GZIP_CHUNK = 1 << 20
_GZIP_FIRST_PIECE = 256 << 10
_GZIP_NEXT_PIECE = 1 << 10


def _decompress_gzip(data: memoryview, workspace: Workspace, magic: int) -> bytes | None:
    """One member or several; what follows and begins no header is ignored. Source: ``GZIPInputStream``."""
    size = len(data)
    if 18 <= size <= _GZIP_FIRST_PIECE and data[:4] == _GZIP_START:  # one small member, as producers write: no copy
        single = igzip_lib.IgzipDecompressor(igzip_lib.DECOMP_GZIP_NO_HDR_VER)
        try:
            body: bytes = single.decompress(data[10:], _GZIP_CHUNK)
        except _IsalError as error:
            raise CorruptBatchError("gzip data is damaged", position=10, found=error) from error
        if single.eof and not single.unused_data:
            return body
    position = _gzip_body(data, 0)
    if position is None:
        raise CorruptBatchError("gzip data has no gzip header", position=0, found=bytes(data[:4]).hex())
    piece_size = _GZIP_FIRST_PIECE
    while position is not None:
        start = position
        inflater = igzip_lib.IgzipDecompressor(igzip_lib.DECOMP_GZIP_NO_HDR_VER)
        while not inflater.eof:
            piece = data[:0]
            if inflater.needs_input:
                if position == size:
                    raise _truncated("gzip", position)
                piece = data[position : position + piece_size]
                position += len(piece)
                piece_size = min(2 * piece_size, _GZIP_FIRST_PIECE)
            try:
                chunk = inflater.decompress(piece, _GZIP_CHUNK)
            except _IsalError as error:
                raise CorruptBatchError("gzip data is damaged", position=start, found=error) from error
            workspace.append(chunk)
        position = _gzip_body(data, position - len(inflater.unused_data))
        piece_size = _GZIP_NEXT_PIECE  # the rest behind a short member is copied: keep it short
    return None


def _gzip_body(data: memoryview, start: int) -> int | None:
    """Where the deflate stream begins behind the gzip header at ``start``, ``None`` if there is no header.

    Source: RFC 1952; ``GZIPInputStream.readHeader`` (Java 25), which ignores the reserved flags.
    """
    if data[start : start + 4] == _GZIP_START and start + 10 <= len(data):
        return start + 10
    if data[start : start + 3] != _GZIP_START[:3]:
        return None
    try:
        flags = data[start + 3]
        position = start + 10
        if flags & 4:
            position += 2 + data[position] + (data[position + 1] << 8)
        for flag in (8, 16):
            if flags & flag:
                while data[position]:
                    position += 1
                position += 1
        if flags & 2:
            checksum = isal_zlib.crc32(data[start:position]) & 0xFFFF
            if data[position] + (data[position + 1] << 8) != checksum:
                return None
            position += 2
    except IndexError:
        return None
    return position if position <= len(data) else None


# snappy

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_START = _XERIAL_MAGIC + b"\0\0\0\1\0\0\0\1"
_XERIAL_HEADER_SIZE = 16
_SNAPPY_MAX_RATIO = 22  # the densest element turns 3 bytes into 64


def _decompress_snappy(data: memoryview, workspace: Workspace, magic: int) -> None:
    """Xerial's blocks, or one raw block where its magic is absent. Source: ``SnappyInputStream`` (1.1.10)."""
    size = len(data)
    if size > 20 and data[:16] == _XERIAL_START and _BIG_INT32(data, 16)[0] == size - 20:
        _decompress_snappy_block(data[20:], 20, workspace)
        return
    if size < _XERIAL_HEADER_SIZE or data[:8] != _XERIAL_MAGIC:
        _decompress_snappy_block(data, 0, workspace)
        return
    position = _XERIAL_HEADER_SIZE
    while position + 4 <= size:
        (length,) = _BIG_INT32(data, position)
        if length < 0:
            if not _is_xerial_header(data, position):
                raise CorruptBatchError("snappy block has a negative length", position=position, found=length)
            position += _XERIAL_HEADER_SIZE
            continue
        position += 4
        if position + length > size:
            raise _truncated("snappy", size)
        _decompress_snappy_block(data[position : position + length], position, workspace)
        position += length


def _is_xerial_header(data: memoryview, position: int) -> bool:
    header = data[position : position + _XERIAL_HEADER_SIZE]
    return len(header) == _XERIAL_HEADER_SIZE and header[:8] == _XERIAL_MAGIC and _BIG_INT32(header, 8)[0] > 0


def _decompress_snappy_block(block: memoryview, position: int, workspace: Workspace) -> None:
    try:
        size = cramjam.snappy.decompress_raw_into(block, workspace.room(0))
    except cramjam.DecompressionError:
        try:
            declared = cramjam.snappy.decompress_raw_len(block)
            if declared > _SNAPPY_MAX_RATIO * len(block):
                raise CorruptBatchError(
                    "snappy block declares more bytes than it can hold",
                    position=position,
                    found=declared,
                    expected=f"at most {_SNAPPY_MAX_RATIO * len(block)}",
                ) from None
            if workspace.used + declared > workspace.limit:
                workspace.take(declared)
            size = cramjam.snappy.decompress_raw_into(block, workspace.room(declared))
        except cramjam.DecompressionError as error:
            raise CorruptBatchError("snappy block is damaged", position=position, found=error) from error
    workspace.take(size)


# lz4

_LZ4_STORED = 1 << 31
_LZ4_64K = 64 << 10
_LZ4_END = b"\0\0\0\0"
_LZ4_MAGIC = b"\x04\x22\x4d\x18"


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
    usual = _LZ4_USUAL_HEADERS.get(bytes(data[:7]))
    if usual is not None:
        return usual
    if data[:4] != _LZ4_MAGIC:
        raise CorruptBatchError(
            "lz4 data has no frame magic", position=0, found=bytes(data[:4]).hex(), expected=_LZ4_MAGIC.hex()
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
    right = _lz4_header_checksum(bytes(data[4 : size - 1]))
    if is_checked and checksum != right:
        raise CorruptBatchError(
            "lz4 frame header fails its checksum",
            position=size - 1,
            found=f"{checksum:02x}",
            expected=f"{right:02x}",
        )
    return Lz4FrameHeader(size, _lz4_block_size(block_descriptor >> 4), bool(flags & 0x10), bool(flags & 0x04))


def _block_frame(block: memoryview | bytes, block_size: int) -> bytes:
    """A frame of one block and its checksum, for a frame decoder: only that can check a block.

    Args:
        block: the block's length field, its data and its checksum.
        block_size: the most bytes a block of its frame may hold.
    """
    return b"".join((_LZ4_CHECKED_BLOCKS[block_size], block, bytes(4)))


def _lz4_block_size(code: int) -> int:
    return 1 << 2 * code + 8


def _lz4_header_checksum(descriptor: bytes) -> int:
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


def _lz4_header_bytes(flags: int, code: int) -> bytes:
    descriptor = bytes((flags, code << 4))
    return _LZ4_MAGIC + descriptor + bytes((_lz4_header_checksum(descriptor),))


_LZ4_USUAL_HEADERS = {_lz4_header_bytes(0x60, code): Lz4FrameHeader(7, _lz4_block_size(code)) for code in range(4, 8)}
_LZ4_CHECKED_BLOCKS = {_lz4_block_size(code): _lz4_header_bytes(0x70, code) for code in range(4, 8)}
_LZ4_PLAIN_START = _lz4_header_bytes(0x60, 4)
"""The header that Java producers write: blocks of 64 KiB, no checksums."""

_LZ4_CHECKED_STARTS = frozenset(_LZ4_CHECKED_BLOCKS.values())
"""Headers of frames with a checksum behind each block and nothing else, as some clients write them."""


def _decompress_lz4(data: memoryview, workspace: Workspace, magic: int) -> bytes | None:
    """One frame of independent blocks; what follows its end mark is ignored.

    Source: ``Lz4BlockInputStream`` (4.0), which checks block checksums but no content checksum.
    """
    lead = bytes(data[:7])
    if lead == _LZ4_PLAIN_START and len(data) > 15 and data[-4:] == _LZ4_END:
        if _LITTLE_UINT32(data, 7)[0] == len(data) - 15:  # one block, as Java producers write small batches
            try:
                size = cramjam.lz4.decompress_block_into(data[11:-4], workspace.room(_LZ4_64K)[:_LZ4_64K], _LZ4_64K)
            except cramjam.DecompressionError as error:
                raise CorruptBatchError("lz4 block is damaged", position=11, found=error) from error
            workspace.take(size)
            return None
    elif lead in _LZ4_CHECKED_STARTS:  # a checksum behind each block: one decoder for the whole frame checks them
        lz4.frame.reset_decompression_context(workspace.lz4)
        try:
            body, _, is_whole = lz4.frame.decompress_chunk(workspace.lz4, data, 4 * len(data) + _LZ4_64K)
        except RuntimeError:
            is_whole = False
        if is_whole:
            return bytes(body)
    header = parse_lz4_frame_header(data, is_checked=magic > 0)
    block_size = header.block_size
    checksum_size = 4 if header.has_block_checksums else 0
    size = len(data)
    position = header.size
    while position + 4 <= size:
        (length,) = _LITTLE_UINT32(data, position)
        start = position + 4
        is_stored = length & _LZ4_STORED
        length &= ~_LZ4_STORED
        if not length:
            if header.has_content_checksum and start + 4 > size:
                break
            return None
        if length > block_size:
            raise CorruptBatchError(
                "lz4 block is too long", position=position, found=length, expected=f"at most {block_size}"
            )
        block = data[start : start + length]
        stop = start + length + checksum_size
        if stop > size:
            break
        try:
            if checksum_size:
                frame = _block_frame(data[position:stop], block_size)
                workspace.take(cramjam.lz4.decompress_into(frame, workspace.room(block_size)))
            elif is_stored:
                workspace.append(block)
            else:
                room = workspace.room(block_size)[:block_size]
                workspace.take(cramjam.lz4.decompress_block_into(block, room, block_size))
                del room  # or the buffer cannot grow in place
        except cramjam.DecompressionError as error:
            raise CorruptBatchError("lz4 block is damaged", position=start, found=error) from error
        position = stop
    raise _truncated("lz4", size)


# zstd

_ZSTD_SKIPPABLE = 0x184D2A50
_ZSTD_WIDE_WINDOW = 32 << 20
_ZSTD_LONGEST_BLOCK = 128 << 10
_ZSTD_JAVA_READ = 16 << 10


def _decompress_zstd(data: memoryview, workspace: Workspace, magic: int) -> None:
    """Any number of frames, skippable ones too. Source: ``ZstdInputStreamNoFinalizer`` (zstd-jni 1.5.6)."""
    window, is_strict = _survey_zstd(data)
    if window > _ZSTD_WIDE_WINDOW:
        # The context keeps a second copy of the body, as far as the window reaches.
        workspace.limit = min(workspace.limit, (workspace.limit + _ZSTD_WIDE_WINDOW) // 2)
    reader = workspace.zstd.stream_reader(data, read_across_frames=True)
    most = _ZSTD_JAVA_READ if is_strict else None
    is_full = True
    while is_full:
        with workspace.room(1)[:most] as room:
            try:
                size = reader.readinto(room)
            except zstandard.ZstdError as error:
                raise CorruptBatchError("zstd data is damaged", found=error) from error
            is_full = size == len(room)
        workspace.take(size)


def _survey_zstd(data: memoryview) -> tuple[int, bool]:
    """Bytes of history that the frames ask for, and whether to read as little at once as Java does.

    Given room for all that a frame says it holds, libzstd decompresses it in one go. Then it takes blocks longer than
    the format allows, and references behind the window; as a stream it refuses them. Kafka gives it 16 KiB.
    Checks that the last frame is whole, as the reader does not.

    Source: RFC 8878, section 3.1; ``ZSTD_decompressStream`` (1.5.6); Kafka 4.0 ``ZstdCompression.wrapForInput``.
    """
    size = len(data)
    position = window = 0
    is_strict = False
    try:
        while position < size:
            (magic,) = _LITTLE_UINT32(data, position)
            if magic & 0xFFFFFFF0 == _ZSTD_SKIPPABLE:
                position += 8 + _LITTLE_UINT32(data, position + 4)[0]
                continue
            frame = data[position:]
            parameters = zstandard.get_frame_parameters(frame)
            window = max(window, parameters.window_size)
            most = min(parameters.window_size, _ZSTD_LONGEST_BLOCK)
            is_strict |= most < parameters.content_size != zstandard.CONTENTSIZE_UNKNOWN
            position += zstandard.frame_header_size(frame)
            is_last = 0
            while not is_last:
                header = _LITTLE_UINT32(data, position - 1)[0] >> 8
                is_last = header & 1
                position += 3 + (1 if header & 6 == 2 else header >> 3)
            if parameters.has_checksum:
                position += 4
    except StructError:
        position = size + 1
    except zstandard.ZstdError as error:
        raise CorruptBatchError("zstd frame header is damaged", position=position, found=error) from error
    if position > size:
        raise _truncated("zstd", size)
    return window, is_strict


_DECODERS: dict[int, Callable[[memoryview, Workspace, int], bytes | None]] = {
    Codec.GZIP: _decompress_gzip,
    Codec.SNAPPY: _decompress_snappy,
    Codec.LZ4: _decompress_lz4,
    Codec.ZSTD: _decompress_zstd,
}


class Workspace:
    """What one body leaves to the next: contexts of lz4 and zstd, and a buffer that grows in place up to the limit."""

    __slots__ = ("_result", "_unneeded", "buffer", "limit", "lz4", "used", "zstd")

    def __init__(self) -> None:
        self.zstd = zstandard.ZstdDecompressor()
        self.lz4 = lz4.frame.create_decompression_context()
        self.limit = 0
        self.buffer = bytearray(_FIRST_SIZE)
        self.used = 0
        self._unneeded = 0
        self._result = memoryview(b"")

    def begin(self, limit: int) -> None:
        """Begin a new body. The last one's view is closed, so that its stale bytes cannot be read."""
        try:
            self._result.release()
        except BufferError:  # an array still points into it: leave that memory to its holder
            self.buffer = bytearray(_FIRST_SIZE)
        if len(self.buffer) > _KEPT_SIZE:
            self._unneeded = 0 if self.used > _KEPT_SIZE else self._unneeded + 1
            if self._unneeded > _KEPT_CALLS:
                self.buffer = bytearray(_FIRST_SIZE)
        self.used = 0
        self.limit = limit

    def result(self) -> memoryview:
        self._result = memoryview(self.buffer)[: self.used]
        return self._result

    def adopt(self, whole: bytes) -> memoryview:
        """A body as its codec made it, in place of the buffer."""
        self.take(len(whole))
        self._result = memoryview(whole)
        return self._result

    def room(self, least: int) -> memoryview:
        """The free end of the buffer, ``least`` bytes or more. While it lives the buffer grows by a copy."""
        needed = self.used + least
        if needed > len(self.buffer):
            size = max(needed, min(2 * len(self.buffer), self.limit + 1))
            try:
                self.buffer += bytes(size - len(self.buffer))
            except BufferError:  # a slice of an earlier body is still alive and keeps the old memory
                grown = bytearray(size)
                grown[: self.used] = memoryview(self.buffer)[: self.used]
                self.buffer = grown
        return memoryview(self.buffer)[self.used :]

    def take(self, size: int) -> None:
        """Count ``size`` bytes that a codec wrote into the room."""
        self.used += size
        if self.used > self.limit:
            raise LimitExceededError(
                "the decompressed body is too long",
                found=f"more than {self.limit} bytes",
                expected=f"at most {self.limit} bytes",
                hint="Raise the limit if this data can be trusted",
            )

    def append(self, data: bytes | memoryview) -> None:
        size = len(data)
        self.room(size)[:size] = data
        self.take(size)
