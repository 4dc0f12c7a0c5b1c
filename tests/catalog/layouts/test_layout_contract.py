"""Every layout gives the same records: the same logs in all of them, read in every way that a reader may ask."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

import fsspec
import pytest
from layout_writers import TOPICS, WAYS, Way, lay_out, log_of, rows_of, way

import segreader
from segreader.catalog.layouts.registry import all_layouts
from segreader.errors import CatalogError, StorageError
from segreader.format.compression import Codec
from segreader.stored.source import Catalog, LocationSource, open_source
from segreader.testing import SegmentBuilder

LEVELS = ("read_uncommitted", "read_committed")
TOLD = [one for one in WAYS if not one.is_pattern]
OF_ANY_FORMAT = [one for one in WAYS if one.layout != "redpanda"]
WITHOUT_EPOCHS = [one for one in WAYS if one.layout in ("log-directory", "pinterest", "early-s3")]
"""A remote tier takes no segment without a leader epoch; these do."""
ALIKE = {("pinterest", "log-directory"), ("log-directory", "pinterest")}
"""Plain files of the same names: either may be read as the other."""

Scanner = Callable[..., segreader.Scan | segreader.LiveScan]


@pytest.fixture(scope="module")
def root_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Way], Path]:
    """Where all logs lie in a layout."""
    root = tmp_path_factory.mktemp("layouts")
    return cache(lambda one: lay_out(root / one.name, one.files()))


@pytest.fixture
def scan(root_of: Callable[[Way], Path], tmp_path: Path) -> Scanner:
    """A scan over all logs in a layout, with what it needs to be read; a pattern has to be named."""

    def open_scan(one: Way, **how: Any) -> segreader.Scan | segreader.LiveScan:
        layout = how.pop("layout", one.layout if one.is_pattern else None)
        return segreader.scan(root_of(one), layout=layout, **one.arguments(tmp_path / "settings"), **how)

    return open_scan


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("one", WAYS, ids=str)
def test_all_records_come_back_and_no_others(one: Way, level: str, scan: Scanner) -> None:
    expected = one.rows(committed=level == "read_committed")
    assert len(expected) > 60
    for kernel, split_bytes in (("native", 1 << 30), ("reference", 1)):
        assert rows_of(scan(one, isolation_level=level, kernel=kernel, split_bytes=split_bytes)) == expected


@pytest.mark.parametrize("one", WAYS, ids=str)
def test_a_forced_layout_gives_the_same(one: Way, scan: Scanner) -> None:
    assert rows_of(scan(one, layout=one.layout, split_bytes=1)) == one.rows(committed=True)


@pytest.mark.parametrize("one", WAYS, ids=str)
def test_each_topic_alone_gives_its_records_and_each_partition_too(one: Way, scan: Scanner) -> None:
    for topic in TOPICS:
        assert rows_of(scan(one, topic=one.shown(topic))) == one.rows(topic, committed=True)
    for partition in TOPICS["orders.v2_x"]:
        alone = scan(one, topic=one.shown("orders.v2_x"), partitions=partition)
        assert rows_of(alone) == [row for row in one.rows("orders.v2_x") if row[1] == partition]


@pytest.mark.parametrize("one", WAYS, ids=str)
def test_a_range_of_offsets_gives_what_lies_in_it(one: Way, scan: Scanner) -> None:
    asked: list[tuple[str, tuple[int, int | None], bool, int]] = [
        ("a-1-0", (3, 14), True, 1),
        ("a-1-0", (10, None), False, 1),
        ("9", (9, 12), True, 1 << 30),
        ("a-1", (41, 46), False, 1),
    ]
    for topic, (start, stop), committed, split_bytes in asked:
        ranged = scan(
            one,
            topic=one.shown(topic),
            offsets=(start, stop),
            split_bytes=split_bytes,
            isolation_level=LEVELS[committed],
        )
        wanted = range(start, stop or 1 << 30)
        assert rows_of(ranged) == [row for row in one.rows(topic, committed=committed) if row[2] in wanted]


@pytest.mark.parametrize("one", WAYS, ids=str)
def test_an_undecided_transaction_ends_a_committed_read_and_the_plan_says_where(one: Way, scan: Scanner) -> None:
    (end,) = scan(one, topic=one.shown("a-1")).plan().ends
    first_open = next(
        record.offset for segment in log_of("a-1", 0) for record in segment.records if record.value == b"open 1"
    )
    if one.uploads_open:
        assert (end.offset, end.reason, end.producer_id) == (first_open, "open-transaction", 4)
    else:
        assert end.reason == "end-of-data"


@pytest.mark.parametrize("one", WAYS, ids=str)
def test_the_plan_says_which_layout_is_experimental(one: Way, scan: Scanner) -> None:
    told = [note for note in scan(one).plan().notes if "experimental" in note]
    assert bool(told) == one.is_experimental
    assert all(one.layout in note for note in told)


@pytest.mark.parametrize("one", TOLD, ids=str)
def test_a_layout_is_told_by_itself_in_every_partition(one: Way, root_of: Callable[[Way], Path]) -> None:
    source = open_source(root_of(one))
    assert isinstance(source, LocationSource)
    places = source.places()
    assert len(places) == sum(map(len, TOPICS.values()))
    assert {place.layout for place in places} == {one.told_as or one.layout}


@pytest.mark.parametrize("one", TOLD, ids=str)
def test_a_name_belongs_to_the_view_of_its_layout_only(one: Way, scan: Scanner) -> None:
    logs = {split.log for split in scan(one).plan().splits}
    views = {view.name: view.plain_files.fullmatch for view in all_layouts() if view.plain_files is not None}
    assert logs
    for log in logs:
        assert [name for name, matches in views.items() if matches(log)] == [one.layout] * (one.layout in views)


@pytest.mark.parametrize("one", TOLD, ids=str)
def test_a_wrong_layout_is_refused_with_its_name(one: Way, root_of: Callable[[Way], Path]) -> None:
    for layout in all_layouts():
        if layout.name == one.layout or (one.layout, layout.name) in ALIKE:
            continue
        with pytest.raises(CatalogError) as caught:
            source = open_source(root_of(one), catalog=Catalog(layout=layout.name))
            assert isinstance(source, LocationSource)
            source.places()
        assert layout.name in str(caught.value)


@pytest.mark.parametrize("one", [way("pinterest"), way("log-directory")], ids=str)
def test_layouts_that_look_alike_give_the_same_records_as_each_other(one: Way, scan: Scanner) -> None:
    for layout in ("pinterest", "log-directory"):
        assert rows_of(scan(one, layout=layout, topic="orders.v2_x")) == one.rows("orders.v2_x", committed=True)


@pytest.mark.parametrize("one", WAYS, ids=str)
def test_a_plan_is_the_same_each_time_and_after_a_journey(one: Way, scan: Scanner) -> None:
    plan = pickle.loads(pickle.dumps(scan(one, topic=one.shown("9")).plan()))
    assert plan == scan(one, topic=one.shown("9")).plan()
    assert {str(partition) for partition in plan.partitions} == {f"{one.shown('9')}-3"}


@pytest.fixture
def bucket() -> Iterator[str]:
    """A bucket in memory, of its own."""
    name = f"bucket-{uuid4().hex}"
    yield name
    memory = fsspec.filesystem("memory")
    if memory.exists(f"/{name}"):
        memory.rm(f"/{name}", recursive=True)


@pytest.mark.parametrize("one", WAYS, ids=str)
def test_a_bucket_gives_the_same(one: Way, bucket: str, tmp_path: Path) -> None:
    memory = fsspec.filesystem("memory")
    for name, data in one.files("a-1-0", "9").items():
        memory.pipe_file(f"/{bucket}/some/where/{name}", data)
    layout = one.layout if one.is_pattern else None
    for location in (f"memory://{bucket}", f"memory://{bucket}/some/where/"):
        opened = segreader.scan(location, layout=layout, **one.arguments(tmp_path / "settings"))
        with closing(opened):
            assert rows_of(opened) == one.rows("a-1-0", "9", committed=True)


@pytest.mark.parametrize("one", [one for one in WAYS if one.has_keys], ids=str)
def test_encrypted_segments_are_found_but_not_read_without_their_key(one: Way, root_of: Callable[[Way], Path]) -> None:
    bare = segreader.scan(root_of(one), topic="9", isolation_level="read_uncommitted")
    if "glued" in one.name:
        with pytest.raises(StorageError, match="topic '9' is not here"):
            bare.plan()
    else:
        with pytest.raises(CatalogError, match="its key is missing"):
            rows_of(bare)


def test_a_prefix_that_hides_the_topic_is_a_note_without_the_settings(root_of: Callable[[Way], Path]) -> None:
    one = way("aiven-glued")
    opened = segreader.scan(root_of(one), topic="tiered9")

    assert [row[1:] for row in rows_of(opened)] == [row[1:] for row in one.rows("9", committed=True)]
    (note,) = opened.plan().notes
    assert "topic tiered9, the manifests have 9" in note


def old_log(*, ends_new: bool) -> list[SegmentBuilder]:
    """Message sets of both old formats, then a batch of the new one or not. Old ones bear no leader epoch."""
    first = SegmentBuilder(5, leader_epoch=-1).message_set([b"a", b"b"], magic=0)
    first.message_set([b"c", b"d"], magic=1, codec=Codec.GZIP)
    second = first.roll().message_set([b"e"], magic=1)
    return [first, second.new_leader(1).batch([b"f", b"g"]) if ends_new else second]


@pytest.mark.parametrize(
    ("one", "ends_new"), [*((one, False) for one in OF_ANY_FORMAT), *((one, True) for one in WITHOUT_EPOCHS)], ids=str
)
def test_logs_of_old_formats_are_read(one: Way, ends_new: bool, tmp_path: Path) -> None:
    root = lay_out(tmp_path / "data", one.write("old", 0, old_log(ends_new=ends_new)))
    layout = one.layout if one.is_pattern else None
    opened = segreader.scan(root, layout=layout, split_bytes=1, **one.arguments(tmp_path / "settings"))
    expected = [(5 + at, b"abcdefg"[at : at + 1]) for at in range(7 if ends_new else 5)]

    assert [(row[2], row[7]) for row in rows_of(opened)] == expected


@pytest.mark.parametrize("name", ["local-tiered", "confluent", "early-s3"])
def test_splits_are_as_small_as_the_offset_index_allows(name: str, scan: Scanner) -> None:
    batches = sum(len(segment.batch_positions) for segment in log_of("a-1-0", 0))
    one = way(name)
    assert len(scan(one, topic=one.shown("a-1-0"), split_bytes=1).plan().splits) == batches
