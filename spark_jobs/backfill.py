"""Writes the records of tiered segments to Parquet or a table, exactly once: ``segreader backfill --help``.

Runs as a plain program on one machine, or under ``spark-submit``. The plan is made first, in this process, so
that a wrong location, topic or option is told in a second and not after Spark has started. Killed at any time, it
goes on where it stopped when it is run again with the same arguments.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import click

from segreader.backfill.job import Job, Round, Runner, local_engine
from segreader.backfill.job_plan import JobPlan, JobRequest, differences, make_plan
from segreader.backfill.lake.table import LakeTable
from segreader.backfill.output import CODECS
from segreader.backfill.report import complete, totals
from segreader.backfill.task import Destination
from segreader.cli.exit_codes import ExitCode, describe
from segreader.cli.options import complete_by
from segreader.cli.plan_rows import read_prices
from segreader.errors import ObjectNotFoundError, OptionError, install_hint, shown_count
from segreader.isolation import IsolationLevel
from segreader.plan.cost import estimate, parse_prices
from segreader.plan.split import ReadPlan
from segreader.spark.option_values import parse_size
from spark_jobs.backfill_request import (
    absolute,
    ahead_flags,
    at_place,
    beside_flags,
    broker_flags,
    layout_flags,
    loss_flags,
    parse_pairs,
    parse_request,
    place_with_store,
    range_flags,
    renamed,
    require_bucket,
    require_compact,
    require_effect,
    require_target,
    schema_flags,
    table_flags,
    table_place,
)
from spark_jobs.command_line import engine_flag, master_flag, require_report_place, run, takes_spark
from spark_jobs.report import (
    ProgressWatch,
    RunReport,
    describe_bill,
    describe_plan,
    describe_report,
    shown_bytes,
    shown_seconds,
)

_FLAGS = {
    "load() plans anew, failOnDataLoss=false goes on": "--on-missing skip goes on without it",
    "failOnDataLoss=false": "--on-gap skip",
    "skip the batch: on_corrupt='skip' (command line: --on-corrupt skip; SQL: on_corrupt := 'skip')": "leave it out "
    "with --on-corrupt skip",
    "startingOffsets": "--offsets",
    "startingTimestamp": "--since",
    "endingOffsets": "--offsets",
    "endingTimestamp": "--until",
    "subscribePattern": "--pattern",
    "subscribe": "--topic",
    "isolationLevel": "--isolation",
    "splitBytes": "--split-bytes",
    "kafka.bootstrap.servers": "--bootstrap-servers",
    "brokerCredentials": "--broker-credentials",
    "topicId": "--topic-id",
    "segmentsFrom=": "--segments-from ",
    "segmentsFrom": "--segments-from",
    "logDirectory": "--log-directory",
    "leaderEpochs": "--leader-epochs",
    "rsmConfig": "--rsm-config",
    "the option metadata": "--metadata",
    "valueSchema": "--value-schema",
    "keySchema": "--key-schema",
    "valueFields": "--value-fields",
    "keyFields": "--key-fields",
    "schemaVersion": "--schema-version",
    "onUndecodable": "--on-undecodable",
    "on_undecodable='null' or 'keep' goes on behind it": "--on-undecodable null or keep goes on behind it",
    "schemaRegistryCredentials": "--schema-registry-credentials",
    ", or with a schema of yours": "",
    "or select what fits with columns=": "or choose fields with --value-fields",
    "or leave columns out with columns=": "or choose fields with --value-fields",
    "Give its uri as an option": "Give its uri with --catalog-option uri=URI",
    "Give its warehouse as an option": "Give its warehouse with --catalog-option warehouse=URL",
    "or the option glue.region": "or --catalog-option glue.region=REGION",
}
_NOTES = 20


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.argument("location_argument", metavar="[LOCATION]", required=False, shell_complete=complete_by("locations"))
@click.argument("topic_argument", metavar="[TOPIC]", required=False)
@click.option(
    "--location",
    "locations",
    multiple=True,
    shell_complete=complete_by("locations"),
    help="The same as LOCATION: directory, bucket, or a place of segreader places, such as prod or prod:orders; can be "
    "repeated. Required without --bootstrap-servers and SEGREADER_AT.",
)
@broker_flags
@click.option("--topic", "topics", multiple=True, help="The same as TOPIC: a topic to read; can be repeated.")
@click.option("--pattern", help="Regular expression: read every topic whose name has a match, ^…$ for the whole name.")
@click.option(
    "--topic-id",
    "topic_ids",
    multiple=True,
    metavar="ID|newest",
    help="Which topic id, if a topic was deleted and created again. With --pattern the newest is read by default.",
)
@click.option("--target", help="Directory or bucket to write: a directory, s3://, gs:// or abfss://.")
@range_flags
@layout_flags
@schema_flags
@click.option("--hive", is_flag=True, help="Name directories topic=…; the files omit those columns.")
@click.option(
    "--isolation",
    type=click.Choice([level.value for level in IsolationLevel]),
    default=IsolationLevel.READ_COMMITTED.value,
    show_default=True,
    help="Leave out aborted transactions, or read everything.",
)
@click.option("--rsm-config", help="The broker's properties file, for encrypted segments; executors read it too.")
@beside_flags
@click.option(
    "--credentials",
    default="default",
    show_default=True,
    help="Where credentials come from, never a value: default (the cloud's client), env:PREFIX or module:callable.",
)
@click.option(
    "--storage-option",
    "storage",
    multiple=True,
    metavar="NAME=VALUE",
    help="Endpoint or setting of the location's store; write a secret as NAME=env:VARIABLE, also set on executors.",
)
@click.option("--target-credentials", help="As --credentials, for the target; the same by default.")
@click.option(
    "--target-option",
    "target_storage",
    multiple=True,
    metavar="NAME=VALUE",
    help="As --storage-option, for the target.",
)
@table_flags
@click.option(
    "--split-bytes",
    default="256m",
    show_default=True,
    help="Stored bytes that one split has at most; smaller segments of a partition share one.",
)
@ahead_flags
@click.option("--file-bytes", default="128m", show_default=True, help="Bytes that a file aims at.")
@click.option(
    "--codec", type=click.Choice(CODECS), default="zstd", show_default=True, help="Codec of the Parquet files."
)
@click.option(
    "--sink",
    type=click.Choice(["files", "table"]),
    default="files",
    show_default=True,
    help="Who writes: the tasks themselves, or Spark's writer into a table of any format.",
)
@click.option("--format", "form", help="With --sink table: parquet, delta, iceberg …")
@loss_flags
@click.option("--force", is_flag=True, help="Replace what an earlier run wrote to the target.")
@click.option("--dry-run", is_flag=True, help="Print the plan and its cost; write nothing.")
@click.option("--prices", help="With --dry-run: a price file, as for segreader plan.")
@click.option("--report", "report_file", help="Write the report as JSON to this file.")
@click.option("--cleanup/--no-cleanup", default=True, show_default=True, help="Remove files of killed attempts.")
@click.option(
    "--continue",
    "goes_on",
    is_flag=True,
    help="Read where the target ends, and add what is there since. With nothing new it ends well and writes nothing.",
)
@engine_flag
@click.option(
    "--processes",
    type=click.IntRange(1),
    metavar="N",
    help="With --engine local: how many. Default: one for each core.",
)
@master_flag
def backfill(**given: Any) -> int:
    """Write the records of Kafka topics from their tiered segments to Parquet, Iceberg or Delta, without a broker.

    The plan is written to the target first. Killed at any time, and run again with the same arguments, the job
    finishes what is not written. The result goes to stdout, everything else to stderr.

    \b
      segreader backfill /mnt/tiered orders --target /data/orders
      segreader backfill /mnt/tiered orders --target /data/orders --continue
      segreader backfill prod:orders --target /data/orders
      segreader backfill --location s3://logs/tiered --topic orders --to iceberg --catalog prod --table db.orders
      segreader backfill --location s3://logs/tiered --topic orders --to delta --target s3://lake/orders
      spark-submit --master yarn spark_jobs/backfill.py --location s3://logs/tiered
          --pattern 'orders.*' --target s3://lake/orders

    \b
    Exit codes:
      0   fine
      1   the target lacks records
      2   wrong usage, or the target belongs to another job
      3   not found, or no permission
      4   the storage failed
      5   the data cannot be decoded, or has a gap
      70  Spark failed
      130 interrupted
      141 the reader of the output closed the pipe
    """
    began = time.monotonic()
    given = at_place(renamed(given))
    _require_usable(given)
    require_report_place(given["report_file"])
    if given["compact"]:
        return _compact(given)
    request = parse_request(given)
    if given["sink"] == "table":
        return _fill_table(request, given)
    table = _open_table(given)
    destination = Destination(
        absolute(given["target"]) if given["target"] is not None else os.curdir,
        given["target_credentials"] or given["credentials"],
        parse_pairs("--target-option", given["target_storage"]),
        table=place_with_store(given),
    )
    require_bucket(given)
    job = Job(
        request=request,
        destination=destination,
        table=table,
        goes_on=given["goes_on"],
        is_forced=given["force"],
    )
    if given["dry_run"]:
        return _preview(job.preview(), given["prices"])
    target = given["target"] if table is None else table.name
    with _engine(given) as engine:
        while True:
            one = job.begin()
            code = _do_round(job, one, engine, target, given, began)
            if code != ExitCode.OK or not given["goes_on"] or not one.is_resumed:
                return code


Engine = Callable[[Round], Runner]
"""What does the work of a round."""


@contextmanager
def _engine(given: dict[str, Any]) -> Iterator[Engine]:
    """The engine for the time of the block; Spark starts when a round has work for it."""
    if takes_spark(given):
        try:
            from spark_jobs.runner import SparkRunner
            from spark_jobs.session import JobSession, explained, job_session
        except ModuleNotFoundError as error:
            raise _no_spark(error) from None

        with ExitStack() as stack:
            session: JobSession | None = None

            def start(one: Round) -> Runner:
                nonlocal session
                if session is None:
                    click.echo("Starting Spark", err=True)
                    began = time.monotonic()
                    session = stack.enter_context(job_session("segreader backfill", master=given["master"]))
                    stack.enter_context(explained(session))
                    click.echo(f"Spark started in {shown_seconds(time.monotonic() - began)}", err=True)
                text = f"segreader: {shown_count(len(one.pending), 'split')} of {one.plan.location}"
                return SparkRunner(session.spark, text)

            yield start
    else:
        with ExitStack() as local:
            yield lambda one: local.enter_context(local_engine(one, given["processes"]))


def _do_round(job: Job, one: Round, engine: Engine, target: str, given: dict[str, Any], began: float) -> int:
    """Write one round, complete it and say what was done; only the last where there is nothing new."""
    plan, before = one.plan, len(one.plan.splits) - len(one.pending)
    if not one.has_nothing:
        _tell_plan(plan)
    if one.is_resumed and (changed := differences(plan, job.request.wanted)):
        text = "; ".join(changed)
        click.echo(f"The unfinished round continues as planned; these options apply to later rounds: {text}", err=True)
    if before:
        whole = "" if one.pending or job.table is not None else "; --force does all of it anew"
        click.echo(
            f"{before:,} of {shown_count(len(plan.splits), 'split is', 'splits are')} done already{whole}", err=True
        )
    entries = one.entries
    if one.pending or len(one.committed) < len(plan.splits) * (job.table is not None):
        runner = engine(one)
        click.echo(f"Writing Parquet to {target}", err=True)
        with ProgressWatch(one.target, plan, dict(one.entries)):
            entries = job.write(one, runner)
    found = complete(plan, {}) if one.has_nothing else job.finish(one, entries, cleans=given["cleanup"])
    report = RunReport(
        plan,
        target,
        found,
        totals(entries.values()),
        before,
        time.monotonic() - began,
        table=None if job.table is None else job.table.kind,
        name="" if given["table"] is None else f"{given['catalog'] or 'default'}.{given['table']}",
        catalog=parse_pairs("--catalog-option", given["catalog_options"]),
    )
    if given["report_file"]:
        Path(given["report_file"]).write_text(json.dumps(report.to_json(), indent=1) + "\n")
    click.echo(describe_report(report))
    _tell_notes([note for entry in entries.values() for note in entry.notes])
    return _ending([*found.losses, *found.findings])


def _compact(given: dict[str, Any]) -> int:
    """Join the small files of a table."""
    table = _open_table(given)
    if table is None or not table.exists:
        raise ObjectNotFoundError(
            "there is no such table",
            source=given["table"] or given["target"],
            hint="Name one that a backfill has written",
        )
    done = table.compact(parse_size(given["file_bytes"], "--file-bytes"))
    joined = (
        f"{shown_count(done.files_before, 'small file')} joined into {done.files_after:,} of {shown_bytes(done.size)}"
    )
    click.echo(f"{table.name}: {joined if done.files_after else 'no small files to join'}")
    return ExitCode.OK


def _open_table(given: dict[str, Any]) -> LakeTable | None:
    """The table that is to be written; ``None`` for files."""
    place = table_place(given)
    return None if place is None else place.open()


def _require_usable(given: dict[str, Any]) -> None:
    """Refuse flags that contradict each other, lack another, or would have no effect.

    Raises:
        click.UsageError: it names them.
    """
    if given["compact"]:
        require_compact(given)
        return
    if not given["locations"] and given["bootstrap_servers"] is None:
        raise click.UsageError("say where to read: --location DIRECTORY, or --bootstrap-servers HOST:PORT")
    if bool(given["topics"]) == (given["pattern"] is not None):
        raise click.UsageError("say what to read: either TOPIC, --topic NAME or --pattern REGEX ('.*' is every topic)")
    if given["on_corrupt"] != "fail" and given["bootstrap_servers"] is not None:
        raise click.UsageError("--on-corrupt skip reads a location alone: leave out --bootstrap-servers")
    require_effect(given)
    if given["sink"] == "table":
        _require_for_spark_table(given)
        return
    require_target(given)
    if given["goes_on"] and given["force"]:
        raise click.UsageError("--continue adds to a target, and --force replaces it: give one of them")
    if takes_spark(given) and given["processes"]:
        raise click.UsageError("--processes belongs to --engine local: Spark's master says how many tasks run")


def _require_for_spark_table(given: dict[str, Any]) -> None:
    """The same where Spark writes a table in its own way."""
    if given["table"] is None and given["target"] is None:
        raise click.UsageError("say where to write: --table NAME, or --target with --format")
    if given["on_gap"] != given["on_missing"]:
        raise click.UsageError("with --sink table --on-gap and --on-missing must be the same: Spark has one option")
    if given["on_corrupt"] != "fail":
        raise click.UsageError("--on-corrupt skip belongs to --sink files: Spark's source stops at damage")


def _no_spark(error: ModuleNotFoundError) -> OptionError:
    return OptionError("this needs Spark, which is not installed", found=f"no {error.name}", hint=install_hint("spark"))


def _fill_table(request: JobRequest, given: dict[str, Any]) -> int:
    try:
        from spark_jobs.session import explained, job_session
        from spark_jobs.table import write_table
    except ModuleNotFoundError as error:
        raise _no_spark(error) from None
    plan = make_plan(request)
    if given["dry_run"]:
        return _preview(plan, given["prices"])
    _tell_plan(plan)
    click.echo("Starting Spark", err=True)
    path = absolute(given["target"]) if given["target"] else None
    options = {**request.options, "splitBytes": str(request.split_bytes)}
    with job_session("segreader backfill", master=given["master"]) as session, explained(session):
        counts = write_table(
            session.spark,
            plan,
            options,
            name=given["table"],
            path=path,
            form=given["form"],
            replaces=given["force"],
        )
    repeated = {key: records - different for key, (records, different) in counts.items() if records > different}
    records = sum(records for records, _ in counts.values())
    partitions = shown_count(len(plan.partitions), "partition")
    click.echo(f"wrote    {shown_count(records, 'record')} of {partitions} to {given['table'] or path}")
    click.echo(f"next     {json.dumps(plan.next_offsets)}")
    twice = [
        f"{topic}-{number}: {shown_count(count, 'record is', 'records are')} there twice"
        for (topic, number), count in repeated.items()
    ]
    return _ending([*complete(plan, {}).losses, *twice])


def _preview(plan: JobPlan, prices: str | None) -> int:
    """Print a plan and what it costs; the exit code."""
    click.echo(describe_plan(plan, in_detail=True))
    _tell_notes(plan.notes)
    known = parse_prices(read_prices(prices)) if prices else None
    click.echo(describe_bill(estimate(ReadPlan(plan.location, plan.segments), known)))
    return _ending(complete(plan, {}).losses)


def _ending(findings: Sequence[str]) -> int:
    """Tell what is wrong with the target, or missing in it; the exit code."""
    for finding in findings:
        click.echo(finding, err=True)
    return ExitCode.FINDINGS if findings else ExitCode.OK


def _tell_plan(plan: JobPlan) -> None:
    click.echo(describe_plan(plan), err=True)
    for one in plan.partitions:
        if one.is_early:
            click.echo(one.end, err=True)
    _tell_notes(plan.notes)


def _tell_notes(notes: Sequence[str]) -> None:
    different = list(dict.fromkeys(notes))
    for note in different[:_NOTES]:
        click.echo(f"note: {note}", err=True)
    if len(different) > _NOTES:
        click.echo(f"note: and {len(different) - _NOTES} more, in the manifest", err=True)


def main(arguments: list[str] | None = None, *, name: str = "segreader-backfill") -> int:
    """Run the job; returns its exit code.

    Args:
        arguments: without the program's name; those of this process by default.
        name: by which it was called, for help and messages.
    """
    return run(backfill, name, arguments, can_resume=True, words=_in_words_of_the_job)


def _in_words_of_the_job(error: Exception) -> str:
    text = describe(error)
    for option, flag in _FLAGS.items():
        text = re.sub(rf"(?<![\w-]){re.escape(option)}(?!\w)", flag, text)
    return text


if __name__ == "__main__":
    sys.exit(main())
