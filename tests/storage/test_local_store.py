from __future__ import annotations

import os
from pathlib import Path

import pytest

from segreader.errors import AccessDeniedError, ObjectChangedError, ObjectNotFoundError, ShortReadError, StorageError
from segreader.ranges import ByteRange
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
