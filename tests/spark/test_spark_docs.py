from __future__ import annotations

import re
from pathlib import Path

from segreader.spark.columns import RAW_NAMES
from segreader.spark.credentials import KAFKA
from segreader.spark.options import NAMES, STORAGE

DOCUMENT = Path(__file__).parents[2] / "docs" / "reference" / "spark.md"


def option_rows() -> dict[str, str]:
    """What the first column of the table of options names, and the row."""
    section = DOCUMENT.read_text().partition("## Options")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    return {name: row for row in rows for name in re.findall(r"`([\w.<>]+)`", row.split("|")[1])}


def test_every_option_is_documented_and_no_other() -> None:
    assert set(option_rows()) == {*NAMES, f"{STORAGE}<name>", f"{KAFKA}<name>"}


def test_the_columns_of_a_batch_are_documented() -> None:
    assert set(RAW_NAMES) <= set(re.findall(r"`(\w+)`", option_rows()["rawColumns"]))
