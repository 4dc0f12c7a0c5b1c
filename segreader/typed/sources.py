"""Schemas from files, from what was saved, and from whatever a text names."""

from __future__ import annotations

import base64
import json
import os
import re
import uuid
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from segreader.errors import VARIABLES_HINT, ObjectNotFoundError, OptionError
from segreader.typed.decoding import ANY_ID, SchemaSource, Side
from segreader.typed.registry import SchemaRegistry, parse_framing, single_object_id
from segreader.typed.schema import Framing, Reference, Schema, SchemaFormat, SchemaSet
from segreader.values import dataclass

LARGEST_FILE: Final = 16 << 20
"""Bytes of a file of schemas, at most."""

ENVIRONMENT: Final = "SEGREADER_SCHEMA_REGISTRY_"
"""What the variables begin with that hold a registry's secrets and files."""

OF_ENVIRONMENT: Final = ("auth", "token", "ca_file", "certificate_file", "key_file")
"""Their names after that, in lower case."""

FilePath = str | os.PathLike[str]

_DESCRIPTORS: Final = (".desc", ".pb", ".binpb", ".protoset", ".fds")
_NAMED: Final = ("record", "error", "enum", "fixed")
_IMPORT: Final = re.compile(r"""^\s*import\s+(?:public\s+|weak\s+)?["']([^"'\n]+)["']\s*;""", re.MULTILINE)
_COMMENT: Final = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_WELL_KNOWN: Final = "google/protobuf/"


@dataclass(frozen=True, slots=True)
class KnownSchemas:
    """Schemas that are known already: of files, or saved. As a source it asks for nothing.

    Args:
        known: all of them.
        source: the file, as it may be shown.
    """

    known: SchemaSet
    source: str | None = None

    def learn(self, topic: str | None) -> SchemaSet:
        """Those of a topic, and those of no topic in particular; ``None``: all."""
        return self.known if topic is None else narrowed(self.known, topic)


def narrowed(known: SchemaSet, topic: str) -> SchemaSet:
    """What a topic needs of a set: ids that belong to subjects of other topics alone are left out.

    Where no subject is named after the topic, everything is kept.
    """
    names = {topic, *(f"{topic}-{side}" for side in Side)}  # Glue's schemas are named as topics are
    subjects = tuple((name, versions) for name, versions in known.subjects if name in names)
    if not subjects:
        return known
    wanted = {str(one.id) for _, versions in subjects for one in versions}
    others = {str(one.id) for _, versions in known.subjects for one in versions} - wanted
    # GUIDs are of no subject: each goes with the schema that an id names, too.
    kept = {schema for id, schema in known.ids if id in wanted or (id.isdecimal() and id not in others)}
    left_out = {schema for id, schema in known.ids if id in others} - kept
    ids = tuple((id, schema) for id, schema in known.ids if id not in others and schema not in left_out)
    return replace(known, ids=ids, subjects=subjects)


def files(
    schemas: FilePath | Mapping[int | str, FilePath],
    *,
    framing: Framing | str | None = None,
    message: str | None = None,
) -> KnownSchemas:
    """Schemas from files: Avro (``.avsc``), JSON Schema (``.json``), Protobuf (``.proto``, or a descriptor set,
    ``.desc``, which has its imports in it).

    Args:
        schemas: one file, whose schema all values have; or files by the ids that frames name: numbers, GUIDs, ``"*"``
            for any other.
        framing: ``confluent``, ``apicurio``, ``glue``, ``single-object`` or ``bare``. By default ``bare`` for one
            file, whose values have no frame, and ``confluent`` for ids.
        message: full name of the Protobuf message; the file's first one by default.

    Raises:
        ObjectNotFoundError: a file is not there.
        OptionError: it is no schema, or the framing does not go with what is given.
    """
    if isinstance(schemas, Mapping):
        form = parse_framing(framing or Framing.CONFLUENT)
        if form is Framing.BARE:
            raise OptionError("values without a frame name no ids", hint="Give one file in place of files by ids")
        ids = tuple((_id(id), read_schema(path)) for id, path in schemas.items())
        return KnownSchemas(SchemaSet(framing=form, ids=ids, message=message))
    form = parse_framing(framing or Framing.BARE)
    return KnownSchemas(_of_one(read_schema(schemas), form, message), os.fspath(schemas))


def descriptors(path: FilePath, *, message: str | None = None, framing: Framing | str | None = None) -> KnownSchemas:
    """The Protobuf schema of a file that ``protoc --include_imports --descriptor_set_out`` wrote.

    Args:
        message: full name of the message; by default the first one of the last file in the set.
        framing: as of ``files``.

    Raises:
        as ``files``.
    """
    schema = Schema(SchemaFormat.PROTOBUF, base64.b64encode(_read(path)).decode())
    return KnownSchemas(_of_one(schema, parse_framing(framing or Framing.BARE), message), os.fspath(path))


def load(path: FilePath) -> KnownSchemas:
    """Schemas that ``segreader schemas pull`` saved.

    Raises:
        ObjectNotFoundError: there is no such file. OptionError: it holds something else.
    """
    try:
        return KnownSchemas(SchemaSet.from_json(_read(path)), os.fspath(path))
    except OptionError as error:
        raise error.located(source=os.fspath(path)) from None


def open_schemas(
    place: FilePath,
    *,
    framing: Framing | str | None = None,
    message: str | None = None,
) -> SchemaSource:
    """The source of schemas that a text names: the URL of a registry, a file of a schema, or one of saved schemas.

    Secrets of a registry come from variables, ``SEGREADER_SCHEMA_REGISTRY_AUTH`` (``user:password``) or ``…_TOKEN``,
    and so do its files of certificates; docs/reference/environment.md.

    Args:
        framing, message: as of ``files``, and of ``segreader.schemas.registry``.

    Raises:
        ObjectNotFoundError, OptionError: as ``files``.
    """
    text = os.fspath(place)
    if is_registry(text):
        return open_registry(text, framing=framing or Framing.CONFLUENT, message=message)
    if "://" in text:
        raise OptionError(
            "schemas are read from a registry or a local file",
            found=text.partition("://")[0] + "://…",
            expected="http://…, https://… or a path",
            hint="The topic _schemas: segreader.schemas.topic(…), or segreader schemas pull",
        )
    if Path(text).suffix.lower() not in (".avsc", ".proto", *_DESCRIPTORS) and _is_saved(_read(text)):
        known = load(text)
        if framing is not None or message is not None:
            form = known.known.framing if framing is None else parse_framing(framing)
            return replace(known, known=replace(known.known, framing=form, message=message or known.known.message))
        return known
    return files(text, framing=framing, message=message)


def is_registry(text: str) -> bool:
    """Whether a text is the URL of a registry."""
    return re.match(r"https?://", text, re.IGNORECASE) is not None


def open_registry(url: str, **given: Any) -> SchemaRegistry:
    """A registry with the secrets and files of certificates that variables name.

    Args:
        given: other arguments of ``segreader.schemas.registry``, which win over variables.

    Raises:
        OptionError: a variable, or an argument, is none.
    """
    of_environment = _of_environment(os.environ)
    has_user = "@" in url.split("/", 3)[2] or given.get("auth") is not None or given.get("token") is not None
    if has_user:
        of_environment = {name: one for name, one in of_environment.items() if name not in ("auth", "token")}
    return SchemaRegistry(url, **(of_environment | given))


def read_schema(path: FilePath) -> Schema:
    """The schema in a file; its name says of which format it is. Raises as ``files``."""
    name, suffix = os.fspath(path), Path(path).suffix.lower()
    if suffix in _DESCRIPTORS:
        return Schema(SchemaFormat.PROTOBUF, base64.b64encode(_read(path)).decode())
    if suffix == ".proto":
        from segreader.typed.formats.protobuf import described

        try:
            return described(_proto(Path(path), ()))
        except OptionError as error:
            raise error.located(source=name) from None
    if suffix not in (".avsc", ".json"):
        raise OptionError(
            "the name of this file does not say what schema it has",
            source=name,
            found=suffix or "no suffix",
            expected=".avsc, .json, .proto or .desc",
        )
    text = _text(path)
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        raise OptionError("the schema is not JSON", source=name) from None
    if suffix == ".json" and _is_saved(text):
        raise OptionError(
            "this file has saved schemas, not one schema", source=name, hint="Open it with segreader.schemas.load"
        )
    return Schema(SchemaFormat.AVRO if suffix == ".avsc" or _is_avro(document) else SchemaFormat.JSON, text)


def _is_avro(document: Any) -> bool:
    """Whether a document is an Avro schema: only these have named types, and types that are lists of objects."""
    if isinstance(document, dict):
        return document.get("type") in _NAMED and "name" in document
    return isinstance(document, list | str)


def _is_saved(text: str | bytes) -> bool:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(document, dict) and document.get("kind") == "schemas" and "ids" in document


def _of_one(schema: Schema, framing: Framing, message: str | None) -> SchemaSet:
    if framing is Framing.BARE:
        return SchemaSet(framing=framing, bare=schema, message=message)
    id = ANY_ID
    if framing is Framing.SINGLE_OBJECT:
        if schema.format is not SchemaFormat.AVRO:
            raise OptionError("single objects are Avro", found=schema.format.value)
        id = single_object_id(schema)
    return SchemaSet(framing=framing, ids=((id, schema),), message=message)


def _id(given: int | str) -> str:
    """An id as frames are looked up by it.

    Raises:
        OptionError: it is none.
    """
    text = str(given).strip()
    if text == ANY_ID or text.isdecimal() or re.fullmatch(r"[0-9a-fA-F]{16}", text):
        return text.lower()
    try:
        return uuid.UUID(text).hex
    except ValueError:
        raise OptionError("not the id of a schema", found=repr(given), expected="a number, a GUID, or *") from None


def _proto(path: Path, above: tuple[Path, ...]) -> Schema:
    """A ``.proto`` file with the files that it imports, which are looked for in its directory and those above it."""
    if path.resolve() in above or len(above) > 50:
        raise OptionError("files import each other in a circle", found=path.name)
    text = _text(path)
    references = []
    for name in dict.fromkeys(_IMPORT.findall(_COMMENT.sub(" ", text))):
        found = next((one / name for one in path.resolve().parents if (one / name).is_file()), None)
        if found is not None:
            references.append(Reference(name, _proto(found, (*above, path.resolve()))))
        elif not name.startswith(_WELL_KNOWN):
            raise OptionError(
                "a file that is imported is not there",
                source=str(path),
                found=name,
                expected="it in a directory above",
                hint="Or give a descriptor set: protoc --include_imports --descriptor_set_out=FILE.desc",
            )
    return Schema(SchemaFormat.PROTOBUF, text, tuple(references))


def _text(path: FilePath) -> str:
    try:
        return _read(path).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise OptionError("the schema is not UTF-8", source=os.fspath(path)) from None


def _read(path: FilePath) -> bytes:
    name = os.fspath(path)
    try:
        with open(path, "rb") as file:
            data = file.read(LARGEST_FILE + 1)
    except FileNotFoundError:
        raise ObjectNotFoundError("there is no such file of schemas", source=name, hint="Check the path") from None
    except OSError as error:
        raise OptionError(
            "the file of schemas cannot be read", source=name, found=error.strerror, hint="Check the path"
        ) from None
    if len(data) > LARGEST_FILE:
        raise OptionError("the file is too large for schemas", source=name, expected=f"at most {LARGEST_FILE} bytes")
    return data


def _of_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    """What variables say of registries; secrets stay where they are, as references.

    Raises:
        OptionError: a variable of that family has another name.
    """
    given: dict[str, Any] = {}
    for variable in sorted(environ):
        name = variable.removeprefix(ENVIRONMENT).lower()
        if name == variable.lower() or not environ[variable]:
            continue
        if name not in OF_ENVIRONMENT:
            raise OptionError(
                "unknown variable",
                found=variable,
                expected=", ".join(ENVIRONMENT + one.upper() for one in OF_ENVIRONMENT),
                hint=VARIABLES_HINT,
            )
        is_secret = name in ("auth", "token") and not environ[variable].startswith("@")
        given[name] = f"env:{variable}" if is_secret else environ[variable]
    return given
