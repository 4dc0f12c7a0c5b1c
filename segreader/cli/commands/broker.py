"""``segreader broker``: what a cluster says of its tiered topics, and where it has an offset."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from segreader.cli.exit_codes import ExitCode
from segreader.cli.options import (
    LiveChoice,
    catalog_options,
    cluster_options,
    complete_by,
    find_place,
    parse_options,
    storage_option,
)
from segreader.cli.output import (
    debug_option,
    output_option,
    print_rows,
    printable,
    shown_size,
)
from segreader.cli.table import TableColumn, fixed, number, print_facts, print_table

if TYPE_CHECKING:
    from segreader.live.cluster import Cluster
    from segreader.live.scan import LocatedOffset
    from segreader.stored.source import Catalog

Row = dict[str, Any]

_DESCRIBE_EPILOG = """\b
Examples:
  segreader broker describe --bootstrap-servers b1:9092,b2:9092
  segreader broker describe --bootstrap-servers b1:9092 orders -o json
  segreader broker describe --bootstrap-servers b1:9093 --broker-option security.protocol=SASL_SSL \\
      --broker-option sasl.mechanism=SCRAM-SHA-256 --broker-option sasl.username=reader \\
      --broker-option sasl.password=env:KAFKA_PASSWORD
"""

_LOCATE_EPILOG = """\b
Examples:
  segreader broker locate --bootstrap-servers gateway:9092 orders 3 4711
  segreader broker locate --bootstrap-servers b1:9092 orders 3 4711 --location s3://logs/tiered
"""


@click.group(short_help="Ask a Kafka cluster about its tiered topics.")
@debug_option
def broker() -> None:
    """Show where topics of a Kafka cluster begin and end, locally and remotely, and where an offset is."""


@broker.command(epilog=_DESCRIBE_EPILOG)
@click.argument("topics", nargs=-1, metavar="[TOPIC]…")
@cluster_options
@click.option("--all", "shows_all", is_flag=True, help="Also show topics without remote storage.")
@output_option("table", "json", "ndjson")
@debug_option
def describe(topics: tuple[str, ...], live: LiveChoice, shows_all: bool, form: str) -> int:
    """Print the offsets of each partition of TOPIC, or of every topic with remote storage, as its leader has them.

    The log start is the first offset that is retained, the local start the first one on the broker's own disk; the last
    tiered one is in the object store (-1: none, or a new leader does not know yet). The end is the high watermark; a
    read_committed reader may read up to the last stable offset. They are not taken at the same moment.

    It needs DESCRIBE on the topics. Whether remote storage is on is seen with DESCRIBE_CONFIGS, or by the marks.
    """
    cluster = _open(live)
    try:
        print_rows(_marks(cluster, topics, shows_all), form, _print_marks)
    finally:
        cluster.close()
    return ExitCode.OK


@broker.command(epilog=_LOCATE_EPILOG)
@click.argument("topic")
@click.argument("partition", type=click.IntRange(0))
@click.argument("offset", type=click.IntRange(0))
@cluster_options
@click.option(
    "--location",
    metavar="LOCATION",
    shell_complete=complete_by("locations"),
    help="Where the remote tier is. Default: ask the cluster.",
)
@catalog_options
@storage_option
@click.option("--prefer", type=click.Choice(["broker", "store"]), default="broker", show_default=True)
@output_option("table", "json", "ndjson")
@debug_option
def locate(
    topic: str,
    partition: int,
    offset: int,
    live: LiveChoice,
    location: str | None,
    make_catalog: Callable[..., Catalog],
    storage_options: tuple[str, ...],
    prefer: str,
    form: str,
) -> int:
    """Print where a read of OFFSET would take it from: the store, by a location of the cluster, or a broker; which
    segment, and which bytes of it.

    With --location it is found by the store's segments and offset indexes; without it the cluster is asked, which a
    gateway answers. URLs are shown without their signature.
    """
    from segreader.live.scan import locate_offset
    from segreader.plan.request import Request
    from segreader.stored.source import Catalog, open_source

    place, location, _ = find_place(location)
    catalog = make_catalog(place)
    source = None
    if location is not None or catalog != Catalog():
        options: Mapping[str, object] = parse_options(storage_options)
        source = open_source(location, storage_options=place.options(options) if place else options, catalog=catalog)
    cluster = _open(live)
    try:
        request = Request(topic=topic, prefers_store=prefer == "store")
        row = _located_row(locate_offset(cluster, request, partition, offset, source=source))
    finally:
        cluster.close()
        if source is not None:
            source.store.close()
    print_rows([row], form, _print_fields)
    return ExitCode.OK


def _open(live: LiveChoice) -> Cluster:
    from segreader.live.cluster import KafkaCluster

    return KafkaCluster(live.bootstrap_servers or "", live.broker_options)


def _marks(cluster: Cluster, topics: tuple[str, ...], shows_all: bool) -> Iterator[Row]:
    from segreader.live.marks import describe_topics

    for one in describe_topics(cluster, topics or None, only_tiered=not shows_all):
        yield {
            "topic": one.topic,
            "partition": one.partition,
            "topic_id": one.topic_id,
            "leader_id": one.leader_id,
            "leader_epoch": one.leader_epoch,
            "remote_storage": one.is_tiered,
            "log_start": one.marks.log_start,
            "local_start": one.marks.local_start,
            "last_tiered": one.marks.last_tiered,
            "end": one.marks.end,
            "last_stable": one.last_stable,
        }


def _print_marks(rows: list[Row]) -> None:
    print_table(
        (
            TableColumn("partition"),
            fixed("remote"),
            number("log start"),
            number("local start"),
            number("last tiered"),
            number("end"),
            number("last stable"),
            fixed("leader"),
        ),
        [
            (
                f"{row['topic']}-{row['partition']}",
                {True: "yes", False: "no", None: "?"}[row["remote_storage"]],
                *("?" if row[name] is None else str(row[name]) for name in ("log_start", "local_start", "last_tiered")),
                str(row["end"]),
                str(row["last_stable"]),
                f"{row['leader_id']} (epoch {row['leader_epoch']})",
            )
            for row in rows
        ],
    )


def _located_row(found: LocatedOffset) -> Row:
    row = asdict(found)
    row["read_from"] = found.read_from.value
    for old, new in (("start", "start_position"), ("stop", "stop_position")):
        row[new] = row.pop(old)
    return row


def _print_fields(rows: list[Row]) -> None:
    print_facts(
        (
            name.replace("_", " "),
            printable(f"{value} ({shown_size(value)})" if name == "size" else str(value), None),
        )
        for name, value in rows[0].items()
        if value is not None
    )
