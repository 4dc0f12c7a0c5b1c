"""A log that is replaced by one of the same size between plan and read: no reader takes it for the one planned."""

from __future__ import annotations

import os
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from layout_writers import WAYS, Way, lay_out, log_names, rows_of

import segreader
from segreader.errors import ObjectChangedError
from segreader.plan.request import ReadOptions
from segreader.plan.split import Split
from segreader.read.split_reader import read_split
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import write_broker_log, write_local_tiered

LISTED_WAYS = [way for way in WAYS if way.layout != "redpanda"]  # its manifests list no object, and no name comes twice


def opened(way: Way, root: Path, **more: Any) -> Any:
    return segreader.scan(
        root, topic=way.shown("orders.v2_x"), layout=way.layout, isolation_level="read_uncommitted",
        **way.arguments(root.parent / "settings"), **more,
    )  # fmt: skip


def upload_anew(file: Path, seconds: int = 1) -> None:
    """The same bytes under the same name, as a later upload leaves them."""
    status = file.stat()
    file.write_bytes(file.read_bytes())
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns + seconds * 10**9))


def read_all(splits: list[Split], store: Any) -> list[int]:
    return [
        row for one in splits for batch in read_split(one, store, ReadOptions()) for row in batch["offset"].to_pylist()
    ]


@pytest.mark.parametrize("way", LISTED_WAYS, ids=str)
def test_two_readers_of_one_plan_never_read_two_versions_of_a_log(way: Way, tmp_path: Path) -> None:
    files = way.files("orders.v2_x")
    root = lay_out(tmp_path / "root", files)
    with opened(way, root) as first, opened(way, root) as second:
        expected = rows_of(first)
        splits = list(first.plan().splits)
        assert all((split.log_tag is None) == split.is_active for split in splits)
        sent = pickle.loads(pickle.dumps(splits))
        assert sent == splits
        assert len(read_all(sent, second.store)) == len(expected)
        for name in log_names(files):
            upload_anew(root / name)
        for split in sent:
            if split.is_active:
                read_all([split], second.store)
                continue
            for store in (first.store, second.store):
                with pytest.raises(ObjectChangedError) as caught:
                    read_all([split], store)
                assert caught.value.expected == split.log_tag
                assert str(caught.value.found).startswith("mtime:")
                assert "plan again" in str(pickle.loads(pickle.dumps(caught.value)))
            assert read_all([replace(split, log_tag=None)], second.store)  # as an earlier version sent it
    with opened(way, root) as later:
        assert rows_of(later) == expected


def test_a_reader_that_remembers_chunks_of_a_replaced_log_does_not_serve_them(tmp_path: Path) -> None:
    way = next(way for way in WAYS if way.name == "aiven-one-chunk")
    files = way.files("orders.v2_x")
    root = lay_out(tmp_path / "root", files)
    with opened(way, root, offsets="3:5") as scan:
        splits = list(scan.plan().splits)
        inside = [replace(one, positions=replace(one.positions, stop=one.positions.stop - 1)) for one in splits]
        for one in inside:  # a part of the chunk: the rest of it is kept
            next(iter(scan.store.read_pieces(one.log, one.positions, expected_tag=one.log_tag)))
        for name in log_names(files):
            upload_anew(root / name)
        with opened(way, root, offsets="3:5") as later:
            tags = [one.log_tag for one in later.plan().splits]
        for one, tag in zip(inside, tags, strict=True):
            assert tag != one.log_tag
            with pytest.raises(ObjectChangedError):
                read_all([replace(one, log_tag="mtime:1")], scan.store)
            next(iter(scan.store.read_pieces(one.log, one.positions, expected_tag=tag)))


def test_a_log_that_a_broker_appends_to_is_read_on(tmp_path: Path) -> None:
    first = SegmentBuilder().batch([b"a"])
    second = first.roll().batch([b"b"])
    directory = write_broker_log(tmp_path, "t", [first, second])
    with segreader.scan(tmp_path) as scan:
        finished, active = scan.plan().splits
        with next(iter(sorted(directory.glob("*.log"), reverse=True))).open("ab") as log:
            log.write(second.to_bytes())
        assert (finished.is_active, active.is_active, active.log_tag) == (False, True, None)
        assert read_all([finished, active], scan.store) == [0, 1]


@pytest.mark.parametrize("on", [{"on_missing": "skip"}, {"on_corrupt": "skip"}, {"on_gap": "skip"}], ids=str)
def test_a_replaced_log_is_no_missing_or_damaged_one(on: dict[str, Any], tmp_path: Path) -> None:
    directory = write_local_tiered(tmp_path, "t", [SegmentBuilder().batch([b"a"])])
    with segreader.scan(tmp_path, **on) as scan:
        scan.plan()
        (log,) = directory.glob("*.log")
        upload_anew(log)
        with pytest.raises(ObjectChangedError, match=log.name):
            scan.to_arrow()
