"""Places to write objects to: no reader ever sees half of one.

Of two writers of one name, ``put_if_absent`` lets one win; every commit of a job rests on it. Nothing of jobs here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import BinaryIO, Protocol

from segreader.errors import OptionError, PlanError
from segreader.storage.base import ObjectInfo
from segreader.storage.options import Kind, StorageOptions, find_storage_options, kind_of
from segreader.storage.signed_url import redact
from segreader.storage.target.local import LocalTarget


class TargetStore(Protocol):
    """Named objects below one location, to be written. May be shared by threads; is not pickled, its location is.

    A name is one or more parts with ``/`` between them, relative to the location. Every method raises
    ``AccessDeniedError`` where the store refuses, and ``PlanError`` for what is no name.
    """

    has_atomic_move: bool
    """Whether ``move`` is supported, and no reader ever sees both names, or neither."""

    def url(self, name: str) -> str:
        """The object's name for people: never with a credential or a query string."""

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """Write a small object, if there is none of that name; whether what is there now holds our bytes.

        Of any number of writers of different bytes, on any machines, one gets ``True``. Equal bytes are ours: whether
        an answer was lost, or an earlier run wrote them. Writers that must be distinguished write different bytes.

        Raises:
            StorageError: the store does not keep such a condition; or the outcome is unknown and the object may still
                appear, so what it would name must not be deleted.
        """

    def put(self, name: str, data: bytes) -> None:
        """Write a small object at once; one that is there is replaced."""

    def read(self, name: str) -> bytes:
        """All bytes of an object.

        Raises:
            ObjectNotFoundError: there is none of that name.
        """

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Every finished object whose name begins with ``prefix``, in order of name; nothing where nothing is yet."""

    def create(self, name: str) -> AbstractContextManager[BinaryIO]:
        """A file for the bytes of an object of any size; the object is there once the block has ended.

        Nothing is seen of it before, nor after the block raised or the process died. One of that name is replaced.
        Bytes leave as they are written; a block's worth of them is held. Closing the file does not end the object.
        """

    def move(self, source: str, target: str) -> None:
        """Give an object another name; done already if only ``target`` is there.

        Raises:
            ObjectNotFoundError: neither is there.
            StorageError: the store has no atomic move.
        """

    def delete(self, names: Iterable[str]) -> None:
        """Remove objects; one that is not there is removed already."""

    def forget_unfinished(self, is_left: Callable[[str], bool]) -> int:
        """Remove what killed writers have left of objects; returns how many pieces there were.

        A writer that is still at work on such an object fails. Where a store does not list unfinished uploads, nothing
        is removed: Azure and Google forget them after a week.

        Args:
            is_left: whether no writer will finish an object of that name any more.
        """

    def prune(self, directory: str) -> None:
        """Remove a directory and those in it, as far as they are empty; a bucket has none."""

    def close(self) -> None:
        """Give back connections; the target cannot be used afterwards."""


def open_target(
    location: str | os.PathLike[str], storage_options: Mapping[str, object] | StorageOptions | None = None
) -> TargetStore:
    """The target at a location; no request is sent and nothing is made there before it is used.

    Args:
        location: a directory, which may not be there yet, or a URL: ``s3://bucket/prefix``, ``gs://…``, ``abfss://…``.
        storage_options: those of ``StorageOptions``; what is not given is looked for in the environment and in files.

    Raises:
        OptionError: an option or the kind of the location is not known, or what writes it is not installed.
        PlanError: it is a file, or below one.
    """
    text = os.fspath(location)
    kind = kind_of(text)
    if kind in (Kind.HTTP, Kind.OTHER):
        raise OptionError(
            "nothing can be written to this kind of location",
            found=redact(text),
            expected="a directory, s3://, gs:// or abfss://",
            hint="Give a place whose store can say which of two writers was first",
        )
    options = find_storage_options(text, storage_options)
    if kind is Kind.LOCAL:
        return LocalTarget(_directory(text))
    from segreader.storage.cloud.buckets import find_bucket  # a directory does without these
    from segreader.storage.target.bucket import BucketTarget
    from segreader.storage.target.clouds import writable_bucket

    place = find_bucket(kind, text.partition("://")[2], options)
    return BucketTarget(writable_bucket(kind, place.filesystem, place.bucket), place.prefix)


def _directory(text: str) -> str:
    _, is_url, rest = text.partition("://")
    path = os.path.abspath(rest.removeprefix("localhost") if is_url else text.removeprefix("file:"))
    above = path
    while not os.path.exists(above) and (parent := os.path.dirname(above)) != above:
        above = parent
    if os.path.exists(above) and not os.path.isdir(above):
        found = "a file" if above == path else f"a file at {redact(above)}"
        raise PlanError("a target is a directory", source=redact(path), found=found, hint="Give another directory")
    return path
