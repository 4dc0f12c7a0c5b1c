"""The entry of a finished split, which exactly one of its writers creates."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, field
from typing import Any, TypeVar

import msgspec

from segreader.backfill.job_splits import LostOffsets
from segreader.backfill.output import done_name
from segreader.backfill.writer import WrittenFile
from segreader.errors import ManifestError, ObjectNotFoundError
from segreader.storage.target.store import TargetStore
from segreader.values import dataclass

_T = TypeVar("_T")


def learnt(kind: type[_T]) -> type[_T]:
    """The same dataclass, with its fields known to msgspec, so that threads may convert documents into it.

    msgspec (0.22) looks the fields up at the first conversion, and two threads that are first crash the process.
    """
    msgspec.json.Decoder(kind)
    return kind


@learnt
@dataclass(frozen=True, slots=True, kw_only=True)
class DoneEntry:
    """One split in the output.

    Offsets ``start <= offset < stop`` are ``records`` that were written, ``control_records`` and ``aborted_records``
    that no reader is given, ``lost`` or ``damaged`` ones, and ``holes``, which hold nothing: the cleaner took it.

    Args:
        split: its id.
        token: of the attempt that won.
        digest: of the records in offset order; see ``RecordDigest``.
        size: stored bytes of the split.
        bytes_read, requests: what reading it took.
        attempt: number of the attempt at the task that had the split, 0 for the first.
        notes: what was noticed.
        lost: offsets whose segment vanished before it was read, where the job goes on without them.
        damaged: offsets that damaged batches had, where the job goes on without them.
        undecodable: keys and values that are not what their schemas say, where the job goes on without them.
        plan: name of the plan that it was written for; nothing where that was not told.
        sources: records by where they came from, ``store``, ``location`` and ``broker``; nothing where brokers were not
            asked, for then all came from the store.
    """

    split: str
    topic: str
    partition: int
    start: int
    stop: int
    token: str
    records: int
    files: tuple[WrittenFile, ...]
    digest: str
    control_batches: int
    control_records: int
    aborted_batches: int
    aborted_records: int
    size: int
    bytes_read: int
    requests: int
    seconds: float
    attempt: int
    kernel: str
    notes: tuple[str, ...] = ()
    lost: tuple[LostOffsets, ...] = ()
    damaged: tuple[LostOffsets, ...] = ()
    undecodable: int = 0
    plan: str = ""
    sources: Mapping[str, int] = field(default_factory=dict)

    @property
    def holes(self) -> int:
        """How many of its offsets have no record."""
        lost = sum(one.stop - one.start for one in (*self.lost, *self.damaged))
        return self.stop - self.start - self.records - self.control_records - self.aborted_records - lost

    @property
    def written_bytes(self) -> int:
        """Of its files."""
        return sum(file.size for file in self.files)

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> DoneEntry:
        """The entry that ``to_json`` wrote; ``msgspec.ValidationError`` for anything else."""
        return msgspec.convert(document, cls)

    def to_json(self) -> dict[str, Any]:
        """For ``json.dumps``."""
        return asdict(self) | {"holes": self.holes}

    def to_bytes(self) -> bytes:
        """The object that is put into the target."""
        return json.dumps(self.to_json(), separators=(",", ":"), sort_keys=True).encode()


def parse_done(data: bytes | str, source: str) -> DoneEntry:
    """The entry that ``to_bytes`` made.

    Raises:
        ManifestError: it is something else.
    """
    return parsed(data, source, DoneEntry.from_json)


def read_done(target: TargetStore, split_id: str) -> DoneEntry | None:
    """The entry of a split; ``None`` if it is not done.

    Raises:
        ManifestError: there is one, but not of this split.
    """
    name = done_name(split_id)
    try:
        data = target.read(name)
    except ObjectNotFoundError:
        return None
    entry = parse_done(data, target.url(name))
    if entry.split != split_id:
        raise ManifestError(
            "a done entry is of another split", source=target.url(name), found=entry.split, expected=split_id
        )
    return entry


def parsed(data: bytes | str, source: str, make: Callable[[Any], _T]) -> _T:
    """What ``make`` makes of a JSON document; whatever it cannot take is a ``ManifestError``."""
    try:
        return make(json.loads(data))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, msgspec.ValidationError) as error:
        raise ManifestError(
            f"this file of a job cannot be read: {type(error).__name__}",
            source=source,
            found=str(error)[:200],
            hint="Write to another directory, or begin anew with --force",
        ) from error
