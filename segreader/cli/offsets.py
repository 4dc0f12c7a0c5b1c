"""``segreader offsets``: where partitions begin and end, and the offset for a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from segreader.cli.broker_options import live_offsets_options
from segreader.cli.catalog_options import TIMES_HELP, Selection, selection_options
from segreader.cli.exit_codes import ExitCode
from segreader.cli.output import (
    console,
    debug_option,
    output_option,
    say,
    shown_partitions,
    shown_time,
    write_json_rows,
)

if TYPE_CHECKING:
    from segreader.read.source import Source, SourceLog

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
    help=f"The first offset whose record is not older than T: {TIMES_HELP}. May be repeated.",
)
@click.option("--records-only", is_flag=True, help="Look for records only. Default: markers count, as for a broker.")
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
    than the last offset that is here: a broker may have more. Below the stable end the files say of each transaction
    how it ended, so a read_committed reader is given everything below it.

    For a time the answer is a broker's: the first offset whose record, or transaction marker, is not older. A marker's
    time is the coordinator's clock, and no consumer is given it: --records-only leaves markers out.

    With --bootstrap-servers the brokers themselves are asked, and LOCATION, if there is one, is not looked at.
    """
    from datetime import UTC, datetime

    from segreader.read.times import parse_time

    now = datetime.now(UTC)
    times_ms = [time for text in timestamps if (time := parse_time(text, now)) is not None]
    wanted = select()
    if wanted.is_live:
        if records_only:
            raise click.UsageError("Brokers count markers, too: --records-only is for files alone")
        from segreader.cli.live_offsets import print_live_offsets

        print_live_offsets(wanted, times_ms, form)
        return ExitCode.OK
    source = wanted.open()
    logs = source.logs(topic=wanted.topic, topic_id=wanted.topic_id, partitions=wanted.partitions)
    rows = (_row(source, log, times_ms, records_only) for log in logs)
    try:
        if form == "table":
            print_offsets_table(list(rows), times_ms)
        else:
            write_json_rows(rows, form)
    finally:
        source.store.close()
    return ExitCode.OK


def _row(source: Source, log: SourceLog, times_ms: Sequence[int], records_only: bool) -> Row:
    from segreader.read.lineage import read_lineage
    from segreader.read.log_offsets import read_log_offsets
    from segreader.read.time_offsets import offset_for_time
    from segreader.read.transactions import snapshot_at_start

    store, partition = source.store, log.log.partition
    readable = read_lineage(store, log.log, local=log.local, given=log.leader_epochs)
    for note in [*log.log.notes, *readable.notes]:
        say(f"note: {note}")
    snapshot = snapshot_at_start(log.log if log.local is None else log.local, readable.resolved)
    ends = read_log_offsets(store, readable.resolved, start_snapshot=snapshot)

    def answers() -> Iterator[Row]:
        for time_ms in times_ms:
            found = offset_for_time(store, readable.resolved, time_ms, counts_markers=not records_only)
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


def print_offsets_table(rows: Sequence[Row], times_ms: Sequence[int]) -> None:
    """Print rows as a table, with a column for each time."""
    from rich.table import Table

    from segreader.plan.split import EndReason

    table = Table("partition", "earliest", "latest", "stable end", box=None, pad_edge=False, header_style="dim")
    for time_ms in times_ms:
        table.add_column(f"from {shown_time(time_ms)}")
    names = shown_partitions((f"{row['topic']}-{row['partition']}", row["topic_id"]) for row in rows)
    for row, name in zip(rows, names, strict=True):
        is_early = EndReason(row["stable_end_reason"]).is_early
        why = f" ({row['stable_end_reason'].replace('-', ' ')})" if is_early else ""
        table.add_row(
            name,
            _number(row["earliest"]),
            _number(row["latest"]),
            _number(row["stable_end"]) + why,
            *(
                "none" if found["offset"] is None else f"{found['offset']} ({shown_time(found['timestamp'])})"
                for found in row["timestamps"]
            ),
        )
    console().print(table)


def _number(value: int | None) -> str:
    return "" if value is None else str(value)
