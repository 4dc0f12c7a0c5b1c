"""One line of JSON for each location that a client was given: who, which segment, when. Never the URL."""

from __future__ import annotations

import json
import sys
import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO


@dataclass(frozen=True, slots=True)
class LocationGiven:
    """What an audit line says.

    Args:
        principal: who the broker took the client for, where that is known; the gateway does not look into SASL tokens.
        object_name: unsigned, if clients get it.
        expiry_ms: of the signed URL, in ms since 1970 UTC; ``None`` without one.
    """

    time_ms: int
    client_id: str | None
    principal: str | None
    peer: str
    topic: str
    topic_id: str
    partition: int
    fetch_offset: int
    segment_id: str
    first_offset: int
    last_offset: int
    object_name: str | None
    expiry_ms: int | None

    def line(self) -> str:
        """The line without its end."""
        moment = datetime.fromtimestamp(self.time_ms / 1000, UTC)
        return json.dumps(
            {
                "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
                "client_id": self.client_id,
                "principal": self.principal,
                "peer": self.peer,
                "topic": self.topic,
                "topic_id": self.topic_id,
                "partition": self.partition,
                "fetch_offset": self.fetch_offset,
                "segment_id": self.segment_id,
                "first_offset": self.first_offset,
                "last_offset": self.last_offset,
                "object": self.object_name,
                "expiry_ms": self.expiry_ms,
            },
            ensure_ascii=True,
        )


class AuditLog:
    """Where the lines go: a file that is appended to, stdout (``-``), or nowhere."""

    def __init__(self, file: str | None) -> None:
        self._lock = threading.Lock()
        self._is_ours = file not in (None, "-")
        self._stream: IO[str] | None = None
        if file == "-":
            self._stream = sys.stdout
        elif file is not None:
            self._stream = Path(file).open("a", encoding="utf-8")  # noqa: SIM115

    def write(self, given: LocationGiven) -> None:
        """Write one line; it is handed to the system at once.

        Raises:
            OSError: it cannot be written; then no location may be given.
        """
        if self._stream is not None:
            with self._lock:
                self._stream.write(given.line() + "\n")
                self._stream.flush()

    def close(self) -> None:
        """Close the file."""
        if self._stream is not None and self._is_ours:
            self._stream.close()
