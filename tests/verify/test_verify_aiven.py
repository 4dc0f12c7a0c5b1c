"""Aiven's plugin: manifests, chunks, keys. Each defect is planted into a sound partition; nothing else is found."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from planted import LONG_LATER_MS, TOPIC, sound_log

from segreader.stored.source import Catalog, LocationSource
from segreader.testing.aiven import aiven_files, write_rsm_config
from segreader.testing.directory import write_files
from segreader.verify.verify import verify


@cache
def private_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


class Aiven:
    """A partition as the plugin stores it, open to changes."""

    def __init__(self, root: Path, *, encrypted: bool = False, compression: bool = True) -> None:
        self.root = root
        self.keys = {"key1": private_key()} if encrypted else None
        encryption = ("key1", private_key().public_key()) if encrypted else None
        segments = sound_log()
        self.files = aiven_files(TOPIC, segments, chunk_size=500, compression=compression, encryption=encryption)

    def name(self, number: int, suffix: str) -> str:
        return sorted(path for path in self.files if path.endswith(suffix))[number]

    def change_manifest(self, number: int, change: Callable[[dict[str, Any]], None]) -> None:
        name = self.name(number, ".rsm-manifest")
        document = json.loads(self.files[name])
        change(document)
        self.files[name] = json.dumps(document).encode()

    def flip(self, number: int, suffix: str, position: int) -> None:
        data = bytearray(self.files[self.name(number, suffix)])
        data[position] ^= 1
        self.files[self.name(number, suffix)] = bytes(data)

    def codes(self, *, deep: bool = True, has_config: bool = True, keys: Any = None) -> set[str]:
        write_files(self.root / "remote", self.files)
        config = self.root / "config"
        config.mkdir(exist_ok=True)
        path = write_rsm_config(config, keys=keys or self.keys) if has_config and self.keys else None
        source = LocationSource(str(self.root / "remote"), catalog=Catalog(rsm_config=path))
        return {one.code.value for one in verify(source, deep=deep, now_ms=LONG_LATER_MS)}


FORMS = {
    "plain": {"compression": False},
    "zstd": {"compression": True},
    "encrypted": {"compression": True, "encrypted": True},
}


@pytest.fixture(params=FORMS, ids=str)
def aiven(request: pytest.FixtureRequest, tmp_path: Path) -> Aiven:
    return Aiven(tmp_path, **FORMS[request.param])


def test_a_sound_partition_has_no_finding(aiven: Aiven) -> None:
    assert aiven.codes(deep=False) == aiven.codes() == set()


@pytest.mark.parametrize(
    ("suffix", "code"),
    [(".log", "missing-log"), (".rsm-manifest", "missing-manifest"), (".indexes", "missing-indexes")],
)
def test_an_object_that_is_missing(aiven: Aiven, suffix: str, code: str) -> None:
    del aiven.files[aiven.name(1, suffix)]

    assert aiven.codes() == {code}


@pytest.mark.parametrize("left", [0, 1, 100])
def test_a_manifest_that_is_cut(aiven: Aiven, left: int) -> None:
    name = aiven.name(1, ".rsm-manifest")
    aiven.files[name] = aiven.files[name][:left]

    assert aiven.codes() == {"bad-manifest"}


def test_several_broken_manifests_keep_no_other_segment_from_being_looked_at(aiven: Aiven) -> None:
    for number in (0, 2):
        aiven.files[aiven.name(number, ".rsm-manifest")] = b"{"
    name = aiven.name(1, ".log")
    aiven.files[name] += b"\1"

    assert aiven.codes() == {"bad-manifest", "manifest-mismatch"}


def test_a_manifest_that_contradicts_its_name(aiven: Aiven) -> None:
    def change(document: dict[str, Any]) -> None:
        document["remoteLogSegmentMetadata"]["startOffset"] = 29

    aiven.change_manifest(1, change)

    assert aiven.codes() == {"bad-manifest"}


def test_a_chunk_table_that_does_not_add_up(aiven: Aiven) -> None:
    def change(document: dict[str, Any]) -> None:
        document["chunkIndex"]["originalFileSize"] += 10_000

    aiven.change_manifest(1, change)

    assert aiven.codes() <= {"bad-manifest", "manifest-mismatch"}
    assert aiven.codes()


def test_a_log_of_another_size_than_its_manifest_says(aiven: Aiven) -> None:
    aiven.files[aiven.name(1, ".log")] += b"\0"

    assert aiven.codes() == {"manifest-mismatch"}


def test_an_index_outside_of_its_object(aiven: Aiven) -> None:
    name = aiven.name(1, ".indexes")
    aiven.files[name] = aiven.files[name][:-5]

    assert aiven.codes() == {"manifest-mismatch"}


def test_a_foreign_object(aiven: Aiven) -> None:
    aiven.files[aiven.name(1, ".log").rpartition("/")[0] + "/notes.txt"] = b""

    assert aiven.codes() == {"foreign-object"}


def test_a_key_that_is_not_at_hand_is_told_once_a_segment(tmp_path: Path) -> None:
    aiven = Aiven(tmp_path, encrypted=True)

    assert aiven.codes(has_config=False) == {"undecryptable"}


def test_another_key_than_the_segments_were_written_with(tmp_path: Path) -> None:
    aiven = Aiven(tmp_path, encrypted=True)

    assert aiven.codes(keys={"key1": rsa.generate_private_key(65537, 2048)}) == {"undecryptable"}


@pytest.mark.parametrize(("suffix", "position"), [(".log", 40), (".log", -1), (".indexes", 40), (".indexes", -1)])
def test_an_encrypted_byte_that_was_changed(tmp_path: Path, suffix: str, position: int) -> None:
    aiven = Aiven(tmp_path, encrypted=True)
    aiven.flip(1, suffix, position)

    assert aiven.codes() == {"undecryptable"}


def test_a_chunk_that_does_not_decompress(tmp_path: Path) -> None:
    aiven = Aiven(tmp_path)
    aiven.flip(1, ".log", 0)

    assert aiven.codes() == {"bad-manifest"} or aiven.codes() == {"manifest-mismatch"}


def test_a_flipped_bit_in_a_plain_log(tmp_path: Path) -> None:
    aiven = Aiven(tmp_path, compression=False)
    aiven.flip(1, ".log", 70)

    assert aiven.codes(deep=False) == set()
    assert aiven.codes() == {"crc-mismatch"}
