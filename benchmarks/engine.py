"""Every figure of the engine in one run, written as a page of results: ``make bench``.

Each part is a program of its own with ``--quick``, one after another; the page has what they print.
"""

from __future__ import annotations

import argparse
import datetime
import os
import subprocess
import sys
import time
from pathlib import Path

PARTS = {
    "decode": "Decoding, aiokafka and the C limit",
    "clients": "Java's kafka-clients and franz-go",
    "threads": "Threads",
    "bucket": "A bucket of 50 ms and 64 MB/s a connection",
    "plan": "Planning 100,000 listed segments",
    "out": "Ways out, and the first record",
    "loader": "DuckDB and Polars",
}
_RESULTS = Path(__file__).parent / "results"


def run_part(name: str, python: str) -> str:
    """What a part prints, which is shown as it comes."""
    command = [python, "-u", "-m", f"benchmarks.{name}", "--quick"]
    lines: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as part:
        assert part.stdout is not None
        for line in part.stdout:
            print(line, end="", flush=True)
            lines.append(line)
    if part.returncode:
        lines.append(f"\nFAILED: exit {part.returncode}\n")
    return "".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engine", description="Every figure of the engine.")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="only these parts")
    parser.add_argument("--decode-python", default=sys.executable, help="of an environment with aiokafka")
    day = datetime.date.today().isoformat()
    parser.add_argument("--out", type=Path, default=_RESULTS / f"{day}-engine.md", help="the page to write")
    arguments = parser.parse_args()
    os.environ["SEGREADER_KERNEL"] = "native"
    page = [f"# The engine, {day}\n\n`make bench`: every program with `--quick`. Ratios are medians of the rounds.\n"]
    began = time.monotonic()
    for name in arguments.only:
        print(f"\n== {PARTS[name]}\n", flush=True)
        printed = run_part(name, arguments.decode_python if name == "decode" else sys.executable)
        page.append(f"\n## {PARTS[name]}\n\n```\n{printed.strip()}\n```\n")
        arguments.out.write_text("".join(page))
    print(f"\n{arguments.out}: {(time.monotonic() - began) / 60:.0f} minutes")


if __name__ == "__main__":
    main()
