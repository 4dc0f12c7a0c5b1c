"""``segreader cat``: records, as a consumer would be given them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click

from segreader.cli.exit_codes import ExitCode
from segreader.cli.options import Selection, live_options, scan_options, selection_options
from segreader.cli.output import debug_option, encoding_options, is_terminal, output_option

_BINARY = ("parquet", "arrow")

_EPILOG = """\b
Examples:
  segreader cat /mnt/tiered --topic orders --partition 0 --partition 1
  segreader cat /mnt/tiered --topic orders --offsets 4711: --limit 1 -o json
  segreader cat /var/lib/kafka/orders-0 --isolation read_uncommitted --value-encoding hex
  segreader cat s3://logs/tiered --topic orders --storage-option region=eu-west-1
  segreader cat s3://logs/tiered orders/3 --since 2026-11-01T00:00Z --until -1h
  segreader cat --rsm-config server.properties --topic orders
  segreader cat @urls.txt --stats
  segreader cat /mnt/tiered --topic orders --on-corrupt skip -o parquet --output-file orders.parquet
"""


@click.command(epilog=_EPILOG, short_help="Print records, as a consumer would be given them.")
@live_options
@selection_options
@scan_options
@encoding_options
@click.option("--limit", type=click.IntRange(0), metavar="N", help="Stop reading after N records.")
@click.option(
    "--on-missing",
    type=click.Choice(["fail", "skip"]),
    default="fail",
    show_default=True,
    help="If a segment vanishes while it is read, as retention does: fail, or skip it with a note on stderr (exit "
    "code 1).",
)
@click.option(
    "--output-file",
    type=click.Path(dir_okay=False),
    is_eager=True,
    metavar="FILE",
    help="Write to FILE instead of stdout.",
)
@click.option("--stats", is_flag=True, help="Print the cost of the read on stderr: requests, bytes, retries, waits.")
@output_option("ndjson", "json", "csv", "table", "parquet", "arrow")
@debug_option
def cat(
    select: Callable[[], Selection],
    asked: Mapping[str, Any],
    key_encoding: str | None,
    value_encoding: str | None,
    limit: int | None,
    on_missing: str,
    output_file: str | None,
    stats: bool,
    form: str,
) -> int:
    """Print the records at LOCATION, ordered by topic, partition and offset.

    LOCATION is a directory, or a prefix in a bucket (s3://, abfss://, gs://, any URL that fsspec knows), in one of the
    layouts in docs/reference/layouts; or one partition's directory; or the signed URL of one segment; or @FILE with
    signed URLs of segments and their indexes, one per line. Leave it out if --rsm-config names the bucket.
    TOPIC is a topic (orders) or one partition of it (orders/3), as --topic and --partition.

    Records of aborted transactions (--isolation) and control records are left out.

    If the files do not say how a transaction ended, the records end before it, with a note on stderr: its marker may
    not be uploaded yet. The cut end of a log that a broker is still writing is a note, too.

    ndjson has one object a line with the fields topic, partition, offset, timestamp (ms), timestamp_type,
    leader_epoch, key, value and headers; see docs/reference/cli-records.md. parquet and arrow (an
    IPC stream) keep bytes as bytes.
    """
    if form in _BINARY:
        if key_encoding or value_encoding:
            raise click.UsageError(f"An encoding has no effect with {form}, which keeps bytes as bytes. Leave it out")
        if output_file is None and is_terminal():
            raise click.UsageError(f"{form} is not for a terminal. Name an --output-file, or redirect stdout")
    from segreader.cli.records import columns_for, print_records
    from segreader.format.columns import DEFAULT_MAX_ROWS
    from segreader.scans import scan

    found = scan(
        **select().scan_arguments(),
        **asked,
        columns=columns_for(form),
        batch_rows=min(limit or DEFAULT_MAX_ROWS, DEFAULT_MAX_ROWS),
        on_missing=on_missing,
    )
    is_whole = print_records(
        found,
        form,
        key_encoding=key_encoding or "auto",
        value_encoding=value_encoding or "auto",
        limit=limit,
        output_file=output_file,
        stats=stats,
    )
    return ExitCode.OK if is_whole else ExitCode.FINDINGS
