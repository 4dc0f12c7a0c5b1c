"""Random answers of brokers, built from Kafka's schemas and written by kafka-python; random values for our tables."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

from codecs_of_others import kafka_python_class
from kafka.protocol.schemas.fields.base import BaseField
from kio.schema.errors import ErrorCode

from segreader.broker.codec import Field
from segreader.broker.primitives import uuid_text

ERRORS = [one.value for one in ErrorCode]
TEXTS = ("", "t", "orders-3", "naïve.topic", "\U0001d542" * 40, "x" * 200)
_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


def random_answer(api: str, version: int, seed: int) -> bytes:
    """A frame behind its size: the header of that version with correlation id 7, and a random body."""
    random = Random(f"{api} {version} {seed}")
    cls = kafka_python_class(api, "Response")
    message = cls(version=version, **_fields(cls, cls.json["fields"], version, random))
    if api == "ApiVersions":
        message.error_code = 0
    message.with_header(correlation_id=7)
    return bytes(message.encode(header=True))


def _fields(cls: Any, described: list[dict[str, Any]], version: int, random: Random) -> dict[str, Any]:
    fields = {}
    for one in described:
        if not includes(one["versions"], version):
            continue
        if "tag" in one and random.random() < 0.5:
            continue
        fields[BaseField.underscore_name(one["name"])] = _value(cls, one, one["type"], version, random)
    return {name: value for name, value in fields.items() if value is not _DEFAULT}


_DEFAULT = object()


def _value(cls: Any, one: dict[str, Any], kind: str, version: int, random: Random) -> Any:
    if "tag" not in one and includes(one.get("nullableVersions"), version) and random.random() < 0.3:
        return None
    if kind.startswith("[]"):
        count = 1 if one["name"] in ("Coordinators", "Groups") else random.choice((0, 1, 1, 2, 5))
        element = {**one, "nullableVersions": None}
        return [_value(cls, element, kind[2:], version, random) for _ in range(count)]
    if one["name"] == "ErrorCode":
        return random.choice(ERRORS)
    if one["name"].endswith("TimeMs") or one["name"] == "SessionLifetimeMs":
        return random.choice((0, 1, 1000, 2**31 - 1))
    if kind in _BITS and "taggedVersions" in one:
        return random.randrange(2 ** (_BITS[kind] - 1))  # not the default, which would be left out
    if kind in _BITS:
        bits = _BITS[kind] - 1
        return random.choice((0, 1, -1, 2**bits - 1, -(2**bits), random.randrange(-(2**bits), 2**bits)))
    if kind == "bool":
        return random.random() < 0.5
    if kind == "uuid":
        return uuid.UUID(int=random.getrandbits(128))
    if kind == "string":
        return random.choice(TEXTS[1:] if one["name"] == "Topic" else TEXTS)
    if kind in ("bytes", "records"):
        return random.randbytes(random.choice((0, 1, 126, 127, 128, 70_000)))
    if kind == "bitfield":
        return _DEFAULT
    nested = getattr(cls, kind)
    if "tag" in one:
        one = {**one, "fields": [{**field, "taggedVersions": "0+"} for field in one["fields"]]}
    return nested(version=version, **_fields(nested, one["fields"], version, random))


def random_values(fields: Sequence[Field], version: int, random: Random) -> dict[str, Any]:
    """Values for the fields that a version of our table has."""
    return {field.attribute: _our_value(field, version, random) for field in fields if field.is_in(version)}


def _our_value(field: Field, version: int, random: Random) -> Any:
    if field.nullable[0] <= version <= field.nullable[1] and random.random() < 0.3:
        return None
    if field.is_array:
        element = replace(field, is_array=False, nullable=(1, 0))
        count = random.choice((1, 2) if field.tag is not None else (0, 1, 1, 2, 5))  # defaults would be left out
        return tuple(_our_value(element, version, random) for _ in range(count))
    if field.kind == "struct" and field.tag is not None and all(one.is_fixed for one in field.fields):
        return {one.attribute: random.randrange(1 << 31) for one in field.fields}
    if field.kind == "struct":
        return random_values(field.fields, version, random)
    if field.name == "ErrorCode":
        return random.choice(ERRORS)
    if field.name.endswith("Ms"):
        return random.choice((0, 1, 1000, 2**31 - 1))
    if field.kind in _BITS:
        bits = _BITS[field.kind] - 1
        return random.choice((0, 1, -1, 2**bits - 1, -(2**bits), random.randrange(-(2**bits), 2**bits)))
    if field.kind == "bool":
        return random.random() < 0.5
    if field.kind == "uuid":
        return uuid_text(random.randbytes(16))
    if field.kind == "string":
        return random.choice(TEXTS)
    return random.randbytes(random.choice((0, 1, 126, 127, 128, 70_000)))


def as_values(fields: Sequence[Field], version: int, message: Any) -> dict[str, Any]:
    """What we read, as ``random_values`` gives it."""
    return {field.attribute: _as_value(field, version, message) for field in fields if field.is_in(version)}


def _as_value(field: Field, version: int, message: Any) -> Any:
    value = getattr(message, field.attribute)
    if field.kind == "struct" and value is not None:
        nested = (as_values(field.fields, version, one) for one in (value if field.is_array else (value,)))
        return tuple(nested) if field.is_array else next(nested)
    return value


def includes(versions: str | None, version: int) -> bool:
    """Whether Kafka's ``3+``, ``1-7``, ``4`` or ``none`` includes a version."""
    parsed = BaseField.parse_versions(versions)
    return parsed is not None and parsed[0] <= version <= parsed[1]
