"""``segreader offsets``: where partitions begin and end, and the offset for a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from segreader.cli.exit_codes import ExitCode
from segreader.cli.options import TIMES_HELP, Selection, live_offsets_options, selection_options
from segreader.cli.output import (
    debug_option,
    output_option,
    print_rows,
    say,
    shown_number,
    shown_partitions,
    shown_time,
)
from segreader.cli.table import Cell, Marked, TableColumn, fixed, number, print_table

if TYPE_CHECKING:
    from segreader.live.cluster import Cluster
    from segreader.stored.source import Source, SourceLog

Row = dict[str, Any]

_EPILOG = """\b
Examples:
  segreader offsets /mnt/tiered
  segreader offsets /mnt/tiered orders/3 --timestamp 2026-11-01T00:00Z --timestamp -1h
  segreader offsets s3://logs/tiered orders --records-only --timestamp -90m -o json
"""


@click.command(epilog=_EPILOG, short_help="Print where partitions begin and end, and the offset for a time.")
@live_offsets_options
@selection_options
@click.option(
    "--timestamp",
    "timestamps",
    multiple=True,
    metavar="T",
    help=f"The first offset whose record is not older than T: {TIMES_HELP}. Can be repeated.",
)
@click.option("--records-only", is_flag=True, help="Ignore transaction markers. Default: they count, as for a broker.")
@output_option("table", "json", "ndjson")
@debug_option
def offsets(
    select: Callable[[], Selection],
    timestamps: tuple[str, ...],
    records_only: bool,
    form: str,
) -> int:
    """Print for each partition at LOCATION its first offset, its end, its stable end, and the offset for each time.

    TOPIC is a topic (orders) or one partition of it (orders/3); without it every topic is shown. The end is one more
    than the last offset that is here: a broker may have more. Below the stable end every transaction is decided, so a
    read_committed reader gets everything below it.

    For a time the answer is a broker's: the first offset whose record, or transaction marker, is not older. Markers
    are left out with --records-only: consumers never get them.

    With --bootstrap-servers the brokers are asked, and LOCATION is ignored.
    """
    from datetime import UTC, datetime

    from segreader.plan.request import parse_time

    now = datetime.now(UTC)
    times_ms = [time for text in timestamps if (time := parse_time(text, now)) is not None]
    selection = select()
    if selection.is_live:
        if records_only:
            raise click.UsageError("Brokers count markers, too: --records-only is for files alone")
        _print_live(selection, times_ms, form)
        return ExitCode.OK
    source = selection.open()
    logs = source.logs(selection.wanted)
    rows = (_row(source, log, times_ms, records_only) for log in logs)
    try:
        print_rows(rows, form, lambda rows: _print_table(rows, times_ms))
    finally:
        source.store.close()
    return ExitCode.OK


def _row(source: Source, log: SourceLog, times_ms: Sequence[int], records_only: bool) -> Row:
    from segreader.stored.log import StoredLog

    stored = StoredLog(source.store, log)
    partition, ends = stored.partition, stored.offsets
    for note in [*log.log.notes, *stored.readable.notes]:
        say(f"note: {note}")

    def answers() -> Iterator[Row]:
        for time_ms in times_ms:
            found = stored.first_at(time_ms, counts_markers=not records_only)
            yield {
                "query": time_ms,
                "offset": found.offset if found is not None else None,
                "timestamp": found.timestamp_ms if found is not None else None,
                "leader_epoch": found.leader_epoch if found is not None else None,
            }

    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "topic_id": partition.topic_id,
        "earliest": ends.earliest,
        "latest": ends.latest,
        "stable_end": ends.stable_end,
        "stable_end_reason": ends.reason.value,
        "timestamps": list(answers()),
    }


def _print_live(wanted: Selection, times_ms: Sequence[int], form: str) -> None:
    """Print the ends of a live topic's partitions, and the offset for each time.

    Raises:
        UsageError: no topic is named.
    """
    from segreader.live.cluster import KafkaCluster
    from segreader.live.scan import bootstrap_of

    if wanted.topic is None:
        raise click.UsageError("Name a topic: with brokers only one is shown. segreader broker describe shows all")
    assert wanted.live is not None
    brokers, _ = bootstrap_of(wanted.location, wanted.live.bootstrap_servers)
    cluster = KafkaCluster(brokers or "", wanted.live.broker_options)
    try:
        rows = _live_rows(cluster, wanted.topic, wanted.topic_id, wanted.partitions, times_ms)
        print_rows(rows, form, lambda rows: _print_table(rows, times_ms))
    finally:
        cluster.close()


def _live_rows(
    cluster: Cluster,
    topic: str,
    topic_id: str | None,
    partitions: Sequence[int] | None,
    times_ms: Sequence[int],
) -> Iterator[Row]:
    from segreader.broker.messages import OffsetWanted
    from segreader.isolation import IsolationLevel
    from segreader.live.marks import choose_partitions, find_topic, read_marks, read_stable_ends
    from segreader.plan.split import EndReason

    found = find_topic(cluster, topic, topic_id)
    numbers = choose_partitions(found, partitions, cluster.shown)
    marks = read_marks(cluster, topic, numbers, IsolationLevel.READ_UNCOMMITTED)
    stable = read_stable_ends(cluster, topic, numbers)
    asked = [OffsetWanted(topic, one, max(0, time_ms)) for time_ms in times_ms for one in numbers]
    answers = cluster.list_offsets(asked, IsolationLevel.READ_UNCOMMITTED) if asked else ()
    times = {(one.partition, one.timestamp): answer for one, answer in zip(asked, answers, strict=True)}
    for one in numbers:
        is_open = stable[one] < marks[one].end
        yield {
            "topic": topic,
            "partition": one,
            "topic_id": found.topic_id,
            "earliest": marks[one].log_start,
            "latest": marks[one].end,
            "stable_end": stable[one],
            "stable_end_reason": (EndReason.OPEN_TRANSACTION if is_open else EndReason.LATEST).value,
            "timestamps": [
                {
                    "query": time_ms,
                    "offset": None if answer.offset < 0 else answer.offset,
                    "timestamp": None if answer.offset < 0 else answer.timestamp_ms,
                    "leader_epoch": None if answer.leader_epoch < 0 else answer.leader_epoch,
                }
                for time_ms in times_ms
                for answer in [times[one, max(0, time_ms)]]
            ],
        }


def _print_table(rows: Sequence[Row], times_ms: Sequence[int]) -> None:
    """Print rows as a table, with a column for each time."""
    from segreader.plan.split import EndReason

    columns = [
        TableColumn("partition"),
        number("earliest"),
        number("latest"),
        number("stable end"),
        fixed("held back by"),
    ]
    for time_ms in times_ms:
        columns += [number(f"from {shown_time(time_ms)}"), fixed("timestamp")]
    names = shown_partitions((f"{row['topic']}-{row['partition']}", row["topic_id"]) for row in rows)
    lines: list[list[Cell]] = []
    for row, name in zip(rows, names, strict=True):
        is_early = EndReason(row["stable_end_reason"]).is_early
        line: list[Cell] = [
            name,
            shown_number(row["earliest"]),
            shown_number(row["latest"]),
            shown_number(row["stable_end"]),
            Marked(row["stable_end_reason"].replace("-", " ") if is_early else "", "yellow"),
        ]
        for found in row["timestamps"]:
            line += ["none" if found["offset"] is None else str(found["offset"]), shown_time(found["timestamp"])]
        lines.append(line)
    print_table(columns, lines)
