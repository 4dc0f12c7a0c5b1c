"""What only a directory can get wrong as a target."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
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
    with pytest.raises(PlanError, match="a target is a directory"):
        open_target(tmp_path / "file")


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
        with pytest.raises(StorageError, match="No space left on device"):
            write("a", b"1")
    assert files(tmp_path) == []


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
