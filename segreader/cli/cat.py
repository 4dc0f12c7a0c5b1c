"""``segreader cat``: records, as a consumer would be given them."""

from __future__ import annotations

import click

from segreader.cli.encoding import encoding_options
from segreader.cli.exit_codes import ExitCode
from segreader.cli.location import parse_location, parse_options, storage_option
from segreader.cli.output import debug_option, is_terminal, output_option

_BINARY = ("parquet", "arrow")

_EPILOG = """\b
Examples:
  segreader cat /mnt/tiered --topic orders --partition 0 --partition 1
  segreader cat /mnt/tiered --topic orders --offsets 4711: --limit 1 -o json
  segreader cat /var/lib/kafka/orders-0 --isolation read_uncommitted --value-encoding hex
  segreader cat s3://logs/tiered --topic orders --storage-option region=eu-west-1
  segreader cat @urls.txt --stats
  segreader cat /mnt/tiered --topic orders --on-corrupt skip -o parquet --output-file orders.parquet
"""


@click.command(epilog=_EPILOG, short_help="Print records, as a consumer would be given them.")
@click.argument("location")
@click.option("--topic", help="Only this topic. Default: every topic there.")
@click.option("--topic-id", help="Which topic of that name, where it was deleted and created again.")
@click.option(
    "--partition", "partitions", type=click.IntRange(0), multiple=True, help="Only this partition; may be repeated."
)
@click.option("--offsets", metavar="A:B", help="Only offsets from A on and below B; either may be left out.")
@click.option(
    "--isolation",
    type=click.Choice(["read_committed", "read_uncommitted"]),
    default="read_committed",
    show_default=True,
    help="Which records a reader is given, as isolation.level of a consumer.",
)
@encoding_options
@click.option("--limit", type=click.IntRange(0), metavar="N", help="Stop reading after N records.")
@click.option(
    "--on-corrupt",
    type=click.Choice(["fail", "skip"]),
    default="fail",
    show_default=True,
    help="At damage: print the records before it and fail (exit code 5), or pass over it, "
    "say so on stderr and go on (exit code 1).",
)
@click.option(
    "--output-file",
    type=click.Path(dir_okay=False),
    is_eager=True,
    metavar="FILE",
    help="Write there instead of to stdout.",
)
@storage_option
@click.option("--stats", is_flag=True, help="Tell on stderr what the read cost: requests, bytes, retries, waits.")
@output_option("ndjson", "json", "csv", "table", "parquet", "arrow")
@debug_option
def cat(
    location: str,
    topic: str | None,
    topic_id: str | None,
    partitions: tuple[int, ...],
    offsets: str | None,
    isolation: str,
    key_encoding: str | None,
    value_encoding: str | None,
    limit: int | None,
    on_corrupt: str,
    output_file: str | None,
    storage_options: tuple[str, ...],
    stats: bool,
    form: str,
) -> int:
    """Print the records at LOCATION, ordered by topic, partition and offset.

    LOCATION is a directory, or a prefix in a bucket (s3://, abfss://, gs://, any URL that fsspec knows), in the layout
    of Kafka's LocalTieredStorage or of a broker's log directory; or one partition's directory in either. It may also be
    the signed URL of one segment, or @FILE with the signed URLs of segments and their indexes, one a line.

    Records of aborted transactions are left out (--isolation), and so are control records.

    Where the files do not say how a transaction ended, the records before it are printed and the command fails
    (exit code 5), for it never guesses. The end of a log that a broker still writes to may be cut: that is told on
    stderr and is no error.

    ndjson has one object a line with the fields topic, partition, offset, timestamp (ms), timestamp_type,
    leader_epoch, key, value and headers; docs/cli.md says more. parquet and arrow (an IPC stream) keep bytes as bytes.
    """
    if form in _BINARY:
        if key_encoding or value_encoding:
            raise click.UsageError(f"An encoding means nothing with {form}, which keeps bytes as bytes. Leave it out")
        if output_file is None and is_terminal():
            raise click.UsageError(f"{form} is not for a terminal. Name an --output-file, or redirect stdout")
    from segreader.cli.records import columns_for, print_records
    from segreader.format.columns import DEFAULT_MAX_ROWS
    from segreader.read.scan import scan

    place, urls = parse_location(location)
    found = scan(
        place,
        urls=urls,
        storage_options=parse_options(storage_options),
        topic=topic,
        topic_id=topic_id,
        partitions=partitions or None,
        offsets=offsets,
        isolation_level=isolation,
        columns=columns_for(form),
        batch_rows=min(limit or DEFAULT_MAX_ROWS, DEFAULT_MAX_ROWS),
        on_corrupt=on_corrupt,
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
