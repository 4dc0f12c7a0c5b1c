"""Writes the records of tiered segments to Parquet with Spark, exactly once: ``segreader backfill --help``.

Runs as a plain program on one machine, or under ``spark-submit``. The plan is made first, in this process, so
that a wrong location, topic or option is told in a second and not after Spark has started. Killed at any time, it
goes on where it stopped when it is run again with the same arguments.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from pyspark.sql import SparkSession

from segreader.backfill.commit import collect, commit
from segreader.backfill.done import DoneEntry, parse_done
from segreader.backfill.job_plan import (
    JobPlan,
    JobRequest,
    clear,
    make_plan,
    read_plan,
    require_free,
    require_same,
    require_unplanned,
)
from segreader.backfill.output import CODECS, PLAN
from segreader.backfill.report import complete, totals
from segreader.backfill.task import DDL, Destination, SplitTask
from segreader.cli.commands.plan import read_prices
from segreader.cli.exit_codes import ExitCode, describe
from segreader.isolation import IsolationLevel
from segreader.plan.cost import estimate, parse_prices
from segreader.plan.split import ReadPlan
from segreader.storage.target.store import TargetStore
from spark_jobs.backfill_request import (
    absolute,
    ahead_flags,
    beside_flags,
    broker_flags,
    layout_flags,
    loss_flags,
    parse_pairs,
    parse_request,
    range_flags,
    renamed,
    require_files,
    schema_flags,
)
from spark_jobs.command_line import master_flag, require_report_place, run
from spark_jobs.report import ProgressWatch, RunReport, describe_bill, describe_plan, describe_report
from spark_jobs.session import explained, job_session, map_indexes
from spark_jobs.table import write_table

_FLAGS = {
    "load() plans anew, failOnDataLoss=false goes on": "--on-missing skip goes on without it",
    "failOnDataLoss=false": "--on-gap skip",
    "skip the batch (on_corrupt='skip')": "leave it out with --on-corrupt skip",
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
}
_NOTES = 20


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--location",
    "locations",
    multiple=True,
    help="Directory or bucket; can be repeated. Required without --bootstrap-servers.",
)
@broker_flags
@click.option("--topic", "topics", multiple=True, help="A topic to read; can be repeated.")
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
@click.option("--split-bytes", default="128m", show_default=True, help="Stored bytes that one task reads.")
@ahead_flags
@click.option("--file-bytes", default="256m", show_default=True, help="Bytes after which a file is closed.")
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
@click.option("--table", help="With --sink table: its name in the catalog.")
@click.option("--format", "form", help="With --sink table: parquet, delta, iceberg …")
@loss_flags
@click.option("--force", is_flag=True, help="Replace what an earlier run wrote to the target.")
@click.option("--dry-run", is_flag=True, help="Print the plan and its cost; write nothing.")
@click.option("--prices", help="With --dry-run: a price file, as for segreader plan.")
@click.option("--report", "report_file", help="Write the report as JSON to this file.")
@click.option("--cleanup/--no-cleanup", default=True, show_default=True, help="Remove files of killed attempts.")
@master_flag
def backfill(**given: Any) -> int:
    """Write the records of Kafka topics from their tiered segments to Parquet, without a broker unless you name one.

    The plan is written to the target first. Killed at any time, and run again with the same arguments, the job
    finishes what is not written. The result goes to stdout, everything else to stderr.

    \b
      segreader backfill --location /mnt/tiered --topic orders --target /data/orders
      segreader backfill --bootstrap-servers b1:9092 --location s3://logs/tiered --topic orders --target s3://lake/orders
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
    given = renamed(given)
    if not given["locations"] and given["bootstrap_servers"] is None:
        raise click.UsageError("say where to read: --location DIRECTORY, or --bootstrap-servers HOST:PORT")
    if bool(given["topics"]) == (given["pattern"] is not None):
        raise click.UsageError("say what to read: either --topic NAME or --pattern REGEX ('.*' is every topic)")
    if given["sink"] == "files" and given["target"] is None:
        raise click.UsageError("say where to write: --target DIRECTORY")
    if given["sink"] == "files" and (given["table"] or given["form"]):
        raise click.UsageError("--table and --format belong to --sink table")
    if given["sink"] == "table":
        require_files(click.get_current_context())
        if given["on_gap"] != given["on_missing"]:
            raise click.UsageError("with --sink table --on-gap and --on-missing must be the same: Spark has one option")
        if given["on_corrupt"] != "fail":
            raise click.UsageError("--on-corrupt skip belongs to --sink files: Spark's source stops at damage")
    if given["on_corrupt"] != "fail" and given["bootstrap_servers"] is not None:
        raise click.UsageError("--on-corrupt skip reads a location alone: leave out --bootstrap-servers")
    require_report_place(given["report_file"])
    request = parse_request(given)
    if given["sink"] == "table":
        return _fill_table(request, given)
    destination = Destination(
        absolute(given["target"]),
        given["target_credentials"] or given["credentials"],
        parse_pairs("--target-option", given["target_storage"]),
    )
    job = Job(destination.open(), destination, request, is_forced=given["force"])
    if given["dry_run"]:
        plan = job.plan(writes=False)
        click.echo(describe_plan(plan, in_detail=True))
        _tell_notes(plan.notes)
        prices = parse_prices(read_prices(given["prices"])) if given["prices"] else None
        click.echo(describe_bill(estimate(ReadPlan(plan.location, plan.segments), prices)))
        return _ending(complete(plan, {}).losses)
    plan = job.plan()
    _tell_plan(plan)
    entries = before = collect(job.target, plan)
    pending = [split for split in plan.splits if split.id not in before]
    if before:
        whole = "" if pending else "; --force does all of it anew"
        click.echo(f"{len(before):,} of {len(plan.splits):,} splits are done already{whole}", err=True)
    if pending:
        click.echo("Starting Spark", err=True)
        with job_session("segreader backfill", master=given["master"]) as session, explained(session):
            click.echo(f"Writing Parquet to {given['target']}", err=True)
            entries = job.write(session.spark, plan, before)
    found = commit(job.target, plan, entries, cleans=given["cleanup"])
    report = RunReport(plan, given["target"], found, totals(entries.values()), len(before), time.monotonic() - began)
    if given["report_file"]:
        Path(given["report_file"]).write_text(json.dumps(report.to_json(), indent=1) + "\n")
    click.echo(describe_report(report))
    _tell_notes([note for entry in entries.values() for note in entry.notes])
    return _ending([*found.losses, *found.findings])


@dataclass(frozen=True, slots=True)
class Job:
    """A request and the target it is for."""

    target: TargetStore
    destination: Destination
    request: JobRequest
    is_forced: bool = False

    def plan(self, *, writes: bool = True) -> JobPlan:
        """The plan in the target; if there is none, a new one is put there.

        Raises:
            OptionError: the target belongs to another job, or holds something else.
        """
        found = None if self.is_forced else read_plan(self.target)
        if found is None:
            require_free(self.target)
            if not self.is_forced:
                require_unplanned(self.target)
            found = make_plan(self.request)
            if not writes:
                return found
            if self.is_forced:
                clear(self.target)
            if not self.target.put_if_absent(PLAN, found.data):
                found = read_plan(self.target) or found  # another driver was first
        require_same(found, self.request.wanted, self.target.url(""))
        return found

    def write(self, spark: SparkSession, plan: JobPlan, before: dict[str, DoneEntry]) -> dict[str, DoneEntry]:
        """Write the splits that are not done, the largest first; the entries of all."""
        pending = sorted(
            (split for split in plan.splits if split.id not in before), key=lambda split: split.size, reverse=True
        )
        task = SplitTask(
            self.request.options,
            plan.output,
            self.destination,
            pending,
            plan.name,
            on_missing=self.request.on_missing,
            on_corrupt=self.request.on_corrupt,
            threads=self.request.threads,
            read_ahead_bytes=self.request.read_ahead_bytes,
        )
        text = f"segreader: {len(pending):,} splits of {plan.location}"
        frame = map_indexes(spark, task.__call__, len(pending), DDL, text)
        with ProgressWatch(self.target, plan, before, _progress_line()) as watch:
            rows = frame.collect()
        entries = dict(watch.entries)
        for row in rows:
            entries[row["split"]] = parse_done(row["entry"], row["split"])
        if sys.stderr.isatty():
            click.echo("", err=True)
        return entries


def _fill_table(request: JobRequest, given: dict[str, Any]) -> int:
    if given["table"] is None and given["target"] is None:
        raise click.UsageError("say where to write: --table NAME, or --target with --format")
    plan = make_plan(request)
    if given["dry_run"]:
        click.echo(describe_plan(plan, in_detail=True))
        _tell_notes(plan.notes)
        return _ending(complete(plan, {}).losses)
    _tell_plan(plan)
    click.echo("Starting Spark", err=True)
    path = absolute(given["target"]) if given["target"] else None
    with job_session("segreader backfill", master=given["master"]) as session, explained(session):
        counts = write_table(
            session.spark,
            plan,
            request.options,
            name=given["table"],
            path=path,
            form=given["form"],
            replaces=given["force"],
        )
    repeated = {key: records - different for key, (records, different) in counts.items() if records > different}
    records = sum(records for records, _ in counts.values())
    click.echo(f"wrote    {records:,} records of {len(plan.partitions):,} partitions to {given['table'] or path}")
    click.echo(f"next     {json.dumps(plan.next_offsets)}")
    twice = [f"{topic}-{number}: {count:,} records are there twice" for (topic, number), count in repeated.items()]
    return _ending([*complete(plan, {}).losses, *twice])


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


def _progress_line() -> Callable[[str], None]:
    """Rewrites one line of a terminal; elsewhere a line now and then."""
    if sys.stderr.isatty():
        return lambda line: click.echo(f"\r\x1b[K{line}", nl=False, err=True)
    told = time.monotonic()

    def tell(line: str) -> None:
        nonlocal told
        if time.monotonic() - told >= 30:
            told = time.monotonic()
            click.echo(line, err=True)

    return tell


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
