"""A progress bar on stderr for reads that people wait for: bytes, records, rate, time left."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.progress import Progress

    from segreader.read.scan import Scan

PATIENCE_S = 2.0
"""Reads shorter than this show nothing."""


@contextmanager
def progress(scan: Scan, *, clock: Callable[[], float] = time.monotonic) -> Iterator[Callable[[], None]]:
    """Gives a function to call now and then while ``scan`` is read; it draws a bar where stderr is a terminal.

    The bar appears after two seconds. Its whole is the stored bytes of the plan.
    """
    if not sys.stderr.isatty():
        yield lambda: None
        return
    began, bar = clock(), _Bar(scan)

    def tick() -> None:
        if clock() - began >= PATIENCE_S:
            bar.show()

    try:
        yield tick
    finally:
        bar.end()


class _Bar:
    """One bar over one scan, drawn only once it is shown."""

    def __init__(self, scan: Scan) -> None:
        self._scan = scan
        self._drawn: tuple[Progress, Any] | None = None

    def show(self) -> None:
        """Draw the bar where the scan stands now."""
        metrics = self._scan.metrics
        if self._drawn is None:
            self._drawn = self._begin()
        drawn, task = self._drawn
        drawn.update(task, completed=metrics.bytes_read, records=f"{metrics.records:,} records")

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
        return drawn, drawn.add_task("read", total=self._scan.plan().size, records="")
