from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import segreader
from segreader.cli.output import Pace, progress, shown_duration
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import write_local_tiered


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stderr: io.StringIO, seconds: float) -> str:
    """What stands on stderr after a read that took so long."""
    write_local_tiered(tmp_path, "orders", [SegmentBuilder(0).batch([b"v" * 100] * 50)])
    monkeypatch.setattr(sys, "stderr", stderr)
    scan, times = segreader.scan(tmp_path), iter([0.0, *[seconds] * 99])
    look = lambda: (scan.metrics.bytes_read, scan.plan().size, scan.metrics.records)  # noqa: E731
    with progress(look, clock=lambda: next(times)) as tick:
        for _ in scan.to_batches():
            tick()
    return stderr.getvalue()


def test_a_long_read_shows_bytes_and_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = drawn(tmp_path, monkeypatch, Terminal(), 2.5)
    assert "50 records" in shown
    assert "KiB" in shown


def test_a_short_read_shows_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert drawn(tmp_path, monkeypatch, Terminal(), 1.9) == ""


def test_without_a_terminal_there_is_no_bar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert drawn(tmp_path, monkeypatch, io.StringIO(), 60) == ""


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_the_time_left_follows_the_last_seconds_and_not_the_first(clock: Clock) -> None:
    pace = Pace(clock)
    for second in range(60):  # a slow minute, then a fast one
        clock.now += 1
        pace.see(10 * (second + 1))
    for second in range(60):
        clock.now += 1
        pace.see(600 + 1000 * (second + 1))

    assert pace.per_second == pytest.approx(1000, rel=0.1)
    assert pace.left(60_600 + 30_000) == "30 s left"


def test_time_that_passes_without_anything_never_leaves_the_same_seconds(clock: Clock) -> None:
    pace = Pace(clock)
    for second in range(10):
        clock.now += 1
        pace.see(100 * (second + 1))
    assert pace.left(1300) == "3 s left"

    texts = []
    for _ in range(20):
        clock.now += 1
        texts.append(pace.left(1300))

    assert texts[:2] == ["3 s left", "4 s left"]
    assert texts[2:] == [f"nothing new for {second} s" for second in range(3, 21)]


def test_the_end_has_no_time_left(clock: Clock) -> None:
    pace = Pace(clock)
    clock.now += 1
    pace.see(100)

    assert pace.left(100) == ""
    assert pace.left(101) == ""  # less than a second
    assert [shown_duration(one) for one in (4, 200, 3 * 3600 + 61)] == ["4 s", "3 min 20 s", "3 h 1 min"]


@pytest.fixture
def bar(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> Callable[..., str]:
    """What stands on a terminal after some steps, each of which is a second, and how the read ended."""

    def drawn(steps: list[tuple[int, int, int]], limit: int | None = None, error: type[Exception] | None = None) -> str:
        stderr = Terminal()
        monkeypatch.setattr(sys, "stderr", stderr)
        at = steps[0]
        try:
            with progress(lambda: at, limit=limit, clock=clock) as tick:
                for at in steps:  # noqa: B007
                    clock.now += 1
                    tick()
                if error is not None:
                    raise error
        except RuntimeError:
            pass
        return stderr.getvalue()

    return drawn


MIB = 1 << 20


def test_the_bar_says_how_fast_how_much_and_how_long_it_took(bar: Callable[..., str]) -> None:
    shown = bar([(second * 3 * MIB, 30 * MIB, second * 7) for second in range(11)])

    assert "30.0 MiB of 30.0 MiB" in shown
    assert "2.7 MiB/s" in shown
    assert "70 records" in shown
    assert shown.removesuffix("\x1b[?25h").endswith("in 11 s\n")


def test_the_bar_of_a_limited_read_ends_with_the_limit_and_not_with_the_bytes(bar: Callable[..., str]) -> None:
    shown = bar([(second * MIB, 1000 * MIB, second * 500) for second in range(9)], limit=4_000)

    assert "4,000 of 4,000 records" in shown
    assert "1000.0 MiB" not in shown
    assert "min left" not in shown


def test_a_bar_that_an_error_ends_is_not_full(bar: Callable[..., str]) -> None:
    steps = [(second * MIB, 100 * MIB, second) for second in range(6)]

    full = bar(steps)
    assert bar(steps, error=RuntimeError).splitlines()[-2] != full.splitlines()[-2]


def test_statistics_come_when_the_bar_is_at_its_end(tmp_path: Path) -> None:
    write_local_tiered(tmp_path, "orders", [SegmentBuilder(0).batch([b"v" * 100] * 50)])
    program = (
        "import sys, segreader.cli.output as o; o.PATIENCE_S = 0; from segreader.cli.main import main;"
        f"main(['cat', {str(tmp_path)!r}, '-o', 'ndjson', '--stats'])"
    )
    terminal, other_end = pty.openpty()
    running = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.DEVNULL, stderr=other_end)
    os.close(other_end)
    written = b""
    try:
        while piece := os.read(terminal, 1 << 16):
            written += piece
    except OSError:  # how Linux ends the output of a terminal
        pass
    os.close(terminal)

    assert running.wait() == 0
    bar, stats = written.decode().split("kernel ", 1)
    assert "50 records" in bar
    assert bar.count("\x1b[?25h") == 1  # the cursor is there again
    assert "MiB/s" in bar
    assert "MiB/s" not in stats
