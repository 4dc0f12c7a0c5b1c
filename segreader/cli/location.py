"""The arguments LOCATION and TOPIC in all their forms, and ``--storage-option``."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from segreader.errors import ObjectNotFoundError, OptionError

if TYPE_CHECKING:
    from segreader.storage.signed_url import Secret


_F = TypeVar("_F", bound=Callable[..., Any])
_TOPIC = re.compile(r"([^/]+)(?:/([0-9]{1,10}))?")
_LARGEST_PARTITION = (1 << 31) - 1


def storage_option(command: _F) -> _F:
    """The option ``--storage-option``, which every command takes that reads buckets."""
    return click.option(
        "--storage-option",
        "storage_options",
        multiple=True,
        metavar="NAME=VALUE",
        help="Credential, endpoint or setting of the store; can be repeated. NAME=@FILE and NAME=env:VARIABLE keep a "
        "secret out of the process list. docs/reference/options.md lists the names.",
    )(command)


def parse_options(texts: tuple[str, ...]) -> dict[str, Secret]:
    """The storage options of a command line."""
    from segreader.storage.options import parse_storage_options

    return parse_storage_options(texts)


def parse_location(text: str) -> tuple[str | None, list[str] | None]:
    """A location, or the URLs that ``@FILE`` (``-`` is stdin) lists one a line; blank lines and ``#`` are passed over.

    Raises:
        ObjectNotFoundError: there is no such file. OptionError: it lists nothing.
    """
    if text != "-" and not text.startswith("@"):
        return text, None
    name = text.removeprefix("@")
    try:
        lines = sys.stdin.read() if name == "-" else _read(name)
    except OSError as error:
        raise ObjectNotFoundError("the list of URLs cannot be read", source=name, found=error.strerror) from None
    except UnicodeDecodeError:
        raise OptionError("the list of URLs is not text", found=name) from None
    urls = [line.strip() for line in lines.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    if not urls:
        raise OptionError("the list of URLs is empty", found=name, expected="one URL a line")
    return None, urls


def _read(name: str) -> str:
    with open(name, encoding="utf-8") as file:
        return file.read()


def parse_topic(text: str | None) -> tuple[str | None, int | None]:
    """The topic and the partition that ``orders`` or ``orders/3`` names; ``None`` for what is not said.

    A topic's name has no slash.

    Raises:
        OptionError: it is something else.
    """
    if text is None:
        return None, None
    match = _TOPIC.fullmatch(text)
    partition = int(match[2]) if match and match[2] else None
    if match is None or (partition is not None and partition > _LARGEST_PARTITION):
        shown = repr(text if len(text) <= 300 else text[:300] + "…")
        raise OptionError("not a topic", found=shown, expected="a topic's name, or name/partition as in orders/3")
    return match[1], partition
