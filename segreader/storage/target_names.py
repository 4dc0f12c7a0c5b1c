"""Which names an object of a target may have: those that mean the same in a directory and in a bucket."""

from __future__ import annotations

from uuid import uuid4

from segreader.errors import PlanError

_LONGEST = 1024
_UNFINISHED = (".segreader-", ".part")


def checked(name: str) -> str:
    """The name itself.

    Raises:
        PlanError: a store would take it for another one, or refuse it.

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


def unfinished_name() -> str:
    """A file name that nobody else has, for what is being written; Spark and pyarrow skip it for its dot."""
    return f"{_UNFINISHED[0]}{uuid4().hex}{_UNFINISHED[1]}"


def is_unfinished(name: str) -> bool:
    """Whether the last part of a name is one of ``unfinished_name``."""
    last = name.rpartition("/")[2]
    return last.startswith(_UNFINISHED[0]) and last.endswith(_UNFINISHED[1])
