"""Proves that the output of a backfill is exact, or lists what differs: ``segreader backfill verify --help``.

Nothing is written but the report.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from segreader.backfill.task import Destination
from segreader.backfill.verify import DDL, SplitVerdict, Verification, VerifyTask, read_output
from segreader.cli.exit_codes import ExitCode
from segreader.errors import ObjectNotFoundError, OptionError, install_hint, shown_count
from segreader.plan.request import ReadOptions
from spark_jobs.backfill_request import (
    absolute,
    parse_pairs,
    place_with_store,
    require_target,
    table_place,
    verified_table_flags,
)
from spark_jobs.command_line import engine_flag, master_flag, require_report_place, run, takes_spark
from spark_jobs.report import shown_bytes


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("--target", help="The output: the --target of the backfill.")
@verified_table_flags
@click.option(
    "--source", is_flag=True, help="Also compare with the segments; otherwise with the manifest's checksums only."
)
@click.option("--credentials", help="For the source: a name as for the backfill; by default the one in the plan.")
@click.option("--broker-credentials", help="The same for the brokers.")
@click.option("--target-credentials", default="default", show_default=True, help="Or env:PREFIX, module:callable.")
@click.option(
    "--target-option",
    "target_storage",
    multiple=True,
    metavar="NAME=VALUE",
    help="Endpoint or setting of the target's store; write a secret as NAME=env:VARIABLE, also set on executors.",
)
@engine_flag
@click.option("--local", is_flag=True, hidden=True)
@click.option(
    "--threads",
    type=click.IntRange(1),
    metavar="N",
    help="With --engine local: how many splits are checked at a time; the output is the same. Default: one per core, "
    "at least 8 for a target on the network.",
)
@click.option(
    "--read-ahead-bytes",
    type=click.IntRange(1),
    metavar="N",
    help="With --engine local: limit on the bytes of files that are checked at a time. Default: 256 MiB.",
)
@master_flag
@click.option("--report", "report_file", help="Write the result as JSON to this file.")
@click.option("-o", "--output", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def verify(**given: Any) -> int:
    """Prove that every offset of a backfill is in its output once, with equal bytes, or list the differences.

    Reads the files of each split and computes their checksum again. With --source also compares them with the segments.

    \b
      segreader backfill verify --target /data/orders --source

    \b
    Exit codes:
      0   exact
      1   there are differences
      2   wrong usage
      3   not found, or no permission
      4   the storage failed
      5   the manifest or the plan cannot be read
      70  Spark failed
      130 interrupted
      141 the reader of the output closed the pipe
    """
    if given["local"]:
        given["engine"] = "local"  # its earlier name
    is_local = not takes_spark(given)
    if not is_local and (given["threads"] or given["read_ahead_bytes"]):
        raise click.UsageError(
            "--threads and --read-ahead-bytes belong to --engine local: Spark checks a split on each core"
        )
    require_report_place(given["report_file"])
    require_target(given)
    if not given["source"] and (given["credentials"] or given["broker_credentials"]):
        raise click.UsageError("--credentials and --broker-credentials belong to --source: nothing else reads segments")
    place = table_place(given)
    table = None if place is None else place.open()
    if table is not None and not table.exists:
        raise ObjectNotFoundError("the table is not there", source=table.name, hint="Name the table of a backfill")
    destination = Destination(
        absolute(given["target"]) if table is None else table.location,
        given["target_credentials"],
        parse_pairs("--target-option", given["target_storage"]),
        table=place_with_store(given),
    )
    if table is not None:
        destination = destination.of_table(table)
    target = destination.open()
    try:
        output = read_output(target, table)
    finally:
        target.close()
    tasks = []
    for one in output.rounds:
        options = None
        if given["source"]:
            named = {"credentials": given["credentials"], "brokerCredentials": given["broker_credentials"]}
            options = {**one.plan.options, **{name: text for name, text in named.items() if text}}
        tasks.append(VerifyTask(one.pairs, destination, one.plan.output, options, place))
    if is_local or not any(map(len, tasks)):
        how = ReadOptions(threads=given["threads"], read_ahead_bytes=given["read_ahead_bytes"])
        verdicts = tuple(verdict for task in tasks for verdict in task.verdicts(range(len(task)), how))
    else:
        verdicts = _with_spark(tasks, given["master"], output.url)
    found = Verification(output, verdicts, has_read_source=given["source"])
    document = found.to_json()
    if given["report_file"]:
        Path(given["report_file"]).write_text(json.dumps(document, indent=1) + "\n")
    click.echo(json.dumps(document) if given["form"] == "json" else _in_words(found, document))
    return ExitCode.OK if found.is_exact else ExitCode.FINDINGS


def _with_spark(tasks: Sequence[VerifyTask], master: str | None, url: str) -> tuple[SplitVerdict, ...]:
    """Check all splits in tasks of Spark's; the verdicts in the order of the plans."""
    try:
        from spark_jobs.session import explained, job_session, map_indexes
    except ModuleNotFoundError as error:
        hint = f"Check without it, with --engine local, or {install_hint('spark')}"
        raise OptionError("verify uses Spark, which is not installed", found=f"no {error.name}", hint=hint) from None
    click.echo("Starting Spark", err=True)
    verdicts: list[SplitVerdict] = []
    with job_session("segreader verify", master=master) as session, explained(session):
        for task in filter(len, tasks):
            text = f"segreader: verify {shown_count(len(task), 'split')} of {url}"
            rows = map_indexes(session.spark, task.__call__, len(task), DDL, text).collect()
            verdicts += [SplitVerdict.from_json(json.loads(row["verdict"])) for row in rows]
    return tuple(verdicts)


def _in_words(found: Verification, document: dict[str, Any]) -> str:
    how = "the segments, read again" if found.has_read_source else "the checksums of the manifest"
    lines = [f"{one.kind:<9}{one}" for one in found.findings]
    lines += [f"lost     {text}" for text in document["losses"]]
    records, files = shown_count(document["records"], "record"), shown_count(document["files"], "file")
    counts = f"{records} in {files}, {shown_bytes(document['written_bytes'])}"
    if found.is_exact:
        splits = "its one split" if document["splits"] == 1 else f"each of {document['splits']:,} splits"
        lines.append(f"exact    {counts}: {splits} equals {how}")
    else:
        lines.append(f"differs  {shown_count(len(found.findings), 'finding')} in {counts}, held against {how}")
    return "\n".join(lines)


def main(arguments: list[str] | None = None, *, name: str = "segreader-verify-backfill") -> int:
    """Run the check; returns its exit code.

    Args:
        arguments: without the program's name; those of this process by default.
        name: by which it was called, for help and messages.
    """
    return run(verify, name, arguments)


if __name__ == "__main__":
    sys.exit(main())
