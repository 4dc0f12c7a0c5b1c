"""Schemas as values: one schema, and all that was learnt of a topic's. They travel with plans and saved states."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Any, Final

from segreader.errors import OptionError
from segreader.values import dataclass

SAVED_VERSION: Final = 1


class SchemaFormat(StrEnum):
    """The three formats of schema registries, by their names there in lower case."""

    AVRO = "avro"
    PROTOBUF = "protobuf"
    JSON = "json"


class Framing(StrEnum):
    """How the bytes of a key or value name their schema."""

    CONFLUENT = "confluent"  # 00, id int32 big-endian; or the header __key_schema_id or __value_schema_id, if there
    APICURIO = "apicurio"  # 00, id int64 big-endian
    GLUE = "glue"  # 03, compression (00 none, 05 zlib), UUID of the schema version
    SINGLE_OBJECT = "single-object"  # C3 01, CRC-64-AVRO fingerprint little-endian
    BARE = "bare"  # nothing but the payload


@dataclass(frozen=True, slots=True)
class Reference:
    """A schema that another one names.

    Args:
        name: as the other one names it: a full name (Avro), the path of an import (Protobuf), a URI (JSON Schema).
    """

    name: str
    schema: Schema


@dataclass(frozen=True, slots=True)
class Schema:
    """One schema of a writer.

    Args:
        text: JSON of an Avro or JSON schema; of Protobuf the text of a ``.proto`` file, or a serialized
            ``FileDescriptorProto`` or ``FileDescriptorSet`` in base64.

    Raises:
        OptionError: there is no such format, or the text is no text.
    """

    format: SchemaFormat
    text: str
    references: tuple[Reference, ...] = ()

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "format", SchemaFormat(self.format))
        except ValueError:
            expected = ", ".join(one.value for one in SchemaFormat)
            raise OptionError("unknown format of a schema", found=repr(self.format), expected=expected) from None
        if not isinstance(self.text, str):
            raise OptionError("a schema must be text", found=type(self.text).__name__)

    @property
    def fingerprint(self) -> str:
        """What is the same for equal schemas: the first 128 bits of a SHA-256, in hex."""
        import hashlib  # few reads need it

        parts = [self.format.value, self.text, *(f"{one.name} {one.schema.fingerprint}" for one in self.references)]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class Version:
    """A version of a subject, and the id of its schema; Glue's ids are UUIDs, in hex."""

    version: int
    id: int | str


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaSet:
    """What was learnt of schemas: everything that decoding needs, so that nothing is asked later.

    Args:
        framing: how values name their schemas.
        ids: what a frame names, and its schema: ids in decimal, GUIDs and fingerprints in hex of lower case.
        subjects: the versions of each subject, oldest first.
        bare: the schema of values without a frame.
        message: full name of the Protobuf message of ``bare``; its first message by default.
    """

    framing: Framing = Framing.CONFLUENT
    ids: tuple[tuple[str, Schema], ...] = ()
    subjects: tuple[tuple[str, tuple[Version, ...]], ...] = ()
    bare: Schema | None = None
    message: str | None = None

    def schema(self, id: int | str) -> Schema | None:
        """The schema of an id, if it is known."""
        return dict(self.ids).get(str(id))

    def to_json(self) -> str:
        """The set as text: each schema once, by its fingerprint."""
        known: dict[str, dict[str, Any]] = {}

        def add(schema: Schema) -> str:
            fingerprint = schema.fingerprint
            if fingerprint not in known:
                document: dict[str, Any] = {"format": schema.format.value, "text": schema.text}
                known[fingerprint] = document
                if schema.references:
                    document["references"] = {one.name: add(one.schema) for one in schema.references}
            return fingerprint

        document: dict[str, Any] = {"kind": "schemas", "version": SAVED_VERSION, "framing": self.framing.value}
        document["schemas"] = known
        document["ids"] = {id: add(schema) for id, schema in self.ids}
        document["subjects"] = {name: {one.version: one.id for one in versions} for name, versions in self.subjects}
        if self.bare is not None:
            document["bare"] = add(self.bare)
        if self.message is not None:
            document["message"] = self.message
        return json.dumps(document, indent=1)

    @classmethod
    def from_json(cls, text: str | bytes) -> SchemaSet:
        """The set that ``to_json`` gave.

        Raises:
            OptionError: it is none, or a newer version wrote it.
        """
        try:
            document = json.loads(text)
            if document["kind"] != "schemas":
                raise KeyError("kind")
            if document["version"] > SAVED_VERSION:
                raise OptionError(
                    "a newer version of segreader saved these schemas",
                    found=f"version {document['version']}",
                    expected=f"at most {SAVED_VERSION}",
                    hint="Update segreader, or pull the schemas again with this one",
                )
            made: dict[str, Schema] = {}

            def schema(fingerprint: str, above: tuple[str, ...] = ()) -> Schema:
                if fingerprint in above:
                    raise KeyError(fingerprint)
                if fingerprint not in made:
                    one = document["schemas"][fingerprint]
                    references = tuple(
                        Reference(name, schema(below, (*above, fingerprint)))
                        for name, below in one.get("references", {}).items()
                    )
                    made[fingerprint] = Schema(SchemaFormat(one["format"]), one["text"], references)
                return made[fingerprint]

            bare = document.get("bare")
            return cls(
                framing=Framing(document["framing"]),
                ids=tuple((id, schema(fingerprint)) for id, fingerprint in document["ids"].items()),
                subjects=tuple(
                    (name, tuple(Version(int(version), id) for version, id in versions.items()))
                    for name, versions in document["subjects"].items()
                ),
                bare=None if bare is None else schema(bare),
                message=document.get("message"),
            )
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            if isinstance(error, OptionError):
                raise
            raise OptionError(
                "not a file of saved schemas", found=type(error).__name__, hint="segreader schemas pull writes one"
            ) from None
