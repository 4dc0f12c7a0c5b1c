"""Readers of a bucket: threads and sockets of the store go with them, closed or not."""

from __future__ import annotations

import gc
import os
import threading
import time
from pathlib import Path

import pytest
from growing_log import GrowingLog
from loading import read_rest
from servers.pool import ServerPool

from segreader.loader import LoadQuery, ReaderPool, ResumableReader, SplitEnumerator

pytestmark = pytest.mark.xdist_group("servers")


def sockets() -> int:
    found = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            found += os.readlink(f"/proc/self/fd/{name}").startswith("socket")
        except FileNotFoundError:
            continue
    return found


@pytest.mark.parametrize("ending", ["closed", "never closed"])
def test_nothing_is_left_of_readers_of_a_bucket(ending: str, servers: ServerPool, tmp_path: Path) -> None:
    log = GrowingLog(tmp_path / "tier")
    for _ in range(2):
        log.upload("orders", 0, 400)
    server = servers.get("moto")
    prefix = f"loader-{ending.replace(' ', '-')}"
    server.upload(
        {f"{prefix}/{one.relative_to(log.root)}": one.read_bytes() for one in log.root.rglob("*") if one.is_file()}
    )
    query = LoadQuery(location=f"s3://{server.bucket}/{prefix}", topic="orders", batch_rows=50)

    def use(*, closes: bool) -> None:
        with SplitEnumerator(query, storage_options=server.storage_options) as enumerator:
            splits = enumerator.discover()
        pool = ReaderPool(query, storage_options=server.storage_options, max_open=2)
        readers = [pool.open(split) for split in splits for _ in range(2)]
        readers.append(ResumableReader(splits[0], query, storage_options=server.storage_options))
        for reader in readers:
            assert reader.read(max_rows=10, timeout=60) is not None
        assert read_rest(readers[1])["offset"].to_pylist() == list(range(10, 400))
        if closes:
            pool.close()
            readers[-1].close()

    use(closes=True)  # what is made once and kept: an event loop of the cloud's client
    gc.collect()
    before = {one for one in threading.enumerate() if one.is_alive()}, sockets()
    use(closes=ending == "closed")
    end = time.monotonic() + 20
    while time.monotonic() < end and (set(threading.enumerate()) - before[0] or sockets() > before[1]):
        gc.collect()
        time.sleep(0.05)
    assert set(threading.enumerate()) <= before[0]
    assert sockets() <= before[1]
