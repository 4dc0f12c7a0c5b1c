"""Opens buckets: makes the filesystem of fsspec that lists one, and the store that reads it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import field, replace
from typing import Any

from segreader.errors import OptionError, install_hint
from segreader.storage.base import ObjectStore
from segreader.storage.cloud.failure import translated
from segreader.storage.cloud.fsspec_store import PIECE_SIZE, FsspecStore
from segreader.storage.cloud.signing import AzureContainer, Bucket, BucketStore, GoogleBucket, S3Bucket, s3_session
from segreader.storage.http.settings import HttpSettings
from segreader.storage.metrics import StorageMetrics
from segreader.storage.options import Kind, StorageOptions, for_adlfs, for_gcsfs, for_s3fs
from segreader.storage.signed_url import redact
from segreader.values import dataclass

_AZURE_HOST = re.compile(r"([a-z0-9-]+)\.(?:dfs|blob)\.core\.[a-z.]+", re.IGNORECASE)
_ENDPOINT_VARIABLES = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3")


@dataclass(frozen=True, slots=True)
class BucketPlace:
    """A prefix in a bucket, and the fsspec filesystem that was made for it; it holds credentials.

    Args:
        base: how the bucket is shown: ``s3://bucket/``.
        prefix: nothing, or text with ``/`` at its end.
    """

    kind: Kind
    filesystem: Any = field(repr=False)
    base: str
    bucket: str
    prefix: str


def find_bucket(kind: Kind, place: str, options: StorageOptions) -> BucketPlace:
    """The bucket that a location names, with its client.

    Args:
        kind: one of the clouds.
        place: the location without its scheme.
        options: those of the location, from all sources.

    Raises:
        OptionError: there is no such bucket by its name, or what reads it is not installed.
    """
    bucket, _, key = place.partition("/")
    if kind is Kind.AZURE:
        bucket, key, options = _azure_place(bucket, key, options)
    scheme = _CLOUDS[kind].scheme
    if not bucket or "@" in bucket or ":" in bucket:
        raise OptionError(
            "not the name of a bucket",
            found=redact(f"{scheme}://{place}"),
            expected=f"{scheme}://bucket/prefix",
            hint="Credentials and endpoints are storage options, not parts of the location",
        )
    base = f"{scheme}://{bucket}/"
    try:
        with translated(base):
            filesystem = _CLOUDS[kind].make(options)
    except ImportError:
        raise OptionError(f"{scheme}:// needs a package that is not installed", hint=install_hint(kind.value)) from None
    return BucketPlace(kind, filesystem, base, bucket, f"{key.strip('/')}/" if key.strip("/") else "")


def open_bucket(
    kind: Kind,
    place: str,
    options: StorageOptions,
    settings: HttpSettings | None,
    metrics: StorageMetrics | None,
) -> tuple[ObjectStore, str]:
    """The store of a bucket, and the prefix of its objects' names; arguments as ``find_bucket`` and ``open_store``."""
    found = find_bucket(kind, place, options)
    settings = (settings or HttpSettings()).with_options(options)
    signer = _CLOUDS[kind].sign(found.filesystem, found.bucket)
    if signer is None:
        return _fsspec_store(found.filesystem, found.base, f"{found.bucket}/", settings), found.prefix
    return BucketStore(signer, settings=settings, metrics=metrics), found.prefix


def _azure_place(authority: str, key: str, options: StorageOptions) -> tuple[str, str, StorageOptions]:
    """Container and key of ``container@account.dfs.core.windows.net/key`` or ``container/key``."""
    container, at, host = authority.rpartition("@")
    if not at:
        container, host = host, ""
    if match := _AZURE_HOST.fullmatch(host or container):
        if options.account_name is None and options.connection_string is None:
            options = replace(options, account_name=match[1])
        if not host:
            container, _, key = key.partition("/")
    elif host:
        raise OptionError(
            "not the host of an Azure storage account", found=redact(host), expected="account.dfs.core.windows.net"
        )
    return container, key, options


def _make_s3(options: StorageOptions) -> Any:
    from s3fs import S3FileSystem

    arguments = for_s3fs(options)
    config = {"signature_version": "s3v4", **arguments.pop("config_kwargs", {})}
    if "s3" not in config and not _has_endpoint_or_style(options):
        # Else URLs are signed for the host of all regions, which sends elsewhere while a bucket is new.
        config["s3"] = {"addressing_style": "virtual"}
    # The bucket's region is looked up where none is given: a URL that is signed for another one does not work.
    session = s3_session(options.profile)
    return S3FileSystem(**_OUR_OWN, **arguments, session=session, config_kwargs=config, cache_regions=True)


def _has_endpoint_or_style(options: StorageOptions) -> bool:
    """Whether the endpoint, or the bucket's place in a URL, is configured: in options, variables or AWS's files."""
    from botocore.exceptions import ProfileNotFound
    from botocore.session import Session

    if options.endpoint_url is not None or any(os.environ.get(name) for name in _ENDPOINT_VARIABLES):
        return True
    try:
        profile = Session(profile=options.profile).get_scoped_config()
    except ProfileNotFound:
        return False
    of_s3 = profile.get("s3")
    has_style = isinstance(of_s3, dict) and "addressing_style" in of_s3
    return has_style or "endpoint_url" in profile or "services" in profile


def _make_azure(options: StorageOptions) -> Any:
    from adlfs import AzureBlobFileSystem

    return AzureBlobFileSystem(**_OUR_OWN, **for_adlfs(options))


def _make_google(options: StorageOptions) -> Any:
    from gcsfs.core import GCSFileSystem  # not the package's: that one asks for each bucket's kind over gRPC

    return GCSFileSystem(**_OUR_OWN, **for_gcsfs(options))


@dataclass(frozen=True, slots=True)
class _Cloud:
    """How a bucket of one cloud is opened. ``sign`` gives ``None`` where the credentials cannot sign a URL here."""

    scheme: str
    make: Callable[[StorageOptions], Any]
    sign: Callable[[Any, str], Bucket | None]


_OUR_OWN: dict[str, Any] = {"skip_instance_cache": True, "use_listings_cache": False}
"""A filesystem of our own: fsspec keeps its instances, and their secrets, as long as the process lives."""

_CLOUDS = {
    Kind.S3: _Cloud("s3", _make_s3, S3Bucket),
    Kind.AZURE: _Cloud("abfs", _make_azure, AzureContainer.of),
    Kind.GCS: _Cloud("gs", _make_google, GoogleBucket.of),
}


_CLUSTERS = "Brokers are not a store: segreader.scan, cat, plan, offsets and broker read from a cluster"


def open_fsspec(text: str, arguments: dict[str, object], settings: HttpSettings | None) -> tuple[ObjectStore, str]:
    """The store of a URL that only fsspec knows, and the prefix of its objects' names.

    Args:
        arguments: of its filesystem.
    """
    from fsspec.core import url_to_fs
    from fsspec.registry import get_filesystem_class

    scheme = re.split("::|://", text, maxsplit=1)[0]
    try:
        get_filesystem_class(scheme)
    except (ValueError, ImportError) as error:
        raise OptionError(
            "this kind of location is not known here",
            found=redact(text),
            expected="a directory, s3://, abfss://, gs://, or another URL that fsspec reads",
            hint=_CLUSTERS if scheme.lower() == "kafka" else redact(str(error)),
        ) from None
    with translated(redact(text)):
        filesystem, path = url_to_fs(text, skip_instance_cache=True, **arguments)
    root = "/" if str(path).startswith("/") else ""
    prefix = str(path).strip("/")
    shown = text.rstrip("/")
    is_at_end = prefix and shown.endswith(prefix)
    base = shown.removesuffix(prefix) if is_at_end else f"{scheme}://"
    return _fsspec_store(filesystem, base, root, settings or HttpSettings()), f"{prefix}/" if prefix else ""


def _fsspec_store(filesystem: Any, base: str, root: str, settings: HttpSettings) -> FsspecStore:
    return FsspecStore(
        filesystem, base, root=root, piece_size=min(settings.range_size, PIECE_SIZE), in_flight=settings.in_flight
    )
