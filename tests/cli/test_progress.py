from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

import segreader
from segreader.cli.output import progress
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
