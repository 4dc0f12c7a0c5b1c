"""Tables of Iceberg and Delta from history, without Spark: ``append`` adds what a table does not have yet.

The table says where it ends, so each record is in it once, whatever was killed before.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from segreader.backfill.job import Job, local_engine
from segreader.backfill.job_plan import DEFAULT_COMMIT_BYTES, DEFAULT_SPLIT_BYTES, JobRequest
from segreader.backfill.lake.place import TablePlace
from segreader.backfill.lake.table import LakeTable, Offsets
from segreader.backfill.output import OutputOptions, parse_partition_by
from segreader.backfill.report import Completeness
from segreader.backfill.task import Destination
from segreader.errors import OptionError, SegreaderError
from segreader.plan.request import path_of, require_text, whole_number
from segreader.spark.credentials import parse_provider, resolve_storage
from segreader.spark.option_values import compile_pattern
from segreader.spark.options import parse_options
from segreader.values import dataclass

if TYPE_CHECKING:
    import deltalake
    import pyiceberg.table

__all__ = ["Appended", "append"]

_ARGUMENTS: Final = {
    "location": "Give the argument location",
    "subscribe": "Give the argument topic",
    "subscribepattern": "Give the argument pattern",
    "assign": "Give the argument topic: a table has all partitions of a topic",
    "credentials": "Give the argument credentials",
    "includeheaders": "Leave it out: a table always has headers",
}
"""Options of the data source, in lower case, that are arguments of ``append``; and what to do instead."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Appended:
    """What an append did.

    Args:
        records, files: that it added; none if the table had everything.
        offsets: where the table ends now: ``{"orders": {"0": 3026}}``.
        losses: what was asked for and is not there, as sentences, where the options let it go on.
    """

    records: int
    files: int
    offsets: Offsets
    losses: tuple[str, ...] = ()


def append(
    table: pyiceberg.table.Table | deltalake.DeltaTable | str | os.PathLike[str],
    location: str | os.PathLike[str],
    *,
    topic: str | None = None,
    pattern: str | None = None,
    options: Mapping[str, str] | None = None,
    partition_by: str = "",
    file_bytes: int = 128 << 20,
    split_bytes: int = DEFAULT_SPLIT_BYTES,
    commit_bytes: int = DEFAULT_COMMIT_BYTES,
    processes: int | None = None,
    credentials: str = "default",
    storage_options: Mapping[str, str] | None = None,
) -> Appended:
    """Add the records of topics that a table does not have yet, read from their tiered segments.

    The first append to a table reads from the earliest offset, or where ``options`` say; each later one from where the
    table ends. Processes of this machine decode and write Parquet; this one commits. Killed at any time and called
    again, it goes on; nothing is in the table twice.

    Args:
        table: of pyiceberg, of deltalake, or the location of a Delta table, which need not be there yet.
        location: a directory or a bucket with tiered segments.
        topic, pattern: one of the two: a name, or a regular expression of names.
        options: of the read, by the names of ``spark.read.format("segreader")``: ``endingTimestamp``, ``valueSchema``.
        partition_by: of a table that is not there yet: ``"day(timestamp), bucket(16, key)"``.
        file_bytes: what a file aims at.
        split_bytes: stored bytes that a process reads at a time; smaller segments are joined.
        commit_bytes: stored bytes after which what was written is committed.
        processes: by default one for each core.
        credentials: name of what gives credentials for the location and the table: ``default``, ``env:PREFIX``,
            ``module:callable``.
        storage_options: settings of the table's store for the processes that write; a secret is ``env:VARIABLE``. By
            default, where the table's catalog vends credentials and its secrets are in ``.pyiceberg.yaml`` or the
            environment, these processes ask the catalog.

    Raises:
        ConcurrentWriteError: somebody else wrote to the table meanwhile.
        DivergedPositionError, RecreatedTopicError: the table has records of another history, or of another topic.
        OptionError: an option is unknown, or the table cannot have these columns.
        SegreaderError: while reading or writing.
    """
    if (topic is None) == (pattern is None):
        raise OptionError("name what to read: either topic or pattern")
    file_bytes = _number("file_bytes", file_bytes, "bytes")
    split_bytes = _number("split_bytes", split_bytes, "bytes")
    commit_bytes = _number("commit_bytes", commit_bytes, "bytes")
    processes = None if processes is None else _number("processes", processes, "processes, or None")
    credentials = parse_provider(_text("credentials", credentials))
    fields = parse_partition_by(_text("partition_by", partition_by))
    settings = _texts("storage_options", storage_options)
    chosen = {"subscribe": _name("topic", topic)} if pattern is None else {"subscribePattern": _pattern(pattern)}
    read = {
        "location": path_of("location", location),
        "includeHeaders": "true",
        "credentials": credentials,
        **chosen,
        **_options(options),
    }
    isolation = parse_options(read).isolation_level
    lake = _opened(table, credentials, settings)
    request = JobRequest(
        wanted={
            "isolation": isolation.value,
            "to": lake.kind,
            **{name: text for name, text in read.items() if name != "includeHeaders"},
        },
        options=read,
        output=OutputOptions(table=lake.kind, file_bytes=file_bytes, partition_by=fields),
        split_bytes=split_bytes,
        commit_bytes=commit_bytes,
    )
    place = lake.location if lake.exists else lake.name if lake.kind == "delta" else os.curdir
    by_name = None if settings or credentials != "default" else _by_name(table, lake)
    destination = Destination(place, credentials, settings, table=by_name)
    job = Job(request=request, destination=destination, table=lake, goes_on=True)
    done: list[Completeness] = []
    while not (one := job.begin()).has_nothing:
        with local_engine(one, processes) as engine:
            done.append(job.finish(one, job.write(one, engine)))
        if not one.is_resumed:
            break
    end = lake.end() if lake.exists else None
    return Appended(
        records=sum(found.total("records") for found in done),
        files=sum(found.total("files") for found in done),
        offsets={} if end is None else end.offsets,
        losses=tuple(text for found in done for text in found.losses),
    )


def _number(name: str, given: Any, of: str) -> int:
    if (number := whole_number(given)) is None or number < 1:
        raise OptionError(f"{name} must be a whole number above zero", found=repr(given), expected=f"1 or more {of}")
    return number


def _text(name: str, given: Any) -> str:
    require_text(name, given)
    if given is None:
        raise OptionError(f"{name} must be text", found="None")
    return str(given)


def _name(name: str, given: Any) -> str:
    if not (text := _text(name, given)).strip():
        raise OptionError(f"{name} is empty", found=repr(text))
    return text


def _texts(name: str, given: Any) -> dict[str, str]:
    """Text by name; numbers become text. Errors show no value: it may be a secret."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise OptionError(f"{name} must be a mapping", found=type(given).__name__, expected="{name: text}")
    for one, value in given.items():
        if not isinstance(one, str):
            raise OptionError(f"names in {name} must be text", found=type(one).__name__)
        if not isinstance(value, str | int):
            raise OptionError(f"{one} in {name} must be text", found=type(value).__name__)
    return {one: str(value) for one, value in given.items()}


def _pattern(given: Any) -> str:
    try:
        return compile_pattern(_name("pattern", given)).pattern
    except OptionError as error:
        error.message = error.message.replace("subscribePattern", "pattern", 1)
        raise


def _options(given: Any) -> dict[str, str]:
    """The options of the read.

    Raises:
        OptionError: one of them says what an argument says, whatever the case of its name.
    """
    options = _texts("options", given)
    for name in options:
        if (hint := _ARGUMENTS.get(name.lower())) is not None:
            raise OptionError(f"append does not take the option {name}", hint=hint)
    return options


def _by_name(table: Any, lake: LakeTable) -> TablePlace | None:
    """An Iceberg table whose catalog vends credentials, so that processes that write can ask it themselves.

    ``None`` if it vends none, or cannot be opened by its name and those of its properties that are no secrets.
    """
    if lake.kind != "iceberg" or not lake.vended():
        return None
    place = TablePlace.without_secrets(lake.name, table.catalog.name, table.catalog.properties)
    try:
        place.open().vended()
    except SegreaderError as error:
        _log.warning(
            "%s: its catalog gives access to its files, but processes that write cannot open the catalog %s by its "
            "name (%s): they use what the cloud's client finds. Put the catalog's secrets into .pyiceberg.yaml or the "
            "environment, or give storage_options",
            lake.name,
            table.catalog.name,
            error,
        )
        return None
    return place


def _opened(table: Any, credentials: str, settings: Mapping[str, str]) -> LakeTable:
    kind = type(table).__module__.partition(".")[0]
    if kind == "pyiceberg":
        from segreader.backfill.lake.iceberg import IcebergTable  # one of the two formats is imported

        return IcebergTable.of(table)
    from segreader.backfill.lake.delta import DeltaLakeTable, open_delta

    if kind == "deltalake":
        return DeltaLakeTable.of(table)
    if not isinstance(table, str | os.PathLike):
        raise OptionError(
            "this is no table", found=type(table).__name__, expected="a table of pyiceberg or deltalake, or a location"
        )
    place = path_of("table", table)
    place = place if "://" in place else os.path.abspath(place)
    return open_delta(place, resolve_storage(credentials, place, settings))
