"""The table of a benchmark: its rows, the bounds they are held against, and how a run ends."""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from statistics import median

from benchmarks.load import OtherWork

MIB = 1 << 20
_BUSY_CORES = 0.1


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


def parse_options(parser: argparse.ArgumentParser, **quick: object) -> argparse.Namespace:
    """The arguments of this run, with ``--json`` and ``--quick`` besides those of the program.

    Args:
        quick: the defaults with ``--quick``.
    """
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every value to FILE")
    if quick:
        shown = ", ".join(f"{name} {value}" for name, value in quick.items())
        parser.add_argument("--quick", action="store_true", help=f"other defaults: {shown}")
        if parser.parse_args().quick:
            parser.set_defaults(**quick)
    return parser.parse_args()


def print_machine(*packages: str) -> None:
    """What the figures were measured on."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    cores = len(os.sched_getaffinity(0))
    load = f"load {os.getloadavg()[0]:.1f}"
    print(f"{next(names, platform.machine())}, {cores} cores, {load}, Python {platform.python_version()}")
    print(", ".join(f"{one} {version(one)}" if find_spec(one.replace("-", "_")) else f"no {one}" for one in packages))


def print_row(row: Row, other_cores: float = 0.0) -> None:
    spread = f" ({min(row.values):.4g}-{max(row.values):.4g})" if len(row.values) > 1 else ""
    bound = "" if row.target is None else f"{'>=' if row.is_least else '<='} {row.target:.4g}{row.unit}"
    said = "" if row.target is None else "met" if row.is_met else "MISS"
    middle = f"{row.middle:.4g}{row.unit}"
    busy = f"  [BUSY: other work on {other_cores:.1f} cores]" if other_cores > _BUSY_CORES else ""
    print(f"{row.name:<60}{middle + spread:<28}{bound:<14}{said:<6}{row.note}{busy}".rstrip(), flush=True)


def run(figures: Iterable[Row], report: Path | None, **facts: object) -> None:
    """Print each row as it is measured, what missed its target, and how long it took; keep all in ``report``.

    A row during which other processes used the machine is marked, and the last line gives their share of the run.
    """
    rows: list[tuple[Row, float]] = []
    whole, since = OtherWork(), OtherWork()
    for row in figures:
        rows.append((row, since.cores()))
        print_row(*rows[-1])
        since = OtherWork()
    missed = [row.name for row, _ in rows if not row.is_met]
    other = whole.cores()
    print(("\nMissed: " + "; ".join(missed)) if missed else "\nEvery target is met", end="")
    print(f"; {whole.elapsed_s:.0f} s, load {os.getloadavg()[0]:.1f}, other work on {other:.2f} cores")
    if other > _BUSY_CORES:
        print("The machine was not idle: wall times, and figures of several threads, are worse than they would be")
    if report:
        kept = [asdict(row) | {"is_met": row.is_met, "other_cores": cores} for row, cores in rows]
        report.write_text(json.dumps(facts | {"other_cores": other, "rows": kept}, indent=1) + "\n")
