"""The C limit: read, CRC and decompression by a small C program, and nothing else.

``limit.c`` is compiled at first use. The codecs are those of the wheels that segreader depends on, called without
Python between; snappy, which no wheel exports, is Google's from Debian's package.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
import platform
import subprocess
import tempfile
from pathlib import Path

from benchmarks.debian import NotAvailableError, unpack

_SOURCE = Path(__file__).with_name("limit.c")
_BUFFER_SIZE = 16 << 20
_ROOM = 10 << 20
_PROCESSOR = {"x86_64": "-msse4.2", "aarch64": "-march=armv8-a+crc"}


class _Codecs(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in ("lz4", "zstd", "zstd_context", "inflate", "gzip_crc", "snappy")]


class CLimit:
    """The compiled program, and the buffers that it uses again for each batch.

    Raises:
        OSError, NotAvailableError: a codec or its function cannot be found.
    """

    def __init__(self) -> None:
        with tempfile.TemporaryDirectory(prefix="segreader-bench-") as place:
            built = Path(place) / "limit.so"
            flags = ("-O3", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", _PROCESSOR[platform.machine()])
            subprocess.run(["gcc", *flags, "-o", str(built), str(_SOURCE)], check=True)
            self._library = ctypes.CDLL(str(built))
        self._library.read_log.restype = ctypes.c_long
        self._library.prepare()
        zstd = _extension("zstandard._cffi")
        zstd.ZSTD_createDCtx.restype = ctypes.c_void_p
        igzip = _extension("isal.igzip_lib")
        snappy = ctypes.CDLL(str(_snappy()))
        self._kept = (zstd, igzip, snappy, block := _extension("lz4.block._block"))
        self._codecs = _Codecs(
            *(
                ctypes.cast(pointer, ctypes.c_void_p)
                for pointer in (
                    block.LZ4_decompress_safe,
                    zstd.ZSTD_decompressDCtx,
                    ctypes.c_void_p(zstd.ZSTD_createDCtx()),
                    igzip.isal_inflate_stateless,
                    igzip.crc32_gzip_refl,
                    snappy.snappy_uncompress,
                )
            )
        )
        self._buffer = ctypes.create_string_buffer(_BUFFER_SIZE)
        self._out = ctypes.create_string_buffer(_ROOM)

    def body_bytes(self, log: Path, streams: int = 1) -> int:
        """Read, check and decompress a segment.

        Args:
            streams: of the CRC, 1 or 3. One is what packages for CRC-32C have; three are quicker.

        Returns:
            Bytes of all bodies after decompression.
        """
        file = os.open(log, os.O_RDONLY)
        try:
            rooms = self._buffer, ctypes.c_long(_BUFFER_SIZE), self._out, ctypes.c_long(_ROOM)
            size = self._library.read_log(file, ctypes.byref(self._codecs), streams, *rooms)
        finally:
            os.close(file)
        if size < 0:
            raise ValueError(f"the C limit cannot read {log}: {size}")
        return int(size)


@functools.cache
def c_limit() -> CLimit:
    """The program of this process."""
    return CLimit()


def _extension(name: str) -> ctypes.CDLL:
    found = importlib.util.find_spec(name)
    if found is None or found.origin is None:
        raise NotAvailableError(f"{name} is not installed")
    return ctypes.CDLL(found.origin)


def _snappy() -> Path:
    return next(unpack("libsnappy1v5").glob("usr/lib/*/libsnappy.so.1"))
