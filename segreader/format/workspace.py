"""What one decompressed body leaves to the next: contexts that are dear to make, and memory not asked for anew."""

from __future__ import annotations

import lz4.frame
import zstandard

from segreader.errors import LimitExceededError

_FIRST_SIZE = 256 << 10
_KEPT_SIZE = 8 << 20
_KEPT_CALLS = 64


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
