"""Backfills of keys and values that schemas describe: typed columns, the plan that holds the schemas, and the proof."""

from __future__ import annotations

import json
import shutil
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from backfill_runs import do, files_of, finish, plan_into, request, rows_of, table_of
from pyspark.sql import SparkSession
from typed_orders import REMOTE, SAVED, truth

import segreader
from segreader.backfill.digest import RecordDigest
from segreader.backfill.done import parse_done
from segreader.backfill.job_plan import JobPlan, JobRequest, make_plan, parse_plan, read_plan
from segreader.backfill.output import MANIFEST, PLAN, OutputLayout, OutputOptions, done_name
from segreader.backfill.read_back import SplitFiles
from segreader.backfill.verify import check_split
from segreader.errors import ManifestError, OptionError, UndecodableValueError
from segreader.spark import typed_values
from segreader.spark.locations import Locations
from segreader.spark.options import parse_options
from segreader.storage.target.store import open_target
from spark_jobs import verify
from spark_jobs.backfill import main

TYPED = {"subscribe": "orders-avro", "schemas": str(SAVED)}


def asked(output: OutputOptions | None = None, **options: str) -> JobRequest:
    given: dict[str, Any] = TYPED | options
    return request(REMOTE, output=output, **given)


def backfill(out: Path, output: OutputOptions | None = None, **options: str) -> JobPlan:
    target = open_target(out)
    plan = plan_into(target, asked(output, **options))
    do(plan, target)
    finish(plan, target)
    return plan


@pytest.mark.parametrize("output", [OutputOptions(), OutputOptions(layout=OutputLayout.DATE, is_hive=True)])
def test_files_have_typed_columns_with_the_values_that_were_written(tmp_path: Path, output: OutputOptions) -> None:
    plan = backfill(tmp_path / "out", output)
    table = table_of(tmp_path / "out", hive=output.is_hive)

    assert plan.output.schema.field("key").type == pa.struct([pa.field("id", pa.int64())])
    assert pq.read_schema(files_of(tmp_path / "out")[0]).equals(plan.output.schema)
    scanned = segreader.scan(REMOTE, topic="orders-avro", value=SAVED, columns=("value",)).to_arrow()["value"]
    for row, true, other in zip(table.to_pylist(), truth("orders-avro"), scanned.to_pylist(), strict=True):
        assert (row["partition"], row["offset"], row["key"]) == (true.partition, true.offset, true.key)
        assert row["value"] == other
        assert (row["value"] and row["value"]["total"]) == (true.value and true.value["total"])


def test_text_has_dictionaries_and_all_typed_columns_have_statistics(tmp_path: Path) -> None:
    backfill(tmp_path / "out")
    group = pq.read_metadata(files_of(tmp_path / "out")[0]).row_group(0)
    columns = {group.column(at).path_in_schema: group.column(at) for at in range(group.num_columns)}

    for path in ("value.status", "value.items.list.element.sku", "value.labels.key_value.key"):
        assert columns[path].has_dictionary_page, path
    assert not columns["value.id"].has_dictionary_page
    assert all(one.is_stats_set for path, one in columns.items() if path.startswith(("value.", "key.")))
    assert columns["value.id"].statistics.max > columns["value.id"].statistics.min


def test_a_plan_holds_the_schemas_and_the_same_types_come_of_it(tmp_path: Path) -> None:
    plan = make_plan(asked())
    again = parse_plan(plan.data, "plan")
    document = json.loads(plan.data)

    assert document["version"] == 3
    assert again == plan
    assert again.output.schema.equals(plan.output.schema)
    assert [one.side for one in again.output.decodings] == ["key", "value"]
    texts = [json.dumps(one["text"]) for one in document["output"]["decodings"]["schemas"].values()]
    assert texts
    assert all(plan.data.decode().count(text) == 1 for text in texts)
    with pytest.raises(ManifestError):
        parse_plan(plan.data.replace(b'"version":3', b'"version":4', 1), "plan")
    assert json.loads(make_plan(request(REMOTE, subscribe="orders-avro")).data)["version"] == 2


def test_tasks_and_verification_ask_for_no_schema(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = open_target(tmp_path / "out")
    plan = plan_into(target, asked())
    monkeypatch.setattr(typed_values, "_source", lambda *_: pytest.fail("a registry or a file is asked"))
    kept = read_plan(target)
    assert kept == plan
    assert kept is not None
    do(kept, target)
    finish(kept, target)
    assert verify.main(["--target", str(tmp_path / "out"), "--source", "--local"]) == 0


def test_verification_decodes_again_and_names_the_record_that_differs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = backfill(tmp_path / "out")
    file = files_of(tmp_path / "out")[0]
    table = pq.read_table(file)
    rows = table.to_pylist()
    changed = next(row for row in rows if row["value"] is not None and row["value"]["items"])
    changed["value"]["items"][0]["price"] += 1.0
    pq.write_table(pa.Table.from_pylist(rows, table.schema), file)

    target = open_target(tmp_path / "out")
    split = next(one for one in plan.splits if f"-{one.start:020d}-" in file.name and one.partition.partition == 0)
    entry = parse_done(target.read(done_name(split.id)), "entry")
    store = Locations(parse_options(plan.options)).store
    files = SplitFiles(target, entry, plan.output)
    found = {one.kind: one.text for one in check_split(split, entry, files, plan.output, store).findings}
    assert "checksums differ in value" in found["digest"]
    assert found["source"] == f"the record at offset {changed['offset']} has another value than the segments"
    assert verify.main(["--target", str(tmp_path / "out"), "--local"]) == 1
    assert "value" in capsys.readouterr().out


@pytest.mark.parametrize("policy", ["null", "keep"])
def test_what_is_undecodable_is_counted_and_is_no_difference(tmp_path: Path, policy: str) -> None:
    true = truth("orders-bad")
    bad = sum(one.bad is not None for one in true)
    plan = backfill(tmp_path / "out", subscribe="orders-bad", onUndecodable=policy)
    target = open_target(tmp_path / "out")
    found = finish(plan, target)

    assert found.is_complete
    assert found.losses == (f"orders-bad-0: {bad} keys or values are undecodable",)
    table = table_of(tmp_path / "out")
    assert [row is None for row in table["value"].to_pylist()] == [one.value is None for one in true]
    assert ("valueError" in table.column_names) == (policy == "keep")
    if policy == "keep":
        assert [row is not None for row in table["valueRaw"].to_pylist()] == [one.bad is not None for one in true]
    assert json.loads((tmp_path / "out" / MANIFEST).read_text())["splits"][0]["undecodable"] == bad
    assert verify.main(["--target", str(tmp_path / "out"), "--source", "--local"]) == 0


def test_what_is_undecodable_ends_the_split_and_leaves_nothing(tmp_path: Path) -> None:
    target = open_target(tmp_path / "out")
    plan = plan_into(target, asked(subscribe="orders-bad"))
    with pytest.raises(UndecodableValueError, match="offset 1"):
        do(plan, target)
    assert [info.name for info in target.list()] == [PLAN]


def test_columns_that_parquet_cannot_have_are_refused_when_the_job_is_planned(tmp_path: Path) -> None:
    schema = tmp_path / "empty.avsc"
    below = '{"type":"record","name":"Nothing","fields":[]}'
    schema.write_text(
        '{"type":"record","name":"T","fields":[{"name":"a","type":"int"},{"name":"n","type":' + below + "}]}"
    )
    with pytest.raises(OptionError, match=r"value\.n has no fields.*with valueFields"):
        make_plan(request(REMOTE, subscribe="orders-avro", valueSchema=str(schema)))
    assert make_plan(
        request(REMOTE, subscribe="orders-avro", valueSchema=str(schema), valueFields="a")
    ).output.decodings


ITEM = pa.struct([pa.field("x", pa.int32()), pa.field("y", pa.string())])
VALUE = pa.struct(
    [
        pa.field("flag", pa.bool_()),
        pa.field("number", pa.int32()),
        pa.field("day", pa.date32()),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("price", pa.decimal128(10, 2)),
        pa.field("ratio", pa.float64()),
        pa.field("half", pa.float32()),
        pa.field("text", pa.string()),
        pa.field("data", pa.binary()),
        pa.field("items", pa.list_(pa.field("element", ITEM))),
        pa.field("labels", pa.map_(pa.string(), pa.int64())),
        pa.field("below", ITEM),
    ]
)
WHOLE: dict[str, Any] = {
    "flag": True,
    "number": -1,
    "day": datetime(2026, 2, 1, tzinfo=UTC).date(),
    "at": datetime(2026, 2, 1, tzinfo=UTC),
    "price": Decimal("1.50"),
    "ratio": 0.5,
    "half": 0.5,
    "text": "é",
    "data": b"\0",
    "items": [{"x": 1, "y": "a"}, None],
    "labels": [("a", 1), ("b", None)],
    "below": {"x": 7, "y": "z"},
}
EMPTY: dict[str, Any] = WHOLE | {
    "flag": False, "number": 0, "price": Decimal(0), "ratio": 0.0, "half": 0.0, "text": "", "data": b"", "items": [],
    "labels": [], "below": {"x": 0, "y": ""}, "day": datetime(1970, 1, 1, tzinfo=UTC).date(),
    "at": datetime(1970, 1, 1, tzinfo=UTC),
}  # fmt: skip


def digest_of(values: list[Any], size: int, kind: pa.DataType = VALUE) -> str:
    digest = RecordDigest()
    for start in range(0, len(values), size):
        digest.update(pa.RecordBatch.from_arrays([pa.array(values[start : start + size], kind)], ["value"]))
    return digest.value()


def test_a_digest_of_typed_values_tells_every_change_and_null_from_nothing() -> None:
    values = [WHOLE, None, EMPTY, WHOLE | dict.fromkeys(WHOLE), WHOLE]
    whole = digest_of(values, 10)
    assert {digest_of(values, size) for size in (1, 2, 3)} == {whole}
    seen = {whole}
    for row in range(len(values)):
        for name in (*WHOLE, None):
            changed = list(values)
            if name is None:
                changed[row] = WHOLE if values[row] is None else None
            else:
                before = values[row] or WHOLE
                changed[row] = before | {name: None if before[name] is not None else EMPTY[name]}
            if changed != values:
                seen.add(digest_of(changed, 2))
    assert len(seen) == 1 + 4 * 12 + 5 + 12
    assert digest_of([WHOLE | {"items": [{"x": 1, "y": "b"}, None]}], 1) != digest_of([WHOLE], 1)
    assert digest_of([WHOLE | {"labels": [("a", 1), ("c", None)]}], 1) != digest_of([WHOLE], 1)


def test_a_digest_looks_at_nothing_behind_a_null() -> None:
    array = pa.array([WHOLE, WHOLE], VALUE)
    hidden = pa.StructArray.from_arrays(array.flatten(), fields=list(VALUE), mask=pa.array([False, True]))
    assert hidden.to_pylist()[1] is None
    digest = RecordDigest()
    digest.update(pa.RecordBatch.from_arrays([hidden], ["value"]))
    assert digest.value() == digest_of([WHOLE, None], 1)


@contextmanager
def killed(name: str, **_: Any) -> Any:
    """In place of a session: the driver dies when its plan is written and Spark is about to start."""
    raise KeyboardInterrupt
    yield


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--schemas", str(SAVED), "--schema-registry", "http://r"), "give one of them"),
        (("--on-undecodable", "keep"), "--on-undecodable needs --value-schema"),
        (("--value-fields", "id"), "--value-fields needs --value-schema"),
        (("--value-schema", str(SAVED), "--value-fields", "price"), "no such field: value.price"),
        (("--value-schema", str(SAVED), "--schema-version", "9"), "no such version"),
        (("--value-schema", "https://me:hunter2@registry"), "--value-schema holds a credential"),
    ],
)
def test_flags_that_do_not_go_together_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: tuple[str, ...], message: str
) -> None:
    place = ("--location", str(REMOTE), "--topic", "orders-avro", "--target", str(tmp_path / "out"))
    assert main([*place, *flags]) == 2
    told = capsys.readouterr().err
    assert message in told
    assert "hunter2" not in told
    assert not (tmp_path / "out" / PLAN).exists()


def test_a_run_that_goes_on_after_a_kill_asks_no_registry_and_other_schemas_are_another_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    schemas = tmp_path / "schemas.json"
    shutil.copy(SAVED, schemas)
    monkeypatch.setattr("spark_jobs.session.job_session", killed)
    place = (
        "--location",
        str(REMOTE),
        "--topic",
        "orders-avro",
        "--target",
        str(tmp_path / "out"),
        "--engine",
        "spark",
    )
    assert main([*place, "--schemas", str(schemas)]) == 130
    target = open_target(tmp_path / "out")
    first = read_plan(target)
    assert first is not None
    schemas.unlink()  # as a registry that is not there any more
    assert main([*place, "--schemas", str(schemas)]) == 130
    assert read_plan(target) == first
    assert len(first.output.decodings) == 2
    capsys.readouterr()
    for other in ((), ("--value-schema", str(SAVED)), ("--schemas", str(schemas), "--on-undecodable", "null")):
        assert main([*place, *other]) == 2
        assert "belongs to another job" in capsys.readouterr().err
    renewed = replace(first, output=replace(first.output, decodings=first.output.decodings[1:]))
    assert renewed.sha256 != first.sha256


@pytest.mark.spark
@pytest.mark.xdist_group("spark-jobs")
def test_spark_writes_and_reads_typed_columns(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    true = truth("orders-avro")
    place = ("--location", str(REMOTE), "--topic", "orders-avro", "--schemas", str(SAVED))
    assert main([*place, "--target", str(tmp_path / "out")]) == 0
    assert [row["key"] for row in rows_of(tmp_path / "out")] == [one.key for one in true]
    frame = spark.read.option("recursiveFileLookup", "true").parquet(str(tmp_path / "out"))
    typed = spark.read.format("segreader").options(location=str(REMOTE), **TYPED).load()
    assert frame.schema["value"].dataType == typed.schema["value"].dataType
    totals = sum((one.value["total"] for one in true if one.value is not None), Decimal(0))
    assert frame.selectExpr("sum(value.total)").first()[0] == totals  # type: ignore[index]

    table = (
        "--sink",
        "table",
        "--format",
        "parquet",
        "--value-fields",
        "id,total",
        "--target",
        str(tmp_path / "table"),
    )
    assert main([*place, *table]) == 0
    written = spark.read.parquet(str(tmp_path / "table"))
    assert written.schema["value"].dataType.simpleString() == "struct<id:bigint,total:decimal(10,2)>"
    assert written.count() == len(true)

    capsys.readouterr()
    bad = (
        "--location",
        str(REMOTE),
        "--topic",
        "orders-bad",
        "--schemas",
        str(SAVED),
        "--target",
        str(tmp_path / "bad"),
    )
    assert main(list(bad)) == 5
    told = capsys.readouterr().err
    assert "orders-bad-0" in told
    assert "offset 1" in told
    assert "--on-undecodable null or keep" in told
    assert main([*bad, "--on-undecodable", "keep"]) == 2  # it is another job
    assert main([*bad, "--on-undecodable", "keep", "--force"]) == 1
    assert "keys or values are undecodable" in capsys.readouterr().err
