"""What a report says of real buckets."""

from __future__ import annotations

from pathlib import Path

from segreader.catalog.listing import Wanted
from segreader.report.model import BucketReport, SegmentFate, read_report
from segreader.stored.source import LocationSource

CORPUS = Path(__file__).parents[2] / "fixtures" / "corpus"


def _report(place: Path, topic: str | None = None) -> BucketReport:
    return read_report(LocationSource(str(place)), Wanted(topic), now_ms=1_800_000_000_000)


def test_a_report_counts_every_topic_and_segment_of_a_bucket() -> None:
    made = _report(CORPUS / "tv2" / "remote")

    assert len(made.topics) == 34
    assert sum(1 for topic in made.topics for _ in topic.segments()) == 125
    assert [topic.size for topic in made.topics] == sorted((topic.size for topic in made.topics), reverse=True)
    assert made.bill.objects == sum(1 for file in (CORPUS / "tv2" / "remote").rglob("*") if file.is_file())
    assert made.bill.stored == sum(
        file.stat().st_size for file in (CORPUS / "tv2" / "remote").rglob("*") if file.is_file()
    )


def test_segments_of_a_discarded_branch_are_shown_as_such() -> None:
    made = _report(CORPUS / "cluster" / "remote", "diverged")
    [partition] = made.topics[0].partitions

    assert [one.fate for one in partition.segments].count(SegmentFate.LOST_BRANCH) == 3
    assert not partition.has_lost
    assert (partition.start_offset, partition.stop_offset) == (0, 168)


def test_what_the_cleaner_removed_is_no_loss() -> None:
    made = _report(CORPUS / "tv2" / "remote", "compacted-then-tiered")
    [partition] = made.topics[0].partitions

    assert [(gap.start, gap.stop, gap.is_compaction) for gap in partition.gaps] == [(6, 23, True), (48, 71, True)]
    assert not made.has_findings


def test_a_segment_that_is_gone_leaves_a_gap_and_its_side_files_an_incomplete_set(tmp_path: Path) -> None:
    import shutil

    shutil.copytree(CORPUS / "tv2" / "remote", tmp_path / "bucket")
    logs = sorted((tmp_path / "bucket").rglob("txn-span-0-*/*.log"))
    logs[3].unlink()
    left = [file for file in logs[3].parent.iterdir() if file.name.startswith(logs[3].name[:43])]
    made = _report(tmp_path / "bucket", "txn-span")
    [partition] = made.topics[0].partitions

    assert partition.has_lost
    [incomplete] = partition.incomplete
    assert incomplete.missing == ("log",)
    assert incomplete.size == sum(file.stat().st_size for file in left) == partition.orphan_bytes
    assert made.severities["error"] == 1


def test_codecs_are_named_with_the_ratio_that_a_batch_has() -> None:
    made = _report(CORPUS / "tv2" / "remote", "codec-zstd")

    assert made.topics[0].codecs == {"zstd": 3}
    sample = made.topics[0].ratios["zstd"]
    assert sample.batches == 3
    assert sample.plain > sample.packed > 0


def test_a_brokers_log_whose_records_are_all_tiered_ends_where_it_begins() -> None:
    made = _report(CORPUS / "tv2" / "local", "multi")

    assert [one.start_offset for one in made.partitions] == [one.stop_offset for one in made.partitions]
    assert {one.segments[-1].is_active for one in made.partitions} == {True}


def test_segments_that_a_store_compresses_are_counted_as_they_are_stored() -> None:
    made = _report(CORPUS / "aiven-zstd" / "remote")
    files = [file for file in (CORPUS / "aiven-zstd" / "remote").rglob("*") if file.is_file()]

    assert made.bill.stored == sum(file.stat().st_size for file in files)
    assert made.bill.size > made.bill.stored
