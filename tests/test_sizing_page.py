"""docs/how-to/sizing.md is what its program computes, from figures that were measured."""

from __future__ import annotations

from pages import generator

from segreader.plan.cost import RANGE_SIZE

SIZING = generator("make_sizing")
RESULTS = SIZING.PAGE.parents[2] / f"benchmarks/results/{SIZING.MEASURED}-backfill.md"


def test_the_page_is_what_the_program_writes() -> None:
    assert SIZING.PAGE.read_text(encoding="utf-8") == SIZING.page(), "run: python -m docs.make_sizing"
    assert len(SIZING.page().splitlines()) <= 120


def test_its_figures_are_those_of_the_results() -> None:
    text = RESULTS.read_text(encoding="utf-8")
    assert f"Dearest of them: local engine {SIZING.LOCAL_CPU:.2f}, Spark engine {SIZING.SPARK_CPU:.2f}" in text
    assert f"Written: {SIZING.WRITTEN_MB} MB by ours" in text
    assert f"{SIZING.COLUMNS_MB / 1000:.2f} and 1.01 GB of columns" in text


def test_a_row_follows_its_formulae() -> None:
    cells = [cell.strip() for cell in SIZING.row(SIZING.Engine("x", 1, 3600.0, cores=10, gbit=1e9), 1).split("|")[1:-1]]
    tasks = -(-(10**12) // SIZING.DEFAULT_SPLIT_BYTES)
    assert cells[:5] == ["1 TB", f"{tasks:,}", "1,000.0", "125.00", f"{-(-(10**12) // RANGE_SIZE) + tasks:,}"]
    assert cells[7] == "56.25"
    slow = SIZING.row(SIZING.Engine("x", 1, 0.0, gbit=8), 1).split("|")[4].strip()
    assert slow == "0.33"  # 1 TB and its Parquet at 1 GB a second
