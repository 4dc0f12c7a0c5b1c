"""A place in the body of a batch, for the decoder in plain Python: every step is held against the end."""

from __future__ import annotations

from segreader.format.columns import Damage


class DamagedError(Exception):
    """A record cannot be read: which damage, where in the body, and the two numbers that disagree."""

    def __init__(self, damage: Damage, position: int, found: int = 0, expected: int = 0) -> None:
        self.facts = (damage, position, found, expected)


class RecordCursor:
    """A place in the body, and the end it must not pass."""

    __slots__ = ("at", "body", "stop")

    def __init__(self, body: memoryview | bytes, at: int, stop: int) -> None:
        self.body, self.at, self.stop = body, at, stop

    def take(self, size: int) -> int:
        """Step over ``size`` bytes and say where they begin. Every read goes through here."""
        if size < 0 or size > self.stop - self.at:
            raise DamagedError(Damage.RECORD_OVERRUN, self.at, size, self.stop - self.at)
        self.at += size
        return self.at - size

    def varint(self) -> int:
        """A zigzag int32 of at most 5 bytes; bits past the 32nd fall off, as in ``ByteUtils.readVarint``."""
        return self._zigzag(5, 0xFFFFFFFF)

    def varlong(self) -> int:
        """A zigzag int64 of at most 10 bytes."""
        return self._zigzag(10, 0xFFFFFFFFFFFFFFFF)

    def _zigzag(self, most: int, mask: int) -> int:
        start, value = self.at, 0
        for index in range(most):
            byte = self.body[self.take(1)]
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                value &= mask
                return (value >> 1) ^ -(value & 1)
        raise DamagedError(Damage.VARINT, start, most + 1, most)
