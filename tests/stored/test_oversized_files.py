"""Files beside a log that are larger than any of their kind, and transaction indexes of which no row can be."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from planted import LONG_LATER_MS, Planted

import segreader
from segreader.errors import CorruptIndexError, LimitExceededError
from segreader.evidence.rules import Code
from segreader.format import index_files
from segreader.stored.source import LocationSource
from segreader.testing.directory import write_files
from segreader.verify.verify import verify

SIDE_FILES = ("index", "timeindex", "txnindex", "snapshot", "leader_epoch_checkpoint")
LARGE = 1 << 34


def oversized(root: Path, kind: str) -> str:
    planted = Planted(root)
    planted.put(2, kind, b"")
    write_files(root, planted.files)
    name = planted.name(2, kind)
    os.truncate(root / name, LARGE)
    return name


@pytest.mark.parametrize("kind", SIDE_FILES)
def test_an_oversized_file_costs_no_record_and_is_noted(kind: str, tmp_path: Path) -> None:
    whole = Planted(tmp_path / "sound")
    write_files(whole.root, whole.files)
    name = oversized(tmp_path / "here", kind)

    scan = segreader.scan(tmp_path / "here", on_corrupt="skip", isolation_level="read_uncommitted")
    assert [one.offset for one in scan.records()] == [
        one.offset for one in segreader.scan(whole.root, isolation_level="read_uncommitted").records()
    ]
    notes = [note for note in segreader.scan(tmp_path / "here", on_corrupt="skip").plan().notes if name in note]
    assert all(str(LARGE) in note for note in notes)
    assert len(notes) == (kind != "timeindex")


def test_an_oversized_transaction_index_is_refused_by_default(tmp_path: Path) -> None:
    name = oversized(tmp_path, "txnindex")
    with pytest.raises(LimitExceededError) as caught:
        segreader.scan(tmp_path).plan()
    assert caught.value.source == str(tmp_path / name)


@pytest.mark.parametrize("kind", SIDE_FILES)
def test_verify_names_an_oversized_file(kind: str, tmp_path: Path) -> None:
    name = oversized(tmp_path, kind)
    found = [one for one in verify(LocationSource(str(tmp_path)), now_ms=LONG_LATER_MS) if one.object.endswith(name)]
    assert [one.code for one in found] == [Code.OVERSIZED_FILE]
    assert str(LARGE) in found[0].explanation


def test_of_a_transaction_index_of_other_bytes_the_first_row_is_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = Planted(tmp_path)
    planted.put(1, "txnindex", b"\xff" * 34 * 5000)
    write_files(planted.root, planted.files)
    judged: list[bytes] = []

    def parse(data: bytes, base_offset: int = 0) -> index_files.TransactionIndex:
        judged.append(data)
        return index_files.parse_transaction_index(data, base_offset)

    monkeypatch.setattr("segreader.evidence.transaction_checks.parse_transaction_index", parse)
    with pytest.raises(CorruptIndexError, match="row 0 has version 65535"):
        segreader.scan(tmp_path).plan()
    assert len(judged) <= 20

    notes = segreader.scan(tmp_path, on_corrupt="skip").plan().notes
    assert len([note for note in notes if "txnindex" in note]) == 2
    assert any("and 4999 more of this kind" in note for note in notes)
