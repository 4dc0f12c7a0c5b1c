"""A line of JSON for each location that was given, written by a thread: no disk holds the event loop up.

Lines wait in a queue with a limit. While the queue is full, or the file cannot be written, no line is taken, and so no
location is given: its reader gets records. What was taken is tried again until it is written; what is lost at the end
is counted and logged.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import sys
import threading
from collections import deque
from datetime import UTC, datetime
from typing import Final

from segreader.gateway.metrics import GatewayMetrics
from segreader.values import dataclass

_log = logging.getLogger(__name__)

MOST_WAITING: Final = 10_000
_BATCH = 500
_GATHER_S = 0.02
_AGAIN_S = 1.0
_LONGEST_END_S = 5.0
_OPEN = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class LocationGiven:
    """The fields of an audit line.

    Args:
        principal: who the broker took the client for; ``None`` where the login does not name it.
        mechanism: by which it logged in: SASL's name, or ``TLS``.
        peer: the client's address.
        first_byte, last_byte: of the object, as the location names them; ``None`` for its end.
        object_name: unsigned, if clients get it.
        expiry_ms: of the signed URL, in ms since 1970 UTC; ``None`` without one.
    """

    time_ms: int
    client_id: str | None
    principal: str | None
    mechanism: str | None
    peer: str
    topic: str
    topic_id: str
    partition: int
    fetch_offset: int
    segment_id: str
    first_offset: int
    last_offset: int
    first_byte: int | None
    last_byte: int | None
    object_name: str | None
    expiry_ms: int | None

    def line(self) -> str:
        """The line without its end."""
        moment = datetime.fromtimestamp(self.time_ms / 1000, UTC)
        time = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return json.dumps(
            {
                "time": time,
                "client_id": self.client_id,
                "principal": self.principal,
                "mechanism": self.mechanism,
                "peer": self.peer,
                "topic": self.topic,
                "topic_id": self.topic_id,
                "partition": self.partition,
                "fetch_offset": self.fetch_offset,
                "segment_id": self.segment_id,
                "first_offset": self.first_offset,
                "last_offset": self.last_offset,
                "first_byte": self.first_byte,
                "last_byte": self.last_byte,
                "object": self.object_name,
                "expiry_ms": self.expiry_ms,
            },
            ensure_ascii=True,
        )


class AuditLog:
    """Where the lines go: a file that is appended to, stdout (``-``), or nowhere.

    Args:
        most: lines that may wait.
        is_shared: other processes write to it, too: a lock keeps lines whole.

    Raises:
        OSError: the file cannot be opened.
    """

    def __init__(
        self, file: str | None, metrics: GatewayMetrics, *, most: int = MOST_WAITING, is_shared: bool = False
    ) -> None:
        self._file = file
        self._metrics = metrics
        self._most = most
        self._is_shared = is_shared
        self._lines: deque[LocationGiven] = deque()
        self._changed = threading.Condition()
        self._is_closed = self._is_failing = self._is_full = self._must_reopen = self._is_flushing = False
        self._number = -1 if file is None else _open(file)
        self._thread: threading.Thread | None = None

    def write(self, given: LocationGiven) -> None:
        """Take one line; it is written soon.

        Raises:
            OSError: it cannot be; then no location may be given.
        """
        with self._changed:
            if self._is_closed:
                raise OSError("the audit log is closed")
            if self._file is None:
                return
            is_full = len(self._lines) >= self._most
            if is_full and not self._is_full:
                _log.error("the audit queue is full (%d lines): no locations are given meanwhile", self._most)
            self._is_full = is_full
            if is_full or self._is_failing:
                raise OSError("the audit log takes no lines now")
            self._lines.append(given)
            self._metrics.audit_waiting += 1
            if len(self._lines) > 1:
                return  # the thread knows of the first one
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="gateway-audit", daemon=True)
                self._thread.start()
            self._changed.notify()

    def reopen(self, file: str | None) -> None:
        """Go on in a file of this name, which may be a new one: what is written from now on is there.

        Raises:
            OSError: it cannot be opened; then the earlier one stays.
        """
        number = -1 if file is None else _open(file)
        if file is None:
            self.flush()
        with self._changed:
            earlier, was_to = self._number, self._file
            self._file, self._number, self._must_reopen = file, number, True
            self._changed.notify()
        _close(earlier, was_to)

    def flush(self, timeout_s: float = _LONGEST_END_S) -> bool:
        """Wait until every line that was taken is written; false if that takes too long."""
        with self._changed:
            self._is_flushing = True
            self._changed.notify_all()
            try:
                return self._changed.wait_for(lambda: not self._metrics.audit_waiting, timeout_s)
            finally:
                self._is_flushing = False

    def close(self) -> None:
        """Write what waits, within some seconds, and close the file."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(_LONGEST_END_S)
        with self._changed:
            if lost := self._metrics.audit_waiting:
                self._metrics.audit_waiting = 0
                self._metrics.audit_lost += lost
                _log.error("%d audit lines are lost", lost)
            number, self._number = self._number, -1
        _close(number, self._file)

    def _must_write(self) -> bool:
        return self._is_closed or self._is_flushing or len(self._lines) >= _BATCH

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._lines or self._is_closed)
                if not self._lines:
                    return
                # A thread that wakes for each line costs the event loop more than the line.
                self._changed.wait_for(self._must_write, _GATHER_S)
                batch = [self._lines.popleft() for _ in range(min(len(self._lines), _BATCH))]
            if not self._put("".join(f"{one.line()}\n" for one in batch).encode()):
                return
            with self._changed:
                self._metrics.audit_waiting -= len(batch)
                self._metrics.audit_lines += len(batch)
                self._changed.notify_all()

    def _put(self, data: bytes) -> bool:
        """Write lines, however long it takes; false if the log is closed before."""
        done = 0
        while done < len(data):
            with self._changed:
                # A line that was cut by an error begins anew in another file.
                if self._must_reopen:
                    done, self._must_reopen = data.rfind(b"\n", 0, done) + 1, False
                number = -1 if self._number < 0 else os.dup(self._number)
            try:
                if number < 0:
                    return False
                if self._is_shared:
                    fcntl.lockf(number, fcntl.LOCK_EX)  # until it is closed below
                while done < len(data):
                    done += os.write(number, data[done:])
                if self._is_failing:
                    self._is_failing = False
                    _log.warning("the audit file can be written again")
            except OSError as error:
                self._metrics.audit_errors += 1
                was_failing, self._is_failing = self._is_failing, True
                if not was_failing:
                    _log.error("the audit file cannot be written, so no locations are given: %s", error.strerror)
                if self._is_shared and (line := data.rfind(b"\n", 0, done) + 1) < done:
                    data, done = b"\n" + data[line:], 0  # others may write behind what was cut
                with self._changed:
                    self._changed.wait_for(lambda: self._is_closed or self._must_reopen, _AGAIN_S)
                    if self._is_closed:
                        return False
            finally:
                if number >= 0:
                    os.close(number)
        return True


def _open(file: str) -> int:
    return sys.stdout.fileno() if file == "-" else os.open(file, _OPEN, 0o640)


def _close(number: int, file: str | None) -> None:
    if number >= 0 and file != "-":
        os.close(number)
