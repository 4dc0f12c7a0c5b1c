from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from segreader.cli.options import parse_location
from segreader.errors import ObjectNotFoundError, OptionError


def test_a_file_of_urls_has_one_a_line(tmp_path: Path) -> None:
    file = tmp_path / "urls.txt"
    file.write_text("# segments\nhttps://h/a.log?sig=1\n\n  https://h/b.log?sig=2  \n")
    assert parse_location(f"@{file}") == (None, ["https://h/a.log?sig=1", "https://h/b.log?sig=2"])


def test_urls_can_come_from_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("https://h/a.log?sig=1\n"))
    assert parse_location("-") == (None, ["https://h/a.log?sig=1"])


def test_anything_else_is_a_location() -> None:
    assert parse_location("s3://bucket/prefix") == ("s3://bucket/prefix", None)


def test_a_list_that_is_not_there_or_empty_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(ObjectNotFoundError, match="cannot be read"):
        parse_location(f"@{tmp_path}/no")
    (tmp_path / "empty").write_text("# nothing\n")
    with pytest.raises(OptionError, match="is empty"):
        parse_location(f"@{tmp_path}/empty")
