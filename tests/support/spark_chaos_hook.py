"""What ``--credentials spark_chaos_hook:slow`` does to the processes of a backfill: it takes time.

A disk that is slow to sync makes each step of the protocol long enough to die inside it: a hidden file that has no name
yet, an entry before its link, a name before the next one. A task shows by a file, named as its process, that it is at a
split, so that whoever kills it knows that it hit; one split dawdles, so that speculation starts a copy of it.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from random import Random
from typing import Any

from pyspark import TaskContext

from segreader.backfill import task
from segreader.backfill.job_plan import read_plan
from segreader.backfill.output import DONE

TRAIL = "SEGREADER_CHAOS_TRAIL"
"""The variable that names the directory of those files."""

DAWDLE = "SEGREADER_CHAOS_DAWDLE"
"""The variable that has the seconds for which one of the last splits waits when it is tried first."""

_SYNC_SECONDS = 0.02
_random = Random()
_fsync = os.fsync
_task: Any = task
_os: Any = os
_do_split = _task.do_split


def slow(location: str) -> dict[str, object]:
    """No storage options; the process that asks is slow from now on."""
    if os.fsync is _fsync:
        _os.fsync = _slow_fsync
        _random.seed(os.urandom(8))
    if TaskContext.get() is not None and _task.do_split is _do_split:
        _task.do_split = _shown
    return {}


def _slow_fsync(descriptor: int) -> None:
    _fsync(descriptor)
    time.sleep(min(_random.expovariate(1 / _SYNC_SECONDS), 5 * _SYNC_SECONDS))


def _shown(split: Any, store: Any, target: Any, *arguments: Any, attempt: int, **more: Any) -> Any:
    trail = Path(os.environ[TRAIL], str(os.getpid()))
    trail.touch()
    if (seconds := os.environ.get(DAWDLE)) is not None and attempt == 0 and _is_late(target):
        time.sleep(float(seconds))
    try:
        return _do_split(split, store, target, *arguments, attempt=attempt, **more)
    finally:
        trail.unlink()


def _is_late(target: Any) -> bool:
    """Whether this is the one of the last splits that dawdles: Spark makes copies only when all others have begun."""
    plan, context = read_plan(target), TaskContext.get()
    assert plan is not None
    assert context is not None
    left = len(plan.splits) - sum(1 for _ in target.list(DONE))
    return left <= 4 and context.partitionId() % 3 == 0
