"""Which APIs and versions are spoken here, and which headers go with them.

Tiered storage left early access in Kafka 3.9, so versions that no broker from then on needs are not spoken; Fetch 12
is, for it is the last one with topic names. Fetch ends with 18: KIP-1248 wanted that number, and Kafka 4.1 gave it to
KIP-1166. Source: the message schemas of Apache Kafka 4.3; ``ApiKeys``.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from segreader.broker.messages import ApiVersionRange, ApiVersions
from segreader.errors import UnsupportedVersionError


class Api(IntEnum):
    """An API's key: those that a reader asks, and those whose answers carry addresses of brokers."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    OFFSET_FOR_LEADER_EPOCH = 23
    DESCRIBE_CONFIGS = 32
    SASL_AUTHENTICATE = 36
    DESCRIBE_QUORUM = 55
    DESCRIBE_CLUSTER = 60
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79

    @property
    def label(self) -> str:
        """The name as Kafka writes it."""
        return self.name.title().replace("_", "")


SUPPORTED: Final[dict[Api, ApiVersionRange]] = {
    Api.FETCH: ApiVersionRange(12, 18),
    Api.LIST_OFFSETS: ApiVersionRange(6, 11),
    Api.METADATA: ApiVersionRange(9, 13),
    Api.OFFSET_FETCH: ApiVersionRange(8, 9),
    Api.FIND_COORDINATOR: ApiVersionRange(4, 4),
    Api.SASL_HANDSHAKE: ApiVersionRange(1, 1),
    Api.API_VERSIONS: ApiVersionRange(0, 4),
    Api.OFFSET_FOR_LEADER_EPOCH: ApiVersionRange(4, 4),
    Api.DESCRIBE_CONFIGS: ApiVersionRange(4, 4),
    Api.SASL_AUTHENTICATE: ApiVersionRange(0, 2),
}
"""Versions that a reader asks with. ApiVersions 3 is asked first, and 0 where that is not known."""

LARGEST_ANSWER: Final = 32 << 20
"""Bytes of an answer that is none to Fetch: Metadata of half a million partitions has fewer."""

LARGEST_EARLY_ANSWER: Final = 1 << 20
"""Bytes of an answer before the peer has shown who it is; the same for FindCoordinator, which is as small."""

_EARLY: Final = frozenset({Api.API_VERSIONS, Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE, Api.FIND_COORDINATOR})

_FLEXIBLE_FROM: Final[dict[Api, int]] = {
    Api.PRODUCE: 9,
    Api.FETCH: 12,
    Api.LIST_OFFSETS: 6,
    Api.METADATA: 9,
    Api.OFFSET_FETCH: 6,
    Api.FIND_COORDINATOR: 3,
    Api.API_VERSIONS: 3,
    Api.OFFSET_FOR_LEADER_EPOCH: 4,
    Api.DESCRIBE_CONFIGS: 4,
    Api.SASL_AUTHENTICATE: 2,
    Api.DESCRIBE_QUORUM: 0,
    Api.DESCRIBE_CLUSTER: 0,
    Api.SHARE_FETCH: 0,
    Api.SHARE_ACKNOWLEDGE: 0,
}


def is_flexible(api: Api, version: int) -> bool:
    """Whether the body has compact lengths and tagged fields (KIP-482). SaslHandshake never has."""
    return api in _FLEXIBLE_FROM and version >= _FLEXIBLE_FROM[api]


def response_header_version(api: Api, version: int) -> int:
    """0, or 1 with tagged fields. The answer to ApiVersions always has 0: its version is what is being found out."""
    return 1 if is_flexible(api, version) and api is not Api.API_VERSIONS else 0


def largest_answer(api: Api) -> int | None:
    """Bytes above which an answer is refused before it is read; ``None`` for Fetch, which says itself what it wants."""
    if api is Api.FETCH:
        return None
    return LARGEST_EARLY_ANSWER if api in _EARLY else LARGEST_ANSWER


def choose_version(api: Api, offered: ApiVersions, *, at_least: int = 0, at_most: int | None = None) -> int:
    """The newest version of an API that both sides speak.

    Args:
        at_least, at_most: what the request itself needs, within what is spoken here.

    Raises:
        UnsupportedVersionError: there is none; it names the API and what each side speaks.
    """
    ours = SUPPORTED[api]
    first, last = max(ours.first, at_least), ours.last if at_most is None else min(ours.last, at_most)
    theirs = offered.ranges.get(api)
    if theirs is not None and max(first, theirs.first) <= min(last, theirs.last):
        return min(last, theirs.last)
    raise UnsupportedVersionError(
        f"the broker does not speak a version of {api.label} that is needed",
        found="none at all" if theirs is None else f"versions {theirs.first} to {theirs.last}",
        expected=f"one of {first} to {last}",
        hint="Brokers from Kafka 3.9 on are supported",
    )
