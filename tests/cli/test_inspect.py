"""``segreader inspect`` adds up what lies in a segment, a partition or a directory, and finds the damage."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from corpus import CORPUS, FIXTURES, Case, case, cases
from fault_server import FaultServer
from fault_urls import open_store
from sample import at_edges

from segreader.cli.file_rows import SegmentRows
from segreader.cli.main import main
from segreader.cli.summary import LogSummary
from segreader.format.compression import Codec
from segreader.ranges import ByteRange
from segreader.segment import Segment, SegmentFiles, TopicIdPartition
from segreader.storage.local import LocalStore
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import write_broker_log, write_local_tiered
from segreader.testing.records import FIRST_TIMESTAMP_MS, ProducerRecord

CORRUPT = FIXTURES / "corrupt"


class Inspect:
    """Runs the command in this process."""

    def __init__(self, captured: pytest.CaptureFixture[bytes]) -> None:
        self._captured = captured

    def __call__(self, *arguments: object) -> tuple[int, list[dict[str, Any]]]:
        code = main(["inspect", *map(str, arguments)])
        out, err = self._captured.readouterr()
        assert (code in (0, 1)) == (not err), err
        return int(code), [json.loads(line) for line in out.splitlines()]

    def one(self, *arguments: object) -> dict[str, Any]:
        """The only summary, of a log without damage."""
        code, rows = self(*arguments)
        assert (code, len(rows), rows[0]["damage"]) == (0, 1, [])
        return rows[0]


@pytest.fixture
def inspect(capsysbinary: pytest.CaptureFixture[bytes]) -> Inspect:
    return Inspect(capsysbinary)


def is_untouched(case: Case) -> bool:
    """Whether no offset of the remote files is missing in the truth, nor the other way round."""
    return all(
        case.remote_stop(p) == int(case.facts["uncommitted"]["stop"][str(p)])
        and int(case.facts["uncommitted"]["start"][str(p)]) == 0
        for p in range(len(case.remote))
    ) and case.topic not in ("recreated", "odd-offsets")


UNTOUCHED = [case for case in cases("tv2", "tv1", "k39", remote=True) if is_untouched(case)]


@pytest.mark.parametrize("case", at_edges(UNTOUCHED), ids=str)
def test_a_topic_has_as_many_records_as_a_consumer_was_given(case: Case, inspect: Inspect) -> None:
    _, rows = inspect(case.remote_root, "--topic", case.topic)

    assert [row["partition"] for row in rows] == list(range(len(case.remote)))
    assert {(row["topic"], row["topic_id"]) for row in rows} == {(case.topic, case.topic_id)}
    for row in rows:
        truth = [record for record in case.truth() if record.partition == row["partition"]]
        assert row["records"] == len(truth) == sum(codec["records"] for codec in row["codecs"])
        assert row["last_offset"] + 1 == case.remote_stop(row["partition"])
        assert row["max_timestamp"] >= max(record.timestamp_ms for record in truth)
        assert row["transactions"]["open"] == []


def test_transactions_are_counted_by_their_markers_and_open_ones_are_named(tmp_path: Path, inspect: Inspect) -> None:
    first = SegmentBuilder()
    for producer_id in (1, 2, 3):
        first.batch([b"v"], producer_id=producer_id, transactional=True)
    second = first.marker(1).roll().marker(2, abort=True)
    write_local_tiered(tmp_path, "t", [first, second])

    row = inspect.one(tmp_path)

    assert row["transactions"] == {"committed": 1, "aborted": 1, "open": [{"producer_id": 3, "first_offset": 2}]}
    assert (row["batches"], row["control_batches"], row["records"]) == (5, 2, 3)
    assert [producer["producer_id"] for producer in row["producers"]] == [1, 2, 3]


def test_the_ratio_compares_records_before_and_after_compression(tmp_path: Path, inspect: Inspect) -> None:
    write_local_tiered(tmp_path, "t", [SegmentBuilder().batch([bytes(9000)]).batch([bytes(9000)], codec=Codec.ZSTD)])

    plain, packed = inspect.one(tmp_path)["codecs"]

    assert (plain["codec"], plain["ratio"]) == ("none", 1.0)
    assert packed["codec"] == "zstd"
    assert packed["uncompressed_bytes"] == plain["stored_bytes"] > 9000
    assert packed["ratio"] == round(packed["uncompressed_bytes"] / packed["stored_bytes"], 3) > 10


def test_old_formats_are_counted_too(inspect: Inspect) -> None:
    found = case("legacy", "magic-mixed")

    row = inspect.one(found.local[0])

    assert row["records"] == len(found.truth())
    assert set(row["magics"]) == {"0", "1", "2"}


def test_a_file_is_summarised_alone(inspect: Inspect) -> None:
    folder = case("tv2", "codec-gzip").remote[0]
    logs = sorted(folder.glob("*.log"))

    row = inspect.one(logs[1])

    assert (row["source"], row["topic"], row["segments"]) == (str(logs[1]), "codec-gzip", 1)
    assert row["first_offset"] == int(logs[1].name[:20])


def test_a_file_under_any_name_has_no_topic(tmp_path: Path, inspect: Inspect) -> None:
    log = tmp_path / "copy.log"
    log.write_bytes(SegmentBuilder(7).batch([b"v"]).to_bytes())

    row = inspect.one(log)

    assert (row["topic"], row["partition"], row["first_offset"]) == (None, None, 7)


def test_one_name_with_two_topic_ids_gives_two_summaries(inspect: Inspect) -> None:
    found = case("tv2", "recreated")

    _, rows = inspect(found.remote_root, "--topic", "recreated")

    assert {row["topic_id"] for row in rows} == {found.topic_id, found.facts["old_topic_id"]}


def test_damage_is_listed_with_its_place_and_the_rest_is_still_counted(tmp_path: Path, inspect: Inspect) -> None:
    built = SegmentBuilder().batch([b"one"]).batch([b"two"]).batch([b"three"])
    data = bytearray(built.to_bytes())
    data[built.batch_positions[1] + 70] ^= 1
    folder = write_local_tiered(tmp_path, "t", [built])
    log = next(folder.glob("*.log"))
    log.write_bytes(data)
    index = next(folder.glob("*.timeindex"))
    index.write_bytes(b"cut")

    code, (row,) = inspect(tmp_path)

    assert (code, row["batches"], row["records"]) == (1, 3, 2)
    assert [(damage["source"], damage["position"]) for damage in row["damage"]] == [
        (str(index), 0),
        (str(log), built.batch_positions[1]),
    ]


def test_the_cut_end_of_a_live_log_is_a_note_and_of_a_finished_one_damage(tmp_path: Path, inspect: Inspect) -> None:
    cut = SegmentBuilder().batch([b"v"]).raw(SegmentBuilder(1).batch([b"cut"]).to_bytes()[:50])
    write_broker_log(tmp_path / "live", "t", [cut])
    write_local_tiered(tmp_path / "done", "t", [cut])

    live, (_, (done,)) = inspect.one(tmp_path / "live"), inspect(tmp_path / "done")

    assert "ends inside a batch" in live["notes"][0]
    assert "ends inside a batch" in done["damage"][0]["error"]


@pytest.mark.parametrize("path", sorted(CORRUPT.glob("*Error-*.log")), ids=lambda path: path.name)
def test_no_damage_is_an_internal_error(path: Path, tmp_path: Path, inspect: Inspect) -> None:
    log = tmp_path / f"{0:020}-AAAAAAAAAAAAAAAAAAAAAA.log"
    shutil.copy(path, log)

    code, (row,) = inspect(log)

    # what a record holds is not looked at; a count that lies is
    assert (code == 1) == bool(row["damage"])
    assert row["damage"] or "Record" in path.name or "record-count" in path.name or "time-beyond" in path.name


def test_a_terminal_gets_details_of_one_log_and_a_line_for_each_of_several(
    inspect: Inspect, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "200")

    codes = [
        main(["inspect", str(case("tv2", "codec-mix").remote[0])]),
        main(["inspect", str(case("tv2", "codec-mix").remote_root)]),
    ]
    out = capsysbinary.readouterr().out.decode()

    assert codes == [0, 0]
    assert "snappy" in out
    assert "█" in out
    assert "37 partitions" in out


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["nowhere"], 3), (["."], 3), (["x.index"], 2), (["x.log", "--topic", "t"], 2), (["t-0", "--topic", "other"], 3)],
)
def test_what_cannot_be_inspected_is_refused(
    arguments: list[str], code: int, tmp_path: Path, inspect: Inspect, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "x.index").touch()
    (tmp_path / "x.log").touch()
    monkeypatch.chdir(tmp_path)
    if arguments[0] == "t-0":
        write_broker_log(tmp_path, "t", [SegmentBuilder().batch([b"v"])])

    assert inspect(*arguments)[0] == code


def test_a_topic_a_partition_and_times_narrow_what_is_summarised(tmp_path: Path, inspect: Inspect) -> None:
    first = SegmentBuilder().batch([b"a"] * 10)
    second = first.roll().batch([b"b"] * 10)
    for partition in (0, 1):
        write_local_tiered(tmp_path, "t", [first, second], partition=partition)
    write_local_tiered(tmp_path, "u", [first])

    assert [row["topic"] for row in inspect(tmp_path)[1]] == ["t", "t", "u"]
    assert [row["partition"] for row in inspect(tmp_path, "t")[1]] == [0, 1]
    assert inspect.one(tmp_path, "t/1")["partition"] == 1
    since = inspect.one(tmp_path, "t/0", "--since", FIRST_TIMESTAMP_MS + 12)
    assert (since["first_offset"], since["last_offset"], since["segments"]) == (10, 19, 1)
    assert inspect.one(tmp_path, "t/0", "--until", FIRST_TIMESTAMP_MS + 5)["segments"] == 1
    assert inspect(tmp_path, "t/0", "--since", "now")[1] == []


def test_encrypted_segments_are_summarised_with_their_keys(inspect: Inspect) -> None:
    row = inspect.one(
        CORPUS / "aiven-encrypted" / "remote", "nulls", "--rsm-config", FIXTURES / "aiven-encrypted.properties"
    )

    assert (row["topic"], row["segments"], row["first_offset"]) == ("nulls", 4, 0)


def test_by_the_metadata_topic_a_deleted_topic_is_not_summarised(inspect: Inspect) -> None:
    recreated = case("tv2", "recreated")

    _, rows = inspect(recreated.root / "remote", "recreated", "--metadata", CORPUS / "tv2" / "metadata")

    assert [row["topic_id"] for row in rows] == [recreated.topic_id]


def test_a_file_takes_no_choice_of_partitions(tmp_path: Path) -> None:
    log = next(write_local_tiered(tmp_path, "t", [SegmentBuilder().batch([b"a"])]).glob("*.log"))

    for arguments in (["t"], ["--partition", "0"], ["--since", "now"], ["--layout", "aiven"]):
        assert main(["inspect", str(log), *arguments]) == 2


def test_the_log_of_a_segment_in_a_store_is_read_several_ranges_at_a_time() -> None:
    builder = SegmentBuilder()
    for number in range(60):
        builder.batch([bytes([number]) * 40_000])
    data = builder.to_bytes()
    segment = Segment(TopicIdPartition("t", 0), 0, len(data), SegmentFiles("together-4/log"))
    with FaultServer(data) as server, open_store(server, range_size=300_000, in_flight=4, idle_timeout_s=60) as store:
        server.late_s = 20
        summary = LogSummary(store)
        assert sum(summary.read(segment)) == len(data)
        rows = list(SegmentRows(store).of("together-4/log", len(data)))
        requests = [request.range for request in server.log("log")]

    assert (summary.to_json()["records"], summary.is_sound) == (60, True)
    assert rows[-1]["batches"] == 60
    assert server.waited_alone == 0
    assert len(requests) == 2 * -(-len(data) // 300_000)


@pytest.mark.parametrize("verb", ["inspect", "dump"])
def test_a_command_reads_a_log_once_and_in_one_go(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    builder = SegmentBuilder()
    for _ in range(4):
        builder.batch([bytes(1 << 20)])
    (log,) = write_local_tiered(tmp_path, "t", [builder]).glob("*.log")
    read: list[tuple[str, ByteRange]] = []
    read_pieces = LocalStore.read_pieces

    def noted(store: LocalStore, name: str, wanted: ByteRange, **options: Any) -> Any:
        read.append((name, wanted))
        return read_pieces(store, name, wanted, **options)

    monkeypatch.setattr(LocalStore, "read_pieces", noted)
    assert main([verb, str(log), "-o", "json"]) == 0

    assert [(Path(name).name, wanted) for name, wanted in read] == [(log.name, ByteRange(0, log.stat().st_size))]
    assert capsys.readouterr().out


@pytest.mark.parametrize("case", at_edges(UNTOUCHED), ids=str)
def test_the_newest_time_of_ls_is_that_of_a_record_or_of_a_marker(
    case: Case, inspect: Inspect, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    _, rows = inspect(case.remote_root, "--topic", case.topic)
    newest = []
    for number in range(len(case.remote)):
        assert main(["ls", str(case.remote_root), f"{case.topic}/{number}", "-o", "ndjson"]) == 0
        segments = [json.loads(line) for line in capsysbinary.readouterr().out.splitlines()]
        newest.append(max(filter(None, (one["max_timestamp"] for one in segments))))

    assert newest == [max(filter(None, (one["max_timestamp"], one["max_marker_timestamp"]))) for one in rows]
    for one in rows:
        assert (one["max_marker_timestamp"] is None) == (one["control_batches"] == 0)


def test_a_summary_tells_times_of_markers_from_times_of_records(tmp_path: Path, inspect: Inspect) -> None:
    built = SegmentBuilder().batch([ProducerRecord(b"a", timestamp_ms=1000)], producer_id=7, transactional=True)
    write_local_tiered(tmp_path, "t", [built.marker(7, timestamp_ms=5000)])

    row = inspect.one(tmp_path)

    assert (row["max_timestamp"], row["max_marker_timestamp"]) == (1000, 5000)
