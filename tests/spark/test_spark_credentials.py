"""Credentials by name: what an option may say, where values come from, and that they stay where they are used."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType

import pytest
from canaries import CANARIES, leaks

from segreader.errors import AccessDeniedError, LocationExpiredError, OptionError
from segreader.ranges import ByteRange
from segreader.spark import locations
from segreader.spark.credentials import can_renew, parse_provider, resolve_storage
from segreader.spark.locations import RenewingStore
from segreader.spark.options import parse_options
from segreader.spark.planning import plan_splits
from segreader.storage.base import ObjectInfo, ObjectStore
from segreader.storage.options import find_storage_options
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import write_local_tiered
from segreader.testing.stores import MemoryStore


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """An importable module ``made_keys``."""
    made = ModuleType("made_keys")
    monkeypatch.setitem(sys.modules, "made_keys", made)
    return made


@pytest.mark.parametrize("text", ["default", "env:LAKE", "env:lake_2", "company.keys:for_lake", " default "])
def test_a_provider_is_a_name(text: str) -> None:
    assert parse_provider(text) == text.strip()


@pytest.mark.parametrize("text", ["", "env:", "env:a b", "AKIAC4NARYC4NARYC4NA", "a/b:c", "key=hunter2", ":f", "m:"])
def test_what_is_no_name_is_refused_and_not_shown(text: str) -> None:
    with pytest.raises(OptionError, match="credentials is not the name of a provider") as caught:
        parse_options({"location": "s3://b", "subscribe": "t", "credentials": text})
    assert not text or text not in str(caught.value).replace("env:PREFIX", "")


def test_by_default_only_settings_are_given_and_the_clouds_client_finds_the_rest() -> None:
    assert resolve_storage("default", "s3://b", {"region": "r"}) == {"region": "r"}


def test_variables_with_a_prefix_are_storage_options() -> None:
    variables = {"LAKE_KEY": CANARIES["key"], "LAKE_SECRET": CANARIES["secret"], "LAKE_OTHER": "x", "LAKES": "y"}
    given = resolve_storage("env:LAKE", "s3://b", {"region": "r"}, variables)
    options = find_storage_options("s3://b", given, environ={}, files=[])

    assert options.key is not None
    assert options.key.reveal() == CANARIES["key"]
    assert options.region == "r"
    assert not leaks(repr(given))


def test_a_setting_may_name_the_variable_that_each_process_looks_up() -> None:
    given = {"location": "s3://b", "subscribe": "t", "storage.secret": "env:LAKE_SECRET", "storage.key": "env:LAKE_KEY"}
    settings = parse_options(given).storage
    assert settings == {"secret": "env:LAKE_SECRET", "key": "env:LAKE_KEY"}
    resolved = resolve_storage("default", "s3://b", settings, {"LAKE_SECRET": CANARIES["secret"], "LAKE_KEY": "k"})
    assert find_storage_options("s3://b", resolved, environ={}, files=[]).secret.reveal() == CANARIES["secret"]  # type: ignore[union-attr]
    assert not leaks(repr(resolved))

    with pytest.raises(OptionError, match="secret=env:LAKE_SECRET finds no variable in this process"):
        resolve_storage("default", "s3://b", settings, {"LAKE_KEY": "k"})
    for name, text, told in (
        ("storage.secret", "env:not a name", "looks like a secret"),
        ("storage.regoin", "env:REGION", "Did you mean 'region'"),
        ("my.password", "env:LAKE_SECRET", "looks like a secret"),
    ):
        with pytest.raises(OptionError, match=told):
            parse_options({"location": "s3://b", "subscribe": "t", name: text})


def test_each_location_is_given_what_its_kind_of_store_can_have() -> None:
    variables = {"LAKE_KEY": "k", "LAKE_SECRET": "s", "LAKE_ACCOUNT_NAME": "a"}
    given = {
        location: set(resolve_storage("env:LAKE", location, {"region": "r"}, variables))
        for location in ("s3://b", "abfs://c@a.dfs.core.windows.net", "/data")
    }
    assert list(given.values()) == [{"key", "secret", "region"}, {"account_name"}, set()]


def test_a_prefix_without_variables_says_what_it_looks_for() -> None:
    with pytest.raises(OptionError, match=r"env:LAKE finds no variable.*expected LAKE_KEY and LAKE_SECRET"):
        resolve_storage("env:LAKE", "s3://b", {}, {"OTHER": "x"})


def test_a_callable_is_asked_with_the_location(module: ModuleType) -> None:
    asked = []

    def keys(location: str) -> Mapping[str, str]:
        asked.append(location)
        return {"aws_access_key_id": CANARIES["key"], "aws_secret_access_key": CANARIES["secret"]}

    module.keys = keys  # type: ignore[attr-defined]
    options = find_storage_options("s3://b", resolve_storage("made_keys:keys", "s3://b/a", {}), environ={}, files=[])

    assert asked == ["s3://b/a"]
    assert options.secret is not None
    assert options.secret.reveal() == CANARIES["secret"]
    assert can_renew("made_keys:keys")
    assert not can_renew("default")


@pytest.mark.parametrize(
    ("provider", "message"),
    [
        ("no_such_module_here:f", "cannot be imported: ModuleNotFoundError"),
        ("made_keys:missing", "cannot be imported: AttributeError"),
        ("made_keys:fails", "failed: RuntimeError"),
        ("made_keys:text", "gives no storage options; found str"),
    ],
)
def test_a_provider_that_does_not_work_is_told_without_what_it_says(
    module: ModuleType, provider: str, message: str
) -> None:
    def fails(location: str) -> None:
        raise RuntimeError(CANARIES["password"])

    module.fails = fails  # type: ignore[attr-defined]
    module.text = lambda location: CANARIES["password"]  # type: ignore[attr-defined]
    with pytest.raises(OptionError, match=message) as caught:
        resolve_storage(provider, "s3://b", {})
    assert not leaks(str(caught.value))
    assert not leaks(repr(caught.value.__dict__))


def test_neither_options_nor_splits_hold_a_value(
    module: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_local_tiered(tmp_path, "t", [SegmentBuilder().batch([b"v"])])
    given: list[str] = []

    def keys(location: str) -> dict[str, str]:
        given.append(location)
        return {}

    module.keys = keys  # type: ignore[attr-defined]
    monkeypatch.setenv("LAKE_SECRET", CANARIES["secret"])
    options = parse_options({"location": str(tmp_path), "subscribe": "t", "credentials": "made_keys:keys"})
    lights = plan_splits(options).light_splits()

    assert given == [str(tmp_path)]
    assert not leaks(pickle.dumps((options, lights)))
    assert not leaks(repr((options, lights)))


class _Refusing(MemoryStore):
    """Refuses every request after the first ``good`` ones."""

    def __init__(self, objects: Mapping[str, bytes], good: int) -> None:
        super().__init__(objects)
        self.good = good

    def _read(self, name: str, wanted: ByteRange) -> bytes:
        self.good -= 1
        if self.good < 0:
            raise LocationExpiredError("the URL's life is over", source=self.url(name))
        return super()._read(name, wanted)

    def read_pieces(self, name: str, wanted: ByteRange, **_: object):  # type: ignore[no-untyped-def]
        for start in range(wanted.start, wanted.stop, 4):
            yield memoryview(self._read(name, ByteRange(start, min(start + 4, wanted.stop))))


def renewing(stores: Sequence[ObjectStore]) -> tuple[RenewingStore, list[ObjectStore]]:
    """A store over these, one after another, and which of them it was given by being asked again."""
    reopened: list[ObjectStore] = []

    def reopen() -> ObjectStore:
        reopened.append(stores[1 + len(reopened)])
        return reopened[-1]

    return RenewingStore(stores[0], reopen), reopened


def test_pieces_go_on_where_the_credentials_ran_out() -> None:
    data = {"a": bytes(range(40))}
    store, reopened = renewing([_Refusing(data, 3), _Refusing(data, 2), _Refusing(data, 99)])

    assert b"".join(map(bytes, store.read_pieces("a", ByteRange(2, 39)))) == data["a"][2:39]
    assert len(reopened) == 2


def test_who_is_refused_twice_in_one_place_is_refused() -> None:
    store, reopened = renewing([_Refusing({"a": b"abc"}, 0)] * 9)
    with pytest.raises(LocationExpiredError):
        list(store.read_pieces("a", ByteRange(0, 3)))
    assert len(reopened) == 1
    with pytest.raises(LocationExpiredError):
        store.read_ranges("a", [ByteRange(0, 3)])


def test_a_range_and_a_listing_are_asked_for_again() -> None:
    class Denied(MemoryStore):
        def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
            yield next(iter(super().list(prefix)))
            raise AccessDeniedError("the store refuses")

    objects = {"a": b"abc", "b": b"d", "c": b"e"}
    store, _ = renewing([Denied(objects), MemoryStore(objects)])
    assert [info.name for info in store.list()] == ["a", "b", "c"]

    store, _ = renewing([_Refusing(objects, 0), MemoryStore(objects)])
    assert store.read_ranges("a", [ByteRange(1, 3)]) == [b"bc"]


def test_a_read_with_a_callable_renews_and_others_do_not(tmp_path: Path, module: ModuleType) -> None:
    write_local_tiered(tmp_path, "t", [SegmentBuilder().batch([b"v"])])
    module.keys = lambda location: {}  # type: ignore[attr-defined]
    plain = {"location": str(tmp_path), "subscribe": "t"}

    assert isinstance(
        locations.Locations(parse_options(plain | {"credentials": "made_keys:keys"})).store, RenewingStore
    )
    assert not isinstance(locations.Locations(parse_options(plain)).store, RenewingStore)
