"""From ``done`` entries to a complete output: the proof, the move to the final names, the manifest, ``_SUCCESS``.

Every step can be repeated, and by two drivers at once: each leaves what the other one would.
"""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from segreader.backfill.done import DoneEntry, parsed, read_done
from segreader.backfill.job_plan import JobPlan
from segreader.backfill.output import STAGING, SUCCESS, done_name, manifest_name, plan_name, split_of_file
from segreader.backfill.report import Completeness, complete, totals
from segreader.errors import ObjectNotFoundError, StorageError
from segreader.storage.base import read_each
from segreader.storage.target.store import TargetStore
from segreader.values import dataclass

Entries = Mapping[str, DoneEntry]
"""Done entries by the id of their split."""

_VERSION: Final = 1
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Manifest:
    """The manifest of an output: the only valid list of its files.

    Args:
        plan: SHA-256 of the plan.
        entries: one for each split of the plan.
        is_in_place: tasks wrote files under their final names, so that there may be some that no entry names; otherwise
            they were moved there.
    """

    plan: str
    entries: tuple[DoneEntry, ...]
    is_in_place: bool
    document: dict[str, Any]


def collect(target: TargetStore, plan: JobPlan) -> dict[str, DoneEntry]:
    """The entries of all splits that are done.

    Raises:
        ManifestError: an entry is damaged.
    """
    found = read_each(lambda split: read_done(target, split.id), plan.splits)
    return {entry.split: entry for entry in found if entry is not None}


def commit(target: TargetStore, plan: JobPlan, entries: Entries, *, cleans: bool = True) -> Completeness:
    """Complete the output, or report what it lacks.

    Args:
        entries: of the splits that are done.
        cleans: whether what no entry names is removed, of attempts that were killed or lost: files, and what of them
            was never finished.

    Raises:
        StorageError: the target fails.
    """
    found = complete(plan, entries)
    if not found.is_complete:
        return found
    if target.has_atomic_move:
        _move(target, entries)
    sizes = {info.name: info.size for info in target.list() if split_of_file(info.name) is not None}
    found = complete(plan, entries, sizes)
    if not found.is_complete:
        return found
    if not put_manifest(target, plan, entries, found):
        there = read_manifest(target, plan.round)
        if there is None or not _says(there, plan, entries):
            name = manifest_name(plan.round)
            text = f"{name} is that of a job that was replaced and still ran; end it, and begin anew with --force"
            return replace(found, findings=(text,))
    if cleans:
        target.delete(orphans(sizes, entries))
        forget_unfinished(target, plan.round, entries)
        target.prune(STAGING)
    target.put_if_absent(SUCCESS, b"")  # last: it says that nothing is left to do
    return found


def _says(manifest: Manifest, plan: JobPlan, entries: Entries) -> bool:
    """Whether a manifest, by whomever it was written, lists the files of these entries."""
    tokens = {entry.split: entry.token for entry in manifest.entries}
    return manifest.plan == plan.sha256 and tokens == {entry.split: entry.token for entry in entries.values()}


def orphans(sizes: Mapping[str, int], entries: Entries) -> list[str]:
    """Files of ours whose split is done without them.

    Args:
        sizes: the files that are there.
    """
    listed = {file.name for entry in entries.values() for file in entry.files}
    return [name for name in sizes if name not in listed and split_of_file(name) in entries]


def forget_unfinished(target: TargetStore, number: int, entries: Entries) -> None:
    """Remove what killed writers left in the target of a complete job.

    Another driver or attempt may be at one of them; that it is too late is all that it learns.
    """
    names = {plan_name(number), manifest_name(number), SUCCESS, *(done_name(split_id) for split_id in entries)}
    try:
        target.forget_unfinished(lambda name: name in names or split_of_file(name) in entries)
    except StorageError as error:  # the output is complete without it
        _log.warning("what killed writers may have left cannot be looked for: %s", error)


def read_manifest(target: TargetStore, number: int = 1) -> Manifest | None:
    """The manifest of a round of an output; ``None`` where there is none.

    Raises:
        ManifestError: it cannot be read.
    """
    name = manifest_name(number)
    try:
        data = target.read(name)
    except ObjectNotFoundError:
        return None
    return parsed(data, target.url(name), _from_json)


def _from_json(document: dict[str, Any]) -> Manifest:
    if document["version"] != _VERSION:
        raise ValueError(document["version"])
    entries = tuple(DoneEntry.from_json(one) for one in document["splits"])
    return Manifest(document["plan"], entries, document["is_in_place"], document)


def _move(target: TargetStore, entries: Entries) -> None:
    staged = {info.name.removeprefix(STAGING) for info in target.list(STAGING)}
    names = [file.name for entry in entries.values() for file in entry.files if file.name in staged]
    read_each(lambda name: target.move(STAGING + name, name), names)


def put_manifest(target: TargetStore, plan: JobPlan, entries: Entries, found: Completeness) -> bool:
    """Write the manifest of a round; whether what is there now is this one."""
    by_partition: dict[tuple[str, int], list[str]] = defaultdict(list)
    for split in plan.splits:
        entry = entries[split.id]
        by_partition[entry.topic, entry.partition] += [file.name for file in entry.files]
    document = {
        "version": _VERSION,
        "plan": plan.sha256,
        "wanted": dict(plan.wanted),
        "location": plan.location,
        "isolation": plan.isolation,
        "is_in_place": not plan.output.staging(target.has_atomic_move),
        "columns": {field.name: str(field.type) for field in plan.output.schema},
        **found.to_json(),
        "totals": totals(entries.values()),
        "files": {f"{topic}-{partition}": names for (topic, partition), names in by_partition.items()},
        "splits": [entries[split.id].to_json() for split in plan.splits],
    }
    return target.put_if_absent(manifest_name(plan.round), json.dumps(document, separators=(",", ":")).encode())
