"""The names Kafka gives to directories and files, taken apart. Source: ``LogFileUtils`` (4.0)."""

from __future__ import annotations

import re
from typing import Final

LOG_DIRECTORY: Final = re.compile(r"(?P<topic>[A-Za-z0-9._-]{1,249})-(?P<partition>0|[1-9]\d{0,9})")
LOG_FILE: Final = re.compile(r"(?P<base>\d{20})\.(?P<kind>log|index|timeindex|txnindex|snapshot)")
REMOTE_DIRECTORY: Final = re.compile(
    r"(?P<topic>[A-Za-z0-9._-]{1,249})-(?P<partition>0|[1-9]\d{0,9})-(?P<topic_id>[A-Za-z0-9_-]{22})"
)
REMOTE_KINDS: Final = frozenset(("log", "index", "timeindex", "txnindex", "snapshot", "leader_epoch_checkpoint"))
REMOTE_FILE: Final = re.compile(
    rf"(?P<base>\d{{20}})-(?P<segment_id>[A-Za-z0-9_-]{{22}})\.(?P<kind>{'|'.join(sorted(REMOTE_KINDS))})"
)


def is_offset(text: str) -> bool:
    """Whether 20 digits of a name can be an offset, which has 63 bits."""
    return int(text) < 1 << 63


def last_directory(path: str) -> str:
    """The last element of a directory's path, which ends in ``/``."""
    return path.removesuffix("/").rpartition("/")[2]
