"""Values of SQL in JSON: what is JSON stays JSON, decimals are numbers, and intervals are ISO 8601."""

from __future__ import annotations

import csv
import json
import re
from datetime import timedelta
from decimal import Decimal

import pytest

from segreader.cli.main import main
from segreader.cli.sql_values import exact_encoder, iso_duration, iso_interval, json_text


def printed(capsys: pytest.CaptureFixture[str], query: str, *options: str) -> str:
    assert main(["sql", "-q", query, *options]) == 0
    return capsys.readouterr().out


def test_json_is_json_at_every_depth(capsys: pytest.CaptureFixture[str]) -> None:
    query = """select '{"a": 1.10}'::json as plain, ['[1]'::json] as listed, {'in': 'true'::json} as held,
        map {'k': '"text"'::json} as mapped, null::json as none, '{"a": 1}' as text"""
    assert printed(capsys, query) == (
        '{"plain":{"a": 1.10},"listed":[[1]],"held":{"in":true},"mapped":{"k":"text"},"none":null,'
        '"text":"{\\"a\\": 1}"}\n'
    )


def test_a_field_of_a_json_value_is_json_and_its_text_is_text(capsys: pytest.CaptureFixture[str]) -> None:
    query = """select v->'$.a' as field, v->>'$.a' as text from (select '{"a": {"b": 2}}'::json as v)"""
    assert json.loads(printed(capsys, query)) == {"field": {"b": 2}, "text": '{"b":2}'}


def test_a_map_and_nested_json_are_the_same_in_every_form(capsys: pytest.CaptureFixture[str]) -> None:
    query = """select map {'k': 1} as mapped, {'m': map {'k': null}, 'j': '{"a": 1.10}'::json} as held,
        map {2: 'v'} as numbered, '[ 1]'::json as plain, map {}::map(varchar, int) as empty"""
    texts = ['{"k":1}', '{"m":{"k":null},"j":{"a": 1.10}}', '[[2,"v"]]', "[ 1]", "{}"]
    names = ("mapped", "held", "numbered", "plain", "empty")
    line = ",".join(f'"{name}":{text}' for name, text in zip(names, texts, strict=True))
    assert printed(capsys, query) == f"{{{line}}}\n"
    assert list(csv.reader(printed(capsys, query, "-o", "csv").splitlines()))[1] == texts
    assert re.split("  +", printed(capsys, query, "-o", "table").splitlines()[1]) == texts


def test_json_over_several_lines_stays_one_line_of_ndjson(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(capsys, 'select \'{"a":\r\n "x\\ny"}\'::json as v')
    assert out.count("\n") == 1
    assert json.loads(out) == {"v": {"a": "x\ny"}}


@pytest.mark.parametrize("text", ["nope", "", "{", '{"a": NaN}', "[" * 10_000])
def test_what_is_no_json_after_all_stays_text(text: str) -> None:
    assert json.loads(exact_encoder()(json_text(text))) == text


def test_decimals_are_numbers_with_all_their_digits(capsys: pytest.CaptureFixture[str]) -> None:
    query = """select 1.50::decimal(4, 2) as money, [0.1::decimal(4, 1)] as listed, sum(x) as total,
        12345678901234567890.123456789::decimal(38, 9) as long from range(3) t(x)"""
    out = printed(capsys, query)
    assert out == '{"money":1.50,"listed":[0.1],"total":3,"long":12345678901234567890.123456789}\n'
    assert printed(capsys, query, "-o", "csv").splitlines()[1] == "1.50,[0.1],3,12345678901234567890.123456789"


def test_intervals_are_iso_8601(capsys: pytest.CaptureFixture[str]) -> None:
    query = "select interval '14 months 3 days 4.5 seconds' as span, {'of': interval 90 minute} as held"
    assert json.loads(printed(capsys, query)) == {"span": "P1Y2M3DT4.5S", "held": {"of": "PT1H30M"}}
    assert printed(capsys, query, "-o", "csv").splitlines()[1].startswith("P1Y2M3DT4.5S,")


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ((0, 0, 0), "PT0S"),
        ((12, 0, 0), "P1Y"),
        ((-14, 3, 0), "P-1Y-2M3D"),
        ((0, 0, 3_661_000_000_001), "PT1H1M1.000000001S"),
        ((0, 0, -500_000_000), "PT-0.5S"),
        ((0, 0, -3_661_000_000_000), "PT-1H-1M-1S"),
        ((0, 0, 360_000_000_000_000), "PT100H"),
    ],
)
def test_each_part_of_an_interval_has_its_sign(parts: tuple[int, int, int], expected: str) -> None:
    assert iso_interval(*parts) == expected


def test_a_duration_is_the_same_interval() -> None:
    assert iso_duration(timedelta(days=1, seconds=3, microseconds=5)) == "P1DT3.000005S"
    assert iso_duration(timedelta(microseconds=-1)) == "PT-0.000001S"


def test_whole_numbers_beyond_sixty_four_bits_keep_their_digits() -> None:
    assert exact_encoder()({"n": Decimal(2**100)}) == b'{"n":%d}' % 2**100
