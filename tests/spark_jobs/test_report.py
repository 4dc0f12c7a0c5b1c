from __future__ import annotations

import ast
import re
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from backfill_runs import request
from corpus import CORPUS
from held_bodies import until

from segreader.backfill.done import DoneEntry
from segreader.backfill.job_plan import JobPlan, make_plan
from segreader.backfill.job_splits import PartitionRange
from segreader.backfill.lake.table import TableEnd
from segreader.backfill.output import OutputLayout, OutputOptions, done_name
from segreader.backfill.report import Completeness, PartitionCoverage
from segreader.plan.cost import CostEstimate, PriceTable
from segreader.storage.base import ObjectInfo
from spark_jobs.report import ProgressWatch, RunReport, describe_bill, describe_plan, describe_report, look_command

PLAN = JobPlan(
    wanted={},
    options={},
    output=OutputOptions(),
    location="/tier",
    isolation="read_committed",
    partitions=(PartitionRange("orders", 0, 10, 13_000),),
    splits=(),
)


def coverage(partition: int, *, missing: tuple[tuple[int, int], ...] = (), **numbers: int) -> PartitionCoverage:
    names = (
        "start",
        "stop",
        "records",
        "control_records",
        "aborted_records",
        "holes",
        "files",
        "size",
        "written_bytes",
    )
    counts: dict[str, Any] = {name: numbers.get(name, 0) for name in names}
    return PartitionCoverage(
        topic="orders",
        partition=partition,
        end="",
        is_early=False,
        missing=missing,
        **counts,
    )


def report(*partitions: PartitionCoverage, findings: tuple[str, ...] = (), reused: int = 0) -> RunReport:
    found = Completeness(partitions, {"orders": {"0": 13_000}}, findings)
    return RunReport(PLAN, "build/out", found, {"splits": 3, "kernel": "native"}, reused, 4.25)


def test_a_summary_tells_what_became_of_every_offset_and_where_to_go_on() -> None:
    one = coverage(
        0,
        start=10,
        stop=13_000,
        records=12_345,
        control_records=5,
        holes=640,
        files=2,
        size=2_500_000,
        written_bytes=1_200_000,
    )
    lines = describe_report(report(one, coverage(1), reused=2)).splitlines()

    assert lines[:4] == [
        "topic   partition     offsets  records  control  aborted  holes  missing",
        "------------------------------------------------------------------------",
        "orders          0  10 - 12999   12,345        5        0    640        0",
        "orders          1        none        0        0        0      0        0",
    ]
    assert lines[5:] == [
        "read     2.4 MiB of segments in /tier",
        "         in 3 splits, 2 of them before this run, native kernel",
        "         read_committed: records of aborted transactions are left out",
        "wrote    12,345 records of 2 partitions, 1.1 MiB of Parquet in 2 files",
        "took     4.2 s",
        'next     {"orders": {"0": 13000}}',
        "output   build/out/<topic>/<partition>/",
        f"look     {look_command('build/out')}",
    ]


def test_a_summary_of_what_is_not_complete_says_so_and_how_to_go_on() -> None:
    lines = describe_report(report(coverage(0, stop=9, missing=((3, 9),)), findings=("x",))).splitlines()

    assert lines[2].endswith(" 6")
    assert lines[-1] == "missing  1 finding; run it again to finish what is missing"


def test_a_long_summary_says_how_much_it_leaves_out() -> None:
    text = describe_report(report(*(coverage(number, stop=1, records=1) for number in range(52))))

    assert "… and 2 partitions more" in text
    assert "wrote    52 records of 52 partitions" in text


@pytest.mark.parametrize(
    ("target", "place", "needs"),
    [
        ("s3://bucket/out", "s3a://bucket/out", "hadoop-aws"),
        ("s3a://bucket/out", "s3a://bucket/out", "hadoop-aws"),
        ("abfs://c/out", "abfss://c@ACCOUNT.dfs.core.windows.net/out", "hadoop-azure"),
        ("abfss://c@lake.dfs.core.windows.net/out", "abfss://c@lake.dfs.core.windows.net/out", "hadoop-azure"),
        ("gs://bucket/out", "gs://bucket/out", "gcs-connector"),
    ],
)
def test_a_target_in_a_bucket_is_looked_at_by_the_url_that_spark_takes(target: str, place: str, needs: str) -> None:
    line = look_command(target)
    assert f'spark.read.option("recursiveFileLookup", "true").parquet("{place}").show(3)' in line
    assert needs in line
    assert f'spark.read.parquet("{place}").show(3)' in look_command(target, is_hive=True)
    delta = look_command(target, table="delta", name="lake.orders")
    assert f'spark.read.format("delta").load("{place}").show(3)' in delta
    assert "delta-spark and" in delta


def test_a_target_in_a_bucket_is_looked_at_in_duckdb_too_but_for_azure() -> None:
    for target, url in (("s3://b/o'k", "s3://b/o''k"), ("s3a://b/out", "s3://b/out"), ("gs://b/out", "gs://b/out")):
        assert look_command(target).startswith(f"FROM read_parquet('{url}/**/*.parquet') LIMIT 3    (in DuckDB, ")
        assert look_command(target, table="delta").startswith(f"FROM delta_scan('{url}') LIMIT 3    (in DuckDB, ")
    assert "DuckDB" not in look_command("abfss://c@lake.dfs.core.windows.net/out")


def shown_by(line: str) -> str:
    """What a shell prints for the line."""
    return subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=True, timeout=120).stdout


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    return tmp_path / 'it\'s "out" ünï'


@pytest.mark.parametrize("is_url", [False, True])
@pytest.mark.parametrize("is_hive", [False, True])
def test_the_command_to_look_at_files_runs_and_so_does_its_duckdb(odd: Path, is_hive: bool, is_url: bool) -> None:
    place = odd / ("topic=orders/partition=0" if is_hive else "orders/0")
    place.mkdir(parents=True)
    pq.write_table(pa.table({"offset": list(range(10))}), place / "part-0.parquet")
    line = look_command(odd.as_uri() if is_url else str(odd), is_hive=is_hive)
    rows = [ast.literal_eval(row) for row in shown_by(line).splitlines()]
    expected = {"topic": "orders", "partition": 0} if is_hive else {}
    assert rows == [{"offset": offset} | expected for offset in range(3)]
    duckdb = pytest.importorskip("duckdb")
    assert len(duckdb.sql(line.partition("# or in DuckDB: ")[2]).fetchall()) == 3


def test_the_command_to_look_at_a_delta_table_runs(odd: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    deltalake.write_deltalake(str(odd), pa.table({"offset": list(range(10))}))
    line = look_command(str(odd), table="delta")
    assert shown_by(line).splitlines() == ["{'offset': 0}", "{'offset': 1}", "{'offset': 2}"]
    assert "# or in DuckDB: FROM delta_scan('" in line


def test_the_command_to_look_at_an_iceberg_table_runs(odd: Path) -> None:
    catalogs = pytest.importorskip("pyiceberg.catalog")
    odd.mkdir()
    options = {"type": "sql", "uri": f"sqlite:///{odd}/catalog.db", "warehouse": str(odd)}
    catalog = catalogs.load_catalog("lake", **options)
    catalog.create_namespace("db")
    rows = pa.table({"offset": pa.array(range(10))})
    catalog.create_table("db.orders", rows.schema).append(rows)
    line = look_command("ignored", table="iceberg", name="lake.db.orders", catalog=options)
    assert shown_by(line).splitlines() == ["{'offset': 0}", "{'offset': 1}", "{'offset': 2}"]
    assert line.endswith('# or in pyspark: spark.table("lake.db.orders").show(3)')


def continued(*partitions: PartitionCoverage, **fields: Any) -> RunReport:
    start = TableEnd(offsets={"orders": {"0": 10}})
    return replace(report(*partitions), plan=replace(PLAN, round=3, start=start), **fields)


def test_a_round_without_news_says_where_the_target_ends() -> None:
    nothing = continued(coverage(0, start=10, stop=10))
    ended = replace(nothing.plan, partitions=(PartitionRange("orders", 0, 10, 10),))
    assert describe_report(replace(nothing, plan=ended)).splitlines() == [
        'nothing new: the target ends at {"orders": {"0": 13000}}',
        "output   build/out/<topic>/<partition>/",
        f"look     {look_command('build/out')}",
    ]
    assert describe_report(replace(nothing, plan=replace(ended, partitions=()))).startswith("nothing new: ")


def test_a_later_round_says_that_there_was_more_before() -> None:
    lines = describe_report(continued(coverage(0, start=10, stop=13_000, records=12_990))).splitlines()
    assert "after    what the 2 rounds before this one wrote" in lines


def test_a_summary_of_a_table_names_it() -> None:
    table = continued(coverage(0, start=10, stop=13_000), table="iceberg", name="lake.db.orders")
    lines = describe_report(table).splitlines()
    assert lines[-2] == "output   the Iceberg table lake.db.orders"
    assert lines[-1] == f"look     {look_command('', table='iceberg', name='lake.db.orders')}"
    unnamed = describe_report(replace(table, table="delta", name=""))
    assert "output   the Delta table build/out\n" in unnamed


@pytest.mark.parametrize("in_detail", [False, True])
def test_a_plan_is_told_before_anything_is_read(in_detail: bool) -> None:
    location = str(CORPUS / "tv2" / "remote")
    plan = make_plan(request(location, subscribe="multi,nulls", output=OutputOptions(layout=OutputLayout.DATE)))
    *table, summary = describe_plan(plan, in_detail=in_detail).splitlines()

    assert summary.startswith(
        f"Reading {plan.size / (1 << 20):.1f} MiB of segments in {location}: 2 topics, 5 partitions"
    )
    assert ("multi" in "".join(table)) == in_detail


def test_a_bill_is_in_money_where_prices_are_known() -> None:
    prices = PriceTable(get_per_1000=Decimal("0.4"), gib_out=Decimal("0.5"), currency="EUR")

    assert describe_bill(CostEstimate(3, 1000, 1 << 31)).splitlines() == [
        "1,000 GET requests over HTTP, 2,147,483,648 bytes of 3 objects",
        "give your prices with --prices to see them in money",
    ]
    assert describe_bill(CostEstimate(3, 1000, 1 << 31, prices=prices)).endswith("1.4 EUR (requests 0.4, bytes 1)")


class Listed:
    """A target of which done entries are listed and read; it counts the requests that a bucket would answer."""

    def __init__(self, records: int = 10) -> None:
        self.done: list[str] = []
        self.pages = self.reads = 0
        self._records = records

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        self.pages += max(1, -(-len(self.done) // 1000))
        return (ObjectInfo(done_name(name), 1, 0) for name in self.done)

    def read(self, name: str) -> bytes:
        self.reads += 1
        split = next(split for split in self.done if done_name(split) == name)
        numbers: Any = dict.fromkeys(("partition", "start", "stop", "control_batches", "control_records"), 0)
        numbers |= dict.fromkeys(("aborted_batches", "aborted_records", "bytes_read", "requests", "attempt"), 0)
        rest: Any = {"topic": "orders", "token": "", "digest": "", "kernel": "", "seconds": 0.0, "files": ()}
        return DoneEntry(split=split, size=1 << 20, records=self._records, **numbers, **rest).to_bytes()

    def url(self, name: str) -> str:
        return name


@dataclass(frozen=True)
class Part:
    """What the watch knows of a split."""

    id: str
    size: int = 1 << 20


@dataclass
class Parts:
    """What the watch knows of a plan."""

    splits: list[Part]

    @property
    def size(self) -> int:
        return sum(part.size for part in self.splits)


def watch_of(count: int, **options: Any) -> tuple[Any, Listed, list[str]]:
    """A watch over ``count`` splits of 1 MiB, its target, and their ids."""
    ids = [f"orders-0-{number:06d}" for number in range(count)]
    target: Any = Listed()
    plan: Any = Parts([Part(one) for one in ids])
    return ProgressWatch(target, plan, {}, **options), target, ids


def test_progress_reads_few_entries_a_look_and_lists_once_a_second_at_most() -> None:
    watch, target, ids = watch_of(10_000)
    assert watch.pause == 5
    target.done = ids[:9_999]
    assert "9,999 of 10,000 splits, 9.8 GiB of 9.8 GiB, 2,000+ records" in watch.look()
    assert (target.reads, target.pages) == (200, 10)
    assert watch.pause == 10
    watch.look()
    assert (target.reads, target.pages) == (400, 20)


def test_the_rate_is_of_the_last_half_minute_and_no_time_stands_still() -> None:
    now = [0.0]
    watch, target, ids = watch_of(200, clock=lambda: now[0])
    lines = {}
    for second in range(0, 200, 5):
        now[0] = second
        # a split a second for a minute, then two a second, until one is left that takes long
        target.done = ids[: min(199, second if second <= 60 else 60 + 2 * (second - 60))]
        lines[second] = watch.look()
    assert ", 1.0 MiB/s, 2 min 20 s left" in lines[60]
    assert ", 2.0 MiB/s, 20 s left" in lines[110]  # and not the mean since the start
    assert "the last 1 split to come" in lines[195]
    assert not any(" 0 s left" in line or "-" in line for line in lines.values())
    target.done = ids
    assert watch.look().endswith(", finishing")


def test_the_first_split_alone_does_not_tell_how_long_the_others_take() -> None:
    now = [0.0]
    watch, target, ids = watch_of(20, clock=lambda: now[0])
    now[0], target.done = 20, ids[:1]
    assert watch.look().endswith(", 20 s so far")
    now[0], target.done = 25, ids[:15]
    assert watch.look().endswith(" s left")


def test_a_split_that_takes_long_lets_the_time_go_on() -> None:
    now = [0.0]
    watch, target, ids = watch_of(4, clock=lambda: now[0])
    told = []
    for second, done in ((0, 0), (100, 2), (150, 2), (190, 2), (199.5, 2), (400, 2), (410, 3)):
        now[0], target.done = second, ids[:done]
        told.append(watch.look().rpartition(", ")[2])
    assert told[1:] == ["1 min 40 s left", "50 s left", "10 s left"] + ["the last 2 splits to come"] * 2 + [
        "5 min 10 s left"
    ]


def test_small_splits_take_as_long_as_each_other_and_few_seconds_are_not_promised() -> None:
    ids = [f"orders-0-{number:06d}" for number in range(20)]
    target: Any = Listed()
    plan: Any = Parts([Part(one, 1 << 20 if number < 4 else 1 << 10) for number, one in enumerate(ids)])
    now = [0.0]
    watch = ProgressWatch(target, plan, {}, clock=lambda: now[0])
    told = []
    for second in range(0, 22, 2):  # a split a second: of all bytes 99 % are done after four
        now[0], target.done = second, ids[:second]
        told.append(watch.look().rpartition(", ")[2])
    assert [line for line in told[2:8] if not re.fullmatch(r"\d+ s left", line)] == []
    assert all(
        abs(int(line.split()[0]) - (20 - second)) <= 2 for second, line in zip(range(4, 16, 2), told[2:8], strict=True)
    )
    assert told[8:] == ["the last 4 splits to come", "the last 2 splits to come", "finishing"]


def test_a_terminal_is_told_each_second_though_looks_are_seldom(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("spark_jobs.report._OFTEN", 0.01)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    seconds: list[int] = []

    def clock() -> int:
        seconds.append(len(seconds))
        return seconds[-1]

    watch, target, _ = watch_of(4, every=3600, clock=clock)
    with watch:
        assert until(lambda: len(seconds) > 20)
    assert target.pages == 0
    shown = capsys.readouterr().err.split("\r\x1b[K")
    assert shown[1:3] == [
        f"[..........] 0 of 4 splits, 0 bytes of 4.0 MiB, 0 records, 0 files, {second} s so far" for second in (1, 2)
    ]


def test_a_narrow_terminal_has_the_time_left_and_no_counts() -> None:
    now = [0.0]
    watch, target, ids = watch_of(200, clock=lambda: now[0])
    now[0], target.done = 20, ids[:20]
    assert watch.look() == "20 of 200 splits, 20.0 MiB of 200.0 MiB, 200 records, 0 files, 1.0 MiB/s, 3 min 00 s left"
    assert watch.line(80) == "20 of 200 splits, 20.0 MiB of 200.0 MiB, 200 records, 1.0 MiB/s, 3 min 00 s left"
    assert watch.line(60) == "20 of 200 splits, 20.0 MiB of 200.0 MiB, 1.0 MiB/s, 3 min 00 s left"


def test_a_terminal_has_one_line_with_a_bar_that_fits_and_is_wiped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    watch, target, ids = watch_of(4, every=0.01)
    target.done = ids[:2]
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")
    with watch:
        while len(watch.entries) < 2:
            time.sleep(0.01)
        time.sleep(0.1)
    shown = capsys.readouterr().err
    assert shown.startswith("\r\x1b[K[#####.....] 2 of 4 splits, ")
    assert shown.endswith("\r\x1b[K")
    assert max(len(line) for line in shown.split("\r\x1b[K")) < 60


def test_how_far_a_job_came_stays_on_the_terminal_when_it_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    watch, target, ids = watch_of(4, every=0.01)
    target.done = ids[:2]
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with pytest.raises(OSError, match="the disk is full"), watch:
        while not watch._is_open:
            time.sleep(0.01)
        raise OSError("the disk is full")
    assert capsys.readouterr().err.endswith("\n")
