"""``segreader ls`` says what lies at a location, and asks for nothing that it was not asked for."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiven_vectors import objects, with_manifest
from corpus import CORPUS, FIXTURES, case

from segreader.cli.main import main
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import (
    broker_log_files,
    kafka_uuid,
    local_tiered_files,
    write_broker_log,
    write_local_tiered,
)
from segreader.testing.records import FIRST_TIMESTAMP_MS
from segreader.testing.stores import MemoryStore

DEMO_ID, OTHER_ID = "MWJ6FHTfRYy67jzwZdeqSQ", "Ab_zLKzGSBGnbdMNhqTJrw"
SEGMENT_ID = "tqimKeZwStOEOwRzT3L5oQ"


class Ls:
    """Runs the command in this process."""

    def __init__(self, captured: pytest.CaptureFixture[bytes]) -> None:
        self._captured = captured

    def __call__(self, *arguments: object) -> tuple[int, list[dict[str, Any]], str]:
        code = main(["ls", *map(str, arguments), "-o", "ndjson"])
        out, err = self._captured.readouterr()
        return int(code), [json.loads(line) for line in out.splitlines()], err.decode()

    def rows(self, *arguments: object) -> list[dict[str, Any]]:
        """The rows, where all goes well."""
        code, rows, err = self(*arguments)
        assert code == 0, err
        return rows

    def table(self, *arguments: object) -> str:
        """What a terminal is shown."""
        assert main(["ls", *map(str, arguments), "-o", "table"]) == 0
        return self._captured.readouterr().out.decode()


@pytest.fixture
def ls(capsysbinary: pytest.CaptureFixture[bytes]) -> Ls:
    return Ls(capsysbinary)


def three_segments() -> list[SegmentBuilder]:
    """Offsets 0 to 5, 6 to 7 and 8; a batch each time."""
    first = SegmentBuilder(leader_epoch=4).batch([b"a"] * 3).batch([b"b"] * 3)
    second = first.roll().new_leader(5).batch([b"c"] * 2)
    return [first, second, second.roll().batch([b"d"])]


def aiven(topic: str, topic_id: str, partition: int = 0) -> dict[str, bytes]:
    """A segment of the plugin that belongs to this partition, encrypted."""
    stem = f"tiered/{topic}-{topic_id}/{partition}/00000000000000000500-{SEGMENT_ID}"
    stored = objects("both", stem)
    told = json.loads(stored[f"{stem}.rsm-manifest"])
    told["remoteLogSegmentMetadata"]["remoteLogSegmentId"]["topicIdPartition"] = {
        "topicId": topic_id,
        "topicPartition": {"topic": topic, "partition": partition},
    }
    return with_manifest(stored, told, stem)


def gets(store: MemoryStore) -> list[str]:
    """What was read."""
    return [request.split()[1] for request in store.requests if request.startswith("GET ")]


def test_a_location_has_a_row_for_each_topic_id(tmp_path: Path, ls: Ls) -> None:
    segments = three_segments()
    sizes = [len(segment.to_bytes()) for segment in segments]
    write_local_tiered(tmp_path, "a", segments)
    write_local_tiered(tmp_path, "a", segments[:1], partition=7)
    write_local_tiered(tmp_path, "a", segments[:2], topic_id=OTHER_ID)
    write_broker_log(tmp_path, "b", segments)

    times: dict[str, object] = {
        "first_indexed_timestamp": FIRST_TIMESTAMP_MS + 5,
        "max_timestamp": FIRST_TIMESTAMP_MS + 8,
    }
    common: dict[str, object] = {"is_experimental": False, "states": None}
    of_a: dict[str, object] = {"topic": "a", "layouts": ["local-tiered"], **common}
    rows = ls.rows(tmp_path)
    assert [row.pop("bytes_per_day") for row in rows] == [
        row["size"] * 86_400_000 // (row["max_timestamp"] - row["first_indexed_timestamp"]) for row in rows
    ]
    assert rows == sorted(
        [
            {**of_a, "topic_id": kafka_uuid("a"), "partitions": 2, "segments": 4, "size": sum(sizes) + sizes[0]}
            | times,
            {**of_a, "topic_id": OTHER_ID, "partitions": 1, "segments": 2, "size": sum(sizes[:2])}
            | times
            | {"max_timestamp": FIRST_TIMESTAMP_MS + 7},
            {"topic": "b", "topic_id": None, "partitions": 1, "segments": 3, "size": sum(sizes)}
            | {"layouts": ["log-directory"], **common}
            | times,
        ],
        key=lambda row: (row["topic"], row["topic_id"] or ""),
    )


def test_a_topic_has_a_row_for_each_partition(tmp_path: Path, ls: Ls) -> None:
    segments = three_segments()
    directory = write_local_tiered(tmp_path, "a", segments, partition=3)
    write_local_tiered(tmp_path, "a", segments[:1], partition=10)
    next(directory.glob("*6-*.log")).unlink()
    (directory / "who.knows").touch()

    rows = ls.rows(tmp_path, "a")

    assert [row["partition"] for row in rows] == [3, 10]
    size = sum(len(segment.to_bytes()) for segment in (segments[0], segments[2]))
    assert rows[0] == {
        "topic": "a",
        "partition": 3,
        "topic_id": kafka_uuid("a"),
        "layout": "local-tiered",
        "is_experimental": False,
        "segments": 2,
        "size": size,
        "bytes_per_day": size * 86_400_000 // 3,
        "start_offset": 0,
        "stop_offset": 9,
        "first_indexed_timestamp": FIRST_TIMESTAMP_MS + 5,
        "max_timestamp": FIRST_TIMESTAMP_MS + 8,
        "incomplete": 1,
        "foreign": 1,
        "states": None,
        "error": None,
    }


def test_a_partition_has_a_row_for_each_segment(tmp_path: Path, ls: Ls) -> None:
    segments = three_segments()
    write_local_tiered(tmp_path, "a", segments)

    rows = ls.rows(tmp_path, "a/0")

    assert [(row["base_offset"], row["last_offset"], row["size"]) for row in rows] == [
        (0, 5, len(segments[0].to_bytes())),
        (6, 7, len(segments[1].to_bytes())),
        (8, 8, len(segments[2].to_bytes())),
    ]
    assert [row["max_timestamp"] - FIRST_TIMESTAMP_MS for row in rows] == [5, 7, 8]
    assert [row["leader_epochs"] for row in rows] == [
        [{"epoch": 4, "first_offset": 0}],
        [{"epoch": 5, "first_offset": 6}],
        [{"epoch": 5, "first_offset": 8}],
    ]
    assert all(row["kind"] == "segment" and row["object"].endswith(".log") for row in rows)
    assert [row["segment_id"] for row in rows] == [kafka_uuid("a", 0, kafka_uuid("a"), base) for base in (0, 6, 8)]
    assert ls.rows(tmp_path, "--topic", "a", "--partition", "0") == rows


def test_what_is_no_whole_segment_is_shown_if_all_is_wanted(tmp_path: Path, ls: Ls) -> None:
    directory = write_local_tiered(tmp_path, "a", three_segments())
    next(directory.glob("*6-*.log")).unlink()
    next(directory.glob("*8-*.timeindex")).unlink()
    (directory / "who.knows").touch()

    code, some, err = ls(tmp_path, "a/0")
    everything = ls.rows(tmp_path, "a/0", "--all")

    assert (code, [row["base_offset"] for row in some]) == (0, [0, 8])
    assert "2 incomplete sets and foreign objects are not shown" in err
    (directory / "who.knows").unlink()
    assert "1 incomplete set or foreign object is not shown" in ls(tmp_path, "a/0")[2]
    (directory / "who.knows").touch()
    assert [(row["kind"], row["base_offset"], row["missing"]) for row in everything] == [
        ("segment", 0, []),
        ("incomplete", 6, ["log"]),
        ("segment", 8, ["timeindex"]),
        ("foreign", None, []),
    ]
    assert everything[3]["object"] == str(directory / "who.knows")


def test_offsets_that_another_history_has_written_are_named_with_the_reason(ls: Ls) -> None:
    diverged = case("cluster", "diverged")
    rows = ls.rows(diverged.remote_root, "diverged/0")

    dropped = [(row["base_offset"], one) for row in rows for one in row["dropped"]]
    assert dropped == [
        (30, {"start_offset": 30, "stop_offset": 60, "reason": "diverged"}),
        (90, {"start_offset": 90, "stop_offset": 114, "reason": "duplicate"}),
        (90, {"start_offset": 114, "stop_offset": 120, "reason": "diverged"}),
        (120, {"start_offset": 120, "stop_offset": 150, "reason": "diverged"}),
    ]


def test_the_metadata_topic_tells_the_state_of_each_segment_and_which_are_gone(ls: Ls) -> None:
    root, metadata = case("tv2", "retention").root, CORPUS / "tv2" / "metadata"
    location = root / "remote"

    (retention,) = ls.rows(location, "retention", "--metadata", metadata)
    states = {row["topic_id"]: row["states"] for row in ls.rows(location, "recreated", "--metadata", metadata)}
    segments = ls.rows(location, "retention/0", "--metadata", metadata)

    assert retention["states"] == {"COPY_SEGMENT_FINISHED": 3, "DELETE_SEGMENT_FINISHED": 2}
    recreated = case("tv2", "recreated")
    assert states[recreated.topic_id] == {"COPY_SEGMENT_FINISHED": 2}
    assert states[recreated.facts["old_topic_id"]] == {"DELETE_SEGMENT_FINISHED": 3}
    assert [row["state"] for row in segments] == ["COPY_SEGMENT_FINISHED"] * 3
    topics = {row["topic_id"]: row["states"] for row in ls.rows(location, "--metadata", metadata)}
    assert topics[recreated.topic_id] == {"COPY_SEGMENT_FINISHED": 2}


def test_the_metadata_topic_alone_tells_the_same_segments(ls: Ls) -> None:
    set_ = CORPUS / "aiven-zstd"
    alone = ["--metadata", set_ / "metadata", "--segments-from", "metadata"]

    listed = ls.rows(set_ / "remote", "bigger/0")
    told = ls.rows(set_ / "remote", "bigger/0", *alone)

    assert [row | {"state": None} for row in told] == listed
    assert ls.rows(set_ / "remote", "bigger", *alone)[0]["size"] == sum(row["size"] for row in listed)


def test_topics_are_listed_without_reading_a_manifest_if_no_times_are_wanted(
    ls: Ls, bucket: Callable[..., MemoryStore]
) -> None:
    stored = aiven("demo", DEMO_ID) | aiven("demo", DEMO_ID, 1) | aiven("other", OTHER_ID)
    store = bucket(stored)

    rows = ls.rows("s3://bucket", "--no-times")

    log_size = len(stored[f"tiered/demo-{DEMO_ID}/0/00000000000000000500-{SEGMENT_ID}.log"])
    assert [(row["topic"], row["partitions"], row["segments"], row["size"]) for row in rows] == [
        ("demo", 2, 2, 2 * log_size),
        ("other", 1, 1, log_size),
    ]
    assert gets(store) == []


def test_of_a_topic_only_the_manifests_and_indexes_at_its_ends_are_read(
    ls: Ls, bucket: Callable[..., MemoryStore]
) -> None:
    remote = CORPUS / "aiven-plain" / "remote"
    stored = {path.relative_to(remote).as_posix(): path.read_bytes() for path in remote.rglob("*") if path.is_file()}
    store = bucket(stored)

    (row,) = [row for row in ls.rows("s3://bucket") if row["topic"] == "codec-none"]

    bases = {name.rpartition("/")[2][:20] for name in gets(store) if "codec-none" in name}
    (partition,) = ls.rows(remote, "codec-none")
    times = ("first_indexed_timestamp", "max_timestamp", "bytes_per_day")
    assert {name: row[name] for name in times[:2]} == {name: partition[name] for name in times[:2]}
    assert row["bytes_per_day"]
    assert row["segments"] > 2
    assert len(bases) == 2


def test_only_the_manifests_of_what_is_asked_for_are_read(ls: Ls, bucket: Callable[..., MemoryStore]) -> None:
    store = bucket(aiven("demo", DEMO_ID) | aiven("demo", DEMO_ID, 1) | aiven("other", OTHER_ID))

    rows = ls.rows("s3://bucket", "demo")
    assert [(row["start_offset"], row["stop_offset"], row["size"]) for row in rows] == [(500, 502, 160)] * 2
    assert not [name for name in gets(store) if "/demo-" not in name or name.endswith(".log")]

    store.requests.clear()
    ls.rows("s3://bucket", "demo/1")
    assert not [name for name in gets(store) if f"/demo-{DEMO_ID}/1/" not in name or name.endswith(".log")]


def test_a_topic_costs_nothing_of_another_one(ls: Ls, bucket: Callable[..., MemoryStore]) -> None:
    segments = three_segments()
    others = {name: data for n in range(30) for name, data in local_tiered_files(f"x{n}", segments[:1]).items()}
    store = bucket(others | local_tiered_files("orders", segments) | local_tiered_files("orders-old", segments))

    ls.rows("s3://bucket", "orders")

    folder = f"orders-0-{kafka_uuid('orders')}/"
    assert all(request.split()[1].startswith(("orders-", folder)) for request in store.requests)
    # where the last log ends, whose index is empty, and the times at both ends
    assert sorted(name.rpartition(".")[2] for name in gets(store)) == ["log", "timeindex", "timeindex"]


def test_encrypted_segments_are_listed_without_their_keys(ls: Ls) -> None:
    remote = CORPUS / "aiven-encrypted" / "remote"

    (partition,) = ls.rows(remote, "bigger")
    code, segments, err = ls(remote, "bigger/0")

    assert (partition["start_offset"], partition["stop_offset"], partition["segments"]) == (0, 1600, 2)
    assert (code, [(row["base_offset"], row["last_offset"]) for row in segments]) == (0, [(0, 599), (600, 1599)])
    assert "--rsm-config" in err
    assert ls.rows(remote, "bigger/0", "--rsm-config", FIXTURES / "aiven-encrypted.properties") == segments


def test_a_partition_that_cannot_be_looked_at_does_not_hide_the_others(
    ls: Ls, bucket: Callable[..., MemoryStore]
) -> None:
    stem = f"tiered/demo-{DEMO_ID}/0/00000000000000000500-{SEGMENT_ID}"
    bucket(aiven("demo", DEMO_ID) | {f"{stem}.rsm-manifest": b"{"} | aiven("demo", DEMO_ID, 1))

    code, rows, err = ls("s3://bucket", "demo")

    assert (code, [row["segments"] for row in rows]) == (1, [None, 1])
    assert f"{stem}.rsm-manifest" in rows[0]["error"]
    assert err == f"error: {rows[0]['error']}\n"


def test_a_broker_still_writes_to_the_last_segment_of_its_log_directory(
    ls: Ls, bucket: Callable[..., MemoryStore]
) -> None:
    bucket(broker_log_files("a", three_segments(), preallocated=4096))

    (row,) = ls.rows("s3://bucket", "a")
    segments = ls.rows("s3://bucket", "a/0")

    assert (row["start_offset"], row["stop_offset"], row["first_indexed_timestamp"]) == (0, 9, FIRST_TIMESTAMP_MS + 5)
    assert [one["is_active"] for one in segments] == [False, False, True]
    assert segments[2]["last_offset"] == 8


def test_segments_of_a_log_directory_beside_are_shown_behind_those_of_the_remote_tier(tmp_path: Path, ls: Ls) -> None:
    segments = three_segments()
    write_local_tiered(tmp_path / "remote", "a", segments[:2])
    write_broker_log(tmp_path / "local", "a", segments[1:])

    rows = ls.rows(tmp_path / "remote", "a/0", "--log-directory", tmp_path / "local")

    live = [(row["base_offset"], "remote" in row["object"]) for row in rows if not row["dropped"]]
    assert live == [(0, True), (6, True), (8, False)]


def test_damage_at_the_end_leaves_the_end_open(tmp_path: Path, ls: Ls) -> None:
    directory = write_local_tiered(tmp_path, "a", three_segments())
    log = next(directory.glob("*8-*.log"))
    log.write_bytes(b"\xff" * 200)
    next(directory.glob("*8-*.timeindex")).write_bytes(b"\0" * 5)

    (row,) = ls.rows(tmp_path, "a")

    assert (row["start_offset"], row["stop_offset"], row["max_timestamp"]) == (0, None, None)
    assert ls.rows(tmp_path, "a/0")[2]["last_offset"] is None


def test_one_partition_s_directory_is_a_location(tmp_path: Path, ls: Ls) -> None:
    directory = write_local_tiered(tmp_path, "a", three_segments())

    assert [row["topic"] for row in ls.rows(directory)] == ["a"]
    assert len(ls.rows(directory, "a/0")) == 3


def test_a_properties_file_can_stand_in_for_the_location(tmp_path: Path, ls: Ls) -> None:
    shutil.copytree(CORPUS / "aiven-plain" / "remote", tmp_path / "bucket")
    config = tmp_path / "server.properties"
    backend = "io.aiven.kafka.tieredstorage.storage.filesystem.FileSystemStorage"
    config.write_text(f"rsm.config.storage.backend.class={backend}\nrsm.config.storage.root={tmp_path / 'bucket'}\n")

    rows = ls.rows("--rsm-config", config)

    assert rows == ls.rows(tmp_path / "bucket")
    assert ls.rows("--rsm-config", config, "--topic", rows[0]["topic"])[0]["topic"] == rows[0]["topic"]


def test_tables_say_the_same_for_eyes(tmp_path: Path, ls: Ls) -> None:
    directory = write_local_tiered(tmp_path, "a", three_segments())
    next(directory.glob("*6-*.log")).unlink()

    assert "local-tiered" in ls.table(tmp_path)
    assert re.search(r"a-0 +2 .* 0 +9  20", ls.table(tmp_path, "a"))
    segments = ls.table(tmp_path, "a/0", "--all")
    assert segments.startswith(f"in {directory}/\n")
    assert "no log" in segments
    assert "finished" in segments
    diverged = ls.table(case("cluster", "diverged").remote_root, "diverged/0")
    assert "diverged from 30 to 59" in diverged


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([], 2, "LOCATION"),
        (["{}", "b"], 3, "topic 'b' is not here; found a"),
        (["{}", "a/4"], 3, "partition 4 of topic 'a' is not here"),
        (["{}", "a/x"], 2, "name/partition"),
        (["{}", "a", "--topic", "a"], 2, "twice"),
        (["{}", "--layout", "local-tierd"], 2, "Did you mean 'local-tiered'"),
        (["{}/nowhere"], 3, "nowhere"),
        (["{}", "--metadata", "{}"], 3, "__remote_log_metadata"),
    ],
)
def test_what_cannot_be_listed_is_one_line_that_says_why(
    arguments: list[str], code: int, said: str, tmp_path: Path, ls: Ls
) -> None:
    write_local_tiered(tmp_path, "a", three_segments())

    found, rows, err = ls(*(text.format(tmp_path) for text in arguments))

    assert (found, rows) == (code, [])
    assert said in err


@pytest.mark.parametrize(
    ("order", "topics"),
    [("name", ["a", "b", "c"]), ("size", ["b", "c", "a"]), ("segments", ["c", "a", "b"]), ("growth", ["a", "c", "b"])],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_rows_come_in_the_order_that_is_asked_for(order: str, topics: list[str], tmp_path: Path, ls: Ls) -> None:
    segments = three_segments()
    write_local_tiered(tmp_path, "a", segments[:2])
    write_local_tiered(tmp_path, "b", [SegmentBuilder().batch([b"v" * 10_000])])  # one time only: it has no growth
    write_local_tiered(tmp_path, "c", segments)

    assert [row["topic"] for row in ls.rows(tmp_path, "--sort", order)] == topics


def test_segments_have_no_growth_to_sort_by(tmp_path: Path, ls: Ls) -> None:
    write_local_tiered(tmp_path, "a", three_segments())

    assert [row["base_offset"] for row in ls.rows(tmp_path, "a/0", "--sort", "time")] == [8, 6, 0]
    code, _, err = ls(tmp_path, "a/0", "--sort", "growth")
    assert (code, "A segment has no growth" in err) == (2, True)


def test_times_of_many_partitions_are_read_on_request_only(
    tmp_path: Path, ls: Ls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("segreader.cli.commands.ls._TIMED_PARTITIONS", 1)
    for partition in (0, 1):
        write_local_tiered(tmp_path, "a", three_segments(), partition=partition)

    code, (row,), err = ls(tmp_path)
    assert (code, row["max_timestamp"]) == (0, None)
    assert err == "note: times of 2 partitions are not read; --times reads them\n"
    for option in (["--times"], ["--sort", "time"]):
        assert ls.rows(tmp_path, *option)[0]["max_timestamp"] == FIRST_TIMESTAMP_MS + 8
