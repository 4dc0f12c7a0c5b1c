"""The published stores: what they keep of the contract of ``ObjectStore``, what they record, and how they fail."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from segreader.errors import ObjectChangedError, ObjectNotFoundError, ShortReadError, StorageError
from segreader.ranges import ByteRange
from segreader.storage.base import ObjectInfo, ObjectStore
from segreader.testing.stores import FaultyStore, MemoryStore

OBJECTS = {"a/b.log": b"0123456789", "a/c/d.log": b"xyz", "e.log": b""}
OPERATIONS: dict[str, Callable[[ObjectStore], object]] = {
    "LIST a/": lambda store: [info.name for info in store.list("a/")],
    "LEVEL a/": lambda store: [info.name for info in store.list_level("a/")],
    "SIZE a/b.log": lambda store: store.size("a/b.log"),
    "GET a/b.log bytes=2-4": lambda store: list(store.read_ranges("a/b.log", [ByteRange(2, 5)])),
    "GET a/b.log bytes=0-8": lambda store: b"".join(map(bytes, store.read_pieces("a/b.log", ByteRange(0, 9)))),
    "GET a/b.log bytes=7-9": lambda store: _filled(store),
}


def _filled(store: ObjectStore) -> bytes:
    buffer = bytearray(3)
    store.read_into("a/b.log", 7, memoryview(buffer))
    return bytes(buffer)


def never(request: str) -> None:
    pass


@pytest.mark.parametrize("wrapped", [False, True])
def test_objects_are_listed_and_read_as_they_were_given(wrapped: bool) -> None:
    memory = MemoryStore(OBJECTS)
    store: ObjectStore = FaultyStore(memory, never) if wrapped else memory

    assert [operation(store) for operation in OPERATIONS.values()] == [
        ["a/b.log", "a/c/d.log"],
        ["a/b.log", "a/c/"],
        10,
        [b"234"],
        b"012345678",
        b"789",
    ]
    assert memory.requests == list(OPERATIONS)
    assert next(store.list("e")) == ObjectInfo("e.log", 0)
    assert store.url("e.log") == "memory://bucket/e.log"
    store.close()


def test_what_is_not_there_ends_early_or_was_replaced_is_an_error() -> None:
    store = MemoryStore(OBJECTS, tells_tags=True)
    tag = next(store.list("a/b")).tag

    with pytest.raises(ObjectNotFoundError):
        store.size("none")
    with pytest.raises(ShortReadError):
        store.read_ranges("a/b.log", [ByteRange(8, 11)])
    with pytest.raises(ObjectChangedError):
        list(store.read_pieces("a/b.log", ByteRange(0, 1), expected_size=11))
    store.objects["a/b.log"] = b"9876543210"
    with pytest.raises(ObjectChangedError):
        list(store.read_pieces("a/b.log", ByteRange(0, 1), expected_size=10, expected_tag=tag))


@pytest.mark.parametrize("request_", OPERATIONS)
def test_a_fault_meets_the_request_that_it_names_before_the_store_does(request_: str) -> None:
    memory = MemoryStore(OBJECTS)

    def fault(request: str) -> None:
        if request == request_:
            raise StorageError("the network is down")

    store = FaultyStore(memory, fault)
    for name, operation in OPERATIONS.items():
        if name != request_:
            operation(store)
    with pytest.raises(StorageError):
        OPERATIONS[request_](store)
    assert memory.requests == [name for name in OPERATIONS if name != request_]


def test_one_fault_may_be_followed_by_success() -> None:
    left = [StorageError("the network is down")]

    def fault(request: str) -> None:
        if left:
            raise left.pop()

    store = FaultyStore(MemoryStore(OBJECTS), fault)
    with pytest.raises(StorageError):
        list(store.read_pieces("a/b.log", ByteRange(0, 2)))
    assert b"".join(map(bytes, store.read_pieces("a/b.log", ByteRange(0, 2)))) == b"01"
