"""Where a scan reads: a location, or a list of signed URLs. Either is a store and a way to find segments in it."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from segreader.catalog.listing import PartitionLog, choose_partitions, list_partitions
from segreader.catalog.loose import find_listed_segments
from segreader.errors import OptionError, UnknownLayoutError
from segreader.storage.base import ObjectStore
from segreader.storage.location import open_store

_PLAIN = ("http://", "https://")


class Source(Protocol):
    """A store, what people call it, and the partitions in it."""

    store: ObjectStore
    shown: str

    def partitions(
        self, *, topic: str | None, topic_id: str | None, partitions: Collection[int] | None
    ) -> list[PartitionLog]:
        """As ``catalog.listing.list_partitions``."""


class LocationSource:
    """A directory, bucket or prefix; its layout tells what is in it."""

    def __init__(self, location: str, storage_options: Mapping[str, object] | None) -> None:
        self.store, self.prefix = open_store(location, storage_options=storage_options)
        self.shown = self.store.url(self.prefix)

    def partitions(
        self, *, topic: str | None, topic_id: str | None, partitions: Collection[int] | None
    ) -> list[PartitionLog]:
        """By listing."""
        return list_partitions(self.store, self.prefix, topic=topic, topic_id=topic_id, partitions=partitions)


class UrlSource:
    """Objects named by URLs one by one.

    Args:
        urls: of segments and their indexes, in any order.
        is_trusted: whether the user typed them: then the hosts they name are allowed.
        renew: called with an expired URL, gives another one for the same object.
    """

    def __init__(
        self,
        urls: Sequence[str],
        storage_options: Mapping[str, object] | None,
        *,
        is_trusted: bool = False,
        renew: Callable[[str], str] | None = None,
    ) -> None:
        from segreader.storage.http_settings import HttpSettings
        from segreader.storage.option_sources import find_storage_options
        from segreader.storage.options import address_policy
        from segreader.storage.url_list import UrlList, UrlListStore, split_url

        options = find_storage_options("https://", storage_options)
        policy = address_policy(options)
        if is_trusted:
            hosts = {"{0.scheme}://{0.netloc}".format(split_url(url)) for url in urls}
            policy = policy.with_hosts(sorted(host for host in hosts if "@" not in host))
        settings = HttpSettings(ca_file=options.ca_file, verify=options.verify is not False)
        self.store: ObjectStore = UrlListStore(UrlList(urls, renew), settings=replace(settings, policy=policy))
        self.shown = f"{len(urls)} URLs"

    def partitions(
        self, *, topic: str | None, topic_id: str | None, partitions: Collection[int] | None
    ) -> list[PartitionLog]:
        """By the names in the URLs' paths, and by the first batch where a name says nothing."""
        only = next(iter(partitions)) if partitions is not None and len(partitions) == 1 else None
        segments = find_listed_segments(self.store, topic=topic, partition=only)
        if not segments:
            raise UnknownLayoutError(
                "no URL of the list names a segment",
                source=self.shown,
                expected="paths that end in .log, and their indexes in .index, .txnindex and so on",
            )
        return choose_partitions(segments, self.shown, topic=topic, topic_id=topic_id, partitions=partitions)


def open_source(
    location: str | os.PathLike[str] | None,
    *,
    urls: Sequence[str] | None = None,
    renew: Callable[[str], str] | None = None,
    storage_options: Mapping[str, object] | None = None,
) -> LocationSource | UrlSource:
    """The source that a location or a list of URLs names.

    Raises:
        OptionError: neither or both are given, or a storage option is wrong.
        ObjectNotFoundError: the directory is not there.
    """
    if (location is None) == (urls is None):
        raise OptionError("say where to read: a location, or urls=[…]", hint="Give one of the two")
    if urls is not None:
        return UrlSource(urls, storage_options, renew=renew)
    text = os.fspath(location) if location is not None else ""
    if text.lower().startswith(_PLAIN):
        return UrlSource([text], storage_options, is_trusted=True, renew=renew)
    return LocationSource(text, storage_options)
