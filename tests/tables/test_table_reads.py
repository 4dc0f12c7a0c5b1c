"""Reads that end otherwise than at their end: damage, limits, interruption; and what they leave behind."""

from __future__ import annotations

import gc
import os
import pickle
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow.acero as acero
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from corpus import CORPUS
from polars import selectors

import segreader
from segreader.duckdb import register
from segreader.errors import CorruptBatchError, OptionError, SegmentGapError
from segreader.polars import lazy_frame
from segreader.polars import scan as scan_polars
from segreader.tables.dataset import open_dataset
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import write_local_tiered
from segreader.testing.records import ProducerRecord

REMOTE = CORPUS / "tv2" / "remote"
OFFSET = pl.col("offset")


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six segments of 20,000 records."""
    root = tmp_path_factory.mktemp("large")
    segment, built = SegmentBuilder(), []
    for _ in range(6):
        for _ in range(40):
            segment.batch([ProducerRecord(b"v" * 100) for _ in range(500)])
        built.append(segment)
        segment = segment.roll()
    write_local_tiered(root, "t", built)
    return root


def flip(root: Path, segment: int) -> None:
    """Damage the record bytes in the middle of one segment."""
    log = sorted(root.rglob("*.log"))[segment]
    data = bytearray(log.read_bytes())
    data[len(data) // 2 + 100] ^= 1
    log.write_bytes(data)


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    segment, built = SegmentBuilder(), []
    for _ in range(4):
        for _ in range(20):
            segment.batch([b"v" * 100] * 5)
        built.append(segment)
        segment = segment.roll()
    write_local_tiered(tmp_path, "t", built)
    flip(tmp_path, 2)
    return tmp_path


_BEFORE: set[threading.Thread] = set()


@pytest.fixture(autouse=True)
def threads_of_other_tests() -> None:
    _BEFORE.clear()
    _BEFORE.update(threading.enumerate())


def our_threads() -> list[str]:
    return [one.name for one in threading.enumerate() if one not in _BEFORE and one.name.startswith("segreader")]


def open_files(root: Path) -> set[str]:
    links = []
    for name in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{name}"))
        except OSError:
            continue
    return {link for link in links if link.startswith(str(root))}


@pytest.mark.parametrize("columns", [["offset"], ["partition"], ["value"]], ids=str)
@pytest.mark.parametrize("threads", [1, 3])
def test_damage_comes_after_the_rows_before_it(damaged: Path, columns: list[str], threads: int) -> None:
    expected = 0
    with pytest.raises(CorruptBatchError) as plain:
        for batch in segreader.scan(damaged).to_batches():
            expected += batch.num_rows
    dataset = open_dataset(damaged, threads=threads)
    rows = 0
    with pytest.raises(CorruptBatchError) as raised:
        for batch in dataset.to_batches(columns):
            rows += batch.num_rows
    assert (rows, str(raised.value)) == (expected, str(plain.value))
    assert dataset.last_error is raised.value
    assert our_threads() == []


def test_damage_in_what_a_filter_rules_out_is_not_met(damaged: Path) -> None:
    assert open_dataset(damaged).count_rows(pc.field("offset") < 200) == 200


def test_damage_that_is_skipped_is_counted(damaged: Path) -> None:
    dataset = open_dataset(damaged, on_corrupt="skip")
    assert dataset.count_rows() == segreader.scan(damaged, on_corrupt="skip").to_arrow().num_rows == 395
    assert len(dataset.metrics.holes) == 1


def test_polars_raises_the_error_itself_and_duckdb_its_text_while_the_dataset_keeps_it(damaged: Path) -> None:
    connection = duckdb.connect()
    dataset = register(connection, "t", damaged)
    with pytest.raises(duckdb.Error, match="CRC"):
        connection.sql('select sum("offset") from t').fetchall()
    assert isinstance(dataset.last_error, CorruptBatchError)
    other = open_dataset(damaged)
    with pytest.raises(CorruptBatchError) as raised:
        lazy_frame(other).select("offset").collect()
    assert raised.value is other.last_error


@pytest.fixture(scope="module")
def with_gap(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Offsets 0 to 59, of which no segment has 20 to 29; from 15 on a transaction is open, which ends in the gap."""
    root = tmp_path_factory.mktemp("gap")
    segment, built = SegmentBuilder(), []
    for number in range(6):
        if number == 1:
            segment.batch([b"v"] * 5).batch([b"t"] * 5, producer_id=7, producer_epoch=0, transactional=True)
        elif number == 2:
            segment.marker(7).batch([b"v"] * 9)
        else:
            segment.batch([b"v"] * 10)
        built.append(segment)
        segment = segment.roll()
    write_local_tiered(root, "t", built[:2] + built[3:])
    return root


@pytest.mark.parametrize(
    ("condition", "expression", "level", "is_in_gap", "rows"),
    [
        ('"offset" in (5, 45)', OFFSET.is_in([5, 45]), "read_uncommitted", False, 2),
        ('"offset" in (5, 45)', OFFSET.is_in([5, 45]), "read_committed", False, 2),
        ('"offset" in (5, 16, 45)', OFFSET.is_in([5, 16, 45]), "read_uncommitted", False, 3),
        ('"offset" in (5, 16, 45)', OFFSET.is_in([5, 16, 45]), "read_committed", True, 2),
        ('"offset" in (5, 25)', OFFSET.is_in([5, 25]), "read_uncommitted", True, 1),
        ('"offset" <= 20', OFFSET <= 20, "read_uncommitted", True, 20),
        ('"offset" < 20', OFFSET < 20, "read_uncommitted", False, 20),
        ('"offset" < 15', OFFSET < 15, "read_committed", False, 15),
        ('"offset" >= 30', OFFSET >= 30, "read_committed", False, 30),
        ('"offset" >= 29', OFFSET >= 29, "read_committed", True, 30),
        ("partition = 1", pl.col("partition") == 1, "read_committed", False, 0),
        ("value = 'v'", pl.col("value") == b"v", "read_committed", True, 45),
    ],
    ids=str,
)
def test_a_gap_is_told_or_refused_where_and_only_where_it_lies_in_what_is_asked_for(
    condition: str, expression: pl.Expr, level: str, is_in_gap: bool, rows: int, with_gap: Path
) -> None:
    connection = duckdb.connect()
    dataset = register(connection, "t", with_gap, isolation_level=level, on_gap="skip")
    strict = register(connection, "strict", with_gap, isolation_level=level)
    assert connection.sql(f'select count("offset") from t where {condition}').fetchall() == [(rows,)]
    assert [(gap.start, gap.stop) for gap in getattr(dataset.last_plan, "gaps", ())] == [(20, 30)] * is_in_gap
    frame = scan_polars(with_gap, isolation_level=level).filter(expression)
    query = connection.sql(f'select count("offset") from strict where {condition}')
    if is_in_gap:
        with pytest.raises(SegmentGapError):
            frame.collect()
        with pytest.raises(duckdb.Error, match="missing between two segments"):
            query.fetchall()
        assert isinstance(strict.last_error, SegmentGapError)
    else:
        assert frame.collect().height == rows
        assert query.fetchall() == [(rows,)]


def first_of_duckdb(location: Path) -> None:
    connection = duckdb.connect()
    register(connection, "t", location, split_bytes=1 << 17, batch_rows=500, threads=3)
    assert len(connection.sql('select "offset" from t limit 10').fetchall()) == 10


def reader_of_duckdb_dropped(location: Path) -> None:
    connection = duckdb.connect()
    register(connection, "t", location, split_bytes=1 << 17, batch_rows=500, threads=3)
    reader = connection.sql('select "offset", value from t').to_arrow_reader(2048)
    assert reader.read_next_batch().num_rows
    reader.close()


def first_of_polars(location: Path) -> None:
    frame = scan_polars(location, split_bytes=1 << 17, batch_rows=500, threads=3)
    assert frame.head(10).collect().height == 10


def head(location: Path) -> None:
    assert open_dataset(location, split_bytes=1 << 17, threads=3).head(70_000).num_rows == 70_000


def batches_dropped(location: Path) -> None:
    batches = open_dataset(location, split_bytes=1 << 17, batch_rows=500, threads=3).to_batches()
    for _ in range(20):
        next(batches)
    assert our_threads()
    del batches


def stream_dropped(location: Path) -> None:
    reader = open_dataset(location, split_bytes=1 << 17, batch_rows=500, threads=3).scanner().to_reader()
    for _ in range(20):
        reader.read_next_batch()
    reader.close()


@pytest.mark.parametrize(
    "read", [first_of_duckdb, reader_of_duckdb_dropped, first_of_polars, head, batches_dropped, stream_dropped]
)
def test_a_read_that_ends_early_leaves_no_thread_and_no_file_open(read: Callable[[Path], None], large: Path) -> None:
    read(large)
    gc.collect()
    assert our_threads() == []
    assert open_files(large) == set()


def test_one_thread_is_the_one_that_asks(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEGREADER_THREADS", "1")
    batches = open_dataset(large, split_bytes=1 << 17, batch_rows=500).to_batches()
    for _ in range(20):
        next(batches)
    assert our_threads() == []


def test_a_query_that_is_interrupted_leaves_no_thread_behind(large: Path) -> None:
    connection = duckdb.connect()
    register(connection, "t", large, split_bytes=1 << 17, batch_rows=500, threads=3)
    is_over = threading.Event()

    def interrupt() -> None:
        while not is_over.wait(0.5):  # again: it is in vain before the query has begun
            connection.interrupt()

    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    try:
        with pytest.raises(duckdb.InterruptException):
            connection.sql("select count(*) from t a, t b where a.value < b.value").fetchall()
    finally:
        is_over.set()
        interrupting.join()
    connection.close()
    gc.collect()
    deadline = time.monotonic() + 10
    while our_threads() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert our_threads() == []


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_any_number_of_threads_gives_the_rows_in_order(large: Path, threads: int) -> None:
    dataset = open_dataset(large, split_bytes=1 << 17, batch_rows=700, threads=threads)
    assert dataset.to_table().equals(segreader.scan(large).to_arrow())


def test_a_table_read_twice_at_once_by_one_query_is_read_right(large: Path) -> None:
    connection = duckdb.connect()
    register(connection, "t", large, split_bytes=1 << 17)
    query = 'select count(*) from t a join t b on a."offset" = b."offset" + 1'
    assert connection.sql(query).fetchall() == [(6 * 20_000 - 1,)]


def test_no_secret_is_in_what_a_table_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")  # nothing answers at that endpoint: further attempts only wait
    secrets = {"key": "AKIDsecretid", "secret": "hunter2secret", "endpoint_url": "http://127.0.0.1:9"}
    dataset = open_dataset("s3://bucket/logs", topic="t", storage_options=secrets)
    connection = duckdb.connect()
    connection.register("t", dataset)
    texts = [repr(dataset), str(dataset.schema), repr(lazy_frame(dataset)), lazy_frame(dataset).explain()]
    with pytest.raises(duckdb.Error) as raised:
        connection.sql("select count(*) from t").fetchall()
    texts += [str(raised.value), repr(dataset.last_error), str(dataset.last_error)]
    assert not [text for text in texts if "hunter2secret" in text or "AKIDsecretid" in text]
    dataset.close()


@pytest.mark.parametrize("threads", [0, -1, True, "2"])
@pytest.mark.parametrize("make", [open_dataset, scan_polars])
def test_an_impossible_number_of_threads_is_refused_when_a_table_is_made(make: Any, threads: Any) -> None:
    with pytest.raises(OptionError, match="threads"):
        make(REMOTE, topic="multi", threads=threads)


def test_what_a_topic_cannot_be_asked_for_is_refused() -> None:
    dataset = open_dataset(REMOTE, topic="multi")
    for ask in (
        lambda: dataset.take([1]),
        lambda: pickle.dumps(dataset),
        lambda: ds.Scanner.from_dataset(dataset),
        lambda: acero.ScanNodeOptions(dataset),
    ):
        with pytest.raises(OptionError, match="no files"):
            ask()
    with pytest.raises(FileNotFoundError, match=r"ask its table for scanner\("):
        ds.UnionDataset(dataset.schema, [dataset]).to_table()
    with pytest.raises(OptionError, match="no column 'leader_epoch'"):
        dataset.scanner(["leader_epoch"])


def test_polars_counts_the_rows_of_a_query_that_needs_no_column() -> None:
    frame = scan_polars(REMOTE, topic="multi")
    rows = 12_000
    here = pl.col("partition") == 1
    assert frame.with_row_index().select(pl.col("index").sum()).collect().item() == rows * (rows - 1) // 2
    assert frame.select(pl.int_range(pl.len())).collect().height == rows
    assert frame.join(pl.LazyFrame({"other": [7]}), how="cross").select("other").collect().height == rows
    assert frame.drop(selectors.all()).collect().shape == (rows, 0)
    assert frame.head(7).select(pl.len()).collect().item() == 7
    expected = frame.collect().filter(here).height
    assert 0 < expected < rows
    assert frame.filter(here).drop(selectors.all()).collect().shape == (expected, 0)


def test_a_duckdb_table_is_not_made_where_its_name_is_taken() -> None:
    scan = segreader.scan(REMOTE, topic="multi")
    with duckdb.connect() as connection:
        register(connection, "Records", REMOTE, topic="txn-span")
        connection.execute("create view made as select 1; create temp table passing(a int); create table other(a int)")
        connection.execute("create schema apart; create table apart.free(a int)")
        for name in ("records", "made", "passing", "OTHER"):
            with pytest.raises(OptionError) as refused:
                scan.to_duckdb(connection, name)
            assert str(refused.value) == (
                f"a table or view {name!r} already exists. Give another name, or drop that one"
            )
        assert connection.execute("from duckdb_tables() select table_name order by all").fetchall() == [
            ("free",),
            ("other",),
            ("passing",),
        ]
        assert scan.to_duckdb(connection, "free").aggregate("count(*)").fetchall() == [(12_000,)]


@pytest.mark.parametrize("name", ["", 7, None, b"records"])
def test_a_duckdb_table_has_a_name(name: Any) -> None:
    with pytest.raises(OptionError, match="name is not text, or is empty"):
        segreader.scan(REMOTE, topic="multi").to_duckdb(name=name)


@pytest.mark.parametrize("connection", [duckdb, 7, object(), Path("a.duckdb")], ids=["module", "int", "object", "path"])
def test_a_duckdb_table_is_made_in_a_connection_of_duckdb(connection: Any) -> None:
    with pytest.raises(OptionError, match=rf"not a DuckDB connection.*found {type(connection).__name__}"):
        segreader.scan(REMOTE, topic="multi").to_duckdb(connection)
