"""Turns a location, as people write it, into a store and the prefix of its objects.

A location is a directory in the widest sense: ``/data/kafka``, ``file:…``, ``s3://bucket/prefix``,
``abfss://container@account.dfs.core.windows.net/prefix``, ``gs://bucket/prefix``, or any URL that fsspec knows. The
store begins above the location and the prefix names it, so that names keep the last directory: it may name a topic.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from segreader.errors import ObjectNotFoundError, OptionError, PlanError
from segreader.storage.base import ObjectStore
from segreader.storage.local import LocalStore
from segreader.storage.metrics import StorageMetrics
from segreader.storage.options import Kind, StorageOptions, find_storage_options, kind_of, revealed
from segreader.storage.signed_url import redact

if TYPE_CHECKING:
    from segreader.storage.http.settings import HttpSettings


def open_store(
    location: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, object] | StorageOptions | None = None,
    settings: HttpSettings | None = None,
    metrics: StorageMetrics | None = None,
) -> tuple[ObjectStore, str]:
    """The store of a location, and the prefix of its objects' names.

    Args:
        location: a directory, or the URL of one.
        storage_options: those of ``StorageOptions``; what is not given is looked for in the environment and in files.
            For a URL that only fsspec knows, the arguments of its filesystem.
        settings: how ranges are requested over HTTP.
        metrics: where requests are counted.

    Raises:
        ObjectNotFoundError: there is no such directory; a missing bucket shows only when it is listed.
        OptionError: an option or the kind of the location is not known, or what reads it is not installed.
        PlanError: it is a file.
    """
    text = os.fspath(location)
    kind = kind_of(text)
    if kind is Kind.HTTP:
        raise OptionError(
            "an http location is one object, not a directory",
            found=redact(text),
            hint="Give signed URLs as a list: urls=[…], or @file on the command line",
        )
    if kind is Kind.OTHER:
        from segreader.storage.cloud.buckets import open_fsspec

        given = {} if isinstance(storage_options, StorageOptions) else revealed(storage_options or {})
        return open_fsspec(text, given, settings)
    options = find_storage_options(text, storage_options)
    if kind is Kind.LOCAL:
        return _open_directory(text)
    from segreader.storage.cloud.buckets import open_bucket

    return open_bucket(kind, text.partition("://")[2], options, settings, metrics)


def _open_directory(text: str) -> tuple[ObjectStore, str]:
    _, is_url, rest = text.partition("://")
    name = rest.removeprefix("localhost") if is_url else text.removeprefix("file:")
    if not name:
        raise OptionError("the location is empty", found=repr(text), hint="Write . for this directory")
    path = Path(name).absolute()
    if path.is_file():
        raise PlanError(
            "a location is a directory",
            source=redact(str(path)),
            found="a file",
            hint="Give the directory that contains it, or look at the file with segreader dump",
        )
    if not path.is_dir():
        raise ObjectNotFoundError(
            "no such directory", source=redact(str(path)), hint="Give a directory that holds segments, or one above it"
        )
    # The directory's name may contain the partition; if it is only a number, the one above names the topic.
    above = path.parent.parent if path.name.isdecimal() else path.parent
    return LocalStore(above), f"{path.relative_to(above).as_posix()}/" if path.name else ""
