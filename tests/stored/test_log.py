"""A partition at one moment, and what is new since: what each answer says, and what it reads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from segreader.catalog.listing import Wanted
from segreader.isolation import IsolationLevel
from segreader.plan.log import LogEnd, Piece
from segreader.plan.split import EndReason
from segreader.stored import log as log_module
from segreader.stored.lineage import read_lineage
from segreader.stored.log import Follower, StoredLog
from segreader.stored.source import LocationSource, SourceLog
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import write_local_tiered
from segreader.testing.stores import MemoryStore

LEVEL = IsolationLevel.READ_COMMITTED


def segments(*, is_open: bool = False) -> list[SegmentBuilder]:
    first = SegmentBuilder()
    first.batch([b"a", b"b", b"c"], producer_id=-1)
    second = first.roll()
    second.batch([b"d"], producer_id=7, transactional=True)
    if not is_open:
        second.marker(7, abort=True)
    return [first, second]


def opened(root: Path, built: list[SegmentBuilder]) -> tuple[MemoryStore, SourceLog]:
    """The store, asked for nothing but the listing so far, and the listing of its partition."""
    write_local_tiered(root / "tier", "orders", built)
    store = MemoryStore({str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()})
    source = LocationSource("tier", opened=(store, "tier/"))
    (listed,) = source.logs(Wanted("orders"))
    store.requests = []
    return store, listed


def test_an_open_transaction_ends_the_stable_part(tmp_path: Path) -> None:
    log = StoredLog(*opened(tmp_path, segments(is_open=True)))

    assert (log.earliest, log.stable, log.latest, log.reason) == (0, 3, 4, EndReason.OPEN_TRANSACTION)
    assert not log.is_end_hidden


def test_logs_are_read_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both, read = Barrier(2, timeout=30), read_lineage

    def read_beside_the_other(*args: Any, **options: Any) -> Any:
        both.wait()
        return read(*args, **options)

    monkeypatch.setattr(log_module, "read_lineage", read_beside_the_other)
    logs = [StoredLog(*opened(tmp_path / name, segments())) for name in ("one", "two")]

    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(lambda log: log.latest, logs)) == [5, 5]


def test_an_answer_is_read_once(tmp_path: Path) -> None:
    store, listed = opened(tmp_path, segments())
    log = StoredLog(store, listed)
    first = (log.latest, log.stable, log.end, log.open_end, log.offset_for(0), log.offset_for(1 << 60))
    asked = list(store.requests)

    assert asked
    assert first == (log.latest, log.stable, log.end, log.open_end, log.offset_for(0), log.offset_for(1 << 60))
    assert store.requests == asked
    assert first[0] == first[1] == first[3] == 5
    assert first[4:] == (0, None)


def test_a_log_whose_end_is_damaged_is_read_up_to_its_last_segment(tmp_path: Path) -> None:
    store, listed = opened(tmp_path, segments())
    name = listed.segments[-1].files.log
    store.objects[name] = store.objects[name][:-1] + b"\xff"
    log = StoredLog(store, listed)

    assert log.is_end_hidden
    assert (log.latest, log.stable, log.reason) == (3, 3, EndReason.DAMAGE)
    assert log.open_end > 5


def test_pieces_are_segments_and_of_one_in_part_a_share_of_its_size(tmp_path: Path) -> None:
    store, listed = opened(tmp_path, segments())
    log = StoredLog(store, listed)
    sizes = [one.log_size for one in listed.segments]

    assert log.pieces(0, 5) == [Piece(3, sizes[0]), Piece(5, sizes[1])]
    ((stop, size),) = [(one.stop, one.size) for one in log.pieces(1, 2)]
    assert stop == 2
    assert 0 < size < sizes[0]


@pytest.mark.parametrize("level", list(IsolationLevel))
def test_a_log_diverges_only_from_an_end_beyond_its_own(tmp_path: Path, level: IsolationLevel) -> None:
    log = StoredLog(*opened(tmp_path, segments(is_open=True)))

    assert log.diverged_from(log.end, level) is None
    lost = log.diverged_from(LogEnd(9, 0), level)
    assert lost is not None
    assert lost.common == 4
    assert lost.decided == (3 if level is LEVEL else 4)


def test_nothing_is_read_of_a_partition_that_is_listed_as_before(tmp_path: Path) -> None:
    store, listed = opened(tmp_path, segments())
    seen: list[SourceLog] = []

    def see(source: SourceLog) -> StoredLog:
        seen.append(source)
        return StoredLog(store, source)

    follower = Follower(see)
    (log,) = follower.look([listed]).values()
    asked = list(store.requests)
    (again,) = follower.look([listed]).values()

    assert again is log
    assert seen == [listed]
    assert store.requests == asked
    assert follower.look([]) == {}
