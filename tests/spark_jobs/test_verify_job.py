from __future__ import annotations

import json
import os
import shutil
import threading
import time
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from backfill_runs import do, files_of, finish, plan_into, request
from corpus import CORPUS
from growing_log import GrowingLog
from held_bodies import threads, until
from pyspark.sql import SparkSession

from segreader.backfill.output import MANIFEST, SUCCESS, OutputLayout, OutputOptions
from segreader.backfill.read_back import OffsetRuns, SplitFiles
from segreader.backfill.task import Destination
from segreader.backfill.verify import VerifyTask, check_split, read_output
from segreader.plan.request import ReadOptions
from segreader.storage.target.local import LocalTarget
from segreader.storage.target.store import open_target
from segreader.testing import ProducerRecord, SegmentBuilder
from segreader.testing.directory import write_local_tiered
from spark_jobs.verify import main


@pytest.fixture
def segments(tmp_path: Path) -> Path:
    """Four segments of 50 records of one partition, and two of another."""
    root = tmp_path / "tier"
    root.mkdir()
    log = GrowingLog(root)
    for number in range(6):
        log.upload("orders", number % 3 // 2, 50)
    return root


def backfill(location: Path, out: Path, topic: str = "orders", **output: Any) -> Path:
    target = open_target(out)
    plan = plan_into(target, request(location, subscribe=topic, output=OutputOptions(**output), split_bytes=1 << 14))
    do(plan, target)
    assert finish(plan, target).is_complete
    return out


@pytest.fixture
def out(segments: Path, tmp_path: Path) -> Path:
    """An exact output, whose pages hold values as they are."""
    return backfill(segments, tmp_path / "out", codec="none")


def found(out: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> list[tuple[str, str]]:
    """Kind and text of what the job tells; its exit code must say the same."""
    code = main(["--target", str(out), "--local", "-o", "json", *arguments])
    document = json.loads(capsys.readouterr().out)
    assert document["is_exact"] == (code == 0)
    assert code == (1 if document["findings"] else 0)
    return [(one["kind"], f"{one['where']}: {one['text']}") for one in document["findings"]]


def rewrite(file: Path, table: pa.Table) -> None:
    """Other records in a file whose manifest is made to agree on sizes and counts."""
    pq.write_table(table, file, compression="none")
    path = next(parent for parent in file.parents if (parent / MANIFEST).exists()) / MANIFEST
    document = json.loads(path.read_text())
    for split in document["splits"]:
        for entry in split["files"]:
            if entry["name"].endswith(file.name):
                split["records"] += table.num_rows - entry["rows"]
                entry |= {"size": file.stat().st_size, "rows": table.num_rows}
    path.write_text(json.dumps(document))


def with_value(table: pa.Table, row: int, value: bytes) -> pa.Table:
    values = table.column("value").to_pylist()
    values[row] = value
    number = table.schema.get_field_index("value")
    return table.set_column(number, table.schema.field(number), [values])


def test_an_output_that_holds_what_the_segments_hold_is_exact(
    out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "report.json"

    assert found(out, capsys) == found(out, capsys, "--source", "--report", str(report)) == []
    document = json.loads(report.read_text())
    assert (document["records"], document["splits"], document["has_read_source"]) == (300, 6, True)
    assert main(["--target", str(out), "--local"]) == 0
    assert "exact    300 records in 6 files" in capsys.readouterr().out


@pytest.mark.parametrize("layout", list(OutputLayout))
@pytest.mark.parametrize("is_hive", [False, True])
def test_every_layout_is_read_back_in_the_order_of_offsets(
    layout: OutputLayout, is_hive: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topics = "nulls,ts-unordered,txn-interleaved,compacted-then-tiered,codec-mix"
    target = open_target(tmp_path / "out")
    asked = request(CORPUS / "tv2" / "remote", output=OutputOptions(layout=layout, is_hive=is_hive), subscribe=topics)
    plan = plan_into(target, asked)
    do(plan, target)
    assert finish(plan, target).is_complete

    assert found(tmp_path / "out", capsys, "--source") == []


def test_files_of_one_split_whose_offsets_interleave_are_read_as_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    segment = SegmentBuilder()
    for day in (0, 1, 2, 1, 0, 2, -1, 0, 1):
        segment.batch([ProducerRecord(value=b"%d" % at, timestamp_ms=day * 86_400_000 + at) for at in range(3)])
    write_local_tiered(tmp_path, "orders", [segment])
    out = backfill(tmp_path, tmp_path / "out", layout=OutputLayout.DATE)

    assert len(files_of(out)) == 4
    assert found(out, capsys, "--source") == []
    file = files_of(out)[1]
    file.unlink()
    assert any("offsets 0-2, 12-14, 21-23 are missing" in text for _, text in found(out, capsys, "--source"))


def test_a_file_in_the_directory_of_another_day_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_local_tiered(tmp_path, "orders", [SegmentBuilder().batch([ProducerRecord(value=b"x", timestamp_ms=0)])])
    out = backfill(tmp_path, tmp_path / "out", layout=OutputLayout.DATE)
    (out / "orders" / "1970-01-01").rename(out / "orders" / "1970-01-09")
    manifest = out / MANIFEST
    manifest.write_text(manifest.read_text().replace("1970-01-01", "1970-01-09"))

    ((kind, text),) = found(out, capsys)
    assert (kind, text.partition(": ")[2]) == ("file", "holds records that belong to orders/1970-01-01/")


def test_whatever_is_flipped_in_a_file_its_records_are_right_or_it_is_named(out: Path) -> None:
    target = open_target(out)
    (one,) = read_output(target).rounds
    split, entry = one.pairs[0]
    file = files_of(out)[0]
    good = file.read_bytes()
    verdicts = []
    for at in range(5, len(good), 11):
        file.write_bytes(good[:at] + bytes([good[at] ^ 0x10]) + good[at + 1 :])
        verdicts.append(check_split(split, entry, SplitFiles(target, entry, one.plan.output), one.plan.output))

    assert all(verdict.findings or verdict.digest == entry.digest for verdict in verdicts)
    assert sum(bool(verdict.findings) for verdict in verdicts) > len(verdicts) // 2


def test_a_file_that_was_deleted_is_named(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = files_of(out)[1]
    file.unlink()

    told = found(out, capsys, "--source")
    assert ("file", f"{file.relative_to(out)}: is not there: 50 records of orders-0-{50:020d}-{100:020d}") in told
    assert any(kind == "source" and "offsets 50-99 are missing" in text for kind, text in told)


def test_a_flipped_byte_of_a_value_is_named_by_its_column_and_with_the_source_by_its_offset(
    out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = files_of(out)[0]
    data = bytearray(file.read_bytes())
    at = data.rindex(b"\x02\x00\x00\x0037") + 5
    data[at] ^= 1
    file.write_bytes(data)

    assert found(out, capsys) == [
        ("digest", f"orders-0-{0:020d}-{50:020d}: 50 records, expected 50; checksums differ in value")
    ]
    assert any(
        kind == "source" and "the record at offset 37 has another value than the segments" in text
        for kind, text in found(out, capsys, "--source")
    )


def test_a_file_that_cannot_be_decoded_is_named(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = files_of(out)[0]
    file.write_bytes(file.read_bytes()[:-10])

    told = found(out, capsys)
    assert any(kind == "file" and text.startswith(f"{file.relative_to(out)}: has ") for kind, text in told)
    assert any(kind == "file" and "cannot be read after 0 of 50 records" in text for kind, text in told)


def test_a_file_that_no_manifest_lists_is_named(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = files_of(out)[0]
    shutil.copy(file, file.with_name(file.name.replace("-0.parquet", "-7.parquet")))

    ((kind, text),) = found(out, capsys)
    assert kind == "unlisted"
    assert text.startswith(str(file.relative_to(out)).replace("-0.parquet", "-7.parquet"))


@pytest.mark.parametrize("form", ["text", "json"])
def test_what_was_lost_before_the_job_is_told_though_all_else_is_exact(
    segments: Path, tmp_path: Path, form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in segments.glob("orders-0-*/*"):
        if "0050-" in path.name:
            path.unlink()
    target = open_target(tmp_path / "lacks")
    plan = plan_into(target, request(segments, subscribe="orders", failOnDataLoss="false"))
    do(plan, target)
    assert finish(plan, target).is_complete

    assert main(["--target", str(tmp_path / "lacks"), "--local", "-o", form]) == 0
    told = capsys.readouterr().out
    loss = "orders-0: offsets 50 to 99 are lost: no segment has them"
    assert json.loads(told)["losses"] == [loss] if form == "json" else f"lost     {loss}" in told.splitlines()


def test_a_wrong_row_is_named_though_size_and_counts_agree(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = files_of(out)[2]
    rewrite(file, with_value(pq.ParquetFile(file).read(), 12, b"something else"))

    told = dict(found(out, capsys, "--source"))
    assert set(told) == {"digest", "source"}
    assert "checksums differ in value" in told["digest"]
    assert "the record at offset 112 has another value" in told["source"]


def test_records_that_are_missing_or_twice_are_named_by_their_offsets(
    out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = files_of(out)[0]
    table = pq.ParquetFile(file).read()
    rewrite(file, pa.concat_tables([table.slice(0, 10), table.slice(9, 11), table.slice(22)]))

    told = dict(found(out, capsys, "--source"))
    assert "offsets 9 are there twice" in told["offsets"]
    assert "offsets 20-21 are missing" in told["source"]


def test_a_split_that_the_manifest_lacks_is_named(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads((out / MANIFEST).read_text())
    lost = document["splits"].pop(1)
    (out / MANIFEST).write_text(json.dumps(document))

    told = found(out, capsys)
    assert ("coverage", "plan: orders-0: offsets 50 to 99 are not written") in told
    assert [text.split(": ")[0] for kind, text in told if kind == "unlisted"] == [lost["files"][0]["name"]]


def test_a_manifest_that_agrees_with_wrong_files_does_not_agree_with_the_segments(
    out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = files_of(out)[0]
    rewrite(file, with_value(pq.ParquetFile(file).read(), 3, b"something else"))
    ((_, text),) = found(out, capsys)
    document = json.loads((out / MANIFEST).read_text())
    other = json.loads((out / MANIFEST).read_text())["splits"][1]["digest"]
    document["splits"][0]["digest"] = other
    (out / MANIFEST).write_text(json.dumps(document))

    assert "checksums differ in value" in text
    assert (
        "the checksum of the manifest is not that of the segments" in dict(found(out, capsys, "--source"))["manifest"]
    )


def test_an_output_whose_job_has_not_finished_is_not_exact(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (out / SUCCESS).unlink()
    assert [kind for kind, _ in found(out, capsys)] == ["manifest"]

    (out / MANIFEST).unlink()
    assert found(out, capsys) == [("manifest", f"{MANIFEST}: is not there: the job has not finished; run it again")]


def test_a_segment_that_is_gone_is_told_and_the_files_are_checked_without_it(
    out: Path, segments: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    next(iter(sorted(segments.rglob("*.log")))).unlink()

    assert found(out, capsys) == []
    ((kind, text),) = found(out, capsys, "--source")
    assert (kind, "the segment cannot be read again" in text) == ("source", True)


def test_a_segment_that_was_replaced_is_told_and_the_others_are_read(
    out: Path, segments: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = min(segments.rglob("*.log"))
    os.utime(log, ns=(0, log.stat().st_mtime_ns + 10**9))

    ((kind, text),) = found(out, capsys, "--source")
    assert (kind, "the segment cannot be read again" in text, str(log) in text) == ("source", True, True)


def test_a_directory_without_a_plan_is_no_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--target", str(tmp_path), "--local"]) == 3
    assert "there is no plan of a backfill" in capsys.readouterr().err


def test_offsets_are_told_as_runs_and_no_more_than_a_few_of_them() -> None:
    runs = OffsetRuns()
    for offsets in ([3, 4], [5, 9], [], range(10, 12), [20, 22], [24, 26], [27, 30]):
        runs.add(pa.array(offsets, pa.int64()))

    assert str(runs) == "offsets 3-5, 9-11, 20, 22, 24 and 2 more runs"


@pytest.mark.spark
@pytest.mark.xdist_group("spark-jobs")
def test_tasks_of_spark_find_what_one_process_finds(
    out: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    files_of(out)[1].unlink()

    assert main(["--target", str(out), "--source", "-o", "json"]) == 1
    with_spark = json.loads(capsys.readouterr().out)
    assert main(["--target", str(out), "--source", "-o", "json", "--local"]) == 1
    assert json.loads(capsys.readouterr().out) == with_spark


def test_what_is_found_does_not_depend_on_threads(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gone, other, third, *_ = files_of(out)
    gone.unlink()
    rewrite(other, with_value(pq.read_table(other), 7, b"another"))
    third.write_bytes(third.read_bytes()[:-20])

    one = found(out, capsys, "--source", "--threads", "1")
    assert len(one) > 3
    for way in (["--threads", "2"], ["--threads", "8"], ["--threads", "8", "--read-ahead-bytes", "1"], []):
        assert found(out, capsys, "--source", *way) == one
    assert [one.name for one in threading.enumerate() if one.name.startswith("segreader-check")] == []


def test_threads_are_of_a_check_in_this_process(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--target", str(out), "--engine", "spark", "--threads", "2"]) == 2
    assert "belong to --engine local" in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--credentials", "--broker-credentials"])
def test_credentials_of_segments_are_refused_where_no_segment_is_read(
    out: Path, flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--target", str(out), flag, "env:LAKE"]) == 2
    assert "belong to --source" in capsys.readouterr().err


def test_a_target_that_does_not_answer_holds_up_no_end(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, let_go, read = threading.Semaphore(0), threading.Event(), LocalTarget.read

    def held_up(target: LocalTarget, name: str) -> bytes:
        if name.endswith(".parquet"):
            asked.release()
            let_go.wait(30)
        return read(target, name)

    (one,) = read_output(open_target(out)).rounds
    task = VerifyTask(one.pairs, Destination(str(out)), one.plan.output, None)
    monkeypatch.setattr(LocalTarget, "read", held_up)

    def end_one() -> float:
        verdicts = task.verdicts(range(len(task)), ReadOptions(threads=4))
        taker = threading.Thread(target=lambda: next(verdicts, None))
        taker.start()
        assert all(asked.acquire(timeout=10) for _ in range(4))  # so many are checked at a time
        let_go.set()
        taker.join(10)
        let_go.clear()

        began = time.monotonic()
        verdicts.close()
        took = time.monotonic() - began
        let_go.set()
        assert until(lambda: threads("segreader-check") == [])
        let_go.clear()
        while asked.acquire(blocking=False):
            pass
        return took

    assert median(end_one() for _ in range(3)) < 0.3 + 0.5  # of a machine that may be busy
