"""The primitive types of the Kafka protocol: a bounded reader over bytes in hand, and a writer.

It knows types and no message. Whatever the bytes claim, a read steps over bytes that are there or raises a
``ProtocolError`` that names the position, and nothing is allocated for a count before the bytes left could hold it.
Source: the protocol guide of Apache Kafka 4.3; ``ByteBufferAccessor``, ``ByteUtils``, ``RawTaggedField``.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable
from functools import lru_cache
from struct import Struct
from typing import Final, TypeVar

from segreader.errors import ProtocolError

MAX_TAGS: Final = 1024
"""Tagged fields that one struct may carry. Kafka's own have three at most."""

MAX_UVARINT: Final = 0xFFFF_FFFF

_INT16, _INT32, _INT64 = Struct(">h"), Struct(">i"), Struct(">q")
_ZERO_UUID = bytes(16)
_T = TypeVar("_T")


def uuid_text(raw: bytes | memoryview) -> str | None:
    """A UUID as Kafka's tools show it, 22 characters of base64url; ``None`` for the zero one, which means none."""
    return None if raw == _ZERO_UUID else urlsafe_b64encode(raw)[:22].decode("ascii")


@lru_cache(1024)
def uuid_bytes(text: str | None) -> bytes:
    """The 16 bytes of a UUID in Kafka's text form; zeros for ``None``.

    Raises:
        ValueError: it is no such text.
    """
    if text is None:
        return _ZERO_UUID
    raw = urlsafe_b64decode(text + "==") if len(text) == 22 else b""
    if len(raw) != 16:
        raise ValueError(f"{text!r} is no UUID in Kafka's text form, 22 characters of base64url")
    return raw


class Reader:
    """A cursor over one message; every read goes through ``_step``.

    Args:
        data: the message, or what holds it. Slices of it are handed out; nothing is copied.
        flexible: which form strings, bytes and arrays have, and whether structs end with tagged fields. It may be
            changed on the way, as headers and bodies need it.
        what: the message's name in errors, with its version.
        start, stop: where it is in ``data``. Positions in errors count from the start of ``data``.
        to_come: bytes of the message that are not in ``data`` yet: arrays may reach into them.
    """

    __slots__ = ("_data", "_stop", "_to_come", "_what", "elements", "flexible", "position")

    def __init__(
        self,
        data: bytes | memoryview,
        *,
        flexible: bool,
        what: str,
        start: int = 0,
        stop: int | None = None,
        to_come: int = 0,
    ) -> None:
        self._data = memoryview(data)
        self._stop = len(self._data) if stop is None else stop
        self._to_come = to_come
        self._what = what
        self.flexible = flexible
        self.position = start
        self.elements = 0
        """How many elements its arrays had so far."""

    @property
    def left(self) -> int:
        """Bytes that are not read yet."""
        return self._stop - self.position

    @property
    def unread(self) -> memoryview:
        """These bytes."""
        return self._data[self.position : self._stop]

    def error(
        self, message: str, *, position: int | None = None, found: object = None, expected: object = None
    ) -> ProtocolError:
        """What to raise for something wrong at ``position``, or here."""
        at = self.position if position is None else position
        return ProtocolError(f"{self._what}: {message}", position=at, found=found, expected=expected)

    def take(self, size: int) -> memoryview:
        """The next ``size`` bytes, where they lie.

        Raises:
            ProtocolError: fewer are left.
        """
        start = self._step(size)
        return self._data[start : start + size]

    def _step(self, size: int) -> int:
        """Where the next ``size`` bytes begin; the reader is behind them then."""
        start = self.position
        if not 0 <= size <= self._stop - start:
            raise self.error("the bytes end too early", found=f"{self._stop - start} bytes", expected=f"{size} bytes")
        self.position = start + size
        return start

    def unpack(self, layout: Struct) -> tuple[int, ...]:
        """Fields of fixed size in a row.

        Raises:
            ProtocolError: they are cut.
        """
        start = self.position
        if (stop := start + layout.size) > self._stop:
            self._step(layout.size)
        self.position = stop
        return layout.unpack_from(self._data, start)

    def int16(self) -> int:
        """INT16."""
        return int(_INT16.unpack_from(self._data, self._step(2))[0])

    def int32(self) -> int:
        """INT32."""
        return int(_INT32.unpack_from(self._data, self._step(4))[0])

    def int64(self) -> int:
        """INT64."""
        return int(_INT64.unpack_from(self._data, self._step(8))[0])

    def nullable_int64(self) -> int | None:
        """INT64 that is never below -1, which means null.

        Raises:
            ProtocolError: it is cut, or lower.
        """
        start = self.position
        if (value := self.int64()) < -1:
            raise self.error("a number is negative", position=start, found=value)
        return None if value == -1 else value

    def boolean(self) -> bool:
        """BOOLEAN: any byte but 0 is true."""
        return self._data[self._step(1)] != 0

    def uuid(self) -> str | None:
        """UUID in Kafka's text form; ``None`` for the zero one."""
        return uuid_text(self.take(16))

    def uvarint(self) -> int:
        """UVARINT: at most five bytes and 32 bits.

        Raises:
            ProtocolError: it is longer, or cut.
        """
        start = self.position
        first = self._data[self._step(1)]
        if first < 0x80:
            return first
        value, shift = first & 0x7F, 7
        while shift <= 28:
            byte = self._data[self._step(1)]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value > MAX_UVARINT:
                    break
                return value
            shift += 7
        raise self.error("a varint has more than 32 bits", position=start)

    def _size(self, old: Callable[[], int]) -> int:
        """What a length or count field says, -1 for null."""
        start = self.position
        if not self.flexible:
            size = old()
        elif start < self._stop and (byte := self._data[start]) < 0x80:
            self.position = start + 1
            return byte - 1
        else:
            size = self.uvarint() - 1
        if size < -1:
            raise self.error("a length is negative", position=start, found=size)
        return size

    def nullable_string(self) -> str | None:
        """NULLABLE_STRING or COMPACT_NULLABLE_STRING.

        Raises:
            ProtocolError: it is cut, or not UTF-8.
        """
        return self._text(self._size(self.int16))

    def string(self) -> str:
        """STRING or COMPACT_STRING.

        Raises:
            ProtocolError: it is null, cut, or not UTF-8.
        """
        start = self.position
        if (text := self._text(self._size(self.int16))) is None:
            raise self.error("a string is null that must not be", position=start)
        return text

    def client_id(self) -> str | None:
        """The string of request headers, which has the old form in every version."""
        start = self.position
        if (size := self.int16()) < -1:
            raise self.error("a length is negative", position=start, found=size)
        return self._text(size)

    def _text(self, size: int) -> str | None:
        if size < 0:
            return None
        start = self.position
        raw = self.take(size)
        try:
            return str(raw, "utf-8")
        except UnicodeDecodeError as wrong:
            # Without the bytes: they may be a signed URL.
            raise self.error("a string is not UTF-8", position=start + wrong.start) from None

    def nullable_blob(self) -> memoryview | None:
        """NULLABLE_BYTES or COMPACT_NULLABLE_BYTES, or records of either form: a slice.

        Raises:
            ProtocolError: they are cut.
        """
        size = self._size(self.int32)
        return None if size < 0 else self.take(size)

    def blob_size(self) -> int | None:
        """The length before bytes or records, of either form, which follow; ``None`` for null."""
        size = self._size(self.int32)
        return None if size < 0 else size

    def blob(self) -> memoryview:
        """BYTES or COMPACT_BYTES: a slice.

        Raises:
            ProtocolError: they are null or cut.
        """
        start = self.position
        if (taken := self.nullable_blob()) is None:
            raise self.error("bytes are null that must not be", position=start)
        return taken

    def nullable_count(self, least: int) -> int | None:
        """How many elements an array has; ``None`` for null.

        Args:
            least: bytes that the smallest element takes, its tagged fields included; at least 1.

        Raises:
            ProtocolError: so many cannot be left.
        """
        start = self.position
        if (count := self._size(self.int32)) < 0:
            return None
        if count * least > (room := self._stop - self.position + self._to_come):
            raise self.error(
                "an array claims more elements than there are bytes",
                position=start,
                found=count,
                expected=f"{room // least} at most",
            )
        return count

    def count(self, least: int) -> int:
        """As ``nullable_count``, of an array that must not be null."""
        start = self.position
        if (count := self.nullable_count(least)) is None:
            raise self.error("an array is null that must not be", position=start)
        return count

    def array(self, element: Callable[[], _T], least: int) -> tuple[_T, ...]:
        """An array that is not null, each element read by ``element``; ``least`` as for ``nullable_count``."""
        return tuple(element() for _ in range(self.count(least)))

    def tags(self) -> tuple[tuple[int, Reader], ...]:
        """The tagged fields that end a struct, in their order: tag and a reader of the value. None where not flexible.

        Tags may come in any order and repeat; of a known one the last counts.

        Raises:
            ProtocolError: they are cut, or more than ``MAX_TAGS``.
        """
        if not self.flexible:
            return ()
        start = self.position
        if start < self._stop and not self._data[start]:
            self.position = start + 1
            return ()
        if not (count := self.uvarint()):
            return ()
        if count > MAX_TAGS:
            raise self.error("too many tagged fields", position=start, found=count, expected=f"{MAX_TAGS} at most")
        tags = []
        for _ in range(count):
            tag, size = self.uvarint(), self.uvarint()
            value = self.position
            self.take(size)
            tags.append(
                (tag, Reader(self._data, flexible=True, what=self._what, start=value, stop=self.position)),
            )
        return tuple(tags)

    def finish(self) -> None:
        """Make sure that nothing is left over.

        Raises:
            ProtocolError: bytes are left: whatever was read is not what was written.
        """
        if self.position != self._stop:
            raise self.error("bytes are left over behind the message", found=f"{self.left} bytes", expected="none")


class Writer:
    """Bytes of one message, grown at their end.

    Args:
        flexible: as for ``Reader``.
    """

    __slots__ = ("data", "flexible")

    def __init__(self, *, flexible: bool) -> None:
        self.data = bytearray()
        self.flexible = flexible

    def raw(self, data: bytes | bytearray | memoryview) -> None:
        """Bytes as they are."""
        self.data += data

    def pack(self, layout: Struct, *values: int) -> None:
        """Fields of fixed size in a row."""
        self.data += layout.pack(*values)

    def int16(self, value: int) -> None:
        """INT16."""
        self.data += _INT16.pack(value)

    def int32(self, value: int) -> None:
        """INT32."""
        self.data += _INT32.pack(value)

    def int64(self, value: int) -> None:
        """INT64."""
        self.data += _INT64.pack(value)

    def nullable_int64(self, value: int | None) -> None:
        """INT64, -1 for null."""
        self.int64(-1 if value is None else value)

    def boolean(self, value: bool) -> None:
        """BOOLEAN."""
        self.data.append(value)

    def uuid(self, text: str | None) -> None:
        """UUID in Kafka's text form, ``None`` for none."""
        self.data += uuid_bytes(text)

    def uvarint(self, value: int) -> None:
        """UVARINT.

        Raises:
            ValueError: it has more than 32 bits.
        """
        if not 0 <= value <= MAX_UVARINT:
            raise ValueError(f"{value} is no unsigned number of 32 bits")
        while value > 0x7F:
            self.data.append(value & 0x7F | 0x80)
            value >>= 7
        self.data.append(value)

    def _size(self, size: int | None, old: Callable[[int], None]) -> None:
        if self.flexible:
            self.uvarint(0 if size is None else size + 1)
        else:
            old(-1 if size is None else size)

    def string(self, text: str | None) -> None:
        """A string of either form; ``None`` for null."""
        raw = None if text is None else text.encode()
        self._size(None if raw is None else len(raw), self.int16)
        self.data += raw or b""

    def client_id(self, text: str | None) -> None:
        """The string of request headers, which has the old form in every version."""
        raw = None if text is None else text.encode()
        self.int16(-1 if raw is None else len(raw))
        self.data += raw or b""

    def blob(self, data: bytes | bytearray | memoryview | None) -> None:
        """Bytes or records of either form; ``None`` for null."""
        self._size(None if data is None else len(data), self.int32)
        if data is not None:
            self.data += data

    def count(self, count: int | None) -> None:
        """How many elements follow; ``None`` for a null array."""
        self._size(count, self.int32)

    def tags(self, tags: Iterable[tuple[int, bytes | bytearray | memoryview]] = ()) -> None:
        """The tagged fields that end a struct, by rising tag; nothing where not flexible.

        Raises:
            ValueError: there are some, and this version has no place for them.
        """
        ordered = sorted(tags, key=lambda tag: tag[0])
        if not self.flexible:
            if ordered:
                raise ValueError("only flexible versions have tagged fields")
            return
        self.uvarint(len(ordered))
        for tag, value in ordered:
            self.uvarint(tag)
            self.uvarint(len(value))
            self.data += value

    def framed(self) -> bytes:
        """What was written, with its size before it."""
        return _INT32.pack(len(self.data)) + self.data
