"""Ends with an error where the metadata of an sdist lacks what a package index shows."""

from __future__ import annotations

import sys
import tarfile
from email import message_from_bytes
from pathlib import Path

WANTED = ("Name", "Version", "Summary", "Author", "License-Expression", "Requires-Python", "Project-URL", "Classifier")
URLS = ("Documentation", "Source", "Issues", "Changelog")
PYTHONS = ("3.11", "3.12", "3.13", "3.14")


def problems(sdist: Path) -> list[str]:
    """What the metadata lacks, a line each."""
    with tarfile.open(sdist) as archive:
        name = sdist.name.removesuffix(".tar.gz")
        file = archive.extractfile(f"{name}/PKG-INFO")
        assert file is not None
        metadata = message_from_bytes(file.read())
        files = {one.name.partition("/")[2] for one in archive.getmembers()}
    found = [f"there is no {name}" for name in WANTED if not metadata.get_all(name)]
    urls = {text.partition(",")[0] for text in metadata.get_all("Project-URL") or ()}
    found += [f"there is no URL {name}" for name in URLS if name not in urls]
    classifiers = metadata.get_all("Classifier") or ()
    found += [
        f"no classifier names Python {one}"
        for one in PYTHONS
        if not any(two.endswith(f":: {one}") for two in classifiers)
    ]
    found += [
        f"the sdist lacks {name}"
        for name in ("LICENSE", "README.md", "CHANGELOG.md", "pyproject.toml")
        if name not in files
    ]
    if not metadata.get_payload():
        found.append("there is no description")
    return found


if __name__ == "__main__":
    lacking = problems(Path(sys.argv[1]))
    print("\n".join(lacking) or "the metadata is whole")
    sys.exit(bool(lacking))
