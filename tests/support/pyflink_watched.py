"""Runs ``examples/pyflink_backfill.py`` and writes down every slice that its workers read; slowly, if it is told to.

``WATCHED_SLICES`` names the file of the slices, a line of JSON each; ``WATCHED_PAUSE`` is how many seconds a worker
waits after each of them.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from typing import Any

import pyflink_backfill
from pyflink_backfill import ReadSlices

from segreader.loader import LoadQuery, Position


class WatchedSlices(ReadSlices):
    """What the example does, written down."""

    def __init__(self, query: LoadQuery) -> None:
        super().__init__(query)
        self._file, self._pause = os.environ["WATCHED_SLICES"], float(os.environ["WATCHED_PAUSE"])

    def open(self, runtime_context: Any) -> None:
        super().open(runtime_context)
        self._slot = runtime_context.get_index_of_this_subtask()

    def process_element(self, value: Any, ctx: Any) -> Iterator[str]:
        begun_ns = time.time_ns()
        saved, is_open = self._position.value(), value.split_id in self._readers
        before = None if saved is None else Position.from_json(saved)
        offsets = []
        for line in super().process_element(value, ctx):
            offsets.append(json.loads(line)["offset"])
            yield line
        read = {
            "begun_ns": begun_ns,
            "slot": self._slot,
            "split_id": value.split_id,
            "offsets": offsets,
            "restored": before.next_offset if before is not None and not is_open else None,
            "inside_aborted": before is not None and bool(before.aborted),
        }
        with open(self._file, "a", encoding="utf-8") as lines:
            lines.write(json.dumps(read) + "\n")
        if offsets:
            time.sleep(self._pause)


if __name__ == "__main__":
    pyflink_backfill.ReadSlices = WatchedSlices
    pyflink_backfill.main()
