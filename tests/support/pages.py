"""The pages of documentation, and the code on them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
CLI = ("reference/cli", "reference/cli-records", "reference/cli-objects")
"""The pages of the commands."""


def page(*names: str) -> str:
    """The text of pages by their names below ``docs``, one after another."""
    return "\n".join((DOCS / f"{name}.md").read_text(encoding="utf-8") for name in names)


def blocks(text: str, language: str) -> list[str]:
    """The blocks of one language in a page's text, in their order."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
