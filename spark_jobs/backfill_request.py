"""From the command line of a backfill to what is asked for: see ``spark_jobs.backfill``."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from segreader.errors import OptionError
from segreader.read.times import parse_time
from segreader.spark.backfill.job_plan import JobRequest
from segreader.spark.backfill.output import Layout, OutputOptions
from segreader.spark.option_values import parse_size

_F = TypeVar("_F", bound=Callable[..., Any])

_OF_FILES = {
    "layout": "--layout",
    "hive": "--hive",
    "codec": "--codec",
    "file_bytes": "--file-bytes",
    "report_file": "--report",
    "cleanup": "--cleanup",
    "target_credentials": "--target-credentials",
    "target_storage": "--target-option",
}
"""Flags that say how files are written and what is told of them."""


_BESIDE = ("metadata", "log_directory", "leader_epochs")
_OPTIONS = {
    "metadata": "metadata",
    "segments_from": "segmentsFrom",
    "log_directory": "logDirectory",
    "leader_epochs": "leaderEpochs",
}
"""Files beside the segments: flags, and options of the data source."""


def broker_flags(command: _F) -> _F:
    """The flags by which a job asks brokers."""
    for flag in (
        click.option(
            "--broker-credentials",
            default="default",
            show_default=True,
            help="Who gives the client's secrets, never a value: env:PREFIX or module:callable.",
        ),
        click.option(
            "--broker-option",
            "broker_options",
            multiple=True,
            metavar="NAME=VALUE",
            help="Setting of the Kafka client by Kafka's name; a secret is NAME=env:VARIABLE, on executors, too.",
        ),
        click.option(
            "--bootstrap-servers",
            metavar="HOST:PORT,…",
            help="Brokers to ask: the job goes on to their end, as it is now. What is at --location is read there.",
        ),
    ):
        command = flag(command)
    return command


def beside_flags(command: _F) -> _F:
    """The flags that name files beside the segments."""
    for flag in (
        click.option(
            "--leader-epochs",
            help="A leader-epoch-checkpoint of the live log, or a place with <topic>-<partition> directories that have "
            "one: which history counts after an unclean election.",
        ),
        click.option(
            "--log-directory",
            help="A broker's log directory, or a copy: its segments go on where the remote tier ends; executors read "
            "it, too.",
        ),
        click.option(
            "--segments-from",
            type=click.Choice(["listing", "metadata", "both"]),
            help="Which of the two to believe; both by default, with --metadata.",
        ),
        click.option(
            "--metadata",
            help="Where the log directories of __remote_log_metadata lie: which segments are finished, and which "
            "deleted.",
        ),
    ):
        command = flag(command)
    return command


def parse_request(given: dict[str, Any]) -> JobRequest:
    """What a command line asks for.

    Raises:
        OptionError: a size or a time is none.
    """
    locations = [absolute(location) for location in given["locations"]]
    location = (locations[0] if len(locations) == 1 else json.dumps(locations)) if locations else None
    servers = given["bootstrap_servers"]
    settings = parse_pairs("--broker-option", given["broker_options"])
    if settings and servers is None:
        raise click.UsageError("--broker-option belongs to --bootstrap-servers")
    topics = {"pattern": given["pattern"]} if given["pattern"] is not None else {"topic": ",".join(given["topics"])}
    topic_id = ",".join(given["topic_ids"]) or None
    rsm_config = os.path.abspath(given["rsm_config"]) if given["rsm_config"] else None
    beside = {name: absolute(given[name]) for name in _BESIDE if given[name]}
    if given["segments_from"] is not None:
        beside["segments_from"] = given["segments_from"]
    wanted = {
        "location": location,
        "tail": None if servers is None else "broker",  # not which of the brokers: the topics' ids tell the cluster
        **topics,
        "topic-id": topic_id,
        **{name: given[name] for name in ("start", "end", "isolation", "layout", "codec", "sink")},
        "hive": "yes" if given["hive"] else "no",
        "segment-layout": given["segment_layout"],
        "rsm-config": rsm_config,
        **{name.replace("_", "-"): text for name, text in beside.items()},
        "split-bytes": str(parse_size(given["split_bytes"], "splitBytes")),
        "file-bytes": str(parse_size(given["file_bytes"], "--file-bytes")),
    }
    options = {
        **({} if location is None else {"location": location}),
        **({} if servers is None else {"kafka.bootstrap.servers": servers}),
        **{f"kafka.{name.lower().removeprefix('kafka.')}": text for name, text in settings.items()},
        **({} if given["broker_credentials"] == "default" else {"brokerCredentials": given["broker_credentials"]}),
        **({"subscribePattern": topics["pattern"]} if "pattern" in topics else {"subscribe": topics["topic"]}),
        **({} if topic_id is None else {"topicId": topic_id}),
        **_bound("starting", given["start"], "earliest"),
        **_bound("ending", given["end"], "latest"),
        "isolationLevel": given["isolation"],
        "includeHeaders": "true",
        **({"failOnDataLoss": "false"} if given["on_data_loss"] == "skip" else {}),
        **({"layout": given["segment_layout"]} if given["segment_layout"] else {}),
        **({"keys": rsm_config} if rsm_config else {}),
        **{_OPTIONS[name]: text for name, text in beside.items()},
        "credentials": given["credentials"],
        **{f"storage.{name}": text for name, text in parse_pairs("--storage-option", given["storage"]).items()},
    }
    return JobRequest(
        wanted={name: value for name, value in wanted.items() if value is not None},
        options=options,
        output=OutputOptions(
            layout=Layout(given["layout"]),
            is_hive=given["hive"],
            file_bytes=int(wanted["file-bytes"]),
            codec=given["codec"],
        ),
        split_bytes=int(wanted["split-bytes"]),
    )


def require_files(context: click.Context) -> None:
    """Refuse flags that a table has no use for: who gives one believes that it works.

    Raises:
        click.UsageError: it names them.
    """
    given = [
        flag for name, flag in _OF_FILES.items() if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    ]
    if given:
        raise click.UsageError(f"{', '.join(given)} belong to --sink files: Spark writes a table in its own way")


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
