"""What decoding of one side of records, keys or values, needs, as one value: it travels with plans and saved states."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, Final, Protocol, Self

from segreader.errors import OptionError
from segreader.typed.schema import Framing as Framing
from segreader.typed.schema import SchemaSet
from segreader.typed.types import Type, select
from segreader.values import dataclass


class Side(StrEnum):
    """Which part of a record is decoded."""

    KEY = "key"
    VALUE = "value"


class Undecodable(StrEnum):
    """What to do with a value that is not what its schema says."""

    FAIL = "fail"  # raise, after the records before it
    NULL = "null"  # a null, counted in the metrics
    KEEP = "keep"  # a null, with the bytes in the column value_raw and the reason in value_error

    @classmethod
    def parse(cls, word: str) -> Self:
        """The policy of this word.

        Raises:
            OptionError: it is another word.
        """
        try:
            return cls(word)
        except ValueError:
            raise OptionError("unknown on_undecodable", found=word, expected="fail, null or keep") from None


ANY_ID: Final = "*"
"""In place of an id in a ``SchemaSet``: the schema of every id that is not there itself."""


class SchemaSource(Protocol):
    """Where schemas come from: a registry, files, the ``_schemas`` topic, or what was saved of one of them."""

    def learn(self, topic: str | None) -> SchemaSet:
        """The schemas of a topic; ``None``: all there are. This is the only time that anything is asked.

        Raises:
            OptionError, SchemaRegistryError: they cannot be had.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoding:
    """How one side of records is decoded. It holds no secret, and nothing that has to be asked for.

    Args:
        schemas: those that values may name; no others are known.
        type: the reader's schema, fixed when the read was planned.
        paths: the fields of it that are decoded, with dots between; the empty path is all of it.
    """

    side: Side
    schemas: SchemaSet
    type: Type
    paths: tuple[str, ...] = ("",)
    on_undecodable: Undecodable = Undecodable.FAIL

    def __post_init__(self) -> None:
        try:
            select(self.type, self.paths)
        except KeyError as error:
            raise OptionError(
                f"no such field: {self.side}.{error.args[0]}",
                expected=", ".join(f"{self.side}.{one.name}" for one in self.type.fields) or f"{self.side} alone",
            ) from None

    @property
    def framing(self) -> Framing:
        """How values name their schemas."""
        return self.schemas.framing

    @property
    def selected(self) -> Type:
        """The type of the column: what is decoded of ``type``."""
        return select(self.type, self.paths)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that decoding makes of the one of the side."""
        keeps = self.on_undecodable is Undecodable.KEEP
        return (self.side.value, *((f"{self.side}_raw", f"{self.side}_error") if keeps else ()))

    def to_json(self) -> str:
        """The decoding as text."""
        return json.dumps(
            {
                "side": self.side.value,
                "schemas": json.loads(self.schemas.to_json()),
                "type": json.loads(self.type.to_json()),
                "paths": list(self.paths),
                "on_undecodable": self.on_undecodable.value,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Decoding:
        """The decoding that ``to_json`` gave.

        Raises:
            OptionError: it is none.
        """
        try:
            document: dict[str, Any] = json.loads(text)
            return cls(
                side=Side(document["side"]),
                schemas=SchemaSet.from_json(json.dumps(document["schemas"])),
                type=Type.from_json(json.dumps(document["type"])),
                paths=tuple(document["paths"]),
                on_undecodable=Undecodable(document["on_undecodable"]),
            )
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            if isinstance(error, OptionError):
                raise
            raise OptionError("not a saved decoding", found=type(error).__name__) from None


def save_decodings(decodings: Iterable[Decoding]) -> dict[str, Any]:
    """The decodings of keys and values as one JSON object: a schema that both have is in it once."""
    schemas: dict[str, Any] = {}
    document: dict[str, Any] = {"schemas": schemas}
    for one in decodings:
        saved = json.loads(one.to_json())
        schemas |= saved["schemas"].pop("schemas")
        document[one.side.value] = saved
    return document


def saved_decodings(document: Mapping[str, Any]) -> dict[str, Decoding]:
    """The decodings that ``save_decodings`` gave, by their side.

    Raises:
        OptionError: they are none.
    """
    try:
        schemas = document["schemas"]
        sides = {side.value: document[side.value] for side in Side if side.value in document}
        whole = {side: saved | {"schemas": saved["schemas"] | {"schemas": schemas}} for side, saved in sides.items()}
    except (KeyError, TypeError) as error:
        raise OptionError("not saved decodings", found=type(error).__name__) from None
    return {side: Decoding.from_json(json.dumps(one)) for side, one in whole.items()}
