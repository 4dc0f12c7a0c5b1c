"""A job that takes the place of another one with ``--force``, and what is left of the other one when it dies late."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from backfill_runs import do, files_of, finish, plan_into, request, rows_of
from growing_log import GrowingLog

from segreader.backfill.commit import collect
from segreader.backfill.job_plan import JobPlan, clear, read_plan, require_unplanned
from segreader.backfill.output import MANIFEST, PLAN, OutputOptions
from segreader.errors import OptionError
from segreader.storage.target.local import LocalTarget


@pytest.fixture
def segments(tmp_path: Path) -> Path:
    root = tmp_path / "tier"
    root.mkdir()
    log = GrowingLog(root)
    for _ in range(3):
        log.upload("orders", 0, 20)
    return root


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


class _KilledError(Exception):
    """The driver is gone."""


class Mortal(LocalTarget):
    """A directory whose user dies after so many deletes."""

    lives = 0

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            if not self.lives:
                raise _KilledError
            self.lives -= 1
            super().delete([name])


@pytest.mark.parametrize("lives", range(9))
def test_a_replacement_that_was_killed_while_it_cleared_can_be_finished_by_the_job_before(
    segments: Path, out: Path, lives: int
) -> None:
    target = Mortal(out)
    target.lives = 100
    plan = plan_into(target, request(segments, subscribe="orders"))
    do(plan, target)
    finish(plan, target)
    target.lives = lives  # two marks, three entries, three files, the plan
    with pytest.raises(_KilledError):
        clear(target)

    again = LocalTarget(out)
    found = read_plan(again)
    assert found == plan
    do(found, again)
    assert finish(found, again).is_complete
    assert [row["offset"] for row in rows_of(out)] == list(range(60))


def test_an_attempt_of_a_job_that_was_replaced_is_not_taken_for_one_of_the_job_that_did(
    segments: Path, out: Path
) -> None:
    target = LocalTarget(out)
    old = plan_into(target, request(segments, subscribe="orders", output=OutputOptions(codec="none")))
    clear(target)
    new = plan_into(target, request(segments, subscribe="orders"))
    late = new.splits[1]
    do(old, target, late)  # it began before, and ends now
    do(new, target)

    (finding,) = finish(new, target).findings
    assert finding.startswith(f"{late.id}: ")
    assert "--force" in finding
    assert not (out / "_SUCCESS").exists()


def test_an_entry_that_does_not_say_its_plan_counts(segments: Path, out: Path) -> None:
    target = LocalTarget(out)
    plan = plan_into(target, request(segments, subscribe="orders"))
    do(plan, target)
    for split, entry in collect(target, plan).items():
        target.put(f"_job/done/{split}.json", replace(entry, plan="").to_bytes())
    assert finish(plan, target).is_complete


@pytest.fixture
def committed(segments: Path, out: Path) -> tuple[JobPlan, LocalTarget]:
    target = LocalTarget(out)
    plan = plan_into(target, request(segments, subscribe="orders"))
    do(plan, target)
    finish(plan, target)
    return plan, target


def test_a_manifest_that_a_late_driver_left_is_not_taken_for_this_one(
    committed: tuple[JobPlan, LocalTarget], out: Path
) -> None:
    plan, target = committed
    left = target.read(MANIFEST)
    clear(target)
    assert target.put_if_absent(PLAN, plan.data)
    target.put(MANIFEST, left)  # the driver before had proved its files, and was late
    do(plan, target)

    (finding,) = finish(plan, target).findings
    assert finding.startswith(MANIFEST)
    assert "--force" in finding
    assert not (out / "_SUCCESS").exists()


def test_a_manifest_that_says_the_same_in_other_words_is_this_one(
    committed: tuple[JobPlan, LocalTarget], out: Path
) -> None:
    plan, target = committed
    (out / "_SUCCESS").unlink()
    target.put(MANIFEST, target.read(MANIFEST) + b"\n")  # as another version of this program may write it
    assert finish(plan, target).is_complete
    assert (out / "_SUCCESS").exists()


def test_files_of_a_job_without_its_plan_are_refused_before_work_begins(
    committed: tuple[JobPlan, LocalTarget], out: Path
) -> None:
    _, target = committed
    require_unplanned(target)  # two drivers at once: the plan of the other one is there by now
    (out / PLAN).unlink()
    with pytest.raises(OptionError, match=r"but no plan.*Choose another target"):
        require_unplanned(target)
    assert files_of(out)


def test_what_a_killed_writer_left_of_a_plan_is_no_job(out: Path) -> None:
    (out / "_job").mkdir(parents=True)
    (out / "_job" / ".segreader-0123456789abcdef-plan.json.part").write_bytes(b"{")
    require_unplanned(LocalTarget(out))
