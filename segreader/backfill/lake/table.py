"""What a job wants of a table, whatever its format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Literal, Protocol

import msgspec
import pyarrow as pa

from segreader.backfill.output import PartitionField
from segreader.backfill.writer import WrittenFile
from segreader.values import dataclass

Offsets = Mapping[str, Mapping[str, int]]
"""Offsets by topic and partition: the JSON of Spark's kafka source, ``{"orders":{"0":23}}``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableEnd:
    """Where a table ends, as the table itself says: everything below is in it, nothing else of these partitions.

    Args:
        offsets: the first one of each partition that the table does not have.
        topic_ids: of the topics that the records are of, where they have one.
        epochs: the leader epoch of the last record of each partition, where it is known.
        log_ends: where the log of each partition ended then, and by which epoch: markers up to there decided what is in
            the table.
        begins: the earliest offset of each partition when the table began with it, where it was to begin there: what
            appears below later is not in it.
        commit: name of the commit that said so.
    """

    offsets: Offsets = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    epochs: Offsets = field(default_factory=dict)
    log_ends: Mapping[str, Mapping[str, Sequence[int]]] = field(default_factory=dict)
    begins: Offsets = field(default_factory=dict)
    commit: str = ""

    def to_json(self) -> dict[str, Any]:
        """For ``json.dumps``."""
        return {
            "offsets": copied(self.offsets),
            "topic_ids": dict(self.topic_ids),
            "epochs": copied(self.epochs),
            "log_ends": {topic: {key: list(end) for key, end in some.items()} for topic, some in self.log_ends.items()},
            **({"begins": copied(self.begins)} if self.begins else {}),  # an earlier version knew none
            "commit": self.commit,
        }

    @classmethod
    def from_json(cls, text: str) -> TableEnd:
        """The value that ``to_json`` wrote; ``msgspec.MsgspecError`` for anything else."""
        return msgspec.json.decode(text, type=cls)


def copied(nested: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Values by topic and partition, to be changed."""
    return {topic: dict(some) for topic, some in nested.items()}


def merged(old: Mapping[str, Mapping[str, Any]], new: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Values by topic and partition: the new ones, and the old ones of other partitions."""
    return {topic: {**old.get(topic, {}), **new.get(topic, {})} for topic in (*old, *new)}


def flat_offsets(end: TableEnd | None) -> dict[tuple[str, str], int]:
    """The offsets of an end, by topic and partition; two ends are the same where these are."""
    return {(topic, one): stop for topic, some in (end.offsets if end else {}).items() for one, stop in some.items()}


@dataclass(frozen=True, slots=True)
class Compacted:
    """What joining small files did: how many were joined, into how many, and the bytes of these; the others stay."""

    files_before: int
    files_after: int
    size: int


class LakeTable(Protocol):
    """One table, which need not exist yet. Not pickled; tasks know its location alone.

    Where the catalog or the store fails, every method raises ``AccessDeniedError``, ``ObjectNotFoundError`` or
    ``StorageError`` with the table's name.
    """

    kind: Literal["iceberg", "delta"]

    @property
    def name(self) -> str:
        """As people call it: ``db.orders``, or its location. Never with a credential."""

    @property
    def exists(self) -> bool:
        """Whether it is there."""

    @property
    def id(self) -> str:
        """What distinguishes it from another table of its name, before or after it. Known once the table exists."""

    @property
    def location(self) -> str:
        """Where its files are, and the ledger of jobs: a directory or the URL of one, for ``open_target``.

        Known once the table exists.
        """

    def vended(self) -> Mapping[str, object]:
        """Storage options that the catalog gives for its files, asked for anew; secrets are among them.

        Nothing where the catalog gives none, and its own settings say all there is.

        Raises:
            OptionError: it gives access in a way that files are not written in here.
        """

    def end(self, partitions: Iterable[tuple[str, int]] = ()) -> TableEnd | None:
        """Where it ends now, read anew from the catalog or the log; ``None`` where no job has committed to it.

        Args:
            partitions: some of those that are asked for, for a format that cannot list what it knows.
        """

    def partition_fields(self) -> tuple[PartitionField, ...]:
        """How an existing table is partitioned.

        Raises:
            OptionError: in a way that a job cannot write.
        """

    def check(self, schema: pa.Schema, partition_by: Sequence[PartitionField]) -> tuple[str, ...]:
        """What ``prepare`` would change of an existing table, as sentences; nothing is written.

        Raises:
            OptionError: the format does not have such columns, or does not allow the change; it names the columns, what
                the table has and what is asked for.
        """

    def prepare(self, schema: pa.Schema, partition_by: Sequence[PartitionField]) -> Mapping[str, int]:
        """Create the table, or add the columns that it lacks, so that files of this schema can be committed.

        Returns:
            The field ids that files must have, by the path of each field, as ``OutputOptions.field_ids`` takes them;
            nothing for a format that knows columns by name.

        Raises:
            OptionError: as ``check``.
        """

    def commit(self, files: Sequence[WrittenFile], start: TableEnd | None, end: TableEnd) -> None:
        """Add data files in one commit that also says where the table ends now.

        Args:
            files: their names are relative to ``location``. There may be none, if the offsets hold no record.
            start: where the table ends, as this job knows: anything else is another job's work.
            end: where it ends with these files.

        Raises:
            ConcurrentWriteError: the table does not end at ``start``; nothing is added.
            StorageError: the outcome is unknown, or nothing was added: ``end()`` tells.
        """

    def records(self, topic: str, partition: int, start: int, stop: int) -> Iterator[pa.RecordBatch]:
        """The records of ``start <= offset < stop`` as a reader of the table sees them, in offset order.

        They have the columns of the files: those of Spark's kafka source, and what is decoded.
        """

    def files(self) -> Iterator[str]:
        """The data files of the table now, relative to ``location`` where they are below it."""

    def compact(self, file_bytes: int) -> Compacted:
        """Join small data files of each partition of the table into larger ones in one commit, safely beside readers.

        The records, ``end()`` and what readers see stay the same.

        Args:
            file_bytes: what a file aims at; those of half of it and more are left as they are.

        Raises:
            ConcurrentWriteError: somebody else has changed these files meanwhile; nothing is changed.
        """
