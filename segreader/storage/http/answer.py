"""Checks the head of an HTTP answer against the request, and names the error of a refusal. Pure: it reads no bytes.

Source: RFC 9110 sections 8.8.3 (ETag), 14.4 (Content-Range), 15.5.17 (416); RFC 9112 section 6 (Transfer-Encoding,
Content-Length); the error codes are those of Amazon S3, Azure Blob Storage and Google Cloud Storage.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field

from segreader.errors import (
    AccessDeniedError,
    LocationExpiredError,
    ObjectChangedError,
    ObjectNotFoundError,
    ShortReadError,
    StorageError,
    ThrottledError,
    WrongAnswerError,
)
from segreader.ranges import ByteRange
from segreader.storage.base import tag_of
from segreader.storage.retry import Remedy, RequestFailed, parse_retry_after
from segreader.storage.signed_url import redact
from segreader.values import dataclass

ERROR_BODY_SIZE = 64 << 10
"""Bytes of an error's body that are read at most."""

_CONTENT_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})", re.ASCII)
_UNSATISFIED = re.compile(r"bytes \*/(\d{1,18})", re.ASCII)
_CODE = re.compile(rb"<Code>\s*([A-Za-z0-9._-]{1,64})\s*</Code>")
_SHOWN_CODE = re.compile(r"(?=.*[a-z])(?:KMS\.)?[A-Z][A-Za-z]{1,59}\d{0,3}", re.ASCII)
_REGION = re.compile(r"[a-z]{2,4}(?:-[a-z]{2,9}){1,3}-\d{1,2}", re.ASCII)
_EXPIRED_TEXT = re.compile(rb"has expired|token is expired|Signed expiry time", re.IGNORECASE)

_EXPIRED = frozenset({"ExpiredToken", "TokenRefreshRequired", "RequestExpired"})
_DENIED = frozenset({"AccessDenied", "InvalidToken", "AuthenticationFailed", "SignatureDoesNotMatch"})
_ARCHIVED = frozenset({"InvalidObjectState", "BlobArchived", "BlobBeingRehydrated"})
SKEWED = frozenset({"RequestTimeTooSkewed"})
THROTTLED = frozenset({"SlowDown", "ServerBusy", "RequestLimitExceeded", "TooManyRequests", "Throttling"})
NO_BUCKET = frozenset({"NoSuchBucket", "ContainerNotFound", "ContainerBeingDeleted"})
_TIMED_OUT = frozenset({"RequestTimeout", "OperationTimedOut"})


@dataclass(frozen=True, slots=True)
class Identity:
    """What identifies one version of an object: its size, and its tag or else its time.

    ``listed_tag`` is the tag that the listing gives this version, where that is none of those in answers.
    """

    size: int
    etag: str | None = None
    last_modified: str | None = None
    generation: str | None = None
    listed_tag: str | None = field(default=None, compare=False)

    @property
    def tag(self) -> str | None:
        """This version's ``ObjectInfo.tag``."""
        return tag_of("etag", self.etag) or tag_of("modified", self.last_modified)

    def has(self, tag: str) -> bool:
        """Whether this is the version that was listed with a tag."""
        return tag in (self.tag, tag_of("generation", self.generation), self.listed_tag)

    @property
    def if_match(self) -> str | None:
        """The tag for an ``If-Match`` header; weak tags do not vouch for bytes and are not sent."""
        return self.etag if self.etag is not None and self.etag.startswith('"') else None

    def check_same(self, other: Identity, source: str) -> None:
        """Compare with the identity in a later answer.

        Raises:
            ObjectChangedError: it is another version.
        """
        if self.etag is not None:
            same = _opaque(self.etag) == _opaque(other.etag)
            found, expected = other.etag or "no tag", self.etag
        else:
            same = self.last_modified == other.last_modified
            found, expected = other.last_modified or "no time", self.last_modified or "no time"
        if self.size != other.size:
            raise changed(source, found=f"{other.size} bytes", expected=f"{self.size} bytes")
        if not same:
            raise changed(source, found=f"version {found[:80]}", expected=expected[:80])


def _opaque(etag: str | None) -> str | None:
    return None if etag is None else etag.removeprefix("W/")


def changed(source: str, *, found: object = None, expected: object = None) -> ObjectChangedError:
    """The error for an object that was replaced during the read."""
    return ObjectChangedError(
        "the object was replaced while it was read",
        source=source,
        found=found,
        expected=expected,
        hint="Plan again: the old bytes no longer exist",
    )


def check_head(
    status: int, headers: Mapping[str, str], wanted: ByteRange, *, known_size: int | None, source: str
) -> Identity:
    """The object's identity from a good answer, whose head is checked against the range that was asked for.

    Args:
        status: 200 or 206.
        headers: as urllib3 gives them: names in any case, repeated values joined by commas.
        known_size: bytes of the object as it was listed or read before.

    Raises:
        WrongAnswerError: it is another range, encoded in a way that was not asked for, or not a range at all.
        ObjectChangedError: the object has another size than ``known_size``.
        ShortReadError: the object, or the answer, ends inside the range; ``position`` says where.
    """
    encoding = headers.get("Content-Encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise WrongAnswerError(
            "the answer is encoded, its bytes are not the object's",
            source=source,
            found=f"Content-Encoding {encoding[:40]}",
            expected="none",
            hint="The object was stored with this header, or something on the way compresses",
        )
    _check_transfer(headers, source)
    length = _length(headers, source)
    content_range = headers.get("Content-Range")
    if content_range is None:
        if status == 200 and wanted.start == 0 and length == wanted.size:
            total = wanted.size
        elif status == 200 and wanted.start == 0 and length == 0:
            raise ShortReadError("the object is empty", source=source, position=0, expected=wanted.http_header())
        else:
            raise WrongAnswerError(
                "the store does not answer with ranges",
                source=source,
                found=f"status {status} without Content-Range, {_shown(length)}",
                expected=f"{wanted.http_header()}",
                hint="Is this URL an object of an object store? A login page or a proxy answers so",
            )
    else:
        total = _check_content_range(content_range, wanted, known_size, source)
        if length is not None and length != wanted.size:
            raise WrongAnswerError(
                "the answer contradicts itself",
                source=source,
                found=f"{length} bytes",
                expected=f"{wanted.size} bytes for {content_range[:60]}",
            )
    if known_size is not None and total != known_size:
        raise changed(source, found=f"{total} bytes", expected=f"{known_size} bytes")
    return Identity(
        total,
        headers.get("ETag") or None,
        headers.get("Last-Modified") or None,
        headers.get("x-goog-generation") or None,
    )


def _shown(length: int | None) -> str:
    return "no length" if length is None else f"{length} bytes"


def _check_transfer(headers: Mapping[str, str], source: str) -> None:
    """Refuse a body that comes in any form but plain or ``chunked``: its bytes are not the object's.

    Requests name no coding in ``TE``, so that ``chunked`` is all that a server may use, once, and without a length
    beside it. ``identity`` is a coding no more (RFC 9112 section 7), and http.client reads only the bare word.
    """
    coding = headers.get("Transfer-Encoding")
    if coding is None:
        return
    if coding.lower() != "chunked" or "Content-Length" in headers:
        beside = " and a Content-Length" if "Content-Length" in headers else ""
        raise WrongAnswerError(
            "the answer's body is not sent as the object's bytes",
            source=source,
            found=f"Transfer-Encoding {coding[:40]!r}{beside}",
            expected="none, or chunked alone",
            hint="A proxy or server on the way does not keep to HTTP: ask the store without it",
        )


def _length(headers: Mapping[str, str], source: str) -> int | None:
    text = headers.get("Content-Length")
    if text is None:
        return None
    if not re.fullmatch(r"\d{1,18}", text, re.ASCII):
        raise WrongAnswerError(
            "the answer's length is not clear",
            source=source,
            found=f"Content-Length {text[:40]!r}",
            expected="a number",
        )
    return int(text)


def _check_content_range(text: str, wanted: ByteRange, known_size: int | None, source: str) -> int:
    """The object's size that the header states."""
    if text.strip() == "bytes 0--1/0" and wanted.start == 0:  # azurite's answer for an empty object
        raise ShortReadError("the object is empty", source=source, position=0, expected=wanted.http_header())
    match = _CONTENT_RANGE.fullmatch(text.strip())
    if match is None:
        raise WrongAnswerError("the answer's range is not clear", source=source, found=f"Content-Range {text[:60]}")
    first, last, total = (int(number) for number in match.groups())
    if first != wanted.start or last >= total or last >= wanted.stop:
        raise WrongAnswerError(
            "the store answered with another range", source=source, found=text[:60], expected=wanted.http_header()
        )
    if last != wanted.stop - 1:
        if known_size is not None and total != known_size:
            raise changed(source, found=f"{total} bytes", expected=f"{known_size} bytes")
        raise ShortReadError(
            "the object ends before the range does" if last == total - 1 else "the answer ends before the range does",
            source=source,
            position=last + 1,
            found=text[:60],
            expected=wanted.http_header(),
        )
    return total


def unsatisfied_size(headers: Mapping[str, str]) -> int | None:
    """The object's size as a 416 answer states it."""
    match = _UNSATISFIED.fullmatch(headers.get("Content-Range", "").strip())
    return int(match[1]) if match else None


def refusal(
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    *,
    wanted: ByteRange,
    known_size: int | None,
    source: str,
    now: float,
) -> RequestFailed:
    """The error for an answer without data, and what may help.

    Args:
        body: its first bytes, at most ``ERROR_BODY_SIZE``; only its code is shown, since stores repeat parts of the
            request in it.
        now: seconds since 1970 UTC.
    """
    code = error_code(headers, body)
    found = f"status {status}" + (f" {code}" if code else "")
    retry_after_s = parse_retry_after(headers.get("Retry-After"), now)

    def failed(kind: type[StorageError], message: str, remedy: Remedy = Remedy.NONE, hint: str = "") -> RequestFailed:
        error = kind(message, source=source, found=found, hint=hint or None)
        return RequestFailed(error, remedy, retry_after_s)

    if status in (429, 503) or code in THROTTLED:
        return failed(
            ThrottledError,
            "the store throttles requests",
            Remedy.SLOW_DOWN,
            "It stayed so for every try: read with less in flight, or later",
        )
    if status in (408, 500, 502, 504) or code in _TIMED_OUT:
        return failed(StorageError, "the store failed to answer", Remedy.RETRY, "Every try ended so: see its status")
    if code in _ARCHIVED:
        return failed(
            AccessDeniedError,
            "the object is archived",
            hint="Restore it first (S3: restore-object; Azure: set the tier to Hot or Cool), then read again",
        )
    if code in SKEWED:
        return failed(AccessDeniedError, "this machine's clock is off", hint="Set the clock, then read again")
    if code in _EXPIRED or (status in (400, 401, 403) and _EXPIRED_TEXT.search(body)):
        return failed(LocationExpiredError, "the URL has expired", Remedy.REFRESH, "Sign a new URL, with a longer life")
    if status in (401, 403) or code in _DENIED:
        return failed(
            AccessDeniedError,
            "the store refuses to give the object",
            Remedy.REFRESH,
            "The URL has expired, is not for this object, or its signer may not read it",
        )
    if code in NO_BUCKET:
        what = "bucket" if code == "NoSuchBucket" else "container"
        return failed(ObjectNotFoundError, f"there is no such {what}", hint=f"Check the {what}'s name in the URL")
    if status in (404, 410):
        hint = "Retention may have removed it since it was listed"
        return failed(ObjectNotFoundError, "there is no such object", hint=hint)
    if status == 412:
        return RequestFailed(changed(source, found=found, expected="the version that was read before"), Remedy.NONE)
    if status == 416:
        size = unsatisfied_size(headers)
        if size is None and wanted.start == 0:  # S3 omits it; only an empty object has no first byte
            size = 0
        if known_size is not None and wanted.stop <= known_size and size != known_size:
            now_has = "another size" if size is None else f"{size} bytes"
            return RequestFailed(changed(source, found=now_has, expected=f"{known_size} bytes"), Remedy.NONE)
        error = ShortReadError(
            "the object ends before the range begins",
            source=source,
            position=size,
            found="another size" if size is None else f"{size} bytes",
            expected=wanted.http_header(),
        )
        return RequestFailed(error, Remedy.NONE)
    if 300 <= status < 400:
        region = headers.get("x-amz-bucket-region", "")
        region = region if _REGION.fullmatch(region) else ""
        place = redact(headers.get("Location", ""))[:200]
        if place:
            found += f" to {place}"
        hint = f"The bucket is in region {region}" if region else "Redirects are not followed: give the final URL"
        return failed(WrongAnswerError, "the store redirects elsewhere", hint=hint)
    if status < 400:
        return failed(WrongAnswerError, "the store responded with something other than data")
    return failed(StorageError, "the store does not take the request")


def error_code(headers: Mapping[str, str], body: bytes) -> str:
    """The store's own code of an error, or an empty text. The body may be cut anywhere, or be no XML at all."""
    match = _CODE.search(body)
    return shown_code(match[1].decode("ascii") if match else headers.get("x-ms-error-code", ""))


def shown_code(text: str) -> str:
    """A code if it looks like one, such as ``NoSuchKey``, or an empty text: keys and tokens do not."""
    return text if _SHOWN_CODE.fullmatch(text) else ""
