"""The reader's schema of a topic, fixed when a read is planned: one type for keys or values of every writer."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from segreader.errors import OptionError, SchemaNotFoundError
from segreader.typed.decoding import Decoding, SchemaSource, Side, Undecodable
from segreader.typed.schema import Schema, SchemaFormat, SchemaSet
from segreader.typed.types import Type

Schemas = SchemaSource | SchemaSet | str | os.PathLike[str]
"""Where schemas come from, as users say it: a source, what was learnt, or the URL or path of either."""

SchemaVersion = int | str | None
"""Which version of a subject is the reader's schema: its number, ``latest``, or ``None`` for what all of them give."""


def plan_decoding(
    given: Schemas | Decoding,
    side: Side,
    topic: str | None,
    *,
    version: SchemaVersion = None,
    on_undecodable: str | None = None,
    paths: tuple[str, ...] = ("",),
) -> Decoding:
    """How the keys or values of a topic are decoded. Schemas are learnt here; reading asks for no more.

    Args:
        given: of a decoding that was planned before, schemas and type are kept, and all else that is not given here.
        topic: its name; ``None`` where a read has several.
        version: whose schema is the reader's. By default the union of all that the topic's subject has.
        on_undecodable: ``fail`` (the default), ``null`` or ``keep``.
        paths: the fields to decode, with dots between; the empty path is everything.

    Raises:
        OptionError: there is no schema for the topic, its schemas do not agree, or have no such field.
        SchemaRegistryError: a registry cannot be asked.
    """
    policy = Undecodable.parse(on_undecodable or Undecodable.FAIL)
    if isinstance(given, Decoding):
        if given.side is not side:
            raise OptionError("schemas of keys are not those of values", found=given.side.value, expected=side.value)
        policy = policy if on_undecodable else given.on_undecodable
        paths = given.paths if paths == ("",) else paths
        if version is None:
            return replace(given, on_undecodable=policy, paths=paths)
        given = given.schemas
    known = learn(given, topic, side.value)
    writers = _writers(known, side, topic)
    types = [type_of(one, known.message) for one in _chosen(known, writers, side, topic, version)]
    from segreader.typed.merge import merge_types

    whole = types[0] if len(types) == 1 else merge_types(types)
    return Decoding(side=side, schemas=known, type=whole, paths=paths, on_undecodable=policy)


def learn(given: Schemas, topic: str | None, name: str = "schemas") -> SchemaSet:
    """The schemas of a topic, from whatever they were given as; raises as ``plan_decoding``.

    Args:
        name: the argument, for the message.
    """
    if isinstance(given, SchemaSet):
        return given
    if isinstance(given, str | os.PathLike):
        from segreader.typed.sources import open_schemas

        return open_schemas(given).learn(topic)
    if isinstance(given, type) or not callable(getattr(given, "learn", None)):
        expected = "a source of segreader.schemas, a URL or a path"
        raise OptionError(f"{name} is not a source of schemas", found=type(given).__name__, expected=expected)
    found: object = given.learn(topic)
    if not isinstance(found, SchemaSet):
        raise OptionError(f"{name}: its learn() gives no SchemaSet", found=type(found).__name__)
    return found


def learn_sides(given: Schemas, topic: str | None) -> dict[str, SchemaSet]:
    """The schemas of a topic for each side that has some: for values, and for keys if they have a subject."""
    known = learn(given, topic)
    has_keys = any(name == f"{topic}-{Side.KEY}" for name, _ in known.subjects)
    return {side.value: known for side in Side if has_keys or side is Side.VALUE}


def learn_subjects(given: Schemas, topic: str) -> dict[str, SchemaSet]:
    """The same for schemas that were said of many topics: without a side of which this topic has no subject."""
    try:
        known = learn(given, topic)
    except SchemaNotFoundError:
        return {}
    if known.bare is not None and not known.ids:
        return {Side.VALUE.value: known}
    names = {name for name, _ in known.subjects}
    return {side.value: known for side in Side if f"{topic}-{side}" in names}


def with_message(given: Schemas, topic: str | None, message: str, version: SchemaVersion = None) -> SchemaSet:
    """The schemas of a topic whose values are another message than the first one of its file; raises as ``learn``.

    Raises:
        OptionError: they are not Protobuf.
    """
    known = learn(given, topic)
    form = _chosen(known, _writers(known, Side.VALUE, topic), Side.VALUE, topic, version)[-1].format
    if form is not SchemaFormat.PROTOBUF:
        raise OptionError("--message is of values with Protobuf schemas", found=form.value, hint="Leave it out")
    return replace(known, message=message)


def type_of(schema: Schema, message: str | None = None) -> Type:
    """The type of the values that a schema describes.

    Args:
        message: of a Protobuf schema: the full name of the message; its first one by default.

    Raises:
        OptionError: the schema is invalid, or has what no column can hold.
    """
    if schema.format is SchemaFormat.AVRO:
        from segreader.typed.formats import avro

        return avro.type_of(schema)
    if schema.format is SchemaFormat.PROTOBUF:
        from segreader.typed.formats import protobuf

        return protobuf.type_of(schema, message)
    from segreader.typed.formats import json_schema

    return json_schema.type_of(schema)


def _writers(known: SchemaSet, side: Side, topic: str | None) -> dict[int, str]:
    """The ids of the subject of this side by version, oldest first; empty where no subject is known."""
    other = Side.KEY if side is Side.VALUE else Side.VALUE
    subjects = dict(known.subjects)
    if versions := subjects.get(f"{topic}-{side}"):
        return {one.version: str(one.id) for one in versions}
    rest = [versions for name, versions in subjects.items() if not name.endswith((f"-{other}", f"-{side}"))]
    if len(rest) == 1:
        return {one.version: str(one.id) for one in rest[0]}
    return {}


def _chosen(
    known: SchemaSet, writers: dict[int, str], side: Side, topic: str | None, version: SchemaVersion
) -> Sequence[Schema]:
    """The schemas whose union is the reader's, newest last."""
    if known.bare is not None and not known.ids:
        return [known.bare]
    if version is not None:
        wanted = max(writers, default=0) if version == "latest" else version
        if wanted not in writers:
            raise OptionError(
                f"the {side}s of {topic} have no such version of their schema",
                found=version,
                expected=", ".join(map(str, writers)) or "none: no versions are known here",
            )
        return [_schema(known, writers[wanted])]
    found = [_schema(known, id) for id in writers.values()] or [schema for _, schema in known.ids]
    if not found:
        raise OptionError(
            f"no schema for the {side}s of {topic or 'these topics'}",
            hint="'segreader schemas ls' shows which ids occur; name a file that has them, or a registry",
        )
    if len({one.format for one in found}) > 1:
        formats = ", ".join(sorted({one.format.value for one in found}))
        if topic is not None and not writers:
            raise OptionError(
                f"no subject {topic}-{side} among the schemas, and the others have several formats",
                found=formats,
                hint="'segreader schemas ls' shows which ids occur; leave the schemas out if there are none",
            )
        raise OptionError(
            f"the {side}s of {topic or 'these topics'} have schemas of several formats",
            found=formats,
            hint="Choose one with schema_version, or give only the schemas of one format",
        )
    return list(dict.fromkeys(found))


def _schema(known: SchemaSet, id: str) -> Schema:
    schema = known.schema(id)
    if schema is None:
        raise OptionError(f"a version names schema id {id}, which is not among the schemas", hint="Pull them again")
    return schema
