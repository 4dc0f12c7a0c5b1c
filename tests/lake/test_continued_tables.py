"""Backfills into every kind of target that go on: each record once, whoever stops or writes in between."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
import pytest
from growing_bucket import GrowingBucket
from growing_log import GrowingLog
from lake_targets import Key, Target

from segreader import lake, scan
from segreader.backfill.job import Job
from segreader.backfill.job_plan import JobPlan
from segreader.backfill.lake.table import TableEnd
from segreader.storage.local import LocalStore
from segreader.storage.target.local import LocalTarget
from spark_jobs.backfill import main
from spark_jobs.verify import main as verify

KINDS = ("parquet", "delta", "iceberg")
TOPICS = ("multi", "txn-span", "codec-zstd", "txn-interleaved")


def _run(bucket: GrowingBucket, target: Target, *more: str) -> int:
    pattern = "|".join(TOPICS)
    return main(["--location", str(bucket.root), "--pattern", pattern, *target.flags, "--engine", "local", *more])


def _wanted(bucket: GrowingBucket) -> Counter[Key]:
    found: Counter[Key] = Counter()
    for topic in TOPICS:
        rows: list[dict[str, Any]] = (
            scan(str(bucket.root), topic=topic, columns=["topic", "partition", "offset"]).to_arrow().to_pylist()
        )
        found.update((row["topic"], row["partition"], row["offset"]) for row in rows)
    return found


@pytest.fixture(params=KINDS)
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    return Target(request.param, tmp_path / "target")


@pytest.fixture
def bucket(tmp_path: Path) -> GrowingBucket:
    return GrowingBucket(tmp_path / "bucket", *TOPICS)


def test_each_run_adds_what_was_uploaded_since_and_verify_proves_it(bucket: GrowingBucket, target: Target) -> None:
    while bucket:
        bucket.upload()
        assert _run(bucket, target, "--continue") == 0
        assert target.keys() == _wanted(bucket)

    assert verify([*target.flags, "--source"]) == 0


def test_with_nothing_new_the_target_stays_as_it_is(
    bucket: GrowingBucket, target: Target, capsys: pytest.CaptureFixture[str]
) -> None:
    bucket.upload(2)
    _run(bucket, target, "--continue")
    before = {path: path.stat().st_mtime_ns for path in target.files.rglob("*") if path.is_file()}

    assert _run(bucket, target, "--continue") == 0
    assert "nothing new" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in target.files.rglob("*") if path.is_file()} == before


class Requests:
    """What is asked of the bucket and of the target's ledger, as requests of a store: a read, a list, a size.

    Of a bucket, a list is a request for each 1,000 objects; ranges of one object are at least one.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.made: Counter[str] = Counter()
        for kind, names in (
            (LocalStore, ("list", "list_level", "size", "read_ranges", "read_pieces")),
            (LocalTarget, ("list", "read", "put", "put_if_absent", "create", "move", "delete")),
        ):
            for name in names:
                patch.setattr(kind, name, self._counting(f"{kind.__name__}.{name}", getattr(kind, name)))

    def _counting(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **named: Any) -> Any:
            if not name.endswith(".delete") or arguments[1]:  # to delete nothing asks nobody
                self.made[name] += 1
            return call(*arguments, **named)

        return counted


def test_a_run_with_nothing_new_makes_as_many_requests_however_long_the_topic_and_the_ledger_are(
    tmp_path: Path, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hourly runs of a year: no request for each segment, for each round or for each split."""
    log = GrowingLog(tmp_path / "tier")
    arguments = ["--location", str(log.root), "--topic", "orders", *target.flags, "--engine", "local", "--continue"]
    made: list[Counter[str]] = []
    for rounds in (2, 6):
        for _ in range(rounds):
            for _ in range(12):  # a log of few segments is read whole
                log.upload("orders", 0, 10)
                log.upload("orders", 1, 10)
            assert main([*arguments, "--processes", "1", "--split-bytes", "400"]) == 0
        with monkeypatch.context() as patch:
            requests = Requests(patch)
            assert main(arguments) == 0
            made.append(requests.made)

    assert made[0] == made[1]
    assert {name for name in made[1] if name.startswith("LocalTarget.")} <= {"LocalTarget.list", "LocalTarget.read"}
    assert made[1].total() <= 24, made[1]  # for two partitions


def test_a_dry_run_plans_what_is_new_and_writes_nothing(
    bucket: GrowingBucket, target: Target, capsys: pytest.CaptureFixture[str]
) -> None:
    bucket.upload()
    assert _run(bucket, target, "--dry-run") == 0
    assert not list(target.place.rglob("*.parquet"))
    _run(bucket, target)
    bucket.upload()
    before = {path for path in target.files.rglob("*") if path.is_file()}
    capsys.readouterr()

    assert _run(bucket, target, "--continue", "--dry-run") == 0
    assert "1905 - " in capsys.readouterr().out  # where partition 0 of multi goes on
    assert {path for path in target.files.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_table_goes_on_exactly_where_it_ends_without_its_ledger(
    bucket: GrowingBucket, tmp_path: Path, kind: str
) -> None:
    target = Target(kind, tmp_path / "target")
    bucket.upload()
    _run(bucket, target)
    shutil.rmtree(target.files / "_job")
    (target.files / "_manifest.json").unlink()
    bucket.upload(9)

    assert _run(bucket, target, "--continue") == 0
    assert target.keys() == _wanted(bucket)


class LateSegment:
    """The first segment of a partition of ``multi`` that is away from its bucket for a while, or all of its segments.

    Without it, partition 0 begins at 1905, and partition 1 at 1863.
    """

    def __init__(self, bucket: GrowingBucket, aside: Path, partition: int = 0, *, with_all: bool = False) -> None:
        place = next((bucket.root / "kafka-tiered-storage").glob(f"multi-{partition}-*"))
        first = min(path.name[:20] for path in place.iterdir())
        self._moves = [(path, aside / path.name) for path in place.glob("*" if with_all else f"{first}*")]
        aside.mkdir()
        for path, other in self._moves:
            path.rename(other)

    def appear(self) -> None:
        for path, other in self._moves:
            other.rename(path)


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_table_without_its_ledger_knows_where_it_began(
    bucket: GrowingBucket, tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    target = Target(kind, tmp_path / "target")
    bucket.upload(2)
    late = LateSegment(bucket, tmp_path / "aside")
    assert _run(bucket, target, "--continue") == 0
    shutil.rmtree(target.files / "_job")
    bucket.upload(9)
    assert _run(bucket, target, "--continue") == 0  # a second round, whose ledger is lost, too
    shutil.rmtree(target.files / "_job")
    late.appear()
    before = target.keys()

    for more in ((), ("--dry-run",)):
        assert _run(bucket, target, "--continue", *more) == 2
        told = capsys.readouterr().err
        assert "segments of multi-0 have appeared below where the target begins" in told
        assert "found offsets from 0 on, expected none below 1905" in told
    assert target.keys() == before
    assert _run(bucket, target, "--continue", "--on-gap", "skip") == 1
    assert "multi-0: offsets 0 to 1904 are lost" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_joined_files_do_not_make_a_table_forget_where_it_began(
    bucket: GrowingBucket, tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    target = Target(kind, tmp_path / "target")
    bucket.upload(2)
    late = LateSegment(bucket, tmp_path / "aside")
    assert _run(bucket, target, "--split-bytes", "16k") == 0
    assert main(["--compact", *target.flags]) == 0
    shutil.rmtree(target.files / "_job")
    late.appear()

    assert _run(bucket, target, "--continue") == 2
    assert "expected none below 1905" in capsys.readouterr().err


def test_a_delta_table_whose_log_was_cleaned_up_knows_where_it_began(
    bucket: GrowingBucket, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its commits, which say so, are gone: what is left are the transactions of its checkpoint."""
    from deltalake import DeltaTable

    target = Target("delta", tmp_path / "target")
    bucket.upload(2)
    late = LateSegment(bucket, tmp_path / "aside")
    assert _run(bucket, target) == 0
    DeltaTable(str(target.files)).create_checkpoint()
    for commit in (target.files / "_delta_log").glob("*.json"):
        commit.unlink()
    shutil.rmtree(target.files / "_job")
    late.appear()

    assert _run(bucket, target, "--continue") == 2
    assert "expected none below 1905" in capsys.readouterr().err


def test_an_iceberg_table_whose_snapshots_have_expired_knows_where_it_began(
    bucket: GrowingBucket, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from pyiceberg.catalog import load_catalog

    target = Target("iceberg", tmp_path / "target")
    bucket.upload(2)
    late = LateSegment(bucket, tmp_path / "aside")
    assert _run(bucket, target) == 0
    table = load_catalog("default", **target.catalog_options).load_table("db.records")
    table.append(table.scan(limit=1).to_arrow().slice(0, 0))  # somebody else's snapshot, which says no end
    with table.maintenance.expire_snapshots() as expired:
        expired.by_id(table.metadata.snapshots[0].snapshot_id)
    shutil.rmtree(target.files / "_job")
    late.appear()

    assert _run(bucket, target, "--continue") == 2
    assert "expected none below 1905" in capsys.readouterr().err


def _rolled_back(target: Target, commits: int) -> None:
    """What a user does who restores a table to before its last commits."""
    if target.kind == "delta":
        from deltalake import DeltaTable

        table = DeltaTable(str(target.files))
        table.restore(table.version() - commits)
        return
    from pyiceberg.catalog import load_catalog

    lake = load_catalog("default", **target.catalog_options).load_table("db.records")
    lake.manage_snapshots().rollback_to_snapshot(lake.metadata.snapshots[-1 - commits].snapshot_id).commit()


def _named(target: Target) -> set[str]:
    """The data files of a table, by their paths."""
    if target.kind == "delta":
        from deltalake import DeltaTable

        return {uri.removeprefix("file://") for uri in DeltaTable(str(target.files)).file_uris()}
    from pyiceberg.catalog import load_catalog

    files = load_catalog("default", **target.catalog_options).load_table("db.records").inspect.files()
    return {path.removeprefix("file://") for path in files["file_path"].to_pylist()}


@pytest.mark.parametrize("is_vacuumed", [False, True], ids=["files stay", "files are gone"])
@pytest.mark.parametrize("rounds", [1, 2])
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_table_that_was_rolled_back_goes_on_from_where_it_ends_now(
    bucket: GrowingBucket, tmp_path: Path, kind: str, rounds: int, is_vacuumed: bool
) -> None:
    """The ledger has entries of the same splits, by rounds that are in the table no more, and so may have no files."""
    target = Target(kind, tmp_path / "target")
    for _ in range(3):
        bucket.upload()
        assert _run(bucket, target, "--continue") == 0
    _rolled_back(target, rounds)
    if is_vacuumed:
        for path in {str(path) for path in target.files.glob("data/**/*.parquet")} - _named(target):
            Path(path).unlink()

    assert _run(bucket, target, "--continue") == 0
    assert target.keys() == _wanted(bucket)
    assert _named(target) <= {str(path) for path in target.files.glob("data/**/*.parquet")}


def test_a_partition_that_a_restored_table_begins_with_anew_begins_where_it_does_now(
    bucket: GrowingBucket, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The plan of the last round says where it began before: that is not in the table any more."""
    from deltalake import DeltaTable

    target = Target("delta", tmp_path / "target")
    bucket.upload()
    later = LateSegment(bucket, tmp_path / "later", 1, with_all=True)
    assert _run(bucket, target) == 0
    version = DeltaTable(str(target.files)).version()
    later.appear()
    for _ in range(2):
        assert _run(bucket, target, "--continue") == 0
        bucket.upload()
    assert _run(bucket, target, "--continue") == 0
    DeltaTable(str(target.files)).restore(version)
    late = LateSegment(bucket, tmp_path / "late", 1)
    assert _run(bucket, target, "--continue") == 0
    assert min(key for key in target.keys() if key[:2] == ("multi", 1)) == ("multi", 1, 1863)  # noqa: SIM118
    late.appear()

    assert _run(bucket, target, "--continue") == 2
    assert "expected none below 1863" in capsys.readouterr().err


_end_after = JobPlan.end_after


def _without_begins(plan: JobPlan, stops: Mapping[tuple[str, int], int]) -> TableEnd:
    return replace(_end_after(plan, stops), begins={})


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_table_of_an_earlier_version_which_does_not_say_where_it_began_goes_on(
    bucket: GrowingBucket, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = Target(kind, tmp_path / "target")
    bucket.upload()
    with monkeypatch.context() as patch:
        patch.setattr(JobPlan, "end_after", _without_begins)
        assert _run(bucket, target) == 0
    shutil.rmtree(target.files / "_job")
    bucket.upload(9)

    assert _run(bucket, target, "--continue") == 0
    assert target.keys() == _wanted(bucket)


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_verify_says_which_records_are_of_rounds_whose_ledger_is_lost(
    bucket: GrowingBucket, tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    target = Target(kind, tmp_path / "target")
    bucket.upload()
    _run(bucket, target)
    shutil.rmtree(target.files / "_job")
    bucket.upload(9)
    _run(bucket, target, "--continue")
    capsys.readouterr()

    assert verify(target.flags) == 1
    told = capsys.readouterr().out
    assert "1,905 records of multi-0 before offset 1905, of rounds whose ledger is lost: they were not checked" in told


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_verify_says_which_records_are_of_topics_that_only_a_lost_ledger_had(
    bucket: GrowingBucket, tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    target = Target(kind, tmp_path / "target")
    bucket.upload(9)
    _run_of(bucket, target, "codec-zstd")
    shutil.rmtree(target.files / "_job")
    (target.files / "_manifest.json").unlink()
    _run_of(bucket, target, "multi", "--continue")
    capsys.readouterr()

    assert verify([*target.flags, "--source", "--output", "json"]) == 1
    told = json.loads(capsys.readouterr().out)
    records = sum(topic == "codec-zstd" for topic, _, _ in target.keys().elements())
    assert told["is_exact"] is False
    assert [one["text"] for one in told["findings"]] == [
        f"has {records} records of codec-zstd-0 before offset {_ends_at(target)['codec-zstd']['0']}, of rounds whose "
        "ledger is lost: they were not checked"
    ]


def _run_of(bucket: GrowingBucket, target: Target, topic: str, *more: str) -> None:
    where = ["--location", str(bucket.root), "--topic", topic, *target.flags, "--engine", "local", "--processes", "1"]
    assert main([*where, *more]) == 0


def _ends_at(target: Target) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = json.loads(target.commits()[-1])
    return found


@pytest.mark.parametrize("rounds", [1, 2])
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_verify_holds_a_table_that_was_rolled_back_and_went_on_against_the_rounds_that_are_left_in_it(
    bucket: GrowingBucket, tmp_path: Path, kind: str, rounds: int, capsys: pytest.CaptureFixture[str]
) -> None:
    target = Target(kind, tmp_path / "target")
    for _ in range(3):
        bucket.upload()
        assert _run(bucket, target, "--continue") == 0
    _rolled_back(target, rounds)
    capsys.readouterr()

    assert verify(target.flags) == 1
    told = capsys.readouterr().out
    assert "not committed: run the job again" in told
    assert "somebody else" not in told
    assert _run(bucket, target, "--continue") == 0
    capsys.readouterr()
    assert verify([*target.flags, "--source", "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["records"] == target.keys().total() == _wanted(bucket).total()


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_verify_takes_what_is_left_of_a_round_that_was_rolled_back_to_its_middle_with_the_round_behind_it(
    tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    bucket, target = GrowingBucket(tmp_path / "bucket", "codec-none"), Target(kind, tmp_path / "target")
    bucket.upload(9)
    small = ("--continue", "--split-bytes", "1", "--commit-bytes", "1")
    for bounds in (":105", ":135"):
        _run_of(bucket, target, "codec-none", "--offsets", bounds, *small)
    _rolled_back(target, 2)
    _run_of(bucket, target, "codec-none", "--offsets", ":80", *small)
    capsys.readouterr()

    assert verify([*target.flags, "--source"]) == 1  # two rounds had more, and nothing has it again
    assert "not committed: run the job again" in capsys.readouterr().out
    _run_of(bucket, target, "codec-none", *small)
    capsys.readouterr()
    assert verify([*target.flags, "--source", "--output", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["records"] == target.keys().total() == 179
    assert told["splits"] == told["splits_checked"]


def test_verify_takes_rounds_that_a_second_restore_brought_back_and_not_those_that_it_took_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from deltalake import DeltaTable

    bucket, target = GrowingBucket(tmp_path / "bucket", "codec-none"), Target("delta", tmp_path / "target")
    bucket.upload(9)
    for bounds in (":31", ":65"):
        _run_of(bucket, target, "codec-none", "--offsets", bounds, "--continue")
    version = DeltaTable(str(target.files)).version()
    DeltaTable(str(target.files)).restore(0)
    _run_of(bucket, target, "codec-none", "--offsets", ":105", "--continue")
    DeltaTable(str(target.files)).restore(version)
    _run_of(bucket, target, "codec-none", "--continue")
    capsys.readouterr()

    assert target.keys().total() == 179
    assert verify([*target.flags, "--source", "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["records"] == 179


@pytest.mark.parametrize("change", ["lost", "double"])
@pytest.mark.parametrize("at", [0, 2], ids=["in a round that stayed", "in the round that went on"])
def test_verify_finds_records_that_are_lost_or_double_in_a_table_that_was_restored_and_went_on(
    tmp_path: Path, change: str, at: int, capsys: pytest.CaptureFixture[str]
) -> None:
    from deltalake import DeltaTable

    bucket, target = GrowingBucket(tmp_path / "bucket", "codec-none"), Target("delta", tmp_path / "target")
    bucket.upload(9)
    for bounds in (":31", ":65", ":105"):
        _run_of(bucket, target, "codec-none", "--offsets", bounds, "--continue")
    _rolled_back(target, 2)
    _run_of(bucket, target, "codec-none", "--continue")
    assert verify([*target.flags, "--source"]) == 0
    log = target.files / "_delta_log"
    adds = [
        json.loads(line)
        for path in sorted(log.glob("*.json"))
        for line in path.read_text().splitlines()
        if line.startswith('{"add"')
    ]
    first = [one for one in adds if one["add"]["path"].count(f"part-0-{31 if at else 0:020d}-")]
    add = first[-1]["add"]
    version = max(int(path.stem) for path in log.glob("*.json"))
    if change == "lost":
        gone = {"path": add["path"], "dataChange": True, "deletionTimestamp": 0}
        action: dict[str, Any] = {"remove": gone | {"partitionValues": add["partitionValues"], "size": add["size"]}}
    else:
        path = Path(add["path"]).with_name("twice.parquet")
        shutil.copy(target.files / add["path"], target.files / path)
        action = {"add": add | {"path": str(path)}}
    (log / f"{version + 1:020d}.json").write_text(json.dumps(action) + "\n")
    assert target.keys().total() != 179
    assert DeltaTable(str(target.files)).version() == version + 1
    capsys.readouterr()

    assert verify([*target.flags, "--source"]) == 1
    assert ("missing" if change == "lost" else "twice") in capsys.readouterr().out


def test_a_segment_that_appears_late_amid_a_compacted_topic_is_not_noticed_as_the_page_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without it there is a gap as the log cleaner leaves them, and no plan says which segments there were."""
    topic, target = "compacted-then-tiered", Target("parquet", tmp_path / "target")
    bucket = GrowingBucket(tmp_path / "bucket", topic)
    bucket.upload(99)
    place = next((bucket.root / "kafka-tiered-storage").glob(f"{topic}-0-*"))
    away = [(path, tmp_path / path.name) for path in place.glob(f"{71:020d}*")]
    for path, other in away:
        path.rename(other)
    arguments = ["--location", str(bucket.root), "--topic", topic, "--engine", "local"]
    assert main([*arguments, *target.flags, "--continue"]) == 0
    for path, other in away:
        other.rename(path)
    capsys.readouterr()

    assert main([*arguments, *target.flags, "--continue"]) == 0
    assert "nothing new" in capsys.readouterr().out
    assert verify([*target.flags, "--source"]) == 0
    fresh = Target("parquet", tmp_path / "fresh")
    assert main([*arguments, *fresh.flags]) == 0
    assert [offset for _, _, offset in sorted(fresh.keys() - target.keys())] == [83, 85, 95]
    assert "is *not* noticed" in (Path(__file__).parents[2] / "docs" / "how-to" / "backfill.md").read_text()


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_an_existing_table_is_refused_unless_the_job_goes_on(
    bucket: GrowingBucket, tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    target = Target(kind, tmp_path / "target")
    bucket.upload()
    _run(bucket, target)
    bucket.upload()

    assert _run(bucket, target, "--isolation", "read_uncommitted") == 2
    assert "--continue" in capsys.readouterr().err


def test_each_commit_has_a_prefix_of_each_partition(bucket: GrowingBucket, tmp_path: Path) -> None:
    target = Target("delta", tmp_path / "target")
    bucket.upload(9)

    assert _run(bucket, target, "--commit-bytes", "1", "--split-bytes", "64k") == 0
    from deltalake import DeltaTable

    versions = DeltaTable(str(target.files)).version()
    assert versions > 5
    for version in range(1, versions + 1):
        rows = DeltaTable(str(target.files), version=version).to_pyarrow_table(columns=["topic", "partition", "offset"])
        first = scan(str(bucket.root), topic="multi", columns=["partition", "offset"]).to_arrow()
        for number in range(4):
            there = _offsets(rows, "multi", number)
            assert (
                there
                == _offsets(first.append_column("topic", pa.array(["multi"] * len(first))), "multi", number)[
                    : len(there)
                ]
            )
    assert target.keys() == _wanted(bucket)


def _offsets(rows: pa.Table, topic: str, partition: int) -> list[int]:
    return sorted(row["offset"] for row in rows.to_pylist() if row["topic"] == topic and row["partition"] == partition)


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_small_files_are_joined_and_the_job_goes_on_behind_them(
    bucket: GrowingBucket, tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    target = Target(kind, tmp_path / "target")
    for _ in range(2):
        bucket.upload()
        _run(bucket, target, "--continue")
    before = target.keys()

    assert main(["--compact", *target.flags]) == 0
    assert "small files joined into" in capsys.readouterr().out
    assert main(["--compact", *target.flags]) == 0
    assert "no small files to join" in capsys.readouterr().out
    assert target.keys() == before
    bucket.upload(9)
    assert _run(bucket, target, "--continue") == 0
    assert target.keys() == _wanted(bucket)
    assert verify([*target.flags, "--source"]) == 0


def test_append_adds_to_a_table_of_either_library(bucket: GrowingBucket, tmp_path: Path) -> None:
    from pyiceberg.catalog import load_catalog

    target = Target("iceberg", tmp_path / "target")
    bucket.upload()
    _run(bucket, target)
    bucket.upload(9)
    table = load_catalog("default", **target.catalog_options).load_table("db.records")

    done = lake.append(table, bucket.root, pattern="|".join(TOPICS))
    assert done.records > 0
    assert target.keys() == _wanted(bucket)
    place = tmp_path / "delta"
    assert lake.append(place, bucket.root, topic="multi").records == 12_000
    assert lake.append(place, bucket.root, topic="multi").records == 0


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_driver_that_is_killed_before_it_has_a_plan_is_finished_by_the_same_command(
    bucket: GrowingBucket, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = Target(kind, tmp_path / "target")
    bucket.upload()
    with monkeypatch.context() as patch:
        patch.setattr(Job, "_put", killed)
        assert _run(bucket, target) == 130
    assert not list(target.files.rglob("plan*.json"))

    assert _run(bucket, target) == 0
    assert target.keys() == _wanted(bucket)


def killed(*_: object, **__: object) -> NoReturn:
    raise KeyboardInterrupt


def test_a_report_of_a_run_with_nothing_new_says_where_the_target_ends(
    bucket: GrowingBucket, target: Target, tmp_path: Path
) -> None:
    bucket.upload(9)
    _run(bucket, target)

    assert _run(bucket, target, "--continue", "--report", str(tmp_path / "report.json")) == 0
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["totals"]["records"] == 0
    assert report["next_offsets"]["multi"] == {"0": 3026, "1": 3021, "2": 2957, "3": 2996}


def test_a_dry_run_refuses_what_the_run_would_refuse(bucket: GrowingBucket, target: Target) -> None:
    bucket.upload()
    _run(bucket, target)

    assert _run(bucket, target, "--continue", "--dry-run", "--isolation", "read_uncommitted") == 2


@pytest.mark.parametrize("more", [(), ("--continue",)], ids=["anew", "going-on"])
def test_a_directory_of_files_does_not_become_a_table(
    more: tuple[str, ...], bucket: GrowingBucket, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bucket.upload(2)
    files, table = Target("parquet", tmp_path / "target"), Target("delta", tmp_path / "target")
    _run(bucket, files)
    before = sorted(path for path in files.files.rglob("*"))

    assert _run(bucket, table, *more) == 2
    assert "holds the files of a job that writes no table. Choose another target" in capsys.readouterr().err
    assert sorted(path for path in files.files.rglob("*")) == before
    assert _run(bucket, files) == 0


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
@pytest.mark.parametrize("more", [(), ("--continue",), ("--continue", "--dry-run")])
def test_a_job_that_writes_files_leaves_a_table_and_its_ledger_alone(
    bucket: GrowingBucket, tmp_path: Path, kind: str, more: Sequence[str], capsys: pytest.CaptureFixture[str]
) -> None:
    table = Target(kind, tmp_path / "table")
    bucket.upload()
    assert _run(bucket, table, "--continue") == 0
    before = sorted(table.files.rglob("*"))
    bucket.upload()
    capsys.readouterr()

    files = ["--engine", "local", "--target", str(table.files)]
    assert main(["--location", str(bucket.root), "--pattern", "|".join(TOPICS), *files, *more]) == 2
    assert f"--to {kind}" in capsys.readouterr().err
    assert sorted(table.files.rglob("*")) == before

    assert verify([*table.flags]) == 0


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_verify_asks_for_the_table_where_it_is_given_the_directory_of_one(
    bucket: GrowingBucket, tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    table = Target(kind, tmp_path / "table")
    bucket.upload()
    assert _run(bucket, table, "--continue") == 0

    assert verify(["--target", str(table.files)]) == 2
    assert f"--to {kind}" in capsys.readouterr().err
