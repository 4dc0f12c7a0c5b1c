"""``ls`` and ``plan`` say the same of the same logs in every layout."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from layout_writers import TOPICS, WAYS, Way, lay_out, log_of

from segreader.cli.main import main
from segreader.testing import SegmentBuilder

TOPIC = "orders.v2_x"


@pytest.fixture
def run(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> Any:
    """Runs a command over the logs in a layout, and gives its rows."""

    def rows(one: Way, verb: str, *arguments: str) -> list[dict[str, Any]]:
        root = tmp_path / one.name
        if not root.exists():
            lay_out(root, one.files())
        options = [
            text for name, value in one.arguments(tmp_path / "settings").items() for text in (_option(name), str(value))
        ]
        layout = ["--layout", one.layout] if one.is_pattern else []
        code = main([verb, str(root), *arguments, *options, *layout, "-o", "ndjson"])
        out, err = capsysbinary.readouterr()
        assert code == 0, err
        return [json.loads(line) for line in out.splitlines()]

    return rows


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _is_size_of(one: Way, size: int, log: Sequence[SegmentBuilder]) -> bool:
    """Whether these are the bytes of a log; Redpanda's has batches of its own, too."""
    plain = sum(len(segment.to_bytes()) for segment in log)
    return size > plain if one.layout == "redpanda" else size == plain


@pytest.mark.parametrize("one", WAYS, ids=str)
def test_topics_partitions_and_segments_are_counted_alike(one: Way, run: Any) -> None:
    topics = run(one, "ls")
    partitions = run(one, "ls", one.shown(TOPIC))
    segments = run(one, "ls", f"{one.shown(TOPIC)}/0")

    assert {(row["topic"], row["partitions"]) for row in topics} == {
        (one.shown(topic), len(logs)) for topic, logs in TOPICS.items()
    }
    assert {row["is_experimental"] for row in topics} == {one.is_experimental}
    (of_topic,) = [row for row in topics if row["topic"] == one.shown(TOPIC)]
    assert [row["partition"] for row in partitions] == sorted(TOPICS[TOPIC])
    assert of_topic["segments"] == sum(row["segments"] for row in partitions)
    for row in partitions:
        log = log_of(TOPIC, row["partition"])
        assert (row["start_offset"], row["stop_offset"]) == (log[0].base_offset, log[-1].next_offset)
        assert _is_size_of(one, row["size"], log)
    assert [(row["base_offset"], row["last_offset"]) for row in segments] == [
        (segment.base_offset, segment.next_offset - 1) for segment in log_of(TOPIC, 0)
    ]
    assert {row["kind"] for row in segments} == {"segment"}


@pytest.mark.parametrize("one", WAYS, ids=str)
def test_a_plan_names_what_is_read(one: Way, run: Any) -> None:
    (plan,) = run(one, "plan", one.shown(TOPIC))

    logs = [segment for partition in sorted(TOPICS[TOPIC]) for segment in log_of(TOPIC, partition)]
    assert _is_size_of(one, plan["cost"]["size"], logs)
    assert plan["cost"]["objects"] == len(logs)
    assert [partition["partition"] for partition in plan["partitions"]] == sorted(TOPICS[TOPIC])
    assert {partition["end_reason"] for partition in plan["partitions"]} == {"end-of-data"}
