"""``segreader spark``: what helps beside Spark, without Spark."""

from __future__ import annotations

import click

from segreader.cli.output import debug_option, say

_EPILOG = """\b
Examples:
  segreader spark offsets /data/checkpoints/orders
  segreader spark offsets s3://jobs/checkpoints/orders
"""

_OFFSETS_EPILOG = """\b
Examples:
  segreader spark offsets /data/checkpoints/orders
  segreader spark offsets s3://jobs/checkpoints/orders > starting-offsets.json
"""


@click.group(
    epilog=_EPILOG,
    short_help="Hand a streaming query over to another source.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
def spark() -> None:
    """Read the checkpoints of Spark's streaming queries. Spark need not be installed."""


@spark.command(epilog=_OFFSETS_EPILOG, short_help="Print how far a query is, as startingOffsets.")
@click.argument("checkpoint", metavar="CHECKPOINT")
@debug_option
def offsets(checkpoint: str) -> None:
    """Print the offsets at which a streaming query has arrived, for the option startingOffsets.

    CHECKPOINT is the query's checkpointLocation: a directory, or the URL of one. The line is that of the newest batch
    that was finished. Stop the query, and start another one at these offsets, with a checkpoint of its own: reading
    with segreader or with Spark's kafka source, it misses nothing and repeats nothing.

    A batch that was begun and not finished may have written some rows; unless the sink undoes that, the next query
    repeats them. A note on stderr says so.
    """
    from segreader.spark.checkpoint import read_position

    position = read_position(checkpoint)
    if position.unfinished is not None:
        say(
            f"note: batch {position.unfinished} was begun and not finished; the offsets are those of batch "
            f"{position.batch}. Its rows come again, unless the same query is started once more to finish it"
        )
    click.echo(position.text)
