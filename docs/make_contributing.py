"""Writes CONTRIBUTING's tables: the commands from the Makefile, the layers and import rules from pyproject.toml.

python -m docs.make_contributing
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "CONTRIBUTING.md"


def commands(makefile: str) -> str:
    """The table of what ``make help`` lists."""
    rows = re.findall(r"^([a-z-]+):.*## (.*)$", makefile, re.MULTILINE)
    cells = [f"| `make {name}` | {about.replace('|', chr(92) + '|')} |" for name, about in rows]
    return "\n".join(["| command | does |", "| --- | --- |", *cells])


def layers(pyproject: str) -> str:
    """The layers, highest first, and the other import rules."""
    contracts: list[dict[str, Any]] = tomllib.loads(pyproject)["tool"]["importlinter"]["contracts"]
    ours = next(one for one in contracts if one["type"] == "layers" and one.get("containers") == ["segreader"])
    names = [[part.strip(" ()") for part in re.split(r"[|:]", layer)] for layer in ours["layers"]]
    rows = [f"| {', '.join(f'`{name}`' for name in layer)} |" for layer in names]
    rules = [f"- {one['name']}." for one in contracts if one is not ours]
    return "\n".join(["| layer, highest first |", "| --- |", *rows, "", "Besides:", "", *rules])


def page(text: str) -> str:
    """CONTRIBUTING with its tables made anew."""
    made = {
        "commands": commands((ROOT / "Makefile").read_text(encoding="utf-8")),
        "layers": layers((ROOT / "pyproject.toml").read_text(encoding="utf-8")),
    }
    for name, table in made.items():
        begin, end = f"<!-- {name} -->\n", f"\n<!-- end of {name} -->"
        before, middle, rest = text.partition(begin)
        _, finish, after = rest.partition(end)
        if not (middle and finish):
            raise ValueError(f"no place for the table of {name} in {PAGE}")
        text = before + begin + table + end + after
    return text


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
