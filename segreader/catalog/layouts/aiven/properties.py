"""Java's properties files: ``name=value`` with comments, escapes and continued lines.

Source: ``java.util.Properties.load`` (Java 21).
"""

from __future__ import annotations

import re
from pathlib import Path

from segreader.errors import OptionError

_LARGEST_FILE = 1 << 20
_LINE_END = re.compile(r"\r\n|\r|\n")
_BLANKS = " \t\f"
_NAME_AND_VALUE = re.compile(
    r"(?P<name>(?:[^\\=: \t\f]|\\.)*) [ \t\f]* (?:[=:][ \t\f]*)? (?P<value>.*)", re.VERBOSE | re.DOTALL
)
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(.))", re.DOTALL)
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def read_properties(path: Path) -> dict[str, str]:
    """Names and values of a properties file; of a name that comes twice the last value.

    Raises:
        OptionError: the file cannot be read, is longer than 1 MiB, or has a damaged escape. No value is shown.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST_FILE + 1)
    except OSError as error:
        raise OptionError("the properties file cannot be read", source=str(path), found=error.strerror) from None
    if len(data) > _LARGEST_FILE:
        raise OptionError("this is not a properties file", source=str(path), found=f"more than {_LARGEST_FILE} bytes")
    try:
        return parse_properties(data.decode("latin-1"))
    except OptionError as error:
        error.located(source=str(path))
        raise


def parse_properties(text: str) -> dict[str, str]:
    """Names and values in the text of a properties file.

    Raises:
        OptionError: a ``\\u`` without four hexadecimal digits after it.
    """
    values = {}
    pending = ""
    for number, natural in enumerate(_LINE_END.split(text), start=1):
        line = pending + natural.lstrip(_BLANKS)
        if not pending and line[:1] in ("", "#", "!"):
            continue
        if (len(line) - len(line.rstrip("\\"))) % 2:
            pending = line[:-1]
            continue
        pending = ""
        name, value = _split(line, number)
        values[name] = value
    if pending:
        name, value = _split(pending, number)
        values[name] = value
    return values


def _split(line: str, number: int) -> tuple[str, str]:
    match = _NAME_AND_VALUE.fullmatch(line)
    if match is None:
        return line, ""
    return _unescaped(match["name"], number), _unescaped(match["value"], number)


def _unescaped(text: str, number: int) -> str:
    def plain(escape: re.Match[str]) -> str:
        if escape[1]:
            return chr(int(escape[1], 16))
        if escape[2] == "u":
            raise OptionError(f"line {number} of the properties file has \\u without four digits")
        return _CONTROLS.get(escape[2], escape[2])

    return _ESCAPE.sub(plain, text)
