"""``segreader schemas``: which schemas records name, and how what a registry has of them is kept in a file."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any

import click

from segreader.cli.exit_codes import ExitCode
from segreader.cli.options import (
    Selection,
    live_options,
    parse_options,
    scan_options,
    selection_options,
    storage_option,
)
from segreader.cli.output import (
    debug_option,
    named_output,
    output_option,
    print_rows,
    printable,
    progress,
    say,
    shown_number,
    shown_time,
)
from segreader.cli.table import TableColumn, fixed, number, print_table
from segreader.errors import shown_count

if TYPE_CHECKING:
    from segreader.read.base_scan import BaseScan
    from segreader.schemas.schema_uses import SchemaUse
    from segreader.typed.decoding import SchemaSource
    from segreader.typed.schema import SchemaSet

Row = dict[str, Any]

_FRAMINGS = ("confluent", "apicurio", "glue", "single-object")
_MOST_PARTITIONS = 4

_PULL_EPILOG = """\b
Examples:
  segreader schemas pull https://registry:8081 orders payments -o schemas.json
  segreader schemas pull https://registry:8081/apis/ccompat/v7 -o schemas.json
  segreader schemas pull /var/lib/kafka/data orders -o schemas.json
  segreader schemas pull kafka://b1:9092 orders -o schemas.json
  segreader schemas pull glue:default-registry orders -o schemas.json
  SEGREADER_SCHEMA_REGISTRY_AUTH=@/run/secrets/registry segreader schemas pull https://registry:8081 orders
"""

_LS_EPILOG = """\b
Examples:
  segreader schemas ls s3://logs/tiered orders
  segreader schemas ls s3://logs/tiered orders --schemas schemas.json
  segreader schemas ls /mnt/tiered orders --since -7d --schema-registry https://registry:8081 -o json
"""


@click.group(short_help="See which schemas records name, and save those of a registry.")
@debug_option
def schemas() -> None:
    """Show which schemas the records of a topic name, and save the schemas of a registry for use without it."""


@schemas.command(epilog=_PULL_EPILOG)
@click.argument("source")
@click.argument("topics", nargs=-1, metavar="[TOPIC]…")
@click.option(
    "--subject",
    "subjects",
    multiple=True,
    metavar="NAME",
    help="Schemas of this subject, in place of TOPIC-value and TOPIC-key; can be repeated.",
)
@click.option(
    "--id",
    "ids",
    multiple=True,
    metavar="ID",
    help="Also the schema of this id, of a registry; can be repeated. segreader schemas ls finds ids.",
)
@click.option(
    "--header",
    "headers",
    multiple=True,
    metavar="NAME=VALUE",
    help="Header to send to a registry, such as X-Registry-GroupId=orders; can be repeated. NAME=@FILE and "
    "NAME=env:VARIABLE keep a secret out of the process list.",
)
@click.option("--framing", type=click.Choice(_FRAMINGS), help="How values name their schemas. Default: confluent.")
@click.option("--schemas-topic", default="_schemas", show_default=True, metavar="NAME", help="The topic to read.")
@storage_option
@click.option(
    "--broker-option",
    "broker_options",
    multiple=True,
    metavar="NAME=VALUE",
    help="Setting of the Kafka client, for kafka://…; can be repeated. NAME=@FILE and NAME=env:VARIABLE keep a secret "
    "out of the process list.",
)
@click.option(
    "-o", "--output-file", type=click.Path(dir_okay=False), metavar="FILE", help="Write to FILE instead of stdout."
)
@debug_option
def pull(
    source: str,
    topics: tuple[str, ...],
    subjects: tuple[str, ...],
    ids: tuple[str, ...],
    headers: tuple[str, ...],
    framing: str | None,
    schemas_topic: str,
    storage_options: tuple[str, ...],
    broker_options: tuple[str, ...],
    output_file: str | None,
) -> int:
    """Save the schemas of TOPIC, or of all topics, in one file, so that reading asks no registry.

    SOURCE is the URL of a registry that speaks Confluent's REST contract (Confluent, Apicurio, Karapace);
    glue:REGISTRY, one of AWS Glue; or where the topic _schemas is: a broker's log directory or a copy of it, or a
    cluster, kafka://HOST:PORT. Deleted schemas are saved, too, for old records name them.

    The user and password of a registry come from the variable SEGREADER_SCHEMA_REGISTRY_AUTH, USER:PASSWORD, or
    @FILE; a token from SEGREADER_SCHEMA_REGISTRY_TOKEN. docs/reference/environment.md lists the others.
    """
    from segreader.cli.row_writer import opened

    found = _open(
        source,
        subjects=subjects,
        ids=ids,
        headers=headers,
        framing=framing,
        schemas_topic=schemas_topic,
        storage_options=storage_options,
        broker_options=broker_options,
    )
    known = reduce(_united, (found.learn(topic) for topic in topics or (None,)))
    with named_output(output_file), opened(output_file) as file:
        file.write(known.to_json().encode() + b"\n")
    if output_file is not None:
        counted = len({schema for _, schema in known.ids})
        say(f"{output_file}: {shown_count(len(known.subjects), 'subject')}, {shown_count(counted, 'schema')}")
    return ExitCode.OK


def _open(
    source: str,
    *,
    subjects: tuple[str, ...],
    ids: tuple[str, ...],
    headers: tuple[str, ...],
    framing: str | None,
    schemas_topic: str,
    storage_options: tuple[str, ...],
    broker_options: tuple[str, ...],
) -> SchemaSource:
    """What SOURCE and its options name.

    Raises:
        UsageError: an option is of another kind of source.
    """
    from segreader.typed.sources import is_registry, open_registry, open_schemas

    form = {} if framing is None else {"framing": framing}
    if is_registry(source):
        return open_registry(source, subject=subjects or None, ids=ids, headers=parse_options(headers), **form)
    if ids or headers:
        raise click.UsageError("--id and --header are of registries: give the URL of one")
    if source.startswith("glue:"):
        from segreader.schemas.glue_registry import glue

        if framing not in (None, "glue"):
            raise click.UsageError("Schemas of Glue are named as Glue does it: leave --framing out")
        return glue(source.removeprefix("glue:"), schema_name=subjects or None)
    if os.path.isfile(source):
        return open_schemas(source, framing=framing)
    from segreader.schemas.schemas_topic import topic

    return topic(
        source,
        topic=schemas_topic,
        subject=subjects or None,
        storage_options=parse_options(storage_options),
        broker_options=parse_options(broker_options),
        **form,
    )


def _united(known: SchemaSet, more: SchemaSet) -> SchemaSet:
    """Two sets of one source as one."""
    ids, subjects = dict(known.ids) | dict(more.ids), dict(known.subjects) | dict(more.subjects)
    return replace(known, ids=tuple(ids.items()), subjects=tuple(subjects.items()))


@schemas.command("ls", epilog=_LS_EPILOG)
@live_options
@selection_options
@scan_options
@click.option("--schemas", "known", metavar="FILE", help="Compare schemas by what segreader schemas pull saved.")
@click.option("--schema-registry", metavar="URL", help="Compare schemas by those of a registry.")
@click.option("--keys", is_flag=True, help="Look at keys. Default: at values.")
@click.option(
    "--framing",
    type=click.Choice(_FRAMINGS),
    help="How values name their schemas. Default: that of FILE, or confluent.",
)
@click.option("--message", metavar="NAME", help="Of Protobuf: compare this message. Default: the first one.")
@output_option("table", "json", "ndjson")
@debug_option
def list_uses(
    select: Callable[[], Selection],
    asked: Mapping[str, Any],
    known: str | None,
    schema_registry: str | None,
    keys: bool,
    framing: str | None,
    message: str | None,
    form: str,
) -> int:
    """Print which schemas the records of TOPIC at LOCATION name: from which offset and time to which, and how many.

    Of each value only the first bytes are looked at. Null values, and those that do not begin as --framing says, are
    counted, too.

    With --schemas or --schema-registry also what changed from one schema to the next: fields that were added (+),
    removed (-), renamed or retyped (~). A registry is asked for ids of other subjects, too.

    The exit code is 1 if some values name no schema, or one that is not known where schemas are given.
    """
    from segreader.scans import scan
    from segreader.schemas.schema_uses import SchemaCounter, UseKind
    from segreader.typed.schema import SchemaFormat

    if known is not None and schema_registry is not None:
        raise click.UsageError("--schemas and --schema-registry both say where schemas come from. Leave one out")
    given = known or schema_registry
    selected = select().scan_arguments()
    topic = selected["topic"]
    if topic is None:
        raise click.UsageError("Name a topic: LOCATION TOPIC. segreader ls shows which there are")
    side = "key" if keys else "value"
    counter = SchemaCounter(topic, schemas=given, side=side, framing=framing, message=message)
    with scan(**(selected | dict(asked) | counter.arguments)) as found:
        found.prepare()
        with progress(lambda: (found.metrics.bytes_read, found.prepare().size, found.metrics.records)) as tick:
            for batch in found.to_batches():
                counter.add(batch)
                tick()
        survey = counter.survey()
        is_whole = _tell(found)
    for note in survey.notes:
        say(f"note: {note}")
    if message is not None and not any(
        one.schema and one.schema.format is SchemaFormat.PROTOBUF for one in survey.uses
    ):
        say("note: --message has no effect: no schema that is known of these values is Protobuf")
    print_rows(map(_row, survey.uses), form, _print_table)
    is_known = all(
        one.kind is UseKind.NULL or (one.kind is UseKind.SCHEMA and (given is None or one.schema is not None))
        for one in survey.uses
    )
    return ExitCode.OK if is_whole and is_known else ExitCode.FINDINGS


def _tell(scan: BaseScan) -> bool:
    """Tell what the read left out; returns whether that is nothing."""
    from segreader.read.metrics import lacks

    for note in scan.metrics.notes:
        say(f"note: {note}")
    for gap in scan.prepare().gaps:
        say(f"missing: {gap.text}")
    for one in scan.metrics.missing:
        say(f"missing: {one.text}")
    for hole in scan.metrics.holes:
        say(f"left out: {hole.text}")
    return not lacks(scan.prepare(), scan.metrics)


def _row(use: SchemaUse) -> Row:
    return {
        "kind": use.kind.value,
        "id": use.id,
        "subject": use.subject,
        "version": use.version,
        "format": None if use.schema is None else use.schema.format.value,
        "records": use.records,
        "first_timestamp": use.first_timestamp_ms,
        "last_timestamp": use.last_timestamp_ms,
        "partitions": [
            {
                "partition": one.partition,
                "records": one.records,
                "first_offset": one.offsets.start,
                "last_offset": (one.offsets.stop or 0) - 1,
                "first_timestamp": one.first_timestamp_ms,
                "last_timestamp": one.last_timestamp_ms,
            }
            for one in use.partitions
        ],
        "changes": None
        if use.changes is None
        else [
            {"change": one.kind.value, "field": one.field, "before": one.before, "after": one.after, "text": str(one)}
            for one in use.changes
        ],
    }


def _print_table(rows: Sequence[Row]) -> None:
    """Print rows as a table, with what changed below each."""
    lines = []
    for row in rows:
        subject = "" if row["subject"] is None else f"{row['subject']} v{row['version']}"
        offsets, changes = _offsets(row["partitions"]), [printable(one["text"], None) for one in row["changes"] or ()]
        first = [
            row["id"] or f"({row['kind']})",
            printable(subject),
            shown_number(row["records"]),
            shown_time(row["first_timestamp"]),
            shown_time(row["last_timestamp"]),
        ]
        for at in range(max(1, len(offsets), len(changes))):
            beside = ("".join(offsets[at : at + 1]), "".join(changes[at : at + 1]))
            lines.append([*(first if at == 0 else [""] * len(first)), *beside])
    print_table(
        (
            fixed("id"),
            TableColumn("schema"),
            number("records"),
            fixed("from"),
            fixed("to"),
            TableColumn("partition: offsets"),
            TableColumn("changes"),
        ),
        lines,
    )


def _offsets(partitions: Sequence[Row]) -> list[str]:
    lines = [f"{one['partition']}: {one['first_offset']} to {one['last_offset']}" for one in partitions]
    more = len(lines) - _MOST_PARTITIONS
    return lines if more <= 0 else [*lines[:_MOST_PARTITIONS], f"and {more} more"]
