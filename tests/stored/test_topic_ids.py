"""A topic that was deleted and created again: every id of it, one of them, or the newest."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from corpus import CORPUS, case

import segreader
from segreader.catalog.listing import Wanted
from segreader.catalog.metadata_topic import read_remote_log_metadata
from segreader.cli.main import main
from segreader.duckdb import register
from segreader.errors import AmbiguousTopicError, ObjectNotFoundError, RecreatedTopicError
from segreader.loader import LoadQuery, SplitEnumerator
from segreader.storage.local import LocalStore
from segreader.stored.source import Catalog, LocationSource, open_source
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import kafka_uuid, write_broker_log, write_files, write_local_tiered
from segreader.testing.records import FIRST_TIMESTAMP_MS, ProducerRecord
from segreader.testing.redpanda import redpanda_files

IDS = {name: kafka_uuid(name) for name in ("old", "new")}
RECREATED = case("tv2", "recreated")
OLD = str(RECREATED.facts["old_topic_id"])


def log(*values: bytes, at_s: int = 0) -> list[SegmentBuilder]:
    time_ms = FIRST_TIMESTAMP_MS + 1000 * at_s
    return [SegmentBuilder().batch([ProducerRecord(value, timestamp_ms=time_ms) for value in values])]


def write(
    root: Path, name: str, *values: bytes, topic: str = "orders", partition: int = 0, at_s: int = 0, put_s: int = 0
) -> Path:
    """A partition of the topic with this id, its records and its objects with these times."""
    place = write_local_tiered(root, topic, log(*values, at_s=at_s), partition=partition, topic_id=IDS[name])
    for file in place.iterdir():
        os.utime(file, (1_700_000_000 + put_s, 1_700_000_000 + put_s))
    return place


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A topic with three partitions that came back with one, and another topic."""
    for partition in range(3):
        write(tmp_path, "old", b"old 1", b"old 2", partition=partition)
    write(tmp_path, "new", b"new", at_s=60, put_s=60)
    write_local_tiered(tmp_path, "payments", log(b"paid"))
    return tmp_path


def values(scan: segreader.Scan | segreader.LiveScan) -> list[bytes | None]:
    return [record.value for record in scan.records()]


def test_without_a_name_every_id_is_read_as_partitions_of_its_own(root: Path) -> None:
    scan = segreader.scan(root)
    ids = [(end.partition.topic, end.partition.partition, end.partition.topic_id) for end in scan.plan().ends]
    assert ids[:2] == [("orders", 0, topic_id) for topic_id in sorted(IDS.values())]
    assert ids[2:] == [("orders", 1, IDS["old"]), ("orders", 2, IDS["old"]), ("payments", 0, kafka_uuid("payments"))]
    assert sorted(filter(None, values(scan))) == [b"new", *[b"old 1"] * 3, *[b"old 2"] * 3, b"paid"]
    (note,) = scan.plan().notes
    assert all(topic_id in note for topic_id in IDS.values())
    with pytest.raises(AmbiguousTopicError, match="or newest"):
        segreader.scan(root, topic="orders").plan()


def test_the_newest_id_is_all_of_the_topic_that_has_the_name_now(root: Path) -> None:
    assert values(segreader.scan(root, topic="orders", topic_id="newest")) == [b"new"]
    everything = segreader.scan(root, topic_id="newest")
    assert values(everything) == [b"new", b"paid"]
    (note,) = everything.plan().notes
    assert f"{IDS['new']} is its newest id by the times of its objects in the store and the times of its rec" in note
    assert f"not read: {IDS['old']}" in note
    assert values(segreader.scan(root, topic="payments", topic_id="newest")) == [b"paid"]
    with pytest.raises(ObjectNotFoundError, match="partition 2 is not here"):
        segreader.scan(root, topic="orders", topic_id="newest", partitions=[2]).plan()


@pytest.mark.parametrize(
    ("at_s", "put_s", "newest"),
    [
        ((0, 60), (0, 60), "new"),
        ((0, 60), (0, 0), "new"),  # a copy whose objects were all written at once
        ((60, 60), (0, 60), "new"),  # records that were loaded again
        ((60, 0), (0, 0), "old"),
        ((60, 0), (0, 60), None),  # old records in the new topic, or a copy that was made in another order
        ((0, 0), (0, 0), None),
    ],
)
def test_the_newest_id_is_told_where_the_evidence_does_not_contradict_itself(
    at_s: Sequence[int], put_s: Sequence[int], newest: str | None, tmp_path: Path
) -> None:
    for name, at, put in zip(("old", "new"), at_s, put_s, strict=True):
        write(tmp_path, name, name.encode(), at_s=at, put_s=put)
    scan = segreader.scan(tmp_path, topic="orders", topic_id="newest")
    if newest is not None:
        assert values(scan) == [newest.encode()]
        return
    with pytest.raises(AmbiguousTopicError, match="nothing decides which id") as caught:
        scan.plan()
    assert all(topic_id in str(caught.value) for topic_id in IDS.values())
    assert values(segreader.scan(tmp_path, topic="orders", topic_id=IDS["old"])) == [b"old"]


def test_the_metadata_topic_decides_which_id_is_the_newest() -> None:
    remote, metadata = CORPUS / "tv2" / "remote", CORPUS / "tv2" / "metadata"
    records = segreader.scan(remote, topic="recreated", topic_id="newest", metadata=metadata)
    assert records.to_arrow().num_rows == 45
    assert records.plan().splits[0].partition.topic_id == RECREATED.topic_id
    known = read_remote_log_metadata(LocalStore(CORPUS / "tv2"), "metadata", topic="recreated")
    source = open_source(remote, catalog=Catalog())
    assert isinstance(source, LocationSource)
    assert known.deleted(known.partitions("recreated", OLD, with_deleted=True)[0])
    assert {place.partition.topic_id for place in source.places(Wanted("recreated", "newest"))} == {RECREATED.topic_id}


def test_the_larger_revision_is_the_newest_in_redpanda(tmp_path: Path) -> None:
    for revision, value in ((9, b"old"), (10, b"new")):
        write_files(tmp_path, redpanda_files("orders", log(value), revision=revision))
    scan = segreader.scan(tmp_path, topic="orders", topic_id="newest")
    assert values(scan) == [b"new"]
    assert "by its revision" in scan.plan().notes[0]


def test_a_log_directory_of_one_id_does_not_go_on_with_another(root: Path, tmp_path: Path) -> None:
    local = root.parent / f"{root.name}-local"
    (first,) = log(b"new", at_s=60)
    write_broker_log(local, "orders", [first, first.roll().batch([b"local"])], topic_id=IDS["new"])
    assert values(segreader.scan(root, topic="orders", topic_id=IDS["new"], log_directory=local)) == [b"new", b"local"]
    everything = segreader.scan(root, log_directory=local, partitions=[0])
    assert values(everything).count(b"local") == 1
    with pytest.raises(ObjectNotFoundError, match=f"none of these partitions.*{IDS['old']}"):
        segreader.scan(root, topic="orders", topic_id=IDS["old"], log_directory=local).plan()


def test_a_table_has_the_rows_of_every_id_or_of_the_newest(root: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect() as connection:
        every = register(connection, "every", root)
        newest = register(connection, "newest", root, topic_id="newest")
        count = "select count(*) from {} where topic = 'orders'"
        assert connection.sql(count.format("every")).fetchall() == [(7,)]
        assert connection.sql(count.format("newest")).fetchall() == [(1,)]
        assert IDS["old"] in every.metrics.notes[0]
        assert "not read" in newest.metrics.notes[0]


def test_a_load_of_everything_hands_out_every_id_and_one_that_comes_later(root: Path) -> None:
    query = LoadQuery(location=str(root))
    with SplitEnumerator(query) as enumerator:
        splits = enumerator.discover()
        assert [(one.partition.partition, one.partition.topic_id) for one in splits[:2]] == [
            (0, topic_id) for topic_id in sorted(IDS.values())
        ]
        assert len(splits) == 5
        assert IDS["old"] in enumerator.notes[0]
        state = enumerator.state()
    third = kafka_uuid("third")
    write_local_tiered(root, "orders", log(b"third"), topic_id=third)
    with SplitEnumerator(query, state=state) as enumerator:
        assert [one.partition.topic_id for one in enumerator.discover()] == [third]
        assert len(enumerator.end_positions()) == 6
        assert enumerator.discover() == []
        positions = [one.position for one in splits]
    with SplitEnumerator(query) as enumerator:
        assert [one.partition for one in enumerator.splits_from(positions)] == [one.partition for one in splits]


def test_a_load_of_the_newest_id_ends_where_a_newer_one_comes(root: Path) -> None:
    query = LoadQuery(location=str(root), topic="orders", topic_id="newest")
    with SplitEnumerator(query) as enumerator:
        assert [one.partition.topic_id for one in enumerator.discover()] == [IDS["new"]]
        assert enumerator.discover() == []
        place = write_local_tiered(root, "orders", log(b"third", at_s=120), topic_id=kafka_uuid("third"))
        for file in place.iterdir():
            os.utime(file, (1_700_000_120, 1_700_000_120))
        with pytest.raises(RecreatedTopicError):
            enumerator.discover()


@pytest.mark.parametrize("command", ["cat", "plan", "offsets", "ls", "inspect", "verify"])
def test_commands_take_every_id_without_a_name_and_the_newest_by_that_word(
    command: str, root: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    def run(*options: str) -> tuple[list[dict[str, Any]], str]:
        code = main([command, str(root), *options, *(["--all"] if command == "verify" else []), "-o", "json"])
        out, err = capsysbinary.readouterr()
        assert code == 0, err
        return json.loads(out), err.decode()

    rows, err = run()
    shown = json.dumps(rows) + err
    assert all(topic_id in shown for topic_id in IDS.values())
    rows, err = run("orders", "--topic-id", "newest")
    if command == "cat":
        assert [row["value"] for row in rows] == ["new"]
    elif command == "plan":
        assert [one["topic_id"] for one in rows[0]["partitions"]] == [IDS["new"]]
    else:
        assert {row["topic_id"] for row in rows if row.get("kind") != "checked"} == {
            None if command == "verify" else IDS["new"]
        }
    assert ("is its newest id" in err) == (command in ("cat", "plan", "offsets"))


def test_sql_asks_every_id_without_a_name_and_the_newest_by_that_word(
    root: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    for arguments, count in ((f"'{root}'", 8), (f"'{root}', 'orders', topic_id := 'newest'", 1)):
        assert main(["sql", f"select count(*) as n from topic({arguments})"]) == 0
        out, err = capsysbinary.readouterr()
        assert json.loads(out) == {"n": count}
        assert IDS["old"] in err.decode()
    assert main(["sql", f"select count(*) as n from topic('{root}', 'orders')"]) == 2


def test_tables_name_the_id_where_two_partitions_have_one_name(
    root: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    for command in ("plan", "offsets", "inspect"):
        assert main([command, str(root), "-o", "table"]) == 0
        out = capsysbinary.readouterr().out.decode()
        assert all(f"orders-0 {topic_id}" in out for topic_id in IDS.values())
        assert "orders-1 " + IDS["old"] not in out
