"""Names that an object of a target may have: those that mean the same in a directory and in a bucket."""

from __future__ import annotations

from uuid import uuid4

from segreader.errors import PlanError

_LONGEST = 1024
_LONGEST_FILE = 255
_UNFINISHED = (".segreader-", ".part")


def checked(name: str) -> str:
    """The name itself.

    Raises:
        PlanError: some store would refuse it, or read it as another name.

    Source: S3 and Google allow 1024 bytes of UTF-8 for a name, Azure 1024 characters.
    """
    parts = name.split("/")
    try:
        is_good = len(name.encode()) <= _LONGEST and "\0" not in name and {"", ".", ".."}.isdisjoint(parts)
    except UnicodeEncodeError:
        is_good = False
    if not is_good or is_unfinished(name):
        raise PlanError(
            "not a name that an object can have",
            found=ascii(name[:100]),
            expected="parts with / between them, none of them empty, '.' or '..', of 1024 bytes at most",
        )
    return name


def unfinished_name(name: str = "") -> str:
    """A unique name for a file that is being written; Spark and pyarrow skip it because it begins with a dot.

    Args:
        name: the file's final name; the new name contains it, unless it would be too long for a file.
    """
    final = f"-{name.rpartition('/')[2]}" if name else ""
    unfinished = f"{_UNFINISHED[0]}{uuid4().hex[:16]}{final}{_UNFINISHED[1]}"
    return unfinished if len(unfinished.encode()) <= _LONGEST_FILE else f"{_UNFINISHED[0]}{uuid4().hex}{_UNFINISHED[1]}"


def is_unfinished(name: str) -> bool:
    """Whether the last part of a name is one of ``unfinished_name``."""
    last = name.rpartition("/")[2]
    return last.startswith(_UNFINISHED[0]) and last.endswith(_UNFINISHED[1])


def finished_name(name: str) -> str | None:
    """The final name of an unfinished file, with its directory; ``None`` if its own name does not contain it."""
    directory, slash, last = name.rpartition("/")
    if not is_unfinished(last):
        return None
    final = last.removeprefix(_UNFINISHED[0]).removesuffix(_UNFINISHED[1]).partition("-")[2]
    return f"{directory}{slash}{final}" if final else None
