"""How far a job is, by the ``done`` entries in its target: right also where several drivers are at work."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from segreader.backfill.done import DoneEntry, read_done
from segreader.backfill.job_plan import JobPlan
from segreader.backfill.output import DONE, done_name
from segreader.errors import SegreaderError
from segreader.storage.target.store import TargetStore

_READ_AT_ONCE: Final = 200


class ProgressWatch:
    """Tells in the background how much is done, for the time of a ``with`` block; ``entries`` is what it has seen.

    Args:
        known: entries that were there before: they count as done, and not for the rate.
        tell: is given a line of text.
        every: seconds between two looks.
        clock: seconds, for the rate.
    """

    def __init__(
        self,
        target: TargetStore,
        plan: JobPlan,
        known: dict[str, DoneEntry],
        tell: Callable[[str], None],
        *,
        every: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.entries = dict(known)
        self._target, self._plan, self._tell = target, plan, tell
        self._every, self._clock = every, clock
        self._ids = {done_name(split.id): split.id for split in plan.splits}
        self._before = sum(entry.size for entry in known.values())
        self._began = clock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="segreader-progress", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def look(self) -> str:
        """Look once; the state as a line.

        Raises:
            SegreaderError: the target cannot be read.
        """
        new = [
            split_id
            for info in self._target.list(DONE)
            if (split_id := self._ids.get(info.name)) is not None and split_id not in self.entries
        ]
        for split_id in new[:_READ_AT_ONCE]:
            if (entry := read_done(self._target, split_id)) is not None:
                self.entries[split_id] = entry
        return self.line()

    def line(self) -> str:
        """Splits, bytes, records, rate and the time that is left."""
        done = sum(entry.size for entry in self.entries.values())
        records = sum(entry.records for entry in self.entries.values())
        total, seconds = self._plan.size, self._clock() - self._began
        rate = (done - self._before) / seconds if seconds > 0 else 0.0
        parts = [
            f"{len(self.entries):,} of {len(self._plan.splits):,} splits",
            f"{shown_bytes(done)} of {shown_bytes(total)}",
            f"{records:,} records",
        ]
        if rate > 0:
            parts += [f"{shown_bytes(rate)}/s", f"{shown_seconds((total - done) / rate)} left"]
        return ", ".join(parts)

    def _watch(self) -> None:
        while not self._stop.wait(self._every):
            try:
                self._tell(self.look())
            except SegreaderError:
                continue  # it only tells: the job itself meets what is wrong


def shown_bytes(number: float) -> str:
    """A number of bytes for people."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{number:.0f} {unit}" if unit == "bytes" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} TiB"


def shown_seconds(seconds: float) -> str:
    """A span of time for people."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
