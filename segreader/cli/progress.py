"""A progress bar on stderr for reads that people wait for: bytes, records, rate, time left."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.progress import Progress

Look = Callable[[], tuple[int, int, int | None]]
"""Bytes read so far, bytes in all, and records so far where they are counted."""

PATIENCE_S = 2.0
"""Reads shorter than this show nothing."""


@contextmanager
def progress(look: Look, *, clock: Callable[[], float] = time.monotonic) -> Iterator[Callable[[], None]]:
    """Gives a function to call now and then while something is read; it draws a bar where stderr is a terminal.

    The bar appears after two seconds.

    Args:
        look: returns the progress of the read.
    """
    if not sys.stderr.isatty():
        yield lambda: None
        return
    began, bar = clock(), _Bar(look)

    def tick() -> None:
        if clock() - began >= PATIENCE_S:
            bar.show()

    try:
        yield tick
    finally:
        bar.end()


class _Bar:
    """One bar over one read, drawn only once it is shown."""

    def __init__(self, look: Look) -> None:
        self._look = look
        self._drawn: tuple[Progress, Any] | None = None

    def show(self) -> None:
        """Draw the bar at the current progress."""
        done, whole, records = self._look()
        if self._drawn is None:
            self._drawn = self._begin()
        drawn, task = self._drawn
        drawn.update(task, completed=done, total=whole, records="" if records is None else f"{records:,} records")

    def end(self) -> None:
        """Leave the last state on the terminal."""
        if self._drawn is not None:
            self.show()
            self._drawn[0].stop()

    def _begin(self) -> tuple[Progress, Any]:
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )

        from segreader.cli.output import console

        drawn = Progress(
            BarColumn(),
            DownloadColumn(binary_units=True),
            TransferSpeedColumn(),
            TextColumn("{task.fields[records]}"),
            TimeRemainingColumn(),
            console=console(sys.stderr),
        )
        drawn.start()
        return drawn, drawn.add_task("read", total=None, records="")
