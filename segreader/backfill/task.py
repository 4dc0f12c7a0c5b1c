"""The function that Spark runs: an index in, the ``done`` entry of that split out. Picklable, without a secret."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa
from pyspark import TaskContext

from segreader.backfill.destination import Destination
from segreader.backfill.exact import JobSplit
from segreader.backfill.output import OutputOptions
from segreader.backfill.sink import do_split
from segreader.backfill.source import kept_source
from segreader.backfill.split_json import SplitTexts
from segreader.plan.request import Policy
from segreader.spark.options import parse_options
from segreader.spark.tracebacks import without_locals
from segreader.spark.worker import freeze_imports

DDL: Final = "split string, entry string, is_reused boolean"
"""Spark's schema of what the function yields."""

_SCHEMA = pa.schema([("split", pa.string()), ("entry", pa.string()), ("is_reused", pa.bool_())])


class SplitTask:
    """``frame.mapInArrow(SplitTask(…), DDL)``: each row of the frame is the index of a split.

    Args:
        options: those of the data source.
        output: how records become files.
        target: where they go.
        splits: in the order in which they shall be begun.
        plan: name of the plan that they are of.
        on_missing: ``skip`` goes on without a segment that has vanished since the plan was made.
        on_corrupt: ``skip`` goes on without damaged batches.
    """

    def __init__(
        self,
        options: Mapping[str, str],
        output: OutputOptions,
        target: Destination,
        splits: Sequence[JobSplit],
        plan: str = "",
        *,
        on_missing: Policy = Policy.FAIL,
        on_corrupt: Policy = Policy.FAIL,
    ) -> None:
        self._options = dict(options)
        self._on_missing = on_missing
        self._on_corrupt = on_corrupt
        self._output = output
        self._target = target
        self._plan = plan
        self._splits = SplitTexts(splits)

    @without_locals
    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One row for each split; see ``DDL``.

        Raises:
            SegreaderError: as ``do_split`` tells. Spark hands it to the driver as text.
        """
        indexes = [index for batch in batches for index in batch.column(0).to_pylist()]
        if not indexes:
            return
        freeze_imports()
        options = parse_options(self._options, on_missing=self._on_missing)
        context = TaskContext.get()
        attempt = context.attemptNumber() if context is not None else 0
        with kept_source(options) as source, self._target.kept() as target:
            for index in indexes:
                entry, is_reused = do_split(
                    self._splits[index],
                    source,
                    target,
                    self._output,
                    options=replace(options.read_options, on_corrupt=self._on_corrupt),
                    attempt=attempt,
                    plan=self._plan,
                )
                yield pa.RecordBatch.from_pydict(
                    {"split": [entry.split], "entry": [entry.to_bytes().decode()], "is_reused": [is_reused]}, _SCHEMA
                )
