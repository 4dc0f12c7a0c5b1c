"""Translates exceptions of fsspec's filesystems and the clouds' clients, without their texts, which quote the store.

A store, or a proxy before it, may repeat a session token or a signature in its error text. Shown are its status, its
code if that looks like one, the exception's class, and words of our own.
"""

from __future__ import annotations

import os
import re
import socket
from types import TracebackType

from segreader.errors import AccessDeniedError, ObjectNotFoundError, SegreaderError, StorageError, ThrottledError
from segreader.storage.http.answer import NO_BUCKET, SKEWED, THROTTLED, shown_code
from segreader.storage.http.connections import causes
from segreader.storage.signed_url import redact

_NO_CREDENTIALS = {
    "ClientAuthenticationError",
    "CredentialRetrievalError",
    "CredentialUnavailableError",
    "DefaultCredentialsError",
    "NoCredentialsError",
    "PartialCredentialsError",
    "ProfileNotFound",
    "RefreshError",
    "TokenRetrievalError",
}
_NO_CONNECTION = {
    "ClientConnectionError",
    "ConnectTimeoutError",
    "ConnectionError",
    "EndpointConnectionError",
    "ProxyConnectionError",
    "ServiceRequestError",
}
_NO_HOST = {"ClientConnectorDNSError", "NameResolutionError", socket.gaierror.__name__}
_OF_GCSFS = {"Forbidden": 403, "Bad Request": 400}
"""How texts of gcsfs begin where it keeps no status."""
_FULL = ("QuotaExceeded", "StorageFull")
"""How MinIO, Ceph and Swift say that nothing more fits, besides 507."""
_ARROW_TEXT = re.compile(
    r"AWS Error (\w{1,60})(?: \(HTTP status (\d{3})\))? during \w+ operation"
    r"(?:: Unable to parse ExceptionName: (\w{1,60}))?"
)
_OF_ARROW: dict[str, tuple[int | None, str]] = {
    "SLOW_DOWN": (503, "SlowDown"),
    "SERVICE_UNAVAILABLE": (503, ""),
    "INTERNAL_FAILURE": (500, "InternalError"),
    "ACCESS_DENIED": (403, "AccessDenied"),
    "NO_SUCH_BUCKET": (404, "NoSuchBucket"),
    "NETWORK_CONNECTION": (None, "ConnectionLost"),
}
"""What pyarrow's client of S3 calls these answers, whose texts it quotes."""
_IS_FULL = "the store is full, or a quota is used up"
_IS_AWAY = "no connection to the store"
_NO_REGION = "InvalidRegionError"
_ELSEWHERE = {"AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "PermanentRedirect"}


class translated:
    """Turns what fsspec and the clouds' clients raise into our errors, whose text holds no credential.

    Args:
        source: the object or location, as it may be shown.
        hint: what to do when the store refuses.
        listed: the bucket that is listed, as in ``s3://bucket/``: where that is not found, there is no such bucket.
    """

    def __init__(
        self,
        source: str,
        hint: str = "Check the credentials and rights that storage_options give",
        *,
        listed: str | None = None,
    ) -> None:
        self._source = source
        self._hint = hint
        self._listed = listed

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not isinstance(error, Exception) or isinstance(error, SegreaderError | ImportError):
            return
        ours = storage_error(error, self._source, self._hint, listed=self._listed)
        del error, traceback  # a traceback that shows variables would show them
        try:
            raise ours from None
        finally:
            ours.__context__ = None


def storage_error(error: Exception, source: str, hint: str, *, listed: str | None = None) -> StorageError:
    """Our error for what a cloud's client raised.

    Args:
        error: what was raised.
        source: the object or location, as it may be shown.
        hint: what to do when it was refused.
        listed: the bucket that was listed, as in ``s3://bucket/``.
    """
    chain = list(causes(error))
    names = {kind.__name__ for one in chain for kind in type(one).__mro__}
    status: int | None = next(filter(None, map(_status, chain)), None) or _OF_GCSFS.get(str(error).partition(": ")[0])
    code = next(filter(None, map(_code, chain)), "")
    if status is None and not code and (of_arrow := _ARROW_TEXT.search(str(error))) is not None:
        word, number, name = of_arrow.groups()
        status, code = _OF_ARROW.get(word, (int(number) if number else None, shown_code(name or word)))
        if word == "NETWORK_CONNECTION":
            names.add(ConnectionError.__name__)
    found = f"status {status} {code}".rstrip() if status else code or _shown(error)

    def failed(kind: type[StorageError], message: str, hint: str | None = None) -> StorageError:
        return kind(message, source=source, found=found, hint=hint)

    is_missing = isinstance(error, FileNotFoundError) or status == 404
    if code in NO_BUCKET or (listed is not None and is_missing):
        place = (listed or source).partition("://")[2].partition("/")[0]
        what = "container" if source.startswith(("abfs", "az:")) else "bucket"
        return failed(
            ObjectNotFoundError, f"there is no such {what}: {place}", "Check its name, the account and the endpoint"
        )
    if is_missing:
        return failed(ObjectNotFoundError, "no such object", "Retention may have removed it since it was listed")
    if code in SKEWED:
        return failed(AccessDeniedError, "this machine's clock is off", "Set the clock, then read again")
    if status == 507 or any(word in code for word in _FULL):
        kind = AccessDeniedError if status == 403 else StorageError
        advice = "Make room there, then run it again: what is finished stays"
        return failed(kind, _IS_FULL, advice)
    if code in _ELSEWHERE or _NO_REGION in names:
        return failed(StorageError, "the bucket is in another region", "Set the storage option region, or endpoint_url")
    if isinstance(error, PermissionError) or status in (401, 403):
        return failed(AccessDeniedError, "the store refuses", hint)
    if names & _NO_CREDENTIALS:
        return failed(AccessDeniedError, "no usable credentials", hint)
    if status in (429, 503) or code in THROTTLED:
        return failed(ThrottledError, "the store throttles requests", "It stayed so for every try: read later")
    if names & _NO_HOST:
        advice = "There may be no such account or bucket: check the name, the endpoint, and this machine's DNS"
        return failed(StorageError, "the store's host has no address", advice)
    if status is None and names & _NO_CONNECTION:
        return failed(StorageError, _IS_AWAY, "Check the endpoint, the network and the proxy")
    advice = "Open the location in the process that reads" if "fork-safe" in str(error) else ""
    message = "the store does not take the request" if status else "the store's client failed"
    return failed(StorageError, "the store failed to answer" if (status or 0) >= 500 else message, advice)


def is_full(error: BaseException) -> bool:
    """Whether the store said that nothing more fits: trying again does not help."""
    return isinstance(error, StorageError) and error.message == _IS_FULL


def is_away(error: BaseException) -> bool:
    """Whether the store could not be reached, or broke off."""
    return isinstance(error, StorageError) and error.message == _IS_AWAY


def as_of_target(error: StorageError) -> StorageError:
    """The same error, whose hint is for a job that writes."""
    if isinstance(error, ThrottledError):
        error.hint = "It stayed so for every try: run it again later; what is finished stays"
    elif error.message == _IS_AWAY:
        error.hint = "Check the endpoint, the network and the proxy, then run it again: what is finished stays"
    elif not error.hint and not isinstance(error, AccessDeniedError | ObjectNotFoundError):
        error.hint = "Run it again: what is finished stays"
    return error


def _shown(error: Exception) -> str:
    """The class of an exception, with what is known here and not from a store: a profile, the system's own words."""
    number = error.errno if isinstance(error, OSError) else None
    details = getattr(error, "kwargs", None)  # of botocore
    profile = details.get("profile") if isinstance(details, dict) else None
    known = profile if isinstance(profile, str) else os.strerror(number) if isinstance(number, int) else ""
    return f"{type(error).__name__}: {redact(known)}" if known else type(error).__name__


def _status(error: BaseException) -> int | None:
    """The status of HTTP that an exception holds: of azure, aiohttp, gcsfs, requests, or botocore."""
    response = getattr(error, "response", None)
    of_boto = response.get("ResponseMetadata", {}).get("HTTPStatusCode") if isinstance(response, dict) else None
    for value in (
        getattr(error, "status_code", None),
        getattr(error, "status", None),
        getattr(error, "code", None),
        getattr(response, "status_code", None),
        of_boto,
    ):
        text = str(value)
        if isinstance(value, int | str) and len(text) == 3 and text.isascii() and text.isdigit():
            return int(text)
    return None


def _code(error: BaseException) -> str:
    """The store's own code that an exception holds: of botocore, or azure."""
    response = getattr(error, "response", None)
    of_boto = response.get("Error", {}).get("Code") if isinstance(response, dict) else None
    code = getattr(error, "error_code", None) or of_boto
    return shown_code(str(getattr(code, "value", code) or ""))
