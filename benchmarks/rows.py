"""The table of a benchmark: its rows, the bounds they are held against, and how a run ends."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from benchmarks.report import verdict


@dataclass(frozen=True, slots=True)
class Row:
    """One figure: its rounds, and the bound for their median (``None``: for comparison only)."""

    name: str
    values: tuple[float, ...]
    target: float | None = None
    unit: str = ""
    note: str = ""
    is_least: bool = False

    @property
    def middle(self) -> float:
        return median(self.values)

    @property
    def is_met(self) -> bool:
        if self.target is None:
            return True
        return self.middle >= self.target if self.is_least else self.middle <= self.target


def add_json_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every value to FILE")


def print_row(row: Row) -> None:
    spread = f" ({min(row.values):.4g}-{max(row.values):.4g})" if len(row.values) > 1 else ""
    bound = "" if row.target is None else f"{'>=' if row.is_least else '<='} {row.target:.4g}{row.unit}"
    said = "" if row.target is None else verdict(row.is_met)
    middle = f"{row.middle:.4g}{row.unit}"
    print(f"{row.name:<52}{middle + spread:<26}{bound:<14}{said:<6}{row.note}".rstrip(), flush=True)


def run(figures: Iterable[Row], report: Path | None, **facts: object) -> None:
    """Print each row as it is measured, what missed its target, and how long it took; keep all in ``report``."""
    began, rows = time.perf_counter(), []
    for row in figures:
        rows.append(row)
        print_row(row)
    missed = [row.name for row in rows if not row.is_met]
    print(("\nMissed: " + "; ".join(missed)) if missed else "\nEvery target is met", end="")
    print(f"; {time.perf_counter() - began:.0f} s, load {os.getloadavg()[0]:.1f}")
    if report:
        kept = facts | {"rows": [asdict(row) | {"is_met": row.is_met} for row in rows]}
        report.write_text(json.dumps(kept, indent=1) + "\n")
