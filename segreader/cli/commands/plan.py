"""``segreader plan``: what a read would do, decided before any record is read, and what it would cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from segreader.cli.exit_codes import ExitCode
from segreader.cli.options import Selection, live_options, price_options, scan_options, selection_options
from segreader.cli.output import debug_option, output_option, say, write_json_rows
from segreader.cli.plan_rows import note_if_beyond, parse_price_options, plan_row, print_plan

if TYPE_CHECKING:
    from segreader.cli.plan_rows import Errors
    from segreader.plan.cost import CostEstimate, PriceTable
    from segreader.plan.split import ReadPlan
    from segreader.read.base_scan import BaseScan

_EPILOG = """\b
Examples:
  segreader plan /mnt/tiered --topic orders
  segreader plan s3://logs/tiered orders/3 --since -1h --splits
  segreader plan s3://logs/tiered orders --price get_per_1000=0.0004 --price gib_out=0.09 --price currency=USD
  segreader plan /mnt/tiered orders --offsets 4711: -o json | jq '.[0].cost'
"""


@click.command(epilog=_EPILOG, short_help="Print what a read would do and cost, without reading a record.")
@live_options
@selection_options
@scan_options
@click.option(
    "--split-bytes",
    type=click.IntRange(1),
    metavar="N",
    help="Stored bytes of a split to aim at. Default: 128 MiB.",
)
@click.option("--splits", "has_splits", is_flag=True, help="Show each split in the table. JSON has them always.")
@price_options
@output_option("table", "json", "ndjson")
@debug_option
def plan(
    select: Callable[[], Selection],
    asked: Mapping[str, Any],
    split_bytes: int | None,
    has_splits: bool,
    price_file: str | None,
    price_texts: tuple[str, ...],
    form: str,
) -> int:
    """Print what segreader cat would read with the same options: where each partition ends and why, what is missing,
    which duplicate or discarded segments are left out, how many bytes and requests it takes.

    Reads indexes, snapshots, leader-epoch checkpoints and manifests; of logs only what is needed to find records:
    the end of a segment that another one may overlap, the batches behind the last producer snapshot, and some near a
    time.

    If a partition lacks offsets or cannot be planned, the others are still shown: exit code 1.

    Requests are counted for HTTP, without retries. Give prices (--prices, --price) to see the cost in money; there are
    no built-in prices. -o json prints everything as one object.
    """
    prices = parse_price_options(price_file, price_texts)
    from segreader.scans import Scan, scan

    selection = select()
    if split_bytes is not None:
        asked = {**asked, "split_bytes": split_bytes}
    with scan(**selection.scan_arguments(), **asked) as found:
        decided, errors = _planned(found)
        beyond = None
        if isinstance(found, Scan) and not decided.splits:
            beyond = note_if_beyond(decided, found.offsets)
        cost = _cost(found, prices)
        if form == "table":
            print_plan(decided, cost, errors, has_splits=has_splits)
        else:
            write_json_rows([plan_row(decided, cost, found.isolation_level.value, errors)], form)
    for note in dict.fromkeys([*decided.notes, *([] if beyond is None else [beyond])]):
        say(f"note: {note}")
    for gap in decided.gaps:
        say(f"missing: {gap.text}")
    if decided.gaps and asked["on_gap"] == "fail":
        say("note: segreader cat reads nothing where offsets are missing, unless it is given --on-gap skip")
    for error in errors.values():
        say(f"error: {error}")
    return ExitCode.FINDINGS if decided.gaps or errors else ExitCode.OK


def _planned(found: BaseScan) -> tuple[ReadPlan, Errors]:
    """What a read does, and why partitions of a store cannot be planned."""
    from segreader.scans import Scan

    return found.plan_each() if isinstance(found, Scan) else (found.plan(), {})


def _cost(found: BaseScan, prices: PriceTable | None) -> CostEstimate:
    from segreader.plan.cost import estimate
    from segreader.storage.metrics import metrics_of

    metrics = metrics_of(found.store)
    return estimate(found.plan(), prices, planning_requests=metrics.requests if metrics is not None else None)
