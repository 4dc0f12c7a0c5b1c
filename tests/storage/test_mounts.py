from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from segreader.errors import ObjectNotFoundError
from segreader.ranges import ByteRange
from segreader.storage.base import MountedStores, ObjectStore
from segreader.storage.local import LocalStore


def made(root: Path, *names: str) -> LocalStore:
    """A directory whose files hold their own names."""
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{root.name} {name}")
    return LocalStore(root)


@pytest.fixture
def mounted(tmp_path: Path) -> MountedStores:
    remote = made(tmp_path / "remote", "topics/a-0/1.log", "topics/a-0/2.log", "zero", "local:hidden", "logs/hidden")
    local = made(tmp_path / "local", "a-0/3.log", "x")
    deep = made(tmp_path / "deep", "b/4.log", "5.log")
    return MountedStores({"": remote, "local:": local, "logs/kafka/": deep})


def names(listing: Callable[[str], object], prefix: str) -> list[str]:
    return [info.name for info in listing(prefix)]  # type: ignore[attr-defined]


def test_a_name_is_read_from_the_store_that_its_beginning_says(mounted: MountedStores) -> None:
    for name, text in {
        "topics/a-0/1.log": "remote topics/a-0/1.log",
        "local:a-0/3.log": "local a-0/3.log",
        "logs/kafka/b/4.log": "deep b/4.log",
        "logs/hidden": "remote logs/hidden",
    }.items():
        size, buffer = len(text), bytearray(len(text))
        assert mounted.size(name) == size
        assert mounted.read_ranges(name, [ByteRange(0, size)]) == [text.encode()]
        mounted.read_into(name, 0, memoryview(buffer))
        assert buffer == text.encode()
        assert b"".join(mounted.read_pieces(name, ByteRange(0, size), expected_size=size)) == text.encode()
        assert mounted.url(name).endswith(text.replace(" ", "/"))
    with pytest.raises(ObjectNotFoundError):
        mounted.size("local:hidden")


def test_a_listing_is_of_all_stores_in_order_and_shows_nothing_that_cannot_be_read(mounted: MountedStores) -> None:
    assert names(mounted.list, "") == [
        "local:a-0/3.log",
        "local:x",
        "logs/hidden",
        "logs/kafka/5.log",
        "logs/kafka/b/4.log",
        "topics/a-0/1.log",
        "topics/a-0/2.log",
        "zero",
    ]
    assert names(mounted.list, "local:a") == ["local:a-0/3.log"]
    assert names(mounted.list, "lo") == names(mounted.list, "")[:5]
    assert names(mounted.list, "topics/a-0/2") == ["topics/a-0/2.log"]
    for info in mounted.list():
        assert mounted.size(info.name) == info.size


def test_a_mounted_directory_stands_in_its_level_once(mounted: MountedStores) -> None:
    assert names(mounted.list_level, "") == ["local:a-0/", "local:x", "logs/", "topics/", "zero"]
    assert names(mounted.list_level, "logs/") == ["logs/hidden", "logs/kafka/"]
    assert names(mounted.list_level, "logs/kafka/") == ["logs/kafka/5.log", "logs/kafka/b/"]
    assert names(mounted.list_level, "local:a") == ["local:a-0/"]
    assert names(mounted.list_level, "local:a-0/") == ["local:a-0/3.log"]
    assert names(mounted.list_level, "t") == ["topics/"]


def test_the_longest_prefix_wins(tmp_path: Path) -> None:
    stores: dict[str, ObjectStore] = {
        "": made(tmp_path / "all", "a/b/x"),
        "a/": made(tmp_path / "a", "b/x", "c"),
        "a/b/": made(tmp_path / "ab", "x"),
    }
    store = MountedStores(stores)
    assert store.read_ranges("a/b/x", [ByteRange(0, 4)]) == [b"ab x"]
    assert names(store.list, "a/") == names(store.list, "") == ["a/b/x", "a/c"]
    assert names(store.list_level, "a/") == ["a/b/", "a/c"]


def test_one_store_has_all_other_names(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="empty prefix"):
        MountedStores({"local:": LocalStore(tmp_path)})


def test_every_store_is_closed_though_one_fails(tmp_path: Path) -> None:
    closed = []

    class Closing(LocalStore):
        def close(self) -> None:
            closed.append(self)
            raise OSError("broken")

    with pytest.raises(OSError, match="broken"):
        MountedStores({name: Closing(tmp_path) for name in ("", "a", "b")}).close()
    assert len(closed) == 3
