"""``cat`` and ``sql`` with schemas: typed values as objects, and no more of them decoded than is asked for."""

from __future__ import annotations

import csv
import io
import json
from base64 import b64decode
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typed_orders import REMOTE, SAVED, truth

from segreader.cli.main import main
from segreader.typed.decoder import ValueDecoder
from segreader.typed.decoding import Decoding

CAT = ("cat", str(REMOTE), "orders-avro", "--schemas", str(SAVED))


def lines(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> list[dict[str, object]]:
    assert main([*arguments]) == code
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.fixture
def selected(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The paths of each decoder that is made."""
    made: list[tuple[str, ...]] = []
    real = ValueDecoder.__init__

    def init(self: ValueDecoder, decoding: Decoding, **options: object) -> None:
        made.append(decoding.paths)
        real(self, decoding, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(ValueDecoder, "__init__", init)
    return made


def test_cat_prints_typed_keys_and_values_as_objects(capsys: pytest.CaptureFixture[str]) -> None:
    true = truth("orders-avro")[1]
    row = lines(capsys, *CAT, "--limit", "2")[1]

    assert list(row)[6:] == ["key", "value", "headers"]
    assert row["key"] == true.key
    value = row["value"]
    assert isinstance(value, dict)
    assert (value["buyer"], value["total"]) == (true.value["customer"], str(true.value["total"]))
    assert value["labels"] == true.value["labels"]
    assert value["placed_at"] == true.value["placed_at"].isoformat(timespec="milliseconds").replace("+00:00", "Z")


def test_cat_decodes_one_side_where_only_one_has_a_schema(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("cat", str(REMOTE), "orders-avro", "--value-schema", str(SAVED), "--limit", "1")
    (row,) = lines(capsys, *arguments)

    assert row["key_encoding"] == "base64"
    assert isinstance(row["value"], dict)


def test_cat_ends_with_code_5_at_an_undecodable_value_and_with_1_where_it_goes_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    true = truth("orders-bad")
    first = next(at for at, one in enumerate(true) if one.bad)
    bad = ("cat", str(REMOTE), "orders-bad", "--schemas", str(SAVED))

    assert len(lines(capsys, *bad, code=5)) == first
    assert len(lines(capsys, *bad, "--on-undecodable", "null", code=1)) == len(true)
    kept = lines(capsys, *bad, "--on-undecodable", "keep", code=1)
    assert [("value_error" in row) for row in kept] == [one.bad is not None for one in true]
    assert [("value_raw" in row) for row in kept] == [one.bad is not None for one in true]


def test_a_message_chooses_which_values_are_read(capsys: pytest.CaptureFixture[str]) -> None:
    protobuf = ("cat", str(REMOTE), "orders-protobuf", "--schemas", str(SAVED), "--on-undecodable", "null")
    rows = lines(capsys, *protobuf, "--message", "example.Audit.Change", code=1)

    wanted = [one.value["order_id"] for one in truth("orders-protobuf") if one.message == "example.Audit.Change"]
    assert [row["value"]["order_id"] for row in rows if isinstance(row["value"], dict)] == wanted
    assert main(["cat", str(REMOTE), "orders-protobuf", "--message", "example.Order"]) == 2
    assert "--message is of values with Protobuf schemas" in capsys.readouterr().err
    assert main([*CAT, "--message", "example.Order"]) == 2
    assert "--message is of values with Protobuf schemas; found avro. Leave it out" in capsys.readouterr().err


def test_csv_has_typed_values_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*CAT, "-o", "csv", "--limit", "3"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))

    assert [json.loads(row["value"])["id"] for row in rows] == [one.value["id"] for one in truth("orders-avro")[:3]]
    assert {row["value_encoding"] for row in rows} == {""}


def test_a_table_shows_typed_values_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*CAT, "-o", "table", "--limit", "1"]) == 0

    assert '{"id":' in capsys.readouterr().out


def test_text_says_which_bytes_inside_of_a_value_are_base64(capsys: pytest.CaptureFixture[str]) -> None:
    true = [one.value["trace"] for one in truth("orders-avro") if one.value is not None]
    rows = [row["value"] for row in lines(capsys, *CAT)]
    assert [bytes_of(row, "trace") for row in rows if isinstance(row, dict)] == true
    table = f"topic('{REMOTE}', 'orders-avro', schemas := '{SAVED}') where value is not null"
    query = f'select struct_pack(trace := value.trace) as v from {table} order by partition, "offset"'
    assert [bytes_of(row["v"], "trace") for row in lines(capsys, "sql", query)] == true  # type: ignore[arg-type]
    assert main(["sql", query, "-o", "csv"]) == 0
    cells = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [bytes_of(json.loads(row["v"]), "trace") for row in cells] == true
    assert main(["sql", f"{query} limit 1", "-o", "table"]) == 0
    assert '{"trace":"AAAAAA==","trace_encoding":"base64"}' in capsys.readouterr().out


def test_items_of_lists_and_maps_are_base64_whatever_bytes_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    values = "['a'::blob, '\\xff'::blob]"
    query = f"select {values} as l, map(['x', 'y'], {values}) as m, {{'b': 'a'::blob, 'c': '\\xff'::blob}} as s"
    items = ["YQ==", "/w=="]
    struct = {"b": "a", "c": "/w==", "c_encoding": "base64"}
    assert lines(capsys, "sql", query) == [{"l": items, "m": dict(zip("xy", items, strict=True)), "s": struct}]
    assert lines(capsys, "sql", query, "--bytes", "hex") == [
        {"l": ["61", "ff"], "m": {"x": "61", "y": "ff"}, "s": {"b": "61", "c": "ff"}}
    ]


def test_a_field_that_has_the_name_of_an_encoding_keeps_its_value(capsys: pytest.CaptureFixture[str]) -> None:
    blob = "'\\xff'::blob"
    query = f"select {{'b': {blob}, 'b_encoding': 1}} as before, {{'b_encoding': 1, 'b': {blob}}} as behind"
    [row] = lines(capsys, "sql", query)
    assert row == {name: {"b": "/w==", "b_encoding": 1} for name in ("before", "behind")}


def bytes_of(row: dict[str, str], name: str) -> bytes:
    """What a field holds, by what stands beside it."""
    return b64decode(row[name]) if row.get(f"{name}_encoding") == "base64" else row[name].encode()


def test_parquet_has_typed_columns(tmp_path: Path) -> None:
    file = tmp_path / "orders.parquet"
    assert main([*CAT, "-o", "parquet", "--output-file", str(file)]) == 0
    value = pq.read_table(file).column("value").combine_chunks()

    assert value.field("id").to_pylist()[:3] == [one.value["id"] for one in truth("orders-avro")[:3]]


def test_schemas_come_from_one_place(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*CAT, "--schema-registry", "http://localhost:1"]) == 2
    assert "both say where schemas come from" in capsys.readouterr().err


TOPIC = f"topic('{REMOTE}', 'orders-avro', schemas := '{SAVED}')"


@pytest.mark.parametrize(
    ("query", "paths"),
    [
        (f"select value.buyer, sum(value.total) as total from {TOPIC} group by 1", {"buyer", "total"}),
        (f"select o.value.shipping.city from {TOPIC} o where o.Value.ID > 0", {"id", "shipping.city"}),
        (f"select unnest(value.items).price from {TOPIC}", {"items"}),
        (f"select value.labels['label-0'] from {TOPIC}", {"labels"}),
        (f"select value from {TOPIC}", {""}),
        (f"select * from {TOPIC}", {""}),
        (f"select value['buyer'] from {TOPIC}", {""}),
        (f"select v.buyer from (select value as v from {TOPIC})", {""}),
    ],
)
def test_a_query_decodes_the_fields_that_it_names(
    capsys: pytest.CaptureFixture[str], selected: list[tuple[str, ...]], query: str, paths: set[str]
) -> None:
    assert lines(capsys, "sql", query)

    assert {path for some in selected for path in some if path or len(some) == 1} >= paths
    assert {frozenset(some) for some in selected if some != ("",) or paths == {""}} == {frozenset(paths)}


def test_a_query_gives_what_python_adds_up(capsys: pytest.CaptureFixture[str]) -> None:
    values = [one.value for one in truth("orders-avro") if one.value is not None]
    query = (
        f"select value.status as status, count(*) as n, sum(value.total) as total from {TOPIC} group by 1 order by 1"
    )
    rows = lines(capsys, "sql", f"{query.replace(' group by', ' where value is not null group by')}")

    found = {row["status"]: (row["n"], row["total"]) for row in rows}
    statuses = {value["status"] for value in values}
    assert found == {
        status: (
            sum(value["status"] == status for value in values),
            float(sum(value["total"] for value in values if value["status"] == status)),
        )
        for status in statuses
    }


def test_a_condition_on_a_field_leaves_the_rows_that_it_is_true_of(capsys: pytest.CaptureFixture[str]) -> None:
    ids = [one.value["id"] for one in truth("orders-avro") if one.value is not None and one.value["status"] == "OPEN"]
    rows = lines(capsys, "sql", f"select value.id as id from {TOPIC} where value.status = 'OPEN' order by 1")

    assert [row["id"] for row in rows] == sorted(ids)


def test_a_mistyped_field_is_an_error_of_the_query(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sql", f"select value.custmer from {TOPIC}"]) == 2
    assert "custmer" in capsys.readouterr().err
