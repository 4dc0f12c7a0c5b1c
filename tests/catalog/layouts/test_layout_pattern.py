from __future__ import annotations

import pickle

import pytest
from layout_walk import found_below, places_below, stored_in, three_segments

from segreader.catalog.layouts.pattern import PatternLayout, find_nested_repeat
from segreader.errors import OptionError
from segreader.segment import TopicIdPartition
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import broker_log_files, kafka_uuid, local_tiered_files
from segreader.testing.layouts import confluent_files, early_s3_files, linkedin_files, named_files, pinterest_files
from segreader.testing.stores import MemoryStore

BROKER = r"(?P<topic>[^/]+)-(?P<partition>[0-9]+)/(?P<offset>[0-9]{20})\.(?P<type>[a-z]+)"
LOCAL_TIERED = (
    r"(?P<topic>[^/]+)-(?P<partition>[0-9]+)-(?P<topic_id>[\w-]{22})/(?P<offset>[0-9]{20})-(?P<segment_id>[\w-]{22})"
    r"\.(?P<type>\w+)"
)
EARLY_S3 = r"(?P<topic>.+)-(?P<partition>\d+)/(?P<offset>\d{20})\.(?P<type>\w+)\.(?P<segment_id>[\w-]{22})"
LINKEDIN = r"(?P<topic_id>[0-9a-f-]{36})/(?P<partition>\d+)\.(?P<segment_id>[0-9a-f-]{36})\.(?P<type>[A-Z_]+)"
CONFLUENT = (
    r"0/(?P<segment_id>[\w-]{22})/(?P<topic_id>[\w-]{22})/(?P<partition>\d+)/(?P<offset>\d{20})_\d+_v\d+\.(?P<type>.+)"
)


@pytest.mark.parametrize(
    ("text", "files", "topic_id"),
    [
        (BROKER, pinterest_files("a-1.b_2", three_segments(), partition=3), None),
        (BROKER, broker_log_files("a-1.b_2", three_segments(), partition=3), None),
        (LOCAL_TIERED, local_tiered_files("a-1.b_2", three_segments(), partition=3), kafka_uuid("a-1.b_2")),
        (EARLY_S3, early_s3_files("a-1.b_2", three_segments(), partition=3), None),
    ],
)
def test_a_pattern_reads_what_other_layouts_read(text: str, files: dict[str, bytes], topic_id: str | None) -> None:
    store = MemoryStore(files)
    (found,) = found_below(store, PatternLayout.compile(text))
    assert found.place.partition == TopicIdPartition("a-1.b_2", 3, topic_id)
    assert found.bases == [100, 143, 185]
    for segment, one in zip(found.segments, three_segments(), strict=True):
        assert stored_in(store, segment.files.log) == one.to_bytes()
        assert stored_in(store, segment.files.offset_index) == one.index()


@pytest.mark.parametrize("text", [LINKEDIN, CONFLUENT])
def test_a_topic_without_a_name_bears_its_id(text: str) -> None:
    make = linkedin_files if text == LINKEDIN else confluent_files
    store = MemoryStore(make("orders", three_segments(), topic_id="Q67Kf6aES2C_-Js7eDaRuw"))
    (found,) = found_below(store, PatternLayout.compile(text))
    assert found.place.partition.topic_id == "Q67Kf6aES2C_-Js7eDaRuw"
    assert found.place.partition.topic in ("Q67Kf6aES2C_-Js7eDaRuw", "43aeca7f-a684-4b60-bff8-9b3b783691bb")
    assert found.bases == [100, 143, 185]
    assert stored_in(store, found.segments[0].files.producer_snapshot) == three_segments()[0].snapshot()
    assert stored_in(store, found.segments[0].files.leader_epochs) == three_segments()[0].leader_epoch_checkpoint()
    assert not found.segments[2].is_active


def test_files_without_segment_ids_may_be_a_brokers() -> None:
    (found,) = found_below(MemoryStore(broker_log_files("t", three_segments())), PatternLayout.compile(BROKER))
    assert [segment.is_active for segment in found.segments] == [False, False, True]
    assert {segment.files.producer_snapshot for segment in found.segments} == {None}
    assert found.files.incomplete == []
    assert found.files.foreign == ["t-0/leader-epoch-checkpoint", "t-0/partition.metadata"]


def test_everything_below_is_found_in_one_listing_whatever_its_depth() -> None:
    built = three_segments()
    objects = {f"x/{name}": data for name, data in broker_log_files("t", built[:1]).items()}
    objects |= {f"y/z/{name}": data for name, data in broker_log_files("t", built[1:]).items()}
    objects |= broker_log_files("u", built, partition=9)
    store = MemoryStore(objects)
    layout = PatternLayout.compile(BROKER)
    places = places_below(store, layout)
    assert store.requests == ["LEVEL ", "LIST "]
    assert {str(place.partition): place.prefixes for place in places} == {
        "t-0": ("x/t-0/", "y/z/t-0/"),
        "u-9": ("u-9/",),
    }
    assert sorted(one.base_offset for one in layout.find(store, places[0]).segments) == [100, 143, 185]


def test_names_of_ones_own_are_read() -> None:
    kinds = {"log": "SEGMENT", "index": "offset_index", "timeindex": "TimeStamp-Index", "txnindex": "transaction-index"}
    files = named_files(
        three_segments(), lambda base, kind: f"day=1/p3/{base:08d}@abc{base}.{kinds.get(kind, 'producer-state')}"
    )
    text = r"day=\d/p(?P<partition>\d+)/(?P<offset>\d+)@(?P<segment_id>\w+)\.(?P<type>.+)"
    with pytest.raises(OptionError, match="topic"):
        PatternLayout.compile(text)
    (found,) = found_below(MemoryStore(files), PatternLayout.compile(text.replace(r"day=\d", r"(?P<topic>day=\d)")))
    assert (found.place.partition.topic, found.bases) == ("day=1", [100, 143, 185])
    first = found.segments[0]
    assert (first.segment_id, first.files.time_index) == ("abc100", "day=1/p3/00000100@abc100.TimeStamp-Index")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("(", "not a valid regular expression"),
        ("(?P<topic>x){99999999999}", "not a valid regular expression"),
        ("x", "no named group"),
        (r"(?P<topic>.+)-(?P<partition>\d+)/(?P<offset>\d+)", r"\(\?P<type>…\)"),
        (r"(?P<partition>\d+)/(?P<offset>\d+)\.(?P<type>.+)", "topic.* or .*topic_id"),
        (r"(?P<topic>.+)-(?P<partition>\d+)\.(?P<type>.+)", "offset.* or .*segment_id"),
        (r"(?P<topic>.+)-(?P<partition>\d+)/(?P<offset>\d+)\.(?P<type>.+)(?P<tpoic>x)", "tpoic"),
        (r"(?P<topic>(a+)+)-(?P<partition>\d+)/(?P<offset>\d+)\.(?P<type>.+)", r"exponential time"),
    ],
)
def test_a_pattern_that_cannot_work_is_refused_with_what_is_wrong(text: str, says: str) -> None:
    with pytest.raises(OptionError, match=says):
        PatternLayout.compile(text)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (r"(a+)+", "(a+)+"),
        (r"x(?:a*b)*y", "(?:a*b)*"),
        (r"(?P<n>(a|b{2,}))+", "(?P<n>(a|b{2,}))+"),
        (r"((a+))*?", "((a+))*?"),
        (r"(?i:a+)+", "(?i:a+)+"),
        (r"(a+){3,}", "(a+){3,}"),
        (r"[(]a+[)]+", None),
        (r"\(a+\)+", None),
        (r"(a+)(b+)", None),
        (r"(a{2,3})+", None),
        (r"(a+){3}", None),
        (r"(?>a+)+", None),
        (r"(a++)+", None),
        (r"(?:.*/)?x+", None),
        (r"[]+(]+(a)+", None),
    ],
)
def test_a_repetition_in_a_repetition_is_found(text: str, found: str | None) -> None:
    assert find_nested_repeat(text) == found


def test_long_names_and_groups_that_make_no_sense_are_foreign() -> None:
    layout = PatternLayout.compile(r"(?P<topic>.*)-(?P<partition>.*)/(?P<offset>.*)\.(?P<type>.*)")
    assert layout.parse("t-0/5.log") is not None
    assert layout.parse("t-007/005.log") is not None
    for name in (
        "t-x/5.log",
        "t-2147483648/5.log",
        "t-0/.log",
        "t-0/-5.log",
        "t-0/9223372036854775808.log",
        "t-0/5.jpg",
        "-0/5.log",
        "t-٣/5.log",
        "t-0/5." + "x" * 1020,
        "t-0/" + "5" * 1000 + ".log",
        "\ud800\n",
    ):
        assert layout.parse(name) is None, name


def test_a_hostile_name_is_matched_as_far_as_a_name_may_be_long() -> None:
    layout = PatternLayout.compile(r"(?P<topic>.*)-(?P<partition>\d*)/(?P<offset>\d*)\.(?P<type>.*)")
    for name in ("-1/" * 341, "-" * 2_000_000, "t-0/5.log" + "-1/" * 1_000_000):
        assert layout.parse(name) is None


def test_an_offset_that_no_name_says_is_read_from_the_first_batch() -> None:
    layout = PatternLayout.compile(r"(?P<topic>\w+)-(?P<partition>\d+)/(?P<segment_id>\w+)\.(?P<type>\w+)")
    built = SegmentBuilder(700).batch([b"x"])
    (found,) = found_below(MemoryStore({"t-0/a.log": built.to_bytes(), "t-0/b.index": b""}), layout)
    assert found.bases == [700]
    assert [one.base_offset for one in found.files.incomplete] == [-1]


@pytest.mark.parametrize("before", ["", "a/", "bucket-1/x-2/", "/", "//a//"])
def test_where_the_location_lies_is_no_part_of_a_pattern(before: str) -> None:
    layout = PatternLayout.compile(r"(?P<topic>.+)-(?P<partition>\d+)/(?P<offset>\d+)\.(?P<type>.+)")
    name = layout.parse(f"{before}t-1-0/5.log")
    assert name is not None
    assert name.partition == TopicIdPartition("t-1", 0)
    assert layout.parse(f"{before}t-1-0/5.log/") is None


def test_a_second_file_of_one_kind_is_foreign() -> None:
    layout = PatternLayout.compile(BROKER)
    (found,) = found_below(MemoryStore({f"t-0/{5:020d}.log": b"", f"t-0/{5:020d}.segment": b""}), layout)
    assert (found.bases, found.files.foreign) == ([5], [f"t-0/{5:020d}.segment"])


def test_of_very_many_foreign_objects_the_first_are_named_and_all_are_counted() -> None:
    objects = {f"t-0/{at}.jpg": b"" for at in range(1200)} | {f"t-0/{5:020d}.log": b""}
    (found,) = found_below(MemoryStore(objects), PatternLayout.compile(BROKER))
    assert len(found.files.foreign) == 1000
    assert any(note.startswith("1200 objects belong to no segment") for note in found.files.notes)


def test_the_layout_is_a_value_that_travels() -> None:
    layout = PatternLayout.compile(BROKER)
    assert pickle.loads(pickle.dumps(layout)) == layout
    assert (layout.name, layout.is_experimental, layout.partition_of("t-0/")) == ("pattern", False, None)
