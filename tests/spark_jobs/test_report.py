from __future__ import annotations

import pytest
from corpus import CORPUS

from segreader.spark.options import parse_options
from segreader.spark.planning import plan_read
from spark_jobs.report import BackfillReport, PartitionReport, describe_plan, describe_report, look_command

REPORT = BackfillReport(
    location="/tier",
    target="build/out",
    isolation_level="read_committed",
    kernel="native",
    splits=3,
    partitions=(
        PartitionReport("orders", 0, 2_500_000, 12_345, 10, 13_000),
        PartitionReport("orders", 1, 900, 0),
    ),
    written_bytes=1_200_000,
    files=2,
    seconds=4.25,
)


def test_a_summary_tells_partitions_offsets_records_bytes_seconds_and_where_the_output_is() -> None:
    lines = describe_report(REPORT).splitlines()

    assert lines[:4] == [
        "topic   partition     offsets  records     stored",
        "-------------------------------------------------",
        "orders          0  10 - 13000   12,345    2.4 MiB",
        "orders          1        none        0  900 bytes",
    ]
    assert lines[5:] == [
        "read     2.4 MiB of segments in /tier",
        "         in 3 tasks, native kernel",
        "         read_committed: records of aborted transactions are left out",
        "wrote    12,345 records of 2 partitions, 1.1 MiB of Parquet in 2 files",
        "took     4.2 s",
        "output   build/out/topic=…/partition=…/",
        f"look     {look_command('build/out')}",
    ]


def test_a_long_summary_says_how_much_it_leaves_out() -> None:
    many = tuple(PartitionReport("orders", number, 1, 1, 0, 0) for number in range(52))
    report = BackfillReport("/tier", "out", "read_uncommitted", "native", 52, many, 1, 1, 1.0)

    assert "… and 2 partitions more" in describe_report(report)
    assert "wrote    52 records of 52 partitions" in describe_report(report)


def test_a_remote_target_is_looked_at_with_spark() -> None:
    assert look_command("s3a://bucket/out") == "spark.read.parquet('s3a://bucket/out').show()    (in pyspark)"


@pytest.mark.parametrize("in_detail", [False, True])
def test_a_plan_is_told_before_anything_is_read(in_detail: bool) -> None:
    location = str(CORPUS / "tv2" / "remote")
    plan = plan_read(parse_options({"location": location, "subscribe": "multi,nulls"}))
    *table, summary = describe_plan(plan, in_detail=in_detail).splitlines()

    assert summary.startswith(
        f"Reading {plan.size / (1 << 20):.1f} MiB of segments in {location}: 2 topics, 5 partitions"
    )
    assert ("multi" in "".join(table)) == in_detail
