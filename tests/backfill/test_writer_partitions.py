from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.transforms import BucketTransform, DayTransform, HourTransform
from pyiceberg.types import BinaryType, StringType, TimestamptzType
from written_splits import TOKEN, records_of, rows, write

from segreader.backfill import writer as writer_module
from segreader.backfill.output import SCHEMA, OutputOptions, PartitionField, parse_partition_by
from segreader.backfill.writer import OPEN_FILES, SplitWriter, WrittenFile
from segreader.errors import OptionError
from segreader.storage.target.local import LocalTarget

TABLE = OutputOptions(table="iceberg")
HOUR_US = 3_600_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Judge = Callable[[dict[str, Any]], int | str | None]


def by(text: str, **more: Any) -> OutputOptions:
    return replace(TABLE, partition_by=parse_partition_by(text), **more)


def judge_of(one: PartitionField) -> Judge:
    """What pyiceberg says a record's value of the field is."""
    if one.transform == "identity":
        return lambda row: row[one.column]
    if one.transform == "bucket":
        bucket = BucketTransform(one.buckets).transform(BinaryType())
        return lambda row: bucket(row["key"])
    transforms: dict[str, Any] = {"day": DayTransform(), "hour": HourTransform()}
    unit = transforms[one.transform].transform(TimestamptzType())
    return lambda row: unit((row["timestamp"] - EPOCH) // timedelta(microseconds=1))


def expect_parted(out: Path, output: OutputOptions, files: list[WrittenFile], batches: list[pa.RecordBatch]) -> None:
    """Each record is in one file, and has the values that its file tells."""
    judges = [judge_of(one) for one in output.partition_by]
    seen = []
    for file in files:
        found = pq.ParquetFile(out / file.name).read().to_pylist()
        assert {tuple(judge(row) for judge in judges) for row in found} == {file.partition}
        offsets = [row["offset"] for row in found]
        assert offsets == sorted(offsets)
        assert (file.rows, file.first_offset, file.last_offset) == (len(found), offsets[0], offsets[-1])
        seen += found
    wanted = [row for batch in batches for row in batch.to_pylist()]
    assert sorted(seen, key=lambda row: row["offset"]) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "topic",
        "partition",
        "day(timestamp)",
        "hour(timestamp)",
        "bucket(16, key)",
        "bucket(3, key), day(timestamp), topic",
        "topic, partition, hour(timestamp), bucket(100, key)",
    ],
)
@pytest.mark.parametrize("topic", ["nulls", "multi"])
def test_records_of_the_corpus_lie_where_iceberg_says(tmp_path: Path, text: str, topic: str) -> None:
    output, batches = by(text), records_of(topic)

    expect_parted(tmp_path, output, write(tmp_path, output, *batches), batches)


def test_times_before_1970_and_undated_records_have_the_days_of_iceberg(tmp_path: Path) -> None:
    times = [-1, 0, -1000, 1, -24 * HOUR_US, -24 * HOUR_US - 1, 24 * HOUR_US - 1, 24 * HOUR_US]
    batch = rows(len(times), timestamp=times)
    for text in ("day(timestamp)", "hour(timestamp)"):
        expect_parted(tmp_path, by(text), write(tmp_path, by(text), batch), [batch])
    days = {file.partition for file in write(tmp_path / "days", by("day(timestamp)"), batch)}
    assert days == {(-2,), (-1,), (0,), (1,)}


def test_a_time_beyond_the_calendar_has_a_day_all_the_same(tmp_path: Path) -> None:
    files = write(tmp_path, by("day(timestamp)"), rows(2, timestamp=[2**62, 0]))

    assert {file.partition[0]: file.name.split("/")[2] for file in files} == {
        2**62 // (24 * HOUR_US): "timestamp_day=undated",
        0: "timestamp_day=1970-01-01",
    }


def test_a_record_without_a_key_is_in_no_bucket(tmp_path: Path) -> None:
    files = write(tmp_path, by("bucket(4, key)"), rows(3, key=[None, b"", None]))

    assert {(file.partition, file.rows) for file in files} == {((None,), 2), ((0,), 1)}
    assert {file.name.split("/")[2] for file in files} == {"key_bucket=__HIVE_DEFAULT_PARTITION__", "key_bucket=0"}


def test_keys_that_are_text_have_buckets_and_those_that_iceberg_cannot_hash_are_told(tmp_path: Path) -> None:
    class Decoded(OutputOptions):
        """Options whose keys are decoded, without a schema registry to learn from."""

        @property
        def records(self) -> pa.Schema:
            return SCHEMA.set(0, pa.field("key", kind))

    fields = parse_partition_by("bucket(7, key)")
    texts = [f"é{at}" for at in range(50)]
    kind: pa.DataType = pa.string()
    output = Decoded(table="iceberg", partition_by=fields)
    files = write(tmp_path, output, rows(50, schema=output.records, key=texts))
    bucket = BucketTransform(7).transform(StringType())
    for file in files:
        found = pq.ParquetFile(tmp_path / file.name).read(columns=["key"])["key"].to_pylist()
        assert {(bucket(key),) for key in found} == {file.partition}
    kind = pa.struct([pa.field("a", pa.int32())])
    with pytest.raises(OptionError, match="struct<a: int32>"):
        write(tmp_path, output, rows(1, schema=output.records, key=[{"a": 1}]))


def test_directories_of_a_table_can_be_read(tmp_path: Path) -> None:
    output = by("day(timestamp), bucket(16, key), topic")

    assert output.directory("orders", 3, (20_758, 7, "orders")) == (
        "data/topic=orders/timestamp_day=2026-11-01/key_bucket=7/"
    )
    assert by("hour(timestamp)").directory("a/../b", 0, (-1,)) == "data/topic=a%2F..%2Fb/timestamp_hour=1969-12-31-23/"
    assert by("partition").directory("_x", 3, (3,)) == "data/topic=_x/partition=3/"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("day(timestamp)", [("day", "timestamp", 0)]),
        (
            "day(timestamp), bucket(16, key), topic",
            [("day", "timestamp", 0), ("bucket", "key", 16), ("identity", "topic", 0)],
        ),
        (" identity( topic ),partition,HOUR(timestamp)", [
            ("identity", "topic", 0), ("identity", "partition", 0), ("hour", "timestamp", 0)
        ]),
    ],
)  # fmt: skip
def test_partition_fields_are_parsed_and_told(text: str, expected: list[tuple[str, str, int]]) -> None:
    fields = parse_partition_by(text)

    assert [(one.transform, one.column, one.buckets) for one in fields] == expected
    assert parse_partition_by(", ".join(map(str, fields))) == fields


@pytest.mark.parametrize(
    "text",
    [
        "day",
        "timestamp",
        "value",
        "day(topic)",
        "day(16, timestamp)",
        "bucket(key)",
        "bucket(0, key)",
        "bucket(2147483648, key)",
        "bucket(-1, key)",
        "bucket(16, value)",
        "bucket(16, key",
        "16, key",
        "month(timestamp)",
        "topic,",
        "day(timestamp) topic",
        "identity(timestamp)",
    ],
)
def test_what_a_table_cannot_be_partitioned_by_is_told_with_what_it_can(text: str) -> None:
    with pytest.raises(OptionError, match=r"topic, partition, day\(timestamp\), hour\(timestamp\), bucket\(16, key\)"):
        parse_partition_by(text)


@pytest.mark.parametrize("text", ["bucket(0, key)", "bucket(16, topic)", "day( key )", "minute(timestamp)"])
def test_a_field_that_parts_no_table_is_told_as_it_was_written(text: str) -> None:
    with pytest.raises(OptionError) as raised:
        parse_partition_by(f"topic, {text} ")
    assert raised.value.found == text


@pytest.mark.parametrize("text", ["topic, identity(topic)", "day(timestamp), hour(timestamp)"])
def test_a_column_parts_a_table_once(text: str) -> None:
    with pytest.raises(OptionError, match="each of topic, partition, timestamp and key once"):
        parse_partition_by(text)


class CountedTarget(LocalTarget):
    """Knows how many of its files are being written, and the most there were."""

    now = most = 0

    @contextmanager
    def create(self, name: str) -> Iterator[BinaryIO]:
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            with super().create(name) as file:
                yield file
        finally:
            self.now -= 1


@pytest.mark.parametrize("waiting", [40, 1024])
def test_many_values_keep_32_files_open_at_most_and_lose_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waiting: int
) -> None:
    monkeypatch.setattr(writer_module, "WAITING", waiting)
    output = by("hour(timestamp), bucket(20, key)", row_group_bytes=1_000_000)
    draw = random.Random(7)
    batches = [
        rows(
            100,
            start=at,
            key=[draw.randbytes(4) for _ in range(100)],
            value=[draw.randbytes(2000) for _ in range(100)],
            timestamp=[draw.randrange(5) * HOUR_US for _ in range(100)],
        )
        for at in range(0, 1500, 100)
    ]
    target = CountedTarget(tmp_path)
    writer = SplitWriter(target, output, partition=0, start=0, stop=1500, token=TOKEN)
    for batch in batches:
        writer.write(batch)
    files = list(writer.finish())

    assert target.most <= OPEN_FILES
    assert (target.most == OPEN_FILES) is (waiting == 1024)
    assert target.now == 0
    assert len({file.name for file in files}) == len(files) >= 100
    expect_parted(tmp_path, output, files, batches)


def test_what_waits_for_files_that_are_not_begun_leaves_nothing_behind(tmp_path: Path) -> None:
    target = CountedTarget(tmp_path)
    output = by("bucket(50, key)", row_group_bytes=100_000, file_bytes=20_000)
    writer = SplitWriter(target, output, partition=0, start=0, stop=3000, token=TOKEN)
    for at in range(0, 3000, 100):
        writer.write(rows(100, start=at, key=[b"%d" % one for one in range(100)], value=[b"%0100d" % at] * 100))
    assert target.most > 1
    writer.discard()

    assert target.now == 0
    assert not list(tmp_path.rglob("*.parquet"))
