"""Small objects that are kept on the disk: never another version, never a record, and nothing is lost without them."""

from __future__ import annotations

import logging
import os
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from segreader.errors import ObjectNotFoundError, OptionError
from segreader.ranges import ByteRange
from segreader.storage import cache as caching
from segreader.storage.base import ObjectStore, read_whole
from segreader.storage.cache import DIRECTORY, LIMIT, CachingStore, DiskCache, with_cache
from segreader.storage.local import LocalStore
from segreader.testing.stores import MemoryStore

NAME = "orders-0/a.index"
WHOLE = [ByteRange(0, 4)]


def over(store: ObjectStore, place: Path) -> CachingStore:
    """As a process sees it that has just listed the store."""
    found = CachingStore(store, DiskCache(place), lambda name: name.endswith(".index"))
    list(found.list())
    return found


def gets(store: MemoryStore) -> int:
    return sum(one.startswith("GET") for one in store.requests)


def entries(place: Path) -> list[Path]:
    return [path for path in place.rglob("*") if path.is_file()]


def test_another_process_needs_no_request(tmp_path: Path) -> None:
    store = MemoryStore({NAME: b"abcd"}, tells_tags=True)
    assert over(store, tmp_path).read_ranges(NAME, WHOLE) == [b"abcd"]
    assert gets(store) == 1
    again = over(store, tmp_path)
    assert list(again.read_ranges(NAME, WHOLE)) == [b"abcd"]
    assert again.size(NAME) == 4
    assert gets(store) == 1
    assert not [one for one in store.requests if one.startswith("SIZE")]


def test_several_ranges_are_one_entry_in_their_order(tmp_path: Path) -> None:
    store = MemoryStore({NAME: b"abcdefgh"}, tells_tags=True)
    ranges = [ByteRange(5, 8), ByteRange(0, 2)]
    for _ in range(2):
        assert list(over(store, tmp_path).read_ranges(NAME, ranges)) == [b"fgh", b"ab"]
    assert gets(store) == 2
    assert len(entries(tmp_path)) == 1
    assert list(over(store, tmp_path).read_ranges(NAME, ranges[::-1])) == [b"ab", b"fgh"]


def test_an_overwritten_object_is_read_again(tmp_path: Path) -> None:
    store = MemoryStore({NAME: b"abcd"}, tells_tags=True)
    over(store, tmp_path).read_ranges(NAME, WHOLE)
    store.objects[NAME] = b"wxyz"
    assert list(over(store, tmp_path).read_ranges(NAME, WHOLE)) == [b"wxyz"]


def test_an_object_that_is_overwritten_after_its_listing_is_not_kept_as_the_listed_one(tmp_path: Path) -> None:
    store = MemoryStore({NAME: b"abcd"}, tells_tags=True)
    listed = over(store, tmp_path)
    store.objects[NAME] = b"wxyz"
    assert list(listed.read_ranges(NAME, WHOLE)) == [b"wxyz"]
    assert not entries(tmp_path)
    store.objects[NAME] = b"abcd"
    assert list(over(store, tmp_path).read_ranges(NAME, WHOLE)) == [b"abcd"]


def test_equal_tags_of_another_time_are_another_version(tmp_path: Path) -> None:
    """Some gateways give every object the same tag."""

    class Untagged(MemoryStore):
        def _tag(self, name: str) -> str:
            return "etag:00000000000000000000000000000000"

    over(Untagged({NAME: b"abcd"}, {NAME: 1000}, tells_tags=True), tmp_path).read_ranges(NAME, WHOLE)
    store = Untagged({NAME: b"wxyz"}, {NAME: 2000}, tells_tags=True)
    assert list(over(store, tmp_path).read_ranges(NAME, WHOLE)) == [b"wxyz"]


def test_what_has_no_tag_or_holds_records_is_not_kept(tmp_path: Path) -> None:
    over(MemoryStore({NAME: b"abcd"}), tmp_path).read_ranges(NAME, WHOLE)
    over(MemoryStore({"a.log": b"abcd"}, tells_tags=True), tmp_path).read_ranges("a.log", WHOLE)
    unlisted = CachingStore(MemoryStore({NAME: b"abcd"}, tells_tags=True), DiskCache(tmp_path), lambda _: True)
    unlisted.read_ranges(NAME, WHOLE)
    assert not entries(tmp_path)


def test_a_range_beyond_the_listed_end_is_asked_of_the_store(tmp_path: Path) -> None:
    store = MemoryStore({NAME: b"abcd"}, tells_tags=True)
    listed = over(store, tmp_path)
    del store.objects[NAME]
    with pytest.raises(ObjectNotFoundError):
        listed.read_ranges(NAME, [ByteRange(0, 5)])


def test_damaged_entries_count_as_none_and_are_replaced(tmp_path: Path) -> None:
    store = MemoryStore({NAME: bytes(range(200))}, tells_tags=True)
    over(store, tmp_path).read_ranges(NAME, [ByteRange(0, 200)])
    (entry,) = entries(tmp_path)
    good = entry.read_bytes()
    damaged = [good[:cut] for cut in range(len(good))] + [good + b"x"]
    damaged += [good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :] for at in range(len(good))]
    for bad in damaged:
        entry.write_bytes(bad)
        assert read_whole(over(store, tmp_path), NAME, 200) == bytes(range(200))
        assert entry.read_bytes() == good


def test_an_entry_under_another_ones_name_counts_as_none(tmp_path: Path) -> None:
    store = MemoryStore({NAME: b"abcd", "b.index": b"wxyz"}, tells_tags=True)
    over(store, tmp_path).read_ranges(NAME, WHOLE)
    (first,) = entries(tmp_path)
    over(store, tmp_path).read_ranges("b.index", WHOLE)
    (second,) = set(entries(tmp_path)) - {first}
    second.write_bytes(first.read_bytes())
    assert list(over(store, tmp_path).read_ranges("b.index", WHOLE)) == [b"wxyz"]


def test_the_directory_is_for_this_user_alone(tmp_path: Path) -> None:
    over(MemoryStore({NAME: b"abcd"}, tells_tags=True), tmp_path / "new" / "cache").read_ranges(NAME, WHOLE)
    made = tmp_path / "new" / "cache"
    for path in [made, *made.rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600)


def test_no_entry_names_what_it_is_of(tmp_path: Path) -> None:
    over(MemoryStore({NAME: b"abcd"}, tells_tags=True), tmp_path).read_ranges(NAME, WHOLE)
    (entry,) = entries(tmp_path)
    assert b"orders" not in entry.read_bytes()
    assert "orders" not in str(entry.relative_to(tmp_path))


def test_a_directory_that_others_may_write_to_is_not_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    own = tmp_path / "segreader-1"
    own.mkdir()
    own.chmod(0o777)
    store = MemoryStore({NAME: b"abcd"}, tells_tags=True)
    for _ in range(2):
        assert list(over(store, tmp_path).read_ranges(NAME, WHOLE)) == [b"abcd"]
    assert not entries(tmp_path)
    assert "0700" in caplog.text


def test_a_directory_that_cannot_be_written_gives_one_note(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_bytes(b"")
    store = MemoryStore({f"{number}.index": b"abcd" for number in range(50)}, tells_tags=True)
    with caplog.at_level(logging.WARNING), ThreadPoolExecutor(8) as workers:
        cached = over(store, tmp_path / "file" / "cache")
        read = list(workers.map(lambda name: list(cached.read_ranges(name, WHOLE)), store.objects))
    assert read == [[b"abcd"]] * 50
    assert len(caplog.records) == 1
    assert DIRECTORY in caplog.text


def test_a_full_disk_gives_one_note(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    store = MemoryStore({f"{number}.index": b"abcd" for number in range(5)}, tells_tags=True)
    cached = over(store, tmp_path)
    cached.read_ranges("0.index", WHOLE)
    monkeypatch.setattr(os, "replace", refuse)
    assert [list(cached.read_ranges(name, WHOLE)) for name in store.objects] == [[b"abcd"]] * 5
    assert len(caplog.records) == 1
    assert len(entries(tmp_path)) == 1


def test_the_limit_holds_and_what_is_used_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caching, "_LOOKS", 256)
    limit = 256 * 4 * 4096
    cache = DiskCache(tmp_path, limit)
    kept = bytes(15) + b"k"
    cache.put(kept, b"kept")
    for number in range(3000):
        cache.put(number.to_bytes(2, "little") + bytes(14), b"x" * 3000)
        (tmp_path / "segreader-1" / "00" / kept.hex()[2:]).touch()
    assert sum(4096 for _ in entries(tmp_path)) <= limit
    assert cache.get(kept) == b"kept"


def test_an_entry_that_goes_while_sizes_are_summed_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cache, key = DiskCache(tmp_path), bytes(16)
    cache.put(key, b"first")
    (entry,) = entries(tmp_path)
    (entry.parent / "gone").symlink_to(tmp_path / "nowhere")  # listed, and not there when it is asked for its size
    cache.put(key, b"second")
    assert cache.get(key) == b"second"
    assert not caplog.records


def test_large_reads_are_not_kept(tmp_path: Path) -> None:
    store = MemoryStore({NAME: bytes(1 << 20)}, tells_tags=True)
    read_whole(over(store, tmp_path), NAME, 1 << 20)
    assert not entries(tmp_path)


def test_a_file_that_was_changed_just_now_is_not_kept(tmp_path: Path) -> None:
    root = tmp_path / "files"
    root.mkdir()
    (root / "a.index").write_bytes(b"abcd")
    soon = time.time_ns() + 1_500_000_000  # as by a clock that is ahead: it is "just now" until 3.5 s from here
    os.utime(root / "a.index", ns=(soon, soon))
    over(LocalStore(root), tmp_path / "cache").read_ranges("a.index", WHOLE)
    assert not entries(tmp_path / "cache")


def test_a_file_with_another_inode_is_another_version(tmp_path: Path) -> None:
    root = tmp_path / "files"
    root.mkdir()
    file = root / "a.index"
    for data in (b"abcd", b"wxyz"):
        (root / "new").write_bytes(data)
        (root / "new").replace(file)
        os.utime(file, (1000, 1000))
        for _ in range(2):
            assert list(over(LocalStore(root), tmp_path / "cache").read_ranges("a.index", WHOLE)) == [data]
    assert len(entries(tmp_path / "cache")) == 2


def test_it_is_off_unless_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore({NAME: b"abcd"})
    monkeypatch.delenv(DIRECTORY, raising=False)
    assert with_cache(store, lambda _: True) is store
    monkeypatch.setenv(DIRECTORY, str(tmp_path))
    assert isinstance(with_cache(store, lambda _: True), CachingStore)
    monkeypatch.setenv(LIMIT, "much")
    with pytest.raises(OptionError, match=LIMIT):
        with_cache(store, lambda _: True)
