"""The pictures of terminals in the documentation show what the commands print now."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.make_pictures import IMAGES, PICTURES

OF_TERMINALS = sorted(name for name in PICTURES if name.endswith(".svg"))
PAGES = IMAGES.parent


@pytest.mark.parametrize("name", OF_TERMINALS)
def test_a_picture_is_what_its_program_makes(name: str, tmp_path: Path) -> None:
    PICTURES[name](tmp_path / name)

    assert (tmp_path / name).read_text() == (IMAGES / name).read_text(), "python -m docs.make_pictures makes it anew"


@pytest.mark.parametrize("name", OF_TERMINALS)
def test_a_picture_needs_nothing_from_elsewhere(name: str) -> None:
    text = (IMAGES / name).read_text()

    assert re.findall(r"https?://[^\"' ]+|url\((?!#)|@import|@font-face|<script|<image", text) == [
        "http://www.w3.org/2000/svg"
    ]


@pytest.mark.parametrize("name", OF_TERMINALS)
def test_a_picture_is_on_a_page(name: str) -> None:
    assert [page for page in PAGES.rglob("*.md") if f"images/{name})" in page.read_text()]
