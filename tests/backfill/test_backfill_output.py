from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from backfill_runs import do, files_of, finish, offsets_in, plan_into, request, rows_of, table_of
from corpus import case
from growing_log import GrowingLog

from segreader.backfill.digest import RecordDigest
from segreader.backfill.output import (
    SCHEMA,
    OutputLayout,
    OutputOptions,
    done_name,
    file_name,
    split_of_file,
    visible,
)
from segreader.storage.target.store import open_target
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import write_local_tiered
from segreader.testing.records import ProducerRecord

DAY_MS = 86_400_000


def backfill(location: Path, out: Path, output: OutputOptions, *, topic: str = "orders") -> list[Path]:
    target = open_target(out)
    plan = plan_into(target, request(location, output=output, subscribe=topic))
    do(plan, target)
    assert finish(plan, target).is_complete
    return files_of(out)


def write_days(root: Path, days: list[int]) -> Path:
    """One segment with a batch for each day, counted from 1970; a batch has three records, an hour apart."""
    segment = SegmentBuilder()
    for day in days:
        for hour in range(3):
            segment.batch([ProducerRecord(value=b"x", timestamp_ms=day * DAY_MS + hour * 3_600_000)])
    return write_local_tiered(root, "orders", [segment])


def test_a_file_has_the_columns_of_sparks_kafka_source_and_headers_always(tmp_path: Path) -> None:
    (file, *_) = backfill(case("tv2", "nulls").root / "remote", tmp_path, OutputOptions(), topic="nulls")
    parquet = pq.ParquetFile(file)

    assert parquet.schema_arrow.equals(SCHEMA)
    row_group = parquet.metadata.row_group(0)
    columns = [row_group.column(at) for at in range(row_group.num_columns)]
    with_statistics = {column.path_in_schema for column in columns if column.is_stats_set}
    assert with_statistics == {"topic", "partition", "offset", "timestamp"}
    in_dictionary = {column.path_in_schema for column in columns if column.has_dictionary_page}
    assert in_dictionary == {"topic", "partition", "timestampType"}
    packed = {column.path_in_schema for column in columns if "DELTA_BINARY_PACKED" in column.encodings}
    assert packed == {"offset", "timestamp"}
    assert {column.compression for column in columns} == {"ZSTD"}
    assert file.relative_to(tmp_path).as_posix().startswith("nulls/0/part-0-")


def test_hive_directories_tell_topic_and_partition_and_the_files_do_not(tmp_path: Path) -> None:
    location = case("tv2", "nulls").root / "remote"
    (file, *_) = backfill(location, tmp_path, OutputOptions(is_hive=True, codec="snappy"), topic="nulls")

    assert pq.ParquetFile(file).schema_arrow.names == [
        "key",
        "value",
        "offset",
        "timestamp",
        "timestampType",
        "headers",
    ]
    assert file.parent == tmp_path / "topic=nulls" / "partition=0"
    assert set(table_of(tmp_path, hive=True)["topic"].to_pylist()) == {"nulls"}


def test_dates_are_those_of_the_records_in_utc(tmp_path: Path) -> None:
    write_days(tmp_path, [0, 1, 20_000, 1])
    out = tmp_path / "out"
    files = backfill(tmp_path, out, OutputOptions(layout=OutputLayout.DATE))

    assert [(file.parent.relative_to(out).as_posix(), offsets_in(file)) for file in files] == [
        ("orders/1970-01-01", [0, 1, 2]),
        ("orders/1970-01-02", [3, 4, 5, 9, 10, 11]),
        ("orders/2024-10-04", [6, 7, 8]),
    ]
    hours = backfill(tmp_path, tmp_path / "hours", OutputOptions(layout=OutputLayout.HOUR, is_hive=True))
    assert hours[0].parent.relative_to(tmp_path / "hours").as_posix() == "topic=orders/date=1970-01-01/hour=00"
    assert len(hours) == 9


def test_many_days_open_32_files_at_a_time_and_lose_nothing(tmp_path: Path) -> None:
    days = [*range(70), *range(70)]
    write_days(tmp_path, days)
    out = tmp_path / "out"
    target = open_target(out)
    asked = request(tmp_path, output=OutputOptions(layout=OutputLayout.DATE), subscribe="orders", batchRecords="6")
    plan = plan_into(target, asked)
    do(plan, target)
    assert finish(plan, target).is_complete

    assert len(files_of(out)) == 70
    assert [row["offset"] for row in rows_of(out)] == list(range(420))
    (entry,) = list((out / "_job" / "done").iterdir())
    assert "timestamps are out of order" in entry.read_text()


def test_a_record_without_a_time_lies_in_the_day_before_1970(tmp_path: Path) -> None:
    write_local_tiered(tmp_path, "orders", [SegmentBuilder().batch([ProducerRecord(value=b"x", timestamp_ms=-1)])])
    (file,) = backfill(tmp_path, tmp_path / "out", OutputOptions(layout=OutputLayout.DATE))

    assert file.parent.name == "1969-12-31"


def test_a_file_is_closed_at_its_size_and_a_row_group_at_its_own(tmp_path: Path) -> None:
    segment = SegmentBuilder()
    for at in range(200):
        segment.batch([bytes([at]) * 1000] * 10)
    write_local_tiered(tmp_path, "orders", [segment])
    output = OutputOptions(file_bytes=300_000, row_group_bytes=200_000, codec="none")
    target = open_target(tmp_path / "out")
    asked = request(tmp_path, output=output, subscribe="orders", batchRecords="50")
    plan = plan_into(target, asked)
    do(plan, target)
    assert finish(plan, target).is_complete
    files = files_of(tmp_path / "out")

    assert len(files) > 4
    assert all(file.stat().st_size < 700_000 for file in files)
    assert pq.ParquetFile(files[0]).metadata.num_row_groups == 2
    assert sorted(offset for file in files for offset in offsets_in(file)) == list(range(2000))


def test_a_topic_that_readers_would_pass_over_lies_in_a_directory_that_they_see(tmp_path: Path) -> None:
    log = GrowingLog(tmp_path)
    log.upload("_schemas", 0, 10)
    (file,) = backfill(tmp_path, tmp_path / "out", OutputOptions(), topic="_schemas")

    assert file.parent == tmp_path / "out" / "%5Fschemas" / "0"
    assert table_of(tmp_path / "out").num_rows == 10


@pytest.mark.parametrize("topic", ["orders", "a-1", "_job", ".x", "t" * 249])
def test_the_split_of_a_file_is_told_by_its_name(topic: str) -> None:
    name = file_name(3, 10, 20, "0123456789ab", 7)
    split_id = f"{topic}-3-{10:020d}-{20:020d}"

    assert split_of_file(f"{visible(topic)}/3/{name}") == split_id
    assert split_of_file(f"_staging/topic={topic}/partition=3/{name}") == split_id
    assert len(done_name(split_id).rpartition("/")[2]) < 250
    assert split_of_file(f"{topic}/3/part-00000-c000.snappy.parquet") is None


def test_a_topic_without_visible_records_is_complete_without_a_file(tmp_path: Path) -> None:
    assert backfill(case("tv2", "txn-abort").root / "remote", tmp_path, OutputOptions(), topic="txn-abort") == []
    assert (tmp_path / "_SUCCESS").exists()


def test_a_digest_does_not_depend_on_batches_and_tells_every_change(tmp_path: Path) -> None:
    backfill(case("tv2", "nulls").root / "remote", tmp_path, OutputOptions(), topic="nulls")
    table = table_of(tmp_path)

    def digest(rows: pa.Table, size: int) -> str:
        digest = RecordDigest()
        for batch in rows.to_batches(max_chunksize=size):
            digest.update(batch)
        return digest.value()

    values = {digest(table, size) for size in (1, 7, 1000)} | {digest(table.combine_chunks(), 13)}
    assert len(values) == 1
    rows = table.to_pylist()
    for name, value in (
        ("key", b"other"),
        ("value", b"other"),
        ("offset", 77),
        ("headers", [{"key": "a", "value": None}]),
    ):
        assert rows[3][name] != value
        changed = [row | {name: value} if at == 3 else row for at, row in enumerate(rows)]
        assert digest(pa.Table.from_pylist(changed, table.schema), 7) not in values
