"""The metadata topic against the objects: each disagreement is planted, and nothing else is found."""

from __future__ import annotations

from pathlib import Path

import pytest
from planted import DELETED, DELETING, FINISHED, STARTED, TOPIC, TOPIC_ID, Planted, Told, sound_log

from segreader.stored.source import Catalog
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import kafka_uuid, write_files


def test_a_partition_of_which_metadata_and_objects_agree_has_no_finding(tmp_path: Path) -> None:
    assert Told(tmp_path).codes(with_info=True) == set()


def test_an_upload_that_has_begun_and_one_that_is_being_deleted_are_no_findings(tmp_path: Path) -> None:
    told = Told(tmp_path, (DELETING, FINISHED, STARTED))
    told.planted.remove(2, "snapshot")
    told.planted.remove(2, "index")

    assert told.codes(with_info=True) == {"unfinished-upload", "unfinished-delete"}
    assert told.codes() == set()


def test_an_upload_that_began_without_an_object_is_no_finding(tmp_path: Path) -> None:
    told = Told(tmp_path)
    told.tell(sound_log(4)[3], kafka_uuid("late"), STARTED)

    assert told.codes(with_info=True) == {"unfinished-upload"}


def test_a_finished_segment_without_any_object(tmp_path: Path) -> None:
    told = Told(tmp_path)
    for path in [path for path in told.planted.files if f"{30:020d}-" in path]:
        del told.planted.files[path]

    assert told.codes() == {"finished-segment-missing"}


def test_a_finished_partition_of_which_nothing_is_there(tmp_path: Path) -> None:
    told = Told(tmp_path)
    told.planted.files = dict(Planted(tmp_path, partition=1).files)
    told.records = [*told.records]

    assert "finished-segment-missing" in told.codes()


@pytest.mark.parametrize(
    ("kind", "code"), [("log", "missing-log"), ("snapshot", "missing-snapshot"), ("index", "missing-offset-index")]
)
def test_a_finished_segment_that_lacks_a_file(tmp_path: Path, kind: str, code: str) -> None:
    told = Told(tmp_path)
    told.planted.remove(2, kind)

    assert told.codes() == {code}


def test_objects_of_a_deleted_segment(tmp_path: Path) -> None:
    assert Told(tmp_path, (DELETED, FINISHED, FINISHED)).codes() == {"deleted-segment-left"}


def test_objects_of_a_partition_that_was_deleted_whole_are_no_finding(tmp_path: Path) -> None:
    told = Told(tmp_path, (DELETED, DELETED, DELETED))

    assert told.codes() == set()
    assert told.codes(with_info=True) == {"deleted-topic-left"}


def test_objects_that_the_metadata_does_not_know(tmp_path: Path) -> None:
    told = Told(tmp_path)
    own = kafka_uuid(TOPIC, 0, TOPIC_ID, 61)
    for path in [path for path in told.planted.files if own in path]:
        told.planted.files[path.replace(own, kafka_uuid("stranger"))] = told.planted.files[path]

    assert told.codes() == {"unknown-segment"}


def test_a_log_that_is_shorter_than_the_metadata_says(tmp_path: Path) -> None:
    told = Told(tmp_path)
    at = told.planted.segments[2].batch_positions[-3]
    told.planted.put(2, "log", told.planted.data(2, "log")[:at])

    assert told.codes() == {"log-too-short"}


def test_a_log_that_is_longer_than_the_metadata_says(tmp_path: Path) -> None:
    told = Told(tmp_path)
    told.planted.put(1, "log", told.planted.data(1, "log") + b"" * 100)

    assert told.codes() == {"log-too-long"}


def test_a_name_with_another_offset_than_the_metadata(tmp_path: Path) -> None:
    told = Told(tmp_path)
    told.planted.rename(1, 28)

    assert told.codes() == {"metadata-contradicts-name", "wrong-base-offset"}


def test_a_time_index_that_ends_with_another_time_than_the_metadata(tmp_path: Path) -> None:
    told = Told(tmp_path)
    told.planted.put(1, "timeindex", told.planted.data(1, "timeindex")[:-12])

    assert told.codes() == {"time-index-wrong-end"}


def test_metadata_that_cannot_be_read_is_a_finding_and_no_end(tmp_path: Path) -> None:
    told = Told(tmp_path)
    told.records.append(b"\1\0\0")
    told.planted.remove(1, "snapshot")

    assert told.codes() == {"unreadable-metadata", "missing-snapshot"}


def test_metadata_of_which_the_beginning_is_gone_accuses_no_segment(tmp_path: Path) -> None:
    told = Told(tmp_path, (FINISHED, FINISHED, FINISHED))
    late = SegmentBuilder(50).batch(told.records[4:])
    write_files(tmp_path / "metadata", {f"__remote_log_metadata-0/{50:020d}.log": late.to_bytes()})

    assert told.planted.codes(catalog=Catalog(metadata=tmp_path / "metadata")) == set()
