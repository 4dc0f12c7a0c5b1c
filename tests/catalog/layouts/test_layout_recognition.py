"""What lies at a location: told apart, refused by name, or read although much else lies there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from operator import itemgetter
from pathlib import Path
from typing import Any
from uuid import uuid4

import fsspec
import pytest
from layout_writers import WAYS, Files, Way, lay_out, log_names, rows_of, way

import segreader
from segreader.catalog.layouts.registry import all_layouts
from segreader.errors import AmbiguousTopicError, ObjectNotFoundError, UnknownLayoutError
from segreader.stored.source import LocationSource, open_source
from segreader.testing import SegmentBuilder
from segreader.testing.directory import broker_log_files
from segreader.testing.layouts import early_s3_files

TOLD = [one for one in WAYS if not one.is_pattern]
FOREIGN = {"README.md": b"notes", ".hidden": b"x", "_SUCCESS": b"", ".DS_Store": b"\0", "backup.tar.gz": b"\x1f\x8b"}


def scan(root: Path | str, one: Way, settings: Path, **how: Any) -> segreader.Scan | segreader.LiveScan:
    return segreader.scan(root, **one.arguments(settings), **how)


def above(name: str) -> list[str]:
    """The directories over an object, the store's root among them, each ending in ``/``."""
    parts = name.split("/")[:-1]
    return ["/".join(parts[:count]) + "/" if count else "" for count in range(len(parts) + 1)]


@pytest.fixture
def bucket() -> Iterator[str]:
    """A bucket in memory, of its own."""
    name = f"bucket-{uuid4().hex}"
    fsspec.filesystem("memory").pipe_file(f"/{name}/placeholder", b"")
    yield name
    fsspec.filesystem("memory").rm(f"/{name}", recursive=True)


# Unknown


def test_an_empty_location_says_so(tmp_path: Path) -> None:
    with pytest.raises(UnknownLayoutError, match=r"no segments here; found no files.*Nothing was uploaded") as caught:
        segreader.scan(tmp_path).plan()
    assert caught.value.source == str(tmp_path)


def test_an_empty_bucket_says_so(bucket: str) -> None:
    fsspec.filesystem("memory").pipe_file(f"/{bucket}/elsewhere/a", b"")
    with closing(segreader.scan(f"memory://{bucket}/nothing/here")) as opened, pytest.raises(UnknownLayoutError):
        opened.plan()


def test_unknown_files_are_named_with_all_that_was_tried(tmp_path: Path) -> None:
    lay_out(tmp_path, {"a/b/one.parquet": b"PAR1", "a/two.csv": b"1,2"})
    with pytest.raises(UnknownLayoutError) as caught:
        segreader.scan(tmp_path).plan()
    text = str(caught.value)
    assert "2 files in 3 directories" in text
    assert "two.csv" in text
    assert all(layout.name in text for layout in all_layouts())


NEAREST = ("local-tiered", "log-directory", "aiven-plain", "pinterest", "early-s3", "confluent", "redpanda-bin")


@pytest.mark.parametrize("name", NEAREST)
def test_files_of_a_layout_in_a_place_where_it_has_none_lead_to_its_page(name: str, tmp_path: Path) -> None:
    one = way(name)
    flat = {f"stuff/{path.rpartition('/')[2]}": data for path, data in one.files("9").items()}
    with pytest.raises(UnknownLayoutError) as caught:
        segreader.scan(lay_out(tmp_path / "data", flat)).plan()
    assert f"docs/reference/layouts/{one.layout}.md" in (caught.value.hint or "")


def test_a_topic_that_is_not_there_is_no_unknown_layout(tmp_path: Path) -> None:
    for one in (way("local-tiered"), way("aiven-plain"), way("confluent"), way("redpanda-bin")):
        root = lay_out(tmp_path / one.name, one.files("9"))
        with pytest.raises(ObjectNotFoundError, match="topic 'nine' is not here") as caught:
            segreader.scan(root, topic="nine").plan()
        assert caught.value.found == one.shown("9")


# Where the location lies


@pytest.mark.parametrize("one", TOLD, ids=str)
def test_a_location_may_lie_anywhere_above_the_partitions(one: Way, tmp_path: Path) -> None:
    files = {f"prod/eu/my-cluster-1/kafka/{name}": data for name, data in one.files("9").items()}
    root = lay_out(tmp_path / "data", files)
    asked = [
        (root, None),
        (root, one.shown("9")),
        (root / "prod/eu", None),
        (root / "prod/eu/my-cluster-1/kafka", None),
    ]
    for location, topic in asked:
        assert rows_of(scan(location, one, tmp_path / "settings", topic=topic)) == one.rows("9", committed=True)


@pytest.mark.parametrize("one", TOLD, ids=str)
def test_a_directory_that_is_named_like_a_partition_is_looked_into(one: Way, tmp_path: Path) -> None:
    root = lay_out(tmp_path / "data", {f"my-cluster-1/{name}": data for name, data in one.files("a-1-0").items()})
    for location in (root, root / "my-cluster-1"):
        opened = scan(location, one, tmp_path / "settings", topic=one.shown("a-1-0"))
        assert rows_of(opened) == one.rows("a-1-0", committed=True)


WITH_DIRECTORY = [one for one in TOLD if one.layout not in ("confluent", "redpanda")]
"""Layouts that have all of a partition in one directory."""


@pytest.mark.parametrize("one", WITH_DIRECTORY, ids=str)
def test_a_partitions_own_directory_is_a_location(one: Way, tmp_path: Path) -> None:
    files = one.files("9")
    root = lay_out(tmp_path / "data", files)
    directory = (root / log_names(files)[0]).parent

    assert rows_of(scan(directory, one, tmp_path / "settings")) == one.rows("9", committed=True)


@pytest.mark.parametrize("one", WITH_DIRECTORY, ids=str)
def test_a_partitions_own_directory_in_a_bucket_is_a_location(one: Way, bucket: str, tmp_path: Path) -> None:
    files = one.files("9")
    for name, data in files.items():
        fsspec.filesystem("memory").pipe_file(f"/{bucket}/{name}", data)
    location = f"memory://{bucket}/{log_names(files)[0].rpartition('/')[0]}"
    with closing(scan(location, one, tmp_path / "settings")) as opened:
        assert rows_of(opened) == one.rows("9", committed=True)


@pytest.mark.parametrize("name", ["confluent", "redpanda-bin", "redpanda-labelled"])
def test_a_directory_with_only_some_of_a_partition_leads_to_the_layouts_page(name: str, tmp_path: Path) -> None:
    one = way(name)
    files = one.files("9")
    root = lay_out(tmp_path / "data", files)
    with pytest.raises(UnknownLayoutError, match=f"nearest to {one.layout}"):
        segreader.scan((root / log_names(files)[0]).parent).plan()


# What else lies there


@pytest.mark.parametrize("one", TOLD, ids=str)
def test_foreign_objects_disturb_nothing(one: Way, tmp_path: Path) -> None:
    files = one.files("a-1-0", "9")
    beside = {f"{path}{name}": data for key in files for path in above(key) for name, data in FOREIGN.items()}
    root = lay_out(tmp_path / "data", {**files, **beside, "other/thing/deep/readme.txt": b"x"})
    for topic in (None, "9"):
        topics = ("a-1-0", "9") if topic is None else (topic,)
        opened = scan(root, one, tmp_path / "settings", topic=topic and one.shown(topic))
        assert rows_of(opened) == one.rows(*topics, committed=True)


@pytest.mark.parametrize("one", TOLD, ids=str)
def test_markers_of_directories_disturb_nothing(one: Way, bucket: str, tmp_path: Path) -> None:
    files = one.files("9")
    memory = fsspec.filesystem("memory")
    for name, data in files.items():
        memory.pipe_file(f"/{bucket}/{name}", data)
    for path in {path for name in files for path in above(name) if path}:
        memory.pipe_file(f"/{bucket}/{path}{path.split('/')[-2]}_$folder$", b"")
        memory.pipe_file(f"/{bucket}/{path.removesuffix('/')}_$folder$", b"")
    with closing(scan(f"memory://{bucket}", one, tmp_path / "settings")) as opened:
        assert rows_of(opened) == one.rows("9", committed=True)


# Two layouts


def together(*parts: tuple[str, str]) -> Files:
    """Objects of some topics, each in its layout."""
    files: Files = {}
    for name, topic in parts:
        files |= way(name).files(topic)
    return files


def test_layouts_side_by_side_are_all_read(tmp_path: Path) -> None:
    parts = [("local-tiered", "9"), ("log-directory", "a-1-0"), ("aiven-zstd", "a-1"), ("uber", "orders.v2_x")]
    root = lay_out(tmp_path / "data", together(*parts))
    expected = sorted(
        (row for name, topic in parts for row in way(name).rows(topic, committed=True)), key=itemgetter(0, 1, 2)
    )

    assert rows_of(segreader.scan(root)) == expected
    source = open_source(root)
    assert isinstance(source, LocationSource)
    assert {place.layout for place in source.places()} == {"local-tiered", "log-directory", "aiven", "uber"}
    for name, topic in parts:
        assert rows_of(segreader.scan(root, topic=topic)) == way(name).rows(topic, committed=True)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("local-tiered", "log-directory"),
        ("local-tiered", "aiven-plain"),
        ("aiven-plain", "early-s3"),
        ("uber", "pinterest"),
        ("redpanda-bin", "local-tiered"),
    ],
)
def test_one_topic_in_two_layouts_is_refused_until_one_is_chosen(first: str, second: str, tmp_path: Path) -> None:
    root = lay_out(
        tmp_path / "data",
        {f"{name}/{key}": data for name in (first, second) for key, data in way(name).files("9").items()},
    )
    for topic in (None, "9"):
        with pytest.raises(AmbiguousTopicError) as caught:
            segreader.scan(root, topic=topic).plan()
        text = str(caught.value)
        assert way(first).layout in text
        assert way(second).layout in text
        assert "--layout" in text
    for one in (way(first), way(second)):
        assert rows_of(segreader.scan(root, layout=one.layout, topic="9")) == one.rows("9", committed=True)
        assert rows_of(segreader.scan(root / one.name)) == one.rows("9", committed=True)


def test_two_layouts_in_one_directory_are_refused_until_one_is_chosen(tmp_path: Path) -> None:
    old = SegmentBuilder().batch([b"old"])
    new = old.roll().batch([b"new"])
    root = lay_out(tmp_path / "data", early_s3_files("t", [old]) | broker_log_files("t", [new]))
    with pytest.raises(AmbiguousTopicError, match="t-0 is in one directory in two layouts: early-s3 and log-dir"):
        segreader.scan(root).plan()

    assert [row[7] for row in rows_of(segreader.scan(root, layout="early-s3"))] == [b"old"]
    assert [row[7] for row in rows_of(segreader.scan(root, layout="log-directory"))] == [b"new"]


def test_one_topic_below_two_clusters_is_refused_until_one_is_named(tmp_path: Path) -> None:
    one = way("early-s3")
    files = {f"{cluster}/{key}": data for cluster in ("blue", "green") for key, data in one.files("9").items()}
    root = lay_out(tmp_path / "data", files)
    with pytest.raises(AmbiguousTopicError, match=r"9-3 is here twice.*blue/9-3/.*green/9-3/"):
        segreader.scan(root).plan()

    assert rows_of(segreader.scan(root / "green")) == one.rows("9", committed=True)


# What vanishes


@pytest.mark.parametrize("one", WAYS, ids=str)
def test_a_segment_that_vanishes_between_plan_and_read_is_retentions_work(one: Way, tmp_path: Path) -> None:
    files = one.write("t", 0, ended())
    gone = object_of_second(one, files)
    expected = [row for segment in ended() for row in segment.records]
    for on_missing in ("fail", "skip"):
        root = lay_out(tmp_path / on_missing, files)
        opened = scan(
            root,
            one,
            tmp_path / "settings",
            layout=one.layout if one.is_pattern else None,
            isolation_level="read_uncommitted",
            on_missing=on_missing,
        )
        opened.plan()
        (root / gone).unlink()
        seen = []
        if on_missing == "fail":
            with pytest.raises(ObjectNotFoundError, match=r"\(offset 1\)\. .*etention") as caught:
                for record in opened.records():
                    seen.append(record.value)
            assert seen == [b"0"]
            assert caught.value.offset == 1
            assert gone.rpartition("/")[2] in str(caught.value)
        else:
            assert [record.value for record in opened.records()] == [
                record.value for record in expected if record.offset not in (1, 2)
            ]
            (missing,) = opened.metrics.missing
            assert (missing.start, missing.stop) == (1, 3)


def ended() -> list[SegmentBuilder]:
    """Three segments: offset 0, offsets 1 and 2, offset 3."""
    first = SegmentBuilder().batch([b"0"])
    second = first.roll().batch([b"1", b"2"])
    return [first, second, second.roll().batch([b"3"])]


def object_of_second(one: Way, files: Files) -> str:
    """The object with offsets 1 and 2."""
    alone = one.write("t", 0, ended()[1:2])
    logs = log_names(files)
    if one.layout == "redpanda":
        return sorted(logs, key=lambda name: int(name.rpartition("/")[2].partition("-")[0]))[1]
    (log,) = log_names(alone)
    assert log in logs
    return log
