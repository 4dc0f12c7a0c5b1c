"""What ``--credentials spark_chaos_hook:slow`` does to the processes of a backfill: it takes time.

A disk that is slow to sync makes each step of the protocol long enough to die inside it: a hidden file that has no name
yet, an entry before its link, a name before the next one. A task shows by a file, named as its process, that it is at a
split, so that whoever kills it knows that it hit; some splits dawdle, so that speculation starts a second copy of them.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from random import Random
from typing import Any
from zlib import crc32

from pyspark import TaskContext

from segreader.spark.backfill import task

TRAIL = "SEGREADER_CHAOS_TRAIL"
"""The variable that names the directory of those files."""

DAWDLE = "SEGREADER_CHAOS_DAWDLE"
"""The variable that has the seconds for which a split in eight waits when it is tried first."""

_SYNC_SECONDS = 0.02
_random = Random()
_fsync = os.fsync
_do_split = task.do_split


def slow(location: str) -> dict[str, object]:
    """No storage options; the process that asks is slow from now on."""
    if os.fsync is _fsync:
        os.fsync = _slow_fsync
        _random.seed(os.urandom(8))
    if TaskContext.get() is not None and task.do_split is _do_split:
        task.do_split = _shown
    return {}


def _slow_fsync(descriptor: int) -> None:
    _fsync(descriptor)
    time.sleep(min(_random.expovariate(1 / _SYNC_SECONDS), 5 * _SYNC_SECONDS))


def _shown(split: Any, *arguments: Any, attempt: int, **more: Any) -> Any:
    trail = Path(os.environ[TRAIL], str(os.getpid()))
    trail.touch()
    seconds = float(os.environ.get(DAWDLE, "0"))
    if attempt == 0 and crc32(split.id.encode()) % 8 == 0:
        time.sleep(seconds)
    try:
        return _do_split(split, *arguments, attempt=attempt, **more)
    finally:
        trail.unlink()
