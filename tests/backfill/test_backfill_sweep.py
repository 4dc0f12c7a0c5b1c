from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from backfill_runs import do, files_of, finish, plan_into, request
from growing_log import GrowingLog

from segreader.backfill.job_plan import JobPlan
from segreader.backfill.output import MANIFEST, PLAN, STAGING, SUCCESS, done_name, file_name
from segreader.errors import AccessDeniedError
from segreader.storage.target.local import LocalTarget


class Killed(BaseException):
    """Nothing that is done on the way out is done."""


@pytest.fixture
def target(tmp_path: Path) -> LocalTarget:
    return LocalTarget(tmp_path / "out")


@pytest.fixture
def plan(tmp_path: Path, target: LocalTarget) -> JobPlan:
    log = GrowingLog(tmp_path / "tier")
    for _ in range(2):
        log.upload("orders", 0, 100)
    return plan_into(target, request(tmp_path / "tier", subscribe="orders"))


def leave(target: LocalTarget, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a writer of an object leaves that is killed."""
    with monkeypatch.context() as patch, suppress(Killed), target.create(name) as file:
        file.write(b"PAR1")
        patch.setattr("os.unlink", lambda path: None)
        raise Killed


def hidden(tmp_path: Path) -> list[str]:
    return sorted(path.name.partition("-")[2].partition("-")[2] for path in tmp_path.rglob(".segreader-*"))


def test_what_killed_attempts_left_of_done_splits_is_removed_with_the_last_step(
    plan: JobPlan, target: LocalTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    split = plan.splits[1]
    part = file_name(0, split.start, split.stop, "0123456789ab", 0)
    foreign = file_name(0, 700, 800, "0123456789ab", 0)
    ours = (f"{STAGING}orders/0/{part}", done_name(split.id), PLAN, MANIFEST, SUCCESS)
    for name in (*ours, f"{STAGING}orders/0/{foreign}", "notes.txt"):
        leave(target, name, monkeypatch)
    assert len(hidden(tmp_path)) == 7

    do(plan, target, plan.splits[0])
    assert not finish(plan, target).is_complete
    assert len(hidden(tmp_path)) == 7
    do(plan, target)
    assert finish(plan, target, cleans=False).is_complete
    assert len(hidden(tmp_path)) == 7
    assert finish(plan, target).is_complete
    assert hidden(tmp_path) == sorted([f"{foreign}.part", "notes.txt.part"])


def test_a_writer_whose_hidden_file_was_removed_learns_that_it_came_too_late(
    target: LocalTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link

    def too_late(part: str, path: str) -> None:
        monkeypatch.setattr("os.link", link)
        assert LocalTarget(target.url("")).put_if_absent(MANIFEST, b"first")
        assert target.forget_unfinished(lambda name: name == MANIFEST) == 1
        link(part, path)

    monkeypatch.setattr("os.link", too_late)
    assert not target.put_if_absent(MANIFEST, b"second")
    assert target.read(MANIFEST) == b"first"


def test_an_attempt_whose_files_were_removed_with_the_end_of_the_job_takes_the_entry_that_won(
    plan: JobPlan, target: LocalTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = os.replace

    def too_late(part: str, path: str) -> None:
        monkeypatch.setattr("os.replace", replace)
        do(plan, target)
        assert finish(plan, target).is_complete
        assert hidden(tmp_path) == []
        replace(part, path)

    monkeypatch.setattr("os.replace", too_late)
    do(plan, target, plan.splits[0])
    assert os.replace is replace, "the attempt had nothing to write"
    assert finish(plan, target).is_complete
    assert len(files_of(tmp_path / "out")) == len(plan.splits)


def test_a_target_that_does_not_tell_what_is_left_is_complete_all_the_same(
    plan: JobPlan, target: LocalTarget, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def denied(self: LocalTarget, is_left: Callable[[str], bool]) -> int:
        raise AccessDeniedError("uploads are not yours to list")

    monkeypatch.setattr(LocalTarget, "forget_unfinished", denied)
    do(plan, target)
    with caplog.at_level(logging.WARNING):
        assert finish(plan, target).is_complete
    assert target.read(SUCCESS) == b""
    assert "uploads are not yours to list" in caplog.text
