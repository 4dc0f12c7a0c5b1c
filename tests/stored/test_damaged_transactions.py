"""Every row of every transaction index removed and changed: what comes is right, or an error says what is wrong."""

from __future__ import annotations

import random
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from corpus import Case, NormalRecord, cases, normal
from sample import at_each_edge_once

import segreader
from segreader.errors import FormatError

_ROW = struct.Struct(">hqqqq")
FIELDS = {"producer id": 1, "first offset": 2, "last offset": 3}


def indexes(case: Case) -> list[Path]:
    return [file for place in case.remote for file in sorted(place.glob("*.txnindex"))]


TRANSACTIONAL = [
    case for case in cases("tv1", "tv2", "k39", "cluster", remote=True) if indexes(case) and case.topic != "recreated"
]


def changed(data: bytes) -> Iterator[tuple[str, bytes | None]]:
    """The file gone, empty, without each of its rows, and with each of their fields changed."""
    rows = [_ROW.unpack(data[at : at + _ROW.size]) for at in range(0, len(data), _ROW.size)]
    yield "gone", None
    yield "empty", b""
    for number, row in enumerate(rows):
        if len(rows) > 1:
            yield f"row {number} gone", b"".join(_ROW.pack(*one) for one in (*rows[:number], *rows[number + 1 :]))
        for name, field in FIELDS.items():
            for step in (-7, -1, 1, 7):
                other = (*row[:field], row[field] + step, *row[field + 1 :])
                some = (*rows[:number], other, *rows[number + 1 :])
                yield f"{name} of row {number} {step:+}", b"".join(_ROW.pack(*one) for one in some)


def read(root: Path, **arguments: Any) -> tuple[list[NormalRecord], FormatError | None]:
    seen: list[NormalRecord] = []
    try:
        seen.extend(map(normal, segreader.scan(root, **arguments).records()))
    except FormatError as error:
        return seen, error
    return seen, None


@pytest.mark.parametrize("case", at_each_edge_once(TRANSACTIONAL), ids=str)
def test_a_changed_transaction_index_gives_the_right_records_or_an_error(case: Case, tmp_path: Path) -> None:
    """Whole, cut into splits, and by ranges; before the error nothing wrong was given."""
    chance = random.Random(str(case))
    known: dict[str, Any] = {"leader_epochs": case.root / "local"} if case.topic == "diverged-hanging" else {}
    whole, _ = read(case.remote_root, topic=case.topic, topic_id=case.topic_id, **known)  # as consumers get them
    last = max(record.offset for record in case.truth("uncommitted"))
    for place in case.remote:
        shutil.copytree(place, tmp_path / case.remote_root.name / place.name)
    index = chance.choice(indexes(case))
    copy, errors = next(tmp_path.rglob(index.name)), 0
    for what, data in changed(index.read_bytes()):
        copy.unlink(missing_ok=True)
        if data is not None:
            copy.write_bytes(data)
        start = chance.randint(0, last)
        stop = chance.randint(start, last + 2)
        for arguments in ({}, {"split_bytes": 1}, {"offsets": (start, stop)}):
            expected = [one for one in whole if "offsets" not in arguments or start <= one.offset < stop]
            seen, error = read(tmp_path, **known, **arguments)
            assert seen == (expected if error is None else expected[: len(seen)]), (what, arguments)
            errors += error is not None
    assert errors


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("split_bytes", [1, 1 << 27])
def test_skipping_damage_shows_no_aborted_record_whose_marker_is_behind_the_range(
    tmp_path: Path, split_bytes: int, threads: int
) -> None:
    (case,) = (one for one in cases("tv1", remote=True) if one.topic == "epochs-txn")
    asked: dict[str, Any] = {"topic": case.topic, "split_bytes": split_bytes, "threads": threads}
    shutil.copytree(case.root / "remote", tmp_path / "b")
    next((tmp_path / "b").rglob("epochs-txn-0-*/00000000000000000070-*.txnindex")).unlink()
    for stop in range(43, 54, 2):
        sound, _ = read(case.root / "remote", offsets=f"22:{stop}", **asked)
        scan = segreader.scan(tmp_path / "b", offsets=f"22:{stop}", on_corrupt="skip", **asked)
        given = [*map(normal, scan.records())]
        assert given == sound[: len(given)]
        assert [one.offset for one in given] == [one.offset for one in sound if one.offset < 42]
        assert any("records from offset 42 on are left out" in note for note in scan.metrics.notes)
        assert scan.metrics.doubts
