"""What the stores of the tests are filled with: topics as Kafka tiered them."""

from __future__ import annotations

from functools import cache

from corpus import CORPUS

TIERED = CORPUS / "tv2" / "remote" / "kafka-tiered-storage"


@cache
def tiered_topics(*topics: str) -> dict[str, bytes]:
    """The objects of some one-partition topics, by ``<directory>/<file>``."""
    directories = [path for topic in topics for path in sorted(TIERED.glob(f"{topic}-0-*"))]
    return {
        f"{directory.name}/{file.name}": file.read_bytes()
        for directory in directories
        for file in sorted(directory.iterdir())
    }
