"""A backfill job plans, writes and verifies where PySpark is not installed."""

from __future__ import annotations

import subprocess
import sys

import pytest

WITHOUT = "import sys; sys.modules['pyspark'] = None; "


@pytest.mark.parametrize(
    "module",
    [
        "segreader.backfill.job_plan",
        "segreader.backfill.output",
        "segreader.backfill.source",
        "segreader.backfill.task",
        "segreader.backfill.verify",
        "segreader.spark.columns",
        "segreader.spark.typed_values",
    ],
)
def test_what_a_job_needs_is_imported_without_pyspark(module: str) -> None:
    done = subprocess.run([sys.executable, "-c", f"{WITHOUT}import {module}"], capture_output=True, text=True)

    assert done.returncode == 0, done.stderr


def test_the_check_would_notice_pyspark() -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"{WITHOUT}import segreader.spark.source"], capture_output=True, text=True
    )

    assert "pyspark" in done.stderr
