"""``segreader dump`` says what ``kafka-dump-log`` says of every file, and what is wrong with a damaged one."""

from __future__ import annotations

import base64
import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from corpus import CORPUS, FIXTURES, case
from java_dump import DumpedFile, read_dump

from segreader.cli.main import main
from segreader.storage.local import LocalStore
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import write_broker_log, write_local_tiered
from segreader.testing.stores import MemoryStore

SETS = ("tv2", "tv1", "k39", "legacy")
CORRUPT = FIXTURES / "corrupt"
TIMES = ("CreateTime", "LogAppendTime", "NoTimestampType")


class Dump:
    """Runs the command in this process."""

    def __init__(self, captured: pytest.CaptureFixture[bytes]) -> None:
        self._captured = captured

    def __call__(self, *arguments: object) -> tuple[int, list[dict[str, Any]], str]:
        code = main(["dump", *map(str, arguments)])
        out, err = self._captured.readouterr()
        return int(code), [json.loads(line) for line in out.splitlines()], err.decode()

    def rows(self, *arguments: object) -> list[dict[str, Any]]:
        """The rows between ``file`` and ``end``, where all goes well."""
        code, rows, err = self(*arguments)
        assert (code, err) == (0, "")
        assert (rows[0]["kind"], rows[-1]["kind"]) == ("file", "end")
        return rows[1:-1]


@pytest.fixture
def dump(capsysbinary: pytest.CaptureFixture[bytes]) -> Dump:
    return Dump(capsysbinary)


def dumped_files() -> list[Any]:
    return [
        pytest.param(set_name, file, id=f"{set_name}/{file.path}")
        for set_name in SETS
        for file in read_dump(CORPUS / set_name / "dump" / "segments.txt.gz")
        if file.is_complete
    ]


def path_of(set_name: str, file: DumpedFile) -> Path:
    found = case(set_name, file.topic)
    return (found.remote or found.local)[0] / f"{file.stem}.{file.suffix}"


def in_java_names(row: Mapping[str, Any]) -> dict[str, str]:
    """A row as the tool would have printed it."""
    words = {name: value for name, value in row.items() if name not in ("kind", "timestamp_type")}
    for time in ("max_timestamp", "timestamp"):
        if "timestamp_type" in row and time in words:
            words[row["timestamp_type"]] = words.pop(time)
    for name, java in (("compress_codec", "compresscodec"), ("value", "payload")):
        if name in words:
            words[java] = words.pop(name)
    if row["kind"] == "batch":
        words["isvalid"] = words.pop("is_valid")
    return {_camel(name): _printed(name, value) for name, value in words.items() if value is not None}


def _camel(name: str) -> str:
    return re.sub("_(.)", lambda match: match[1].upper(), name)


def _printed(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if name == "header_keys":
        return ",".join(value)
    return str(value)


def without_empty(fields: Mapping[str, str]) -> dict[str, str]:
    """The tool's fields, with its optional values as plain ones."""
    plain = {name: re.sub(r"^OptionalLong\[(.*)\]$", r"\1", value) for name, value in fields.items()}
    if "endTxnMarker" in plain:
        plain["headerKeys"] = plain["headerKeys"].strip("[]")
    return {name: value for name, value in plain.items() if value != "OptionalLong.empty"}


@pytest.mark.parametrize(("set_name", "file"), dumped_files())
def test_every_fact_is_that_of_kafka_dump_log(set_name: str, file: DumpedFile, dump: Dump) -> None:
    rows = dump.rows(path_of(set_name, file), "--records", "--key-encoding", "utf8", "--value-encoding", "utf8")

    if file.suffix == "log":
        expected = [fields for batch in file.batches for fields in (batch.fields, *batch.records)]
    else:
        expected = [entry for entry in file.entries if not is_of_an_empty_index(entry, file)]
    assert [in_java_names(row) for row in rows] == [without_empty(fields) for fields in expected]


def is_of_an_empty_index(entry: Mapping[str, str], file: DumpedFile) -> bool:
    """Whether the tool read the zeros of an empty index as an entry."""
    base_offset = str(int(file.stem[:20]))
    zero = {"index": {"position": "0"}, "timeindex": {"timestamp": "0"}}.get(file.suffix)
    return zero is not None and entry == zero | {"offset": base_offset}


def test_a_batch_has_the_fields_of_the_tool_in_snake_case(dump: Dump) -> None:
    file = next(file for file in read_dump(CORPUS / "tv2" / "dump" / "segments.txt.gz") if file.suffix == "log")

    assert dump.rows(path_of("tv2", file))[0] == {
        "kind": "batch",
        "base_offset": 0,
        "last_offset": 8,
        "count": 9,
        "base_sequence": 0,
        "last_sequence": 8,
        "producer_id": 4004,
        "producer_epoch": 0,
        "partition_leader_epoch": 0,
        "is_transactional": False,
        "is_control": False,
        "delete_horizon_ms": None,
        "position": 0,
        "timestamp_type": "CreateTime",
        "max_timestamp": 1764207443305,
        "size": 387,
        "magic": 2,
        "compress_codec": "gzip",
        "crc": 1822432083,
        "is_valid": True,
    }


def test_control_records_are_shown_by_what_they_mean(tmp_path: Path, dump: Dump) -> None:
    built = SegmentBuilder().batch([b"v"], producer_id=1, transactional=True)
    built.marker(1, abort=True, coordinator_epoch=6).control(9, b"new").control(5, b"\x00\x00\x00\x01\x00")
    folder = write_broker_log(tmp_path, "t", [built])

    markers = [row for row in dump.rows(folder / f"{0:020}.log", "--records") if row["kind"] == "record"][1:]

    assert (markers[0]["end_txn_marker"], markers[0]["coordinator_epoch"]) == ("ABORT", 6)
    assert (markers[1]["control_type"], markers[1]["control_type_id"]) == ("UNKNOWN", 9)
    assert markers[2]["kraft_version"] == {"version": 0, "kraft_version": 1}
    assert not any("key" in marker or "value" in marker for marker in markers)


@pytest.mark.parametrize(
    ("name", "kind", "base_offset"),
    [
        ("00000000000000000042.log", "log", 42),
        ("00000000000000000042.log.deleted", "log", 42),
        ("00000000000000000042-oeMhhCbsTPq6Y1WBXDVDzw.log", "log", 42),
        ("00000000000000000042-0000000007.checkpoint", "log", 42),
        ("00000000000000000042.index", "index", 42),
        ("00000000000000000042.timeindex", "timeindex", 42),
        ("00000000000000000042.txnindex", "txnindex", 42),
        ("00000000000000000042-oeMhhCbsTPq6Y1WBXDVDzw.leader_epoch_checkpoint", "leader-epochs", 42),
        ("leader-epoch-checkpoint", "leader-epochs", None),
    ],
)
def test_a_file_is_known_by_its_name(name: str, kind: str, base_offset: int | None, tmp_path: Path, dump: Dump) -> None:
    (tmp_path / name).touch()

    _, rows, _ = dump(tmp_path / name)

    assert rows[0] == {
        "kind": "file",
        "file": str(tmp_path / name),
        "type": kind,
        "base_offset": base_offset,
        "size": 0,
    }


def test_a_name_that_says_nothing_needs_the_kind(tmp_path: Path, dump: Dump) -> None:
    odd = tmp_path / "copy.bin"
    odd.write_bytes(SegmentBuilder().batch([b"v"]).to_bytes())

    code, rows, err = dump(odd)
    assert (code, rows) == (2, [])
    assert ".log, .checkpoint, .index," in err
    assert "partition.metadata by name; with --kind" in err
    assert [row["kind"] for row in dump.rows(odd, "--kind", "log", "--records")] == ["batch", "record"]


@pytest.mark.parametrize(
    ("name", "options", "kind"),
    [
        ("app.log", (), "log, as its name says"),
        ("app.snapshot", (), "snapshot, as its name says"),
        ("app.bin", ("--kind", "index"), "index, as --kind says"),
    ],
)
def test_a_file_that_is_something_else_is_said_to_be_read_by_its_name(
    tmp_path: Path, dump: Dump, name: str, options: tuple[str, ...], kind: str
) -> None:
    (tmp_path / name).write_text("started at ten and went well until noon, but then came the rain")

    code, _, err = dump(tmp_path / name, *options)

    assert code == 5
    assert f"It was read as {kind}: if it is something else, give --kind log, index, timeindex, " in err
    assert "segreader dump" not in err


def test_partition_metadata_and_epochs_are_shown(dump: Dump) -> None:
    folder = case("tv2", "nulls").local[0]

    assert dump.rows(folder / "partition.metadata")[0]["topic_id"] == case("tv2", "nulls").topic_id
    assert dump.rows(folder / "leader-epoch-checkpoint") == [{"kind": "entry", "epoch": 0, "start_offset": 0}]


def test_several_files_are_told_apart_by_their_file_rows(dump: Dump) -> None:
    folder = case("tv2", "nulls").remote[0]
    files = sorted(map(str, folder.iterdir()))

    code, rows, _ = dump(*files)

    assert code == 0
    assert [row["file"] for row in rows if row["kind"] == "file"] == files
    assert [row["kind"] for row in rows].count("end") == len(files)


@pytest.mark.parametrize(
    ("after", "tail", "trailing", "missing"),
    [
        (b"", "end", 0, None),
        (SegmentBuilder(1).batch([b"cut"]).to_bytes()[:50], "cut", 50, 21),
        (bytes(99), "zero", 99, None),
    ],
)
def test_the_end_says_why_the_data_ends(
    after: bytes, tail: str, trailing: int, missing: int | None, tmp_path: Path, dump: Dump
) -> None:
    whole = SegmentBuilder().batch([b"v"])
    size = len(whole.to_bytes())
    folder = write_broker_log(tmp_path, "t", [whole.raw(after)])

    code, rows, _ = dump(folder / f"{0:020}.log")

    assert code == 0
    assert rows[-1] == {
        "kind": "end",
        "tail": tail,
        "position": size,
        "batches": 1,
        "trailing_bytes": trailing,
        "missing_bytes": missing,
    }


def test_a_batch_that_fails_its_crc_is_shown_without_its_records_and_the_next_one_follows(
    tmp_path: Path, dump: Dump
) -> None:
    built = SegmentBuilder().batch([b"one"]).batch([b"two"]).batch([b"three"])
    data = bytearray(built.to_bytes())
    data[built.batch_positions[1] + 70] ^= 1
    (tmp_path / "t.log").write_bytes(data)

    code, rows, err = dump(tmp_path / "t.log", "--records")

    assert code == 1
    assert [(row["kind"], row.get("is_valid")) for row in rows[1:-1]] == [
        ("batch", True),
        ("record", None),
        ("batch", False),
        ("batch", True),
        ("record", None),
    ]
    assert f"byte {built.batch_positions[1]} fails its CRC" in err


def test_records_that_cannot_be_decoded_are_damage_and_the_next_batch_follows(dump: Dump) -> None:
    broken = CORRUPT / "CorruptRecordError-second-record.log"

    code, rows, err = dump(broken, "--records")

    damage = next(row for row in rows if row["kind"] == "damage")
    assert code == 1
    assert damage["error"] in err
    assert rows[-1]["kind"] == "end"


def test_damage_that_hides_the_next_batch_ends_the_dump_after_what_came_before(dump: Dump) -> None:
    code, rows, err = dump(CORRUPT / "CorruptBatchError-size-negative.log")

    assert code == 5
    assert [row["kind"] for row in rows] == ["file", "batch"]
    assert "CorruptBatchError-size-negative.log: " in err
    assert "byte 80" in err


@pytest.mark.parametrize("path", sorted(CORRUPT.glob("*Error-*")), ids=lambda path: path.name)
def test_no_damage_is_an_internal_error(path: Path, dump: Dump) -> None:
    code, rows, err = dump(path, "--records")

    assert code in (0, 1, 5)
    assert rows[0]["kind"] == "file"
    assert ("Traceback" in err, "internal" in err) == (False, False)
    if path.suffix != ".log" and "outside-the-log" not in path.name:
        assert code == 5


def test_a_log_is_read_in_pieces(tmp_path: Path, dump: Dump, monkeypatch: pytest.MonkeyPatch) -> None:
    built = SegmentBuilder()
    for _ in range(30):
        built.batch([bytes(100_000)])
    folder = write_local_tiered(tmp_path, "t", [built])
    read: list[int] = []
    plain = LocalStore.read_pieces

    def recorded(self: LocalStore, *arguments: Any, **options: Any) -> Iterator[memoryview]:
        for piece in (pieces := plain(self, *arguments, **options)):
            read.append(len(piece))
            yield piece
        pieces.close()

    monkeypatch.setattr(LocalStore, "read_pieces", recorded)
    rows = dump.rows(next(folder.glob("*.log")))

    assert len(rows) == 30
    assert max(read) <= 1 << 20
    assert sum(read) == len(built.to_bytes())


def test_encodings_are_those_of_cat(tmp_path: Path, dump: Dump) -> None:
    folder = write_broker_log(tmp_path, "t", [SegmentBuilder().batch([b"\xff"])])
    log = folder / f"{0:020}.log"

    auto, base = dump.rows(log, "--records")[1], dump.rows(log, "--records", "--value-encoding", "base64")[1]

    assert (auto["value"], auto["value_encoding"]) == ("/w==", "base64")
    assert base64.b64decode(base["value"]) == b"\xff"
    assert "value_encoding" not in base


def test_a_terminal_gets_tables(dump: Dump, monkeypatch: pytest.MonkeyPatch, capsysbinary: Any) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "200")

    code = main(["dump", *map(str, sorted(case("tv2", "txn-abort").remote[0].iterdir())), "--records"])
    out = capsysbinary.readouterr().out.decode()

    assert code == 0
    assert "0..7" in out
    assert "end_txn_marker ABORT" in out
    assert "ends with its last batch" in out


@pytest.mark.parametrize(("place", "code"), [("nowhere.log", 3), (".", 2)])
def test_what_is_no_file_is_refused(place: str, code: int, tmp_path: Path, dump: Dump) -> None:
    assert dump(tmp_path / place)[0] == code


@pytest.mark.parametrize("set_name", ["aiven-encrypted", "aiven-zstd"])
def test_a_segment_that_a_plugin_stores_is_shown_as_the_broker_has_it(set_name: str, dump: Dump) -> None:
    config = ["--rsm-config", FIXTURES / "aiven-encrypted.properties"] if set_name == "aiven-encrypted" else []
    stored = sorted((CORPUS / set_name / "remote").rglob("txn-marker-active-*/0/*.log"))
    (local,) = (CORPUS / set_name / "local").rglob("txn-marker-active-0")
    compared = 0
    for log in stored:
        base = log.name[:20]
        for kind in ("log", "index", "timeindex", "txnindex"):
            plain = local / f"{base}.{kind}"
            if plain.exists() and plain.stat().st_size:
                rows = dump.rows(log.with_suffix(f".{kind}"), "--layout", "aiven", *config)
                assert rows == dump.rows(plain), (log, kind)
                compared += bool(rows)

    assert len(stored) > 1
    assert compared > 3


def test_an_object_in_a_bucket_is_shown(dump: Dump, monkeypatch: pytest.MonkeyPatch) -> None:
    log = next(case("tv2", "txn-abort").remote[0].glob("*.log"))
    store = MemoryStore({f"tiered/t-0-x/{log.name}": log.read_bytes()})
    monkeypatch.setattr("segreader.stored.source.open_store", lambda location, **_: (store, "tiered/t-0-x/"))

    code, rows, _ = dump(f"s3://bucket/tiered/t-0-x/{log.name}")

    assert code == 0
    assert rows[0]["file"] == f"memory://bucket/tiered/t-0-x/{log.name}"
    assert rows[1:] == dump(log)[1][1:]


@pytest.mark.parametrize("damage", [False, True], ids=["sound", "damaged"])
def test_each_store_is_closed_behind_its_file(damage: bool, dump: Dump, monkeypatch: pytest.MonkeyPatch) -> None:
    log = next(case("tv2", "txn-abort").remote[0].glob("*.log"))
    names = [f"tiered/t-0-x/{number}-{log.name}" for number in range(2)]
    opened, closed = [], []

    def open_store(location: object, **_: object) -> tuple[MemoryStore, str]:
        store = MemoryStore(dict.fromkeys(names, bytes(100) if damage else log.read_bytes()))
        monkeypatch.setattr(store, "close", lambda: closed.append(store), raising=False)
        opened.append(store)
        return store, "tiered/t-0-x/"

    monkeypatch.setattr("segreader.stored.source.open_store", open_store)
    dump(*(f"s3://bucket/{name}" for name in names), *(["--kind", "index"] if damage else []))

    assert opened
    assert [id(store) for store in closed] == [id(store) for store in opened]


def test_an_encrypted_segment_without_its_key_is_refused(dump: Dump) -> None:
    log = next((CORPUS / "aiven-encrypted" / "remote").rglob("*.log"))

    code, rows, err = dump(log, "--layout", "aiven")

    assert (code, [row["kind"] for row in rows]) == (5, ["file"])
    assert "--rsm-config" in err


def test_the_table_counts_one_of_a_kind_as_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "00000000000000000000.log"
    log.write_bytes(SegmentBuilder().batch([b"v"]).to_bytes() + b"\x01")
    assert main(["dump", str(log), "-o", "table"]) == 0
    assert "1 batch; ends inside a batch at byte 69; 1 byte follows" in capsys.readouterr().out
