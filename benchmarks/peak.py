"""Peak memory of one scan, over what importing costs; run in a process of its own.

``python -m benchmarks.peak LOCATION`` prints the bytes by which reading LOCATION raised the process's peak.
"""

from __future__ import annotations

import sys
from pathlib import Path

import segreader
import segreader.scans
from segreader.format.kernel import load_kernel


def peak_bytes() -> int:
    """The most memory this process has held so far. Source: ``VmHWM`` in proc(5)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) << 10
    raise OSError("/proc/self/status has no VmHWM")


def main() -> None:
    load_kernel("native")
    before = peak_bytes()
    for _batch in segreader.scan(sys.argv[1], kernel="native").to_batches():
        pass
    print(peak_bytes() - before)


if __name__ == "__main__":
    main()
