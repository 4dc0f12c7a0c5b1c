"""Writes docs/how-to/sizing.md: what a backfill takes, computed from measured figures and example prices.

python -m docs.make_sizing
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from pathlib import Path

from segreader.backfill.job_plan import DEFAULT_SPLIT_BYTES
from segreader.plan.cost import RANGE_SIZE
from segreader.storage.target.bucket import PART_SIZE

PAGE = Path(__file__).parent / "how-to" / "sizing.md"
TERABYTES = (1, 40, 400)
MEASURED = "2026-11-28"
LOCAL_CPU, SPARK_CPU = 4.62, 4.40
"""CPU seconds per GB of columns of each engine to plain files: of its dearest topic in the results."""
WRITTEN_MB, COLUMNS_MB = 192, 1070
WRITTEN = WRITTEN_MB / COLUMNS_MB
"""Bytes of Parquet per byte of columns, 100 B zstd, of the same measurement."""
GET, PUT, VCPU_HOUR = 0.0004 / 1000, 0.005 / 1000, 0.045
"""Dollars, as examples."""
BUSY = 0.8
"""Part of the cores' time that is used: an assumption."""


@dataclass(frozen=True)
class Engine:
    """Machines, and what a GB costs them."""

    name: str
    machines: int
    cpu: float
    cores: int = 16
    gbit: float = 10


ENGINES = (
    Engine("local", 1, LOCAL_CPU),
    Engine("spark", 10, SPARK_CPU),
)


def row(engine: Engine, terabytes: int) -> str:
    """One line of an engine's table."""
    size = terabytes * 10**12
    written = size * WRITTEN
    tasks = ceil(size / DEFAULT_SPLIT_BYTES)
    cores = engine.machines * engine.cores
    cpu_hours = size / 1e9 * engine.cpu / 3600
    network_hours = (size + written) * 8 / (engine.machines * engine.gbit * 1e9) / 3600
    hours = max(cpu_hours / cores / BUSY, network_hours)
    gets = ceil(size / RANGE_SIZE) + tasks
    puts = ceil(written / PART_SIZE) + 3 * tasks
    requests, machines = gets * GET + puts * PUT, hours * cores * VCPU_HOUR
    cells = (
        f"{terabytes} TB",
        f"{tasks:,}",
        f"{cpu_hours:,.1f}",
        f"{hours:,.2f}",
        f"{gets:,}",
        f"{puts:,}",
        f"{requests:,.2f}",
        f"{machines:,.2f}",
    )
    return f"| {' | '.join(cells)} |"


def table(engine: Engine) -> str:
    """What an engine takes, by size."""
    machines = "one machine" if engine.machines == 1 else f"{engine.machines} machines"
    text = f"{machines} of {engine.cores} vCPUs and {engine.gbit:g} Gbit/s, {engine.cpu:.2f} CPU seconds per GB"
    head = "| read | tasks | vCPU hours | hours | GET | PUT | requests, $ | machines, $ |"
    lines = [f"### `--engine {engine.name}`: {text}", "", head, "| ---: " * 8 + "|"]
    return "\n".join([*lines, *(row(engine, terabytes) for terabytes in TERABYTES)])


def page() -> str:
    """The whole page."""
    tables = "\n\n".join(map(table, ENGINES))
    return f"""# How large a backfill is

Estimated cores, hours, requests and dollars of a backfill to Parquet, by size and engine. For the bytes and requests of
your own topics, and the price of reading them, run `segreader backfill --dry-run --prices FILE`.

No backfill of these sizes was run: `python -m docs.make_sizing` computes this page from CPU measured with 1 GB on
{MEASURED} ([results](../../benchmarks/results/{MEASURED}-backfill.md)). The prices are examples of 2026-11-24:
${GET * 1000:g} for 1,000 GET, ${PUT * 1000:g} for 1,000 PUT, ${VCPU_HOUR:g} for a vCPU hour, and nothing for
traffic inside a region.

A TB is 10^12 bytes of records before compression. If segments are compressed, there are fewer tasks, GET requests and
bytes from the network than shown here; the CPU is the same.

{tables}

## How it is computed

| figure | formula |
| --- | --- |
| tasks | size / {DEFAULT_SPLIT_BYTES >> 20} MiB, the default of `--split-bytes` |
| vCPU hours | GB x CPU seconds per GB / 3600 |
| hours | the larger of vCPU hours / vCPUs / {BUSY} and (size + written) / network |
| written | {WRITTEN:.4f} of the size: zstd Parquet, as measured with records of 100 bytes |
| GET | size / {RANGE_SIZE >> 20} MiB + 1 for each task, to check whether it is already done |
| PUT | written / {PART_SIZE >> 20} MiB + 3 for each task: begin and complete a file, and its done entry |
| requests, $ | GET and PUT x their prices |
| machines, $ | hours x vCPUs x the price of a vCPU hour |

- **CPU** is what an engine took to write 1 GB of a zstd topic to Parquet files, with records of 100 bytes or of 1 KiB,
  whichever took more: {LOCAL_CPU:.2f} s/GB with the local engine, including the start of two workers, and
  {SPARK_CPU:.2f} s/GB with Spark's, including its JVM but not its start.
- **The network** limits the hours here, because bytes are counted uncompressed. If segments are compressed to a fifth,
  the CPU is the limit: divide the vCPU hours by the vCPUs, and by {BUSY}.
- **{BUSY} of the cores' time** is an assumption. So is that no core waits idle for the last tasks: the large segments
  of one partition are split by `--split-bytes`.
- **Listing and progress** are not counted: 1 request for 1,000 objects, and at most 1 a second while the job runs.
- **Small segments** take at least 1 GET each, whatever their size: 10,000 of 1 MiB are 10,000 requests.

## Which engine

Use the local engine as long as its hours are acceptable: it needs no Java, and a run that was killed continues where it
stopped. Use Spark if one machine takes too long: more machines take fewer hours, and cost about the same in all.

Next: [run the backfill](backfill.md).
"""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
