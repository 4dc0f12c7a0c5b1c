"""Reads the leader-epoch checkpoints of segments: of those that a listing proves to be equal, one."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from segreader.errors import FormatError, ObjectNotFoundError
from segreader.format.checkpoints import LeaderEpochs, parse_leader_epochs
from segreader.segment import Segment
from segreader.storage.base import ObjectStore, read_each, read_whole

_DIGEST: Final = re.compile(r"etag:([0-9a-f]{32})")
"""S3's ETag of an object that was put at once: the MD5 of its bytes, unless it is encrypted with a key of its own."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What was read.

    Args:
        epochs: ``None`` if it is not there or damaged.
        note: what is wrong with it.
        is_proven: its bytes have the digest that the listing gives.
    """

    epochs: LeaderEpochs | None = None
    note: str | None = None
    is_proven: bool = False


def digest_of(segment: Segment) -> str | None:
    """The digest of a segment's checkpoint if its tag has the form of one: equal ones mean equal bytes, once proven."""
    tag = segment.files.epochs_tag
    found = None if tag is None else _DIGEST.fullmatch(tag)
    return None if found is None else found[1]


def read_checkpoints(store: ObjectStore, segments: Iterable[Segment]) -> dict[str, Checkpoint]:
    """The checkpoints of these segments, by name; those that have none are left out."""
    sizes: dict[str, int | None] = {}
    digests: dict[str, str | None] = {}
    firsts: dict[str, str] = {}
    for segment in segments:
        if (name := segment.files.leader_epochs) is not None and name not in sizes:
            sizes[name] = segment.files.sizes.get(name)
            digests[name] = digest = digest_of(segment)
            firsts.setdefault(digest or name, name)

    def read(name: str) -> Checkpoint:
        return _read(store, name, sizes[name], digests[name])

    answers = dict(zip(firsts.values(), read_each(read, list(firsts.values())), strict=True))
    proven = {key: answers[name] for key, name in firsts.items() if answers[name].is_proven and answers[name].epochs}
    others = [name for name, digest in digests.items() if name not in answers and digest not in proven]
    answers |= zip(others, read_each(read, others), strict=True)
    return {name: answers.get(name) or proven[digest or name] for name, digest in digests.items()}


def read_checkpoint(store: ObjectStore, name: str, size: int | None = None) -> Checkpoint:
    """One checkpoint."""
    return _read(store, name, size, None)


def _md5(data: bytes) -> str:
    import hashlib

    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def _read(store: ObjectStore, name: str, size: int | None, digest: str | None) -> Checkpoint:
    try:
        data = read_whole(store, name, size)
        is_proven = digest is not None and _md5(data) == digest
        return Checkpoint(parse_leader_epochs(data), None, is_proven)
    except ObjectNotFoundError:
        return Checkpoint()
    except FormatError as error:
        return Checkpoint(None, f"{error.located(source=store.url(name))}; read without it")
