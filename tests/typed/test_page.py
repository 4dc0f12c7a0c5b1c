"""The tables of ``docs/reference/typed-values.md`` say what schemas become."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from segreader.typed.arrow import arrow_type
from segreader.typed.reader_schema import type_of
from segreader.typed.schema import Framing, Schema, SchemaFormat

PAGE = (Path(__file__).parents[2] / "docs/reference/typed-values.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| `(.+?)` \| `(.+?)` \|$", re.MULTILINE)


def rows(title: str) -> list[tuple[str, str]]:
    return ROW.findall(PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0])


@pytest.mark.parametrize(("title", "form"), [("Avro", SchemaFormat.AVRO), ("JSON Schema", SchemaFormat.JSON)])
def test_schemas_have_the_types_that_the_page_shows(title: str, form: SchemaFormat) -> None:
    found = [(text, str(arrow_type(type_of(Schema(form, text))))) for text, _ in rows(title)]

    assert len(found) > 10
    assert found == rows(title)


def test_protobuf_fields_have_the_types_that_the_page_shows() -> None:
    imports = "".join(
        f'import "google/protobuf/{one}.proto"; ' for one in ("timestamp", "duration", "wrappers", "struct")
    )
    found = []
    for text, _ in rows("Protobuf"):
        schema = Schema(SchemaFormat.PROTOBUF, f'syntax = "proto3"; {imports} message M {{ {text} }}')
        found.append((text, str(arrow_type(type_of(schema).fields[0].type))))

    assert len(found) > 10
    assert found == rows("Protobuf")


def test_every_framing_is_on_the_page() -> None:
    table = PAGE.split("\n## Frames\n")[1].split("\n## ")[0]

    assert re.findall(r"^\| `([a-z-]+)` \|", table, re.MULTILINE)[1:] == [one.value for one in Framing]
