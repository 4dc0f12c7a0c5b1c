"""The codec of the protocol under one name: ``encode_`` what is asked, ``decode_`` what is answered.

A request comes back as a whole frame, its size first. An answer is taken as the bytes behind the size, header
included; any bytes give a value or a ``ProtocolError``.
"""

from segreader.broker.answers import (
    decode_api_versions,
    decode_describe_configs,
    decode_epoch_ends,
    decode_find_coordinator,
    decode_list_offsets,
    decode_metadata,
    decode_offset_fetch,
    decode_sasl_authenticate,
    decode_sasl_handshake,
    parse_correlation_id,
)
from segreader.broker.fetch_answer import decode_fetch_answer as decode_fetch
from segreader.broker.requests import (
    encode_api_versions,
    encode_describe_configs,
    encode_epoch_ends,
    encode_fetch,
    encode_find_coordinator,
    encode_list_offsets,
    encode_metadata,
    encode_offset_fetch,
    encode_sasl_authenticate,
    encode_sasl_handshake,
)

__all__ = [
    "decode_api_versions",
    "decode_describe_configs",
    "decode_epoch_ends",
    "decode_fetch",
    "decode_find_coordinator",
    "decode_list_offsets",
    "decode_metadata",
    "decode_offset_fetch",
    "decode_sasl_authenticate",
    "decode_sasl_handshake",
    "encode_api_versions",
    "encode_describe_configs",
    "encode_epoch_ends",
    "encode_fetch",
    "encode_find_coordinator",
    "encode_list_offsets",
    "encode_metadata",
    "encode_offset_fetch",
    "encode_sasl_authenticate",
    "encode_sasl_handshake",
    "parse_correlation_id",
]
