"""Documents of a job that several threads read at once."""

from __future__ import annotations

import subprocess
import sys

_FIRST = """
from segreader.backfill.done import DoneEntry
from segreader.backfill.job_plan import OutputOptions, PartitionRange
from segreader.backfill.verify import SplitVerdict

kinds = (DoneEntry, OutputOptions, PartitionRange, SplitVerdict)
print(*(kind.__name__ for kind in kinds if not hasattr(kind, "__msgspec_cache__")))
"""


def test_msgspec_knows_every_document_of_a_job_before_threads_can_convert_it_first() -> None:
    # Two threads that make msgspec 0.22 look up the same dataclass at once crash the process; how often is chance.
    done = subprocess.run([sys.executable, "-c", _FIRST], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
