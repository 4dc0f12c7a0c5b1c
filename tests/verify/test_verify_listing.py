"""What a listing alone shows: each defect is planted into a sound partition, and nothing else is found."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest
from corpus import case
from planted import TOPIC, TOPIC_ID, Planted, sound_log

import segreader
from segreader.errors import ObjectNotFoundError, UnknownLayoutError
from segreader.evidence.rules import Code
from segreader.stored.source import LocationSource
from segreader.testing.directory import broker_log_files, kafka_uuid, local_tiered_files
from segreader.verify.verify import verify

DIVERGED = case("cluster", "diverged")


@pytest.fixture
def planted(tmp_path: Path) -> Planted:
    return Planted(tmp_path)


def test_a_sound_partition_has_no_finding_at_all(planted: Planted) -> None:
    assert planted.find() == planted.find(deep=True) == []


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("log", "missing-log"),
        ("index", "missing-offset-index"),
        ("timeindex", "missing-time-index"),
        ("snapshot", "missing-snapshot"),
        ("leader_epoch_checkpoint", "missing-leader-epochs"),
    ],
)
def test_a_file_that_is_missing_is_named_by_its_kind(planted: Planted, kind: str, code: str, number: int) -> None:
    planted.remove(number, kind)

    assert planted.codes_of_both() == {code}


def test_a_missing_file_is_told_with_its_segment_and_what_to_do(planted: Planted) -> None:
    planted.remove(1, "log")

    (finding,) = planted.find()

    assert (finding.severity, finding.offset) == ("error", planted.segments[1].base_offset)
    assert finding.partition is not None
    assert (finding.partition.topic, finding.partition.partition, finding.partition.topic_id) == (TOPIC, 0, TOPIC_ID)
    assert finding.object.endswith(planted.name(1, "index"))
    assert finding.action.startswith("Restore the log")


def test_the_newest_set_that_lacks_what_is_written_last_may_be_an_upload_under_way(planted: Planted) -> None:
    planted.remove(2, "snapshot")
    now_ms = time.time_ns() // 1_000_000

    assert [one.code for one in planted.find(now_ms=now_ms)] == ["unfinished-upload"]
    assert [one.code for one in planted.find(now_ms=now_ms + 4_000_000)] == ["missing-snapshot"]


def test_an_upload_under_way_has_written_its_log_first(planted: Planted) -> None:
    planted.remove(2, "log")

    assert [one.code for one in planted.find(now_ms=time.time_ns() // 1_000_000)] == ["missing-log"]


def test_a_set_that_was_tried_again_is_an_abandoned_upload(planted: Planted) -> None:
    again = planted.name(1, "log").replace(kafka_uuid(TOPIC, 0, TOPIC_ID, 30), kafka_uuid("again"))
    planted.files[again] = planted.files[planted.name(1, "log")][:100]

    assert planted.codes(with_info=True, deep=True) >= {"abandoned-upload"}


@pytest.mark.parametrize("log", sorted(path.name for path in DIVERGED.remote[0].glob("*.log")))
def test_a_lost_log_of_the_live_history_is_missing_though_a_given_up_set_begins_there_too(
    tmp_path: Path, log: str
) -> None:
    (remote,) = DIVERGED.remote
    shutil.copytree(remote, tmp_path / remote.name)
    (tmp_path / remote.name / log).unlink()
    scan = segreader.scan(tmp_path, isolation_level="read_uncommitted", on_gap="skip")
    is_whole = len(list(scan.records())) == len(DIVERGED.truth())
    for deep in (False, True):
        codes = {one.code for one in verify(LocationSource(str(tmp_path)), deep=deep)}
        expected = Code.ABANDONED_UPLOAD if is_whole else Code.MISSING_LOG
        assert {Code.ABANDONED_UPLOAD, Code.MISSING_LOG} & codes == {expected}


def test_an_upload_that_was_tried_again_explains_no_hole_before_it(tmp_path: Path) -> None:
    planted = Planted(tmp_path, sound_log(4))
    again = planted.name(2, "log").replace(kafka_uuid(TOPIC, 0, TOPIC_ID, 61), kafka_uuid("again"))
    planted.files[again] = planted.files[planted.name(2, "log")][:100]
    start = f"{planted.segments[1].base_offset:020d}-"
    for path in [path for path in planted.files if path.rpartition("/")[2].startswith(start)]:
        del planted.files[path]

    assert planted.codes_of_both() == {"hole"}


def test_a_single_side_file_is_an_orphan(planted: Planted) -> None:
    for kind in ("log", "timeindex", "snapshot", "leader_epoch_checkpoint"):
        planted.remove(2, kind)
    planted.files.pop(planted.name(2, "txnindex"))

    assert planted.codes_of_both() == {"orphan-side-file"}


def test_a_foreign_object_is_told(planted: Planted) -> None:
    planted.files[planted.name(0, "log").rpartition("/")[0] + "/report.csv"] = b"a,b"

    assert planted.codes_of_both() == {"foreign-object"}


@pytest.mark.parametrize("suffix", [".deleted", ".swap", ".cleaned"])
def test_files_in_transit_are_told_and_are_no_findings(planted: Planted, suffix: str) -> None:
    planted.files[planted.name(0, "log") + suffix] = b""

    assert planted.codes() == set()
    assert planted.codes(with_info=True) == {"file-in-transit"}


def test_a_name_in_other_digits_is_malformed(planted: Planted) -> None:
    eastern = str.maketrans("0123456789", "٠١٢٣٤٥٦٧٨٩")
    for path in list(planted.files):
        directory, _, file = path.rpartition("/")
        if file.startswith(f"{61:020d}"):
            planted.files[f"{directory}/{file[:20].translate(eastern)}{file[20:]}"] = planted.files.pop(path)

    assert "malformed-name" in planted.codes()


@pytest.mark.parametrize(
    "name",
    [
        f"{61:019d}-{kafka_uuid('x')}.log",
        f"{61:020d}-{kafka_uuid('x')[:21]}.log",
        f"{61:020d}-{kafka_uuid('x')[:21]}=.log",
        f"{61:020d}_{kafka_uuid('x')}.log",
    ],
)
def test_a_name_that_is_nearly_right_is_malformed(planted: Planted, name: str) -> None:
    planted.files[planted.name(0, "log").rpartition("/")[0] + "/" + name] = b""

    assert planted.codes() <= {"malformed-name", "foreign-object"}
    assert planted.codes()


def test_an_offset_beyond_all_offsets_is_malformed(planted: Planted) -> None:
    planted.rename(2, 10**20 - 1)

    assert "malformed-name" in planted.codes()


def test_segments_in_a_directory_that_names_no_partition_are_stray(planted: Planted) -> None:
    for path, data in local_tiered_files("lost", sound_log(1)).items():
        planted.files[path.replace(kafka_uuid("lost"), kafka_uuid("lost")[:21])] = data

    assert planted.codes_of_both() == {"stray-segments"}


def test_a_topic_with_two_ids_was_created_again(planted: Planted) -> None:
    planted.files |= local_tiered_files(TOPIC, sound_log(1), topic_id=kafka_uuid("before"))

    assert planted.codes_of_both() == set()
    assert planted.codes(with_info=True) == {"re-created-topic"}


def test_a_topic_in_two_layouts_is_told(planted: Planted) -> None:
    planted.files |= broker_log_files(TOPIC, planted.segments)

    assert planted.codes_of_both() == set()
    assert planted.codes(with_info=True) == {"mixed-layouts"}


def test_a_partition_that_lies_in_two_places_is_told(planted: Planted) -> None:
    planted.files |= {f"backup/{path}": data for path, data in planted.files.items()}

    assert planted.codes_of_both() == {"partition-twice"}


def test_a_partition_number_that_is_missing_is_told_once(planted: Planted) -> None:
    planted.files |= local_tiered_files(TOPIC, sound_log(1), partition=3)

    found = planted.find()

    assert [one.code for one in found] == ["missing-partition"]
    assert "1, 2" in found[0].explanation


def test_only_what_is_asked_for_is_looked_at(planted: Planted) -> None:
    planted.remove(0, "log")
    planted.files |= local_tiered_files("other", sound_log(1))
    planted.find()
    source = LocationSource(str(planted.root))

    assert list(verify(source, topic="other")) == []
    assert [one.code for one in verify(source, topic=TOPIC, partitions=[0])] == ["missing-log"]


def test_a_topic_that_is_not_there_is_an_error(planted: Planted) -> None:
    planted.find()

    with pytest.raises(ObjectNotFoundError, match=r"topic .nothing. is not here; found orders"):
        list(verify(LocationSource(str(planted.root)), topic="nothing"))


def test_a_place_without_segments_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UnknownLayoutError):
        list(verify(LocationSource(str(tmp_path))))


class Local(Planted):
    """A broker's log directory."""

    def __init__(self, root: Path, preallocated: int = 0) -> None:
        super().__init__(root)
        self.files = dict(broker_log_files(TOPIC, self.segments, preallocated=preallocated))

    def name(self, number: int, kind: str) -> str:
        return f"{TOPIC}-0/{self.segments[number].base_offset:020d}.{kind}"


@pytest.mark.parametrize("preallocated", [0, 10_000])
def test_a_sound_log_directory_has_no_finding(tmp_path: Path, preallocated: int) -> None:
    assert Local(tmp_path, preallocated).codes_of_both() == set()


@pytest.mark.parametrize(("kind", "code"), [("index", "missing-offset-index"), ("timeindex", "missing-time-index")])
def test_a_local_segment_without_an_index_is_told(tmp_path: Path, kind: str, code: str) -> None:
    local = Local(tmp_path)
    local.remove(1, kind)

    assert local.codes_of_both() == {code}


def test_an_index_without_its_log_is_an_orphan(tmp_path: Path) -> None:
    local = Local(tmp_path)
    local.files[f"{TOPIC}-0/{7:020d}.index"] = b""

    assert local.codes_of_both() == {"orphan-side-file"}


def test_a_log_that_is_missing_in_a_log_directory_leaves_orphans_and_a_hole(tmp_path: Path) -> None:
    local = Local(tmp_path)
    local.remove(1, "log")

    assert local.codes_of_both() == {"orphan-side-file", "hole"}


def test_the_open_end_of_a_log_directory_is_no_finding(tmp_path: Path) -> None:
    local = Local(tmp_path)
    local.put(2, "log", local.data(2, "log") + bytes(4000))

    assert local.codes() == set()
    assert local.codes(with_info=True) == {"active-tail"}
