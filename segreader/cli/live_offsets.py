"""``segreader offsets`` of a live topic: the marks that leaders tell, in the rows that files give."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from segreader.cli.output import write_json_rows

if TYPE_CHECKING:
    from segreader.cli.catalog_options import Selection
    from segreader.read.cluster import Cluster

Row = dict[str, Any]


def print_live_offsets(wanted: Selection, times_ms: Sequence[int], form: str) -> None:
    """Print the ends of a live topic's partitions, and the offset for each time.

    Raises:
        UsageError: no topic is named.
    """
    from segreader.read.cluster import KafkaCluster
    from segreader.read.live_scan import bootstrap_of

    if wanted.topic is None:
        raise click.UsageError("Name a topic: with brokers one is looked at. segreader broker describe shows all")
    assert wanted.live is not None
    brokers, _ = bootstrap_of(wanted.location, wanted.live.bootstrap_servers)
    cluster = KafkaCluster(brokers or "", wanted.live.broker_options)
    try:
        rows = _rows(cluster, wanted.topic, wanted.topic_id, wanted.partitions, times_ms)
        if form == "table":
            from segreader.cli.offsets import print_offsets_table

            print_offsets_table(list(rows), times_ms)
        else:
            write_json_rows(rows, form)
    finally:
        cluster.close()


def _rows(
    cluster: Cluster,
    topic: str,
    topic_id: str | None,
    partitions: Sequence[int] | None,
    times_ms: Sequence[int],
) -> Iterator[Row]:
    from segreader.broker.messages import OffsetWanted
    from segreader.isolation import IsolationLevel
    from segreader.plan.split import EndReason
    from segreader.read.live_marks import choose_partitions, find_topic, read_ends, read_marks

    found = find_topic(cluster, topic, topic_id)
    numbers = choose_partitions(found, partitions, cluster.shown)
    marks = read_marks(cluster, topic, numbers, IsolationLevel.READ_UNCOMMITTED)
    stable = read_ends(cluster, topic, numbers, IsolationLevel.READ_COMMITTED)
    asked = [OffsetWanted(topic, number, max(0, time_ms)) for time_ms in times_ms for number in numbers]
    answers = cluster.list_offsets(asked, IsolationLevel.READ_UNCOMMITTED) if asked else ()
    times = {(one.partition, one.timestamp): answer for one, answer in zip(asked, answers, strict=True)}
    for number in numbers:
        is_open = stable[number] < marks[number].end
        yield {
            "topic": topic,
            "partition": number,
            "topic_id": found.topic_id,
            "earliest": marks[number].log_start,
            "latest": marks[number].end,
            "stable_end": stable[number],
            "stable_end_reason": (EndReason.OPEN_TRANSACTION if is_open else EndReason.LATEST).value,
            "timestamps": [
                {
                    "query": time_ms,
                    "offset": None if answer.offset < 0 else answer.offset,
                    "timestamp": None if answer.offset < 0 else answer.timestamp_ms,
                    "leader_epoch": None if answer.leader_epoch < 0 else answer.leader_epoch,
                }
                for time_ms in times_ms
                for answer in [times[number, max(0, time_ms)]]
            ],
        }
