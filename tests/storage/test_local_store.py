from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from segreader.errors import AccessDeniedError, ObjectChangedError, ObjectNotFoundError, ShortReadError, StorageError
from segreader.ranges import ByteRange
from segreader.storage.base import ObjectInfo
from segreader.storage.local import LocalStore


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "two").write_bytes(b"0123456789")
    (tmp_path / "a").write_bytes(b"")
    return LocalStore(tmp_path)


def test_objects_are_listed_by_name_with_their_sizes(store: LocalStore) -> None:
    assert [(info.name, info.size) for info in store.list()] == [("a", 0), ("b/two", 10)]
    assert [info.name for info in store.list("b/t")] == ["b/two"]
    assert [info.name for info in store.list("b/x")] == []


def test_a_level_has_files_and_directories_in_order_of_their_names(tmp_path: Path) -> None:
    for name in ("a-b", "a.b", "a/1", "a/c/2", "ab"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"12")
    os.utime(tmp_path / "a-b", ns=(0, 1_999_999))
    store = LocalStore(tmp_path)
    assert list(store.list_level("a-")) == [ObjectInfo("a-b", 2, 1, "mtime:1999999")]
    assert [info.name for info in store.list_level()] == ["a-b", "a.b", "a/", "ab"]
    assert [info.name for info in store.list_level("a")] == ["a-b", "a.b", "a/", "ab"]
    assert [info.name for info in store.list_level("a/")] == ["a/1", "a/c/"]
    names = [info.name for info in store.list()]
    assert names == sorted(names) == ["a-b", "a.b", "a/1", "a/c/2", "ab"]


@pytest.mark.parametrize("prefix", ["no/", "a/", "b/no/x", "../", "b/../", "./", "/", "/etc/", "b//", "\0/", "\ud800/"])
def test_a_prefix_that_leads_nowhere_lists_nothing(store: LocalStore, prefix: str) -> None:
    assert list(store.list(prefix)) == list(store.list_level(prefix)) == []


def test_links_that_lead_back_up_are_left_out_and_others_are_followed(store: LocalStore, tmp_path: Path) -> None:
    (tmp_path / "b" / "up").symlink_to("..")
    (tmp_path / "self").symlink_to(".")
    (tmp_path / "c").symlink_to("b")
    (tmp_path / "gone").symlink_to("nothing")
    assert [info.name for info in store.list_level()] == ["a", "b/", "c/"]
    assert [info.name for info in store.list()] == ["a", "b/two", "c/two"]
    assert [info.name for info in store.list_level("c/")] == ["c/two"]


def test_a_listing_looks_into_a_directory_when_its_turn_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        (tmp_path / f"{number:02}").mkdir()
        (tmp_path / f"{number:02}" / "x").write_bytes(b"")
    looked: list[object] = []
    scandir = os.scandir

    def look(path: Path) -> Any:
        looked.append(path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", look)
    listed = LocalStore(tmp_path).list()
    assert next(listed).name == "00/x"
    assert looked == [tmp_path, tmp_path / "00"]
    (tmp_path / "01" / "x").unlink()
    (tmp_path / "01").rmdir()
    assert [info.name for info in listed] == [f"{number:02}/x" for number in range(2, 20)]


def test_a_deep_tree_is_listed(tmp_path: Path) -> None:
    directories = [str(tmp_path / ("d/" * depth)) for depth in range(1, 1201)]
    for directory in directories:
        os.mkdir(directory)
    Path(directories[-1], "x").write_bytes(b"")
    assert [info.name for info in LocalStore(tmp_path).list()] == ["d/" * 1200 + "x"]
    Path(directories[-1], "x").unlink()
    for directory in reversed(directories):  # pytest would remove them by recursion
        os.rmdir(directory)


def test_a_root_that_is_gone_and_a_closed_directory_are_errors(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch, pytest.raises(AccessDeniedError, match="Permission denied"):
        patch.setattr(os, "scandir", refuse)
        list(store.list_level("b/"))
    tmp_path.rename(tmp_path.with_name("moved"))
    with pytest.raises(ObjectNotFoundError):
        list(store.list())
    tmp_path.with_name("moved").rename(tmp_path)


def test_ranges_come_in_the_order_asked_for(store: LocalStore) -> None:
    assert list(store.read_ranges("b/two", [ByteRange(5, 7), ByteRange(0, 2)])) == [b"56", b"01"]
    assert store.size("b/two") == 10


def test_pieces_are_a_mebibyte_and_survive_the_deletion_of_their_file(tmp_path: Path) -> None:
    data = bytes(range(256)) * 10_000
    (tmp_path / "log").write_bytes(data)
    store, seen = LocalStore(tmp_path), bytearray()
    for piece in store.read_pieces("log", ByteRange(3, len(data)), expected_size=len(data)):
        (tmp_path / "log").unlink(missing_ok=True)
        assert len(piece) <= 1 << 20
        seen += piece
    assert seen == data[3:]


def test_a_file_of_another_size_than_listed_is_refused(store: LocalStore) -> None:
    with pytest.raises(ObjectChangedError, match="found 10 bytes, expected 11 bytes"):
        next(store.read_pieces("b/two", ByteRange(0, 10), expected_size=11))


def test_a_range_past_the_end_is_a_short_read_that_says_what_is_there(store: LocalStore) -> None:
    with pytest.raises(ShortReadError, match="found 2 bytes, expected 4 bytes") as caught:
        store.read_ranges("b/two", [ByteRange(8, 12)])
    assert caught.value.source == store.url("b/two")


def test_what_is_not_there_is_said_so(store: LocalStore, tmp_path: Path) -> None:
    for attempt in (lambda: store.size("no"), lambda: store.read_ranges("no", [ByteRange(0, 1)])):
        with pytest.raises(ObjectNotFoundError) as caught:
            attempt()
        assert isinstance(caught.value, FileNotFoundError)
    with pytest.raises(ObjectNotFoundError, match="no such directory"):
        LocalStore(tmp_path / "no")


def test_other_troubles_are_storage_errors(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    with pytest.raises(StorageError):
        store.read_ranges("b", [ByteRange(0, 1)])
    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(AccessDeniedError, match="Permission denied"):
        store.read_ranges("b/two", [ByteRange(0, 1)])
