"""UTF-8 the way Java's ``new String(bytes, UTF_8)`` reads it, for header keys that are not valid UTF-8.

Java and Python agree on valid text and differ in how many U+FFFD a broken sequence becomes: Java gives one for a
whole surrogate (``ED A0 80``) where Python gives three. A header key must equal what the Java consumer shows.
Source: ``java.lang.String`` (OpenJDK 17), its UTF-8 decoder with replacement.
"""

from __future__ import annotations

_REPLACEMENT = "\ufffd"


def decode_java_utf8(data: bytes) -> str:
    """The text that Java makes of ``data``; equal to ``data.decode()`` wherever that succeeds."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return _decode_with_replacement(data)


def _decode_with_replacement(data: bytes) -> str:
    out: list[str] = []
    at = 0
    while at < len(data):
        size = _broken_length(data, at)
        if size == 0:
            size = 1 if data[at] < 0x80 else 2 if data[at] < 0xE0 else 3 if data[at] < 0xF0 else 4
            out.append(data[at : at + size].decode("utf-8"))
        else:
            out.append(_REPLACEMENT)
        at += size
    return "".join(out)


def _broken_length(data: bytes, at: int) -> int:
    """How many bytes from ``at`` become one replacement; 0 if there is a whole character."""
    first = data[at]
    rest = data[at + 1 : at + 4]
    if first < 0x80:
        return 0
    if 0xC2 <= first <= 0xDF:
        return 0 if _continues(rest, 1) else 1
    if 0xE0 <= first <= 0xEF:
        if not _continues(rest, 1) or (first == 0xE0 and rest[0] < 0xA0):
            return 1
        if not _continues(rest, 2):
            return 2
        return 3 if first == 0xED and rest[0] >= 0xA0 else 0
    if 0xF0 <= first <= 0xF4:
        if not _continues(rest, 1) or (first == 0xF0 and rest[0] < 0x90) or (first == 0xF4 and rest[0] > 0x8F):
            return 1
        if not _continues(rest, 2):
            return 2
        return 0 if _continues(rest, 3) else 3
    return 1


def _continues(rest: bytes, count: int) -> bool:
    return len(rest) >= count and all(0x80 <= byte < 0xC0 for byte in rest[:count])
