"""A round of a table that could not be finished: with options that it can be, the rest of it is planned anew."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from lake_targets import Target
from typed_orders import REMOTE, SAVED, truth

from segreader import lake
from segreader.errors import OptionError
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import write_local_tiered
from spark_jobs.backfill import main
from spark_jobs.verify import main as verify

TOPIC = "orders-bad"
SMALL = ("--split-bytes", "1", "--commit-bytes", "1")


def run(target: Target, *more: str, topic: str = TOPIC, schemas: Path = SAVED) -> int:
    where = ["--location", str(REMOTE), "--topic", topic, "--engine", "local", "--processes", "1"]
    return main([*where, "--schemas", str(schemas), *target.flags, *more])


@pytest.fixture(params=["delta", "iceberg"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    return Target(request.param, tmp_path / "target")


def test_values_that_failed_a_round_are_kept_when_that_is_asked_for(
    target: Target, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(target) == 5
    capsys.readouterr()
    assert run(target, "--on-undecodable", "keep") == 2
    assert "an unfinished job with other options" in capsys.readouterr().err
    assert run(target, "--continue") == 5  # the same again

    assert run(target, "--on-undecodable", "keep", "--continue") == 1
    assert "lost " not in capsys.readouterr().out  # no offset is
    rows = target.read().to_pylist()
    assert len(rows) == len(truth(TOPIC))
    assert sum(row["valueError"] is not None for row in rows) == sum(one.bad is not None for one in truth(TOPIC))
    assert run(target, "--on-undecodable", "keep", "--continue") == 0
    assert len(target.read()) == len(rows)


def test_what_is_planned_anew_begins_where_it_says_and_not_where_the_other_round_was_to(target: Target) -> None:
    assert run(target, "--offsets", "2:") == 5
    assert run(target, "--on-undecodable", "keep", "--continue") == 1
    assert sorted(row["offset"] for row in target.read().to_pylist()) == [one.offset for one in truth(TOPIC)]
    assert verify([*target.flags, "--source"]) == 0
    assert run(target, "--on-undecodable", "keep", "--continue") == 0


def test_a_round_that_lacked_a_schema_is_finished_with_a_file_that_has_it(target: Target, tmp_path: Path) -> None:
    known = json.loads(SAVED.read_text())
    for number in [known["subjects"]["orders-avro-value"].pop(version) for version in ("2", "3")]:
        gone = known["ids"][str(number)]
        known["ids"] = {id: one for id, one in known["ids"].items() if one != gone}
    old = tmp_path / "old.json"
    old.write_text(json.dumps(known))
    topic = "orders-avro"
    fields = ("--value-fields", "id,status", *SMALL)
    assert run(target, *fields, topic=topic, schemas=old) == 5

    assert run(target, *fields, "--continue", topic=topic) == 0
    found = Counter((row["partition"], row["offset"]) for row in target.read().to_pylist())
    assert found == Counter((one.partition, one.offset) for one in truth(topic))
    assert verify([*target.flags, "--source"]) == 0


def test_another_topic_is_added_while_the_round_of_one_cannot_be_finished(
    target: Target, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for topic in ("sound", "damaged"):
        write_local_tiered(tmp_path / "bucket", topic, [SegmentBuilder().batch([b"v"] * 10)])
    log = next((tmp_path / "bucket").glob("damaged-0-*/*.log"))
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    log.write_bytes(data)

    def run_of(topic: str) -> int:
        where = ["--location", str(tmp_path / "bucket"), "--topic", topic, "--engine", "local", "--processes", "1"]
        return main([*where, *target.flags, "--continue"])

    assert run_of("damaged") == 5
    assert "or leave it out with --on-corrupt skip" in capsys.readouterr().err
    assert run_of("sound") == 0
    assert [(row["topic"], row["offset"]) for row in target.read().to_pylist()] == [("sound", at) for at in range(10)]
    assert run_of("damaged") == 5


def test_a_round_that_goes_on_with_other_options_says_that_they_count_later(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = Target("parquet", tmp_path / "target")
    assert run(files, "--file-bytes", "1m") == 5
    capsys.readouterr()
    assert run(files, "--continue", "--dry-run") == 0
    assert "1,929 bytes of 1 object" in capsys.readouterr().out
    assert run(files, "--file-bytes", "2m", "--on-undecodable", "keep", "--continue") == 5
    assert (
        "The unfinished round continues as planned; these options apply to later rounds: "
        "--file-bytes 1048576 there, 2097152 here; --on-undecodable (not given) there, keep here"
    ) in capsys.readouterr().err


@pytest.mark.parametrize("name", ["file_bytes", "split_bytes", "commit_bytes"])
def test_append_refuses_sizes_that_are_none(tmp_path: Path, name: str) -> None:
    for size in (0, -1):
        with pytest.raises(
            OptionError, match=f"{name} must be a whole number above zero; found {size}, expected 1 or more bytes"
        ):
            lake.append(str(tmp_path / "table"), REMOTE, topic="orders-avro", **{name: size})  # type: ignore[arg-type]
    assert not (tmp_path / "table").exists()
