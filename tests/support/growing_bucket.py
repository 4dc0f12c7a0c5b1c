"""A bucket of real segments that is uploaded bit by bit: what continued backfills are tried on."""

from __future__ import annotations

import shutil
from pathlib import Path

CORPUS = Path(__file__).parents[2] / "fixtures" / "corpus" / "tv2" / "remote" / "kafka-tiered-storage"


class GrowingBucket:
    """A copy of some topics of the corpus, whose segments appear a step at a time.

    Args:
        root: where the copy is made: the location to read.
        topics: of the corpus.
    """

    def __init__(self, root: Path, *topics: str) -> None:
        self.root = root
        self._left: dict[str, list[list[Path]]] = {}
        for directory in sorted(CORPUS.iterdir()):
            if any(directory.name.startswith(f"{topic}-") for topic in topics):
                logs = sorted(directory.glob("*.log"))
                self._left[directory.name] = [sorted(directory.glob(f"{log.name[:-4]}.*")) for log in logs]

    def __bool__(self) -> bool:
        return any(self._left.values())

    def upload(self, segments: int = 1) -> None:
        """Upload the next segments of each partition that has any left."""
        for name, left in self._left.items():
            place = self.root / "kafka-tiered-storage" / name
            place.mkdir(parents=True, exist_ok=True)
            for files in left[:segments]:
                for file in files:
                    shutil.copy2(file, place / file.name)
            del left[:segments]
