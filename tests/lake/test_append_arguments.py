"""What ``segreader.lake.append`` is asked for: refused before there is a table, or taken as it was meant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from growing_bucket import CORPUS

from segreader import lake
from segreader.errors import OptionError

REMOTE = CORPUS.parent


@pytest.mark.parametrize(
    ("argument", "value", "told"),
    [
        ("processes", 0, "processes must be a whole number above zero"),
        ("processes", -1, "processes must be a whole number above zero"),
        ("processes", "x", "processes must be a whole number above zero"),
        ("processes", 1.5, "processes must be a whole number above zero"),
        ("file_bytes", 0, "file_bytes must be a whole number above zero"),
        ("split_bytes", "1m", "split_bytes must be a whole number above zero"),
        ("commit_bytes", None, "commit_bytes must be a whole number above zero"),
        ("partition_by", None, "partition_by must be text"),
        ("credentials", None, "credentials must be text"),
        ("credentials", "", "credentials is not the name of a provider"),
        ("options", {5: 5}, "names in options must be text"),
        ("options", {"valueSchema": None}, "valueSchema in options must be text"),
        ("options", "subscribe", "options must be a mapping"),
        ("options", {"valueSchemas": "x"}, "unknown option valueschemas"),
        ("storage_options", {"a": 5}, "unknown storage option"),
        ("storage_options", {5: "a"}, "names in storage_options must be text"),
        ("topic", "", "topic is empty"),
        ("topic", " ", "topic is empty"),
        ("topic", 5, "topic must be text"),
        ("location", "", "location must be a path or a URL"),
        ("location", 5, "location must be a path or a URL"),
        ("location", None, "location must be a path or a URL"),
    ],
)
def test_an_argument_that_means_nothing_is_refused_before_there_is_a_table(
    tmp_path: Path, argument: str, value: Any, told: str
) -> None:
    asked: dict[str, Any] = {"location": REMOTE, "topic": "txn-span", argument: value}
    with pytest.raises(OptionError, match=told):
        lake.append(tmp_path / "table", asked.pop("location"), **asked)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("pattern", "told"),
    [("", "pattern is empty"), (5, "pattern must be text"), ("[", r"^pattern '\[' does not mean the same")],
)
def test_a_pattern_that_is_none_is_refused(tmp_path: Path, pattern: Any, told: str) -> None:
    with pytest.raises(OptionError, match=told):
        lake.append(tmp_path / "table", REMOTE, pattern=pattern)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("table", ["", " "])
def test_an_empty_name_of_a_table_is_not_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OptionError, match="table must be a path or a URL"):
        lake.append(table, REMOTE, topic="txn-span")
    assert not list(tmp_path.iterdir())


def test_numbers_of_numpy_are_numbers(tmp_path: Path) -> None:
    size: Any = np.int64(1 << 20)
    done = lake.append(
        tmp_path / "table",
        REMOTE,
        topic="nulls",
        file_bytes=size,
        split_bytes=size,
        commit_bytes=size,
        processes=np.int32(1),  # type: ignore[arg-type]
    )
    assert done.records > 0


@pytest.mark.parametrize(
    ("name", "text", "hint"),
    [
        ("subscribe", "nulls", "argument topic"),
        ("SUBSCRIBE", "nulls", "argument topic"),
        ("subscribePattern", "nulls", "argument pattern"),
        ("assign", '{"nulls": [0]}', "argument topic"),
        ("Location", "elsewhere", "argument location"),
        ("credentials", "env:OTHER", "argument credentials"),
        ("includeheaders", "false", "always has headers"),
    ],
)
def test_an_option_that_says_what_an_argument_says_is_refused(tmp_path: Path, name: str, text: str, hint: str) -> None:
    with pytest.raises(OptionError, match=f"the option {name}.*{hint}"):
        lake.append(tmp_path / "table", REMOTE, topic="txn-abort", options={name: text})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["isolationLevel", "isolationlevel", "kafka.isolation.level"])
def test_a_table_of_committed_records_is_given_no_others_however_the_option_is_written(
    tmp_path: Path, name: str
) -> None:
    table = tmp_path / "table"
    first = lake.append(table, REMOTE, topic="txn-abort", options={"endingOffsets": '{"txn-abort": {"0": 40}}'})
    assert lake.append(table, REMOTE, topic="txn-abort", options={name: "READ_COMMITTED"}).offsets != first.offsets

    with pytest.raises(OptionError, match="isolation read_committed there, read_uncommitted here"):
        lake.append(table, REMOTE, topic="txn-abort", options={name: "Read_Uncommitted"})
