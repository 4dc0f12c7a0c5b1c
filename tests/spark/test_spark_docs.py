from __future__ import annotations

import re
from pathlib import Path

from segreader.spark import options

DOCUMENT = Path(__file__).parents[2] / "docs" / "spark.md"


def test_every_option_is_documented_and_no_other() -> None:
    rows = [line.split("|")[1] for line in DOCUMENT.read_text().splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`([\w.]+)`", row)}

    assert named == set(options._NAMES)
