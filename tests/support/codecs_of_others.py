"""kafka-python and kio as judges of our codec: they decode, and kio also writes again what it read."""

from __future__ import annotations

import io
from typing import Any

from kafka.protocol import metadata, producer, sasl
from kafka.protocol.admin import cluster, configs
from kafka.protocol.api_header import RequestHeader
from kafka.protocol.consumer import fetch, group, offsets
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

_MODULES = (metadata, sasl, cluster, configs, fetch, group, offsets, producer)


def kafka_python_class(api: str, kind: str) -> Any:
    """kafka-python's ``Request`` or ``Response`` of an API; it has none of the share APIs."""
    return next(getattr(one, api + kind) for one in _MODULES if hasattr(one, api + kind))


def kafka_python_answer(api: str, version: int, frame: memoryview) -> Any:
    """What kafka-python reads in an answer, its header stepped over by it as well."""
    return kafka_python_class(api, "Response").decode(frame, version=version, header=True)


def kafka_python_request(api: str, version: int, frame: memoryview) -> tuple[int, str, Any]:
    """Correlation id, client id and message of a request."""
    message = kafka_python_class(api, "Request").decode(frame, version=version, header=True)
    header = message.header
    assert isinstance(header, RequestHeader)
    assert (header.request_api_key, header.request_api_version) == (message.API_KEY, version)
    return header.correlation_id, header.client_id, message


def kio_answer(api_key: int, version: int, frame: memoryview) -> Any:
    """What kio reads in an answer; it must take every byte, and write the same ones again."""
    return _kio(load_response_schema(api_key, version), frame)


def kio_request(api_key: int, version: int, frame: memoryview) -> Any:
    """What kio reads in a request; it must take every byte, and write the same ones again."""
    return _kio(load_request_schema(api_key, version), frame)


def _kio(schema: Any, frame: memoryview) -> Any:
    data = bytes(frame)
    header, size = entity_reader(schema.__header_schema__)(data, 0)
    message, more = entity_reader(schema)(data, size)
    assert size + more == len(data)
    again = io.BytesIO()
    entity_writer(schema.__header_schema__)(again, header)
    entity_writer(schema)(again, message)
    assert again.getvalue().hex() == data.hex()
    return message
