"""Draws the charts from the dated results: what it costs to write a tiered topic to Parquet, and to read it.

python -m docs.make_chart
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.published_page import NOBODY, Published, Range, newest

RESULT = Path(__file__).parents[1] / "benchmarks" / "results" / "2026-11-21-spark.md"
CHART = Path(__file__).parent / "images" / "backfill-cpu.svg"
SECTION = "## Against Spark's kafka source"
OURS = "ours to Parquet, direct sink"
THEIRS = "kafka to Parquet: client + broker"

WIDTH, LEFT, RIGHT, TOP = 720, 130, 60, 74
BAR, GAP = 16, 18
LABEL, VALUE = 212, 150
COLOURS = {"segreader": "#1f77b4", "client": "#e08214", "broker": "#fdb863"}

RESULTS = RESULT.parent
PUBLISHED = CHART.with_name("published.svg")
STYLE = """<style>
text { fill: #1f2328 } .quiet { fill: #59636e } .ground { fill: #ffffff } .range { stroke: #1f2328 }
.ours { fill: #1f77b4 } .theirs { fill: #e08214 } .nobody { fill: #8c959f }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc } .quiet { fill: #9198a1 } .ground { fill: #0d1117 } .range { stroke: #f0f6fc }
  .ours { fill: #58a6ff } .theirs { fill: #f0883e } .nobody { fill: #6e7681 }
}
</style>"""


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU seconds for each GB of columns, of one kind of topic."""

    topic: str
    segreader: float
    client: float
    broker: float


def costs(text: str) -> list[Cost]:
    """The costs in the first table of the section; a second table there is of later, partial runs."""
    table = text.partition(SECTION)[2].partition("\n- ")[0]
    rows = [[cell.strip(" *") for cell in line.strip("|").split("|")] for line in re.findall(r"^\|.*\|$", table, re.M)]
    topics = rows[0][1:]
    by_name = {row[0]: row[1:] for row in rows}
    theirs = [[float(part) for part in cell.split("+")] for cell in by_name[THEIRS]]
    ours = [float(cell) for cell in by_name[OURS]]
    return [Cost(topic, one, *both) for topic, one, both in zip(topics, ours, theirs, strict=True)]


def chart(of: Sequence[Cost]) -> str:
    """An SVG with two bars for each topic."""
    scale = (WIDTH - LEFT - RIGHT) / max(one.client + one.broker for one in of)
    height = TOP + len(of) * (2 * BAR + GAP) + 12
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}"'
        ' font-family="sans-serif" font-size="13">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        '<text x="12" y="24" font-size="16" font-weight="bold">'
        "CPU seconds to write 1 GB of a tiered topic to Parquet</text>",
    ]
    at = 12
    labels = ("segreader", "Spark's kafka source: client", "its broker")
    for colour, label in zip(COLOURS.values(), labels, strict=True):
        parts.append(f'<rect x="{at}" y="40" width="12" height="12" fill="{colour}"/>')
        parts.append(f'<text x="{at + 18}" y="51">{label}</text>')
        at += 40 + 7 * len(label)
    for number, one in enumerate(of):
        y = TOP + number * (2 * BAR + GAP)
        parts.append(f'<text x="12" y="{y + BAR + 5}">{one.topic}</text>')
        parts += _bar(y, scale, [("segreader", one.segreader)])
        parts += _bar(y + BAR, scale, [("client", one.client), ("broker", one.broker)])
    return "\n".join([*parts, "</svg>"]) + "\n"


def _bar(y: int, scale: float, values: Sequence[tuple[str, float]]) -> list[str]:
    parts, x = [], float(LEFT)
    for name, value in values:
        width = value * scale
        colour = COLOURS[name]
        parts.append(f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{BAR - 2}" fill="{colour}"/>')
        x += width
    total = sum(value for _, value in values)
    return [*parts, f'<text x="{x + 6:.1f}" y="{y + 12}">{total:.1f}</text>']


def figure(run: Published) -> str:
    """An SVG of what readers of one topic cost: a panel for each figure, a bar for each side, lines from least to most.

    It follows the light or dark of the page.
    """
    claimed = "" if run.is_quiet else " (busy machine: do not rely on it)"
    panels = [
        ("Broker CPU, seconds for each GB", run.sides, run.broker_cpu),
        ("Client CPU, seconds for each GB", run.sides, run.client_cpu),
        (f"Wall seconds for each GB, on one core{claimed}", run.sides, run.wall),
        (f"p99 of another consumer of the broker, ms{claimed}", [*run.sides, NOBODY], lambda turn: turn.hot_p99_ms),
    ]
    title = f"What it costs to read {run.stored_gb:.1f} GB of a tiered topic"
    parts, y = [], 60
    for name, sides, value in panels:
        parts.append(f'<text x="12" y="{y + 12}" font-weight="bold">{name}</text>')
        y += 22
        ranges = {side: run.of(side, value) for side in sides}
        scale = (WIDTH - LABEL - VALUE) / max(one.most for one in ranges.values())
        for side, one in ranges.items():
            parts += _ranged(y, scale, side, one)
            y += BAR + 6
        y += GAP
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y}" viewBox="0 0 {WIDTH} {y}"'
        ' font-family="sans-serif" font-size="13" role="img">',
        STYLE,
        f'<rect class="ground" width="{WIDTH}" height="{y}"/>',
        f'<text x="12" y="24" font-size="16" font-weight="bold">{title}</text>',
        f'<text class="quiet" x="12" y="44">median of {run.facts["rounds"]} rounds, least to most;'
        f" GB as stored; {run.facts['at'][:10]}</text>",
    ]
    return "\n".join([*head, *parts, "</svg>"]) + "\n"


def _ranged(y: int, scale: float, side: str, one: Range) -> list[str]:
    middle, least, most = (LABEL + max(0.0, value) * scale for value in (one.middle, one.least, one.most))
    kind = "nobody" if side == NOBODY else "ours" if side.startswith("segreader") else "theirs"
    return [
        f'<text x="12" y="{y + 12}">{side}</text>',
        f'<rect class="{kind}" x="{LABEL}" y="{y}" width="{max(1.0, middle - LABEL):.1f}" height="{BAR - 2}"/>',
        f'<line class="range" x1="{least:.1f}" y1="{y + 7}" x2="{most:.1f}" y2="{y + 7}"/>',
        f'<text x="{max(middle, most) + 6:.1f}" y="{y + 12}">{one}</text>',
    ]


if __name__ == "__main__":
    CHART.parent.mkdir(parents=True, exist_ok=True)
    CHART.write_text(chart(costs(RESULT.read_text(encoding="utf-8"))), encoding="utf-8")
    last = newest(RESULTS)
    PUBLISHED.write_text(figure(Published.parse(last.read_text(encoding="utf-8"))), encoding="utf-8")
