"""What tests of several commands take."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from segreader.testing.stores import MemoryStore


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, bytes]], MemoryStore]:
    """Puts objects where every location leads to; gives the store, which notes what it is asked."""

    def filled(stored: dict[str, bytes]) -> MemoryStore:
        store = MemoryStore(stored)
        monkeypatch.setattr("segreader.stored.source.open_store", lambda location, **_: (store, ""))
        return store

    return filled
