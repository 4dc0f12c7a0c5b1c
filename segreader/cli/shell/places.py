"""The topics at one place, as tables by their names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import fields
from typing import Any

from segreader.cli.options import find_place, parse_location
from segreader.cli.sql_topics import TopicsAt
from segreader.errors import OptionError
from segreader.stored.source import Catalog, LocationSource, UrlSource, open_source


def topics_at(
    location: str | None,
    storage_options: Mapping[str, object],
    broker_options: Mapping[str, object],
    catalog: Catalog,
    bootstrap_servers: str | None = None,
    schemas: str | None = None,
) -> TopicsAt:
    """The topics of a directory, a bucket, a list of URLs, a cluster, or a place by its name.

    Args:
        location: ``None`` where the catalog or brokers say it.
        schemas: in place of those of the place.

    Raises:
        ObjectNotFoundError: it is neither a place nor a directory, and nearly a place's name.
        OptionError: a topic is named behind the place, or a secret of the place cannot be read.
    """
    place, where, topic = find_place(location)
    given: dict[str, Any] = {one.name: getattr(catalog, one.name) for one in fields(catalog)}
    given |= {"storage_options": dict(storage_options), "bootstrap_servers": bootstrap_servers}
    if place is None:
        text, urls = (None, None) if where is None else parse_location(where)
        arguments = {**given, "location": text, "urls": urls, "broker_options": dict(broker_options)}
    else:
        if topic is not None:
            raise OptionError("a topic behind the place", found=topic, hint=f"Name the place alone: {place.name}")
        arguments = place.arguments({**given, "broker_options": dict(broker_options)})
        schemas = schemas or place.schemas or place.schema_registry
    if not arguments.get("broker_options"):
        arguments.pop("broker_options", None)
    return TopicsAt(arguments, lambda: names_at(arguments), lambda: sizes_at(arguments), schemas)


def names_at(arguments: Mapping[str, Any]) -> Sequence[str]:
    """The names of the topics that arguments of ``segreader.scan`` lead to.

    Raises:
        ObjectNotFoundError: there is no such directory. UnknownLayoutError: nothing there looks like a segment.
    """
    from segreader.live.scan import bootstrap_of

    servers, _ = bootstrap_of(arguments.get("location"), arguments.get("bootstrap_servers"))
    if servers is not None:
        from segreader.live.cluster import KafkaCluster

        with closing(KafkaCluster(servers, arguments.get("broker_options"))) as cluster:
            topics = cluster.metadata(None).topics
        return [one.name for one in topics if one.name is not None and not one.is_internal]
    with _opened(arguments) as source:
        if isinstance(source, LocationSource) and source.catalog.metadata is None:
            return list({place.partition.topic for place in source.places()})
        return list({log.log.partition.topic for log in source.logs()})


def sizes_at(arguments: Mapping[str, Any]) -> Sequence[tuple[str, Mapping[str, Any]]]:
    """The same topics with their partitions, segments and bytes, where these are stored; raises as ``names_at``."""
    from segreader.inspect import read_topics
    from segreader.scans import is_cluster

    if arguments.get("bootstrap_servers") is not None or is_cluster(arguments.get("location")):
        return [(name, {}) for name in sorted(names_at(arguments))]
    with _opened(arguments) as source:
        rows = read_topics(source)
    return [
        (
            row.topic,
            {"topic_id": row.topic_id, "partitions": row.partitions, "segments": row.segments, "size": row.size},
        )
        for row in sorted(rows, key=lambda one: one.topic)
    ]


@contextmanager
def _opened(arguments: Mapping[str, Any]) -> Iterator[LocationSource | UrlSource]:
    """The source that arguments of ``segreader.scan`` name, with its store closed in the end."""
    catalog = Catalog(**{one.name: arguments.get(one.name) for one in fields(Catalog)})
    options = arguments.get("storage_options")
    source = open_source(
        arguments.get("location"), urls=arguments.get("urls"), storage_options=options, catalog=catalog
    )
    with closing(source.store):
        yield source
