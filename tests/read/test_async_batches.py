"""The asyncio face: the same record batches, one ahead and no more, and nothing that stays behind."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import subprocess
import sys
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from corpus import CORPUS, Case, case, cases, normal
from fault_server import FaultServer

import segreader
from segreader.errors import CorruptBatchError, ObjectNotFoundError
from segreader.read.async_batches import iter_in_thread
from segreader.read.records import RECORD_COLUMNS, iter_consumer_records
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import write_local_tiered

REMOTE = CORPUS / "tv2" / "remote"


class Source:
    """An iterator of numbers that notes what is done to it, and in which thread."""

    def __init__(self, count: int = 1000, error_at: int | None = None, wait_at: int | None = None) -> None:
        self.count, self.error_at, self.wait_at = count, error_at, wait_at
        self.given = 0
        self.threads: set[int] = set()
        self.is_closed = False
        self.go = threading.Event()
        self.is_waiting = threading.Event()

    def __call__(self) -> Iterator[int]:
        try:
            for number in range(self.count):
                self.threads.add(threading.get_ident())
                if number == self.error_at:
                    raise CorruptBatchError("damaged", offset=number)
                if number == self.wait_at:
                    self.is_waiting.set()
                    assert self.go.wait(30)
                self.given += 1
                yield number
        finally:
            self.is_closed = True


def readers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "segreader-async"]


def soon(claim: Callable[[], bool], seconds: float = 10) -> bool:
    """Whether it comes true before the time is over."""
    stop = time.monotonic() + seconds
    while not claim() and time.monotonic() < stop:
        time.sleep(0.002)
    return claim()


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    assert soon(lambda: not readers())  # those of other tests may be about to end
    yield
    assert soon(lambda: not readers())


@pytest.mark.parametrize("isolation", ["uncommitted", "committed"])
@pytest.mark.parametrize("case", [one for one in cases("tv2", remote=True) if one.topic != "recreated"][::3], ids=str)
def test_the_records_are_those_of_a_plain_read(case: Case, isolation: str) -> None:
    def scan() -> Any:
        level = f"read_{isolation}"
        return segreader.scan(
            case.root / "remote", topic=case.topic, isolation_level=level, columns=RECORD_COLUMNS, batch_rows=7
        )

    async def read() -> list[pa.RecordBatch]:
        return [batch async for batch in scan().aiter_batches()]

    seen = asyncio.run(read())
    assert [normal(record) for batch in seen for record in iter_consumer_records(batch)] == list(
        map(normal, scan().records())
    )
    assert [batch.num_rows for batch in seen] == [batch.num_rows for batch in scan().to_batches()]


def test_the_thread_is_one_step_ahead_of_what_was_taken_and_no_more() -> None:
    source = Source()

    def has_given(count: int) -> bool:
        return source.given == count

    async def read() -> None:
        async with aclosing(iter_in_thread(source)) as items:
            for taken in range(1, 20):
                assert await anext(items) == taken - 1
                assert await asyncio.to_thread(soon, partial(has_given, taken + 1))
                await asyncio.sleep(0.005)
                assert source.given == taken + 1

    asyncio.run(read())
    assert len(source.threads) == 1
    assert threading.get_ident() not in source.threads


def test_nothing_is_read_before_the_first_item_is_asked_for() -> None:
    source = Source()

    async def read() -> None:
        items = iter_in_thread(source)
        await asyncio.sleep(0.01)
        assert source.given == 0
        assert not readers()
        await items.aclose()

    asyncio.run(read())
    assert not source.is_closed


def test_closing_early_returns_when_the_iterator_is_closed_and_its_thread_is_gone() -> None:
    async def read() -> None:
        for taken in (1, 5, 30):
            source = Source()
            items = iter_in_thread(source)
            for _ in range(taken):
                await anext(items)
            await items.aclose()
            assert source.is_closed
            assert not readers()
            assert [item async for item in items] == []

    asyncio.run(read())


def test_reading_to_the_end_leaves_no_thread() -> None:
    async def read() -> None:
        for count in (0, 1, 2, 100):
            assert [item async for item in iter_in_thread(Source(count))] == list(range(count))
            assert not readers()

    asyncio.run(read())


def test_leaving_the_loop_ends_the_thread_while_the_event_loop_runs_on() -> None:
    source = Source()

    async def read() -> None:
        async for item in iter_in_thread(source):
            if item == 3:
                break
        assert await asyncio.to_thread(soon, lambda: source.is_closed and not readers())

    asyncio.run(read())


def test_who_is_cancelled_does_not_wait_for_the_step_and_the_thread_ends_after_it() -> None:
    source = Source(wait_at=3)

    async def consume() -> None:
        async for _ in iter_in_thread(source):
            pass

    async def read() -> None:
        task = asyncio.create_task(consume())
        await asyncio.to_thread(source.is_waiting.wait, 10)
        await asyncio.sleep(0.01)
        task.cancel()
        began = time.monotonic()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert time.monotonic() - began < 10  # the step waits for 30 s
        assert not source.is_closed
        source.go.set()
        assert await asyncio.to_thread(soon, lambda: source.is_closed and not readers())
        assert source.given == 4

    asyncio.run(read())


def test_a_time_limit_of_the_host_holds_though_a_step_hangs() -> None:
    source = Source(wait_at=0)

    async def read() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await anext(iter_in_thread(source))

    asyncio.run(read())
    source.go.set()
    assert soon(lambda: source.is_closed)


def test_cancelling_a_consumer_between_two_items_ends_the_thread() -> None:
    source = Source()

    async def consume() -> None:
        async for _ in iter_in_thread(source):
            await asyncio.sleep(3600)

    async def read() -> None:
        task = asyncio.create_task(consume())
        assert await asyncio.to_thread(soon, lambda: source.given == 2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(read())
    gc.collect()
    assert soon(lambda: source.is_closed)


def test_an_error_comes_after_the_items_before_it_as_it_was_raised() -> None:
    async def read() -> None:
        seen = []
        items = iter_in_thread(Source(error_at=5))
        with pytest.raises(CorruptBatchError) as caught:
            async for item in items:
                seen.append(item)
        assert seen == [0, 1, 2, 3, 4]
        assert caught.value.offset == 5
        assert not readers()
        with pytest.raises(StopAsyncIteration):
            await anext(items)

    asyncio.run(read())


def test_what_a_scan_raises_before_the_first_record_comes_with_its_type() -> None:
    async def read() -> None:
        with pytest.raises(ObjectNotFoundError):
            async for _ in segreader.scan(REMOTE, topic="none").aiter_batches():
                pass

    asyncio.run(read())


def test_an_error_that_nobody_waits_for_any_more_is_dropped() -> None:
    source = Source(wait_at=1, error_at=2)

    async def read() -> None:
        items = iter_in_thread(source)
        await anext(items)
        source.go.set()
        assert await asyncio.to_thread(soon, lambda: source.given == 2)
        await items.aclose()

    asyncio.run(read())
    assert source.is_closed


def test_the_end_of_the_event_loop_ends_what_is_half_read() -> None:
    source, kept = Source(), []

    async def read() -> None:
        items = iter_in_thread(source)
        kept.append(items)
        await anext(items)

    asyncio.run(read())
    assert source.is_closed
    assert not readers()


def test_a_loop_that_is_closed_without_ceremony_leaves_no_thread_behind_what_is_garbage() -> None:
    source = Source()
    loop = asyncio.new_event_loop()
    items = iter_in_thread(source)
    assert loop.run_until_complete(anext(items)) == 0
    loop.close()
    assert readers()
    del items
    gc.collect()
    assert soon(lambda: source.is_closed and not readers())


def test_a_loop_that_closes_while_a_step_is_under_way_is_survived() -> None:
    source = Source(wait_at=1)
    loop = asyncio.new_event_loop()
    items = iter_in_thread(source)
    assert loop.run_until_complete(anext(items)) == 0
    waiting = loop.create_task(anext(items))
    loop.run_until_complete(asyncio.sleep(0.01))
    loop.close()
    source.go.set()
    assert soon(lambda: source.given == 2)
    del waiting, items
    gc.collect()
    assert soon(lambda: source.is_closed and not readers())


def test_a_second_event_loop_goes_on_where_the_first_one_stopped() -> None:
    source = Source(20)
    items = iter_in_thread(source)
    first, second = asyncio.new_event_loop(), asyncio.new_event_loop()
    assert [first.run_until_complete(anext(items)) for _ in range(5)] == [0, 1, 2, 3, 4]

    async def rest() -> list[int]:
        return [item async for item in items]

    first.close()
    assert second.run_until_complete(rest()) == list(range(5, 20))
    second.close()


def test_two_reads_of_one_scan_at_once_interleave_and_are_both_whole() -> None:
    scan = segreader.scan(REMOTE, topic="multi", columns=["partition", "offset"], batch_rows=10)
    order: list[str] = []

    async def read(name: str) -> list[tuple[int, int]]:
        rows = []
        async for batch in scan.aiter_batches():
            order.append(name)
            rows += list(zip(batch["partition"].to_pylist(), batch["offset"].to_pylist(), strict=True))
        return rows

    async def both() -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        return await asyncio.gather(read("a"), read("b"))

    one, other = asyncio.run(both())
    table = scan.to_arrow()
    assert one == other == list(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))
    assert sum(left != right for left, right in pairwise(order)) > len(order) // 4


def test_items_that_lie_ready_do_not_keep_other_tasks_from_running() -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def read() -> None:
        counter = asyncio.create_task(count())
        async for _ in iter_in_thread(Source(300)):
            time.sleep(0.0002)  # so that the next item lies ready
        counter.cancel()

    asyncio.run(read())
    assert turns >= 300


def test_batches_that_are_kept_are_never_written_to_again_whoever_drops_the_others(tmp_path: Path) -> None:
    """Buffers come back when their last reference goes: here it goes in other threads, while the next are filled."""
    segment = SegmentBuilder(0)
    for number in range(3000):
        segment.batch([b"%d-%d" % (number, row) * (1 + (number + row) % 40) for row in range(5)])
    write_local_tiered(tmp_path, "orders", [segment])

    def scan() -> Any:
        return segreader.scan(tmp_path, topic="orders", columns=["offset", "value"], batch_rows=50)

    def digest(batch: pa.RecordBatch) -> str:
        return hashlib.sha256(repr(batch.to_pydict()).encode()).hexdigest()

    expected = [digest(batch) for batch in scan().to_batches()]
    addresses: set[int] = set()

    async def read() -> None:
        kept: dict[int, pa.RecordBatch] = {}
        work: list[asyncio.Future[None]] = []
        number = 0

        def look(batches: dict[int, pa.RecordBatch]) -> None:
            for at in list(batches):
                assert digest(batches.pop(at)) == expected[at]

        async for batch in scan().aiter_batches():
            addresses.add(batch["offset"].buffers()[1].address)
            kept[number] = batch
            number += 1
            if number % 4 == 0:
                work.append(asyncio.ensure_future(asyncio.to_thread(look, kept)))
                kept = {}
        del batch
        await asyncio.gather(*work, asyncio.to_thread(look, kept))
        assert number == len(expected) == 300

    asyncio.run(read())
    assert len(addresses) < 150  # or nothing was used again, and this shows nothing


def test_a_read_over_http_that_ends_early_leaves_no_thread_and_no_socket() -> None:
    def sockets() -> int:
        return sum(Path(f"/proc/self/fd/{fd.name}").is_socket() for fd in Path("/proc/self/fd").iterdir())

    segment = SegmentBuilder(0)
    for number in range(100):
        segment.batch([b"%d" % number * 3000])

    async def read(server: FaultServer, url: str, end: str) -> None:
        scan = segreader.scan(
            urls=[url],
            topic="orders",
            partitions=[0],
            storage_options={"allow_hosts": url.split("/bkt")[0]},
            batch_rows=1,
        )
        batches: AsyncGenerator[pa.RecordBatch, None] = scan.aiter_batches()
        assert (await anext(batches)).num_rows == 1
        if end == "close":
            await batches.aclose()
        else:
            waiting = asyncio.ensure_future(_last(batches))
            await asyncio.sleep(0.02)
            waiting.cancel()
            await asyncio.wait([waiting])
            assert await asyncio.to_thread(soon, lambda: not readers(), 40)
        scan.close()

    with FaultServer(segment.to_bytes()) as server:
        before, threads = sockets(), set(threading.enumerate())
        for number, end in enumerate(("close", "cancel")):
            url = server.url("clean", f"{number}/orders-0/00000000000000000000.log", "X-Amz-Signature=x")
            asyncio.run(read(server, url, end))
        # the server's own ends go when it sees that ours have gone
        assert soon(lambda: sockets() <= before)
        assert soon(lambda: not [one for one in set(threading.enumerate()) - threads if "segreader" in one.name])


async def _last(batches: AsyncGenerator[pa.RecordBatch, None]) -> None:
    async for _ in batches:
        pass


def test_a_program_that_ends_without_closing_anything_ends() -> None:
    code = f"""
import asyncio, segreader
loop = asyncio.new_event_loop()
batches = segreader.scan({str(REMOTE)!r}, topic="multi", batch_rows=1).aiter_batches()
print(loop.run_until_complete(anext(batches)).num_rows)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")


def test_importing_segreader_and_scanning_does_not_import_asyncio() -> None:
    code = f"""
import sys, segreader
segreader.scan({str(REMOTE)!r}, topic="nulls").to_arrow()
print("segreader.read.async_batches" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_a_committed_read_gives_the_java_consumers_records() -> None:
    span = case("tv2", "txn-span")

    async def read() -> list[Any]:
        scan = segreader.scan(span.root / "remote", topic=span.topic, columns=RECORD_COLUMNS)
        return [record async for batch in scan.aiter_batches() for record in iter_consumer_records(batch)]

    assert list(map(normal, asyncio.run(read()))) == span.truth("committed")
