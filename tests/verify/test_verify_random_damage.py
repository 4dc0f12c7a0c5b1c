"""Whatever is done to a file, verification ends, and nearly always finds something."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from planted import LONG_LATER_MS, Planted, damaged, sound_log

from segreader.stored.source import LocationSource
from segreader.testing.aiven import aiven_files
from segreader.testing.directory import write_files
from segreader.verify.verify import verify


def is_legal(path: str) -> bool:
    """Whether damage to such a file can leave a file that nothing contradicts: an index may lack entries, and text of a
    checkpoint its last line end; its first epoch stands in no other."""
    return path.endswith((".index", ".leader_epoch_checkpoint"))


@pytest.mark.parametrize("seed", range(3))
def test_damage_to_any_file_is_found_and_ends_nothing(seed: int, tmp_path: Path) -> None:
    dice, planted = random.Random(seed), Planted(tmp_path)
    write_files(tmp_path, planted.files)
    paths = sorted(planted.files)
    for _ in range(40):
        path = dice.choice(paths)
        data = damaged(planted.files[path], dice)
        (tmp_path / path).write_bytes(data)
        source = LocationSource(str(tmp_path))
        shallow = list(verify(source, now_ms=LONG_LATER_MS))
        deep = list(verify(source, deep=True, now_ms=LONG_LATER_MS))
        assert {one.code for one in shallow} <= {one.code for one in deep}
        assert deep or is_legal(path) or data == planted.files[path], path
        (tmp_path / path).write_bytes(planted.files[path])


@pytest.mark.parametrize("seed", range(2))
def test_damage_to_any_object_of_the_plugin_ends_nothing(seed: int, tmp_path: Path) -> None:
    dice = random.Random(seed)
    files = aiven_files("orders", sound_log(), chunk_size=500, compression=True)
    write_files(tmp_path, files)
    paths = sorted(files)
    for _ in range(40):
        path = dice.choice(paths)
        (tmp_path / path).write_bytes(damaged(files[path], dice))
        list(verify(LocationSource(str(tmp_path)), deep=True, now_ms=LONG_LATER_MS))
        (tmp_path / path).write_bytes(files[path])
