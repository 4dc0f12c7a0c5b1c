"""Writes the records of tiered segments to Parquet with Spark: ``segreader-backfill --help``.

Runs as a plain program on one machine, or under ``spark-submit``. The plan is made first, in this process, so
that a wrong location, topic or option is told in a second and not after Spark has started.
"""

from __future__ import annotations

import os
import re
import sys
import time
from typing import Any

import click
from pyspark.errors import PySparkException

from segreader import errors
from segreader.cli.exit_codes import ExitCode, describe, exit_code
from segreader.errors import OptionError, SegreaderError
from segreader.isolation import IsolationLevel
from segreader.plan.split import ReadPlan
from segreader.spark import register
from segreader.spark.options import SparkOptions, parse_options
from segreader.spark.planning import plan_read
from spark_jobs.report import BackfillReport, describe_plan, describe_report, summarise
from spark_jobs.session import JobSession, job_session

CODECS = ("zstd", "snappy", "gzip", "lz4", "none")
_FLAGS = {
    "startingOffsets": "--start",
    "endingOffsets": "--end",
    "subscribePattern": "--pattern",
    "subscribe": "--topic",
    "isolationLevel": "--isolation",
    "splitBytes": "--split-bytes",
}
_OURS = re.compile(r"topic=.*|\.?_SUCCESS(\.crc)?|_temporary")


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("--location", required=True, help="Directory that holds the segments.")
@click.option("--topic", "topics", multiple=True, help="A topic to read; may be given more than once.")
@click.option("--pattern", help="Regular expression; every topic whose whole name matches is read.")
@click.option("--target", required=True, help="Directory to write: topic=…/partition=…/*.parquet below it.")
@click.option("--start", default="earliest", show_default=True, help='Or JSON: {"orders":{"0":23,"1":-2}}')
@click.option("--end", default="latest", show_default=True, help="Or JSON in the same form; exclusive, -1 is the end.")
@click.option(
    "--isolation",
    type=click.Choice([level.value for level in IsolationLevel]),
    default=IsolationLevel.READ_COMMITTED.value,
    show_default=True,
    help="Which records: only those of committed transactions, or all.",
)
@click.option("--split-bytes", default="128m", show_default=True, help="Stored bytes that one task reads.")
@click.option("--codec", type=click.Choice(CODECS), default="zstd", show_default=True, help="Of the Parquet files.")
@click.option("--force", is_flag=True, help="Replace what an earlier run wrote to the target.")
@click.option("--dry-run", is_flag=True, help="Say what would be read, and stop.")
@click.option("--master", help="Spark master; by default what spark-submit says, else this machine.")
def backfill(
    location: str,
    topics: tuple[str, ...],
    pattern: str | None,
    target: str,
    start: str,
    end: str,
    isolation: str,
    split_bytes: str,
    codec: str,
    force: bool,
    dry_run: bool,
    master: str | None,
) -> None:
    """Write the records of Kafka topics from their tiered segments to Parquet, with no broker.

    The result goes to stdout, everything else to stderr.

    \b
    Exit codes: 0 fine; 2 wrong usage; 3 something is not there or not allowed;
    4 the storage failed; 5 the data cannot be decoded.
    """
    if bool(topics) == (pattern is not None):
        raise click.UsageError("say what to read: either --topic NAME or --pattern REGEX ('.*' is every topic)")
    options = {
        "location": location if "://" in location else os.path.abspath(location),
        **({"subscribePattern": pattern} if pattern is not None else {"subscribe": ",".join(topics)}),
        "startingOffsets": start,
        "endingOffsets": end,
        "isolationLevel": isolation,
        "splitBytes": split_bytes,
        "includeHeaders": "true",
    }
    parsed = parse_options(options)
    began = time.monotonic()
    plan = plan_read(parsed)
    click.echo(describe_plan(plan, in_detail=dry_run), err=not dry_run)
    for stop in plan.ends:
        if stop.reason.is_early:
            click.echo(stop.text, err=True)
    if dry_run:
        return
    click.echo("Starting Spark", err=True)
    with job_session("segreader backfill", master=master) as session:
        try:
            report = write_parquet(session, options, parsed, plan, target, codec=codec, force=force, began=began)
        except PySparkException as error:
            if (told := told_by_a_task(error)) is None:
                click.echo(f"Spark failed; what it printed is in {session.log or 'its own log'}", err=True)
                raise
            raise told from error
    click.echo(describe_report(report))


def write_parquet(
    session: JobSession,
    options: dict[str, str],
    parsed: SparkOptions,
    plan: ReadPlan,
    target: str,
    *,
    codec: str = "zstd",
    force: bool = False,
    began: float | None = None,
) -> BackfillReport:
    """Write what the options name to ``target``, read the result back, and report on it.

    Args:
        options: of the data source.
        parsed, plan: the same options as values, and what they lead to.
        began: ``time.monotonic()`` at the start of the job.

    Raises:
        OptionError: the target is in use, or holds what this job does not write.
    """
    began = time.monotonic() if began is None else began
    spark = session.spark
    register(spark)
    directory = TargetDirectory(spark, target)
    directory.require_free(force=force)
    click.echo(f"Writing Parquet to {target}", err=True)
    spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    # A task writes to one directory only; without this Spark sorts its rows by directory first.
    spark.conf.set("spark.sql.maxConcurrentOutputFileWriters", "2")
    frame = spark.read.format("segreader").options(**options).load()
    (
        frame.write.mode("overwrite" if force else "errorifexists")
        .partitionBy("topic", "partition")
        .option("compression", codec)
        .option("partitionOverwriteMode", "static")
        .option("parquet.enable.dictionary#key", "false")
        .option("parquet.enable.dictionary#value", "false")
        .parquet(target)
    )
    written = spark.read.schema(frame.schema).parquet(target)
    return summarise(
        written,
        parsed,
        plan,
        target,
        size=directory.size(),
        seconds=time.monotonic() - began,
    )


class TargetDirectory:
    """The directory written to, wherever Spark can write: seen through Hadoop's file systems."""

    def __init__(self, spark: Any, target: str) -> None:
        context = spark.sparkContext
        self.target = target
        self._path = context._jvm.org.apache.hadoop.fs.Path(target)
        self._files = self._path.getFileSystem(context._jsc.hadoopConfiguration())

    def require_free(self, *, force: bool) -> None:
        """Refuse to write over anything that an earlier run of this job did not make.

        Raises:
            OptionError: the target exists and ``force`` is not given, or it holds something else.
        """
        if not self._files.exists(self._path):
            return
        names = sorted(status.getPath().getName() for status in self._files.listStatus(self._path))
        if foreign := [name for name in names if not _OURS.fullmatch(name)]:
            raise OptionError(
                "the target holds something that this job did not write",
                source=self.target,
                found=", ".join(foreign[:5]),
                hint="Name a directory of its own for the output",
            )
        if names and not force:
            raise OptionError(
                "the target is not empty",
                source=self.target,
                hint="Name another one, or replace it with --force",
            )

    def size(self) -> int:
        """Bytes of all files below it."""
        return int(self._files.getContentSummary(self._path).getLength())


def told_by_a_task(error: Exception) -> SegreaderError | None:
    """The error of this library that a task or the planner raised.

    Spark hands it over as text, so only its class and its message are left.
    """
    for name, message in reversed(re.findall(r"^segreader\.errors\.(\w+): (.*)$", str(error), re.MULTILINE)):
        kind = getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(kind, SegreaderError):
            return kind(message)
    return None


def main(arguments: list[str] | None = None) -> int:
    """Run the job; returns its exit code."""
    try:
        backfill.main(arguments, prog_name="segreader-backfill", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("Interrupted; what is in the target is incomplete", err=True)
        return ExitCode.INTERRUPTED
    except SegreaderError as error:
        click.echo(f"segreader-backfill: {_in_words_of_the_job(error)}", err=True)
        return exit_code(error)
    return ExitCode.OK


def _in_words_of_the_job(error: SegreaderError) -> str:
    text = describe(error)
    for option, flag in _FLAGS.items():
        text = re.sub(rf"(?<![\w-]){re.escape(option)}(?!\w)", flag, text)
    return text


if __name__ == "__main__":
    sys.exit(main())
