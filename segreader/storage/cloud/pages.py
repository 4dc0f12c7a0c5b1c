"""Listings of S3, Azure and Google a page at a time, through the clients that fsspec's filesystems hold.

fsspec's own listings read all pages before they give the first name, and keep them. Here one page is in memory, and the
store narrows by prefix and level.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import unquote_plus

from segreader.errors import StorageError
from segreader.storage.base import ObjectInfo, tag_of

Pages = Iterator[list[ObjectInfo]]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)

_S3_OBJECT: Final = re.compile(
    rb"""(?x) \s*<Contents>\s*
    <Key>([ -%'-;=?-~]+)</Key>\s*
    <LastModified>([0-9]{4}-[0-9-]{5}T[0-9:]{8}(?:\.[0-9]{1,6})?Z)</LastModified>\s*
    <ETag>(?:"|&quot;|&\#34;)? ([0-9A-Za-z+/=_-]*) (?:"|&quot;|&\#34;)?</ETag>\s*
    (?:<ChecksumAlgorithm>[0-9A-Z_]*</ChecksumAlgorithm>\s*|<ChecksumType>[0-9A-Z_]*</ChecksumType>\s*)*
    <Size>([0-9]{1,18})</Size>\s*
    (?: <StorageClass>[A-Z_]*</StorageClass>\s* | <Type>[A-Za-z]*</Type>\s*
    | <Owner>\s*(?:<ID>[^<>&]*</ID>\s*|<DisplayName>[^<>&]*</DisplayName>\s*)*</Owner>\s* )*
    </Contents>"""
)
"""An object as stores list it: in their order, and without what XML could write otherwise."""

_S3_LISTING: Final = re.compile(
    rb"""\s*(?:<\?xml version=["']1\.0["'](?: encoding=["'](?:UTF|utf)-8["'])?\s*\?>\s*)?<ListBucketResult[ >]"""
)


def entries(pages: Pages, guard: Callable[[], AbstractContextManager[None]]) -> Iterator[ObjectInfo]:
    """The entries of all pages, without objects that mark directories, and no directory twice.

    Args:
        pages: of a listing; a directory (of no size) may be in two that follow each other.
        guard: the context in which a page is requested.
    """
    directories: set[str] = set()
    while True:
        with guard():
            page = next(pages, None)
        if page is None:
            return
        seen, directories = directories, set()
        for info in page:
            if info.name.endswith("/"):
                if info.size >= 0 or info.name in seen:
                    continue
                directories.add(info.name)
            yield info


def s3_pages(filesystem: Any, bucket: str, prefix: str, *, is_level: bool = False) -> Pages:
    """Pages of ``ListObjectsV2``: keys in order of their UTF-8 bytes."""
    more: dict[str, str] = {"Delimiter": "/"} if is_level else {}
    while True:
        if (client := getattr(filesystem, "_s3", None)) is not None:
            client.meta.events.register("before-parse.s3.ListObjectsV2", _take_objects, unique_id="segreader-listing")
        taken: list[ObjectInfo] = []
        token = _taken.set(taken)
        try:
            page = filesystem.call_s3("list_objects_v2", Bucket=bucket, Prefix=prefix, **more, **filesystem.req_kw)
        finally:
            _taken.reset(token)
        if taken and page.get("EncodingType") == "url":
            taken = [_unquoted(info) if "%" in info.name or "+" in info.name else info for info in taken]
        yield _in_order(
            [item["Prefix"] for item in page.get("CommonPrefixes", ())],
            taken
            or [
                ObjectInfo(
                    item["Key"],
                    int(item["Size"]),
                    modified_ms(item.get("LastModified")),
                    tag_of("etag", item.get("ETag")),
                )
                for item in page.get("Contents", ())
            ],
        )
        if not page.get("IsTruncated"):
            return
        _go_on(more, "ContinuationToken", page["NextContinuationToken"])


_taken: ContextVar[list[ObjectInfo] | None] = ContextVar("segreader_taken", default=None)


def _take_objects(response_dict: dict[str, Any], **_: object) -> None:
    """Read the objects of a listing before botocore does, which takes 0.1 ms for each.

    The client may be used by others: only in calls of ``s3_pages`` is anything taken out of an answer.
    """
    if (taken := _taken.get()) is None:
        return
    taken.clear()
    body = response_dict.get("body")
    if response_dict.get("status_code") == 200 and isinstance(body, bytes) and (parsed := parse_objects(body)):
        taken += parsed[0]
        response_dict["body"] = parsed[1]


def parse_objects(body: bytes) -> tuple[list[ObjectInfo], bytes] | None:
    """The objects of a ``ListBucketResult``, their names as they are written, and the document without them.

    Returns:
        ``None`` if anything in it is not written as stores write it: entities in names, comments, other encodings. A
        parser of XML has to read it then.
    """
    if not _S3_LISTING.match(body) or b"<!" in body or body.count(b"<?") > 1:
        return None
    rest = _S3_OBJECT.sub(b"", body)
    if b"Contents" in rest:
        return None
    objects = []
    for key, time, etag, size in _S3_OBJECT.findall(body):
        if (time_ms := modified_ms(time.decode())) is None:
            return None
        objects.append(ObjectInfo(key.decode(), int(size), time_ms, tag_of("etag", etag.decode())))
    return objects, rest


def _unquoted(info: ObjectInfo) -> ObjectInfo:
    return replace(info, name=unquote_plus(info.name))


def azure_pages(filesystem: Any, container: str, prefix: str, *, is_level: bool = False) -> Pages:
    """Pages of ``List Blobs``: names in order. Directories of a hierarchical namespace are no objects."""
    from fsspec.asyn import sync

    client = filesystem.service_client.get_container_client(container)
    listing = client.walk_blobs if is_level else client.list_blobs
    pages = listing(name_starts_with=prefix, include=["metadata"]).by_page()

    async def page() -> list[ObjectInfo] | None:
        async for blobs in pages:
            directories, objects = [], []
            async for blob in blobs:
                if not hasattr(blob, "size"):
                    directories.append(blob.name)
                elif (blob.metadata or {}).get("hdi_isfolder") != "true":
                    tag = tag_of("etag", getattr(blob, "etag", None))
                    objects.append(ObjectInfo(blob.name, int(blob.size), modified_ms(blob.last_modified), tag))
            return _in_order(directories, objects)
        return None

    while (found := sync(filesystem.loop, page)) is not None:
        yield found


def google_pages(filesystem: Any, bucket: str, prefix: str, *, is_level: bool = False) -> Pages:
    """Pages of ``objects.list``: names in order of their UTF-8 bytes. Answers to signed URLs have other ETags."""
    more: dict[str, str] = {"delimiter": "/"} if is_level else {}
    while True:
        page = filesystem.call(
            "GET",
            "b/{}/o",
            bucket,
            prefix=prefix,
            fields="prefixes,items(name,size,updated,generation),nextPageToken",
            json_out=True,
            **more,
        )
        yield _in_order(
            page.get("prefixes", ()),
            [
                ObjectInfo(
                    item["name"],
                    int(item["size"]),
                    modified_ms(item.get("updated")),
                    tag_of("generation", item.get("generation")),
                )
                for item in page.get("items", ())
            ],
        )
        if not page.get("nextPageToken"):
            return
        _go_on(more, "pageToken", page["nextPageToken"])


def pages_of(filesystem: Any) -> Callable[..., Pages] | None:
    """What lists the buckets of a filesystem by pages; ``None`` where only fsspec itself lists."""
    for kind in type(filesystem).__mro__:
        if kind.__name__ in _PAGES:
            return _PAGES[kind.__name__]
    return None


def modified_ms(value: object) -> int | None:
    """The time that a listing gives, in one of the forms that clients know; ``None`` where it is none.

    Args:
        value: a ``datetime`` (without a zone: UTC), its ISO text, or seconds since 1970 UTC.
    """
    try:
        if isinstance(value, str):
            value = datetime.fromisoformat(value)
        if isinstance(value, datetime):
            return ((value if value.tzinfo else value.replace(tzinfo=UTC)) - _EPOCH) // _MILLISECOND
        if isinstance(value, int | float):
            return int(value * 1000)
    except (ValueError, OverflowError):
        pass
    return None


def _go_on(request: dict[str, str], key: str, token: str) -> None:
    if token == request.get(key):
        raise StorageError("the store names the same page of a listing again, which so would not end")
    request[key] = token


def _in_order(directories: Any, objects: list[ObjectInfo]) -> list[ObjectInfo]:
    if not directories:
        return objects
    return sorted([*(ObjectInfo(name, -1) for name in directories), *objects], key=lambda info: info.name)


_PAGES: dict[str, Callable[..., Pages]] = {
    "S3FileSystem": s3_pages,
    "AzureBlobFileSystem": azure_pages,
    "GCSFileSystem": google_pages,
}
