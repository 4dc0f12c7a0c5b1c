"""Keys and values as text: bytes have no one form in JSON, so a person chooses."""

from __future__ import annotations

import re
from binascii import b2a_base64, hexlify
from collections.abc import Callable
from typing import Any, TypeVar

import click

_F = TypeVar("_F", bound=Callable[..., Any])

Encode = Callable[[bytes], tuple[str, str]]
"""Gives the text of some bytes, and the name of the encoding it is in: ``utf8``, ``base64`` or ``hex``."""

_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


def _utf8(data: bytes) -> tuple[str, str]:
    return data.decode("utf-8", "replace"), "utf8"


def _base64(data: bytes) -> tuple[str, str]:
    return b2a_base64(data, newline=False).decode("ascii"), "base64"


def _hex(data: bytes) -> tuple[str, str]:
    return hexlify(data).decode("ascii"), "hex"


def _auto(data: bytes) -> tuple[str, str]:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return _base64(data)
    return (text, "utf8") if _CONTROL.search(text) is None else _base64(data)


ENCODINGS: dict[str, Encode] = {"auto": _auto, "utf8": _utf8, "base64": _base64, "hex": _hex}
"""``auto`` is text where the bytes are UTF-8 without control characters (but tab and line ends), else base64."""


def encoding_options(command: _F) -> _F:
    """The options ``--key-encoding`` and ``--value-encoding``."""
    for name, what in (("value", "values and header values"), ("key", "keys")):
        command = click.option(
            f"--{name}-encoding",
            type=click.Choice(list(ENCODINGS)),
            show_default="auto",
            help=f"How {what} become text. auto: UTF-8 where they are printable text, else base64 with a field "
            f"that says so. utf8: what is not UTF-8 becomes U+FFFD.",
        )(command)
    return command


def printable(text: str, width: int = 60) -> str:
    """Text that is safe and short enough for a table: what is not printable is escaped, what is too long is cut."""
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text[: width + 1])
    return shown if len(shown) <= width else shown[: width - 1] + "…"
