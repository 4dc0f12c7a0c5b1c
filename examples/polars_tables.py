"""Asks Polars about a topic: how many records each partition has, and what stands at some offsets.

python examples/polars_tables.py LOCATION TOPIC
python examples/polars_tables.py fixtures/corpus/tv2/remote multi
"""

from __future__ import annotations

import sys

import polars as pl

import segreader.polars
from segreader.errors import SegreaderError


def main(arguments: list[str]) -> int:
    """Print the answers; returns the exit code."""
    if len(arguments) != 2:
        print("usage: polars_tables.py LOCATION TOPIC", file=sys.stderr)
        return 1
    location, topic = arguments
    try:
        records = segreader.polars.scan(location, topic=topic)
        counts = records.group_by("partition").len().sort("partition").collect()
        some = (pl.col("partition") == 0) & pl.col("offset").is_between(10, 12)
        last = records.filter(some).select("offset", pl.col("value").bin.size()).collect()
    except SegreaderError as error:
        print(error, file=sys.stderr)
        return 1
    for partition, count in counts.rows():
        print(f"{topic}-{partition}: {count} records")
    for offset, size in last.rows():
        print(f"offset {offset}: {size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
