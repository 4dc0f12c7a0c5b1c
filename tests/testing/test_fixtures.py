"""The fixtures: made by their recipes, understood by others, read by this library as their README says."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from corpus import FIXTURES, NormalRecord, cases, normal
from foreign import aiokafka_records
from made import CORRUPT, SEGMENTS, CorruptFile, MadeLog, corrupt_files, made_logs

from segreader import errors
from segreader.format.checkpoints import parse_leader_epochs, parse_partition_metadata, parse_producer_snapshot
from segreader.format.index_files import parse_offset_index, parse_time_index, parse_transaction_index
from segreader.live.scan import LiveScan
from segreader.scans import Scan, scan

NOT_FOR_AIOKAFKA = ("mixed_magic", "header_names_that_are_no_text")  # no LZ4 in magic 0; names must be UTF-8
FINISHED = [log for log in made_logs() if not log.is_cut_short]


def recipes() -> ModuleType:
    """``fixtures/make.py``, which is a program and in no package."""
    spec = importlib.util.spec_from_file_location("fixtures_make", FIXTURES / "make.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def read(reader: Scan | LiveScan) -> list[NormalRecord]:
    return [normal(record) for record in reader.records()]


def test_every_made_file_is_what_its_recipe_makes() -> None:
    assert list(recipes().differences()) == []


def test_a_changed_missing_or_foreign_file_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make = recipes()
    monkeypatch.setattr(make, "HERE", tmp_path)
    (tmp_path / "recipes").mkdir()
    recipe = '[[segment]]\nsteps = [{ batch = ["v"] }]\n'
    (tmp_path / "recipes" / "one.toml").write_text(recipe)
    assert make.main([]) == 0

    log = tmp_path / "segments" / "one" / "00000000000000000000.log"
    log.write_bytes(log.read_bytes()[:-1])
    log.with_suffix(".index").unlink()
    log.with_name("stray").touch()

    assert make.main(["--check"]) == 1
    assert sorted(make.differences()) == [
        "segments/one/00000000000000000000.index: missing",
        "segments/one/00000000000000000000.log: differs from its recipe",
        "segments/one/stray: no recipe makes it",
    ]


def test_every_set_case_log_and_corrupt_file_has_a_row_in_the_readme() -> None:
    readme = (FIXTURES / "README.md").read_text(encoding="utf-8")
    names = [path.name for path in (*SEGMENTS.iterdir(), *CORRUPT.iterdir())]

    assert [name for name in names if f"| `{name}` |" not in readme and name != "expected.json"] == []
    assert [str(case) for case in cases() if f"| {case.set_name} | `{case.topic}` |" not in readme] == []


def test_every_corrupt_file_has_an_expectation_and_every_format_error_has_a_file() -> None:
    files = corrupt_files()
    kinds = {cls.__name__ for cls in errors.FormatError.__subclasses__()}

    assert {file.name for file in files} == {path.name for path in CORRUPT.iterdir()} - {"expected.json"}
    assert {file.error for file in files} == kinds


@pytest.mark.parametrize("log", [log for log in made_logs() if log.name not in NOT_FOR_AIOKAFKA], ids=str)
def test_aiokafka_reads_what_was_written_down_by_hand(log: MadeLog) -> None:
    found = []
    for base in log.base_offsets:
        data = (log.directory / f"{base:020d}.log").read_bytes()
        found += aiokafka_records(data[: log.expected.get("tail", {}).get("position")])

    assert [
        NormalRecord(0, r.offset, r.timestamp_ms, r.timestamp_type.java_name, None, r.key, r.value, r.headers)
        for r in found
    ] == [replace(record, leader_epoch=None) for record in log.records()]


@pytest.mark.parametrize("log", made_logs(), ids=str)
def test_the_files_beside_a_made_log_say_what_was_written_down_by_hand(log: MadeLog) -> None:
    aborted, index, times = [], [], []
    for base in log.base_offsets:
        stem = log.directory / f"{base:020d}"
        if (path := stem.with_suffix(".txnindex")).exists():
            aborted += list(parse_transaction_index(path.read_bytes(), base))
        index += [(e.offset, e.position) for e in parse_offset_index(stem.with_suffix(".index").read_bytes(), base)]
        times += [
            (e.timestamp_ms, e.offset) for e in parse_time_index(stem.with_suffix(".timeindex").read_bytes(), base)
        ]
    expected = log.expected

    assert [[e.producer_id, e.first_offset, e.last_offset, e.last_stable_offset] for e in aborted] == expected[
        "aborted"
    ]
    assert index == [tuple(row) for row in expected.get("index", [])]
    if "timeindex" in expected:
        assert times == [tuple(row) for row in expected["timeindex"]]
    if not log.is_cut_short:
        snapshot = (log.directory / f"{expected['log_end_offset']:020d}.snapshot").read_bytes()
        opened = {str(pid): first for pid, first in parse_producer_snapshot(snapshot).open_transactions().items()}
        assert opened == expected["open"]
    if "leader_epochs" in expected:
        lineage = parse_leader_epochs((log.directory / "leader-epoch-checkpoint").read_bytes())
        assert [[e.epoch, e.start_offset] for e in lineage] == expected["leader_epochs"]


@pytest.mark.parametrize("log", made_logs(), ids=str)
def test_a_made_log_is_read_from_a_brokers_directory(log: MadeLog, tmp_path: Path) -> None:
    log.lay_out_local(tmp_path)
    stable = log.expected["last_stable_offset"]

    assert read(scan(tmp_path, isolation_level="read_uncommitted")) == log.records()
    assert read(scan(tmp_path, offsets=(None, stable))) == log.records("committed")


@pytest.mark.parametrize("log", FINISHED, ids=str)
def test_a_made_log_is_read_from_the_remote_tier(log: MadeLog, tmp_path: Path) -> None:
    log.lay_out_remote(tmp_path)
    stable = log.expected["last_stable_offset"]

    assert read(scan(tmp_path, isolation_level="read_uncommitted")) == log.records()
    assert read(scan(tmp_path, offsets=(None, stable))) == log.records("committed")


@pytest.mark.parametrize("kernel", ["reference", "native"])
@pytest.mark.parametrize("file", corrupt_files("log"), ids=str)
def test_a_corrupt_log_gives_its_good_records_and_then_its_error(
    file: CorruptFile, kernel: str, tmp_path: Path
) -> None:
    file.lay_out_remote(tmp_path)
    batches = scan(tmp_path, isolation_level="read_uncommitted", kernel=kernel).to_batches()
    rows = 0

    with pytest.raises(errors.FormatError) as raised:
        for batch in batches:
            rows += batch.num_rows

    assert type(raised.value).__name__ == file.error
    assert raised.value.base_offset == file.base_offset
    assert raised.value.position is not None
    assert file.position is not None
    assert file.position <= raised.value.position <= file.path.stat().st_size
    assert rows == file.records


@pytest.mark.parametrize("file", [file for file in corrupt_files() if file.kind != "log"], ids=str)
def test_a_corrupt_file_beside_a_log_raises_its_error(file: CorruptFile) -> None:
    data, base = file.path.read_bytes(), file.base_offset or 0

    parse: dict[str, Callable[[], object]] = {
        "index": lambda: parse_offset_index(data, base, log_size=file.log_size),
        "timeindex": lambda: parse_time_index(data, base),
        "txnindex": lambda: parse_transaction_index(data, base),
        "snapshot": lambda: parse_producer_snapshot(data),
        "leader_epoch_checkpoint": lambda: parse_leader_epochs(data),
        "partition.metadata": lambda: parse_partition_metadata(data),
    }

    with pytest.raises(errors.FormatError) as raised:
        parse[file.kind]()

    assert type(raised.value).__name__ == file.error
    assert (raised.value.position, raised.value.base_offset) == (file.position, file.base_offset)
