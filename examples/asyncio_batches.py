"""Reads topics at once on asyncio into one bounded queue, and counts their records while they come.

python examples/asyncio_batches.py LOCATION TOPIC [TOPIC …]
python examples/asyncio_batches.py fixtures/corpus/tv2/remote txn-span multi
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import aclosing

import pyarrow as pa

import segreader

WAITING = 4
"""Batches that may wait for the consumer: readers that are faster than it are held up, and hold one more each."""

Batches = asyncio.Queue[tuple[str, pa.RecordBatch | None]]


async def read(location: str, topic: str, found: Batches) -> None:
    """Put a topic's record batches into a queue, and ``None`` behind the last."""
    with segreader.scan(location, topic=topic) as scan:
        async with aclosing(scan.aiter_batches()) as batches:
            async for batch in batches:
                await found.put((topic, batch))
    await found.put((topic, None))


async def count(found: Batches, topics: int) -> Counter[tuple[str, int]]:
    """Records by topic and partition, once all topics have ended."""
    records: Counter[tuple[str, int]] = Counter()
    while topics:
        topic, batch = await found.get()
        if batch is None:
            topics -= 1
        else:  # a batch holds records of one partition
            records[topic, batch["partition"][0].as_py()] += batch.num_rows
    return records


async def main(location: str, topics: Sequence[str]) -> None:
    """Print how many records each topic has. If one cannot be read, the others are ended."""
    found: Batches = asyncio.Queue(WAITING)
    async with asyncio.TaskGroup() as tasks:
        for topic in topics:
            tasks.create_task(read(location, topic, found))
        counting = tasks.create_task(count(found, len(topics)))
    records = counting.result()
    for topic in topics:
        of_topic = [number for (name, _), number in records.items() if name == topic]
        print(f"{topic}: {sum(of_topic)} records in {len(of_topic)} partitions")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("usage: asyncio_batches.py LOCATION TOPIC [TOPIC …]")
    try:
        asyncio.run(main(sys.argv[1], sys.argv[2:]))
    except* segreader.SegreaderError as errors:
        sys.exit("\n".join(str(error) for error in errors.exceptions))
