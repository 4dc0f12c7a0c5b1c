"""Load a topic with plain threads, and go on at the same record after a stop: ``python threads.py LOCATION TOPIC OUT``.

Each split goes to a file of its own in OUT, with a checkpoint beside it: the position of the reader, and how long the
file was then. What a crash left behind the checkpoint is cut off. Killed at any moment and started again with the same
arguments it ends with each record once.
"""

from __future__ import annotations

import argparse
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from segreader.loader import LoaderSplit, LoadQuery, Position, ReaderPool, SplitEnumerator


def save(path: Path, text: str) -> None:
    """Write a file so that it is there whole or not at all."""
    temporary = path.with_suffix(".new")
    temporary.write_text(text)
    temporary.replace(path)


def plan(query: LoadQuery, out: Path) -> list[LoaderSplit]:
    """The splits: found once, then those that the last run wrote down."""
    work = out / "splits.json"
    if not work.exists():
        with SplitEnumerator(query) as enumerator:
            save(work, json.dumps([split.to_json() for split in enumerator.discover()]))
    return [LoaderSplit.from_json(text) for text in json.loads(work.read_text())]


def load(pool: ReaderPool, split: LoaderSplit, out: Path, portion: int) -> int:
    """Load what is left of one split; how many records that was."""
    data, checkpoint = out / f"{split.id}.ndjson", out / f"{split.id}.checkpoint"
    position, size, count = None, 0, 0
    if checkpoint.exists():
        saved = json.loads(checkpoint.read_text())
        position, size = Position.from_json(saved["position"]), saved["size"]
    with data.open("ab") as file, pool.open(split, position) as reader:
        file.truncate(size)
        while (batch := reader.read(max_rows=portion)) is not None:
            for row in batch.to_pylist():
                line = {"partition": row["partition"], "offset": row["offset"], "value": (row["value"] or b"").hex()}
                file.write(json.dumps(line).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
            save(checkpoint, json.dumps({"position": reader.position.to_json(), "size": file.tell()}))
            count += batch.num_rows
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("location")
    parser.add_argument("topic")
    parser.add_argument("out", type=Path)
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--portion", type=int, default=10_000, help="records between two checkpoints")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    query = LoadQuery(location=given.location, topic=given.topic, columns=("partition", "offset", "value"))
    splits = plan(query, given.out)
    with ReaderPool(query, max_open=given.threads) as pool, ThreadPoolExecutor(given.threads) as threads:
        counts = threads.map(lambda split: load(pool, split, given.out, given.portion), splits)
        print(f"{sum(counts)} records of {len(splits)} splits")


if __name__ == "__main__":
    main()
