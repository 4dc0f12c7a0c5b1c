"""The published figure: what its raw lines come to, the page and the picture that are made of them, and those kept."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from dataclasses import asdict

import pytest
from pages import ROOT, generator

from benchmarks.published_page import CONFLUENT, NOBODY, SEGREADER, Published, Turn, newest, page

MAKE_CHART = generator("make_chart")
FACTS = {
    "at": "2026-11-28 16:40 UTC",
    "commit": "abc1234",
    "stored_bytes": 2_000_000_000,
    "rounds": 2,
    "records": 4_000_000,
    "record": "1 KiB",
    "codec": "lz4",
    "partitions": 4,
    "segment_bytes": 128 << 20,
    "hot_rate": 200,
    "hot_bytes": 1024,
    "cpu": "Some CPU",
    "cores": 2,
    "kernel": "6.1",
    "python": "3.11.7",
    "pyspark": "4.0.0",
    "confluent-kafka": "2.16.1",
    "pyarrow": "26.0.1",
    "broker": "4.3.1",
}


def _turn(number: int, side: str, *, wall: float, client: float, broker: float, other: float = 0.0) -> Turn:
    return Turn(number, side, 4_000_000, wall, client, broker, 2000, 2.0, 9.0, 30.0, other, 1.5)


def _run(other: float = 0.0) -> Published:
    turns = []
    for number in (0, 1):
        turns += [
            _turn(number, NOBODY, wall=10.0, client=0.0, broker=0.5),
            _turn(number, CONFLUENT, wall=20.0, client=8.0 + number, broker=5.0),
            _turn(number, SEGREADER, wall=4.0, client=3.0, broker=0.2, other=other),
        ]
    return Published.parse("\n".join(map(json.dumps, [FACTS, *map(asdict, turns)])) + "\n")


def test_the_brokers_cpu_is_counted_above_what_it_uses_while_nobody_reads() -> None:
    run = _run()
    assert run.idle_rate == pytest.approx(0.05)
    assert run.of(CONFLUENT, run.broker_cpu).middle == pytest.approx((5.0 - 0.05 * 20) / 2)
    assert run.of(SEGREADER, run.broker_cpu).middle == pytest.approx(0.0)


def test_figures_are_for_each_gb_with_their_least_and_most() -> None:
    run = _run()
    found = run.of(CONFLUENT, run.client_cpu)
    assert (found.middle, found.least, found.most) == pytest.approx((4.25, 4.0, 4.5))
    assert "| confluent-kafka | 2.00 (2.00 to 2.00) | 4.25 (4.00 to 4.50) |" in page(run, "x.jsonl")


def test_a_page_of_a_quiet_machine_says_so_and_one_of_a_busy_machine_claims_no_times() -> None:
    quiet, busy = page(_run(), "x.jsonl"), page(_run(other=0.5), "x.jsonl")
    assert "No other work used more than a tenth of a core" in quiet
    assert "Do not rely on" not in quiet
    assert "**The machine was not quiet.** Other work kept 0.0 cores busy in the median turn, 0.5 in the worst" in busy
    assert "**Do not rely on the wall times and latencies.**" in busy


def test_the_picture_says_what_is_not_claimed_and_has_a_bar_for_each_side_of_each_panel() -> None:
    quiet, busy = MAKE_CHART.figure(_run()), MAKE_CHART.figure(_run(other=0.5))
    assert "do not rely" not in quiet
    assert busy.count("do not rely") == 2
    kinds = [one.get("class") for one in ET.fromstring(quiet).iter("{http://www.w3.org/2000/svg}rect")]
    assert kinds == ["ground", *["theirs", "ours"] * 4, "nobody"]


def test_the_picture_and_the_page_are_those_of_the_newest_run_that_is_kept() -> None:
    lines = newest(ROOT / "benchmarks" / "results")
    run = Published.parse(lines.read_text(encoding="utf-8"))
    assert MAKE_CHART.PUBLISHED.read_text(encoding="utf-8") == MAKE_CHART.figure(run), "run: make pages"
    assert lines.with_suffix(".md").read_text(encoding="utf-8") == page(run, lines.name)


def test_the_page_of_the_figure_has_the_numbers_of_that_run() -> None:
    lines = newest(ROOT / "benchmarks" / "results")
    run = Published.parse(lines.read_text(encoding="utf-8"))
    text = (ROOT / "docs" / "explanation" / "figure.md").read_text(encoding="utf-8")
    costs = [[side, *(str(run.of(side, value)) for value in (run.broker_cpu, run.client_cpu))] for side in run.sides]
    rows = [[*row, str(run.of(row[0], lambda turn: turn.hot_p99_ms))] for row in [*costs, [NOBODY, "", ""]]]
    assert [row for row in rows if f"| {' | '.join(row)} |" not in text] == []
    assert lines.name in text
