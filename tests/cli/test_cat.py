"""``segreader cat`` gives what a Java consumer was given, in every format, and says what is wrong with the rest."""

from __future__ import annotations

import base64
import csv
import io
import json
import os
import sys
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from corpus import CORPUS, Case, case, cases, normal
from sample import at_edges

import segreader
from segreader.cli.main import main
from segreader.cli.row_writer import CSV_FIELDS
from segreader.errors import OptionError
from segreader.plan.split import ReadPlan
from segreader.ranges import ByteRange
from segreader.scans import Scan
from segreader.storage.local import LocalStore
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import write_broker_log, write_local_tiered
from segreader.testing.records import ProducerRecord

BASE64 = ("--key-encoding", "base64", "--value-encoding", "base64")
FIELDS = ["topic", "partition", "offset", "timestamp", "timestamp_type", "leader_epoch", "key", "value", "headers"]


class Cat:
    """Runs the command in this process."""

    def __init__(self, captured: pytest.CaptureFixture[bytes]) -> None:
        self._captured = captured

    def __call__(self, location: Path, *options: str) -> tuple[int, bytes, str]:
        code = main(["cat", str(location), *options])
        out, err = self._captured.readouterr()
        return int(code), out, err.decode()

    def rows(self, location: Path, *options: str) -> list[dict[str, Any]]:
        """The objects of ndjson, where all goes well."""
        code, out, err = self(location, *options)
        assert code == 0, err
        return parsed(out)


@pytest.fixture
def cat(capsysbinary: pytest.CaptureFixture[bytes]) -> Cat:
    return Cat(capsysbinary)


@pytest.fixture
def payloads(tmp_path: Path) -> Path:
    """A topic with every kind of key, value and header."""
    records = [
        ProducerRecord(b"text", b"k", headers=(("h", b"v"), ("h", None), ("bin", b"\xff"))),
        ProducerRecord(b"", None),
        ProducerRecord(None, b""),
        ProducerRecord(b"\x00\x01", b"\xff\xfe", headers=(("only", b"text"),)),
        ProducerRecord('two\nlines, "quoted" ü'.encode(), b"\x1b[31m"),
    ]
    write_local_tiered(tmp_path, "payloads", [SegmentBuilder(leader_epoch=4).batch(records)])
    return tmp_path


def parsed(out: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]


def offsets(rows: Sequence[dict[str, Any]]) -> list[int]:
    return [row["offset"] for row in rows]


def three_batches(*, torn: int | None = None) -> SegmentBuilder:
    """Offsets 0 to 8; with ``torn`` a bit of that batch is flipped."""
    built = SegmentBuilder(index_interval_bytes=1)
    for _ in range(3):
        built.batch([b"one", b"two", b"three"])
    if torn is None:
        return built
    data = bytearray(built.to_bytes())
    data[built.batch_positions[torn] + 70] ^= 1
    return SegmentBuilder().raw(bytes(data))


def timed(*times_ms: int) -> SegmentBuilder:
    """A batch for each record, with these times."""
    built = SegmentBuilder()
    for time_ms in times_ms:
        built.batch([ProducerRecord(b"value", timestamp_ms=time_ms)])
    return built


@pytest.mark.parametrize("isolation", ["uncommitted", "committed"])
@pytest.mark.parametrize("case", at_edges(cases("tv2", "tv1", "k39", remote=True)), ids=str)
def test_remote_segments_print_the_java_consumers_records(case: Case, isolation: str, cat: Cat) -> None:
    chosen = ["--topic", case.topic, "--topic-id", case.topic_id]
    code, out, err = cat(case.remote_root, *chosen, "--isolation", f"read_{isolation}", *BASE64)
    stop = case.remote_stop if isolation == "uncommitted" else lambda p: min(case.remote_stop(p), case.offline_lso(p))
    start = case.facts[isolation]["start"]

    seen = [normal(row) for row in parsed(out)]

    assert [record for record in seen if record.offset >= int(start[str(record.partition)])] == [
        record for record in case.truth(isolation) if record.offset < stop(record.partition)
    ]
    assert code == 0
    is_whole = all(case.offline_lso(p) >= case.remote_stop(p) for p in range(len(case.remote)))
    if case.topic == "compacted-then-tiered":
        (note,) = err.splitlines()
        assert "are in no batch; the log was compacted, so they count as removed" in note
    elif isolation == "uncommitted" or is_whole:
        assert err == ""
    else:
        assert f"{case.topic}-0: ends at offset {case.offline_lso(0)}, the last stable one" in err


@pytest.mark.parametrize("isolation", ["uncommitted", "committed"])
@pytest.mark.parametrize("case", cases("legacy"), ids=str)
def test_old_message_formats_print_the_java_consumers_records(case: Case, isolation: str, cat: Cat) -> None:
    rows = cat.rows(case.root / "local", "--topic", case.topic, "--isolation", f"read_{isolation}", *BASE64)

    assert [normal(row) for row in rows] == case.truth(isolation)
    assert {row["leader_epoch"] for row in rows} <= {None, 0}


def test_a_row_has_exactly_the_fields_that_are_promised(cat: Cat) -> None:
    for row in cat.rows(case("tv2", "nulls").remote_root, "--topic", "nulls", *BASE64):
        assert list(row) == FIELDS
        assert all(list(header) == ["key", "value"] for header in row["headers"])


def test_everything_there_is_ordered_by_topic_partition_and_offset(tmp_path: Path, cat: Cat) -> None:
    for topic, partition in (("b", 0), ("a", 10), ("a", 2)):
        write_local_tiered(tmp_path, topic, [three_batches()], partition=partition)

    places = [(row["topic"], row["partition"], row["offset"]) for row in cat.rows(tmp_path)]

    assert places == sorted(places)
    assert {place[:2] for place in places} == {("a", 2), ("a", 10), ("b", 0)}
    assert {row["partition"] for row in cat.rows(tmp_path, "--partition", "0", "--partition", "10")} == {0, 10}


def test_a_null_stays_null_and_an_empty_payload_stays_empty(payloads: Path, cat: Cat) -> None:
    rows = cat.rows(payloads, *BASE64)

    assert [row["key"] for row in rows[:3]] == ["aw==", None, ""]
    assert [row["value"] for row in rows[:3]] == ["dGV4dA==", "", None]
    assert [header["value"] for header in rows[0]["headers"]] == ["dg==", None, "/w=="]


def test_auto_says_where_it_used_base64(payloads: Path, cat: Cat) -> None:
    text, _, _, binary, mixed = cat.rows(payloads)

    assert (text["key"], text["value"]) == ("k", "text")
    assert list(text) == FIELDS
    assert text["headers"][2] == {"key": "bin", "value": "/w==", "value_encoding": "base64"}
    assert (binary["key"], binary["key_encoding"]) == ("//4=", "base64")
    assert (binary["value"], binary["value_encoding"]) == ("AAE=", "base64")
    assert binary["headers"] == [{"key": "only", "value": "text"}]
    assert (mixed["value"], "value_encoding" in mixed) == ('two\nlines, "quoted" ü', False)
    assert base64.b64decode(mixed["key"]) == b"\x1b[31m"


def test_an_encoding_that_is_named_holds_for_every_row(payloads: Path, cat: Cat) -> None:
    rows = cat.rows(payloads, "--key-encoding", "hex", "--value-encoding", "utf8")

    assert [row["key"] for row in rows] == ["6b", None, "", "fffe", "1b5b33316d"]
    assert [row["value"] for row in rows[2:4]] == [None, "\x00\x01"]
    assert rows[0]["headers"][2]["value"] == "\ufffd"
    assert all(list(row) == FIELDS for row in rows)


def test_json_is_one_array_of_the_same_rows(payloads: Path, cat: Cat) -> None:
    rows = cat.rows(payloads)

    assert json.loads(cat(payloads, "-o", "json")[1]) == rows
    assert json.loads(cat(payloads, "-o", "json", "--limit", "0")[1]) == []


def test_csv_keeps_null_and_empty_apart_and_names_each_encoding(payloads: Path, cat: Cat) -> None:
    _, out, _ = cat(payloads, "-o", "csv")
    rows = list(csv.DictReader(io.StringIO(out.decode(), newline="")))

    assert tuple(rows[0]) == CSV_FIELDS
    assert out.splitlines()[2].endswith(b',,,"",utf8,[]')
    assert (rows[3]["key"], rows[3]["key_encoding"]) == ("//4=", "base64")
    assert rows[4]["value"] == 'two\nlines, "quoted" ü'
    assert json.loads(rows[0]["headers"])[0] == {"key": "h", "value": "v"}


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_a_binary_format_keeps_bytes_and_goes_to_a_pipe_or_a_file(
    form: str, payloads: Path, tmp_path: Path, cat: Cat
) -> None:
    _, out, _ = cat(payloads, "-o", form)
    target = tmp_path / "target"
    assert cat(payloads, "-o", form, "--output-file", str(target)) == (0, b"", "")

    for data in (out, target.read_bytes()):
        source = pa.BufferReader(data)
        table = pq.read_table(source) if form == "parquet" else pa.ipc.open_stream(source).read_all()
        assert table.column("value").to_pylist()[2:4] == [None, b"\x00\x01"]
        assert table.column("leader_epoch").to_pylist() == [4] * 5
        assert table.schema.field("timestamp").type == pa.timestamp("us", tz="UTC")


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_a_binary_format_is_refused_on_a_terminal(
    form: str, payloads: Path, cat: Cat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)

    code, out, err = cat(payloads, "-o", form)

    assert (code, out) == (2, b"")
    assert "--output-file" in err


def test_a_binary_format_takes_no_encoding(payloads: Path, cat: Cat) -> None:
    code, _, err = cat(payloads, "-o", "parquet", "--key-encoding", "hex")

    assert code == 2
    assert "Leave it out" in err


def test_a_terminal_gets_a_table_without_a_control_character(
    payloads: Path, cat: Cat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "120")

    code, out, _ = cat(payloads)

    assert code == 0
    assert b"payloads-0" in out
    assert b"\x1b[31m" not in out.replace(b"\x1b[2m", b"")
    assert rb"two\nlines" in out


def test_a_file_gets_rows_even_if_stdout_is_a_terminal(
    payloads: Path, tmp_path: Path, cat: Cat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)

    cat(payloads, "--output-file", str(tmp_path / "rows"))

    assert len(parsed((tmp_path / "rows").read_bytes())) == 5


def test_a_request_that_cannot_be_met_leaves_the_output_file_alone(payloads: Path, tmp_path: Path, cat: Cat) -> None:
    target = tmp_path / "kept"
    target.write_text("kept")

    code, _, _ = cat(payloads, "--topic", "other", "--output-file", str(target))

    assert (code, target.read_text()) == (3, "kept")


@pytest.mark.parametrize(("asked", "expected"), [("2:5", [2, 3, 4]), ("7:", [7, 8]), (":2", [0, 1]), ("4:4", [])])
def test_offsets_are_half_open(asked: str, expected: list[int], tmp_path: Path, cat: Cat) -> None:
    write_local_tiered(tmp_path, "t", [three_batches()])

    assert offsets(cat.rows(tmp_path, "--offsets", asked)) == expected


@pytest.mark.parametrize(
    "options",
    [["--since", "2000"], ["--since", "1970-01-01T00:00:02Z"], ["--since", "2000", "--until", "now"]],
)
def test_since_begins_at_the_first_record_that_is_not_older(options: list[str], tmp_path: Path, cat: Cat) -> None:
    write_local_tiered(tmp_path, "t", [timed(1000, 2500, 1500, 3000)])

    assert offsets(cat.rows(tmp_path, *options)) == [1, 2, 3]


def test_until_ends_below_the_first_record_that_is_not_older(tmp_path: Path, cat: Cat) -> None:
    write_local_tiered(tmp_path, "t", [timed(1000, 2500, 1500, 3000)])

    assert offsets(cat.rows(tmp_path, "--until", "2000")) == [0]
    assert offsets(cat.rows(tmp_path, "--until", "-1h")) == [0, 1, 2, 3]
    assert offsets(cat.rows(tmp_path, "--since", "1100", "--until", "2600", "--offsets", "2:")) == [2]


def test_a_topic_and_a_partition_can_be_named_as_arguments(tmp_path: Path, cat: Cat) -> None:
    for topic, partition in (("a", 0), ("a", 1), ("b", 0)):
        write_local_tiered(tmp_path, topic, [three_batches()], partition=partition)

    def places(*arguments: str) -> set[tuple[str, int]]:
        return {(row["topic"], row["partition"]) for row in cat.rows(tmp_path, *arguments)}

    assert places("a") == {("a", 0), ("a", 1)}
    assert places("a/1") == places("--topic", "a", "--partition", "1") == {("a", 1)}
    assert places("a", "--partition", "0") == {("a", 0)}


def test_offsets_in_no_segment_end_the_command_or_are_told(tmp_path: Path, cat: Cat) -> None:
    first = three_batches()
    second = first.roll().batch([b"lost", b"lost"])
    directory = write_local_tiered(tmp_path, "t", [first, second, second.roll().batch([b"late"])])
    for log in directory.glob("00000000000000000009-*.log"):
        log.unlink()

    code, out, err = cat(tmp_path, "t")
    assert (code, out) == (5, b"")
    assert "no segment with 9 to 10" in err
    assert "--on-gap skip" in err

    code, out, err = cat(tmp_path, "t", "--on-gap", "skip")
    assert (code, offsets(parsed(out))) == (1, [0, 1, 2, 3, 4, 5, 6, 7, 8, 11])
    assert "missing: t-0: no segment has offsets 9 to 10" in err


def test_a_gap_may_be_skipped_by_the_earlier_word_which_warns(tmp_path: Path, cat: Cat) -> None:
    write_local_tiered(tmp_path, "t", [three_batches()])
    code, out, err = cat(tmp_path, "t", "--on-gap", "report")
    assert (code, len(parsed(out))) == (0, 9)
    assert err == "warning: --on-gap report is deprecated, give --on-gap skip\n"


def test_a_segment_that_vanishes_is_passed_over_if_that_is_wanted(
    tmp_path: Path, cat: Cat, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = three_batches()
    directory = write_local_tiered(tmp_path, "t", [first, first.roll().batch([b"later"])])
    plan = Scan.plan

    def planned(self: Scan) -> ReadPlan:
        found = plan(self)
        for log in directory.glob("00000000000000000000-*.log"):
            log.unlink()
        return found

    monkeypatch.setattr(Scan, "plan", planned)
    code, out, err = cat(tmp_path, "--on-missing", "skip")

    assert (code, offsets(parsed(out))) == (1, [9])
    assert "missing: t-0: offsets 0 to 8" in err


@pytest.mark.parametrize("options", [(), ("--on-missing", "skip", "--on-corrupt", "skip", "--on-gap", "skip")])
def test_a_segment_that_is_replaced_after_planning_ends_the_command(
    options: tuple[str, ...], tmp_path: Path, cat: Cat, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = three_batches()
    directory = write_local_tiered(tmp_path, "t", [first, first.roll().batch([b"later"])])
    (log,) = directory.glob("00000000000000000009-*.log")
    plan = Scan.plan

    def planned(self: Scan) -> ReadPlan:
        found = plan(self)
        later = SegmentBuilder(9).batch([b"other"])
        assert len(later.to_bytes()) == log.stat().st_size
        log.unlink()
        log.write_bytes(later.to_bytes())
        return found

    monkeypatch.setattr(Scan, "plan", planned)
    code, out, err = cat(tmp_path, *options)

    assert (code, offsets(parsed(out))) == (4, list(range(9)))
    assert f"{log}: the object is not the one that was listed; found mtime:" in err
    assert "plan again" in err


def test_a_limit_ends_the_reading_before_damage_that_lies_behind_it(tmp_path: Path, cat: Cat) -> None:
    write_local_tiered(tmp_path, "t", [three_batches(torn=2)])

    assert offsets(cat.rows(tmp_path, "--limit", "4")) == [0, 1, 2, 3]
    assert cat.rows(tmp_path, "--limit", "0") == []


def test_a_limit_reads_only_the_segments_it_needs(tmp_path: Path, cat: Cat, monkeypatch: pytest.MonkeyPatch) -> None:
    first = three_batches()
    second = first.roll()
    for _ in range(3):
        second.batch([b"more"])
    directory = write_local_tiered(tmp_path, "t", [first, second])
    read: list[str] = []
    plain = LocalStore.read_pieces

    def recorded(
        self: LocalStore,
        name: str,
        wanted: ByteRange,
        *,
        expected_size: int | None = None,
        expected_tag: str | None = None,
    ) -> Generator[memoryview, None, None]:
        if wanted.start == 0:  # or it is the end of a log, where its last offset is looked up
            read.append(name)
        return plain(self, name, wanted, expected_size=expected_size, expected_tag=expected_tag)

    monkeypatch.setattr(LocalStore, "read_pieces", recorded)
    cat.rows(tmp_path, "--limit", "2", "--isolation", "read_uncommitted")

    assert [name.rpartition("/")[2] for name in read] == [path.name for path in directory.glob("0*0-*.log")]


def test_damage_comes_after_the_records_before_it(tmp_path: Path, cat: Cat) -> None:
    write_local_tiered(tmp_path, "t", [three_batches(torn=1)])

    code, out, err = cat(tmp_path)

    assert (code, offsets(parsed(out))) == (5, [0, 1, 2])
    assert err.startswith("segreader: ")
    assert "CRC" in err
    assert "base offset 3" in err
    assert "Traceback" not in err


@pytest.mark.parametrize("form", ["json", "parquet", "arrow"])
def test_what_comes_before_damage_is_a_whole_document(form: str, tmp_path: Path, cat: Cat) -> None:
    write_local_tiered(tmp_path, "t", [three_batches(torn=1)])

    code, out, _ = cat(tmp_path, "-o", form)

    source = pa.BufferReader(out)
    if form == "json":
        assert offsets(json.loads(out)) == [0, 1, 2]
    elif form == "parquet":
        assert pq.read_table(source).num_rows == 3
    else:
        assert pa.ipc.open_stream(source).read_all().num_rows == 3
    assert code == 5


def test_skipped_damage_is_told_hole_by_hole_and_is_a_finding(tmp_path: Path, cat: Cat) -> None:
    write_local_tiered(tmp_path, "t", [three_batches(torn=1)])

    code, out, err = cat(tmp_path, "--on-corrupt", "skip")

    assert (code, offsets(parsed(out))) == (1, [0, 1, 2, 6, 7, 8])
    assert err.count("left out: bytes ") == 1
    assert err.count(".log") == 1
    assert "base offset 3" in err
    assert "on_corrupt='skip' (command line: --on-corrupt skip; SQL: on_corrupt := 'skip')" in cat(tmp_path)[2]


def test_stats_of_a_read_without_records_stand_in_two_columns(tmp_path: Path, cat: Cat) -> None:
    write_local_tiered(tmp_path, "t", [three_batches()])

    code, out, err = cat(tmp_path, "--offsets", "99:", "--stats")

    assert (code, out) == (0, b"")
    assert "None" not in err
    assert len({line.rindex(" ") for line in err.splitlines() if not line.startswith("note: ")}) == 1


def test_damage_that_hides_what_was_committed_is_a_finding(tmp_path: Path, cat: Cat) -> None:
    built = SegmentBuilder().batch([b"a"]).batch([b"b"], producer_id=1, transactional=True).marker(1)
    log = next(write_broker_log(tmp_path, "t", [built]).glob("*.log"))
    data = bytearray(log.read_bytes())
    data[built.batch_positions[2] + 69] ^= 1
    log.write_bytes(data)

    code, out, err = cat(tmp_path, "--on-corrupt", "skip")

    assert (code, offsets(parsed(out))) == (1, [0])
    assert "ends at offset 1: damage" in err
    code, out, err = cat(tmp_path)
    assert (code, offsets(parsed(out))) == (5, [0])
    assert "CRC" in err


def test_the_cut_end_of_a_live_log_is_a_note(tmp_path: Path, cat: Cat) -> None:
    write_broker_log(tmp_path, "t", [three_batches().raw(three_batches().to_bytes()[:40])])

    code, out, err = cat(tmp_path)

    assert (code, offsets(parsed(out))) == (0, list(range(9)))
    assert err.startswith("note: ")
    assert "40 bytes" in err


def test_the_cut_end_of_a_finished_segment_is_an_error(tmp_path: Path, cat: Cat) -> None:
    write_local_tiered(tmp_path, "t", [three_batches().raw(three_batches().to_bytes()[:40])])

    code, out, err = cat(tmp_path)

    assert (code, offsets(parsed(out))) == (5, list(range(9)))
    assert "fetch the segment again" in err


def test_an_undecided_transaction_ends_the_records_and_is_told(tmp_path: Path, cat: Cat) -> None:
    built = SegmentBuilder().batch([b"decided"]).batch([b"open"], producer_id=7, transactional=True)
    write_local_tiered(tmp_path, "t", [built])

    code, out, err = cat(tmp_path)

    assert (code, offsets(parsed(out))) == (0, [0])
    assert "ends at offset 1" in err
    assert "producer 7" in err
    assert offsets(cat.rows(tmp_path, "--isolation", "read_uncommitted")) == [0, 1]


def test_one_name_with_two_topic_ids_is_refused_with_both_until_one_is_chosen(cat: Cat) -> None:
    recreated = case("tv2", "recreated")
    root = recreated.remote_root

    code, out, err = cat(root, "--topic", "recreated")

    assert (code, out) == (2, b"")
    assert "--topic-id" in err
    for topic_id in (recreated.topic_id, recreated.facts["old_topic_id"]):
        assert topic_id in err
        assert cat.rows(root, "--topic", "recreated", "--topic-id", topic_id)


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--topic", "other"], 3, "payloads"),
        (["--partition", "3", "--topic", "payloads"], 3, "payloads has partition 0"),
        (["--offsets", "5"], 2, "A:B"),
        (["--offsets", "5:1"], 2, "A:B"),
        (["--isolation", "committed"], 2, "read_committed"),
        (["--limit", "-1"], 2, "--limit"),
        (["--output-file", "/nowhere/at/all"], 3, "Check the path"),
        (["other"], 3, "payloads"),
        (["payloads/3"], 3, "payloads has partition 0"),
        (["payloads/x"], 2, "name/partition"),
        (["payloads", "--topic", "payloads"], 2, "twice"),
        (["payloads/0", "--partition", "0"], 2, "twice"),
        (["--since", "yesterday"], 2, "not a time"),
        (["--since", "2026-11-01T00:00"], 2, "2026-11-01T00:00:00Z"),
        (["--since", "now", "--until", "-1h"], 2, "since is after until"),
        (["--layout", "aivn"], 2, "Did you mean 'aiven'"),
        (["--segments-from", "metadata"], 2, "--metadata"),
        (["--log-directory", "/nowhere/at/all"], 3, "/nowhere/at/all"),
    ],
)
def test_a_request_that_cannot_be_met_says_why(
    options: list[str], code: int, said: str, payloads: Path, cat: Cat
) -> None:
    seen, out, err = cat(payloads, *options)

    assert (seen, out) == (code, b"")
    assert said in err


def test_a_range_gives_the_record_that_a_whole_read_gives_there(cat: Cat) -> None:
    one = case("tv2", "odd-offsets")
    whole = cat.rows(one.root / "remote", "--topic", one.topic)
    assert cat.rows(one.root / "remote", "--topic", one.topic, "--offsets", "5:9") == whole[4:7]
    assert [row["offset"] for row in whole[4:8]] == [5, 6, 7, 9]


def test_a_transaction_that_the_cleaner_emptied_holds_nothing_back(cat: Cat, tmp_path: Path) -> None:
    built = SegmentBuilder().batch([b"0"]).empty_batch(2, producer_id=1, transactional=True).skip(1).batch([b"4"])
    write_broker_log(tmp_path, "orders", [built])
    code, out, err = cat(tmp_path)
    assert (code, [row["offset"] for row in parsed(out)], err) == (0, [0, 4], "")


def test_a_transaction_index_that_is_cut_ends_with_an_error_that_names_it(cat: Cat, tmp_path: Path) -> None:
    built = SegmentBuilder().batch([b"no"], producer_id=1, transactional=True).marker(1, abort=True)
    place = write_local_tiered(tmp_path, "orders", [built])
    index = next(place.glob("*.txnindex"))
    index.write_bytes(index.read_bytes()[:20])
    code, out, err = cat(tmp_path)
    assert (code, out) == (5, b"")
    assert str(index) in err
    assert "found 20 bytes, expected a multiple of 34" in err
    code, out, err = cat(tmp_path, "--on-corrupt", "skip")
    assert (code, "ends inside a row" in err) == (1, True)


def test_a_lost_branch_whose_checkpoint_is_gone_is_not_printed_and_a_note_says_so(cat: Cat, tmp_path: Path) -> None:
    old = SegmentBuilder(0).batch([b"0"]).batch([b"dead"])
    new = SegmentBuilder(1, leader_epoch=3).batch([b"live"])
    new.leader_epochs = [*old.leader_epochs, *new.leader_epochs]
    place = write_local_tiered(tmp_path, "orders", [old, new])
    (checkpoint,) = place.glob(f"{0:020d}-*.leader_epoch_checkpoint")
    checkpoint.unlink()

    code, out, err = cat(tmp_path)

    assert (code, [row["value"] for row in parsed(out)]) == (0, ["0", "live"])
    assert "1 segment has no sound leader-epoch checkpoint" in err


def test_a_stale_checkpoint_of_the_newest_segment_prints_no_dead_record(cat: Cat, tmp_path: Path) -> None:
    old = SegmentBuilder(0, leader_epoch=2).batch([b"0"]).batch([b"dead"]).batch([b"dead"])
    new = SegmentBuilder(1, leader_epoch=4).batch([b"live"])
    new.leader_epochs = list(old.leader_epochs)
    for file in write_local_tiered(tmp_path, "orders", [old, new]).iterdir():
        os.utime(file, (0, 0))

    code, out, err = cat(tmp_path)

    assert (code, [row["value"] for row in parsed(out)]) == (0, ["0", "live"])
    assert "its batches bear other leader epochs than its checkpoint says" in err


def test_a_note_says_the_newest_time_where_no_record_is_as_new_as_asked(tmp_path: Path, cat: Cat) -> None:
    write_local_tiered(tmp_path, "t", [timed(1_000, 2_000)])
    write_local_tiered(tmp_path, "t", [timed(1_000, 3_000)], partition=1)

    for options in (["--since", "-1h"], ["--since", "-1h", "--until", "now"], ["t", "--since", "4000"]):
        code, out, err = cat(tmp_path, *options)
        assert (code, out) == (0, b"")
        assert err.startswith("note: no record that can be read is as new as ")
        assert err.endswith(": the newest time there is 1970-01-01T00:00:03.000Z, in t-1\n")
    for options in (
        ["--since", "3000"],
        ["--since", "1000", "--until", "1000"],
        ["--until", "10"],
        ["--offsets", "1:"],
    ):
        code, out, err = cat(tmp_path, *options)
        assert (code, err) == (0, "")


def test_a_note_says_where_the_log_ends_if_offsets_begin_beyond_it(tmp_path: Path, cat: Cat) -> None:
    write_local_tiered(tmp_path, "t", [timed(1_000)])
    write_local_tiered(tmp_path, "t", [timed(1_000, 3_000)], partition=1)

    for start in (2, 9):
        code, out, err = cat(tmp_path, "--offsets", f"{start}:")
        assert (code, out) == (0, b"")
        assert err == f"note: no record that can be read has offset {start} or a later one\n"
    for options in (["--offsets", "1:"], ["--offsets", "1:", "--limit", "0"], ["--offsets", "1:", "--grep", "no"]):
        assert "no record that can be read" not in cat(tmp_path, *options)[2]
    code, out, err = cat(case("tv2", "multi").remote_root, "multi", "--offsets", "99999:")
    assert err.endswith(" has offset 99999 or a later one: the last segment ends at offset 3026, in multi-0\n")


def test_a_note_says_so_where_only_a_marker_is_as_new_as_asked(tmp_path: Path, cat: Cat) -> None:
    built = timed(1_000).batch([ProducerRecord(b"t", timestamp_ms=2_000)], producer_id=7, transactional=True)
    write_local_tiered(tmp_path, "t", [built.marker(7, timestamp_ms=9_000)])

    code, out, err = cat(tmp_path, "--since", "5000")

    assert (code, out) == (0, b"")
    assert "00:00:09.000Z, in t-0, of a transaction marker or an open transaction" in err


def test_a_stale_snapshot_ends_with_an_error_before_undecided_data(cat: Cat, tmp_path: Path) -> None:
    first = SegmentBuilder().batch([b"0"])
    second = first.roll().batch([b"1"]).batch([b"2"], producer_id=1, transactional=True)
    place = write_local_tiered(tmp_path, "orders", [first, second])
    older, newest = (next(place.glob(f"{base:020d}-*.snapshot")) for base in (0, 1))
    newest.write_bytes(older.read_bytes())
    code, out, err = cat(tmp_path)
    assert (code, [row["offset"] for row in parsed(out)]) == (5, [0, 1])
    assert "producer 1 from offset 2 on" in err
    assert "the log ends inside a transaction of it, with a batch at 2" in err


def test_a_range_that_ends_before_the_abort_gives_nothing_of_it(cat: Cat, tmp_path: Path) -> None:
    built = SegmentBuilder().batch([b"0"]).batch([b"no"], producer_id=1, transactional=True)
    place = write_local_tiered(tmp_path, "orders", [built, built.roll().batch([b"2"]).marker(1, abort=True)])
    next(place.glob("*.txnindex")).unlink()
    code, out, err = cat(tmp_path, "--offsets", "0:2")
    assert (code, [row["offset"] for row in parsed(out)]) == (5, [0])
    assert "ABORT of producer 1, whose records at offset 1 the indexes call committed" in err


@pytest.mark.parametrize("limit", [2**63 - 1, 2**63, 2**70])
def test_a_limit_beyond_every_record_is_none(limit: int, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main(["cat", str(CORPUS / "tv2" / "remote"), "multi/0", "--limit", str(limit)]) == 0
    assert capsysbinary.readouterr().out.count(b"\n") == 3026


@pytest.mark.parametrize("last", [2**63, 2**70])
def test_more_last_records_than_offsets_can_count_are_refused_by_name(
    last: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cat", str(CORPUS / "tv2" / "remote"), "multi/0", "--last", str(last)]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"segreader: last is too large; found {last}, expected at most 9223372036854775807.")


@pytest.mark.parametrize("name", ["split_bytes", "batch_rows", "batch_bytes", "max_batch_bytes", "last"])
@pytest.mark.parametrize("value", [2**70, 0, -1, "a", 1.5])
def test_a_number_of_a_scan_that_cannot_be_is_refused_as_an_option(name: str, value: object) -> None:
    option: dict[str, Any] = {name: value}

    with pytest.raises(OptionError, match=name):
        segreader.scan(CORPUS / "tv2" / "remote", topic="multi", **option)


@pytest.mark.parametrize("name", ["split_bytes", "batch_bytes", "max_batch_bytes", "last"])
def test_the_largest_number_of_a_scan_sets_no_limit(name: str) -> None:
    option: dict[str, Any] = {name: 2**63 - 1}

    assert segreader.scan(CORPUS / "tv2" / "remote", topic="multi", **option).to_arrow().num_rows == 12_000
