"""An Iceberg table as a target, by pyiceberg: created, evolved, added to by compare and swap, read, and compacted."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Self

import pyarrow as pa

from segreader.backfill.lake.iceberg_store import vended_options
from segreader.backfill.lake.table import Compacted, TableEnd
from segreader.backfill.output import PartitionField
from segreader.backfill.writer import WrittenFile
from segreader.errors import (
    AccessDeniedError,
    ConcurrentWriteError,
    ObjectNotFoundError,
    OptionError,
    SegreaderError,
    StorageError,
    install_hint,
)
from segreader.storage.cloud.failure import as_of_target, storage_error
from segreader.storage.signed_url import redact

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import FileScanTask, Table
    from pyiceberg.table.update import UpdatesAndRequirements
    from pyiceberg.table.update.snapshot import _SnapshotProducer

_TRIES: Final = 10
_LONGEST_PAUSE_S: Final = 2.0
_VERSION: Final = 2
_CREATED_WITH: Final = {"format-version": str(_VERSION), "commit.manifest-merge.enabled": "true"}

_REFUSED: Final = frozenset(
    ("UnauthorizedError", "ForbiddenError", "AuthorizationExpiredError", "OAuthError", "SignError")
)
_MISSING: Final = frozenset(("NoSuchTableError", "NoSuchNamespaceError"))
_NOT_INSTALLED: Final = frozenset(("NotInstalledError", "ImportError"))
_NO_PLACE: Final = "No default path is set"
_NO_REGION: Final = "NoRegionError"
_OF_DATABASE: Final = "DBAPIError"
_CREDENTIALS_HINT: Final = "Check the credentials that the catalog's options and the environment give"


def open_iceberg(name: str, catalog: str | None, options: Mapping[str, str]) -> IcebergTable:
    """A table of a catalog, which need not be there yet.

    Args:
        name: ``db.orders``: the namespace, and the table's name after the last dot.
        catalog: its name in ``.pyiceberg.yaml`` or the environment; by default the one that these call the default.
        options: properties of the catalog, which override what is found there: ``uri``, ``warehouse``, ``s3.endpoint``.

    Raises:
        OptionError: the name has no namespace, the catalog is not known, or pyiceberg or a part of it is not installed.
        AccessDeniedError, StorageError: the catalog refuses, or cannot be reached.
    """
    if not all(name.split(".")) or "." not in name:
        raise OptionError("a table's name is its namespace and its name", found=name, expected="db.orders")
    load_catalog = _pyiceberg().catalog.load_catalog
    with _told_of(name):
        try:
            opened = load_catalog(catalog, **options)
        except ValueError as error:
            raise OptionError(
                f"the catalog {catalog or 'default'} is not known",
                found=redact(str(error)),
                hint="Give its uri as an option, in .pyiceberg.yaml or in the environment",
            ) from None
    opened.properties.setdefault("s3.retry-strategy-impl", f"{__name__}.tries_of_s3")
    return IcebergTable(opened, tuple(name.split(".")))


def tries_of_s3() -> Any:
    """A retry strategy for pyarrow's S3 client: as many attempts as botocore makes, in about 8 s.

    With the three of its default, a store that throttles for two seconds fails a commit.
    """
    from pyarrow.fs import AwsStandardS3RetryStrategy

    return AwsStandardS3RetryStrategy(max_attempts=5)


def _pyiceberg() -> Any:
    try:
        import pyiceberg.catalog
    except ImportError:
        raise OptionError("Iceberg tables need pyiceberg", hint=install_hint("iceberg")) from None
    return pyiceberg


class IcebergTable:
    """A table of format version 2; see ``LakeTable``. Not shared by threads.

    Its snapshots say where it ends, in their summaries: ``segreader.offsets`` as Spark's kafka source has them, with
    ``segreader.topic-ids``, ``segreader.epochs``, ``segreader.log-ends``, ``segreader.begins`` and
    ``segreader.commit``. The table has the same as properties, for the time when its snapshots have expired.

    Args:
        catalog: pyiceberg's.
        identifier: the parts of the table's name.
    """

    kind: Literal["iceberg", "delta"] = "iceberg"

    def __init__(self, catalog: Catalog, identifier: tuple[str, ...]) -> None:
        self._catalog = catalog
        self._identifier = identifier
        self._loaded: Table | None = None
        self._divided_by: tuple[PartitionField, ...] | None = None

    @classmethod
    def of(cls, table: Table) -> IcebergTable:
        """A table that the caller has opened with pyiceberg."""
        made = cls(table.catalog, tuple(table.name()))
        made._loaded = table
        return made

    def __repr__(self) -> str:
        return f"IcebergTable({self.name!r})"

    @property
    def name(self) -> str:
        return ".".join(self._identifier)

    @property
    def exists(self) -> bool:
        try:
            self._load()
        except ObjectNotFoundError:
            return False
        return True

    @property
    def id(self) -> str:
        return str((self._loaded or self._load()).metadata.table_uuid)

    @property
    def location(self) -> str:
        return (self._loaded or self._load()).location().rstrip("/")

    def vended(self) -> Mapping[str, object]:
        table = self._load()
        return vended_options(table.location(), table.io.properties, self._catalog.properties)

    def partition_fields(self) -> tuple[PartitionField, ...]:
        """What the table is partitioned by.

        Raises:
            OptionError: by something else than what files can be divided by here.
        """
        from segreader.backfill.lake.iceberg_schema import partition_fields

        table = self._load()
        return partition_fields(table.spec(), table.schema(), self.name)

    def end(self, partitions: Iterable[tuple[str, int]] = ()) -> TableEnd | None:
        """As ``LakeTable``.

        Raises:
            ManifestError: what the table says cannot be read, or was lost: it was rolled back, and snapshots expired.
        """
        from segreader.backfill.lake.iceberg_commit import end_of

        return end_of(table.metadata, self.name) if (table := self._load_if_there()) else None

    def check(self, schema: pa.Schema, partition_by: Sequence[PartitionField]) -> tuple[str, ...]:
        from segreader.backfill.lake.iceberg_schema import changes_for, iceberg_schema, partition_spec

        _pyiceberg()
        asked = iceberg_schema(schema)
        partition_spec(partition_by, asked)
        if (table := self._load_if_there()) is None:
            return ()
        self._require_format(table)
        self._require_spec(table, partition_by)
        return tuple(map(str, changes_for(table.schema(), asked, self.name)))

    def prepare(self, schema: pa.Schema, partition_by: Sequence[PartitionField]) -> Mapping[str, int]:
        from segreader.backfill.lake.iceberg_schema import changes_for, field_ids, iceberg_schema

        self.check(schema, partition_by)
        asked = iceberg_schema(schema)
        if self._load_if_there() is None:
            self._create(schema, partition_by)

        def evolve() -> None:
            changes = changes_for(self._load().schema(), asked, self.name)
            if changes:
                with self._load().update_schema() as update:
                    for change in changes:
                        change.make(update)

        self._tried(evolve)
        table = self._load()
        self._divided_by = self._require_spec(table, partition_by)
        return field_ids(table.schema(), asked)

    def commit(self, files: Sequence[WrittenFile], start: TableEnd | None, end: TableEnd) -> None:
        from segreader.backfill.lake.iceberg_commit import (
            data_files,
            end_of,
            has_landed,
            is_same_end,
            summary_of,
            told_for_good,
        )
        from segreader.backfill.lake.iceberg_schema import columns_of

        def append(table: Table) -> tuple[_SnapshotProducer[Any], Mapping[str, str]] | None:
            if has_landed(table.metadata, end):
                return None
            there = end_of(table.metadata, self.name)
            if not is_same_end(there, start):
                raise ConcurrentWriteError(
                    "the table does not end where this job left it",
                    source=self.name,
                    found=_said(there),
                    expected=_said(start),
                    hint="Nothing was added: let the other job end, then continue from where the table ends",
                )
            self._require_division(table, files)
            producer = table.transaction().update_snapshot(snapshot_properties=summary_of(end)).merge_append()
            for one in data_files(files, table.location(), table.spec(), columns_of(table.schema())):
                producer.append_data_file(one)
            return producer, told_for_good(end, table.metadata)

        self._swap(append)

    def records(self, topic: str, partition: int, start: int, stop: int) -> Iterator[pa.RecordBatch]:
        from segreader.backfill.lake.iceberg_rows import RowsWanted, rows_between

        table = self._load()
        with _told_of(self.name):
            yield from rows_between(table, RowsWanted(topic, partition, start, stop))

    def files(self) -> Iterator[str]:
        from pyiceberg.manifest import ManifestContent

        table = self._load()
        snapshot, below = table.current_snapshot(), f"{table.location().rstrip('/')}/"
        with _told_of(self.name):
            for manifest in snapshot.manifests(table.io) if snapshot else ():
                if manifest.content is ManifestContent.DATA:
                    for entry in manifest.fetch_manifest_entry(table.io):
                        yield entry.data_file.file_path.removeprefix(below)

    def compact(self, file_bytes: int) -> Compacted:
        """As ``LakeTable``, where rows were deleted from a file, it is left alone.

        Raises:
            ConcurrentWriteError: somebody else has rewritten one of the files, or deleted rows of it.
            OptionError: the table has equality deletes, which pyiceberg does not read.
        """
        from segreader.backfill.lake.iceberg_compact import groups_to_join, join, remove

        table = self._load()
        self._require_format(table)
        with _told_of(self.name):
            groups = groups_to_join(table, file_bytes)
            joined = []
            try:
                for group in groups:
                    joined.append(join(table, group))
            except BaseException:
                remove(table, [one.file_path for one in joined])
                raise
        tasks = [task for group in groups for task in group]
        if tasks:
            try:
                self._swap(lambda now: self._replacement(table, now, tasks, joined))
            except ConcurrentWriteError:  # for sure, no snapshot names them
                remove(table, [one.file_path for one in joined])
                raise
        return Compacted(len(tasks), len(joined), sum(one.file_size_in_bytes for one in joined))

    def _replacement(
        self, planned: Table, now: Table, tasks: Sequence[FileScanTask], joined: Sequence[Any]
    ) -> tuple[_SnapshotProducer[Any], Mapping[str, str]]:
        from segreader.backfill.lake.iceberg_commit import end_of, summary_of
        from segreader.backfill.lake.iceberg_compact import require_untouched

        if now.metadata.current_snapshot_id != planned.metadata.current_snapshot_id:
            require_untouched(now, tasks, self.name)
        if now.spec().spec_id != planned.spec().spec_id:
            raise ConcurrentWriteError("somebody else has partitioned the table anew", source=self.name)
        end = end_of(now.metadata, self.name)
        producer = now.transaction().update_snapshot(snapshot_properties=summary_of(end) if end else {}).overwrite()
        for task in tasks:
            producer.delete_data_file(task.file)
        for one in joined:
            producer.append_data_file(one)
        return producer, {}

    # How a table is found, made and changed

    def _load(self) -> Table:
        with _told_of(self.name):
            self._loaded = self._catalog.load_table(self._identifier)
        return self._loaded

    def _load_if_there(self) -> Table | None:
        try:
            return self._load()
        except ObjectNotFoundError:
            return None

    def _create(self, schema: pa.Schema, partition_by: Sequence[PartitionField]) -> None:
        from pyiceberg.exceptions import TableAlreadyExistsError

        from segreader.backfill.lake.iceberg_schema import iceberg_schema, partition_spec

        asked = iceberg_schema(schema)
        with _told_of(self.name):
            self._catalog.create_namespace_if_not_exists(self._identifier[:-1])
            try:
                self._catalog.create_table(
                    self._identifier,
                    asked,
                    partition_spec=partition_spec(partition_by, asked),
                    properties=_CREATED_WITH,
                )
            except TableAlreadyExistsError:  # another job was first: its table is looked at as any that is there
                return

    def _require_format(self, table: Table) -> None:
        if table.format_version != _VERSION:
            raise OptionError(
                "the table has a format version that is not written here",
                source=self.name,
                found=f"version {table.format_version}",
                expected=f"version {_VERSION}",
                hint="Upgrade a table of version 1 with ALTER TABLE … SET TBLPROPERTIES ('format-version'='2')",
            )

    def _require_spec(self, table: Table, asked: Sequence[PartitionField]) -> tuple[PartitionField, ...]:
        from segreader.backfill.lake.iceberg_schema import partition_fields

        there = partition_fields(table.spec(), table.schema(), self.name)
        if asked and tuple(asked) != there:
            raise OptionError(
                "the table is partitioned by something else",
                source=self.name,
                found=", ".join(map(str, there)) or "no partitions",
                expected=", ".join(map(str, asked)),
                hint="Leave --partition-by out: the files are divided as the table is",
            )
        return there

    def _require_division(self, table: Table, files: Sequence[WrittenFile]) -> None:
        """Make sure that files are divided as the table is now: its partition spec may have changed meanwhile."""
        from segreader.backfill.lake.iceberg_schema import partition_fields

        there = partition_fields(table.spec(), table.schema(), self.name)
        is_other = self._divided_by is not None and there != self._divided_by
        if is_other or any(len(one.partition) != len(there) for one in files):
            raise ConcurrentWriteError(
                "the table is partitioned in another way than the files were written for",
                source=self.name,
                found=", ".join(map(str, there)) or "no partitions",
                expected=", ".join(map(str, self._divided_by or ())) or None,
                hint="Nothing was added: somebody has changed its partition spec. Run the job again with --continue",
            )

    def _swap(self, change: Callable[[Table], tuple[_SnapshotProducer[Any], Mapping[str, str]] | None]) -> None:
        """Commit a snapshot on top of the one that was looked at, and of no other.

        pyiceberg's own commit would put it on top of whatever is there by then.

        Args:
            change: makes the snapshot, and properties of the table; it may refuse. Called anew where somebody else
                has committed. ``None`` where nothing is left to do.
        """
        from pyiceberg.exceptions import CommitFailedException

        for attempt in range(_TRIES):
            table = self._load()
            with _told_of(self.name):
                if (made := change(table)) is None:
                    return
                producer, properties = made
                try:
                    updates, requirements = _prepared(producer)
                except BaseException:
                    _clean(producer)
                    raise
            failed = self._sent(table, updates, requirements, properties)
            if failed is None or self._load().metadata.snapshot_by_id(producer.snapshot_id) is not None:
                return  # in the second case, the answer was lost and the commit was not
            if not isinstance(failed, CommitFailedException):
                ours = _failure(failed, self.name)
                raise ours.located(hint="See where the table ends before anything is tried again")
            _clean(producer)
            _pause(attempt)
        raise _crowded(self.name)

    def _sent(self, table: Table, updates: Any, requirements: Any, properties: Mapping[str, str]) -> Exception | None:
        """Ask the catalog once to change the table; what it raised, where it did."""
        from pyiceberg.table.update import AssertTableUUID, SetPropertiesUpdate

        more = (SetPropertiesUpdate(updates=dict(properties)),) if properties else ()
        is_same = AssertTableUUID(uuid=table.metadata.table_uuid)
        try:
            self._catalog.commit_table(table, (*requirements, is_same), (*updates, *more))
        except Exception as error:
            return error
        return None

    def _tried(self, change: Callable[[], None]) -> None:
        """Change a table's metadata; again, if somebody else has changed it meanwhile."""
        from pyiceberg.exceptions import CommitFailedException

        for attempt in range(_TRIES):
            with _told_of(self.name):
                try:
                    return change()
                except CommitFailedException:
                    _pause(attempt)
        raise _crowded(self.name)


def _prepared(producer: _SnapshotProducer[Any]) -> UpdatesAndRequirements:
    """The updates of a snapshot; one that removes files and changes no row is called a replacement.

    pyiceberg has no such operation, and a reader of changes would take an overwrite for rows that are new.
    """
    from pyiceberg.table.snapshots import Operation, Summary
    from pyiceberg.table.update import AddSnapshotUpdate

    def renamed(one: Any) -> Any:
        summary = one.snapshot.summary if isinstance(one, AddSnapshotUpdate) else None
        if summary is None or summary.operation is not Operation.OVERWRITE:
            return one
        replaced = Summary(Operation.REPLACE, **summary.additional_properties)
        return AddSnapshotUpdate(snapshot=one.snapshot.model_copy(update={"summary": replaced}))

    updates, requirements = producer._commit()
    return tuple(map(renamed, updates)), requirements


def _clean(producer: _SnapshotProducer[Any]) -> None:
    """Remove the manifests of a snapshot that is not committed.

    pyiceberg logs a failure with its traceback, and so the store's answer, which we do not show.
    """
    logger = logging.getLogger(type(producer).__module__)
    logger.addFilter(_says_nothing)
    try:
        producer._clean_all_uncommitted()
    finally:
        logger.removeFilter(_says_nothing)


def _says_nothing(record: logging.LogRecord) -> bool:
    return False


def _pause(attempt: int) -> None:
    time.sleep(random.uniform(0.5, 1) * min(_LONGEST_PAUSE_S, 0.05 * 2**attempt))


def _crowded(name: str) -> StorageError:
    return StorageError(
        f"others committed to the table at each of {_TRIES} tries",
        source=name,
        hint="Nothing was changed: try again when less is written to it",
    )


def _said(end: TableEnd | None) -> str:
    if end is None or not end.offsets:
        return "no offsets"
    offsets = sorted((topic, int(key), offset) for topic, some in end.offsets.items() for key, offset in some.items())
    text = ", ".join(f"{topic}-{partition} at {offset}" for topic, partition, offset in offsets[:3])
    return text + (f" and {len(offsets) - 3} more" if len(offsets) > 3 else "")


# Errors


class _told_of:
    """Turns what pyiceberg, catalogs and their clients raise into our errors, without texts that may quote secrets.

    Args:
        name: of the table.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not isinstance(error, Exception) or isinstance(error, SegreaderError):
            return
        ours = _failure(error, self._name)
        del error, traceback  # a traceback that shows variables would show them
        try:
            raise ours from None
        finally:
            ours.__context__ = None


def _failure(error: Exception, name: str) -> SegreaderError:
    """Our error for what a catalog or a store raised."""
    kinds = {one.__name__ for one in type(error).__mro__}
    found = type(error).__name__
    if kinds & _REFUSED:
        return AccessDeniedError("the catalog refuses", source=name, found=found, hint=_CREDENTIALS_HINT)
    if kinds & _MISSING:
        return ObjectNotFoundError("the catalog has no such table", source=name, found=found)
    if kinds & _NOT_INSTALLED:
        return OptionError(
            "a part of pyiceberg is not installed, or one of its clients",
            source=name,
            found=redact(str(error)),
            hint="Install pyiceberg with the extra of this catalog",
        )
    if isinstance(error, ValueError) and _NO_PLACE in str(error):
        return OptionError(
            "the catalog has no warehouse, so it has no place for a new table",
            source=name,
            hint="Give its warehouse as an option, in .pyiceberg.yaml or in the environment",
        )
    if _NO_REGION in kinds:
        return OptionError("no region of AWS is set", source=name, hint="Set AWS_REGION, or the option glue.region")
    if _OF_DATABASE in kinds:
        cause = redact(str(getattr(error, "orig", None) or "")).partition("\n")[0]  # without the statement
        return StorageError(
            "the catalog's database cannot be used",
            source=name,
            found=cause or found,
            hint="Check the catalog's uri and its database, then run it again: what is finished stays",
        )
    if isinstance(error, ValueError) and "equality deletes" in str(error):
        return OptionError(
            "the table has equality deletes, which pyiceberg does not read",
            source=name,
            hint="Have the engine that wrote them rewrite the data files first",
        )
    if isinstance(error, OSError) and ("ACCESS_DENIED" in str(error) or "HTTP response code 403" in str(error)):
        return AccessDeniedError("the store refuses", source=name, found=found, hint=_CREDENTIALS_HINT)
    return as_of_target(storage_error(error, name, _CREDENTIALS_HINT))
