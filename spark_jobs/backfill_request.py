"""From the command line of a backfill to what is asked for: see ``spark_jobs.backfill``."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from segreader.backfill.job_plan import JobRequest
from segreader.backfill.lake.place import TablePlace
from segreader.backfill.output import OutputLayout, OutputOptions, parse_partition_by
from segreader.backfill.source import TASK_BYTES_AHEAD, TASK_THREADS
from segreader.cli.options import at_default, find_place
from segreader.errors import OptionError
from segreader.plan.request import Bounds, LiveEnd, Policy, parse_bounds, parse_time
from segreader.spark.option_values import EARLIEST, LATEST, parse_size
from segreader.storage.options import Kind, kind_of

_F = TypeVar("_F", bound=Callable[..., Any])

_OF_FILES = (
    "output_layout",
    "hive",
    "codec",
    "file_bytes",
    "threads",
    "read_ahead_bytes",
    "report_file",
    "cleanup",
    "target_credentials",
    "target_storage",
    "to",
    "partition_by",
    "goes_on",
    "compact",
    "commit_bytes",
    "engine",
    "processes",
    "catalog",
    "catalog_options",
)
"""Flags that tasks need to write files themselves, and what is reported of them."""

_OF_COMPACT = (
    "to",
    "table",
    "catalog",
    "catalog_options",
    "target",
    "target_storage",
    "target_credentials",
    "credentials",
    "file_bytes",
)
"""Flags that say which table is compacted, and what its files aim at."""

_OF_SCHEMAS = ("schemas", "schema_registry", "value_schema", "key_schema")

_Given = dict[str, Any]
_Rule = tuple[tuple[str, ...], Callable[[_Given], bool], str]
"""Flags, where they would have no effect, and what they belong to."""

_TARGET_RULES: tuple[_Rule, ...] = (
    (
        ("table", "catalog", "catalog_options"),
        lambda given: given["to"] != "iceberg" and given.get("sink") != "table",
        "--to iceberg",
    ),
    (
        ("target",),
        lambda given: given["to"] == "iceberg",
        "files and Delta: an Iceberg table's catalog says where it is",
    ),
)
_RULES: tuple[_Rule, ...] = (
    (("broker_options", "broker_credentials"), lambda given: not given["bootstrap_servers"], "--bootstrap-servers"),
    (
        ("schema_registry_credentials",),
        lambda given: not any(given[name] for name in _OF_SCHEMAS),
        "--schema-registry, --value-schema and --key-schema",
    ),
    (("prices",), lambda given: not given["dry_run"], "--dry-run"),
    (("form",), lambda given: given["sink"] == "files", "--sink table"),
    *_TARGET_RULES,
    (
        ("partition_by",),
        lambda given: given["to"] == "parquet",
        "tables, which --to names; of files --output-layout says the directories",
    ),
    (("commit_bytes",), lambda given: given["to"] == "parquet", "tables, which --to names; files have no commits"),
    (
        ("hive", "output_layout", "force"),
        lambda given: given["to"] != "parquet",
        "files; --partition-by divides a table, and another --table or --target is a new one",
    ),
)

_BESIDE = ("metadata", "log_directory", "leader_epochs")
_OPTIONS = {
    "metadata": "metadata",
    "segments_from": "segmentsFrom",
    "log_directory": "logDirectory",
    "leader_epochs": "leaderEpochs",
}
"""Files beside the segments: flags, and options of the data source."""
_SCHEMAS = {
    "schemas": "schemas",
    "value_schema": "valueSchema",
    "key_schema": "keySchema",
    "value_fields": "valueFields",
    "key_fields": "keyFields",
    "schema_version": "schemaVersion",
    "on_undecodable": "onUndecodable",
}
"""What decodes keys and values: flags, and options of the data source."""
_OUTPUT_LAYOUTS = [layout.value for layout in OutputLayout]
_RANGES = '{"orders":{"0":"23:500","1":"7:"}}'


def _flags(*options: Callable[[_F], _F]) -> Callable[[_F], _F]:
    """One decorator for several options, which help shows in this order."""

    def add(command: _F) -> _F:
        for option in reversed(options):
            command = option(command)
        return command

    return add


broker_flags = _flags(
    click.option(
        "--bootstrap-servers",
        metavar="HOST:PORT,…",
        help="Bootstrap brokers: read up to their end. What --location has is read from there.",
    ),
    click.option(
        "--broker-option",
        "broker_options",
        multiple=True,
        metavar="NAME=VALUE",
        help="Setting of the Kafka client by Kafka's name; write a secret as NAME=env:VARIABLE, also set on executors.",
    ),
    click.option(
        "--broker-credentials",
        default="default",
        show_default=True,
        help="Where the client's secrets come from, never a value: env:PREFIX or module:callable.",
    ),
)
"""The flags by which a job asks brokers."""


beside_flags = _flags(
    click.option(
        "--metadata",
        help="Directory of the log directories of __remote_log_metadata: which segments are finished, which deleted.",
    ),
    click.option(
        "--segments-from",
        type=click.Choice(["listing", "metadata", "both"]),
        help="Which source lists the segments. Default with --metadata: both.",
    ),
    click.option(
        "--log-directory",
        help="A broker's log directory, or a copy: its segments continue where the remote tier ends; executors read "
        "it too.",
    ),
    click.option(
        "--leader-epochs",
        help="A leader-epoch-checkpoint of the live log, or a directory of <topic>-<partition> directories that have "
        "one: which history counts after an unclean election.",
    ),
)
"""The flags that name files beside the segments."""


range_flags = _flags(
    click.option(
        "--offsets",
        metavar="A:B|JSON",
        help="Only offsets from A to B, B exclusive, of every partition; either can be omitted. Or for each partition: "
        '{"orders":{"0":"23:500","1":"7:"}}, where a number is a start, as in the line next of a report.',
    ),
    click.option(
        "--since",
        metavar="T",
        help="Start at the first record that is not older than T: 2026-11-01T00:00Z, -1d (before "
        "now), now, or ms since 1970 UTC.",
    ),
    click.option(
        "--until",
        metavar="T",
        help="Stop before the first record that is not older than T, in each partition.",
    ),
    click.option("--start", hidden=True),
    click.option("--end", hidden=True),
)
"""The flags that say which offsets."""


layout_flags = _flags(
    click.option(
        "--layout",
        metavar="NAME",
        help="The layout, or pattern:REGEX. Default: recognised by object names.",
    ),
    click.option(
        "--output-layout",
        type=click.Choice(_OUTPUT_LAYOUTS),
        default=OutputLayout.PARTITION.value,
        show_default=True,
        help="Directories below the target. Dates are those of record timestamps, in UTC.",
    ),
    click.option("--segment-layout", hidden=True),
)
"""The flags for the layout that is read, and the one that is written."""


schema_flags = _flags(
    click.option(
        "--value-schema",
        metavar="SOURCE",
        help="Decode values into typed columns by the schemas of a registry (http…), a schema (.avsc, .proto, .desc, "
        "JSON Schema), or a file of segreader schemas pull. They are learnt for the plan; no task asks for any.",
    ),
    click.option("--key-schema", metavar="SOURCE", help="The same for keys."),
    click.option(
        "--schemas",
        metavar="FILE",
        help="Decode values, and keys if they have schemas, by what segreader schemas pull saved.",
    ),
    click.option("--schema-registry", metavar="URL", help="The same by the schemas of a registry."),
    click.option(
        "--schema-registry-credentials",
        default="default",
        show_default=True,
        help="Where the registry's secrets come from, never a value: default (SEGREADER_SCHEMA_REGISTRY_AUTH and its "
        "like), env:PREFIX or module:callable. Only the driver needs them.",
    ),
    click.option("--value-fields", metavar="PATH,…", help="Decode only these fields, such as id,customer.name."),
    click.option("--key-fields", metavar="PATH,…", help="The same for keys."),
    click.option(
        "--schema-version",
        metavar="N|latest",
        help="The version of the topic's schema that gives the columns. Default: the fields of all versions.",
    ),
    click.option(
        "--on-undecodable",
        type=click.Choice(["fail", "null", "keep"]),
        default="fail",
        show_default=True,
        help="A key or value that is not what its schema says: stop; make it null; or also keep its bytes in valueRaw "
        "and the reason in valueError. All but the first count it, and exit with 1.",
    ),
)
"""The flags that say how keys and values are decoded."""


_FORMATS = click.Choice(["parquet", "iceberg", "delta"])
_catalog_flags = (
    click.option(
        "--catalog",
        metavar="NAME",
        help="With --to iceberg: the catalog's name in .pyiceberg.yaml or PYICEBERG_CATALOG__… variables.",
    ),
    click.option(
        "--catalog-option",
        "catalog_options",
        multiple=True,
        metavar="NAME=VALUE",
        help="A property of the catalog, such as uri=…; write a secret as NAME=env:VARIABLE.",
    ),
)

verified_table_flags = _flags(
    click.option("--to", type=_FORMATS, default="parquet", show_default=True, help="What the backfill wrote."),
    click.option("--table", help="With --to iceberg: NAMESPACE.NAME."),
    *_catalog_flags,
)
"""The flags that name an existing table."""

table_flags = _flags(
    click.option(
        "--to",
        type=_FORMATS,
        default="parquet",
        show_default=True,
        help="What the files are: a directory of Parquet, or those of a table, committed without Spark.",
    ),
    click.option("--table", help="With --to iceberg: NAMESPACE.NAME. With --sink table: its name in Spark's catalog."),
    *_catalog_flags,
    click.option(
        "--partition-by",
        metavar="FIELD,…",
        help="Partitions of the table: day(timestamp), hour(timestamp), topic, partition, bucket(16, key).",
    ),
    click.option(
        "--commit-bytes",
        default="16g",
        show_default=True,
        help="Stored bytes after which what was written is committed to the table.",
    ),
    click.option(
        "--compact", is_flag=True, help="Join small files of the table into larger ones, and write nothing else."
    ),
)
"""The flags of tables."""


ahead_flags = _flags(
    click.option(
        "--threads",
        type=click.IntRange(1),
        metavar="N",
        help=f"Threads of a task; with 1, it reads and writes in turn. Default: {TASK_THREADS}, one reads ahead of the "
        "other, which writes. The output is the same.",
    ),
    click.option(
        "--read-ahead-bytes",
        type=click.IntRange(1),
        metavar="N",
        help=f"Limit on what a task reads ahead of what it writes. Default: {TASK_BYTES_AHEAD >> 20} MiB.",
    ),
)
"""The flags that say how far tasks read ahead."""


def _policy(flag: str, text: str) -> Callable[[_F], _F]:
    return click.option(flag, type=click.Choice(["fail", "skip"]), default="fail", show_default=True, help=text)


loss_flags = _flags(
    _policy("--on-gap", "Missing offsets: stop, or continue without them, list them in the report, and exit with 1."),
    _policy("--on-missing", "A segment deleted since the plan was made: stop, or continue without it, as above."),
    _policy(
        "--on-corrupt",
        "A damaged batch: stop, or leave it out, name its bytes and offsets in the report, and end in 1.",
    ),
    click.option("--on-data-loss", type=click.Choice(["fail", "skip"]), hidden=True),
)
"""The flags for offsets that are gone."""


def renamed(given: dict[str, Any]) -> dict[str, Any]:
    """The flags by their names of today, after a warning for each that was given by an earlier one.

    An output layout that is given as ``--layout``, as it was once called, is taken as ``--output-layout``.

    Raises:
        click.UsageError: a flag is given by both names.
    """
    given = dict(given)
    if given["layout"] in _OUTPUT_LAYOUTS:
        _warn(f"--layout {given['layout']}", "--output-layout")
        _require_default("--layout", "output_layout")
        given["output_layout"], given["layout"] = given["layout"], None
    if (layout := given.pop("segment_layout")) is not None:
        _warn("--segment-layout", "--layout")
        if given["layout"] is not None:
            raise click.UsageError("--segment-layout is the earlier name of --layout: give one of them")
        given["layout"] = layout
    if (choice := given.pop("on_data_loss")) is not None:
        _warn("--on-data-loss", "--on-gap and --on-missing")
        _require_default("--on-data-loss", "on_gap", "on_missing")
        given["on_gap"] = given["on_missing"] = choice
    for old, time in (("start", "since"), ("end", "until")):
        if given[old] is not None:
            _warn(f"--{old}", f"--{time} for a time and --offsets for offsets")
            if given[time] is not None or given["offsets"] is not None:
                raise click.UsageError(f"--{old} is the earlier name of --{time} and --offsets: give one of them")
    return given


def at_place(given: dict[str, Any]) -> dict[str, Any]:
    """The flags with what the place says that the location names; what the command line says wins.

    Secrets stay references, which each process looks up.

    Raises:
        click.UsageError: a location or the topic is named twice, or a place is not the only location.
        OptionError: the file of places is not what it should be, or a secret is one that other processes cannot have.
    """
    given = dict(given)
    argument, topic = given.pop("location_argument"), given.pop("topic_argument")
    if argument is not None and given["locations"]:
        raise click.UsageError("The location is named twice: as LOCATION and with --location. Leave one out")
    if not given["locations"] and given["bootstrap_servers"] is None and not given["compact"]:
        named = given["pattern"] if given["pattern"] is not None else next(iter(given["topics"]), None)
        argument, topic = at_default(argument, topic, named)
    if topic is not None:
        given["topics"] = _only_topic(given, topic, topic)
    locations = given["locations"] or tuple(one for one in (argument,) if one)
    found = [one for one in map(find_place, locations) if one[0] is not None]
    given["locations"] = locations
    if not found:
        return given
    if len(locations) > 1:
        raise click.UsageError("A place is read by itself: give its name as the only location")
    [(place, location, rest)] = found
    assert place is not None
    given["locations"] = () if location is None or place.is_cluster else (location,)
    for name in ("layout", "rsm_config", "segments_from", *_BESIDE):
        given[name] = given[name] if given[name] is not None else getattr(place, name)
    if given["bootstrap_servers"] is None and place.servers is not None:
        given["bootstrap_servers"] = place.servers
        given["broker_options"] = _with_own(given["broker_options"], place.broker_texts)
    has_provider = given["credentials"] != "default"
    given["storage"] = _with_own(given["storage"], place.storage_texts, ("secret",) if has_provider else ())
    if rest is not None:
        given["topics"] = _only_topic(given, rest, f"{place.name}:{rest}")
    return given


def _only_topic(given: dict[str, Any], text: str, shown: str) -> tuple[str]:
    """The topic that an argument names, where no flag names one; ``click.UsageError`` otherwise."""
    topic, slash, _ = text.partition("/")
    if slash:
        raise click.UsageError(
            f"A backfill reads whole topics: {shown.partition('/')[0]}. --offsets chooses partitions"
        )
    if given["topics"] or given["pattern"] is not None:
        raise click.UsageError("The topic is named twice: by an argument, and by another or a flag. Leave one out")
    return (topic,)


def _with_own(
    texts: tuple[str, ...], own: Callable[[Iterable[str]], dict[str, str]], also: tuple[str, ...] = ()
) -> tuple[str, ...]:
    """Options as ``NAME=VALUE``, with those of a place that are not among them."""
    names = [text.partition("=")[0] for text in texts]
    return (*texts, *(f"{name}={text}" for name, text in own((*names, *also)).items()))


def parse_request(given: dict[str, Any]) -> JobRequest:
    """What a command line asks for.

    Raises:
        OptionError: a size or a time is none.
    """
    locations = [absolute(location) for location in given["locations"]]
    location = (locations[0] if len(locations) == 1 else json.dumps(locations)) if locations else None
    servers = given["bootstrap_servers"]
    settings = parse_pairs("--broker-option", given["broker_options"])
    topics = {"pattern": given["pattern"]} if given["pattern"] is not None else {"topic": ",".join(given["topics"])}
    topic_id = ",".join(given["topic_ids"]) or None
    rsm_config = os.path.abspath(given["rsm_config"]) if given["rsm_config"] else None
    beside = {name: absolute(given[name]) for name in _BESIDE if given[name]}
    if given["segments_from"] is not None:
        beside["segments_from"] = given["segments_from"]
    schemas = _schemas(given)
    start, end, bounds = _bounds(given)
    wanted = {
        "location": location,
        "tail": None if servers is None else "broker",  # not which of the brokers: the topics' ids tell the cluster
        **topics,
        "topic-id": topic_id,
        "start": start,
        "end": end,
        "offsets": None if bounds is None else _text_of(bounds),
        "isolation": given["isolation"],
        "layout": given["output_layout"],
        **{name: given[name] for name in ("codec", "sink")},
        "hive": "yes" if given["hive"] else "no",
        "segment-layout": given["layout"],
        "rsm-config": rsm_config,
        **{name.replace("_", "-"): text for name, text in (beside | schemas).items()},
        "split-bytes": str(parse_size(given["split_bytes"], "splitBytes")),
        "file-bytes": str(parse_size(given["file_bytes"], "--file-bytes")),
        "to": None if given["to"] == "parquet" else given["to"],
        "partition-by": given["partition_by"],
    }
    options = {
        "location": location,
        "kafka.bootstrap.servers": servers,
        **{f"kafka.{name.lower().removeprefix('kafka.')}": text for name, text in settings.items()},
        "brokerCredentials": None if given["broker_credentials"] == "default" else given["broker_credentials"],
        **({"subscribePattern": topics["pattern"]} if "pattern" in topics else {"subscribe": topics["topic"]}),
        "topicId": topic_id,
        **_bound("starting", start, "earliest"),
        **_bound("ending", end, "latest"),
        "isolationLevel": given["isolation"],
        "includeHeaders": "true",
        "failOnDataLoss": "false" if given["on_gap"] == "skip" else None,
        "layout": given["layout"] or None,
        "rsmConfig": rsm_config,
        **{_OPTIONS[name]: text for name, text in beside.items()},
        **{_SCHEMAS[name]: text for name, text in schemas.items()},
        "schemaRegistryCredentials": None
        if given["schema_registry_credentials"] == "default"
        else given["schema_registry_credentials"],
        "credentials": given["credentials"],
        **{f"storage.{name}": text for name, text in parse_pairs("--storage-option", given["storage"]).items()},
    }
    return JobRequest(
        wanted={name: value for name, value in wanted.items() if value is not None},
        options={name: value for name, value in options.items() if value is not None},
        output=OutputOptions(
            layout=OutputLayout(given["output_layout"]),
            is_hive=given["hive"],
            file_bytes=int(wanted["file-bytes"]),
            codec=given["codec"],
            table="" if given["to"] == "parquet" else given["to"],
            partition_by=parse_partition_by(given["partition_by"] or ""),
        ),
        split_bytes=int(wanted["split-bytes"]),
        on_missing=Policy(given["on_missing"]),
        on_corrupt=Policy(given["on_corrupt"]),
        threads=given["threads"],
        read_ahead_bytes=given["read_ahead_bytes"],
        bounds=bounds,
        commit_bytes=parse_size(given["commit_bytes"], "--commit-bytes"),
    )


def require_target(given: dict[str, Any]) -> None:
    """Refuse a command line that does not name one target.

    Raises:
        click.UsageError: it says what is missing, or too much.
    """
    _apply(_TARGET_RULES, given)
    if given["to"] == "iceberg":
        if given["table"] is None:
            raise click.UsageError("say which table: --table NAMESPACE.NAME, with --catalog or --catalog-option")
    elif given["target"] is None:
        raise click.UsageError("say which directory or bucket: --target DIRECTORY")


def require_effect(given: dict[str, Any]) -> None:
    """Refuse flags that would have no effect beside the others: who gives one believes that it works.

    Raises:
        click.UsageError: it names them, and what they belong to.
    """
    if given["sink"] == "table":
        _refuse(given, _OF_FILES, "--sink files: Spark writes a table in its own way")
    _apply(_RULES, given)


def require_compact(given: dict[str, Any]) -> None:
    """Refuse what means nothing to ``--compact``, which joins the files that a table has and reads no topic.

    Raises:
        click.UsageError: it names the flags, and says what to run instead.
    """
    if given["to"] == "parquet":
        raise click.UsageError(
            "--compact joins the files of a table, which --to iceberg or --to delta names. Readers of a directory list "
            "its files, and no commit exchanges several at once: they would see records twice, or not at all. To have "
            "larger files, write everything to another --target and point readers there"
        )
    if flags := _flags_given(given, (name for name in given if name not in (*_OF_COMPACT, "compact"))):
        raise click.UsageError(
            f"{_listed(flags)} {'mean' if len(flags) > 1 else 'means'} nothing to --compact, which only joins the "
            "files that a table has: run the backfill by itself, and --compact with "
            f"{_listed(_flags_given(given, _OF_COMPACT))} alone"
        )
    require_target(given)
    if given["to"] == "iceberg":
        _refuse(given, ("target_storage", "target_credentials", "credentials"), "Delta: Iceberg's catalog gives access")
    require_bucket(given)


def require_bucket(given: dict[str, Any]) -> None:
    """Refuse settings of a store and credentials where the target is a directory.

    Raises:
        click.UsageError: it names the flags.
    """
    if given["target"] is not None and kind_of(given["target"]) is Kind.LOCAL:
        _refuse(given, ("target_storage", "target_credentials"), "a bucket, and the target is a directory")


def _apply(rules: Iterable[_Rule], given: _Given) -> None:
    for names, has_no_effect, owner in rules:
        if has_no_effect(given):
            _refuse(given, names, owner)


def _refuse(given: dict[str, Any], names: Iterable[str], owner: str) -> None:
    if flags := _flags_given(given, names):
        raise click.UsageError(f"{_listed(flags)} {'belong' if len(flags) > 1 else 'belongs'} to {owner}")


def _flags_given(given: dict[str, Any], names: Iterable[str]) -> list[str]:
    """The flags among these parameters that the command line has, by their names of today."""
    context = click.get_current_context()
    flags = {str(one.name): one.opts[0] for one in context.command.params}
    return [
        flags[name]
        for name in names
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        or given.get(name) != context.params.get(name)  # by an earlier name
    ]


def _listed(flags: Sequence[str]) -> str:
    return ", ".join(flags[:-1]) + f" and {flags[-1]}" if len(flags) > 1 else "".join(flags)


def table_place(given: dict[str, Any]) -> TablePlace | None:
    """The table that a command line names; ``None`` where it names files.

    Raises:
        OptionError: an option of the catalog holds a secret.
    """
    if given["to"] == "iceberg":
        options = parse_pairs("--catalog-option", given["catalog_options"])
        return TablePlace(kind="iceberg", name=given["table"], catalog=given["catalog"], options=options)
    if given["to"] == "delta":
        return TablePlace(
            kind="delta",
            name=absolute(given["target"]),
            options=parse_pairs("--target-option", given["target_storage"]),
            credentials=given["target_credentials"] or given["credentials"],
        )
    return None


def place_with_store(given: dict[str, Any]) -> TablePlace | None:
    """The Iceberg table whose catalog says how its store is reached; ``None`` where the command line does."""
    if given["to"] != "iceberg" or _flags_given(given, ("target_storage", "target_credentials")):
        return None
    return table_place(given)


def _schemas(given: dict[str, Any]) -> dict[str, str]:
    """What decodes keys and values, of what was given; files by their absolute paths.

    Raises:
        click.UsageError: schemas of both are given twice.
    """
    if given["schemas"] and given["schema_registry"]:
        raise click.UsageError("--schemas and --schema-registry both say where schemas come from: give one of them")
    found = {name: given[name] for name in _SCHEMAS if given[name] is not None}
    if given["schema_registry"]:
        found["schemas"] = given["schema_registry"]
    if found["on_undecodable"] == "fail":
        del found["on_undecodable"]
    places = {name: absolute(found[name]) for name in ("schemas", "value_schema", "key_schema") if name in found}
    return found | places


def parse_pairs(flag: str, texts: tuple[str, ...]) -> dict[str, str]:
    """The values of an option that is given as ``NAME=VALUE``, by name.

    Raises:
        OptionError: it is not of that form, or a name is given twice.
    """
    pairs = dict(text.partition("=")[::2] for text in texts)
    if not all(pairs) or len(pairs) < len(texts):
        raise OptionError(f"{flag} is NAME=VALUE, each name once")
    return pairs


def absolute(location: str) -> str:
    """A location that means the same in every process of this machine."""
    return location if "://" in location or location.startswith("file:") else os.path.abspath(location)


def _warn(old: str, new: str) -> None:
    click.echo(f"warning: {old} is deprecated, give {new}", err=True)


def _require_default(old: str, *names: str) -> None:
    """Refuse an earlier name beside the one of today."""
    context = click.get_current_context()
    if given := [name for name in names if context.get_parameter_source(name) is not ParameterSource.DEFAULT]:
        flag = given[0].replace("_", "-")
        raise click.UsageError(f"{old} is the earlier name of --{flag}: give one of them")


def _bounds(given: dict[str, Any]) -> tuple[str, str, Bounds | None]:
    """Start and end as a plan has them, ``earliest`` or ``latest``, offsets as JSON, or a time; and those of all.

    Raises:
        click.UsageError: one of them is given twice.
        OptionError: offsets or times are none.
    """
    start = end = bounds = None
    has_start = has_end = False
    if given["offsets"] is not None:
        if given["offsets"].lstrip().startswith("{"):
            start, end = parse_ranges(given["offsets"])
            has_start, has_end = start is not None, end is not None
        elif (bounds := _of_every(given["offsets"], given["bootstrap_servers"])) is not None:
            has_start, has_end = bounds.start is not None, bounds != Bounds(bounds.start)
    for flag, is_given in (("since", has_start), ("until", has_end)):
        if given[flag] is not None:
            if is_given:
                raise click.UsageError(f"--offsets and --{flag} both name the same end of the range: give one of them")
            try:
                parse_time(given[flag].strip(), datetime.now(UTC))
            except OptionError as error:
                raise error.located(source=f"--{flag}") from None
    return (
        given["start"] or given["since"] or start or "earliest",
        given["end"] or given["until"] or end or "latest",
        bounds,
    )


def _of_every(text: str, servers: str | None) -> Bounds | None:
    """The offsets of ``A:B``, as ``segreader cat`` takes them; ``None`` for all there are.

    Raises:
        OptionError: it is no such range, or names an end that only brokers know.
    """
    try:
        bounds = parse_bounds(text)
    except OptionError:
        raise _no_ranges(text) from None
    if bounds.end is LiveEnd.LATEST_STABLE and servers is None:
        raise OptionError("--offsets names latest-stable, which only brokers know", hint="Give --bootstrap-servers")
    return None if bounds == Bounds() else bounds


def _text_of(bounds: Bounds) -> str:
    """The offsets as a plan has them."""
    stop = bounds.stop if bounds.end is LiveEnd.LATEST else bounds.end
    return f"{'' if bounds.start is None else bounds.start}:{'' if stop is None else stop}"


def _no_ranges(text: str) -> OptionError:
    expected = f"A:B of every partition, with 0 <= A <= B, or {_RANGES}"
    return OptionError("--offsets is neither A:B nor JSON of ranges", found=text, expected=expected)


def parse_ranges(text: str) -> tuple[str | None, str | None]:
    """Starts and ends, each as JSON of Spark's kafka source, from ``--offsets``; ``None`` where all are left out.

    Raises:
        OptionError: it is not JSON of ranges.
    """
    try:
        ranges = json.loads(text)
        pairs = {
            topic: {number: _range(one) for number, one in partitions.items()} for topic, partitions in ranges.items()
        }
    except (ValueError, AttributeError, RecursionError):
        raise _no_ranges(text) from None
    sides = []
    for side, left_out in ((0, EARLIEST), (1, LATEST)):
        bounds = {topic: {number: one[side] for number, one in some.items()} for topic, some in pairs.items()}
        is_left_out = all(one == left_out for some in bounds.values() for one in some.values())
        sides.append(None if is_left_out else json.dumps(bounds, separators=(",", ":")))
    return sides[0], sides[1]


def _range(given: object) -> tuple[int, int]:
    """Start and end of ``"A:B"``, or of a number, which is a start."""
    if isinstance(given, int) and not isinstance(given, bool):
        return given, LATEST
    if not isinstance(given, str):
        raise ValueError(given)
    start, colon, end = given.partition(":")
    if not colon:
        raise ValueError(given)
    return int(start) if start.strip() else EARLIEST, int(end) if end.strip() else LATEST


def _bound(side: str, text: str, keyword: str) -> dict[str, str]:
    """The option of the data source for a start or an end: words and JSON are offsets, all else is a time."""
    if text.strip().lower() in ("earliest", "latest") or text.lstrip().startswith("{"):
        return {f"{side}Offsets": text}
    try:
        at = parse_time(text.strip(), datetime.now(UTC))
    except OptionError as error:
        raise OptionError(
            f"{side}Offsets is neither {keyword}, nor JSON, nor a time: {error.message}",
            found=repr(text),
            expected=error.expected,
            hint=error.hint,
        ) from None
    return {f"{side}Timestamp": str(at)}
