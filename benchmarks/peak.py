"""Peak memory of one scan, over what importing costs; run in a process of its own.

``python -m benchmarks.peak LOCATION`` prints the bytes by which reading LOCATION raised the process's peak.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import segreader
import segreader.scans
from benchmarks.native import demand_native, one_thread


def peak_bytes() -> int:
    """The most memory this process has held so far. Source: ``VmHWM`` in proc(5)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) << 10
    raise OSError("/proc/self/status has no VmHWM")


def main() -> None:
    demand_native()
    before = peak_bytes()
    how: Any = one_thread()
    for _batch in segreader.scan(sys.argv[1], **how).to_batches():
        pass
    print(peak_bytes() - before)


if __name__ == "__main__":
    main()
