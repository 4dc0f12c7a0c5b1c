from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from backfill_runs import do, files_of, finish, offsets_in, plan_into, request, rows_of
from growing_log import GrowingLog
from loading import rot

from segreader.backfill.commit import collect, orphans, read_manifest
from segreader.backfill.done import read_done
from segreader.backfill.job_plan import (
    JobPlan,
    clear,
    make_plan,
    parse_plan,
    read_plan,
    require_free,
    require_same,
)
from segreader.backfill.output import DONE, STAGING, OutputOptions, done_name
from segreader.backfill.task import do_split
from segreader.errors import (
    CorruptBatchError,
    ManifestError,
    ObjectChangedError,
    ObjectNotFoundError,
    OptionError,
    StorageError,
)
from segreader.spark.locations import Locations
from segreader.spark.options import parse_options
from segreader.storage.target.local import LocalTarget
from segreader.storage.target.store import TargetStore, open_target


@pytest.fixture
def segments(tmp_path: Path) -> Path:
    """Four segments of 50 records of one partition, and two of another."""
    root = tmp_path / "tier"
    root.mkdir()
    log = GrowingLog(root)
    for number in range(6):
        log.upload("orders", number % 3 // 2, 50)
    return root


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def target(out: Path) -> TargetStore:
    return open_target(out)


@pytest.fixture
def plan(segments: Path, target: TargetStore) -> JobPlan:
    return plan_into(target, request(segments, subscribe="orders"))


def expect_exact(out: Path) -> None:
    assert [(row["partition"], row["offset"], row["value"]) for row in rows_of(out)] == [
        (partition, offset, b"%d" % offset) for partition, stop in ((0, 200), (1, 100)) for offset in range(stop)
    ]


def test_an_output_is_complete_once_every_split_is_done(plan: JobPlan, target: TargetStore, out: Path) -> None:
    do(plan, target, *plan.splits[:-1])
    found = finish(plan, target)

    assert found.findings == ("orders-1: offsets 50 to 99 are not written",)
    assert [one.missing for one in found.partitions] == [(), ((50, 100),)]
    assert not (out / "_manifest.json").exists()
    assert not files_of(out)  # what is not complete is not seen

    do(plan, target)
    found = finish(plan, target)
    assert found.is_complete
    assert found.next_offsets == {"orders": {"0": 200, "1": 100}}
    expect_exact(out)
    assert (out / "_SUCCESS").read_bytes() == b""
    assert len(files_of(out)) == 6


def test_a_manifest_lists_every_file_and_every_split(plan: JobPlan, target: TargetStore, out: Path) -> None:
    do(plan, target)
    finish(plan, target)
    manifest = read_manifest(target)

    assert manifest is not None
    assert manifest.plan == plan.sha256
    assert [entry.split for entry in manifest.entries] == [split.id for split in plan.splits]
    assert sorted(file.name for entry in manifest.entries for file in entry.files) == [
        path.relative_to(out).as_posix() for path in files_of(out)
    ]
    document = json.loads((out / "_manifest.json").read_text())
    assert document["totals"]["records"] == 300
    assert document["next_offsets"] == {"orders": {"0": 200, "1": 100}}


def test_a_split_that_is_done_is_not_done_again(plan: JobPlan, target: TargetStore) -> None:
    do(plan, target)
    before = collect(target, plan)
    do(plan, target)

    assert collect(target, plan) == before


def test_of_two_attempts_at_once_the_loser_leaves_no_file(
    plan: JobPlan, target: TargetStore, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    split = plan.splits[0]
    store = Locations(parse_options(plan.options)).store
    both = threading.Barrier(2)
    at_once = type(target).put_if_absent

    def together(self: TargetStore, name: str, data: bytes) -> bool:
        both.wait(timeout=30)
        return at_once(self, name, data)

    monkeypatch.setattr(type(target), "put_if_absent", together)
    results = []
    threads = [
        threading.Thread(target=lambda: results.append(do_split(split, store, target, plan.output))) for _ in "12"
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(is_reused for _, is_reused in results) == [False, True]
    assert results[0][0] == results[1][0] == read_done(target, split.id)
    (file,) = results[0][0].files
    assert [info.name for info in target.list(STAGING)] == [STAGING + file.name]


def test_a_failed_attempt_leaves_no_file(segments: Path, target: TargetStore, out: Path) -> None:
    plan = plan_into(target, request(segments, subscribe="orders"))
    log = min(segments.glob("orders-0-*/*.log"))
    data = bytearray(log.read_bytes())
    data[-1] ^= 0x7F
    rot(log, data)

    with pytest.raises(CorruptBatchError):
        do(plan, target, plan.splits[0])
    assert not list(target.list(STAGING))
    assert not list(target.list(DONE))


def test_a_job_that_goes_on_after_a_log_was_replaced_says_to_begin_anew(
    segments: Path, target: TargetStore, out: Path
) -> None:
    plan = plan_into(target, request(segments, subscribe="orders"))
    do(plan, target, plan.splits[0])
    for log in segments.rglob("*.log"):
        os.utime(log, ns=(0, log.stat().st_mtime_ns + 10**9))

    later = read_plan(target)
    assert later == plan
    do(plan, target, later.splits[0])  # it is done
    with pytest.raises(ObjectChangedError, match=r"found mtime:.*--force") as caught:
        do(later, target, later.splits[1])
    assert caught.value.expected == later.segments[1].log_tag
    assert len(list(target.list(STAGING))) == 1


def test_a_plan_of_an_earlier_version_is_read_without_tags(segments: Path, target: TargetStore, out: Path) -> None:
    document = json.loads(plan_into(target, request(segments, subscribe="orders")).data)
    for split in document["splits"]:
        assert split.pop("log_tag").startswith("mtime:")
    earlier = parse_plan(json.dumps(document).encode(), "plan")
    assert {split.log_tag for split in earlier.segments} == {None}
    do(earlier, target)
    assert finish(earlier, target).is_complete
    expect_exact(out)


def test_what_made_an_attempt_fail_is_told_where_its_files_cannot_be_removed_either(segments: Path, out: Path) -> None:
    class Stuck(LocalTarget):
        """Refuses to delete."""

        def delete(self, names: Iterable[str]) -> None:
            raise StorageError("the disk is read-only")

    target = Stuck(out)
    plan = plan_into(target, request(segments, subscribe="orders", output=OutputOptions(file_bytes=1)))
    log = min(segments.glob("orders-0-*/*.log"))
    data = bytearray(log.read_bytes())
    data[-1] ^= 0x7F
    rot(log, data)

    with pytest.raises(CorruptBatchError):
        do(plan, target, plan.splits[0])


def test_orphans_are_removed_and_what_is_listed_or_not_done_stays(
    plan: JobPlan, target: TargetStore, out: Path
) -> None:
    do(plan, target)
    entries = collect(target, plan)
    name = entries[plan.splits[0].id].files[0].name
    orphan = name.replace(entries[plan.splits[0].id].token, "0" * 12)
    for at in (orphan, STAGING + orphan):
        target.put(at, b"half")
    found = finish(plan, target, cleans=False)

    assert found.is_complete
    assert (out / orphan).exists()
    finish(plan, target)
    assert not (out / orphan).exists()
    assert not (out / STAGING / orphan).exists()
    expect_exact(out)
    sizes = {orphan: 4, "orders/0/notes.parquet": 1}
    assert orphans(sizes, {}) == []


def test_a_commit_that_was_cut_short_is_finished_by_the_next(plan: JobPlan, target: TargetStore, out: Path) -> None:
    do(plan, target)
    first = next(iter(target.list(STAGING))).name
    target.move(first, first.removeprefix(STAGING))

    assert finish(plan, target).is_complete
    (out / "_SUCCESS").unlink()
    assert finish(plan, target).is_complete
    assert (out / "_SUCCESS").exists()
    expect_exact(out)


def test_a_file_that_vanished_or_shrank_is_a_finding(plan: JobPlan, target: TargetStore, out: Path) -> None:
    do(plan, target)
    assert finish(plan, target).is_complete
    gone, cut, *_ = files_of(out)
    gone.unlink()
    cut.write_bytes(cut.read_bytes()[:-1])
    findings = finish(plan, target).findings

    assert len(findings) == 2
    assert any("is not there" in finding for finding in findings)
    assert any(f"has {cut.stat().st_size} bytes" in finding for finding in findings)


def test_a_done_entry_of_another_split_or_of_nothing_is_refused(plan: JobPlan, target: TargetStore) -> None:
    do(plan, target, plan.splits[0])
    entry = read_done(target, plan.splits[0].id)
    assert entry is not None
    target.put(done_name(plan.splits[1].id), entry.to_bytes())
    with pytest.raises(ManifestError, match="of another split"):
        collect(target, plan)
    target.put(done_name(plan.splits[1].id), b'{"split": 1}')
    with pytest.raises(ManifestError, match=r"cannot be read.*--force"):
        collect(target, plan)


def test_entries_that_do_not_fit_each_other_are_no_proof(plan: JobPlan, target: TargetStore) -> None:
    from segreader.backfill.report import complete

    do(plan, target)
    entries = collect(target, plan)
    first, second, *_ = (split.id for split in plan.splits)
    twice = entries | {second: replace(entries[second], start=40)}
    assert any("there twice" in finding for finding in complete(plan, twice).findings)
    fewer = entries | {first: replace(entries[first], records=49)}
    assert any("49 records are done, and 50 in its files" in finding for finding in complete(plan, fewer).findings)
    more = entries | {"orders-7": replace(entries[first], split="orders-7", partition=7)}
    assert any("not in the plan" in finding for finding in complete(plan, more).findings)


def test_a_plan_is_read_back_and_not_made_again(segments: Path, plan: JobPlan, target: TargetStore) -> None:
    GrowingLog(segments).upload("orders", 2, 10)
    again = make_plan(request(segments, subscribe="orders"))

    assert not target.put_if_absent("_job/plan.json", again.data)
    assert read_plan(target) == plan
    require_same(plan, request(segments, subscribe="orders").wanted, "out")


def test_another_plan_is_refused_with_the_difference(segments: Path, plan: JobPlan) -> None:
    other = request(segments, subscribe="orders", split_bytes=1000).wanted
    with pytest.raises(
        OptionError, match=r"split-bytes 134217728 there, 1000 here\. Add what is new with --continue, choose"
    ):
        require_same(plan, other, "out")


def test_what_all_rounds_have_in_common_is_not_added_to(segments: Path, plan: JobPlan) -> None:
    other = {**request(segments, subscribe="orders").wanted, "hive": "yes"}
    with pytest.raises(
        OptionError, match=r"hive .*yes here\. Choose another target, or replace its files with --force"
    ):
        require_same(plan, other, "out")


def test_only_what_the_job_wrote_is_cleared(plan: JobPlan, target: TargetStore, out: Path) -> None:
    do(plan, target)
    finish(plan, target)
    (out / "orders" / "notes.txt").write_text("mine")
    for refuses in (require_free, clear):
        with pytest.raises(OptionError, match=r"did not write.*orders/notes.txt"):
            refuses(target)
    expect_exact_files = len(files_of(out))
    assert expect_exact_files == 6
    (out / "orders" / "notes.txt").unlink()
    clear(target)
    assert not list(target.list())


def test_records_of_a_file_are_in_offset_order_and_of_one_split(plan: JobPlan, target: TargetStore, out: Path) -> None:
    do(plan, target)
    finish(plan, target)
    assert sorted(offsets_in(file) for file in files_of(out)) == sorted(
        list(range(split.start, split.stop)) for split in plan.splits
    )


class InPlace(LocalTarget):
    """A directory that cannot move, as a bucket."""

    has_atomic_move = False

    def move(self, source: str, target: str) -> None:
        raise AssertionError("a bucket moves nothing")


def test_where_nothing_can_be_moved_files_lie_in_place_and_orphans_go(segments: Path, out: Path) -> None:
    target = InPlace(out)
    plan = plan_into(target, request(segments, subscribe="orders"))
    do(plan, target)
    assert len(files_of(out)) == 6
    name = files_of(out)[0].relative_to(out).as_posix()
    orphan = f"{name[:-22]}{'0' * 12}-0.parquet"
    target.put(orphan, (out / name).read_bytes())
    assert len(files_of(out)) == 7

    assert finish(plan, target).is_complete
    manifest = read_manifest(target)
    assert manifest is not None
    assert manifest.is_in_place
    expect_exact(out)


def test_a_lost_split_of_a_bucket_deletes_its_own_files_in_place(segments: Path, out: Path) -> None:
    target = InPlace(out)
    plan = plan_into(target, request(segments, subscribe="orders"))
    do(plan, target)
    before = files_of(out)
    done = target.read(done_name(plan.splits[0].id))

    class Late(InPlace):
        """Sees no entry before it has written, as an attempt that began earlier."""

        def read(self, name: str) -> bytes:
            if not self.has_looked:
                self.has_looked = True
                raise ObjectNotFoundError("no such file")
            return super().read(name)

        has_looked = False

    do(plan, Late(out), plan.splits[0])
    assert files_of(out) == before
    assert target.read(done_name(plan.splits[0].id)) == done
