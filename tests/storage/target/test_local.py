"""What only a directory can get wrong as a target."""

from __future__ import annotations

import errno
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from segreader.errors import ObjectNotFoundError, PlanError, StorageError
from segreader.storage.target.store import open_target


def files(root: Path) -> list[str]:
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())


def test_nothing_is_made_before_something_is_written(tmp_path: Path) -> None:
    target = open_target(tmp_path / "a/b")
    assert list(target.list()) == []
    with pytest.raises(ObjectNotFoundError):
        target.read("x")
    target.delete(["x", "y/z"])
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_no_target(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for name in ("file", "file/below/it"):
        with pytest.raises(PlanError, match=r"a target is a directory; found a file.*Give another directory"):
            open_target(tmp_path / name)


def test_a_directory_may_be_given_as_a_url(tmp_path: Path) -> None:
    open_target(f"file://{tmp_path}/out").put("a", b"1")
    assert files(tmp_path) == ["out/a"]


def test_only_hidden_files_lie_beside_what_is_being_written_and_none_after_it(tmp_path: Path) -> None:
    target = open_target(tmp_path)
    with target.create("t/0/a.parquet") as file:
        file.write(b"1" * 1_000_000)
        (unfinished,) = files(tmp_path)
        assert Path(unfinished).name.startswith(".")
        assert list(target.list()) == []
    target.put_if_absent("t/0/b", b"")
    target.put_if_absent("t/0/b", b"")
    assert files(tmp_path) == ["t/0/a.parquet", "t/0/b"]


def test_a_writer_that_is_killed_leaves_nothing_that_is_listed(tmp_path: Path) -> None:
    code = (
        "import os, sys, signal\n"
        "from segreader.storage.target.store import open_target\n"
        "with open_target(sys.argv[1]).create('t/a.parquet') as file:\n"
        "    file.write(b'1' * 1_000_000)\n"
        "    file.flush()\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    assert [Path(name).name.startswith(".") for name in files(tmp_path)] == [True]
    assert list(open_target(tmp_path).list()) == []


def test_a_link_whose_answer_was_lost_is_still_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = os.link

    def twice(*arguments: Any) -> None:
        link(*arguments)
        raise FileExistsError(errno.EEXIST, "as NFS says to the second try")

    monkeypatch.setattr(os, "link", twice)
    target = open_target(tmp_path)
    assert target.put_if_absent("a", b"1")
    assert not target.put_if_absent("a", b"2")


def test_a_file_that_another_driver_forgets_before_it_has_its_name_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, link = open_target(tmp_path), os.link
    forgotten: list[int] = []

    def late(part: str, path: str) -> None:
        if not forgotten:
            forgotten.append(target.forget_unfinished(lambda name: name == "a"))
        link(part, path)

    monkeypatch.setattr("os.link", late)

    assert target.put_if_absent("a", b"1")
    assert forgotten == [1]
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_file_system_without_links_is_refused_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(StorageError, match=r"no hard links.*Give a directory of a local disk") as caught:
        open_target(tmp_path).put_if_absent("a", b"1")
    assert caught.value.source == str(tmp_path / "a")
    assert files(tmp_path) == []


def test_a_full_disk_is_told_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    for write in (open_target(tmp_path).put, open_target(tmp_path).put_if_absent):
        with pytest.raises(StorageError, match="the disk is full"):
            write("a", b"1")
    assert files(tmp_path) == []


WRITE = """
import os, sys
from segreader.storage.target.store import open_target
target = open_target(sys.argv[1], {})
def create():
    with target.create("t/0/b.parquet") as file:
        for _ in range(32):
            file.write(os.urandom(1 << 15))
for write in (lambda: target.put_if_absent("_job/plan.json", bytes(1 << 20)), create):
    try:
        write()
    except Exception as error:
        print(type(error).__name__, str(error))
"""
"""Writes a plan, and then a file, of 1 MiB each; prints what was raised."""


def told(target: Path, *before: str) -> list[str]:
    """What a process says that writes there; ``before`` starts it in another way."""
    done = subprocess.run(
        [*before, sys.executable, "-c", WRITE, str(target)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    place = tmp_path / "disk"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", place], check=False).returncode:
        pytest.skip("this user may not mount a file system")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def test_a_disk_that_fills_up_is_told_with_its_room_and_leaves_nothing(mounted: Path) -> None:
    plan, file = told(mounted / "out")
    for text, name in ((plan, "_job/plan.json"), (file, "t/0/b.parquet")):
        assert re.fullmatch(
            rf"StorageError {mounted}/out/{name}: the disk is full \(No space left on device\); "
            r"found [\d,]+ KiB free of 256 KiB\. Make room there, or give a target on another disk, "
            "then run it again: what is finished stays",
            text,
        ), text
    assert files(mounted) == []


def test_a_disk_that_is_mounted_for_reading_alone_is_told(mounted: Path) -> None:
    if subprocess.run(["mount", "-o", "remount,ro", mounted], check=False).returncode:
        pytest.skip("this user may not mount a file system")
    texts = told(mounted / "out")
    assert len(texts) == 2
    for text in texts:
        assert text.startswith(f"AccessDeniedError {mounted}/out/")
        assert f"the file system is read-only: {mounted}. Mount it for writing, or give another target" in text


def test_a_directory_without_the_right_to_write_is_told_with_its_owner(tmp_path: Path) -> None:
    place = tmp_path / "theirs"
    place.mkdir()
    place.chmod(0o555)
    if os.geteuid() == 0:  # for whom no mode is a limit
        if shutil.which("setpriv") is None:
            pytest.skip("nothing here runs a process without root's rights")
        before = ["setpriv", "--bounding-set", "-all", "--inh-caps", "-all", "--reuid", "0"]
    else:
        before = []
    for text in told(place / "out", *before):
        assert text.startswith(f"AccessDeniedError {place}/out/")
        assert f"no right to it (Permission denied); found {place} dr-xr-xr-x of user {os.geteuid()}" in text
        assert "Give this user the right to write there, or give another target" in text
    assert files(place) == []


def test_a_limit_on_the_size_of_files_is_told_as_one(tmp_path: Path) -> None:
    plan, file = told(tmp_path / "out", "sh", "-c", 'ulimit -f 64; exec "$@"', "sh")
    for text in (plan, file):
        assert (
            "a file may not grow as large as this one (File too large). Raise the limit (ulimit -f unlimited)" in text
        )
    assert files(tmp_path) == []


def test_a_quota_that_is_used_up_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def used_up(*_: Any) -> None:  # no file system with quotas can be made here: the call that would meet one fails
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    monkeypatch.setattr(os, "fsync", used_up)
    with pytest.raises(StorageError, match="the quota of this user on the disk is used up"):
        open_target(tmp_path).put("a", b"1")


def test_a_file_that_takes_the_place_of_a_directory_is_told(tmp_path: Path) -> None:
    target = open_target(tmp_path / "out")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "t").touch()
    with pytest.raises(StorageError, match=rf"a file is where a directory should be; found {tmp_path}/out/t\. Give"):
        target.put("t/0/a", b"1")


def test_an_error_of_the_block_passes_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="another one"), open_target(tmp_path).create("a"):
        raise FileNotFoundError("another one")
    assert files(tmp_path) == []


def test_a_move_makes_the_directory_it_needs_and_happens_once(tmp_path: Path) -> None:
    target = open_target(tmp_path)
    assert target.has_atomic_move
    target.put("_staging/a", b"1")
    target.move("_staging/a", "t/0/a")
    target.move("_staging/a", "t/0/a")
    assert files(tmp_path) == ["t/0/a"]
    with pytest.raises(ObjectNotFoundError):
        target.move("_staging/b", "t/0/b")


def test_a_move_whose_old_directory_another_driver_removes_has_happened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, replace = open_target(tmp_path), os.replace
    target.put("_staging/t/0/a", b"1")

    def before_the_other_prunes(old: str, new: str) -> None:
        replace(old, new)
        target.prune("_staging/")

    monkeypatch.setattr("os.replace", before_the_other_prunes)

    target.move("_staging/t/0/a", "t/0/a")
    assert files(tmp_path) == ["t/0/a"]


def test_a_file_is_made_where_another_driver_removes_directories_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, mkdir = open_target(tmp_path), os.mkdir
    pruned: list[str] = []

    def before_the_other_prunes(path: str, mode: int = 0o777) -> None:
        mkdir(path, mode)
        if not pruned:
            pruned.append(path)
            target.prune("_staging/")

    monkeypatch.setattr("os.mkdir", before_the_other_prunes)

    target.put("_staging/t/0/a", b"1")
    assert Path(pruned[0]) == tmp_path / "_staging"
    assert target.read("_staging/t/0/a") == b"1"
