from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from backfill_runs import request
from corpus import CORPUS

from segreader.backfill.job_plan import JobPlan, make_plan
from segreader.backfill.job_splits import PartitionRange
from segreader.backfill.output import OutputLayout, OutputOptions
from segreader.backfill.report import Completeness, PartitionCoverage
from segreader.plan.cost import CostEstimate, PriceTable
from spark_jobs.report import RunReport, describe_bill, describe_plan, describe_report, look_command

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


def test_a_remote_target_is_looked_at_with_spark() -> None:
    read = 'spark.read.option("recursiveFileLookup", "true").parquet'
    assert look_command("s3a://bucket/out") == f"{read}('s3a://bucket/out').show()    (in pyspark)"
    assert look_command("s3a://b/out", is_hive=True) == "spark.read.parquet('s3a://b/out').show()    (in pyspark)"


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
