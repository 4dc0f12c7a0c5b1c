"""Half-open ranges of bytes, offsets and times, and memory for the bytes. Everything above speaks in these."""

from __future__ import annotations

from typing import Final

from segreader.values import dataclass


@dataclass(frozen=True, slots=True, order=True)
class ByteRange:
    """Bytes ``start <= position < stop`` of one object; never empty.

    Units: bytes from the first byte of the object. HTTP and Kafka's ``fetchLogSegment`` name the
    last byte instead; they are converted here and nowhere else.
    """

    start: int
    stop: int

    def __post_init__(self) -> None:
        if not 0 <= self.start < self.stop:
            raise ValueError(f"not a byte range: start={self.start} stop={self.stop}")

    @property
    def size(self) -> int:
        """How many bytes."""
        return self.stop - self.start

    def http_header(self) -> str:
        """The value of an HTTP ``Range`` header (RFC 9110 section 14.2: the last byte is inclusive)."""
        return f"bytes={self.start}-{self.stop - 1}"


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """Offsets ``start <= offset < stop``; ``stop`` is ``None`` where the range is open."""

    start: int = 0
    stop: int | None = None

    def __post_init__(self) -> None:
        if self.start < 0 or (self.stop is not None and self.stop < self.start):
            raise ValueError(f"not an offset range: start={self.start} stop={self.stop}")

    def __contains__(self, offset: int) -> bool:
        return self.start <= offset and (self.stop is None or offset < self.stop)

    def intersection(self, other: OffsetRange) -> OffsetRange | None:
        """The offsets in both; ``None`` if there are none."""
        start = max(self.start, other.start)
        stops = [one.stop for one in (self, other) if one.stop is not None]
        stop = min(stops, default=None)
        return None if stop is not None and stop <= start else OffsetRange(start, stop)


class PieceBuffer(bytearray):
    """Memory for one piece after another of an object, with ``ROOM`` bytes in front of the piece.

    The room belongs to the reader of the pieces. It puts the rest of the piece before there, where something
    straddles both, and has it in one.
    """

    ROOM: Final = 128 << 10

    def __init__(self, size: int) -> None:
        super().__init__(self.ROOM + size)
        self.used = 0

    def piece(self, size: int) -> memoryview:
        """The first ``size`` bytes behind the room: the next piece."""
        self.used = size
        return memoryview(self)[self.ROOM : self.ROOM + size]
