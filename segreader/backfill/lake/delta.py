"""A Delta table as the target of a backfill, by deltalake (delta-rs), without a JVM.

The log of the table says where it ends: ``commitInfo`` of our newest commit, or ``txn`` where that was cleaned up. A
commit is the file of the next version, which the store lets one writer make: who was not first looks again.
"""

from __future__ import annotations

import json
import logging
import os
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar
from uuid import uuid4

import msgspec
import pyarrow as pa
import pyarrow.fs as pa_fs

from segreader.backfill.lake.delta_compact import join_files, runs_to_join
from segreader.backfill.lake.delta_log import (
    ActiveFile,
    WantedOffsets,
    commit_info,
    is_replacement,
    partitions_of,
)
from segreader.backfill.lake.delta_rows import DeltaFileReader, in_offset_order
from segreader.backfill.lake.delta_schema import arrow_field, delta_fields, shown_type
from segreader.backfill.lake.delta_stats import compact_json, file_stats, leaf_kinds, partition_values
from segreader.backfill.lake.delta_store import DeltaFailures, Patience, options_of_delta_rs
from segreader.backfill.lake.table import Compacted, TableEnd, flat_offsets, merged
from segreader.backfill.output import SCHEMA, PartitionField, parse_partition_by
from segreader.backfill.writer import WrittenFile
from segreader.errors import (
    ConcurrentWriteError,
    ManifestError,
    OptionError,
    SegreaderError,
    StorageError,
    install_hint,
)
from segreader.storage.base import read_each
from segreader.storage.cloud.failure import is_away
from segreader.storage.options import Kind, StorageOptions, find_storage_options, kind_of
from segreader.storage.signed_url import redact

if TYPE_CHECKING:
    import deltalake

_T = TypeVar("_T")
_TRIES: Final = 8
_LONGEST_WAIT_S: Final = 2.0
_PARTITION_BY: Final = "segreader.partition-by"
_APP: Final = "segreader/"
_BEGIN_APP: Final = "segreader-begin/"
_OFFSETS, _TOPIC_IDS, _EPOCHS = "segreader.offsets", "segreader.topic-ids", "segreader.epochs"
_LOG_ENDS, _BEGINS, _COMMIT = "segreader.log-ends", "segreader.begins", "segreader.commit"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_READABLE: Final = frozenset({"timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"})
_WRITABLE: Final = _READABLE | {"appendOnly", "invariants", "changeDataFeed", "domainMetadata"}
"""Features of a table to which plain data files can be added. Any other changes what a file or a commit must have."""

_log = logging.getLogger(__name__)

Json = dict[str, Any]


def open_delta(location: str, storage_options: Mapping[str, object] | StorageOptions | None = None) -> DeltaLakeTable:
    """The Delta table at a location, which need not be there yet; no request is sent.

    Args:
        location: a directory, or the URL of one: ``s3://bucket/orders``, ``abfss://…``, ``gs://…``.
        storage_options: those of ``StorageOptions``; what is not given is looked for in the environment and in files,
            and what is not there either, by deltalake as the cloud's own clients do.

    Raises:
        OptionError: deltalake is not installed, an option is unknown, or deltalake has none such.
    """
    _deltalake()
    kind = kind_of(location)
    if kind in (Kind.HTTP, Kind.OTHER):
        raise OptionError(
            "a Delta table cannot be at this kind of location",
            found=redact(location),
            expected="a directory, s3://, gs:// or abfss://",
        )
    if kind is Kind.LOCAL:
        _, is_url, rest = location.partition("://")
        plain = os.path.abspath(rest.removeprefix("localhost") if is_url else location.removeprefix("file:"))
        return DeltaLakeTable(plain, {})
    options = options_of_delta_rs(kind, find_storage_options(location, storage_options))
    return DeltaLakeTable(location.rstrip("/"), options)


def _deltalake() -> Any:
    try:
        import deltalake
    except ImportError as error:
        raise OptionError("Delta tables need deltalake", hint=install_hint("delta")) from error
    return deltalake


def _commit_info(end: TableEnd) -> dict[str, str]:
    """What a commit says of itself about where the table ends."""
    return {
        _OFFSETS: compact_json(end.offsets),
        _TOPIC_IDS: compact_json(end.topic_ids),
        _EPOCHS: compact_json(end.epochs),
        _LOG_ENDS: compact_json(end.log_ends),
        _BEGINS: compact_json(end.begins),
        _COMMIT: end.commit,
    }


class DeltaLakeTable:
    """A ``LakeTable`` of Delta.

    Partition fields are columns of the table that no file has: ``timestamp_day`` (a date), ``timestamp_hour`` (text,
    ``2026-11-01-05`` in UTC: Delta's timestamps of partitions depend on the zone of the session that reads them),
    ``key_bucket`` (a whole number), or ``topic`` and ``partition``. Names of data files have to say the same, as
    ``timestamp_day=2026-11-01/``: Polars looks there.

    Args:
        uri: a directory or a URL, without a credential.
        options: as deltalake takes them.
    """

    kind: Literal["iceberg", "delta"] = "delta"

    def __init__(self, uri: str, options: Mapping[str, str]) -> None:
        self._uri = uri
        self._options = dict(options)
        self._asked: pa.Schema = SCHEMA

    @classmethod
    def of(cls, table: deltalake.DeltaTable) -> DeltaLakeTable:
        """One that is open already, with the options that it was opened with."""
        return cls(table.table_uri.rstrip("/"), table._storage_options or {})

    def __repr__(self) -> str:
        return f"DeltaLakeTable({self.name!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a table is not pickled: it may hold a secret")

    @property
    def name(self) -> str:
        """Its location."""
        return redact(self._uri)

    @property
    def exists(self) -> bool:
        """Whether it is there."""
        return self._looked(lambda: bool(_deltalake().DeltaTable.is_deltatable(self._uri, self._options)))

    @property
    def id(self) -> str:
        return str(self._load().metadata().id)

    @property
    def location(self) -> str:
        """Where its files are."""
        return self._uri

    def vended(self) -> Mapping[str, object]:
        """Nothing: there is no catalog."""
        return {}

    # Where it ends

    def end(self, partitions: Iterable[tuple[str, int]] = ()) -> TableEnd | None:
        """Where the table ends now, as its log says; ``None`` where no job has committed to it.

        After a RESTORE it ends where the version that was restored did.

        Args:
            partitions: asked for where our newest commit was cleaned from the log. Those that data files are of are
                known besides; ids of topics and leader epochs then are not.

        Raises:
            ManifestError: it was restored or overwritten, so that what it has is unknown.
        """
        if not self.exists:
            return None
        return self._end(self._load(), partitions)

    def _end(self, table: deltalake.DeltaTable, partitions: Iterable[tuple[str, int]]) -> TableEnd | None:
        version, limit = table.version(), table.version()
        restored: int | None = None
        replaced: int | None = None
        for version, commit in self._commits(table):
            if version > limit:
                continue
            operation = commit.get("operation")
            if _OFFSETS in commit:
                end = self._said(version, commit)
                if replaced is not None:
                    raise self._unknown(f"version {replaced} replaced what version {version} ends with")
                return end
            if operation == "RESTORE":
                restored, limit = version, self._restored(version, commit)
            elif replaced is None and is_replacement(commit):
                replaced = version
        if version == 0:
            return None
        asked = {*partitions, *self._partitions(table)}
        known: dict[str, dict[str, int]] = {}
        begins: dict[str, dict[str, int]] = {}
        with self._failures():
            for topic, partition in sorted(asked):
                for app, offsets in ((_APP, known), (_BEGIN_APP, begins)):
                    if (offset := table.transaction_version(f"{app}{topic}/{partition}")) is not None:
                        offsets.setdefault(topic, {})[str(partition)] = offset
        if not known:
            return None
        if restored is not None or replaced is not None:
            raise self._unknown(
                f"version {replaced if restored is None else restored} restored or replaced it, and the log of before "
                "was cleaned up"
            )
        return TableEnd(offsets=known, begins=begins)

    def _unknown(self, found: str) -> ManifestError:
        return ManifestError(
            "it is not known what a Delta table has of the topics",
            source=self.name,
            found=found,
            expected="a log that says where our last commit left it, and nothing that replaced that",
            hint="Restore it by version: RESTORE TABLE … TO VERSION AS OF n, or write to another table",
        )

    def _said(self, version: int, commit: Json) -> TableEnd:
        """What a commit of ours says."""
        try:
            names = (_OFFSETS, _TOPIC_IDS, _EPOCHS, _LOG_ENDS, _BEGINS)
            parts = {name: json.loads(commit.get(name) or "{}") for name in names}
            document = {
                "offsets": parts[_OFFSETS],
                "topic_ids": parts[_TOPIC_IDS],
                "epochs": parts[_EPOCHS],
                "log_ends": parts[_LOG_ENDS],
                "begins": parts[_BEGINS],
                "commit": commit.get(_COMMIT, ""),
            }
            return TableEnd.from_json(json.dumps(document))
        except (ValueError, TypeError, msgspec.MsgspecError) as error:
            raise ManifestError(
                "a commit says where the table ends, but not as we write it",
                source=self.name,
                found=f"version {version}",
                expected=f"JSON in {_OFFSETS} and beside it",
                hint="Restore an older version: RESTORE TABLE … TO VERSION AS OF n",
            ) from error

    def _restored(self, version: int, commit: Json) -> int:
        """The version that a RESTORE went back to."""
        how = commit.get("operationParameters") or {}
        try:
            if how.get("version") not in (None, ""):
                return int(how["version"])
            when = _EPOCH + timedelta(milliseconds=int(how["datetime"]))  # deltalake's; Spark's has no zone
        except (KeyError, TypeError, ValueError, OverflowError):
            raise self._unknown(f"version {version} is a RESTORE to a time") from None
        with self._failures():
            then = self._load(version=version - 1)
            then.load_as_version(when)
            return then.version()

    def _commits(self, table: deltalake.DeltaTable) -> Iterator[tuple[int, Json]]:
        """What commits say of themselves, newest first, down to where the log was cleaned up."""
        store = self._store(table)
        version, some = table.version(), 1
        while version >= 0:
            versions = range(version, max(version - some, -1), -1)
            with self._failures():
                found = read_each(lambda one: commit_info(store, one), versions)
            for one, info in zip(versions, found, strict=True):
                if info is None:
                    return
                yield one, info
            version, some = versions[-1] - 1, min(some * 4, 256)

    def _partitions(self, table: deltalake.DeltaTable) -> set[tuple[str, int]]:
        """Topics and partitions that data files say they are of."""
        found = set()
        for file in self._active(table):
            topic, partition = file.bounds("topic"), file.bounds("partition")
            if topic and partition and topic[0] == topic[1] and partition[0] == partition[1]:
                found.add((topic[0], partition[0]))
        return found

    # Its columns

    def partition_fields(self) -> tuple[PartitionField, ...]:
        """How the table is partitioned, where it is there.

        Raises:
            OptionError: by columns that a job does not fill.
        """
        table = self._load()
        with self._failures():
            metadata = table.metadata()
            columns, said = list(metadata.partition_columns), metadata.configuration.get(_PARTITION_BY, "")
        with suppress(OptionError):
            fields = parse_partition_by(said)
            if [field.name for field in fields] == columns:
                return fields
        plain = {
            field.name: field
            for field in (
                PartitionField("identity", "topic"),
                PartitionField("identity", "partition"),
                PartitionField("day", "timestamp"),
                PartitionField("hour", "timestamp"),
            )
        }
        if not set(columns) <= plain.keys():
            raise OptionError(
                "the table is partitioned by what a job does not know how to fill",
                source=self.name,
                found=", ".join(sorted(set(columns) - plain.keys())),
                expected=", ".join(plain),
                hint="Write to another table",
            )
        return tuple(plain[name] for name in columns)

    def check(self, schema: pa.Schema, partition_by: Sequence[PartitionField]) -> tuple[str, ...]:
        """What ``prepare`` would change of an existing table, as sentences; nothing is written."""
        wanted = delta_fields(schema, partition_by)
        if not self.exists:
            return ()
        return tuple(self._lacking(self._load(), wanted, partition_by)[0])

    def prepare(self, schema: pa.Schema, partition_by: Sequence[PartitionField]) -> Mapping[str, int]:
        """Create the table, or add the columns that it lacks; returns nothing, as Delta knows columns by name.

        Raises:
            OptionError: Delta has no such columns, or the table has others; nothing is changed.
        """
        wanted = delta_fields(schema, partition_by)
        lake = _deltalake()
        patience = Patience()
        while not self.exists:
            try:
                with self._failures():
                    lake.DeltaTable.create(
                        self._uri,
                        lake.Schema.from_json(json.dumps({"type": "struct", "fields": wanted})),
                        partition_by=[field.name for field in partition_by],
                        configuration={_PARTITION_BY: ", ".join(map(str, partition_by))} if partition_by else None,
                        storage_options=self._options,
                        raise_if_key_not_exists=False,
                        # else a second try creates it once more, on top of what is there by then
                        commit_properties=lake.CommitProperties(max_commit_retries=0),
                    )
            except StorageError as error:  # or of two at once the other one was first
                if not self.exists and not patience.lasts(error):
                    raise
        while True:
            table = self._load()
            _, patches = self._lacking(table, wanted, partition_by)
            if not patches:
                break
            try:
                with self._failures():
                    table.alter.add_columns([lake.Field.from_json(json.dumps(one)) for one in patches])
            except StorageError as error:  # or the answer was lost, and they are there
                if not patience.lasts(error):
                    raise
        self._asked = schema
        return {}

    def _lacking(
        self, table: deltalake.DeltaTable, wanted: Sequence[Json], partition_by: Sequence[PartitionField]
    ) -> tuple[list[str], list[Json]]:
        """What the table lacks: in words, and as columns to add to it."""
        self._require_writable(table)
        with self._failures():
            columns = list(table.metadata().partition_columns)
            there = json.loads(table.schema().to_json())
        names = [field.name for field in partition_by]
        if sorted(names) != sorted(columns) or (partition_by and set(self.partition_fields()) != set(partition_by)):
            raise OptionError(
                "the table is partitioned in another way",
                source=self.name,
                found=f"{', '.join(map(str, self.partition_fields())) or 'no partitions'} there",
                expected=f"{', '.join(map(str, partition_by)) or 'no partitions'} here",
                hint="Partition by what the table has, or write to another table",
            )
        changes: list[str] = []
        patch = self._patch(there, {"type": "struct", "fields": list(wanted)}, "", changes)
        ours = {field["name"] for field in wanted}
        for field in there["fields"]:
            if field["name"] not in ours and not field["nullable"]:
                raise self._differs(field["name"], f"{shown_type(field['type'])} NOT NULL", "no such column")
        return changes, patch["fields"] if patch else []

    def _patch(self, there: Any, here: Any, path: str, changes: list[str]) -> Any:
        """The part of a type that the table lacks; ``None`` where it lacks nothing."""
        kind = here["type"] if isinstance(here, dict) else here
        if (there["type"] if isinstance(there, dict) else there) != kind:
            raise self._differs(path, shown_type(there), shown_type(here))
        if kind == "array":
            below = self._patch(there["elementType"], here["elementType"], f"{path}.element", changes)
            return below and {**there, "elementType": below}
        if kind == "map":
            if self._patch(there["keyType"], here["keyType"], f"{path}.key", changes):
                raise self._differs(f"{path}.key", shown_type(there["keyType"]), shown_type(here["keyType"]))
            below = self._patch(there["valueType"], here["valueType"], f"{path}.value", changes)
            return below and {**there, "valueType": below}
        if kind != "struct":
            return None
        known = {field["name"].lower(): field for field in there["fields"]}
        fields = []
        for field in here["fields"]:
            name = f"{path}.{field['name']}" if path else field["name"]
            old = known.get(field["name"].lower())
            if old is None:
                changes.append(f"{name}: {shown_type(field['type'])} is added")
                fields.append(field)
                continue
            if old["name"] != field["name"]:
                raise self._differs(name, f"it is called {old['name']}", field["name"])
            if not old["nullable"] and name not in ("topic", "partition", "offset", "timestamp", "timestampType"):
                raise self._differs(name, f"{shown_type(old['type'])} NOT NULL", shown_type(field["type"]))
            if below := self._patch(old["type"], field["type"], name, changes):
                fields.append({**old, "type": below})
        return {"type": "struct", "fields": fields} if fields else None

    def _differs(self, path: str, there: str, here: str) -> OptionError:
        return OptionError(
            f"the table has another column {path}, and Delta does not change columns",
            source=self.name,
            found=f"{there} there",
            expected=f"{here} here",
            hint="Write to another table, or select what fits with columns=",
        )

    def _require_writable(self, table: deltalake.DeltaTable) -> None:
        """Refuse a table whose files or commits must have what we do not write."""
        with self._failures():
            protocol, settings = table.protocol(), table.metadata().configuration
            schema = table.schema().to_json()
        readers, writers = set(protocol.reader_features or ()), set(protocol.writer_features or ())
        strange = (readers - _READABLE) | (writers - _WRITABLE)
        # older protocols name no features: settings say which are on
        if settings.get("delta.columnMapping.mode", "none") != "none":
            strange.add("columnMapping")
        if any(name.startswith("delta.constraints.") for name in settings):
            strange.add("checkConstraints")
        for word, feature in (
            ('"delta.generationExpression"', "generatedColumns"),
            ('"delta.identity.', "identityColumns"),
            ('"delta.invariants"', "invariants with an expression"),
        ):
            if word in schema:
                strange.add(feature)
        if strange:
            raise OptionError(
                "the table has features that a job cannot write",
                source=self.name,
                found=", ".join(sorted(strange)),
                expected=f"none, or some of {', '.join(sorted(_WRITABLE))}",
                hint="Write to another table, or drop them: ALTER TABLE … DROP FEATURE",
            )

    # Adding files

    def commit(self, files: Sequence[WrittenFile], start: TableEnd | None, end: TableEnd) -> None:
        """Add data files as one version that also says where the table ends now."""
        from deltalake import Transaction
        from deltalake.transaction import AddAction

        commit = end.commit or uuid4().hex
        named = list(partitions_of(start) | partitions_of(end))

        def attempt(table: deltalake.DeltaTable) -> Json | None:
            self._require_writable(table)
            now = self._end(table, named)
            if now is not None and now.commit == commit:
                return None
            self._require_start(now, start)
            fields = self.partition_fields()
            kinds = leaf_kinds(json.loads(table.schema().to_json())["fields"], self._asked)
            actions = [
                AddAction(
                    path=file.name,
                    size=file.size,
                    partition_values=partition_values(fields, file, self.name),
                    modification_time=time.time_ns() // 1_000_000,
                    data_change=True,
                    stats=file_stats(file, kinds, {field.name for field in fields}),
                )
                for file in files
            ]
            reached = TableEnd(
                offsets=merged(now.offsets if now else {}, end.offsets),
                topic_ids={**(now.topic_ids if now else {}), **end.topic_ids},
                epochs=merged(now.epochs if now else {}, end.epochs),
                log_ends=merged(now.log_ends if now else {}, end.log_ends),
                begins=merged(now.begins if now else {}, end.begins),
                commit=commit,
            )
            transactions = [
                Transaction(f"{app}{topic}/{partition}", offset)
                for app, offsets in ((_APP, end.offsets), (_BEGIN_APP, reached.begins))
                for topic, some in offsets.items()
                for partition, offset in some.items()
            ]
            return {"actions": actions, "metadata": _commit_info(reached), "transactions": transactions}

        def has_landed(table: deltalake.DeltaTable) -> bool:
            now = self._end(table, named)
            return now is not None and now.commit == commit

        self._compare_and_swap(attempt, has_landed)

    def _require_start(self, now: TableEnd | None, start: TableEnd | None) -> None:
        found, expected = flat_offsets(now), flat_offsets(start)
        if found == expected:
            return
        other = sorted(found.items() ^ expected.items(), key=str)[0][0]
        raise ConcurrentWriteError(
            "the table does not end where this job began: another one has written to it, or it was restored",
            source=self.name,
            found=f"{other[0]}-{other[1]} up to {found.get(other, 'nothing')}",
            expected=f"up to {expected.get(other, 'nothing')}",
            hint="Run the job again with --continue: it goes on from where the table ends",
        )

    def _compare_and_swap(
        self,
        attempt: Callable[[deltalake.DeltaTable], Json | None],
        has_landed: Callable[[deltalake.DeltaTable], bool],
    ) -> None:
        """Make the next version from what the newest one is; again while others are faster.

        Args:
            attempt: the actions of the version after this one; ``None`` if there is nothing to do. It raises if the
                table is not as it has to be.
            has_landed: whether they are in it.
        """
        from deltalake import CommitProperties
        from deltalake.exceptions import CommitFailedError

        patience = Patience()
        for number in range(_TRIES):
            table = self._load()
            found = attempt(table)
            if found is None:
                return
            properties = CommitProperties(
                custom_metadata=found["metadata"], max_commit_retries=0, app_transactions=found["transactions"]
            )
            try:
                with self._failures(but=CommitFailedError):
                    table.create_write_transaction(
                        found["actions"],
                        "append",
                        table.schema(),
                        partition_by=table.metadata().partition_columns,
                        commit_properties=properties,
                    )
                return
            except CommitFailedError:  # or the answer was lost, and a second request found our own version
                if has_landed(self._load()):
                    return
            except StorageError as error:
                # it may still arrive: then the next try finds it, or is refused, for it is of the same version
                if self._is_known_to_have_landed(has_landed, error):
                    return
                if not patience.lasts(error):
                    raise
            time.sleep(random.uniform(0, min(_LONGEST_WAIT_S, 0.05 * 2**number)))
        raise ConcurrentWriteError(
            "others commit to the table faster than this job",
            source=self.name,
            found=f"another version each of {_TRIES} times",
            hint="Run the job again when they are done",
        )

    def _is_known_to_have_landed(self, has_landed: Callable[[deltalake.DeltaTable], bool], error: StorageError) -> bool:
        """Whether a commit is in the table though its answer was an error; ``error`` says so if that is unknown."""
        try:
            return has_landed(self._load())
        except SegreaderError:
            error.hint = "Whether this commit is in the table is not known: its end tells, once it can be read"
            return False

    # Reading and joining

    def records(self, topic: str, partition: int, start: int, stop: int) -> Iterator[pa.RecordBatch]:
        """The records of ``start <= offset < stop`` as a reader of the table sees them, in offset order.

        Types are those of the table: text for enums, 64 bits for unsigned 32, microseconds. A batch of each file that
        has such offsets is in memory; of a file that somebody has written in another order, all of those.
        """
        table = self._load()
        self._require_writable(table)
        with self._failures():
            schema = pa.schema(table.schema().to_arrow())
            columns = set(table.metadata().partition_columns)
        extra = columns - set(SCHEMA.names)
        schema = pa.schema([arrow_field(field) for field in schema if field.name not in extra])
        wanted = WantedOffsets(topic, partition, start, stop)
        files = sorted((one for one in self._active(table) if wanted.may_be_in(one)), key=lambda one: one.first_offset)
        store = self._store(table)
        with self._failures():
            yield from in_offset_order([DeltaFileReader(store, file, wanted, schema) for file in files])

    def files(self) -> Iterator[str]:
        """The data files of the table now, relative to ``location`` where they are below it."""
        for file in self._active(self._load()):
            yield file.name

    def compact(self, file_bytes: int) -> Compacted:
        """Join small data files of each partition of the table into larger ones in one commit, safely beside readers.

        Files of one partition of one topic are joined, neighbours by their offsets, if they have the same columns.
        Files that are replaced stay for readers of older versions, until VACUUM.
        """
        table = self._load()
        self._require_writable(table)
        active = self._active(table)
        token = uuid4().hex[:12]
        store = self._store(table)
        joined: list[tuple[ActiveFile, tuple[ActiveFile, ...]]] = []
        try:
            with self._failures():
                for number, run in enumerate(runs_to_join(store, active, file_bytes)):
                    joined.append((join_files(store, run, token, number), run))
        except BaseException:
            self._forget(store, [made.name for made, _ in joined])
            raise
        if joined:
            try:
                self._replace(joined)
            except ConcurrentWriteError:
                self._forget(store, [made.name for made, _ in joined])
                raise
        return Compacted(sum(len(run) for _, run in joined), len(joined), sum(made.size for made, _ in joined))

    def _replace(self, joined: Sequence[tuple[ActiveFile, tuple[ActiveFile, ...]]]) -> None:
        from deltalake.transaction import AddAction, RemoveAction

        gone = {one.name for _, run in joined for one in run}
        made = {one.name for one, _ in joined}

        def has_landed(table: deltalake.DeltaTable) -> bool:
            return made <= {one.name for one in self._active(table)}

        def attempt(table: deltalake.DeltaTable) -> Json | None:
            if has_landed(table):  # an earlier try that failed arrived after all: its files must not be removed
                return None
            if not gone <= {one.name for one in self._active(table)}:
                raise ConcurrentWriteError(
                    "files that were being joined are not in the table any more",
                    source=self.name,
                    hint="Somebody else has changed them, and nothing was joined: run it again",
                )
            now = time.time_ns() // 1_000_000
            actions: list[AddAction | RemoveAction] = []
            for file, run in joined:
                actions.append(AddAction(file.name, file.size, file.partition, now, False, file.stats))
                actions += [RemoveAction(one.name, False, now, one.size, dict(one.partition)) for one in run]
            metadata = {"segreader.compacted": str(len(gone)), **self._end_to_repeat(table)}
            return {"actions": actions, "metadata": metadata, "transactions": None}

        self._compare_and_swap(attempt, has_landed)

    def _end_to_repeat(self, table: deltalake.DeltaTable) -> dict[str, str]:
        """What our newest commit says of the end, for one that changes no record: older ones may be cleaned up.

        Nothing where that was: the transactions of partitions without data files are only found when asked for.
        """
        try:
            end = self._end(table, ())
        except ManifestError:  # something replaced the table or restored it: this commit does not know better
            return {}
        return {} if end is None or not end.commit else _commit_info(end)

    def _forget(self, store: pa_fs.FileSystem, names: Sequence[str]) -> None:
        """Remove files that no version names."""
        for name in names:
            try:
                store.delete_file(name)
            except Exception as error:
                _log.warning(
                    "%s: a file that is not in the table stays: %s (%s)", self.name, name, type(error).__name__
                )

    # Access

    def _load(self, version: int | None = None) -> deltalake.DeltaTable:
        def load() -> deltalake.DeltaTable:
            table: deltalake.DeltaTable = _deltalake().DeltaTable(self._uri, version, self._options)
            return table

        return self._looked(load)

    def _looked(self, look: Callable[[], _T]) -> _T:
        """What a call finds that changes nothing; delta-rs does not ask again where a listing breaks off."""
        patience = Patience()
        while True:
            try:
                with self._failures():
                    return look()
            except StorageError as error:
                if not is_away(error) or not patience.lasts(error):
                    raise

    def _store(self, table: deltalake.DeltaTable) -> pa_fs.FileSystem:
        from deltalake.fs import DeltaStorageHandler

        with self._failures():
            return pa_fs.PyFileSystem(DeltaStorageHandler.from_table(table._table, self._options))

    def _active(self, table: deltalake.DeltaTable) -> list[ActiveFile]:
        with self._failures():
            return [ActiveFile.of(row) for row in pa.table(table.get_add_actions(flatten=False)).to_pylist()]

    def _failures(self, *, but: type[Exception] | tuple[()] = ()) -> DeltaFailures:
        return DeltaFailures(self.name, but)
