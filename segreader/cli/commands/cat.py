"""``segreader cat``: records, as a consumer would be given them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, nullcontext
from typing import TYPE_CHECKING, Any

import click

from segreader.cli.exit_codes import ExitCode
from segreader.cli.options import (
    Selection,
    ahead_options,
    live_options,
    scan_options,
    schema_options,
    selection_options,
    typed_arguments,
)
from segreader.cli.output import (
    debug_option,
    encoding_options,
    is_terminal,
    named_output,
    output_file_option,
    output_option,
    progress,
    require_place,
    say,
)
from segreader.errors import shown_count

if TYPE_CHECKING:
    import pyarrow as pa

    from segreader.cli.row_writer import RowTexts
    from segreader.plan.split import ReadPlan
    from segreader.read.base_scan import BaseScan

_EPILOG = """\b
Examples:
  segreader cat /mnt/tiered --topic orders --partition 0 --partition 1
  segreader cat /mnt/tiered --topic orders --offsets 4711: --limit 1 -o json
  segreader cat /var/lib/kafka/orders-0 --isolation read_uncommitted --value-encoding hex
  segreader cat s3://logs/tiered --topic orders --storage-option region=eu-west-1
  segreader cat s3://logs/tiered orders/3 --since 2026-11-01T00:00Z --until -1h
  segreader cat --rsm-config server.properties --topic orders
  segreader cat s3://logs/tiered orders --last 10
  segreader cat kafka://broker:9092 orders --last 10 --follow
  segreader cat s3://logs/tiered orders --key customer-42
  segreader cat /mnt/tiered orders --grep '"status":"failed"' -o jsonl
  segreader cat @urls.txt --stats
  segreader cat /mnt/tiered --topic orders --on-corrupt skip -o parquet --output-file orders.parquet
  segreader cat /mnt/tiered orders --schema-registry https://registry:8081
"""


@click.command(epilog=_EPILOG, short_help="Print records, as a consumer would be given them.")
@live_options
@selection_options
@scan_options
@click.option(
    "--key",
    "with_key",
    metavar="K",
    help="Only records with exactly this key: text, or hex as 0x00ff. Reads the one partition where the Java client's "
    "default partitioner puts it (murmur2), and says so on stderr; or the partitions that are named.",
)
@click.option("--all-partitions", is_flag=True, help="With --key: read every partition, whoever placed the key there.")
@click.option(
    "--grep",
    metavar="TEXT",
    help="Only records whose key or value contains this: text, or hex as 0x00ff. Every record is read; stderr says how "
    "many.",
)
@encoding_options
@schema_options
@click.option(
    "--last",
    type=click.IntRange(1),
    metavar="N",
    help="Only the last N records of each partition, of those asked for: the end is read, and no more than that needs.",
)
@click.option(
    "--follow",
    is_flag=True,
    help="With brokers: at the live end go on with new records, until Ctrl-C. With read_committed a transaction's "
    "records come when it is committed.",
)
@click.option("--limit", type=click.IntRange(0), metavar="N", help="Stop reading after N records.")
@click.option(
    "--on-missing",
    type=click.Choice(["fail", "skip"]),
    default="fail",
    show_default=True,
    help="If a segment vanishes while it is read, as retention does: fail, or skip it with a note on stderr (exit "
    "code 1).",
)
@ahead_options("splits")
@click.option(
    "--order",
    type=click.Choice(["total", "partition"]),
    default="total",
    show_default=True,
    help="total: by topic, partition and offset. partition: each partition by offset, several as they are ready, so "
    "that a slow one does not hold back the others.",
)
@output_file_option
@click.option(
    "--stats", is_flag=True, help="Print the cost of the read on stderr: requests, bytes, retries, waits, MB/s, CPU."
)
@output_option("ndjson", "json", "csv", "table", "parquet", "arrow")
@debug_option
def cat(
    select: Callable[[], Selection],
    asked: Mapping[str, Any],
    with_key: str | None,
    all_partitions: bool,
    grep: str | None,
    last: int | None,
    follow: bool,
    key_encoding: str | None,
    value_encoding: str | None,
    typed: Mapping[str, Any],
    limit: int | None,
    on_missing: str,
    threads: int | None,
    read_ahead_bytes: int | None,
    order: str,
    output_file: str | None,
    stats: bool,
    form: str,
) -> int:
    """Print the records at LOCATION, ordered by topic, partition and offset (--order).

    LOCATION is a directory, or a prefix in a bucket (s3://, abfss://, gs://, any URL that fsspec knows), in one of the
    layouts in docs/reference/layouts; or one partition's directory; or the signed URL of one segment; or @FILE with
    signed URLs of segments and their indexes, one per line; or the name of a place, prod or prod:orders/3, as segreader
    places lists them. Leave it out if --rsm-config names the bucket, or SEGREADER_AT a place: a single argument is then
    TOPIC, unless it is a place, a URL or a path (./here).
    TOPIC is a topic (orders) or one partition of it (orders/3), as --topic and --partition.

    Records of aborted transactions (--isolation) and control records are left out.

    If the files do not say how a transaction ended, the records end before it, with a note on stderr: its marker may
    not be uploaded yet. The cut end of a log that a broker is still writing is a note, too.

    ndjson has one object a line with the fields topic, partition, offset, timestamp (ms), timestamp_type,
    leader_epoch, key, value and headers; see docs/reference/cli-records.md. parquet and arrow (an
    IPC stream) keep bytes as bytes. With --schemas or --schema-registry keys and
    values are objects; docs/how-to/values.md.
    """
    require_place(form, output_file, has_encoding=bool(key_encoding or value_encoding))
    from segreader.cli.row_writer import RecordTexts, TypedRecordTexts
    from segreader.format.columns import DEFAULT_MAX_ROWS
    from segreader.plan.request import DEFAULT_COLUMNS
    from segreader.read.records import RECORD_COLUMNS
    from segreader.scans import scan

    if all_partitions and with_key is None:
        raise click.UsageError("--all-partitions is about --key K. Name the key, or leave it out")
    selection = select()
    selected = selection.scan_arguments()
    is_filtered = with_key is not None or grep is not None
    with scan(
        **selected,
        **asked,
        with_key=with_key,
        all_partitions=all_partitions,
        grep=grep,
        last=last,
        **typed_arguments(typed, selection.topic, selection.place),
        columns=(*DEFAULT_COLUMNS, "leader_epoch") if form in ("parquet", "arrow") else RECORD_COLUMNS,
        batch_rows=DEFAULT_MAX_ROWS if is_filtered else min(limit or DEFAULT_MAX_ROWS, DEFAULT_MAX_ROWS),
        on_missing=on_missing,
        threads=threads,
        read_ahead_bytes=read_ahead_bytes,
        order=order,
    ) as found:
        encodings = key_encoding or "auto", value_encoding or "auto"
        is_typed = bool(found.options.decodings)
        texts = TypedRecordTexts(found.schema, *encodings) if is_typed else RecordTexts(*encodings)
        if follow:
            _require_end(found, form)
        is_whole = _print(found, form, texts, limit=limit, output_file=output_file, stats=stats, follow=follow)
    return ExitCode.OK if is_whole else ExitCode.FINDINGS


def _require_end(scan: BaseScan, form: str) -> None:
    """Refuse to follow what has no live end, or in a form that is written when all records are known.

    Raises:
        click.UsageError: it says what to do.
    """
    from segreader.live.scan import LiveScan

    if not isinstance(scan, LiveScan):
        raise click.UsageError(
            "--follow needs brokers: a bucket gets whole segments, long after their records were written. Name brokers "
            "with --bootstrap-servers or kafka://…, or read the bucket again with --offsets or --since"
        )
    if form in ("json", "parquet"):
        raise click.UsageError(f"--follow has no end, and {form} needs one. Give -o ndjson, csv, table or arrow")


def _print(
    scan: BaseScan,
    form: str,
    texts: RowTexts,
    *,
    limit: int | None,
    output_file: str | None,
    stats: bool,
    follow: bool = False,
) -> bool:
    """Print the records of a scan as they come, and holes and notes on stderr.

    Args:
        follow: go on at the live end; an interrupt is then how it ends.

    Returns:
        Whether nothing damaged was left out.

    Raises:
        SegreaderError: as ``Scan.to_batches``, after the records before it are printed.
    """
    from segreader.cli.row_writer import opened, row_writer

    scan.prepare()  # before a file is emptied for a request that cannot be met
    teller, printed, has_begun = _Teller(scan), 0, False
    try:
        with (
            named_output(output_file),
            opened(output_file) as file,
            nullcontext(lambda: None) if follow else _ticking(scan, output_file, limit, lambda: printed) as tick,
            row_writer(form, file, scan.schema, texts) as write,
        ):
            has_begun = True
            try:
                for batch in _limited(_followed(scan) if follow else scan.to_batches(), limit):
                    printed += batch.num_rows  # before they show: an interrupt may come as soon as they do
                    write(batch)
                    if follow:
                        file.flush()
                    teller.tell()
                    tick()
            except KeyboardInterrupt:
                if not follow:
                    raise
    finally:
        if has_begun:  # and now the bar is at its end
            teller.tell()
            if scan.options.where is not None:
                say(f"{printed:,} of {shown_count(scan.looked_at, 'record read matches', 'records read match')}")
            if stats:
                _say_stats(scan)
    return _tell_ends(scan, limit)


def _tell_ends(scan: BaseScan, limit: int | None) -> bool:
    """Tell what is missing and where partitions end early; returns whether nothing is missing."""
    from segreader.read.metrics import lacks

    plan = scan.prepare()
    is_whole = not lacks(plan, scan.metrics)
    if is_whole and limit != 0 and not scan.looked_at:
        _tell_if_beyond(scan, plan)
    for gap in plan.gaps:
        say(f"missing: {gap.text}")
    for one in scan.metrics.missing:
        say(f"missing: {one.text}")
    if limit is None:
        for end in plan.ends:
            if end.reason.is_early:
                say(end.text)
    if plan.dropped:
        parts = shown_count(len(plan.dropped), "part of a segment holds", "parts of segments hold")
        say(f"note: {parts} no offsets of the live log; segreader plan says which")
    return is_whole


def _tell_if_beyond(scan: BaseScan, plan: ReadPlan) -> None:
    """Tell where a store's log ends, if that is before the offsets asked for."""
    from segreader.cli.plan_rows import note_if_beyond
    from segreader.scans import Scan

    if isinstance(scan, Scan) and (note := note_if_beyond(plan, scan.offsets)):
        say(f"note: {note}")


def _say_stats(scan: BaseScan) -> None:
    """Tell on stderr what a read cost, a name and a value a line."""
    from segreader.read.metrics import LiveMetrics
    from segreader.storage.metrics import metrics_of

    metrics = scan.metrics
    rows: dict[str, object] = {"kernel": metrics.kernel, "records": metrics.records, "batches": metrics.batches}
    rows |= {"bytes_read": metrics.bytes_read, "bytes_decompressed": metrics.body_bytes}
    rows |= {"control_batches": metrics.control_batches, "aborted_batches": metrics.aborted_batches}
    stored = metrics_of(scan.store)
    rows |= stored.as_dict() if stored is not None else {"requests": metrics.requests}
    if isinstance(metrics, LiveMetrics):
        rows |= metrics.as_dict()
    rows |= metrics.cost()
    width = max(map(len, rows))
    for name, value in rows.items():
        if value is not None:
            say(f"{name:<{width}} {f'{value:.4f}' if isinstance(value, float) else value}")


def _ticking(
    scan: BaseScan, output_file: str | None, limit: int | None, printed: Callable[[], int]
) -> AbstractContextManager[Callable[[], None]]:
    """A progress bar, unless the records themselves go to the terminal."""
    if output_file is None and is_terminal():
        return nullcontext(lambda: None)
    return progress(lambda: (scan.metrics.bytes_read, scan.prepare().size, printed()), limit=limit)


def _followed(scan: BaseScan) -> Iterator[pa.RecordBatch]:
    from segreader.live.scan import LiveScan

    assert isinstance(scan, LiveScan)
    say("following the live end: Ctrl-C ends")
    return scan.follow()


def _limited(found: Iterator[pa.RecordBatch], limit: int | None) -> Iterator[pa.RecordBatch]:
    left = limit
    if left == 0:
        return
    with closing(found) as batches:  # type: ignore[type-var]
        for batch in batches:
            if left is None:
                yield batch
                continue
            yield batch.slice(0, min(left, batch.num_rows))
            left -= min(left, batch.num_rows)
            if not left:
                return


class _Teller:
    """Remembers which holes and notes of a scan have been printed on stderr."""

    def __init__(self, scan: BaseScan) -> None:
        self._scan, self._holes, self._notes = scan, 0, 0

    def tell(self) -> None:
        """Tell those that are new."""
        metrics = self._scan.metrics
        for note in metrics.notes[self._notes :]:
            say(f"note: {note}")
        for hole in metrics.holes[self._holes :]:
            say(f"left out: {hole.text}")
        self._notes, self._holes = len(metrics.notes), len(metrics.holes)
