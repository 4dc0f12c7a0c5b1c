"""JSON as text: where values begin and end, and what numbers and strings mean.

``check_document`` looks at a whole value of a record first; what comes after it need not look at syntax again.
Source: RFC 8259, RFC 3339 (5.6), RFC 4648 (4, 5).
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from typing import Final

from segreader.typed.ops import MOST_DEPTH, Bad
from segreader.typed.reference.reader import DAY_US, BadValueError

_SPACE: Final = re.compile(rb"[ \t\n\r]*")
_PLAIN: Final = re.compile(rb'[^"\\\x00-\x1f]*')
_NUMBER: Final = re.compile(rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_DATE: Final = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
_TIME: Final = re.compile(r"([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]+))?([Zz]|[+-][0-9]{2}:[0-9]{2})?")
_BASE64: Final = re.compile(r"[A-Za-z0-9+/_-]*={0,2}")
_PARTS: Final = re.compile(r"(-?)([0-9]+)(?:\.([0-9]+))?(?:[eE]([+-]?)([0-9]+))?")

_LITERALS: Final = {ord("t"): b"true", ord("f"): b"false", ord("n"): b"null"}
_ESCAPED: Final = frozenset(b'"\\/bfnrtu')
_HEX: Final = frozenset(b"0123456789abcdefABCDEF")
_DIGITS: Final = frozenset(b"0123456789")
_MOST_DIGITS: Final = 80
"""Of a number for a column: more than any column has."""


def check_document(data: bytes) -> dict[int, int]:
    """Where each array and object of a JSON text ends, by where it begins.

    Raises:
        BadValueError: it is not one value with white space around it.
    """
    checker = _Checker(data)
    at = checker.value(skip_space(data, 0), 0)
    at = skip_space(data, at)
    if at < len(data):
        raise BadValueError(Bad.LEFT_OVER, at)
    return checker.ends


class _Checker:
    """Goes through a JSON text once. Each method takes the place where a part begins and gives the one behind it."""

    def __init__(self, data: bytes) -> None:
        self.data, self.ends = data, dict[int, int]()

    def value(self, at: int, depth: int) -> int:
        first = self.byte(at)
        if first in b"{[":
            if depth >= MOST_DEPTH:
                raise BadValueError(Bad.DEPTH, at)
            self.ends[at] = end = self.items(at, depth + 1, is_object=first == ord("{"))
            return end
        if first == ord('"'):
            return self.string(at)
        if first == ord("-") or first in _DIGITS:
            return self.number(at)
        if first not in _LITERALS:
            raise BadValueError(Bad.SYNTAX, at)
        for k, wanted in enumerate(_LITERALS[first]):
            if self.byte(at + k) != wanted:
                raise BadValueError(Bad.SYNTAX, at + k)
        return at + len(_LITERALS[first])

    def items(self, at: int, depth: int, *, is_object: bool) -> int:
        close = ord("}" if is_object else "]")
        at = skip_space(self.data, at + 1)
        if self.byte(at) == close:
            return at + 1
        while True:
            if is_object:
                self.expect(at, b'"')
                at = skip_space(self.data, self.string(at))
                self.expect(at, b":")
                at = skip_space(self.data, at + 1)
            at = skip_space(self.data, self.value(at, depth))
            if self.byte(at) == close:
                return at + 1
            self.expect(at, b",")
            at = skip_space(self.data, at + 1)

    def string(self, at: int) -> int:
        at += 1
        while True:
            end = _end(_PLAIN, self.data, at)
            try:
                self.data[at:end].decode()
            except UnicodeDecodeError as error:
                is_cut = end == len(self.data) and error.reason == "unexpected end of data"
                where = end if is_cut else at + error.start
                raise BadValueError(Bad.SHORT if is_cut else Bad.UTF8, where) from None
            found = self.byte(end)
            if found == ord('"'):
                return end + 1
            if found != ord("\\"):
                raise BadValueError(Bad.SYNTAX, end)
            self.expect(end + 1, _ESCAPED)
            at = end + 2
            if self.data[end + 1] == ord("u"):
                for at in range(end + 2, end + 6):
                    self.expect(at, _HEX)
                at = end + 6

    def number(self, at: int) -> int:
        if self.data[at] == ord("-"):
            at += 1
        self.expect(at, _DIGITS)
        at = at + 1 if self.data[at] == ord("0") else self.digits(at)
        if self.data[at : at + 1] == b".":
            at = self.digits(at + 1)
        if self.data[at : at + 1] in (b"e", b"E"):
            at += 2 if self.data[at + 1 : at + 2] in (b"+", b"-") else 1
            at = self.digits(at)
        return at

    def digits(self, at: int) -> int:
        self.expect(at, _DIGITS)
        while at < len(self.data) and self.data[at] in _DIGITS:
            at += 1
        return at

    def byte(self, at: int) -> int:
        if at >= len(self.data):
            raise BadValueError(Bad.SHORT, len(self.data))
        return self.data[at]

    def expect(self, at: int, wanted: bytes | frozenset[int]) -> None:
        if self.byte(at) not in wanted:
            raise BadValueError(Bad.SYNTAX, at)


def skip_space(data: bytes, at: int) -> int:
    """The first place from ``at`` on that is not white space."""
    return _end(_SPACE, data, at)


def value_end(data: bytes, at: int, ends: dict[int, int]) -> int:
    """The place behind the value that begins at ``at``, in a text that was checked."""
    first = data[at]
    if first in b"{[":
        return ends[at]
    if first == ord('"'):
        return _string_end(data, at)
    if first in _LITERALS:
        return at + len(_LITERALS[first])
    return _end(_NUMBER, data, at)


def find_items(data: bytes, at: int, ends: dict[int, int]) -> list[int]:
    """Where the items of the array at ``at`` begin."""
    found = []
    at = skip_space(data, at + 1)
    while data[at] != ord("]"):
        found.append(at)
        at = _next(data, value_end(data, at, ends))
    return found


def find_members(data: bytes, at: int, ends: dict[int, int]) -> list[tuple[str, int]]:
    """The names of the members of the object at ``at``, and where their values begin."""
    found = []
    at = skip_space(data, at + 1)
    while data[at] != ord("}"):
        name = parse_string(data, at)
        at = skip_space(data, skip_space(data, _string_end(data, at)) + 1)
        found.append((name, at))
        at = _next(data, value_end(data, at, ends))
    return found


def parse_string(data: bytes, at: int) -> str:
    """The text of the string at ``at``; a surrogate may be alone in it."""
    text: str = json.loads(data[at : _string_end(data, at)].decode())
    return text


def _next(data: bytes, at: int) -> int:
    at = skip_space(data, at)
    return skip_space(data, at + 1) if data[at] == ord(",") else at


def _string_end(data: bytes, at: int) -> int:
    at = _end(_PLAIN, data, at + 1)
    while data[at] == ord("\\"):
        at = _end(_PLAIN, data, at + 2)
    return at + 1


def _end(pattern: re.Pattern[bytes], data: bytes, at: int) -> int:
    match = pattern.match(data, at)
    return at if match is None else match.end()


def parse_scaled(text: str, scale: int, *, is_integer: bool) -> int | Bad:
    """The number in ``text`` times 10 to the power of ``scale``, exactly; or why there is none.

    Args:
        is_integer: whether the number itself must be an integer.
    """
    match = _PARTS.fullmatch(text)
    assert match is not None, "not a JSON number"
    minus, whole, fraction, sign, exponent = match.groups("")
    digits = (whole + fraction).lstrip("0")
    if not digits:
        return 0
    exponent = exponent.lstrip("0") or "0"
    power = 10**18 if len(exponent) > 18 else int(exponent)
    power = (-power if sign == "-" else power) - len(fraction) + len(digits)
    digits = digits.rstrip("0")
    power -= len(digits)
    if is_integer and power < 0:
        return Bad.TYPE
    power += scale
    if power < 0 or len(digits) + power > _MOST_DIGITS:
        return Bad.RANGE
    value: int = int(f"{minus}{digits}") * 10**power
    return value


def is_number(text: str) -> bool:
    """Whether it is a number as JSON writes it, and nothing else."""
    return text.isascii() and _NUMBER.fullmatch(text.encode()) is not None


def parse_base64(text: str) -> bytes | None:
    """The bytes of base64, in either alphabet, padded or not; ``None``: it is none."""
    if _BASE64.fullmatch(text) is None or ("=" in text and len(text) % 4):
        return None
    bare = text.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        found = base64.b64decode(bare + "=" * (-len(bare) % 4))
    except binascii.Error:
        return None
    is_canonical = base64.b64encode(found).rstrip(b"=") == bare.encode()
    return found if is_canonical else None


def parse_date(text: str) -> int | None:
    """Days since 1970-01-01 of ``YYYY-MM-DD``; ``None``: it is no day."""
    match = _DATE.fullmatch(text)
    if match is None:
        return None
    year, month, day = map(int, match.groups())
    if not 1 <= month <= 12 or not 1 <= day <= _month_length(year, month):
        return None
    return _days_before(year, month) + day - 1


def _month_length(year: int, month: int) -> int:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month in (4, 6, 9, 11) else 31


def _days_before(year: int, month: int) -> int:
    """Days from 1970-01-01 to the first of a month: of the years before it, and of the months before it."""
    past = year - 1
    days = 365 * year + past // 4 - past // 100 + past // 400
    return days - 719_527 + sum(_month_length(year, one) for one in range(1, month))


def parse_time(text: str) -> int | None:
    """Microseconds since midnight of a time, of UTC's midnight if it has an offset; ``None``: it is no time."""
    found = _time_and_offset(text)
    return None if found is None else (found[0] - (found[1] or 0)) % DAY_US


def parse_instant(text: str) -> int | None:
    """Microseconds since 1970 UTC of a date and time with an offset; ``None``: it is none."""
    if len(text) < 11 or text[10] not in "Tt ":
        return None
    days, found = parse_date(text[:10]), _time_and_offset(text[11:])
    if days is None or found is None or found[1] is None:
        return None
    return days * DAY_US + found[0] - found[1]


def _time_and_offset(text: str) -> tuple[int, int | None] | None:
    """Microseconds since midnight, and of the offset if there is one. Digits past the sixth fall off."""
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    hour, minute, second = map(int, match.groups()[:3])
    if hour > 23 or minute > 59 or second > 59:
        return None
    fraction, offset = match[4] or "", match[5]
    time = ((hour * 60 + minute) * 60 + second) * 1_000_000 + int(fraction[:6].ljust(6, "0"))
    if offset is None:
        return time, None
    if offset in "Zz":
        return time, 0
    hours, minutes = int(offset[1:3]), int(offset[4:6])
    if hours > 23 or minutes > 59:
        return None
    shift = (hours * 60 + minutes) * 60_000_000
    return time, -shift if offset[0] == "-" else shift
