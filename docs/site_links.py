"""Hook of the site: links to files beside ``docs``, which the site does not have, become the files' names."""

from __future__ import annotations

import posixpath
import re
from typing import Any

_LINK = re.compile(r"\[([^\]]*)\]\(((?:\.\./)+[^)#\s]+)(?:#[^)]*)?\)")


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """The page's text with such links replaced."""
    folder = posixpath.dirname(page.file.src_uri)

    def named(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, link[2]))
        return link[0] if not target.startswith("../") else f"{link[1]} (`{target.removeprefix('../')}`)"

    return _LINK.sub(named, markdown)
