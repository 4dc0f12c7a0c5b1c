"""Asks DuckDB about a topic: how many records each partition has, and what stands at some offsets.

python examples/duckdb_tables.py LOCATION TOPIC
python examples/duckdb_tables.py fixtures/corpus/tv2/remote multi
"""

from __future__ import annotations

import sys

import duckdb

import segreader.duckdb
from segreader.errors import SegreaderError


def main(arguments: list[str]) -> int:
    """Print the answers; returns the exit code."""
    if len(arguments) != 2:
        print("usage: duckdb_tables.py LOCATION TOPIC", file=sys.stderr)
        return 1
    location, topic = arguments
    with duckdb.connect() as connection:
        try:
            table = segreader.duckdb.register(connection, "records", location, topic=topic)
        except SegreaderError as error:
            print(error, file=sys.stderr)
            return 1
        try:
            counts = connection.sql("select partition, count(*) from records group by 1 order by 1").fetchall()
            last = connection.sql(
                """select "offset", octet_length(value) from records
                   where partition = 0 and "offset" between 10 and 12 order by 1"""
            ).fetchall()
        except duckdb.Error as error:
            print(table.last_error or error, file=sys.stderr)  # DuckDB keeps the text, the table the error itself
            return 1
    for partition, records in counts:
        print(f"{topic}-{partition}: {records} records")
    for offset, size in last:
        print(f"offset {offset}: {size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
